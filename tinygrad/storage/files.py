"""Tensors in files: opened, created, replaced and written.

Input: tensors, and devices "DISK:path". Output: BUFFERs whose memory is a file. Invariants: a write
is in the file when the call returns, so it survives the process; a lazy value that reads what is
overwritten is computed before. Movement and bitcasts of a tensor in a file are views of it, so they
see writes; the ops that compute with it do so elsewhere (`uop/reshard/files.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

from tinygrad.device import Buffer, Device
from tinygrad.dtype import DType
from tinygrad.execution.capture import JitError, capturing
from tinygrad.helpers import all_int, prod
from tinygrad.runtime.disk import (
    DiskAllocator,
    DiskFile,
    FileError,
    check_file,
    path_of,
    replace_file,
)
from tinygrad.schedule.storage_views import contiguous_range
from tinygrad.sharding import Sharding
from tinygrad.storage.element_layout import ByteRanges, byte_ranges
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.host.arrays import file_buffer, file_buffers
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.placement import canonical_device, in_own_memory, placed
from tinygrad.storage.readers import find_readers
from tinygrad.storage.realization import realize_all
from tinygrad.storage.views import is_constant
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import SymbolicShape, format_shape
from tinygrad.uop.device_value import DeviceLike, is_file
from tinygrad.uop.ops import UOp
from tinygrad.uop.user_line import find_user_line


def open_file(device: str, shape: tuple[int, ...], dtype: DType) -> UOp:
    """A BUFFER in the file of `device`, which is created with zeros if it is missing or empty.

    Raises FileError if it is too short or no file.
    """
    return file_buffer(Buffer(device, prod(shape), dtype).allocate(), shape)


def place_or_create_file(tensor: type[TensorBase], node: UOp, device: DeviceLike) -> UOp:
    """`node` on `device`, as by `placed`. If that is a file, it is created with the value.

    Raises FileError if the file exists and is not empty: only `to` and `safe_save` replace files.
    """
    target = canonical_device(device)
    if not is_file(target) or node.device == target:
        return placed(node, target)
    status = check_file(path_of(target))
    if status is not None and status.st_size:
        raise FileError(
            f"{path_of(target)} is there already, with {status.st_size} bytes; replace it with "
            f".to({target!r}), or open it with Tensor.empty(..., device={target!r})"
        )
    return replace(tensor._new(node, False), target)


def replace(tensor: TensorBase, device: str) -> UOp:
    """The value of `tensor` in a new file, which is renamed to the path of `device`.

    Tensors in the file that was there keep it. Raises FileError.
    """
    shape = tensor.uop.shape
    _check_known(device, shape)
    _check_not_captured(device)
    content = _stored_elements(tensor).as_memoryview()
    keep_replaced(path_of(device))
    replace_file(path_of(device), content)
    return open_file(device, cast(tuple[int, ...], shape), tensor.uop.dtype)


def keep_replaced(path: Path) -> None:
    """Keep the content of a file for the tensors in it, before another is renamed to its path."""
    status = check_file(path)
    if status is None:
        return
    for node in file_buffers():
        file = _file_of(node.buffer)
        if file.identity == (status.st_dev, status.st_ino):
            file.keep()


def write(tensor: TensorBase, value: UOp) -> None:
    """Writes `value` to the part of a file that `tensor` is, at once.

    Raises RuntimeError for a view that repeats bytes, FileError if the file cannot be written.
    """
    device = tensor.uop.device
    assert is_file(device), f"{device} is no file"
    _check_known(device, value.shape)
    _check_not_captured(device)
    node, ranges = byte_ranges(tensor.uop)
    stored = _stored_elements(tensor._new(value, False))
    content = stored.as_memoryview()
    if is_file(stored.device):
        # they may be the bytes that are overwritten
        content = memoryview(bytes(content))
    buffer = cast(Buffer, node.buffer)
    changed = _overlapping(buffer, ranges)
    _compute_readers(tensor, changed)
    histories.overwritten(changed)
    allocator = Device[device].allocator
    assert isinstance(allocator, DiskAllocator), "files are on DISK"
    allocator.copyin_ranges(buffer.handle, *ranges, content)
    _renew(changed)


def as_range_of_file(node: UOp) -> UOp:
    """A view of a file as a BUFFER of its bytes; copied to the CPU if they are not one range."""
    part = stored_range(node)
    if part is None:
        return node.copy_to_device("CPU")
    return file_buffer(part, cast(tuple[int, ...], node.shape))


def _stored_elements(tensor: TensorBase) -> Buffer:
    """The memory or the part of a file that holds the elements of a value, in row-major order; it
    is computed if necessary.
    """
    node = tensor.uop
    if 0 in node.shape:
        return Buffer(Device.DEFAULT, 0, node.dtype).allocate()
    while node.op is Ops.COPY and isinstance(node.src[0].device, str):
        # what is copied to a device only to be written need not go there
        node = node.src[0]
    is_scattered = is_file(node.device) and contiguous_range(node) is None
    if is_scattered or isinstance(node.device, Sharding):
        node = node.copy_to_device(Device.DEFAULT)
    part = stored_range(node)
    if part is None:
        computed = tensor._new(in_own_memory(node) if is_constant(node) else node.contiguous())
        realize_all((computed,))
        part = stored_range(computed.uop)
    assert part is not None, "what was stored as contiguous is one range of memory"
    return part


def stored_range(node: UOp) -> Buffer | None:
    """The memory of a value on one device, if it is a contiguous range of a buffer."""
    found = None if node.device is None else contiguous_range(node)
    if found is None or found[0].op is not Ops.BUFFER or not found[0].is_realized:
        return None
    base, offset = found
    size = prod(cast(tuple[int, ...], node.shape))
    return cast(Buffer, base.buffer).view(size, node.dtype, offset * node.dtype.itemsize)


def _check_known(device: str, shape: SymbolicShape) -> None:
    if not all_int(shape):
        raise ValueError(
            f"a value of symbolic shape {format_shape(shape)} has no known size in "
            f"{path_of(device)}; write one of int sizes"
        )


def _check_not_captured(device: str) -> None:
    if capturing():
        raise JitError(
            f"{find_user_line()}: a function that TinyJit captures writes to {device}, which later "
            "calls would not; return the value, and write it outside of the function"
        )


def _file_of(buffer: Buffer) -> DiskFile:
    file: DiskFile = buffer.allocation.handle.file
    return file


def _overlapping(written: Buffer, ranges: ByteRanges) -> list[UOp]:
    """The BUFFERs that share bytes with `ranges` of a buffer."""
    if not ranges.starts:
        return []
    identity = _file_of(written).identity
    low, high = written.offset + min(ranges.starts), written.offset + max(ranges.stops)
    return [
        node
        for node in file_buffers()
        if _file_of(node.buffer).identity == identity
        and node.buffer.offset < high
        and low < node.buffer.offset + node.buffer.nbytes
    ]


def _compute_readers(tensor: TensorBase, overwritten: Iterable[UOp]) -> None:
    """Compute the lazy values that read these BUFFERs; views of the file are none."""
    readers = [x for x in find_readers(set(overwritten)) if not is_file(x.device)]
    realize_all([tensor._new(node, False) for node in dict.fromkeys(readers)])


def _renew(written: Iterable[UOp]) -> None:
    """Give tensors in these BUFFERs others for the new content, so that a value that was computed
    from the old content is not taken for one of the new.
    """
    table = {node: file_buffer(node.buffer, node.arg.shape) for node in written}
    for x in live_tensors:
        if is_file(x.uop.device):
            if x._cell is not None:
                x._cell.uop = x._cell.uop.substitute(table)
            x._set_node(x.uop.substitute(table))
