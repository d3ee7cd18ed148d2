"""Floats narrower than 32 bits: arithmetic in float32, conversions in integer arithmetic.

Before: arithmetic on float16, bfloat16 or an 8-bit float. After: these dtypes are only moved and
converted; each operation is computed in float32 and rounded. A dtype that the target lacks is
stored as an unsigned integer of its width, and converted by integer arithmetic, to nearest with
ties to even, as `FloatFormat` specifies.

During rewriting, a value of a dtype that the target lacks is `BITCAST(dtype, integer)`. Loads,
stores, moves and conversions cancel the BITCAST.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tinygrad.codegen.decompose.float_math import splat_value
from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.dtype.float_format import BFLOAT16, FloatFormat
from tinygrad.dtype.values import FORMATS
from tinygrad.renderer import pointer_of
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import PatternMatcher
from tinygrad.uop.upat import UPat

NARROW = (*dtypes.fp8s, dtypes.float16, dtypes.bfloat16)
STORAGE = {8: dtypes.uint8, 16: dtypes.uint16}
FLOAT32_INFINITY = 0x7F80_0000
FLOAT32_MINUS_NAN = 0xFFC0_0000
FLOAT32_MANTISSA = 23
FLOAT32_BIAS = 127

# WHERE moves values and computes none
_COMPUTING = (GroupOp.ALU - GroupOp.Comparison - {Ops.WHERE}) | {Ops.REDUCE}
_EXACT = frozenset({Ops.MAX, Ops.NEG, Ops.TRUNC})


def compute_wide(sink: UOp, known: Collection[DType]) -> UOp:
    """Arithmetic on narrow floats in float32; each result is rounded, unless that changes nothing.

    `known` are the dtypes of the target.
    """
    lowering = _WideArithmetic(known)
    done: dict[UOp, UOp] = {}
    for u in sink.toposort():
        done[u] = lowering.lowered(u.with_sources(tuple([done[x] for x in u.src])))
    return done[sink]


class _WideArithmetic:
    """Lowers the nodes of one kernel, sources first."""

    def __init__(self, known: Collection[DType]) -> None:
        self.known = known
        # the float32 values of narrow nodes that were computed, and are exact
        self.exact: dict[UOp, UOp] = {}
        # the products of narrow nodes that round them
        self.products: dict[UOp, UOp] = {}
        # terms of float32 sums without the rounding of a product
        self.unrounded: dict[UOp, UOp] = {}

    def lowered(self, u: UOp) -> UOp:
        """The node, computed in float32 if any of its sources is narrow."""
        if u.op in _COMPUTING and _is_narrow(u):
            return self.compute(u)
        if u.op in GroupOp.Comparison and _is_narrow(u.src[0]):
            return u.replace(src=tuple(map(self.wide, u.src)))
        if u.op is Ops.WHERE and (u.src[1] in self.exact or u.src[2] in self.exact):
            condition, *values = u.src
            return self.rounded(condition.where(*map(self.wide, values)), u.dtype)
        if u.op is Ops.CAST and u.src[0] in self.exact:
            return self.exact[u.src[0]].cast(u.dtype)
        if u.op is Ops.STORE:
            return self.add_exactly(u)
        self.find_unrounded(u)
        return u

    def wide(self, x: UOp) -> UOp:
        """The float32 value of a narrow node; other nodes unchanged."""
        found = self.exact.get(x)
        if found is not None:
            return found
        return x.cast(dtypes.float32.vec(x.dtype.count)) if _is_narrow(x) else x

    def compute(self, u: UOp) -> UOp:
        """An op on narrow floats, computed in float32 and rounded."""
        value = UOp(u.op, dtypes.float32.vec(u.dtype.count), tuple(map(self.wide, u.src)), u.arg)
        if _is_exact(u):
            return self.rounded(value, u.dtype)
        result = value.cast(u.dtype)
        if u.op is Ops.MUL:
            self.products[result] = value
        return result

    def rounded(self, value: UOp, dtype: DType) -> UOp:
        """A float32 value that the narrow dtype represents exactly, in that dtype."""
        if dtype.scalar() is dtypes.bfloat16 and dtypes.bfloat16 not in self.known:
            word, half = (x.vec(dtype.count) for x in (dtypes.uint32, dtypes.uint16))
            result = (value.bitcast(word) >> 16).cast(half).bitcast(dtype)
        else:
            result = value.cast(dtype)
        self.exact[result] = value
        return result

    def find_unrounded(self, u: UOp) -> None:
        """Note the float32 form of a term of a sum, or of terms of which it selects one, without
        the rounding of a product.
        """
        if u.op is Ops.CAST and u.dtype.scalar() is dtypes.float32 and u.src[0] in self.products:
            self.unrounded[u] = self.products[u.src[0]]
        elif u.op is Ops.WHERE or (u.op is Ops.REDUCE and u.arg is Ops.ADD):
            src = tuple([self.unrounded.get(x, x) for x in u.src])
            if src != u.src:
                self.unrounded[u] = u.replace(src=src)

    def add_exactly(self, update: UOp) -> UOp:
        """A product of two narrow floats is exact in float32, so a float32 sum takes it unrounded.

        Matrix units do the same. It saves two conversions per product. Other readers of a product
        see it rounded.
        """
        accumulator, total = update.src[:2]
        if total.op is not Ops.ADD or total.dtype.scalar() is not dtypes.float32:
            return update
        memory = pointer_of(accumulator)
        if isinstance(memory.dtype, PtrDType) and memory.dtype.addrspace is AddrSpace.GLOBAL:
            return update
        for side, term in enumerate(total.src):
            other = total.src[1 - side]
            if other.op is Ops.LOAD and pointer_of(other.src[0]) is memory:
                new = total.replace(src=(other, self.unrounded.get(term, term)))
                return update.replace(src=(accumulator, new, *update.src[2:]))
        return update


def _is_narrow(x: UOp) -> bool:
    return x.dtype.scalar() in NARROW


def _is_exact(u: UOp) -> bool:
    """Whether a narrow dtype represents the result of an op on numbers of that dtype."""
    if u.op is Ops.REDUCE:
        return u.arg is Ops.MAX
    if FORMATS[u.dtype.scalar()].is_fnuz:
        # other ops of these give -0.0, which it lacks
        return u.op is Ops.MAX
    return u.op in _EXACT or (u.op is Ops.MUL and any(splat_value(x) == -1 for x in u.src))


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
    if form.is_fnuz:
        result = wide.eq(form.nan_bits).where(wide.const_like(FLOAT32_MINUS_NAN), result)
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
    if form.is_fnuz:
        sign = result.eq(0).where(sign.const_like(0), sign)
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
