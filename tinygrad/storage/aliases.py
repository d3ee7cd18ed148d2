"""Aliases: a tensor and its views share one value, so each sees writes to the others.

Input: a tensor, and its new value. Output: the tensor and all of its aliases over the new value.
Invariant: a member of a cell has the value of the view by its `_steps` of the cell's value; it may
be in memory of its own, or be what was last written to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tinygrad.storage.gradients.grad_mode import Leaf
from tinygrad.storage.live_tensors import TensorBase, cells_lock
from tinygrad.storage.views import is_whole_memory, view_base, written_target
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep, update_view

T = TypeVar("T", bound=TensorBase)


def aliases_of(tensor: TensorBase) -> list[TensorBase]:
    """The live tensors that are aliases of this one, which is one of them."""
    return [tensor] if tensor._cell is None else tensor._cell.live()


def whole_value(tensor: TensorBase) -> UOp:
    """The value that a tensor is a view of; its own value if it is not a view."""
    return tensor._cell.uop if tensor._cell is not None and tensor._steps else tensor.uop


def whole_tensor(tensor: TensorBase) -> TensorBase:
    """A tensor with the whole value that this one is a view of, as another alias; itself if it is
    not a view.
    """
    group = tensor._cell
    if not tensor._steps or group is None:
        return tensor
    whole = TensorBase._new(group.uop, tensor._requires_grad and True)
    with cells_lock:
        whole._cell = group
        group.add(whole._number)
    return whole


def view_of(tensor: T, uop: UOp, steps: Sequence[ViewStep]) -> T:
    """A view with the value `uop`, by `steps` from `tensor`."""
    new = tensor._view(uop)
    new._steps = (*tensor._steps, *steps)
    return new


def updated_whole(tensor: TensorBase, value: UOp) -> UOp:
    """The whole value after `value` was written to a view of it."""
    return update_view(whole_value(tensor), tensor._steps, value)


def has_own_memory(tensor: TensorBase) -> bool:
    """Whether a view is in other memory than the value that it is a view of."""
    if tensor._cell is None or not tensor._steps:
        return False
    own, whole = view_base(tensor.uop), view_base(tensor._cell.uop)
    return own is not whole and own.op is whole.op is Ops.BUFFER


def set_whole(tensor: TensorBase, whole: UOp) -> None:
    """Replace the whole value that a tensor is a view of, for all aliases."""
    if tensor._cell is None:
        tensor._set_node(whole)
    else:
        tensor._cell.set(whole)


def owns_memory(tensor: TensorBase) -> bool:
    """Whether the whole value that a tensor is a view of is memory that it may write in place, or a
    pending write to such memory.
    """
    base = written_target(view_base(whole_value(tensor)))
    return tensor._own_cell().owns(base)


def is_written_in_place(tensor: TensorBase) -> bool:
    """Whether the value in memory that a tensor is a view of is all of that memory, so that it can
    be written there, and the tensor may do so.
    """
    return is_whole_memory(whole_value(tensor)) and owns_memory(tensor)


def is_leaf(tensor: TensorBase) -> bool:
    """Whether a tensor is a leaf that requires a gradient, or a view of one."""
    return any(isinstance(x._requires_grad, Leaf) for x in aliases_of(tensor))
