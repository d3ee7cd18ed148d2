"""The kernel language: loops, pointers and stores, and arrays indexed by custom kernels.

Input: placeholders, which are `PARAM`s below movement ops. Output: a graph that
`schedule/kernel/custom_kernel.py` checks and lowers. An array has a shape. An element, `A[i, j]`,
has none: it is the target of a store or, as an operand, the value in memory. `A.after(x)` is the
array after `x`.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.dtype import AddrSpace, ConstType, DType, dtypes
from tinygrad.errors import ArgumentIndexError
from tinygrad.helpers import argfix, prod
from tinygrad.uop import Ops
from tinygrad.uop.args import AxisType, ParamArg, RangeArg
from tinygrad.uop.methods.movement import NodeMovementMixin
from tinygrad.uop.node import Node


class KernelMixin(NodeMovementMixin):
    """One method for each op of kernels, and the indexing of arrays in custom kernels."""

    __slots__ = ()

    @classmethod
    def placeholder(
        cls,
        shape: tuple[int | Node, ...],
        dtype: DType,
        slot: int,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
    ) -> Self:
        """Array number `slot` of a kernel: an argument, scratch memory, or registers."""
        return cls(Ops.PARAM, dtype, (), ParamArg(slot, shape, addrspace))

    @classmethod
    def range(cls, size: int | Self, index: int, axis_type: AxisType = AxisType.LOOP) -> Self:
        """A loop variable `0 <= r < size`."""
        bound = cls.const(dtypes.index, size)
        return cls(Ops.RANGE, dtypes.index, (bound,), RangeArg(index, axis_type))

    def index(self, idx: Self, valid: Self | None = None) -> Self:
        """The address of element `idx` of this pointer, valid where `valid` is true."""
        src = (self, idx) if valid is None else (self, idx, valid)
        return type(self)(Ops.INDEX, self.dtype, src)

    def load(self, alt: Self | None = None, dtype: DType | None = None) -> Self:
        """The value at this address, or `alt` where the address is invalid."""
        src = (self,) if alt is None else (self, alt)
        return type(self)(Ops.LOAD, dtype or self.dtype.base, src)

    def store(self, value: Self | ConstType, *ranges: Self) -> Self:
        """Write `value` to this address, once for each value of `ranges`."""
        written = self.const(self.dtype.base, value)
        return type(self)(Ops.STORE, dtypes.void, (self, written, *ranges))

    def reduce(self, *ranges: Self, arg: Ops) -> Self:
        """The reduction of this value over `ranges` by the op `arg`."""
        return type(self)(Ops.REDUCE, self.dtype, (self, *ranges), arg)

    def gep(self, lane: int) -> Self:
        """One lane of a vector."""
        return type(self)(Ops.GEP, self.dtype.scalar(), (self,), lane)

    # iteration by `__getitem__` alone would not terminate
    __iter__ = None

    def numel(self) -> int | Self:
        """The number of elements of an array."""
        count: int | Self = prod(self.shape)
        return count

    def flatten(self) -> Self:
        """The elements of an array in row-major order."""
        return self.reshape((self.numel(),))

    def __getitem__(self, index: Any) -> Self:
        """The element at an index of every axis or, with slices or fewer indices, a sub-array.

        Raises IndexError for too many indices, TypeError for slices with steps.
        """
        indices = index if isinstance(index, tuple) else (index,)
        shape = self.shape
        if len(indices) > len(shape):
            raise ArgumentIndexError(
                f"{len(indices)} indices for an array of shape {shape}; give one for each axis"
            )
        indices += (slice(None),) * (len(shape) - len(indices))
        if not any(isinstance(x, slice) for x in indices):
            numbers = (self._index(x, d) for x, d in zip(indices, shape, strict=True))
            return self.replace(op=Ops.INDEX, src=(self, *numbers), arg=None)
        bounds = tuple(_bounds(x, d) for x, d in zip(indices, shape, strict=True))
        part = self.shrink(bounds)
        kept = zip(indices, part.shape, strict=True)
        return part.reshape(tuple(d for x, d in kept if isinstance(x, slice)))

    def _index(self, x: Any, size: Any) -> Self:
        if isinstance(x, int):
            x = x + size if x < 0 else x
            return self.replace(op=Ops.CONST, dtype=dtypes.index, src=(), arg=x)
        if not isinstance(x, type(self)):
            raise TypeError(f"an index of a kernel's array is an int or an expression, not {x!r}")
        return x

    def valid(self, condition: Self) -> Self:
        """This index, masked by `condition`: masked loads are 0, masked stores are skipped.

        A masked index is used as it is, `A[(i - 1).valid(i > 0)]`, and not in expressions.
        """
        nothing = self.replace(op=Ops.NOOP, src=(), arg=None)
        return condition.alu(Ops.WHERE, self, nothing)

    def set(self, value: Any, end: Any = ()) -> Self:
        """Store `value` to this element, in loops that `end` closes; returns the array after it."""
        return self.src[0].after(self.store(value).end(*argfix(end)))

    def after(self, *before: Self) -> Self:
        """This array after `before`; a loop among them orders reads and writes inside of the loop.

        Without it, a read that does not depend on the loop is hoisted out of it.
        """
        return self.replace(op=Ops.AFTER, src=(self, *before), arg=None)

    def end(self, *ranges: Self) -> Self:
        """Close loops: this store, for each value of `ranges`, of which the first is outermost."""
        if not ranges:
            return self
        return self.replace(op=Ops.END, dtype=dtypes.void, src=(self, *ranges), arg=None)


def _bounds(x: Any, size: Any) -> tuple[Any, Any]:
    """The start and end of an index or a slice of an axis of `size`."""
    if not isinstance(x, slice):
        x = x + size if isinstance(x, int) and x < 0 else x
        return x, x + 1
    if x.step not in {None, 1}:
        raise TypeError(f"a slice of a kernel's array has no steps, but here {x.step}; index it")
    if isinstance(x.start, int | None) and isinstance(x.stop, int | None):
        return slice(x.start, x.stop).indices(size)[:2]
    return 0 if x.start is None else x.start, size if x.stop is None else x.stop
