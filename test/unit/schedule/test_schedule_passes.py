"""Passes of the scheduler on small graphs, without running them; and regression tests."""

from __future__ import annotations

import functools
import gc
import operator
from typing import Any

import numpy as np
import pytest

from tinygrad import Sharding, Tensor, TinyJit, Variable, dtypes
from tinygrad.execution import CommTrace
from tinygrad.garbage import no_garbage
from tinygrad.schedule.canonical import canonicalize
from tinygrad.schedule.execution_plan import StorageSlice
from tinygrad.schedule.grouping.fusion import fuse
from tinygrad.schedule.grouping.fusion.hazards import find_hazards
from tinygrad.schedule.grouping.plan import merge
from tinygrad.schedule.grouping.plan.kernel_loops import loops_of
from tinygrad.schedule.grouping.plan.make_plan import make_plan
from tinygrad.schedule.grouping.plan.unit import Unit
from tinygrad.schedule.grouping.rewrite.prepare import prepare_grouping
from tinygrad.schedule.grouping.rewrite.preserve import tracked_writes
from tinygrad.schedule.grouping.values import is_contraction, repeats
from tinygrad.schedule.pipeline import optimize_communication
from tinygrad.schedule.spmd.collectives import all_reduce
from tinygrad.schedule.spmd.local import pad_to_max_shape, slice_block
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.schedule.storage_views import as_memory, contiguous_range
from tinygrad.settings import Context
from tinygrad.sharding import Partial
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo, ParamArg, ReduceArg, TransferArg, ViewArg
from tinygrad.uop.device_value import Spmd
from tinygrad.uop.ops import UOp
from tinygrad.uop.passes import observe_passes

TWO = ("CPU:1", "CPU:2")
FOUR = tuple(f"CPU:{i}" for i in range(1, 5))
INFO = CommInfo("test", "", "", "")
FLOAT = dtypes.float32


def buffer(*shape: int, device: Any = "CPU") -> UOp:
    return UOp.new_buffer(device, shape, FLOAT)


def param(slot: int, *shape: int) -> UOp:
    return UOp(Ops.PARAM, FLOAT, (), ParamArg(slot, shape))


def total(x: UOp, *axes: int, op: Ops = Ops.ADD) -> UOp:
    return UOp(Ops.REDUCE_AXIS, x.dtype, (x,), ReduceArg(op, axes))


def found(root: UOp, op: Ops) -> list[UOp]:
    return [node for node in root.toposort() if node.op is op]


# ---- canonical graphs ----


def test_graphs_that_differ_in_buffers_and_bound_values_have_one_canonical_graph() -> None:
    size = Variable("n", 1, 8)

    def graph(n: int) -> UOp:
        return UOp.sink(buffer(8).shrink(((0, size.bind(n)),)) + 1)

    one, other = canonicalize(graph(3)), canonicalize(graph(5))
    assert one.sink is other.sink
    assert (one.values, other.values) == ({"n": 3}, {"n": 5})
    assert one.buffers != other.buffers


def test_buffers_are_numbered_in_order_of_use() -> None:
    a, b = buffer(4), buffer(4)
    same, crossed = canonicalize(UOp.sink(a + b, a)), canonicalize(UOp.sink(a + b, b))
    assert same.buffers == crossed.buffers == (a, b)
    assert same.sink is not crossed.sink


def test_a_variable_has_one_value_in_a_graph() -> None:
    size, x = Variable("n", 1, 8), buffer(8)
    sink = UOp.sink(x.shrink(((0, size.bind(3)),)), x.shrink(((0, size.bind(4)),)))
    with pytest.raises(ValueError, match="Variable n is bound to 3 and to 4"):
        canonicalize(sink)


def test_assignments_are_numbered_from_the_first_pending_one() -> None:
    x, y = buffer(4), buffer(4)
    first = x.assign(y)
    second = first.assign(y + 1)
    assert (first.arg, second.arg) == (0, 1)
    assert second.src[0] is x
    assert [n.arg for n in found(canonicalize(UOp.sink(second)).sink, Ops.ASSIGN)] == [0]
    both = canonicalize(UOp.sink(second, first * 2))
    assert sorted(n.arg for n in found(both.sink, Ops.ASSIGN)) == [0, 1]


def test_chains_of_movement_are_one_op_in_the_canonical_graph() -> None:
    x, table = buffer(2, 3, 4), buffer(6, 4)
    chains = (
        x.detach().permute((1, 0, 2)).permute((2, 0, 1)).permute((1, 0, 2)),
        x.reshape((6, 4)).detach().reshape((24,)),
    )
    for chain, op in zip(chains, (Ops.PERMUTE, Ops.RESHAPE), strict=True):
        (found_op,) = canonicalize(UOp.sink(chain)).sink.src
        assert (found_op.op, found_op.shape, found_op.src[0].op) == (op, chain.shape, Ops.BUFFER)
    same = canonicalize(UOp.sink(x.reshape((6, 4)).reshape((2, 3, 4)) + x)).sink.src[0]
    assert same.src[0] is same.src[1]
    back = x.permute((1, 0, 2)).permute((1, 0, 2)).reshape((6, 4)) + table
    assert canonicalize(UOp.sink(back)).sink.src[0].src[0].src[0].op is Ops.BUFFER


def test_the_canonical_graph_keeps_chains_of_sharded_values() -> None:
    x = buffer(4, 6, device=Sharding(TWO, 0))
    chain = x.reshape((2, 2, 6)).reshape((2, 12))
    kept = canonicalize(UOp.sink(chain)).sink.src[0]
    assert [kept.op, kept.src[0].op] == [Ops.RESHAPE, Ops.RESHAPE]
    assert kept.device == chain.device


def test_the_shapes_of_a_canonical_graph_follow_the_variables() -> None:
    size = Variable("n", 1, 8)
    value = buffer(8).shrink(((0, size.bind(3)),)).reshape((1, size.bind(3))) * 2
    assert canonicalize(UOp.sink(value)).sink.src[0].shape == (1, size)


# ---- rewrites of the tensor graph ----


def test_movement_ops_are_merged() -> None:
    x = buffer(2, 3, 4)
    permuted = optimize_communication(x.permute((1, 0, 2)).permute((2, 0, 1)))
    assert (permuted.op, permuted.arg, permuted.src) == (Ops.PERMUTE, (2, 1, 0), (x,))
    assert optimize_communication(x.reshape((6, 4)).reshape((2, 3, 4))) is x


def test_reductions_by_one_op_are_merged() -> None:
    x = buffer(2, 3, 4)
    assert optimize_communication(total(total(x, 2), 0)).arg == ReduceArg(Ops.ADD, (0, 2))
    mixed = total(total(x, 2), 0, op=Ops.MAX)
    assert optimize_communication(mixed) is mixed


def test_a_copy_of_a_copy_skips_the_intermediate_layout() -> None:
    x = buffer(4)
    away = x.copy_to_device("CPU:1")
    assert optimize_communication(UOp(Ops.COPY, FLOAT, (away,), "CPU")) is x
    onward = optimize_communication(UOp(Ops.COPY, FLOAT, (away,), "CPU:2"))
    assert (onward.src, onward.arg) == ((x,), "CPU:2")


def test_a_copy_of_an_all_reduce_is_an_all_reduce_to_its_layout() -> None:
    rows = buffer(4, 4, device=Sharding(TWO, 0)).r(Ops.ADD, (0,))
    split = optimize_communication(rows.copy_to_device(Sharding(TWO, 1)))
    assert (split.op, split.arg) == (Ops.ALLREDUCE, Sharding(TWO, 1))


def test_sums_of_all_reduces_are_one_all_reduce() -> None:
    a, b = (buffer(4, 4, device=Sharding(TWO, 0)).r(Ops.ADD, (0,)) for _ in range(2))
    merged = optimize_communication(a + b)
    assert merged.op is Ops.ALLREDUCE
    assert len(found(merged, Ops.ALLREDUCE)) == 1
    largest = [buffer(4, 4, device=Sharding(TWO, 0)).r(Ops.MAX, (0,)) for _ in range(2)]
    assert len(found(optimize_communication(largest[0] + largest[1]), Ops.ALLREDUCE)) == 2


# ---- rewrites of the per-device graph ----


def prepared(root: UOp) -> UOp:
    return prepare_grouping(root)


@pytest.mark.parametrize("device", ["CPU", Spmd(TWO)])
@pytest.mark.parametrize(("op", "value"), [(Ops.ADD, 0), (Ops.MUL, 1), (Ops.MAX, -np.inf)])
def test_a_reduction_of_no_elements_is_a_constant_on_its_device(
    device: Any, op: Ops, value: Any
) -> None:
    result = prepared(total(buffer(3, 0, device=device), 1, op=op))
    assert (result.op, result.device, result.shape) == (Ops.COPY, device, (3, 1))
    assert [node.arg for node in found(result, Ops.CONST)] == [value]


def test_padding_of_no_elements_is_a_constant_on_its_device() -> None:
    result = prepared(buffer(0, 3, device=Spmd(TWO)).pad(((1, 1), (0, 0))))
    assert (result.device, result.shape) == (Spmd(TWO), (2, 3))
    assert not found(result, Ops.BUFFER)


def test_a_large_reduction_to_few_elements_is_split() -> None:
    result = prepared(total(buffer(1 << 20), 0))
    stored = found(result, Ops.CONTIGUOUS)
    assert [node.size for node in stored] == [256]
    small = total(buffer(1 << 10), 0)
    assert prepared(small) is small


def test_a_reduction_over_a_prime_size_is_not_split() -> None:
    prime = total(buffer(1_000_003), 0)
    assert prepared(prime) is prime


BASE = buffer(4, 6)


@pytest.mark.parametrize(
    ("view", "offset"),
    [
        (BASE, 0),
        (BASE.reshape((24,)), 0),
        (BASE.shrink(((1, 3), (0, 6))), 6),
        (BASE.shrink(((2, 3), (1, 4))), 13),
        (BASE.reshape((24,)).shrink(((5, 9),)).reshape((2, 2)), 5),
        (BASE.shrink(((1, 3), (0, 5))), None),
        (BASE.permute((1, 0)), None),
        (BASE + 1, None),
    ],
)
def test_which_views_are_contiguous(view: UOp, offset: int | None) -> None:
    run = contiguous_range(view)
    if offset is None:
        assert run is None
        assert as_memory(view).op is Ops.CONTIGUOUS
    else:
        assert run == (BASE, offset)
        memory = as_memory(view)
        assert memory is BASE or memory.arg == ViewArg(4 * offset, view.shape)


def test_a_bitcast_to_another_size_is_a_view() -> None:
    cast = UOp(Ops.BITCAST, dtypes.uint8, (buffer(4),))
    assert prepared(cast).op is Ops.BUFFER_VIEW
    same_size = UOp(Ops.BITCAST, dtypes.uint32, (buffer(4),))
    assert prepared(same_size) is same_size


def test_the_source_of_a_transfer_is_materialised() -> None:
    arg = TransferArg("CPU:1", (1, 4), (), INFO)
    computed = prepared(UOp(Ops.TRANSFER, FLOAT, (buffer(4) + 1,), arg))
    assert computed.src[0].op is Ops.CONTIGUOUS
    part = prepared(UOp(Ops.TRANSFER, FLOAT, (buffer(8).shrink(((4, 8),)),), arg))
    assert part.src[0].op is Ops.BUFFER_VIEW


# ---- materialised values ----


def materialised_by(*outputs: UOp) -> set[UOp]:
    order = list(UOp.sink(*outputs).toposort())[:-1]
    found = fuse.choose_materialized(order, list(outputs))
    return {n for n in found if n.op not in {Ops.BUFFER, Ops.CONST}}


def test_elementwise_ops_are_fused_into_their_users() -> None:
    x = buffer(8)
    out = (x + 1) * (x + 2)
    assert materialised_by(out) == {out}


def test_a_reduction_that_is_broadcast_is_materialised() -> None:
    x = buffer(4, 8)
    row = total(x, 1)
    out = x - row.expand((4, 8))
    assert materialised_by(out) == {row, out}


def test_a_reduction_by_another_op_below_a_reduction_is_materialised() -> None:
    inner = total(buffer(256, 128), 1, op=Ops.MAX)
    assert materialised_by(total(inner, 0)) == {inner, total(inner, 0)}


def test_a_reduction_of_few_elements_is_computed_inside_of_another() -> None:
    # as sum, relu, sum
    inner = total(buffer(4, 8, 8), 2).maximum(0)
    assert materialised_by(total(inner, 1)) == {total(inner, 1)}
    # one thread would compute all of these elements
    long = total(buffer(1, 128, 128), 2, op=Ops.MAX)
    assert materialised_by(total(long, 1)) == {long, total(long, 1)}
    # a reduction that is read in two ways has a kernel of its own, as before
    twice = inner * inner.flip((False, True))
    assert inner in materialised_by(total(twice, 1))


def test_a_reduction_that_is_read_in_two_ways_is_materialised() -> None:
    row = total(buffer(8, 8), 1).reshape((8,))
    out = row + row.flip((True,))
    assert row.src[0] in materialised_by(out)


def test_a_kernel_adds_matrix_products_of_equal_loops() -> None:
    def product(size: int, depth: int = 0) -> UOp:
        a, b = buffer(size, 1, depth or size), buffer(1, size, depth or size)
        shape = (size, size, depth or size)
        return total(a.expand(shape) * b.expand(shape), 2)

    first, second, long = product(32), product(32), product(32, 50)
    assert is_contraction(first)
    assert not is_contraction(total(buffer(4, 8), 1))
    bias = buffer(1, 32, 1).expand((32, 32, 1))
    for out in (first + second, first + bias + long, (first + bias).maximum(0) + 1):
        assert materialised_by(out) == {out}
    five = [product(32, i) for i in range(40, 45)]
    out = functools.reduce(operator.add, five)
    assert len(materialised_by(out)) == 2
    # what is more than their sum needs accumulators for each, and a transpose other tiles
    for out, other in [
        (first.maximum(0) + second, second),
        (first * second, second),
        (first + long.permute((1, 0, 2)), long),
    ]:
        assert materialised_by(out) == {out, other}
    # small ones are not worth two kernels
    first, second = product(8), product(8)
    assert materialised_by(first * second) == {first * second}


def test_repeat_is_an_expansion() -> None:
    x = buffer(4, 1)
    assert repeats(x.expand((4, 3)))
    assert not repeats(UOp(Ops.EXPAND, FLOAT, (x,), (4, 1)))
    assert not repeats(x)


# ---- merged kernels ----


def unit(value: UOp, *entries: int, size: int = 0) -> Unit:
    """A kernel that stores `value`; PARAM i is all of entry `entries[i]`."""
    size = size or value.size
    params = [(StorageSlice(entry, 0, 0, size, FLOAT),) for entry in entries]
    store = UOp(Ops.STORE, FLOAT, (param(0, *value.shape), value))
    return Unit(buffer(*value.shape), reads=[], stores=[store], params=params)


def merged(*units: Unit) -> list[Unit]:
    after: dict[Unit, set[Unit]] = {}
    for i, x in enumerate(units):
        # as if each kernel read what the previous ones wrote
        after[x] = {y for y in units[:i] if y.params[0] in x.params[1:]}
    return merge.merge_kernels(list(units), after, lambda node: ("CPU",))


def test_kernels_over_the_same_elements_are_merged() -> None:
    (kernel,) = merged(unit(param(1, 8) + 1, 1, 0), unit(param(1, 8) * 2, 2, 0))
    assert len(kernel.stores) == 2
    assert [parts[0].entry for parts in kernel.params] == [1, 0, 2]


def test_values_written_by_a_group_are_not_loaded_again() -> None:
    (kernel,) = merged(unit(param(1, 8) + 1, 1, 0), unit(param(1, 8) * 2, 2, 1))
    first, second = (store.src[1] for store in kernel.stores)
    assert second is first * 2


def test_a_kernel_that_reads_other_elements_than_another_writes_is_not_merged() -> None:
    backwards = unit(param(1, 8).flip((True,)), 2, 1)
    assert len(merged(unit(param(1, 8) + 1, 1, 0), backwards)) == 2


def test_a_kernel_that_writes_other_elements_than_another_reads_is_not_merged() -> None:
    backwards = unit(param(1, 8).flip((True,)) + param(2, 8), 2, 1, 0)
    assert len(merged(backwards, unit(param(1, 8) + 1, 1, 0))) == 2


def test_kernels_with_two_views_of_one_buffer_are_not_merged() -> None:
    other = unit(param(1, 8) + 1, 2, 0)
    other.params[1] = (StorageSlice(0, 0, 16, 8, FLOAT),)
    assert len(merged(unit(param(1, 8) + param(2, 8), 1, 0, 3), other)) == 2


def test_reductions_of_the_same_elements_are_merged_with_what_is_computed_from_them() -> None:
    def sums(entry: int, *operands: UOp, read: int = 0) -> Unit:
        return unit(total(operands[0] * operands[-1], 1), entry, read, size=64)

    x = param(1, 8, 8)
    (kernel,) = merged(sums(1, x), sums(2, x + 1), unit(param(1, 8, 1) * 2, 3, 1, size=64))
    assert len(kernel.stores) == 3
    assert kernel.stores[2].src[1] is kernel.stores[0].src[1] * 2
    # over other elements, over other axes, and of a sum
    assert len(merged(sums(1, x), sums(2, x, read=3))) == 2
    assert len(merged(sums(1, x), unit(total(x, 0), 2, 0, size=64))) == 2
    of_sum = unit(total(x * param(2, 8, 1).expand((8, 8)), 1), 2, 0, 1, size=64)
    assert len(merged(sums(1, x), of_sum)) == 2


def test_matrix_products_and_long_rows_are_not_merged() -> None:
    left, right = param(1, 8, 1, 8).expand((8, 8, 8)), param(2, 1, 8, 8).expand((8, 8, 8))
    assert loops_of(total(left * right, 2)) is None
    assert loops_of(total(param(1, 1024, 1024), 0)) is None
    assert loops_of(total(param(1, 64, 64), 0)) == ((64,), ((64, True), (64, False)))


def test_params_read_in_place_and_elsewhere() -> None:
    a, b = param(0, 8), param(1, 8)
    assert merge.aligned_params(a + b) == ({a, b}, set())
    assert merge.aligned_params(a + b.flip((True,))) == ({a}, {b})
    assert merge.aligned_params(a + a.flip((True,))) == (set(), {a})


# ---- order ----


def test_a_value_that_reads_other_elements_than_it_is_assigned_to_is_materialised_first() -> None:
    x = buffer(4, 4)

    def stored(value: UOp) -> set[UOp]:
        node = x.assign(value)
        return find_hazards(list(UOp.sink(node).toposort()), {x, node})

    assert stored(x + 1) == set()
    assert stored(x.permute((1, 0)) + 1) == {x.permute((1, 0)) + 1}
    assert stored(x + x.flip((True, False))) == {x + x.flip((True, False))}


def plan_of(*outputs: UOp) -> Any:
    canonical = canonicalize(UOp.sink(*outputs))
    return make_plan(canonical.sink, len(canonical.buffers), "CPU")


def test_old_content_is_read_before_it_is_overwritten() -> None:
    x, y = buffer(4, 4), buffer(4, 4)
    once = x.assign(y)
    plan = plan_of(once.assign(y.permute((1, 0)) * 2), total(once, 1), total(x, 1))
    names = [item.ast.arg.name for item in plan.items]
    assert names == ["r_4", "e_4_4", "r_4", "e_4_4"]


def test_contents_are_tracked_where_two_of_one_memory_are_read() -> None:
    a, b, c = buffer(4), buffer(4), buffer(4)

    def tracked(*nodes: UOp) -> set[UOp]:
        return set(tracked_writes(list(UOp.sink(*nodes).toposort())))

    total = a + b + c
    assert tracked(a.assign(total), b.assign(total + 1)) == set()
    assert tracked(a.assign(total) + b, b.assign(total)) == {a}


def test_the_order_of_items_depends_on_the_graph_alone() -> None:
    def key() -> list[bytes]:
        x, w = buffer(8, 8), [buffer(8, 8) for _ in range(6)]
        outputs = [x + y for y in w] + [total(x * y, 1) for y in w]
        return [item.ast.key for item in plan_of(*outputs).items]

    assert key() == key()


# ---- transfers ----


def transfers(root: UOp) -> list[UOp]:
    return found(root, Ops.TRANSFER)


def test_sharding_a_replicated_value_sends_no_messages() -> None:
    whole, split = Sharding(TWO), Sharding(TWO, 0)
    local = transfer(buffer(4, 3, device=Spmd(TWO)), whole, split, (4, 3), INFO)
    assert not transfers(local)
    assert local.shape == (2, 3)
    assert slice_block(buffer(4, 3), whole, whole, (4, 3)).shape == (4, 3)


def test_an_all_gather_copies_the_local_block_locally() -> None:
    source, target = Sharding(FOUR, 0), Sharding(FOUR)
    local = transfer(buffer(2, 3, device=Spmd(FOUR)), source, target, (8, 3), INFO)
    (copy,) = transfers(local)
    assert len(copy.arg.messages) == 16
    assert {(m.target, m.target_slot, m.source) for m in copy.arg.messages} == {
        (device, block, block) for device in range(4) for block in range(4)
    }
    assert local.shape == (8, 3)


def test_scatter_and_gather_send_each_block_once() -> None:
    scattered = transfer(buffer(4, 3), "CPU", Sharding(TWO, 0), (4, 3), INFO)
    assert [(m.target, m.source) for m in transfers(scattered)[0].arg.messages] == [(0, 0), (1, 0)]
    gathered = transfer(buffer(2, 3, device=Spmd(TWO)), Sharding(TWO, 0), "CPU", (4, 3), INFO)
    assert [(m.target_slot, m.source) for m in transfers(gathered)[0].arg.messages] == [
        (0, 0),
        (1, 1),
    ]


def test_transfers_of_symbolic_sizes_send_their_upper_bound() -> None:
    size = Variable("n", 1, 8)
    value = buffer(8, 2, device=Spmd(TWO)).shrink(((0, size), (0, 2)))
    assert pad_to_max_shape(value).shape == (8, 2)
    local = transfer(value, Sharding(TWO, 1), Sharding(TWO), (size, 4), INFO)
    assert transfers(local)[0].arg.shape == (2, 8, 2)
    assert local.shape == (size, 4)


def test_arrays_of_any_size_that_are_cut_alike_have_the_same_messages() -> None:
    found = []
    for rows, columns in ((8, 12), (64, 8)):
        value = buffer(rows // 4, columns, device=Spmd(FOUR))
        local = transfer(value, Sharding(FOUR, 0), Sharding(FOUR, 1), (rows, columns), INFO)
        found.append(transfers(local)[0].arg.messages)
    assert found[0] is found[1]
    assert len(found[0]) == 16


# ---- collectives ----


def reduced(size: int, count: int, **settings: int) -> UOp:
    devices = FOUR[:count]
    with Context(**settings):
        source = Sharding(devices, Partial("ADD"))
        value = buffer(size, device=Spmd(devices))
        return all_reduce(value, source, source.without_partial(), (size,), "", count)


def test_small_values_are_reduced_directly() -> None:
    assert len(transfers(reduced(8, 4, RING=1))) == 1
    assert len(transfers(reduced(1024, 4, RING=0, ALL2ALL=1))) == 1


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_ring_takes_a_step_per_peer_and_a_final_gather(count: int) -> None:
    steps = transfers(reduced(5003, count, RING=1))
    assert len(steps) == count
    for step in steps[:-1]:
        assert {(m.source, m.target) for m in step.arg.messages} == {
            (i, (i + 1) % count) for i in range(count)
        }


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_to_all_takes_two_rounds(count: int) -> None:
    result = reduced(5003, count, RING=0, ALL2ALL=1)
    assert len(transfers(result)) == 2
    assert result.shape == (5003,)


# ---- programs ----


def close(x: Tensor, wanted: Any) -> None:
    np.testing.assert_allclose(x.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_sharded_arrays_of_no_elements(axis: int | None) -> None:
    x = Tensor.empty(4, 0).shard(TWO, axis)
    close((x + 1).sum(1), np.zeros(4))
    close(x.pad(((0, 0), (1, 1))), np.zeros((4, 2)))
    close(x @ Tensor.empty(0, 6).shard(TWO), np.zeros((4, 6)))
    assert x.to("CPU").numpy().shape == (4, 0)


@pytest.mark.parametrize("ring", [0, 1])
def test_transfers_of_symbolic_shapes(ring: int) -> None:
    array = np.random.RandomState(0).randn(8, 4, 600).astype(np.float32)
    x = Tensor(array).shard(FOUR, 1).realize()
    size = Variable("n", 1, 8)
    with Context(RING=ring, ALL2ALL=1 - ring):
        for n in (3, 8, 5):
            part = x[: size.bind(n)]
            close(part.sum(), array[:n].sum())
            close(part.max(1).sum(0), array[:n].max(1).sum(0))
            close((part * 2).to("CPU").sum(0), array[:n].sum(0) * 2)
            close(part.to(Sharding(FOUR, 2)).sum(0), array[:n].sum(0))


@pytest.mark.parametrize("reader_first", [False, True])
def test_each_assignment_is_read_before_the_next_one(reader_first: bool) -> None:
    a, b, c = (Tensor([float(i), i + 1.0]).realize() for i in range(3))
    a.assign(b)
    middle = a * 10
    a.assign(c)
    again = a * 100
    a.assign(b)
    last = [a, middle, again]
    Tensor.realize(*(reversed(last) if reader_first else last))
    assert [x.tolist() for x in last] == [[1, 2], [10, 20], [200, 300]]


def test_a_pending_value_is_computed_before_its_memory_is_overwritten() -> None:
    a, b = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
    a.assign(b)
    waiting = a * 2
    a.assign(a + 1).realize()
    assert waiting.tolist() == [6, 8]
    assert a.tolist() == [4, 5]


def test_results_that_are_views_of_inputs_alias_the_current_inputs() -> None:
    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, dict[str, list[Tensor]], Tensor]:
        return x[1:3], {"same": [x]}, (x + 1).realize()

    arguments = [Tensor([i, i + 1.0, i + 2.0]).realize() for i in range(5)]
    for i, x in enumerate(arguments):
        part, whole, more = step(x)
        assert part.tolist() == [i + 1, i + 2]
        assert whole["same"][0].tolist() == [i, i + 1, i + 2]
        assert more.tolist() == [i + 1, i + 2, i + 3]
    assert [x.tolist()[0] for x in arguments] == list(range(5))


def test_rows_gathered_by_a_range_move_nothing() -> None:
    table = Tensor.arange(32).reshape(8, 4).float().contiguous().shard(TWO).realize()
    batch = Tensor.arange(64).reshape(2, 8, 4).float().contiguous().shard(TWO, 0).realize()
    with Context(SHARDING="strict"), CommTrace() as trace:
        out = (batch + table[Tensor.arange(8, device=batch.device)]).realize()
    assert trace.records == []
    assert out.device == batch.device
    close(out, np.arange(64).reshape(2, 8, 4) + np.arange(32).reshape(8, 4))


def test_planning_pauses_the_garbage_collector():
    seen: list[bool] = []
    assert gc.isenabled()
    observer = observe_passes(lambda result: seen.append(gc.isenabled()))
    with Context(SCHEDULE_CACHE=0), observer:
        (Tensor.ones(3, 5).contiguous() * 2.5 + 7).schedule()
    assert seen
    assert not any(seen)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), no_garbage(), no_garbage():
        _ = 1 / 0
    assert gc.isenabled()
