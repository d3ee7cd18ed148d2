"""Merging neighbours, best pair first: the algorithm of byte-pair and SentencePiece encoders."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

# what a pair costs, the least first; None for a pair that does not merge
Cost = Callable[[str, str], float | None]


def merged(symbols: Sequence[str], cost: Cost) -> list[str]:
    """The symbols after merging the neighbours of least cost, the leftmost first, until none can.

    Takes n log n steps, so that no text is slow.

    >>> merged("aabab", lambda left, right: {"ab": 0, "aab": 1}.get(left + right))
    ['aab', 'ab']
    """
    # a list linked both ways; a symbol that was merged into its neighbour is empty
    parts = list(symbols)
    before = list(range(-1, len(parts) - 1))
    after = list(range(1, len(parts) + 1))
    heap: list[tuple[float, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left < 0 or right == len(parts):
            return
        price = cost(parts[left], parts[right])
        if price is not None:
            heapq.heappush(heap, (price, left, parts[left], parts[right]))

    for left in range(len(parts) - 1):
        offer(left, left + 1)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = after[left]
        # one of the two has been merged since
        if parts[left] != first or right == len(parts) or parts[right] != second:
            continue
        parts[left], parts[right] = first + second, ""
        after[left] = after[right]
        if after[right] < len(parts):
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [part for part in parts if part]
