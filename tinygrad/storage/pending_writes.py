"""Pending writes: assignments that have not run, and the lazy values that they would change.

Input: nodes about to be realized. Output: these nodes, after the live values that read older
content of a buffer that they overwrite. Invariant: a lazy value has the content that it was built
on, whatever is assigned later to the memory that it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from tinygrad.sharding import Sharding
from tinygrad.storage.dependents import dependents
from tinygrad.storage.live_tensors import AliasGroup, TensorBase, live_tensors
from tinygrad.storage.views import movement_base, view_base
from tinygrad.uop import Ops
from tinygrad.uop.node_table import NodeRegistry
from tinygrad.uop.ops import UOp

# ASSIGNs to buffers that other tensors may read; while there are none, no search is needed
_pending = NodeRegistry[None]()
_WRITES = frozenset({Ops.ASSIGN, Ops.CUSTOM_KERNEL})


def note_write(node: UOp) -> None:
    """Register an ASSIGN to a buffer that other tensors may read."""
    _pending[node] = None


def renote_write(old: UOp, new: UOp) -> None:
    """Register `new`, the rebuilt form of `old`, if `old` was registered."""
    if old.op is Ops.ASSIGN and old in _pending:
        _pending[new] = None


def with_readers_of_overwritten(roots: list[UOp]) -> list[UOp]:
    """`roots`, after the live values that read older content of a buffer that `roots` overwrite.

    The values come first, so that each is complete before its buffer is overwritten. If one cannot
    be computed, nothing is lost.
    """
    if not _pending:
        return roots
    found = dict.fromkeys(roots)
    seen: dict[UOp, None] = {}
    latest: dict[UOp, UOp] = {}
    fresh = roots
    while fresh:
        below = _unseen_below(fresh, seen)
        writes = [node for node in below if node.op in _WRITES]
        _add_latest(latest, (node for node in writes if node in _pending))
        # a value that is realized for this reason may overwrite a buffer itself
        needed = [*_readers_of_older(latest, found), *_written_together(writes)]
        fresh = [node for node in needed if node not in found]
        if fresh:
            seen |= below
            found |= dict.fromkeys(fresh)
    return [*list(found)[len(roots) :], *roots]


def readers_of_overwritten(computed: Collection[UOp]) -> list[UOp]:
    """The live values, not among `computed`, that read older content of a buffer that one of these
    has overwritten.
    """
    latest: dict[UOp, UOp] = {}
    _add_latest(latest, computed)
    return list(_readers_of_older(latest, computed, computed))


def find_readers(memory: Collection[UOp], known: Collection[UOp] = ()) -> list[UOp]:
    """The lazy values of live tensors that read these BUFFERs; their views and `known` left out."""
    live = [x for x in live_tensors.lazy_holders() if x.uop not in known]
    dependents.register(x.uop for x in live)
    above = dependents.of(memory)
    return [
        x.uop for x in live if x.uop in above and not _is_alias_of(x, memory) and not _is_unused(x)
    ]


def kernel_outputs(node: UOp) -> list[UOp]:
    """The new content of each source that a CUSTOM_KERNEL writes; partial sums all-reduced."""
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


def _written_together(nodes: list[UOp]) -> list[UOp]:
    """All outputs of the custom kernels among `nodes`: a kernel runs once, for all its outputs."""
    found = [x for node in nodes if node.op is Ops.CUSTOM_KERNEL for x in kernel_outputs(node)]
    for node in found:
        if node.op is Ops.ASSIGN:
            note_write(node)
    return found


def _add_latest(latest: dict[UOp, UOp], nodes: Iterable[UOp]) -> None:
    """Add the ASSIGNs among `nodes` to the latest ones, by the memory that they overwrite."""
    for node in nodes:
        if node.op is Ops.ASSIGN:
            memory = movement_base(node.src[0])
            known = latest.get(memory)
            if known is None or known.arg <= node.arg:
                latest[memory] = node


def _unseen_below(roots: list[UOp], seen: dict[UOp, None]) -> dict[UOp, None]:
    root = roots[0] if len(roots) == 1 else UOp.sink(*roots)
    if not seen:
        return root.toposort()
    order = root.toposort(gate=lambda node: node not in seen)
    return {node: None for node in order if node not in seen}


def _readers_of_older(
    latest: dict[UOp, UOp], known: Collection[UOp], computed: Collection[UOp] = ()
) -> dict[UOp, None]:
    """Live values, `known` left out, that read one of the buffers (keys) with content older than
    its latest assignment (values), other than through `computed` values.
    """
    readers: dict[UOp, None] = {}
    if not latest:
        return readers
    # everything below a latest assignment is as old as that assignment needs it
    reads_old: dict[UOp, bool] = dict.fromkeys([*latest.values(), *computed], False)
    for node in find_readers(latest, known):
        if _reads_older(node, latest, reads_old):
            readers[node] = None
    return readers


def _is_alias_of(holder: TensorBase | AliasGroup, memory: Collection[UOp]) -> bool:
    """Whether a value is that of one of these BUFFERs, or of a view of it; it sees new content."""
    group = holder if isinstance(holder, AliasGroup) else holder._aliases
    return view_base(holder.uop if group is None else group.uop) in memory


def _is_unused(holder: TensorBase | AliasGroup) -> bool:
    """Whether a whole value is that of one view alone, which is realized without it."""
    if not isinstance(holder, AliasGroup):
        return False
    members = holder.live()
    return not members or (len(members) == 1 and holder.leave(members[0]))


def _reads_older(root: UOp, buffers: dict[UOp, UOp], known: dict[UOp, bool]) -> bool:
    """Whether `root` reads one of `buffers` other than through an assignment `known` as latest."""
    stack = [] if root in known else [(root, False)]
    while stack:
        node, ready = stack.pop()
        # an assignment does not read its target
        sources = node.src[1:] if node.op is Ops.ASSIGN else node.src
        if ready:
            known[node] = any(known[x] for x in sources)
        elif node not in known:
            memory = movement_base(node.src[0]) if node.op is Ops.ASSIGN else node
            latest = buffers.get(memory)
            if latest is not None and (node is memory or node.arg <= latest.arg):
                known[node] = True
                continue
            stack.append((node, True))
            stack.extend((x, False) for x in sources if x not in known)
    return known[root]
