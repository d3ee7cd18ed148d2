"""The bounds within which a kernel computes values again rather than reading them from memory.

Input: the segments that are fused into a kernel. Output: whether there is room for another one.
Invariant: a kernel does at most `MAX_WORK_RATIO` times the arithmetic that it would do without
recomputation, and its size is at most `MAX_KERNEL_SIZE`.
"""

from __future__ import annotations

from typing import NamedTuple

from tinygrad.schedule.grouping.fusion.segments import MAX_KERNEL_SIZE, Segment

MAX_WORK_RATIO = 2
"""The most arithmetic of a kernel, relative to that without recomputation."""


class Cost(NamedTuple):
    """What a segment adds to a kernel: instructions, work, and `once`, the work that would remain
    if each element were computed by only one of the kernels that need it.
    """

    size: int
    work: float
    once: float


class KernelBudget:
    """The size and work of a kernel that grows from its root."""

    def __init__(self, root: Segment, points: float) -> None:
        self.size = root.size
        self.work = self.work_once = points * root.work

    def allows(self, cost: Cost) -> bool:
        """Whether the kernel stays within its bounds."""
        if self.size + cost.size > MAX_KERNEL_SIZE:
            return False
        if cost.work <= cost.once:
            return True
        return self.work + cost.work <= MAX_WORK_RATIO * (self.work_once + cost.once)

    def spend(self, cost: Cost) -> None:
        """Compute a segment in this kernel."""
        self.size += cost.size
        self.work += cost.work
        self.work_once += cost.once
