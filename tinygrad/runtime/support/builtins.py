"""LLVM IR of the conversions that LLVM calls by name where the CPU has no instruction for them.

Compilers take these from their own runtime library, which a Python process may not have loaded:
`__truncsfhf2` (float32 to float16), `__truncdfhf2` (float64 to float16) and `__extendhfsf2`
(float16 to float32). All round to nearest, ties to even, in one step, and keep infinities, NaNs and
subnormals.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE binary format: its LLVM name, the letters in builtin names, and its field widths."""

    llvm: str
    letters: str
    exponent_bits: int
    mantissa_bits: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        """The bits of plus infinity."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits


HALF = FloatFormat("half", "hf", 5, 10)
FLOAT = FloatFormat("float", "sf", 8, 23)
DOUBLE = FloatFormat("double", "df", 11, 52)


def _load_bits(source: FloatFormat) -> str:
    """IR that makes `%wide`, the bits of `%value` as a 64-bit integer."""
    if source.bits == 64:
        return f"  %wide = bitcast {source.llvm} %value to i64"
    return f"""  %narrow = bitcast {source.llvm} %value to i{source.bits}
  %wide = zext i{source.bits} %narrow to i64"""


def _truncate(source: FloatFormat, target: FloatFormat) -> str:
    """IR of `__trunc<source><target>2`, on 64-bit integers throughout."""
    shift = source.mantissa_bits - target.mantissa_bits
    half = 1 << (shift - 1)
    rebias = (source.bias - target.bias) << source.mantissa_bits
    # the first magnitude that is normal in the target
    underflow = rebias + (1 << source.mantissa_bits)
    overflow = rebias + (target.infinity << shift)
    quiet = 1 << (target.mantissa_bits - 1)
    return f"""
define {target.llvm} @__trunc{source.letters}{target.letters}2({source.llvm} %value) nounwind {{
{_load_bits(source)}
  %abs = and i64 %wide, {(1 << (source.bits - 1)) - 1}
  %sign.low = lshr i64 %wide, {source.bits - 1}
  %sign = shl i64 %sign.low, {target.bits - 1}

  ; normal numbers: subtract the difference of the biases, then round
  %rebiased = sub i64 %abs, {rebias}

  ; subnormal numbers: shift the significand down, or-ing what falls out into its lowest bit
  %exponent = lshr i64 %abs, {source.mantissa_bits}
  %fraction = and i64 %abs, {(1 << source.mantissa_bits) - 1}
  %significand = or i64 %fraction, {1 << source.mantissa_bits}
  %distance = sub i64 {source.bias - target.bias + 1}, %exponent
  %low = icmp slt i64 %distance, 1
  %least = select i1 %low, i64 1, i64 %distance
  %high = icmp sgt i64 %least, 63
  %count = select i1 %high, i64 63, i64 %least
  %shifted = lshr i64 %significand, %count
  %restored = shl i64 %shifted, %count
  %lost = icmp ne i64 %restored, %significand
  %sticky = zext i1 %lost to i64
  %denormal = or i64 %shifted, %sticky

  %is.normal = icmp uge i64 %abs, {underflow}
  %unrounded = select i1 %is.normal, i64 %rebiased, i64 %denormal
  %kept = lshr i64 %unrounded, {shift}
  %rest = and i64 %unrounded, {(1 << shift) - 1}
  %above = icmp ugt i64 %rest, {half}
  %tie = icmp eq i64 %rest, {half}
  %odd.bit = and i64 %kept, 1
  %odd = icmp ne i64 %odd.bit, 0
  %tie.up = and i1 %tie, %odd
  %up = or i1 %above, %tie.up
  %increment = zext i1 %up to i64
  %finite = add i64 %kept, %increment

  %payload.high = lshr i64 %fraction, {shift}
  %nan = or i64 %payload.high, {target.infinity | quiet}
  %is.nan = icmp ugt i64 %abs, {source.infinity}
  %is.large = icmp uge i64 %abs, {overflow}
  %bounded = select i1 %is.large, i64 {target.infinity}, i64 %finite
  %magnitude = select i1 %is.nan, i64 %nan, i64 %bounded
  %signed = or i64 %magnitude, %sign
  %short = trunc i64 %signed to i{target.bits}
  %result = bitcast i{target.bits} %short to {target.llvm}
  ret {target.llvm} %result
}}
"""


_EXTEND_HALF = """
define float @__extendhfsf2(half %value) nounwind {
  %narrow = bitcast half %value to i16
  %bits = zext i16 %narrow to i32
  %abs = and i32 %bits, 32767
  %sign.low = and i32 %bits, 32768
  %sign = shl i32 %sign.low, 16

  %aligned = shl i32 %abs, 13
  %normal = add i32 %aligned, 939524096        ; (127 - 15) << 23
  %special = or i32 %aligned, 2139095040       ; 255 << 23
  %count = uitofp i32 %abs to float
  %scaled = fmul float %count, 0x3E70000000000000   ; 2 ** -24, the smallest subnormal
  %subnormal = bitcast float %scaled to i32

  %is.special = icmp uge i32 %abs, 31744       ; 31 << 10
  %is.subnormal = icmp ult i32 %abs, 1024      ; 1 << 10
  %finite = select i1 %is.subnormal, i32 %subnormal, i32 %normal
  %magnitude = select i1 %is.special, i32 %special, i32 %finite
  %signed = or i32 %magnitude, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}
"""

BUILTINS_IR = _truncate(FLOAT, HALF) + _truncate(DOUBLE, HALF) + _EXTEND_HALF
