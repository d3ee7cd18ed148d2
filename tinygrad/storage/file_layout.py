"""Where the elements of a view of a file are.

Input: a chain of movement ops and bitcasts of a BUFFER in a file. Output: that BUFFER, and the byte
ranges in it that hold the elements of the view, in row-major order. Invariant: nothing is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tinygrad.dtype import to_numpy_dtype
from tinygrad.storage.host.values import apply_movement
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import FILE_VIEWS

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class ByteRanges(NamedTuple):
    """Ranges of bytes, each from one of `starts` to the same of `stops`."""

    starts: list[int]
    stops: list[int]


def byte_ranges(view: UOp) -> tuple[UOp, ByteRanges]:
    """The BUFFER that a view reads, and where. Raises RuntimeError for a view of which elements
    share bytes, or are no bytes of the file.
    """
    import numpy as np

    chain: list[UOp] = []
    node = view
    while node.op in FILE_VIEWS:
        chain.append(node)
        node = node.src[0]
    assert node.op is Ops.BUFFER, f"{node.op.name} is in a file"
    if 0 in view.shape:
        return node, ByteRanges([], [])
    stored = np.frombuffer(node.buffer.as_memoryview(), to_numpy_dtype(node.dtype))
    layout = _Layout(stored.reshape(node.arg.shape))
    for move in reversed(chain):
        layout.apply(move)
    return node, layout.ranges(view.dtype.itemsize)


class _Layout:
    """The elements of a view: an array over the mapped file as long as strides describe them, then
    the number of the first byte of each, -1 for padding.
    """

    def __init__(self, stored: Array) -> None:
        self.start = stored.__array_interface__["data"][0]
        self.elements: Array | None = stored
        self.first_bytes: Array | None = None

    def apply(self, move: UOp) -> None:
        """Follow one op of the chain."""
        if self.elements is not None:
            found = _strided_view(self.elements, move)
            if found is not None:
                self.elements = found
                return
            self.first_bytes, self.elements = self._positions(), None
        self.first_bytes = _moved_positions(self._positions(), move)

    def ranges(self, itemsize: int) -> ByteRanges:
        """The byte ranges of the elements, adjacent ones merged."""
        import numpy as np

        if self.elements is not None and self.elements.flags.c_contiguous:
            start = self.elements.__array_interface__["data"][0] - self.start
            return ByteRanges([start], [start + self.elements.nbytes])
        first = self._positions().reshape(-1)
        ordered = np.sort(first)
        if ordered[0] < 0 or (np.diff(ordered) < itemsize).any():
            raise RuntimeError(
                "a view that pads or repeats the bytes of a file cannot be written; write to the "
                "bytes themselves"
            )
        cuts = np.flatnonzero(np.diff(first) != itemsize) + 1
        starts = first[np.concatenate(([0], cuts))]
        stops = first[np.concatenate((cuts, [first.size])) - 1] + itemsize
        return ByteRanges(starts.tolist(), stops.tolist())

    def _positions(self) -> Array:
        import numpy as np

        if self.first_bytes is not None:
            return self.first_bytes
        assert self.elements is not None, "one of the two describes the view"
        interface = self.elements.__array_interface__
        found: Array = np.asarray(interface["data"][0] - self.start, np.int64)
        for size, stride in zip(self.elements.shape, self.elements.strides, strict=True):
            found = found[..., None] + np.arange(size, dtype=np.int64) * stride
        return found


def _strided_view(elements: Array, move: UOp) -> Array | None:
    """`elements` after a movement op or bitcast, without a copy; None if that is impossible."""
    if move.op is Ops.BITCAST:
        try:
            return elements.view(to_numpy_dtype(move.dtype))
        except ValueError:
            return None
    if move.op in {Ops.PAD, Ops.WINDOW, Ops.UNWINDOW}:
        return None
    if move.op is Ops.RESHAPE:
        try:
            return elements.reshape(move.arg, copy=False)
        except ValueError:
            return None
    return apply_movement(elements.view(), move)


def _moved_positions(first: Array, move: UOp) -> Array:
    import numpy as np

    if move.op is Ops.PAD:
        return np.pad(first, move.arg, constant_values=-1)
    if move.op is Ops.BITCAST and move.dtype.itemsize == move.src[0].dtype.itemsize:
        return first
    if move.op in {Ops.BITCAST, Ops.WINDOW, Ops.UNWINDOW}:
        raise RuntimeError(
            f"a {move.op.name} of reordered elements of a file cannot be written; write to the "
            "bytes themselves"
        )
    assert move.op in GroupOp.Movement or move.op in {Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}
    return apply_movement(first, move)
