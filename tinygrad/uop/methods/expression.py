"""Symbolic numbers: Variables, and the expressions that sizes and indices are."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from typing import Any, Self, cast

from tinygrad.dtype import ConstType, DType, dtypes
from tinygrad.errors import ArgumentError
from tinygrad.helpers import prod
from tinygrad.uop import Ops
from tinygrad.uop.node import N, Node
from tinygrad.uop.render import infix
from tinygrad.uop.rewrite import graph_rewrite
from tinygrad.uop.simplify.affine import build_sum, common_factor, split_sum
from tinygrad.uop.symbolic import symbolic

MAX_EXPANDED_EXPONENT = 32
"""Maximum exponent that is expanded to multiplications."""


class ExpressionMixin(Node):
    """Simplification, printing, division and Variables."""

    __slots__ = ()

    def simplify(self) -> Self:
        """The same expression, simplified."""
        if not self.src:
            return self
        return graph_rewrite(self, symbolic, name="simplify")

    def render(self, simplify: bool = True) -> str:
        """The expression in infix form, simplified first."""
        return infix(self.simplify() if simplify else self)

    # ---- operators ----

    def __truediv__(self, x: Any) -> Self:
        divisor = self.ufix(x)
        if not isinstance(divisor, Node):
            return cast(Self, NotImplemented)
        return self._as_float() * divisor._as_float().reciprocal()

    def __rtruediv__(self, x: Any) -> Self:
        return self.ufix(x) / self

    def _as_float(self) -> Self:
        return self if dtypes.is_float(self.dtype) else self.cast(dtypes.default_float)

    def __pow__(self, x: Any) -> Self:
        if isinstance(x, int) and 0 < x <= MAX_EXPANDED_EXPONENT:
            return functools.reduce(operator.mul, [self] * x)
        return super().__pow__(x)

    # ---- division ----

    def const_factor(self) -> int:
        """The largest integer that is known to divide it."""
        return common_factor(*split_sum(self))

    def divides(self, v: int) -> Self | None:
        """The quotient by an integer that divides every addend, else None."""
        addends, offset = split_sum(self)
        if any(x % v for x in (*addends.values(), offset)):
            return None
        quotient = {base: factor // v for base, factor in addends.items()}
        return cast(Self, build_sum(self, quotient, offset // v))

    def divide_exact(self, v: Self | int) -> Self | None:
        """The quotient by an integer, or by a product that is a factor of every addend, else None:
        `6*a*b + 3*b` by `3*b` is `2*a + 1`.
        """
        if isinstance(v, int) or v.op is Ops.CONST:
            return self.divides(v if isinstance(v, int) else int(v.arg))
        if self is v:
            return self.const_like(1)
        divisors = _products(v)
        if len(divisors) != 1:
            return None
        number, factors = divisors[0]
        quotient = self.const_like(0)
        for own_number, own_factors in _products(self):
            if own_number % number or factors - own_factors:
                return None
            quotient = quotient + self._product(own_number // number, own_factors - factors)
        return quotient.simplify()

    def gcd(self, *nodes: Self | int) -> Self:
        """The largest product of a number and of factors of every addend that divides this and all
        of `nodes`: of `6*a*b` and `9*b`, `3*b`.
        """
        products = [part for node in (self, *nodes) for part in _products(self.ufix(node))]
        shared = functools.reduce(operator.and_, [factors for _, factors in products])
        return self._product(math.gcd(*(number for number, _ in products)), shared).simplify()

    def _product(self, number: int, factors: Counter[Self]) -> Self:
        return cast(Self, prod([self.const_like(number), *factors.elements()]))

    # ---- Variables ----

    @classmethod
    def variable(
        cls, name: str, min_value: ConstType, max_value: ConstType, dtype: DType | None = None
    ) -> Self:
        """A number known when a kernel runs, between `min_value` and `max_value`, both included: a
        size or an index, unless a bound is a float.
        """
        if not isinstance(name, str):
            raise TypeError(f"a Variable has a name, not {name!r}; write Variable('n', 1, 10)")
        bounds = (min_value, max_value)
        if not all(isinstance(x, (int, float)) for x in bounds):
            raise TypeError(f"Variable {name}: bounds must be numbers, got {bounds}")
        if dtype is None:
            is_float = any(isinstance(x, float) for x in bounds)
            dtype = dtypes.default_float if is_float else dtypes.index
        low, high = (dtypes.as_const(x, dtype) for x in bounds)
        if (low, high) != bounds:
            raise TypeError(f"Variable {name}: {bounds} are not bounds of {dtype}; use ints")
        if low > high:
            raise ArgumentError(f"Variable {name}: empty interval [{min_value}, {max_value}]")
        return cls(Ops.DEFINE_VAR, dtype, (), (name, low, high))

    def bind(self, value: ConstType) -> Self:
        """Give this variable a value."""
        if self.op is not Ops.DEFINE_VAR:
            raise TypeError(f"bind needs a Variable, not {self.op.name}")
        if not isinstance(value, (int, float)):
            raise TypeError(f"Variable {self.arg[0]} is bound to a number, not {value!r}")
        if not self.arg[1] <= value <= self.arg[2]:
            raise ArgumentError(f"{self.arg[0]}={value} is outside [{self.arg[1]}, {self.arg[2]}]")
        return type(self)(Ops.BIND, self.dtype, (self, self.const(self.dtype, value)))

    def unbind(self) -> tuple[Self, Any]:
        """The variable and the value of a BIND."""
        assert self.op is Ops.BIND
        return self.src[0], self.src[1].arg

    def unbind_all(self) -> tuple[Self, dict[Self, Any]]:
        """The expression with Variables in place of bound ones, and their values."""
        bound = {u: u.src[0] for u in self.toposort() if u.op is Ops.BIND}
        return self.substitute(bound), {variable: u.val for u, variable in bound.items()}

    def vars(self) -> set[Self]:
        """The Variables: those that are bound with their values."""
        bound = {u for u in self.toposort() if u.op is Ops.BIND}
        return bound | (set(self.variables()) - {u.src[0] for u in bound})

    @property
    def val(self) -> Any:
        """The bound value."""
        return self.unbind()[1]

    @property
    def expr(self) -> str:
        """The name of a Variable."""
        return cast(str, (self.src[0] if self.op is Ops.BIND else self).arg[0])


def _products(node: N) -> list[tuple[int, Counter[N]]]:
    """The addends of an integer expression, each a number and the factors beside it."""
    addends, offset = split_sum(node.simplify())
    found = [(f, Counter(cast(N, base).split_uop(Ops.MUL))) for base, f in addends.items()]
    return found if found and not offset else [*found, (offset, Counter())]
