"""Convolutions and transposed convolutions over the last axes.

Input: an image (batch, channels, *spatial) and weights with as many spatial axes. Output: the sum
of products over channels and kernel, accumulated in float32 or wider. A convolution is a WINDOW
over the padded input, a product and a sum. Its gradient by the input is an UNWINDOW and a sum.
"""

from __future__ import annotations

from typing import Self

from tinygrad.dtype import DType, DTypeLike, dtypes, least_upper_dtype, sum_acc_dtype, to_dtype
from tinygrad.errors import ArgumentError
from tinygrad.helpers import all_int, ceildiv, flatten
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.nn.window_geometry import Sizes, spatial_pairs, spatial_tuple
from tinygrad.mixin.nn.winograd import TAPS, WinogradMixin
from tinygrad.settings import WINO
from tinygrad.uop.ops import WindowArg, resolve
from tinygrad.uop.reshard import shard_count
from tinygrad.uop.sint import same_size


class ConvMixin(WinogradMixin):
    """`conv2d` and `conv_transpose2d`."""

    __slots__ = ()

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Convolution over any number of spatial axes (as cross-correlation).

        (batch, in_channels, *spatial) to (batch, out_channels, *new spatial). `weight` has shape
        (out_channels, in_channels // groups, *kernel), `bias` (out_channels,). `padding` is one
        number, one per axis, or (left, right, top, bottom, ...), the last axis first. `dtype` is
        that of the accumulator and of the result. With the setting WINO, 3x3 kernels with stride
        and dilation 1 use Winograd's algorithm, which is faster and less exact. Raises ValueError
        for shapes that do not fit together.

        >>> x = Tensor.arange(9).reshape(1, 1, 3, 3)
        >>> x.conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[8.0, 12.0], [20.0, 24.0]]]]
        """
        count = self._check_conv("conv2d", weight, groups)
        if not same_size(self.shape[1], groups * weight.shape[1]):
            raise ArgumentError(
                f"conv2d: input {self.shape} has {self.shape[1]} channels, and weight "
                f"{weight.shape} with groups={groups} takes {groups * weight.shape[1]}"
            )
        kernel = tuple(int(size) for size in weight.shape[2:])
        strides = spatial_tuple(stride, count, "stride")
        dilations = spatial_tuple(dilation, count, "dilation")
        padded = self._padded(((0, 0), (0, 0), *spatial_pairs(padding, count)))
        spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
        fits = (resolve(k <= n, True) for k, n in zip(spans, padded.shape[2:], strict=True))
        if not all(fits):
            raise ArgumentError(
                f"conv2d: the kernel of weight {weight.shape} spans {spans}, more than "
                f"input {self.shape} with padding {padding}"
            )
        common = least_upper_dtype(self.dtype, weight.dtype)
        wide = sum_acc_dtype(common) if dtype is None else to_dtype(dtype)
        # cast after padding, so that the gradient is summed before it is rounded
        batch, channels, *sizes = padded.shape
        padded, weight = padded._beside(weight)
        x = padded.cast(wide).reshape((batch, groups, channels // groups, *sizes))
        w = weight.cast(wide).unflatten(0, (groups, weight.shape[0] // groups))
        unit = all(s == 1 for s in (*strides, *dilations)) and all_int(sizes)
        if WINO and kernel == (TAPS, TAPS) and unit and dtypes.is_float(wide):
            result = x._winograd_conv2d(w)
        else:
            result = x._direct_conv(w, strides, dilations)
        result = result.reshape((batch, weight.shape[0], *result.shape[3:]))
        return result._with_bias(bias, common if dtype is None else wide)

    def _direct_conv(
        self, weight: Self, stride: tuple[int, ...], dilation: tuple[int, ...]
    ) -> Self:
        """(batch, groups, channels, *spatial) and (groups, out, channels, *kernel) to
        (batch, groups, out, *new spatial).
        """
        count = self.ndim - 3
        kernel = tuple(int(size) for size in weight.shape[3:])
        axes = tuple(range(3, 3 + count))
        windows = self._windows(axes, kernel, stride, dilation)
        # reduction axes last, the kernel innermost
        order = (0, 1, *axes, 2, *range(3 + count, 3 + 2 * count))
        return windows.permute(order).unsqueeze(2)._contract_channels(weight, count)

    def _contract_channels(self, weight: Self, count: int) -> Self:
        """(batch, groups, 1, *spatial, channels, *kernel) and (groups, out, channels, *kernel) to
        (batch, groups, out, *spatial). The weight may have axes for the last ones of `spatial`.
        """
        groups, out, *rest = weight.shape
        ones = (1,) * (self.ndim - 3 - len(rest))
        w = weight.reshape((1, groups, out, *ones, *rest))
        axes = tuple(range(-count - 1, 0))
        return self._product_to_sum(w, axes).sum(axes, dtype=self.dtype)

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
    ) -> Self:
        """Transposed convolution, the adjoint of `conv2d`.

        (batch, in_channels, *spatial) to (batch, out_channels, *new spatial). `weight` has shape
        (in_channels, out_channels // groups, *kernel), `bias` (out_channels,). A new size is
        `(size - 1) * stride - total padding + dilation * (kernel - 1) + output_padding + 1`.
        Raises ValueError for shapes that do not fit together.

        >>> x = Tensor([[[[1, 2]]]])
        >>> x.conv_transpose2d(Tensor([[[[1, 10]]]]), stride=2).tolist()
        [[[[1, 10, 2, 20]]]]
        """
        count = self._check_conv("conv_transpose2d", weight, groups)
        if not same_size(self.shape[1], weight.shape[0]):
            raise ArgumentError(
                f"conv_transpose2d: input {self.shape} has {self.shape[1]} channels, and weight "
                f"{weight.shape} takes {weight.shape[0]}"
            )
        strides = spatial_tuple(stride, count, "stride")
        dilations = spatial_tuple(dilation, count, "dilation")
        pairs = spatial_pairs(padding, count)
        extra = spatial_tuple(output_padding, count, "output_padding", minimum=0)
        kernel = tuple(int(size) for size in weight.shape[2:])
        sizes = tuple(
            (int(i) - 1) * s - before - after + d * (k - 1) + e + 1
            for i, s, (before, after), d, k, e in zip(
                self.shape[2:], strides, pairs, dilations, kernel, extra, strict=True
            )
        )
        if any(size < 1 for size in sizes):
            raise ArgumentError(
                f"conv_transpose2d of input {self.shape} and weight {weight.shape} with padding "
                f"{padding} leaves no elements: its spatial sizes would be {sizes}"
            )
        common = least_upper_dtype(self.dtype, weight.dtype)
        wide = sum_acc_dtype(common)
        each = weight.shape[0] // groups
        x, weight = self._beside(weight)
        x = x.cast(wide).unflatten(1, (groups, each))
        w = weight.cast(wide).unflatten(0, (groups, each)).transpose(1, 2)
        starts = tuple(before for before, _ in pairs)
        axes = range(3, 3 + count)
        if any(s > 1 and shard_count(x.uop, axis) > 1 for s, axis in zip(strides, axes)):
            result = x._conv_adjoint(w, strides, dilations, starts, sizes)
        else:
            result = x._transposed_conv(w, strides, dilations, starts, sizes)
        result = result.reshape((self.shape[0], groups * weight.shape[1], *sizes))
        return result._with_bias(bias, common)

    def _transposed_conv(
        self,
        weight: Self,
        stride: tuple[int, ...],
        dilation: tuple[int, ...],
        starts: tuple[int, ...],
        sizes: tuple[int, ...],
    ) -> Self:
        """(batch, groups, channels, *spatial) and (groups, out, channels, *kernel) to
        (batch, groups, out, *sizes), the result's elements from `starts` on.

        Result `q * stride + r` depends on kernel elements `r + j * stride` alone, and on input
        `q - j`. The result's positions are split into (q, phase r), the kernel into (j, r), so
        that no product with zero is computed. An axis with a dilation has one phase.
        """
        count = len(sizes)
        phases = tuple(s if d == 1 else 1 for s, d in zip(stride, dilation, strict=True))
        steps = tuple(ceildiv(int(k), p) for k, p in zip(weight.shape[3:], phases, strict=True))
        # includes positions that are cropped below: the gradient reads the inputs that reach them
        quotients = tuple(
            max(ceildiv(a + n, p), (int(i) - 1) * s // p + d * (j - 1) + 1)
            for a, n, p, i, s, d, j in zip(
                starts, sizes, phases, self.shape[3:], stride, dilation, steps, strict=True
            )
        )
        wide = (*self.shape, *steps)
        repeated = self.reshape((*self.shape, *(1,) * count)).expand(wide)
        windows = tuple(
            (3 + i, 3 + count + i, quotients[i], stride[i] // phases[i], dilation[i])
            for i in range(count)
        )
        spread = self._derive(repeated.uop.unwindow(WindowArg(windows)))
        # (batch, groups, 1, *q, *1, channels, *j) by (1, groups, out, *1, *r, channels, *j)
        order = (0, 1, *range(3, 3 + count), 2, *range(3 + count, 3 + 2 * count))
        ones = (1,) * count
        x = spread.permute(order)
        x = x.reshape((*x.shape[:2], 1, *quotients, *ones, x.shape[2 + count], *steps))
        w = weight._kernel_by_phase(steps, phases)
        result = x._contract_channels(w, count)
        # (batch, groups, out, q, r, q, r, ...)
        joined = result.permute((0, 1, 2, *flatten([(3 + i, 3 + count + i) for i in range(count)])))
        whole = tuple(q * p for q, p in zip(quotients, phases, strict=True))
        positions = joined.reshape((*result.shape[:3], *whole))
        ends = tuple((a, a + n) for a, n in zip(starts, sizes, strict=True))
        return positions.shrink((None, None, None, *ends))

    def _conv_adjoint(
        self,
        weight: Self,
        stride: tuple[int, ...],
        dilation: tuple[int, ...],
        starts: tuple[int, ...],
        sizes: tuple[int, ...],
    ) -> Self:
        """The same as `_transposed_conv`, as the gradient of a convolution: the products are put at
        their positions and added. So a sharded axis needs the halo of the input alone, where the
        phases of blocks would have to be moved.
        """
        count = len(sizes)
        # (batch, groups, out, channels, *spatial, *kernel)
        x = self.reshape((*self.shape[:2], 1, *self.shape[2:], *(1,) * count))
        kernel = weight.shape[3:]
        w = weight.reshape((1, *weight.shape[:3], *(1,) * count, *kernel))
        axes = (3, *range(4 + count, 4 + 2 * count))
        products = x._product_to_sum(w, axes)
        windows = tuple(
            (4 + i, 4 + count + i, max(a + n, (int(size) - 1) * s + d * (int(k) - 1) + 1), s, d)
            for i, (a, n, size, s, d, k) in enumerate(
                zip(starts, sizes, self.shape[3:], stride, dilation, kernel, strict=True)
            )
        )
        spread = products._derive(products.uop.unwindow(WindowArg(windows)))
        ends = tuple((a, a + n) for a, n in zip(starts, sizes, strict=True))
        return spread.sum(axes, dtype=self.dtype).shrink((None, None, None, *ends))

    def _kernel_by_phase(self, steps: tuple[int, ...], phases: tuple[int, ...]) -> Self:
        """(groups, out, channels, *kernel) to (groups, out, *r, channels, *j)."""
        count = len(steps)
        padding = tuple(
            (0, j * p - int(k)) for j, p, k in zip(steps, phases, self.shape[3:], strict=True)
        )
        apart = tuple(flatten(zip(steps, phases, strict=True)))
        split = self._padded(((0, 0),) * 3 + padding).reshape((*self.shape[:3], *apart))
        inner = tuple(3 + 2 * i for i in range(count))
        return split.permute((0, 1, *(i + 1 for i in inner), 2, *inner))

    def _with_bias(self, bias: Self | None, dtype: DType) -> Self:
        """Cast to `dtype`, with `bias` (channels,) added along axis 1."""
        if bias is None:
            return self.cast(dtype)
        if bias.numel() not in (self.shape[1], 1):
            raise ArgumentError(
                f"convolution: bias {bias.shape} does not fit {self.shape[1]} output channels"
            )
        # a float sum is rounded once
        x = self if dtypes.is_float(self.dtype) else self.cast(dtype)
        total = x.add(bias.reshape((1, -1, *(1,) * (self.ndim - 2))))
        return total.cast(least_upper_dtype(dtype, bias.dtype))

    def _check_conv(self, name: str, weight: Self, groups: int) -> int:
        """The number of spatial axes. Raises ValueError for shapes or groups that do not fit."""
        check_tensors(name, weight=weight)
        if self.ndim < 3 or weight.ndim != self.ndim:
            raise ArgumentError(
                f"{name}: input {self.shape} and weight {weight.shape} must both be "
                "(batch or channels, channels, one size per spatial axis)"
            )
        if groups < 1 or int(weight.shape[0]) % groups:
            raise ArgumentError(
                f"{name}: groups={groups} must divide axis 0 of weight {weight.shape}"
            )
        if any(size < 1 for size in weight.shape[2:]):
            raise ArgumentError(f"{name}: weight {weight.shape} has an empty kernel")
        return self.ndim - 2
