"""Share the reductions of a row among the threads of a group.

Before: a nest of plain loops with reductions: sums of rows, softmax, norms. After: a group of
threads computes a row. Its threads reduce every few elements each; then a group of one warp
exchanges its values by shuffles, a larger one through shared memory. What the nest stores for each
element of the row is shared likewise, so that a softmax or a norm is one nest of one pass.

If memory is contiguous along the outputs, not along the reduction axis, threads are interleaved:
neighbouring threads belong to neighbouring groups, and read neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static
from tinygrad.codegen.analysis.resources import REGISTER_BYTES
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.split import Fit
from tinygrad.codegen.optimize.threads.elementwise import BLOCK_THREADS
from tinygrad.codegen.optimize.threads.mapping import Block, points_of
from tinygrad.codegen.optimize.threads.wide_access import best_lanes, is_coalesced
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

MAX_GROUP = 1024
# steps of a reduction that one thread makes alone rather than share them
MIN_SHARED_STEPS = 16
# threads that a unit needs to hide the latency of memory
THREADS_PER_UNIT = 1024
# steps of a thread, below which more threads do not pay for their exchange
MIN_STEPS = 4
# lanes of a group of a target without shuffles, and threads of its largest group
MIN_WARP, MAX_UNSHUFFLED = 32, 64
# accumulators may take a third of the registers of a thread; others hold elements and addresses
ACCUMULATORS_PART = 3
# columns of a block that reduces columns: whole sectors of memory
COLUMN_THREADS = 32


@dataclass(frozen=True)
class Group:
    """Groups of `group` of the `threads` of a block share rows; each of them moves `lanes`
    neighbouring elements of a row at once, or of the columns if neighbouring threads are in
    neighbouring `columns`.
    """

    threads: int
    group: int
    lanes: int
    columns: bool = False

    def __str__(self) -> str:
        along = "columns" if self.columns else "rows"
        count = f"{self.threads // self.group} {along} of {self.group} threads"
        return f"{count}, {self.lanes} elements at once"


@dataclass(frozen=True)
class Rows:
    """The loops over rows of a nest, its reductions over the elements of a row, and the size of
    the longest.
    """

    loops: tuple[UOp, ...]
    reduces: tuple[UOp, ...]
    size: int
    has_columns: bool
    """Whether the nest stores elements of a row, too."""


def map_groups(nest: Nest) -> bool:
    """Share the reductions of a nest among threads; returns whether that pays off."""
    rows = find_rows(nest)
    option = None if rows is None else nest.choose(group_options(nest, rows))
    if rows is None or option is None:
        return False
    apply_group(nest, rows, option)
    return True


def find_rows(nest: Nest) -> Rows | None:
    """The rows of a nest with reductions whose terms depend on no other reduction's loop."""
    free = FreeRanges()
    own = {r for store in nest.stores for r in store.src[2:]}
    if any(r.arg.kind is not AxisType.LOOP or free[r.src[0]] for r in own):
        return None
    reduces = [u for u in nest.root.toposort() if u.op is Ops.REDUCE and free[u] <= own]
    reduces = [u for u in reduces if all(map(is_static, u.src[1:]))]
    if not reduces:
        return None
    needed = frozenset[UOp]().union(*[free[u] for u in reduces])
    first = nest.stores[0].src[2:]
    loops = tuple(r for r in first if r in needed)
    for store in nest.stores:
        if not needed <= set(store.src[2:]) or not all(map(is_static, _columns(store, needed))):
            return None
    columns = {_columns(store, needed) for store in nest.stores} - {()}
    if sum(map(len, columns)) > len({r for own in columns for r in own}):
        return None
    size = max(points_of(u.src[1:]) for u in reduces)
    return Rows(loops, tuple(reduces), size, bool(columns))


def group_options(nest: Nest, rows: Rows) -> list[Group]:
    """The mappings that a nest can have, that of the heuristic first; none if it chooses none."""
    best = choose_group(nest, rows)
    if best is None:
        return []
    limit = min(MAX_GROUP, nest.renderer.target.block_threads)
    if nest.renderer.target.warp == 1:
        limit = min(limit, MAX_UNSHUFFLED)
    widest = best.lanes if best.columns else _widest_lanes(nest, rows)
    options = {best: None}
    max_threads = min(MAX_GROUP, nest.renderer.target.block_threads)
    if nest.threads is not None or not rows.loops:
        thread_counts = [best.threads] if best.threads <= max_threads else []
    else:
        thread_counts = doublings(64, max_threads)
    for threads in thread_counts:
        groups = doublings(2, min(limit, threads, 2 * rows.size))
        for group in groups if rows.loops else {threads}.intersection(groups):
            for lanes in dict.fromkeys((1, best.lanes, widest)):
                options[replace(best, threads=threads, group=group, lanes=lanes)] = None
    return list(options)


def doublings(first: int, limit: int) -> list[int]:
    """`first`, twice as much, and so on up to `limit`."""
    found: list[int] = []
    while first <= limit:
        found.append(first)
        first *= 2
    return found


def choose_group(nest: Nest, rows: Rows) -> Group | None:
    """The mapping, or None if each thread should compute outputs alone."""
    target = nest.renderer.target
    outputs, wanted = points_of(rows.loops), target.units * THREADS_PER_UNIT
    if rows.size < MIN_SHARED_STEPS:
        return None
    free = FreeRanges()
    inner = rows.reduces[0].src[-1]
    along_rows = is_coalesced(nest, inner, free)
    if not along_rows and not rows.has_columns and rows.loops:
        column = next((r for r in reversed(rows.loops) if is_coalesced(nest, r, free)), None)
        if column is not None:
            return _choose_columns(nest, rows, column, outputs, wanted)
    lanes = _lanes_of_rows(nest, rows)
    group = max(target.warp, MIN_WARP)
    while group > 1 and group * lanes >= 2 * rows.size:
        group //= 2
    limit = min(nest.threads or MAX_GROUP, target.block_threads)
    # a warp exchanges the results of all warps; without shuffles, each thread reads all results
    limit = min(limit, target.warp**2 if target.warp > 1 else MAX_UNSHUFFLED)
    while group < limit and rows.size >= 2 * group * lanes * MIN_STEPS:
        # a warp suffices for short rows, unless too few of them keep the units busy
        is_long = rows.size > group * lanes * 8 and group < BLOCK_THREADS
        if outputs * group >= wanted and not is_long:
            break
        group *= 2
    if group < 2:
        return None
    if nest.threads is not None:
        return Group(nest.threads, group if rows.loops else nest.threads, lanes)
    threads = group
    while threads < BLOCK_THREADS and threads // group < outputs:
        threads *= 2
    return Group(threads, group, lanes)


def _lanes_of_rows(nest: Nest, rows: Rows) -> int:
    """The elements that a thread moves at once: as many as it has registers to reduce apart.

    Reductions over other loops run one after the other.
    """
    lanes = _widest_lanes(nest, rows)
    nbytes: dict[tuple[UOp, ...], int] = {}
    for u in rows.reduces:
        nbytes[u.src[1:]] = nbytes.get(u.src[1:], 0) + u.dtype.itemsize
    registers = ceildiv(max(nbytes.values()), REGISTER_BYTES)
    limit = nest.renderer.target.unit_registers // THREADS_PER_UNIT // ACCUMULATORS_PART
    while limit and lanes > 1 and lanes * registers > limit:
        lanes //= 2
    return lanes


def _widest_lanes(nest: Nest, rows: Rows) -> int:
    return min(best_lanes(nest, u.src[-1]) for u in rows.reduces)


def _choose_columns(nest: Nest, rows: Rows, column: UOp, outputs: int, wanted: int) -> Group | None:
    if outputs >= wanted:
        return None
    threads = nest.threads or min(MAX_GROUP, nest.renderer.target.block_threads)
    group = threads // COLUMN_THREADS
    while nest.threads is None and group > 1:
        if outputs * group < 2 * wanted and rows.size >= group * MIN_STEPS:
            break
        group //= 2
        threads //= 2
    return Group(threads, group, 1, columns=True) if group > 1 else None


def apply_group(nest: Nest, rows: Rows, option: Group) -> None:
    """Transform the nest."""
    nest.note(str(option))
    loops = list(rows.loops)
    if option.columns:
        column = next(r for r in reversed(loops) if is_coalesced(nest, r, FreeRanges()))
        loops = [r for r in loops if r is not column] + [column]
    for store in nest.stores:
        nest.reorder(store, [*loops, *[r for r in store.src[2:] if r not in loops]])
    block = Block(nest, option.threads, option.group, interleaved=option.columns)
    block.distribute(loops)
    own = {u.src[1:] for u in nest.root.toposort() if _is_shared(u, rows)}
    for axes in sorted(own, key=lambda axes: int(axes[0].arg.index)):
        share_reductions(block, axes, option.lanes)
    share_stores(block, loops, option.lanes)


def _is_shared(u: UOp, rows: Rows) -> bool:
    return u.op is Ops.REDUCE and any(u.src[1:] == r.src[1:] for r in rows.reduces)


def share_reductions(block: Block, axes: Sequence[UOp], lanes: int) -> None:
    """Share the reductions over some loops, and exchange the results of the threads."""
    nest = block.nest
    inside: list[UOp] = []
    axes = list(axes)
    if lanes > 1 and extent(axes[-1]) % lanes == 0:
        outer, vector = nest.split(axes[-1], lanes, AxisType.VECTOR, Fit.MASKED)
        inside.append(vector)
        axes = [*axes[:-1], *([] if outer is None else [outer])]
    step = block.share(axes) if axes else None
    inside += [] if step is None else [step]
    done: dict[UOp, UOp] = {}
    for u in nest.root.toposort():
        src = tuple([done[x] for x in u.src])
        new = u if src == u.src else UOp(u.op, u.dtype, src, u.arg)
        # the loops over the elements of a row are gone where a thread has one of them
        if u.op is Ops.REDUCE and set(u.src[1:]) == set(inside):
            partial = new if len(new.src) > 1 else new.src[0]
            # a shuffle moves 32 bits or more
            wide = _exchanged_dtype(u.dtype)
            value = partial if u.dtype is wide else partial.cast(wide)
            new = exchange(block, value, u.arg)
            new = new if u.dtype is wide else new.cast(u.dtype)
        done[u] = new
    nest.root = done[nest.root]


def _exchanged_dtype(dtype: DType) -> DType:
    """The dtype in which threads exchange partial results."""
    if dtype.itemsize >= dtypes.int32.itemsize:
        return dtype
    return dtypes.float32 if dtypes.is_float(dtype) else dtypes.int32


def exchange(block: Block, partial: UOp, op: Ops) -> UOp:
    """The reduction of the partial results of all threads of a group, in each of them."""
    warp = block.nest.renderer.target.warp
    if block.interleaved or warp == 1:
        return _exchange_in_memory(block, partial, op)
    result = _exchange_in_warp(block, partial, op, min(block.group, warp))
    warps = block.group // warp
    if warps < 2:
        return result
    number = block.thread.alu(Ops.IDIV, _index(warp))
    is_first = block.thread.alu(Ops.MOD, _index(warp)) < 1
    scratch = _shared(block, partial, block.threads // warp)
    stored = scratch.index(number, is_first).store(result)
    ready = UOp(Ops.AFTER, scratch.dtype, (scratch, stored))
    place = block.thread.alu(Ops.MOD, _index(warps))
    if block.rows > 1:
        place = block.row * warps + place
    return _exchange_in_warp(block, ready.index(place).load(), op, warps)


def _exchange_in_warp(block: Block, value: UOp, op: Ops, lanes: int) -> UOp:
    """The reduction over `lanes` neighbouring lanes, by a butterfly of shuffles."""
    lane = block.thread.alu(Ops.MOD, _index(block.nest.renderer.target.warp))
    distance = lanes // 2
    while distance:
        other = UOp(Ops.SHUFFLE, value.dtype, (value, lane.alu(Ops.XOR, _index(distance))))
        value = UOp(op, value.dtype, (value, other))
        distance //= 2
    return value


def _exchange_in_memory(block: Block, partial: UOp, op: Ops) -> UOp:
    """The reduction over a group, of which each thread reads the partial results of all."""
    scratch = _shared(block, partial, block.threads)
    stored = scratch.index(block.thread).store(partial)
    ready = UOp(Ops.AFTER, scratch.dtype, (scratch, stored))
    each = block.nest.factory.new(block.group, AxisType.REDUCE)
    place = block.row * block.group + each
    if block.interleaved:
        place = each * block.rows + block.row
    return ready.index(place.simplify()).load().reduce(each, arg=op)


def _shared(block: Block, value: UOp, size: int) -> UOp:
    number = block.nest.factory.next
    block.nest.factory.next += 1
    return UOp(Ops.DEFINE_LOCAL, value.dtype.ptr(size, AddrSpace.LOCAL), (), number)


def share_stores(block: Block, rows: Sequence[UOp], lanes: int) -> None:
    """Share the stores of the elements of rows; one thread stores what there is once a row."""
    nest = block.nest
    columns = [_columns(store, rows) for store in nest.stores]
    is_shared: dict[tuple[UOp, ...], bool] = {(): False}
    for own in columns:
        if own in is_shared:
            continue
        axes = list(own)
        if lanes > 1 and extent(axes[-1]) % lanes == 0:
            outer, _ = nest.split(axes[-1], lanes, AxisType.VECTOR, Fit.MASKED)
            axes = [*axes[:-1], *([] if outer is None else [outer])]
        if axes:
            block.share(axes)
        is_shared[own] = bool(axes)
    stores = zip(nest.stores, columns, strict=True)
    block.only_first([store for store, own in stores if not is_shared[own]])


def _columns(store: UOp, rows: Collection[UOp]) -> tuple[UOp, ...]:
    """The loops of a store over the elements of a row."""
    return tuple(r for r in store.src[2:] if r.arg.kind is AxisType.LOOP and r not in rows)


def _index(value: int) -> UOp:
    return UOp.const(dtypes.index, value)
