"""Values in files: where they go when an op computes with them.

Input: operands of an op, of which some are in files. Output: the same values on devices.
Invariants: no op computes in a file; movement and bitcasts of a value in a file are views of the
file, and their COPY is below them, so that it reads one range of the file.
"""

from __future__ import annotations

from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import (
    DeviceValue,
    TensorDevice,
    default_device,
    is_file,
    replicated,
    tensor_device,
)
from tinygrad.uop.node import N, Node
from tinygrad.uop.reshard.move import can_shard, copy

# the ops that are views of a file
FILE_VIEWS = GroupOp.Movement | {Ops.BITCAST, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}
_RANGE_OPS = frozenset({Ops.RESHAPE, Ops.SHRINK})


def computing_device(device: DeviceValue) -> TensorDevice | None:
    """`device`; for a file, the default device, which computes with its content."""
    if device is None:
        return None
    return default_device() if is_file(device) else tensor_device(device)


def off_files(*srcs: N) -> tuple[N, ...]:
    """The sources of an op, those in files copied to the device or layout of the others, or to the
    default device if there are no others. They are replicated next to sharded ones of other shapes.
    """
    for x in srcs:
        if is_file(x.device):
            return _off_files(srcs)
    return srcs


def _off_files(srcs: tuple[N, ...]) -> tuple[N, ...]:
    others = [x for x in srcs if x.device is not None and not is_file(x.device)]
    if not others:
        return tuple(off_file(x) for x in srcs)
    device, shape = others[0].device, others[0].shape
    return tuple(off_file(x, device if x.shape == shape else replicated(device)) for x in srcs)


def off_file(node: N, device: DeviceValue = None) -> N:
    """`node`; if it is in a file, copied to `device` (None: the default device). It is replicated
    over a layout that would move repeated elements.
    """
    if not is_file(node.device):
        return node
    target = default_device() if device is None else device
    if isinstance(target, Sharding) and not _can_have(node, target):
        target = target.replicated()
    return read_file(node, target)


def read_file(node: N, device: DeviceValue) -> N:
    """A value in a file, copied to a device or layout."""
    if _is_range(node) or (isinstance(device, Sharding) and not device.is_replicated):
        return copy(node, device)
    return node.replace(src=(read_file(node.src[0], device),))


def _is_range(node: Node) -> bool:
    """Whether a value in a file is not computed or reordered on the way from the file."""
    while node.op in _RANGE_OPS:
        node = node.src[0]
    return node.op not in FILE_VIEWS


def _can_have(node: Node, layout: Sharding) -> bool:
    """Whether each device can read its shard of a value in a file."""
    below = node
    while below.op in FILE_VIEWS and below.op is not Ops.EXPAND:
        below = below.src[0]
    repeats = below.op is Ops.EXPAND
    return not (repeats or layout.is_partial) and can_shard(layout, node.shape)
