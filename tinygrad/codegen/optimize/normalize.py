"""Give every loop a range of its own, and merge adjacent loops that are contiguous in memory.

Before: `SINK(STORE(...), ...)` in which several REDUCEs and STOREs may share a RANGE. After: two
nodes share a range only if one loop runs both: independent REDUCEs over equal ranges at equal
depth, and stores with a common prefix of ranges. No loop has one step. Loads of a buffer that the
same nest updates in place are pinned inside all of its loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tinygrad.codegen.analysis.affine_index import affine
from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    RangeFactory,
    extent,
    is_static,
    loops_of,
    map_nodes,
    rebuild,
    substitute,
    with_loops,
)
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


def normalize(sink: UOp) -> UOp:
    """Apply all steps of this module. A kernel whose stores AFTER orders is left unchanged."""
    if any(u.op is Ops.AFTER for u in sink.toposort()):
        return sink
    sink = drop_single_steps(sink)
    sink = separate_ranges(sink)
    sink = merge_ranges(sink)
    return pin_updates(sink)


def drop_single_steps(sink: UOp) -> UOp:
    """Replace ranges of one step by 0."""
    nodes = sink.toposort()
    zero = UOp.const(dtypes.index, 0)
    table = {u: zero for u in nodes if u.op is Ops.RANGE and is_static(u) and u.src[0].arg == 1}
    return drop_constant_ranges(substitute(sink, table)) if table else sink


def drop_constant_ranges(sink: UOp) -> UOp:
    """Drop constants from the ranges of REDUCEs and STOREs; a REDUCE over none is its value."""

    def drop(u: UOp) -> UOp:
        if u.op not in {Ops.STORE, Ops.REDUCE}:
            return u
        loops = [x for x in loops_of(u) if x.op is Ops.RANGE]
        return with_loops(u, loops) if loops or u.op is Ops.STORE else u.src[0]

    return map_nodes(sink, drop)


def separate_ranges(sink: UOp) -> UOp:
    """Clone ranges that several loops run."""
    nodes = sink.toposort()
    if _are_separate(nodes):
        return sink
    factory = RangeFactory(nodes)
    done: dict[UOp, UOp] = {}
    depth: dict[UOp, int] = {}
    free = FreeRanges()
    taken: set[UOp] = {r for u in nodes if u.op is Ops.STORE for r in loops_of(u)}
    clones: dict[tuple[object, ...], tuple[UOp, ...]] = {}
    for u in nodes:
        below = max((depth[x] for x in u.src), default=0)
        depth[u] = below + (u.op is Ops.REDUCE)
        src = tuple([done[x] for x in u.src])
        if u.op is Ops.REDUCE:
            loops = loops_of(u)
            key = (loops, depth[u], free[u])
            if key not in clones:
                is_first = taken.isdisjoint(loops)
                keeps = is_first and all(r.arg.kind is AxisType.REDUCE for r in loops)
                clones[key] = (
                    loops if keeps else tuple(factory.like(r, AxisType.REDUCE) for r in loops)
                )
                taken.update(loops)
            table = dict(zip(loops, clones[key], strict=True))
            changed = {old: new for old, new in table.items() if old is not new}
            src = (substitute(src[0], changed, free), *clones[key])
        done[u] = u if src == u.src else rebuild(u, src)
    return _separate_stores(done[sink], factory)


def _are_separate(nodes: Iterable[UOp]) -> bool:
    """Whether each range is run by one node alone, and the ranges of REDUCEs are of that kind."""
    runner: dict[UOp, UOp] = {}
    return all(
        runner.setdefault(r, u) is u and (u.op is not Ops.REDUCE or r.arg.kind is AxisType.REDUCE)
        for u in nodes
        for r in loops_of(u)
    )


def _separate_stores(sink: UOp, factory: RangeFactory) -> UOp:
    """Clone the ranges of a store that an earlier store runs, except a common prefix."""
    seen: dict[UOp, tuple[UOp, ...]] = {}
    stores: list[UOp] = []
    for store in sink.src:
        loops = loops_of(store)
        table: dict[UOp, UOp] = {}
        for i, r in enumerate(loops):
            if r in seen and (seen[r] != loops[:i] or table):
                table[r] = factory.like(r)
        stores.append(substitute(store, table))
        for i, r in enumerate(loops_of(stores[-1])):
            seen.setdefault(r, loops[:i])
    return sink.replace(src=tuple(stores))


def index_roots(nodes: dict[UOp, None]) -> list[UOp]:
    """The index expressions with a user other than index arithmetic."""
    roots: dict[UOp, None] = {}
    for u in nodes:
        if u.dtype is dtypes.index or u.op is Ops.SINK:
            continue
        sources = u.src
        if u.op in {Ops.STORE, Ops.REDUCE}:
            sources = u.src[: len(u.src) - len(loops_of(u))]
        for x in sources:
            if x.dtype is dtypes.index:
                roots[x] = None
    return list(roots)


def merge_ranges(sink: UOp) -> UOp:
    """Merge adjacent loops `a`, `b` where every index depends on `a * size(b) + b` alone."""
    nodes = sink.toposort()
    nests = [loops_of(u) for u in nodes if u.op in {Ops.STORE, Ops.REDUCE}]
    candidates = _merge_candidates(nests)
    if not candidates:
        return sink
    free = FreeRanges()
    forms = [affine(x) for x in index_roots(nodes)]
    shapes = {own for own in nests if own}
    table: dict[UOp, UOp] = {}
    factory = RangeFactory(nodes)
    zero = UOp.const(dtypes.index, 0)
    for outer, inner in candidates:
        outer = table.get(outer, outer)
        if not all(_pair_is_adjacent(own, outer, inner, table) for own in shapes):
            continue
        size = extent(inner)
        steps = [(free.coefficient(f, outer), free.coefficient(f, inner)) for f in forms]
        if any(a is None or b is None or a != b * size for a, b in steps):
            continue
        merged = factory.new(
            outer.src[0] * size if not is_static(outer) else extent(outer) * size, inner.arg.kind
        )
        sink = substitute(sink, {outer: zero, inner: merged})
        table = {old: merged if new is outer else new for old, new in table.items()}
        table |= {outer: merged, inner: merged}
        sink = drop_constant_ranges(sink)
        forms = [affine(x) for x in index_roots(sink.toposort())]
    return sink


def _merge_candidates(nests: list[tuple[UOp, ...]]) -> list[tuple[UOp, UOp]]:
    pairs: dict[tuple[UOp, UOp], None] = {}
    for own in nests:
        for a, b in itertools.pairwise(own):
            if a.arg.kind is b.arg.kind and is_static(b) and is_static(a):
                pairs[(a, b)] = None
    return list(pairs)


def _pair_is_adjacent(own: tuple[UOp, ...], outer: UOp, inner: UOp, table: dict[UOp, UOp]) -> bool:
    """Whether a nest runs both loops, one directly inside the other, or neither."""
    now = list(dict.fromkeys(table.get(r, r) for r in own))
    if outer not in now and inner not in now:
        return True
    return (outer, inner) in itertools.pairwise(now)


def pin_updates(sink: UOp) -> UOp:
    """Pin loads of a buffer that a nest updates in place inside all loops of the nest."""
    return sink.replace(src=tuple(map(_pin_update, sink.src)))


def _pin_update(store: UOp) -> UOp:
    """A store that reads its own buffer inside of all loops, if it updates elements repeatedly."""
    loops = loops_of(store)
    if all(r.arg.kind is not AxisType.REDUCE for r in loops):
        return store
    address, value = store.src[:2]
    pointer = address.src[0]
    pinned = pointer.after(*loops)
    addresses = [u.src[0] for u in value.toposort() if u.op is Ops.LOAD]
    table = {x: x.replace(src=(pinned, *x.src[1:])) for x in addresses if x.src[0] is pointer}
    return address.store(value.substitute(table), *loops)
