"""Pooling: the mean, maximum or norm of windows over the spatial axes."""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.nn.onnx.errors import OnnxUnsupportedError
from tinygrad.nn.onnx.operators.layers.windows import Ints, find_windows
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array
from tinygrad.tensor import Tensor


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = (),
    pads: Ints = (),
    storage_order: int = 0,
    strides: Ints = (),
    output_count: int,
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima and, as a second output, their flat indices in the input."""
    sizes = tuple(x.shape[2:])
    windows = find_windows(sizes, kernel_shape, strides, dilations, pads, auto_pad)
    layout = (windows.kernel, windows.strides, windows.dilations, windows.padding, bool(ceil_mode))
    if output_count < 2:
        return x.max_pool2d(*layout)
    values, places = x.max_pool2d(*layout, return_indices=True)
    if storage_order:
        places = column_major(places, sizes)
    planes = Tensor.arange(x.shape[0] * x.shape[1], dtype=dtypes.int64)
    first = (planes * prod(sizes)).reshape((x.shape[0], x.shape[1], *(1,) * len(sizes)))
    return values, places.cast(dtypes.int64) + first


def column_major(places: Tensor, sizes: Ints) -> Tensor:
    """Column-major flat indices of an array of `sizes`."""
    result, step, rest = None, prod(sizes), places
    for size in reversed(sizes):
        step //= size
        along = rest % size * step
        result = along if result is None else result + along
        rest = rest // size
    return places if result is None else result


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    windows = find_windows(tuple(x.shape[2:]), kernel_shape, strides, dilations, pads, auto_pad)
    return x.avg_pool2d(
        windows.kernel,
        windows.strides,
        windows.dilations,
        windows.padding,
        bool(ceil_mode),
        bool(count_include_pad),
    )


@operator("LpPool")
def norm_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = (),
    p: int = 2,
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    """The p-norm of each window."""
    windows = find_windows(tuple(x.shape[2:]), kernel_shape, strides, dilations, pads, auto_pad)
    if ceil_mode:
        windows = windows.with_whole_windows()
    powers = x.abs().pow(p)
    mean = powers.avg_pool2d(windows.kernel, windows.strides, windows.dilations, windows.padding)
    return (mean * prod(windows.kernel)).pow(1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.max(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalLpPool")
def global_norm_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return x.abs().pow(p).sum(tuple(range(2, x.ndim)), keepdim=True).pow(1 / p)


@operator("MaxUnpool")
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Array | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    """Scatter elements to `indices`, flat indices of the result."""
    windows = find_windows(tuple(x.shape[2:]), kernel_shape, strides, (), pads, "NOTSET")
    natural = tuple(
        (size - 1) * s - start - end + k
        for size, s, k, start, end in zip(
            windows.sizes, windows.strides, windows.kernel, windows.starts, windows.ends
        )
    )
    whole = (x.shape[0], x.shape[1], *natural)
    flat = Tensor.zeros(prod(whole), dtype=x.dtype).scatter(0, indices.flatten(), x.flatten())
    unpooled = flat.reshape(whole)
    if output_shape is None:
        return unpooled
    wanted = tuple(int(size) for size in output_shape)
    if any(a > b for a, b in zip(whole, wanted)):
        raise OnnxUnsupportedError(
            f"output_shape {wanted} is smaller than {whole}, the size that was pooled"
        )
    return unpooled.pad_to(wanted)
