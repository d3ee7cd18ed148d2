"""Average and max pooling over the last axes, and max unpooling.

Input: a tensor whose last axes are spatial, (..., height, width). Output: one element per window.
The number of pooled axes is the length of `kernel_size`; one number stands for two axes. Windows
that do not overlap are a reshape; others are a WINDOW directly above the padded source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self, overload

from tinygrad.dtype import dtypes, least_upper_float, sum_acc_dtype
from tinygrad.errors import ArgumentError
from tinygrad.helpers import prod
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.movement.windows import WindowMixin
from tinygrad.mixin.nn.window_geometry import (
    PoolWindows,
    Sizes,
    kernel_tuple,
    spatial_pairs,
    spatial_tuple,
)
from tinygrad.mixin.reduction.reduce import ReduceMixin
from tinygrad.uop.broadcast import SymbolicShape, broadcast_node, const_node
from tinygrad.uop.ops import WindowArg, resolve, sint
from tinygrad.uop.sint import index_dtype


class PoolMixin(ReduceMixin, WindowMixin):
    """`avg_pool2d`, `max_pool2d`, `max_unpool2d`."""

    __slots__ = ()

    def _pool_windows(
        self,
        name: str,
        kernel_size: Sizes,
        stride: Sizes | None,
        dilation: Sizes,
        padding: Sizes,
        ceil_mode: bool,
    ) -> PoolWindows:
        """Check the arguments of a pooling. Raises ValueError if they do not fit the shape."""
        kernel = kernel_tuple(kernel_size)
        count = len(kernel)
        kernel = spatial_tuple(kernel, count, "kernel_size")
        if self.ndim < count:
            raise ArgumentError(f"{name} pools {count} axes, but the tensor has shape {self.shape}")
        windows = PoolWindows(
            self.shape[self.ndim - count :],
            kernel,
            kernel if stride is None else spatial_tuple(stride, count, "stride"),
            spatial_tuple(dilation, count, "dilation"),
            spatial_pairs(padding, count),
            ceil_mode,
        )
        fits = zip(windows.spans, windows.padded_sizes, strict=True)
        if not all(resolve(span <= size, True) for span, size in fits):
            raise ArgumentError(
                f"{name}: windows of {windows.spans} do not fit into {windows.padded_sizes}, the "
                f"last axes of shape {self.shape} with padding {padding}"
            )
        return windows

    def _pool(self, windows: PoolWindows) -> Self:
        """(..., *sizes) to (..., *counts, *kernel); padding is 0."""
        leading = self.ndim - len(windows.sizes)
        padded = self._padded(((0, 0),) * leading + windows.all_padding)
        axes = tuple(range(leading, self.ndim))
        found = padded._windows(axes, windows.kernel, windows.stride, windows.dilation)
        return found.shrink_to((*found.shape[:leading], *windows.counts, *windows.kernel))

    def _overlap_add(
        self,
        axes: tuple[int, ...],
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
    ) -> Self:
        """The adjoint of `_windows`: windows, the last axes, are added at their positions of
        `axes`, which get `sizes`.
        """
        count = self.ndim - len(axes)
        windows = tuple(
            (axis, count + i, n, s, d)
            for i, (axis, n, s, d) in enumerate(zip(axes, sizes, strides, dilations, strict=True))
        )
        spread = self._derive(self.uop.unwindow(WindowArg(windows)))
        return spread.sum(tuple(range(count, self.ndim))).cast(self.dtype)

    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """Average pooling: (..., height, width) to (..., new height, new width).

        Along each axis, windows have `kernel_size` elements, `dilation` apart, and start every
        `stride`, by default `kernel_size`. `padding` is one number, one per axis, or (left, right,
        top, bottom). With `ceil_mode`, windows may extend past the padding. Padding counts as zeros
        unless `count_include_pad` is False. Raises ValueError if windows do not fit.

        >>> Tensor.arange(16).reshape(1, 1, 4, 4).avg_pool2d().tolist()
        [[[[2.5, 4.5], [10.5, 12.5]]]]
        """
        windows = self._pool_windows(
            "avg_pool2d", kernel_size, stride, dilation, padding, ceil_mode
        )
        dtype = least_upper_float(self.dtype)
        axes = _last_axes(len(windows.kernel))
        total = self._pool(windows).sum(axes, dtype=sum_acc_dtype(dtype))
        return total.div(self._window_elements(windows, count_include_pad)).cast(dtype)

    def _window_elements(self, windows: PoolWindows, with_padding: bool) -> int | Self:
        """The number of elements in each window: an int, or a tensor (*counts) where it differs."""
        total: int | Self = 1
        count = len(windows.kernel)
        for axis in range(count):
            same = windows.equal_elements(axis, with_padding)
            if same is not None:
                total = total * same
                continue
            low, high = windows.bounds(axis, with_padding)
            first = self._elements_before(windows, axis, low)
            last = self._elements_before(windows, axis, high)
            shape = tuple(-1 if i == axis else 1 for i in range(count))
            total = total * (last - first).reshape(shape)
        return total

    def _elements_before(self, windows: PoolWindows, axis: int, end: sint) -> Self:
        """The number of elements of each window along `axis` before position `end`."""
        step = windows.dilation[axis]
        count, stride = windows.counts[axis], windows.stride[axis]
        starts = self.arange(count, dtype=index_dtype(count * stride, end + step)) * stride
        return (-starts + (end + (step - 1))).maximum(0).idiv(step).minimum(windows.kernel[axis])

    @overload
    def max_pool2d(
        self,
        kernel_size: Sizes = ...,
        stride: Sizes | None = ...,
        dilation: Sizes = ...,
        padding: Sizes = ...,
        ceil_mode: bool = ...,
        return_indices: Literal[False] = ...,
    ) -> Self: ...
    @overload
    def max_pool2d(
        self,
        kernel_size: Sizes = ...,
        stride: Sizes | None = ...,
        dilation: Sizes = ...,
        padding: Sizes = ...,
        ceil_mode: bool = ...,
        *,
        return_indices: Literal[True],
    ) -> tuple[Self, Self]: ...
    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Self | tuple[Self, Self]:
        """Max pooling: (..., height, width) to (..., new height, new width).

        Arguments are those of `avg_pool2d`; padding is less than any element. With
        `return_indices`, also the index of the maximum in (height * width), the first of equals;
        NaN is the largest. Equal largest elements share the gradient.

        >>> Tensor.arange(16).reshape(1, 1, 4, 4).max_pool2d().tolist()
        [[[[5, 7], [13, 15]]]]
        """
        windows = self._pool_windows(
            "max_pool2d", kernel_size, stride, dilation, padding, ceil_mode
        )
        count = len(windows.kernel)
        values = self._pool(windows)
        if any(p > 0 for pair in windows.all_padding for p in pair):
            # masked in the windows, so that the PAD stays directly above the source
            inside = self._constant_true(windows.sizes)._pool(windows)
            values = inside.where(values, dtypes.min(self.dtype))
        axes = _last_axes(count)
        largest = values.max(axes)
        if not return_indices:
            return largest
        total = prod(windows.sizes)
        # descending numbers, so that the first position has the largest; padding has 0
        positions = (
            self.arange(total, 0, -1, dtype=index_dtype(total))
            .reshape(windows.sizes)
            ._pool(windows)
        )
        is_largest = values.eq(largest.reshape((*largest.shape, *(1,) * count)))
        if self.is_floating_point():
            is_largest = is_largest | values.isnan()
        found = is_largest.where(positions, 0).max(axes)
        return largest, -found + total

    def _constant_true(self, shape: SymbolicShape) -> Self:
        return self._new(broadcast_node(const_node(True, dtypes.bool), shape), False)

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Max unpooling: scatter each element to its index, zeros elsewhere.

        `indices`, of the shape of this tensor, are positions in the flattened spatial axes of the
        result, as `max_pool2d(return_indices=True)` returns them. `output_size` are the spatial
        sizes, other sizes may precede them; by default the minimum sizes that pool to this shape.
        Elements with equal indices must be equal; those with an index out of range are dropped.
        Raises ValueError if the shapes differ or `indices` are not integers.

        >>> x, indices = Tensor([[[[1, 2], [3, 4]]]]).max_pool2d(return_indices=True)
        >>> x.max_unpool2d(indices).tolist()
        [[[[0, 0], [0, 4]]]]
        """
        check_tensors("max_unpool2d", indices=indices)
        if self.shape != indices.shape:
            raise ArgumentError(
                f"max_unpool2d: indices {indices.shape} are not of shape {self.shape}"
            )
        if not dtypes.is_int(indices.dtype):
            raise ArgumentError(f"max_unpool2d: indices are integers, not {indices.dtype}")
        kernel = kernel_tuple(kernel_size)
        count = len(kernel)
        if self.ndim < count:
            raise ArgumentError(
                f"max_unpool2d: kernel_size={kernel} needs {count} spatial axes, not {self.shape}"
            )
        stride = kernel if stride is None else spatial_tuple(stride, count, "stride")
        dilation = spatial_tuple(dilation, count, "dilation")
        leading = self.shape[: self.ndim - count]
        spatial = [int(size) for size in self.shape[self.ndim - count :]]
        if output_size is None:
            pairs = spatial_pairs(padding, count)
            sizes = [
                (i - 1) * s - sum(pair) + d * (k - 1) + 1
                for i, s, pair, d, k in zip(spatial, stride, pairs, dilation, kernel, strict=True)
            ]
        else:
            sizes = [int(size) for size in tuple(output_size)[-count:]]
        result = self._scatter_rows_add(indices, leading, prod(spatial), prod(sizes))
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        if any(span > s for span, s in zip(spans, stride, strict=True)):
            # windows overlap: elements with equal indices were added
            ones = self.ones_like()
            counts = ones._scatter_rows_add(indices, leading, prod(spatial), prod(sizes))
            result = result.div(counts.maximum(1)).cast(self.dtype)
        return result.reshape((*leading, *sizes))

    def _scatter_rows_add(
        self, indices: Self, leading: SymbolicShape, count: int, size: int
    ) -> Self:
        """Scatter-add rows of `count` elements by `indices` into rows of `size` zeros."""
        values, positions = (x.reshape((*leading, count)) for x in (self, indices))
        return self._derive(values.uop.scatter_add(positions.uop, size, len(leading)))


def _last_axes(count: int) -> tuple[int, ...]:
    return tuple(range(-count, 0))
