"""Floating-point formats narrower than a Python float: values to bits and back, exactly rounded.

Input: Python floats, or numpy arrays of float32. Output: the numbers rounded to the format (to
nearest, ties to even, with subnormals), or their bits. Invariants: `encode(decode(bits))` is `bits`
for all bits but those of a NaN, and arrays and scalars agree. Overflow becomes infinity, as in IEEE
754, but saturates in the 8-bit formats, whose range is small; OCP's specification allows both. An
infinity is NaN in a format without infinities. The formats called fnuz have one zero and one NaN,
the bits of -0.0 in others (https://arxiv.org/abs/2206.02915).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class FloatFormat:
    """A sign bit, `exponent_bits`, `mantissa_bits`; subnormals; a NaN, and infinities or not.

    A saturating format maps overflow to its largest finite number.
    """

    exponent_bits: int
    mantissa_bits: int
    has_infinity: bool = True
    saturates: bool = False
    is_fnuz: bool = False

    @property
    def total_bits(self) -> int:
        """The width of the format."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @functools.cached_property
    def bias(self) -> int:
        """The exponent bias."""
        return int(2 ** (self.exponent_bits - 1) - 1) + self.is_fnuz

    @functools.cached_property
    def overflow_bits(self) -> int:
        """The first bits, without the sign, that are not finite: infinity, or the only NaN."""
        if self.is_fnuz:
            return 1 << (self.total_bits - 1)
        all_ones = (1 << (self.total_bits - 1)) - 1
        return (
            (all_ones >> self.mantissa_bits) << self.mantissa_bits
            if self.has_infinity
            else all_ones
        )

    @functools.cached_property
    def limit_bits(self) -> int:
        """The bits, without the sign, of overflow."""
        return self.overflow_bits - self.saturates

    @functools.cached_property
    def nan_bits(self) -> int:
        """The bits of the quiet NaN."""
        if not self.has_infinity:
            return self.overflow_bits
        return self.overflow_bits | (1 << (self.mantissa_bits - 1))

    @property
    def minus_zero_bits(self) -> int:
        """The bits of -0.0 of a format that has none, else 0."""
        return self.nan_bits if self.is_fnuz else 0

    def encode(self, value: float) -> int:
        """The bits of `value`, rounded."""
        sign = (math.copysign(1.0, value) < 0) << (self.total_bits - 1)
        if math.isnan(value):
            return sign | self.nan_bits
        if math.isinf(value):
            return sign | self.overflow_bits
        if value == 0:
            return sign & ~self.minus_zero_bits
        # |value| = fraction * 2**exponent with 0.5 <= fraction < 1; below 1 - bias it is subnormal
        exponent = max(math.frexp(value)[1] - 1, 1 - self.bias)
        # scaled so that the last mantissa bit counts 1; Python rounds halves to even
        steps = round(math.ldexp(abs(value), self.mantissa_bits - exponent))
        # a subnormal has no implicit bit, and rounding up to the next power carries by itself
        bits = min(steps + ((exponent + self.bias - 1) << self.mantissa_bits), self.limit_bits)
        return bits | sign if bits else sign & ~self.minus_zero_bits

    def decode(self, bits: int) -> float:
        """The value of `bits`, exact in a Python float."""
        if self.is_fnuz and bits == self.nan_bits:
            return -math.nan
        magnitude = bits & ((1 << (self.total_bits - 1)) - 1)
        sign = -1.0 if bits >> (self.total_bits - 1) else 1.0
        if magnitude >= self.overflow_bits:
            infinite = self.has_infinity and magnitude == self.overflow_bits
            return math.copysign(math.inf if infinite else math.nan, sign)
        stored_exponent, mantissa = divmod(magnitude, 1 << self.mantissa_bits)
        implicit = (1 << self.mantissa_bits) if stored_exponent else 0
        exponent = max(stored_exponent, 1) - self.bias - self.mantissa_bits
        return sign * math.ldexp(implicit + mantissa, exponent)

    def round(self, value: Any) -> float:
        """The nearest value of the format."""
        try:
            return self.decode(self.encode(float(value)))
        except OverflowError:  # an integer out of the range of float
            return math.copysign(self.decode(self.limit_bits), 1 if value > 0 else -1)

    def encode_array(self, values: Array) -> Array:
        """The bits of float32 `values`, of any shape, in the unsigned type of the format's width.

        Wider floats are rounded to float32 first, as numpy and ml_dtypes do. Only for bfloat16 and
        the 8-bit formats; numpy has the others.
        """
        import numpy

        source = numpy.asarray(values, dtype=numpy.float32)
        return (
            self._encode_upper_half(source) if self.total_bits == 16 else self._encode_bytes(source)
        )

    def decode_array(self, stored: Array) -> Array:
        """The float32 values of an array of bits, of any shape. The inverse of `encode_array`."""
        import numpy

        if self.total_bits == 8:
            return numpy.take(self._decoded_bytes, stored)
        widened: Array = numpy.left_shift(stored, 16, dtype=numpy.uint32)
        return widened.view(numpy.float32)

    def _encode_upper_half(self, source: Array) -> Array:
        """For bfloat16, which is the upper half of a float32."""
        import numpy

        assert self == BFLOAT16, "numpy has the other format of 16 bits"
        bits = source.view(numpy.uint32)
        upper: Array = bits >> 16
        # adding just under a half carries into the upper half exactly where rounding goes up
        rounded = (bits + (upper & 1) + 0x7FFF) >> 16
        nan = (upper & 0x8000) | self.nan_bits
        return numpy.where(numpy.isnan(source), nan, rounded).astype(numpy.uint16)

    def _encode_bytes(self, source: Array) -> Array:
        """For the 8-bit formats: `encode` in numpy, and float64 is exact for it."""
        import numpy

        magnitude = numpy.abs(numpy.where(numpy.isfinite(source), source, 0), dtype=numpy.float64)
        # zero gets the minimum exponent
        exponent = numpy.frexp(numpy.maximum(magnitude, 2.0 ** (1 - self.bias)))[1] - 1
        steps = numpy.rint(numpy.ldexp(magnitude, self.mantissa_bits - exponent))
        bits = steps.astype(numpy.int64) + ((exponent + (self.bias - 1)) << self.mantissa_bits)
        bits = numpy.minimum(bits, self.limit_bits)
        bits = numpy.where(numpy.isinf(source), self.overflow_bits, bits)
        bits = numpy.where(numpy.isnan(source), self.nan_bits, bits)
        is_negative = numpy.signbit(source) & ((bits != 0) | (not self.is_fnuz))
        encoded: Array = (bits | (is_negative.astype(numpy.int64) << 7)).astype(numpy.uint8)
        return encoded

    @functools.cached_property
    def _decoded_bytes(self) -> Array:
        """The values of all 256 bytes."""
        import numpy

        return numpy.array([self.decode(bits) for bits in range(256)], dtype=numpy.float32)


FP8E4M3 = FloatFormat(4, 3, has_infinity=False, saturates=True)
FP8E5M2 = FloatFormat(5, 2, saturates=True)
FP8E4M3FNUZ = FloatFormat(4, 3, has_infinity=False, saturates=True, is_fnuz=True)
FP8E5M2FNUZ = FloatFormat(5, 2, has_infinity=False, saturates=True, is_fnuz=True)
FLOAT16 = FloatFormat(5, 10)
BFLOAT16 = FloatFormat(8, 7)
FLOAT32 = FloatFormat(8, 23)
