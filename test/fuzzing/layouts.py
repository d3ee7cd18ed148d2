"""Random layouts, and plainer ones for the reduction of a finding."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from test.devices import DEVICE, nth
from tinygrad import Sharding

Shape: TypeAlias = tuple[int, ...]

ONE_DEVICE = DEVICE
MAX_DEVICES = 8
MESHES: dict[int, list[tuple[int, ...]]] = {
    1: [(1,)],
    2: [(2,)],
    3: [(3,)],
    4: [(4,), (2, 2)],
    5: [(5,)],
    6: [(6,), (2, 3), (3, 2)],
    7: [(7,)],
    8: [(8,), (2, 4), (4, 2), (2, 2, 2)],
}


@dataclass(frozen=True)
class Layout:
    """A `Sharding` over the devices with these numbers; its string is the expression for it."""

    mesh: tuple[int, ...]
    axes: tuple[int | None, ...]
    numbers: tuple[int, ...]

    def build(self) -> Sharding:
        return Sharding([nth(i) for i in self.numbers], self.axes, self.mesh)

    def __str__(self) -> str:
        count = len(self.numbers)
        numbers = f"range({count})" if self.numbers == tuple(range(count)) else self.numbers
        return f"Sharding([f'{DEVICE}:{{i}}' for i in {numbers}], {self.axes}, {self.mesh})"

    def on_first(self, count: int) -> Layout:
        """A layout along one axis of the first `count` devices."""
        axis = next((axis for axis in self.axes if axis is not None), None)
        return Layout((count,), (axis,), tuple(range(count)))

    def simpler(self) -> Iterator[Layout]:
        """Layouts over the same devices, along fewer mesh dimensions or axes."""
        for axis in (None, *dict.fromkeys(self.axes)):
            plain = Layout((len(self.numbers),), (axis,), self.numbers)
            if plain._complexity() < self._complexity():
                yield plain

    def _complexity(self) -> tuple[int, int]:
        return len(self.mesh), sum(axis is not None for axis in self.axes)


def plainer(layouts: Mapping[str, Layout]) -> Iterator[dict[str, Layout]]:
    """Fewer devices, devices in order, or one simpler layout."""
    count = max((len(x.numbers) for x in layouts.values()), default=0)
    for fewer in range(2, count):
        yield {name: x.on_first(fewer) for name, x in layouts.items()}
    ordered = {
        name: replace(x, numbers=tuple(range(len(x.numbers)))) for name, x in layouts.items()
    }
    if ordered != layouts:
        yield ordered
    for name, x in layouts.items():
        for plain in x.simpler():
            yield {**layouts, name: plain}


def random_devices(rng: random.Random, count: int) -> tuple[int, ...]:
    """Device numbers: the first ones in order, or any in any order."""
    if rng.random() < 0.7:
        return tuple(range(count))
    return tuple(rng.sample(range(MAX_DEVICES), count))


def random_layout(rng: random.Random, shape: Shape, numbers: tuple[int, ...]) -> Layout:
    """A random layout over these devices for an array of `shape`."""
    mesh = rng.choice(MESHES[len(numbers)])
    long = [axis for axis, size in enumerate(shape) if size > 1]
    options = [*long, *long, None]
    return Layout(mesh, tuple(rng.choice(options) for _ in mesh), numbers)
