"""How a layout follows an array through movement ops and reductions.

In: the layout of the source and the op's own argument, all sizes global. Out: the layout of the
result that costs no communication, or None if there is none. Every function is total and pure: a
valid op on a valid layout never raises. Always true: moving the global array and cutting the result
gives what moving each device's piece gives.

Sizes of axes that are not split may be symbolic: they are matched by identity, never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from tinygrad.sharding.layout import Partial, Placement, Shape, Sharding, is_int

LayoutRule: TypeAlias = Callable[[Sharding, Shape, Any], Sharding | None]

_CACHE_SIZE: Final = 1 << 14


@lru_cache(maxsize=_CACHE_SIZE)
def permute_layout(layout: Sharding, order: tuple[int, ...]) -> Sharding | None:
    """Result axis i is source axis `order[i]`: always kept."""
    if not layout.split_axes:
        return layout
    return layout.with_axes(
        [order.index(entry) if isinstance(entry, int) else entry for entry in layout.axes]
    )


@lru_cache(maxsize=_CACHE_SIZE)
def expand_layout(layout: Sharding, old_shape: Shape, new_shape: Shape) -> Sharding | None:
    """Axes of size 1 grow: kept, since an axis of size 1 is never split."""
    return layout if all(new_shape[a] == old_shape[a] for a in layout.split_axes) else None


@lru_cache(maxsize=_CACHE_SIZE)
def pad_layout(layout: Sharding, padding: tuple[tuple[Any, Any], ...]) -> Sharding | None:
    """`padding` holds (before, after) for each axis: kept if no split axis is padded."""
    if any(op != "ADD" for op in layout.partial_ops):
        return None
    return layout if all(_equals(padding[a], (0, 0)) for a in layout.split_axes) else None


@lru_cache(maxsize=_CACHE_SIZE)
def shrink_layout(
    layout: Sharding, bounds: tuple[tuple[Any, Any], ...], shape: Shape
) -> Sharding | None:
    """`bounds` holds (start, end) for each axis: kept if every split axis stays whole."""
    return layout if all(_equals(bounds[a], (0, shape[a])) for a in layout.split_axes) else None


@lru_cache(maxsize=_CACHE_SIZE)
def flip_layout(layout: Sharding, flips: tuple[bool, ...]) -> Sharding | None:
    """Kept if no split axis is flipped."""
    return None if any(flips[a] for a in layout.split_axes) else layout


@lru_cache(maxsize=_CACHE_SIZE)
def reduce_layout(layout: Sharding, axes: tuple[int, ...], op: str) -> Sharding | None:
    """Reduces `axes` to size 1 with `op`: mesh dimensions that split one become Partial(op).

    None if the layout holds terms of another op, which do not commute with this one.
    """
    if any(partial_op != op for partial_op in layout.partial_ops):
        return None
    if not any(axis in axes for axis in layout.split_axes):
        return layout
    term = Partial(op)
    return layout.with_axes(
        [term if isinstance(entry, int) and entry in axes else entry for entry in layout.axes]
    )


@lru_cache(maxsize=_CACHE_SIZE)
def reshape_layout(layout: Sharding, old_shape: Shape, new_shape: Shape) -> Sharding | None:
    """Kept if every device's piece is a box of the new shape too, refining the mesh where needed.

        [8, 6] split on 0 by 4 -> [48]      split on 0
        [8, 6] split on 1 by 2 -> [48]      None: the pieces are interleaved
        [8] split on 0 by 4    -> [2, 4]    mesh (2, 2), axes (0, 1)

    A split axis is read as digits, the coordinate in each mesh dimension and then the local index.
    The digits of neighbouring axes, in row-major order, are dealt to the new axes; each must get
    whole digits or factors of them, those of the mesh first and in the order of the mesh.
    """
    if not layout.split_axes:
        return layout
    if any(is_int(size) and size == 0 for size in old_shape):
        return None  # no prefix product tells its axes apart, and moving nothing is free
    dealt: list[_Dealt] = []
    for (old_start, new_start), (old_end, new_end) in pairwise(_boundaries(old_shape, new_shape)):
        old_axes = range(old_start, old_end)
        if not any(axis in old_axes for axis in layout.split_axes):
            continue
        new_sizes = new_shape[new_start:new_end]
        if not all(is_int(size) for size in (*old_shape[old_start:old_end], *new_sizes)):
            return None
        group = _deal(_digits(layout, old_shape, old_axes), new_sizes, new_start)
        if group is None:
            return None
        dealt += group
    return _refined(layout, dealt)


def _equals(bounds: tuple[Any, Any], expected: tuple[int, int]) -> bool:
    return all(is_int(bound) for bound in bounds) and tuple(bounds) == expected


class _Digit(NamedTuple):
    """A factor of an axis: a mesh dimension's coordinate, or local to each device (None)."""

    size: int
    mesh_dimension: int | None


class _Dealt(NamedTuple):
    """A factor of a mesh dimension that splits a new axis."""

    mesh_dimension: int
    size: int
    axis: int


def _digits(layout: Sharding, shape: Shape, axes: range) -> list[_Digit]:
    """The digits of the row-major index over `axes`, outermost first, local neighbours merged."""
    local_shape = layout.local_shape(shape)
    digits: list[_Digit] = []
    for axis in axes:
        sizes = zip(layout.axes, layout.mesh_shape, strict=True)
        digits += [_Digit(size, m) for m, (entry, size) in enumerate(sizes) if entry == axis]
        local = int(local_shape[axis])
        if local == 1:
            continue
        if digits and digits[-1].mesh_dimension is None:
            local *= digits.pop().size
        digits.append(_Digit(local, None))
    return digits


def _deal(digits: list[_Digit], sizes: Sequence[int], first_axis: int) -> list[_Dealt] | None:
    """Deals `digits` to axes of `sizes` (the same product) that start at `first_axis`."""
    dealt: list[_Dealt] = []
    pending = digits[::-1]
    for axis, remaining in enumerate(sizes, first_axis):
        in_block = False
        last_dimension = -1
        while remaining > 1:
            size, dimension = pending.pop()
            if remaining % size and size % remaining:
                return None
            taken = min(size, remaining)
            if taken < size:
                pending.append(_Digit(size // taken, dimension))
            remaining //= taken
            if dimension is None:
                in_block = True
            elif in_block or dimension < last_dimension:
                return None
            else:
                last_dimension = dimension
                dealt.append(_Dealt(dimension, taken, axis))
    return dealt


def _refined(layout: Sharding, dealt: list[_Dealt]) -> Sharding:
    """The layout whose split mesh dimensions are cut into the factors that were dealt."""
    factors: list[tuple[Placement, int]] = []
    for dimension, (entry, size) in enumerate(zip(layout.axes, layout.mesh_shape, strict=True)):
        if isinstance(entry, int):
            factors += [
                (part.axis, part.size) for part in dealt if part.mesh_dimension == dimension
            ]
        else:
            factors.append((entry, size))
    axes, mesh = zip(*factors, strict=True)
    return Sharding(layout.devices, axes, mesh)


def _boundaries(old_shape: Shape, new_shape: Shape) -> list[tuple[int, int]]:
    """The (old, new) positions, rising from (0, 0) to the ends, with equal products on both sides.

    A symbolic size without its equal on the other side hides the positions behind it from the
    front, so what is left is matched from the back.
    """
    found = _equal_prefixes(old_shape, new_shape)
    old_last, new_last = found[-1]
    from_back = _equal_prefixes(old_shape[::-1], new_shape[::-1])
    for old_count, new_count in reversed(from_back):
        old, new = len(old_shape) - old_count, len(new_shape) - new_count
        if old >= old_last and new >= new_last and (old, new) != found[-1]:
            found.append((old, new))
    return found


def _equal_prefixes(old_shape: Shape, new_shape: Shape) -> list[tuple[int, int]]:
    new_positions = _prefix_products(new_shape)
    old_positions = _prefix_products(old_shape)
    return [(i, new_positions[key]) for key, i in old_positions.items() if key in new_positions]


def _prefix_products(shape: Shape) -> dict[tuple[int, tuple[int, ...]], int]:
    """The product of each prefix (known factor, ids of symbolic sizes) -> its first length."""
    known = 1
    symbolic: tuple[int, ...] = ()
    positions = {(known, symbolic): 0}
    for length, size in enumerate(shape, 1):
        if is_int(size):
            known *= size
        else:
            symbolic = tuple(sorted((*symbolic, id(size))))
        positions.setdefault((known, symbolic), length)
    return positions


def _permute_rule(layout: Sharding, _shape: Shape, order: tuple[int, ...]) -> Sharding | None:
    return permute_layout(layout, order)


def _pad_rule(
    layout: Sharding, _shape: Shape, padding: tuple[tuple[Any, Any], ...]
) -> Sharding | None:
    return pad_layout(layout, padding)


def _shrink_rule(
    layout: Sharding, shape: Shape, bounds: tuple[tuple[Any, Any], ...]
) -> Sharding | None:
    return shrink_layout(layout, bounds, shape)


def _flip_rule(layout: Sharding, _shape: Shape, flips: tuple[bool, ...]) -> Sharding | None:
    return flip_layout(layout, flips)


def _window_rule(layout: Sharding, _shape: Shape, arg: Any) -> Sharding | None:
    return None if arg.axes.intersection(layout.split_axes) else layout


LAYOUT_RULES: Final[dict[str, LayoutRule]] = {
    "PERMUTE": _permute_rule,
    "RESHAPE": reshape_layout,
    "EXPAND": expand_layout,
    "PAD": _pad_rule,
    "SHRINK": _shrink_rule,
    "FLIP": _flip_rule,
    "WINDOW": _window_rule,
    "UNWINDOW": _window_rule,
}
"""Per movement op, `(layout, old global shape, the op's global argument) -> layout | None`.

The argument: PERMUTE the order; RESHAPE and EXPAND the new shape; PAD (before, after) and SHRINK
(start, end) for each axis; FLIP a bool for each axis; WINDOW and UNWINDOW a value whose `axes` are
those that the windows slide over.
"""
