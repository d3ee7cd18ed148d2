"""The cost of a step: seconds, communicated bytes, and memory of each device.

Input: a function and layouts for its tensors. Output: a `Cost`. Of many equal layers at most
three are built: each further layer costs what the last one adds, which is never below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tinygrad.execution.buffers import storage_of
from tinygrad.helpers import prod
from tinygrad.planner.communication import CommCost, communication_costs
from tinygrad.planner.device_program import device_program
from tinygrad.planner.layers import Group, repeated, shortened
from tinygrad.planner.trial import Function, trial_graph
from tinygrad.schedule.spmd.local import local_shape
from tinygrad.sharding import current_topology, max_shape
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.device_value import TensorDevice, device_names, tensor_device
from tinygrad.uop.ops import UOp

Graphs = list[tuple[int, UOp]]
"""A graph, and further ones with one more layer each, whose additions are counted so many times."""


MIN_PLANNED_LAYERS = 2
"""The minimum number of equal layers in a graph that is planned. All layers but the first and the
last take the same memory and kernels: these are next to what is before and after the layers."""


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a function on all devices.

    `kinds` are the bytes that cross devices by kind of collective, `communication_s` and
    `computation_s` seconds, `inputs_nbytes` the memory of the inputs on each device, and
    `working_nbytes` the peak memory of results and temporaries.
    """

    kinds: Mapping[str, int] = field(default_factory=dict)
    communication_s: float = 0.0
    computation_s: float = 0.0
    inputs_nbytes: int = 0
    working_nbytes: int = 0
    stored_nbytes: int = 0
    """The bytes of the results of reductions and collectives on each device."""

    @property
    def nbytes(self) -> int:
        """The bytes that cross devices, in all."""
        return sum(self.kinds.values())

    @property
    def seconds(self) -> float:
        """Communication and computation, one after the other."""
        return self.communication_s + self.computation_s

    def is_dominated_by(self, bound: Cost) -> bool:
        """Whether no part of this lower bound is less than that of another one."""
        return (
            self.communication_s >= bound.communication_s
            and self.computation_s >= bound.computation_s
            and self.inputs_nbytes >= bound.inputs_nbytes
            and self.stored_nbytes >= bound.stored_nbytes
        )

    @property
    def memory_nbytes(self) -> int:
        """The peak memory of a device."""
        return self.inputs_nbytes + self.working_nbytes


def lower_bound(sink: UOp) -> Cost:
    """A lower bound of the cost of an optimized graph: it counts no rematerialisation, no memory
    traffic of kernels and no temporaries.
    """
    costs: list[CommCost] = []
    topology = current_topology()
    stored, seconds = 0, 0.0
    for node in sink.toposort():
        if node.op in {Ops.COPY, Ops.ALLREDUCE}:
            found = communication_costs(node)
            costs += found
            stored += local_nbytes(node) if found else 0
        elif node.op is Ops.REDUCE_AXIS and node.device is not None:
            seconds += (
                local_size(node.src[0]) / topology.processor(device_names(node.device)[0]).flops
            )
            stored += local_nbytes(node)
    return replace(
        communication(costs),
        computation_s=seconds,
        working_nbytes=sum(map(local_nbytes, results_of(sink))),
        stored_nbytes=stored,
    )


def results_of(sink: UOp) -> set[UOp]:
    """The outputs that take memory of their own."""
    found = set()
    for node in sink.src:
        while node.op in {Ops.RESHAPE, Ops.CONTIGUOUS}:
            node = node.src[0]
        if node.device is not None and node.op not in {Ops.BUFFER, Ops.ASSIGN, Ops.AFTER}:
            found.add(node)
    return found


def communication(moved: Iterable[CommCost]) -> Cost:
    """The cost of collectives that run one after the other."""
    kinds: dict[str, int] = {}
    seconds = 0.0
    for movement in moved:
        kinds[movement.kind] = kinds.get(movement.kind, 0) + movement.nbytes
        seconds += movement.seconds
    return Cost(kinds, communication_s=seconds)


def planned(sink: UOp) -> Cost:
    """The cost of an optimized graph by its plan."""
    found = device_program(sink)
    total = communication(found.communication)
    return replace(total, computation_s=found.seconds, working_nbytes=found.nbytes)


def local_size(node: UOp) -> int:
    """The number of elements of a value on one device."""
    if node.device is None:
        return prod(max_shape(node.shape))
    return prod(max_shape(local_shape(tensor_device(node.device), node.shape)))


def local_nbytes(node: UOp) -> int:
    """The number of bytes of a value on one device."""
    return local_size(node) * node.dtype.itemsize


def extrapolate(bound: Cost, known: Cost, bound_of_known: Cost, factor: float) -> Cost:
    """The cost for a lower bound, in proportion to the `known` cost of a similar choice and its
    bound; `factor` below 1 makes the result optimistic.
    """
    again = known.communication_s - bound_of_known.communication_s
    computed, stored = bound_of_known.computation_s, bound_of_known.stored_nbytes
    computation = known.computation_s * bound.computation_s / computed if computed else 0.0
    working = known.working_nbytes * bound.stored_nbytes // stored if stored else 0
    return replace(
        bound,
        communication_s=bound.communication_s + factor * max(0.0, again),
        computation_s=max(bound.computation_s, factor * computation),
        working_nbytes=max(bound.working_nbytes, int(factor * working)),
    )


def with_more_layers(costs: Sequence[tuple[int, Cost]]) -> Cost:
    """The first cost, and so many times what each other one has more, which is never below 0."""
    (_, first), *longer = costs

    def total(part: Callable[[Cost], Any]) -> Any:
        known = part(first)
        return known + sum(count * max(part(cost) - known, 0) for count, cost in longer)

    def sent(kind: str) -> int:
        return int(total(lambda cost: cost.kinds.get(kind, 0)))

    return Cost(
        {kind: sent(kind) for kind in dict.fromkeys(k for _, cost in costs for k in cost.kinds)},
        total(lambda cost: cost.communication_s),
        total(lambda cost: cost.computation_s),
        total(lambda cost: cost.inputs_nbytes),
        total(lambda cost: cost.working_nbytes),
        total(lambda cost: cost.stored_nbytes),
    )


class TrialFunction:
    """A function and its inputs: builds graphs with the inputs in any layouts, and costs them."""

    def __init__(self, function: Function, inputs: Mapping[str, Any], groups: Sequence[Group]):
        self.function = function
        self.inputs = inputs
        self.groups = groups
        self.repeated = repeated(inputs)
        # shared by all graphs, so that their common parts are the same nodes
        self._memory: dict[tuple[int, TensorDevice], UOp] = {}

    def graph(self, layouts: Sequence[TensorDevice]) -> UOp:
        """The graph with all layers."""
        pairs = zip(self.groups, layouts, strict=True)
        memory = [
            (x, self._stored(x, layout)) for group, layout in pairs for x in group.tensors.values()
        ]
        return trial_graph(self.function, self.inputs, memory)

    def _stored(self, tensor: Tensor, layout: TensorDevice) -> UOp:
        """A new BUFFER for a tensor in a layout, which is never allocated."""
        key = (id(tensor), layout)
        if key not in self._memory:
            node = self._memory[key] = UOp.new_buffer(layout, tensor.shape, tensor.dtype)
            # assignments need a buffer to write to
            storage_of(node)
        return self._memory[key]

    def graphs(self, layouts: Sequence[TensorDevice], count: int = MIN_PLANNED_LAYERS) -> Graphs:
        """Graphs with few layers.

        One graph has `count` layers of each kind; for each kind another one has a further layer.
        The cost of n layers is that of the first graph and n - `count` times what this layer adds.
        """
        few = [count] * len(self.repeated)
        built = [(1, self._short(few, layouts))]
        for number, lists in enumerate(self.repeated):
            lengths = [*few[:number], count + 1, *few[number + 1 :]]
            built.append((len(lists[0]) - count, self._short(lengths, layouts)))
        return built

    def _short(self, lengths: Sequence[int], layouts: Sequence[TensorDevice]) -> UOp:
        with shortened(self.inputs, self.repeated, lengths):
            return self.graph(layouts)

    def lower_bound(self, layouts: Sequence[TensorDevice], graphs: Graphs) -> Cost:
        """A lower bound of the cost, from graphs that are not planned."""
        return self._total(layouts, [(count, lower_bound(sink)) for count, sink in graphs])

    def planned(self, layouts: Sequence[TensorDevice], graphs: Graphs) -> Cost:
        """The cost, extrapolated from graphs of few layers."""
        return self._total(layouts, [(count, planned(sink)) for count, sink in graphs])

    def _total(self, layouts: Sequence[TensorDevice], costs: Sequence[tuple[int, Cost]]) -> Cost:
        """The cost of all layers, with the memory of all inputs."""
        inputs = 0
        for group, layout in zip(self.groups, layouts, strict=True):
            local = prod(local_shape(layout, group.shape)) * group.dtype.itemsize
            inputs += len(group.tensors) * local
        return replace(with_more_layers(costs), inputs_nbytes=inputs)

    def cost(self, layouts: Sequence[TensorDevice]) -> Cost:
        """The cost with all layers built, exact in communicated bytes."""
        return self.planned(layouts, [(1, self.graph(layouts))])
