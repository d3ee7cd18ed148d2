"""The memory of BUFFER nodes: the one writer of `UOp.memory`.

Input: BUFFER nodes. Output: their `Buffer` or `MultiBuffer`. Invariant: a node keeps its memory for
its whole life, and the memory is freed with the node. It is allocated when it is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tinygrad.device import Buffer, MultiBuffer, copy_buffer
from tinygrad.sharding import Sharding, current_local_devices
from tinygrad.uop.ops import UOp


def storage_of(node: UOp) -> Any:
    """The `Buffer` or `MultiBuffer` of a BUFFER node, created at the first request. The latter has
    the buffers of the local devices.
    """
    found = node.memory
    if found is None:
        device, shape = node.arg.device, node.arg.shape
        if isinstance(device, Sharding):
            size = prod(device.local_shape(shape))
            names = current_local_devices().names_in(device.devices)
            buffers = tuple([Buffer(name, size, node.dtype) for name in names])
            found = MultiBuffer(buffers, size, node.dtype)
        else:
            found = Buffer(device, prod(shape), node.dtype)
        node.memory = found
    return found


def device_buffers(node: UOp) -> tuple[Buffer, ...]:
    """The buffers of a BUFFER node, one for each local device."""
    storage = storage_of(node)
    return storage.bufs if isinstance(storage, MultiBuffer) else (storage,)


def bind_buffers(node: UOp, parts: Sequence[Buffer]) -> UOp:
    """Make existing buffers, one for each local device, the memory of a BUFFER node; returns the
    node.
    """
    device, shape = node.arg.device, node.arg.shape
    if isinstance(device, Sharding):
        node.memory = MultiBuffer(tuple(parts), prod(device.local_shape(shape)), node.dtype)
    elif parts:
        node.memory = parts[0]
    return node


def copy_of(node: UOp) -> UOp:
    """A new BUFFER node with the content of another."""
    parts = device_buffers(node)
    copies = [Buffer(part.device, part.size, part.dtype).allocate() for part in parts]
    for copy, part in zip(copies, parts, strict=True):
        copy_buffer(copy, part)
    return bind_buffers(UOp.new_buffer(node.device, node.arg.shape, node.dtype), copies)
