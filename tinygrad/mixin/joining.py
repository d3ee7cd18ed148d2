"""Concatenation, stacking, padding, rolling, grids and diagonals.

Input: tensors that agree in all axes but one. Output: one tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.mixin.creation import CreationMixin
from tinygrad.mixin.movement.reshape import Padding
from tinygrad.mixin.sharding.known_rows import MAX_KNOWN_ROWS, gather_known
from tinygrad.uop import Ops
from tinygrad.uop.arguments import integer_argument, size_argument
from tinygrad.uop.broadcast import broadcast_shape
from tinygrad.uop.ops import UOp, resolve, sint
from tinygrad.uop.reshard import shard_count
from tinygrad.uop.sint import index_dtype, same_shape, same_size, smin

MAX_JOINED = 32
"""The parts that `cat` joins at once; more of them are joined in groups first."""
_MODES = ("constant", "reflect", "replicate", "circular")


class JoiningMixin(CreationMixin):
    """`cat`, `stack`, `pad`, `roll`, `meshgrid`, `diag`, `diagonal`."""

    __slots__ = ()

    def cat(self, *args: Self | Sequence[Self], dim: int = 0) -> Self:
        """Concatenate along `dim`, in the common dtype. Takes tensors, or a sequence of them.

        Raises ValueError unless the sizes of all other axes agree.

        >>> Tensor([[1, 2]]).cat(Tensor([[3, 4]]), dim=1).tolist()
        [[1, 2, 3, 4]]
        >>> Tensor.cat([Tensor([1]), Tensor([2])]).tolist()
        [1, 2]
        """
        first, *rest = _tensors("cat", self, args)
        joined: Self = first._cat(rest, dim)
        return joined

    def _cat(self, args: Sequence[Self], dim: int) -> Self:
        axis = self._with_axes("cat")._axis(dim)
        for x in args:
            rest = [(a, b) for i, (a, b) in enumerate(zip(self.shape, x.shape)) if i != axis]
            if x.ndim != self.ndim or not all(same_size(a, b) for a, b in rest):
                raise ArgumentError(
                    f"cat along axis {axis}: shapes {self.shape} and {x.shape} differ elsewhere too"
                )
        dtype = least_upper_dtype(self.dtype, *(x.dtype for x in args))
        parts = [x.uop.cast(dtype) for x in self._beside(*args)]
        while len(parts) > 1:
            # a part of a part is computed at few elements only
            groups = range(0, len(parts), MAX_JOINED)
            parts = [_joined(parts[i : i + MAX_JOINED], axis, dtype) for i in groups]
        return self._derive(parts[0], *args)

    def stack(self, *args: Self | Sequence[Self], dim: int = 0) -> Self:
        """Stack tensors of one shape along a new axis `dim`. Takes tensors, or a sequence of them.

        >>> Tensor([1, 2]).stack(Tensor([3, 4]), dim=1).tolist()
        [[1, 3], [2, 4]]
        >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
        """
        tensors = _tensors("stack", self, args)
        for x in tensors[1:]:
            if not same_shape(x.shape, tensors[0].shape):
                raise ArgumentError(
                    f"stack takes tensors of one shape, not {tensors[0].shape} and {x.shape}; "
                    "reshape them first, or join them along an axis that they have with cat"
                )
        first, *rest = (x.unsqueeze(dim) for x in tensors)
        joined: Self = first._cat(rest, dim)
        return joined

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Roll along axes: elements past the end reappear at the start. None rolls the flat tensor.

        Raises ValueError unless there are as many shifts as axes.

        >>> Tensor.arange(4).roll(1).tolist()
        [3, 0, 1, 2]
        """
        given = shifts if isinstance(shifts, Sequence) else (shifts,)
        by = tuple(size_argument("roll", "shifts", shift) for shift in given)
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        axes = tuple(map(self._axis, dims if isinstance(dims, Sequence) else (dims,)))
        if len(by) != len(axes):
            raise ArgumentError(f"roll: {len(by)} shifts for {len(axes)} axes")
        x = self
        for shift, axis in zip(by, axes):
            size = x.shape[axis]
            cut = size - shift % size if size else 0
            if not same_size(cut, size):
                x = x._slice_axis(axis, cut, size).cat(x._slice_axis(axis, 0, cut), dim=axis)
        # a new value, also where nothing moves
        return self._derive(self.uop) if x is self else x

    def _slice_axis(self, axis: int, start: sint, end: sint) -> Self:
        """Elements `start` to `end` along one axis."""
        return self.shrink(tuple((start, end) if i == axis else None for i in range(self.ndim)))

    def meshgrid(self, *args: Self | Sequence[Self], indexing: str = "ij") -> tuple[Self, ...]:
        """Coordinate grids of vectors; `indexing="xy"` swaps the first two axes.

        Raises RuntimeError for another `indexing`.

        >>> [x.tolist() for x in Tensor([1, 2]).meshgrid(Tensor([3, 4]))]
        [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
        """
        if indexing not in ("ij", "xy"):
            raise ArgumentError(f'meshgrid: indexing must be "ij" or "xy", not {indexing!r}')
        vectors = _tensors("meshgrid", self, args)
        count = len(vectors)
        order = list(range(count))
        if indexing == "xy" and count > 1:
            order[:2] = [1, 0]
        aligned = [
            x.reshape(tuple(-1 if i == own else 1 for i in range(count)))
            for x, own in zip(vectors, order)
        ]
        grid = broadcast_shape(*(x.shape for x in aligned))
        return tuple(x._broadcast_to(grid) for x in aligned)

    # ---- padding ----

    def pad(
        self,
        padding: Sequence[sint] | Sequence[tuple[sint, sint] | None],
        mode: str = "constant",
        value: float = 0.0,
    ) -> Self:
        """Pad before and after each axis; negative numbers crop.

        `padding` is (before, after) or None for each axis, or flat: before and after of the last
        axis, of the one before it, and so on. `mode` is "constant" (with `value`), "reflect",
        "replicate" or "circular". Raises ValueError for padding that does not fit,
        NotImplementedError for an unknown mode.

        >>> Tensor([1, 2, 3]).pad((1, 2), value=9).tolist()
        [9, 1, 2, 3, 9, 9]
        >>> Tensor([1, 2, 3]).pad((1, 2), mode="reflect").tolist()
        [2, 1, 2, 3, 2, 1]
        """
        if mode not in _MODES:
            raise NotImplementedError(f"pad: mode {mode!r} is not one of {', '.join(_MODES)}")
        pairs = self._pairs(padding)
        if mode != "constant":
            return self._pad_with_elements(pairs, mode)
        padded = self._padded(pairs)
        if value == 0:
            return padded
        inside = self._new(self.ones_like(dtype=dtypes.bool, device=None).uop, False)._padded(pairs)
        return inside.where(padded, value)

    def _pairs(self, padding: Sequence[Any]) -> Padding:
        """Padding as (before, after) for each axis."""
        if not isinstance(padding, Sequence) or isinstance(padding, str):
            raise TypeError(
                f"pad takes (before, after) for each axis, or numbers from the last axis on, not "
                f"{padding!r}"
            )
        if padding and not any(p is None or isinstance(p, (tuple, list)) for p in padding):
            if len(padding) % 2:
                raise ArgumentError(f"pad{tuple(padding)}: flat padding comes in pairs")
            flat = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
            padding = [(0, 0)] * (self.ndim - len(flat)) + flat[::-1]
        found = [(0, 0) if p is None else p for p in padding]
        if not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in found):
            raise ArgumentError(f"pad: {padding!r} mixes numbers with (before, after) of an axis")
        pairs = tuple(
            (size_argument("pad", "before", a), size_argument("pad", "after", b)) for a, b in found
        )
        if len(pairs) != self.ndim:
            raise ArgumentError(f"pad: padding {tuple(padding)} does not fit shape {self.shape}")
        return pairs

    def _pad_with_elements(self, pairs: Padding, mode: str) -> Self:
        """Pad in the modes that repeat elements."""
        x = self
        for axis, (first, last) in enumerate(pairs):
            before, after = int(first), int(last)
            if not before and not after:
                continue
            if resolve(x.shape[axis] + before + after < 0, False):
                raise ArgumentError(
                    f"pad: the axis {axis} of size {x.shape[axis]} by {before} and {after} would "
                    "have a negative size"
                )
            found = x._pad_shards(axis, before, after, mode)
            if found is not None:
                x = found
                continue
            if mode == "circular":
                x = x._crop(axis, before, after)
            first_part = [x._border(axis, before, mode, True)] if before > 0 else []
            last_part = [x._border(axis, after, mode, False)] if after > 0 else []
            parts = [*first_part, x, *last_part]
            x = parts[0]._cat(parts[1:], axis)
            if mode != "circular":
                # as in torch, padding shows what is cropped on the other side
                x = x._crop(axis, before, after)
        # a new value, also where nothing is padded
        return self._derive(self.uop) if x is self else x

    def _pad_shards(self, axis: int, before: int, after: int, mode: str) -> Self | None:
        """A sharded axis padded by elements that are near on each device; None where `cat` does."""
        size = self.shape[axis]
        if shard_count(self.uop, axis) == 1 or mode == "circular" or not isinstance(size, int):
            return None
        if before < 0 or after < 0 or max(before, after) > size - (mode == "reflect"):
            return None
        if size + before + after > MAX_KNOWN_ROWS:
            return None
        last = size - 1
        index: Any = self.arange(-before, size + after, dtype=index_dtype(2 * size))
        numbers = range(-before, size + after)
        if mode == "replicate":
            index = index.clip(0, last)
            numbers_of = [min(max(i, 0), last) for i in numbers]
        else:
            index = last - (last - index.abs()).abs()
            numbers_of = [last - abs(last - abs(i)) for i in numbers]
        node = gather_known(self.uop, axis, index.uop, [(i,) for i in numbers_of])
        if node is None:
            return None
        order = (*range(1, axis + 1), 0, *range(axis + 1, self.ndim))
        return self._derive(node.permute(order))

    def _crop(self, axis: int, before: int, after: int) -> Self:
        """Without as many elements as negative padding removes."""
        return self._slice_axis(axis, max(-before, 0), self.shape[axis] - max(-after, 0))

    def _border(self, axis: int, count: int, mode: str, before: bool) -> Self:
        size = self.shape[axis]
        if count > size - (mode == "reflect") and (mode != "replicate" or not size):
            raise ArgumentError(
                f"pad: {count} is too large for an axis of size {size} in mode {mode}"
            )
        if mode == "circular":
            return (
                self._slice_axis(axis, size - count, size)
                if before
                else self._slice_axis(axis, 0, count)
            )
        if mode == "reflect":
            start = 1 if before else size - 1 - count
            return self._slice_axis(axis, start, start + count).flip(axis)
        edge = self._slice_axis(axis, 0, 1) if before else self._slice_axis(axis, size - 1, size)
        return edge.expand(tuple(count if i == axis else s for i, s in enumerate(self.shape)))

    # ---- diagonals ----

    def diag(self) -> Self:
        """A square matrix with this vector as diagonal. Raises ValueError for other shapes.

        >>> Tensor([1, 2]).diag().tolist()
        [[1, 0], [0, 2]]
        """
        if self.ndim != 1:
            raise ArgumentError(f"diag takes a vector, not shape {self.shape}")
        n = self.shape[0]
        return (
            self.unsqueeze(-1).pad(((0, 0), (0, n))).flatten().shrink(((0, n * n),)).reshape(n, n)
        )

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonals of matrices of the axes `dim1` and `dim2`, a view: the new last axis.

        `offset` is the number of columns to the right, or below 0 of rows down. Raises ValueError
        for a tensor of fewer than two axes, and for equal axes.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).diagonal(1).tolist()
        [2, 6]
        """
        if self.ndim < 2:
            raise ArgumentError(f"diagonal takes matrices, not shape {self.shape}")
        row, column = self._axis(dim1), self._axis(dim2)
        if row == column:
            raise ArgumentError(f"diagonal: dim1={dim1} and dim2={dim2} are one axis")
        offset = integer_argument("diagonal", "offset", offset)
        others = tuple(i for i in range(self.ndim) if i not in (row, column))
        x = self.permute((*others, row, column))
        start, n = _diagonal_block(x.shape[-2], x.shape[-1], offset)
        around = (None,) * len(others)
        block = x.shrink((*around, (start[0], start[0] + n), (start[1], start[1] + n)))
        pairs = (*((0, 0),) * len(others), (0, n))
        rows = block.flatten(-2)._padded_view(pairs)
        rows = rows.reshape((*rows.shape[:-1], n, n + 1))
        return rows.shrink((*around, None, (0, 1))).squeeze(-1)


def _diagonal_block(rows: sint, columns: sint, offset: int) -> tuple[tuple[sint, sint], sint]:
    """The first position, and the size, of the square block with this diagonal of a matrix."""
    down, right = smin(max(-offset, 0), rows), smin(max(offset, 0), columns)
    height, width = rows - down, columns - right
    return (down, right), height if same_size(height, width) else smin(height, width)


def _tensors(op: str, first: Any, rest: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors of a call that takes them one by one, in a sequence, or the first before one.

    Raises TypeError for anything else, and for none.
    """
    items = (first, *rest)
    if len(items) < 3 and isinstance(items[-1], (list, tuple)):
        items = (*items[:-1], *items[-1])
    wrong = [x for x in items if not isinstance(x, JoiningMixin)]
    if wrong or not items:
        raise TypeError(f"{op} takes tensors, not {wrong[0]!r}" if wrong else f"{op} of no tensors")
    return items


def _joined(parts: list[UOp], axis: int, dtype: DType) -> UOp:
    """The concatenation of a few parts of one dtype along an axis."""
    total: sint = sum(part.shape[axis] for part in parts)
    start: sint = 0
    result: UOp | None = None
    for part in parts:
        size = part.shape[axis]
        around: list[tuple[sint, sint]] = [(0, 0)] * part.ndim
        around[axis] = (start, total - start - size)
        padded = part.pad(tuple(around))
        result = padded if result is None else _add_disjoint(result, padded, dtype)
        start = start + size
    assert result is not None
    return result


def _add_disjoint(a: UOp, b: UOp, dtype: DType) -> UOp:
    """The sum of values of which at most one is nonzero."""
    return a.alu(Ops.OR, b) if dtype is dtypes.bool else a.alu(Ops.ADD, b)
