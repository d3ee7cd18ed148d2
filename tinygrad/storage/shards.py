"""Shards as views: MSELECT directly above a buffer, below all movement.

Input: views of shards. Output: the same views, of shards of a value that has memory or is about to
be computed into it. Invariant: a shard reads the memory of its device in place, so it sees writes
to the sharded tensor, and the sharded tensor sees writes to the shard.
"""

from __future__ import annotations

from math import prod

from tinygrad.sharding import Sharding, ShardingError, replica_count, shard_shapes
from tinygrad.storage.views import IDENTITY_OPS, VIEW_OPS, selected_shard
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def with_stored_shard(node: UOp) -> UOp:
    """`node` with movement hoisted above the shard that it is a view of: `MSELECT(PERMUTE(x))`
    becomes `PERMUTE(MSELECT(x))`. Movement that shards cannot follow is stored first.
    """
    shard = selected_shard(node)
    if shard is None or shard.src[0].op not in VIEW_OPS:
        return node
    return node.substitute({shard: _shard_of(shard.src[0], shard.arg)})


def _shard_of(value: UOp, index: int) -> UOp:
    """Shard number `index` of a value."""
    source = value.src[0] if value.op in VIEW_OPS else value
    if source is value:
        return value.mselect(index)
    if not _is_followed(value, source):
        return value.contiguous().mselect(index)
    shard = _shard_of(source, index)
    layout = value.layout
    shape = shard_shapes(layout, value.shape)[index]
    if value.op in IDENTITY_OPS:
        return value.replace(src=(shard,))
    if value.op is Ops.PERMUTE:
        return shard.permute(value.arg)
    if value.op is Ops.FLIP:
        return shard.flip(value.arg)
    if value.op is Ops.SHRINK:
        split = layout.split_axes
        return shard.shrink(
            tuple((0, shape[i]) if i in split else bounds for i, bounds in enumerate(value.arg))
        )
    return UOp(value.op, value.dtype, (shard,), shape)


def _is_followed(value: UOp, source: UOp) -> bool:
    """Whether each shard of `value`, a view, is the same view of one shard of `source`."""
    old, new = source.device, value.device
    if not isinstance(old, Sharding) or not isinstance(new, Sharding) or old.has_intervals:
        return False
    if value.op is Ops.RESHAPE:
        shapes = zip(shard_shapes(old, source.shape), shard_shapes(new, value.shape), strict=True)
        return all(prod(a) == prod(b) for a, b in shapes)
    if value.op is Ops.SHRINK:
        axes = new.split_axes
        return old is new and all(
            old.span(i, source.shape) == new.span(i, value.shape) for i in axes
        )
    if value.op is Ops.FLIP:
        return not any(value.arg[axis] for axis in new.split_axes)
    return True


def check_writable(shard: UOp) -> None:
    """Raises ShardingError if `shard`, an MSELECT, is one of several replicas, which would differ
    after a write to one of them.
    """
    layout = shard.src[0].layout
    copies = replica_count(layout)
    if copies > 1:
        raise ShardingError(
            f"assign: shard {shard.arg} of {layout} is one of {copies} replicas; assign to the "
            "sharded tensor, or to a .clone() of the shard"
        )
