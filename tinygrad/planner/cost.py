"""What a step costs: seconds, bytes that move, and memory of each device.

In: a function with layouts for its tensors. Out: a `Cost`. Layers that are alike are built twice at
most: what the second adds, all others add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tinygrad.execution.buffers import storage_of
from tinygrad.helpers import prod
from tinygrad.planner.communication import CommCost, communication_costs
from tinygrad.planner.device_program import device_program
from tinygrad.planner.layers import Group, repeated, shortened
from tinygrad.planner.trial import Function, trial_graph
from tinygrad.schedule.spmd.local import local_shape, max_shape
from tinygrad.sharding import current_topology
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.device_value import TensorDevice, device_names, tensor_device
from tinygrad.uop.ops import UOp

Graphs = list[tuple[int, UOp]]
"""Graphs, and how many times each counts."""


@dataclass(frozen=True)
class Cost:
    """One run of a function on all devices.

    `kinds` are the bytes that cross devices by kind of movement, `communication_s` and
    `computation_s` seconds, `inputs_nbytes` the memory that tensors take on each device, and
    `working_nbytes` the most that results and temporaries take besides.
    """

    kinds: Mapping[str, int] = field(default_factory=dict)
    communication_s: float = 0.0
    computation_s: float = 0.0
    inputs_nbytes: int = 0
    working_nbytes: int = 0
    stored_nbytes: int = 0
    """Of what each device reduces or receives."""

    @property
    def nbytes(self) -> int:
        """The bytes that cross devices, in all."""
        return sum(self.kinds.values())

    @property
    def seconds(self) -> float:
        """Communication and computation, one after the other."""
        return self.communication_s + self.computation_s

    def is_no_less(self, survey: Cost) -> bool:
        """Whether, of what a survey tells, nothing is less than in another one."""
        return (
            self.communication_s >= survey.communication_s
            and self.computation_s >= survey.computation_s
            and self.inputs_nbytes >= survey.inputs_nbytes
            and self.stored_nbytes >= survey.stored_nbytes
        )

    @property
    def memory_nbytes(self) -> int:
        """The most memory that one device needs."""
        return self.inputs_nbytes + self.working_nbytes


def survey(sink: UOp) -> Cost:
    """What a simplified graph costs at least: once it is planned, more is gathered again, kernels
    read memory, and temporaries take some.
    """
    moved: list[CommCost] = []
    topology = current_topology()
    stored, seconds = 0, 0.0
    for node in sink.toposort():
        if node.op in {Ops.COPY, Ops.ALLREDUCE}:
            found = communication_costs(node)
            moved += found
            stored += local_nbytes(node) if found else 0
        elif node.op is Ops.REDUCE_AXIS and node.device is not None:
            seconds += (
                local_size(node.src[0]) / topology.processor(device_names(node.device)[0]).flops
            )
            stored += local_nbytes(node)
    return replace(
        communication(moved),
        computation_s=seconds,
        working_nbytes=sum(map(local_nbytes, results_of(sink))),
        stored_nbytes=stored,
    )


def results_of(sink: UOp) -> set[UOp]:
    """The values that take memory of their own because they are asked for."""
    found = set()
    for node in sink.src:
        while node.op in {Ops.RESHAPE, Ops.CONTIGUOUS}:
            node = node.src[0]
        if node.device is not None and node.op not in {Ops.BUFFER, Ops.ASSIGN}:
            found.add(node)
    return found


def communication(moved: Iterable[CommCost]) -> Cost:
    """What movements cost, one after the other."""
    kinds: dict[str, int] = {}
    seconds = 0.0
    for movement in moved:
        kinds[movement.kind] = kinds.get(movement.kind, 0) + movement.nbytes
        seconds += movement.seconds
    return Cost(kinds, communication_s=seconds)


def planned(sink: UOp) -> Cost:
    """What moves in a simplified graph once it is planned, and what each device computes and
    stores.
    """
    found = device_program(sink)
    moved = communication(found.communication)
    return replace(moved, computation_s=found.seconds, working_nbytes=found.nbytes)


def local_size(node: UOp) -> int:
    """The elements that one device holds of a value."""
    if node.device is None:
        return prod(max_shape(node.shape))
    return prod(max_shape(local_shape(tensor_device(node.device), node.shape)))


def local_nbytes(node: UOp) -> int:
    """The bytes that one device holds of a value."""
    return local_size(node) * node.dtype.itemsize


def guessed(survey: Cost, like: Cost, survey_of_like: Cost, doubt: float) -> Cost:
    """`survey` with what a plan adds to one, in proportion to what it added to another choice,
    `like`; less by `doubt`.
    """
    again = like.communication_s - survey_of_like.communication_s
    computed, stored = survey_of_like.computation_s, survey_of_like.stored_nbytes
    computation = like.computation_s * survey.computation_s / computed if computed else 0.0
    working = like.working_nbytes * survey.stored_nbytes // stored if stored else 0
    return replace(
        survey,
        communication_s=survey.communication_s + doubt * max(0.0, again),
        computation_s=max(survey.computation_s, doubt * computation),
        working_nbytes=max(survey.working_nbytes, int(doubt * working)),
    )


def weighted(costs: Sequence[tuple[int, Cost]]) -> Cost:
    """The sum of costs, each so many times."""
    kinds = {kind: 0 for _, cost in costs for kind in cost.kinds}
    for count, cost in costs:
        for kind, nbytes in cost.kinds.items():
            kinds[kind] += count * nbytes
    return Cost(
        {kind: nbytes for kind, nbytes in kinds.items() if nbytes},
        sum(count * cost.communication_s for count, cost in costs),
        sum(count * cost.computation_s for count, cost in costs),
        sum(count * cost.inputs_nbytes for count, cost in costs),
        sum(count * cost.working_nbytes for count, cost in costs),
        sum(count * cost.stored_nbytes for count, cost in costs),
    )


class Step:
    """A function with its inputs, of which graphs can be built in any layouts."""

    def __init__(self, function: Function, inputs: Mapping[str, Any], groups: Sequence[Group]):
        self.function = function
        self.inputs = inputs
        self.groups = groups
        self.repeated = repeated(inputs)
        # the same in all graphs, so that what is built on it alike is built once
        self._memory: dict[tuple[int, TensorDevice], UOp] = {}

    def graph(self, layouts: Sequence[TensorDevice]) -> UOp:
        """The graph with all layers."""
        pairs = zip(self.groups, layouts, strict=True)
        memory = [
            (x, self._stored(x, layout)) for group, layout in pairs for x in group.tensors.values()
        ]
        return trial_graph(self.function, self.inputs, memory)

    def _stored(self, tensor: Tensor, layout: TensorDevice) -> UOp:
        """New memory of a tensor in a layout, which is never allocated."""
        key = (id(tensor), layout)
        if key not in self._memory:
            node = self._memory[key] = UOp.new_buffer(layout, tensor.shape, tensor.dtype)
            # what is assigned to it is written there
            storage_of(node)
        return self._memory[key]

    def graphs(self, layouts: Sequence[TensorDevice]) -> Graphs:
        """Graphs with few layers, and how many times each counts.

        One layer of each kind, and for each kind one graph with a second layer: with n layers, the
        whole is the first graph and n - 1 times what the second layer adds.
        """
        ones = [1] * len(self.repeated)
        built = []
        more = 0
        for number, lists in enumerate(self.repeated):
            count = len(lists[0]) - 1
            more += count
            lengths = [*ones[:number], 2, *ones[number + 1 :]]
            built.append((count, self._short(lengths, layouts)))
        return [(1 - more, self._short(ones, layouts)), *built]

    def _short(self, lengths: Sequence[int], layouts: Sequence[TensorDevice]) -> UOp:
        with shortened(self.inputs, self.repeated, lengths):
            return self.graph(layouts)

    def surveyed(self, layouts: Sequence[TensorDevice], graphs: Graphs) -> Cost:
        """What moves at least, and how much there is to compute and store."""
        parts = [(count, survey(sink)) for count, sink in graphs]
        return weighted([(1, self.inputs_cost(layouts)), *parts])

    def planned(self, layouts: Sequence[TensorDevice], graphs: Graphs) -> Cost:
        """The cost, as few layers tell it."""
        parts = [(count, planned(sink)) for count, sink in graphs]
        return weighted([(1, self.inputs_cost(layouts)), *parts])

    def inputs_cost(self, layouts: Sequence[TensorDevice]) -> Cost:
        """The memory of the tensors themselves."""
        total = 0
        for group, layout in zip(self.groups, layouts, strict=True):
            local = prod(local_shape(layout, group.shape)) * group.dtype.itemsize
            total += len(group.tensors) * local
        return Cost(inputs_nbytes=total)

    def cost(self, layouts: Sequence[TensorDevice]) -> Cost:
        """The cost with all layers built, which is exact in the bytes that move."""
        return self.planned(layouts, [(1, self.graph(layouts))])
