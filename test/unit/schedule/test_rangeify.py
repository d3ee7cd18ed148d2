"""Rangeify: movement ops as index arithmetic, and which loads need a condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygrad import dtypes
from tinygrad.schedule.kernel.movement_index import movement_index, reshape_index, within
from tinygrad.schedule.pipeline import lower_kernel
from tinygrad.uop import Ops
from tinygrad.uop.args import KernelInfo, ParamArg, ReduceArg, WindowArg
from tinygrad.uop.ops import UOp

FLOAT = dtypes.float32


def param(slot: int, *shape: int) -> UOp:
    return UOp(Ops.PARAM, FLOAT, (), ParamArg(slot, shape))


def total(x: UOp, axis: int) -> UOp:
    return UOp(Ops.REDUCE_AXIS, x.dtype, (x,), ReduceArg(Ops.ADD, (axis,)))


def found(root: UOp, op: Ops) -> list[UOp]:
    return [node for node in root.toposort() if node.op is op]


def indices(*sizes: int) -> tuple[UOp, ...]:
    return tuple(UOp.range(size, i) for i, size in enumerate(sizes))


def values_of(expressions: tuple[UOp, ...], index: tuple[UOp, ...], at: tuple[int, ...]) -> Any:
    table = {i: i.const_like(v) for i, v in zip(index, at, strict=True)}
    return tuple(int(x.substitute(table)) for x in expressions)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ((6,), (2, 3)),
        ((2, 3), (6,)),
        ((4, 6), (2, 12)),
        ((2, 1, 3), (2, 3)),
        ((3, 4, 5), (12, 5)),
        ((1, 6, 1), (3, 2)),
    ],
)
def test_a_reshape_keeps_the_row_major_order(new: tuple[int, ...], old: tuple[int, ...]) -> None:
    index = indices(*new)
    below = reshape_index(index, new, old)
    for at in np.ndindex(*new):
        expected = np.unravel_index(np.ravel_multi_index(at, new), old)
        assert values_of(below, index, at) == expected


def test_axes_that_a_reshape_keeps_need_no_division() -> None:
    index = indices(5, 4, 6)
    below = reshape_index(index, (5, 4, 6), (5, 24))
    assert below[0] is index[0]
    merged_axes = below[1].simplify()
    assert not found(merged_axes, Ops.IDIV) + found(merged_axes, Ops.MOD)


MOVED = UOp.new_buffer("CPU", (4, 6), FLOAT)


@pytest.mark.parametrize(
    ("node", "moved"),
    [
        (MOVED.permute((1, 0)), lambda x: x.T),
        (MOVED.flip((True, False)), lambda x: x[::-1]),
        (MOVED.shrink(((1, 3), (2, 6))), lambda x: x[1:3, 2:6]),
        (MOVED.pad(((1, 2), (0, 1))), lambda x: np.pad(x, ((1, 2), (0, 1)), constant_values=-1)),
        (
            MOVED.reshape((4, 6, 1)).expand((4, 6, 2)).window(WindowArg(((1, 2, 5, 1, 1),))),
            lambda x: np.stack([x[:, k : k + 5] for k in range(2)], axis=2),
        ),
    ],
)
def test_a_movement_op_reads_the_correct_element(node: UOp, moved: Any) -> None:
    index = indices(*node.shape)
    wanted = moved(np.arange(24).reshape(4, 6))
    point, valid = index, None
    for at in np.ndindex(*wanted.shape):
        source, condition, here = node, valid, point
        exists = True
        while source is not MOVED:
            here, condition = movement_index(source, here)
            if condition is not None:
                exists = exists and bool(values_of((condition,), index, at)[0])
            source = source.src[0]
        element = np.ravel_multi_index(values_of(here, index, at), (4, 6)) if exists else -1
        assert element == wanted[at]


def test_a_condition_that_always_holds_is_removed() -> None:
    (i,) = indices(4)
    assert within(i, 0, 4) is None
    assert within(i, 1, 4) is not None
    assert within(i + 1, 1, 4) is not None


def test_a_padded_load_is_not_masked_twice() -> None:
    value = param(1, 4).pad(((1, 1),))
    store = UOp(Ops.STORE, FLOAT, (param(0, 6), value))
    kernel = lower_kernel(UOp.sink(store, arg=KernelInfo("pad")))
    (load,) = found(kernel, Ops.LOAD)
    assert len(load.src[0].src) == 3
    assert not found(kernel, Ops.WHERE)


def test_a_value_that_is_nonzero_in_the_padding_is_masked() -> None:
    value = (param(1, 4) + 1).pad(((1, 1),))
    store = UOp(Ops.STORE, FLOAT, (param(0, 6), value))
    assert found(lower_kernel(UOp.sink(store, arg=KernelInfo("pad"))), Ops.WHERE)


def test_sums_of_sums_are_one_loop_nest() -> None:
    value = total(total(param(1, 2, 3, 4), 2), 1)
    store = UOp(Ops.STORE, FLOAT, (param(0, 2, 1, 1), value))
    kernel = lower_kernel(UOp.sink(store, arg=KernelInfo("sum")))
    (reduce,) = found(kernel, Ops.REDUCE)
    assert len(reduce.src) == 3


def test_a_sum_masks_one_factor_of_its_products() -> None:
    """As in the gradient of a depthwise convolution by its images."""
    repeated = param(1, 1, 3).expand((6, 3))
    product = UOp(Ops.MUL, FLOAT, (repeated, param(2, 6, 3)))
    value = total(product.unwindow(WindowArg(((0, 1, 8, 1, 1),))), 1)
    store = UOp(Ops.STORE, FLOAT, (param(0, 8, 1), value))
    kernel = lower_kernel(UOp.sink(store, arg=KernelInfo("sum")))
    masked = [load for load in found(kernel, Ops.LOAD) if len(load.src[0].src) == 3]
    assert [load.src[0].src[0].arg for load in masked] == [2]
    assert not found(kernel, Ops.WHERE)
