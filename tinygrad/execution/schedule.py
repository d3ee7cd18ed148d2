"""From tensor graphs to runnable items, by plans from a cache.

Input: nodes of the tensor graph. Output: the items that compute them, and the BUFFER that will hold
each. Invariant: graphs of equal structure are planned once, whatever buffers they read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, TypeAlias

from tinygrad.caches import NODE_BYTES, LruTable, cache_bytes
from tinygrad.device import Device, RemoteBuffer
from tinygrad.execution.binding import Binding
from tinygrad.execution.buffers import device_buffers, note_host_array, set_tokens, tokens_of
from tinygrad.execution.capture import capturing
from tinygrad.execution.realize import ScheduleItem
from tinygrad.execution.temporaries import SMALL_TEMPORARY_BYTES
from tinygrad.execution.wire import current_wire
from tinygrad.helpers import all_int
from tinygrad.schedule.canonical import Canonical, canonicalize, lift_numbers
from tinygrad.schedule.execution_plan import ExecutionPlan, Slices, count_work, operations_of
from tinygrad.settings import ALL2ALL, ALLREDUCE_CAST, RING, SCHEDULE_CACHE, SPLIT_REDUCEOP
from tinygrad.sharding import (
    Sharding,
    current_local_devices,
    current_topology,
    is_on_host,
    max_shape,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import is_file
from tinygrad.uop.known_orders import orders_kept
from tinygrad.uop.ops import UOp

# movement that drops no elements, and shards of a value: the source can be materialised in their
# place
_WHOLE_VIEWS = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.EXPAND, Ops.MSELECT})
_VIEWS = _WHOLE_VIEWS | {Ops.SHRINK}
_IN_PLACE = frozenset({Ops.ASSIGN, Ops.CONTIGUOUS, Ops.CUSTOM_KERNEL})
_SEEN_THROUGH = GroupOp.Movement | {Ops.MSELECT, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}


class Store(NamedTuple):
    """Memory that a schedule overwrites: its BUFFER node until then, and from then on."""

    old: UOp
    new: UOp


@dataclass(slots=True)
class Schedule:
    """The items to run, the BUFFER, possibly under movement, of each computed node, and the values
    of bound Variables.

    `stores` are the BUFFERs whose memory is overwritten, `superseded` the ASSIGNs whose content a
    later one of the schedule overwrites, with the view of memory that they wrote. `on_the_way` are
    the computed nodes that nobody asked for.
    """

    items: list[ScheduleItem] = field(default_factory=list)
    outputs: dict[UOp, UOp] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    superseded: dict[UOp, UOp] = field(default_factory=dict)
    on_the_way: list[UOp] = field(default_factory=list)

    def clear(self) -> None:
        """Let go of all nodes."""
        self.outputs.clear()
        self.stores.clear()
        self.superseded.clear()
        self.on_the_way.clear()

    def outputs_of(self, completed: list[ScheduleItem]) -> dict[UOp, UOp]:
        """The outputs in memory that no item writes after these first ones."""
        missing = {b.base or b for item in self.items[len(completed) :] for b in item.written}
        return {
            node: stored
            for node, stored in self.outputs.items()
            if missing.isdisjoint(b.base or b for b in device_buffers(_memory_below(stored)))
        }


def output_node(node: UOp) -> UOp | None:
    """The node to compute in order to materialise `node`, or None if it is in memory already."""
    while node.op in _WHOLE_VIEWS and not _is_halo(node.src[0]):
        node = node.src[0]
    below = node
    while below.op in _VIEWS:
        below = below.src[0]
    return None if below.op is Ops.BUFFER else node


def _is_halo(node: UOp) -> bool:
    """Whether each device holds what its consumer needs, and not a block of the value: other
    users of the value could not be computed from that.
    """
    return isinstance(node.device, Sharding) and node.device.has_intervals


ENTRY_BYTES = 1 << 8
"""An estimate of the bytes of an item or an entry of a plan, with its place in memory (measured: 20
to 400)."""


def _plan_bytes(key: tuple[Any, ...], plan: ExecutionPlan) -> int:
    """An estimate of the bytes that a plan keeps: its key, its kernels and its items."""
    nodes = sum(len(ast.toposort()) for ast in plan.kernels) + len(key[0].toposort())
    parts = len(plan.entries) + sum(item.size for item in plan.items)
    return nodes * NODE_BYTES + parts * ENTRY_BYTES


plan_cache: LruTable[tuple[Any, ...], ExecutionPlan] = LruTable(
    lambda: cache_bytes() // 4, _plan_bytes
)


@dataclass
class _Variation:
    """The numbers of the first graph of its form, and the places of those that differed later."""

    numbers: tuple[UOp | None, ...]
    varying: frozenset[int] = frozenset()

    def add(self, numbers: tuple[UOp | None, ...]) -> frozenset[int]:
        """The places that vary, once `numbers` do too."""
        pairs = enumerate(zip(self.numbers, numbers, strict=True))
        differing = frozenset([i for i, (a, b) in pairs if a is not b])
        self.varying |= differing
        return self.varying


_variations: LruTable[UOp, _Variation] = LruTable(
    lambda: cache_bytes() // 12, lambda form, _: len(form.toposort()) * NODE_BYTES
)
"""By the form of a graph: itself with Variables for its numbers."""


def get_plan(
    sink: UOp, inputs: int, more: Sequence[UOp] = ()
) -> tuple[ExecutionPlan, dict[str, int]]:
    """The plan of a canonical graph, of a SINK or its only source, that reads `inputs` buffers,
    from the cache if it is there, and the values of the numbers that are arguments of its kernels.

    Its last outputs are the values of `more`, nodes of the graph: those that cost nothing to keep.
    The others are None.

    A graph that differs from an earlier one in numbers alone is planned once with those as
    Variables; later ones that differ in no others have the same plan. A capture keeps constants,
    since its kernels run with the numbers of the call that was captured. So does a process that
    plans a part: others may have seen other graphs before, and all must come to equal plans. So
    does a graph of which more is kept.
    """
    if more:
        return _plan_with(_as_sink(sink), inputs, more), {}
    options = _options()
    key: tuple[Any, ...] = (sink, *options)
    if not SCHEDULE_CACHE.get():
        return _new_plan(sink, inputs), {}
    found = plan_cache.get(key)
    if found is not None:
        return found, {}
    values: dict[str, int] = {}
    if not capturing() and current_local_devices().is_all:
        lifted = lift_numbers(sink)
        numbers = lifted.fixed(())
        variation = _variations.get(lifted.sink) if numbers else None
        if variation is not None and (varying := variation.add(numbers)):
            key, values = (lifted.sink, lifted.fixed(varying), *options), lifted.values(varying)
            found = plan_cache.get(key)
            sink = sink if found else lift_numbers(sink, varying).sink
        elif numbers and variation is None:
            _variations.put(lifted.sink, _Variation(numbers))
    if found is None:
        found = _new_plan(sink, inputs)
        plan_cache.put(key, found)
    return found, values


def _options() -> tuple[Any, ...]:
    """What plans depend on besides their graph."""
    settings = RING.get(), ALL2ALL.get(), ALLREDUCE_CAST.get(), SPLIT_REDUCEOP.get()
    return Device.DEFAULT, settings, current_topology(), current_local_devices()


def _new_plan(sink: UOp, inputs: int) -> ExecutionPlan:
    """A plan by the compiler, which is imported here: `import tinygrad` takes half the time."""
    from tinygrad.schedule.pipeline import PlanOptions, optimize_communication, plan_graph

    with orders_kept():
        graph = optimize_communication(_as_sink(sink))
        return plan_graph(graph, PlanOptions(inputs, Device.DEFAULT))


def _as_sink(node: UOp) -> UOp:
    return node if node.op is Ops.SINK else UOp.sink(node)


MAX_EXTRA_MEMORY = 50
"""Values are kept if a plan takes at most one part in so many more memory for them."""
MIN_KEPT_OPERATIONS = 16
"""Values that take at least so many operations a byte are kept, whatever memory the plan takes."""


def _plan_with(sink: UOp, inputs: int, more: Sequence[UOp]) -> ExecutionPlan:
    """The plan that keeps those values of `more` that cost nothing to keep, from the cache if it is
    there.
    """
    key = (UOp.sink(*sink.src, *more), len(more), *_options())
    found = plan_cache.get(key) if SCHEDULE_CACHE else None
    if found is None:
        found = _cheap_plan_with(sink, inputs, more)
        plan_cache.put(key, found)
    return found


def _fixed_plan(sink: UOp, inputs: int) -> ExecutionPlan:
    """The plan of a graph with its numbers, from the cache if it is there."""
    key = (sink, *_options())
    found = plan_cache.get(key) if SCHEDULE_CACHE else None
    if found is None:
        found = _new_plan(sink, inputs)
        plan_cache.put(key, found)
    return found


def _cheap_plan_with(sink: UOp, inputs: int, more: Sequence[UOp]) -> ExecutionPlan:
    """The plan that keeps those values of `more` which take no other kernels and messages, and no
    more memory unless they are worth it.
    """
    count = len(sink.src)
    sent = [node for node in sink.toposort() if node.op in GroupOp.Communication]
    if all(map(_is_array_on_one_device, (*sent, *more))) and current_local_devices().is_all:
        # to plan once is enough, as no other kernels and messages make them
        found = _fixed_plan(UOp.sink(*sink.src, *more), inputs)
        without = count_work(replace(found, outputs=found.outputs[:count]))
        places = dict(zip(more, found.outputs[count:], strict=True))
        if _is_as_cheap(count_work(found), without, places, set()):
            return found
    first = plan = _fixed_plan(sink, inputs)
    dear = {node for node in more if _is_dear(node, more)}

    def kept(nodes: Sequence[UOp], start: Sequence[UOp]) -> Sequence[UOp]:
        """`start`, and those of `nodes` to keep beside it."""
        nonlocal plan
        both = [*start, *nodes]
        found = _fixed_plan(UOp.sink(*sink.src, *both), inputs)
        if _is_as_cheap(found, first, dict(zip(both, found.outputs[count:], strict=True)), dear):
            plan = found
            return both
        if len(nodes) == 1:
            return start
        half = len(nodes) // 2
        return kept(nodes[half:], kept(nodes[:half], start))

    places = dict(zip(kept(more, ()), plan.outputs[count:], strict=True))
    return replace(plan, outputs=(*plan.outputs[:count], *map(places.get, more)))


def _is_as_cheap(
    plan: ExecutionPlan, without: ExecutionPlan, kept: dict[UOp, Slices | None], dear: set[UOp]
) -> bool:
    """Whether a plan that keeps some values takes the same kernels and messages as one that does
    not, and no more memory, but for that of values that are `dear` or small.

    What is cheap to compute is not kept either where its memory could be reused. A host array is,
    as sending it takes longer.
    """
    work, least = plan.work, without.work
    if work is None or least is None or not work.is_as_cheap(least):
        return False
    extra = (least.peak + sum(map(without.nbytes, range(without.inputs)))) // MAX_EXTRA_MEMORY
    reused = extra
    for node, parts in kept.items():
        nbytes = sum(map(plan.nbytes, {part.entry for part in parts or ()}))
        is_free = node in dear or nbytes <= SMALL_TEMPORARY_BYTES
        extra += nbytes if is_free else 0
        reused += nbytes if is_free or node.op is not Ops.CONTIGUOUS else 0
    return work.peak <= least.peak + extra and work.reused <= least.reused + reused


def _is_array_on_one_device(node: UOp) -> bool:
    """Whether a node is a copy of a host array on one device."""
    return isinstance(node.device, str) and _is_host_array(node) and not is_file(node.src[0].device)


def _is_host_array(node: UOp) -> bool:
    """Whether a node is a copy of what is in the memory of the host, or in a file."""
    if node.op is not Ops.COPY or node.src[0].op is not Ops.BUFFER:
        return False
    source = node.src[0].device
    return isinstance(source, str) and is_on_host(source)


def _is_dear(node: UOp, known: Collection[UOp]) -> bool:
    """Whether a value is sent between devices, or takes many operations to compute, those below
    `known` values left out.
    """
    if node.op in GroupOp.Communication:
        return not _is_host_array(node)
    below = UOp.sink(*node.src).toposort(gate=lambda x: x not in known)
    nbytes = prod(max_shape(node.shape)) * node.dtype.itemsize
    return sum(map(operations_of, below)) >= MIN_KEPT_OPERATIONS * nbytes


Held: TypeAlias = Callable[[Set[UOp]], Set[UOp]]
"""Those among some nodes that are the whole value of a live tensor."""
FurtherNodes: TypeAlias = Callable[[tuple[UOp, ...], list[UOp], list[UOp]], list[UOp]]
"""For the writes of a graph, those among them that others overwrite, and its outputs: further nodes
to compute in the same schedule."""


def create_schedule(
    nodes: list[UOp], further: FurtherNodes | None = None, held: Held | None = None
) -> Schedule:
    """The items that materialise `nodes`, and what is to be computed with them. Values that they
    store on the way and that are `held` are kept.
    """
    wanted = _outputs_of(nodes)
    if not wanted:
        return Schedule()
    canonical, lost = _with_further(wanted, further)
    kept = _kept(canonical.stored, wanted, held) if canonical.stored and held else {}
    more = tuple(kept.values()) if kept else ()
    plan, numbers = get_plan(canonical.sink, len(canonical.buffers), more)
    bound, writes = canonical.values, canonical.assignments
    if numbers:
        canonical = canonical._replace(values=bound | numbers)
    stored = {node for node in canonical.buffers if node.memory is not None} if writes else ()
    binding = Binding(plan, canonical)
    if not plan.local.is_all:
        current_wire().note(plan.digest, f"a schedule of {len(plan.items)} items")
        for node in canonical.buffers:
            note_host_array(node)
    tokens = _tokens(plan, canonical)
    items = binding.items()
    # an assignment must not run a second time
    outputs = {node: assigned_view(node) for node in writes} if writes else {}
    written = dict(outputs)
    results: dict[tuple[Any, ...], UOp] = {}
    on_the_way = _in_own_memory(plan, [*kept]) if kept else {}
    asked = zip(wanted, plan.outputs, strict=not kept)
    for node, parts in (*on_the_way.items(), *asked) if on_the_way else asked:
        if parts is None:
            if node not in outputs:
                outputs[node] = assigned_view(node)
            if _is_of_write(node):
                written[node] = outputs[node]
            continue
        # nodes that were optimized to one value share a BUFFER until one of them is written: no
        # memory has two names in a graph
        key = parts, node.device
        found = _viewed_as(results[key], node) if key in results else None
        if found is None:
            found = results[key] = binding.output(node, parts)
            if tokens:
                below = [token for part in parts for token in tokens[part.entry]]
                set_tokens(found, tuple(dict.fromkeys(below)))
        outputs[node] = found
    stores = _stores(writes, written, stored) if writes else []
    outputs |= written
    superseded = {node: outputs.pop(node) for node in lost}
    return Schedule(items, outputs, bound, stores, superseded, [*on_the_way])


def canonical_graph(nodes: list[UOp], further: FurtherNodes | None = None) -> UOp:
    """The canonical SINK that `create_schedule` plans."""
    wanted = _outputs_of(nodes)
    return _as_sink(_with_further(wanted, further)[0].sink) if wanted else UOp.sink()


def _kept(stored: dict[UOp, UOp], wanted: list[UOp], held: Held) -> dict[UOp, UOp]:
    """The nodes whose values plans store on the way, and that are `held`, with their canonical
    nodes; sources first.
    """
    found = stored.keys() - wanted
    known = held(found) if found else ()
    if not known:
        return {}
    return {
        node: new
        for node, new in stored.items()
        if node in known and all_int(node.shape) and not _is_halo(node)
    }


def _in_own_memory(plan: ExecutionPlan, kept: list[UOp]) -> dict[UOp, Slices | None]:
    """The nodes `kept`, the last outputs of a plan, whose memory is no input and no other output,
    with this memory.
    """
    count = len(plan.outputs) - len(kept)
    used = {part.entry for parts in plan.outputs[:count] for part in parts or ()}
    found: dict[UOp, Slices | None] = {}
    for node, parts in zip(kept, plan.outputs[count:], strict=True):
        entries = {part.entry for part in parts or ()}
        if parts and min(entries) >= plan.inputs and used.isdisjoint(entries):
            used |= entries
            found[node] = parts
    return found


def _viewed_as(stored: UOp, node: UOp) -> UOp | None:
    """A BUFFER in the shape of a node; None if that is no view of it."""
    if stored.shape == node.shape:
        return stored
    view = stored.reshape(node.shape)
    return view if view.src == (stored,) and view.device == node.device else None


def _with_further(wanted: list[UOp], further: FurtherNodes | None) -> tuple[Canonical, list[UOp]]:
    """The canonical graph of nodes, and of further ones, which are added before them; and the
    ASSIGNs whose content others overwrite.
    """
    while True:
        canonical = canonicalize(wanted[0] if len(wanted) == 1 else UOp.sink(*wanted))
        writes = canonical.assignments
        lost = _superseded(writes) if len(writes) > 1 else []
        if not writes or further is None:
            return canonical, lost
        known = set(wanted)
        more = [x for x in _outputs_of(further(writes, lost, wanted)) if x not in known]
        if not more:
            return canonical, lost
        # what reads older content comes before what overwrites it
        wanted[:0] = more


def _is_of_write(node: UOp) -> bool:
    """Whether a value is a view of what a write leaves in memory."""
    while node.op in _SEEN_THROUGH or node.op is Ops.CONTIGUOUS:
        node = node.src[0]
    return node.op in _IN_PLACE


def _stores(writes: Sequence[UOp], places: dict[UOp, UOp], stored: Collection[UOp]) -> list[Store]:
    """The BUFFERs that writes overwrite, of those that were `stored`, and those of the content to
    come, over which the `places` of the writes, and of views of them, are from then on.
    """
    found: dict[UOp, UOp] = {}
    for node in writes:
        old = _memory_below(places[node])
        # a kernel may keep elements of memory without content
        if old not in found and (old in stored or node.op is Ops.CUSTOM_KERNEL):
            found[old] = UOp.new_buffer(old.arg.device, old.arg.shape, old.dtype)
    for node, place in places.items() if found else ():
        places[node] = found[place] if place in found else place.substitute(found)
    return [Store(old, new) for old, new in found.items()]


def _outputs_of(nodes: list[UOp]) -> list[UOp]:
    """The nodes to compute for `nodes`."""
    return list({x: None for node in nodes if (x := output_node(node)) is not None})


def _superseded(writes: Sequence[UOp]) -> list[UOp]:
    """The ASSIGNs among `writes` whose content a later one to the same memory overwrites."""
    by_memory: dict[UOp, list[UOp]] = {}
    for node in writes:
        if node.op is Ops.ASSIGN:
            memory = _memory_below(assigned_view(node))
            if memory.memory is not None:
                by_memory.setdefault(memory, []).append(node)
    last = {max(nodes, key=lambda node: int(node.arg)) for nodes in by_memory.values()}
    return [node for nodes in by_memory.values() for node in nodes if node not in last]


def assigned_view(node: UOp) -> UOp:
    """The view of memory that holds the value of an ASSIGN, or of a kernel that writes in place,
    once it ran: its target without the assignments below.
    """
    while node.op in _IN_PLACE:
        node = node.src[node.arg.output if node.op is Ops.CUSTOM_KERNEL else 0]
    if node.op in _SEEN_THROUGH:
        return node.with_sources((assigned_view(node.src[0]),))
    return node


def _memory_below(view: UOp) -> UOp:
    while view.op is not Ops.BUFFER:
        view = view.src[0]
    return view


def _tokens(plan: ExecutionPlan, canonical: Canonical) -> dict[int, tuple[RemoteBuffer, ...]]:
    """The tokens of a plan's inputs and outputs, by entry, which captures note. Empty if all
    devices are local.
    """
    if plan.local.is_all:
        return {}
    found = dict(enumerate(map(tokens_of, canonical.buffers)))
    for entry in {part.entry for parts in plan.outputs for part in parts or ()}:
        made = plan.entries[entry]
        found.setdefault(entry, (RemoteBuffer(made.devices[0], made.size, made.dtype),))
    for capture in capturing()[-1:]:
        capture.touched.update(*found.values())
        capture.written.update(*(found[entry] for entry in plan.written & found.keys()))
    return found
