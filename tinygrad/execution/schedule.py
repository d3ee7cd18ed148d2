"""From tensor graphs to runnable items, by plans from a cache.

Input: nodes of the tensor graph. Output: the items that compute them, and the BUFFER that will hold
each. Invariant: graphs of equal structure are planned once, whatever buffers they read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tinygrad.caches import NODE_BYTES, LruTable, cache_bytes
from tinygrad.device import Device, RemoteBuffer
from tinygrad.execution.binding import Binding
from tinygrad.execution.buffers import device_buffers, note_host_array, set_tokens, tokens_of
from tinygrad.execution.capture import capturing
from tinygrad.execution.realize import ScheduleItem
from tinygrad.execution.wire import current_wire
from tinygrad.garbage import no_garbage
from tinygrad.schedule.canonical import Canonical, canonicalize, lift_numbers
from tinygrad.schedule.execution_plan import ExecutionPlan
from tinygrad.settings import ALL2ALL, ALLREDUCE_CAST, RING, SCHEDULE_CACHE, SPLIT_REDUCEOP
from tinygrad.sharding import Sharding, current_local_devices, current_topology
from tinygrad.uop import GroupOp, Ops
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


@dataclass
class Schedule:
    """The items to run, the BUFFER, possibly under movement, of each computed node, and the values
    of bound Variables.

    `stores` are the BUFFERs whose memory is overwritten, `superseded` the ASSIGNs whose content a
    later one of the schedule overwrites, with the view of memory that they wrote.
    """

    items: list[ScheduleItem] = field(default_factory=list)
    outputs: dict[UOp, UOp] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    superseded: dict[UOp, UOp] = field(default_factory=dict)

    def clear(self) -> None:
        """Let go of all nodes."""
        self.outputs.clear()
        self.stores.clear()
        self.superseded.clear()

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


def get_plan(sink: UOp, inputs: int) -> tuple[ExecutionPlan, dict[str, int]]:
    """The plan of a canonical graph that reads `inputs` buffers, from the cache if it is there, and
    the values of the numbers that are arguments of its kernels.

    A graph that differs from an earlier one in numbers alone is planned once with those as
    Variables; later ones that differ in no others have the same plan. A capture keeps constants,
    since its kernels run with the numbers of the call that was captured. So does a process that
    plans a part: others may have seen other graphs before, and all must come to equal plans.
    """
    settings = (RING.value, ALL2ALL.value, ALLREDUCE_CAST.value, SPLIT_REDUCEOP.value)
    options = (Device.DEFAULT, settings, current_topology(), current_local_devices())
    if not SCHEDULE_CACHE:
        return _new_plan(sink, inputs), {}
    found = plan_cache.get((sink, *options))
    if found is not None:
        return found, {}
    key: tuple[Any, ...] = (sink, *options)
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


def _new_plan(sink: UOp, inputs: int) -> ExecutionPlan:
    """A plan by the compiler, which is imported here: `import tinygrad` takes half the time."""
    from tinygrad.schedule.pipeline import PlanOptions, optimize_communication, plan_graph

    with orders_kept():
        return plan_graph(optimize_communication(sink), PlanOptions(inputs, Device.DEFAULT))


FurtherNodes: TypeAlias = Callable[[tuple[UOp, ...], list[UOp], list[UOp]], list[UOp]]
"""For the writes of a graph, those among them that others overwrite, and its outputs: further nodes
to compute in the same schedule."""


def create_schedule(nodes: list[UOp], further: FurtherNodes | None = None) -> Schedule:
    """The items that materialise `nodes`, and what is to be computed with them."""
    wanted = _outputs_of(nodes)
    if not wanted:
        return Schedule()
    with no_garbage():
        canonical, lost = _with_further(wanted, further)
        sink = canonical.sink if canonical.sink.op is Ops.SINK else UOp.sink(canonical.sink)
        plan, numbers = get_plan(sink, len(canonical.buffers))
    bound = canonical.values
    if numbers:
        canonical = canonical._replace(values=bound | numbers)
    stored = {node for node in canonical.buffers if node.memory is not None}
    binding = Binding(plan, canonical)
    if not plan.local.is_all:
        current_wire().note(plan.digest, f"a schedule of {len(plan.items)} items")
        for node in canonical.buffers:
            note_host_array(node)
    tokens = _tokens(plan, canonical)
    items = binding.items()
    # an assignment must not run a second time
    outputs = {node: assigned_view(node) for node in canonical.assignments}
    results: dict[tuple[Any, ...], UOp] = {}
    for node, parts in zip(wanted, plan.outputs, strict=True):
        if parts is None:
            if node not in outputs:
                outputs[node] = assigned_view(node)
            continue
        # nodes that were optimized to one value share a BUFFER until one of them is written: no
        # memory has two names in a graph
        found = _viewed_as(results.get((parts, node.device)), node)
        if found is None:
            found = results[parts, node.device] = binding.output(node, parts)
            if tokens:
                below = [token for part in parts for token in tokens[part.entry]]
                set_tokens(found, tuple(dict.fromkeys(below)))
        outputs[node] = found
    stores = _stores(canonical.assignments, outputs, stored)
    superseded = {node: outputs.pop(node) for node in lost}
    return Schedule(items, outputs, bound, stores, superseded)


def _viewed_as(stored: UOp | None, node: UOp) -> UOp | None:
    """A BUFFER in the shape of a node; None if that is no view of it."""
    if stored is None or stored.shape == node.shape:
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


def _stores(writes: Sequence[UOp], outputs: dict[UOp, UOp], stored: Collection[UOp]) -> list[Store]:
    """The BUFFERs that writes overwrite, of those that were `stored`, and those of the content to
    come, over which the `outputs` of the writes are from then on.
    """
    found: dict[UOp, UOp] = {}
    for node in writes:
        old = _memory_below(outputs[node])
        # a kernel may keep elements of memory without content
        if old not in found and (old in stored or node.op is Ops.CUSTOM_KERNEL):
            found[old] = UOp.new_buffer(old.arg.device, old.arg.shape, old.dtype)
    for node in writes if found else ():
        place = outputs[node]
        outputs[node] = found[place] if place in found else place.substitute(found)
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
