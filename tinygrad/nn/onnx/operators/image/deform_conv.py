"""Convolution whose kernel elements are read at offsets from their places.

https://arxiv.org/abs/1703.06211, with weights of the elements, https://arxiv.org/abs/1811.11168
"""

from __future__ import annotations

from tinygrad.helpers import prod
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.image.sampling import axis_taps, interpolated
from tinygrad.nn.onnx.operators.layers.windows import Ints, Windows, find_windows
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor


@operator("DeformConv")
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    offset_group: int = 1,
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    """(batch, channels, *spatial) by (out channels, channels // group, *kernel). Element k of the
    kernel at output place p is interpolated at offset (batch, offset_group * kernel * axes, *p)
    from its place, zero outside, and weighted by mask (batch, offset_group * kernel, *p).
    """
    kernel = tuple(int(n) for n in w.shape[2:])
    if kernel_shape and kernel_shape != kernel:
        raise OnnxError(f"kernel_shape is {kernel_shape}, and the weight is of {kernel}")
    batch, channels, *sizes = (int(n) for n in x.shape)
    windows = find_windows(tuple(sizes), kernel, strides, dilations, pads, "NOTSET")
    taps_per_place, places = prod(kernel), prod(windows.counts)
    lead = (batch * offset_group, taps_per_place)
    offsets = offset.float().reshape((*lead, len(sizes), *windows.counts))
    taps = []
    for axis, n in enumerate(sizes):
        place = (kernel_coordinates(windows, axis) + offsets[:, :, axis]).flatten(1)
        taps.append(axis_taps(place, n, "linear", "zeros", False))
    images = x.reshape((batch * offset_group, channels // offset_group, *sizes))
    values = interpolated(images, taps)
    if mask is not None:
        values = values * mask.reshape((batch * offset_group, -1, 1))
    columns = values.reshape((batch, offset_group, taps_per_place, places, -1))
    columns = columns.permute(0, 1, 4, 2, 3).reshape((batch, group, -1, places))
    result = w.float().reshape((group, w.shape[0] // group, -1)) @ columns
    result = result.reshape((batch, w.shape[0], *windows.counts)).cast(x.dtype)
    return result if b is None else result + b.reshape((-1, *(1,) * len(sizes)))


def kernel_coordinates(windows: Windows, axis: int) -> Tensor:
    """The coordinate along `axis` of each kernel element at each place: (prod(kernel), *counts),
    broadcast along other axes of the output.
    """
    count = len(windows.sizes)
    inner = Tensor.arange(windows.kernel[axis]) * windows.dilations[axis]
    inner = inner.reshape([-1 if i == axis else 1 for i in range(count)])
    outer = Tensor.arange(windows.counts[axis]) * windows.strides[axis] - windows.starts[axis]
    outer = outer.reshape([-1 if i == axis else 1 for i in range(count)])
    return inner.expand(windows.kernel).reshape((-1, *(1,) * count)) + outer
