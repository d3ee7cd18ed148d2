"""Kernels for GPUs: loops are distributed over the threads of blocks, and accesses are wide."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest

from test.backend.codegen.kernels import Build, buffer, sink
from tinygrad import Tensor
from tinygrad.codegen import get_linear, get_program
from tinygrad.codegen.analysis.affine_index import collect
from tinygrad.codegen.analysis.ranges import RangeFactory
from tinygrad.codegen.analysis.resources import Resources, estimate_resources, occupancy
from tinygrad.codegen.lower.barriers import place_barriers
from tinygrad.codegen.lower.roles import join_roles
from tinygrad.codegen.optimize.threads.search import MIN_OCCUPANCY, mappings, prune, with_mapping
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.helpers import GlobalCounters
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.renderer.gpu_targets import amd_target, apple_target, nvidia_target
from tinygrad.renderer.target import Target
from tinygrad.schedule.grouping.fusion import row_chains
from tinygrad.schedule.grouping.rewrite import prepare
from tinygrad.schedule.pipeline import lower_kernel
from tinygrad.settings import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp
from tinygrad.uop.spec import LINEAR, SpecError

# few units, so that small kernels are mapped as large ones are on a real GPU
SMALL = nvidia_target("sm_80", units=1)
LARGE = nvidia_target("sm_90a", units=132)


def program(kernel: UOp, target: Target = SMALL) -> ProgramSpec:
    """The program of a kernel, which no heuristic gave up on."""
    found = get_program(kernel, find_renderer(target))
    assert not any("plain loops" in x for x in found.applied)
    return found


def add(size: int, shift: int = 0, dtype: DType = dtypes.float32) -> UOp:
    """`out[i] = a[i + shift] + b[i + shift]`."""
    (i,) = Build().loops(size)
    place = i + shift if shift else i
    x, y = (buffer(slot, size + shift, dtype).index(place).load() for slot in (1, 2))
    return sink(buffer(0, size, dtype).index(i).store(x + y, i), name="add")


def row_sum(rows: int, columns: int) -> UOp:
    """`out[i] = sum over k of a[i, k]`."""
    b = Build()
    (i,), (k,) = b.loops(rows), b.reduces(columns)
    value = buffer(1, rows * columns).index(i * columns + k).load().reduce(k, arg=Ops.ADD)
    return sink(buffer(0, rows).index(i).store(value, i), name="row_sum")


def column_sum(rows: int, columns: int) -> UOp:
    """`out[j] = sum over k of a[k, j]`."""
    b = Build()
    (j,), (k,) = b.loops(columns), b.reduces(rows)
    value = buffer(1, rows * columns).index(k * columns + j).load().reduce(k, arg=Ops.ADD)
    return sink(buffer(0, columns).index(j).store(value, j), name="column_sum")


def softmax(rows: int, columns: int) -> UOp:
    """Each row's exponentials of what is less than its maximum, divided by their sum."""
    b = Build()
    i, j = b.loops(rows, columns)
    k, n = b.reduces(columns, columns)
    data = buffer(1, rows * columns)
    largest = data.index(i * columns + k).load().reduce(k, arg=Ops.MAX)

    def exponential(at: UOp) -> UOp:
        return (data.index(i * columns + at).load() - largest).exp2()

    value = exponential(j) / exponential(n).reduce(n, arg=Ops.ADD)
    store = buffer(0, rows * columns).index(i * columns + j).store(value, i, j)
    return sink(store, name="softmax")


def wide(found: ProgramSpec) -> int:
    """The number of accesses of 16 bytes in the text."""
    return len(re.findall(r"\*\((?:const )?f32x4 \*\)", found.source))


def test_elementwise_kernels_move_16_bytes_where_these_are_aligned() -> None:
    found = program(add(1 << 14))
    assert found.launch.block == 256 and found.launch.grid == (1 << 14) // (4 * 256)
    assert wide(found) == 3 and found.alignment == 16
    assert "if" not in found.source.rpartition("thread_number()")[2], (
        "sizes divide: nothing is masked"
    )
    # 3 does not divide by 4: threads access single elements, neighbours by neighbours
    assert wide(program(add((1 << 14) + 3))) == 0
    # loads start at an odd element
    shifted = program(add(1 << 14, shift=1))
    assert shifted.alignment == 1 and "thread_number()" in shifted.source
    # a buffer may start anywhere: vector_bytes=1 asks for kernels that accept this
    assert program(add(1 << 14), replace(SMALL, vector_bytes=1)).alignment == 1
    # halves: 8 at once
    assert program(add(1 << 14, dtype=dtypes.float16)).launch.grid == (1 << 14) // (8 * 256)


def test_indices_have_32_bits_where_they_fit() -> None:
    for kernel in (add(1 << 14), row_sum(64, 1024), column_sum(300, 64), softmax(4, 512)):
        assert "long long" not in program(kernel).source.rpartition("__global__")[2]
    large = program(add(3 << 30), LARGE).source.rpartition("__global__")[2]
    assert "long long" in large


def test_what_one_store_overwrites_and_another_reads_is_one_work_item() -> None:
    old = buffer(0, 1).index(UOp.const(dtypes.index, 0))
    place = buffer(1, 1).index(UOp.const(dtypes.index, 0))
    numbers = [old.store(old.load() * 0.5), place.store(old.load() + 1.0)]
    # a few numbers alone need one thread
    alone = get_program(sink(*numbers), find_renderer(SMALL))
    assert (alone.launch.grid, alone.launch.block) == (1, 1)
    (i,) = Build().loops(512)
    element = buffer(2, 512).index(i)
    beside = program(sink(*numbers, element.store(element.load() + 1.0, i)))
    # a block for both numbers, and one or two of the elements
    assert (
        beside.launch.grid == program(sink(element.store(element.load() + 1.0, i))).launch.grid + 1
    )


def test_only_the_thread_that_stores_sums_reads_what_they_are_added_to() -> None:
    (k,) = Build().reduces(77)
    place = buffer(0, 1).index(UOp.const(dtypes.index, 0))
    ordered = place.store(place.load() + buffer(1, 77).index(k).load(), k)
    found = program(sink(ordered)).source
    (condition,) = re.findall(r"if \((\w+)\) data0\[0\] = ", found)
    assert f"{condition} = thread" in found and f"({condition} ? data0[0] : 0.0f)" in found
    assert found.count("data0[0]") == 2


def test_more_blocks_than_a_launch_has_are_computed_in_turns() -> None:
    found = program(add((1 << 16) + 4), replace(SMALL, grid_items=8))
    assert found.launch.grid == 8 and "for (" in found.source


def test_rows_are_reduced_by_warps_or_blocks() -> None:
    warp = program(row_sum(4096, 256))
    assert warp.launch.block == 256 and warp.launch.grid == 4096 // 8
    assert "block_barrier();" not in warp.source and warp.source.count("= warp_shuffle(") == 5
    block = program(row_sum(64, 8192))
    assert (block.launch.grid, block.launch.block) == (64, 256)
    assert (
        block.source.count("block_barrier();") == 1 and block.source.count("= warp_shuffle(") == 8
    )
    assert wide(warp) == wide(block) == 1
    # few long rows: as many threads as a block has
    assert program(row_sum(8, 1 << 16), LARGE).launch.block == 1024


def test_columns_are_reduced_by_neighbouring_threads() -> None:
    found = program(column_sum(4096, 64), LARGE)
    assert (found.launch.grid, found.launch.block) == (2, 1024)
    assert found.source.count("block_barrier();") == 1 and "= warp_shuffle" not in found.source
    # enough columns: a thread for each, which needs no exchange
    assert "block_barrier();" not in program(column_sum(64, 1 << 14)).source


def test_a_softmax_is_one_block_for_each_row() -> None:
    found = program(softmax(64, 8192))
    assert found.launch.grid == 64 and found.source.count("block_barrier();") == 2


def shared_program(*lines: UOp) -> list[UOp]:
    """A linear program of one block of 32 threads."""
    zero, size = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 32)
    thread = UOp.range(size, 1, AxisType.LOCAL)
    item = UOp.range(1, 0, AxisType.GLOBAL)
    ends = [UOp(Ops.END, dtypes.void, (x,)) for x in (thread, item)]
    return [zero, size, item.src[0], item, thread, *lines, *ends]


def test_barriers_are_between_conflicting_accesses_only() -> None:
    memory = UOp(Ops.DEFINE_LOCAL, dtypes.float32.ptr(32, AddrSpace.LOCAL), (), 0)
    zero, one = (UOp.const(dtypes.index, n) for n in (0, 1))
    load, other = memory.index(zero).load(), memory.index(one).load()
    store = memory.index(zero).store(load.const_like(1.0))
    loop = UOp.range(4, 2, AxisType.LOOP)
    end = UOp(Ops.END, dtypes.void, (loop,))

    def ops(*lines: UOp) -> str:
        short = {Ops.STORE: "s", Ops.LOAD: "l", Ops.BARRIER: "|", Ops.RANGE: "(", Ops.END: ")"}
        found = place_barriers(shared_program(*lines))[5:-2]
        return "".join(short.get(u.op, "") for u in found)

    assert ops(store, load, other) == "s|ll"
    assert ops(load, store) == "l|s"
    # before the loop, not in each of its steps
    assert ops(store, loop, load, end) == "s|(l)"
    # what a step reads, the next step overwrites
    assert ops(loop, store, load, end) == "(s|l|)"
    assert ops(loop, store, end, load) == "(s)|l"
    barrier = UOp(Ops.BARRIER, dtypes.void)
    assert ops(store, barrier, load) == "s|l"
    ordered = memory.after(barrier)
    assert ops(store, barrier, ordered, store, load) == "s|sl", "who places barriers is responsible"


def test_barriers_and_shuffles_are_where_all_threads_come() -> None:
    kernel = softmax(64, 4096)
    _, linear = get_linear(kernel, find_renderer(SMALL))
    LINEAR.verify(linear)
    thread = next(u for u in linear if u.op is Ops.RANGE and u.arg.kind is AxisType.LOCAL)
    barrier = UOp(Ops.BARRIER, dtypes.void)
    condition = UOp(Ops.CMPLT, dtypes.bool, (thread, thread.const_like(3)))
    branch = UOp(Ops.IF, dtypes.void, (condition,))
    loop = UOp(
        Ops.RANGE, thread.dtype, (thread,), replace(thread.arg, index=99, kind=AxisType.LOOP)
    )
    role = RangeFactory(linear).role(thread, range(32))
    for first, last in ((branch, Ops.ENDIF), (loop, Ops.END), (role, Ops.END)):
        inside = [condition, first, barrier, UOp(last, dtypes.void, (first,))]
        with pytest.raises(SpecError, match="not all threads"):
            at = linear.index(thread) + 1
            LINEAR.verify([*linear[:at], thread.const_like(3), *inside, *linear[at:]])


def test_what_is_between_two_roles_is_computed_by_the_later_one() -> None:
    memory = UOp(Ops.DEFINE_LOCAL, dtypes.float32.ptr(64, AddrSpace.LOCAL), (), 0)
    (_, _, _, item, thread, *ends) = shared_program()
    factory = RangeFactory([item, thread])
    first, second = (factory.role(thread, range(x, x + 16)) for x in (16, 0))
    other = thread * 2
    one = thread.const_like(1)
    store = memory.index(first).store(UOp.const(dtypes.float32, 1))
    load = memory.index(collect(other + second)).load()
    closed = [UOp(Ops.END, dtypes.void, (x,)) for x in (first, second)]
    before = [item, thread, *first.src[:2], first, store, closed[0]]
    between, inside = [other, *second.src[:2], one], [load, closed[1]]
    found = join_roles([*before, *between, second, *inside, *ends])
    constants = [x for x in between if x in second.src]
    rest = [x for x in between if x not in second.src]
    assert found == [*before, *constants, second, *rest, *inside, *ends]


def test_what_a_role_stores_all_threads_read_after_a_barrier_behind_it() -> None:
    memory = UOp(Ops.DEFINE_LOCAL, dtypes.float32.ptr(64, AddrSpace.LOCAL), (), 0)
    thread = shared_program()[4]
    role = RangeFactory([thread]).role(thread, range(16))
    store = memory.index(role).store(UOp.const(dtypes.float32, 1))
    load = memory.index(thread).load()
    lines = [role, store, UOp(Ops.END, dtypes.void, (role,)), load]
    found = [u.op for u in place_barriers(shared_program(*lines))[5:-2]]
    assert found == [Ops.RANGE, Ops.STORE, Ops.END, Ops.BARRIER, Ops.LOAD]


def transpose(rows: int, columns: int) -> UOp:
    """`out[i, j] = a[j, i]`."""
    i, j = Build().loops(rows, columns)
    value = buffer(1, rows * columns).index(j * rows + i).load()
    return sink(buffer(0, rows * columns).index(i * columns + j).store(value, i, j), name="turn")


def test_a_transpose_goes_through_shared_memory() -> None:
    found = program(transpose(64, 96))
    assert (found.launch.grid, found.launch.block) == (2 * 3, 256)
    assert found.source.count("block_barrier();") == 1
    # a tile of 32 rows, padded so that columns are in different banks
    assert f"[{32 * 33}];" in found.source and "if (" not in found.source


def attention(queries: int, size: int, dtype: DType = dtypes.float32) -> UOp:
    """The kernel graph of an attention without scores in memory."""
    q, k, v = (Tensor.empty(1, 2, queries, size, dtype=dtype) for _ in range(3))
    *_, item = q.scaled_dot_product_attention(k, v).schedule()
    assert item.ast is not None
    return lower_kernel(item.ast)


def test_attention_keeps_scores_in_shared_memory() -> None:
    # lanes that do not shuffle cannot have rows in their registers
    found = program(attention(512, 32), replace(SMALL, warp=1))
    assert (found.launch.grid, found.launch.block) == (2 * 512 // 32, 256)
    arrays = re.findall(r"__shared__ (?:\w+\(16\) )?float \w+\[(\d+)\]", found.source)
    assert 4 * sum(map(int, arrays)) <= 48 << 10
    # the statistics, the scores, the sums, and the queries and keys in padded rows
    assert len(arrays) == 8 and found.source.count("block_barrier();") > len(arrays)
    assert {f"{32 * 33}", f"{64 * 33}"} <= set(arrays)
    # without room for these, they are read from global memory
    small = program(attention(512, 32), replace(SMALL, warp=1, shared_bytes=20 << 10))
    assert small.source.count("__shared__") == 6


@pytest.mark.parametrize(
    "target, dtype, instruction, shuffles",
    [
        (SMALL, dtypes.float32, "", 3),
        (SMALL, dtypes.bfloat16, "mma_m16n8k16_bf16", 2),
        (amd_target("gfx942"), dtypes.float16, "mfma_16x16x16_f16", 2),
        (amd_target("gfx1100"), dtypes.bfloat16, "wmma_16x16x16_bf16", 1),
        (apple_target(), dtypes.float16, "simdgroup_8x8x8_f16", 2),
        (apple_target(), dtypes.float32, "simdgroup_8x8x8_f32", 2),
        # without an instruction for its operands it multiplies and adds float32
        (amd_target("gfx1030"), dtypes.float16, "", 3),
    ],
    ids=lambda x: x.architecture if isinstance(x, Target) else getattr(x, "name", x),
)
def test_attention_has_scores_and_sums_in_registers(
    target: Target, dtype: DType, instruction: str, shuffles: int
) -> None:
    found = program(attention(512, 32, dtype), target)
    assert f", {instruction or 'multiply-adds'}, " in found.applied[-1]
    # the products of the scores and of the values, in loops
    body = found.source.rsplit("r_2_512_32(", 1)[1]
    assert len(re.findall(r"= (?:w?mf?ma|simdgroup)_\w+\(", body)) == (2 if instruction else 0)
    # queries, keys and values are in shared memory; weights too, where the next instruction does
    # not read them from sums
    is_shared = not instruction or instruction.startswith("wmma")
    assert len(set(re.findall(r"scratch\d+", body))) == 3 + is_shared
    # the lanes that share a row exchange its maximum and its sum
    assert body.count("= warp_shuffle(") == 2 * shuffles


def test_threads_without_shuffles_exchange_through_shared_memory() -> None:
    target = replace(SMALL, warp=1)
    for kernel in (row_sum(4096, 256), softmax(64, 512)):
        found = program(kernel, target)
        assert found.launch.block > 1 and "block_barrier();" in found.source
        assert "= warp_shuffle(" not in found.source


def test_a_softmax_or_norm_of_rows_is_one_kernel_where_threads_share_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_chains, "find_target", lambda *_: LARGE)
    x = numpy.random.default_rng(0).normal(size=(80, 96)).astype("f4")
    y = numpy.random.default_rng(1).normal(size=(96, 96)).astype("f4")

    def deviation(a: numpy.ndarray) -> numpy.ndarray:
        return a - a.mean(1, keepdims=True)

    def exponential(a: numpy.ndarray) -> numpy.ndarray:
        return numpy.exp(a - a.max(1, keepdims=True))

    product, spread = x @ y, deviation(x)
    cases: dict[str, tuple[int, Callable[[Tensor], Tensor], numpy.ndarray]] = {
        "softmax": (1, lambda t: t.softmax(), exponential(x) / exponential(x).sum(1)[:, None]),
        "norm": (1, lambda t: t.layernorm(), spread / (x.var(1)[:, None] + 1e-5) ** 0.5),
        "deviation": (1, lambda t: t.std(1), x.std(1, ddof=1)),
        # a product is in a kernel of its own, whatever is done with its rows
        "product": (2, lambda t: (t @ right) * (t - t.mean(1, keepdim=True)), product * spread),
        # columns are not contiguous
        "columns": (2, lambda t: t - t.mean(0), x - x.mean(0)),
    }
    right = Tensor(y).realize()
    for name, (kernels, function, expected) in cases.items():
        tensor = Tensor(x).realize()
        GlobalCounters.reset()
        with Context(SCHEDULE_CACHE=0):
            found = function(tensor).numpy()
        assert GlobalCounters.kernel_count == kernels, name
        numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=name)


def test_a_difference_that_several_kernels_read_takes_no_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The difference of logits to their maximum is computed from them wherever it is read."""
    monkeypatch.setattr(row_chains, "find_target", lambda *_: LARGE)
    x = numpy.random.default_rng(0).normal(size=(64, 16)).astype("f4")
    y = numpy.random.default_rng(1).normal(size=(16, 4200)).astype("f4")
    labels = numpy.arange(64) * 65
    inputs, weights, classes = (Tensor(a).realize() for a in (x, y, labels))
    logits = inputs @ weights
    loss = logits.sparse_categorical_crossentropy(classes)
    before = GlobalCounters.mem_used
    GlobalCounters.reset()
    with Context(SCHEDULE_CACHE=0):
        (gradient,) = loss.gradient(logits)
        gradient.realize()
    assert GlobalCounters.mem_peak - before < 1.5 * logits.nbytes()
    expected = numpy.exp(x @ y - (x @ y).max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    expected[numpy.arange(64), labels] -= 1
    numpy.testing.assert_allclose(gradient.numpy(), expected / 64, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("source", "total", "lanes"),
    [
        (dtypes.float32, dtypes.float32, 4),
        (dtypes.float16, dtypes.float32, 8),
        (dtypes.uint8, dtypes.int32, 16),
        # of 64 registers of each of 1,024 threads, a third holds ten of these
        (dtypes.uint8, dtypes.int64, 8),
    ],
)
def test_a_thread_reduces_as_many_elements_at_once_as_its_registers_hold(
    source: DType, total: DType, lanes: int
) -> None:
    b = Build()
    (i,), (k,) = b.loops(200), b.reduces(1 << 15)
    element = buffer(1, 200 << 15, source).index(i * (1 << 15) + k).load()
    value = element.cast(total).reduce(k, arg=Ops.ADD)
    kernel = sink(buffer(0, 200, total).index(i).store(value, i), name="sum")
    first, *others = mappings(kernel, find_renderer(LARGE))
    assert first.lanes == lanes and str(first) in program(kernel, LARGE).applied
    # a search may try wider accesses
    assert 16 // source.itemsize in {lanes, *(getattr(x, "lanes", 0) for x in others)}


def test_mappings_are_pruned_by_what_their_programs_need() -> None:
    kernel = softmax(64, 512)
    renderer = find_renderer(LARGE)
    options = mappings(kernel, renderer)
    assert len(options) > 50 and program(kernel, LARGE).applied[0] == str(options[0])
    some = options[::15]
    kept = prune(kernel, renderer, some)
    assert kept and {m.option for m in kept} <= set(some)
    assert all(MIN_OCCUPANCY <= m.occupancy <= 1 for m in kept)
    # an option is a frozen value that a kernel can be mapped by
    other = next(x for x in options if x.threads == 512)
    assert program(with_mapping(kernel, other), LARGE).launch.block == 512
    # too few registers for any; shared memory for few columns; smaller blocks
    assert not prune(kernel, find_renderer(replace(LARGE, registers=16)), some)
    columns = column_sum(4096, 64)
    groups = mappings(columns, renderer)[:12]
    small = prune(columns, find_renderer(replace(LARGE, shared_bytes=1 << 10)), groups)
    assert 0 < len(small) < len(prune(columns, renderer, groups))
    assert all(m.resources.shared_bytes <= 1 << 10 for m in small)


def test_occupancy_is_limited_by_threads_registers_blocks_and_shared_memory() -> None:
    target = nvidia_target("sm_90a")
    assert occupancy(Resources(256, 32, 0), target) == 1
    assert occupancy(Resources(256, 64, 0), target) == 0.5
    assert occupancy(Resources(1024, 33, 0), target) == 0.5
    assert occupancy(Resources(32, 32, 0), target) == 0.5
    assert occupancy(Resources(256, 32, 100 << 10), target) == 2 * 256 / 2048
    # of 228 KiB, the system takes one for each block
    assert occupancy(Resources(256, 32, 113 << 10), target) == 2 * 256 / 2048
    assert occupancy(Resources(256, 32, 114 << 10), target) == 256 / 2048
    for needed in (Resources(2048, 8, 0), Resources(256, 256, 0), Resources(32, 32, 1 << 20)):
        assert occupancy(needed, target) == 0


def test_estimated_registers_are_near_those_of_the_compiler() -> None:
    # NVRTC 13.5, sm_90a
    for kernel, counted in ((add(1 << 22), 21), (row_sum(64, 4096), 28), (softmax(64, 1024), 32)):
        _, linear = get_linear(kernel, find_renderer(LARGE))
        assert 0.7 < estimate_resources(linear).registers / counted < 1.5


def test_large_reductions_of_few_outputs_have_two_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "find_target", lambda *_: LARGE)

    def first_outputs(shape: tuple[int, ...], axis: int) -> int:
        """The outputs of the first kernel of a sum."""
        with Context(SCHEDULE_CACHE=0):
            first, *_ = Tensor.empty(*shape).sum(axis).schedule()
        return int(first.bufs[0].size)

    # a block for each part of a row: two for each unit, where the sizes have such divisors
    assert first_outputs((32, 1 << 16), 1) == 32 * 8
    # columns, of which a block has 32
    assert first_outputs((1 << 16, 1024), 0) == 1024 * 8
    # rows and columns enough
    assert first_outputs((128, 1 << 13), 1) == 128
    assert first_outputs((1 << 10, 4096), 0) == 4096
