"""Symbolic integers: Variables, and the expressions that sizes and indices are."""

from __future__ import annotations

from typing import Self, cast

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.node import Node
from tinygrad.uop.render import infix
from tinygrad.uop.rewrite import graph_rewrite
from tinygrad.uop.symbolic import symbolic


class ExpressionMixin(Node):
    """Simplification, printing and Variables."""

    __slots__ = ()

    def simplify(self) -> Self:
        """The same expression, simplified."""
        if not self.src:
            return self
        return graph_rewrite(self, symbolic, name="simplify")

    def render(self) -> str:
        """The expression in infix form."""
        return infix(self)

    @classmethod
    def variable(
        cls, name: str, min_value: int, max_value: int, dtype: DType = dtypes.index
    ) -> Self:
        """An integer known when a kernel runs, between `min_value` and `max_value`, both
        included.
        """
        if not isinstance(min_value, int) or not isinstance(max_value, int):
            raise TypeError(f"Variable {name}: bounds must be ints, got {min_value}, {max_value}")
        if min_value > max_value:
            raise ValueError(f"Variable {name}: empty interval [{min_value}, {max_value}]")
        return cls(Ops.DEFINE_VAR, dtype, (), (name, min_value, max_value))

    def bind(self, value: int) -> Self:
        """Give this variable a value."""
        if self.op is not Ops.DEFINE_VAR:
            raise TypeError(f"bind needs a Variable, not {self.op.name}")
        if not self.arg[1] <= value <= self.arg[2]:
            raise ValueError(f"{self.arg[0]}={value} is outside [{self.arg[1]}, {self.arg[2]}]")
        return type(self)(Ops.BIND, self.dtype, (self, self.const(self.dtype, value)))

    def unbind(self) -> tuple[Self, int]:
        """The variable and the value of a BIND."""
        assert self.op is Ops.BIND
        return self.src[0], int(self.src[1].arg)

    @property
    def val(self) -> int:
        """The bound value."""
        return self.unbind()[1]

    @property
    def expr(self) -> str:
        """The name of a Variable."""
        return cast(str, (self.src[0] if self.op is Ops.BIND else self).arg[0])
