"""Replays between messages: no rank waits for ever, and memory has the content of items in order.

Ranks are run in turn, in one process. A message is delivered as late as it may be: when one of its
ends waits for it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from tinygrad import dtypes
from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ScheduleItem
from tinygrad.execution.wire import RemoteMessage, SimulatedWire, entered_wire
from tinygrad.jit.inputs import Inputs
from tinygrad.jit.replay.launches import group_launches, is_remote, split_messages
from tinygrad.jit.replay.rank_replay import RankReplay

RANKS, BUFFERS, SIZE = 3, 5, 2


class Link:
    """The ends of messages between two ranks that were started, in order, by direction."""

    def __init__(self) -> None:
        self.sent: deque[Buffer] = deque()
        self.received: deque[Buffer] = deque()
        self.done = {True: 0, False: 0}
        self.started = {True: 0, False: 0}

    def start(self, message: RemoteMessage) -> int:
        (self.sent if message.is_sent else self.received).append(message.buffer)
        self.started[message.is_sent] += 1
        return self.started[message.is_sent]

    def deliver(self, number: int, is_sent: bool) -> bool:
        """Whether message `number` has both ends; if so, it arrives, if it has not before."""
        if min(self.started.values()) < number:
            return False
        while self.done[is_sent] < number:
            self.received.popleft().copyin(self.sent.popleft().as_memoryview())
            self.done = {end: count + 1 for end, count in self.done.items()}
        return True


class FakeWire(SimulatedWire):
    """The wire of one rank."""

    def __init__(self, links: dict[tuple[str, str], Link]) -> None:
        super().__init__()
        self.links = links
        self.flight: dict[int, tuple[Link, int, bool]] = {}

    def start_again(self, ticket: Sequence[RemoteMessage]) -> None:
        for message in ticket:
            link = self.links.setdefault(message[:2], Link())
            self.flight[id(message)] = link, link.start(message), message.is_sent

    def is_done(self, ticket: Sequence[RemoteMessage]) -> bool:
        ends = [self.flight[id(message)] for message in ticket]
        return all(link.deliver(number, is_sent) for link, number, is_sent in ends)


def copy(source: Buffer, destination: Buffer) -> ScheduleItem:
    return BufferCopy(cast(Any, None), 0, ((destination, source),))


Program = list[list[tuple[int, int, int, int]]]


def random_program(generator: random.Random) -> Program:
    """Rounds: copies from a buffer of a rank to one of another, or of the same, each of which no
    other of the round uses.
    """
    rounds: Program = []
    for _ in range(30):
        places = [(rank, number) for rank in range(RANKS) for number in range(BUFFERS)]
        generator.shuffle(places)
        if generator.random() < 0.6:
            source, number = places[0]
            target = generator.choice([n for n in range(BUFFERS) if n != number])
            rounds.append([(source, number, source, target)])
        else:
            found = zip(places[0:8:2], places[1:8:2], strict=True)
            rounds.append([(*a, *b) for a, b in found if a[0] != b[0]])
    return rounds


def memory() -> list[list[Buffer]]:
    def buffer(value: float) -> Buffer:
        content = np.full(SIZE, value, np.float32)
        return Buffer("CPU", SIZE, dtypes.float32).allocate().copyin(content.data)

    return [[buffer(rank * BUFFERS + n) for n in range(BUFFERS)] for rank in range(RANKS)]


def part(program: Program, rank: int, own: list[Buffer]) -> list[ScheduleItem]:
    """The items of one rank."""
    items: list[ScheduleItem] = []
    for number, round_ in enumerate(program):
        remote = []
        for source, first, target, second in round_:
            if source == target == rank:
                items.append(copy(own[first], own[second]))
            elif rank in (source, target):
                is_sent = rank == source
                buffer = own[first] if is_sent else own[second]
                remote.append(RemoteMessage(f"{source}", f"{target}", buffer, is_sent))
        if remote:
            items.append(BufferCopy(cast(Any, None), number, (), tuple(remote)))
    return items


@pytest.mark.parametrize("seed", range(40))
def test_ranks_that_hoist_items_wait_for_no_cycle(seed: int) -> None:
    program = random_program(random.Random(seed))
    wanted, found = memory(), memory()
    for round_ in program:
        contents = [wanted[rank][number].numpy() for rank, number, *_ in round_]
        for (*_, rank, number), content in zip(round_, contents, strict=True):
            wanted[rank][number].copyin(content.data)
    links: dict[tuple[str, str], Link] = {}
    steps: list[deque[Any]] = []
    for rank in range(RANKS):
        with entered_wire(FakeWire(links)):
            launches = group_launches(split_messages(part(program, rank, found[rank])))
            steps.append(deque(RankReplay(launches, Inputs())._steps))
    while any(steps):
        progress = False
        for own in steps:
            while own:
                step = own[0]
                messages = step.__self__
                if step.__name__ == "wait" and not messages._wire.is_done(messages.ticket()):
                    break
                step(Inputs())
                own.popleft()
                progress = True
        assert progress, "all ranks wait"
    values = [[[b.numpy().tolist() for b in own] for own in x] for x in (wanted, found)]
    assert values[0] == values[1]


def test_messages_start_early_and_are_waited_for_at_their_first_use() -> None:
    received, sent, *others = memory()[0]
    remote = (
        RemoteMessage("CPU:1", "CPU:0", received, False),
        RemoteMessage("CPU:0", "CPU:1", sent, True),
    )
    collective: Any = None
    items = [
        copy(others[0], sent),
        BufferCopy(collective, 0, (), remote),
        copy(received, others[1]),
        copy(others[0], others[2]),
    ]
    launches = group_launches(split_messages(items))
    assert [[is_remote(item) for item in launch] for launch in launches] == [
        [False, True, False],
        [True],
        [False],
    ]
    with entered_wire(SimulatedWire()):
        replay = RankReplay(launches, Inputs())
    assert [(step.__name__, getattr(step.__self__, "is_sent", None)) for step in replay._steps] == [  # type: ignore[attr-defined]
        ("start", False),
        ("run", None),
        ("start", True),
        ("wait", False),
        ("run", None),
        ("wait", True),
    ]
