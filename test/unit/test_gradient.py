"""Gradient rules against central differences of the evaluator; the traversal that applies them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.evaluator.tensor_graph import evaluate
from tinygrad.dtype import dtypes
from tinygrad.gradient import carry_over, compute_gradient, with_gradient
from tinygrad.gradient.differentiate import RULES
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, WindowArg

F64 = dtypes.float64
random = np.random.default_rng(0)


def leaf(*shape: int, device: Any = "CPU", dtype: Any = F64) -> UOp:
    return UOp.new_buffer(device, shape, dtype)


def full(value: float, *shape: int) -> UOp:
    return UOp.const(F64, value).reshape((1,) * len(shape)).expand(shape)


def values_of(*leaves: UOp, low: float = 0.5, high: float = 2.0) -> dict[UOp, Any]:
    return {x: random.uniform(low, high, x.shape) for x in leaves}


def assert_gradient(root: UOp, values: dict[UOp, Any], step: float = 1e-6) -> None:
    """Checks the gradient of `(root * weights).sum()` against central differences."""
    weights = random.uniform(-1, 1, root.shape)
    outer = leaf(*root.shape)
    given = {**values, outer: weights}
    found = compute_gradient(root, outer, list(values))
    for x, value in values.items():
        expected = np.zeros(x.shape)
        for place in np.ndindex(*x.shape):
            total = []
            for sign in (1, -1):
                moved = value.copy()
                moved[place] += sign * step
                total.append((evaluate(root, {**given, x: moved}) * weights).sum())
            expected[place] = (total[0] - total[1]) / (2 * step)
        actual = evaluate(found[x], given) if x in found else np.zeros(x.shape)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


UNARY = sorted(GroupOp.Unary - {Ops.TRUNC})
DOMAINS = {Ops.ACOSH: (1.2, 3.0), **dict.fromkeys((Ops.ASIN, Ops.ACOS, Ops.ATANH), (-0.9, 0.9))}
BINARY = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.POW]


@pytest.mark.parametrize("op", UNARY)
def test_unary_rule(op: Ops) -> None:
    x = leaf(2, 3)
    low, high = DOMAINS.get(op, (0.5, 1.5))
    assert_gradient(x.alu(op), values_of(x, low=low, high=high))


@pytest.mark.parametrize("op", BINARY)
def test_binary_rule(op: Ops) -> None:
    x, y = leaf(2, 3), leaf(2, 3)
    assert_gradient(x.alu(op, y), values_of(x, y))


@pytest.mark.parametrize("op", BINARY)
def test_the_gradient_of_a_broadcast_scalar_is_summed(op: Ops) -> None:
    x, scalar = leaf(2, 3), leaf()
    assert_gradient(x.alu(op, scalar), values_of(x, scalar))


def test_where_and_mulacc_rules() -> None:
    x, y, z = leaf(2, 3), leaf(2, 3), leaf(2, 3)
    values = values_of(x, y, z)
    assert_gradient((x < y).where(z, x * z), values)
    assert_gradient(x.alu(Ops.MULACC, y, z), values)


def test_power_of_zero() -> None:
    x, y = leaf(3), leaf(3)
    values = {x: np.array([0.0, 0.0, 2.0]), y: np.array([0.0, 2.0, 0.0])}
    found = compute_gradient(x.alu(Ops.POW, y), full(1, 3), [x, y])
    np.testing.assert_array_equal(evaluate(found[x], values), [0, 0, 0])
    np.testing.assert_allclose(evaluate(found[y], values), [0, 0, math.log(2)])


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2)])
@pytest.mark.parametrize("op", sorted(GroupOp.Reduce))
def test_reduce_rule(op: Ops, axes: tuple[int, ...]) -> None:
    x = leaf(2, 3, 2)
    assert_gradient(x.r(op, axes), values_of(x))


MOVEMENT: dict[str, Callable[[UOp], UOp]] = {
    "reshape": lambda x: x.reshape((6, 2)),
    "permute": lambda x: x.permute((2, 0, 1)),
    "expand": lambda x: x.reshape((2, 1, 3, 2)).expand((2, 4, 3, 2)),
    "pad": lambda x: x.pad(((1, 0), (0, 2), (0, 0))),
    "shrink": lambda x: x.shrink(((0, 1), (1, 3), (0, 2))),
    "flip": lambda x: x.flip((True, False, True)),
    "window": lambda x: x.window(WindowArg(((1, 2, 2, 1, 1),))),
    "window with a stride": lambda x: x.reshape((6, 2)).window(WindowArg(((0, 1, 2, 3, 2),))),
    "unwindow": lambda x: x.unwindow(WindowArg(((1, 2, 6, 2, 1),))),
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement_rule(name: str) -> None:
    x = leaf(2, 3, 2)
    assert_gradient(MOVEMENT[name](x), values_of(x))


def test_gather_and_scatter_rules() -> None:
    table, rows = leaf(4, 2), leaf(3, 2)
    index = UOp.new_buffer("CPU", (3,), dtypes.int32)
    picked = {index: np.array([2, 0, 2], np.int32)}
    for root, x in ((table.gather(index), table), (rows.scatter_add(index, 4), rows)):
        weights = leaf(*root.shape)
        values = {**picked, **values_of(x, weights)}
        found = evaluate(compute_gradient(root, weights, [x])[x], values)
        if root.op is Ops.GATHER:
            expected = np.zeros((4, 2))
            np.add.at(expected, picked[index], values[weights])
        else:
            expected = values[weights][picked[index]]
        np.testing.assert_allclose(found, expected)


def test_assign_passes_to_the_value_and_cast_converts() -> None:
    target, x = leaf(3), leaf(3, dtype=dtypes.float32)
    found = compute_gradient(target.assign(x.cast(F64)), leaf(3), [target, x])
    assert set(found) == {x}
    assert found[x].dtype == dtypes.float32


def test_nothing_flows_through_detach_comparison_and_integers() -> None:
    x = leaf(3)
    for root in (x.detach(), x.cast(dtypes.int32).cast(F64)):
        assert x not in compute_gradient(root, leaf(3), [x])


def test_every_value_op_has_a_rule() -> None:
    values = GroupOp.ALU | GroupOp.Movement | GroupOp.Identity
    values |= {Ops.CAST, Ops.BITCAST, Ops.REDUCE_AXIS, Ops.GATHER, Ops.ASSIGN} | GroupOp.Scatter
    assert values <= RULES.keys()


# ---- traversal ----


def test_a_node_used_twice_gets_the_sum() -> None:
    x = leaf(3)
    y = x * x
    assert_gradient(y * y + x, values_of(x))


def test_targets_may_depend_on_each_other() -> None:
    x = leaf(3)
    y = x * UOp.const(F64, 3)
    found = compute_gradient(y * y, full(1, 3), [x, y])
    values = {x: np.array([1.0, 2.0, 3.0])}
    np.testing.assert_allclose(evaluate(found[y], values), [6, 12, 18])
    np.testing.assert_allclose(evaluate(found[x], values), [18, 36, 54])


def test_targets_that_the_root_does_not_depend_on_have_no_gradient() -> None:
    x, y = leaf(3), leaf(3)
    assert compute_gradient(x * x, leaf(3), [y]) == {}
    assert set(compute_gradient(x, leaf(3), [x])) == {x}


def test_long_chains_need_no_deep_recursion() -> None:
    x = leaf(1)
    y = x
    for _ in range(5000):
        y = y + x
    found = compute_gradient(y, full(1, 1), [x])
    assert evaluate(found[x], {x: np.ones(1)}).tolist() == [5001]


def test_a_graph_with_many_paths_is_traversed_once() -> None:
    x = leaf(1)
    y = x
    for _ in range(200):
        y = y + y
    assert x in compute_gradient(y, full(1, 1), [x])


# ---- custom gradients ----


def test_a_custom_gradient_replaces_that_of_the_graph() -> None:
    x = leaf(3)
    y = with_gradient(x * x, lambda g, node, source: (g * source,), x)
    values = {x: np.array([1.0, 2.0, 3.0])}
    found = compute_gradient(y, full(10, 3), [x])[x]
    np.testing.assert_allclose(evaluate(found, values), [10, 20, 30])


def test_a_custom_gradient_is_kept_when_a_graph_is_rebuilt() -> None:
    x, new_x = leaf(3), leaf(3)
    y = with_gradient(x * x, lambda g, node, source: (g * source,), x)
    new_y = y.substitute({x: new_x})
    carry_over({x: new_x, y: new_y})
    values = {new_x: np.array([1.0, 2.0, 3.0])}
    found = compute_gradient(new_y, full(10, 3), [new_x])[new_x]
    np.testing.assert_allclose(evaluate(found, values), [10, 20, 30])


# ---- layouts ----

FOUR = tuple(f"CPU:{i}" for i in range(1, 5))
SHARDED, REPLICATED = Sharding(FOUR, 0), Sharding(FOUR)


def test_the_gradient_of_a_copy_is_copied_back() -> None:
    x = leaf(4)
    found = compute_gradient(x.copy_to_device("CPU:1"), leaf(4, device="CPU:1"), [x])
    assert found[x].device == "CPU"
    found = compute_gradient(x.copy_to_device(SHARDED), leaf(4, device=SHARDED), [x])
    assert found[x].device == "CPU"


def test_data_parallel_weights_get_one_all_reduce() -> None:
    x, w = leaf(8, 3, device=SHARDED), leaf(3, device=REPLICATED)
    loss = (x * w.reshape((1, 3)).expand((8, 3))).r(Ops.ADD, (0, 1)).reshape(())
    gradient = compute_gradient(loss, UOp.const(F64, 1), [w])[w]
    assert gradient.device == REPLICATED
    moves = [n for n in gradient.toposort() if n.op in {Ops.COPY, Ops.ALLREDUCE}]
    moves = [n for n in moves if n.src[0].device is not None]
    assert [n.op for n in moves if n.size > 1] == [Ops.ALLREDUCE]


def test_the_gradient_of_a_sharded_weight_is_reduce_scattered() -> None:
    x, w = leaf(8, 4, device=SHARDED), leaf(4, device=SHARDED)
    loss = (x * w.reshape((1, 4)).expand((8, 4))).r(Ops.ADD, (0, 1)).reshape(())
    gradient = compute_gradient(loss, UOp.const(F64, 1), [w])[w]
    assert gradient.device == SHARDED
    values = values_of(x, w)
    np.testing.assert_allclose(evaluate(gradient, values), values[x].sum(0))


@pytest.mark.parametrize("layout", [SHARDED, REPLICATED, Sharding(FOUR, (0, 1), (2, 2))])
def test_gradients_are_the_same_in_every_layout(layout: Sharding) -> None:
    def gradients(device: Any) -> list[Any]:
        x, w = UOp.new_buffer(device, (4, 8), F64), UOp.new_buffer(device, (4, 8), F64)
        largest = (x * w).r(Ops.MAX, (0,)).expand((4, 8))
        loss = (largest * x + w.permute((1, 0)).permute((1, 0))).r(Ops.ADD, (0, 1)).reshape(())
        generator = np.random.default_rng(1)
        values = {x: generator.normal(size=(4, 8)), w: generator.normal(size=(4, 8))}
        found = compute_gradient(loss, UOp.const(F64, 1), [x, w])
        assert all(found[node].device == device for node in (x, w))
        return [evaluate(found[node], values) for node in (x, w)]

    for a, b in zip(gradients("CPU"), gradients(layout), strict=True):
        np.testing.assert_allclose(a, b)
