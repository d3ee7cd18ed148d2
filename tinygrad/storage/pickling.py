"""Pickles and copies: a tensor and its views that are pickled or copied together are views again.

Input: a member of a cell. Output: what a pickle has of it, its own elements alone. Invariant: one
member of a cell is restored as a tensor of its own, however large the cell is; of several, a write
to one is seen by those that have the same elements.
"""

from __future__ import annotations

import copyreg
from dataclasses import dataclass, field
from typing import Any

from tinygrad.dtype import DType
from tinygrad.helpers import all_int
from tinygrad.sharding import Sharding
from tinygrad.storage.gradients.grad_mode import Leaf, marks
from tinygrad.storage.live_tensors import Cell, TensorBase, live_tensors
from tinygrad.storage.lock import changes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import computing_device
from tinygrad.uop.slice_assign import BIJECTIVE, ViewStep, update_view

Ints = tuple[int, ...]

_WITHOUT_INVERSE = {Ops.EXPAND, Ops.MSELECT}


@dataclass(frozen=True)
class Membership:
    """How a tensor is a view of the value of its cell, which has `shape` and `dtype`.

    `is_result` says that it requires a gradient as a result of others, not as a leaf.
    """

    steps: tuple[ViewStep, ...]
    shape: Ints
    dtype: DType
    is_result: bool

    @property
    def is_whole(self) -> bool:
        """Whether the view has all elements of the cell."""
        return all(op in BIJECTIVE for op, _ in self.steps)

    def overlaps(self, other: Membership) -> bool:
        """Whether both views may have the same elements: False if slices are disjoint."""
        boxes = zip(self._box(), other._box(), strict=True)
        return all(low < end and start < high for (low, high), (start, end) in boxes)

    def _box(self) -> tuple[tuple[Any, Any], ...]:
        """The part of each axis that the view is in, as its first step has it."""
        first = next((step for step in self.steps if step[0] is not Ops.DETACH), None)
        if first is not None and first[0] is Ops.SHRINK:
            return tuple(first[1])
        return tuple((0, size) for size in self.shape)


@dataclass(eq=False)
class RestoredMembers:
    """The members of a cell that were restored from one pickle, or copied in one call."""

    cell: Cell | None = None
    is_complete: bool = False
    """Whether all elements of the cell are known."""
    found: list[tuple[TensorBase, Membership]] = field(default_factory=list)

    def add(self, tensor: TensorBase, how: Membership) -> None:
        """Let a tensor share memory with those that have some of its elements."""
        with changes:
            if how.is_whole and not self.is_complete:
                self._write(tensor, how)
                self.is_complete = True
            self.found.append((tensor, how))
            if self.is_complete:
                related = self.found
                self.found = []
            else:
                related = self._overlapping(tensor, how)
                for member, joined in related:
                    if self.cell is None or member._cell is not self.cell:
                        self._write(member, joined)
            for member, joined in related:
                self._join(member, joined)

    def _overlapping(
        self, tensor: TensorBase, how: Membership
    ) -> list[tuple[TensorBase, Membership]]:
        """A tensor and those that may have the same elements, in any order; none if it has none in
        common with another, or elements that cannot be put into a value of the cell's shape.
        """
        related = [
            (x, other)
            for x, other in self.found
            if x is tensor or (_can_be_written(x, other) and how.overlaps(other))
        ]
        return related if len(related) > 1 and _can_be_written(tensor, how) else []

    def _write(self, tensor: TensorBase, how: Membership) -> None:
        """Put the elements of a tensor into the value of the cell, which is 0 before."""
        if self.cell is None:
            zeros = UOp.const(how.dtype, 0).reshape((1,) * len(how.shape)).expand(how.shape)
            if not how.is_whole:
                zeros = zeros.copy_to_device(tensor.uop.device)
            self.cell = TensorBase._new(update_view(zeros, how.steps, tensor.uop))._own_cell()
        else:
            self.cell.set(update_view(self.cell.uop, how.steps, tensor.uop))

    def _join(self, tensor: TensorBase, how: Membership) -> None:
        assert self.cell is not None, "the elements were written to it"
        tensor._join(self.cell, how.steps)
        live_tensors.changed(tensor)
        if how.is_result:
            tensor._requires_grad = True
            marks.changes += 1


def _can_be_written(tensor: TensorBase, how: Membership) -> bool:
    """Whether the elements of a view can be put into a value of the cell's shape."""
    is_on_one = not isinstance(tensor.uop.device, Sharding)
    return is_on_one and not any(op in _WITHOUT_INVERSE for op, _ in how.steps)


def membership(tensor: TensorBase) -> Membership | None:
    """How a tensor is a view of its cell; None if nothing else is, or the cell is in a file, whose
    copies are in memory of their own.
    """
    cell = tensor._cell
    if cell is None or len(cell.live()) < 2:
        return None
    whole, state = cell.uop, tensor._requires_grad
    shape, arguments = whole.shape, [arg for _, arg in tensor._steps]
    is_in_file = computing_device(whole.device) != whole.device
    if is_in_file or not all_int(shape) or any(map(_is_symbolic, arguments)):
        return None
    is_result = bool(state) and not isinstance(state, Leaf)
    return Membership(tensor._steps, shape, whole.dtype, is_result)


def _is_symbolic(argument: Any) -> bool:
    if isinstance(argument, tuple):
        return any(map(_is_symbolic, argument))
    return isinstance(argument, UOp)


def _reduced(cell: Cell) -> Any:
    """All members of a cell that are pickled or copied together restore one object."""
    return RestoredMembers, ()


copyreg.pickle(Cell, _reduced)
