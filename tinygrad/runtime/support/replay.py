"""Replay of recorded kernels and copies as one native call.

A record is one launch, or several independent ones. Records run in order; each sees all writes of
earlier records. Arguments are indirect: a slot holds an address, an argument is a slot and a byte
offset, so `set_buffer(slot, address)` repoints every argument of the slot. Runtime integers, among
them the size of a grid, are variables, which `set_value(variable, integer)` sets. The native loop
is `native/replay.c`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tinygrad.device import Buffer
from tinygrad.helpers import ceildiv
from tinygrad.runtime.support.worker_pool import COPY_PIECE_BYTES, SERIAL_COPY_BYTES, WorkerPool

# In a record of several launches; more pieces than threads balance the load.
PIECES_PER_THREAD = 4

Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class NativeKernel(Protocol):
    """A kernel with machine code in this process."""

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
    """A kernel with its buffers and the variables of its integers and of its grid.

    In a record of several launches, `work` is the relative cost and `max_pieces` limits the number
    of pieces that the grid is cut into.
    """

    kernel: int
    buffers: tuple[Buffer, ...]
    variables: tuple[int, ...]
    grid: int
    work: int
    max_pieces: int


class _Native:
    """A table, and the arrays that it points to."""

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
    """Records of launches. `add` takes what `make_launch` and `make_copy` return; `run` runs all.

    It keeps its programs and buffers alive. Not thread-safe.
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
        self._programs: list[NativeKernel] = []
        self._native: _Native | None = None

    def __len__(self) -> int:
        return len(self._records)

    def get_slot(self, buffer: Buffer) -> int:
        """The slot of the buffer's base, created on first use. Allocates the buffer."""
        root = buffer.base or buffer
        if root not in self._slot_of:
            self._slot_of[root] = len(self._slots)
            self._slots.append(root.address)
            self._native = None
        return self._slot_of[root]

    def add_variable(self, value: int = 0) -> int:
        """Creates a runtime integer, for `make_launch` and `set_value`."""
        self._variables.append(value)
        self._native = None
        return len(self._variables) - 1

    def make_launch(
        self,
        program: NativeKernel,
        buffers: Sequence[Buffer],
        variables: Sequence[int] = (),
        *,
        grid: int,
        work: int = 1,
        max_pieces: int | None = None,
        **_: object,
    ) -> Launch:
        """A launch of a kernel over [0, grid), where `grid` and `variables` number variables.

        `work` is the cost relative to other launches of the same record. What replays of other
        devices ask for besides is ignored.
        """
        self._programs.append(program)
        limit = self._pieces if max_pieces is None else min(self._pieces, max_pieces)
        return Launch(program.address, tuple(buffers), tuple(variables), grid, work, limit)

    def make_copy(self, destination: Buffer, source: Buffer) -> Launch:
        """A launch that copies all bytes of a buffer."""
        nbytes = source.nbytes
        assert destination.nbytes == nbytes, f"{source!r} and {destination!r} differ in size"
        same_base = (destination.base or destination) is (source.base or source)
        is_serial = nbytes <= SERIAL_COPY_BYTES or same_base
        piece = max(nbytes, 1) if is_serial else COPY_PIECE_BYTES
        count = ceildiv(nbytes, piece)
        sizes = (self.add_variable(nbytes), self.add_variable(piece))
        grid = self.add_variable(count)
        buffers = (destination, source)
        return Launch(self._pool.copy_kernel, buffers, sizes, grid, nbytes, count)

    def add(self, *launches: Launch, parallel: bool = True) -> None:
        """Appends a record of launches that run concurrently, or in any order.

        No launch may access what another one writes. Without `parallel` they run in the calling
        thread, which is faster for small work.
        """
        pieces = self._distribute_pieces(launches) if parallel else [1] * len(launches)
        self._records.append([len(self._members), len(launches), sum(pieces), int(parallel)])
        for launch, count in zip(launches, pieces, strict=True):
            first = [launch.kernel, len(self._arguments), len(self._values)]
            self._members.append([*first, launch.grid, count])
            self._arguments.extend((self.get_slot(b), b.offset) for b in launch.buffers)
            self._values.extend(launch.variables)
        self._native = None

    def _distribute_pieces(self, launches: Sequence[Launch]) -> list[int]:
        """The number of pieces of each concurrent launch, in proportion to its work.

        Enough pieces keep all threads busy; every piece repeats the prologue of its kernel.
        """
        total = max(sum(launch.work for launch in launches), 1)
        divisible = max(sum(launch.max_pieces > 1 for launch in launches), 1)
        # work is an estimate: the lower bound is an equal share
        minimum = ceildiv(self._pieces, divisible)
        shares = (max(ceildiv(self._pieces * x.work, total), minimum) for x in launches)
        return [min(share, x.max_pieces) for share, x in zip(shares, launches, strict=True)]

    def set_buffer(self, slot: int, address: int) -> None:
        """Points all arguments of a slot to other memory, which the caller keeps alive."""
        self._slots[slot] = address
        if self._native is not None:
            self._native.slots[slot] = address

    def set_value(self, variable: int, value: int) -> None:
        """Sets a runtime integer for later runs."""
        self._variables[variable] = value
        if self._native is not None:
            self._native.variables[variable] = value

    def run(self) -> None:
        """Runs all records and waits for the last one."""
        self._pool.replay(self._freeze().pointer, None)

    def run_timed(self) -> list[float]:
        """Runs all records. Returns the seconds that each one took."""
        elapsed_ns = np.zeros(len(self._records), np.int64)
        self._pool.replay(self._freeze().pointer, elapsed_ns.ctypes.data)
        return [float(ns) * 1e-9 for ns in elapsed_ns]

    def _freeze(self) -> _Native:
        """The table of all records; adding a record discards it."""
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
