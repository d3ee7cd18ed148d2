"""What happens to tensors when some of them are computed.

In: tensors to bring into memory. Out: these in memory, and every other live tensor written in terms
of what is in memory now. Always true: a value that reads a buffer which is about to be overwritten
is computed together with what overwrites it, so that it keeps its meaning.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tinygrad.execution import realize_tensors
from tinygrad.execution.schedule import storage_of
from tinygrad.gradient import carry_over
from tinygrad.mixin.core import VIEWS, live_tensors, seen_through
from tinygrad.mixin.creation import in_own_memory, is_constant
from tinygrad.mixin.host import TRANSPARENT
from tinygrad.mixin.host_parts import cut_on_host
from tinygrad.mixin.sharing import Holders, memory_below
from tinygrad.mixin.terms import parts_to_compute
from tinygrad.mixin.users import Users
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import inherit

# ASSIGNs to buffers that others may read; while there are none, nobody need look for them
_assignments: weakref.WeakSet[UOp] = weakref.WeakSet()

# who has to change when a node is computed, or what reads a buffer
_users = Users()

_ALIASES = GroupOp.Movement | TRANSPARENT
# movement whose result is computed, not read from the memory of its source
_COMPUTED = frozenset({Ops.PAD, Ops.WINDOW, Ops.UNWINDOW})


def remember_assignment(node: UOp) -> None:
    """Take note of an ASSIGN to a buffer that other tensors may read."""
    _assignments.add(node)


def realize_all(tensors: Any) -> None:
    """Bring tensors into memory, and every live tensor up to date."""
    roots = roots_of(tensors)
    parts = cut_on_host(roots)
    if parts:
        replace_nodes(parts)
        roots = roots_of(tensors)
    if roots:
        replace_nodes(realize_tensors(roots))


def realize_readers(memory: Collection[UOp]) -> None:
    """Compute what reads these BUFFERs, or waits to be written to them, before they are overwritten
    by what is in no graph. Views see the new content.
    """
    readers = dict.fromkeys(_computed_from(memory))
    if readers:
        replace_nodes(realize_tensors(_with_readers_of_overwritten(list(readers))))


def roots_of(tensors: Any) -> list[UOp]:
    """The nodes to compute for these tensors to be in memory; of gradients, maybe their terms."""
    for x in tensors:
        if x.uop.op is not Ops.BUFFER and is_constant(x.uop) and not is_number(x.uop):
            x.uop = in_own_memory(x.uop)
        base = alias_base(x.uop)
        if base.op is Ops.BUFFER and not base.is_realized:
            storage_of(base).ensure_allocated()
    roots = [x for x in parts_to_compute(tensors) if not is_memory(x) and not is_number(x)]
    return _with_readers_of_overwritten(list(dict.fromkeys(roots)))


def alias_base(node: UOp) -> UOp:
    while node.op in _ALIASES:
        node = node.src[0]
    return node


def is_memory(node: UOp) -> bool:
    """Whether a value is a buffer with content, or a view of one."""
    while node.op in _ALIASES and node.op not in _COMPUTED:
        node = node.src[0]
    return node.op is Ops.BUFFER and node.is_realized


def repeats_memory(node: UOp) -> bool:
    """Whether several elements of a view are one element of memory."""
    while node.op in _ALIASES and node.op is not Ops.EXPAND:
        node = node.src[0]
    return node.op is Ops.EXPAND


def is_number(node: UOp) -> bool:
    """Whether every element is one known number, which needs no memory."""
    while (node.op in _ALIASES and node.op is not Ops.PAD) or node.op is Ops.COPY:
        node = node.src[0]
    return node.op in {Ops.CONST, Ops.BIND}


def _with_readers_of_overwritten(roots: list[UOp]) -> list[UOp]:
    """`roots`, and the live values that read an older content of a buffer that these overwrite."""
    if not len(_assignments):
        return roots
    found = dict.fromkeys(roots)
    seen: dict[UOp, None] = {}
    latest: dict[UOp, UOp] = {}
    fresh = roots
    while fresh:
        below = _unseen_below(fresh, seen)
        for node in below:
            if node.op is Ops.ASSIGN and node in _assignments:
                memory = alias_base(node.src[0])
                known = latest.get(memory)
                if known is None or known.arg <= node.arg:
                    latest[memory] = node
        seen |= below
        # what is computed for being overwritten may overwrite something itself
        needed = [*_readers_of_older(latest, found), *_written_together(below)]
        fresh = [node for node in needed if node not in found]
        found |= dict.fromkeys(fresh)
    return list(found)


def _written_together(nodes: dict[UOp, None]) -> list[UOp]:
    """All that the kernels written by hand among `nodes` write: each runs once, for all of it."""
    found = [x for node in nodes if node.op is Ops.CUSTOM_KERNEL for x in kernel_outputs(node)]
    for node in found:
        if node.op is Ops.ASSIGN:
            remember_assignment(node)
    return found


def kernel_outputs(node: UOp) -> list[UOp]:
    """For each source that a CUSTOM_KERNEL writes, that memory with its new content; of terms, what
    they add up to.
    """
    found: list[UOp] = []
    for number in node.arg.written:
        target = node.src[number]
        arg = replace(node.arg, output=number)
        value = UOp(Ops.CUSTOM_KERNEL, target.dtype, node.src, arg)
        layout = target.device
        if isinstance(layout, Sharding) and layout.is_partial:
            found.append(value.allreduce(layout.without_partial()))
        else:
            found.append(target.assign(value))
    return found


def _unseen_below(roots: list[UOp], seen: dict[UOp, None]) -> dict[UOp, None]:
    order = UOp.sink(*roots).toposort(gate=lambda node: node not in seen)
    return {node: None for node in order if node not in seen}


def _readers_of_older(latest: dict[UOp, UOp], known: Collection[UOp]) -> dict[UOp, None]:
    """Live values, none of `known`, that read one of the buffers (keys) as it was before an
    assignment (values), or after an earlier assignment to it.
    """
    readers: dict[UOp, None] = {}
    if not latest:
        return readers
    # below a latest assignment everything is as old as that assignment wants it
    reads_old: dict[UOp, bool] = dict.fromkeys(latest.values(), False)
    for node in _computed_from(latest, known):
        if _reaches(node, latest, reads_old):
            readers[node] = None
    return readers


def _computed_from(memory: Collection[UOp], known: Collection[UOp] = ()) -> list[UOp]:
    """What live tensors are that read these BUFFERs, but for their views and for `known`."""
    live = [x for x in live_tensors.lazy() if x.uop not in known]
    _users.note(x.uop for x in live)
    above = _users.above(memory)
    found = [x for x in live if x.uop in above and alias_base(x.uop) not in memory]
    if any(_is_gathered(x.uop, memory) for x in found):
        # a view of a split axis is of a copy, and has the origin of what that is of
        origins = {x.origin for x in live_tensors if _memory_of(x.uop) in memory}
        found = [x for x in found if not (x.origin in origins and _is_gathered(x.uop, memory))]
    return [x.uop for x in found]


def _is_gathered(node: UOp, memory: Collection[UOp]) -> bool:
    return node.op in VIEWS and seen_through(node) in memory


def _memory_of(node: UOp) -> UOp:
    """What a value is a view of, or is about to be written to."""
    node = memory_below(node)
    while node.op is Ops.ASSIGN:
        node = memory_below(node.src[0])
    return node


def _reaches(root: UOp, buffers: dict[UOp, UOp], known: dict[UOp, bool]) -> bool:
    stack = [] if root in known else [(root, False)]
    while stack:
        node, ready = stack.pop()
        # the target of an assignment is not read
        sources = node.src[1:] if node.op is Ops.ASSIGN else node.src
        if ready:
            known[node] = any(known[x] for x in sources)
        elif node not in known:
            memory = alias_base(node.src[0]) if node.op is Ops.ASSIGN else node
            if memory in buffers:
                known[node] = True
                continue
            stack.append((node, True))
            stack.extend((x, False) for x in sources if x not in known)
    return known[root]


def replace_nodes(table: dict[UOp, UOp]) -> None:
    """Let every live tensor see nodes (keys) as what they are now (values)."""
    if not table:
        return
    paths = [(x, _path_to(table, x.uop)) for x in live_tensors.lazy()]
    # most tensors are views of what was computed, and what is below that need not be known
    _users.note(x.uop for x, path in paths if not path)
    changed = _users.above(table).union(*(path for _, path in paths))
    done = dict(table)
    holders = Holders()
    for x, _ in paths:
        if x.uop in changed:
            new = _rebuilt(x.uop, changed, done)
            if new is not x.uop:
                x.uop = new
                holders.add(x)
    carry_over(done)


def _path_to(table: dict[UOp, UOp], node: UOp) -> list[UOp]:
    """The nodes from a view to the key of `table` that it is a view of; none where there is no
    such key.
    """
    path = [node]
    while node not in table:
        if node.op not in _ALIASES:
            return []
        node = node.src[0]
        path.append(node)
    return path


def _rebuilt(root: UOp, changed: set[UOp], done: dict[UOp, UOp]) -> UOp:
    """`root` with the keys of `done` replaced, which only nodes in `changed` are built on; adds
    every such node it meets to `done`.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        pending = [x for x in node.src if x in changed and x not in done]
        if pending:
            stack.extend(pending)
            continue
        stack.pop()
        src = tuple([done.get(x, x) for x in node.src])
        done[node] = node if src == node.src else inherit(node.replace(src=src), node)
        if node.op is Ops.ASSIGN and node in _assignments:
            _assignments.add(done[node])
    return done[root]
