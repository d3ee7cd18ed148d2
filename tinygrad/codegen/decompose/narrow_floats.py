"""Floats narrower than 32 bits: arithmetic in float32, conversions in integer arithmetic.

Before: arithmetic on float16, bfloat16 or an 8-bit float. After: these dtypes are only moved and
converted; each operation is computed in float32 and rounded. A dtype that the target lacks is
stored as an unsigned integer of its width, and converted by integer arithmetic, to nearest with
ties to even, as `FloatFormat` specifies.

During rewriting, a value of a dtype that the target lacks is `BITCAST(dtype, integer)`. Loads,
stores, moves and conversions cancel the BITCAST.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.dtype.float_format import BFLOAT16, FLOAT16, FP8E4M3, FP8E5M2, FloatFormat
from tinygrad.renderer import pointer_of
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import PatternMatcher
from tinygrad.uop.upat import UPat

NARROW = (*dtypes.fp8s, dtypes.float16, dtypes.bfloat16)
FORMATS = {
    dtypes.fp8e4m3: FP8E4M3,
    dtypes.fp8e5m2: FP8E5M2,
    dtypes.float16: FLOAT16,
    dtypes.bfloat16: BFLOAT16,
}
STORAGE = {8: dtypes.uint8, 16: dtypes.uint16}
FLOAT32_INFINITY = 0x7F80_0000
FLOAT32_MANTISSA = 23
FLOAT32_BIAS = 127

# WHERE moves values and computes none
_COMPUTING = GroupOp.ALU - GroupOp.Comparison - {Ops.WHERE}


def _widen(x: UOp) -> UOp:
    return x.cast(dtypes.float32) if x.dtype.scalar() in NARROW else x


def _compute_wide(u: UOp) -> UOp:
    """An op on narrow floats, computed in float32 and rounded."""
    src = tuple(_widen(x) for x in u.src)
    is_narrow = u.dtype.scalar() in NARROW
    dtype = dtypes.float32.vec(u.dtype.count) if is_narrow else u.dtype
    return UOp(u.op, dtype, src, u.arg).cast(u.dtype)


def _add_exactly(update: UOp, accumulator: UOp, total: UOp) -> UOp | None:
    """A product of two narrow floats is exact in float32, so a float32 sum takes it unrounded.

    Matrix units do the same. It saves two conversions per product. Other readers of a product see
    it rounded.
    """
    memory = pointer_of(accumulator)
    if isinstance(memory.dtype, PtrDType) and memory.dtype.addrspace is AddrSpace.GLOBAL:
        return None
    for side, term in enumerate(total.src):
        other = total.src[1 - side]
        if other.op is Ops.LOAD and pointer_of(other.src[0]) is memory:
            exact = _unrounded(term)
            new = total.replace(src=(other, exact))
            return (
                None if exact is term else update.replace(src=(accumulator, new, *update.src[2:]))
            )
    return None


def _unrounded(term: UOp) -> UOp:
    """A term of a float32 sum, or the terms of which it selects one, without the rounding of a
    product; itself if it is no product of narrow floats.
    """
    if term.op is Ops.WHERE or (term.op is Ops.REDUCE and term.arg is Ops.ADD):
        src = tuple(x if x.dtype is not term.dtype else _unrounded(x) for x in term.src)
        return term if src == term.src else term.replace(src=src)
    if term.op is not Ops.CAST or term.src[0].op is not Ops.CAST:
        return term
    product = term.src[0].src[0]
    if product.op is not Ops.MUL or product.dtype is not term.dtype:
        return term
    factors = (x.op is Ops.CAST and x.src[0].dtype.scalar() in NARROW for x in product.src)
    return product if all(factors) else term


wide_arithmetic = PatternMatcher(
    [
        (UPat(_COMPUTING | {Ops.REDUCE}, dtype=NARROW, name="u"), _compute_wide),
        (UPat(GroupOp.Comparison, src=(UPat(dtype=NARROW), UPat()), name="u"), _compute_wide),
        (
            UPat(
                Ops.STORE,
                src=(
                    UPat(name="accumulator"),
                    UPat(Ops.ADD, dtype=dtypes.float32, name="total"),
                ),
                name="update",
                allow_any_len=True,
            ),
            _add_exactly,
        ),
    ]
)


def decode(bits: UOp, form: FloatFormat) -> UOp:
    """The float32 values of the bits of a format, given as unsigned integers."""
    word, float32 = (x.vec(bits.dtype.count) for x in (dtypes.uint32, dtypes.float32))
    wide = bits.cast(word)
    if form is BFLOAT16:
        return (wide << 16).bitcast(float32)
    sign = (wide & (1 << (form.total_bits - 1))) << (32 - form.total_bits)
    magnitude = wide & ((1 << (form.total_bits - 1)) - 1)
    # with the mantissa aligned, only the exponent bias differs
    aligned = magnitude << (FLOAT32_MANTISSA - form.mantissa_bits)
    normal = aligned + ((FLOAT32_BIAS - form.bias) << FLOAT32_MANTISSA)
    # a subnormal is converted: some GPUs take subnormals of float32 for zero
    steps = magnitude.bitcast(dtypes.int32.vec(word.count)).cast(float32)
    subnormal = (steps * 2.0 ** (1 - form.bias - form.mantissa_bits)).bitcast(word)
    finite = (magnitude < (1 << form.mantissa_bits)).where(subnormal, normal)
    is_finite = magnitude < form.overflow_bits
    result = is_finite.where(finite, finite | FLOAT32_INFINITY) | sign
    return result.bitcast(float32)


def encode(x: UOp, form: FloatFormat) -> UOp:
    """The bits of float32 values rounded to a format, as unsigned integers of its width."""
    bits = x.bitcast(dtypes.uint32.vec(x.dtype.count))
    if form is BFLOAT16:
        return _encode_bfloat(x, bits)
    magnitude = bits & 0x7FFF_FFFF
    sign = (bits & 0x8000_0000) >> (32 - form.total_bits)
    limit, infinity = (bits.const_like(x) for x in (form.limit_bits, form.overflow_bits))
    rounded = _round(magnitude, form)
    result = (limit < rounded).where(limit, rounded)
    if form.saturates and form.has_infinity:
        result = magnitude.eq(FLOAT32_INFINITY).where(infinity, result)
    first_nan = FLOAT32_INFINITY + form.has_infinity
    result = (magnitude < first_nan).where(result, bits.const_like(form.nan_bits))
    return (result | sign).cast(STORAGE[form.total_bits])


def _encode_bfloat(x: UOp, bits: UOp) -> UOp:
    upper = bits >> 16
    # adding just under half an ulp carries exactly where the result rounds up
    rounded = (bits + (upper & 1) + 0x7FFF) >> 16
    return x.ne(x).where(upper | BFLOAT16.nan_bits, rounded).cast(STORAGE[16])


def _round(magnitude: UOp, form: FloatFormat) -> UOp:
    """The rounded bits of a float32 magnitude, possibly past the largest finite number."""
    float32 = dtypes.float32.vec(magnitude.dtype.count)
    shift = FLOAT32_MANTISSA - form.mantissa_bits
    rebias = (FLOAT32_BIAS - form.bias) << FLOAT32_MANTISSA
    odd = (magnitude >> shift) & 1
    offset = (1 << 32) - rebias + (1 << (shift - 1)) - 1
    normal = (magnitude + odd + offset) >> shift
    # the ulp of this float is the smallest subnormal of the format, so the sum is rounded to it
    rounder = magnitude.bitcast(float32).const_like(2.0 ** (1 - form.bias + shift))
    total = (magnitude.bitcast(float32) + rounder).bitcast(magnitude.dtype)
    subnormal = total.alu(Ops.SUB, rounder.bitcast(magnitude.dtype))
    return (magnitude < rebias + (1 << FLOAT32_MANTISSA)).where(subnormal, normal)


@dataclass(frozen=True)
class _Storage:
    """The rewrites of one dtype that the target lacks."""

    dtype: DType

    @property
    def form(self) -> FloatFormat:
        return FORMATS[self.dtype]

    def stored(self, dtype: DType) -> DType:
        """The integer dtype that replaces this dtype, its vectors and its pointers."""
        integer = STORAGE[self.form.total_bits].vec(dtype.count)
        if isinstance(dtype, PtrDType):
            return integer.ptr(dtype.size, dtype.addrspace).vec(dtype.vcount)
        return integer

    def bits(self, x: UOp) -> UOp:
        """The integer bits of `x`; a value of another dtype is unchanged."""
        if x.dtype.scalar() is not self.dtype or isinstance(x.dtype, PtrDType):
            return x
        return x.bitcast(self.stored(x.dtype))

    def pointer(self, u: UOp) -> UOp | None:
        """A pointer to integers."""
        return u.replace(dtype=self.stored(u.dtype)) if isinstance(u.dtype, PtrDType) else None

    def move(self, u: UOp) -> UOp | None:
        """An op that moves values moves the integers."""
        if isinstance(u.dtype, PtrDType):
            return self.pointer(u)
        src = tuple(self.bits(x) for x in u.src)
        return UOp(u.op, self.stored(u.dtype), src, u.arg).bitcast(u.dtype)

    def store(self, u: UOp) -> UOp:
        """A store of the integer."""
        return u.replace(src=(u.src[0], self.bits(u.src[1]), *u.src[2:]))

    def constant(self, u: UOp) -> UOp:
        """The bits of a constant."""
        values = u.arg if isinstance(u.arg, tuple) else (u.arg,)
        bits = tuple(self.form.encode(value) for value in values)
        arg = bits if isinstance(u.arg, tuple) else bits[0]
        return UOp(Ops.CONST, self.stored(u.dtype), (), arg).bitcast(u.dtype)

    def from_type(self, u: UOp) -> UOp:
        """A conversion from this dtype."""
        return decode(self.bits(u.src[0]), self.form).cast(u.dtype)

    def to_type(self, u: UOp) -> UOp:
        """A conversion to this dtype, through float32."""
        return encode(u.src[0].cast(dtypes.float32), self.form).bitcast(u.dtype)


def _bitcast_twice(u: UOp, x: UOp) -> UOp:
    return x.src[0].bitcast(u.dtype)


def as_integers(missing: Iterable[DType]) -> PatternMatcher:
    """The rules that store values of these dtypes as integers."""
    rules = PatternMatcher([])
    for dtype in missing:
        storage = _Storage(dtype)
        moving = {Ops.WHERE, Ops.VECTORIZE, Ops.GEP, Ops.LOAD, Ops.AFTER, Ops.STAGE}
        pointing = {Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.DEFINE_REG, Ops.INDEX}
        rules = rules + PatternMatcher(
            [
                (UPat(Ops.BITCAST, src=(UPat(Ops.BITCAST, name="x"),), name="u"), _bitcast_twice),
                (UPat(Ops.CAST, src=(UPat(dtype=dtype),), name="u"), storage.from_type),
                (UPat(Ops.CAST, dtype=dtype, name="u"), storage.to_type),
                (UPat(Ops.CONST, dtype=dtype, name="u"), storage.constant),
                (UPat(pointing, dtype=dtype, name="u"), storage.pointer),
                (UPat(moving, dtype=dtype, name="u"), storage.move),
                (
                    UPat(Ops.STORE, src=(UPat(), UPat(dtype=dtype)), name="u", allow_any_len=True),
                    storage.store,
                ),
            ]
        )
    return rules
