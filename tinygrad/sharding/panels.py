"""Tables of which device holds which block of an array, for drawing.

Input: a layout, or the name of a device, and a shape. Output: panels, which are tables of cells
over two axes of the array, one for each block of the other sharded axes. Invariant: every device is
in a cell of a panel or reported as empty, unless a requested index leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from tinygrad.sharding.device_names import device_range
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Partial, ShardingError
from tinygrad.sharding.sizes import Region, Shape, Size

Bounds: TypeAlias = tuple[Size, Size]
Chosen: TypeAlias = tuple[int | None, int | None]

# longer tables show their first and last rows and columns
MAX_ROWS, MAX_COLUMNS = 16, 8
# stands for the bounds of the omitted blocks
SKIPPED: Bounds = (-1, -1)

_PARTIAL_WORDS = {"ADD": "sum of", "MUL": "product of", "MAX": "max of", "MIN": "min of"}


@dataclass(frozen=True)
class Cell:
    """The text of one block: a line for each set of devices, and the number of the first device."""

    lines: tuple[str, ...]
    device: int


@dataclass(frozen=True)
class Panel:
    """A table of blocks over two axes; an axis is None if the array has too few.

    `place` is the position of the panel in an array of more axes: an arrow for each of the two
    axes, bounds or an index for the others. `cells[row][column]` is None if no device holds the
    block.
    """

    place: str
    axes: Chosen
    rows: tuple[Bounds, ...]
    columns: tuple[Bounds, ...]
    cells: tuple[tuple[Cell | None, ...], ...]

    @property
    def row_labels(self) -> list[str]:
        """The bounds of each row, or one empty text."""
        return [""] if self.axes[0] is None else [_shown(bounds) for bounds in self.rows]

    @property
    def column_labels(self) -> list[str]:
        """The bounds of each column, or one empty text."""
        return [""] if self.axes[1] is None else [_shown(bounds) for bounds in self.columns]

    def shortened(self) -> Panel:
        """The table cut to MAX_ROWS by MAX_COLUMNS, with one row or column for omitted ones."""
        rows, columns = _kept(len(self.rows), MAX_ROWS), _kept(len(self.columns), MAX_COLUMNS)
        return Panel(
            self.place,
            self.axes,
            tuple(SKIPPED if row is None else self.rows[row] for row in rows),
            tuple(SKIPPED if column is None else self.columns[column] for column in columns),
            tuple(
                tuple(None if r is None or c is None else self.cells[r][c] for c in columns)
                for r in rows
            ),
        )


def panels(
    layout: Sharding | str,
    shape: Shape,
    axes: Sequence[int] | None = None,
    at: Mapping[int, int] | None = None,
) -> list[Panel]:
    """The blocks of an array, over two axes.

    `axes` are the axes to show, vertical then horizontal: by default the sharded ones, then the
    last ones. `at` selects an index along other axes, by axis; without it, there is a panel for
    each block of a sharded axis. Raises ShardingError for missing or repeated axes.
    """
    fixed = {} if at is None else {_axis(axis, shape): index for axis, index in at.items()}
    chosen = _chosen(layout, shape, axes, fixed)
    regions = _regions(layout, shape)
    cuts = [sorted({r[a] for r in regions if r[a][0] != r[a][1]}) for a in range(len(shape))]
    cuts = [cut or [(0, 0)] for cut in cuts]
    for axis, index in fixed.items():
        cuts[axis] = [bounds for bounds in cuts[axis] if bounds[0] <= index < bounds[1]]
        if not cuts[axis]:
            raise ShardingError(f"there is no index {index} along axis {axis} of shape {shape}")
    others = [axis for axis in range(len(shape)) if axis not in chosen]
    return [
        _panel(layout, shape, regions, chosen, cuts, dict(zip(others, bounds, strict=True)), fixed)
        for bounds in product(*(cuts[axis] for axis in others))
    ]


def empty_devices(layout: Sharding | str, shape: Shape) -> list[str]:
    """The devices with empty shards: the blocks before theirs cover the whole array."""
    if isinstance(layout, str) or 0 in shape:
        return []
    pairs = zip(layout.devices, layout.regions(shape), strict=True)
    return [device for device, region in pairs if any(start == stop for start, stop in region)]


def _regions(layout: Sharding | str, shape: Shape) -> tuple[Region, ...]:
    if isinstance(layout, str):
        return (tuple((0, size) for size in shape),)
    return layout.regions(shape)


def _chosen(
    layout: Sharding | str, shape: Shape, axes: Sequence[int] | None, fixed: Mapping[int, int]
) -> Chosen:
    """The vertical and the horizontal axis."""
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    if axes is None:
        split = [] if isinstance(layout, str) else [a for a in layout.split_axes if a in free]
        rest = [axis for axis in reversed(free) if axis not in split]
        found = sorted([*split, *rest][:2])
    else:
        found = [_axis(axis, shape) for axis in axes]
    if len(set(found)) < len(found) or len(found) > 2 or not set(found) <= set(free):
        raise ShardingError(
            f"axes {tuple(axes or ())} of shape {shape} cannot be drawn; name one or two different "
            "axes, and none that `at` picks an index of"
        )
    if len(found) == 1 and len(shape) == 1:
        # an array of one axis is a row
        return None, found[0]
    return (found[0] if found else None), (found[1] if len(found) == 2 else None)


def _axis(axis: int, shape: Shape) -> int:
    if not -len(shape) <= axis < len(shape):
        raise ShardingError(f"there is no axis {axis} in shape {shape}")
    return axis % len(shape)


def _panel(
    layout: Sharding | str,
    shape: Shape,
    regions: Sequence[Region],
    chosen: Chosen,
    cuts: Sequence[Sequence[Bounds]],
    others: Mapping[int, Bounds],
    fixed: Mapping[int, int],
) -> Panel:
    holders: dict[Region, list[int]] = {}
    for device, region in enumerate(regions):
        holders.setdefault(region, []).append(device)
    rows, columns = (((0, 1),) if a is None else tuple(cuts[a]) for a in chosen)
    known: dict[int | None, Bounds] = dict(others.items())

    def cell(row: Bounds, column: Bounds) -> Cell | None:
        bounds = known | {chosen[0]: row, chosen[1]: column}
        devices = holders.get(tuple(bounds[axis] for axis in range(len(shape))))
        return None if devices is None else Cell(_lines(layout, devices), devices[0])

    cells = tuple(tuple(cell(row, column) for column in columns) for row in rows)
    return Panel(_place(shape, chosen, others, fixed), chosen, rows, columns, cells)


def _place(
    shape: Shape,
    chosen: Chosen,
    others: Mapping[int, Bounds],
    fixed: Mapping[int, int],
) -> str:
    """The position of a panel in the array; empty if the array has no other axes."""
    if not others:
        return ""
    known: dict[int | None, str] = {chosen[0]: "↓", chosen[1]: "→"}
    for axis, bounds in others.items():
        whole = ":" if bounds == (0, shape[axis]) else _shown(bounds)
        known[axis] = str(fixed[axis]) if axis in fixed else whole
    return f"[{', '.join(known[axis] for axis in range(len(shape)))}]"


def _kept(count: int, limit: int) -> list[int | None]:
    """The numbers of the first ones and of the last, and None for the omitted ones."""
    return [*range(count)] if count <= limit else [*range(limit - 2), None, count - 1]


def _shown(bounds: Bounds) -> str:
    return "…" if bounds == SKIPPED else f"{bounds[0]}:{bounds[1]}"


def _lines(layout: Sharding | str, devices: Sequence[int]) -> tuple[str, ...]:
    """The devices that hold a block, or the groups whose partial values reduce to it."""
    if isinstance(layout, str):
        return (layout,)
    if not layout.is_partial:
        return (device_range([layout.devices[device] for device in devices]),)
    copies: dict[tuple[int, ...], list[str]] = {}
    for device in devices:
        pairs = zip(layout.coordinates(device), layout.axes, strict=True)
        group = tuple(place for place, placement in pairs if not isinstance(placement, Partial))
        copies.setdefault(group, []).append(layout.devices[device])
    words = " and ".join(_PARTIAL_WORDS[op] for op in layout.partial_ops)
    return tuple(f"{words} {device_range(names)}" for names in copies.values())
