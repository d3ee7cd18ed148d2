"""Named meshes: `Mesh((2, 4), ("dp", "tp"), devices).sharding(P("dp", None, "tp"))`.

Input: names for the dimensions of a mesh, and for each tensor axis the names that shard it. Output:
a `Sharding`. A submesh, such as a stage of a pipeline, is a mesh too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from tinygrad.sharding.device_names import device_range
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import ShardingError
from tinygrad.sharding.sizes import is_int

SpecEntry: TypeAlias = str | tuple[str, ...] | None


@dataclass(frozen=True, init=False, repr=False)
class P:
    """A partition spec: how a tensor is sharded over a named mesh, one entry for each tensor axis.

    An entry is a mesh name, None for an unsharded axis, or a tuple of names, outer first. Axes
    without an entry are unsharded: `P()` is replicated.
    """

    entries: tuple[SpecEntry, ...]

    def __init__(self, *entries: SpecEntry) -> None:
        for entry in entries:
            names = entry if isinstance(entry, tuple) else (entry,)
            if entry is not None and not all(isinstance(name, str) for name in names):
                raise ShardingError(
                    f"P has the entry {entry!r}; use a mesh name, a tuple of mesh names, or None"
                )
        object.__setattr__(self, "entries", entries)

    def __repr__(self) -> str:
        return f"P({', '.join(repr(entry) for entry in self.entries)})"

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[SpecEntry]:
        return iter(self.entries)

    def names(self, tensor_axis: int) -> tuple[str, ...]:
        """The mesh names that shard a tensor axis, outer first."""
        entry = self.entries[tensor_axis]
        if entry is None:
            return ()
        return (entry,) if isinstance(entry, str) else entry


@dataclass(frozen=True, init=False, repr=False)
class Mesh:
    """Devices in row-major order over named dimensions.

        mesh = Mesh((2, 4), ("dp", "tp"), tuple(f"CPU:{i}" for i in range(8)))
        mesh.sharding(P("dp", "tp"))        # rows over 2, columns over 4

    A mesh without dimensions is one device, such as a place of a mesh of one dimension.
    Raises ShardingError for sizes, names or devices that do not fit together.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    devices: tuple[str, ...]

    def __init__(self, shape: Sequence[int], names: Sequence[str], devices: Sequence[str]) -> None:
        shape, names = tuple(shape), (names,) if isinstance(names, str) else tuple(names)
        if not all(is_int(size) and size > 0 for size in shape):
            raise ShardingError(f"mesh shape must be a tuple of positive ints, got {shape}")
        if len(names) != len(shape):
            raise ShardingError(
                f"mesh names {names} do not fit mesh shape {shape}; "
                "give one name for each dimension"
            )
        if not all(isinstance(name, str) and name for name in names):
            raise ShardingError(f"mesh names must be non-empty strings, got {names}")
        if len(set(names)) != len(names):
            raise ShardingError(f"mesh names {names} repeat a name; name each dimension once")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "devices", Sharding(devices, mesh=shape or (1,)).devices)

    def __str__(self) -> str:
        pairs = zip(self.names, self.shape, strict=True)
        sizes = [f"{name}={size}" for name, size in pairs]
        return f"Mesh({', '.join([*sizes, device_range(self.devices)])})"

    __repr__ = __str__

    def __len__(self) -> int:
        return prod(self.shape)

    # ---- submeshes and permutations ----

    def axis_size(self, name: str) -> int:
        """The number of devices along a dimension. Raises ShardingError for an unknown name.

        >>> Mesh((2, 2), ("dp", "tp"), ("CPU:0", "CPU:1", "CPU:2", "CPU:3")).axis_size("tp")
        2
        """
        return self.shape[self._dimension(name)]

    def select(self, **places: int | slice) -> Mesh:
        """The submesh at the given coordinates along the named dimensions.

        A number selects one coordinate and drops the dimension; a slice keeps the dimension. Raises
        ShardingError for an unknown name, a coordinate out of range, and an empty slice.

        >>> mesh = Mesh((2, 2), ("dp", "tp"), ("CPU:0", "CPU:1", "CPU:2", "CPU:3"))
        >>> print(mesh.select(dp=1), mesh.select(tp=0), mesh.select(tp=slice(0, 1)))
        Mesh(tp=2, CPU:2-3) Mesh(dp=2, CPU, CPU:2) Mesh(dp=2, tp=1, CPU, CPU:2)
        """
        kept: list[Sequence[int]] = [range(size) for size in self.shape]
        gone: set[int] = set()
        for name, place in places.items():
            number = self._dimension(name)
            kept[number] = self._places(name, place)
            if not isinstance(place, slice):
                gone.add(number)
        device_at = dict(zip(self._coordinates(), self.devices, strict=True))
        left = [number for number in range(len(self.shape)) if number not in gone]
        return Mesh(
            [len(kept[number]) for number in left],
            [self.names[number] for number in left],
            [device_at[place] for place in product(*kept)],
        )

    def split(self, name: str) -> tuple[Mesh, ...]:
        """The submeshes along a dimension, such as the stages of a pipeline: `select` of each.

        >>> mesh = Mesh((2, 2), ("pp", "tp"), ("CPU:0", "CPU:1", "CPU:2", "CPU:3"))
        >>> [str(stage) for stage in mesh.split("pp")]
        ['Mesh(tp=2, CPU:0-1)', 'Mesh(tp=2, CPU:2-3)']
        """
        return tuple(self.select(**{name: place}) for place in range(self.axis_size(name)))

    def permute(self, *names: str) -> Mesh:
        """The same devices with permuted dimensions; `names` must hold each once.

        >>> mesh = Mesh((2, 2), ("dp", "tp"), ("CPU:0", "CPU:1", "CPU:2", "CPU:3"))
        >>> print(mesh.permute("tp", "dp"))
        Mesh(tp=2, dp=2, CPU, CPU:2, CPU:1, CPU:3)
        """
        if sorted(names) != sorted(self.names):
            raise ShardingError(
                f"permute{names} of {self}: give each of {', '.join(self.names)} once"
            )
        order = [self._dimension(name) for name in names]
        pairs = zip(self._coordinates(), self.devices, strict=True)
        moved = sorted(
            (tuple(place[number] for number in order), device) for place, device in pairs
        )
        return Mesh([self.shape[number] for number in order], names, [d for _, d in moved])

    def _coordinates(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(size) for size in self.shape))

    def _dimension(self, name: str) -> int:
        if name not in self.names:
            raise ShardingError(
                f"{self} has no dimension {name!r}; use one of {', '.join(self.names)}"
            )
        return self.names.index(name)

    def _places(self, name: str, place: int | slice) -> Sequence[int]:
        """The coordinates that a number or a slice selects along a dimension, at least one."""
        every = range(self.axis_size(name))
        if isinstance(place, slice):
            if not every[place]:
                raise ShardingError(f"select: {name}={place} is not a coordinate of {self}")
            return every[place]
        if not is_int(place) or not -len(every) <= place < len(every):
            raise ShardingError(
                f"select: {name}={place!r} is not a coordinate of {self}; "
                f"use a number below {len(every)}, or a slice"
            )
        return (every[place],)

    # ---- layouts ----

    def sharding(self, spec: P, ndim: int | None = None) -> Sharding:
        """The layout of a tensor of `ndim` axes (not checked if None) that is sharded by `spec`.

        Raises ShardingError for an unknown name, a repeated name, names within one entry that are
        not in mesh order, or more entries than axes.
        """
        if not isinstance(spec, P):
            example = repr(self.names[0]) if self.names else ""
            raise ShardingError(f"a mesh takes a spec like P({example}), got {spec!r}")
        if ndim is not None and len(spec) > ndim:
            raise ShardingError(
                f"{spec} has {len(spec)} entries for a tensor of {ndim} axes; drop the last ones"
            )
        axis_of: dict[str, int] = {}
        for tensor_axis in range(len(spec)):
            for name in spec.names(tensor_axis):
                self._check_name(spec, name, axis_of)
                axis_of[name] = tensor_axis
            self._check_order(spec, spec.names(tensor_axis))
        if not self.names:
            return Sharding(self.devices)
        return Sharding(self.devices, [axis_of.get(name) for name in self.names], self.shape)

    def _check_name(self, spec: P, name: str, used: dict[str, int]) -> None:
        if name not in self.names:
            raise ShardingError(
                f"{spec} names {name!r}, but {self} has the dimensions {', '.join(self.names)}; "
                "use one of these"
            )
        if name in used:
            raise ShardingError(
                f"{spec} uses {name!r} twice; a mesh dimension can shard one tensor axis, once"
            )

    def _check_order(self, spec: P, names: tuple[str, ...]) -> None:
        in_order = tuple(name for name in self.names if name in names)
        if names != in_order:
            raise ShardingError(
                f"{spec} shards one axis over {names}, but nested names go in the order of {self}; "
                f"write {in_order}, or build a mesh with its dimensions in the other order"
            )
