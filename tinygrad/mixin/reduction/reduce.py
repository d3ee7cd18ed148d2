"""Reductions over axes: sums, products, extrema, statistics, softmax.

Input: a tensor, and `axis`: one axis, several, or None for all. Output: a tensor without these
axes; with `keepdim`, they have size 1. Errors: IndexError for an axis out of range, ValueError for
a repeated one, TypeError for anything but integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeAlias, cast

from tinygrad.device import Device, DeviceError
from tinygrad.dtype import DType, DTypeLike, dtypes, sum_acc_dtype, to_dtype
from tinygrad.errors import ArgumentError
from tinygrad.gradient import with_gradient
from tinygrad.helpers import prod
from tinygrad.mixin.creation import CreationMixin
from tinygrad.mixin.elementwise.arithmetic import binary, difference, reverse_order
from tinygrad.mixin.elementwise.division import quotient
from tinygrad.mixin.precision import in_float32
from tinygrad.sharding.local_devices import current_local_devices
from tinygrad.uop import Ops
from tinygrad.uop.arguments import integer_argument
from tinygrad.uop.broadcast import operand_node
from tinygrad.uop.device_value import DeviceValue, device_names
from tinygrad.uop.ops import UOp, sint, smax, smin
from tinygrad.uop.reduction import lowest
from tinygrad.uop.reshard import computing_device
from tinygrad.uop.sint import index_dtype

Axis: TypeAlias = int | Sequence[int] | None


def _exact_sum_dtype(dtype: DType, count: sint) -> DType:
    """A dtype in which no sum of `count` integers overflows; float64 for those of 64 bits."""
    if dtypes.is_bool(dtype):
        return index_dtype(count)
    size = max(-int(dtypes.min(dtype)), int(dtypes.max(dtype)))
    total = size * (count if isinstance(count, int) else int(count.vmax))
    for wide in (dtypes.int32, dtypes.int64):
        if total <= dtypes.max(wide):
            return wide
    return dtypes.float64


def _reduced(node: UOp, op: Ops, axes: tuple[int, ...], keepdim: bool) -> UOp:
    """A reduction over axes, with or without these."""
    result = node.r(op, axes)
    if keepdim:
        return result
    return result.reshape(tuple([s for i, s in enumerate(result.shape) if i not in axes]))


def _has_dtype(device: DeviceValue, dtype: DType) -> bool:
    """Whether the kernels of a device have a dtype; True if it cannot be opened, which is an error
    where it computes.
    """
    names = current_local_devices().names_in(device_names(computing_device(device)))
    try:
        opened = Device[names[0] if names else Device.DEFAULT]
    except DeviceError:
        return True
    return not opened.runs_kernels or dtype in opened.target.dtypes


class ReduceMixin(CreationMixin):
    """`sum`, `max`, `mean`, `argmax`, `softmax`, and their like."""

    __slots__ = ()

    def _axes(self, axis: Axis) -> tuple[int, ...]:
        """The axes as nonnegative ints."""
        if axis.__class__ is int:
            first = self._axis(axis)
            return (first,) if self.uop.shape else ()
        if axis is None:
            return tuple(range(self.ndim))
        given: Sequence[Any] = (axis,)
        if axis.__class__ is tuple or isinstance(axis, Sequence):
            given = tuple(axis)
        axes = tuple([self._axis(x) for x in given])
        if len(set(axes)) != len(axes):
            raise ArgumentError(f"axis {given} names an axis of shape {self.shape} twice")
        return axes if self.ndim else ()

    def _reduce(self, node: UOp, op: Ops, axis: Axis, keepdim: bool) -> UOp:
        return _reduced(node, op, self._axes(axis), keepdim)

    def sum(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Sum. Small integers are promoted to int32 or uint32; half floats accumulate in float32.

        >>> Tensor([[1, 2], [3, 4]]).sum(axis=1).tolist()
        [3, 7]
        """
        node = self.uop
        own = node.dtype
        accumulated = sum_acc_dtype(own) if dtype is None else to_dtype(dtype)
        node = self._reduce(node.cast(accumulated), Ops.ADD, axis, keepdim)
        if dtype is None and dtypes.is_float(own):
            node = node.cast(own)
        return self._derive(node)

    def prod(
        self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None
    ) -> Self:
        """Product. Small integers are promoted as in `sum`, unless `dtype` is given.

        The gradient is right where elements are 0.

        >>> Tensor([[1, 2], [3, 4]]).prod(axis=0).tolist()
        [3, 8]
        """
        return self.cast(self._product_dtype() if dtype is None else dtype)._product(axis, keepdim)

    def _product_dtype(self) -> DType:
        own = self.dtype
        return own if dtypes.is_float(own) else sum_acc_dtype(own)

    @in_float32
    def _product(self, axis: Axis, keepdim: bool) -> Self:
        return self._derive(self._reduce(self.uop, Ops.MUL, axis, keepdim))

    def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Maximum; NaN if an element is NaN, the minimum of the dtype for an empty axis.

        Equal largest elements share the gradient.

        >>> Tensor([[1, 4], [3, 2]]).max(axis=0).tolist()
        [3, 4]
        """
        return self._derive(self._reduce(self.uop, Ops.MAX, axis, keepdim))

    def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Minimum; NaN if an element is NaN, the maximum of the dtype for an empty axis.

        Equal smallest elements share the gradient.

        >>> Tensor([[1, 4], [3, 2]]).min(axis=0).tolist()
        [1, 2]
        """
        node = self._reduce(reverse_order(self.uop), Ops.MAX, axis, keepdim)
        return self._derive(reverse_order(node))

    def any(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether any element is nonzero.

        >>> Tensor([[True, False], [False, False]]).any(axis=1).tolist()
        [True, False]
        """
        node = self._reduce(self.uop.cast(dtypes.bool), Ops.MAX, axis, keepdim)
        return self._new(node, False)

    def all(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether all elements are nonzero.

        >>> Tensor([[True, False], [True, True]]).all(axis=1).tolist()
        [False, True]
        """
        return self.logical_not().any(axis, keepdim).logical_not()

    # ---- statistics ----

    def _count(self, axis: Axis) -> sint:
        """The number of elements that are reduced to one."""
        shape = self.uop.shape
        return cast(sint, prod([shape[i] for i in self._axes(axis)]))

    def mean(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Mean, of integers as float32; NaN for an empty axis. No sum of integers overflows.

        >>> Tensor([[1.0, 2.0], [3.0, 5.0]]).mean(axis=1).tolist()
        [1.5, 4.0]
        """
        axes, node = self._axes(axis), self.uop
        if dtypes.is_float(node.dtype):
            return self._derive(self._mean_node(node, axes, keepdim))
        count = self._count(axes)
        total = self.sum(axes, keepdim, _exact_sum_dtype(node.dtype, count))
        # a quotient of 32-bit floats would be rounded twice
        return (total.cast(dtypes.float64) / count).cast(dtypes.float32)

    def _mean_node(self, node: UOp, axes: tuple[int, ...], keepdim: bool = True) -> UOp:
        """The mean of floats over axes."""
        shape = node.shape
        count = prod([shape[i] for i in axes])
        total = _reduced(node.cast(sum_acc_dtype(node.dtype)), Ops.ADD, axes, keepdim)
        if count.__class__ is int and count != 1:
            divisor = operand_node(float(count), total.dtype, "DIV")
            return quotient(total, divisor).cast(node.dtype)
        mean: UOp = (self._derive(total) / count).uop
        return mean.cast(node.dtype)

    @in_float32
    def var(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """Variance: the sum of squared deviations over the count minus `correction`.

        >>> Tensor([[1.0, 3.0], [2.0, 2.0]]).var(axis=1).tolist()
        [2.0, 0.0]
        """
        x, axes = self._as_float(), self._axes(axis)
        count = self._degrees_of_freedom("var", axis, correction)
        found = x._mean_square(axes, count).cast(x.dtype)

        def rule(gradient: UOp, node: UOp, source: UOp) -> tuple[UOp]:
            g, x = (self._new(y, False) for y in (gradient, source))
            return ((x._deviations(axes) * (2 * g / count)).uop,)

        with_gradient(found.uop, rule, x.uop)
        return found if keepdim else found._without_axes(axes)

    @in_float32
    def std(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """Standard deviation: the square root of `var`, with the gradient 0 where that is 0.

        >>> Tensor([[1.0, 1.0], [2.0, 2.0]]).std(axis=1).tolist()
        [0.0, 0.0]
        """
        x, axes = self._as_float(), self._axes(axis)
        count = self._degrees_of_freedom("std", axis, correction)
        found = x._mean_square(axes, count).sqrt().cast(x.dtype)

        def rule(gradient: UOp, node: UOp, source: UOp) -> tuple[UOp]:
            g, y, x = (self._new(z, False) for z in (gradient, node, source))
            share = x._deviations(axes) / y.eq(0).where(1, y)
            return ((share * (g / count)).uop,)

        with_gradient(found.uop, rule, x.uop)
        return found if keepdim else found._without_axes(axes)

    def _degrees_of_freedom(self, op: str, axis: Axis, correction: int) -> sint:
        correction = integer_argument(op, "correction", correction)
        return smax(0, self._count(axis) - correction)

    def _without_axes(self, axes: tuple[int, ...]) -> Self:
        return self.reshape(tuple(s for i, s in enumerate(self.shape) if i not in axes))

    def _mean_square(self, axes: tuple[int, ...], count: sint) -> Self:
        """The sum of squared deviations over `count`, in float64, where squares of float32 numbers
        neither overflow nor underflow, unless the device has none.
        """
        deviations = self._deviations(axes)
        if _has_dtype(self.uop.device, dtypes.float64):
            deviations = deviations.cast(dtypes.float64)
        return self._derive(deviations.square().uop.r(Ops.ADD, axes)) / count

    def _deviations(self, axes: tuple[int, ...]) -> Self:
        """The differences from the mean over `axes`.

        Those from the first element are taken before: their mean is as small as they are, so that
        it is rounded less.
        """
        x = self
        if all(smin(1, self.shape[i]) == 1 for i in axes):
            first = tuple((0, 1 if i in axes else s) for i, s in enumerate(self.shape))
            x = self - self._derive(self.uop.shrink(first)).detach()
        return x - x.mean(axes, keepdim=True)

    def _variance_about(self, mean: Self, axes: tuple[int, ...]) -> Self:
        """The biased variance over `axes`, given the mean over them, both without these axes.

        The gradient by the mean is 0. In that of the gradient, the mean depends on the elements.
        """
        shape = tuple(1 if i in axes else s for i, s in enumerate(self.shape))
        variance = (self - mean.reshape(shape)).square().mean(axes)
        scale, new = 2 / self._count(axes), self._new

        def rule(gradient: UOp, node: UOp, source: UOp, mean: UOp) -> tuple[UOp, None]:
            g, x, m = (new(y, False) for y in (gradient, source, mean))
            return ((x - m.reshape(shape)) * (g * scale).reshape(shape)).uop, None

        with_gradient(variance.uop, rule, self.uop, mean.uop)
        return variance

    def var_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """Variance and mean.

        >>> [x.item() for x in Tensor([1.0, 3.0]).var_mean()]
        [2.0, 2.0]
        """
        return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

    def std_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """Standard deviation and mean.

        >>> [x.item() for x in Tensor([2.0, 2.0]).std_mean()]
        [0.0, 2.0]
        """
        return self.std(axis, keepdim, correction), self.mean(axis, keepdim)

    # ---- indices of extrema ----

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Index of the first maximum, as int32, or int64 past 2**31 elements; None takes the flat
        tensor.

        NaN counts as the largest. Raises ValueError for an empty axis.

        >>> Tensor([[1, 4], [3, 2]]).argmax(axis=1).tolist()
        [1, 0]
        """
        if axis is None:
            return self.flatten().argmax(0)
        dim = self._axis(axis)
        size = self.shape[dim] if self.ndim else 1
        if isinstance(size, int) and size == 0:
            raise ArgumentError(
                f"argmax and argmin need a nonempty axis; axis {dim} of shape {self.shape} is empty"
            )
        is_max = self.eq(self.max(axis, keepdim=True))
        if self.is_floating_point():
            is_max = is_max | self.isnan()
        # the first maximum is the farthest from the end
        shape = tuple(size if i == dim else 1 for i in range(self.ndim))
        dtype = index_dtype(size)
        distance = self.arange(size, dtype=dtype).reshape(shape).sub(size, reverse=True)
        farthest = is_max.where(distance, 0).max(axis, keepdim)
        return farthest.sub(size, reverse=True).cast(dtype).detach()

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Index of the first minimum, as int32, or int64 past 2**31 elements; None takes the flat
        tensor.

        NaN counts as the smallest. Raises ValueError for an empty axis.

        >>> Tensor([[1, 4], [3, 2]]).argmin(axis=1).tolist()
        [0, 1]
        """
        return self._derive(reverse_order(self.uop)).argmax(axis, keepdim)

    # ---- softmax ----

    def _shifted_exp(self, axis: Axis) -> tuple[UOp, UOp, UOp]:
        """The elements minus the maximum, their exponentials, and the sums of these over `axis`,
        which keeps size 1. Narrow floats are no elements: see `in_float32`.
        """
        x, axes = self._float_node(), self._axes(axis)
        shifted = difference(x, x.r(Ops.MAX, axes).detach())
        exponentials = shifted.alu(Ops.EXP)
        return shifted, exponentials, exponentials.r(Ops.ADD, axes)

    def softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
        """Softmax: exponentials normalized to sum 1 along `axis`.

        >>> Tensor([0.0, 0.0]).softmax().tolist()
        [0.5, 0.5]
        """
        return (self if dtype is None else self.cast(dtype))._softmax(axis)

    @in_float32
    def _softmax(self, axis: int) -> Self:
        _, exponentials, total = self._shifted_exp(axis)
        return self._derive(binary(Ops.MUL, exponentials, total.alu(Ops.RECIPROCAL)))

    @in_float32
    def _softmax_of_visible(self, axis: int) -> Self:
        """`softmax`, but 0 with a gradient of 0 where all elements along `axis` are -inf."""
        x = self._as_float()
        largest = x.max(axis, keepdim=True).detach().maximum(lowest(x.dtype))
        exponentials = (x - largest).exp()
        # the sum is at least 1, the exponential of the maximum, or 0
        total = exponentials.sum(axis, keepdim=True).maximum(0.5)
        return exponentials * total.reciprocal()

    def log_softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
        """Logarithm of the softmax, without underflow.

        >>> Tensor([0.0, -1000.0]).log_softmax().tolist()
        [0.0, -1000.0]
        """
        return (self if dtype is None else self.cast(dtype))._log_softmax(axis)

    @in_float32
    def _log_softmax(self, axis: int) -> Self:
        shifted, _, total = self._shifted_exp(axis)
        return self._derive(difference(shifted, total.alu(Ops.LOG)))

    @in_float32
    def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Logarithm of the sum of exponentials, without overflow.

        >>> Tensor([1000.0, -1000.0]).logsumexp().item()
        1000.0
        """
        x = self._as_float()
        largest = x.max(axis, keepdim=True).detach()
        # inf - inf is NaN
        largest = largest.isinf().where(0, largest)
        total = (x - largest).exp().sum(axis, keepdim).log()
        return total + largest.reshape(total.shape)
