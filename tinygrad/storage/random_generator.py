"""The random number generator: its key, and a counter in the memory of each device.

Input: how many numbers a tensor needs. Output: the counter of its first number, as a graph, and the
key. Number `i` is Threefry-2x32 of counter `i` under a key derived from the seed (Salmon et al.,
2011). Invariant: values depend on the seed and on the order of draws, not on devices or layouts.

Each device keeps the counter in memory of its own. Every draw reads and advances it by a pending
write, so it advances in a captured function too, and restarts there with a new seed. The counter of
a device that has not drawn lately lags; it is brought up to date at the device's next draw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.execution.buffers import bind_buffers, device_buffers
from tinygrad.sharding import Sharding
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.storage.lock import exclusive
from tinygrad.storage.pending_writes import note_write
from tinygrad.storage.realization import realize_all, replace_nodes
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import UOp


@dataclass
class DeviceState:
    """A device's copies of the key and of the counter, each a stored vector of one uint64.

    Captured functions read those of devices that are `captured`, so these stay in place.
    """

    key: UOp
    counter: TensorBase
    position: int
    captured: bool = False


class RandomGenerator:
    """The position in the sequence of random numbers, and each device's state."""

    def __init__(self) -> None:
        self.devices: dict[TensorDevice, DeviceState] = {}
        self.seeds = 0
        self.seed(0)

    @exclusive
    def seed(self, seed: int) -> None:
        """Restart the sequence under the key of `seed`. Numbers drawn before keep their values."""
        self.position = 0
        self.seeds += 1
        digest = hashlib.sha256(str(seed).encode()).digest()
        self.key = int.from_bytes(digest[:8], "little")
        self.devices = {d: state for d, state in self.devices.items() if state.captured}
        changed = [x for d, state in self.devices.items() for x in self._restart(d, state)]
        realize_all(changed)

    def _restart(self, device: TensorDevice, state: DeviceState) -> list[TensorBase]:
        """Write the new key and counter to a device's memory: tensors to realize.

        Values drawn but not computed yet read a copy of the old content from now on.
        """
        memory = _counter_memory(state.counter.uop)
        replace_nodes({x: _stored(device, _content(x)) for x in (memory, state.key)})
        state.position = 0
        state.counter.uop = memory.assign(_stored(device, 0))
        key = TensorBase._new(state.key.assign(_stored(device, self.key)), False)
        note_write(state.counter.uop)
        note_write(key.uop)
        return [state.counter, key]

    @exclusive
    def draw(self, device: TensorDevice, count: int) -> tuple[UOp, UOp]:
        """Draw `count` numbers on `device`: the counter of the first, and the key."""
        if isinstance(device, Sharding):
            device = device.replicated()
        state = self._state(device)
        self.position += count
        self._catch_up(state)
        start = state.counter.uop + const_node(-count, dtypes.uint64)
        return start, state.key

    def _state(self, device: TensorDevice) -> DeviceState:
        if device not in self.devices:
            key, counter = _stored(device, self.key), _stored(device, self.position)
            tensor = TensorBase._new(counter, False)
            self.devices[device] = DeviceState(key, tensor, self.position)
        return self.devices[device]

    def _catch_up(self, state: DeviceState) -> None:
        lag = self.position - state.position
        old = state.counter.uop
        state.counter.uop = old.assign(old + const_node(lag, dtypes.uint64))
        state.position = self.position
        note_write(state.counter.uop)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restore the position after this block, in which no drawn number may be computed."""
        position = self.position
        before = {d: (state.counter.uop, state.position) for d, state in self.devices.items()}
        try:
            yield
        finally:
            self.position = position
            self.devices = {d: state for d, state in self.devices.items() if d in before}
            for device, state in self.devices.items():
                state.counter.uop, state.position = before[device]

    # ---- for functions that are captured and replayed ----

    def positions(self) -> dict[TensorDevice | None, int]:
        """The position of each device, and, under None, that of the sequence."""
        return {None: self.position} | {d: state.position for d, state in self.devices.items()}

    @exclusive
    def catch_up(self, since: dict[TensorDevice | None, int]) -> list[TensorBase]:
        """Bring the devices that drew `since` some `positions` up to date: tensors to realize.

        At the end of a capture, this makes all these devices advance alike in every replay.
        """
        drew = [s for d, s in self.devices.items() if since.get(d, 0) != s.position]
        for state in drew:
            state.captured = True
            if state.position != self.position:
                self._catch_up(state)
        return [state.counter for state in drew]

    @exclusive
    def align(self, devices: Iterable[TensorDevice]) -> list[TensorBase]:
        """Bring those of `devices` that lag up to date: tensors to realize.

        Before a capture and before every replay, this makes both start from the same state.
        """
        lagging = [self.devices[d] for d in devices if self.devices[d].position != self.position]
        for state in lagging:
            self._catch_up(state)
        return [state.counter for state in lagging]

    def memory(self) -> list[UOp]:
        """The BUFFERs of the devices' counters."""
        return [_counter_memory(state.counter.uop) for state in self.devices.values()]

    @exclusive
    def replayed(
        self, before: dict[TensorDevice | None, int], after: dict[TensorDevice | None, int]
    ) -> None:
        """Advance as a captured function does that moved from positions `before` to `after`."""
        self.position += after[None] - before[None]
        for device, state in self.devices.items():
            if device in after:
                state.position += after[device] - before.get(device, before[None])


random_generator = RandomGenerator()


def _counter_memory(node: UOp) -> UOp:
    """The BUFFER below a counter that pending writes may advance."""
    while node.op is not Ops.BUFFER:
        node = node.src[0]
    return node


def _content(node: UOp) -> int:
    """The integer in the memory of a node of `_stored`."""
    return int.from_bytes(device_buffers(node)[0].copyout(memoryview(bytearray(8))), "little")


def _stored(device: TensorDevice, value: int) -> UOp:
    """One uint64 in the memory of each device."""
    data = memoryview(value.to_bytes(8, "little"))
    names = device.devices if isinstance(device, Sharding) else (device,)
    parts = [Buffer(name, 1, dtypes.uint64).allocate().copyin(data) for name in names]
    return bind_buffers(UOp.new_buffer(device, (1,), dtypes.uint64), parts)
