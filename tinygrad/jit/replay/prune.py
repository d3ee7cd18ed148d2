"""Pruning: dropping captured items whose work is the same in every replay.

Input: captured items, and the memory that differs between replays. Output: the items that a replay
must run. Invariant: no item overwrites what the dropped ones wrote in the captured call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ScheduleItem


def varying_items(
    items: Sequence[ScheduleItem], varying: Collection[Buffer], variables: Collection[str]
) -> list[ScheduleItem]:
    """The items that use `varying` memory, one of `variables`, or what such items write.

    Messages to and from other processes are kept, since these cannot tell whether they vary. Each
    temporary must have memory of its own.
    """
    memory = set(varying)
    found: set[int] = set()
    before = -1
    # an item before one that updates the same memory is needed too
    while before != len(found):
        before = len(found)
        for number, item in enumerate(items):
            used = {b.base or b for b in item.bufs}
            if number not in found and (used & memory or _is_kept(item, variables)):
                found.add(number)
                memory |= {b.base or b for b in item.written}
    return [item for number, item in enumerate(items) if number in found]


def _is_kept(item: ScheduleItem, variables: Collection[str]) -> bool:
    if isinstance(item, BufferCopy):
        return bool(item.remote)
    return any(name in variables for name in item.values)
