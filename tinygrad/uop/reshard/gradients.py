"""Gradients of communication: the layout in which a gradient goes back.

Input: the gradient of the result of a COPY or ALLREDUCE, and that node. Output: the gradient by its
source. Invariant: a layout change is the identity on the logical value, so its gradient is the same
value; only its layout is decided here.
"""

from __future__ import annotations

from math import prod

from tinygrad.sharding import Sharding, moved_elements
from tinygrad.uop.device_value import DeviceValue, is_file, tensor_device
from tinygrad.uop.node import N, Node
from tinygrad.uop.reshard.files import computing_device


def gradient_of_copy(gradient: N, node: Node) -> N:
    """The gradient by the source of a COPY, in the layout of the source or unmoved.

    The gradient of an all-to-all is an all-to-all. The gradient of a value that was all-gathered or
    sliced keeps its layout if resharding it sends bytes: it is resharded when it meets another
    value. A replicated gradient is sliced at once, which sends nothing. The gradient by a value in
    a file is not moved to the file.
    """
    target = unreduced_layout(node.src[0].device)
    return gradient if _stays(gradient, target, node.device) else gradient.copy_to_device(target)


def gradient_of_allreduce(gradient: N, node: Node) -> N:
    """The gradient by the source of an ALLREDUCE: each partial sum has the full gradient, so the
    gradient of a reduce-scatter is an all-gather.
    """
    if gradient.device is None:
        return gradient
    return gradient.copy_to_device(unreduced_layout(node.src[0].device))


def gradient_like(gradient: N, target: Node) -> N:
    """The gradient by `target` in the layout of `target`, so that a sharded parameter gets its
    gradient by a reduce-scatter. That of a value in a file is on the default device.
    """
    device = computing_device(target.device)
    return gradient if device is None else gradient.copy_to_device(device)


def fully_reduced(node: N) -> N:
    """`node` with partial values all-reduced."""
    layout = unreduced_layout(node.device)
    return node if node.device == layout else node.allreduce(tensor_device(layout))


def unreduced_layout(device: DeviceValue) -> DeviceValue:
    """`device`; for a layout, with partial values taken as replicated."""
    return device.without_partial() if isinstance(device, Sharding) else device


def _stays(gradient: Node, target: DeviceValue, moved_to: DeviceValue) -> bool:
    """Whether a gradient stays where it is, as moving it back to `target` would cost bytes."""
    if not isinstance(target, Sharding) or not isinstance(moved_to, Sharding):
        return is_file(target)
    if target.devices != moved_to.devices or _have_equal_counts(target, moved_to):
        return gradient.device is None
    layout = gradient.device
    return not isinstance(layout, Sharding) or moved_elements(layout, target, gradient.shape) > 0


def _have_equal_counts(a: Sharding, b: Sharding) -> bool:
    """Whether two layouts have equal numbers of shards, and so of replicas."""
    if a.has_intervals or b.has_intervals:
        return False
    return _shard_count(a) == _shard_count(b)


def _shard_count(layout: Sharding) -> int:
    return prod(layout.shards(axis) for axis in layout.split_axes)
