"""Native replay: all launches of a capture as one native call.

Input: launches, and the inputs of the capture; all devices must have one kind of native replay.
Output: `run(inputs)`. Invariant: each run sets the buffers of the inputs, and all integers that
depend on their Variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinygrad.device import Buffer, Device
from tinygrad.execution.realize import BufferCopy, ExecItem, ScheduleItem
from tinygrad.execution.wire import Wire
from tinygrad.jit.inputs import Inputs
from tinygrad.uop.ops import UOp, sym_infer

# launches with less work (operations + bytes) than this run in the calling thread
SERIAL_WORK = 1 << 15


def is_native(items: Iterable[ScheduleItem]) -> bool:
    """Whether all devices of these items have one kind of native replay."""
    items = list(items)
    devices = {b.device for item in items for b in item.bufs}
    kinds = {Device[d].replay for d in devices}
    return len(kinds) == 1 and None not in kinds


class NativeReplay:
    """Launches as one native call. Each `BufferCopy` in them has one message, or
    is an all-reduce."""

    def __init__(self, launches: list[list[ScheduleItem]], inputs: Inputs) -> None:
        make = Device[launches[0][0].bufs[0].device].replay
        assert make is not None
        self._native = make()
        self._used = {b.base or b for launch in launches for item in launch for b in item.bufs}
        # the slots of inputs; offsets are relative to the base of the captured buffer
        self._slots = [
            (number, self._native.get_slot(b), b.offset)
            for number, b in enumerate(inputs.buffers)
            if (b.base or b) in self._used
        ]
        self._given = inputs.values
        self._constants: dict[int, int] = {}
        self._variables: dict[str, int] = {}
        # the native variable of each symbolic grid, by kernel and captured values
        self._grids: dict[tuple[Any, ...], tuple[ExecItem, int]] = {}
        self._keep: list[Buffer] = []
        self._alignment = 1
        for launch in launches:
            work = sum(_work(item) for item in launch)
            records = [self._record(item) for item in launch]
            self._native.add(*records, parallel=work > SERIAL_WORK)

    def _record(self, item: ScheduleItem) -> Any:
        if isinstance(item, BufferCopy) and item.reduction is not None:
            return self._native.make_all_reduce(item.pairs, item.reduction)
        if isinstance(item, BufferCopy):
            ((destination, source),) = item.pairs
            return self._native.make_copy(destination, source)
        runner = item.lower()
        self._alignment = max(self._alignment, runner.spec.alignment)
        return self._native.make_launch(
            runner.program(item.device),
            [item.bufs[slot] for slot in runner.spec.slots],
            [self._number(name, item.values[name]) for name in runner.variable_names],
            grid=self._grid(item),
            shape=runner.spec.launch,
            written=item.written,
            work=_work(item),
            max_pieces=self._max_pieces(item),
        )

    def _number(self, name: str, value: int) -> int:
        """The native variable of a kernel's integer argument."""
        # a Variable bound inside the function keeps its captured value
        if name not in self._given:
            return self._constant(value)
        if name not in self._variables:
            self._variables[name] = self._native.add_variable(value)
        return self._variables[name]

    def _constant(self, value: int) -> int:
        if value not in self._constants:
            self._constants[value] = self._native.add_variable(value)
        return self._constants[value]

    def _grid(self, item: ExecItem) -> int:
        """The native variable of a kernel's grid."""
        runner = item.lower()
        grid = runner.grid(item.values)
        if not isinstance(runner.spec.launch.grid, UOp):
            return self._constant(grid)
        known = (item.values[v.arg[0]] for v in runner.spec.launch.grid.variables())
        key = (runner, *known)
        if key not in self._grids:
            self._grids[key] = (item, self._native.add_variable(grid))
        return self._grids[key][1]

    def _max_pieces(self, item: ExecItem) -> int | None:
        """The maximum number of pieces that a kernel's grid is divided into; None for no limit."""
        if _work(item) <= SERIAL_WORK:
            return 1
        grid = item.lower().spec.launch.grid
        return None if isinstance(grid, UOp) else grid

    def accepts(self, inputs: Inputs, wire: Wire | None = None) -> bool:
        """Whether the buffers of these inputs are aligned as the kernels need it."""
        if self._alignment == 1 or not self._slots:
            return True
        buffers = inputs.buffers
        return not any(
            (buffers[number].offset - offset) % self._alignment for number, _, offset in self._slots
        )

    def find_memory(self, buffers: Iterable[Buffer]) -> None:
        """Allocate buffers that were freed, for all launches."""
        for buffer in self._used.intersection(buffers):
            self._native.set_buffer(self._native.get_slot(buffer), buffer.address)

    def run(self, inputs: Inputs) -> None:
        """Run all launches with the buffers and values of these inputs."""
        for number, slot, offset in self._slots:
            self._native.set_buffer(slot, inputs.buffers[number].address - offset)
        for name, number in self._variables.items():
            self._native.set_value(number, inputs.values[name])
        for item, number in self._grids.values():
            self._native.set_value(number, item.lower().grid(item.values | inputs.values))
        # the buffers must outlive the call
        self._keep = inputs.buffers
        self._native.run()


def _work(item: ScheduleItem) -> int:
    if isinstance(item, BufferCopy):
        return sum(destination.nbytes for destination, _ in item.pairs)
    estimates = item.lower().spec.estimates
    return sym_infer(estimates.memory_bytes, item.values) + sym_infer(estimates.flops, item.values)
