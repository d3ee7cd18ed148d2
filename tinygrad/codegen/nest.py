"""A group of stores that share their outer loops, while decisions about its loops are made and
applied.

In: stores that run in one loop nest, as a SINK of their own. Every change gives a new SINK; the
decisions are noted as text for people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinygrad.codegen.ranges import FreeRanges, RangeFactory, extent, is_static
from tinygrad.codegen.split import Fit, replace_axis, split_axis
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer import Renderer
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp


class Nest:
    """The SINK of one group of stores."""

    def __init__(self, root: UOp, renderer: Renderer, factory: RangeFactory) -> None:
        self.root = root
        self.renderer = renderer
        self.factory = factory
        self.applied: list[str] = []

    @property
    def stores(self) -> tuple[UOp, ...]:
        """The group's STOREs."""
        return self.root.src

    def note(self, text: str) -> None:
        """Remember a decision."""
        self.applied.append(text)

    def prefix(self) -> list[UOp]:
        """The independent loops that all stores share, outermost first.

        A loop that takes more or fewer steps in each step of another ends them.
        """
        free = FreeRanges()
        shared: list[UOp] = []
        for level in zip(*(store.src[2:] for store in self.stores), strict=False):
            is_independent = level[0].arg.kind is AxisType.LOOP and not free[level[0].src[0]]
            if len(set(level)) > 1 or not is_independent:
                break
            shared.append(level[0])
        return shared

    def is_in_place(self) -> bool:
        """Whether a buffer is both read and written."""
        written = {_base(store.src[0]) for store in self.stores}
        return any(u.op is Ops.LOAD and _base(u.src[0]) in written for u in self.root.toposort())

    def split(self, axis: UOp, factor: int, kind: AxisType, fit: Fit) -> tuple[UOp | None, UOp]:
        """Split a loop; see `split.py`."""
        self.root, outer, inner = split_axis(self.root, axis, factor, kind, self.factory, fit)
        return outer, inner

    def set_kind(self, axis: UOp, kind: AxisType) -> UOp:
        """Change what a loop becomes."""
        new = self.factory.like(axis, kind)
        self.root = replace_axis(self.root, axis, new, (new,))
        return new

    def reorder(self, store: UOp, order: list[UOp]) -> None:
        """Run the loops of a store in another order."""
        assert set(order) == set(store.src[2:]), "an order has to name every loop once"
        new = store.replace(src=(*store.src[:2], *order))
        self.root = self.root.substitute({store: new})

    def work(self) -> int:
        """About how many elementary steps the whole group takes."""
        free = FreeRanges()
        total = 0
        for u in self.root.toposort():
            if u.op in {Ops.STORE, Ops.REDUCE}:
                loops = free[u.src[0]].union(free[u.src[1]] if u.op is Ops.STORE else (), u.src[1:])
                total += points(frozenset(r for r in loops if r.op is Ops.RANGE))
            elif u.op in GroupOp.ALU and u.dtype is not dtypes.index:
                total += points(free[u])
        return total

    def make_grid(self, axes: list[UOp]) -> None:
        """Make one GLOBAL loop of `axes`, which are outermost in every store, in this order."""
        if not axes:
            return
        size: UOp | int = 1
        for r in axes:
            size = (
                r.src[0] * size
                if isinstance(size, UOp) or r.src[0].op is not Ops.CONST
                else (extent(r) * size)
            )
        item = self.factory.new(size.simplify() if isinstance(size, UOp) else size, AxisType.GLOBAL)
        rest = item
        table: list[tuple[UOp, UOp]] = []
        for r in reversed(axes[1:]):
            table.append((r, UOp(Ops.MOD, dtypes.index, (rest, r.src[0]))))
            rest = UOp(Ops.IDIV, dtypes.index, (rest, r.src[0]))
        table.append((axes[0], rest))
        for r, position in table:
            loops = (item,) if r is axes[0] else ()
            self.root = replace_axis(self.root, r, position, loops)
        self.note(f"grid {size if isinstance(size, int) else size.render()}")

    def grid_over(self, loops: Sequence[UOp]) -> None:
        """Run the first of some outermost loops in parallel, as many as give enough items."""
        if self.work() < self.renderer.parallel_work:
            return
        chosen: list[UOp] = []
        items, wanted = 1, max(self.renderer.enough_items, 4 * self.renderer.threads)
        for r in loops:
            if items >= wanted:
                break
            missing = ceildiv(wanted, items)
            steps = next((n for n in range(missing, 2 * missing) if extent(r) % n == 0), 0)
            if chosen and is_static(r) and steps and extent(r) > steps:
                # what follows another loop starts anew in each step: a part of it is one item
                outer, _ = self.split(r, extent(r) // steps, AxisType.LOOP, Fit.BOUNDED)
                assert outer is not None
                r = outer
            chosen.append(r)
            items *= extent(r)
        if items > 1:
            self.make_grid(chosen)


def points(ranges: frozenset[UOp]) -> int:
    """How many points some loops have together."""
    return math.prod(extent(r) for r in ranges)


def _base(index: UOp) -> UOp:
    pointer = index.src[0]
    while pointer.op is Ops.AFTER:
        pointer = pointer.src[0]
    return pointer
