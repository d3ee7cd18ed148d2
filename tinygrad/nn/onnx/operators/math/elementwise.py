"""Elementwise arithmetic, comparison, logic and conversion, with broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import AnyValue
from tinygrad.tensor import Tensor

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": Tensor.abs,
    "Acos": Tensor.acos,
    "Acosh": Tensor.acosh,
    "Asin": Tensor.asin,
    "Asinh": Tensor.asinh,
    "Atan": Tensor.atan,
    "Atanh": Tensor.atanh,
    "BitwiseNot": Tensor.bitwise_not,
    "Ceil": Tensor.ceil,
    "Cos": Tensor.cos,
    "Cosh": Tensor.cosh,
    "Erf": Tensor.erf,
    "Exp": Tensor.exp,
    "Floor": Tensor.floor,
    "IsNaN": Tensor.isnan,
    "Log": Tensor.log,
    "Neg": Tensor.neg,
    "Not": Tensor.logical_not,
    "Reciprocal": Tensor.reciprocal,
    "Round": Tensor.round,
    "Sign": Tensor.sign,
    "Sin": Tensor.sin,
    "Sinh": Tensor.sinh,
    "Sqrt": Tensor.sqrt,
    "Tan": Tensor.tan,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": Tensor.add,
    "And": Tensor.bitwise_and,
    "BitwiseAnd": Tensor.bitwise_and,
    "BitwiseOr": Tensor.bitwise_or,
    "BitwiseXor": Tensor.bitwise_xor,
    "Equal": Tensor.eq,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Mul": Tensor.mul,
    "Or": Tensor.bitwise_or,
    "Sub": Tensor.sub,
    "Xor": Tensor.bitwise_xor,
}


def unary(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """An operator of one input."""

    def apply(x: Tensor) -> Tensor:
        return function(x)

    return apply


def binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """An operator of two inputs."""

    def apply(a: Tensor, b: Tensor) -> Tensor:
        return function(a, b)

    return apply


for name, method in UNARY.items():
    operator(name)(unary(method))
for name, pair_method in BINARY.items():
    operator(name)(binary(pair_method))


def quotient(a: Tensor, b: Tensor) -> Tensor:
    """The quotient; of integers, rounded toward zero."""
    return a.div(b) if a.is_floating_point() else a.div(b, rounding_mode="trunc")


operator("Div")(binary(quotient))


@operator("Pow")
def power(a: Tensor, b: Tensor) -> Tensor:
    return a.cast(least_upper_dtype(a.dtype, b.dtype)).pow(b).cast(a.dtype)


def remainder(a: Tensor, b: Tensor) -> Tensor:
    """The remainder of a division that truncates toward zero; it has the sign of `a`."""
    if dtypes.is_unsigned(a.dtype):
        return a.mod(b)
    rest = a.abs().mod(b.abs())
    if a.is_floating_point():
        # the remainder of a finite number by infinity is the number
        rest = (b.isinf() & a.isfinite()).where(a.abs(), rest)
    return (a < 0).where(-rest, rest)


@operator("Mod")
def modulo(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """The remainder of a division, with the sign of `b`; with `fmod`, of `a`."""
    if fmod:
        return remainder(a, b)
    if not a.is_floating_point():
        return a.mod(b)
    rest = remainder(a, b)
    return (rest.ne(0) & (rest < 0).ne(b < 0)).where(rest + b, rest)


@operator("BitShift")
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    """Shift by b bits; a negative shift, or one by the width or more, leaves only the sign."""
    if direction not in ("LEFT", "RIGHT"):
        raise OnnxError(f"direction is {direction!r}, not LEFT or RIGHT")
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    by = inside.where(b, bits - 1)
    if direction == "LEFT":
        return inside.where(a << by, 0).cast(a.dtype)
    if dtypes.is_unsigned(a.dtype):
        return inside.where(a >> by, 0).cast(a.dtype)
    return a >> by


@operator("Max")
def largest(*xs: Tensor) -> Tensor:
    return functools.reduce(Tensor.maximum, xs)


@operator("Min")
def smallest(*xs: Tensor) -> Tensor:
    return functools.reduce(Tensor.minimum, xs)


@operator("Sum")
def total(*xs: Tensor) -> Tensor:
    return functools.reduce(Tensor.add, xs)


@operator("Mean")
def average(*xs: Tensor) -> Tensor:
    return total(*xs).div(len(xs))


@operator("Clip")
def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    if min is None and max is None:
        return x
    return x.clamp(min, max)


@operator("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return condition.where(x, y)


@operator("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return x.isinf(bool(detect_positive), bool(detect_negative))


@operator("Identity")
def identity(x: AnyValue) -> AnyValue:
    return x


# ---- conversion ----


# for each fp8: the maximum, and the smallest float32 that rounds past it
FP8_LIMITS = {
    dtypes.fp8e4m3: (448.0, 464.00003),
    dtypes.fp8e5m2: (57344.0, 61440.0),
    dtypes.fp8e4m3fnuz: (240.0, 248.0),
    dtypes.fp8e5m2fnuz: (57344.0, 61440.0),
}


def converted(x: Tensor, dtype: DType, saturate: int) -> Tensor:
    """`x` as `dtype`. In fp8, overflow saturates, or becomes infinity."""
    if dtype not in dtypes.fp8s:
        return x.cast(dtype)
    largest_number, overflow = FP8_LIMITS[dtype]
    wide = x.cast(least_upper_dtype(x.dtype, dtypes.float32))
    if saturate:
        return wide.clamp(-largest_number, largest_number).cast(dtype)
    return (wide.abs() >= overflow).where(wide * math.inf, wide).cast(dtype)


@operator("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return converted(x, dtype_of(to, "to"), saturate)


@operator("CastLike")
def cast_like(
    x: Tensor, target_type: Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    return converted(x, target_type.dtype, saturate)


@operator("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    dtype = dtype_of(to, "to")
    if dtype.itemsize != x.dtype.itemsize:
        raise OnnxError(f"{x.dtype} and {dtype} have elements of different sizes")
    return x.bitcast(dtype)
