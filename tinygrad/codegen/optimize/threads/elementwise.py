"""Map a nest to threads that compute outputs of their own.

Before: a nest of plain loops. After: blocks of threads over all shared loops; neighbouring threads
compute neighbouring outputs along the loop that is contiguous in memory, each several of them by
16-byte accesses where these are aligned. Reductions are loops of a thread.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from tinygrad.codegen.analysis.ranges import FreeRanges
from tinygrad.codegen.optimize.lanes.vectorize import unroll_small_reduces
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.split import Fit
from tinygrad.codegen.optimize.threads.mapping import Block, points_of
from tinygrad.codegen.optimize.threads.wide_access import best_lanes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

BLOCK_THREADS = 256
# work items of a unit, below which threads compute fewer outputs
BLOCKS_PER_UNIT = 4
MAX_EACH = 4


@dataclass(frozen=True)
class Elements:
    """Blocks of `threads`, each thread computing `each` times `lanes` neighbours along `loop`."""

    threads: int
    loop: int | None
    lanes: int
    each: int

    def __str__(self) -> str:
        along = f" of loop {self.loop}" if self.lanes > 1 else ""
        return f"{self.threads} threads with {self.each} x {self.lanes} outputs{along}"


def map_elements(nest: Nest) -> bool:
    """Map any nest, one output or a few to a thread."""
    order_loops(nest)
    option = nest.choose(element_options(nest))
    assert option is not None, "the mapping that was asked for is one of those of its nest"
    apply_elements(nest, option)
    return True


def element_options(nest: Nest) -> list[Elements]:
    """The mappings that a nest can have, that of the heuristic first."""
    best = choose_elements(nest)
    shared = independent_loops(nest)
    widest = best_lanes(nest, shared[-1]) if shared else 1
    options = {best: None}
    if not shared:
        return [best]
    counts = (64, 128, 256, 512) if nest.threads is None else (nest.threads,)
    fitting = [x for x in counts if x <= nest.renderer.target.block_threads]
    widths = [x for x in (1, 2, 4, 8, 16) if x <= widest]
    for threads, lanes, each in itertools.product(fitting, widths, (1, 2, 4)):
        options[replace(best, threads=threads, lanes=lanes, each=each)] = None
    return list(options)


def order_loops(nest: Nest) -> None:
    """Interchange the shared loops so that the contiguous one is innermost."""
    shared = independent_loops(nest)
    inner = contiguous_loop(nest, shared)
    if inner is None or inner is shared[-1]:
        return
    front = [r for r in shared if r is not inner]
    for store in nest.stores:
        rest = [r for r in store.src[2:] if r not in shared]
        nest.reorder(store, [*front, inner, *rest])


def independent_loops(nest: Nest) -> list[UOp]:
    """The outermost loops of all stores whose steps may run at the same time.

    If a nest writes memory that it reads, a reduction must end before its operands are overwritten.
    So all of these loops are outside of reductions.
    """
    shared = nest.prefix()
    if not nest.is_in_place():
        return shared
    free = FreeRanges()
    reduces = [free[u] for u in nest.root.toposort() if u.op is Ops.REDUCE]
    return list(itertools.takewhile(lambda r: all(r in found for found in reduces), shared))


def contiguous_loop(nest: Nest, loops: list[UOp]) -> UOp | None:
    """The loop along which most accesses are contiguous; stores count twice."""
    free = FreeRanges()
    best, max_count = None, 0
    for r in reversed(loops):
        count = 0
        for u in nest.root.toposort():
            if u.op in {Ops.LOAD, Ops.STORE} and free.stride(u.src[0].src[1], r) in {1, -1}:
                count += 1 + (u.op is Ops.STORE)
        if count > max_count:
            best, max_count = r, count
    return best


def choose_elements(nest: Nest) -> Elements:
    """The mapping that keeps all units busy."""
    shared = independent_loops(nest)
    target = nest.renderer.target
    outputs = points_of(shared)
    wanted = target.units * BLOCK_THREADS
    lanes = best_lanes(nest, shared[-1]) if shared else 1
    while lanes > 1 and outputs // lanes < wanted:
        lanes //= 2
    each = 1
    while lanes * each < MAX_EACH and outputs // (lanes * each) >= 2 * BLOCKS_PER_UNIT * wanted:
        each *= 2
    threads = nest.threads or min(BLOCK_THREADS, target.block_threads)
    return Elements(threads, shared[-1].arg.index if shared else None, lanes, each)


def apply_elements(nest: Nest, option: Elements) -> None:
    """Transform the nest."""
    shared = independent_loops(nest)
    nest.note(str(option))
    if option.lanes > 1:
        outer, _ = nest.split(shared[-1], option.lanes, AxisType.VECTOR, Fit.MASKED)
        shared = [*shared[:-1], *([outer] if outer is not None else [])]
    unroll_small_reduces(nest, set())
    if shared:
        Block(nest, option.threads).distribute(shared, option.each)
        return
    block = Block(nest, option.threads, group=option.threads)
    block.distribute([])
    block.only_first(nest.stores)
