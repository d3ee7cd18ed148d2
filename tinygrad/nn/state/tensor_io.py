"""A tensor of bytes as a Python file object."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.nn.state.file_bytes import bytes_of_file, memory_of
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class TensorIO(io.RawIOBase, io.BufferedIOBase):
    """A read-only binary file over `t`, a tensor of bytes, `(n,)` of uint8.

    Only requested bytes are read or moved to the host. Many small reads are faster through
    `io.BufferedReader(TensorIO(t))`. Raises ValueError for another dtype or shape.

    >>> file = nn.state.TensorIO(Tensor(b"hello world"))
    >>> file.seek(6)
    6
    >>> file.read()
    b'world'
    """

    def __init__(self, t: Tensor) -> None:
        super().__init__()
        self._memory = memory_of(bytes_of_file(t))
        self._position = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes, or all that are left; fewer at the end."""
        return bytes(self._take(self._memory.nbytes if size is None or size < 0 else size))

    def read1(self, size: int | None = -1, /) -> bytes:
        """As `read`."""
        return self.read(size)

    def readall(self) -> bytes:
        """All bytes that are left."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fills `buffer` with the next bytes; returns how many there were."""
        destination = memoryview(buffer).cast("B")
        content = self._take(destination.nbytes)
        destination[: content.nbytes] = content
        return content.nbytes

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        """As `readinto`."""
        return self.readinto(buffer)

    def write(self, data: ReadableBuffer, /) -> int:
        """Raises UnsupportedOperation."""
        raise io.UnsupportedOperation("the bytes of a tensor are only read")

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Goes to a byte, counted from the start, from here or from the end; returns which.

        Raises ValueError for a place before the start.
        """
        self._check_open()
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._memory.nbytes}
        if whence not in starts:
            raise ValueError(f"seek: whence is 0, 1 or 2, not {whence}")
        position = starts[whence] + offset
        if position < 0:
            raise ValueError(f"seek: there is no byte {position}")
        self._position = position
        return position

    def tell(self) -> int:
        """The number of the next byte."""
        self._check_open()
        return self._position

    def _take(self, size: int) -> memoryview:
        self._check_open()
        start = min(self._position, self._memory.nbytes)
        count = min(size, self._memory.nbytes - start)
        if count == 0:
            return memoryview(b"")
        self._position = start + count
        return self._memory.view(count, dtypes.uint8, start).as_memoryview()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")
