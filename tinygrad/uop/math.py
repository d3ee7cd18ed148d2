"""Python operators and elementwise methods, shared by all expression types (`Node`, `UPat`).

A class that defines `alu` and `const_like` inherits them. Shapes and devices play no part here.
"""

from functools import reduce
from typing import Any, Self, cast

from tinygrad.uop import Ops


class MathMixin:
    """Python operators as `Ops`, for a class that defines `alu` and `const_like`."""

    __slots__ = ()

    def alu(self, op: Ops, *src: Self) -> Self:
        """Build the node `op(self, *src)`."""
        raise NotImplementedError

    def const_like(self, value: Any) -> Self:
        """Build a constant of this expression's type."""
        raise NotImplementedError

    def ufix(self, x: Any) -> Self:
        """Turn a Python number into a constant; leave an expression or a tensor as it is."""
        return x if isinstance(x, type(self)) or hasattr(x, "uop") else self.const_like(x)

    def _binop(self, op: Ops, x: Any, reverse: bool = False) -> Self:
        other = self.ufix(x)
        if not isinstance(other, MathMixin):
            # the operator of the tensor
            return cast(Self, NotImplemented)
        return other.alu(op, self) if reverse else self.alu(op, other)

    def __add__(self, x: Any) -> Self:
        return self._binop(Ops.ADD, x)

    def __radd__(self, x: Any) -> Self:
        return self._binop(Ops.ADD, x, True)

    def __mul__(self, x: Any) -> Self:
        return self._binop(Ops.MUL, x)

    def __rmul__(self, x: Any) -> Self:
        return self._binop(Ops.MUL, x, True)

    def __neg__(self) -> Self:
        return self * -1

    def __sub__(self, x: Any) -> Self:
        return self + (-self.ufix(x))

    def __rsub__(self, x: Any) -> Self:
        return self.ufix(x) + (-self)

    def __floordiv__(self, x: Any) -> Self:
        return self._binop(Ops.IDIV, x)

    def __rfloordiv__(self, x: Any) -> Self:
        return self._binop(Ops.IDIV, x, True)

    def usum(self, *others: Any) -> Self:
        """The sum of this value and all others."""
        return reduce(lambda x, y: x + y, others, self)

    def uprod(self, *others: Any) -> Self:
        """The product of this value and all others."""
        return reduce(lambda x, y: x * y, others, self)

    def __truediv__(self, x: Any) -> Self:
        return self * self.ufix(x).reciprocal()

    def __rtruediv__(self, x: Any) -> Self:
        return self.ufix(x) * self.reciprocal()

    def __pow__(self, x: Any) -> Self:
        return self._binop(Ops.POW, x)

    def __rpow__(self, x: Any) -> Self:
        return self._binop(Ops.POW, x, True)

    def __mod__(self, x: Any) -> Self:
        return self._binop(Ops.MOD, x)

    def __rmod__(self, x: Any) -> Self:
        return self._binop(Ops.MOD, x, True)

    def __and__(self, x: Any) -> Self:
        return self._binop(Ops.AND, x)

    def __rand__(self, x: Any) -> Self:
        return self._binop(Ops.AND, x, True)

    def __or__(self, x: Any) -> Self:
        return self._binop(Ops.OR, x)

    def __ror__(self, x: Any) -> Self:
        return self._binop(Ops.OR, x, True)

    def __xor__(self, x: Any) -> Self:
        return self._binop(Ops.XOR, x)

    def __rxor__(self, x: Any) -> Self:
        return self._binop(Ops.XOR, x, True)

    def __lshift__(self, x: Any) -> Self:
        return self._binop(Ops.SHL, x)

    def __rshift__(self, x: Any) -> Self:
        return self._binop(Ops.SHR, x)

    def __lt__(self, x: Any) -> Self:
        return self._binop(Ops.CMPLT, x)

    def __gt__(self, x: Any) -> Self:
        return self._binop(Ops.CMPLT, x, True)

    def __ge__(self, x: Any) -> Self:
        less: Self = self < x
        return less.logical_not()

    def __le__(self, x: Any) -> Self:
        more: Self = self > x
        return more.logical_not()

    def ne(self, x: Any) -> Self:
        """Elementwise `!=`."""
        return self._binop(Ops.CMPNE, x)

    def eq(self, x: Any) -> Self:
        """Elementwise `==`."""
        return self._binop(Ops.CMPEQ, x)

    def logical_not(self) -> Self:
        """Elementwise negation of a bool."""
        return self.ne(True)

    def maximum(self, x: Any) -> Self:
        """Elementwise larger of two."""
        return self._binop(Ops.MAX, x)

    def minimum(self, x: Any) -> Self:
        """Elementwise smaller of two."""
        return -((-self).maximum(-self.ufix(x)))

    def where(self, x: Any, y: Any) -> Self:
        """`x` where self is true, else `y`; at least one of them is an expression."""
        if isinstance(x, type(self)):
            return self.alu(Ops.WHERE, x, x.ufix(y))
        if isinstance(y, type(self)):
            return self.alu(Ops.WHERE, y.ufix(x), y)
        raise TypeError(f"where({x}, {y}): one of the two must be an expression, to give the dtype")

    def reciprocal(self) -> Self:
        """`1 / self`."""
        return self.alu(Ops.RECIPROCAL)

    def trunc(self) -> Self:
        """Round toward zero."""
        return self.alu(Ops.TRUNC)

    def sqrt(self) -> Self:
        """Square root."""
        return self.alu(Ops.SQRT)

    def sin(self) -> Self:
        """Sine, radians."""
        return self.alu(Ops.SIN)

    def exp2(self) -> Self:
        """`2 ** self`."""
        return self.alu(Ops.EXP2)

    def log2(self) -> Self:
        """Logarithm to base 2."""
        return self.alu(Ops.LOG2)

    def threefry(self, seed: Any) -> Self:
        """Threefry-2x32 of a 64-bit counter under a 64-bit key."""
        return self._binop(Ops.THREEFRY, seed)
