"""The numpy and ml_dtypes reference of elementwise ops, and extreme values of every dtype.

Input: arrays that hold the values of a dtype, bfloat16 as float32. Output: such arrays, and by how
many units in the last place an op may be off. Integers wrap around, casts of floats saturate, and
floats narrower than 32 bits are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tinygrad.dtype import DType, dtypes, least_upper_dtype, to_numpy_dtype

Array: TypeAlias = np.ndarray[Any, Any]

NARROW = {dtypes.half: np.dtype(np.float16), dtypes.bfloat16: np.dtype(ml_dtypes.bfloat16)}
# of functions that are not rounded correctly
LOOSE = 8


def extremes(seed: int, shape: tuple[int, ...], name: str) -> Array:
    """Values of a dtype, half of them limits, zeros, subnormals, infinities and NaN."""
    dtype, rng = getattr(dtypes, name), np.random.default_rng(seed)
    if dtype is dtypes.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtypes.is_int(dtype):
        low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
        edges = np.array([low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 100], to_numpy_dtype(dtype))
        plain: Array = rng.integers(low, high, shape, edges.dtype, endpoint=True)
        small = rng.integers(-9 if low else 0, 10, shape).astype(edges.dtype)
    else:
        kind = NARROW.get(dtype, to_numpy_dtype(dtype) if dtype.fmt else None)
        info = ml_dtypes.finfo(kind)
        tiny = [info.smallest_subnormal, info.smallest_normal, info.max, info.eps]
        sides = [sign * float(x) for x in tiny for sign in (1, -1)]
        numbers = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.0, 255.5, 1e10, -1e30]
        with np.errstate(all="ignore"):
            edges = values_in(np.array([*numbers, *sides, np.inf, -np.inf, np.nan]), dtype)
            plain = values_in(rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape), dtype)
            small = values_in(rng.integers(-9, 10, shape) / 2, dtype)
    chosen = rng.random(shape)
    return np.where(chosen < 0.5, rng.choice(edges, shape), np.where(chosen < 0.75, plain, small))


def values_in(x: Array, dtype: DType) -> Array:
    """Floats rounded to a float dtype, or integers wrapped around in an integer dtype."""
    if dtype is dtypes.bfloat16:
        return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    return x.astype(to_numpy_dtype(dtype))


def cast(x: Array, target: DType) -> Array:
    """The values of another dtype."""
    if target is dtypes.bool:
        return x != 0
    if x.dtype.kind == "f" and dtypes.is_int(target):
        low, high = int(dtypes.min(target)), int(dtypes.max(target))
        whole = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=high, neginf=low)
        numbers = [max(low, min(int(v), high)) for v in whole.ravel().tolist()]
        return np.array(numbers, to_numpy_dtype(target)).reshape(x.shape)
    return values_in(x, target)


def computed(function: Callable[..., Any], dtype: DType, *operands: Array) -> Array:
    """A function of operands in `dtype`, computed in 32 bits or more and rounded once."""
    if not dtypes.is_float(dtype):
        return np.asarray(function(*operands))
    wide = np.float64 if dtype is dtypes.double else np.float32
    return values_in(np.asarray(function(*(x.astype(wide) for x in operands))), dtype)


def off_by(found: Array, expected: Array, dtype: DType, signs: bool) -> Array:
    """By how many units in the last place each element is off; infinite for another kind."""
    if not dtypes.is_float(dtype):
        return np.where(found == expected, 0.0, np.inf)
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    top = 1 << (exponent_bits - 1)
    wide = [x.astype(np.longdouble) for x in (found, expected)]
    # an overflow is one unit past the maximum
    a, b = (np.where(np.isinf(x), np.copysign(np.longdouble(2) ** top, x), x) for x in wide)
    exponents = np.clip(np.frexp(np.where(np.isnan(b), 1, b))[1] - 1, 2 - top, top - 1)
    distance = np.abs(a - b) / np.ldexp(np.longdouble(1), exponents - mantissa_bits)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if signs:
        same &= (np.signbit(found) == np.signbit(expected)) | np.isnan(expected)
        distance = np.where(found == expected, np.inf, distance)
    return np.where(same, 0.0, np.where(np.isnan(found) | np.isnan(expected), np.inf, distance))


# ---- ops ----


@dataclass(frozen=True)
class Rule:
    """An op: its function on arrays of the common dtype, and where it is defined."""

    function: Callable[..., Any]
    kinds: str = "fiub"
    ulps: float = 0
    gives: str = "same"
    signs: bool = False
    """Whether the sign of zero is that of numpy."""
    is_wide: bool = False
    """Whether operands are cast to float32 instead of a narrower float dtype."""


def _shift(x: Array, n: Array, left: bool) -> Array:
    width = x.dtype.itemsize * 8
    inside = (n >= 0) & (n < width)
    count = np.where(inside, n, 0).astype(x.dtype)
    if left:
        return np.where(inside, np.left_shift(x, count), 0).astype(x.dtype)
    return np.right_shift(x, np.where(inside, n, width - 1).astype(x.dtype)) * (
        inside | (x < 0)
    ).astype(x.dtype)


def _quotient(x: Array, y: Array) -> Array:
    """Rounded down; 0 for integers divided by 0."""
    if x.dtype.kind == "f":
        return np.floor_divide(x, y)
    return np.where(y == 0, 0, np.floor_divide(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    """With the sign of the divisor; x for integers divided by 0."""
    if x.dtype.kind == "f":
        return np.remainder(x, y)
    return np.where(y == 0, x, np.remainder(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _truncated_remainder(x: Array, y: Array) -> Array:
    """With the sign of the dividend; x for integers divided by 0."""
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _softmax(x: Array) -> Array:
    exponentials: Array = np.exp(x - x.max(0))
    return exponentials / exponentials.sum(0)


def _gelu(x: Array) -> Array:
    wide = x.astype(np.float64)
    return wide / (1 + np.exp(-np.sqrt(8 / np.pi) * (wide + 0.044715 * wide**3)))


def _is_close(x: Any, y: Any) -> Any:
    """Whether two integers differ by at most 3."""
    if isinstance(x, int):
        return abs(x - int(y)) <= 3
    return np.abs(x.astype(object) - y.astype(object)) <= 3


def _precise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of floats, computed in the next wider type."""

    def compute(*operands: Array) -> Any:
        kind = operands[0].dtype
        wide = np.float64 if kind == np.float32 else np.longdouble
        return function(*(x.astype(wide) for x in operands)).astype(kind)

    return compute


def _truncated_quotient(x: Array, y: Array) -> Array:
    """Integers rounded toward zero; 0 where they are divided by 0."""
    quotient, rest = _quotient(x, y), _remainder(x, y)
    return (quotient + ((rest != 0) & ((x < 0) != (y < 0)) & (y != 0))).astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
    """Integers wrap around, and negative powers of them are rounded toward zero."""
    if x.dtype.kind == "f":
        found: Array = _precise(np.power)(x, y)
        return found
    width = x.dtype.itemsize * 8
    pairs = zip(x.ravel().tolist(), np.broadcast_to(y, x.shape).ravel().tolist(), strict=True)
    numbers = [_integer_power(base, exponent) % (1 << width) for base, exponent in pairs]
    return np.array(numbers, f"u{width // 8}").astype(x.dtype).reshape(x.shape)


def _integer_power(base: int, exponent: int) -> int:
    if exponent >= 0:
        return pow(base, exponent, 1 << 64)
    return (base if exponent % 2 else 1) if base in (1, -1) else 0


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


# these have the errors of the table in docs/numerics.md, and half a unit for the rounding here
TIGHT = 2.6
FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": _softplus,
    "logsigmoid": lambda x: -_softplus(-x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardtanh": lambda x: np.clip(x, -1, 1),
}

UNARY: dict[str, Rule] = {
    **{f"{{x}}.{name}()": Rule(_precise(f), "f", TIGHT) for name, f in FUNCTIONS.items()},
    "-{x}": Rule(np.negative, "fiu", signs=True),
    "{x} * 1": Rule(lambda x: x, "fiu", signs=True),
    "{x}.abs()": Rule(np.abs, "fi"),
    "{x}.sign()": Rule(np.sign, "fiu"),
    "{x}.relu()": Rule(lambda x: np.maximum(x, x.dtype.type(0)), "fiu"),
    "{x}.square()": Rule(lambda x: x * x, "fiu"),
    "{x}.floor()": Rule(np.floor, "f"),
    "{x}.ceil()": Rule(np.ceil, "f"),
    "{x}.trunc()": Rule(np.trunc, "f"),
    "{x}.round()": Rule(np.round, "f"),
    "{x}.sqrt()": Rule(np.sqrt, "f", signs=True),
    "{x}.reciprocal()": Rule(lambda x: 1 / x, "f", signs=True),
    "~{x}": Rule(np.invert, "iub"),
    "{x}.logical_not()": Rule(np.logical_not, gives="bool"),
    "{x}.isnan()": Rule(np.isnan, "f", gives="bool"),
    "{x}.isinf()": Rule(np.isinf, "f", gives="bool"),
    "{x}.isfinite()": Rule(np.isfinite, "f", gives="bool"),
    "{x}.exp2()": Rule(np.exp2, "f", LOOSE),
    "{x}.log2()": Rule(np.log2, "f", LOOSE),
    "{x}.sin()": Rule(np.sin, "f", LOOSE),
    # of rounded exponents, up to 88
    "{x}.softmax(0)": Rule(_softmax, "iub", 256, "float"),
    "{x}.gelu()": Rule(_gelu, "iub", 256, "float"),
}
BINARY: dict[str, Rule] = {
    "{x} + {y}": Rule(np.add, "fiu", signs=True),
    "{x} - {y}": Rule(np.subtract, "fiu", signs=True),
    "{x} * {y}": Rule(np.multiply, "fiu", signs=True),
    "{x} / {y}": Rule(np.divide, "fiub", gives="float", signs=True),
    "{x} % {y}": Rule(_remainder, "fiu", signs=True),
    "{x}.fmod({y})": Rule(_truncated_remainder, "fiu", signs=True),
    "{x} // {y}": Rule(_quotient, "fiu", signs=True),
    "{x}.div({y}, rounding_mode='trunc')": Rule(_truncated_quotient, "iu"),
    "{x} ** {y}": Rule(_power, "fiu", TIGHT, is_wide=True),
    "{x}.maximum({y})": Rule(np.maximum),
    "{x}.minimum({y})": Rule(np.minimum),
    "({x} < {y})": Rule(np.less, gives="bool"),
    "({x} <= {y})": Rule(np.less_equal, gives="bool"),
    "({x} > {y})": Rule(np.greater, gives="bool"),
    "({x} >= {y})": Rule(np.greater_equal, gives="bool"),
    "({x} == {y})": Rule(np.equal, gives="bool"),
    "({x} != {y})": Rule(np.not_equal, gives="bool"),
    "({x} > {y}).where({x}, {y})": Rule(lambda x, y: np.where(x > y, x, y)),
    "{x}.copysign({y})": Rule(np.copysign, "f", signs=True),
    "{x}.isclose({y}, 0, 3)": Rule(_is_close, "iu", gives="bool"),
    "{x}.lerp({y}, 0.5)": Rule(lambda x, y: x + (y - x) * x.dtype.type(0.5), "iub", 1, "float"),
    "({x} & {y})": Rule(np.bitwise_and, "iub"),
    "({x} | {y})": Rule(np.bitwise_or, "iub"),
    "({x} ^ {y})": Rule(np.bitwise_xor, "iub"),
    "({x} << {y})": Rule(lambda x, y: _shift(x, y, True), "iu"),
    "({x} >> {y})": Rule(lambda x, y: _shift(x, y, False), "iu"),
}
REDUCED: dict[str, Rule] = {
    "{x}.sum(0)": Rule(lambda x: x.sum(0, dtype=x.dtype), "iub", gives="sum"),
    "{x}.max(0)": Rule(lambda x: x.max(0)),
    "{x}.min(0)": Rule(lambda x: x.min(0)),
    "{x}.mean(0)": Rule(lambda x: x.astype(np.float64).mean(0), "iub", 1, "mean"),
    "{x}.argmax(0)": Rule(lambda x: x.argmax(0), gives="index"),
    "{x}.any(0)": Rule(lambda x: x.any(0), gives="bool"),
    "{x}.all(0)": Rule(lambda x: x.all(0), gives="bool"),
    "{x}.argmin(0)": Rule(lambda x: x.argmin(0), gives="index"),
    "{x}.prod(0)": Rule(lambda x: x.prod(0, dtype=x.dtype), "iu", gives="sum"),
    # not reductions, but nothing follows them
    "{x}.cumprod(0)": Rule(lambda x: x.cumprod(0, dtype=x.dtype), "iu", gives="sum"),
    "{x}.cummax(0)[0]": Rule(np.maximum.accumulate),
    "{x}.cummin(0)[0]": Rule(np.minimum.accumulate),
    "{x}.sort(0)[0]": Rule(lambda x: np.sort(x, 0)),
    "{x}.argsort(0)": Rule(lambda x: x.argsort(0, kind="stable"), gives="index"),
}


def kind_of(dtype: DType) -> str:
    """f, i, u or b."""
    if dtypes.is_float(dtype):
        return "f"
    if dtype is dtypes.bool:
        return "b"
    return "u" if dtypes.is_unsigned(dtype) else "i"


def common(*types: DType) -> DType:
    return least_upper_dtype(*types)
