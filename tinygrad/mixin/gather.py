"""Elements picked and put by tensors of positions along one axis.

In: a tensor and, per element of the result or of the source, a position along `dim`. Out: what is
there, or what was put there. Positions out of range read as 0 and are not written. Reading costs
what is read; what is written to is a new tensor, and costs its size and what is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeVar

from tinygrad.dtype import dtypes, sum_acc_dtype
from tinygrad.helpers import argsort, prod
from tinygrad.mixin.arithmetic import reversed_order
from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.indexing import IndexingMixin
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import resolve, sint
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS, identity

T = TypeVar("T", bound=IndexingMixin)
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@dataclass(frozen=True)
class Rows:
    """How elements along `axis` are picked: in each row of the axes `batch` by itself, among those
    of `axis` and the axes `behind` it, as one axis.

    So memory is read in order. Where any axis is split over devices, all others are of the batch:
    then each device picks from what it has.
    """

    batch: tuple[int, ...]
    axis: int
    behind: tuple[int, ...]

    @classmethod
    def along(cls, axis: int, *tensors: TensorCore) -> Rows:
        """How `axis` is picked along in these tensors of as many axes."""
        before, behind = tuple(range(axis)), tuple(range(axis + 1, tensors[0].ndim))
        layouts = [x.device for x in tensors if isinstance(x.device, Sharding)]
        if any(layout.split_axes for layout in layouts):
            return cls((*before, *behind), axis, ())
        return cls(before, axis, behind)

    @property
    def order(self) -> tuple[int, ...]:
        """All axes, those of the batch first."""
        return (*self.batch, self.axis, *self.behind)

    def count(self, shape: tuple[sint, ...]) -> sint:
        """How many elements a row of `shape` has."""
        found: sint = prod([shape[i] for i in self.order[len(self.batch) :]])
        return found

    def joined(self, x: T) -> T:
        """A tensor with its rows as last axis."""
        sizes = tuple(x.shape[i] for i in self.batch)
        return x.permute(self.order).reshape((*sizes, self.count(x.shape)))

    def parted(self, x: T, shape: tuple[sint, ...]) -> T:
        """The inverse of `joined`."""
        whole = x.reshape(tuple(shape[i] for i in self.order))
        return whole.permute(tuple(argsort(self.order)))

    def places(self, index: T, shape: tuple[sint, ...]) -> T:
        """Positions along `axis` as those in the rows of `shape`; -1 where out of range."""
        if not self.behind:
            return self.joined(index)
        is_long = resolve(self.count(shape) > dtypes.max(dtypes.int32))
        dtype = dtypes.int64 if is_long else dtypes.int32
        inside = (index >= 0) & (index < shape[self.axis])
        place: Any = index.cast(dtype)
        for i in self.behind:
            beside = tuple(shape[i] if k == i else 1 for k in range(len(shape)))
            place = place * shape[i] + index.arange(shape[i], dtype=dtype).reshape(beside)
        return self.joined(inside.where(place, -1))


class GatherMixin(IndexingMixin):
    """`gather`, `scatter`, `one_hot`, `masked_select`."""

    __slots__ = ()

    def gather(self, dim: int, index: Self) -> Self:
        """`out[i][j] = self[index[i][j]][j]` for dim 0, and so on; of the shape of `index`.

        Raises ValueError if `index` has another number of axes, or is longer in another axis.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0, 0], [1, 0]])).tolist()
        [[1, 1], [4, 3]]
        """
        axis = self._axis(dim)
        self._check_index("gather", axis, index)
        table = self._cut_to(index.shape, axis)
        if not self.ndim:
            return table
        rows = Rows.along(axis, table, index)
        found = rows.joined(table)._at_last(rows.places(index, table.shape))
        return rows.parted(found, index.shape)

    def _at_last(self, places: Self) -> Self:
        """What `places` name along the last axis, each row of them in the same row of this."""
        return self._derive(self.uop.gather(places.uop, places.ndim - 1))

    def _check_index(self, op: str, axis: int, index: TensorCore) -> None:
        if index.ndim != self.ndim:
            raise ValueError(f"{op}: index of shape {index.shape} has not {self.ndim} axes")
        if not dtypes.is_int(index.dtype):
            raise ValueError(f"{op}: positions are integers, not {index.dtype}")
        pairs = [(a, b) for i, (a, b) in enumerate(zip(index.shape, self.shape)) if i != axis]
        if any(resolve(a > b, False) for a, b in pairs):
            raise ValueError(
                f"{op} along axis {axis}: index of shape {index.shape} is larger than {self.shape}"
            )

    def _cut_to(self, shape: tuple[Any, ...], axis: int) -> Self:
        """The first elements of every axis but `axis`, as many as `shape` has."""
        return self.shrink_to(tuple(None if i == axis else s for i, s in enumerate(shape)))

    # ---- scatter ----

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """`out[index[i][j]][j] = src[i][j]` for dim 0, and so on, in a copy of this tensor.

        `reduce` "add" or "multiply" combines with what is there; otherwise the last of equal
        positions counts. `src` may be a number. Raises TypeError for another `reduce`.

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
        rows = Rows.along(axis, self, index, source)
        shape = _with_size(index.shape, axis, self.shape[axis])
        writer = rows.places(index, shape)._last_writer(rows.count(shape))
        put = rows.parted(rows.joined(source)._at_last(writer), shape)
        written = rows.parted(writer >= 0, shape)
        return self._filled_up(written, False).where(self._filled_up(put, 0), self)

    def _scatter_source(self, index: Self, src: Any) -> Self:
        if isinstance(src, TensorCore):
            return src.cast(self.dtype)  # type: ignore[return-value]
        return self.full(index.shape, src, dtype=self.dtype)

    def _checked_scatter(self, dim: int, index: Self, src: Self) -> tuple[int, Self]:
        axis = self._axis(dim)
        self._check_index("scatter", axis, index)
        if src.ndim != index.ndim or any(
            resolve(a > b, False) for a, b in zip(index.shape, src.shape)
        ):
            raise ValueError(f"scatter: index {index.shape} is larger than source {src.shape}")
        return axis, src.shrink_to(index.shape)

    def _put_by_index(self, op: Ops, axis: int, index: Self, src: Self) -> Self:
        """What `src` puts at the positions along `axis`, combined by `op`, in the shape of this."""
        wide = src.dtype if op is Ops.SCATTER_MAX else sum_acc_dtype(src.dtype)
        rows = Rows.along(axis, self, index, src)
        shape = _with_size(index.shape, axis, self.shape[axis])
        values, places = rows.joined(src.cast(wide)), rows.places(index, shape)
        combined = values.uop.scatter(op, places.uop, rows.count(shape), places.ndim - 1)
        put = rows.parted(values._derive(combined), shape)
        return self._filled_up(put, identity(SCATTER_REDUCE_OPS[op], wide)).cast(src.dtype)

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """As `scatter`, where all that goes to one place is combined by `reduce`: "sum", "prod",
        "mean", "amax" or "amin", together with what is there if `include_self`.

        Raises RuntimeError for another `reduce`.

        >>> x = Tensor([1, 1])
        >>> x.scatter_reduce(0, Tensor([0, 0]), Tensor([2, 3]), "sum").tolist()
        [6, 1]
        """
        if reduce not in _REDUCTIONS:
            raise RuntimeError(f"scatter_reduce: {reduce!r} is none of {', '.join(_REDUCTIONS)}")
        axis, source = self._checked_scatter(dim, index, src.cast(self.dtype))
        base, counts = self, None
        if not include_self or reduce == "mean":
            ones = source.ones_like(dtype=dtypes.int32, device=None)
            counts = self._put_by_index(Ops.SCATTER_ADD, axis, index, ones)
        if counts is not None and not include_self:
            base = (counts > 0).where(_identity(self, reduce), self)
        if reduce == "prod":
            return base * self._put_by_index(Ops.SCATTER_MUL, axis, index, source)
        if reduce == "amax":
            return base.maximum(self._put_by_index(Ops.SCATTER_MAX, axis, index, source))
        if reduce == "amin":
            turned = source._derive(reversed_order(source.uop))
            largest = self._put_by_index(Ops.SCATTER_MAX, axis, index, turned)
            return base.minimum(largest._derive(reversed_order(largest.uop)))
        total = base + self._put_by_index(Ops.SCATTER_ADD, axis, index, source)
        if counts is None or reduce == "sum":
            return total
        parts = counts + 1 if include_self else (counts > 0).where(counts, 1)
        return total.div(parts, rounding_mode=None if total.is_floating_point() else "floor")

    def _filled_up(self, x: Self, value: Any) -> Self:
        """`x`, with a value behind each axis up to this tensor's shape."""
        pairs = tuple((0, size - old) for size, old in zip(self.shape, x.shape, strict=True))
        return x.pad(pairs, value=value)

    # ---- classes and masks ----

    def one_hot(self, num_classes: int = -1) -> Self:
        """A new last axis with 1 at the place that each integer names, and 0 elsewhere.

        -1 takes as many classes as needed, which computes the values.
        Raises RuntimeError unless the elements are integers, ValueError for fewer classes.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        if not dtypes.is_int(self.dtype):
            raise RuntimeError(f"one_hot is of integers, not of {self.dtype}")
        if num_classes < -1 or (num_classes == -1 and self.numel() == 0):
            raise ValueError(f"one_hot({num_classes}) of shape {self.shape}: say how many classes")
        count = int(self.max().item()) + 1 if num_classes == -1 else num_classes
        places = self.arange(count).reshape((1,) * self.ndim + (count,))
        return self.unsqueeze(-1).eq(places).where(1, 0)

    def masked_select(self, mask: Self) -> Self:
        """The elements where `mask`, broadcast, is true, as a vector; computes the mask.

        Raises RuntimeError unless the mask is of bools.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        """
        import numpy as np

        if mask.dtype is not dtypes.bool:
            raise RuntimeError(f"masked_select takes a mask of bools, not of {mask.dtype}")
        # how many there are is not known before
        chosen = np.flatnonzero(mask._broadcast_to(self.shape).numpy()).astype(np.int32)
        return self.flatten()[chosen]


def _with_size(shape: tuple[sint, ...], axis: int, size: sint) -> tuple[sint, ...]:
    return tuple(size if i == axis else old for i, old in enumerate(shape))


def _identity(x: TensorCore, reduce: str) -> Any:
    """What changes nothing when reduced with other values."""
    if reduce == "amax":
        return dtypes.min(x.dtype)
    return {"sum": 0, "mean": 0, "prod": 1, "amin": dtypes.max(x.dtype)}[reduce]
