"""The layouts of a model on one device or on a mesh.

Input: a device, several, or a `Mesh` with a dimension "tp" and perhaps "dp". Output: the layouts of
weights and heads, sharded along "tp" (tensor parallelism), and of batches, sharded along "dp" (data
parallelism).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tinygrad.device import Device
from tinygrad.helpers import round_up
from tinygrad.sharding import Mesh, P, ShardingError
from tinygrad.uop.device_value import TensorDevice

Devices: TypeAlias = str | Sequence[str] | Mesh | None

TENSOR_PARALLEL, DATA_PARALLEL = "tp", "dp"


class ModelLayout:
    """The layouts of a model's weights, heads and batches on its devices.

    >>> from tinygrad.apps.language.model.layouts import ModelLayout
    >>> pair = ModelLayout(("CPU:0", "CPU:1"))
    >>> pair.padded(3), str(pair.sharded(1, 3))
    (4, 'Sharding(CPU:0-1, axis=1)')
    >>> ModelLayout(None).sharded(1, 3) == Device.DEFAULT
    True
    """

    def __init__(self, devices: Devices) -> None:
        """Raises ShardingError for mesh dimensions other than "dp" and "tp"."""
        if not isinstance(devices, Mesh):
            if isinstance(devices, str) or devices is None:
                devices = [Device.canonicalize(devices)]
            devices = Mesh((len(devices),), (TENSOR_PARALLEL,), devices)
        if not {TENSOR_PARALLEL, DATA_PARALLEL}.issuperset(devices.names):
            raise ShardingError(
                f"a language model is laid out over the mesh dimensions {TENSOR_PARALLEL!r} and "
                f"{DATA_PARALLEL!r}, not over {devices}"
            )
        names = [Device.canonicalize(name) for name in devices.devices]
        self.mesh = Mesh(devices.shape, devices.names, names)
        self.is_single = len(devices) == 1

    def _size(self, name: str) -> int:
        return self.mesh.axis_size(name) if name in self.mesh.names else 1

    def _layout(self, name: str | None, axis: int) -> TensorDevice:
        if self.is_single:
            return self.mesh.devices[0]
        entry = name if name in self.mesh.names else None
        return self.mesh.sharding(P(*[None] * axis, entry))

    @property
    def shard_count(self) -> int:
        """The number of shards of a weight."""
        return self._size(TENSOR_PARALLEL)

    @property
    def replicated(self) -> TensorDevice:
        """Replicated on all devices."""
        return self._layout(None, 0)

    @property
    def first(self) -> str:
        """The first device, for values that the host reads."""
        return self.mesh.devices[0]

    def batch(self, rows: int) -> TensorDevice:
        """Axis 0, of `rows` rows, sharded along "dp"; replicated for one row."""
        return self._layout(DATA_PARALLEL, 0) if rows > 1 else self.replicated

    def sharded(self, axis: int, units: int) -> TensorDevice:
        """An axis of `units` indivisible units, sharded along "tp"; replicated for one unit."""
        return self._layout(TENSOR_PARALLEL, axis) if units > 1 else self.replicated

    def padded(self, units: int) -> int:
        """`units` rounded up, so that each device has the same number of them."""
        return round_up(units, self.shard_count) if units > 1 else units
