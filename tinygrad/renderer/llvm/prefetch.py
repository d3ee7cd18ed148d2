"""Prefetch the large buffers that reductions read in the order of memory.

Input: a linear program. Output: the streams of each innermost reduction loop, and the instructions
that prefetch them at its start. Invariant: values do not change; a prefetch outside of a buffer is
no error.

What is computed from each vector, such as the numbers of quantised blocks, fills the window of a
processor, which then sees too few loads ahead. Sums of plain numbers are as fast without.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.dtype import PtrDType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer.base import memory_dtype, pointer_of
from tinygrad.renderer.llvm.types import memory_type
from tinygrad.renderer.llvm.writer import Writer
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

AHEAD_BYTES = 1 << 12
"""How far ahead memory is fetched: beyond a page, where hardware prefetchers end."""
LINE_BYTES = 64
MIN_BUFFER_BYTES = 1 << 20
MIN_LOAD_BYTES, MAX_STEP_BYTES = 16, 1 << 9
"""The bytes of a vector that is worth a prefetch, and those between steps, which follow closely."""


@dataclass(frozen=True)
class Stream:
    """A buffer that a loop reads in order, each element once: from element `start` on, about
    `step_bytes` in each step.
    """

    pointer: UOp
    start: UOp
    step_bytes: int


def find_streams(linear: list[UOp]) -> dict[UOp, list[Stream]]:
    """The streams of each reduction loop, one for each buffer."""
    loops: list[UOp] = []
    found: dict[UOp, dict[UOp, Stream]] = {}
    for u in linear:
        if u.op is Ops.RANGE:
            loops.append(u)
        elif u.op is Ops.END:
            loops.remove(u.src[0])
        elif u.op is Ops.LOAD and len(u.src) == 1 and u.dtype.itemsize >= MIN_LOAD_BYTES:
            inner = [r for r in loops if r.arg.kind is not AxisType.TILE][-1:]
            if inner and inner[0].arg.kind is AxisType.REDUCE:
                stream = _stream_of(u, inner[0], loops)
                if stream is not None:
                    found.setdefault(inner[0], {}).setdefault(stream.pointer, stream)
    return {loop: list(streams.values()) for loop, streams in found.items()}


def _stream_of(u: UOp, loop: UOp, loops: list[UOp]) -> Stream | None:
    """The stream of a load, if it reads one along a loop."""
    pointer, position = pointer_of(u.src[0]), u.src[0].src[1]
    if pointer.op is not Ops.DEFINE_GLOBAL or position.dtype.count > 1:
        return None
    itemsize = memory_dtype(u.dtype).scalar().itemsize
    assert isinstance(pointer.dtype, PtrDType)
    own = {x for x in position.toposort() if x.op is Ops.RANGE}
    if pointer.dtype.size * itemsize < MIN_BUFFER_BYTES or not own.issuperset(loops):
        return None
    zero = UOp.const(dtypes.index, 0)
    tiles = {r: zero for r in own if r.arg.kind is AxisType.TILE}
    steps = int(loop.src[0].vmax) - 1
    first = dict.fromkeys(own, zero)
    last = first | {loop: UOp.const(dtypes.index, max(steps, 1))}
    begin, end = (position.substitute(x).simplify() for x in (first, last))
    if steps < 1 or begin.op is not Ops.CONST or end.op is not Ops.CONST:
        return None
    step_bytes = ceildiv((end.arg - begin.arg) * itemsize, steps)
    if not 0 < step_bytes <= MAX_STEP_BYTES:
        return None
    return Stream(pointer, position.substitute({**tiles, loop: zero}).simplify(), step_bytes)


def write_prefetch(w: Writer, stream: Stream, loop: UOp) -> None:
    """Write prefetches of what a loop reads some steps later; the start is written already."""
    kind = memory_type(stream.pointer.dtype.base)
    pointer = w.names[stream.pointer]
    start = w.assign(f"getelementptr {kind}, ptr {pointer}, {w.operand(stream.start)}")
    read = w.assign(f"mul i64 {w.names[loop]}, {stream.step_bytes}")
    w.declare("void", "llvm.prefetch.p0", ("ptr", "i32", "i32", "i32"))
    for line in range(ceildiv(stream.step_bytes, LINE_BYTES)):
        offset = w.assign(f"add i64 {read}, {AHEAD_BYTES + line * LINE_BYTES}")
        where = w.assign(f"getelementptr i8, ptr {start}, i64 {offset}")
        # for reading, to all caches, data
        w.emit(f"call void @llvm.prefetch.p0(ptr {where}, i32 0, i32 3, i32 1)")
