"""Building blocks of elementary functions: polynomials and the bits of IEEE floats.

Arguments and results are expressions of one dtype, scalar or vector. No function branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


@dataclass(frozen=True)
class FloatFields:
    """The bit fields of an IEEE float: sign, exponent, mantissa, from the most significant on."""

    dtype: DType
    unsigned: DType
    signed: DType
    mantissa_bits: int
    bias: int

    @property
    def total_bits(self) -> int:
        """The width of the dtype."""
        return self.dtype.itemsize * 8

    @property
    def all_bits(self) -> int:
        """The mask of all bits."""
        return (1 << self.total_bits) - 1

    @property
    def sign_bit(self) -> int:
        """The mask of the sign."""
        return 1 << (self.total_bits - 1)

    @property
    def mantissa_mask(self) -> int:
        """The mask of the stored mantissa."""
        return (1 << self.mantissa_bits) - 1

    @property
    def exponent_mask(self) -> int:
        """The mask of the exponent and the sign."""
        return self.all_bits - self.mantissa_mask

    @property
    def round_to_integer(self) -> float:
        """The number that rounds a small float to an integer when added: the sum has ulp 1.

        The low bits of the sum hold the integer. The sum must not be reassociated.
        """
        return 1.5 * 2.0**self.mantissa_bits


FLOAT_FIELDS = {
    dtypes.float32: FloatFields(dtypes.float32, dtypes.uint32, dtypes.int32, 23, 127),
    dtypes.float64: FloatFields(dtypes.float64, dtypes.uint64, dtypes.int64, 52, 1023),
}


def float_fields(x: UOp) -> FloatFields:
    """The bit fields of `x`, which is float32 or float64."""
    return FLOAT_FIELDS[x.dtype.scalar()]


def bits_of(x: UOp) -> UOp:
    """The bits of a float as an unsigned integer."""
    return x.bitcast(float_fields(x).unsigned.vec(x.dtype.count))


def float_of(bits: UOp, fields: FloatFields) -> UOp:
    """The float of these bits."""
    return bits.bitcast(fields.dtype.vec(bits.dtype.count))


def subtract(a: UOp | float, b: UOp | float) -> UOp:
    """`a - b` as one SUB; the operator `-` multiplies by -1, which unsigned dtypes lack."""
    if isinstance(a, UOp):
        return a.alu(Ops.SUB, a.ufix(b))
    assert isinstance(b, UOp)
    return b.const_like(a).alu(Ops.SUB, b)


def absolute(x: UOp) -> UOp:
    """`abs(x)`, by clearing the sign bit."""
    fields = float_fields(x)
    return float_of(bits_of(x) & (fields.sign_bit - 1), fields)


def copy_sign(magnitude: UOp, sign: UOp) -> UOp:
    """A `magnitude` that is positive, or has the sign already, with the sign of `sign`."""
    fields = float_fields(sign)
    return float_of(bits_of(magnitude) | (bits_of(sign) & fields.sign_bit), fields)


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """`c0 + c1 x + c2 x**2 + ...` by Horner's rule."""
    result = x.const_like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def splat_value(x: UOp) -> int | float | None:
    """The constant value of all lanes of `x`, or None."""
    if x.op is Ops.VECTORIZE and len(set(x.src)) == 1:
        return splat_value(x.src[0])
    if x.op is not Ops.CONST:
        return None
    if isinstance(x.arg, tuple):
        return x.arg[0] if len(set(x.arg)) == 1 else None
    value: int | float = x.arg
    return value
