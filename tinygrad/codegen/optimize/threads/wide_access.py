"""Choose the loop whose neighbouring steps one thread computes together, by wide accesses.

In: a nest. Out: a loop and the number of its steps that one access moves, where accesses are
contiguous along the loop and aligned.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.codegen.analysis.affine_index import is_multiple
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.renderer import memory_dtype, pointer_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def accesses_along(nest: Nest, axis: UOp, free: FreeRanges) -> list[tuple[UOp, int]]:
    """The addresses in buffers that depend on a loop, and the bytes of their elements."""
    found: list[tuple[UOp, int]] = []
    for u in nest.root.toposort():
        if u.op is Ops.LOAD or u.op is Ops.STORE:
            element = u if u.op is Ops.LOAD else u.src[1]
            address = u.src[0]
            if axis in free[address.src[1]] and pointer_of(address).op is Ops.DEFINE_GLOBAL:
                found.append((address, memory_dtype(element.dtype).itemsize))
    return found


def is_coalesced(nest: Nest, axis: UOp, free: FreeRanges) -> bool:
    """Whether at least half of the accesses along a loop have stride 1."""
    strides = [free.stride(a.src[1], axis) for a, _ in accesses_along(nest, axis, free)]
    return 2 * sum(s in {1, -1} for s in strides) >= max(1, len(strides))


def best_lanes(nest: Nest, axis: UOp) -> int:
    """The steps of a loop that one thread should compute together; 1 for none."""
    if not is_static(axis):
        return 1
    free = FreeRanges()
    accesses = accesses_along(nest, axis, free)
    if not accesses:
        return 1
    widest = max(itemsize for _, itemsize in accesses)
    lanes = max(1, nest.renderer.target.vector_bytes // widest)
    while lanes > 1 and not _pays_off(accesses, axis, lanes, free):
        lanes //= 2
    return lanes


def _pays_off(accesses: Sequence[tuple[UOp, int]], axis: UOp, lanes: int, free: FreeRanges) -> bool:
    """Whether all accesses are contiguous, and most of them aligned, in vectors of `lanes`."""
    if extent(axis) % lanes:
        return False
    strides = [free.lane_stride(a.src[1], axis, lanes) for a, _ in accesses]
    if any(s not in {0, 1} for s in strides):
        return False
    wide = [a for (a, _), s in zip(accesses, strides, strict=True) if s == 1]
    aligned = [_is_aligned(a, axis, lanes) for a in wide]
    return 2 * sum(aligned) > len(aligned)


def _is_aligned(address: UOp, axis: UOp, lanes: int) -> bool:
    """Whether the elements of a step that is a multiple of `lanes` are at multiples of it, and
    are masked together.
    """
    start = address.src[1].substitute({axis: axis * lanes})
    masked = len(address.src) > 2 and axis in FreeRanges()[address.src[2]]
    return is_multiple(start, lanes) and not masked
