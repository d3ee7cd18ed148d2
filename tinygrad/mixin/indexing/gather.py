"""Gather and scatter along an axis, one-hot encoding, and selection by a mask.

Input: a tensor, and for each element of the result (gather) or of the source (scatter) an index
along `dim`. Output: the gathered elements, or a new tensor with the scattered ones. Indices out of
range read as 0 and are not written. A gather costs the size of its result; a scatter costs the size
of the tensor and of the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

from tinygrad.dtype import ConstType, dtypes, sum_acc_dtype
from tinygrad.errors import ArgumentError
from tinygrad.helpers import argsort, prod
from tinygrad.mixin.core import TensorCore, check_tensors
from tinygrad.mixin.elementwise.arithmetic import reverse_order
from tinygrad.mixin.indexing.getitem import IndexingMixin
from tinygrad.mixin.reduction.cumulative import CumulativeMixin
from tinygrad.uop import Ops
from tinygrad.uop.arguments import integer_argument
from tinygrad.uop.ops import resolve, sint
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS, identity
from tinygrad.uop.reshard import any_sharded
from tinygrad.uop.sint import index_dtype

T = TypeVar("T", bound=IndexingMixin)
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@dataclass(frozen=True)
class GatherRows:
    """Rows to gather from: `axis` and the axes `inner` to it, merged into one axis; the axes
    `batch` enumerate the rows.

    Memory is read in order then. If any axis is sharded, all other axes are batch axes, so that
    each device gathers from its own shard.
    """

    batch: tuple[int, ...]
    axis: int
    inner: tuple[int, ...]

    @classmethod
    def along(cls, axis: int, *tensors: TensorCore) -> GatherRows:
        """The rows along `axis` of these tensors, which have the same number of axes."""
        outer, inner = tuple(range(axis)), tuple(range(axis + 1, tensors[0].ndim))
        if any_sharded(x.uop for x in tensors):
            return cls((*outer, *inner), axis, ())
        return cls(outer, axis, inner)

    @property
    def order(self) -> tuple[int, ...]:
        """All axes, batch axes first."""
        return (*self.batch, self.axis, *self.inner)

    def count(self, shape: tuple[sint, ...]) -> sint:
        """The number of elements in a row of a tensor of `shape`."""
        found: sint = prod([shape[i] for i in self.order[len(self.batch) :]])
        return found

    def merge(self, x: T) -> T:
        """A tensor with each row merged into the last axis."""
        sizes = tuple(x.shape[i] for i in self.batch)
        return x.permute(self.order).reshape((*sizes, self.count(x.shape)))

    def split(self, x: T, shape: tuple[sint, ...]) -> T:
        """The inverse of `merge`."""
        whole = x.reshape(tuple(shape[i] for i in self.order))
        return whole.permute(tuple(argsort(self.order)))

    def positions(self, index: T, shape: tuple[sint, ...]) -> T:
        """Indices along `axis` as positions in the rows of `shape`; -1 where out of range."""
        if not self.inner:
            return self.merge(index)
        dtype = index_dtype(self.count(shape))
        inside = (index >= 0) & (index < shape[self.axis])
        position: Any = index.cast(dtype)
        for i in self.inner:
            beside = tuple(shape[i] if k == i else 1 for k in range(len(shape)))
            position = position * shape[i] + index.arange(shape[i], dtype=dtype).reshape(beside)
        return self.merge(inside.where(position, -1))


class GatherMixin(IndexingMixin, CumulativeMixin):
    """`gather`, `scatter`, `one_hot`, `masked_select`, `nonzero`."""

    __slots__ = ()

    def gather(self, dim: int, index: Self) -> Self:
        """Gather along `dim`: `out[i][j] = self[index[i][j]][j]` for dim 0. Same shape as `index`.

        Raises ValueError if `index` has another number of axes, or is longer in another axis.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0, 0], [1, 0]])).tolist()
        [[1, 1], [4, 3]]
        """
        axis = self._axis(dim)
        self._check_index("gather", axis, index)
        table = self._shrink_other_axes(index.shape, axis)
        if not self.ndim:
            return table
        rows = GatherRows.along(axis, table, index)
        found = rows.merge(table)._gather_last(rows.positions(index, table.shape))
        return rows.split(found, index.shape)

    def _gather_last(self, positions: Self) -> Self:
        """Gather along the last axis, with the other axes as batch."""
        return self._derive(self.uop.gather(positions.uop, positions.ndim - 1))

    def _check_index(self, op: str, axis: int, index: TensorCore) -> None:
        check_tensors(op, index=index)
        if index.ndim != self.ndim:
            raise ArgumentError(
                f"{op}: index of shape {index.shape} does not have {self.ndim} axes"
            )
        if not dtypes.is_int(index.dtype):
            raise ArgumentError(f"{op}: indices are integers, not {index.dtype}")
        pairs = [(a, b) for i, (a, b) in enumerate(zip(index.shape, self.shape)) if i != axis]
        if any(resolve(a > b, False) for a, b in pairs):
            raise ArgumentError(
                f"{op} along axis {axis}: index of shape {index.shape} is larger than {self.shape}"
            )

    def _shrink_other_axes(self, shape: tuple[Any, ...], axis: int) -> Self:
        """Shrink every axis but `axis` to its size in `shape`."""
        return self.shrink_to(tuple(None if i == axis else s for i, s in enumerate(shape)))

    # ---- scatter ----

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """Scatter along `dim` into a copy: `out[index[i][j]][j] = src[i][j]` for dim 0.

        `reduce` "add" or "multiply" combines with the old values; otherwise the last of equal
        indices wins. `src` may be a number. Raises TypeError for another `reduce`.

        >>> Tensor([0, 0, 0]).scatter(0, Tensor([2, 0]), Tensor([5, 7])).tolist()
        [7, 0, 5]
        """
        if reduce not in (None, "add", "multiply"):
            raise TypeError(f'scatter: reduce={reduce!r} is not None, "add" or "multiply"')
        source = self._scatter_source(index, src)
        if reduce is not None:
            kind = "sum" if reduce == "add" else "prod"
            return self.scatter_reduce(dim, index, source, kind)
        axis, source = self._checked_scatter(dim, index, source)
        rows = GatherRows.along(axis, self, index, source)
        shape = _with_size(index.shape, axis, self.shape[axis])
        writer = rows.positions(index, shape)._last_writer(rows.count(shape))
        put = rows.split(rows.merge(source)._gather_last(writer), shape)
        written = rows.split(writer >= 0, shape)
        return self._pad_to_shape_of_self(written, False).where(
            self._pad_to_shape_of_self(put, 0), self
        )

    def _scatter_source(self, index: Self, src: Any) -> Self:
        check_tensors("scatter", index=index)
        if isinstance(src, TensorCore):
            return cast(Self, src).cast(self.dtype)
        return self.full(index.shape, src, dtype=self.dtype)

    def _checked_scatter(self, dim: int, index: Self, src: Self) -> tuple[int, Self]:
        axis = self._axis(dim)
        self._check_index("scatter", axis, index)
        if src.ndim != index.ndim or any(
            resolve(a > b, False) for a, b in zip(index.shape, src.shape)
        ):
            raise ArgumentError(f"scatter: index {index.shape} is larger than source {src.shape}")
        return axis, src.shrink_to(index.shape)

    def _scatter_combined(self, op: Ops, axis: int, index: Self, src: Self) -> Self:
        """`src` scattered along `axis` and combined by `op`, in the shape of this tensor."""
        wide = src.dtype if op is Ops.SCATTER_MAX else sum_acc_dtype(src.dtype)
        rows = GatherRows.along(axis, self, index, src)
        shape = _with_size(index.shape, axis, self.shape[axis])
        values, positions = rows.merge(src.cast(wide)), rows.positions(index, shape)
        combined = values.uop.scatter(op, positions.uop, rows.count(shape), positions.ndim - 1)
        put = rows.split(values._derive(combined), shape)
        return self._pad_to_shape_of_self(put, identity(SCATTER_REDUCE_OPS[op], wide)).cast(
            src.dtype
        )

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """Scatter along `dim`, combining values with equal indices by `reduce`: "sum", "prod",
        "mean", "amax" or "amin"; with the old values too if `include_self`.

        Raises RuntimeError for another `reduce`, and for a `src` of another dtype.

        >>> x = Tensor([1, 1])
        >>> x.scatter_reduce(0, Tensor([0, 0]), Tensor([2, 3]), "sum").tolist()
        [6, 1]
        """
        if reduce not in _REDUCTIONS:
            raise ArgumentError(
                f"scatter_reduce: {reduce!r} is not one of {', '.join(_REDUCTIONS)}"
            )
        if src.dtype is not self.dtype:
            raise ArgumentError(
                f"scatter_reduce: src is of {src.dtype}, not of {self.dtype}; cast it first"
            )
        axis, source = self._checked_scatter(dim, index, src)
        base, counts = self, None
        if not include_self or reduce == "mean":
            ones = source.ones_like(dtype=dtypes.int32, device=None)
            counts = self._scatter_combined(Ops.SCATTER_ADD, axis, index, ones)
        if counts is not None and not include_self:
            base = (counts > 0).where(_identity(self, reduce), self)
        if reduce == "prod":
            return base * self._scatter_combined(Ops.SCATTER_MUL, axis, index, source)
        if reduce == "amax":
            return base.maximum(self._scatter_combined(Ops.SCATTER_MAX, axis, index, source))
        if reduce == "amin":
            turned = source._derive(reverse_order(source.uop))
            largest = self._scatter_combined(Ops.SCATTER_MAX, axis, index, turned)
            return base.minimum(largest._derive(reverse_order(largest.uop)))
        total = base + self._scatter_combined(Ops.SCATTER_ADD, axis, index, source)
        if counts is None or reduce == "sum":
            return total
        parts = counts + 1 if include_self else (counts > 0).where(counts, 1)
        return total.div(parts, rounding_mode=None if total.is_floating_point() else "floor")

    def _pad_to_shape_of_self(self, x: Self, value: Any) -> Self:
        """`x` padded at the end of each axis with `value`, to the shape of this tensor."""
        pairs = tuple((0, size - old) for size, old in zip(self.shape, x.shape, strict=True))
        return x.pad(pairs, value=value)

    # ---- classes and masks ----

    def one_hot(self, num_classes: int = -1) -> Self:
        """One-hot encoding: a new last axis, 1 at the index of the class and 0 elsewhere.

        `num_classes=-1` takes one more than the maximum, which is computed at once.
        Raises RuntimeError unless the elements are integers, ValueError for fewer classes.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        if not dtypes.is_int(self.dtype):
            raise ArgumentError(f"one_hot takes integers, not {self.dtype}; cast them with .int()")
        num_classes = integer_argument("one_hot", "num_classes", num_classes)
        if num_classes < -1 or (num_classes == -1 and self.numel() == 0):
            raise ArgumentError(f"one_hot({num_classes}) of shape {self.shape}: give num_classes")
        count = int(self.max().item()) + 1 if num_classes == -1 else num_classes
        class_numbers = self._positions_along(count).reshape((1,) * self.ndim + (count,))
        return self.unsqueeze(-1).eq(class_numbers).where(1, 0)

    def masked_select(self, mask: Self, size: int | None = None, fill_value: ConstType = 0) -> Self:
        """The elements where `mask`, broadcast, is true, as a vector.

        Computes the mask at once, unless `size` is given: then the result has that size, cut off or
        filled with `fill_value`, and is lazy. Raises RuntimeError unless the dtype of the mask is
        bool.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True]), size=4).tolist()
        [1, 3, 0, 0]
        """
        check_tensors("masked_select", mask=mask)
        if mask.dtype is not dtypes.bool:
            raise ArgumentError(
                f"masked_select takes a mask of bools, not {mask.dtype}; pass mask != 0"
            )
        chosen = mask._broadcast_to(self.shape)._true_positions("masked_select", size)
        found = self.flatten()._gather_last(chosen)
        return found if size is None else (chosen < 0).where(fill_value, found)

    def nonzero(self, size: int | None = None, fill_value: int = 0) -> Self:
        """The index of each element that is not 0, in rows of shape (n, ndim), as int32.

        Computes the tensor at once, unless `size` is given: then there are that many rows, cut off
        or filled with `fill_value`, and they are lazy. Raises ValueError for a negative size.

        >>> Tensor([[1, 0], [2, 3]]).nonzero().tolist()
        [[0, 0], [1, 0], [1, 1]]
        >>> Tensor([0, 5, 0]).nonzero(size=2, fill_value=-1).tolist()
        [[1], [-1]]
        """
        chosen = self.ne(0)._true_positions("nonzero", size)
        columns = []
        for axis in range(self.ndim):
            inner = prod(self.shape[axis + 1 :])
            columns.append(chosen.idiv(inner).mod(self.shape[axis]))
        if not columns:
            return chosen.reshape(-1, 1).shrink((None, (0, 0)))
        rows = columns[0].stack(columns[1:], dim=-1)
        return rows if size is None else (chosen < 0).unsqueeze(-1).where(fill_value, rows)

    def _true_positions(self, op: str, size: int | None) -> Self:
        """The positions of the true elements of this flattened mask: all, computed at once, or
        `size` of them, negative past the last.
        """
        mask = self.flatten()
        dtype = index_dtype(mask.shape[0])
        if size is None:
            import numpy as np

            return self._from_host(np.flatnonzero(mask.numpy()), dtype)
        size = integer_argument(op, "size", size)
        if size < 0:
            raise ArgumentError(f"{op}: size={size} must not be negative")
        rank = mask.cast(dtype).cumsum() - 1
        return mask.where(rank, -1)._last_writer(size)


def _with_size(shape: tuple[sint, ...], axis: int, size: sint) -> tuple[sint, ...]:
    return tuple(size if i == axis else old for i, old in enumerate(shape))


def _identity(x: TensorCore, reduce: str) -> Any:
    """The identity element of a reduction."""
    if reduce == "amax":
        return dtypes.min(x.dtype)
    return {"sum": 0, "mean": 0, "prod": 1, "amin": dtypes.max(x.dtype)}[reduce]
