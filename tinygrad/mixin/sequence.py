"""The sequence that all random numbers are drawn from, and how far each device is in it.

In: how many numbers a tensor needs. Out: where its numbers start, as a graph, and the key. Number
`i` is Threefry-2x32 of `i` under a key made of the seed (Salmon et al., 2011), so values depend on
the seed and on the order of draws, and on nothing else.

Each device keeps the count in memory of its own, which every draw reads and advances, so that it
advances in a captured function too, and starts again there with a new seed. A device that did not
draw lately is behind; it is brought up to date when it draws next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tinygrad.device import Buffer, MultiBuffer
from tinygrad.dtype import dtypes
from tinygrad.mixin.core import TensorCore, const_node
from tinygrad.mixin.realization import realize_all, remember_assignment, replace_nodes
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers


@dataclass
class DeviceCount:
    """A device's copy of the key and of the count, each a stored vector of one uint64.

    Captured functions read those of devices that are `captured`, so these stay where they are.
    """

    key: UOp
    count: TensorCore
    position: int
    captured: bool = False


class RandomSequence:
    """How many numbers were drawn since the last `seed`, in all and as each device knows it."""

    def __init__(self) -> None:
        self.devices: dict[Any, DeviceCount] = {}
        self.seeds = 0
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start again, under the key of `seed`. What was drawn before keeps its values."""
        self.position = 0
        self.seeds += 1
        digest = hashlib.sha256(str(seed).encode()).digest()
        self.key = int.from_bytes(digest[:8], "little")
        self.devices = {d: state for d, state in self.devices.items() if state.captured}
        changed = [x for d, state in self.devices.items() for x in self._restart(d, state)]
        realize_all(changed)

    def _restart(self, device: Any, state: DeviceCount) -> list[TensorCore]:
        """Give the memory of a device its new content: tensors to realize.

        What was drawn and is not computed yet reads a copy of the old content from here on.
        """
        memory = _memory_of_count(state.count.uop)
        replace_nodes({x: _stored(device, _content(x)) for x in (memory, state.key)})
        state.position = 0
        state.count.uop = memory.assign(_stored(device, 0))
        key = TensorCore._new(state.key.assign(_stored(device, self.key)), False)
        remember_assignment(state.count.uop)
        remember_assignment(key.uop)
        return [state.count, key]

    def draw(self, device: Any, count: int) -> tuple[UOp, UOp]:
        """The number of the first of the next `count` numbers, and the key, on `device`."""
        if isinstance(device, Sharding):
            device = device.replicated()
        state = self._state(device)
        self.position += count
        self._catch_up(state)
        start = state.count.uop + const_node(-count, dtypes.uint64)
        return start, state.key

    def _state(self, device: Any) -> DeviceCount:
        if device not in self.devices:
            key, count = _stored(device, self.key), _stored(device, self.position)
            self.devices[device] = DeviceCount(key, TensorCore._new(count, False), self.position)
        return self.devices[device]

    def _catch_up(self, state: DeviceCount) -> None:
        behind = self.position - state.position
        old = state.count.uop
        state.count.uop = old.assign(old + const_node(behind, dtypes.uint64))
        state.position = self.position
        remember_assignment(state.count.uop)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What is drawn in this block, of which nothing is computed, is drawn again after it."""
        position = self.position
        before = {d: (state.count.uop, state.position) for d, state in self.devices.items()}
        try:
            yield
        finally:
            self.position = position
            self.devices = {d: state for d, state in self.devices.items() if d in before}
            for device, state in self.devices.items():
                state.count.uop, state.position = before[device]

    # ---- for functions that are captured and replayed ----

    def positions(self) -> dict[Any, int]:
        """How far each device is, and, under None, the sequence."""
        return {None: self.position} | {d: state.position for d, state in self.devices.items()}

    def catch_up(self, since: dict[Any, int]) -> list[TensorCore]:
        """Bring the devices that drew `since` some `positions` up to date: tensors to realize.

        Done at the end of a capture, all these devices advance alike in every replay.
        """
        drew = [s for d, s in self.devices.items() if since.get(d, 0) != s.position]
        for state in drew:
            state.captured = True
            if state.position != self.position:
                self._catch_up(state)
        return [state.count for state in drew]

    def align(self, devices: Iterable[Any]) -> list[TensorCore]:
        """Bring those of `devices` that are behind up to date: tensors to realize.

        Done before a capture and before every replay, both find the devices alike.
        """
        behind = [self.devices[d] for d in devices if self.devices[d].position != self.position]
        for state in behind:
            self._catch_up(state)
        return [state.count for state in behind]

    def memory(self) -> list[UOp]:
        """The memory that the devices keep their count in."""
        return [_memory_of_count(state.count.uop) for state in self.devices.values()]

    def replayed(self, before: dict[Any, int], after: dict[Any, int]) -> None:
        """A function that moved from positions `before` to `after` when captured ran again."""
        self.position += after[None] - before[None]
        for device, state in self.devices.items():
            if device in after:
                state.position += after[device] - before.get(device, before[None])


def _memory_of_count(node: UOp) -> UOp:
    """The BUFFER below a count that may wait to be advanced."""
    while node.op is not Ops.BUFFER:
        node = node.src[0]
    return node


def _content(node: UOp) -> int:
    """What `_stored` has stored, or what it has become."""
    memory = buffers[node]
    first = memory.bufs[0] if isinstance(memory, MultiBuffer) else memory
    return int.from_bytes(first.copyout(memoryview(bytearray(8))), "little")


def _stored(device: Any, value: int) -> UOp:
    """One uint64 in the memory of each device."""
    node = UOp.new_buffer(device, (1,), dtypes.uint64)
    data = memoryview(value.to_bytes(8, "little"))
    names = device.devices if isinstance(device, Sharding) else (device,)
    parts = tuple(Buffer(name, 1, dtypes.uint64).allocate().copyin(data) for name in names)
    buffers[node] = MultiBuffer(parts) if isinstance(device, Sharding) else parts[0]
    return node
