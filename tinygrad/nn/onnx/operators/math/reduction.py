"""Reductions, arg-extrema, top-k and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.dtype import dtypes, least_upper_dtype, sum_acc_dtype
from tinygrad.nn.onnx.operators.tensor.movement import axis_of
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array
from tinygrad.tensor import Tensor

Axes = tuple[int, ...] | None
Reduction = Callable[[Tensor, Axes, bool], Tensor]


def to_sum_dtype(x: Tensor) -> Tensor:
    """`x` in the accumulation dtype of sums."""
    return x.cast(sum_acc_dtype(x.dtype))


def wide_float(x: Tensor) -> Tensor:
    """`x` in float32 or a wider type."""
    return x.cast(least_upper_dtype(x.dtype, dtypes.float32))


def mean(x: Tensor, axes: Axes, keepdim: bool) -> Tensor:
    """The mean; of integers, rounded toward zero."""
    if x.is_floating_point():
        return x.mean(axes, keepdim)
    total = to_sum_dtype(x).sum(axes, keepdim)
    return total.div(x.numel() // max(1, total.numel()), rounding_mode="trunc")


REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: to_sum_dtype(x).abs().sum(axes, keep),
    "ReduceL2": lambda x, axes, keep: wide_float(x).square().sum(axes, keep).sqrt(),
    "ReduceLogSum": lambda x, axes, keep: wide_float(x).sum(axes, keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: wide_float(x).logsumexp(axes, keep),
    "ReduceMax": lambda x, axes, keep: x.max(axes, keep),
    "ReduceMean": mean,
    "ReduceMin": lambda x, axes, keep: x.min(axes, keep),
    "ReduceProd": lambda x, axes, keep: x.prod(axes, keep),
    "ReduceSum": lambda x, axes, keep: to_sum_dtype(x).sum(axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: to_sum_dtype(x).square().sum(axes, keep),
}
# the elementwise function, if no axis is reduced
ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": Tensor.abs,
    "ReduceL2": Tensor.abs,
    "ReduceLogSum": Tensor.log,
    "ReduceSumSquare": Tensor.square,
}


def reduction(name: str) -> Callable[..., Tensor]:
    """The operator of one reduction."""

    def apply(
        data: Tensor,
        axes: Array | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        names = None if axes is None or axes.size == 0 else tuple(axes.tolist())
        if names is None and noop_with_empty_axes:
            return ALONE.get(name, Tensor.detach)(data).cast(data.dtype)
        return REDUCTIONS[name](data, names, bool(keepdims)).cast(data.dtype)

    return apply


for reduction_name in REDUCTIONS:
    operator(reduction_name)(reduction(reduction_name))


# ---- positions ----


def extreme_position(
    data: Tensor, largest: bool, axis: int, keepdims: int, select_last_index: int
) -> Tensor:
    """The index of the first, or last, extremum along an axis."""
    x = data.flip(axis) if select_last_index and data.ndim else data
    found = x.argmax(axis, bool(keepdims)) if largest else x.argmin(axis, bool(keepdims))
    if select_last_index and data.ndim:
        found = data.shape[axis] - 1 - found
    return found.cast(dtypes.int64)


@operator("ArgMax")
def arg_max(
    data: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Tensor:
    return extreme_position(data, True, axis, keepdims, select_last_index)


@operator("ArgMin")
def arg_min(
    data: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Tensor:
    return extreme_position(data, False, axis, keepdims, select_last_index)


@operator("TopK")
def top_k(
    x: Tensor, k: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest values in order, and their positions."""
    values, positions = x.topk(int(k.item()), axis, bool(largest))
    return values, positions.cast(dtypes.int64)


# ---- cumulative sums ----


def cumulative(
    x: Tensor, axis: int, exclusive: int, reverse: int, method: Any, first: int
) -> Tensor:
    """A cumulative reduction, without the element if `exclusive`, from the end if `reverse`."""
    at = axis_of(axis, x.ndim)
    if reverse:
        x = x.flip(at)
    if exclusive and x.shape[at]:
        pairs = tuple((1, -1) if i == at else (0, 0) for i in range(x.ndim))
        x = x.pad(pairs, value=first)
    found: Tensor = method(x, at).cast(x.dtype)
    return found.flip(at) if reverse else found


@operator("CumSum")
def cumulative_sum(x: Tensor, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return cumulative(x, int(axis.item()), exclusive, reverse, Tensor.cumsum, 0)


@operator("CumProd")
def cumulative_product(x: Tensor, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return cumulative(x, int(axis.item()), exclusive, reverse, Tensor.cumprod, 1)
