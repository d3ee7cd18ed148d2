"""Images from the columns of their windows."""

from __future__ import annotations

from tinygrad.helpers import prod
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.layers.windows import Ints, find_windows
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array
from tinygrad.tensor import Tensor


@operator("Col2Im")
def col2im(
    input: Tensor,
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    """Windows (batch, channels * prod(block_shape), windows) added at their positions in images
    (batch, channels, *image_shape).
    """
    sizes, kernel = tuple(image_shape.tolist()), tuple(block_shape.tolist())
    windows = find_windows(sizes, kernel, strides, dilations, pads, "NOTSET")
    counts, count = windows.counts, len(sizes)
    batch, rows, columns = (int(n) for n in input.shape)
    if rows % prod(kernel) or columns != prod(counts) or min(counts) < 1:
        raise OnnxError(
            f"the input {input.shape} is not (batch, channels * {prod(kernel)}, {prod(counts)}), "
            f"which blocks of {kernel} in images of {sizes} make"
        )
    apart = input.reshape((batch, rows // prod(kernel), *kernel, *counts))
    order = (0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))
    padded = tuple(a + n + b for a, n, b in zip(windows.starts, sizes, windows.ends))
    axes = tuple(range(2, 2 + count))
    images = apart.permute(order)._overlap_add(axes, padded, windows.strides, windows.dilations)
    kept = tuple((a, a + n) for a, n in zip(windows.starts, sizes))
    return images.shrink((None, None, *kept))
