"""What the elementary functions share: polynomials, and floats taken apart into their bits.

Every function takes and gives expressions of one dtype, scalar or vector, and is free of branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


@dataclass(frozen=True)
class FloatLayout:
    """Where the bits of an IEEE float are: sign, exponent, `mantissa_bits` from the top down."""

    dtype: DType
    unsigned: DType
    signed: DType
    mantissa_bits: int
    bias: int

    @property
    def total_bits(self) -> int:
        """The width of the type."""
        return self.dtype.itemsize * 8

    @property
    def all_bits(self) -> int:
        """All bits as a mask."""
        return (1 << self.total_bits) - 1

    @property
    def sign_bit(self) -> int:
        """The sign as a mask."""
        return 1 << (self.total_bits - 1)

    @property
    def mantissa_mask(self) -> int:
        """The stored mantissa as a mask."""
        return (1 << self.mantissa_bits) - 1

    @property
    def exponent_mask(self) -> int:
        """The exponent and the sign as a mask."""
        return self.all_bits - self.mantissa_mask

    @property
    def round_to_integer(self) -> float:
        """What rounds a float of smaller magnitude when added: the sum's last bit counts 1.

        The sum's low bits then hold the integer. Nothing may reassociate such a sum.
        """
        return 1.5 * 2.0**self.mantissa_bits


LAYOUTS = {
    dtypes.float32: FloatLayout(dtypes.float32, dtypes.uint32, dtypes.int32, 23, 127),
    dtypes.float64: FloatLayout(dtypes.float64, dtypes.uint64, dtypes.int64, 52, 1023),
}


def layout_of(x: UOp) -> FloatLayout:
    """The bits of `x`, which is float32 or float64."""
    return LAYOUTS[x.dtype.scalar()]


def bits_of(x: UOp) -> UOp:
    """The bits of a float as an unsigned integer."""
    return x.bitcast(layout_of(x).unsigned.vec(x.dtype.count))


def float_of(bits: UOp, layout: FloatLayout) -> UOp:
    """The float of these bits."""
    return bits.bitcast(layout.dtype.vec(bits.dtype.count))


def subtract(a: UOp, b: UOp | float) -> UOp:
    """`a - b` as one operation; the operator `-` multiplies by -1, which no unsigned type has."""
    return a.alu(Ops.SUB, a.ufix(b))


def divide(a: UOp, b: UOp) -> UOp:
    """`a / b`, rounded once."""
    return a.alu(Ops.FDIV, b)


def absolute(x: UOp) -> UOp:
    """`x` without its sign."""
    layout = layout_of(x)
    return float_of(bits_of(x) & (layout.sign_bit - 1), layout)


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """`c0 + c1 x + c2 x**2 + ...` by Horner's rule: one multiplication and addition a degree."""
    result = x.const_like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result
