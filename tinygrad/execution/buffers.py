"""The memory of BUFFER nodes: the one writer of `UOp.memory`.

Input: BUFFER nodes. Output: their `Buffer` or `MultiBuffer`. Invariant: a node keeps its memory for
its whole life, and the memory is freed with the node. It is allocated when it is first used.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from tinygrad.device import Buffer, MultiBuffer, RemoteBuffer, copy_buffer
from tinygrad.dtype import DType
from tinygrad.execution.versions import (
    Memory,
    bases_of,
    forget_version,
    is_same_memory,
    note_version,
    versions_in,
)
from tinygrad.execution.wire import current_wire
from tinygrad.settings import SPEC
from tinygrad.sharding import Sharding, current_local_devices, is_on_host, max_shape
from tinygrad.uop.device_value import device_names, is_file
from tinygrad.uop.node_table import NodeTable
from tinygrad.uop.ops import BufferArg, UOp

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


# the tokens of BUFFER nodes, if other processes have a part of them
_tokens = NodeTable[tuple[RemoteBuffer, ...]]()

# several threads that first ask for the memory of a node must get one allocation
_first_request = threading.Lock()

COMPARED_BYTES = 1 << 12
"""Host arrays of this size or less are compared between processes; with `SPEC`, larger ones too."""


def storage_of(node: UOp) -> Any:
    """The memory of a BUFFER node, created at the first request: a `Buffer`; a `MultiBuffer` with
    the buffers of the local devices; a `RemoteBuffer`, without content, if it is not local.
    """
    if node.memory is None:
        device, size = node.arg.device, _elements(node)
        names = current_local_devices().names_in(device_names(device))
        made = [Buffer(name, size, node.dtype) for name in names]
        with _first_request:
            if node.memory is None:
                bind_buffers(node, made)
    return node.memory


def device_buffers(node: UOp) -> tuple[Buffer, ...]:
    """The buffers of a BUFFER node, one for each local device."""
    storage = node.memory or storage_of(node)
    if storage.__class__ is Buffer:
        return (storage,)
    if isinstance(storage, MultiBuffer):
        return storage.bufs
    return () if isinstance(storage, RemoteBuffer) else (storage,)


def bind_buffers(node: UOp, parts: Sequence[Buffer]) -> UOp:
    """Make existing buffers, one for each local device, the memory of a BUFFER node; returns the
    node.
    """
    device = node.arg.device
    if isinstance(device, Sharding):
        if len(parts) == len(device):
            node.memory = MultiBuffer(tuple(parts))
        else:
            node.memory = MultiBuffer(tuple(parts), _elements(node), node.dtype, device.devices)
    else:
        node.memory = parts[0] if parts else RemoteBuffer(device, _elements(node), node.dtype)
    note_version(node)
    return node


def name_content(
    memory: Memory, arg: BufferArg, dtype: DType, tokens: tuple[RemoteBuffer, ...]
) -> UOp:
    """The BUFFER node of the content that is in some memory now: the one that lives, or a new one
    of the shape and device of `arg`.
    """
    kind = arg.device, arg.shape, dtype
    for node in versions_in(bases_of(memory)[:1]):
        if (
            is_same_memory(node.memory, memory)
            and (node.arg.device, node.arg.shape, node.dtype) == kind
        ):
            return node
    return bind_memory(UOp.new_buffer(*kind), memory, tokens)


def release_memory(node: UOp) -> None:
    """Take the memory of a BUFFER node, in which its content never was."""
    if node.memory is not None:
        forget_version(node)
        node.memory = None


def bind_memory(node: UOp, memory: Memory, tokens: tuple[RemoteBuffer, ...]) -> UOp:
    """Make the memory of another BUFFER node, which has `tokens`, that of `node`; returns it."""
    set_tokens(node, tokens)
    node.memory = memory
    note_version(node)
    return node


def move_out(node: UOp) -> None:
    """Move the content of a BUFFER node to other memory, so that its memory can be overwritten."""
    parts = device_buffers(node)
    copies = [Buffer(part.device, part.size, part.dtype) for part in parts]
    for copy, part in zip(copies, parts, strict=True):
        if part.is_allocated():
            copy_buffer(copy, part)
    forget_version(node, _tokens.pop(node) or ())
    bind_buffers(node, copies)


def tokens_of(node: UOp) -> tuple[RemoteBuffer, ...]:
    """Tokens that identify the memory of a BUFFER node on all of its devices, in every process.

    Nodes in the same memory have the same tokens, so every process knows which nodes share memory,
    whatever devices it is on. Where all devices are local, buffers identify memory, and there are
    no tokens.
    """
    if current_local_devices().is_all:
        return ()
    found = _tokens.get(node)
    if found is None:
        name = device_names(node.arg.device)[0]
        found = set_tokens(node, (RemoteBuffer(name, _elements(node), node.dtype),))
    return found


def set_tokens(node: UOp, tokens: tuple[RemoteBuffer, ...]) -> tuple[RemoteBuffer, ...]:
    """Give a BUFFER node the tokens of other nodes in the same memory."""
    if tokens:
        _tokens[node] = tokens
        note_version(node, tokens)
    return tokens


def memory_of(node: UOp) -> list[Buffer]:
    """The memory of a BUFFER node: its base buffers, and its tokens."""
    return [*[b.base or b for b in device_buffers(node)], *tokens_of(node)]


def _elements(node: UOp) -> int:
    """The number of elements of a BUFFER node on each of its devices; a symbolic size counts as its
    upper bound.
    """
    device, shape = node.arg.device, max_shape(node.arg.shape)
    return prod(device.local_shape(shape) if isinstance(device, Sharding) else shape)


def read_buffer(buffer: Buffer) -> Array:
    """A copy of the content of a buffer, from the process that has it. If there are several
    processes, all of them call this together.
    """
    if current_local_devices().is_all or is_on_host(buffer.device):
        return buffer.numpy()
    return current_wire().broadcast(buffer)


def note_host_array(node: UOp) -> None:
    """Let processes compare a host array, if the BUFFER node is one.

    Each process reads the array from its own memory. Its content becomes part of the digest of the
    next step, so processes with unequal arrays are found. Does nothing in a single process.
    """
    device = node.arg.device
    if current_local_devices().is_all or not isinstance(device, str) or is_file(device):
        return
    if is_on_host(device) and (node.buffer.nbytes <= COMPARED_BYTES or SPEC):
        buffer = node.buffer.ensure_allocated()
        found = hashlib.blake2b(buffer.as_memoryview(), digest_size=8)
        what = f"a copy of a host array of {buffer.nbytes} bytes with the hash {found.hexdigest()}"
        current_wire().note(found.digest(), what)
