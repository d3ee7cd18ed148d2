"""Cumulative sums, products, maxima and log-sum-exps along an axis (prefix scans).

Input: a tensor with n elements along the axis. Output: as many, each the reduction of all elements
up to it. Long axes are scanned in blocks: within a block, each element is reduced from those
before it; the blocks' totals are scanned alike and combined with it. n elements take about 64 n
operations, or 10 n exponentials; a CPU needs 16 n, or 2 n along any axis but the last one
(`codegen/optimize/lanes/running.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tinygrad.dtype import DType, dtypes, sum_acc_dtype
from tinygrad.gradient import CustomRule, with_gradient
from tinygrad.mixin.elementwise.arithmetic import reverse_order
from tinygrad.mixin.joining import JoiningMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.mixin.reduction.reduce import ReduceMixin
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import reshard_like, reshard_scan_totals, shard_count

BLOCK = 64
# of exponentials, which cost more than another level of blocks
LOGSUMEXP_BLOCK = 4
# up to this length, one kernel that reduces all prefixes is faster
MAX_DIRECT_SCAN = 128


@dataclass(frozen=True)
class _Scan:
    """An associative function, as functions of a tensor and an axis, counted from the last one:
    reductions of each prefix and of all elements, of which the axis is kept. `identity` is its
    identity element.
    """

    prefixes: Callable[[Any, int], Any]
    total: Callable[[Any, int], Any]
    combine: Callable[[Any, Any], Any]
    identity: Any
    block: int = BLOCK
    max_direct: int = MAX_DIRECT_SCAN


class CumulativeMixin(JoiningMixin, ReduceMixin):
    """`cumsum`, `cumprod`, `cummax`, `cummin`, `logcumsumexp`."""

    __slots__ = ()

    def cumsum(self, axis: int = 0) -> Self:
        """Cumulative sum along `axis`; small integers are promoted as in `sum`.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        own = self.dtype
        total = self.cast(sum_acc_dtype(own))._scan(axis, Ops.ADD)
        return total.cast(own) if dtypes.is_float(own) else total

    @in_float32
    def cumprod(self, axis: int) -> Self:
        """Cumulative product along `axis`; small integers are promoted as in `prod`.

        >>> Tensor([1, 2, 3]).cumprod(0).tolist()
        [1, 2, 6]
        """
        return self.cast(self._product_dtype())._scan(axis, Ops.MUL)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """Cumulative maximum along `axis`, and the index of its first occurrence, as int32,
        or int64 past 2**31 elements.

        NaN propagates. Of equal elements, the gradient goes to the last, as in torch.

        >>> [x.tolist() for x in Tensor([1, 3, 2, 3]).cummax()]
        [[1, 3, 3, 3], [0, 1, 1, 1]]
        """
        values = self._scan(axis, Ops.MAX)
        if not self.ndim or 0 in self.shape:
            return values, values.zeros_like(dtype=dtypes.int32)
        with_gradient(values.uop, self._gradient_of_cummax(self._axis(axis)), self.uop)
        x = values.detach().transpose(axis, -1)
        before = x.pad((1, -1))
        # where the maximum changes: at its first occurrence, and never after a NaN
        is_new = x.ne(before) & before.isnan().logical_not()
        position = self._positions_along(x.shape[-1])
        return values, is_new.where(position, 0)._scan(-1, Ops.MAX).transpose(axis, -1)

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """Cumulative minimum along `axis`, and the index of its first occurrence, as `cummax`.

        >>> [x.tolist() for x in Tensor([3, 1, 2, 1]).cummin()]
        [[3, 1, 1, 1], [0, 1, 1, 1]]
        """
        values, index = self._derive(reverse_order(self.uop)).cummax(axis)
        return values._derive(reverse_order(values.uop)), index

    @classmethod
    def _gradient_of_cummax(cls, axis: int) -> CustomRule:
        """The gradient rule: each result's gradient goes to the last occurrence of its maximum."""

        def rule(gradient: UOp, node: UOp, source: UOp) -> tuple[UOp]:
            g, x = (cls._new(y, False).transpose(axis, -1) for y in (gradient, source))
            # `node` may have been stored by a kernel that rounded otherwise
            values = x._scan(-1, Ops.MAX)
            position = cls._positions_along(x.shape[-1])
            last = (x.eq(values) | x.isnan()).where(position, 0)._scan(-1, Ops.MAX)
            wide = g.cast(sum_acc_dtype(g.dtype))
            shards = shard_count(x.uop, x.ndim - 1)
            added = wide._scatter_last(last, x.shape[-1])
            if shards > 1:
                added = wide._scatter_back_over_shards(last, shards)
            return (added.cast(g.dtype).transpose(axis, -1).uop,)

        return rule

    def _scatter_last(self, index: Self, rows: Any) -> Self:
        """The sums of the elements of the last axis by their index."""
        return self._derive(self.uop.scatter_add(index.uop, rows, self.ndim - 1))

    def _scatter_back_over_shards(self, last: Self, shards: int) -> Self:
        """The sums of elements by the position, `last`, of an earlier one or their own, which does
        not decrease. Of each shard, what belongs to earlier ones has one position there, the last
        one of its shard, so one sum is communicated.
        """
        n = int(self.shape[-1])
        block = -(-n // shards)
        others = (None,) * (self.ndim - 1)
        start = self.arange(shards, dtype=last.dtype).reshape(-1, 1) * block
        x, index = (
            y.pad_to(*others, shards * block).unflatten(-1, (shards, block)) for y in (self, last)
        )
        is_before = index < start
        own = x._scatter_last(is_before.where(-1, index - start), block)
        totals, positions = (
            self._derive(reshard_scan_totals(y.uop, y.ndim - 1))
            for y in (is_before.where(x, 0).sum(-1), is_before.where(index, -1).max(-1))
        )
        is_here = (positions.unsqueeze(-2) // block).eq(start // block)
        received = is_here.where(totals.unsqueeze(-2), 0).sum(-1, keepdim=True)
        received = received._derive(reshard_like(received.uop, index.uop))
        at = index._slice_axis(index.ndim - 1, block - 1, block) - start
        joined = own + received._scatter_last((at < 0).where(-1, at), block)
        return joined.flatten(-2).shrink_to(*others, n)

    @in_float32
    def logcumsumexp(self, axis: int = 0) -> Self:
        """Logarithm of the cumulative sum of exponentials along `axis`, without overflow.

        >>> Tensor([0.0, -1000.0]).logcumsumexp().tolist()
        [0.0, 0.0]
        """
        x = self._as_float()
        dim = self._known_axis(axis, "logcumsumexp")
        if not self.ndim or 0 in self.shape:
            return x
        return x._scan_axis(dim, LOGSUMEXP)

    def _logsumexp_of_prefixes(self, axis: int) -> Self:
        """The log-sum-exp of each prefix of an axis by itself."""
        largest = self.detach()._scan(axis, Ops.MAX)
        # inf - inf is NaN
        largest = largest.isinf().where(0, largest)
        shifted = self.unsqueeze(axis - 1) - largest.unsqueeze(axis)
        total = self._prefix_mask(axis).where(shifted, -float("inf")).exp().sum(axis)
        return total.log() + largest

    def _prefix_mask(self, axis: int) -> Self:
        """For each element of an axis, those up to it, along an axis before that."""
        n = self.shape[axis]
        return self._triangle(n, n, 0).reshape(n, n, *(1 for _ in range(-axis - 1)))

    def _scan(self, axis: int, op: Ops) -> Self:
        dim = self._known_axis(axis, "a cumulative reduction")
        if not self.ndim or 0 in self.shape:
            return self._derive(self.uop)
        return self._scan_axis(dim, _scan_of(op, self.dtype))

    def _scan_axis(self, dim: int, scan: _Scan) -> Self:
        shards = shard_count(self.uop, dim)
        if shards == 1:
            return self._scan_blocks(scan, dim - self.ndim)
        return self.transpose(dim, -1)._scan_over_shards(shards, scan).transpose(dim, -1)

    def _scan_over_shards(self, shards: int, scan: _Scan) -> Self:
        """A scan along a sharded last axis: each device scans its shard, and only the totals of the
        shards are communicated.
        """
        block = -(-self.shape[-1] // shards)
        others = (None,) * (self.ndim - 1)
        x = (
            self.pad_to(*others, shards * block)
            .unflatten(-1, (shards, block))
            ._scan_blocks(scan, -1)
        )
        totals = x._slice_axis(x.ndim - 1, block - 1, block).squeeze(-1)
        totals = totals._derive(reshard_scan_totals(totals.uop, x.ndim - 2))
        before = totals._scan_blocks(scan, -1)._shifted(scan, -1)
        before = before._derive(reshard_like(before.uop, x.uop))
        joined: Self = scan.combine(x, before)
        return joined.flatten(-2).shrink_to(*others, self.shape[-1])

    def _scan_blocks(self, scan: _Scan, axis: int) -> Self:
        n = int(self.shape[axis])
        if n <= scan.max_direct:
            direct: Self = scan.prefixes(self, axis)
            return direct
        size = _block_size(n, scan.block)
        blocks = -(-n // size)
        before, after = (None,) * (self.ndim + axis), (None,) * (-axis - 1)
        padded = self
        if blocks * size != n:
            # stored, as is the result below: elements of other rows are at other places in a block
            padded = self.pad_to(*before, blocks * size, *after)._stored()
        x = padded.unflatten(axis, (blocks, size))
        # the padding past the end affects only elements that are cropped
        totals = scan.total(x, axis).squeeze(axis)
        earlier = totals._scan_blocks(scan, axis)._shifted(scan, axis)
        joined: Self = scan.combine(scan.prefixes(x, axis), earlier).flatten(axis - 1, axis)
        return joined if padded is self else joined._stored().shrink_to(*before, n, *after)

    def _stored(self) -> Self:
        return self._derive(self.uop.contiguous())

    def _shifted(self, scan: _Scan, axis: int) -> Self:
        """The scan of all elements before each one, with an axis of one element after it."""
        padding: list[Any] = [None] * self.ndim
        padding[axis] = (1, -1)
        return self.pad(tuple(padding), value=scan.identity).unsqueeze(axis)

    def _direct_scan(self, op: Ops, axis: int) -> Self:
        """A scan that reduces each prefix by itself."""
        nothing = _identity(op, self.dtype)
        chosen = self._prefix_mask(axis).where(self.unsqueeze(axis - 1), nothing)
        return chosen._reduce_axis(op, axis).squeeze(axis)

    def _reduce_axis(self, op: Ops, axis: int) -> Self:
        return self._derive(self._reduce(self.uop, op, axis, True))

    def _combine(self, op: Ops, other: Self) -> Self:
        if op is Ops.MAX:
            return self.maximum(other)
        return self + other if op is Ops.ADD else self * other


LOGSUMEXP = _Scan(
    prefixes=lambda x, axis: x._logsumexp_of_prefixes(axis),
    total=lambda x, axis: x.logsumexp(axis, keepdim=True),
    combine=lambda x, y: x.logaddexp(y),
    identity=-float("inf"),
    block=LOGSUMEXP_BLOCK,
    max_direct=LOGSUMEXP_BLOCK,
)


def _scan_of(op: Ops, dtype: DType) -> _Scan:
    """The scan that reduces by `op`."""
    return _Scan(
        prefixes=lambda x, axis: x._direct_scan(op, axis),
        total=lambda x, axis: x._reduce_axis(op, axis),
        combine=lambda x, y: x._combine(op, y),
        identity=_identity(op, dtype),
    )


def _block_size(n: int, limit: int) -> int:
    """A divisor of `n`, so that no block is padded: the largest one up to `limit`, or one up to
    twice that; `limit` if there is none.
    """
    sizes = (*range(limit, max(2, limit // 4) - 1, -1), *range(limit + 1, 2 * limit + 1))
    return next((x for x in sizes if n % x == 0), limit)


def _identity(op: Ops, dtype: DType) -> Any:
    """The identity element of a reduction."""
    value = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(dtype)}[op]
    return dtypes.as_const(value, dtype)
