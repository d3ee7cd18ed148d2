"""The bytes of a file as a tensor, and views of them with other dtypes.

Input: a file's name, or a one-dimensional tensor of bytes on any device. Output: bytes of the host,
and tensors in the memory of that tensor. Invariants: a file is mapped, and unused bytes are not
read; no view is out of bounds.
"""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import reprlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tinygrad.device import Buffer
from tinygrad.dtype import DType, dtypes
from tinygrad.execution.buffers import bind_buffers, set_tokens, tokens_of
from tinygrad.helpers import prod
from tinygrad.sharding import Sharding
from tinygrad.storage.files import stored_range
from tinygrad.storage.host.arrays import file_buffer
from tinygrad.storage.views import view_base
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import is_file
from tinygrad.uop.ops import UOp

R = TypeVar("R")
File = Tensor | str | os.PathLike[str]
# so that the number of bytes fits into 64 bits
MAX_ELEMENTS = (1 << 60) - 1
MAX_AXES = 64

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlist = _short.maxtuple = MAX_AXES


class FileFormatError(ValueError):
    """A file is invalid, truncated, or has unsupported content."""


def accept_filename(func: Callable[[Tensor], R]) -> Callable[[File], R]:
    """Let a function of a tensor of bytes also take the name of a file, which is mapped.

    >>> @nn.state.accept_filename
    ... def size_in_bytes(t: Tensor) -> int:
    ...     return t.numel()
    >>> size_in_bytes(Tensor(b"four"))
    4
    """
    signature = inspect.signature(func)

    @functools.wraps(func)
    def wrapper(*args: Any, **named: Any) -> R:
        return func(*map(bytes_of_file, signature.bind(*args, **named).args))

    return wrapper


def bytes_of_file(file: File) -> Tensor:
    """A tensor of the bytes of a file. Raises ValueError for a tensor of anything else."""
    if not isinstance(file, Tensor):
        return Tensor(pathlib.Path(file))
    if file.ndim != 1 or file.dtype != dtypes.uint8:
        raise ValueError(
            f"a file is a tensor of bytes, (n,) of uint8, not {file.shape} of {file.dtype}"
        )
    if isinstance(file.device, Sharding):
        raise ValueError(f"the bytes of a file live on {file.device}; move them with .to('CPU')")
    return file


def shown(value: Any) -> str:
    """A value from a file, for a message; limited, as it may be arbitrarily large and deep."""
    return _short.repr(value)


def name_of_file(t: Tensor) -> str:
    """The name of the file in messages."""
    device = str(t.device)
    return device.partition(":")[2] if is_on_disk(t) else f"a tensor on {device}"


def is_on_disk(t: Tensor) -> bool:
    """Whether a tensor is in a file."""
    return is_file(t.device)


def contiguous_memory(tensor: Tensor) -> Buffer | None:
    """The memory of a tensor on one device, if it is a contiguous range of a buffer in row-major
    order.
    """
    return stored_range(tensor.uop)


def memory_of(tensor: Tensor) -> Buffer:
    """The row-major memory of a tensor on one device; copied there if needed."""
    # realize the tensor itself, so that repeated requests compute it once
    memory = contiguous_memory(tensor.realize()) or contiguous_memory(tensor.contiguous().realize())
    assert memory is not None, "a contiguous value is stored in one range of memory"
    return memory


def read_bytes(t: Tensor, start: int, stop: int) -> bytes:
    """A range of the bytes of `t`."""
    return bytes(peek_bytes(t, start, stop))


def peek_bytes(t: Tensor, start: int, stop: int) -> memoryview:
    """A range of the bytes of `t`, without a copy if the host can address its memory."""
    if start == stop:
        return memoryview(b"")
    return memory_of(t).view(stop - start, dtypes.uint8, start).as_memoryview()


def view_bytes(t: Tensor, start: int, dtype: DType, shape: Sequence[int]) -> Tensor:
    """The tensor whose row-major content starts at byte `start` of `t`, a tensor of bytes."""
    size = prod(shape)
    if size == 0:
        return Tensor.empty(*shape, dtype=dtype)
    memory = memory_of(t)
    if (memory.offset + start) % dtype.itemsize and not is_on_disk(t):
        # kernels need aligned memory, a file does not
        t, start = t[start : start + size * dtype.itemsize].clone(), 0
        memory = memory_of(t)
    part = memory.view(size, dtype, start)
    if is_on_disk(t):
        return Tensor(file_buffer(part, tuple(shape)))
    node = bind_buffers(UOp.new_buffer(t.device, tuple(shape), dtype), [part])
    if contiguous_memory(t) is not None:
        # other processes know of the memory by that of `t`
        set_tokens(node, tokens_of(view_base(t.uop)))
    return Tensor(node)


def check_shape(shape: Any, what: str) -> tuple[int, ...]:
    """A shape from a file. Raises FileFormatError if it is invalid or too large."""
    if not isinstance(shape, tuple | list) or not all(type(d) is int and d >= 0 for d in shape):
        raise FileFormatError(f"{what} has shape {shown(shape)}, which is not a list of sizes")
    if len(shape) > MAX_AXES:
        raise FileFormatError(f"{what} has {len(shape)} axes; at most {MAX_AXES} are loaded")
    # sizes next to a 0 are limited too, as strides are their products
    if prod(max(d, 1) for d in shape) > MAX_ELEMENTS:
        raise FileFormatError(f"{what} has shape {shown(shape)}, which is too large for any memory")
    return tuple(shape)
