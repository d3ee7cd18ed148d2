"""The limits of recomputation in one kernel.

Input: the segments that are fused into a kernel. Output: whether another one fits. Invariant: a
kernel does at most `MAX_WORK_RATIO` times the arithmetic that it would do if every value were
computed once, and its size is at most `MAX_KERNEL_SIZE`.

Example: a kernel of 1,000 elements reads `exp(x)`, 16 operations, at 3 places. The work is 48,000
operations; 16,000 would remain if each element were computed once.
"""

from __future__ import annotations

from typing import NamedTuple

from tinygrad.schedule.grouping.fusion.segments import MAX_KERNEL_SIZE, Segment

MAX_WORK_RATIO = 2
"""The maximum arithmetic of a kernel, relative to that without recomputation."""


class Cost(NamedTuple):
    """What a segment adds to a kernel."""

    size: int
    """Estimated instructions."""
    work: float
    """Operations for all loop iterations."""
    once: float
    """The share of this kernel in the operations if each element were computed only once."""


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
        """Add the cost of a segment that this kernel computes."""
        self.size += cost.size
        self.work += cost.work
        self.work_once += cost.once
