"""Launch groups of captured items: as few as possible, without dependencies inside a group."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.execution.realize import BufferCopy
from tinygrad.jit.replay.launches import MAX_HOIST, MAX_LAUNCH_ITEMS, group_launches, split_messages


@dataclass(eq=False)
class Item:
    """The properties of an item that grouping uses."""

    written: list[Buffer]
    bufs: tuple[Buffer, ...]


def grouped(items: list[Item]) -> list[list[Item]]:
    return cast(Any, group_launches(cast(Any, items)))


def ranges(buffers: Any) -> set[tuple[int, int]]:
    return {(id(b.base or b), byte) for b in buffers for byte in range(b.offset, b.offset + b.size)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_items_of_one_memory_stay_in_order_unless_they_only_read(data: st.DataObject):
    arenas = [Buffer("CPU", 12, dtypes.uint8) for _ in range(3)]
    places = st.tuples(st.sampled_from(arenas), st.integers(0, 8), st.integers(1, 4))
    views = places.map(lambda place: place[0].view(place[2], dtypes.uint8, place[1]))
    lists = st.lists(views, min_size=1, max_size=3)
    items = []
    for bufs in data.draw(st.lists(lists, max_size=40)):
        items.append(Item(bufs[:1], tuple(bufs)))
    groups = grouped(items)
    place = {item: number for number, group in enumerate(groups) for item in group}
    assert len(place) == len(items) and all(groups)
    for later, item in enumerate(items):
        for other in items[:later]:
            writes, reads = ranges(item.written), ranges(item.bufs)
            if writes & ranges(other.bufs) or reads & ranges(other.written):
                assert place[other] < place[item]


def test_independent_chains_share_launches():
    chains = [[Buffer("CPU", 4, dtypes.uint8) for _ in range(5)] for _ in range(3)]
    items = [
        Item([to], (to, origin)) for chain in chains for origin, to in itertools.pairwise(chain)
    ]
    assert [len(group) for group in grouped(items)] == [3] * 4


def test_an_item_is_hoisted_by_a_limited_number_of_groups():
    first = [Buffer("CPU", 4, dtypes.uint8) for _ in range(40)]
    items = [Item([b], (b, a)) for a, b in itertools.pairwise(first)]
    alone = Buffer("CPU", 4, dtypes.uint8)
    items.append(Item([alone], (alone,)))
    (number,) = [n for n, group in enumerate(grouped(items)) if items[-1] in group]
    assert number == 39 - MAX_HOIST


def test_a_group_has_a_limit():
    buffers = [Buffer("CPU", 4, dtypes.uint8) for _ in range(MAX_LAUNCH_ITEMS + 1)]
    groups = grouped([Item([b], (b,)) for b in buffers])
    assert [len(group) for group in groups] == [MAX_LAUNCH_ITEMS, 1]


def test_overlapping_messages_of_a_round_are_in_separate_launches():
    a, b, c = (Buffer("CPU", 4, dtypes.uint8) for _ in range(3))
    round_ = BufferCopy(cast(Any, None), 0, ((b, a), (c, b)))
    assert [len(group) for group in group_launches(split_messages([round_]))] == [1, 1]
