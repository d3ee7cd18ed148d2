"""Choose the kind of every loop: grid, vector lanes, register tile, or a plain loop.

Before: loops of kind LOOP and REDUCE. After: each group of stores that share loops has at most one
GLOBAL loop, outermost, and VECTOR and TILE loops of constant size; operands that are read often are
staged in scratch memory. NOOPT=1 keeps plain loops. Every transformation is noted in
`KernelInfo.applied`, which DEBUG=3 prints.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from tinygrad.codegen.analysis.ranges import FreeRanges, RangeFactory, loops_of, with_loops
from tinygrad.codegen.optimize.blocked_chain.online_softmax import tile_chain
from tinygrad.codegen.optimize.chain.match import join_statistics, outermost_reduces
from tinygrad.codegen.optimize.lanes.running import run_prefixes
from tinygrad.codegen.optimize.lanes.streaming import stream_rows
from tinygrad.codegen.optimize.lanes.vectorize import vectorize_nest
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.product.matrix_units import tile_matrix_product
from tinygrad.codegen.optimize.product.micro_kernel import tile_contraction
from tinygrad.codegen.optimize.threads.elementwise import BLOCK_THREADS, map_elements
from tinygrad.codegen.optimize.threads.product.block_product import tile_block_product
from tinygrad.codegen.optimize.threads.reduction import map_groups
from tinygrad.codegen.optimize.threads.transpose import map_transpose
from tinygrad.dtype import dtypes
from tinygrad.renderer import Renderer, pointer_of
from tinygrad.settings import NOOPT
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, UOp


def vectorize_and_parallelize(nest: Nest) -> bool:
    """Vectorize any nest, and run its outermost loops in parallel."""
    vectorize_nest(nest)
    free = FreeRanges()
    reduces = outermost_reduces(nest.root)

    def repeats_no_reduction(loop: UOp) -> bool:
        return all(loop in free[x] for x in reduces)

    loops = nest.prefix()
    # what is computed from the reductions of a row stays in the work item of the row
    nest.grid_over(list(itertools.takewhile(repeats_no_reduction, loops)) or loops)
    return True


STRATEGIES: tuple[Callable[[Nest], bool], ...] = (
    tile_chain,
    tile_matrix_product,
    tile_contraction,
    run_prefixes,
    stream_rows,
    vectorize_and_parallelize,
)
"""The first that applies to a nest transforms it."""
THREAD_STRATEGIES: tuple[Callable[[Nest], bool], ...] = (
    tile_chain,
    tile_block_product,
    map_groups,
    map_transpose,
    map_elements,
)
"""The strategies for targets whose work items have threads."""


def optimize_loops(sink: UOp, renderer: Renderer) -> UOp:
    """Apply a strategy to every group of stores; a custom kernel may keep the order of loops."""
    info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
    if NOOPT:
        return sink
    if info.opts_to_apply is not None:
        return run_in_parallel(sink, renderer)
    if not any(u.op is Ops.RANGE for u in sink.toposort()):
        # a few numbers: one thread computes them in order
        return sink
    factory = RangeFactory(sink.toposort())
    target = renderer.target
    strategies = THREAD_STRATEGIES if target.has_threads else STRATEGIES
    stores: list[UOp] = []
    applied: list[str] = []
    groups = join_statistics(group_stores(sink))
    share_blocks = len(groups) > 1 and target.has_threads
    threads = min(BLOCK_THREADS, target.block_threads) if share_blocks else None
    for group in groups:
        nest = Nest(UOp.sink(*group), renderer, factory, mapping=info.mapping, threads=threads)
        next(apply for apply in strategies if apply(nest))
        stores += nest.stores
        applied += nest.applied
    sink = sink.replace(src=tuple(stores), arg=replace(info, applied=tuple(applied)))
    return share_grid(sink)


def run_in_parallel(sink: UOp, renderer: Renderer) -> UOp:
    """Keep the order of the loops; outermost ones without a loop-carried value become the grid."""
    nodes = sink.toposort()
    nest = Nest(sink, renderer, RangeFactory(nodes))
    free = FreeRanges()
    stores = [u for u in nodes if u.op is Ops.STORE]
    # AFTER(buffer, loop): every step of the loop reads what earlier steps wrote
    carried = {
        r for u in nodes if u.op is Ops.AFTER and u.src[0].op is Ops.DEFINE_GLOBAL for r in u.src
    }

    def is_independent(loop: UOp) -> bool:
        inside = all(loop in free[s] or loop in loops_of(s) for s in stores)
        return inside and loop not in carried

    nest.grid_over(list(itertools.takewhile(is_independent, nest.prefix())))
    return nest.root.replace(arg=replace(sink.arg, applied=tuple(nest.applied)))


def group_stores(sink: UOp) -> list[list[UOp]]:
    """The stores of a kernel, grouped by their outermost loop. Stores outside of loops are alone,
    but for those of which one overwrites what another one reads: they run in one work item.
    """
    groups: dict[UOp | None, list[UOp]] = {}
    linked = _overwriting([store for store in sink.src if not loops_of(store)])
    for store in sink.src:
        loop = outermost_loop(store)
        alone = None if store in linked else store
        groups.setdefault(alone if loop is None else loop, []).append(store)
    return list(groups.values())


def outermost_loop(store: UOp) -> UOp | None:
    """The first loop that a store runs, if any."""
    return next(iter(loops_of(store)), None)


def _overwriting(stores: list[UOp]) -> set[UOp]:
    """Stores with a write-after-read hazard: one reads memory that the other writes."""
    if len(stores) == 1:
        return set()
    writer = {pointer_of(store.src[0]): store for store in stores}
    found: set[UOp] = set()
    for store in stores:
        for u in store.src[1].toposort():
            other = writer.get(u, store)
            if other is not store:
                found |= {store, other}
    return found


def share_grid(sink: UOp) -> UOp:
    """Concatenate the grids of several groups; a group without a grid becomes one work item."""
    grids = [u for u in sink.toposort() if u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL]
    if not grids or len(group_stores(sink)) == 1:
        return sink
    factory = RangeFactory(sink.toposort())
    stores: list[UOp] = []
    for group in group_stores(sink):
        loop = outermost_loop(group[0])
        if loop is not None and loop.arg.kind is AxisType.GLOBAL:
            stores += group
            continue
        item = factory.new(1, AxisType.GLOBAL)
        stores += [_enclose(s, item) for s in group]
    return _concatenate_grids(sink.replace(src=tuple(stores)))


def _concatenate_grids(sink: UOp) -> UOp:
    """Number the work items of each grid from the end of the one before."""
    offset = UOp.const(dtypes.index, 0)
    table: dict[UOp, UOp] = {}
    for store in sink.src:
        item = outermost_loop(store)
        assert item is not None, "every store is in a grid"
        if item not in table:
            (size,) = item.src
            table[item] = item.replace(src=(size, offset))
            offset = (offset + size).simplify()
    return sink.substitute(table)


def _enclose(store: UOp, item: UOp) -> UOp:
    """Enclose a store, and everything it reads, in the loop `item`."""
    table = {u: u.after(item) for u in store.toposort() if u.op is Ops.DEFINE_GLOBAL}
    enclosed = store.substitute(table)
    return with_loops(enclosed, [item, *loops_of(enclosed)])
