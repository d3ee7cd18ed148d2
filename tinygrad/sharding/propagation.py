"""Sharding propagation through movement ops and reductions.

Input: the layout of the source and the op's argument, with global sizes. Output: the layout of the
result that needs no communication, or None if there is none. Every function is total and pure: a
valid op on a valid layout never raises. Invariant: applying the op to the global array and sharding
the result equals applying it to each shard.

Symbolic sizes are matched by identity, never compared, and sharded as their upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from tinygrad.sharding.axis_ranges import RANGE_OPS, kept_layout, range_layout
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Interval, Partial, Placement, on_axis, placement_axis
from tinygrad.sharding.sizes import Shape, Size, is_int, max_size

LayoutRule: TypeAlias = Callable[[Sharding, Shape, Any], Sharding | None]

_CACHE_SIZE: Final = 1 << 14


@lru_cache(maxsize=_CACHE_SIZE)
def permute_layout(layout: Sharding, order: tuple[int, ...]) -> Sharding | None:
    """Result axis i is source axis `order[i]`. The layout always follows."""
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
    """Axes of size 1 grow. The layout is unchanged, as an axis of size 1 is never sharded."""
    return layout if all(new_shape[a] == old_shape[a] for a in layout.split_axes) else None


@lru_cache(maxsize=_CACHE_SIZE)
def reduce_layout(layout: Sharding, axes: tuple[int, ...], op: str) -> Sharding | None:
    """Reduce `axes` to size 1 with `op`: mesh dimensions that shard one become Partial(op).

    None if the layout is partial under another op, which does not commute with this one.
    """
    if any(partial_op != op for partial_op in layout.partial_ops):
        return None
    if not any(axis in axes for axis in layout.split_axes):
        return layout
    partial = Partial(op)
    return layout.with_axes(
        [partial if placement_axis(entry) in axes else entry for entry in layout.axes]
    )


@lru_cache(maxsize=_CACHE_SIZE)
def reshape_layout(layout: Sharding, old_shape: Shape, new_shape: Shape) -> Sharding | None:
    """The layout follows if every shard is a box of the new shape too; the mesh is refined if
    needed.

        [8, 6] sharded on 0 over 4 -> [48]      sharded on 0
        [8, 6] sharded on 1 over 2 -> [48]      None: the shards are interleaved
        [8] sharded on 0 over 4    -> [2, 4]    mesh (2, 2), axes (0, 1)

    The index of a sharded axis is written as mixed-radix digits: the coordinate in each mesh
    dimension, then the local index. The digits of adjacent axes, in row-major order, are assigned
    to the new axes. Each new axis must get whole digits or factors of them, mesh digits first and
    in mesh order. Blocks of an axis that does not divide evenly stay blocks if their sizes are
    unchanged.
    """
    if not layout.split_axes:
        return layout
    if any(is_int(size) and size == 0 for size in old_shape):
        return None  # prefix products are all 0, and resharding an empty array is free
    assigned: list[_Assigned] = []
    for (old_start, new_start), (old_end, new_end) in pairwise(_boundaries(old_shape, new_shape)):
        old_axes = range(old_start, old_end)
        if not any(axis in old_axes for axis in layout.split_axes):
            continue
        new_sizes = new_shape[new_start:new_end]
        old_sizes = old_shape[old_start:old_end]
        known = all(is_int(size) for size in (*old_sizes, *new_sizes))
        if not known and not _are_equal_without_ones(old_sizes, new_sizes):
            return None
        if all(_is_even(layout, old_shape, axis) for axis in old_axes):
            group = _assign_digits(_digits(layout, old_shape, old_axes), new_sizes, new_start)
        else:
            group = _assign_blocks(
                layout, old_shape, old_axes, new_shape, range(new_start, new_end)
            )
        if group is None:
            return None
        assigned += group
    return _refined(layout, assigned)


def _is_one(size: Size) -> bool:
    return is_int(size) and size == 1


def _are_equal_without_ones(old_sizes: Shape, new_sizes: Shape) -> bool:
    """Whether the sizes are equal, ignoring sizes of 1."""
    old, new = ([x for x in sizes if not _is_one(x)] for sizes in (old_sizes, new_sizes))
    return len(old) == len(new) and all(map(_is_same, old, new))


def _is_same(a: Size, b: Size) -> bool:
    return a is b or (is_int(a) and is_int(b) and a == b)


class FlatReshape(NamedTuple):
    """The shapes by way of which a reshape keeps a sharded axis: `padded` to whole blocks of the
    old axis, its group of axes merged in `flat`, this axis `resized` to whole blocks of the new
    one, and `whole`, of which the new shape is the first part.
    """

    padded: Shape
    flat: Shape
    resized: Shape
    whole: Shape


def flat_reshapes(layout: Sharding, old_shape: Shape, new_shape: Shape) -> list[FlatReshape]:
    """Ways to reshape by which neighbours send what completes the rows of the new axis.

    [12, 7] sharded on 0 over 4 -> [21, 4]: [84] -> [96] -> [24, 4], six rows each
    """
    found: list[FlatReshape] = []
    for (old_start, new_start), (old_end, new_end) in pairwise(_boundaries(old_shape, new_shape)):
        old = next((i for i in range(old_start, old_end) if not _is_one(old_shape[i])), None)
        new = next((i for i in range(new_start, new_end) if not _is_one(new_shape[i])), None)
        sizes = (*old_shape[old_start:old_end], *new_shape[new_start:new_end])
        if old not in layout.split_axes or new is None or not all(map(is_int, sizes)):
            continue
        inner, new_inner = prod(old_shape[old + 1 : old_end]), prod(new_shape[new + 1 : new_end])
        count = layout.shards(old)
        rows, new_rows = (-(-size // count) * count for size in (old_shape[old], new_shape[new]))
        flat, resized = (
            (*old_shape[:old_start], size, *old_shape[old_end:])
            for size in (rows * inner, new_rows * new_inner)
        )
        padded = (*old_shape[:old], rows, *old_shape[old + 1 :])
        whole = (*new_shape[:new], new_rows, *new_shape[new + 1 :])
        merged = reshape_layout(layout, padded, flat)
        if merged is not None and reshape_layout(merged, resized, whole) is not None:
            found.append(FlatReshape(padded, flat, resized, whole))
    return found


class _Digit(NamedTuple):
    """A factor of an axis: the coordinate of a mesh dimension, or a local index (None)."""

    size: int
    mesh_dimension: int | None


class _Assigned(NamedTuple):
    """A factor of a mesh dimension, assigned to a new axis."""

    mesh_dimension: int
    size: int
    placement: Placement


def _is_even(layout: Sharding, shape: Shape, axis: int) -> bool:
    """Whether an axis is unsharded, or sharded into equal blocks without padding."""
    if axis not in layout.split_axes:
        return True
    has_interval = any(isinstance(p, Interval) and p.axis == axis for p in layout.axes)
    is_known = is_int(shape[axis])
    return not has_interval and is_known and shape[axis] % layout.shards(axis) == 0


def _assign_blocks(
    layout: Sharding, old_shape: Shape, old_axes: range, new_shape: Shape, new_axes: range
) -> list[_Assigned] | None:
    """Assign the mesh dimensions that shard the first of `old_axes` to the first of `new_axes`."""
    old = next((axis for axis in old_axes if not _is_one(old_shape[axis])), None)
    new = next((axis for axis in new_axes if not _is_one(new_shape[axis])), None)
    if old is None or new is None or [a for a in old_axes if a in layout.split_axes] != [old]:
        return None
    if not _is_same(old_shape[old], new_shape[new]):
        inside = [
            prod(shape[axis + 1 : axes.stop])
            for shape, axis, axes in ((old_shape, old, old_axes), (new_shape, new, new_axes))
        ]
        block = -(-max_size(new_shape[new]) // layout.shards(old))
        old_block = layout.span(old, old_shape).length * inside[0]
        if layout.has_intervals or old_block != block * inside[1]:
            return None
    return [
        _Assigned(dimension, size, on_axis(placement, new))
        for dimension, (placement, size) in enumerate(zip(layout.axes, layout.mesh_shape))
        if placement_axis(placement) == old
    ]


def _digits(layout: Sharding, shape: Shape, axes: range) -> list[_Digit]:
    """The digits of the row-major index over `axes`, outermost first, local ones merged."""
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


def _assign_digits(
    digits: list[_Digit], sizes: Sequence[int], first_axis: int
) -> list[_Assigned] | None:
    """Assign `digits` to axes of `sizes` (of equal product), numbered from `first_axis`."""
    assigned: list[_Assigned] = []
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
                assigned.append(_Assigned(dimension, taken, axis))
    return assigned


def _refined(layout: Sharding, assigned: list[_Assigned]) -> Sharding:
    """The layout whose mesh dimensions are refined into the assigned factors."""
    factors: list[tuple[Placement, int]] = []
    for dimension, (entry, size) in enumerate(zip(layout.axes, layout.mesh_shape, strict=True)):
        if placement_axis(entry) is not None:
            factors += [
                (part.placement, part.size) for part in assigned if part.mesh_dimension == dimension
            ]
        else:
            factors.append((entry, size))
    axes, mesh = zip(*factors, strict=True)
    return Sharding(layout.devices, axes, mesh)


def _boundaries(old_shape: Shape, new_shape: Shape) -> list[tuple[int, int]]:
    """The (old, new) positions with equal prefix products, from (0, 0) to the ends.

    A symbolic size without a counterpart on the other side hides the positions after it, so the
    rest is matched from the back.
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
    """Map the product of each prefix (known factor, ids of symbolic sizes) to its length."""
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


def _range_rule(op: str) -> LayoutRule:
    @lru_cache(maxsize=_CACHE_SIZE)
    def rule(layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
        if op == "PAD" and any(partial_op != "ADD" for partial_op in layout.partial_ops):
            return None
        return range_layout(op, layout, shape, argument)

    return rule


LAYOUT_RULES: Final[dict[str, LayoutRule]] = {
    "PERMUTE": _permute_rule,
    "RESHAPE": reshape_layout,
    "EXPAND": expand_layout,
    **{op: _range_rule(op) for op in sorted(RANGE_OPS)},
}
"""Per movement op, `(layout, old global shape, the op's global argument) -> layout | None`.

The argument of PERMUTE is the order; of RESHAPE and EXPAND the new shape; of PAD (before, after)
and of SHRINK (start, end) for each axis; of FLIP a bool for each axis; of WINDOW and UNWINDOW a
value whose `windows` hold (axis, kernel axis, new size, stride, dilation) and whose `axes` are all
of them.
"""


@lru_cache(maxsize=_CACHE_SIZE)
def movement_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    """The layout of the result of a movement op without communication: by its rule, else that in
    which each device keeps the elements that it holds.
    """
    found = LAYOUT_RULES[op](layout, shape, argument)
    if found is not None or op not in RANGE_OPS:
        return found
    return kept_layout(op, layout, shape, argument)
