"""Convolutions."""

from __future__ import annotations

from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.layers.windows import Ints, find_windows, per_axis
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor


@operator("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    """(batch, channels, *spatial) by (out channels, channels // group, *kernel)."""
    kernel = tuple(w.shape[2:])
    if kernel_shape and kernel_shape != kernel:
        raise OnnxError(f"kernel_shape is {kernel_shape}, and the weight is of {kernel}")
    windows = find_windows(tuple(x.shape[2:]), kernel, strides, dilations, pads, auto_pad)
    return x.conv2d(w, b, group, windows.strides, windows.dilations, windows.padding)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    output_padding: Ints = (),
    output_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    """Transposed convolution; `output_shape`, or "same" padding, determines the cropping."""
    kernel = tuple(w.shape[2:])
    sizes = tuple(x.shape[2:])
    plain = "NOTSET" if auto_pad.startswith("SAME") else auto_pad
    windows = find_windows(sizes, kernel, strides, dilations, pads, plain)
    extra = per_axis("output_padding", output_padding, len(sizes), 0)
    starts, ends = windows.starts, windows.ends
    if output_shape or auto_pad.startswith("SAME"):
        wanted = (
            output_shape[-len(sizes) :]
            if output_shape
            else tuple(size * s for size, s in zip(sizes, windows.strides))
        )
        totals = [
            (size - 1) * s + e + span - end
            for size, s, e, span, end in zip(sizes, windows.strides, extra, windows.spans, wanted)
        ]
        # missing elements are padded at the end
        extra = tuple(e + max(0, -total) for e, total in zip(extra, totals))
        small = tuple(max(0, total) // 2 for total in totals)
        large = tuple(max(0, total) - max(0, total) // 2 for total in totals)
        starts, ends = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    padding = tuple(size for pair in reversed(list(zip(starts, ends))) for size in pair)
    return x.conv_transpose2d(w, b, group, windows.strides, windows.dilations, padding, extra)
