"""Running sums, products and maxima along an axis.

In: a tensor of n elements along the axis. Out: as many, each reduced from all up to it. Long axes
are cut in blocks: within a block each element is reduced from those before it, and what comes
before the block is a running reduction of whole blocks. So n elements take about 32 n operations.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.dtype import dtypes, sum_acc_dtype
from tinygrad.gradient import CustomRule, with_gradient
from tinygrad.mixin.joining import JoiningMixin
from tinygrad.mixin.reduce import ReduceMixin
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

BLOCK = 32
# up to this length, one kernel that reduces each element from all before it is faster
LONGEST_DIRECT = 128


class CumulativeMixin(JoiningMixin, ReduceMixin):
    """`cumsum`, `cumprod`, `cummax`, `logcumsumexp`."""

    __slots__ = ()

    def cumsum(self, axis: int = 0) -> Self:
        """The sum of all elements up to each; small integers add up as `sum` does.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        own = self.dtype
        total = self.cast(sum_acc_dtype(own))._running(axis, Ops.ADD)
        return total.cast(own) if dtypes.is_float(own) else total

    def cumprod(self, axis: int) -> Self:
        """The product of all elements up to each.

        >>> Tensor([1, 2, 3]).cumprod(0).tolist()
        [1, 2, 6]
        """
        return self._running(axis, Ops.MUL)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """The largest of all elements up to each, and where the first such is, as int32.

        From the first NaN on, the largest is that. Of equal elements, the gradient goes to the last
        up to each, as in torch.

        >>> [x.tolist() for x in Tensor([1, 3, 2, 3]).cummax()]
        [[1, 3, 3, 3], [0, 1, 1, 1]]
        """
        values = self._running(axis, Ops.MAX)
        if not self.ndim or 0 in self.shape:
            return values, values.zeros_like(dtype=dtypes.int32)
        with_gradient(values.uop, self._gradient_of_cummax(self._axis(axis)), self.uop)
        x = values.detach().transpose(axis, -1)
        before = x.pad((1, -1))
        # the largest changes where it is first met; what was NaN before is not met again
        is_met = x.ne(before) & before.isnan().logical_not()
        place = self.arange(x.shape[-1], dtype=dtypes.int32)
        return values, is_met.where(place, 0)._running(-1, Ops.MAX).transpose(axis, -1)

    @classmethod
    def _gradient_of_cummax(cls, axis: int) -> CustomRule:
        """The gradient by each element: that of the results of which it is the last largest."""

        def rule(gradient: UOp, node: UOp, source: UOp) -> tuple[UOp]:
            nodes = (gradient, node, source)
            g, values, x = (cls._new(y, False).transpose(axis, -1) for y in nodes)
            place = cls.arange(x.shape[-1], dtype=dtypes.int32)
            last = (x.eq(values) | x.isnan()).where(place, 0)._running(-1, Ops.MAX)
            wide = g.cast(sum_acc_dtype(g.dtype)).uop
            added = wide.scatter_add(last.uop, x.shape[-1], x.ndim - 1)
            return (cls._new(added).cast(g.dtype).transpose(axis, -1).uop,)

        return rule

    def logcumsumexp(self, axis: int = 0) -> Self:
        """The logarithm of the running sum of exponentials, without overflow.

        >>> Tensor([0.0, -1000.0]).logcumsumexp().tolist()
        [0.0, 0.0]
        """
        if not self.ndim:
            return self._derive(self.uop)
        x = self._unshard_axis(self._known_axis(axis, "logcumsumexp"), "logcumsumexp").transpose(
            axis, -1
        )
        n = x.shape[-1]
        largest = x.detach()._running(-1, Ops.MAX)
        # an infinite maximum has no difference from itself
        largest = largest.isinf().where(0, largest)
        before = self._triangle(n, n, 0)
        terms = x.unsqueeze(-2) - largest.unsqueeze(-1)
        total = before.where(terms, -float("inf")).exp().sum(-1)
        return (total.log() + largest).transpose(axis, -1)

    def _running(self, axis: int, op: Ops) -> Self:
        dim = self._known_axis(axis, "a running reduction")
        if not self.ndim or 0 in self.shape:
            return self._derive(self.uop)
        x = self.transpose(dim, -1)
        layout = x.uop.device
        shards = layout.shards(x.ndim - 1) if isinstance(layout, Sharding) else 1
        last = x._running_last(op) if shards == 1 else x._running_over_shards(op, shards)
        return last.transpose(dim, -1)

    def _running_over_shards(self, op: Ops, shards: int) -> Self:
        """Over a split last axis: each device reduces its own block, and only the blocks' totals
        cross.
        """
        block = -(-self.shape[-1] // shards)
        others = (None,) * (self.ndim - 1)
        x = self.pad_to(*others, shards * block).unflatten(-1, (shards, block))._running_last(op)
        # what crosses is the least that this takes, and no transfer to say otherwise
        totals = x._along(x.ndim - 1, block - 1, block).squeeze(-1)._unshard_axis(x.ndim - 2, None)
        before = totals._running_last(op).pad((1, -1), value=_identity(self, op)).unsqueeze(-1)
        before = before._derive(before.uop.copy_to_device(x.uop.device))
        return x._combined(op, before).flatten(-2).shrink_to(*others, self.shape[-1])

    def _running_last(self, op: Ops) -> Self:
        n = int(self.shape[-1])
        if n <= LONGEST_DIRECT:
            return self._direct_running(op)
        blocks = -(-n // BLOCK)
        padded = self.pad_to(*(None for _ in self.shape[:-1]), blocks * BLOCK)
        x = padded.unflatten(-1, (blocks, BLOCK))
        # what is behind the end is only seen by what is cut off again
        whole = x._reduced_last(op).squeeze(-1)._running_last(op)
        before = whole.pad((1, -1), value=_identity(self, op)).unsqueeze(-1)
        joined = x._direct_running(op)._combined(op, before)
        return joined.flatten(-2).shrink_to(*(None for _ in self.shape[:-1]), n)

    def _direct_running(self, op: Ops) -> Self:
        """Each element reduced from those up to it, one by one."""
        n = self.shape[-1]
        up_to = self._triangle(n, n, 0)
        return up_to.where(self.unsqueeze(-2), _identity(self, op))._reduced_last(op).squeeze(-1)

    def _reduced_last(self, op: Ops) -> Self:
        return self._derive(self._reduced(self.uop, op, -1, True))

    def _combined(self, op: Ops, other: Self) -> Self:
        if op is Ops.MAX:
            return self.maximum(other)
        return self + other if op is Ops.ADD else self * other


def _identity(x: ReduceMixin, op: Ops) -> Any:
    """What changes nothing when reduced with other values."""
    value = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(x.dtype)}[op]
    return dtypes.as_const(value, x.dtype)
