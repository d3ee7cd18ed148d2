"""Elementwise arithmetic of two tensors, and bitwise operations.

Input: tensors and Python numbers, which broadcast as in numpy and promote as in JAX: a number takes
the dtype of the tensor next to it, unless it is a float and the tensor is of integers; ValueError
for an integer that the dtype cannot hold. Output: tensors of the broadcast shape.
"""

from __future__ import annotations

import functools
from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype, least_upper_float
from tinygrad.errors import ArgumentError
from tinygrad.gradient import with_gradient
from tinygrad.mixin.core import TensorCore, check_tensors
from tinygrad.mixin.elementwise.division import (
    floor_division,
    floor_division_of_floats,
    gradient_of_remainder,
    gradient_of_truncated_remainder,
    quotient,
)
from tinygrad.mixin.elementwise.powers import constant_power, integer_power
from tinygrad.mixin.precision import in_float32
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.broadcast import (
    broadcast_node,
    broadcast_shape,
    const_node,
    fits_dtype,
    is_scalar,
    operand_node,
    operator_name,
)
from tinygrad.uop.device_value import is_file
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import computing_device, off_files, reshard_for_product

# numbers that change nothing, on either side
NEUTRAL = {Ops.ADD: 0, Ops.MUL: 1}
_NUMBERS = frozenset({int, float})


def broadcast_pair(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Two operands with a common shape; a scalar keeps its shape ()."""
    if is_scalar(b) or is_scalar(a):
        return a, b
    shape = broadcast_shape(a.shape, b.shape)
    return broadcast_node(a, shape), broadcast_node(b, shape)


def binary(op: Ops, a: UOp, b: UOp) -> UOp:
    """An elementwise op on two operands of one dtype, which are broadcast."""
    if b.op is not Ops.CONST and a.shape != b.shape:
        a, b = broadcast_pair(a, b)
    return a.alu(op, b)


def difference(a: UOp, b: UOp) -> UOp:
    """`a - b`, of operands of one dtype, which are broadcast."""
    if b.op is Ops.CONST and b.dtype is not dtypes.bool:
        return a.alu(Ops.ADD, const_node(-b.arg, b.dtype))
    if a.shape != b.shape:
        a, b = broadcast_pair(a, b)
    return a.alu(Ops.ADD, b.alu(Ops.MUL, operand_node(-1, b.dtype, "MUL")))


def product_to_sum(a: UOp, b: UOp, axes: tuple[int, ...]) -> UOp:
    """`a * b`, of one dtype, as the product of a contraction, which is then summed over `axes`."""
    if a.shape != b.shape:
        a, b = broadcast_pair(a, b)
    if a.device is not b.device:
        ndim = max(a.ndim, b.ndim)
        a, b = reshard_for_product((a, b), tuple([axis % ndim for axis in axes]))
    return a.alu(Ops.MUL, b)


class ArithmeticMixin(TensorCore):
    """`add`, `sub`, `mul`, `div`, `pow`, `bitwise_and`, and their like."""

    __slots__ = ()

    # ---- operands ----

    def _operands(self, x: Any, reverse: bool, op: str) -> tuple[UOp, UOp]:
        """Both operands, in order, with a common dtype and shape; a scalar keeps its shape ()."""
        a, b = self.uop, self._operand(x, op)
        if a.dtype is not b.dtype:
            dtype = least_upper_dtype(a.dtype, b.dtype)
            a, b = off_files(a, b)
            a, b = a.cast(dtype), b.cast(dtype)
        if b.op is not Ops.CONST and a.shape != b.shape:
            a, b = broadcast_pair(a, b)
        return (b, a) if reverse else (a, b)

    def _result(self, node: UOp, x: Any) -> Self:
        """The result of an elementwise operation on this tensor and `x`, which is no view."""
        wanted = self._requires_grad
        if not wanted and isinstance(x, TensorCore) and x._requires_grad is not False:
            wanted = x._requires_grad
        return self._with_state(node, wanted)

    def _is_unchanged_by(self, x: Any, neutral: int) -> bool:
        """Whether the number `x` is the `neutral` one of an operation, which keeps this dtype.

        The result is this value then, in the same memory. A negative zero stays one: `-0.0 + 0`.
        """
        if x != neutral or is_file(self.uop.device):
            return False
        dtype = self.uop.dtype
        return dtypes.is_float(dtype) or (x.__class__ is int and dtype is not dtypes.bool)

    def _binary(self, op: Ops, x: Any, reverse: bool = False) -> Self:
        if x.__class__ in _NUMBERS and op in NEUTRAL and self._is_unchanged_by(x, NEUTRAL[op]):
            return self._derive(self.uop)
        a, b = self._operands(x, reverse, op.name)
        return self._result(a.alu(op, b), x)

    def _product_to_sum(self, x: Self, axes: tuple[int, ...]) -> Self:
        """`self * x` as the product of a contraction, which is then summed over `axes`."""
        a, b = self._operands(x, False, Ops.MUL.name)
        return self._result(product_to_sum(a, b, axes), x)

    def alu(self, op: Ops, *src: Self) -> Self:
        """Apply the elementwise op `op` to this tensor and `src`, broadcast but not promoted.

        Raises TypeError for another op.

        >>> Tensor([1, 2]).alu(Ops.ADD, Tensor([3])).tolist()
        [4, 5]
        """
        if not isinstance(op, Ops) or op not in GroupOp.ALU:
            raise TypeError(f"alu takes an elementwise op such as Ops.ADD, not {op!r}")
        for x in src:
            check_tensors("alu", operand=x)
        shape = broadcast_shape(self.shape, *(x.shape for x in src))
        first, *rest = [broadcast_node(x.uop, shape) for x in (self, *src)]
        return self._derive(first.alu(op, *rest), *src)

    def ufix(self, x: Any) -> Self:
        """`x` as a tensor; a number takes the dtype that it has next to this tensor.

        >>> Tensor([1.5]).ufix(2).dtype
        dtypes.float
        """
        if isinstance(x, type(self)):
            return x
        return self._new(self._operand(x, "ufix"), False)

    def const_like(self, b: Any) -> Self:
        """A tensor of this shape, dtype and device, filled with the number `b`.

        >>> Tensor([1.5, 2.5]).const_like(3).tolist()
        [3.0, 3.0]
        """
        node = broadcast_node(const_node(b, self.dtype), self.shape)
        device = computing_device(self.uop.device)
        return self._new(node if device is None else node.copy_to_device(device), False)

    # ---- arithmetic ----

    def add(self, x: Any, reverse: bool = False) -> Self:
        """Addition: `self + x`.

        >>> Tensor([1, 2]).add(Tensor([[10], [20]])).tolist()
        [[11, 12], [21, 22]]
        """
        return self._binary(Ops.ADD, x, reverse)

    def sub(self, x: Any, reverse: bool = False) -> Self:
        """Subtraction: `self - x`; with `reverse`, `x - self`.

        >>> Tensor([1, 2]).sub(3).tolist()
        [-2, -1]
        """
        if not reverse and x.__class__ in _NUMBERS and self._is_unchanged_by(x, 0):
            return self._derive(self.uop)
        a, b = self._operands(x, reverse, "SUB")
        return self._result(difference(a, b), x)

    def mul(self, x: Any, reverse: bool = False) -> Self:
        """Multiplication: `self * x`.

        >>> Tensor([1, 2]).mul(2.5).tolist()
        [2.5, 5.0]
        """
        return self._binary(Ops.MUL, x, reverse)

    def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """True division: `self / x`, of integers in the default float type.

        `rounding_mode` "trunc" rounds toward zero, "floor" down; integers then stay integers.
        Raises RuntimeError for another mode.

        >>> Tensor([1, 4, 10]).div(4).tolist()
        [0.25, 1.0, 2.5]
        >>> Tensor([-7, 7]).div(2, rounding_mode="floor").tolist()
        [-4, 3]
        """
        if rounding_mode not in (None, "trunc", "floor"):
            raise ArgumentError(f'rounding_mode={rounding_mode!r} is not None, "trunc" or "floor"')
        is_float = rounding_mode is None and dtypes.is_float(self.uop.dtype)
        if is_float and not reverse and x.__class__ in _NUMBERS and self._is_unchanged_by(x, 1):
            return self._derive(self.uop)
        if rounding_mode is None and isinstance(x, int):
            x = float(x)
        a, b = self._operands(x, reverse, "DIV")
        if rounding_mode is not None and not dtypes.is_float(a.dtype):
            rounded = floor_division(a, b) if rounding_mode == "floor" else a.alu(Ops.IDIV, b)
            return self._result(rounded, x)
        dtype = least_upper_float(a.dtype)
        a, b = a.cast(dtype), b.cast(dtype)
        if rounding_mode == "floor":
            return self._result(floor_division_of_floats(a, b), x)
        exact = quotient(a, b)
        return self._result(exact.alu(Ops.TRUNC) if rounding_mode else exact, x)

    def idiv(self, x: Any, reverse: bool = False) -> Self:
        """Integer division, rounded toward zero. Raises TypeError for floats.

        >>> Tensor([-7, 7]).idiv(2).tolist()
        [-3, 3]
        """
        a, b = self._operands(x, reverse, "IDIV")
        if dtypes.is_float(a.dtype):
            raise TypeError(f'idiv takes integers, not {a.dtype}; use div(rounding_mode="trunc")')
        return self._result(a.alu(Ops.IDIV, b), x)

    def mod(self, x: Any, reverse: bool = False) -> Self:
        """Remainder of floor division, with the sign of `x`: `self - floor(self / x) * x`.

        That of floats is exact, as Python's and numpy's.

        >>> Tensor([-4, 7, 5, -7]).mod(Tensor([2, -3, 8, 3])).tolist()
        [0, -2, 5, 2]
        """
        a, b = self._operands(x, reverse, "MOD")
        rest = a.alu(Ops.MOD, b)
        if dtypes.is_unsigned(a.dtype) or dtypes.is_bool(a.dtype):
            return self._result(rest, x)
        zero = const_node(0, b.dtype)
        differs = rest.ne(zero) & (rest < zero).ne(b < zero)
        if not dtypes.is_float(a.dtype):
            return self._result(rest + differs.where(b, zero), x)
        # a remainder of zero has the sign of the divisor
        signed_zero = (b < zero).where(const_node(-0.0, b.dtype), zero)
        rest = rest.eq(zero).where(signed_zero, rest)
        remainder = differs.where(rest + b, rest)
        return self._result(with_gradient(remainder, gradient_of_remainder, a, b), x)

    def fmod(self, x: Any, reverse: bool = False) -> Self:
        """Remainder of the division that rounds toward zero, with the sign of `self`, as in C.

        >>> Tensor([-4, 7, 5, -7]).fmod(Tensor([2, -3, 8, 3])).tolist()
        [0, 1, 5, -1]
        """
        a, b = self._operands(x, reverse, "MOD")
        rest = a.alu(Ops.MOD, b)
        if dtypes.is_float(a.dtype):
            rest = with_gradient(rest, gradient_of_truncated_remainder, a, b)
        return self._result(rest, x)

    @in_float32
    def pow(self, x: Any, reverse: bool = False) -> Self:
        """Power: `self ** x`. Integers to an integer power are integers, and wrap around.

        Anything to the power of 0 is 1, NaN included; negative floats to a fractional power are
        NaN. Raises RuntimeError for integers to the power of a negative number; a tensor of
        negative exponents gives the quotients rounded toward zero.

        >>> Tensor([-1, 2, 3]).pow(2).tolist()
        [1, 4, 9]
        """
        if not reverse and type(x) is int and dtypes.is_int(self.dtype):
            # the exponent is no operand: it may be out of range of the dtype
            return self._derive(integer_power(self.uop, const_node(x, dtypes.int64)))
        a, b = self._operands(x, reverse, "POW")
        if not dtypes.is_float(a.dtype) or b.op is Ops.CONST:
            is_float = dtypes.is_float(a.dtype)
            power = constant_power(a, float(b.arg)) if is_float else integer_power(a, b)
            # the first power is the tensor itself
            return self._derive(power, *(x,) if isinstance(x, TensorCore) else ())
        if a.op is Ops.CONST and a.arg == 2:
            return self._result(b.alu(Ops.EXP2), x)
        return self._result(a.alu(Ops.POW, b), x)

    def neg(self) -> Self:
        """Negation: `-self`; logical not for bools.

        >>> Tensor([-1, 0, 2]).neg().tolist()
        [1, 0, -2]
        """
        return self.logical_not() if self.dtype is dtypes.bool else self.mul(-1)

    # ---- several operands ----

    def usum(self, *others: Any) -> Self:
        """The sum of this tensor and all `others`, elementwise; of bools, whether any is true.

        >>> Tensor([1, 2]).usum(Tensor([3, 4]), 5).tolist()
        [9, 11]
        """
        return functools.reduce(lambda x, y: x.add(y), others, self._derive(self.uop))

    def uprod(self, *others: Any) -> Self:
        """The product of this tensor and all `others`, elementwise; of bools, whether all are true.

        >>> Tensor([1, 2]).uprod(Tensor([3, 4]), 5).tolist()
        [15, 40]
        """
        return functools.reduce(lambda x, y: x.mul(y), others, self._derive(self.uop))

    # ---- bitwise ----

    def _bits(self, op: Ops, x: Any, reverse: bool) -> Self:
        a, b = self._operands(x, reverse, op.name)
        if dtypes.is_float(a.dtype):
            raise ArgumentError(
                f"{operator_name(op.name)} takes integers and bools, not {a.dtype}; cast both "
                "first: .int()"
            )
        return self._result(a.alu(op, b), x)

    def bitwise_and(self, x: Any, reverse: bool = False) -> Self:
        """Bitwise and: `self & x`. Raises RuntimeError for floats, as all bitwise methods do.

        >>> Tensor([2, 5, 255]).bitwise_and(Tensor([3, 14, 16])).tolist()
        [2, 4, 16]
        """
        return self._bits(Ops.AND, x, reverse)

    def bitwise_or(self, x: Any, reverse: bool = False) -> Self:
        """Bitwise or: `self | x`.

        >>> Tensor([2, 5, 255]).bitwise_or(Tensor([4, 4, 4])).tolist()
        [6, 5, 255]
        """
        return self._bits(Ops.OR, x, reverse)

    def bitwise_xor(self, x: Any, reverse: bool = False) -> Self:
        """Bitwise exclusive or: `self ^ x`.

        >>> Tensor([-1, -2, 3]).bitwise_xor(Tensor([1, 0, 3])).tolist()
        [-2, -2, 0]
        """
        return self._bits(Ops.XOR, x, reverse)

    def bitwise_not(self) -> Self:
        """Bitwise complement: `~self`; logical not for bools.

        >>> Tensor([0, 2, -5]).bitwise_not().tolist()
        [-1, -3, 4]
        """
        if self.dtype is dtypes.bool:
            return self.logical_not()
        ones = dtypes.max(self.dtype) if dtypes.is_unsigned(self.dtype) else -1
        return self._bits(Ops.XOR, ones, False)

    def _shift(self, op: Ops, x: Any, reverse: bool) -> Self:
        if not reverse and not fits_dtype(x, self.dtype):
            # any number of at least the width shifts all bits out
            x = dtypes.max(self.dtype)
        return self._bits(op, x, reverse)

    def lshift(self, x: Any, reverse: bool = False) -> Self:
        """Left shift: `self << x`; 0 if `x` is negative, or the width of the dtype or more.

        >>> Tensor([1, 3, 31], dtype=dtypes.uint8).lshift(2).tolist()
        [4, 12, 124]
        """
        return self._shift(Ops.SHL, x, reverse)

    def rshift(self, x: Any, reverse: bool = False) -> Self:
        """Right shift: `self >> x`, which keeps the sign.

        By the width of the dtype or more, or by a negative number, it is 0 or, if `self` is
        negative, -1.

        >>> Tensor([4, 13, 125], dtype=dtypes.uint8).rshift(2).tolist()
        [1, 3, 31]
        """
        return self._shift(Ops.SHR, x, reverse)

    def logical_not(self) -> Self:
        """Logical not: whether each element is zero.

        >>> Tensor([False, True]).logical_not().tolist()
        [True, False]
        """
        return self._derive(
            self.uop.cast(dtypes.bool).alu(Ops.CMPNE, const_node(True, dtypes.bool))
        )


def reverse_order(node: UOp) -> UOp:
    """An order-reversing map of values, which turns min into max; it is its own inverse."""
    if node.dtype is dtypes.bool:
        return node.alu(Ops.CMPNE, const_node(True, dtypes.bool))
    if dtypes.is_float(node.dtype):
        return node.alu(Ops.MUL, const_node(-1, node.dtype))
    # -x - 1, which overflows for no integer
    return node.alu(Ops.XOR, const_node(-1, node.dtype))
