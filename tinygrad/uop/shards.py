"""MSTACK and MSELECT: a sharded value and its shards, each on one device.

Input: nodes of the tensor graph. Output: their shapes, and errors for parts that do not fit a
layout. Invariant: neither op computes or moves anything. The argument of `MSTACK(*parts)` is the
layout, the argument of `MSELECT(x)` the number of the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.errors import ArgumentIndexError
from tinygrad.sharding import Shape, Sharding, ShardingError, global_shape, shard_shapes
from tinygrad.uop.device_value import Spmd
from tinygrad.uop.node import Node


def selected_shape(node: Node) -> Shape:
    """The shape of an MSELECT: that of the shard, of a node of the per-device graph the local
    one.
    """
    source = node.src[0]
    layout = source.device
    if not isinstance(layout, Sharding):
        return source.shape
    return shard_shapes(layout, source.shape)[node.arg]


def stacked_shape(node: Node) -> Shape:
    """The global shape of an MSTACK, in the per-device graph the local one."""
    if isinstance(node.arg, Spmd):
        return node.src[0].shape
    if not isinstance(node.arg, Sharding):
        raise ShardingError(f"MSTACK has a Sharding as its argument, not {node.arg!r}")
    return global_shape(node.arg, [x.shape for x in node.src])


def check_parts(parts: Sequence[Node], layout: object) -> None:
    """Whether parts are the shards of some value in `layout`.

    Raises:
        ShardingError: the layout is of partial sums, or a part has another shape, dtype or device
            than its shard.
    """
    if not isinstance(layout, Sharding):
        raise ShardingError(f"from_shards takes a Sharding, not {layout!r}")
    if layout.is_partial:
        raise ShardingError(
            f"from_shards: {layout} is of partial sums; stack them along a new axis and reduce it: "
            "from_shards([x.unsqueeze(0) for x in parts], Sharding(devices, axis=0)).sum(0)"
        )
    if layout.has_intervals:
        raise ShardingError(f"from_shards: the shards of {layout} overlap; use axes as placements")
    check_shards(parts, layout)


def check_shards(parts: Sequence[Node], layout: Sharding) -> None:
    """Whether parts are the shards of some value in `layout`, which may be partial. Raises as
    `check_parts` does.
    """
    if len(parts) != len(layout):
        raise ShardingError(
            f"from_shards: {layout} has {len(layout)} shards, one for each device, and "
            f"{len(parts)} parts are given"
        )
    for number, (part, device) in enumerate(zip(parts, layout.devices, strict=True)):
        if part.device is not None and part.device != device:
            raise _misfit(number, part, f"on {device}; bring it there with .to({device!r})")
        if part.dtype is not parts[0].dtype:
            raise _misfit(number, part, f"of {parts[0].dtype}, as part 0; cast it")
    _check_shapes(parts, layout)


def _check_shapes(parts: Sequence[Node], layout: Sharding) -> None:
    shapes = [x.shape for x in parts]
    for number, part in enumerate(parts):
        if part.ndim != parts[0].ndim:
            raise _misfit(number, part, f"with {parts[0].ndim} axes, as part 0")
    try:
        shape = global_shape(layout, shapes)
    except ShardingError as error:
        listed = ", ".join(map(str, shapes))
        raise ShardingError(f"from_shards: parts of the shapes {listed}: {error}") from None
    expected = shard_shapes(layout, shape)
    for number, part in enumerate(parts):
        if part.shape != expected[number]:
            raise _misfit(
                number,
                part,
                f"of shape {expected[number]}: {layout} cuts {shape} into "
                f"{', '.join(map(str, expected))}",
            )


def _misfit(number: int, part: Node, expected: str) -> ShardingError:
    return ShardingError(
        f"from_shards: part {number} is a {part.dtype} tensor of shape {part.shape} on "
        f"{part.device or 'no device'}, expected {expected}"
    )


def check_selection(node: Node, index: int) -> None:
    """Whether a node has a shard number `index`.

    Raises:
        ShardingError: it is on one device, its shards are partial sums, overlap or have symbolic
            sizes.
        IndexError: there are fewer.
    """
    layout = node.device
    if not isinstance(layout, Sharding):
        raise ShardingError(f"shards: a value on {layout} has none; shard it first")
    if layout.is_partial or layout.has_intervals:
        kind = "partial sums" if layout.is_partial else "overlapping shards"
        raise ShardingError(f"shards: {layout} is of {kind}; bring it to another layout with .to()")
    for axis in layout.split_axes:
        if not isinstance(node.shape[axis], int):
            raise ShardingError(
                f"shards: the size of axis {axis} of {node.shape} is symbolic and the axis is "
                "sharded, so shards have no known shape; shard another axis"
            )
    if not 0 <= index < len(layout):
        raise ArgumentIndexError(f"shards: there is no shard {index} of {len(layout)}")
