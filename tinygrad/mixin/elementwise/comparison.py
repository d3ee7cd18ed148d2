"""Comparisons, `where`, and elementwise minimum, maximum and clamp.

Input: tensors and Python numbers, broadcast and promoted as in arithmetic. Output: bools, which
have no gradient, or elements of one operand or the other. A comparison with a number that the dtype
cannot hold is exact.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype, least_upper_float
from tinygrad.errors import ArgumentError
from tinygrad.gradient import with_gradient
from tinygrad.mixin.core import TensorCore, check_tensors
from tinygrad.mixin.elementwise.arithmetic import ArithmeticMixin, reverse_order
from tinygrad.mixin.precision import in_float32
from tinygrad.uop import Ops
from tinygrad.uop.arguments import plain_number
from tinygrad.uop.broadcast import (
    broadcast_node,
    broadcast_shape,
    const_node,
    fits_dtype,
    is_scalar,
    number_dtype,
)
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import off_files

UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
"""The unsigned integers by their size in bytes."""


class ComparisonMixin(ArithmeticMixin):
    """`eq`, `ne`, `where`, `maximum`, `minimum`, `clamp`, `lerp`."""

    __slots__ = ()

    def _compare(self, op: Ops, x: Any, reverse: bool = False) -> Self:
        x = plain_number(x)
        if not fits_dtype(x, self.uop.dtype):
            return self._compare_beyond(op, x > 0, reverse)
        a, b = self._operands(x, reverse, ">" if reverse else op.name)
        return self._new(a.alu(op, b), False)

    def _compare_beyond(self, op: Ops, is_above: bool, reverse: bool) -> Self:
        """A comparison with a number above or below all values of the dtype."""
        # x != x folds to false, and has the device and the shape of x
        never = self._new(self.uop.alu(Ops.CMPNE, self.uop), False)
        holds = op is Ops.CMPNE or (op is Ops.CMPLT and is_above is not reverse)
        return never.logical_not() if holds else never

    def _less_equal(self, x: Any, reverse: bool) -> Self:
        """`self <= x`, or `x <= self` with `reverse`; false if one is NaN."""
        x = plain_number(x)
        if not fits_dtype(x, self.uop.dtype):
            return self._compare_beyond(Ops.CMPLT, x > 0, reverse)
        a, b = self._operands(x, reverse, ">=" if reverse else "<=")
        if not dtypes.is_float(a.dtype):
            return self._new((b < a).logical_not(), False)
        return self._new((a < b) | a.eq(b), False)

    def eq(self, x: Any) -> Self:
        """Equality: `self == x`.

        >>> Tensor([1, 2]).eq(Tensor([1, 3])).tolist()
        [True, False]
        """
        return self._compare(Ops.CMPEQ, x)

    def ne(self, x: Any) -> Self:
        """Inequality: `self != x`.

        >>> Tensor([1, 2]).ne(Tensor([1, 3])).tolist()
        [False, True]
        """
        return self._compare(Ops.CMPNE, x)

    # ---- selection ----

    def where(self, x: Any, y: Any) -> Self:
        """Select elementwise: `x` where this tensor is true, else `y`.

        >>> Tensor([True, False]).where(Tensor([1, 2]), 0).tolist()
        [1, 0]
        """
        a, b = self._choices(x, y)
        condition = self.uop.cast(dtypes.bool)
        wide = [node for node in (condition, a, b) if not is_scalar(node)]
        if wide:
            shape = broadcast_shape(*(node.shape for node in wide))
            condition, a, b = (
                node if is_scalar(node) else broadcast_node(node, shape)
                for node in (condition, a, b)
            )
        # whether a gradient is required does not depend on the condition
        sources = [v for v in (x, y) if isinstance(v, TensorCore)]
        plain = self._new(condition, False)
        return plain._derive(condition.alu(Ops.WHERE, a, b), *sources)

    def _choices(self, x: Any, y: Any) -> tuple[UOp, UOp]:
        """`x` and `y` as nodes of their common dtype."""
        if isinstance(x, TensorCore):
            a, b = x.uop, x._operand(y, "where")
        elif isinstance(y, TensorCore):
            a, b = y._operand(x, "where"), y.uop
        else:
            plain = map(plain_number, (x, y))
            a, b = (v if isinstance(v, UOp) else const_node(v, number_dtype(v)) for v in plain)
        dtype = least_upper_dtype(a.dtype, b.dtype)
        a, b = off_files(a, b)
        return a.cast(dtype), b.cast(dtype)

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """Replace the elements where `mask` is true by `value`.

        >>> Tensor([1, 2, 3]).masked_fill(Tensor([True, False, True]), -1).tolist()
        [-1, 2, -1]
        """
        check_tensors("masked_fill", mask=mask)
        return mask.where(value, self)

    def maximum(self, x: Any) -> Self:
        """Elementwise maximum.

        >>> Tensor([-1, 2, 3]).maximum(1).tolist()
        [1, 2, 3]
        """
        x = plain_number(x)
        if not fits_dtype(x, self.uop.dtype) and x < 0:
            return self._derive(self.uop)
        return self._binary(Ops.MAX, x)

    def minimum(self, x: Any) -> Self:
        """Elementwise minimum.

        >>> Tensor([-1, 2, 3]).minimum(1).tolist()
        [-1, 1, 1]
        """
        x = plain_number(x)
        if not fits_dtype(x, self.uop.dtype) and x > 0:
            return self._derive(self.uop)
        a, b = self._operands(x, False, "minimum")
        return self._result(reverse_order(reverse_order(a).alu(Ops.MAX, reverse_order(b))), x)

    def clamp(self, min_: Any = None, max_: Any = None) -> Self:
        """Clamp to the range [min_, max_]; None is no bound.

        Raises RuntimeError if both are None.

        >>> Tensor([-3, 0, 3]).clamp(-1, 1).tolist()
        [-1, 0, 1]
        """
        if min_ is None and max_ is None:
            raise ArgumentError("clamp needs min_, max_ or both")
        x, own = self, self.uop.dtype
        min_, max_ = plain_number(min_), plain_number(max_)
        # a bound that all values of the dtype meet
        if min_ is not None and (fits_dtype(min_, own) or min_ > 0):
            x = x._compare(Ops.CMPLT, min_).where(min_, x)
        if max_ is not None and (fits_dtype(max_, own) or max_ < 0):
            x = x._compare(Ops.CMPLT, max_, True).where(max_, x)
        return x

    def clip(self, min_: Any = None, max_: Any = None) -> Self:
        """Alias of `clamp`.

        >>> Tensor([-3, 0, 3]).clip(0).tolist()
        [0, 0, 3]
        """
        return self.clamp(min_, max_)

    def copysign(self, other: Any) -> Self:
        """The absolute value of `self` with the sign of `other`, also of signed zeros. The gradient
        by `other` is 0, and that by `self` at 0.

        >>> Tensor([1.0, -2.0]).copysign(Tensor([-0.0, 3.0])).tolist()
        [-1.0, 2.0]
        """
        other = float(other) if isinstance(other, int) else other
        a, b = self._operands(other, False, "copysign")
        dtype = least_upper_float(a.dtype)
        a, b = a.cast(dtype), b.cast(dtype)
        zero = const_node(0, dtype)
        word = UNSIGNED[dtype.itemsize]
        sign = const_node(1 << (8 * dtype.itemsize - 1), word)
        magnitude = const_node((1 << (8 * dtype.itemsize - 1)) - 1, word)
        bits = (a.bitcast(word) & magnitude) | (b.bitcast(word) & sign)

        def rule(g: UOp, y: UOp, a: UOp, b: UOp) -> tuple[UOp, UOp]:
            turned = (a < zero).ne(y < zero).where(g * -1, g)
            return a.eq(zero).where(zero, turned), b.const_like(0)

        # also where the sign does not depend on b: its gradient is 0
        return self._result(with_gradient(bits.bitcast(dtype), rule, a, b), other)

    @in_float32
    def lerp(self, end: Self | float, weight: Any) -> Self:
        """Linear interpolation: `self + (end - self) * weight`; uint8 in 7-bit fixed point.

        >>> Tensor([1.0, 2.0]).lerp(Tensor([4.0, 5.0]), 0.5).tolist()
        [2.5, 3.5]
        """
        kind = type(self)
        if self.dtype is dtypes.uint8 and isinstance(end, kind) and isinstance(weight, kind):
            start, stop = self.cast(dtypes.int16), end.cast(dtypes.int16)
            fixed = weight.mul(1 << 7).add(0.5).cast(dtypes.int16)
            moved = stop.sub(start).mul(fixed).add(1 << 6).rshift(7)
            return start.add(moved).cast(dtypes.uint8)
        # a difference of integers wraps around
        is_float = isinstance(weight, float) or (
            isinstance(weight, kind) and weight.is_floating_point()
        )
        start = self.cast(least_upper_float(self.dtype)) if is_float else self
        return start.add(start.sub(end, reverse=True).mul(weight))
