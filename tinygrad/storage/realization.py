"""Realization: tensors are computed into memory, and their dependents rebuilt over that memory.

Input: tensors. Output: these in memory, and every other live tensor in terms of the new buffers.
Invariant: memory that exists is overwritten through the gate alone (`gate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tinygrad.execution.buffers import bind_memory, storage_of, tokens_of
from tinygrad.execution.interrupts import interrupts_kept
from tinygrad.execution.realize import ScheduleItem, compile_items, run_schedule
from tinygrad.execution.schedule import (
    FurtherNodes,
    Schedule,
    Store,
    canonical_graph,
    create_schedule,
)
from tinygrad.execution.versions import Memory, bases_of, owner_of
from tinygrad.garbage import no_garbage
from tinygrad.gradient import carry_over
from tinygrad.schedule.canonical import BindingConflict
from tinygrad.schedule.grouping.plan.order import OverwriteConflict
from tinygrad.settings import STATE_POLICY, Context
from tinygrad.storage.aliases import (
    has_own_memory,
    is_written_in_place,
    set_whole,
    whole_tensor,
    whole_value,
)
from tinygrad.storage.dependents import dependents
from tinygrad.storage.gate import make_writable
from tinygrad.storage.gradients.grad_mode import Leaf
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.gradients.partial_gradients import values_to_compute
from tinygrad.storage.host.shards import shard_on_host
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.lock import exclusive
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.put_back import PutBack
from tinygrad.storage.readers import computed_together, find_readers, held_values, writes_below
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

T = TypeVar("T")

NO_STORES: Mapping[UOp, UOp] = MappingProxyType({})


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
    while roots:
        try:
            compute(roots)
            return
        except (BindingConflict, OverwriteConflict):
            roots = nodes_to_compute(tensors)
            if not _compute_first_write(roots):
                raise
        except Exception:
            # values that read what is overwritten may have failed; without them, they move out
            roots = nodes_to_compute(tensors)
            if not STATE_POLICY or not (roots and computed_together(writes_below(roots), roots)):
                raise
            with Context(STATE_POLICY=0):
                compute(roots)
            return
        roots = nodes_to_compute(tensors)


def compute(roots: list[UOp]) -> None:
    """Compute nodes, and rebuild their dependents. `roots` are taken out of the list, as nobody may
    hold the content that is about to be overwritten.

    If it fails, results so far are kept, so that no write runs twice.
    """
    schedule = planned(roots)
    completed: list[ScheduleItem] = []
    if schedule.stores:
        _run_writes(schedule, completed)
    else:
        try:
            run_schedule(schedule.items, completed)
        except BaseException:
            replace_nodes(schedule.outputs_of(completed), on_the_way=schedule.on_the_way)
            raise
        replace_nodes(schedule.outputs, on_the_way=schedule.on_the_way)
    histories.copy_shared(_run_copies)


def planned(roots: list[UOp]) -> Schedule:
    """The schedule of nodes, which are taken out of the list, and of what is computed with them."""
    copies: dict[UOp, UOp] = {}
    nodes = [*roots]
    roots.clear()
    schedule = _with_readers(
        nodes, copies, lambda nodes, further: create_schedule(nodes, further, held_values)
    )
    for node, copy in copies.items():
        schedule.outputs[node] = schedule.outputs[copy]
    return schedule


@exclusive
def computed_graph(tensors: Sequence[TensorBase]) -> UOp:
    """The canonical graph that the realization of tensors plans."""
    return _with_readers(nodes_to_compute(tensors), {}, canonical_graph)


def _with_readers(
    nodes: list[UOp], copies: dict[UOp, UOp], make: Callable[[list[UOp], FurtherNodes], T]
) -> T:
    """What `make` makes of nodes and of what is computed with them, `copies` of some included."""

    def further(writes: tuple[UOp, ...], lost: list[UOp], known: list[UOp]) -> list[UOp]:
        # what is overwritten within the schedule needs memory of its own if it is asked for
        for node in known if lost else ():
            if node not in copies and _written_value(node) in lost:
                copies[node] = in_own_memory(node)
        return [*copies.values(), *computed_together(writes, known)]

    try:
        return make(nodes, further)
    except Exception:
        # a reader that cannot be computed with the write moves out
        copies.clear()
        with Context(STATE_POLICY=0):
            return make(nodes, further)


def _written_value(node: UOp) -> UOp:
    """The BUFFER or ASSIGN in whose memory a value may be found; the base of the value if none."""
    while node.op in VIEW_OPS or node.op is Ops.CONTIGUOUS:
        node = node.src[0]
    return node


@exclusive
def schedule_all(tensors: Sequence[TensorBase]) -> tuple[list[ScheduleItem], dict[str, int]]:
    """The items that compute tensors, which the caller runs, and the values of Variables."""
    with no_garbage():
        schedule = planned(nodes_to_compute(tensors))
        items, values = schedule.items, schedule.values
        _open_memory(_let_go(schedule))
    return items, values


def _run_writes(schedule: Schedule, completed: list[ScheduleItem]) -> None:
    """Run a schedule that overwrites memory. If that fails, put back what did not run."""
    items = schedule.items
    compile_items(items)
    with interrupts_kept:
        undo = PutBack(schedule)
        released = _let_go(schedule)
        try:
            _open_memory(released)
            memory = [set(bases_of(found)) for found, _ in released.memory]
            run_schedule(items, completed, memory)
        except BaseException:
            undo.put_back(completed, items[len(completed) :], released.outputs, released.stored)
            raise


class _Released(NamedTuple):
    """What a schedule will compute, once no tensor reads what it overwrites.

    `stored` are the BUFFERs of new content of the `memory`, with its tokens; `renewed` those among
    the BUFFERs of results that were found in that memory after the write.
    """

    outputs: list[UOp]
    stored: list[UOp]
    memory: list[tuple[Memory, tuple[Any, ...]]]
    renewed: set[UOp]


def _let_go(schedule: Schedule) -> _Released:
    """Let every tensor read what a schedule is about to compute, so that none reads what it
    overwrites. The schedule has no nodes from then on.
    """
    stored = [store.new for store in schedule.stores]
    memory = [(store.old.memory, tokens_of(store.old)) for store in schedule.stores]
    for store in schedule.stores:
        _follow(store)
    replace_nodes(schedule.outputs, dict(schedule.stores), schedule.superseded, schedule.on_the_way)
    found = _Released([*schedule.outputs.values()], stored, memory, _in_new_content(schedule))
    schedule.clear()
    return found


def _open_memory(released: _Released) -> None:
    """Look, and bind the new content to the memory."""
    make_writable([x for memory, _ in released.memory for x in bases_of(memory)], released.renewed)
    for node, (memory, tokens) in zip(released.stored, released.memory, strict=True):
        bind_memory(node, memory, tokens)


def _in_new_content(schedule: Schedule) -> set[UOp]:
    """The BUFFERs of results that were found in overwritten memory after the write, as
    `x.assign(y).contiguous()` is.
    """
    memory = {base for store in schedule.stores for base in bases_of(store.old.memory)}
    found: set[UOp] = set()
    for root, place in schedule.outputs.items():
        node = view_base(place)
        if node.memory is not None and not memory.isdisjoint(bases_of(node.memory)):
            bases = set(bases_of(node.memory))
            targets = [view_base(x.src[0]) for x in root.toposort() if x.op is Ops.ASSIGN]
            if any(not bases.isdisjoint(bases_of(x.memory)) for x in targets if x.memory):
                found.add(node)
    return found


def _follow(store: Store) -> None:
    """Let the cell that owns overwritten memory refer to its new content, unless it is lazy."""
    cell = owner_of(store.old.memory)
    node = None if cell is None else cell._node
    if cell is not None and node is not None and view_base(node) is store.old:
        is_whole = node is store.old
        cell.set(store.new if is_whole else node.substitute({store.old: store.new}))


def _run_copies(copies: list[UOp]) -> None:
    """Compute ASSIGNs to new memory, by items, which a capture records."""
    run_schedule(create_schedule(copies).items)


def _compute_first_write(nodes: list[UOp]) -> bool:
    """Compute the first pending write below `nodes` by itself, where together they bind one
    Variable to several values. Returns False if no write is left to be separated.
    """
    write = next((x for x in UOp.sink(*nodes).toposort() if x.op is Ops.ASSIGN), None)
    if write is None or nodes == [write]:
        return False
    nodes[:] = [write]
    del write
    compute(nodes)
    return True


@exclusive
def overwrite(memory: Collection[UOp]) -> None:
    """Before code outside of the graph overwrites the content of these BUFFERs, compute the lazy
    values that read it.
    """
    readers = list(dict.fromkeys(map(written_memory, find_readers(memory))))
    if readers:
        # those that cannot be computed move out
        with suppress(Exception):
            compute(readers)
    histories.overwritten(memory)


@exclusive
def own_memory(tensor: TensorBase, for_outside: bool = False) -> None:
    """Let a tensor and its views be in memory that they alone write, so that it stays there.

    If it is `for_outside`, code outside may read and write it from now on.
    """
    whole = whole_tensor(tensor)
    if is_constant(whole.uop):
        store_constant(whole)
    realize_all((whole,))
    base = view_base(whole.uop)
    if base.op is Ops.BUFFER and not is_written_in_place(tensor):
        set_whole(whole, in_own_memory(whole.uop))
        realize_all((whole,))
        base = view_base(whole.uop)
        tensor._own_cell().owns(base)
    # views in memory of their own read the memory again
    for member in tensor._own_cell().live():
        if member._steps:
            member._forget_node()
    for memory in bases_of(base.memory) if for_outside and base.memory is not None else ():
        memory.outside = True


def nodes_to_compute(tensors: Any) -> list[UOp]:
    """The nodes to compute so that `tensors` are in memory; of a gradient, maybe partial sums."""
    for x in tensors:
        if x._steps and has_own_memory(x) and _is_outside(view_base(whole_value(x))):
            # what is in the memory now is not known
            x._forget_node()
        node = x.uop
        if node.op in VIEW_OPS and (shard := with_stored_shard(node)) is not node:
            x._set_node(shard)
        elif node.op is not Ops.BUFFER and is_constant(node) and not is_uniform(node):
            store_constant(x)
        base = movement_base(x.uop)
        if base.op is Ops.BUFFER and base.memory is None:
            storage_of(base).ensure_allocated()
        found = _written_value(base)
        if found.op is Ops.BUFFER and _is_outside(found) and not _owns(x, found):
            set_whole(x, in_own_memory(whole_value(x)))
    return _missing(tensors)


def _missing(tensors: Any) -> list[UOp]:
    """The values of `tensors` that are not in memory, and pending writes to their aliases."""
    values = values_to_compute(_without_views(tensors))
    found = [written_memory(x) for x in values if _is_computed(x)]
    for x in tensors:
        if x._cell is not None:
            write = view_base(x._cell.uop)
            if write.op is Ops.ASSIGN:
                found.append(write)
    return list(dict.fromkeys(found))


def _is_outside(base: UOp) -> bool:
    """Whether code outside can write the memory of a BUFFER."""
    return base.memory is not None and bases_of(base.memory)[0].outside


def _owns(tensor: TensorBase, base: UOp) -> bool:
    """Whether a tensor, or an alias of it, writes the memory of a BUFFER."""
    owner = owner_of(base.memory)
    return owner is not None and owner is tensor._cell


def _is_computed(node: UOp) -> bool:
    """Whether a value has to be computed to be in memory."""
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
    whole = {x._cell for x in tensors if x._cell is not None and not x._steps}
    return [x for x in tensors if not x._steps or x._cell not in whole]


def replace_nodes(
    table: dict[UOp, UOp],
    stores: Mapping[UOp, UOp] = NO_STORES,
    superseded: Mapping[UOp, UOp] = NO_STORES,
    on_the_way: Collection[UOp] = (),
) -> None:
    """Rebuild every live tensor with the keys of `table` replaced by nodes of equal value.

    The memory of the keys of `stores`, BUFFERs, has the content of other BUFFERs from now on. That
    of the ASSIGNs `superseded` was overwritten since. Keys that were stored `on_the_way` to others
    stay in histories.
    """
    if not table:
        return
    paths = []
    changed: set[UOp] = set()
    # most tensors are views of a realized node: their other dependents need not be registered
    others = []
    holders = live_tensors.lazy_holders()
    for x, node in holders:
        path = path_to(node, table)
        if path:
            paths.append((x, path))
            changed.update(path)
        else:
            others.append(node)
    if others:
        dependents.register(others)
        changed |= dependents.of((*table, *stores))
    kept = histories.to_keep(table, paths)
    done = dict(table)
    table = {**superseded, **table}
    overwritten = _numbers_of_writes(table, stores) if stores else {}
    for x, old in holders:
        if old not in changed:
            continue
        new = done[old] if old in done else rebuilt(old, changed, done, overwritten)
        if new is not old:
            x.uop = new
            if isinstance(x, TensorBase) and isinstance(x._requires_grad, Leaf):
                # values that were computed from a leaf have its gradient, so it stays in its memory
                x._own_memory()
    carry_over(done)
    histories.stored(table, kept, stores, on_the_way)


def _numbers_of_writes(
    table: dict[UOp, UOp], stores: Mapping[UOp, UOp]
) -> dict[UOp, tuple[UOp, int]]:
    """For each BUFFER whose memory is overwritten, the BUFFER of the new content, and the number of
    the ASSIGN that writes it.
    """
    numbers = {old: (new, -1) for old, new in stores.items()}
    for node in table:
        if node.op is Ops.ASSIGN and (memory := view_base(node.src[0])) in numbers:
            new, number = numbers[memory]
            numbers[memory] = new, max(number, int(node.arg))
    return numbers
