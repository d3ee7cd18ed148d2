"""Overwritten content that is still needed: it is materialised before the write.

Before: expressions may read the content of a memory before and after a write to it. After: every
node reads one content of each memory that is written; older contents are in memory of their own.
Invariant: a graph without such a node is unchanged.

    x = [1, 2]; y = x * 2; x += 1; z = y + x        z reads x before and after the write
    ADD(MUL(x, 2), ASSIGN(x, ...))  ->  ADD(CONTIGUOUS(MUL(x, 2)), ASSIGN(x, ...))
"""

from __future__ import annotations

from tinygrad.schedule.grouping.unit import memory_of
from tinygrad.schedule.storage_views import SHARD_NAMES, is_storage
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Contents = dict[UOp, tuple[int, int]]
"""The first and the last content that a value reads, by memory: 0 before all writes, n after n."""


def preserve_overwritten(sink: UOp) -> UOp:
    """`sink` with CONTIGUOUS values in place of older contents that are read beside newer ones."""
    order = list(sink.toposort())
    writes = tracked_writes(order)
    if not writes:
        return sink
    reads: dict[UOp, Contents] = {}
    done: dict[UOp, UOp] = {}
    for node in order:
        found = _contents_of_sources(node, reads)
        latest = {memory: last for memory, (first, last) in found.items() if first < last}
        if node.op is Ops.ASSIGN:
            memory = memory_of(node)
            if memory in found:
                # a write in between destroys what this one reads
                between = [n for n in writes[memory] if found[memory][0] < n <= node.arg]
                latest |= dict.fromkeys([memory] if between else [], node.arg + 1)
        done[node] = _with_kept_sources(node, latest, reads, done)
        reads[node] = _contents_of(node, found, writes)
    return done[sink]


def tracked_writes(order: list[UOp]) -> dict[UOp, set[int]]:
    """The writes to each memory of which two contents are read, or one may be destroyed."""
    writes: dict[UOp, set[int]] = {}
    read_later: set[UOp] = set()
    for node in order:
        if node.op is Ops.ASSIGN:
            writes.setdefault(memory_of(node), set()).add(node.arg + 1)
        if node.op not in {Ops.SINK, Ops.AFTER}:
            sources = node.src[1:] if node.op is Ops.ASSIGN else node.src
            read_later |= {memory_of(x) for x in sources if x.op in {Ops.ASSIGN, Ops.AFTER}}
    return {m: found for m, found in writes.items() if len(found) > 1 or m in read_later}


def _contents_of_sources(node: UOp, reads: dict[UOp, Contents]) -> Contents:
    if node.op in {Ops.SINK, Ops.AFTER}:
        return {}
    # an assignment does not read its target
    sources = node.src[1:] if node.op is Ops.ASSIGN else node.src
    contents = [reads[x] for x in sources if reads[x]]
    if len(contents) == 1:
        return contents[0]
    found: Contents = {}
    for content in contents:
        for memory, (first, last) in content.items():
            low, high = found.get(memory, (first, last))
            found[memory] = (min(low, first), max(high, last))
    return found


def _contents_of(node: UOp, found: Contents, writes: dict[UOp, set[int]]) -> Contents:
    """The contents that a kernel reads in order to use a node."""
    if node.op is Ops.BUFFER:
        return {node: (0, 0)} if node in writes else {}
    if node.op in {Ops.ASSIGN, Ops.AFTER}:
        number = (node if node.op is Ops.ASSIGN else node.src[1]).arg + 1
        memory = memory_of(node)
        return {memory: (number, number)} if memory in writes else {}
    if node.op in {Ops.BUFFER_VIEW, *SHARD_NAMES}:
        return found
    return {} if is_storage(node) else found


def _with_kept_sources(
    node: UOp, latest: dict[UOp, int], reads: dict[UOp, Contents], done: dict[UOp, UOp]
) -> UOp:
    if not latest:
        return node.with_sources(tuple([done[x] for x in node.src]))
    src = []
    for number, x in enumerate(node.src):
        is_read = number > 0 or node.op is not Ops.ASSIGN
        is_old = any(
            memory in reads[x] and reads[x][memory][0] < last for memory, last in latest.items()
        )
        # UOp.contiguous() returns buffers as they are
        src.append(UOp(Ops.CONTIGUOUS, x.dtype, (done[x],)) if is_read and is_old else done[x])
    return node.with_sources(tuple(src))
