"""Elementwise functions of special values, against numpy: zeros of both signs, infinities, NaN,
subnormals, ends of domains and extremes; as stored values and as constants, in LLVM IR and in C.

The reference is numpy's function in float64 of the stored values, rounded to the dtype. The GPU
dialects run this file on the emulator (`test/emulator/test_special_values.py`).
"""

from __future__ import annotations

import math
import operator
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE
from tinygrad import Context, Device, Tensor, dtypes
from tinygrad.dtype import DType, truncate

Array = np.ndarray[Any, Any]

FLOATS = [
    *(0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, math.pi, 5.3, 11.0, 88.72284, 1e4, 60000.0, 1e10),
    *(2.0**-149, 1e-40, 2.0**-126, 2.0**-24, 1e-3, 2.0**23 + 1, 3.4028234663852886e38, math.inf),
]
SPECIAL = [*FLOATS, *(-x for x in FLOATS), math.nan]
FEW = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.0, 2.0**-149, 3.4028234663852886e38),
    *(math.inf, -math.inf, math.nan),
]
EXACT, ROUNDED, LOOSE = 0, 2, 64
"""Maximum errors in ulps: of arithmetic, of elementary functions, and of compositions."""
SMALLEST_ACCURATE = 1e-31
FLUSHES = Device[DEVICE].runs_kernels and Device[DEVICE].target.dialect in ("metal", "opencl")
"""Whether the device may take subnormal float32 numbers for zero, also on the way to results below
`SMALLEST_ACCURATE`.
"""
POWER = 128 if FLUSHES else ROUNDED
"""Powers of float32 are computed in float64, or where there is none by a logarithm in float32."""


class Case:
    """A function of tensors, its reference in numpy, and how they are compared: the maximum error,
    absolute below 1 if `near_one`, and whether the sign of a zero is open. Infinite arguments of
    `composed` functions are not compared: the formula is NaN there.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        reference: Callable[..., Any],
        ulps: int = EXACT,
        *,
        open_zero: bool = False,
        composed: bool = False,
        near_one: bool = False,
    ) -> None:
        self.function = function
        self.reference = reference
        self.ulps = ulps
        self.open_zero = open_zero
        self.composed = composed
        self.near_one = near_one or composed


def loose(function: Callable[..., Tensor], reference: Callable[..., Any]) -> Case:
    return Case(function, reference, LOOSE, open_zero=True, composed=True)


def _sigmoid(x: Array) -> Array:
    return np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x)))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


ERF = np.vectorize(math.erf)
UNARY: dict[str, Case] = {
    "neg": Case(Tensor.neg, np.negative),
    "abs": Case(Tensor.abs, np.abs),
    "sign": Case(Tensor.sign, np.sign, open_zero=True),
    "trunc": Case(Tensor.trunc, np.trunc),
    "floor": Case(Tensor.floor, np.floor),
    "ceil": Case(Tensor.ceil, np.ceil),
    "round": Case(Tensor.round, np.round),
    "sqrt": Case(Tensor.sqrt, np.sqrt),
    "rsqrt": Case(Tensor.rsqrt, lambda x: 1 / np.sqrt(x), ROUNDED),
    "reciprocal": Case(Tensor.reciprocal, lambda x: 1 / x),
    "square": Case(Tensor.square, np.square),
    **{
        name: Case(getattr(Tensor, name), getattr(np, names[-1]), ROUNDED)
        for name, *names in (
            *(("exp",), ("exp2",), ("log",), ("log2",), ("sin",), ("cos",), ("tan",)),
            *(("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"), ("sinh",), ("cosh",)),
            *(("tanh",), ("asinh", "arcsinh"), ("acosh", "arccosh"), ("atanh", "arctanh")),
        )
        for names in ([name, *names],)
    },
    "erf": Case(Tensor.erf, ERF, ROUNDED),
    "sigmoid": Case(Tensor.sigmoid, _sigmoid, ROUNDED),
    "softplus": Case(Tensor.softplus, _softplus, ROUNDED),
    "logsigmoid": Case(Tensor.logsigmoid, lambda x: -_softplus(-x), ROUNDED),
    "relu": Case(Tensor.relu, lambda x: np.maximum(x, 0), open_zero=True),
    "relu6": Case(Tensor.relu6, lambda x: np.clip(x, 0, 6), ROUNDED, open_zero=True),
    "clip": Case(lambda x: x.clip(-1, 2), lambda x: np.clip(x, -1, 2), open_zero=True),
    "hardtanh": Case(Tensor.hardtanh, lambda x: np.clip(x, -1, 1), open_zero=True),
    "isnan": Case(Tensor.isnan, np.isnan),
    "isinf": Case(Tensor.isinf, np.isinf),
    "isfinite": Case(Tensor.isfinite, np.isfinite),
    "bool": Case(Tensor.bool, lambda x: x.astype(bool)),
    "logical_not": Case(Tensor.logical_not, np.logical_not),
    "leaky_relu": loose(Tensor.leaky_relu, lambda x: np.where(x < 0, 0.01 * x, x)),
    "hardsigmoid": loose(Tensor.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hardswish": loose(Tensor.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "elu": loose(Tensor.elu, _elu),
    "celu": loose(Tensor.celu, _elu),
    "selu": loose(Tensor.selu, lambda x: 1.0507 * _elu(x, 1.67326)),
    "silu": loose(Tensor.silu, lambda x: x * _sigmoid(x)),
    "gelu": loose(
        Tensor.gelu,
        lambda x: x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    ),
    "quick_gelu": loose(Tensor.quick_gelu, lambda x: x * _sigmoid(1.702 * x)),
    "mish": loose(Tensor.mish, lambda x: x * np.tanh(_softplus(x))),
    "softsign": loose(Tensor.softsign, lambda x: x / (1 + np.abs(x))),
    **{
        # numpy takes the square root for the number 0.5, of which -0.0 is another one
        f"to the power of {p}": Case(
            lambda x, p=p: x**p, lambda x, p=p: np.power(x, np.full_like(x, p)), POWER
        )
        for p in (0.5, -0.5, 0, 1, 2, 3, 4, 5, -1, -2, -3, 1.5, 0.25, math.inf, -math.inf)
    },
    **{
        f"{p} to the power": Case(lambda x, p=p: p**x, lambda x, p=p: np.power(p, x), POWER)
        for p in (2.0, 0.5, -2.0, 0.0, -0.0, 1.0, -1.0, math.inf, -math.inf)
    },
}
COMPARISONS: dict[str, Case] = {
    name: Case(getattr(operator, name), getattr(operator, name))
    for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
BINARY: dict[str, Case] = {
    "add": Case(operator.add, np.add),
    "sub": Case(operator.sub, np.subtract),
    "mul": Case(operator.mul, np.multiply),
    "div": Case(operator.truediv, np.divide),
    "maximum": Case(Tensor.maximum, np.maximum, open_zero=True),
    "minimum": Case(Tensor.minimum, np.minimum, open_zero=True),
    "pow": Case(operator.pow, np.power, POWER),
    "mod": Case(operator.mod, np.mod),
    "copysign": Case(Tensor.copysign, np.copysign),
    "logaddexp": Case(Tensor.logaddexp, np.logaddexp, LOOSE, open_zero=True, near_one=True),
    "isclose": Case(Tensor.isclose, np.isclose),
    **COMPARISONS,
}


@pytest.fixture(params=["LLVM", "C"])
def device(request: pytest.FixtureRequest) -> Any:
    """A device of each renderer of the CPU; the default one if it is another kind."""
    if request.param == "LLVM":
        yield DEVICE
    elif DEVICE != "CPU" or shutil.which("cc") is None:
        pytest.skip("no CPU, or no C compiler")
    else:
        with Context(CPU_LLVM=0):
            yield "CPU:41"


def rounded(values: Array, dtype: DType) -> Array:
    """Numbers of float64 rounded to a dtype."""
    return np.vectorize(truncate[dtype], otypes=[np.float64])(values)


def ulp(values: Array, dtype: DType) -> Array:
    """The distance of neighbours of finite numbers in a dtype."""
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    exponents = np.frexp(np.abs(values))[1] - 1
    return np.ldexp(1.0, np.maximum(exponents, 2 - (1 << exponent_bits - 1)) - mantissa_bits)


def check(name: str, case: Case, found: Array, operands: list[Array], dtype: DType) -> None:
    """Compare with the reference, in float64."""
    with np.errstate(all="ignore"):
        exact = case.reference(*operands)
        if exact.dtype == bool:
            expected = exact.astype(np.float64)
        else:
            expected = rounded(exact, dtype)
        skipped = np.isinf(operands[0]) & case.composed
        found = found.astype(np.float64)
        floor = 1.0 if case.near_one else 0.0
        limit = case.ulps * ulp(
            np.where(np.isfinite(exact), np.maximum(np.abs(exact), floor), 0), dtype
        )
        if FLUSHES:
            tiny = [np.abs(x) < SMALLEST_ACCURATE for x in (*operands, exact)]
            skipped |= np.any([x & (y != 0) for x, y in zip(tiny, (*operands, exact))], 0)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        # a result near the largest number may overflow
        close = np.abs(found - exact) <= limit
        is_zero = (expected == 0) & (found == 0) & (exact == 0)
        if not case.open_zero and exact.dtype != bool:
            same &= ~is_zero | (np.signbit(found) == np.signbit(expected))
    wrong = ~(same | (close & ~is_zero) | skipped)
    shown = [
        (*(float(x[i]) for x in operands), float(found[i]), float(expected[i]))
        for i in np.flatnonzero(wrong)
    ]
    assert not shown, (
        f"{name}: operands, found, expected: {shown[:8]} and {max(0, len(shown) - 8)} more"
    )


def stored(values: Array, dtype: DType, device: Any) -> Tensor:
    # not every device has float64
    return Tensor(values.astype(np.float64), device="CPU").cast(dtype).to(device).realize()


NARROW = [pytest.param(x, marks=pytest.mark.slow) for x in (dtypes.float16, dtypes.bfloat16)]
DTYPES = [dtypes.float32, pytest.param(dtypes.float64, marks=pytest.mark.slow), *NARROW]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_functions_of_stored_numbers(dtype: DType, device: Any) -> None:
    values = rounded(np.array(SPECIAL), dtype)
    x = stored(values, dtype, device)
    results = {name: case.function(x) for name, case in UNARY.items()}
    Tensor.realize(*results.values())
    for name, result in results.items():
        check(name, UNARY[name], result.numpy(), [values], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_functions_of_constants(dtype: DType) -> None:
    values = rounded(np.array(SPECIAL[::2] if dtype is dtypes.float32 else FEW), dtype)
    for name, case in UNARY.items():
        constants = [case.function(Tensor.full((1,), v, dtype=dtype)) for v in values.tolist()]
        found = np.concatenate([x.numpy() for x in constants])
        check(name, case, found, [values], dtype)


def pairs(dtype: DType) -> list[Array]:
    values = rounded(np.array(SPECIAL), dtype)
    return [x.ravel() for x in np.meshgrid(values, values)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_functions_of_two_stored_numbers(dtype: DType, device: Any) -> None:
    operands = pairs(dtype)
    x, y = (stored(values, dtype, device) for values in operands)
    results = {name: case.function(x, y) for name, case in BINARY.items()}
    Tensor.realize(*results.values())
    for name, result in results.items():
        check(name, BINARY[name], result.numpy(), operands, dtype)


def test_functions_of_two_constants() -> None:
    operands = [x.ravel() for x in np.meshgrid(FEW, FEW[:2] + FEW[4::2])]
    for name, case in BINARY.items():
        found = [
            case.function(
                *(Tensor.full((1,), v.item(), dtype=dtypes.float32) for v in pair)
            ).numpy()
            for pair in zip(*operands, strict=True)
        ]
        check(name, case, np.concatenate(found), operands, dtypes.float32)


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize(
    "number",
    [pytest.param(x, marks=[] if i % 6 == 1 else pytest.mark.slow) for i, x in enumerate(FEW)],
)
def test_functions_of_a_stored_number_and_a_constant(number: float, is_left: bool) -> None:
    values = rounded(np.array(SPECIAL), dtypes.float32)
    x, constant = stored(values, dtypes.float32, DEVICE), np.full_like(values, number)
    other = Tensor.full((1,), number, dtype=dtypes.float32)
    results = {
        name: case.function(other, x) if is_left else case.function(x, other)
        for name, case in BINARY.items()
    }
    Tensor.realize(*results.values())
    operands = [constant, values] if is_left else [values, constant]
    for name, result in results.items():
        check(name, BINARY[name], result.numpy(), operands, dtypes.float32)


# ---- integers ----


def wrapped(value: int, dtype: DType) -> int:
    """A Python integer modulo the range of a dtype."""
    low, high = dtypes.min(dtype), dtypes.max(dtype)
    return int((value - low) % (high - low + 1) + low)


INTEGER_PAIRS: dict[str, tuple[Callable[..., Tensor], Callable[[int, int], int]]] = {
    "add": (operator.add, operator.add),
    "sub": (operator.sub, operator.sub),
    "mul": (operator.mul, operator.mul),
    "floordiv": (operator.floordiv, lambda x, y: x // y if y else 0),
    "mod": (operator.mod, lambda x, y: x % y if y else x),
    "and": (operator.and_, operator.and_),
    "or": (operator.or_, operator.or_),
    "xor": (operator.xor, operator.xor),
    "maximum": (Tensor.maximum, max),
    "minimum": (Tensor.minimum, min),
    **{name: (case.function, case.reference) for name, case in COMPARISONS.items()},
}
INTEGER_UNARY: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int], int]]] = {
    "neg": (Tensor.neg, operator.neg),
    "abs": (Tensor.abs, abs),
    "sign": (Tensor.sign, lambda x: (x > 0) - (x < 0)),
    "invert": (Tensor.bitwise_not, operator.invert),
    "square": (Tensor.square, lambda x: x * x),
    "cube": (lambda x: x**3, lambda x: x**3),
    "relu": (Tensor.relu, lambda x: max(x, 0)),
    "shift left": (lambda x: x << 3, lambda x: x << 3),
    "shift right": (lambda x: x >> 3, lambda x: x >> 3),
    "all bits out": (lambda x: x << 64, lambda x: 0),
    "sign alone": (lambda x: x >> 64, lambda x: -1 if x < 0 else 0),
    "bool": (Tensor.bool, bool),
}
INTEGERS = [
    *(dtypes.int32, dtypes.uint8),
    *(pytest.param(x, marks=pytest.mark.slow) for x in dtypes.ints if x.itemsize > 4),
    *(pytest.param(x, marks=pytest.mark.slow) for x in (dtypes.int8, dtypes.int16, dtypes.uint32)),
]


def extremes(dtype: DType) -> list[int]:
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    middle = 1 << dtype.itemsize * 4
    return sorted(
        {*(low, low + 1, low // 2, high // 2 + 1, high - 1, high, middle, middle - 1)}
        | {x for x in (-7, -2, -1, 0, 1, 2, 3, 10) if x >= low}
    )


def check_integers(name: str, found: list[int], expected: list[int], operands: Any) -> None:
    wrong = [x for x in zip(operands, found, expected, strict=True) if x[1] != x[2]]
    assert not wrong, f"{name}: operands, found, expected: {wrong[:8]}"


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_stored_and_constant_integers(dtype: DType, device: Any) -> None:
    values = extremes(dtype)
    x = Tensor(values, dtype=dtype, device=device).realize()
    results = {name: function(x) for name, (function, _) in INTEGER_UNARY.items()}
    Tensor.realize(*results.values())
    for name, (function, reference) in INTEGER_UNARY.items():
        result = results[name].dtype
        expected = [wrapped(reference(v), result) for v in values]
        check_integers(name, results[name].tolist(), expected, values)
        constants = [function(Tensor.full((1,), v, dtype=dtype)).item() for v in values]
        check_integers(f"{name} of constants", constants, expected, values)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_two_integers(dtype: DType, device: Any) -> None:
    values = extremes(dtype)
    both = [(x, y) for x in values for y in values]
    x, y = (Tensor([p[i] for p in both], dtype=dtype, device=device).realize() for i in range(2))
    results = {name: function(x, y) for name, (function, _) in INTEGER_PAIRS.items()}
    Tensor.realize(*results.values())
    for name, (function, reference) in INTEGER_PAIRS.items():
        expected = [wrapped(reference(*pair), results[name].dtype) for pair in both]
        check_integers(name, results[name].tolist(), expected, both)
        few = range(0, len(both), 7)
        constants = [
            function(*(Tensor.full((1,), v, dtype=dtype) for v in both[i])).item() for i in few
        ]
        picked = [expected[i] for i in few]
        check_integers(f"{name} of constants", constants, picked, [both[i] for i in few])


@pytest.mark.parametrize(
    "dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.int64]
)
def test_casts_of_special_numbers_to_integers(dtype: DType, device: Any) -> None:
    values = [
        *SPECIAL,
        127.5,
        128.0,
        255.9,
        256.0,
        2147483648.0,
        -2147483649.0,
        4294967296.0,
        2.0**63,
    ]
    x = Tensor(values, dtype=dtypes.float64, device=device).realize()
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    expected = [
        0 if v != v else low if v <= low else high if v >= high else math.trunc(v) for v in values
    ]
    check_integers("cast", x.cast(dtype).tolist(), expected, values)
    constants = [Tensor.full((1,), v, dtype=dtypes.float64).cast(dtype).item() for v in values]
    check_integers("cast of constants", constants, expected, values)
