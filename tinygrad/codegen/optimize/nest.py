"""A loop nest, a group of stores that share outer loops, and the transformations of its loops.

In: the stores of one loop nest, as a SINK of their own. Out: the transformed SINK and a note of
every transformation, as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    RangeFactory,
    extent,
    is_static,
    loops_of,
    with_loops,
)
from tinygrad.codegen.optimize.split import Fit, replace_axis, split_axis
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer import Renderer, pointer_of
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

MIN_ITEMS_PER_THREAD = 4
T = TypeVar("T")


class Nest:
    """A loop nest under transformation; `root` is its current SINK, and `applied` what was done.

    `mapping` is the option to map it to threads by, None if heuristics choose it. `threads` is the
    number that its blocks must have, if another nest of the kernel has blocks. `scratch` is the
    number of its first scratch array.
    """

    def __init__(
        self,
        root: UOp,
        renderer: Renderer,
        factory: RangeFactory,
        *,
        mapping: Any = None,
        threads: int | None = None,
        scratch: int = 0,
    ) -> None:
        self.root = root
        self.renderer = renderer
        self.factory = factory
        self.mapping = mapping
        self.threads = threads
        self.scratch = scratch
        self.applied: list[str] = []

    @property
    def stores(self) -> tuple[UOp, ...]:
        """The STOREs of the nest."""
        return self.root.src

    def choose(self, options: Sequence[T]) -> T | None:
        """The option to map the nest by: the first, or that which was asked for if it is one of
        these; None for another mapping.
        """
        if self.mapping is None:
            return options[0] if options else None
        return self.mapping if self.mapping in options else None

    def note(self, text: str) -> None:
        """Record a transformation."""
        self.applied.append(text)

    def prefix(self) -> list[UOp]:
        """The independent loops that all stores share, outermost first.

        The prefix ends before a loop whose size depends on another.
        """
        free = FreeRanges()
        shared: list[UOp] = []
        for level in zip(*map(loops_of, self.stores), strict=False):
            is_independent = level[0].arg.kind is AxisType.LOOP and not free[level[0].src[0]]
            if len(set(level)) > 1 or not is_independent:
                break
            shared.append(level[0])
        return shared

    def is_in_place(self) -> bool:
        """Whether a buffer is both read and written."""
        written = {pointer_of(store.src[0]) for store in self.stores}
        return any(
            u.op is Ops.LOAD and pointer_of(u.src[0]) in written for u in self.root.toposort()
        )

    def split(self, axis: UOp, factor: int, kind: AxisType, fit: Fit) -> tuple[UOp | None, UOp]:
        """Split a loop into (outer, inner); see `split.py`."""
        self.root, outer, inner = split_axis(self.root, axis, factor, kind, self.factory, fit)
        return outer, inner

    def set_kind(self, axis: UOp, kind: AxisType) -> UOp:
        """Change the kind of a loop."""
        new = self.factory.like(axis, kind)
        self.root = replace_axis(self.root, axis, new, (new,))
        return new

    def reorder(self, store: UOp, order: list[UOp]) -> None:
        """Interchange the loops of a store."""
        assert set(order) == set(loops_of(store)), "an order names every loop once"
        self.root = self.root.substitute({store: with_loops(store, order)})

    def work(self) -> int:
        """An estimate of the elementary steps of the whole nest."""
        free = FreeRanges()
        total = 0
        for u in self.root.toposort():
            if u.op in {Ops.STORE, Ops.REDUCE}:
                operands = u.src[:2] if u.op is Ops.STORE else u.src[:1]
                total += points(frozenset().union(*(free[x] for x in operands), loops_of(u)))
            elif u.op in GroupOp.ALU and u.dtype is not dtypes.index:
                total += points(free[u])
        return total

    def make_grid(self, axes: list[UOp]) -> None:
        """Flatten `axes`, the outermost loops of every store in order, into one GLOBAL loop."""
        if not axes:
            return
        size: UOp | int = 1
        for r in axes:
            is_symbolic = isinstance(size, UOp) or not is_static(r)
            size = r.src[0] * size if is_symbolic else extent(r) * size
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
        """Make a grid of the first of some outermost loops, as many as give enough work items."""
        if self.work() < self.renderer.target.parallel_work:
            return
        chosen: list[UOp] = []
        target, items = self.renderer.target, 1
        wanted = max(target.enough_items, MIN_ITEMS_PER_THREAD * target.threads)
        for r in loops:
            if items >= wanted:
                break
            missing = ceildiv(wanted, items)
            can_split = bool(chosen) and is_static(r)
            steps = smallest_divisor(extent(r), missing, 2 * missing) if can_split else 0
            if steps and extent(r) > steps:
                # the last loop of the grid is split, so that a work item has several of its steps
                outer, _ = self.split(r, extent(r) // steps, AxisType.LOOP, Fit.BOUNDED)
                assert outer is not None
                r = outer
            chosen.append(r)
            items *= extent(r)
        if items > 1:
            self.make_grid(chosen)


def smallest_divisor(number: int, start: int, stop: int) -> int:
    """The smallest divisor in [start, stop), 0 if there is none, in O(sqrt(number)) steps."""
    root = math.isqrt(number)
    for divisor in range(start, min(stop, root + 1)):
        if number % divisor == 0:
            return divisor
    # the larger a divisor, the smaller its cofactor
    for cofactor in range(number // max(start, root + 1), 0, -1):
        divisor, rest = divmod(number, cofactor)
        if divisor >= stop:
            return 0
        if not rest:
            return divisor
    return 0


def points(ranges: Iterable[UOp]) -> int:
    """The size of the iteration space of distinct loops."""
    return math.prod(extent(r) for r in ranges)
