"""Where the elements of a view of memory, or of a file, are.

Input: a chain of movement ops and bitcasts of a BUFFER. Output: the byte ranges in it that hold the
elements of the view, in row-major order, or an array of them. Invariant: nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tinygrad.dtype import to_numpy_dtype
from tinygrad.helpers import all_int
from tinygrad.storage.host.values import apply_movement
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import FILE_VIEWS

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


_REORDERED = frozenset({Ops.WINDOW, Ops.UNWINDOW})


class ByteRanges(NamedTuple):
    """Ranges of bytes, each from one of `starts` to the same of `stops`."""

    starts: list[int]
    stops: list[int]


def byte_ranges(view: UOp) -> tuple[UOp, ByteRanges]:
    """The BUFFER that a view reads, and where. Raises RuntimeError for a view of which elements
    share bytes, or are no bytes of the file.
    """
    node, chain = _chain(view)
    assert node.op is Ops.BUFFER, f"{node.op.name} is in a file"
    if 0 in view.shape:
        return node, ByteRanges([], [])
    return node, _layout(node, chain).ranges(view.dtype.itemsize)


def strided_array(view: UOp) -> Array | None:
    """The elements of a view, which has some, in the memory of its BUFFER, with the dtype of
    `to_numpy_dtype`; None if it is no such view, or no strides tell where they are.
    """
    node, chain = _chain(view)
    if node.op is not Ops.BUFFER or not all_int(node.shape) or not node.is_realized:
        return None
    if any(x.op in _REORDERED or x.dtype.itemsize != node.dtype.itemsize for x in chain):
        return None
    return _layout(node, chain).strided(to_numpy_dtype(view.dtype))


def _chain(view: UOp) -> tuple[UOp, list[UOp]]:
    """What a view is of, and its nodes from there on."""
    chain: list[UOp] = []
    while view.op in FILE_VIEWS:
        chain.append(view)
        view = view.src[0]
    return view, chain[::-1]


def _layout(buffer: UOp, chain: list[UOp]) -> _Layout:
    import numpy as np

    stored = np.frombuffer(buffer.buffer.as_memoryview(), to_numpy_dtype(buffer.dtype))
    layout = _Layout(stored[: prod(buffer.arg.shape)].reshape(buffer.arg.shape))
    for move in chain:
        layout.apply(move)
    return layout


class _Layout:
    """The elements of a view: an array over the memory as long as strides describe them, then the
    number of the first byte of each, -1 for padding.
    """

    def __init__(self, stored: Array) -> None:
        self._stored = stored
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

    def strided(self, dtype: Any) -> Array | None:
        """The elements in the memory; None if no strides tell where they are."""
        import numpy as np

        first = self.first_bytes
        if first is None or first.min() < 0:
            return self.elements
        start = int(first.flat[0])
        second = [first.take(min(1, size - 1), axis) for axis, size in enumerate(first.shape)]
        strides = [int(x.flat[0]) - start for x in second]
        if not np.array_equal(_grid(start, first.shape, strides), first):
            return None
        return np.ndarray(first.shape, dtype, self._stored, start, strides)

    def _positions(self) -> Array:
        if self.first_bytes is not None:
            return self.first_bytes
        assert self.elements is not None, "one of the two describes the view"
        start = self.elements.__array_interface__["data"][0] - self.start
        return _grid(start, self.elements.shape, self.elements.strides)


def _grid(start: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The number of the first byte of each element."""
    import numpy as np

    found: Array = np.asarray(start, np.int64)
    for size, stride in zip(shape, strides, strict=True):
        found = found[..., None] + np.arange(size, dtype=np.int64) * stride
    return found


def _strided_view(elements: Array, move: UOp) -> Array | None:
    """`elements` after a movement op or bitcast, without a copy; None if that is impossible."""
    if move.op is Ops.BITCAST:
        try:
            return elements.view(to_numpy_dtype(move.dtype))
        except ValueError:
            return None
    if move.op is Ops.PAD or move.op in _REORDERED:
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
    if move.op is Ops.BITCAST or move.op in _REORDERED:
        raise RuntimeError(
            f"a {move.op.name} of reordered elements of a file cannot be written; write to the "
            "bytes themselves"
        )
    assert move.op in GroupOp.Movement or move.op in {Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}
    return apply_movement(first, move)
