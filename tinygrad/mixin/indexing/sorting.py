"""Sort, argsort and top-k along an axis.

Input: a tensor, and an axis. Output: sorted values and their indices, as int32, or
int64 past 2**31 elements. Sorting is stable,
and NaN is larger than all numbers. Floats are compared by integer keys in the same order. Short
axes use a counting sort: the rank of an element is the number of elements that precede it. Long
axes use a bitonic network (Batcher, 1968) of the next power of two. A small top-k of a long axis
selects one element after the other, each by a reduction: of the whole axis, or of the blocks that
have the largest maxima.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.mixin.indexing.gather import GatherMixin
from tinygrad.sharding import Sharding
from tinygrad.uop.arguments import integer_argument
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import shard_count, topk_moves_less
from tinygrad.uop.sint import index_dtype

# up to this length, comparing all pairs is faster than a network
MAX_COUNTING_SORT = 256
# from this length on, selecting blocks by their maxima first is worth their kernels
MIN_BLOCKED_SELECTION = 1 << 14


class SortingMixin(GatherMixin):
    """`sort`, `argsort`, `topk`."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """Sort along `dim`, ascending or `descending`: the values, and their indices.

        >>> [x.tolist() for x in Tensor([3, 1, 2]).sort()]
        [[1, 2, 3], [1, 2, 0]]
        """
        axis = self._known_axis(dim, "sort")
        if not self.ndim or self.shape[axis] <= 1:
            return self._derive(self.uop), self.zeros_like(dtype=dtypes.int32)
        x = self._unshard_axis(axis).transpose(axis, -1)
        if x.shape[-1] <= MAX_COUNTING_SORT:
            order = x._counting_order(descending)
        else:
            order = x._bitonic_order(descending)
        return x.gather(-1, order).transpose(axis, -1), order.transpose(axis, -1)

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """The indices that sort the tensor along `dim`, as `sort` returns them.

        >>> Tensor([3, 1, 2]).argsort().tolist()
        [1, 2, 0]
        """
        return self.sort(dim, descending)[1]

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """The `k` largest (or smallest) values along `dim`, in order, and their indices.

        Raises ValueError unless 0 <= k <= size, NotImplementedError for `sorted_=False`.

        >>> [x.tolist() for x in Tensor([3, 1, 2]).topk(2)]
        [[3, 2], [0, 2]]
        """
        if not sorted_:
            raise NotImplementedError("topk gives its values in order; leave out sorted_=False")
        k = integer_argument("topk", "k", k)
        axis = self._known_axis(dim, "topk")
        size = self.shape[axis] if self.ndim else 1
        if not 0 <= k <= size:
            raise ArgumentError(f"topk: k={k} of an axis of size {size}; use 0 to {size}")
        if not self.ndim:
            raise ArgumentError("topk needs a tensor with axes; reshape one number to (1,)")
        if self._prefers_selection(k, axis):
            x = self.contiguous().transpose(axis, -1)
            order = x._selection_order(k, largest)
            return x.gather(-1, order).transpose(axis, -1), order.transpose(axis, -1)
        values, order = self.sort(axis, descending=largest)
        cut = tuple(k if i == axis else None for i in range(self.ndim))
        return values.shrink_to(cut), order.shrink_to(cut)

    def _sort_keys(self) -> Self:
        """Keys in the order of the values: integers for floats, with NaN as the maximum."""
        x = self.detach()
        if not x.is_floating_point():
            return x
        wide = least_upper_dtype(x.dtype, dtypes.float32)
        integers = dtypes.int64 if wide is dtypes.float64 else dtypes.int32
        bits = self._new(x.cast(wide).uop.bitcast(integers), False)
        # for negative floats, the bits without the sign are in reverse order; zeros are equal
        ascending = (bits < 0).where(bits ^ dtypes.max(integers), bits)
        return x.isnan().where(dtypes.max(integers), x.eq(0).where(0, ascending))

    def _prefers_selection(self, k: int, axis: int) -> bool:
        """Whether `k` reductions are cheaper than sorting the axis, and than unsharding it."""
        n = int(self.shape[axis])
        # key and index are packed into 64 bits
        if not 0 < k < n or self.dtype.itemsize > 4:
            return False
        if shard_count(self.uop, axis) > 1:
            return topk_moves_less(self.uop, axis, k)
        stages = (n - 1).bit_length()
        return n > MAX_COUNTING_SORT and k <= stages * (stages + 1) // 2

    def _selection_order(self, k: int, largest: bool) -> Self:
        """The indices of the `k` largest (or smallest) elements of the last axis, in order."""
        n = self.shape[-1]
        # unique keys: of equal values, the first has the largest key
        keys = self._packed_keys(self._sort_keys(), not largest)
        keys = keys + (n - 1 - self._positions_along(n))
        if n >= MIN_BLOCKED_SELECTION and shard_count(self.uop, self.ndim - 1) == 1:
            # about as many blocks as elements of the selected ones
            block = 1 << (math.isqrt(n // k).bit_length() - 1)
            keys = keys._blocks_of_maxima(k, block)
        indices: Self = n - 1 - keys._maxima(k) % (1 << 32)
        return indices.cast(index_dtype(n))

    def _maxima(self, k: int) -> Self:
        """The `k` largest of the unique numbers along the last axis, in order."""
        found = [self.max(-1, keepdim=True)]
        for _ in range(k - 1):
            left = (self < found[-1]).where(self, dtypes.min(self.dtype))
            found.append(left.max(-1, keepdim=True))
        return found[0].cat(*found[1:], dim=-1)

    def _blocks_of_maxima(self, k: int, block: int) -> Self:
        """The `k` blocks of the last axis with the largest maxima, which contain the `k` largest of
        its unique numbers. The low bits of a number count its distance to the last one.
        """
        n = int(self.shape[-1])
        blocks = self.pad((0, -n % block), value=dtypes.min(self.dtype)).contiguous()
        blocks = blocks.reshape(*self.shape[:-1], -1, block)
        number = (n - 1 - blocks.max(-1).contiguous()._maxima(k) % (1 << 32)) // block
        index = number.unsqueeze(-1).expand(*number.shape, block)
        return blocks.gather(-2, index).flatten(-2).contiguous()

    def _counting_order(self, descending: bool) -> Self:
        """The indices that sort the last axis, by a counting sort."""
        n = self.shape[-1]
        x = self._sort_keys()
        mine, other = x.unsqueeze(-1), x.unsqueeze(-2)
        earlier = self.arange(n).reshape(1, n) < self.arange(n).reshape(n, 1)
        before = mine < other if descending else other < mine
        rank = (before | (other.eq(mine) & earlier)).sum(-1).contiguous()
        # the inverse permutation of the ranks
        found = rank.unsqueeze(-2).eq(self.arange(n).reshape(n, 1))
        order: Self = found.where(self.arange(n), 0).sum(-1).cast(dtypes.int32)
        return order.contiguous()

    def _bitonic_order(self, descending: bool) -> Self:
        """The indices that sort the last axis, by a bitonic network."""
        n = int(self.shape[-1])
        stages = (n - 1).bit_length()
        keys = self._sort_keys()
        position = self._positions_along(n)
        arrays: tuple[Self, ...]
        if self.dtype.itemsize <= 4:
            # one number, unique, of both
            arrays = (self._packed_keys(keys, descending) + position,)
        else:
            keys = keys ^ -1 if descending else keys
            arrays = (keys, position._broadcast_to(keys.shape))
        padding = (0, (1 << stages) - n)
        # elements that are equal to the padding have lower indices
        arrays = tuple(x.pad(padding, value=dtypes.max(x.dtype)) for x in arrays)
        directions = arrays[0]._stage_bits(stages)
        # whether an element is the second of its pair, and where the pairs of a block start
        second = self.arange(2).reshape(2, 1).ne(0)
        starts = [
            self._positions_along(1 << (stages - step - 1)).cast(directions.dtype).reshape(-1, 1, 1)
            * (2 << step)
            for step in range(stages)
        ]
        for stage in range(stages):
            direction = directions[stage]
            for step in reversed(range(stage + 1)):
                is_descending = (starts[step] & direction).ne(0)
                arrays = _exchange(arrays, second.ne(is_descending), step)
        order: Self = arrays[-1].shrink_to(*(None for _ in self.shape[:-1]), n)
        return (order % (1 << 32) if len(arrays) == 1 else order).cast(index_dtype(n))

    def _packed_keys(self, keys: Self, descending: bool) -> Self:
        """Keys of 32 bits, in the order to sort by, as the high bits of numbers of 64."""
        wide = keys.cast(dtypes.int64)
        if self.dtype is dtypes.uint32:
            wide = wide - (1 << 31)
        return (-1 - wide if descending else wide) * (1 << 32)

    def _stage_bits(self, stages: int) -> Self:
        """For each stage of a network, the number with bit `stage + 1` alone, in memory beside this
        tensor: so one kernel does a step of all stages, whatever the number.
        """
        layout = self.uop.device
        device = layout.replicated() if isinstance(layout, Sharding) else layout
        bits = self._new(UOp.const(index_dtype(2 << stages), 2), False)
        numbers = self._positions_along(stages).cast(bits.dtype)
        return self._new((bits << numbers).uop.copy_to_device(device), False).contiguous()


def _exchange(arrays: tuple[Any, ...], takes_later: Any, step: int) -> tuple[Any, ...]:
    """One step of the network: compare elements whose positions differ in bit `step`, and exchange
    them unless one that `takes_later` is after the other. They are compared by the first of
    `arrays`, and those that are equal by the next one.
    """
    shape = arrays[0].shape
    cut = (*shape[:-1], int(shape[-1]) >> (step + 1), 2, 1 << step)
    # each element next to its partner
    own = [x.reshape(cut) for x in arrays]
    partner = [x.flip(-2) for x in own]
    after = partner[-1] < own[-1]
    for x, other in zip(own[-2::-1], partner[-2::-1], strict=True):
        after = (other < x) | (x.eq(other) & after)
    swap = after.ne(takes_later)
    pairs = zip(own, partner, strict=True)
    return tuple(swap.where(other, x).reshape(shape).contiguous() for x, other in pairs)
