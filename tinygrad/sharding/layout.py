"""The value types of sharding: where an array lives and how it is cut.

In: device names, one placement per mesh dimension. Out: `Sharding`, the device of a tensor that
lives on several devices. Always true: a `Sharding` is valid, canonical and interned, so equal
layouts are the same object; bounds are computed from a shape, never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Any, Final, TypeAlias, final, overload

REDUCE_OPS: Final = ("ADD", "MAX", "MUL", "MIN")

Size: TypeAlias = Any
"""The size of one axis: an int, or a symbolic object of a higher layer, which is cut as its `vmax`,
the greatest that it can be."""
Shape: TypeAlias = tuple[Size, ...]
Region: TypeAlias = tuple[tuple[Size, Size], ...]
"""A box of the global array: one half-open (start, stop) for each tensor axis."""


class ShardingError(ValueError):
    """A layout that cannot be or does not fit a shape. The message names the values and the fix."""


@dataclass(frozen=True)
class Partial:
    """The placement of a term: the value is the `op`-reduction over the mesh dimension.

    `op` is the name of a reduce op: "ADD", "MAX", "MUL" or "MIN".
    """

    op: str

    def __post_init__(self) -> None:
        if self.op not in REDUCE_OPS:
            raise ShardingError(
                f"Partial: op {self.op!r} is no reduce op; use one of {', '.join(REDUCE_OPS)}"
            )

    def __str__(self) -> str:
        return f"Partial({self.op})"


@dataclass(frozen=True)
class Interval:
    """The placement of shifted or overlapping parts, as a movement along a split axis reads them.

    Along the mesh dimension, device number c holds `size` elements of tensor axis `axis`, from
    `first + c * step` on. What of them lies outside the array is unspecified.
    """

    axis: int
    first: int
    step: int
    size: int

    def __str__(self) -> str:
        return f"{self.axis}[{self.first}+{self.step}c:+{self.size}]"


Placement: TypeAlias = int | Interval | Partial | None
"""Per mesh dimension: split this tensor axis into equal blocks (an int) or shifted ones, a full
copy on each device, or an unreduced term on each."""

Span: TypeAlias = tuple[int, int, int]
"""(first, step, size): device number c holds `size` elements from `first + c * step` on."""


def placement_axis(placement: Placement) -> int | None:
    """The tensor axis that a placement cuts, if it does."""
    return (
        placement.axis
        if isinstance(placement, Interval)
        else (placement if isinstance(placement, int) else None)
    )


def on_axis(placement: Placement, axis: int) -> Placement:
    """A placement that cuts an axis, on another axis."""
    return replace(placement, axis=axis) if isinstance(placement, Interval) else axis


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Sharding:
    """Devices in row-major order over a mesh, and one placement per mesh dimension.

    `mesh=()` is one dimension over all devices. `axis` is a bare placement for a mesh of one
    dimension, else a tuple with one placement per mesh dimension; two dimensions may split the same
    tensor axis (nested, outer first). Built in canonical form: mesh dimensions of size 1 are
    dropped and neighbours with equal placements are merged, so `axis` and `mesh` may read
    differently from what was passed. Interned: `==` and `hash` are those of identity.

        Sharding(("CPU:0", "CPU:1"), axis=0)            # each device holds half of the rows
        Sharding(eight, axis=(0, 1), mesh=(2, 4))       # rows by 2, columns by 4

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
        """Copies and unpickled values are built anew, so that they are interned too."""
        return Sharding, (self.devices, self.axis, self.mesh)

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
        """Some mesh dimension holds unreduced terms."""
        return any(isinstance(placement, Partial) for placement in self.axes)

    @cached_property
    def partial_ops(self) -> tuple[str, ...]:
        """The names of the ops of the partial mesh dimensions, sorted, each once."""
        return tuple(sorted({entry.op for entry in self.axes if isinstance(entry, Partial)}))

    @cached_property
    def split_axes(self) -> tuple[int, ...]:
        """The tensor axes that are split, sorted, each once."""
        axes = (placement_axis(entry) for entry in self.axes)
        return tuple(sorted({axis for axis in axes if axis is not None}))

    @cached_property
    def interval_axes(self) -> tuple[int, ...]:
        """Those of them whose parts are shifted, or overlap."""
        return tuple(sorted({entry.axis for entry in self.axes if isinstance(entry, Interval)}))

    @property
    def has_intervals(self) -> bool:
        """Some axis is split into shifted or overlapping parts."""
        return bool(self.interval_axes)

    @cached_property
    def _coordinates(self) -> tuple[tuple[int, ...], ...]:
        return tuple(product(*(range(size) for size in self.mesh_shape)))

    def coordinates(self, device_index: int) -> tuple[int, ...]:
        """Where device number `device_index` sits in the mesh."""
        return self._coordinates[device_index]

    def shards(self, tensor_axis: int) -> int:
        """Into how many pieces `tensor_axis` is cut: 1 if it is not split."""
        sizes = zip(self.axes, self.mesh_shape, strict=True)
        return prod(size for placement, size in sizes if placement_axis(placement) == tensor_axis)

    def offset_terms(self, tensor_axis: int) -> list[tuple[int, int, int]]:
        """The (stride, size, weight) of each mesh dimension that splits `tensor_axis`, outer first.

        The part of device number d is number `sum(((d // stride) % size) * weight)` of those that
        the axis is cut into. Empty if the axis is not split.
        """
        terms: list[tuple[int, int, int]] = []
        stride, weight = 1, 1
        for placement, size in zip(reversed(self.axes), reversed(self.mesh_shape), strict=True):
            if placement_axis(placement) == tensor_axis:
                terms.append((stride, size, weight))
                weight *= size
            stride *= size
        return terms[::-1]

    def replicated(self) -> Sharding:
        """A full copy on each of the same devices."""
        return Sharding(self.devices)

    def with_axes(self, axes: Sequence[Placement]) -> Sharding:
        """The same devices and mesh, with one new placement per dimension of `mesh_shape`."""
        return _with_axes(self, tuple(axes))

    def without_partial(self) -> Sharding:
        """The layout once its terms are reduced: full copies where it was partial."""
        if not self.is_partial:
            return self
        return self.with_axes(
            [None if isinstance(entry, Partial) else entry for entry in self.axes]
        )

    def check(self, shape: Shape) -> None:
        """Raises ShardingError if a split axis is missing in `shape`, or its size is 1."""
        _local_shape(self, shape)

    def local_shape(self, shape: Shape) -> Shape:
        """The shape that each device keeps of a global `shape`. Raises as `check` does.

        Where a split axis does not divide, the last devices hold less of the array than that: what
        is behind its end is unspecified. A symbolic size is cut as the greatest it can be.
        """
        return _local_shape(self, shape)

    def span(self, axis: int, shape: Shape) -> Span:
        """Where the parts of `axis` start, how far they are apart, and their size."""
        return _span(self, axis, shape)

    def is_even(self, shape: Shape) -> bool:
        """Each device holds a full block: the sizes of all split axes divide."""
        return not self.has_intervals and all(
            is_int(shape[axis]) and shape[axis] % self.shards(axis) == 0 for axis in self.split_axes
        )

    def regions(self, shape: Shape) -> tuple[Region, ...]:
        """The box of the global array of each device, in device order. Raises as `check` does."""
        return _regions(self, shape)


_INTERNED: dict[
    tuple[tuple[str, ...], tuple[Placement, ...], tuple[int, ...]],
    Sharding,
] = {}


def device_range(devices: Sequence[str]) -> str:
    """Device names for a person: consecutive numbers as `CPU:0-3` (a bare name is number 0)."""
    runs: list[list[str]] = []
    for name in devices:
        kind, number = _kind_and_number(name)
        if runs and _kind_and_number(runs[-1][-1]) == (kind, number - 1):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(_run(names) for names in runs)


def _run(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    kind, first = _kind_and_number(names[0])
    return f"{kind}:{first}-{first + len(names) - 1}"


def _kind_and_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition(":")
    return (kind, int(number)) if kind and number.isdecimal() else (name, 0)


def is_int(value: object) -> bool:
    """An int, and not a bool, which is an int by accident."""
    return isinstance(value, int) and not isinstance(value, bool)


def greatest(size: Size) -> int:
    """The size of an axis, of a symbolic one the greatest it can be."""
    return int(size) if is_int(size) else int(size.vmax)


def _checked_devices(devices: Sequence[str]) -> tuple[str, ...]:
    if isinstance(devices, str) or not all(isinstance(name, str) and name for name in devices):
        raise ShardingError(
            f"devices must be a tuple of device names, got {devices!r}; "
            'write for example ("CPU:0", "CPU:1")'
        )
    devices = tuple(devices)
    if not devices:
        raise ShardingError("devices is empty; name at least one device")
    repeated = sorted({name for name in devices if devices.count(name) > 1})
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
                f"axis has the entry {entry!r}; use an int (the tensor axis to split) "
                "or None (a full copy)"
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
    """Drops mesh dimensions of size 1 and merges equal neighbours; one device is one full copy."""
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
        local[axis] = _span(layout, axis, shape)[2]
    return tuple(local)


@lru_cache(maxsize=4096)
def _span(layout: Sharding, axis: int, shape: Shape) -> Span:
    """How an axis is cut: the one place that decides it."""
    placement = next((p for p in layout.axes if placement_axis(p) == axis), None)
    if placement is None:
        return 0, 0, shape[axis]
    if isinstance(placement, Interval):
        return placement.first, placement.step, placement.size
    block = -(-_checked_size(layout, axis, shape) // layout.shards(axis))
    return 0, block, block


def _checked_size(layout: Sharding, axis: int, shape: Shape) -> int:
    """The size of an axis that is to be split."""
    what = f"{layout} splits axis {axis} of shape {shape} into {layout.shards(axis)} pieces"
    otherwise = "or use axis=None for a full copy on each device"
    if axis >= len(shape):
        raise ShardingError(
            f"{what}, but the shape has {len(shape)} axes; choose an axis below {len(shape)}, "
            f"{otherwise}"
        )
    if is_int(shape[axis]) and shape[axis] == 1:
        raise ShardingError(f"{what}, but its size is 1; split another axis, {otherwise}")
    return greatest(shape[axis])


@lru_cache(maxsize=4096)
def _regions(layout: Sharding, shape: Shape) -> tuple[Region, ...]:
    whole = [(0, size) for size in shape]
    cuts = [
        (axis, _span(layout, axis, shape), layout.offset_terms(axis)) for axis in layout.split_axes
    ]
    regions: list[Region] = []
    for device in range(len(layout)):
        region = list(whole)
        for axis, (first, step, length), terms in cuts:
            number = sum((device // stride) % size * weight for stride, size, weight in terms)
            start = first + step * number
            low, high = (min(max(0, at), greatest(shape[axis])) for at in (start, start + length))
            region[axis] = (low, high)
        regions.append(tuple(region))
    return tuple(regions)
