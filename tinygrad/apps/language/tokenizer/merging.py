"""Byte-pair merging: neighbouring symbols are merged, the pair of least cost first.

Used where `tokenizers` cannot be: several pairs may have one cost, and the leftmost merges first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

# the cost of a pair; None for a pair that does not merge
Cost = Callable[[str, str], float | None]


def merge_symbols(symbols: Sequence[str], cost: Cost) -> list[str]:
    """The symbols after merging pairs of least cost, leftmost first, until no pair merges.

    Takes O(n log n) steps.

    >>> merge_symbols("aabab", lambda left, right: {"ab": 0, "aab": 1}.get(left + right))
    ['aab', 'ab']
    """
    # a doubly linked list; a symbol that was merged into its left neighbour is empty
    parts = list(symbols)
    before = list(range(-1, len(parts) - 1))
    after = list(range(1, len(parts) + 1))
    heap: list[tuple[float, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left < 0 or right == len(parts):
            return
        pair_cost = cost(parts[left], parts[right])
        if pair_cost is not None:
            heapq.heappush(heap, (pair_cost, left, parts[left], parts[right]))

    for left in range(len(parts) - 1):
        offer(left, left + 1)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = after[left]
        # stale: one of the two was merged since
        if parts[left] != first or right == len(parts) or parts[right] != second:
            continue
        parts[left], parts[right] = first + second, ""
        after[left] = after[right]
        if after[right] < len(parts):
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [part for part in parts if part]
