"""DISK: files as buffers. `DISK:/path` is one file; it runs no kernels.

Reads map the file. Writes create or extend it as needed. Reading never creates or changes a file.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygrad.allocator import Allocation, Allocator, BufferSpec, FreeLists
from tinygrad.device import Compiled, DeviceError


class DiskFile:
    """A file of at least `nbytes` bytes. Created by the first write."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path = path
        self.nbytes = nbytes
        self._map: mmap.mmap | None = None

    def mapped(self) -> mmap.mmap:
        """Maps the file read-only. Raises DeviceError if it is missing or too short."""
        if self._map is None:
            with self.open_for_reading() as file:
                self._map = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ)
        return self._map

    def open_for_reading(self) -> Any:
        """Opens the file. Raises DeviceError if it is missing or too short."""
        if not self.path.is_file():
            raise DeviceError(f"no such file: {self.path}")
        size = self.path.stat().st_size
        if size < self.nbytes:
            raise DeviceError(f"{self.path} has {size} bytes, fewer than the {self.nbytes} to read")
        return self.path.open("rb", buffering=0)

    def read(self, file: Any, offset: int, destination: memoryview) -> None:
        """Fills `destination` from the open file. Raises DeviceError at an early end of file."""
        file.seek(offset)
        while destination.nbytes:
            count = file.readinto(destination)
            if not count:
                raise DeviceError(f"{self.path} was truncated while it was read")
            destination = destination[count:]

    def write(self, offset: int, data: memoryview) -> None:
        """Writes bytes. Extends the file to `self.nbytes` if it is shorter."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            if os.fstat(descriptor).st_size < self.nbytes:
                file.truncate(self.nbytes)
            file.seek(offset)
            while data.nbytes:
                data = data[file.write(data) :]


class DiskRegion:
    """The handle of a buffer: a file and a byte offset."""

    def __init__(self, file: DiskFile, offset: int) -> None:
        self.file = file
        self.offset = offset


class DiskAllocator(Allocator):
    """Allocates buffers that all refer to one file."""

    def __init__(self, device: str) -> None:
        # a freed mapping is of no use to another buffer
        super().__init__(device, FreeLists(0))
        self.path = Path(device.partition(":")[2])

    def offset(self, handle: DiskRegion, nbytes: int) -> DiskRegion:
        return DiskRegion(handle.file, handle.offset + nbytes)

    def as_memoryview(self, allocation: Allocation, offset: int, nbytes: int) -> memoryview:
        if nbytes == 0:
            return memoryview(b"")
        file: DiskFile = allocation.handle.file
        return memoryview(file.mapped())[offset : offset + nbytes]

    def copyin(self, handle: DiskRegion, source: memoryview) -> None:
        handle.file.write(handle.offset, source)

    def copyout(self, destination: memoryview, handle: DiskRegion) -> None:
        self.copyout_ranges(destination, handle, (0,))

    def copyout_ranges(
        self, destination: memoryview, handle: DiskRegion, starts: Sequence[int]
    ) -> None:
        """Concatenates byte ranges of equal length, at offsets `starts`, into `destination`."""
        range_bytes = destination.nbytes // len(starts)
        with contextlib.closing(handle.file.open_for_reading()) as file:
            for number, start in enumerate(starts):
                part = destination[number * range_bytes : (number + 1) * range_bytes]
                handle.file.read(file, handle.offset + start, part)

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[DiskRegion, Any]:
        return DiskRegion(DiskFile(self.path, nbytes), 0), None

    def _count(self, nbytes: int) -> None:
        """Files do not count as memory in use."""


def open_device(name: str) -> Compiled:
    """Opens the device of one file. Raises DeviceError if the name has no path."""
    if not name.partition(":")[2]:
        raise DeviceError("DISK needs a path: DISK:/path/to/file")
    return Compiled(name, DiskAllocator(name), is_host_source=True)
