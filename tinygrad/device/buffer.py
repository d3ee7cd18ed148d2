"""Buffers in device memory.

A `Buffer` is a typed range of a device's memory, allocated lazily; a `MultiBuffer` has one for each
device of a sharded value. `copy_buffer` copies between buffers on any two devices.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tinygrad.device.allocator import DEFAULT_SPEC, Allocation, Allocator, BufferSpec
from tinygrad.device.compiled import DeviceError
from tinygrad.device.registry import Device, canonical_name
from tinygrad.dtype import DType, dtypes
from tinygrad.measure import GlobalCounters
from tinygrad.uop.device_value import is_file

if TYPE_CHECKING:
    import numpy


# several threads that first use a buffer at the same time must get one allocation
_first_use = threading.Lock()


class Buffer:
    """`size` elements of `dtype` in a device's memory, allocated lazily.

    A view aliases its `base` from byte `offset` on; a base is never a view. The memory is freed
    with the last buffer and memoryview that refers to it.
    """

    __slots__ = (
        "__weakref__",
        "_allocation",
        "base",
        "device",
        "dtype",
        "offset",
        "options",
        "outside",
        "owner",
        "size",
        "versions",
    )

    def __init__(
        self,
        device: str,
        size: int,
        dtype: DType,
        base: Buffer | None = None,
        offset: int = 0,
        options: BufferSpec | None = None,
    ) -> None:
        self.device: str = canonical_name(device)
        self.size: int = size
        self.dtype: DType = dtype
        self.options: BufferSpec = options or DEFAULT_SPEC
        self._allocation: Allocation | None = None
        if base is not None:
            offset += base.offset
            base = base.base or base
            assert base.device == self.device, f"a view on {device} of a buffer on {base.device}"
            assert offset >= 0 and offset + self.nbytes <= base.nbytes, "a view exceeds its base"
        self.base: Buffer | None = base
        self.offset: int = offset
        # whether code outside can write it
        self.outside: bool = options is not None and options.external_ptr is not None
        # of a base: what has its content (`execution.versions`), and what writes it in place
        self.versions: list[weakref.ref[Any]] | None = None
        self.owner: weakref.ref[Any] | None = None

    @staticmethod
    def from_memoryview(device: str, dtype: DType, data: memoryview) -> Buffer:
        """Creates a buffer over host memory, without a copy if possible.

        It is copied if the device has separate memory, if the data is read-only and kernels could
        write to it, or if its address is not a multiple of the itemsize. Raises ValueError if the
        bytes are not contiguous or not a whole number of elements.
        """
        if not data.c_contiguous:
            raise ValueError("the memoryview is not contiguous; make a contiguous copy first")
        if data.nbytes % dtype.itemsize:
            raise ValueError(
                f"{data.nbytes} bytes are not a whole number of {dtype}, "
                f"which has {dtype.itemsize} bytes"
            )
        self = Buffer(device, data.nbytes // dtype.itemsize, dtype)
        allocation = self._allocator.wrap_host_memory(data)
        if allocation is not None and allocation.handle % dtype.itemsize == 0:
            self._allocation = allocation
        else:
            self.allocate().copyin(data)
        return self

    def __repr__(self) -> str:
        view = "" if self.base is None else f" at byte {self.offset} of another"
        state = "" if self.is_allocated() else " (not allocated)"
        return f"<Buffer {self.device} {self.size} {self.dtype}{view}{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if is_file(self.device):
            # the content stays in the file
            nbytes = (self.base or self).nbytes
            return _open_buffer, (self.device, nbytes, self.size, self.dtype, self.offset)
        data = bytes(self.as_memoryview()) if self.is_allocated() else None
        return _unpickle_buffer, (self.device, self.size, self.dtype, data)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def _allocator(self) -> Allocator:
        return Device[self.device].allocator

    @property
    def allocation(self) -> Allocation:
        """The memory of the base, allocated on first use. Raises OutOfMemoryError."""
        root = self.base or self
        found = root._allocation
        if found is None:
            nbytes = root.size * root.dtype.itemsize
            made = Device[self.device].allocator.allocate(nbytes, root.options)
            with _first_use:
                found = root._allocation
                if found is None:
                    found = root._allocation = made
        return found

    @property
    def handle(self) -> Any:
        """The argument that kernels take for this buffer."""
        handle = self.allocation.handle
        return self._allocator.offset(handle, self.offset) if self.offset else handle

    @property
    def address(self) -> int:
        """The address in this process. Raises DeviceError if the device's memory has none."""
        handle = (self._allocation or self.allocation).handle
        if self.offset:
            handle = self._allocator.offset(handle, self.offset)
        if not isinstance(handle, int):
            raise DeviceError(f"buffers on {self.device} have no address")
        return handle

    def is_allocated(self) -> bool:
        return (self.base or self)._allocation is not None

    def allocate(self) -> Buffer:
        """Allocates uninitialized memory. Returns self. Raises OutOfMemoryError."""
        assert not self.is_allocated(), f"{self!r} is allocated already"
        return self.ensure_allocated()

    def ensure_allocated(self) -> Buffer:
        """Allocates memory unless allocated. Returns self. Raises OutOfMemoryError."""
        assert self.allocation is not None
        return self

    def deallocate(self) -> None:
        """Drops the memory. Existing memoryviews of it stay valid."""
        assert self.base is None, "only the base of a view can be deallocated"
        self._allocation = None

    def overlaps(self, other: Buffer) -> bool:
        """Whether both have bytes in common."""
        if (self.base or self) is not (other.base or other):
            return False
        return (
            self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        )

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """A view of `size` elements of `dtype`, from byte `offset` of this buffer on."""
        return Buffer(self.device, size, dtype, self, offset)

    def copyin(self, source: memoryview) -> Buffer:
        """Copies contiguous host bytes to this buffer. Returns self."""
        self._check_size(source)
        if self.allocation.readonly:
            raise DeviceError(f"{self!r} is read-only memory; copy it to a device first")
        self._allocator.copyin(self.handle, source.cast("B"))
        return self

    def copyout(self, destination: memoryview) -> memoryview:
        """Copies this buffer to contiguous writable host bytes. Returns `destination`."""
        self._check_size(destination)
        self._check_allocated()
        self._allocator.copyout(destination.cast("B"), self.handle)
        return destination

    def as_memoryview(self) -> memoryview:
        """The bytes of the buffer: its memory if the CPU can address it, else a copy.

        The memoryview keeps the memory alive, also after the buffer is gone.
        """
        self._check_allocated()
        shared = self._allocator.as_memoryview(self.allocation, self.offset, self.nbytes)
        return self.copyout(memoryview(bytearray(self.nbytes))) if shared is None else shared

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy of the content as an array of shape `(size,)`."""
        import numpy as np

        from tinygrad.dtype import to_numpy_dtype

        content = np.empty(self.size, to_numpy_dtype(self.dtype))
        self.copyout(content.data.cast("B") if self.size else memoryview(b""))
        return content

    def _check_size(self, data: memoryview) -> None:
        if data.nbytes != self.nbytes:
            raise ValueError(f"{data.nbytes} bytes do not fit {self!r} of {self.nbytes} bytes")

    def _check_allocated(self) -> None:
        if not self.is_allocated():
            raise DeviceError(f"{self!r} holds no data yet; realize the tensor first")


def _unpickle_buffer(device: str, size: int, dtype: DType, data: bytes | None) -> Buffer:
    buffer = Buffer(device, size, dtype)
    return buffer if data is None else buffer.allocate().copyin(memoryview(data))


def _open_buffer(device: str, nbytes: int, size: int, dtype: DType, offset: int) -> Buffer:
    whole = Buffer(device, nbytes, dtypes.uint8).allocate()
    return whole.view(size, dtype, offset)


class RemoteBuffer(Buffer):
    """Memory of a device of another process: a place and a size, and no content here."""

    __slots__ = ()

    @property
    def allocation(self) -> Allocation:
        """Raises DeviceError."""
        raise DeviceError(
            f"{self!r} is memory of another process; read the tensor with .numpy(), which all "
            "processes call together"
        )

    def is_allocated(self) -> bool:
        return True

    def ensure_allocated(self) -> Buffer:
        """Returns self: its process allocates it."""
        return self

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """A view, in the other process too."""
        return RemoteBuffer(self.device, size, dtype, self, offset)


class MultiBuffer:
    """The buffers of a sharded value: one per local device, all of `size` and `dtype`.

    If some of its devices are not local, `devices` are the names of all.
    """

    __slots__ = ("__weakref__", "_remote", "bufs", "devices", "dtype", "owner", "size", "versions")

    outside = False

    def __init__(
        self,
        bufs: tuple[Buffer, ...],
        size: int | None = None,
        dtype: DType | None = None,
        devices: tuple[str, ...] = (),
    ) -> None:
        if bufs:
            size, dtype = bufs[0].size, bufs[0].dtype
        assert size is not None and dtype is not None, "no buffer, and no size"
        assert all((b.size, b.dtype) == (size, dtype) for b in bufs), "unequal shards"
        self.bufs = bufs
        self.size = size
        self.dtype = dtype
        self.devices = devices
        # as those of a `Buffer`, where no device is local
        self.versions: list[weakref.ref[Any]] | None = None
        self.owner: weakref.ref[Any] | None = None
        # the buffers of devices that are not local, which a value and its shards share
        self._remote: dict[int, RemoteBuffer] = {}

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.bufs)

    def __len__(self) -> int:
        return len(self.bufs)

    def __getitem__(self, index: int) -> Buffer:
        """The buffer of device number `index`, without content if the device is not local."""
        if not self.devices:
            return self.bufs[index]
        name = canonical_name(self.devices[index])
        for buffer in self.bufs:
            if buffer.device == name:
                return buffer
        found = self._remote.get(index)
        if found is None:
            # another thread may have added one meanwhile
            made = RemoteBuffer(name, self.size, self.dtype)
            found = self._remote.setdefault(index, made)
        return found

    def __repr__(self) -> str:
        return f"<MultiBuffer {self.size} {self.dtype} on {', '.join(b.device for b in self.bufs)}>"

    @property
    def nbytes(self) -> int:
        """The total number of bytes on all local devices."""
        return sum(buffer.nbytes for buffer in self.bufs)

    def is_allocated(self) -> bool:
        return all(buffer.is_allocated() for buffer in self.bufs)

    def allocate(self) -> MultiBuffer:
        """Allocates memory on every device. Returns self. Raises OutOfMemoryError."""
        for buffer in self.bufs:
            buffer.allocate()
        return self

    def ensure_allocated(self) -> MultiBuffer:
        """Allocates memory on devices without. Returns self. Raises OutOfMemoryError."""
        for buffer in self.bufs:
            buffer.ensure_allocated()
        return self


def copy_buffer(destination: Buffer, source: Buffer) -> None:
    """Copies a buffer to one of the same number of bytes, on any device.

    Counts as a message if the devices differ and neither is a host source.
    """
    if destination.nbytes != source.nbytes:
        raise ValueError(f"cannot copy {source!r} to {destination!r}: their sizes differ in bytes")
    destination.ensure_allocated()
    to, origin = Device[destination.device], Device[source.device]
    target, memory = to.allocator, origin.allocator
    if memory.addressable:
        destination.copyin(source.as_memoryview())
    elif target.addressable:
        source.copyout(destination.as_memoryview())
    elif not target.copy_from(destination.handle, memory, source.handle, source.nbytes):
        destination.copyin(source.as_memoryview())
    crossed = destination.device != source.device
    if crossed and not to.is_host_source and not origin.is_host_source:
        GlobalCounters.count_message(source.device, source.nbytes)
