"""Several loops as one axis, of which a tile covers a range.

A product of tensors is a product of matrices whose rows, columns and reduction are each several
loops. `FlatAxis` numbers the steps of such loops in row-major order, and finds the values of the
loops at a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tinygrad.codegen.analysis.affine_index import affine, collect, simplify_division
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


@dataclass(frozen=True)
class FlatAxis:
    """Loops as one axis, outermost first; only the first may be of symbolic size."""

    loops: tuple[UOp, ...]

    @property
    def max_size(self) -> int:
        """The number of steps, or its upper bound."""
        return math.prod(extent(r) for r in self.loops)

    @property
    def size(self) -> UOp:
        """The number of steps."""
        inner = math.prod(extent(r) for r in self.loops[1:])
        first = self.loops[0].src[0]
        return (first * inner).simplify() if inner != 1 else first

    def positions(self, number: UOp) -> dict[UOp, UOp]:
        """The value of each loop at a step; that of the first is too large past the end."""
        table: dict[UOp, UOp] = {}
        rest = collect(number)
        for loop in reversed(self.loops[1:]):
            divisor = UOp.const(dtypes.index, extent(loop))
            table[loop] = simplify_division(UOp(Ops.MOD, dtypes.index, (rest, divisor)))
            rest = simplify_division(UOp(Ops.IDIV, dtypes.index, (rest, divisor)))
        table[self.loops[0]] = rest
        return table

    def blocks(self, length: int) -> UOp | int:
        """The number of blocks of `length` steps that cover the axis."""
        if is_static(self.loops[0]):
            return -(-self.max_size // length)
        divisor = UOp.const(dtypes.index, length)
        return UOp(Ops.IDIV, dtypes.index, (self.size + (length - 1), divisor)).simplify()

    def divides(self, length: int) -> bool:
        """Whether blocks of `length` steps cover the axis exactly."""
        return is_static(self.loops[0]) and self.max_size % length == 0


def flatten(loops: Iterable[UOp], operand: UOp, free: FreeRanges) -> FlatAxis | None:
    """The loops as one axis, those of small stride in an operand last; None if two are symbolic."""
    indices = [u.src[0].src[1] for u in operand.toposort() if u.op is Ops.LOAD]

    def key(loop: UOp) -> tuple[bool, int]:
        strides = [free.stride(index, loop) for index in indices]
        return not is_static(loop), max((abs(s) if s else 1 << 40 for s in strides), default=0)

    ordered = sorted(loops, key=key, reverse=True)
    if not ordered or sum(not is_static(r) for r in ordered) > 1:
        return None
    return FlatAxis(tuple(ordered))


def contiguous_width(addresses: Iterable[UOp], axis: FlatAxis, width: int, free: FreeRanges) -> int:
    """The number of neighbouring steps, up to `width`, that every address maps to neighbouring
    elements, aligned to that number.
    """
    loop = axis.loops[-1]
    if not is_static(loop):
        return 1
    while width > 1 and extent(loop) % width:
        width //= 2
    for address in addresses:
        form = affine(address.src[1])
        conditions = [x for x in address.src[2:] if loop in free[x]]
        if free.coefficient(form, loop) != 1 or conditions:
            return 1
        others = [c for factor, c in form.terms.items() if factor is not loop]
        while width > 1 and any(x % width for x in (form.constant, *others)):
            width //= 2
    return width
