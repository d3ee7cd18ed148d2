"""Readers: the lazy values that read what is about to be overwritten.

Input: writes about to run. Output: the values to compute with them. No value depends on whether all
are found: the gate copies the older content for one that is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tinygrad.helpers import all_int, prod
from tinygrad.settings import STATE_POLICY
from tinygrad.sharding import Sharding
from tinygrad.storage.dependents import dependents
from tinygrad.storage.gradients.partial_gradients import keeps_partial_gradients
from tinygrad.storage.live_tensors import Cell, TensorBase, live_tensors
from tinygrad.storage.views import movement_base, view_base
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

_WRITES = frozenset({Ops.ASSIGN, Ops.CUSTOM_KERNEL})


def computed_together(writes: Sequence[UOp], roots: Sequence[UOp]) -> list[UOp]:
    """What is computed with the ASSIGNs and CUSTOM_KERNELs below `roots`: all outputs of each
    kernel, which runs once; and the live values that read older content of memory in place, so that
    none of it has to be copied.
    """
    found = _outputs_of_kernels(writes)
    if STATE_POLICY.get():
        latest: dict[UOp, UOp] = {}
        _add_latest(latest, writes)
        existing = {memory: write for memory, write in latest.items() if memory.is_realized}
        found += _readers_of_older(existing, roots)
    return found


def writes_below(roots: Sequence[UOp]) -> list[UOp]:
    """The ASSIGNs and CUSTOM_KERNELs below nodes."""
    return [node for node in UOp.sink(*roots).toposort() if node.op in _WRITES]


def find_readers(memory: Collection[UOp], known: Collection[UOp] = ()) -> list[UOp]:
    """The lazy values of live tensors that read these BUFFERs; their views and `known` left out."""
    live = [(x, node) for x, node in live_tensors.lazy_holders() if node not in known]
    if not live:
        return []
    dependents.register(node for _, node in live)
    above = dependents.of(memory)
    return [
        node
        for x, node in live
        if node in above and not _is_alias_of(x, memory) and not _is_unused(x)
    ]


def held_values(nodes: AbstractSet[UOp]) -> set[UOp]:
    """Those among `nodes` that are the whole value of a live tensor or cell. Gradients that are
    accumulated stay partial sums.
    """
    held = {node for x, node in live_tensors.whole_values_in(nodes) if not _is_unused(x)}
    if held and keeps_partial_gradients():
        held = {node for node in held if node.op is not Ops.ALLREDUCE}
    return held


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


def _outputs_of_kernels(writes: Sequence[UOp]) -> list[UOp]:
    return [x for node in writes if node.op is Ops.CUSTOM_KERNEL for x in kernel_outputs(node)]


def _add_latest(latest: dict[UOp, UOp], nodes: Iterable[UOp]) -> None:
    """Add the ASSIGNs among `nodes` to the latest ones, by the memory that they overwrite."""
    for node in nodes:
        if node.op is Ops.ASSIGN:
            memory = movement_base(node.src[0])
            known = latest.get(memory)
            if known is None or known.arg <= node.arg:
                latest[memory] = node


def _readers_of_older(latest: dict[UOp, UOp], known: Collection[UOp]) -> list[UOp]:
    """Live values, `known` left out, that read one of the buffers (keys) with content older than
    its latest assignment (values).
    """
    if not latest:
        return []
    # everything below a latest assignment is as old as that assignment needs it
    reads_old: dict[UOp, bool] = dict.fromkeys(latest.values(), False)
    found = dict.fromkeys(find_readers(latest, known))
    older = [node for node in found if _reads_older(node, latest, reads_old)]
    return [x for node in older for x in _stored_for(node)]


def _stored_for(node: UOp) -> tuple[UOp, ...]:
    """What to store so that a value needs no older content: the value, or the sources of a scatter
    of few rows, as of the gradient of an embedding, which then stays lazy.
    """
    scatter = node
    while scatter.op is Ops.DETACH:
        scatter = scatter.src[0]
    if scatter.op not in GroupOp.Scatter or not all_int(node.shape):
        return (node,)
    return scatter.src if sum(map(_size, scatter.src)) <= _size(node) // 2 else (node,)


def _size(node: UOp) -> int:
    return prod(d if isinstance(d, int) else int(d.vmax) for d in node.shape) * node.dtype.itemsize


def _is_alias_of(holder: TensorBase | Cell, memory: Collection[UOp]) -> bool:
    """Whether a value is that of one of these BUFFERs, or of a view of it; it sees new content."""
    group = holder if isinstance(holder, Cell) else holder._cell
    return view_base(holder.uop if group is None else group.uop) in memory


def _is_unused(holder: TensorBase | Cell) -> bool:
    """Whether a whole value is that of one view alone, which is realized without it."""
    if not isinstance(holder, Cell):
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
