"""A capture as one native call, where memory and kernels of all its devices are in this process.

In: groups of items, and the inputs of the capture. Out: `run(inputs)`. Always true: the buffers of
the inputs, and what follows from their Variables, are set anew for each run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinygrad.device import Buffer, Device
from tinygrad.execution.realize import BufferCopy, ExecItem, ScheduleItem
from tinygrad.jit.inputs import Inputs
from tinygrad.uop.ops import UOp, sym_infer

# what has less work (operations + bytes) than this runs in the calling thread
SERIAL_WORK = 1 << 15


def can_replay(items: Iterable[ScheduleItem]) -> bool:
    """Whether every item is on devices whose memory and kernels are in this process."""
    devices = {b.device for item in items for b in item.bufs}
    return all(Device[d].replay is not None for d in devices)


class NativeReplay:
    """Groups of items, of one message each, as one native call."""

    def __init__(self, groups: list[list[ScheduleItem]], inputs: Inputs) -> None:
        make = Device[groups[0][0].bufs[0].device].replay
        assert make is not None
        self.native = make()
        # a record's offset counts from the captured buffer's base
        self.slots = [(self.native.slot_of(b), b.offset) for b in inputs.buffers]
        self.given = inputs.values
        self.constants: dict[int, int] = {}
        self.variables: dict[str, int] = {}
        # the variable of a grid that the inputs change, by the kernel and the captured values
        self.grids: dict[tuple[Any, ...], tuple[ExecItem, int]] = {}
        self.keep: list[Buffer] = []
        for group in groups:
            work = sum(_work(item) for item in group)
            launches = [self._launch(item) for item in group]
            self.native.add(*launches, parallel=work > SERIAL_WORK)

    def _launch(self, item: ScheduleItem) -> Any:
        if isinstance(item, BufferCopy):
            ((destination, source),) = item.pairs
            return self.native.copy(destination, source)
        runner = item.lower()
        return self.native.kernel(
            runner.program,
            [item.bufs[slot] for slot in runner.spec.slots],
            [self._number(name, item.values[name]) for name in runner.variable_names],
            grid=self._grid(item),
            work=_work(item),
            most_pieces=self._most_pieces(item),
        )

    def _number(self, name: str, value: int) -> int:
        """The native variable of a kernel's integer."""
        # a Variable that was bound inside the function stays as it was
        if name not in self.given:
            return self._constant(value)
        if name not in self.variables:
            self.variables[name] = self.native.add_variable(value)
        return self.variables[name]

    def _constant(self, value: int) -> int:
        if value not in self.constants:
            self.constants[value] = self.native.add_variable(value)
        return self.constants[value]

    def _grid(self, item: ExecItem) -> int:
        """The native variable of a kernel's grid."""
        runner = item.lower()
        grid = runner.grid(item.values)
        if not isinstance(runner.spec.grid, UOp):
            return self._constant(grid)
        known = (item.values[v.arg[0]] for v in runner.spec.grid.variables())
        key = (runner, *known)
        if key not in self.grids:
            self.grids[key] = (item, self.native.add_variable(grid))
        return self.grids[key][1]

    def _most_pieces(self, item: ExecItem) -> int | None:
        """In how many pieces threads may take a kernel; None for as many as they are."""
        if _work(item) <= SERIAL_WORK:
            return 1
        grid = item.lower().spec.grid
        return None if isinstance(grid, UOp) else grid

    def run(self, inputs: Inputs) -> None:
        """Run all groups with the buffers and values of these inputs."""
        for (slot, offset), buffer in zip(self.slots, inputs.buffers, strict=True):
            self.native.set_buffer(slot, buffer.address - offset)
        for name, number in self.variables.items():
            self.native.set_value(number, inputs.values[name])
        for item, number in self.grids.values():
            self.native.set_value(number, item.lower().grid(item.values | inputs.values))
        # the buffers must outlive the call
        self.keep = inputs.buffers
        self.native.run()


def _work(item: ScheduleItem) -> int:
    if isinstance(item, BufferCopy):
        return sum(destination.nbytes for destination, _ in item.pairs)
    estimates = item.lower().spec.estimates
    return sym_infer(estimates.memory_bytes, item.values) + sym_infer(estimates.flops, item.values)
