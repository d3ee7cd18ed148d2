"""Aliases: a tensor and its views are one value, whichever of them is written.

Input: a tensor, and its new value. Output: the same tensor and all of its aliases, in terms of the
new value. Invariant: each member of an alias group is the view by its steps of the group's value,
or an equal value that was computed by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tinygrad.storage.grad_mode import Leaf
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import apply_steps, update_view


def whole_value(tensor: TensorBase) -> UOp:
    """The value that a tensor is a view of; its own if it is no view."""
    return tensor._aliases.uop if tensor._aliases is not None and tensor._steps else tensor.uop


def whole_tensor(tensor: TensorBase) -> TensorBase:
    """The tensor that this one is a view of, or another that stands for it."""
    if not tensor._steps or tensor._aliases is None:
        return tensor
    whole = TensorBase._new(tensor._aliases.uop, tensor._requires_grad and True)
    whole._aliases = tensor._aliases
    tensor._aliases.add(whole._number)
    return whole


def updated_whole(tensor: TensorBase, value: UOp) -> UOp:
    """The whole value after `value` was written to a view of it."""
    return update_view(whole_value(tensor), tensor._steps, value)


def set_whole(tensor: TensorBase, whole: UOp) -> None:
    """Give the value that a tensor is a view of, and so all aliases, a new node."""
    group = tensor._aliases
    if group is None:
        tensor.uop = whole
        return
    group.uop = whole
    for member in group.live():
        member.uop = apply_steps(whole, member._steps)


def count_references(tensors: Collection[TensorBase]) -> Counter[UOp]:
    """How often these tensors and their alias groups refer to each node."""
    found = Counter(x.uop for x in tensors)
    found.update({x._aliases: x._aliases.uop for x in tensors if x._aliases is not None}.values())
    return found


def is_leaf(tensor: TensorBase) -> bool:
    """Whether a tensor is a leaf that requires a gradient, or a view of one."""
    aliases = () if tensor._aliases is None else tensor._aliases.live()
    return any(isinstance(x._requires_grad, Leaf) for x in (tensor, *aliases))
