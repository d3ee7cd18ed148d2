"""Cumulative sums, products, maxima and log-sum-exps along an axis (prefix scans).

Input: a tensor with n elements along the axis. Output: as many, each the reduction of all elements
up to it. Long axes are scanned in blocks: within a block, each element is reduced from those
before it; the blocks' totals are scanned alike and combined with it. n elements take about 32 n
operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinygrad.dtype import dtypes, sum_acc_dtype
from tinygrad.gradient import CustomRule, with_gradient
from tinygrad.mixin.joining import JoiningMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.mixin.reduction.reduce import ReduceMixin
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import reshard_like, reshard_scan_totals, shard_count

BLOCK = 32
# up to this length, one kernel that reduces all prefixes is faster
MAX_DIRECT_SCAN = 128


class CumulativeMixin(JoiningMixin, ReduceMixin):
    """`cumsum`, `cumprod`, `cummax`, `logcumsumexp`."""

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
        """Cumulative product along `axis`.

        >>> Tensor([1, 2, 3]).cumprod(0).tolist()
        [1, 2, 6]
        """
        return self._scan(axis, Ops.MUL)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """Cumulative maximum along `axis`, and the index of its first occurrence, as int32.

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
        position = self.arange(x.shape[-1], dtype=dtypes.int32)
        return values, is_new.where(position, 0)._scan(-1, Ops.MAX).transpose(axis, -1)

    @classmethod
    def _gradient_of_cummax(cls, axis: int) -> CustomRule:
        """The gradient rule: each result's gradient goes to the last occurrence of its maximum."""

        def rule(gradient: UOp, node: UOp, source: UOp) -> tuple[UOp]:
            g, x = (cls._new(y, False).transpose(axis, -1) for y in (gradient, source))
            # `node` may have been stored by a kernel that rounded otherwise
            values = x._scan(-1, Ops.MAX)
            position = cls.arange(x.shape[-1], dtype=dtypes.int32)
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
        start = self.arange(shards, dtype=dtypes.int32).reshape(-1, 1) * block
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
        if not self.ndim:
            return x
        dim = self._known_axis(axis, "logcumsumexp")
        x = x.transpose(dim, -1)
        shards = shard_count(x.uop, x.ndim - 1)
        if shards == 1:
            return x._logcumsumexp_last().transpose(dim, -1)
        found = x._scan_over_shards(
            shards, lambda y: y._logcumsumexp_last(), lambda y, z: y.logaddexp(z), -float("inf")
        )
        return found.transpose(dim, -1)

    def _logcumsumexp_last(self) -> Self:
        n = self.shape[-1]
        largest = self.detach()._scan(-1, Ops.MAX)
        # inf - inf is NaN
        largest = largest.isinf().where(0, largest)
        before = self._triangle(n, n, 0)
        shifted = self.unsqueeze(-2) - largest.unsqueeze(-1)
        total = before.where(shifted, -float("inf")).exp().sum(-1)
        return total.log() + largest

    def _scan(self, axis: int, op: Ops) -> Self:
        dim = self._known_axis(axis, "a cumulative reduction")
        if not self.ndim or 0 in self.shape:
            return self._derive(self.uop)
        x = self.transpose(dim, -1)
        shards = shard_count(x.uop, x.ndim - 1)
        if shards == 1:
            return x._scan_last(op).transpose(dim, -1)
        found = x._scan_over_shards(
            shards, lambda y: y._scan_last(op), lambda y, z: y._combine(op, z), _identity(self, op)
        )
        return found.transpose(dim, -1)

    def _scan_over_shards(
        self,
        shards: int,
        scan: Callable[[Self], Self],
        combine: Callable[[Self, Self], Self],
        identity: Any,
    ) -> Self:
        """A scan along a sharded last axis: each device scans its shard, and only the totals of the
        shards are communicated.
        """
        block = -(-self.shape[-1] // shards)
        others = (None,) * (self.ndim - 1)
        x = scan(self.pad_to(*others, shards * block).unflatten(-1, (shards, block)))
        totals = x._slice_axis(x.ndim - 1, block - 1, block).squeeze(-1)
        totals = totals._derive(reshard_scan_totals(totals.uop, x.ndim - 2))
        before = scan(totals).pad((1, -1), value=identity).unsqueeze(-1)
        before = before._derive(reshard_like(before.uop, x.uop))
        return combine(x, before).flatten(-2).shrink_to(*others, self.shape[-1])

    def _scan_last(self, op: Ops) -> Self:
        n = int(self.shape[-1])
        if n <= MAX_DIRECT_SCAN:
            return self._direct_scan(op)
        blocks = -(-n // BLOCK)
        padded = self.pad_to(*(None for _ in self.shape[:-1]), blocks * BLOCK)
        x = padded.unflatten(-1, (blocks, BLOCK))
        # the padding past the end affects only elements that are cropped
        whole = x._reduce_last(op).squeeze(-1)._scan_last(op)
        before = whole.pad((1, -1), value=_identity(self, op)).unsqueeze(-1)
        joined = x._direct_scan(op)._combine(op, before)
        return joined.flatten(-2).shrink_to(*(None for _ in self.shape[:-1]), n)

    def _direct_scan(self, op: Ops) -> Self:
        """A scan that reduces each prefix by itself."""
        n = self.shape[-1]
        up_to = self._triangle(n, n, 0)
        return up_to.where(self.unsqueeze(-2), _identity(self, op))._reduce_last(op).squeeze(-1)

    def _reduce_last(self, op: Ops) -> Self:
        return self._derive(self._reduce(self.uop, op, -1, True))

    def _combine(self, op: Ops, other: Self) -> Self:
        if op is Ops.MAX:
            return self.maximum(other)
        return self + other if op is Ops.ADD else self * other


def _identity(x: ReduceMixin, op: Ops) -> Any:
    """The identity element of a reduction."""
    value = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(x.dtype)}[op]
    return dtypes.as_const(value, x.dtype)
