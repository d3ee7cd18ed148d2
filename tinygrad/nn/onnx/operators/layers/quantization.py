"""Quantised integers, `(integer - zero point) * scale`, and products of them.

A scale or zero point is one number for all, one for each position of an axis, or one for each
block along it. Integers saturate; products are summed in int32 and scaled once.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.operators.layers.conv import conv
from tinygrad.nn.onnx.operators.layers.windows import Ints
from tinygrad.nn.onnx.operators.math.elementwise import converted
from tinygrad.nn.onnx.operators.tensor.movement import axis_of
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor


def aligned(parameter: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale or zero point so that it broadcasts against `x`: one for all, one for each position
    along an axis, or one for each block of an axis.
    """
    if parameter.numel() == 1:
        return parameter.reshape(())
    at = axis_of(axis, x.ndim)
    if parameter.ndim == 1 and not block_size:
        return parameter.reshape(tuple(-1 if i == at else 1 for i in range(x.ndim)))
    if parameter.ndim != x.ndim or block_size < 1:
        raise OnnxError(
            f"a scale or zero point of {parameter.shape} fits neither an axis of {x.shape} nor "
            f"blocks of {block_size}"
        )
    spread = parameter.repeat_interleave(block_size, at)
    return spread.shrink_to(tuple(x.shape[at] if i == at else None for i in range(x.ndim)))


def saturated(x: Tensor, dtype: DType) -> Tensor:
    """Floats rounded to integers, saturated to the range."""
    return x.round().clamp(dtypes.min(dtype), dtypes.max(dtype)).cast(dtype)


@operator("QuantizeLinear")
def quantize(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    dtype = dtypes.uint8 if y_zero_point is None else y_zero_point.dtype
    if output_dtype:
        dtype = dtype_of(output_dtype, "output_dtype")
    wide = least_upper_dtype(x.dtype, y_scale.dtype, dtypes.float32)
    if precision:
        wide = dtype_of(precision, "precision")
    scale = aligned(y_scale, x, axis, block_size).cast(wide)
    scaled = x.cast(wide) / scale
    if dtypes.is_float(dtype):
        return converted(scaled, dtype, saturate)
    if y_zero_point is None:
        return saturated(scaled, dtype)
    zero = aligned(y_zero_point, x, axis, block_size).cast(wide)
    return saturated(scaled.round() + zero, dtype)


@operator("DequantizeLinear")
def dequantize(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    dtype = dtype_of(output_dtype, "output_dtype") if output_dtype else x_scale.dtype
    scale = aligned(x_scale, x, axis, block_size)
    wide = least_upper_dtype(scale.dtype, dtypes.float32)
    if x_zero_point is None or dtypes.is_float(x.dtype):
        return (x.cast(wide) * scale.cast(wide)).cast(dtype)
    difference = shifted(x, aligned(x_zero_point, x, axis, block_size))
    return (difference.cast(wide) * scale.cast(wide)).cast(dtype)


def shifted(x: Tensor, zero_point: Tensor | None) -> Tensor:
    """`x - zero_point` as int32."""
    wide = x.cast(dtypes.int32)
    return wide if zero_point is None else wide - zero_point.cast(dtypes.int32)


@operator("DynamicQuantizeLinear")
def quantize_dynamically(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise to uint8, with the scale and zero point of the range of the values and 0."""
    low, high = x.min().minimum(0), x.max().maximum(0)
    scale = (high - low) / 255
    safe = scale.eq(0).where(1, scale)
    zero = (-low / safe).round().clamp(0, 255)
    return saturated((x / safe).round() + zero, dtypes.uint8), scale, zero.cast(dtypes.uint8)


# ---- products ----


def per_row(parameter: Tensor | None, of: Tensor) -> Tensor | None:
    """One number for all of the first matrix, or one for each row of it."""
    if parameter is None or parameter.numel() == 1:
        return parameter if parameter is None else parameter.reshape(())
    return parameter.unsqueeze(-1) if parameter.ndim < of.ndim else parameter


def per_column(parameter: Tensor | None) -> Tensor | None:
    """One number for all of the second matrix, or one for each column of it."""
    if parameter is None or parameter.numel() == 1:
        return parameter if parameter is None else parameter.reshape(())
    return parameter.unsqueeze(-2) if parameter.ndim == 1 else parameter


@operator("MatMulInteger")
def matmul_integer(
    a: Tensor,
    b: Tensor,
    a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
) -> Tensor:
    first = shifted(a, per_row(a_zero_point, a))
    second = shifted(b, per_column(b_zero_point))
    return first.matmul(second, dtype=dtypes.int32)


@operator("QLinearMatMul")
def quantized_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    total = matmul_integer(a, b, a_zero_point, b_zero_point)
    row, column = per_row(a_scale, a), per_column(b_scale)
    assert row is not None and column is not None, "scales are required"
    scale = row.float() * column.float() / y_scale.float()
    rounded = (total.float() * scale).round()
    return saturated(rounded + y_zero_point.float(), y_zero_point.dtype)


@operator("ConvInteger")
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    """Pad with the zero point, which represents 0."""
    if x_zero_point is not None and x_zero_point.numel() != 1:
        raise OnnxUnsupportedError(f"a zero point of {x_zero_point.shape}; the input takes one")
    zero = None if x_zero_point is None else x_zero_point.reshape(())
    weight = shifted(w, None if w_zero_point is None else aligned(w_zero_point, w, 0, 0))
    return conv(
        shifted(x, zero),
        weight,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@operator("QLinearConv")
def quantized_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> Tensor:
    total = conv_integer(
        x,
        w,
        x_zero_point,
        w_zero_point,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if b is not None:
        total = total + b.reshape((1, -1, *(1,) * (x.ndim - 2)))
    scale = aligned(x_scale.reshape(()) * w_scale / y_scale.reshape(()), total, 1, 0)
    rounded = (total.float() * scale).round()
    return saturated(rounded + y_zero_point.reshape(()).float(), y_zero_point.dtype)
