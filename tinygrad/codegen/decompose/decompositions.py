"""Decompose ops that the target lacks into ops that it has.

Before: any ALU op, on scalars and vectors. After: only the renderer's `operations`, on its
`dtypes`. Decompositions have no branches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tinygrad.codegen.analysis.ranges import FreeRanges
from tinygrad.codegen.decompose.error_function import erf
from tinygrad.codegen.decompose.exponential import (
    cosh,
    exp,
    exp2,
    expm1,
    logistic,
    sinh,
    softplus,
    tanh,
)
from tinygrad.codegen.decompose.float_math import absolute, copy_sign, splat_value
from tinygrad.codegen.decompose.inverse_trigonometry import acos, asin, atan
from tinygrad.codegen.decompose.logarithm import acosh, asinh, atanh, log, log1p, log2
from tinygrad.codegen.decompose.narrow_floats import NARROW, as_integers, compute_wide
from tinygrad.codegen.decompose.power import power, power_in_float64
from tinygrad.codegen.decompose.power_by_squaring import (
    constant_integer_power,
    constant_power,
    integer_power,
    wide_constant_power,
)
from tinygrad.codegen.decompose.remainder import (
    is_power_of_two,
    remainder,
    remainder_by_power_of_two,
)
from tinygrad.codegen.decompose.threefry import threefry
from tinygrad.codegen.decompose.trigonometry import cos, sin, tan
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer import Renderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import PatternMatcher, graph_rewrite
from tinygrad.uop.upat import UPat

WIDE_FLOATS = (dtypes.float32, dtypes.float64)
INTEGERS = (*dtypes.ints, *dtypes.index_like)


def decompose(sink: UOp, renderer: Renderer) -> UOp:
    """The same graph in ops and dtypes of the renderer."""
    operations, known = renderer.operations, renderer.dtypes
    narrow = {u.dtype.scalar() for u in sink.toposort()}.intersection(NARROW)
    if narrow:
        sink = graph_rewrite(sink, narrow_absolutes, name="narrow absolutes")
        sink = compute_wide(sink, known)
    sink = graph_rewrite(sink, _arithmetic_rules(operations, known), name="decompose")
    if narrow - known:
        sink = graph_rewrite(sink, _storage_rules(operations, known), name="narrow floats")
    return sink


@functools.cache
def _arithmetic_rules(operations: frozenset[Ops], known: frozenset[DType]) -> PatternMatcher:
    has_float64 = dtypes.float64 in known
    rules = constant_powers + remainders + absolutes + _replacements(operations)
    if has_float64:
        rules = PatternMatcher([(_binary(Ops.POW, dtypes.float32), wide_constant_power)]) + rules
    if Ops.POW not in operations:
        float32_power = power_in_float64 if has_float64 else power
        rules += PatternMatcher([(_binary(Ops.POW, dtypes.float32), float32_power)])
    if Ops.FDIV in operations:
        rules += divisions
    return rules + bool_arithmetic + power_of_two_divisions + shifts


@functools.cache
def _storage_rules(operations: frozenset[Ops], known: frozenset[DType]) -> PatternMatcher:
    unknown = [dtype for dtype in NARROW if dtype not in known]
    return as_integers(unknown) + _replacements(operations)


def _replacements(operations: frozenset[Ops]) -> PatternMatcher:
    rules = PatternMatcher([])
    for op, replacement in REPLACEMENTS.items():
        if op not in operations:
            rules += replacement
    return rules


def _unary(op: Ops, dtype: DType | tuple[DType, ...]) -> UPat:
    return UPat(op, dtype=dtype, src=(UPat.var("x"),))


def _binary(op: Ops, dtype: DType | tuple[DType, ...]) -> UPat:
    return UPat(op, dtype=dtype, src=(UPat.var("x"), UPat.var("y")))


constant_powers = PatternMatcher(
    [
        (_binary(Ops.POW, dtypes.floats), constant_power),
        (_binary(Ops.POW, INTEGERS), constant_integer_power),
    ]
)


# ---- conversions, rounding, comparisons ----


def _trunc(x: UOp) -> UOp:
    """Truncation through an integer, which keeps the sign of x in a zero; a float too large to have
    a fraction is unchanged.
    """
    integer = dtypes.int32 if x.dtype.scalar() is dtypes.float32 else dtypes.int64
    limit = 2.0 ** (dtypes.finfo(x.dtype)[1])
    has_fraction = (x < limit) & (x > -limit)
    # converting a number out of range is undefined, so it is replaced by 0
    safe = has_fraction.where(x, x.const_like(0))
    return has_fraction.where(copy_sign(safe.cast(integer).cast(x.dtype), x), x)


def _float_remainder(x: UOp, y: UOp) -> UOp | None:
    """A remainder of float32, or by a power of two; targets have that of float64."""
    divisor = splat_value(y)
    if divisor is not None and is_power_of_two(divisor):
        return remainder_by_power_of_two(x, float(divisor))
    return remainder(x, y, divisor) if x.dtype.scalar() is dtypes.float32 else None


def _is_negated(y: UOp, x: UOp) -> bool:
    is_negated = y.op is Ops.NEG or (y.op is Ops.MUL and splat_value(y.src[1]) == -1)
    return is_negated and y.src[0] is x


def _absolute(x: UOp, y: UOp) -> UOp | None:
    """The larger of `x` and `-x`, by its bits: of two zeros, the larger would be either."""
    return absolute(x) if _is_negated(y, x) else None


def _narrow_absolute(x: UOp, y: UOp) -> UOp | None:
    """The same in float32, where nothing is rounded."""
    if not _is_negated(y, x):
        return None
    return absolute(x.cast(dtypes.float32.vec(x.dtype.count))).cast(x.dtype)


def _float_maximum(x: UOp, y: UOp) -> UOp:
    """The maximum, NaN if either operand is NaN."""
    return ((x < y) | y.ne(y)).where(y, x)


ELEMENTARY: dict[Ops, Callable[[UOp], UOp]] = {
    Ops.EXP2: exp2,
    Ops.EXP: exp,
    Ops.EXPM1: expm1,
    Ops.LOG2: log2,
    Ops.LOG: log,
    Ops.LOG1P: log1p,
    Ops.SIN: sin,
    Ops.COS: cos,
    Ops.TAN: tan,
    Ops.ASIN: asin,
    Ops.ACOS: acos,
    Ops.ATAN: atan,
    Ops.SINH: sinh,
    Ops.COSH: cosh,
    Ops.TANH: tanh,
    Ops.ASINH: asinh,
    Ops.ACOSH: acosh,
    Ops.ATANH: atanh,
    Ops.ERF: erf,
    Ops.LOGISTIC: logistic,
    Ops.SOFTPLUS: softplus,
}

REPLACEMENTS: dict[Ops, PatternMatcher] = {
    **{op: PatternMatcher([(_unary(op, WIDE_FLOATS), f)]) for op, f in ELEMENTARY.items()},
    Ops.POW: PatternMatcher(
        [
            (_binary(Ops.POW, dtypes.float64), power),
            (_binary(Ops.POW, INTEGERS), integer_power),
        ]
    ),
    Ops.THREEFRY: PatternMatcher([(_binary(Ops.THREEFRY, dtypes.uint64), threefry)]),
    Ops.TRUNC: PatternMatcher([(_unary(Ops.TRUNC, WIDE_FLOATS), _trunc)]),
    Ops.MAX: PatternMatcher(
        [
            (_binary(Ops.MAX, WIDE_FLOATS), _float_maximum),
            (_binary(Ops.MAX, INTEGERS), lambda x, y: (x < y).where(y, x)),
        ]
    ),
    Ops.NEG: PatternMatcher([(UPat(Ops.NEG, src=(UPat.var("x"),)), lambda x: x * -1)]),
    Ops.SUB: PatternMatcher([(_binary(Ops.SUB, dtypes.all), lambda x, y: x + y * -1)]),
    Ops.RECIPROCAL: PatternMatcher(
        [(_unary(Ops.RECIPROCAL, WIDE_FLOATS), lambda x: x.const_like(1).alu(Ops.FDIV, x))]
    ),
    Ops.FDIV: PatternMatcher([(_binary(Ops.FDIV, WIDE_FLOATS), lambda x, y: x * y.reciprocal())]),
    Ops.CMPEQ: PatternMatcher(
        [(UPat(Ops.CMPEQ, src=(UPat.var("x"), UPat.var("y"))), lambda x, y: x.ne(y).logical_not())]
    ),
    Ops.MULACC: PatternMatcher(
        [
            (
                UPat(Ops.MULACC, src=(UPat.var("x"), UPat.var("y"), UPat.var("z"))),
                lambda x, y, z: x * y + z,
            )
        ]
    ),
}


def _divide(x: UOp, y: UOp) -> UOp | None:
    """x * (1 / y) as one division, unless 1 / y is invariant in a loop in which x varies."""
    if y.op is Ops.VECTORIZE and len(y.src) == 1:
        return None
    free = FreeRanges()
    return x.alu(Ops.FDIV, y) if free[x] <= free[y] else None


absolutes = PatternMatcher([(_binary(Ops.MAX, WIDE_FLOATS), _absolute)])
narrow_absolutes = PatternMatcher([(_binary(Ops.MAX, tuple(NARROW)), _narrow_absolute)])

remainders = PatternMatcher([(_binary(Ops.MOD, WIDE_FLOATS), _float_remainder)])

divisions = PatternMatcher(
    [
        (UPat(Ops.MUL, dtype=WIDE_FLOATS, src=[UPat.var("x"), inverse]), _divide)
        for inverse in (
            UPat.var("y").f(Ops.RECIPROCAL),
            UPat(Ops.FDIV, src=(UPat.const(None, 1.0), UPat.var("y"))),
        )
    ]
)

bool_arithmetic = PatternMatcher(
    [
        (_binary(Ops.ADD, dtypes.bool), lambda x, y: x | y),
        (_binary(Ops.MAX, dtypes.bool), lambda x, y: x | y),
        (_binary(Ops.MUL, dtypes.bool), lambda x, y: x & y),
        (
            UPat(Ops.CMPLT, src=(UPat.var("x", dtypes.bool), UPat.var("y", dtypes.bool))),
            lambda x, y: x.logical_not() & y,
        ),
    ]
)


def _shift(u: UOp, x: UOp, y: UOp) -> UOp | None:
    """A shift by any number as one by less than the width; the bits shifted in fill the rest."""
    width = x.dtype.itemsize * 8 // x.dtype.count
    if 0 <= y.vmin and y.vmax < width:
        return None
    within = y & (width - 1)
    fits = y.eq(within)
    if u.op is Ops.SHR and not dtypes.is_unsigned(x.dtype):
        return u.replace(src=(x, fits.where(within, y.const_like(width - 1))))
    return fits.where(u.replace(src=(x, within)), u.const_like(0))


shifts = PatternMatcher(
    [(UPat({Ops.SHL, Ops.SHR}, src=(UPat.var("x"), UPat.var("y")), name="u"), _shift)]
)


def _by_power_of_two(x: UOp, y: UOp, replacement: Callable[[UOp, int], UOp]) -> UOp | None:
    divisor = splat_value(y)
    if divisor is None or divisor <= 0 or int(divisor).bit_count() != 1 or x.vmin < 0:
        return None
    return replacement(x, int(divisor))


power_of_two_divisions = PatternMatcher(
    [
        (
            UPat(Ops.IDIV, src=(UPat.var("x"), UPat.var("y"))),
            lambda x, y: _by_power_of_two(x, y, lambda a, by: a >> (by.bit_length() - 1)),
        ),
        (
            _binary(Ops.MOD, INTEGERS),
            lambda x, y: _by_power_of_two(x, y, lambda a, by: a & (by - 1)),
        ),
    ]
)
