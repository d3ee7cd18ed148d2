"""Sharded tensors built from their shards, and shards taken from sharded tensors.

Values and gradients equal those of the global array, nothing is sent, and errors name the shard
that does not fit. All of it holds with `SPEC` off and on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, nth
from test.evaluator.plan import run_plan
from test.evaluator.tensor_graph import evaluate
from test.sharding.common import DEVICES, REPLICATED, TWO, Array, array, integers, on, placed
from test.together import CommTrace, GlobalCounters
from tinygrad import Context, Mesh, P, Sharding, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.sharding import Interval, Partial, ShardingError, global_shape, shard_shapes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

LAYOUTS: list[tuple[Sharding, tuple[int, ...]]] = [
    (on(0), (8, 3)),
    (on(1), (3, 8)),
    (on(0), (10, 3)),  # 3, 3, 3, 1
    (on(0), (5, 2)),  # 2, 2, 1, 0
    (on(1), (2, 3)),  # 1, 1, 1, 0
    (REPLICATED, (3, 2)),
    (on((0, 1), (2, 2)), (4, 6)),
    (on((0, 1), (2, 2)), (5, 3)),
    (on((1, 0), (2, 2)), (5, 3)),
    (on((None, 1), (2, 2)), (3, 5)),
    (on((0, None), (2, 2)), (5, 3)),
    (Sharding(TWO, 0), (3, 2)),
    (Sharding(TWO), (2, 2)),
    (Sharding((nth(2),)), (2, 2)),
    (on(0), (0, 3)),
]
IDS = [f"{layout} {shape}" for layout, shape in LAYOUTS]


@pytest.fixture(params=[0, 2], autouse=True)
def spec(request: pytest.FixtureRequest) -> Iterator[None]:
    with Context(SPEC=request.param):
        yield


def cut(value: Array, layout: Sharding) -> list[Array]:
    """The shard of each device."""
    return [value[tuple(slice(*b) for b in region)] for region in layout.regions(value.shape)]


def shards_of(value: Array, layout: Sharding) -> list[Tensor]:
    """Realized tensors, one on each device."""
    pairs = zip(cut(value, layout), layout.devices, strict=True)
    return [Tensor(x, device=d, requires_grad=True).realize() for x, d in pairs]


def same(found: Sequence[Tensor], expected: Sequence[Array]) -> None:
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x.numpy(), y)


# ---- shapes ----


@pytest.mark.parametrize(("layout", "shape"), LAYOUTS, ids=IDS)
def test_the_global_shape_follows_from_those_of_the_shards(
    layout: Sharding, shape: tuple[int, ...]
) -> None:
    assert global_shape(layout, shard_shapes(layout, shape)) == shape


# ---- values ----


@pytest.mark.sample(3)
@pytest.mark.parametrize(("layout", "shape"), LAYOUTS, ids=IDS)
def test_from_shards_has_the_global_value_and_moves_no_byte(
    layout: Sharding, shape: tuple[int, ...]
) -> None:
    value = array(*shape)
    with CommTrace() as trace:
        x = Tensor.from_shards(shards_of(value, layout), layout)
        assert (x.shape, x.device, x.dtype) == (shape, layout, dtypes.float)
        (computed := x * 2).realize()
        x.realize()
    assert trace.nbytes == 0 and not trace.records
    same([x, computed], [value, value * 2])


@pytest.mark.sample(3)
@pytest.mark.parametrize(("layout", "shape"), LAYOUTS, ids=IDS)
def test_shards_are_slices_of_the_global_value_and_move_no_byte(
    layout: Sharding, shape: tuple[int, ...]
) -> None:
    value = array(*shape)
    x = placed(value, layout)
    expected = cut(value, layout)
    with CommTrace() as trace:
        shards = x.shards
        assert [s.shape for s in shards] == [y.shape for y in expected]
        assert [s.device for s in shards] == list(layout.devices)
        Tensor.realize(*shards)
        doubled = [(s * 2).realize() for s in shards]
        lazy = [s.realize() for s in (x * 3).shards]
    assert trace.nbytes == 0 and not trace.records
    same(shards, expected)
    same(doubled, [y * 2 for y in expected])
    same(lazy, [y * 3 for y in expected])


@pytest.mark.sample(8)
@pytest.mark.parametrize(("layout", "shape"), LAYOUTS, ids=IDS)
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.sum(0),
        lambda x: x.max(1),
        lambda x: x @ x.T,
        lambda x: x.T + 1,
        lambda x: x.pad(((1, 1), (0, 0))),
        lambda x: x.softmax(1),
        lambda x: x.to(nth(3)),
        lambda x: x.to(REPLICATED),
        lambda x: x[1:, :-1],
    ],
)
def test_programs_on_a_stack_of_shards_equal_those_on_the_global_array(
    program: Callable[[Tensor], Tensor], layout: Sharding, shape: tuple[int, ...]
) -> None:
    if 0 in shape or len(layout) == 1:
        pytest.skip("no elements to reduce, or other devices")
    value = integers(*shape)
    x = Tensor.from_shards(shards_of(value, layout), layout)
    try:
        expected = program(placed(value, layout)).numpy()
    except ShardingError as error:
        with pytest.raises(ShardingError, match="live on"):
            program(x)
        assert "live on" in str(error)
        return
    np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(evaluate(program(x).uop), expected, rtol=1e-6)


def test_shards_may_be_lazy_constant_or_views() -> None:
    parts = [
        Tensor([[1.0, 2.0], [3.0, 4.0]]).T,
        Tensor([1.0, 2.0], device=TWO[1]).reshape(1, 2).expand(2, 2) * 3,
        Tensor.ones(2, 2),
        Tensor.arange(8, device=DEVICES[3]).float().reshape(4, 2)[1:3],
    ]
    expected = np.concatenate([x.numpy() for x in parts])
    x = Tensor.from_shards(parts, on(0))
    same([x, x + x], [expected, expected * 2])


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.int8, dtypes.bool, dtypes.half])
def test_shards_of_every_dtype_width(dtype: Any) -> None:
    x = Tensor([1, 0, 1, 1, 1]).cast(dtype).shard(DEVICES, 0).realize()
    assert [s.dtype for s in x.shards] == [dtype] * 4
    back = Tensor.from_shards([s.clone() for s in x.shards], x.device)
    same([back], [x.numpy()])


def test_an_unsharded_axis_may_be_symbolic() -> None:
    n = Variable("n", 1, 4).bind(3)
    parts = [Tensor(array(2, 4), device=d)[:, :n] for d in TWO]
    x = Tensor.from_shards(parts, Sharding(TWO, 0))
    expected = np.concatenate([array(2, 4)[:, :3]] * 2).sum(1)
    np.testing.assert_allclose(x.sum(1).numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(x.shards[1].sum(1).numpy(), expected[2:], rtol=1e-5)


def test_the_only_shard_of_a_tensor_on_one_device_is_itself() -> None:
    x = Tensor([1, 2])
    assert x.shards == [x]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x.reshape(2, 4, 3),
        lambda x: x.reshape(8, 1, 3).expand(8, 2, 3),
        lambda x: x[:, 1:],
        lambda x: x.flip(1),
        lambda x: x.flip(0),
        lambda x: x[2:6],
        lambda x: x[:5],
        lambda x: x.detach(),
        lambda x: x.T.flip(0)[1:].T,
        lambda x: x.pad(((1, 1), (0, 0))),
    ],
)
def test_shards_of_a_view(view: Callable[[Any], Any]) -> None:
    x = placed(array(8, 3), on(0))
    shards = view(x).shards
    same(shards, cut(view(x).numpy(), view(x).device))
    same([s + 1 for s in view(x * 2).shards], [s.numpy() * 2 + 1 for s in shards])


# ---- no copies ----


def test_shards_are_views_of_the_shard_buffers() -> None:
    x = placed(array(8, 3), on(0))
    for number, shard in enumerate(x.shards):
        assert shard.realize().uop.buffer is x.uop.buffer[number]
    GlobalCounters.reset()
    Tensor.realize(*x.shards, *x.T.shards, *x.reshape(24).shards)
    assert GlobalCounters.kernel_count == 0


def test_shards_of_a_lazy_value_are_computed_once() -> None:
    x = placed(array(8, 3), on(0)) + 1
    GlobalCounters.reset()
    Tensor.realize(*x.shards)
    same(x.shards, cut(x.numpy(), on(0)))
    assert GlobalCounters.kernel_count == 4 and x.uop.is_realized


def test_a_stack_is_read_from_the_memory_of_its_shards() -> None:
    value = array(8, 3)
    x = Tensor.from_shards(shards_of(value, on(0)), on(0))
    GlobalCounters.reset()
    same([x * 2], [value * 2])
    assert GlobalCounters.kernel_count == 4


def test_computed_shards_are_stored_once() -> None:
    parts = [part + 1 for part in shards_of(array(8, 3), on(0))]
    x = Tensor.from_shards(parts, on(0))
    del parts
    GlobalCounters.reset()
    same([x], [array(8, 3) + 1])
    assert GlobalCounters.kernel_count == 4


def test_a_stack_of_the_shards_of_a_tensor_is_read_in_place() -> None:
    x = placed(array(8, 3), on(0))
    GlobalCounters.reset()
    same([Tensor.from_shards(x.shards, x.device) + 1], [array(8, 3) + 1])
    assert GlobalCounters.kernel_count == 4


# ---- writing ----


def test_a_tensor_and_its_shards_see_each_others_writes() -> None:
    x = placed(integers(10, 2), on(0)).detach()
    shards, before = x.shards, (x + 0)
    x.assign(x * 2).realize()
    same(shards, cut(integers(10, 2) * 2, on(0)))
    shards[3].assign(shards[3] + 100)
    shards[0][1:] = 7
    expected = integers(10, 2) * 2
    expected[9:] += 100
    expected[1:3] = 7
    same([x, before, *shards], [expected, integers(10, 2), *cut(expected, on(0))])


def test_a_write_to_a_shard_comes_after_a_pending_write_to_the_tensor() -> None:
    x = placed(integers(8, 2), on(0)).detach()
    shard, doubled = x.shards[1], x * 2
    x.assign(x + 1)
    shard.assign(Tensor.zeros(2, 2, device=DEVICES[1]))
    expected = integers(8, 2) + 1
    expected[2:4] = 0
    same([x, doubled], [expected, integers(8, 2) * 2])


@pytest.mark.parametrize("layout", [REPLICATED, on((0, None), (2, 2))])
def test_one_of_several_replicas_cannot_be_written(layout: Sharding) -> None:
    x = placed(integers(8, 2), layout)
    shard = x.shards[1]
    with pytest.raises(ShardingError, match=r"shard 1 .* is one of \d replicas; assign to the"):
        shard.assign(shard * 2)
    same([x], [integers(8, 2)])
    same([shard.clone().assign(shard * 2)], [shard.numpy() * 2])


@pytest.mark.parametrize("rows", [8, 10])
def test_a_stack_does_not_alias_its_shards(rows: int) -> None:
    value = integers(rows, 2)
    parts = shards_of(value, on(0))
    x = Tensor.from_shards(parts, on(0))
    unread = Tensor.from_shards(parts, on(0)) + 1
    parts[0].assign(parts[0] * 5).realize()
    same([x, unread, parts[0]], [value, value + 1, cut(value, on(0))[0] * 5])
    x.assign(x * 3).realize()
    parts[1].assign(parts[1] + 1).realize()
    pieces = cut(value, on(0))
    same([x, parts[1], parts[2]], [value * 3, pieces[1] + 1, pieces[2]])


def test_a_stack_of_the_shards_of_a_tensor_does_not_alias_it() -> None:
    x = placed(integers(8, 2), on(0)).detach()
    stack = Tensor.from_shards(x.shards, x.device).realize()
    lazy = Tensor.from_shards(x.shards, x.device)
    shard = lazy.shards[2]
    x.shards[0].assign(x.shards[0] * 2 + 1)
    x.assign(x * 3).realize()
    same([stack, lazy, shard], [integers(8, 2), integers(8, 2), integers(8, 2)[4:6]])


def test_the_bits_of_a_stack_are_a_value_of_their_own() -> None:
    parts = [Tensor([1.0, 2.0], device=d).realize() for d in TWO]
    stack = Tensor.from_shards(parts, Sharding(TWO, 0))
    bits = [stack.bitcast(dtypes.uint8).realize(), stack.shards[0].bitcast(dtypes.uint8).realize()]
    expected = [x.numpy() for x in bits]
    parts[0].assign(parts[0] * 0).realize()
    same(bits, expected)


def test_a_shard_of_a_stack_is_read_after_a_write_to_another_shard() -> None:
    x, y = (placed(integers(8, 2, seed=i), on(0)).detach() for i in range(2))
    stack = Tensor.from_shards([x.shards[0], *(s + 1 for s in y.shards[1:])], x.device)
    shard = stack.shards[3] * 2
    x.assign(x + y)
    Tensor.realize(x, shard)
    same(
        [shard, x], [(integers(8, 2, seed=1)[6:] + 1) * 2, integers(8, 2) + integers(8, 2, seed=1)]
    )


def test_a_shard_and_the_stack_realized_together_do_not_alias() -> None:
    parts = [(part + 1).contiguous() for part in shards_of(integers(8, 2), on(0))]
    x = Tensor.from_shards(parts, on(0))
    Tensor.realize(x, *parts)
    parts[0].assign(parts[0] * 0).realize()
    same([x], [integers(8, 2) + 1])


def test_a_buffer_is_overwritten_with_a_stack_of_its_own_shards() -> None:
    x = placed(integers(8, 2), Sharding(TWO, 0))
    first, second = x.shards
    flipped = Tensor.from_shards([second.to(TWO[0]).flip(0), first.flip(0).to(TWO[1])], x.device)
    x.assign(flipped).realize()
    same([x], [integers(8, 2)[::-1]])
    x.assign(Tensor.from_shards([s.flip(0) for s in x.shards], x.device)).realize()
    same([x], [np.concatenate([integers(8, 2)[4:], integers(8, 2)[:4]])])


# ---- gradients ----


@pytest.mark.sample(3)
@pytest.mark.parametrize(("layout", "shape"), LAYOUTS, ids=IDS)
def test_the_gradient_of_a_shard_is_the_shard_of_the_gradient(
    layout: Sharding, shape: tuple[int, ...]
) -> None:
    value, weight = array(*shape), array(*shape, seed=1)
    parts, weights = shards_of(value, layout), placed(weight, layout)
    x = Tensor.from_shards(parts, layout)
    with CommTrace() as trace:
        (x * x * weights).sum().backward()
        Tensor.realize(*(part.grad for part in parts))
    assert not trace.records
    replicas = len(layout) // np.prod([layout.shards(i) for i in layout.split_axes], dtype=int)
    for part, expected in zip(parts, cut(2 * value * weight, layout), strict=True):
        assert part.grad.device == part.device
        np.testing.assert_allclose(part.grad.numpy(), expected / replicas, rtol=1e-5, atol=1e-6)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("layout", "shape"), LAYOUTS, ids=IDS)
def test_the_gradient_of_a_tensor_is_built_from_those_of_its_shards(
    layout: Sharding, shape: tuple[int, ...]
) -> None:
    value = array(*shape)
    x = placed(value, layout)
    loss = sum(
        (s * s * (i + 1)).sum().to(DEVICE) for i, s in enumerate(x.shards) if s.numel()
    ) + Tensor(0.0)
    (gradient,) = loss.gradient(x, materialize_grads=True)
    expected = np.zeros(shape, np.float32)
    for i, region in enumerate(layout.regions(shape)):
        where = tuple(slice(*bounds) for bounds in region)
        expected[where] += 2 * value[where] * (i + 1)
    assert gradient.device == layout
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(evaluate(gradient.uop), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", [on(0), REPLICATED, on((None, 1), (2, 2))])
def test_gradients_go_through_shards_and_back(layout: Sharding) -> None:
    value = array(5, 3)
    x, y = placed(value, layout), Tensor(value, requires_grad=True)
    back = Tensor.from_shards([s.sin() for s in x.shards], layout)
    (found,) = back.square().sum().gradient(x)
    (expected,) = y.sin().square().sum().gradient(y)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_replicas_of_a_weight_stay_equal_under_an_optimizer() -> None:
    weight = array(3, 3)
    parts = shards_of(weight, Sharding(TWO))
    x = placed(array(4, 3, seed=1), Sharding(TWO, 0))
    optimizer = nn.optim.SGD(parts, lr=0.1)
    with Tensor.train():
        (x @ Tensor.from_shards(parts, Sharding(TWO))).square().mean().backward()
        optimizer.step()
    np.testing.assert_array_equal(parts[0].numpy(), parts[1].numpy())
    assert not np.array_equal(parts[0].numpy(), weight)


# ---- captured functions ----


@pytest.mark.parametrize(
    ("layout", "shape"), [(on(0), (8, 3)), (on(0), (10, 3)), (REPLICATED, (2, 3))]
)
def test_a_captured_function_stacks_its_arguments(layout: Sharding, shape: tuple[int, ...]) -> None:
    @TinyJit
    def run(parts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        x = Tensor.from_shards(parts, layout)
        return x.realize(), (x * 2).sum(0).realize(), x.shards[1].square().realize()

    for seed in range(4):
        value = array(*shape, seed=seed)
        x, total, squared = run(shards_of(value, layout))
        np.testing.assert_array_equal(x.numpy(), value)
        np.testing.assert_allclose(total.numpy(), value.sum(0) * 2, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(squared.numpy(), cut(value, layout)[1] ** 2)


def test_a_captured_function_returns_shards() -> None:
    @TinyJit
    def run(x: Tensor) -> list[Tensor]:
        return (x + 1).shards

    for seed in range(4):
        value = array(10, 3, seed=seed)
        same(run(placed(value, on(0))), cut(value + 1, on(0)))


def test_a_captured_function_writes_a_shard_of_what_it_reads() -> None:
    cache = placed(integers(8, 2), on(0))

    @TinyJit
    def run(row: Tensor) -> Tensor:
        shard = cache.shards[2]
        shard.assign(shard + row)
        return (cache * 1).realize()

    expected = integers(8, 2)
    for seed in range(4):
        row = integers(2, seed=seed)
        expected[4:6] += row
        same([run(Tensor(row, device=DEVICES[2]).realize())], [expected])


def test_a_captured_training_step_with_parameters_from_shards() -> None:
    def losses(weight: Tensor, captured: bool) -> list[float]:
        optimizer = nn.optim.SGD([weight.requires_grad_()], lr=0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (x @ weight).square().mean().backward()
            optimizer.step()
            return loss.realize()

        run = TinyJit(step) if captured else step
        with Tensor.train():
            return [
                run(placed(array(4, 8, seed=i), weight.device.replicated())).item()
                for i in range(5)
            ]

    value = array(8, 8)
    stacked = Tensor.from_shards(shards_of(value, on(0)), on(0)).detach().realize()
    np.testing.assert_allclose(
        losses(stacked, True), losses(placed(value, on(0)), False), rtol=1e-5
    )


# ---- errors ----


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({2: Tensor.zeros(3, 3, device=nth(2)).contiguous()}, r"part 0 .* expected of shape \(3,"),
        ({2: Tensor.zeros(1, 3, device=nth(2)).contiguous()}, r"part 2 is a .* of shape \(1, 3\)"),
        ({2: Tensor.zeros(2, 4, device=nth(2)).contiguous()}, r"part 2 .* \(2, 4\) on \w+:2, exp"),
        ({2: Tensor.zeros(2, device=nth(2)).contiguous()}, r"part 2 .* with 2 axes, as part 0"),
        (
            {1: Tensor.zeros(2, 3, device=nth(2)).contiguous()},
            r"part 1 is a dtypes.float tensor of shape \(2, 3\) on \w+:2, expected on \w+:1; bring",
        ),
        (
            {1: Tensor.zeros(2, 3, device=Sharding(TWO)).contiguous()},
            r"part 1 .* on Sharding\(\w+:0-1, axis=None\), expected on \w+:1",
        ),
        (
            {3: Tensor.zeros(2, 3, device=nth(3), dtype=dtypes.int).contiguous()},
            r"part 3 is a dtypes.int tensor .* expected of dtypes.float, as part 0; cast it",
        ),
    ],
)
def test_a_shard_that_does_not_fit_is_named(wrong: dict[int, Tensor], message: str) -> None:
    parts = shards_of(array(8, 3), on(0))
    for number, part in wrong.items():
        parts[number] = part
    with pytest.raises(ShardingError, match=message):
        Tensor.from_shards(parts, on(0))


def test_replicas_of_different_shapes_are_refused() -> None:
    parts = shards_of(array(8, 3), on(0))
    parts[1] = Tensor.zeros(3, 3, device=DEVICES[1])
    with pytest.raises(ShardingError, match=r"part 1 .* expected of shape \(2, 3\)"):
        Tensor.from_shards(parts, REPLICATED)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            on(Partial("ADD")),
            r"is of partial sums; stack them along a new axis and reduce it: from_shards",
        ),
        (on(Interval(0, 0, 2, 3)), "overlap"),
        (on(2), r"parts of the shapes .* shards axis 2, which a shard lacks"),
        (Sharding(TWO, 0), "has 2 shards, one for each device, and 4 parts are given"),
        (DEVICES, "takes a Sharding, not"),
    ],
)
def test_a_layout_without_shards_is_refused(layout: Any, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        Tensor.from_shards(shards_of(array(8, 3), on(0)), layout)


def test_a_shard_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"from_shards takes tensors, not \[1.0\] of type list"):
        Tensor.from_shards([Tensor([1.0]), [1.0]], Sharding(TWO, 0))  # type: ignore[list-item]


def test_an_axis_of_size_one_is_not_sharded() -> None:
    parts = [Tensor.zeros(1, 2), Tensor.zeros(0, 2, device=TWO[1])]
    with pytest.raises(ShardingError, match="its size is 1"):
        Tensor.from_shards(parts, Sharding(TWO, 0))


def test_shards_along_a_symbolic_axis_are_refused() -> None:
    x = placed(array(8, 3), on(0))[: Variable("n", 1, 8).bind(3)]
    with pytest.raises(ShardingError, match="symbolic"):
        _ = x.shards


def test_the_fix_in_the_error_about_partial_sums_works() -> None:
    partial_sums = shards_of(integers(8, 3), on(0))
    stacked = Tensor.from_shards([x.unsqueeze(0) for x in partial_sums], on(0))
    same([stacked.sum(0)], [integers(8, 3).reshape(4, 2, 3).sum(0)])


def test_nodes_are_checked_like_tensors() -> None:
    a, b = (x.uop for x in shards_of(array(4, 3), Sharding(TWO, 0)))
    layout = Sharding(TWO, 0)
    with pytest.raises(ShardingError, match=f"part 0 .* expected on {DEVICE}"):
        UOp.mstack(b, a, sharding=layout)
    with pytest.raises(ShardingError, match="MSTACK has a Sharding as its argument, not None"):
        Tensor.from_uop(UOp(Ops.MSTACK, a.dtype, (a, b))).numpy()
    whole = UOp.mstack(a, b, sharding=layout)
    assert (whole.shape, whole.device, whole.mselect(1).device) == ((4, 3), layout, TWO[1])
    with pytest.raises(IndexError, match="no shard 2 of 2"):
        whole.mselect(2)
    with pytest.raises(ShardingError, match=f"a value on {DEVICE} has none; shard it first"):
        a.mselect(0)


# ---- meshes ----


def test_named_meshes() -> None:
    mesh = Mesh((2, 2), ("dp", "tp"), DEVICES)
    layout = mesh.sharding(P("dp", "tp"))
    value = array(4, 6)
    x = Tensor.from_shards(shards_of(value, layout), layout)
    same([x, *x.shards], [value, *cut(value, layout)])


def test_a_plan_of_stacks_and_shards_evaluates_the_same_in_numpy() -> None:
    layout = on(0)
    x = Tensor.from_shards(shards_of(integers(10, 3), layout), layout)
    result = (x + 1).shards[2].sum(0)
    stored = {n: evaluate(n) for n in result.uop.toposort() if n.op is Ops.BUFFER}
    (found,) = run_plan(result.uop, inputs=stored)
    np.testing.assert_array_equal(found, (integers(10, 3) + 1)[6:9].sum(0))
