"""DISK: files as buffers. `DISK:/path` is one file; it runs no kernels.

Input: paths, sizes and bytes. Output: bytes of the file. Invariants: a buffer is in the file that
it opened, also if another one is renamed to its path; nothing past the end of a file is read, and
nothing is written to a file that has lost its path. Reading never changes a file.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from tinygrad.atomic_file import atomic_write
from tinygrad.device import Compiled, DeviceError
from tinygrad.device.allocator import Allocation, Allocator, BufferSpec, FreeLists


class FileError(OSError, DeviceError):
    """A file that is missing, too short, replaced or protected, or that cannot be written."""


_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change its mode, or use another path"),
    errno.ENOENT: "create the folder first",
    errno.EMFILE: "drop tensors in other files, or raise `ulimit -n`",
}


@contextlib.contextmanager
def described(path: Path, attempt: str) -> Iterator[None]:
    """Raises FileError in place of OSError, with the path, what was attempted and the fix."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "use another path")
        found = FileError(f"{path}: cannot {attempt}: {error.strerror or error}; {advice}")
        found.errno = error.errno
        raise found from error


def check_file(path: Path) -> os.stat_result | None:
    """The status of a file, None if there is none. Raises FileError for anything but a file."""
    if "\0" in str(path):
        raise FileError(f"{str(path)!r}: a path has no NUL byte; use another path")
    with described(path, "open it"):
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise FileError(f"{path} is {kind}; a tensor needs the path of a file")
    return status


def replace_file(path: Path, content: memoryview) -> None:
    """Writes a file aside and renames it to `path`, with the mode of a file that is there.

    Raises FileError if `path` is protected or no file, and for a full disk.
    """
    path = path.resolve()
    old = check_file(path)
    with described(path, f"write {content.nbytes} bytes"):
        if old is not None:
            # a rename would replace a protected file too
            os.close(os.open(path, os.O_WRONLY))
        elif not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}")
        with atomic_write(path, durable=True) as file:
            if old is not None:
                os.chmod(file.name, stat.S_IMODE(old.st_mode))
            file.write(content)


class DiskFile:
    """An open file of at least `nbytes` bytes; a missing or empty one is created with zeros.

    Raises FileError if it is shorter, or no file.
    """

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path = path
        self.nbytes = nbytes
        self._map: mmap.mmap | None = None
        self._checks: list[tuple[int, int, Callable[[memoryview], None]]] = []
        status = check_file(path)
        if status is None or (status.st_size == 0 and nbytes):
            self._create(is_missing=status is None)
            status = path.stat()
        if status.st_size < nbytes:
            raise FileError(
                f"{path} has {status.st_size} bytes, fewer than the {nbytes} of the tensor; open "
                "what it has, or remove it to create it anew"
            )
        self.identity = (status.st_dev, status.st_ino)

    def _create(self, is_missing: bool) -> None:
        with described(self.path, f"create it with {self.nbytes} bytes"):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                with os.fdopen(descriptor, "r+b", buffering=0) as file:
                    file.truncate(self.nbytes)
            except OSError:
                if is_missing:
                    self.path.unlink(missing_ok=True)
                raise

    def is_replaced(self) -> bool:
        """Whether the path is missing or another file by now. Raises FileError if it is this file
        and too short.
        """
        try:
            status = self.path.stat()
        except OSError:
            return True
        if (status.st_dev, status.st_ino) != self.identity:
            return True
        if status.st_size < self.nbytes:
            raise FileError(
                f"{self.path} has {status.st_size} bytes, fewer than the {self.nbytes} that it had "
                "when it was opened; it was truncated, open it again"
            )
        return False

    def mapped(self) -> mmap.mmap:
        """The file, mapped read-only. Raises FileError if it is missing, replaced or too short."""
        if self._map is None:
            with contextlib.closing(self.open("rb")) as file:
                self._map = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ)
        else:
            # the mapping stays if another file is renamed to the path, but not if this one shrinks
            self.is_replaced()
        return self._map

    def check_before_reading(
        self, start: int, stop: int, check: Callable[[memoryview], None]
    ) -> None:
        """Lets `check` see a range of bytes before any of them is read; it raises an error for
        damaged ones. A write to the range drops the check.
        """
        bisect.insort(self._checks, (start, stop, check), key=itemgetter(0))

    def _check(self, offset: int, nbytes: int) -> None:
        """Makes the checks of a range that is read."""
        for check in self._checks_of(offset, nbytes):
            start, stop, see = check
            see(memoryview(self.mapped())[start:stop])
            self._drop(check)

    def _checks_of(self, offset: int, nbytes: int) -> list[Any]:
        if not self._checks:
            return self._checks
        end = bisect.bisect_left(self._checks, offset + nbytes, key=itemgetter(0))
        first = max(0, bisect.bisect_right(self._checks, offset, key=itemgetter(0)) - 1)
        return [x for x in self._checks[first:end] if offset < x[1]]

    def _drop(self, check: Any) -> None:
        with contextlib.suppress(ValueError):
            # another thread may have read the range too
            self._checks.remove(check)

    def keep(self) -> None:
        """Keeps the content for the tensors in it, before another file is renamed to the path.

        The content of a file that was truncated is lost already.
        """
        if self.nbytes:
            with contextlib.suppress(FileError):
                self.mapped()

    def open(self, mode: str) -> Any:
        """Opens the file, unbuffered. Raises FileError if it is missing, replaced or too short."""
        attempt = "read it" if mode == "rb" else "write to it"
        if self.is_replaced():
            raise FileError(
                f"{self.path} was removed or replaced by another file since it was opened; cannot "
                f"{attempt}, open it again with Tensor(pathlib.Path(...)) or Tensor.empty(...)"
            )
        with described(self.path, attempt):
            return open(self.path, mode, buffering=0)

    def read(self, file: Any, offset: int, destination: memoryview) -> None:
        """Fills `destination` from the open file. Raises FileError at an early end of file."""
        file.seek(offset)
        while destination.nbytes:
            count = file.readinto(destination)
            if not count:
                raise FileError(f"{self.path} was truncated while it was read")
            destination = destination[count:]

    def read_ranges(self, offsets: Iterable[int], parts: Iterable[memoryview]) -> None:
        """Fills each of `parts` from its offset."""
        pairs = list(zip(offsets, parts, strict=True))
        for offset, part in pairs:
            self._check(offset, part.nbytes)
        if self._map is not None and self.is_replaced():
            for offset, part in pairs:
                part[:] = memoryview(self._map)[offset : offset + part.nbytes]
            return
        with contextlib.closing(self.open("rb")) as file:
            for offset, part in pairs:
                self.read(file, offset, part)

    def write_ranges(self, offsets: Iterable[int], parts: Iterable[memoryview]) -> None:
        """Writes each of `parts` at its offset. Raises FileError if the file is missing, replaced,
        too short or read-only, and for a full disk.
        """
        with contextlib.closing(self.open("r+b")) as file:
            for offset, part in zip(offsets, parts, strict=True):
                for check in self._checks_of(offset, part.nbytes):
                    self._drop(check)
                with described(self.path, f"write {part.nbytes} bytes at {offset}"):
                    _write_all(file, offset, part)


def _write_all(file: Any, offset: int, part: memoryview) -> None:
    file.seek(offset)
    while part.nbytes:
        part = part[file.write(part) :]


class DiskRegion:
    """The handle of a buffer: a file and a byte offset."""

    def __init__(self, file: DiskFile, offset: int) -> None:
        self.file = file
        self.offset = offset


class DiskAllocator(Allocator):
    """Allocates buffers that all refer to one file, which is opened or created."""

    counts = False

    def __init__(self, device: str) -> None:
        # a freed mapping is of no use to another buffer
        super().__init__(device, FreeLists(0))
        self.path = path_of(device)

    def offset(self, handle: DiskRegion, nbytes: int) -> DiskRegion:
        return DiskRegion(handle.file, handle.offset + nbytes)

    def as_memoryview(self, allocation: Allocation, offset: int, nbytes: int) -> memoryview:
        if nbytes == 0:
            return memoryview(b"")
        file: DiskFile = allocation.handle.file
        file._check(offset, nbytes)
        return memoryview(file.mapped())[offset : offset + nbytes]

    def copyin(self, handle: DiskRegion, source: memoryview) -> None:
        handle.file.write_ranges((handle.offset,), (source,))

    def copyout(self, destination: memoryview, handle: DiskRegion) -> None:
        self.copyout_ranges(destination, handle, (0,))

    def copyin_ranges(
        self, handle: DiskRegion, starts: Sequence[int], stops: Sequence[int], source: memoryview
    ) -> None:
        """Writes `source` to the byte ranges `starts` to `stops`, one after the other."""
        parts, at = [], 0
        for start, stop in zip(starts, stops, strict=True):
            parts.append(source[at : at + stop - start])
            at += stop - start
        handle.file.write_ranges((handle.offset + start for start in starts), parts)

    def copyout_ranges(
        self, destination: memoryview, handle: DiskRegion, starts: Sequence[int]
    ) -> None:
        """Concatenates byte ranges of equal length, at offsets `starts`, into `destination`."""
        size = destination.nbytes // len(starts)
        parts = [destination[n * size : (n + 1) * size] for n in range(len(starts))]
        handle.file.read_ranges((handle.offset + start for start in starts), parts)

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[DiskRegion, Any]:
        return DiskRegion(DiskFile(self.path, nbytes), 0), None


def path_of(device: str) -> Path:
    """The path of a device "DISK:path". Raises DeviceError if the name has no path."""
    path = device.partition(":")[2]
    if not path:
        raise DeviceError("DISK needs a path: DISK:/path/to/file")
    return Path(path)


def open_device(name: str) -> Compiled:
    """Opens the device of one file. Raises DeviceError if the name has no path."""
    return Compiled(name, DiskAllocator(name), is_host_source=True)
