"""`Sharding`: on which devices an array lives, and which axes they shard.

Input: device names, and one placement per mesh dimension. Output: `Sharding`, the device value of a
tensor on several devices. Invariants: a `Sharding` is valid, canonical and interned, so equal
layouts are the same object. Bounds are computed from a shape, never stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Any, final, overload

from tinygrad.sharding.device_names import device_range, full_name, short_name
from tinygrad.sharding.placement import (
    Interval,
    Partial,
    Placement,
    ShardingError,
    Span,
    placement_axis,
)
from tinygrad.sharding.sizes import Region, Shape, is_int, max_size


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Sharding:
    """Devices in row-major order over a mesh, and one placement per mesh dimension.

    `mesh=()` is one dimension over all devices. `axis` is a bare placement for a mesh of one
    dimension, else a tuple with one placement per mesh dimension. Two dimensions may shard the same
    tensor axis (nested, outer first). The form is canonical: mesh dimensions of size 1 are dropped
    and neighbours with equal placements are merged, so `axis` and `mesh` may differ from what was
    passed. Instances are interned: `==` is identity, but a tuple of the device names is equal too.

        Sharding(("CPU:0", "CPU:1"), axis=0)            # each device holds half of the rows
        Sharding(eight, axis=(0, 1), mesh=(2, 4))       # rows over 2, columns over 4

    Raises ShardingError for wrong devices, a wrong mesh, or a wrong placement.
    """

    devices: tuple[str, ...]
    axis: Placement | tuple[Placement, ...] = None
    mesh: tuple[int, ...] = ()

    def __new__(
        cls,
        devices: Sequence[str],
        axis: Placement | Sequence[Placement] = None,
        mesh: Sequence[int] = (),
    ) -> Sharding:
        devices = _checked_devices(devices)
        mesh_shape = _checked_mesh(mesh, len(devices))
        axes = _checked_axes(axis, mesh_shape)
        axes, mesh_shape = _canonical(axes, mesh_shape)
        key = (devices, axes, mesh_shape)
        found = _INTERNED.get(key)
        if found is not None:
            return found
        self = super().__new__(cls)
        one_dimensional = len(mesh_shape) == 1
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "axis", axes[0] if one_dimensional else axes)
        object.__setattr__(self, "mesh", () if one_dimensional else mesh_shape)
        return _INTERNED.setdefault(key, self)

    def __reduce__(self) -> tuple[type[Sharding], tuple[Any, ...]]:
        """Copies and unpickled values go through the constructor, so that they are interned too."""
        return Sharding, (self.devices, self.axis, self.mesh)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same layout; of a tuple, whether it has the same names in order."""
        if self is other:
            return True
        if isinstance(other, tuple):
            return tuple(map(full_name, self.devices)) == tuple(map(full_name, other))
        return False

    # as a key, a layout is no tuple of names
    __hash__ = object.__hash__

    def __contains__(self, device: object) -> bool:
        return full_name(device) in map(full_name, self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    def __iter__(self) -> Iterator[str]:
        return iter(self.devices)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self.devices[index]

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        axes = ", ".join(str(placement) for placement in self.axes)
        if not self.mesh:
            return f"Sharding({device_range(self.devices)}, axis={axes})"
        return f"Sharding({device_range(self.devices)}, axis=({axes}), mesh={self.mesh})"

    __repr__ = __str__

    @cached_property
    def mesh_shape(self) -> tuple[int, ...]:
        """The sizes of the mesh dimensions, never empty."""
        return self.mesh or (len(self.devices),)

    @cached_property
    def axes(self) -> tuple[Placement, ...]:
        """One placement per mesh dimension, always a tuple as long as `mesh_shape`."""
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    @cached_property
    def is_replicated(self) -> bool:
        """Each device holds the whole logical value."""
        return all(placement is None for placement in self.axes)

    @cached_property
    def is_partial(self) -> bool:
        """Some mesh dimension holds partial values."""
        return any(isinstance(placement, Partial) for placement in self.axes)

    @cached_property
    def partial_ops(self) -> tuple[str, ...]:
        """The names of the ops of the partial mesh dimensions, sorted, each once."""
        return tuple(sorted({entry.op for entry in self.axes if isinstance(entry, Partial)}))

    @cached_property
    def split_axes(self) -> tuple[int, ...]:
        """The tensor axes that are sharded, sorted, without repeats."""
        axes = (placement_axis(entry) for entry in self.axes)
        return tuple(sorted({axis for axis in axes if axis is not None}))

    @cached_property
    def interval_axes(self) -> tuple[int, ...]:
        """The sharded axes whose ranges are shifted or overlap."""
        return tuple(sorted({entry.axis for entry in self.axes if isinstance(entry, Interval)}))

    @property
    def has_intervals(self) -> bool:
        """Some axis is sharded into shifted or overlapping ranges."""
        return bool(self.interval_axes)

    @cached_property
    def _coordinates(self) -> tuple[tuple[int, ...], ...]:
        return tuple(product(*(range(size) for size in self.mesh_shape)))

    def coordinates(self, device_index: int) -> tuple[int, ...]:
        """The mesh coordinates of device number `device_index`."""
        return self._coordinates[device_index]

    def shards(self, tensor_axis: int) -> int:
        """The number of shards along `tensor_axis`: 1 if it is unsharded."""
        sizes = zip(self.axes, self.mesh_shape, strict=True)
        return prod(size for placement, size in sizes if placement_axis(placement) == tensor_axis)

    def block_strides(self, tensor_axis: int) -> list[tuple[int, int, int]]:
        """The (stride, size, weight) of each mesh dimension that shards `tensor_axis`, outer first.

        Device number d holds block number `sum(((d // stride) % size) * weight)` of the axis. The
        list is empty if the axis is unsharded.
        """
        strides: list[tuple[int, int, int]] = []
        stride, weight = 1, 1
        for placement, size in zip(reversed(self.axes), reversed(self.mesh_shape), strict=True):
            if placement_axis(placement) == tensor_axis:
                strides.append((stride, size, weight))
                weight *= size
            stride *= size
        return strides[::-1]

    def replicated(self) -> Sharding:
        """The same devices, replicated."""
        return Sharding(self.devices)

    def with_axes(self, axes: Sequence[Placement]) -> Sharding:
        """The same devices and mesh, with one new placement per dimension of `mesh_shape`."""
        return _with_axes(self, tuple(axes))

    def without_partial(self) -> Sharding:
        """The layout after an all-reduce: replicated where it was partial."""
        if not self.is_partial:
            return self
        return self.with_axes(
            [None if isinstance(entry, Partial) else entry for entry in self.axes]
        )

    def check(self, shape: Shape) -> None:
        """Raises ShardingError if a sharded axis is missing in `shape`, or its size is 1."""
        _local_shape(self, shape)

    def local_shape(self, shape: Shape) -> Shape:
        """The local shape of a global `shape`, equal on all devices. Raises as `check` does.

        If a sharded axis does not divide evenly, the blocks of the last devices extend past its
        end; those elements are padding and unspecified. A symbolic size is sharded as its upper
        bound.
        """
        return _local_shape(self, shape)

    def span(self, axis: int, shape: Shape) -> Span:
        """The ranges of `axis` on the devices, by the number of the block."""
        return _span(self, axis, shape)

    def is_even(self, shape: Shape) -> bool:
        """Whether all sharded axes divide evenly, so that no block has padding."""
        return not self.has_intervals and all(
            is_int(shape[axis]) and shape[axis] % self.shards(axis) == 0 for axis in self.split_axes
        )

    def regions(self, shape: Shape) -> tuple[Region, ...]:
        """The box of the global array on each device, in device order. Raises as `check` does."""
        return _regions(self, shape)


_INTERNED: dict[
    tuple[tuple[str, ...], tuple[Placement, ...], tuple[int, ...]],
    Sharding,
] = {}


def _checked_devices(devices: Sequence[str]) -> tuple[str, ...]:
    is_sequence = isinstance(devices, Iterable) and not isinstance(devices, str)
    if not is_sequence or not all(isinstance(name, str) and name for name in devices):
        raise ShardingError(
            f"devices must be a tuple of device names, got {devices!r}; "
            'write for example ("CPU:0", "CPU:1")'
        )
    # number 0 has no number, as in the device of a tensor
    devices = tuple(short_name(name) for name in devices)
    if not devices:
        raise ShardingError("devices is empty; name at least one device")
    repeated = sorted(name for name, count in Counter(devices).items() if count > 1)
    if repeated:
        raise ShardingError(
            f"devices names {', '.join(repeated)} more than once in {devices}; "
            "name each device once"
        )
    return devices


def _checked_mesh(mesh: Sequence[int], count: int) -> tuple[int, ...]:
    mesh_shape = tuple(mesh) or (count,)
    if not all(is_int(size) and size > 0 for size in mesh_shape):
        raise ShardingError(f"mesh must be a tuple of positive ints, got {mesh!r}")
    if prod(mesh_shape) != count:
        raise ShardingError(
            f"mesh {mesh_shape} has {prod(mesh_shape)} places for {count} devices; "
            "make the product of its sizes equal to the number of devices"
        )
    return mesh_shape


def _checked_axes(
    axis: Placement | Sequence[Placement], mesh_shape: tuple[int, ...]
) -> tuple[Placement, ...]:
    if axis is None:
        return (None,) * len(mesh_shape)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(axes) != len(mesh_shape):
        raise ShardingError(
            f"axis {axis!r} has {len(axes)} entries for mesh {mesh_shape} of {len(mesh_shape)} "
            "dimensions; give one placement (a tensor axis or None) for each mesh dimension"
        )
    for entry in axes:
        if entry is not None and not isinstance(entry, Partial | Interval) and not is_int(entry):
            raise ShardingError(
                f"axis has the entry {entry!r}; use an int (the tensor axis to shard) "
                "or None (replicated)"
            )
        if isinstance(entry, int) and entry < 0:
            raise ShardingError(
                f"axis {entry} is negative; a layout does not know the number of tensor axes, "
                "so count from the front: len(shape) + axis"
            )
    return axes


def _canonical(
    axes: tuple[Placement, ...], mesh_shape: tuple[int, ...]
) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
    """Drop mesh dimensions of size 1 and merge equal neighbours; one device is replicated."""
    kept: list[tuple[Placement, int]] = []
    for placement, size in zip(axes, mesh_shape, strict=True):
        if size == 1:
            continue
        if kept and kept[-1][0] == placement:
            kept[-1] = (placement, kept[-1][1] * size)
        else:
            kept.append((placement, size))
    kept = kept or [(None, 1)]
    return tuple(placement for placement, _ in kept), tuple(size for _, size in kept)


@lru_cache(maxsize=4096)
def _with_axes(layout: Sharding, axes: tuple[Placement, ...]) -> Sharding:
    return Sharding(layout.devices, axes, layout.mesh_shape)


@lru_cache(maxsize=4096)
def _local_shape(layout: Sharding, shape: Shape) -> Shape:
    local = list(shape)
    for axis in layout.split_axes:
        local[axis] = _span(layout, axis, shape).length
    return tuple(local)


@lru_cache(maxsize=4096)
def _span(layout: Sharding, axis: int, shape: Shape) -> Span:
    """The ranges of an axis. Only this function decides how an axis is sharded."""
    placement = next((p for p in layout.axes if placement_axis(p) == axis), None)
    if placement is None:
        return Span(0, 0, shape[axis])
    if isinstance(placement, Interval):
        return Span(
            placement.first, placement.step, placement.size, placement.stride, placement.bounds
        )
    block = -(-_checked_size(layout, axis, shape) // layout.shards(axis))
    return Span(0, block, block)


def _checked_size(layout: Sharding, axis: int, shape: Shape) -> int:
    """The size of an axis that is to be sharded."""
    what = f"{layout} shards axis {axis} of shape {shape} over {layout.shards(axis)} devices"
    otherwise = "or use axis=None to replicate it"
    if axis >= len(shape):
        raise ShardingError(
            f"{what}, but the shape has {len(shape)} axes; choose an axis below {len(shape)}, "
            f"{otherwise}"
        )
    if is_int(shape[axis]) and shape[axis] == 1:
        raise ShardingError(f"{what}, but its size is 1; shard another axis, {otherwise}")
    return max_size(shape[axis])


@lru_cache(maxsize=4096)
def _regions(layout: Sharding, shape: Shape) -> tuple[Region, ...]:
    whole = [(0, size) for size in shape]
    cuts = [
        (axis, _span(layout, axis, shape), layout.block_strides(axis)) for axis in layout.split_axes
    ]
    regions: list[Region] = []
    for device in range(len(layout)):
        region = list(whole)
        for axis, span, terms in cuts:
            number = sum((device // stride) % size * weight for stride, size, weight in terms)
            ends = span.start(number), span.stop(number)
            low, high = (min(max(0, at), max_size(shape[axis])) for at in ends)
            region[axis] = (low, high)
        regions.append(tuple(region))
    return tuple(regions)
