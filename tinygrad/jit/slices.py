"""Contiguous slices: arguments that are ranges of memory, such as the rows of a minibatch.

Input: the node of an argument. Output: the BUFFER that it is a slice of, and the elements of it. A
replay takes slices that begin anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

from tinygrad.helpers import all_int, prod
from tinygrad.sharding import Sharding
from tinygrad.storage.views import IDENTITY_OPS
from tinygrad.uop import Ops
from tinygrad.uop.device_value import is_file
from tinygrad.uop.ops import UOp

_STEPS = IDENTITY_OPS | {Ops.RESHAPE, Ops.SHRINK}


@dataclass(frozen=True)
class ContiguousSlice:
    """`size` elements of `memory` from element `first` on; on each device, if it is on several."""

    memory: Any
    first: int
    size: int


def contiguous_slice(node: UOp) -> ContiguousSlice | None:
    """The slice that a view in memory is; None if it is not contiguous, or not known to be."""
    steps: list[UOp] = []
    base = node
    while base.op in _STEPS:
        steps.append(base)
        base = base.src[0]
    layout = base.device
    if base.op is not Ops.BUFFER or not all_int(base.arg.shape) or is_file(layout):
        return None
    if node.device != layout:
        return None
    if isinstance(layout, Sharding) and layout.is_partial:
        return None
    is_sharded = isinstance(layout, Sharding) and bool(layout.split_axes)
    first, size = 0, prod(_local(base))
    for step in reversed(steps):
        if step.op is Ops.RESHAPE and (is_sharded or not all_int(step.arg)):
            return None
        if step.op is Ops.SHRINK:
            if not all_int(sum(step.arg, ())):
                return None
            starts = [low for low, _ in step.arg]
            old, new = _local(step.src[0]), _local(step)
            if not _is_contiguous(old, new) or any(starts[axis] for axis in _sharded_axes(step)):
                return None
            strides = [*accumulate(reversed(old[1:]), mul, initial=1)][::-1]
            first += sum(map(mul, starts, strides))
            size = prod(new)
    return ContiguousSlice(base, first, size)


def _local(node: UOp) -> tuple[int, ...]:
    """The shape of a value, on each device."""
    shape, layout = node.shape, node.device
    if isinstance(layout, Sharding):
        return tuple(layout.local_shape(shape))
    return tuple(int(size) for size in shape)


def _sharded_axes(node: UOp) -> Sequence[int]:
    return node.device.split_axes if isinstance(node.device, Sharding) else ()


def _is_contiguous(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether a range of each axis is a range of an array: all axes before the last that is cut
    have one element.
    """
    cut = [axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    return not cut or all(size == 1 for size in new[: cut[-1]])
