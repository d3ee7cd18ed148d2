"""Run kernels that free memory as soon as they can run.

Input: a plan. Output: the same plan in another order, unless that takes more memory. Invariant:
items that use the same memory, one of which writes it, keep their order, and so does communication.

Example: in a backward pass, the gradient of a weight and that of the layer's input are computed
from the gradient of its output, which can be dropped once both are. As the gradients of weights are
needed last, by the optimizer, they would otherwise come last, and keep everything until then.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tinygrad.schedule.execution_plan import ExecutionPlan, Item, TransferItem

MIN_FREED_BYTES = 1 << 20
"""The minimum bytes that a kernel frees, less those that it allocates, to run early."""


def free_early(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan in which kernels that free much memory run early, unless its peak is higher. With
    the same peak, more results are stored in place of arguments that die.
    """
    order = _Order(plan)
    if sum(order.nbytes.values()) < MIN_FREED_BYTES:
        return plan
    items = tuple([plan.items[i] for i in order.find()])
    is_higher = order.peak(items) > order.peak(plan.items)
    return plan if is_higher else replace(plan, items=items)


class _Order:
    """An order of the items of a plan, and the memory that they take so far."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self.items = plan.items
        kept = {part.entry for parts in plan.outputs if parts is not None for part in parts}
        self.nbytes = {
            i: plan.entries[i].size * plan.entries[i].dtype.itemsize * len(plan.entries[i].devices)
            for i in plan.temporary
            if i not in kept
        }
        """The bytes of each temporary that holds no output."""
        self.touched = [[x for x in item.entries if x in self.nbytes] for item in plan.items]
        self.left = Counter(entry for entries in self.touched for entry in entries)
        """The number of items that have still to use each temporary."""
        self.made: set[int] = set()
        """The temporaries that an item has used."""
        self.waiting = [0] * len(plan.items)
        self.followers: list[set[int]] = [set() for _ in plan.items]
        self._note_dependencies()

    def _note_dependencies(self) -> None:
        """Let items follow those that write what they use, and those that use what they write."""
        writer: dict[int, int] = {}
        readers: defaultdict[int, list[int]] = defaultdict(list)
        for number, item in enumerate(self.items):
            before: set[int] = set()
            for entry in item.entries:
                if entry in writer:
                    before.add(writer[entry])
                if entry in item.written:
                    before.update(readers.pop(entry, ()))
                    writer[entry] = number
                else:
                    readers[entry].append(number)
            before.discard(number)
            self.waiting[number] = len(before)
            for x in before:
                self.followers[x].add(number)

    def find(self) -> list[int]:
        """The numbers of the items in the order in which they run."""
        order: list[int] = []
        done = [False] * len(self.items)
        users: defaultdict[int, list[int]] = defaultdict(list)
        for number, entries in enumerate(self.touched):
            for entry in entries:
                users[entry].append(number)
        freeing: list[int] = []
        for first in range(len(self.items)):
            pending = [first]
            while pending:
                number = pending.pop()
                if done[number]:
                    continue
                done[number] = True
                order.append(number)
                changed = self._run(number)
                changed.update(x for entry in self.touched[number] for x in users[entry])
                for x in changed:
                    if not done[x] and self._frees(x):
                        heapq.heappush(freeing, x)
                # the rounds of a collective stay together
                if freeing and not self._is_inside_collective(number):
                    pending.append(heapq.heappop(freeing))
        return order

    def _run(self, number: int) -> set[int]:
        """Note that an item runs; returns those that can run from now on."""
        self.made.update(self.touched[number])
        self.left.subtract(self.touched[number])
        for x in self.followers[number]:
            self.waiting[x] -= 1
        return {x for x in self.followers[number] if self.waiting[x] == 0}

    def _frees(self, number: int) -> bool:
        """Whether an item can run, and frees much more memory than it takes."""
        item = self.items[number]
        if self.waiting[number] or isinstance(item, TransferItem) or item.info is not None:
            return False
        taken = [x for x in self.touched[number] if x not in self.made]
        freed = [x for x in self.touched[number] if self.left[x] == 1]
        change = sum(self.nbytes[x] for x in taken) - sum(self.nbytes[x] for x in freed)
        return change <= -MIN_FREED_BYTES

    def _is_inside_collective(self, number: int) -> bool:
        """Whether the item after this one belongs to the same collective."""
        following = self.items[number + 1 : number + 2]
        return all(isinstance(x, TransferItem) for x in (self.items[number], *following))

    def peak(self, items: Sequence[Item]) -> int:
        """The maximum bytes of temporaries that are alive at once."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for position, item in enumerate(items):
            for entry in item.entries & self.nbytes.keys():
                first.setdefault(entry, position)
                last[entry] = position
        change = [0] * (len(items) + 1)
        for entry, position in first.items():
            change[position] += self.nbytes[entry]
            change[last[entry] + 1] -= self.nbytes[entry]
        alive = highest = 0
        for x in change:
            alive += x
            highest = max(highest, alive)
        return highest
