"""Sizes that may be symbolic: an int, or a node that is an integer known when a kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tinygrad.uop import Ops
from tinygrad.uop.math import MathMixin

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

sint: TypeAlias = "int | UOp"


def symbolic_args(node: UOp) -> Iterator[UOp]:
    """The expressions in the argument of a movement op, ARANGE or PARAM."""
    stack = [node.arg.shape if node.op is Ops.PARAM else node.arg]
    while stack:
        x = stack.pop()
        if isinstance(x, MathMixin):
            yield cast("UOp", x)
        elif isinstance(x, tuple):
            stack.extend(x)


def resolve(x: bool | UOp, default: bool = True) -> bool:
    """The truth of a symbolic condition, or `default` where it is not known."""
    if isinstance(x, bool):
        return x
    simple = x.simplify()
    return bool(simple.vmin) if simple.vmin == simple.vmax else default


def sym_infer(x: sint, values: dict[str, int]) -> int:
    """The value of a symbolic integer under `values`, by Variable name."""
    if not isinstance(x, MathMixin):
        return x
    table = {v: v.const_like(values[v.arg[0]]) for v in x.variables()}
    return int(x.substitute(table))


def smax(*values: sint) -> sint:
    """The largest of some sizes, symbolic ones included."""
    return _fold(values, lambda a, b: a.maximum(b), max)


def smin(*values: sint) -> sint:
    """The smallest of some sizes, symbolic ones included."""
    return _fold(values, lambda a, b: a.minimum(b), min)


def _fold(
    values: tuple[sint, ...],
    symbolic: Callable[[UOp, Any], UOp],
    plain: Callable[[Any], Any],
) -> sint:
    numbers = [v for v in values if not isinstance(v, MathMixin)]
    nodes = [v for v in values if isinstance(v, MathMixin)]
    known = [cast(int, plain(numbers))] if numbers else []
    return reduce(symbolic, [*nodes[1:], *known], nodes[0]).ssimplify() if nodes else known[0]
