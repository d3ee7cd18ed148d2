"""A recorded list of kernels and copies, run again as one native call.

Buffers are reached through slots: a slot holds an address, an argument is a slot and a byte
offset. `set_buffer(slot, address)` repoints every argument that uses the slot; `set_value(variable,
integer)` does the same for the runtime integers. Records run in order, each seeing all writes of
those before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tinygrad.device import Buffer
from tinygrad.helpers import ceildiv
from tinygrad.runtime.support.pool import COPY_PIECE_BYTES, SERIAL_COPY_BYTES, WorkerPool

Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Loaded(Protocol):
    """A kernel whose machine code is in this process."""

    address: int


class Table(ctypes.Structure):
    """What the native loop reads; `pool_ir.REPLAY_IR` has the same fields in the same order."""

    _fields_ = (
        ("records", ctypes.c_void_p),
        ("record_count", ctypes.c_int64),
        ("arguments", ctypes.c_void_p),
        ("argument_slots", ctypes.c_void_p),
        ("argument_offsets", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("argument_count", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("value_variables", ctypes.c_void_p),
        ("variables", ctypes.c_void_p),
        ("value_count", ctypes.c_int64),
    )


# the columns of a record
KERNEL, FIRST_ARGUMENT, FIRST_VALUE, GRID, PARALLEL = range(5)


class _Native:
    """The table, and the arrays that it points into."""

    def __init__(
        self,
        records: list[list[int]],
        arguments: list[tuple[int, int]],
        slots: list[int],
        values: list[int],
        variables: list[int],
    ) -> None:
        pairs = _integers(arguments).reshape(-1, 2)
        self.records = _integers(records)
        self.argument_slots = pairs[:, 0].copy()
        self.argument_offsets = pairs[:, 1].copy()
        self.arguments = np.zeros(len(pairs), np.int64)
        self.slots = _integers(slots)
        self.value_variables = _integers(values)
        self.values = np.zeros(len(values), np.int64)
        self.variables = _integers(variables)
        self.table = Table(
            self.records.ctypes.data,
            len(records),
            self.arguments.ctypes.data,
            self.argument_slots.ctypes.data,
            self.argument_offsets.ctypes.data,
            self.slots.ctypes.data,
            len(pairs),
            self.values.ctypes.data,
            self.value_variables.ctypes.data,
            self.variables.ctypes.data,
            len(values),
        )
        self.pointer = ctypes.addressof(self.table)


def _integers(values: Sequence[object]) -> Integers:
    return np.array(values, np.int64)


class Replay:
    """Kernels and copies to run again. Build it with `add_kernel` and `add_copy`, then `run` it.

    It keeps the programs and buffers that it refers to alive. Not for several threads at once.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._records: list[list[int]] = []
        self._arguments: list[tuple[int, int]] = []
        self._slots: list[int] = []
        self._values: list[int] = []
        self._variables: list[int] = []
        self._slot_of: dict[Buffer, int] = {}
        self._programs: list[Loaded] = []
        # of records with several members: the variable of a member's grid, and their number
        self._members: dict[int, tuple[int, int]] = {}
        self._native: _Native | None = None

    def __len__(self) -> int:
        return len(self._records)

    def slot_of(self, buffer: Buffer) -> int:
        """The slot of the buffer's base, made when first asked for; allocates the buffer."""
        root = buffer.base or buffer
        if root not in self._slot_of:
            self._slot_of[root] = len(self._slots)
            self._slots.append(root.address)
            self._native = None
        return self._slot_of[root]

    def add_variable(self, value: int = 0) -> int:
        """A new runtime integer, for `add_kernel` and `set_value`."""
        self._variables.append(value)
        self._native = None
        return len(self._variables) - 1

    def add_kernel(
        self,
        program: Loaded,
        buffers: Sequence[Buffer],
        variables: Sequence[int] = (),
        *,
        grid: int,
        parallel: bool = True,
    ) -> int:
        """Appends a kernel over [0, grid); returns the number of the record.

        Without `parallel` it runs in the calling thread alone, which is faster for a little work.
        """
        return self.add_kernels(program, [(buffers, variables)], grid=grid, parallel=parallel)

    def add_kernels(
        self,
        program: Loaded,
        members: Sequence[tuple[Sequence[Buffer], Sequence[int]]],
        *,
        grid: int,
        parallel: bool = True,
    ) -> int:
        """Appends a kernel over [0, grid) of each member's buffers and variables, as one record.

        What one member writes, no other one may touch.
        """
        self._programs.append(program)
        if len(members) == 1:
            ((buffers, variables),) = members
            return self._add_record(program.address, buffers, variables, grid, parallel)
        own = self.add_variable(grid)
        sizes = [len(column) for column in members[0]]
        head = [*map(self.add_variable, (program.address, *sizes)), own]
        number = self._add_record(
            self._pool.members_kernel,
            [buffer for buffers, _ in members for buffer in buffers],
            [*head, *(variable for _, variables in members for variable in variables)],
            grid * len(members),
            parallel,
        )
        self._members[number] = (own, len(members))
        return number

    def add_copy(self, destination: Buffer, source: Buffer) -> int:
        """Appends a copy of all bytes of a buffer in this process; returns the record's number."""
        nbytes = source.nbytes
        assert destination.nbytes == nbytes, f"a copy of {source!r} to {destination!r}"
        same_base = (destination.base or destination) is (source.base or source)
        parallel = nbytes > SERIAL_COPY_BYTES and not same_base
        piece = COPY_PIECE_BYTES if parallel else max(nbytes, 1)
        sizes = (self.add_variable(nbytes), self.add_variable(piece))
        return self._add_record(
            self._pool.copy_kernel, (destination, source), sizes, ceildiv(nbytes, piece), parallel
        )

    def set_buffer(self, slot: int, address: int) -> None:
        """Points all arguments of a slot to other memory, which the caller keeps alive."""
        self._slots[slot] = address
        if self._native is not None:
            self._native.slots[slot] = address

    def set_value(self, variable: int, value: int) -> None:
        """Sets a runtime integer for the runs to come."""
        self._variables[variable] = value
        if self._native is not None:
            self._native.variables[variable] = value

    def set_grid(self, record: int, grid: int) -> None:
        """Sets the grid of a record, that of a member of it, for the runs to come."""
        if record in self._members:
            variable, count = self._members[record]
            self.set_value(variable, grid)
            grid *= count
        self._records[record][GRID] = grid
        if self._native is not None:
            self._native.records[record, GRID] = grid

    def run(self) -> None:
        """Runs all records; returns when they are done."""
        self._pool.replay(self._freeze().pointer, None)

    def run_timed(self) -> list[float]:
        """Runs all records; returns the seconds that each took."""
        elapsed_ns = np.zeros(len(self._records), np.int64)
        self._pool.replay(self._freeze().pointer, elapsed_ns.ctypes.data)
        return [float(ns) * 1e-9 for ns in elapsed_ns]

    def _add_record(
        self,
        kernel: int,
        buffers: Sequence[Buffer],
        variables: Sequence[int],
        grid: int,
        parallel: bool,
    ) -> int:
        first = [kernel, len(self._arguments), len(self._values)]
        self._records.append([*first, grid, int(parallel)])
        self._arguments.extend((self.slot_of(buffer), buffer.offset) for buffer in buffers)
        self._values.extend(variables)
        self._native = None
        return len(self._records) - 1

    def _freeze(self) -> _Native:
        if self._native is None:
            self._native = _Native(
                self._records, self._arguments, self._slots, self._values, self._variables
            )
        return self._native
