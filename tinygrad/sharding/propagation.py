"""How a layout follows an array through movement ops and reductions.

In: the layout of the source and the op's own argument, all sizes global. Out: the layout of the
result that costs no communication, or None if there is none. Every function is total and pure: a
valid op on a valid layout never raises. Always true: moving the global array and cutting the result
gives what moving each device's piece gives.

Sizes may be symbolic: they are matched by identity, never compared, and cut as the greatest that
they can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from tinygrad.sharding.layout import (
    Interval,
    Partial,
    Placement,
    Shape,
    Sharding,
    Size,
    greatest,
    is_int,
    on_axis,
    placement_axis,
)
from tinygrad.sharding.sliding import SLIDING, sliding_layout

LayoutRule: TypeAlias = Callable[[Sharding, Shape, Any], Sharding | None]

_CACHE_SIZE: Final = 1 << 14


@lru_cache(maxsize=_CACHE_SIZE)
def permute_layout(layout: Sharding, order: tuple[int, ...]) -> Sharding | None:
    """Result axis i is source axis `order[i]`: always kept."""
    if not layout.split_axes:
        return layout
    return layout.with_axes(
        [
            entry if (axis := placement_axis(entry)) is None else on_axis(entry, order.index(axis))
            for entry in layout.axes
        ]
    )


@lru_cache(maxsize=_CACHE_SIZE)
def expand_layout(layout: Sharding, old_shape: Shape, new_shape: Shape) -> Sharding | None:
    """Axes of size 1 grow: kept, since an axis of size 1 is never split."""
    return layout if all(new_shape[a] == old_shape[a] for a in layout.split_axes) else None


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
        [term if placement_axis(entry) in axes else entry for entry in layout.axes]
    )


@lru_cache(maxsize=_CACHE_SIZE)
def reshape_layout(layout: Sharding, old_shape: Shape, new_shape: Shape) -> Sharding | None:
    """Kept if every device's piece is a box of the new shape too, refining the mesh where needed.

        [8, 6] split on 0 by 4 -> [48]      split on 0
        [8, 6] split on 1 by 2 -> [48]      None: the pieces are interleaved
        [8] split on 0 by 4    -> [2, 4]    mesh (2, 2), axes (0, 1)

    A split axis is read as digits, the coordinate in each mesh dimension and then the local index.
    The digits of neighbouring axes, in row-major order, are dealt to the new axes; each must get
    whole digits or factors of them, those of the mesh first and in the order of the mesh. Blocks of
    an axis that does not divide stay blocks where each holds as many elements as before.
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
        old_sizes = old_shape[old_start:old_end]
        known = all(is_int(size) for size in (*old_sizes, *new_sizes))
        if not known and not _are_alike(old_sizes, new_sizes):
            return None
        if all(_is_even(layout, old_shape, axis) for axis in old_axes):
            group = _deal(_digits(layout, old_shape, old_axes), new_sizes, new_start)
        else:
            group = _deal_blocks(layout, old_shape, old_axes, new_shape, range(new_start, new_end))
        if group is None:
            return None
        dealt += group
    return _refined(layout, dealt)


def _is_one(size: Size) -> bool:
    return is_int(size) and size == 1


def _are_alike(old_sizes: Shape, new_sizes: Shape) -> bool:
    """Whether sizes are the same ones, but for ones."""
    old, new = ([x for x in sizes if not _is_one(x)] for sizes in (old_sizes, new_sizes))
    return len(old) == len(new) and all(map(_is_same, old, new))


def _is_same(a: Size, b: Size) -> bool:
    return a is b or (is_int(a) and is_int(b) and a == b)


def padded_reshapes(
    layout: Sharding, old_shape: Shape, new_shape: Shape
) -> list[tuple[Shape, Shape]]:
    """Larger shapes, by which a reshape keeps the layout: an axis that is split is filled up to
    whole blocks of the old axis, or of the new one, and what was added is cut off behind.

        [24] split on 0 by 4 -> [6, 4]: [32] -> [8, 4], two rows of the new shape each
    """
    found: list[tuple[Shape, Shape]] = []
    for (old_start, new_start), (old_end, new_end) in pairwise(_boundaries(old_shape, new_shape)):
        old = next((i for i in range(old_start, old_end) if old_shape[i] != 1), None)
        new = next((i for i in range(new_start, new_end) if new_shape[i] != 1), None)
        sizes = (*old_shape[old_start:old_end], *new_shape[new_start:new_end])
        if old not in layout.split_axes or new is None or not all(map(is_int, sizes)):
            continue
        inner, new_inner = prod(old_shape[old + 1 : old_end]), prod(new_shape[new + 1 : new_end])
        count = layout.shards(old)
        for rows in (
            -(-old_shape[old] // count) * count * inner,
            -(-new_shape[new] // count) * count * new_inner,
        ):
            if rows % inner == 0 and rows % new_inner == 0:
                padded = (*old_shape[:old], rows // inner, *old_shape[old + 1 :])
                whole = (*new_shape[:new], rows // new_inner, *new_shape[new + 1 :])
                if reshape_layout(layout, padded, whole) is not None:
                    found.append((padded, whole))
    return found


class _Digit(NamedTuple):
    """A factor of an axis: a mesh dimension's coordinate, or local to each device (None)."""

    size: int
    mesh_dimension: int | None


class _Dealt(NamedTuple):
    """A factor of a mesh dimension that cuts a new axis."""

    mesh_dimension: int
    size: int
    placement: Placement


def _is_even(layout: Sharding, shape: Shape, axis: int) -> bool:
    """An axis that is not split, or split into equal blocks without a rest."""
    if axis not in layout.split_axes:
        return True
    has_interval = any(isinstance(p, Interval) and p.axis == axis for p in layout.axes)
    is_known = is_int(shape[axis])
    return not has_interval and is_known and shape[axis] % layout.shards(axis) == 0


def _deal_blocks(
    layout: Sharding, old_shape: Shape, old_axes: range, new_shape: Shape, new_axes: range
) -> list[_Dealt] | None:
    """Deals the mesh dimensions that cut the first of `old_axes` to the first of `new_axes`."""
    old = next((axis for axis in old_axes if not _is_one(old_shape[axis])), None)
    new = next((axis for axis in new_axes if not _is_one(new_shape[axis])), None)
    if old is None or new is None or [a for a in old_axes if a in layout.split_axes] != [old]:
        return None
    if not _is_same(old_shape[old], new_shape[new]):
        inside = [
            prod(shape[axis + 1 : axes.stop])
            for shape, axis, axes in ((old_shape, old, old_axes), (new_shape, new, new_axes))
        ]
        block = -(-greatest(new_shape[new]) // layout.shards(old))
        old_block = layout.span(old, old_shape)[2] * inside[0]
        if layout.has_intervals or old_block != block * inside[1]:
            return None
    return [
        _Dealt(dimension, size, on_axis(placement, new))
        for dimension, (placement, size) in enumerate(zip(layout.axes, layout.mesh_shape))
        if placement_axis(placement) == old
    ]


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
        if placement_axis(entry) is not None:
            factors += [
                (part.placement, part.size) for part in dealt if part.mesh_dimension == dimension
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


def _sliding_rule(op: str) -> LayoutRule:
    @lru_cache(maxsize=_CACHE_SIZE)
    def rule(layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
        if op == "PAD" and any(term != "ADD" for term in layout.partial_ops):
            return None
        return sliding_layout(op, layout, shape, argument)

    return rule


LAYOUT_RULES: Final[dict[str, LayoutRule]] = {
    "PERMUTE": _permute_rule,
    "RESHAPE": reshape_layout,
    "EXPAND": expand_layout,
    **{op: _sliding_rule(op) for op in sorted(SLIDING)},
}
"""Per movement op, `(layout, old global shape, the op's global argument) -> layout | None`.

The argument: PERMUTE the order; RESHAPE and EXPAND the new shape; PAD (before, after) and SHRINK
(start, end) for each axis; FLIP a bool for each axis; WINDOW and UNWINDOW a value whose `windows`
hold (axis, kernel axis, new size, stride, dilation) and whose `axes` are all that take part.
"""
