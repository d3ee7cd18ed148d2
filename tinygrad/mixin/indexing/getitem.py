"""Indexing and assignment of elements: `x[...]` and `x[...] = v`.

Input: for each axis an int, a slice, None for a new axis, `...` for all remaining axes, integers as
a tensor or list, or a mask of bools for several axes. Output: the elements. Index tensors broadcast
against each other; their axes replace the first indexed axis, or come first if a slice is between
them. Indexing by tensors costs the size of the result. An index out of range reads 0 and writes
nothing if it is in a tensor; in a list or array it is an error.
"""

from __future__ import annotations

from typing import Any, Self, TypeAlias, cast

from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentIndexError
from tinygrad.helpers import all_int, argsort, flatten, prod
from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.indexing.index_axes import IndexAxes
from tinygrad.mixin.indexing.index_view import (
    AxisView,
    View,
    are_adjacent,
    axes_used,
    axis_view,
    indexed_shape,
    is_array,
    is_axis_item,
    without_mask,
)
from tinygrad.mixin.joining import JoiningMixin
from tinygrad.mixin.memory.conversion import ConversionMixin
from tinygrad.storage.aliases import whole_tensor, whole_value
from tinygrad.storage.assignment import write_now
from tinygrad.storage.realization import realize_all
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import broadcast_node
from tinygrad.uop.ops import UOp, WindowArg, sint
from tinygrad.uop.reshard import shard_count, slice_with_steps
from tinygrad.uop.sint import index_dtype, same_shape
from tinygrad.uop.slice_assign import ViewStep

Index: TypeAlias = Any


class IndexingMixin(JoiningMixin, ConversionMixin):
    """`__getitem__` and `__setitem__`."""

    __slots__ = ()

    def __getitem__(self, indices: Index) -> Self:
        """Index: ints, slices, None, `...`, integer tensors, and masks, which are computed at once.
        Raises IndexError out of bounds.

        >>> Tensor([[1, 2, 3], [4, 5, 6]])[1, ::-1].tolist()
        [6, 5, 4]
        >>> Tensor([10, 20, 30])[Tensor([2, 0, -1])].tolist()
        [30, 10, 30]
        >>> x = Tensor([1, 2, 3])
        >>> x[x > 1].tolist()
        [2, 3]
        """
        view = self._parse_index(self._index_items(indices))
        x = self._apply_view(view)
        return x._index_select(view.tensors) if view.tensors else x

    def __iter__(self) -> Any:
        """Iterate along the first axis. Raises TypeError for a tensor without axes."""
        if self.ndim == 0:
            raise TypeError("a tensor without axes cannot be iterated over; its value is item()")
        return (self[i] for i in range(int(self.shape[0])))

    def __setitem__(self, indices: Index, v: Any) -> None:
        """Assign `v`, broadcast, to the indexed elements; the last of equal indices wins.

        All aliases of this tensor see the new content, as after `assign`. Memory is written at
        once, unless a gradient flows through the write. Ints and slices of step 1 cost the slice;
        steps and index tensors cost the whole tensor once, and the size of `v`. A mask is computed
        at once unless `v` is the same for all of its elements.

        >>> x = Tensor([1, 2, 3])
        >>> x[1:] = 0
        >>> x.tolist()
        [1, 0, 0]
        """
        if isinstance(v, (bool, int, float, UOp)):
            v = type(self)(v, dtype=self.dtype, requires_grad=False)  # type: ignore[call-arg]
        elif not isinstance(v, TensorCore):
            v = self._from_host(v, self.dtype)
        items = self._index_items(indices)
        mask = self._mask_of_rows(items, v.ndim)
        view = self._parse_index(items if mask is None else without_mask(items))
        value: Self = v.cast(self.dtype)._broadcast_to(indexed_shape(view.shape, view.tensors))
        if self._requires_grad is None and not v._requires_grad and mask is None:
            steps = view.steps
            if steps is not None and write_now(self, steps, value):
                return
        is_immediate = self._requires_grad is not True and v._requires_grad is not True
        if is_immediate and whole_value(self).op is not Ops.BUFFER:
            realize_all((whole_tensor(self),))
        if view.tensors:
            written, inside = self._scatter_value(view, value)
            self.assign(inside.where(written, self))
        else:
            part = self._apply_view(view)
            part.assign(value if mask is None else mask.where(value, part))
        if is_immediate:
            realize_all((whole_tensor(self),))

    def __delitem__(self, indices: Index) -> None:
        """Raises TypeError: a tensor has a fixed number of elements."""
        raise TypeError("elements cannot be deleted from a tensor; index those to keep")

    # ---- parsing ----

    def _index_items(self, indices: Index) -> list[Any]:
        """The items of an index, `...` replaced by full slices, and lists and arrays by tensors."""
        if isinstance(indices, list) and any(is_axis_item(item) for item in indices):
            indices = tuple(indices)
        items = indices if isinstance(indices, tuple) else (indices,)
        converted = [self._index_tensor(x) if is_array(x) else x for x in items]
        result = self._with_all_axes(converted)
        arrays = {
            id(x): item
            for x, item in zip(converted, items, strict=True)
            if x is not item and not isinstance(item, TensorCore) and x.dtype is not dtypes.bool
        }
        if arrays:
            self._check_arrays(arrays, result)
        return result

    def _check_arrays(self, arrays: dict[int, Any], items: list[Any]) -> None:
        """Raises IndexError where a number of a list or an array, by id of its tensor in `items`,
        is out of range.
        """
        import numpy as np

        axis = 0
        for item in items:
            if id(item) in arrays and isinstance(self.shape[axis], int):
                positions = np.asarray(arrays[id(item)])
                for position in (positions.min(), positions.max()) if positions.size else ():
                    axis_view(position, self.shape[axis], axis, self.shape)
            axis += axes_used(item)

    def _parse_index(self, items: list[Any]) -> View:
        axes: list[AxisView] = []
        result: list[int | None] = []
        tensors: dict[int, Any] = {}
        for item in items:
            if item is None:
                result.append(None)
                continue
            axis = len(axes)
            if isinstance(item, TensorCore):
                for index in self._positions(item, axis):
                    tensors[len(result)] = index
                    result.append(len(axes))
                    axes.append(AxisView(0, self.shape[len(axes)]))
                continue
            axes.append(axis_view(item, self.shape[axis], axis, self.shape))
            if axes[-1].keep:
                result.append(axis)
        return View(tuple(axes), tuple(result), tensors)

    def _with_all_axes(self, items: list[Any]) -> list[Any]:
        """The index with `...` replaced by full slices."""
        dots = [i for i, item in enumerate(items) if item is Ellipsis]
        if len(dots) > 1:
            raise ArgumentIndexError("an index can have only one ...; write : for further axes")
        used = sum(axes_used(item) for item in items)
        if used > self.ndim:
            raise ArgumentIndexError(f"{used} indices are too many for shape {self.shape}")
        at = dots[0] if dots else len(items)
        return items[:at] + [slice(None)] * (self.ndim - used) + items[at + 1 :]

    def _index_tensor(self, item: Any) -> Self:
        x: Self
        if isinstance(item, TensorCore):
            x = cast(Self, item)
        else:
            x = self._from_host(item)
            if x.numel() == 0 and x.dtype is not dtypes.bool:
                x = x.cast(dtypes.default_int)
        if x.dtype is dtypes.bool and x.ndim:
            return x
        if not dtypes.is_int(x.dtype):
            kind = "a bool without axes" if x.dtype is dtypes.bool else x.dtype
            raise ArgumentIndexError(
                f"index tensors must be of integers or masks of bools, not {kind}"
            )
        if x.dtype.itemsize < 4:
            return x.cast(dtypes.int32)
        return x.cast(dtypes.int64) if x.dtype is dtypes.uint32 else x

    def _positions(self, index: Any, axis: int) -> tuple[Self, ...]:
        """The integer index of each axis that `index` is for: itself, or where a mask, which is
        computed now, is true.
        """
        if index.dtype is not dtypes.bool:
            return (index,)
        import numpy as np

        self._check_mask(index, axis)
        found = np.nonzero(index.numpy())
        return tuple(self._from_host(x, index_dtype(*index.shape)) for x in found)

    def _check_mask(self, mask: TensorCore, axis: int) -> None:
        sizes = self.shape[axis : axis + mask.ndim]
        if not same_shape(mask.shape, sizes):
            raise ArgumentIndexError(
                f"a mask of shape {mask.shape} does not fit axis {axis} of shape {self.shape}; it "
                "must have the sizes of the axes that it selects from"
            )

    def _mask_of_rows(self, items: list[Any], ndim: int) -> Self | None:
        """The mask of an index without other tensors, broadcastable to the view without it; None
        if a value of `ndim` axes has an element for each of its true ones.
        """
        found = [i for i, item in enumerate(items) if isinstance(item, TensorCore)]
        if len(found) != 1 or items[found[0]].dtype is not dtypes.bool:
            return None
        mask: Self = items[found[0]]
        before = items[: found[0]]
        inner = sum(x is None or isinstance(x, slice) for x in items[found[0] + 1 :])
        if ndim > inner:
            return None
        self._check_mask(mask, sum(axes_used(item) for item in before))
        return mask.reshape((*mask.shape, *(1,) * inner))

    # ---- reading ----

    def _apply_view(self, view: View) -> Self:
        """The view: each axis sliced, flipped and strided; axes dropped and added."""
        x = self.shrink(tuple((a.start, a.end) for a in view.axes))
        flips = [i for i, a in enumerate(view.axes) if a.flip]
        x = x.flip(flips) if flips else x
        for axis, a in enumerate(view.axes):
            if a.stride != 1:
                x = x._strided(axis, a.stride)
        selected = self._selected_from_shards(view)
        if selected is not None:
            x._set_node(selected)
        return x.reshape(view.shape)

    def _selected_from_shards(self, view: View) -> UOp | None:
        """The sliced value, computed from what each device selects of its shard; None if it is no
        slice of a sharded axis with a step.
        """
        strides = view.strides
        if all(shard_count(self.uop, axis) == 1 for axis in strides):
            return None
        bounds = tuple((a.start, a.end) for a in view.axes)
        counts = tuple(a.count for a in view.axes)
        if not all_int((*self.shape, *counts, *flatten(bounds))) or 0 in counts:
            return None
        windows = tuple(
            (axis, self.ndim + number, int(counts[axis]), stride, 1)
            for number, (axis, stride) in enumerate(strides.items())
        )
        sliced = tuple(int(end) - int(start) for start, end in bounds)
        steps: list[ViewStep] = [
            (Ops.SHRINK, bounds),
            (Ops.FLIP, tuple(a.flip for a in view.axes)),
            (Ops.RESHAPE, (*sliced, *(1,) * len(windows))),
            (Ops.WINDOW, WindowArg(windows)),
            (Ops.RESHAPE, counts),
        ]
        return slice_with_steps(self.uop, steps)

    def _strided(self, axis: int, stride: int) -> Self:
        """Every `stride`-th element of an axis: a view, also of an axis that is padded for that."""
        size = int(self.shape[axis])
        count = -(-size // stride)
        x: Self = self
        if count * stride != size:
            pairs = tuple((0, count * stride - size if i == axis else 0) for i in range(self.ndim))
            x = self._padded_view(pairs)
        return x.unflatten(axis, (count, stride))._slice_axis(axis + 1, 0, 1).squeeze(axis + 1)

    def _index_select(self, tensors: dict[int, Any]) -> Self:
        """The elements selected by index tensors, by axis."""
        axes = IndexAxes.of(self.shape, tensors)
        counts = axes.batch_sizes
        part = self.shrink_to(tuple(counts.get(i) for i in range(self.ndim)))
        rows = prod(axes.sizes(axes.gathered))
        table = part.permute(axes.order).reshape((*counts.values(), rows, *axes.sizes(axes.rest)))
        index = self._row_numbers(tensors, axes).permute(axes.index_order)
        found = table._derive(table.uop.gather(index.uop, axes.batch))
        width, dims = index.ndim, sorted(tensors)
        found = found.permute((*axes.index_back, *range(width, found.ndim)))
        if not are_adjacent(dims) or dims[0] == 0:
            return found
        # move the index axes to the first indexed axis
        at = dims[0]
        order = [*range(width, width + at), *range(width), *range(width + at, found.ndim)]
        return found.permute(tuple(order))

    def _row_numbers(self, tensors: dict[int, Any], axes: IndexAxes) -> Self:
        """Indices into the gathered axes merged into one; -1 where one is out of range."""
        number: Self | None = None
        inside: Self | None = None
        count = prod(axes.sizes(axes.gathered))
        for dim in axes.gathered:
            size = self.shape[dim]
            index: Self = tensors[dim]._broadcast_to(axes.common)
            if index.dtype.itemsize < index_dtype(count).itemsize:
                index = index.cast(index_dtype(count))
            if not dtypes.is_unsigned(index.dtype):
                index = (index < 0).where(index + size, index)
            if len(axes.gathered) == 1:
                return index
            valid = (index >= 0) & (index < size)
            inside = valid if inside is None else inside & valid
            number = index if number is None else number * size + index
        assert number is not None and inside is not None, "an axis is gathered"
        return inside.where(number, -1)

    # ---- assignment that is not in place ----

    def _scatter_value(self, view: View, value: Self) -> tuple[Self, Self]:
        """`value` scattered to the indexed elements, in the shape of this tensor; their mask."""
        mask = self._new(value.ones_like(dtype=dtypes.bool, device=None).uop, False)
        if view.tensors:
            part = self._apply_view(view)
            value, mask = part._scatter_rows(view.tensors, value)
        return self._embed_view(view, value), self._embed_view(view, mask)

    def _scatter_rows(self, tensors: dict[int, Any], value: Self) -> tuple[Self, Self]:
        """`value` scattered by index tensors, in the shape of this tensor; and a mask of it."""
        axes, dims = IndexAxes.of(self.shape, tensors), sorted(tensors)
        width, sizes = len(axes.common), axes.sizes(axes.rest)
        if are_adjacent(dims) and dims[0]:
            at = dims[0]
            order = (*range(at, at + width), *range(at), *range(at + width, value.ndim))
            value = value.permute(order)
        batch = tuple(axes.batch_sizes.values())
        count = prod([axes.common[i] for i in axes.index_order[axes.batch :]])
        rows = prod(axes.sizes(axes.gathered))
        index = self._row_numbers(tensors, axes).permute(axes.index_order)
        writer = index.reshape((*batch, count))._last_writer(rows)
        value = value.permute((*axes.index_order, *range(width, value.ndim)))
        value = value.reshape((*batch, count, *sizes))
        written = self._derive(value.uop.gather(writer.uop, axes.batch))
        mask = (writer >= 0).reshape((*batch, rows, *(1,) * len(sizes)))
        mask = mask._broadcast_to((*batch, rows, *sizes))
        shape = (*batch, *axes.sizes(axes.gathered), *sizes)
        back = tuple(argsort(axes.order))
        written, mask = (x.reshape(shape).permute(back) for x in (written, mask))
        return written.pad_to(self.shape), mask.pad_to(self.shape)

    def _last_writer(self, rows: sint) -> Self:
        """For each of `rows` rows, the last position along the last axis whose index is that row;
        negative if none.
        """
        positions = broadcast_node(UOp.arange(self.shape[-1]), self.shape)
        last = positions.scatter(Ops.SCATTER_MAX, self.uop, rows, self.ndim - 1)
        return self._new(last, False)

    def _embed_view(self, view: View, part: Self) -> Self:
        """The adjoint of `_apply_view`: elements at their positions, zeros elsewhere."""
        x = part.reshape(tuple(a.count if a.keep else 1 for a in view.axes))
        for axis, a in enumerate(view.axes):
            if a.stride != 1:
                count, size = int(a.count), int(a.end - a.start)
                x = x.unsqueeze(axis + 1)
                x = x._padded(tuple((0, (i == axis + 1) * (a.stride - 1)) for i in range(x.ndim)))
                x = x.flatten(axis, axis + 1)._slice_axis(axis, 0, min(size, count * a.stride))
                x = x.pad_to(tuple(size if i == axis else None for i in range(x.ndim)))
        flips = [i for i, a in enumerate(view.axes) if a.flip]
        x = x.flip(flips) if flips else x
        pairs = tuple((a.start, size - a.end) for a, size in zip(view.axes, self.shape))
        return x._padded(pairs)
