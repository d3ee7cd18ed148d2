"""Common layouts: which layout the operands of one op go to.

Input: the operands of an elementwise op, of a product to be summed, or of a custom kernel. Output:
the operands in layouts that agree. Invariant: of all common layouts, the one that moves the fewest
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.helpers import dedup
from tinygrad.sharding import Sharding, ShardingError, common_layout
from tinygrad.sharding.placement_rule import check_rule, parse_rule, rule_layouts
from tinygrad.uop import Ops
from tinygrad.uop.device_value import DeviceValue
from tinygrad.uop.node import N, Node
from tinygrad.uop.reshard.move import ALIGNED, BROADCAST, device_mismatch, reshard, sent_nbytes


def reshard_for_product(factors: tuple[N, ...], reduced_axes: tuple[int, ...]) -> tuple[N, ...]:
    """The factors of a product that is then summed over `reduced_axes`, in their common layout.

    The bytes of the all-reduce of that sum count too, so an axis that both factors shard stays
    sharded where the sum is smaller than the factors.
    """
    return reshard_to_common_layout(factors, reduced_axes)


def reshard_to_common_layout(
    srcs: tuple[N, ...], reduced_axes: tuple[int, ...] = ()
) -> tuple[N, ...]:
    """The sources of an elementwise op, resharded to the common layout that moves the fewest bytes.

    If the result is then summed over `reduced_axes`, the bytes of that reduction count too.

    Raises:
        ShardingError: the devices differ, or a transfer is needed under `SHARDING="strict"`.
    """
    placed = [x for x in srcs if x.device is not None]
    devices = [x.device for x in placed]
    if len(set(devices)) <= 1:
        return srcs
    layouts = [d for d in devices if isinstance(d, Sharding)]
    if len(layouts) < len(devices) or len({layout.devices for layout in layouts}) > 1:
        raise device_mismatch(devices)
    arrays = [x for x in placed if x.shape]
    target = common_layout(
        [x.layout for x in arrays],
        [sent_nbytes(x) for x in arrays],
        [_shape_before_broadcast(x) for x in arrays],
        reduced_axes,
        arrays[0].dtype.itemsize,
    )
    views = ALIGNED if reduced_axes else BROADCAST
    return tuple(x if x.device is None else reshard(x, target, True, views) for x in srcs)


def _shape_before_broadcast(node: Node) -> tuple[Any, ...]:
    """The shape of a node before it was expanded: 1 along broadcast axes."""
    if node.op is Ops.EXPAND:
        return _shape_before_broadcast(node.src[0])
    if node.op is Ops.PERMUTE:
        shape = _shape_before_broadcast(node.src[0])
        return tuple(shape[axis] for axis in node.arg)
    return node.shape


def layouts_for_custom_kernel(
    name: str,
    operands: Sequence[Node],
    devices: Sequence[DeviceValue],
    rule: str | None,
    reduce_op: str,
) -> Sequence[DeviceValue]:
    """The device or layout that a custom kernel needs each operand in.

    `devices` are those of the operands, None for one that can be allocated anywhere; at least one
    is not. By a `rule`, axes of one name are sharded alike, in the layout that moves the fewest
    bytes; an output that lacks a sharded axis is partial by `reduce_op`.
    Raises ShardingError for operands on different devices, and for sharded ones without a rule.
    """
    placed = dedup(device for device in devices if device is not None)
    if rule is not None:
        parsed, shapes = parse_rule(rule), [x.shape for x in operands]
        check_rule(parsed, shapes)
        if all(isinstance(device, Sharding) for device in placed):
            layouts = [device if isinstance(device, Sharding) else None for device in devices]
            nbytes = [x.nbytes for x in operands]
            return rule_layouts(parsed, shapes, layouts, nbytes, reduce_op)
    if len(placed) > 1:
        raise ShardingError(
            f"custom kernel {name}: its tensors live on {' and '.join(map(str, placed))}; bring "
            "them together first with .to() or .shard()"
        )
    if isinstance(placed[0], Sharding) and not placed[0].is_replicated:
        raise ShardingError(
            f"custom kernel {name}: its tensors are sharded, {placed[0]}, without a rule for "
            "shards; name their axes by rule=, as in rule='m k, k n -> m n', or replicate them, "
            "x.to(x.device.replicated())"
        )
    return placed * len(operands)


def reshard_for_custom_kernel(node: N, device: DeviceValue) -> N:
    """An operand on the device or in the layout that `layouts_for_custom_kernel` chose."""
    if isinstance(device, Sharding) and isinstance(node.device, Sharding):
        return reshard(node, device, is_implicit=True)
    return node.copy_to_device(device)
