"""Copy the old content of memory that a node reads together with the new one.

Before: an expression may read memory as it is before and as it is after a write. After: every node
reads one version of each memory; older versions are materialised in memory of their own before the
write. Invariant: a graph without such a node is unchanged.

    x = [1, 2]; y = x * 2; x += 1; z = y + x        z reads x before and after the write
    ADD(MUL(x, 2), ASSIGN(x, ...))  ->  ADD(CONTIGUOUS(MUL(x, 2)), ASSIGN(x, ...))
"""

from __future__ import annotations

import sys

from tinygrad.schedule.grouping.values import memory_of
from tinygrad.schedule.storage_views import SHARD_NAMES, below_reshapes, is_storage
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Contents = dict[UOp, tuple[int, int]]
"""For each memory, the first version that a value reads and the last one on which it depends.
Version 0 is before all writes, version n after write n. A materialised value reads none.
"""
NOTHING: Contents = {}
PRESERVED = "preserved"
"""The tag of a CONTIGUOUS that is a copy even of a value in memory."""
_NONE = sys.maxsize
_READS_NOTHING = frozenset({Ops.SINK, Ops.AFTER})
_WRITTEN = frozenset({Ops.ASSIGN, Ops.AFTER})


def preserve_overwritten(sink: UOp) -> UOp:
    """`sink` with a CONTIGUOUS around each older version that is read beside a newer one."""
    order = list(sink.toposort())
    reordered = {x: _with_copied_value(x) for x in order if _reorders_memory(x)}
    if reordered:
        sink = sink.substitute(reordered)
        order = list(sink.toposort())
    writes = tracked_writes(order)
    if not writes:
        return sink
    # the versions that nodes read, and the nodes that were replaced
    reads: dict[UOp, Contents] = {}
    done: dict[UOp, UOp] = {}
    tracked, changed = reads.keys(), done.keys()
    for node in order:
        reads_none = tracked.isdisjoint(node.src)
        found = NOTHING if reads_none else _contents_of_sources(node, reads)
        latest = _kept(node, found, writes) if found else {}
        if latest or (changed and not changed.isdisjoint(node.src)):
            done[node] = _with_kept_sources(node, latest, reads, done)
        if (contents := _contents_of(node, found, writes)) is not NOTHING:
            reads[node] = contents
    return done.get(sink, sink)


def _reorders_memory(node: UOp) -> bool:
    """Whether a write stores all of some memory there in another order, `x.flip(0).assign(x)`: its
    kernel would overwrite elements that it reads later.
    """
    if node.op is not Ops.ASSIGN:
        return False
    target, value = map(below_reshapes, node.src)
    return value.op is Ops.BUFFER and target is not value and memory_of(target) is value


def _with_copied_value(write: UOp) -> UOp:
    target, value = write.src
    return write.with_sources((target, _copied(value)))


def _copied(value: UOp) -> UOp:
    """A value in memory of its own. UOp.contiguous() returns buffers as they are."""
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,), tag=PRESERVED)


def _kept(node: UOp, found: Contents, writes: dict[UOp, set[int]]) -> dict[UOp, int]:
    """For each memory of which `node` reads two versions, as `found` says, the later one: older
    ones must be copied.
    """
    latest = {memory: last for memory, (first, last) in found.items() if first < last}
    if node.op is Ops.ASSIGN:
        memory = memory_of(node)
        # a write in between destroys what this one reads
        if memory in found and any(found[memory][0] < n <= node.arg for n in writes[memory]):
            latest[memory] = node.arg + 1
    return latest


def tracked_writes(order: list[UOp]) -> dict[UOp, set[int]]:
    """The numbers of the writes to each memory that is written twice, or read after a write. Only
    these can have two versions in one expression.
    """
    writes: dict[UOp, set[int]] = {}
    read_later: set[UOp] = set()
    for node in order:
        sources = node.src
        if node.op is Ops.ASSIGN:
            writes.setdefault(memory_of(node), set()).add(node.arg + 1)
            sources = node.src[1:]
        elif node.op in _READS_NOTHING:
            continue
        for x in sources:
            if x.op in _WRITTEN:
                read_later.add(memory_of(x))
    return {m: found for m, found in writes.items() if len(found) > 1 or m in read_later}


def _contents_of_sources(node: UOp, reads: dict[UOp, Contents]) -> Contents:
    if node.op in _READS_NOTHING:
        return NOTHING
    # an assignment does not read its target
    sources = node.src[1:] if node.op is Ops.ASSIGN else node.src
    contents = [reads[x] for x in sources if x in reads]
    if len(contents) < 2:
        return contents[0] if contents else NOTHING
    if all(x is contents[0] for x in contents):
        return contents[0]
    found: Contents = {}
    for content in contents:
        for memory, (first, last) in content.items():
            low, high = found.get(memory, (first, last))
            found[memory] = (min(low, first), max(high, last))
    return found


def _contents_of(node: UOp, found: Contents, writes: dict[UOp, set[int]]) -> Contents:
    """The versions that a kernel which uses `node` reads and depends on."""
    if node.op is Ops.BUFFER:
        return {node: (0, 0)} if node in writes else NOTHING
    if node.op in _WRITTEN:
        number = (node if node.op is Ops.ASSIGN else node.src[1]).arg + 1
        memory = memory_of(node)
        return {memory: (number, number)} if memory in writes else NOTHING
    if node.op in {Ops.BUFFER_VIEW, *SHARD_NAMES} or not is_storage(node):
        return found
    # whoever reads it runs after the writes that it depends on
    return {memory: (_NONE, last) for memory, (_, last) in found.items() if last} or NOTHING


def _with_kept_sources(
    node: UOp, latest: dict[UOp, int], reads: dict[UOp, Contents], done: dict[UOp, UOp]
) -> UOp:
    src = []
    for number, x in enumerate(node.src):
        new = done.get(x, x)
        is_read = number > 0 or node.op is not Ops.ASSIGN
        found = reads.get(x, NOTHING)
        if is_read and any(m in found and found[m][0] < last for m, last in latest.items()):
            new = _copied(new)
        src.append(new)
    return node.with_sources(tuple(src))
