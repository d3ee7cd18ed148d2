"""The public contract of sharded tensors: layouts, values, communication and kernel counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, nth
from test.sharding.common import (
    DEVICES,
    GRID,
    REPLICATED,
    TWO,
    Array,
    array,
    assert_same_as_on_one_device,
    integers,
    moved,
    on,
    parts,
    placed,
)
from test.together import GlobalCounters
from tinygrad import Device, Mesh, P, Tensor, TinyJit, dtypes, nn, ranks
from tinygrad.device import MultiBuffer, Sharding
from tinygrad.execution.realize import compiled_kernels
from tinygrad.nn.state import get_parameters
from tinygrad.uop.ops import Ops

LAYOUTS = [REPLICATED, on(0), on(1), on((0, 1), GRID), on((None, 0), GRID)]
ROWS = on(0)


# ---- layouts ----


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_shard_keeps_value_and_shape(axis: int | None) -> None:
    value = array(8, 12)
    x = Tensor(value).shard(DEVICES, axis)
    assert x.shape == (8, 12)
    assert x.device is on(axis)
    np.testing.assert_array_equal(x.numpy(), value)


def test_a_negative_axis_counts_from_the_back() -> None:
    assert Tensor(array(8, 12)).shard(DEVICES, -1).device is on(1)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_each_device_holds_only_its_slice(axis: int | None) -> None:
    value = array(8, 12)
    x = Tensor(value).shard(DEVICES, axis).realize()
    expected = [value] * 4 if axis is None else np.split(value, 4, axis)
    for found, wanted in zip(parts(x), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_shard_leaves_the_tensor_and_shard_in_place_changes_it() -> None:
    x = Tensor(array(8, 4))
    assert x.shard(DEVICES, 0).device is ROWS
    assert x.device == Device.DEFAULT
    same = x.shard_(DEVICES, 0)
    assert same is x
    assert same.device is ROWS


def test_names_of_devices_are_canonical() -> None:
    x = Tensor(array(4)).shard(tuple(f"{Device.DEFAULT.lower()}:{i}" for i in range(2)), 0)
    assert x.device is Sharding((Device.DEFAULT, f"{Device.DEFAULT}:1"), 0)


def test_a_mesh_and_a_spec_name_a_layout() -> None:
    mesh = Mesh(GRID, ("dp", "tp"), DEVICES)
    value = array(8, 12)
    x = Tensor(value).shard(mesh, P("dp", "tp")).realize()
    assert x.device is on((0, 1), GRID)
    np.testing.assert_array_equal(parts(x)[1], value[:4, 6:])


def test_to_reaches_every_layout_and_one_device() -> None:
    value = array(8, 12)
    x = Tensor(value).shard(DEVICES, 0)
    assert x.to(DEVICES).device is REPLICATED
    for target in [on(1), REPLICATED, on((1, 0), GRID), nth(2), Sharding(TWO, 1)]:
        there = x.to(target)
        assert there.device == target
        np.testing.assert_array_equal(there.numpy(), value)


def test_to_in_place() -> None:
    x = Tensor(array(8)).shard(DEVICES, 0)
    x.to_(nth(1))
    assert x.device == nth(1)


@pytest.mark.parametrize("shape", [(1, 3), (1,), ()])
def test_an_axis_of_size_1_is_replicated(shape: tuple[int, ...]) -> None:
    x = Tensor.ones(*shape).contiguous()
    for replica in (x.shard(TWO, axis=0), x.shard(TWO, axis=-len(shape)), x.to(Sharding(TWO, 0))):
        assert replica.device == Sharding(TWO)
        assert replica.tolist() == x.tolist()
    mesh = Mesh((2,), ("dp",), TWO)
    assert x.clone().shard_(mesh, P("dp")).device == Sharding(TWO)


def test_other_axes_than_those_of_size_1_are_sharded() -> None:
    mesh = Mesh((2, 2), ("dp", "tp"), DEVICES[:4])
    x = Tensor.arange(8).reshape(1, 8).shard(mesh, P("dp", "tp"))
    assert x.device == mesh.sharding(P(None, "tp"))
    assert x.tolist() == [list(range(8))]


@pytest.mark.slow
def test_a_model_with_parameters_of_size_1_is_trained_fully_sharded() -> None:
    class Model:
        def __init__(self) -> None:
            self.hidden, self.out = nn.Linear(3, 4), nn.Linear(4, 1)
            self.scale = Tensor(2.0)

        def __call__(self, x: Tensor) -> Tensor:
            return self.out(self.hidden(x).tanh()) * self.scale

    def train(devices: tuple[str, ...]) -> list[float]:
        Tensor.manual_seed(0)
        model, x = Model(), Tensor.arange(12).reshape(4, 3) / 12
        for parameter in get_parameters(model):
            parameter.shard_(devices, axis=0)
        optimizer = nn.optim.Adam(get_parameters(model), lr=0.1)
        losses = []
        with Tensor.train():
            for _ in range(4):
                optimizer.zero_grad()
                loss = (model(x.shard(devices, axis=0)) - 1).square().mean()
                losses.append(loss.backward().item())
                optimizer.step()
        return losses

    np.testing.assert_allclose(train(TWO), train(TWO[:1]), rtol=1e-5)


def test_sharding_again_changes_the_layout() -> None:
    value = array(8, 12)
    x = Tensor(value).shard(DEVICES, 0).shard(DEVICES, 1)
    assert x.device is on(1)
    np.testing.assert_array_equal(x.numpy(), value)


def test_shard_like_takes_the_layout_of_another() -> None:
    like = Tensor(array(8, 12)).shard(DEVICES, 1)
    assert Tensor(array(4, 8)).shard_like(like).device is on(1)
    assert Tensor(array(4, 8)).shard_like(Tensor(array(3))).device == Device.DEFAULT


def test_a_layout_of_one_device_works() -> None:
    x = Tensor(array(4, 2)).shard((nth(1),), 0)
    np.testing.assert_array_equal((x + 1).numpy(), array(4, 2) + 1)


# ---- the graph ----


def test_there_is_no_wrapper_op() -> None:
    assert not hasattr(Ops, "MULTI")


def test_devices_in_the_graph_are_names_layouts_or_none() -> None:
    x = Tensor(array(8, 12)).shard(DEVICES, 0)
    w = Tensor(array(12, 4)).shard(DEVICES)
    loss = ((x @ w).relu().softmax() + Tensor.arange(4)).sum()
    for node in [*loss.uop.toposort(), *loss.gradient(w)[0].uop.toposort()]:
        assert node.device is None or isinstance(node.device, (str, Sharding))


def test_the_node_shows_layout_axis_and_storage() -> None:
    x = Tensor(array(8, 12)).shard(DEVICES, 1).realize()
    assert x.uop.device is on(1)
    assert x.uop.axis == 1
    assert x.uop.is_realized
    assert isinstance(x.uop.base.realized, MultiBuffer)
    buffers = ranks.gather([b.device for b in x.uop.base.realized.bufs])
    assert sorted(itertools.chain(*buffers)) == list(DEVICES)
    assert Tensor(array(3)).uop.axis is None


def test_arithmetic_on_one_layout_inserts_nothing() -> None:
    x, y = (Tensor(array(8, 12, seed=i)).shard(DEVICES, 0).realize() for i in range(2))
    ops = {n.op for n in ((x + y).exp() * 2).sum(1).uop.toposort()}
    assert not ops & {Ops.COPY, Ops.ALLREDUCE, Ops.MSELECT, Ops.MSTACK}


# ---- communication ----


def test_sharding_sends_each_device_its_slice() -> None:
    x = Tensor(array(64, 32)).realize()
    assert moved(x.shard(DEVICES, 0)) == {"scatter": x.nbytes() * 3 // 4}
    assert moved(x.shard(DEVICES)) == {"broadcast": x.nbytes() * 3}


def test_host_to_device_copies_are_not_counted() -> None:
    assert moved(Tensor(array(64, 32)).shard(DEVICES, 0)) == {}


def test_sharding_a_replicated_tensor_sends_nothing() -> None:
    x = Tensor(array(8, 12)).shard(DEVICES).realize()
    split = x.to(on(1))
    assert moved(split) == {}
    np.testing.assert_array_equal(split.numpy(), array(8, 12))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_forward_pass_that_keeps_its_layout_sends_nothing(axis: int) -> None:
    x = Tensor(array(8, 12)).shard(DEVICES, axis).realize()
    along = 1 - axis
    out = ((x * 2 + x.exp()).softmax(along) + x.sum(along, keepdim=True)).permute(1, 0)
    assert out.device is on(along)
    assert moved(out) == {}


def test_counters_attribute_bytes_to_the_sender() -> None:
    x = Tensor(array(8, 16)).shard(DEVICES, 0).realize()
    GlobalCounters.reset()
    x.to(on(1)).realize()
    assert dict(GlobalCounters.bytes_moved_per_device) == dict.fromkeys(DEVICES, 3 * 2 * 4 * 4)


# ---- kernels ----


def test_kernels_are_compiled_once_for_all_devices() -> None:
    def compiled(count: int) -> int:
        # the shape on each device is the same for every count
        x = Tensor(array(3 * count, 37)).shard(DEVICES[:count], 0).realize()
        before = len(compiled_kernels)
        (x.exp().sum(1) * 3).realize()
        return len(compiled_kernels) - before

    # the first call or, in a process with the other devices alone, the second
    assert compiled(2) + compiled(4) == 1


def test_a_kernel_runs_once_on_each_device() -> None:
    x = Tensor(array(8, 12)).shard(DEVICES, 0).realize()
    GlobalCounters.reset()
    (x * 3 + 1).realize()
    assert GlobalCounters.kernel_count == len(DEVICES)


# ---- elementwise ----


@pytest.mark.parametrize(("first", "second"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_elementwise_of_every_pair_of_layouts(first: Sharding, second: Sharding) -> None:
    a, b = integers(8, 12), integers(8, 12, seed=1)
    x, y = placed(a, first), placed(b, second)
    out = (x * y - x.maximum(y)) + (x < y).where(x, 2)
    assert isinstance(out.device, Sharding)
    expected = (a * b - np.maximum(a, b)) + np.where(a < b, a, 2)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_sharded_and_replicated_operands_combine_as_sharded_without_communication() -> None:
    x, y = placed(array(8, 12), ROWS), placed(array(8, 12), REPLICATED)
    assert (x + y).device is (y + x).device is ROWS
    assert moved(x + y, y * x) == {}


@pytest.mark.parametrize("shape", [(12,), (1, 12), (8, 1), ()])
def test_a_broadcast_operand_moves_its_own_bytes(shape: tuple[int, ...]) -> None:
    value = array(*shape)
    x, y = placed(array(8, 12), ROWS), placed(value, REPLICATED)
    out = x + y
    assert out.device is ROWS
    assert moved(out) == {}
    np.testing.assert_allclose(out.numpy(), array(8, 12) + value, rtol=1e-6)


def test_a_sharded_row_is_gathered_before_it_is_broadcast() -> None:
    x, y = placed(array(8, 12), ROWS), placed(array(12), on(0))
    assert moved(x * y) == {"all_gather": 4 * 12 * 4 * 3 // 4}


def test_numbers_and_constants_cost_nothing() -> None:
    x = placed(array(8, 12), ROWS)
    out = (x + 1) * Tensor.ones(8, 12) + Tensor.arange(12) - Tensor.full((8, 1), 2.0)
    assert out.device is ROWS
    assert moved(out) == {}
    np.testing.assert_allclose(out.numpy(), array(8, 12) + np.arange(12) - 1, rtol=1e-5, atol=1e-6)


def test_constants_in_a_layout_need_no_memory() -> None:
    x = Tensor.ones(8, 12).shard(DEVICES, 0) * 2 + 1
    assert x.device is ROWS
    assert Ops.BUFFER not in {n.op for n in x.uop.toposort()}
    assert moved(x) == {}
    np.testing.assert_array_equal(x.numpy(), np.full((8, 12), 3, np.float32))


def test_a_cast_and_a_bitcast_keep_the_layout() -> None:
    x = placed(array(8, 12), ROWS)
    bits = x.detach().bitcast(dtypes.int)
    assert x.cast(dtypes.int).device is bits.device is ROWS
    np.testing.assert_array_equal(bits.numpy(), array(8, 12).view(np.int32))


# ---- reductions ----

REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": Tensor.sum,
    "max": Tensor.max,
    "min": Tensor.min,
    "mean": Tensor.mean,
    "var": Tensor.var,
    "prod": Tensor.prod,
    "argmax": Tensor.argmax,
    "any": lambda x, axis: (x > 1).any(axis),
    "all": lambda x, axis: (x > -2).all(axis),
    "logsumexp": Tensor.logsumexp,
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_reductions_over_every_axis(name: str, layout: Sharding) -> None:
    value = array(8, 4)
    x = placed(value, layout)
    for axis in (0, 1, None):
        found = REDUCTIONS[name](x, axis=axis).numpy()
        expected = REDUCTIONS[name](Tensor(value), axis=axis).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_reduction_of_the_sharded_axis_is_replicated() -> None:
    x = placed(array(8, 12), ROWS)
    assert x.sum(0).device is REPLICATED
    assert x.sum(1).device is on(0)
    assert placed(array(8, 12), on((0, 1), GRID)).sum(0).device is on((None, 0), GRID)


def test_a_number_added_to_a_reduction_counts_once() -> None:
    value = integers(8, 12)
    out = placed(value, ROWS).sum(0) + 1
    np.testing.assert_array_equal(out.numpy(), value.sum(0) + 1)


# ---- matrix products ----

AXES = (None, 0, 1)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(AXES, AXES)))
def test_matmul_of_every_pair_of_layouts(left: int | None, right: int | None) -> None:
    arrays = [array(8, 12), array(12, 4, seed=1)]
    assert_same_as_on_one_device(Tensor.matmul, arrays, [on(left), on(right)])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(0, None, 0), (None, 1, 1), (1, 0, None), (None, None, None)],
)
def test_layout_of_a_matmul(left: int | None, right: int | None, expected: int | None) -> None:
    out = placed(array(8, 12), on(left)) @ placed(array(12, 4), on(right))
    assert out.device is on(expected)


def test_matmul_on_a_mesh() -> None:
    arrays = [array(8, 12), array(12, 4, seed=1)]
    assert_same_as_on_one_device(Tensor.matmul, arrays, [on((0, 1), GRID), on((None, 0), GRID)])


# ---- creation ----

CREATIONS: dict[str, Callable[[Any], Tensor]] = {
    "zeros": lambda device: Tensor.zeros(8, 4, device=device),
    "ones": lambda device: Tensor.ones(8, 4, device=device),
    "full": lambda device: Tensor.full((8, 4), 7, device=device),
    "arange": lambda device: Tensor.arange(8, device=device),
    "linspace": lambda device: Tensor.linspace(0, 1, 8, device=device),
    "eye": lambda device: Tensor.eye(8, device=device),
    "rand": lambda device: Tensor.rand(8, 4, device=device),
    "randn": lambda device: Tensor.randn(8, 4, device=device),
    "randint": lambda device: Tensor.randint(8, 4, high=9, device=device),
    "kaiming_uniform": lambda device: Tensor.kaiming_uniform(8, 4, device=device),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_creation_in_a_layout(name: str) -> None:
    results = []
    for device in (None, ROWS, DEVICES, on(0, devices=TWO)):
        Tensor.manual_seed(3)
        x = CREATIONS[name](device)
        if device is not None:
            assert x.device is (REPLICATED if device is DEVICES else device)
        results.append(x.numpy())
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_creation_in_a_layout_that_does_not_fit_is_replicated() -> None:
    assert Tensor.arange(1, device=ROWS).device is REPLICATED
    assert Tensor.zeros(8, device=on(1)).device is REPLICATED


def test_creation_in_a_layout_that_does_not_divide_evenly_is_uneven() -> None:
    x = Tensor.arange(6, device=ROWS).contiguous()
    assert x.device is ROWS
    assert x.tolist() == list(range(6))
    # padding is unspecified
    assert [part.tolist() for part in parts(x.realize())[:3]] == [[0, 1], [2, 3], [4, 5]]


def test_creation_like_another_keeps_its_layout() -> None:
    x = placed(array(8, 4), ROWS)
    for made in (x.zeros_like(), x.ones_like(), x.full_like(2.0), x.rand_like(), x.empty_like()):
        assert made.device is ROWS
        assert made.shape == (8, 4)


def test_empty_in_a_layout_allocates_its_bytes_once() -> None:
    before = GlobalCounters.mem_used
    x = Tensor.empty(1024, 4, device=ROWS).realize()
    x.assign(Tensor.ones(1024, 4)).realize()
    assert GlobalCounters.mem_used - before == x.nbytes()


# ---- random numbers ----


def test_random_numbers_do_not_depend_on_the_devices() -> None:
    def draw(device: Any) -> list[Array]:
        Tensor.manual_seed(42)
        return [Tensor.rand(8, 4, device=device).numpy() for _ in range(3)]

    alone = draw(DEVICE)
    assert not np.array_equal(alone[0], alone[1])
    for device in (Sharding(TWO, 0), ROWS, on(1), REPLICATED, on((0, 1), GRID)):
        np.testing.assert_array_equal(draw(device), alone)


@pytest.mark.parametrize("layout", [Sharding(TWO, 0), ROWS, REPLICATED], ids=str)
def test_dropout_does_not_depend_on_the_layout(layout: Sharding) -> None:
    def dropped(device: Any) -> Array:
        Tensor.manual_seed(7)
        with Tensor.train():
            return placed(array(8, 16), device).dropout(0.5).numpy()

    alone = dropped(None)
    assert 0 < (alone == 0).sum() < alone.size
    np.testing.assert_array_equal(dropped(layout), alone)


# ---- assignment ----


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_assign_keeps_layout_and_memory(layout: Sharding) -> None:
    x = placed(array(8, 12), layout)
    memory = x.uop.base.realized
    x.assign(x * 2 + Tensor(array(8, 12, seed=1)).shard(DEVICES)).realize()
    assert x.device is layout
    assert x.uop.base.realized is memory
    np.testing.assert_allclose(x.numpy(), array(8, 12) * 2 + array(8, 12, seed=1), rtol=1e-5)


@pytest.mark.parametrize("layout", [REPLICATED, on(0), on(1)], ids=str)
def test_setitem(layout: Sharding) -> None:
    expected = array(8, 12)
    x = Tensor(expected).to(layout).realize()
    x[2:4, 4:8] = 1
    x[0] = Tensor.ones(12)
    expected[2:4, 4:8] = 1
    expected[0] = 1
    np.testing.assert_array_equal(x.numpy(), expected)
    assert x.device is layout


# ---- under the JIT ----


@pytest.mark.parametrize("layout", [on(0), on(1), REPLICATED], ids=str)
def test_jit_replays_on_sharded_inputs(layout: Sharding) -> None:
    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        return ((x + y).sum(0) * 2).realize()

    for seed in range(5):
        a, b = integers(8, 12, seed=seed), integers(8, 12, seed=seed + 10)
        out = step(placed(a, layout), placed(b, on(0)))
        np.testing.assert_array_equal(out.numpy(), (a + b).sum(0) * 2)


def test_random_numbers_advance_inside_the_jit() -> None:
    def run(device: Any, wrap: Callable[..., Any]) -> list[Array]:
        Tensor.manual_seed(5)
        step = wrap(lambda x: (x + Tensor.rand(8, 4, device=device)).realize())
        return [step(placed(array(8, 4), device)).numpy() for _ in range(5)]

    expected = run(DEVICE, lambda function: function)
    assert not np.array_equal(expected[3], expected[4])
    for device in (DEVICE, ROWS):
        np.testing.assert_allclose(run(device, TinyJit), expected, rtol=1e-6)
