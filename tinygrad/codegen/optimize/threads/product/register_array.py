"""Arrays of registers that a sequence of loops stores to."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.codegen.analysis.affine_index import collect
from tinygrad.dtype import AddrSpace, DType
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class RegisterArray:
    """An array that each thread has in registers. What is loaded is after the last store so far."""

    def __init__(self, dtype: DType, size: int, number: int, *before: UOp) -> None:
        self.dtype = dtype
        self.memory = UOp(Ops.DEFINE_REG, dtype.ptr(size, AddrSpace.REG), (), number)
        self.before: Sequence[UOp] = before
        """The last store, or the loops that have an array of their own."""

    def load(self, index: UOp, *loops: UOp, count: int = 1) -> UOp:
        """Elements from an index on, in a step of some loops that store to the array."""
        address = self.memory.after(*self.before, *loops).index(collect(index))
        return address.load(dtype=self.dtype.vec(count) if count > 1 else self.dtype)

    def store(self, index: UOp, value: UOp, *own: UOp, after: Sequence[UOp] = ()) -> None:
        """Store a value in each step of the loops `own`, after other effects too."""
        address = self.memory.after(*self.before, *after).index(collect(index))
        self.before = (address.store(value, *own),)
