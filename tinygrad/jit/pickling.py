"""Pickles of captures, which replay without the Python function.

Input: the parts of a capture. Output: bytes, and the parts again. Invariant: views of one memory
stay that, and BUFFERs are new nodes, so that loading changes no other tensor. The content of
weights is part of the bytes; that of arguments and intermediates is not.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection
from typing import Any

from tinygrad.device import Buffer, RemoteBuffer
from tinygrad.dtype import DType
from tinygrad.execution.buffers import bind_buffers, device_buffers, set_tokens, tokens_of
from tinygrad.execution.runner import CompiledRunner
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import UOp


def dumped(parts: Any, without_content: Collection[Buffer]) -> bytes:
    """Pickle `parts`, without the content of some memory."""
    stream = io.BytesIO()
    _Pickler(stream, without_content).dump(parts)
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, without_content: Collection[Buffer]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._without_content = without_content

    def reducer_override(self, x: Any) -> Any:
        """How memory, and what refers to it, is pickled."""
        if isinstance(x, RemoteBuffer):
            return RemoteBuffer, (x.device, x.size, x.dtype)
        if isinstance(x, Buffer):
            if x.base is not None:
                return _view, (x.base, x.size, x.dtype, x.offset)
            keep = x.is_allocated() and x not in self._without_content
            return _memory, (x.device, x.size, x.dtype, bytes(x.as_memoryview()) if keep else None)
        if isinstance(x, UOp) and x.op is Ops.BUFFER and x.is_realized:
            memory = device_buffers(x), tokens_of(x)
            return _node, (x.device, x.arg.shape, x.dtype, *memory)
        if isinstance(x, Tensor):
            return _tensor, (x.uop, x.requires_grad)
        if isinstance(x, CompiledRunner):
            return _nothing, ()
        return NotImplemented


def _view(base: Buffer, size: int, dtype: DType, offset: int) -> Buffer:
    return base.view(size, dtype, offset)


def _memory(device: str, size: int, dtype: DType, content: bytes | None) -> Buffer:
    buffer = Buffer(device, size, dtype)
    return buffer if content is None else buffer.allocate().copyin(memoryview(content))


def _node(
    device: TensorDevice,
    shape: tuple[Any, ...],
    dtype: DType,
    parts: tuple[Buffer, ...],
    tokens: tuple[RemoteBuffer, ...],
) -> UOp:
    node = UOp.new_buffer(device, shape, dtype)
    set_tokens(node, tokens)
    return bind_buffers(node, parts)


def _tensor(node: UOp, requires_grad: bool | None) -> Tensor:
    return Tensor(node, requires_grad=requires_grad)


def _nothing() -> None:
    """A compiled kernel is compiled again, or found in the cache."""
