"""Convolutions over one or more spatial axes, and their transposes.

The classes named 2d take any number of spatial axes: it is the length of `kernel_size`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinygrad.errors import ArgumentError
from tinygrad.helpers import flatten, make_tuple, prod
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.creation import known_sizes
from tinygrad.mixin.nn.window_geometry import kernel_tuple
from tinygrad.tensor import Tensor


class Conv2d:
    """(batch, in_channels, height, width) to (batch, out_channels, new height, new width).

    `weight` is (out_channels, in_channels // groups, *kernel_size), `bias` (out_channels,) or None.
    Both start uniform in +-1/sqrt(in_channels * elements of the kernel). `padding` is one number,
    one for each spatial axis, (left, right, top, bottom), or "same". Raises ValueError if `groups`
    does not divide the channels, and for "same" with a stride other than 1.

    >>> layer = nn.Conv2d(3, 8, 3, stride=2, padding=1)
    >>> layer(Tensor.rand(1, 3, 8, 8)).shape
    (1, 8, 4, 4)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        in_channels, out_channels, groups = known_sizes((in_channels, out_channels, groups))
        if groups == 0 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"groups={groups} must divide in_channels={in_channels} and "
                f"out_channels={out_channels}"
            )
        self.kernel_size = kernel_tuple(kernel_size)
        if any(size < 1 for size in self.kernel_size):
            raise ArgumentError(f"kernel_size={kernel_size} must be at least 1 along each axis")
        self.stride, self.dilation, self.groups = stride, dilation, groups
        self.padding = _padding(padding, self.kernel_size, stride, dilation)
        bound = 1 / math.sqrt(max(1, in_channels) * prod(self.kernel_size))
        shape = self._weight_shape(in_channels, out_channels)
        self.weight = Tensor.uniform(*shape, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return out_channels, in_channels // self.groups, *self.kernel_size

    def __call__(self, x: Tensor) -> Tensor:
        check_tensors("Conv2d", x=x)
        return x.conv2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding
        )


class ConvTranspose2d(Conv2d):
    """A transposed convolution, which upsamples: (batch, in_channels, height, width) to
    (batch, out_channels, (height - 1) * stride - 2 * padding + dilation * (kernel - 1)
    + output_padding + 1, and the same of width).

    `weight` is (in_channels, out_channels // groups, *kernel_size). Raises as `Conv2d` does.

    >>> layer = nn.ConvTranspose2d(8, 3, 3, stride=2, padding=1, output_padding=1)
    >>> layer(Tensor.rand(1, 8, 4, 4)).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        output_padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        )
        self.output_padding = output_padding

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return in_channels, out_channels // self.groups, *self.kernel_size

    def __call__(self, x: Tensor) -> Tensor:
        check_tensors("ConvTranspose2d", x=x)
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )


def Conv1d(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> Conv2d:
    """A `Conv2d` of one spatial axis: (batch, channels, length).

    >>> nn.Conv1d(2, 4, 3, padding="same")(Tensor.rand(1, 2, 7)).shape
    (1, 4, 7)
    """
    return Conv2d(
        in_channels, out_channels, (kernel_size,), stride, padding, dilation, groups, bias
    )


def ConvTranspose1d(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> ConvTranspose2d:
    """A `ConvTranspose2d` of one spatial axis: (batch, channels, length).

    >>> nn.ConvTranspose1d(2, 4, 2, stride=2)(Tensor.rand(1, 2, 7)).shape
    (1, 4, 14)
    """
    return ConvTranspose2d(
        in_channels,
        out_channels,
        (kernel_size,),
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        bias,
    )


def _padding(
    padding: int | tuple[int, ...] | str,
    kernel_size: tuple[int, ...],
    stride: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
) -> int | tuple[int, ...]:
    """The padding as numbers; for "same", (before, after) of each spatial axis, last axis first."""
    if not isinstance(padding, str):
        return padding
    if padding.lower() != "same":
        raise ArgumentError(f'padding={padding!r} is not known; pass "same", a number or a tuple')
    if any(step != 1 for step in make_tuple(stride, len(kernel_size))):
        raise ArgumentError(f'padding="same" needs stride 1, not {stride}: the size would change')
    dilations = make_tuple(dilation, len(kernel_size))
    reaches = [step * (size - 1) for step, size in zip(dilations, kernel_size, strict=True)]
    return tuple(flatten(_halves(reaches[::-1])))


def _halves(totals: Sequence[int]) -> list[tuple[int, int]]:
    return [(total // 2, total - total // 2) for total in totals]
