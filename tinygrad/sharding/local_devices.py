"""Which devices this process plans and runs: all of them, or its own part of an SPMD program.

Input: device names. Output: whether they are local, and the numbers of the local ones. Invariant:
every process builds the same graph and the same order of items; of each item it holds the part of
its local devices alone, and the parts of all processes match.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from tinygrad.sharding.device_names import short_name

# the memory and the files of the host: every process copies from its own
HOST_KINDS: Final = frozenset({"NPY", "PYTHON", "DISK"})


class Rank(NamedTuple):
    """Process `number` of `size`, each with `per_rank` devices of each kind: `CPU:5` belongs to
    rank `5 // per_rank`, modulo the number of ranks.
    """

    number: int
    size: int
    per_rank: int = 1

    def owner(self, name: str) -> int:
        """The rank that a device belongs to."""
        number = name.partition(":")[2]
        return int(number or 0) // self.per_rank % self.size


@dataclass(frozen=True)
class LocalDevices:
    """The local devices of this process: those with some `names`, or those of a `rank`; all devices
    if neither is given.

    `with local:` makes this thread plan only their kernels, memory and messages. A message is local
    if its sender or its receiver is.

    >>> local = LocalDevices.of(("NULL:2", "NULL:3"))
    >>> local.numbers(("NULL:1", "NULL:2", "NULL:3")), local.is_local("NULL"), local.is_local("NPY")
    ((1, 2), False, True)
    """

    names: frozenset[str] | None = None
    rank: Rank | None = None
    stand_for_all: bool = False
    """Whether a plan for these devices, which is not run, tells what all do."""
    in_one_process: bool = False
    """Whether the other devices belong to this process too."""

    @classmethod
    def of(cls, names: Iterable[str]) -> LocalDevices:
        """The local devices with these names."""
        return cls(frozenset(map(short_name, names)))

    @classmethod
    def standing_for_all(cls, names: Iterable[str]) -> LocalDevices:
        """The devices with these names, whose plan tells what all do that this thread plans."""
        is_one = current_local_devices().is_one_process
        return cls(frozenset(map(short_name, names)), stand_for_all=True, in_one_process=is_one)

    @cached_property
    def is_all(self) -> bool:
        """Whether every device is local."""
        return self.names is None and self.rank is None

    @property
    def is_one_process(self) -> bool:
        """Whether every device belongs to this process."""
        return self.is_all or self.in_one_process

    def is_local(self, name: str) -> bool:
        """Whether a device is local. The host's memory and files are so in every process."""
        if self.names is not None:
            return name in self.names or short_name(name) in self.names or is_on_host(name)
        return self.rank is None or is_on_host(name) or self.rank.owner(name) == self.rank.number

    def numbers(self, devices: Sequence[str]) -> Sequence[int]:
        """The positions of the local devices in a tuple of device names, in order."""
        if self.is_all:
            return range(len(devices))
        return _numbers(self, tuple(devices))

    def names_in(self, devices: tuple[str, ...]) -> tuple[str, ...]:
        """The local devices in a tuple of device names."""
        if self.is_all:
            return devices
        return tuple(devices[number] for number in self.numbers(devices))

    def __enter__(self) -> LocalDevices:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.set(_entered.get()[:-1])


ALL_DEVICES: Final = LocalDevices()


def is_on_host(name: str) -> bool:
    """Whether a device is the host's memory or a file, which every process has."""
    return name.partition(":")[0] in HOST_KINDS


@lru_cache(maxsize=4096)
def _numbers(local: LocalDevices, devices: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(number for number, name in enumerate(devices) if local.is_local(name))


# the local devices of the `with` blocks that this thread has entered
_entered: contextvars.ContextVar[tuple[LocalDevices, ...]] = contextvars.ContextVar(
    "local_devices", default=()
)


class _Process:
    local = ALL_DEVICES


def current_local_devices() -> LocalDevices:
    """The devices that this thread plans."""
    entered = _entered.get()
    return entered[-1] if entered else _Process.local


def set_local_devices(local: LocalDevices) -> None:
    """Let these be the local devices of the process, outside of `with` blocks."""
    _Process.local = local
