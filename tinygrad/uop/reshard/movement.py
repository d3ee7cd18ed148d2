"""Movement: the layout that the source of a movement op goes to.

Input: a sharded node, and a movement op that its layout cannot follow. Output: the node in the
nearest layout under which each device computes its shard of the result from its own shard; an
`Interval` per device where a contiguous range is enough, which becomes a halo exchange.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tinygrad.caches import cached_function
from tinygrad.settings import SHARDING
from tinygrad.sharding import (
    LAYOUT_RULES,
    RANGE_OPS,
    Placement,
    Sharding,
    dynamic_slice_layout,
    flat_reshapes,
    kept_layout,
    moved_elements,
    movement_layout,
    source_layouts,
)
from tinygrad.uop import Ops
from tinygrad.uop.node import N
from tinygrad.uop.propagation.shape import movement_shape
from tinygrad.uop.reshard.move import can_shard, copy, reshard
from tinygrad.uop.sint import is_one


def reshard_for_movement(node: N, op: Ops, arg: Any) -> N:
    """`node` in the nearest layout under which the movement is local to each device.

    Raises:
        ShardingError: the movement needs a transfer under `SHARDING="strict"`.
    """
    if op is Ops.SHRINK:
        selected = dynamic_slice_layout(
            node.layout, node.shape, arg, movement_shape(op, node.shape, arg)
        )
        if selected is not None:
            return copy(node, selected)
    target = _layout_for_movement(node.layout, node.shape, op, arg)
    return copy(node, target) if target.has_intervals else reshard(node, target, is_implicit=True)


def move_kept(node: N, op: Ops, arg: Any) -> N | None:
    """A slice or flip of what each device holds, of which the result is then resharded to blocks.
    None if another movement, or one that reshards the source first, sends no more.
    """
    layout = node.layout
    kept = kept_layout(op.name, layout, node.shape, arg) if op.name in RANGE_OPS else None
    if kept is None:
        return None
    shape = movement_shape(op, node.shape, arg)
    target = _blocks_layout(layout, shape)
    before = _layout_for_movement(layout, node.shape, op, arg)
    if moved_elements(kept, target, shape) >= moved_elements(layout, before, node.shape):
        return None
    return copy(node.replace(op=op, src=(node,), arg=arg), target)


def slice_with_steps(node: N, steps: Sequence[tuple[Ops, Any]]) -> N | None:
    """Several slices and flips of what each device holds; the last result is resharded to blocks.
    So a slice with a step sends only elements that it selects. None if one is no such movement.
    """
    layout = node.layout
    for op, arg in steps:
        if op is Ops.FLIP and not any(arg):
            continue
        device = movement_layout(op.name, node.layout, node.shape, arg)
        if device is None:
            return None
        node = node.replace(op=op, src=(node,), arg=arg)
    return copy(node, _blocks_layout(layout, node.shape))


def _blocks_layout(layout: Sharding, shape: tuple[Any, ...]) -> Sharding:
    """The layout that shards the same axes, but for those of size 1."""
    axes = [None if isinstance(p, int) and is_one(shape[p]) else p for p in layout.axes]
    return layout.with_axes(axes)


def reshape_padded(node: N, shape: tuple[Any, ...]) -> N | None:
    """A reshape that does not preserve the layout, by way of one axis that is padded until shards
    are whole rows. None if a reshard to another layout moves fewer bytes, or one to even shards
    of another axis less than twice as many.
    """
    layout = node.layout
    is_known = all(isinstance(size, int) and size for size in (*node.shape, *shape))
    if SHARDING.value == "strict" or layout.is_partial or not is_known:
        return None
    target = _layout_for_movement(layout, node.shape, Ops.RESHAPE, shape)
    best, best_cost = None, moved_elements(layout, target, node.shape)
    # uneven shards leave some devices with less work in all later ops
    weight = 2 if target.is_even(node.shape) else 1
    for steps in flat_reshapes(layout, node.shape, shape):
        found = _resized(node, steps.padded).reshape(steps.flat)
        found = _resized(_resized(found, steps.resized).reshape(steps.whole), shape)
        added = found.toposort(gate=lambda x: x is not node)
        moves = [x for x in added if x.op is Ops.COPY and x is not node]
        cost = weight * sum(moved_elements(x.src[0].device, x.device, x.shape) for x in moves)
        if cost < best_cost:
            best, best_cost = found, cost
    return best


def _resized(node: N, shape: tuple[Any, ...]) -> N:
    """`node` padded or cropped at the end of each axis, to a known shape."""
    pairs = list(zip(node.shape, shape, strict=True))
    node = node.pad(tuple((0, max(0, new - old)) for old, new in pairs))
    return node.shrink(tuple((0, size) for size in shape))


@cached_function(4096)
def _layout_for_movement(layout: Sharding, shape: tuple[Any, ...], op: Ops, arg: Any) -> Sharding:
    slid = source_layouts(op.name, layout, shape, arg) if op.name in RANGE_OPS else []
    options: list[list[Placement]] = [
        [p, None, *(i for i in range(len(shape)) if i != p)] if isinstance(p, int) else [p]
        for p in layout.axes
    ]
    # a reshard to another axis is most likely reverted later, which costs as much again
    others = {layout.with_axes(axes): 2 for axes in itertools.product(*options)}
    best, best_cost = None, 0
    for candidate, weight in {**others, **dict.fromkeys(slid, 1)}.items():
        if not can_shard(candidate, shape) or LAYOUT_RULES[op.name](candidate, shape, arg) is None:
            continue
        cost = moved_elements(layout, candidate, shape) * weight
        if best is None or cost < best_cost:
            best, best_cost = candidate, cost
    assert best is not None, "the replicated layout can follow every movement"
    return best
