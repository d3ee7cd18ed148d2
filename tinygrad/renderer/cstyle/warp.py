"""Text of matrix instructions and asynchronous copies: calls of functions of the prelude."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.renderer.cstyle.lanes import LaneWriter
from tinygrad.renderer.cstyle.writer import unwrapped
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def write_product(w: LaneWriter, u: UOp) -> None:
    """Write a matrix instruction. All lanes of the warp come there, so it is a statement."""
    w.declare_struct(u, f"{u.arg.name}({', '.join(w.struct(x) for x in u.src)})")


def write_matrix_load(w: LaneWriter, u: UOp) -> None:
    """Write a load of 8x8 matrices by a warp."""
    suffix = "_transposed" if u.arg else ""
    w.declare_struct(u, f"load_matrix_x{u.dtype.count}{suffix}({w.names[u.src[0]]})")


def write_async_copy(w: LaneWriter, u: UOp) -> None:
    """Write an asynchronous copy to shared memory, of zeros where the source is masked."""
    shared, source = u.src[:2]
    arguments = [unwrapped(w.names[x]) for x in (shared, source, *source.src[2:])]
    suffix = "_or_zero" if len(source.src) > 2 else ""
    copy = f"copy_async_{u.arg}{suffix}({', '.join(arguments)});"
    if len(shared.src) > 2:
        copy = f"if ({unwrapped(w.names[shared.src[2]])}) {copy}"
    w.emit(copy)


def write_commit(w: LaneWriter, u: UOp) -> None:
    """Write the end of a group of asynchronous copies."""
    w.emit("copy_async_commit();")


def write_wait(w: LaneWriter, u: UOp) -> None:
    """Write a wait until at most some groups of copies are in flight."""
    w.emit(f"copy_async_wait<{u.arg}>();")


WARP_WRITERS: dict[Ops, Callable[[LaneWriter, UOp], None]] = {
    Ops.MMA: write_product,
    Ops.LOAD_MATRIX: write_matrix_load,
    Ops.COPY_ASYNC: write_async_copy,
    Ops.COPY_COMMIT: write_commit,
    Ops.COPY_WAIT: write_wait,
    Ops.NOOP: lambda w, u: None,
}
