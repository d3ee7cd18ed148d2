"""A recorded list of kernels and copies, run again as one native call.

A record is one launch, or several that need not wait for each other. Buffers are reached through
slots: a slot holds an address, an argument is a slot and a byte offset. `set_buffer(slot, address)`
repoints every argument that uses the slot; `set_value(variable, integer)` does the same for the
runtime integers, of which a launch's grid is one. Records run in order, each seeing all writes of
those before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tinygrad.device import Buffer
from tinygrad.helpers import ceildiv
from tinygrad.runtime.support.pool import COPY_PIECE_BYTES, SERIAL_COPY_BYTES, WorkerPool

# of a record of several launches
PIECES_PER_THREAD = 4

Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Loaded(Protocol):
    """A kernel whose machine code is in this process."""

    address: int


class Table(ctypes.Structure):
    """The input of `replay_run`: `struct table` of `native/replay.c`, field by field."""

    _fields_ = (
        ("records", ctypes.c_void_p),
        ("record_count", ctypes.c_int64),
        ("members", ctypes.c_void_p),
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


@dataclass(frozen=True)
class Launch:
    """A kernel over [0, grid), with its buffers and the variables of its integers.

    `grid` is the number of a variable too. Threads take it in up to `most_pieces` pieces, in
    proportion to `work`.
    """

    kernel: int
    buffers: tuple[Buffer, ...]
    variables: tuple[int, ...]
    grid: int
    work: int
    most_pieces: int


class _Native:
    """The table, and the arrays that it points into."""

    def __init__(
        self,
        records: list[list[int]],
        members: list[list[int]],
        arguments: list[tuple[int, int]],
        slots: list[int],
        values: list[int],
        variables: list[int],
    ) -> None:
        pairs = _integers(arguments).reshape(-1, 2)
        self.records = _integers(records)
        self.members = _integers(members)
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
            self.members.ctypes.data,
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
    """Kernels and copies to run again: `add` what `kernel` and `copy` make, then `run` it.

    It keeps the programs and buffers that it refers to alive. Not for several threads at once.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._pieces = pool.threads * PIECES_PER_THREAD
        self._records: list[list[int]] = []
        self._members: list[list[int]] = []
        self._arguments: list[tuple[int, int]] = []
        self._slots: list[int] = []
        self._values: list[int] = []
        self._variables: list[int] = []
        self._slot_of: dict[Buffer, int] = {}
        self._programs: list[Loaded] = []
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
        """A new runtime integer, for `kernel` and `set_value`."""
        self._variables.append(value)
        self._native = None
        return len(self._variables) - 1

    def kernel(
        self,
        program: Loaded,
        buffers: Sequence[Buffer],
        variables: Sequence[int] = (),
        *,
        grid: int,
        work: int = 1,
        most_pieces: int | None = None,
    ) -> Launch:
        """A kernel over as many items as variable number `grid` says.

        `work` is how long it takes, compared with others that run at the same time.
        """
        self._programs.append(program)
        most = self._pieces if most_pieces is None else min(self._pieces, most_pieces)
        return Launch(program.address, tuple(buffers), tuple(variables), grid, work, most)

    def copy(self, destination: Buffer, source: Buffer) -> Launch:
        """A copy of all bytes of a buffer in this process."""
        nbytes = source.nbytes
        assert destination.nbytes == nbytes, f"a copy of {source!r} to {destination!r}"
        same_base = (destination.base or destination) is (source.base or source)
        is_whole = nbytes <= SERIAL_COPY_BYTES or same_base
        piece = max(nbytes, 1) if is_whole else COPY_PIECE_BYTES
        count = ceildiv(nbytes, piece)
        sizes = (self.add_variable(nbytes), self.add_variable(piece))
        grid = self.add_variable(count)
        ends = (destination, source)
        return Launch(self._pool.copy_kernel, ends, sizes, grid, nbytes, count)

    def add(self, *launches: Launch, parallel: bool = True) -> None:
        """Appends a record of launches that run at the same time, or in any order.

        What one of them writes, no other one may touch. Without `parallel` they run in the calling
        thread, which is faster for a little work.
        """
        pieces = self._shares(launches) if parallel else [1] * len(launches)
        self._records.append([len(self._members), len(launches), sum(pieces), int(parallel)])
        for launch, count in zip(launches, pieces, strict=True):
            first = [launch.kernel, len(self._arguments), len(self._values)]
            self._members.append([*first, launch.grid, count])
            self._arguments.extend((self.slot_of(b), b.offset) for b in launch.buffers)
            self._values.extend(launch.variables)
        self._native = None

    def _shares(self, launches: Sequence[Launch]) -> list[int]:
        """The pieces of launches that run at the same time: many enough to keep all threads busy,
        few enough that what each call of a kernel prepares is not done more often than needed.
        """
        total = max(sum(launch.work for launch in launches), 1)
        large = max(sum(launch.most_pieces > 1 for launch in launches), 1)
        # work is estimated, so none gets less than if all were equal
        least = ceildiv(self._pieces, large)
        shares = (max(ceildiv(self._pieces * x.work, total), least) for x in launches)
        return [min(share, x.most_pieces) for share, x in zip(shares, launches, strict=True)]

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

    def run(self) -> None:
        """Runs all records; returns when they are done."""
        self._pool.replay(self._freeze().pointer, None)

    def run_timed(self) -> list[float]:
        """Runs all records; returns the seconds that each took."""
        elapsed_ns = np.zeros(len(self._records), np.int64)
        self._pool.replay(self._freeze().pointer, elapsed_ns.ctypes.data)
        return [float(ns) * 1e-9 for ns in elapsed_ns]

    def _freeze(self) -> _Native:
        if self._native is None:
            self._native = _Native(
                self._records,
                self._members,
                self._arguments,
                self._slots,
                self._values,
                self._variables,
            )
        return self._native
