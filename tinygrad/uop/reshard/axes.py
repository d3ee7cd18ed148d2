"""Sharded axes: ops that work along one axis, and what they do if it is sharded.

Input: a node and an axis. Output: the node in a layout that the op can use, or the cheaper of two
algorithms. Invariant: an axis is unsharded only where no algorithm on shards moves fewer bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.sharding import Sharding, moved_elements
from tinygrad.uop.node import N, Node
from tinygrad.uop.reshard.move import can_shard, reshard
from tinygrad.uop.sint import same_size


def shard_count(node: Node, axis: int) -> int:
    """The number of shards along `axis`; 1 if it is unsharded."""
    layout = node.device
    return layout.shards(axis) if isinstance(layout, Sharding) else 1


def any_sharded(nodes: Iterable[Node]) -> bool:
    """Whether one of these values has a sharded axis. A gather along an axis then takes all other
    axes as batch axes, so that each device gathers from its own shard.
    """
    layouts = (node.device for node in nodes)
    return any(layout.split_axes for layout in layouts if isinstance(layout, Sharding))


def slices_shards(node: Node, counts: Sequence[Any], flips: Sequence[bool]) -> bool:
    """Whether a slice that keeps `counts` elements of each axis, some reversed, cuts or reverses a
    sharded axis. The slice is then a resharded copy, not a view.
    """
    layout = node.device
    axes = layout.split_axes if isinstance(layout, Sharding) else ()
    return any(
        flips[axis]
        or not isinstance(counts[axis], int)
        or not same_size(counts[axis], node.shape[axis])
        for axis in axes
    )


def topk_moves_less(node: Node, axis: int, k: int) -> bool:
    """Whether `k` all-reduces of a packed 64-bit maximum move fewer bytes than unsharding the axis
    to sort it.
    """
    count = shard_count(node, axis)
    size = int(node.shape[axis])
    return 2 * k * count * dtypes.int64.itemsize <= size * node.dtype.itemsize


def reshard_scan_totals(totals: N, axis: int) -> N:
    """The totals of a scan's shards, one per shard along `axis`, on every device.

    One element per shard is the minimum that a scan of a sharded axis communicates, so it is never
    an error under `SHARDING="strict"`.
    """
    return unshard_axis(totals, axis, is_implicit=False)


def reshard_like(node: N, other: Node) -> N:
    """`node` in the layout of `other`, such as a replicated offset next to the shards it is added
    to; cutting a replicated value moves no byte.
    """
    return node.copy_to_device(other.device)


def unshard_axis(node: N, axis: int, is_implicit: bool) -> N:
    """`node` with `axis` unsharded; another axis is sharded if possible.

    Raises:
        ShardingError: it `is_implicit`, and moves bytes under `SHARDING="strict"`.
    """
    layout = node.device
    if not isinstance(layout, Sharding) or axis not in layout.split_axes:
        return node
    return reshard(node, unsharded_layout(layout, node.shape, axis), is_implicit)


def unsharded_layout(layout: Sharding, shape: tuple[Any, ...], axis: int) -> Sharding:
    """The layout nearest to this one in which `axis` is unsharded."""
    others = [None, *(i for i in range(len(shape)) if i != axis)]
    options = [others if p == axis else [p] for p in layout.axes]
    candidates = (layout.with_axes(axes) for axes in itertools.product(*options))
    fitting = [candidate for candidate in candidates if can_shard(candidate, shape)]
    return min(fitting, key=lambda candidate: moved_elements(layout, candidate, shape))


def reshard_for_bitcast(node: N, dtype: DType) -> N:
    """`node` in a layout under which the bitcast is local to each device."""
    layout = node.device
    old, new = node.dtype.itemsize, dtype.itemsize
    if old == new or not isinstance(layout, Sharding) or node.ndim - 1 not in layout.split_axes:
        return node
    last = node.ndim - 1
    pieces, size = layout.shards(last), node.shape[last]
    is_even = size % pieces == 0 and (size * old // new) % pieces == 0
    return node if is_even else unshard_axis(node, last, is_implicit=True)
