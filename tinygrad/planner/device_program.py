"""The program of a device: its part of a tensor graph, planned as it is for a run.

Input: an optimized canonical graph. Output: the seconds that the kernels of a device take, its peak
memory, and the cost of all communication. Invariant: the plan is that of a run, without the
messages of devices that are not looked at, so planning takes little longer with more devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tinygrad.device import Device
from tinygrad.execution.temporaries import memory_layout
from tinygrad.planner.communication import CommCost, communication_costs
from tinygrad.schedule.execution_plan import ExecutionPlan, KernelItem, operations_of
from tinygrad.schedule.multi import LayoutLowering
from tinygrad.schedule.pipeline import PlanOptions, plan_graph
from tinygrad.settings import MEMORY_PLANNER
from tinygrad.sharding import LocalDevices, current_topology
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import TensorDevice, device_names, tensor_device
from tinygrad.uop.known_orders import orders_kept
from tinygrad.uop.ops import UOp
from tinygrad.uop.user_line import UserLine

# nodes that say where a value is
_PLACED = {Ops.BUFFER} | GroupOp.Communication


@dataclass(frozen=True)
class DeviceProgram:
    """What one device does: `seconds` of computation, at most `nbytes` of results and temporaries
    at any time, and all `communication`.
    """

    seconds: float
    nbytes: int
    communication: tuple[CommCost, ...]


@dataclass(frozen=True)
class LayoutChange:
    """A COPY or ALLREDUCE from one layout to another, and what its collectives cost."""

    line: UserLine | int | None
    source: TensorDevice
    target: TensorDevice
    costs: tuple[CommCost, ...]


class CountedLowering(LayoutLowering):
    """Lowers a graph; the `CommInfo.line` of its messages is the number of their change of layout.

    `rounds` has the number of messages and reads of peers that each change takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: dict[LayoutChange, int] = {}
        self.rounds: dict[int, int] = {}
        self.before: set[UOp] = set()

    def line(self, node: UOp) -> int:
        """The number of a change of layout."""
        costs = communication_costs(node)
        change = LayoutChange(node.user_line, tensor_device(node.src[0].device), node.arg, costs)
        return self.changes.setdefault(change, len(self.changes))

    def lower(self, node: UOp) -> UOp:
        """The lowered form of a node whose sources are lowered."""
        number = len(self.changes)
        found = super().lower(node)
        if len(self.changes) > number:
            made = found.toposort(gate=lambda x: x not in self.before)
            self.rounds[number] = sum(_number(x) == number for x in made)
        self.before.add(found)
        return found


def _number(node: UOp) -> int | None:
    """The number of the change of layout that a message or a read of a peer belongs to."""
    is_round = node.op in {Ops.TRANSFER, Ops.PEER}
    return node.arg.info.line if is_round else None


def device_program(sink: UOp) -> DeviceProgram:
    """Seconds, memory and communication of one device's part of an optimized canonical graph."""
    placed = [node for node in sink.toposort() if node.op in _PLACED]
    inputs = max((-node.arg.slot for node in placed if node.op is Ops.BUFFER), default=0)
    devices = {device_names(tensor_device(node.device))[0] for node in placed} or {Device.DEFAULT}
    lowering = CountedLowering()
    with LocalDevices.standing_for_all(devices), orders_kept():
        plan = plan_graph(sink, PlanOptions(inputs, Device.DEFAULT, lowering))
    seconds = sum(
        _seconds(item) for item in plan.items if isinstance(item, KernelItem) and item.local
    )
    return DeviceProgram(seconds, _memory(plan), tuple(_communication(plan, lowering)))


def _memory(plan: ExecutionPlan) -> int:
    """The maximum memory of results and temporaries of a device."""
    layout = memory_layout(plan, bool(MEMORY_PLANNER))
    found = Counter(layout.arenas)
    for place in (place for places in layout.places for place in places):
        if place.offset is None:
            found[place.device] += place.entry.size * place.entry.dtype.itemsize
    return max(found.values(), default=0)


def _communication(plan: ExecutionPlan, lowering: CountedLowering) -> Iterator[CommCost]:
    """The cost of each collective, as often as it is run."""
    found: Counter[int] = Counter()
    for item in plan.items:
        if item.info is not None and isinstance(item.info.line, int):
            found[item.info.line] += _peers(plan, item) if isinstance(item, KernelItem) else 1
    for change, number in lowering.changes.items():
        # a device may have its block without a message
        rounds = lowering.rounds[number]
        for _ in range(found[number] // rounds if rounds else 0):
            yield from change.costs


def _peers(plan: ExecutionPlan, item: KernelItem) -> int:
    """The number of arguments that are in the memory of other devices, on some device."""
    return sum(
        any(plan.device_on(x, number) != name for number, name in enumerate(item.devices))
        for x in item.params
    )


def _seconds(item: KernelItem) -> float:
    """The roofline time of a kernel: that of its arithmetic or of its memory traffic."""
    processor = current_topology().processor(item.devices[0])
    nbytes = sum(parts[0].size * parts[0].dtype.itemsize for parts in item.params)
    operations = sum(map(operations_of, item.ast.toposort()))
    return max(operations / processor.flops, nbytes / processor.bandwidth)
