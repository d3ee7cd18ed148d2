"""Estimates of the registers, shared memory and occupancy of a GPU program.

In: a linear program, without a compiler or a GPU. Out: estimates of its registers and its shared
memory, and its occupancy: resident warps, of those that a multiprocessor can hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.dtype import PtrDType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer.target import Target
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

REGISTER_BYTES = 4
# registers that every kernel uses: its stack, the number of a block, addresses
BASE_REGISTERS = 8
# a thread of a warp gets a multiple of this number of registers
REGISTER_GRANULARITY = 8


@dataclass(frozen=True)
class Resources:
    """What a block of a kernel needs: `threads` of `registers` each, and `shared_bytes`."""

    threads: int
    registers: int
    shared_bytes: int


def estimate_resources(linear: list[UOp]) -> Resources:
    """The resources of a program. `registers` is the maximum number of live registers in program
    order; if roles move registers to others, it is the number that threads start with.
    """
    threads = shared = moved = given = 0
    for u in linear:
        if u.op is Ops.RANGE and u.arg.kind is AxisType.LOCAL:
            threads = int(u.src[0].arg)
        elif u.op is Ops.RANGE and u.arg.kind is AxisType.ROLE:
            moved += int(u.src[0].arg) * int(u.src[3].arg)
            given = max(given, int(u.src[3].arg))
        elif u.op is Ops.DEFINE_LOCAL:
            assert isinstance(u.dtype, PtrDType)
            shared += u.dtype.nbytes()
    registers = BASE_REGISTERS + _live_registers(linear)
    if given >= registers:
        registers = moved // threads
    return Resources(threads or 1, registers, shared)


def resident_blocks(needed: Resources, target: Target) -> int:
    """The blocks that one multiprocessor holds; 0 if a block does not fit at all, and 1 if it does
    and no more is known.
    """
    if needed.threads > target.block_threads or needed.shared_bytes > target.shared_bytes:
        return 0
    if needed.registers > target.registers:
        return 0
    if not target.unit_threads:
        return 1
    warp = max(target.warp, 1)
    threads = ceildiv(needed.threads, warp) * warp
    registers = ceildiv(needed.registers, REGISTER_GRANULARITY) * REGISTER_GRANULARITY
    limits = [target.unit_blocks, target.unit_threads // threads]
    limits.append(target.unit_registers // (registers * threads))
    shared = needed.shared_bytes + target.block_reserved_bytes
    if shared:
        limits.append(target.unit_shared_bytes // shared)
    return min(limits)


def occupancy(needed: Resources, target: Target) -> float:
    """The resident threads of a multiprocessor, as a fraction of those that it can hold."""
    if not target.unit_threads:
        return 1.0
    return resident_blocks(needed, target) * needed.threads / target.unit_threads


def _live_registers(linear: list[UOp]) -> int:
    """The largest number of registers that hold values at one point of the program."""
    ends = _ends_of_lives(linear)
    live = max_live = 0
    freed: dict[int, int] = {}
    for position, u in enumerate(linear):
        size = _size(u)
        if size and u in ends:
            live += size
            freed[ends[u]] = freed.get(ends[u], 0) + size
        max_live = max(max_live, live)
        live -= freed.pop(position, 0)
    return max_live


def _ends_of_lives(linear: list[UOp]) -> dict[UOp, int]:
    """The position of the last use of each value; what a loop uses lives until its end."""
    defined = {u: position for position, u in enumerate(linear)}
    closed = {u.src[0]: i for i, u in enumerate(linear) if u.op in {Ops.END, Ops.ENDIF}}
    last: dict[UOp, int] = {}
    loops: list[UOp] = []
    for position, u in enumerate(linear):
        for x in u.src:
            around = next((r for r in loops if defined[r] > defined.get(x, -1)), None)
            end = position if around is None else closed[around]
            last[x] = max(last.get(x, 0), end)
        if u.op is Ops.RANGE:
            loops.append(u)
        elif u.op is Ops.END:
            loops.remove(u.src[0])
    # an array lives as long as what points into it
    for u in reversed(linear):
        if u.op in {Ops.AFTER, Ops.INDEX} and u in last:
            x = u.src[0]
            last[x] = max(last.get(x, 0), last[u])
    return last


_WITHOUT_REGISTERS = frozenset(
    {Ops.CONST, Ops.GEP, Ops.VECTORIZE, Ops.AFTER, Ops.INDEX, Ops.DEFINE_LOCAL, Ops.DEFINE_VAR}
)


def _size(u: UOp) -> int:
    """The registers that hold a value."""
    if u.op in _WITHOUT_REGISTERS or u.dtype is dtypes.void or u.dtype.scalar() is dtypes.bool:
        return 0
    if isinstance(u.dtype, PtrDType):
        nbytes = u.dtype.nbytes() if u.op is Ops.DEFINE_REG else 2 * REGISTER_BYTES
        return ceildiv(nbytes, REGISTER_BYTES)
    return ceildiv(u.dtype.itemsize, REGISTER_BYTES)
