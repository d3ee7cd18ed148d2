"""Where the parts of a model live: on one device, or on a mesh.

In: one device's name, names, or a `Mesh` with a dimension "tp" and perhaps "dp". Out: the layouts
of weights, which "tp" splits, and of batches, which "dp" splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tinygrad.device import Device
from tinygrad.helpers import round_up
from tinygrad.sharding import Mesh, P, Sharding, ShardingError

Devices: TypeAlias = str | Sequence[str] | Mesh | None

TENSORS, BATCHES = "tp", "dp"


class Placement:
    """The layouts of a model on its devices.

    >>> from tinygrad.apps.language.model.layouts import Placement
    >>> pair = Placement(("CPU:0", "CPU:1"))
    >>> pair.padded(3), str(pair.split(1, 3))
    (4, 'Sharding(CPU:0-1, axis=1)')
    >>> Placement(None).split(1, 3) == Device.DEFAULT
    True
    """

    def __init__(self, devices: Devices) -> None:
        """Raises ShardingError for a mesh that has other dimensions than "dp" and "tp"."""
        if not isinstance(devices, Mesh):
            if isinstance(devices, str) or devices is None:
                devices = [Device.canonicalize(devices)]
            devices = Mesh((len(devices),), (TENSORS,), devices)
        if not {TENSORS, BATCHES}.issuperset(devices.names):
            raise ShardingError(
                f"a language model is laid out over the mesh dimensions {TENSORS!r} and "
                f"{BATCHES!r}, not over {devices}"
            )
        names = [Device.canonicalize(name) for name in devices.devices]
        self.mesh = Mesh(devices.shape, devices.names, names)
        self.is_single = len(devices) == 1

    def _size(self, name: str) -> int:
        return self.mesh.axis_size(name) if name in self.mesh.names else 1

    def _layout(self, name: str | None, axis: int) -> str | Sharding:
        if self.is_single:
            return self.mesh.devices[0]
        entry = name if name in self.mesh.names else None
        return self.mesh.sharding(P(*[None] * axis, entry))

    @property
    def count(self) -> int:
        """The number of parts that a weight is split in."""
        return self._size(TENSORS)

    @property
    def copies(self) -> str | Sharding:
        """A full copy on each device."""
        return self._layout(None, 0)

    @property
    def first(self) -> str:
        """One device, for what is read by the host."""
        return self.mesh.devices[0]

    def batch(self, rows: int) -> str | Sharding:
        """Axis 0, of so many rows, is split as batches are."""
        return self._layout(BATCHES, 0) if rows > 1 else self.copies

    def split(self, axis: int, units: int) -> str | Sharding:
        """One axis is split, which is made of so many units: one unit cannot be."""
        return self._layout(TENSORS, axis) if units > 1 else self.copies

    def padded(self, units: int) -> int:
        """So many units, and those to add for each device to have as many."""
        return round_up(units, self.count) if units > 1 else units
