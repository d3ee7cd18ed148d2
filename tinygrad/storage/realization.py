"""Realization: tensors are computed into memory, and their dependents rebuilt over that memory.

Input: tensors. Output: these in memory, and every other live tensor in terms of the new buffers.
Invariant: a value that reads a buffer about to be overwritten is realized together with the write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tinygrad.execution import realize_tensors
from tinygrad.execution.buffers import storage_of
from tinygrad.garbage import no_garbage
from tinygrad.gradient import carry_over
from tinygrad.schedule.canonical import BindingConflict
from tinygrad.storage.aliases import note_stored, refresh_views, set_whole
from tinygrad.storage.copy_on_write import copy_on_write, mark_common_memory
from tinygrad.storage.dependents import dependents
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.gradients.partial_gradients import values_to_compute
from tinygrad.storage.host.shards import shard_on_host
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.lock import exclusive
from tinygrad.storage.older_content import (
    lost_value,
    memory_read_by,
    over_copies,
    overwritten_below,
)
from tinygrad.storage.pending_writes import (
    find_readers,
    readers_of_overwritten,
    with_readers_of_overwritten,
)
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.rebuild import rebuilt
from tinygrad.storage.shards import with_stored_shard
from tinygrad.storage.views import (
    VIEW_OPS,
    is_constant,
    is_in_memory,
    is_uniform,
    movement_base,
    path_to,
    view_base,
)
from tinygrad.uop import Ops
from tinygrad.uop.device_value import is_file
from tinygrad.uop.ops import UOp


@exclusive
def realize_all(tensors: Any) -> None:
    """Compute tensors into memory, and rebuild their dependents."""
    with no_garbage():
        _realize_all(tensors)


def _realize_all(tensors: Any) -> None:
    roots = nodes_to_compute(tensors)
    if not roots:
        return
    shards = shard_on_host(roots)
    if shards:
        replace_nodes(shards)
        roots = nodes_to_compute(tensors)
    is_settled = False
    while roots:
        try:
            _compute(roots)
            return
        except BindingConflict:
            if not _compute_first_write(roots):
                raise
        except Exception:
            if is_settled or not _settle_readers(tensors):
                raise
            is_settled = True
        roots = nodes_to_compute(tensors)


def _compute(nodes: list[UOp]) -> None:
    """Compute nodes, and rebuild their dependents. If that fails, results so far are kept, and
    values that read overwritten content are lost.
    """
    computed: dict[UOp, UOp] = {}
    try:
        realize_tensors(nodes, computed.update)
    except BaseException:
        lost = readers_of_overwritten(computed)
        replace_nodes(computed | {node: lost_value(node) for node in lost})
        raise
    replace_nodes(computed)


def _compute_first_write(nodes: list[UOp]) -> bool:
    """Compute the first pending write below `nodes` by itself, where together they bind one
    Variable to several values. Returns False if no write is left to be separated.
    """
    write = next((x for x in UOp.sink(*nodes).toposort() if x.op is Ops.ASSIGN), None)
    if write is None or nodes == [write]:
        return False
    for node in with_readers_of_overwritten([write]):
        _compute([node])
    return True


def _settle_readers(tensors: Any) -> bool:
    """After a failure, compute by themselves the values that read what `tensors` overwrite.

    Values that cannot be computed, or only by overwriting what others read, read a copy of the
    memory from now on. Returns whether there are such readers, so that trying again may help.
    """
    readers = _readers_of_older(tensors)
    if not readers:
        return False
    if with_readers_of_overwritten(readers) == readers:
        try:
            _compute(readers)
            return True
        except Exception:
            readers = _readers_of_older(tensors)
    overwritten = overwritten_below([*readers, *_missing(tensors)]) & memory_read_by(readers)
    copies = {memory: in_own_memory(memory) for memory in overwritten}
    stored: dict[UOp, UOp] = {}
    realize_tensors(list(copies.values()), stored.update)
    copies = {memory: stored[copy] for memory, copy in copies.items()}
    replace_nodes(over_copies(readers, copies))
    return True


def realize_write(write: UOp) -> None:
    """Run an ASSIGN to a view of a BUFFER, which tensors refer to before and after it."""
    refresh_views({view_base(write.src[0])})
    _compute(with_readers_of_overwritten([write]))


@exclusive
def realize_readers(memory: Collection[UOp], owners: Iterable[TensorBase] = ()) -> None:
    """Before code outside of the graph overwrites these BUFFERs, compute the lazy values that read
    them, and pending writes to them. Views of the `owners` see the new content.
    """
    for owner in owners:
        copy_on_write(owner, stays=True)
    refresh_views(memory)
    readers = dict.fromkeys(map(written_memory, find_readers(memory)))
    if readers:
        _compute(with_readers_of_overwritten(list(readers)))
    histories.overwritten(memory)


def nodes_to_compute(tensors: Any) -> list[UOp]:
    """The nodes to compute so that `tensors` are in memory; of a gradient, maybe partial sums."""
    for x in tensors:
        if x.uop.op in VIEW_OPS:
            x._set_node(with_stored_shard(x.uop))
        if x.uop.op is not Ops.BUFFER and is_constant(x.uop) and not is_uniform(x.uop):
            store_constant(x)
        base = movement_base(x.uop)
        if base.op is Ops.BUFFER and not base.is_realized:
            storage_of(base).ensure_allocated()
    return with_readers_of_overwritten(_missing(tensors))


def _missing(tensors: Any) -> list[UOp]:
    """The values of `tensors` that are not in memory, and pending writes to their aliases."""
    values = values_to_compute(_without_views(tensors))
    found = [written_memory(x) for x in values if _is_computed(x)]
    for x in tensors:
        if x._aliases is not None:
            write = view_base(x._aliases.uop)
            if write.op is Ops.ASSIGN:
                found.append(write)
    return list(dict.fromkeys(found))


def _readers_of_older(tensors: Any) -> list[UOp]:
    """The live values that read older content of what `tensors` overwrite."""
    roots = _missing(tensors)
    return with_readers_of_overwritten(roots)[: -len(roots)]


def _is_computed(node: UOp) -> bool:
    return not (is_in_memory(node) or is_uniform(node) or is_file(node.device))


def store_constant(tensor: TensorBase) -> None:
    """Let a tensor of constants, and its views, refer to a copy in memory of its own."""
    stored = in_own_memory(tensor.uop)
    if tensor._steps:
        tensor._set_node(stored)
    else:
        set_whole(tensor, stored)


def written_memory(node: UOp) -> UOp:
    """The pending write to the memory that a value is a view of; the value if there is none."""
    base = view_base(node)
    return base if base.op is Ops.ASSIGN else node


def _without_views(tensors: Sequence[TensorBase]) -> Sequence[TensorBase]:
    """`tensors` without views of others among them, which are in memory with these."""
    if len(tensors) == 1:
        return tensors
    whole = {x._aliases for x in tensors if x._aliases is not None and not x._steps}
    return [x for x in tensors if not x._steps or x._aliases not in whole]


def replace_nodes(table: dict[UOp, UOp]) -> None:
    """Rebuild every live tensor with the keys of `table` replaced by nodes of equal value."""
    if not table:
        return
    paths = []
    changed: set[UOp] = set()
    # most tensors are views of a realized node: their other dependents need not be registered
    others = []
    for x in live_tensors.lazy_holders():
        path = path_to(x.uop, table)
        paths.append((x, path))
        if path:
            changed.update(path)
        else:
            others.append(x.uop)
    if others:
        dependents.register(others)
        changed |= dependents.of(table)
    kept = histories.to_keep(table, paths)
    done = dict(table)
    moved = []
    for x, _ in paths:
        old = x.uop
        if old not in changed:
            continue
        new = done[old] if old in done else rebuilt(old, changed, done)
        if new is old:
            continue
        x.uop = new
        moved.append(x)
        for member in (x,) if isinstance(x, TensorBase) else x.live():
            note_stored(member)
    if len(moved) > 1:
        mark_common_memory(moved)
    carry_over(done)
    histories.stored(table, kept)
