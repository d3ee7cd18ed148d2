"""Aliases: a tensor and its views share one value, so each sees writes to the others.

Input: a tensor, and its new value. Output: the tensor and all of its aliases over the new value.
Invariant: a member of an alias group has the value of the view by its `_steps` of the group's
value; it may be in memory of its own, or be what was last written to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from tinygrad.storage.gradients.grad_mode import Leaf
from tinygrad.storage.live_tensors import TensorBase, groups_lock, live_tensors
from tinygrad.storage.views import view_base, written_target
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep, apply_steps, update_view

T = TypeVar("T", bound=TensorBase)


def aliases_of(tensor: TensorBase) -> list[TensorBase]:
    """The live tensors that are aliases of this one, which is one of them."""
    return [tensor] if tensor._aliases is None else tensor._aliases.live()


def whole_value(tensor: TensorBase) -> UOp:
    """The value that a tensor is a view of; its own value if it is not a view."""
    return tensor._aliases.uop if tensor._aliases is not None and tensor._steps else tensor.uop


def whole_tensor(tensor: TensorBase) -> TensorBase:
    """A tensor with the whole value that this one is a view of, as another alias; itself if it is
    not a view.
    """
    group = tensor._aliases
    if not tensor._steps or group is None:
        return tensor
    whole = TensorBase._new(group.uop, tensor._requires_grad and True)
    with groups_lock:
        whole._aliases = group
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


# A cached view has a value of its own, not the movement of the value that it is a view of: a slice
# of a sharded axis that was computed into other memory, or a view that was just written to. When
# the value below changes, it is refreshed. These are the numbers of views that may be cached.
_cached: set[int] = set()
has_cached_views: Callable[[], int] = _cached.__len__
"""A quick check whether there may be any cached views: their number, an upper bound."""


def note_stored(tensor: TensorBase) -> None:
    """Note that a tensor was stored, so that a view in memory of its own is a cached view."""
    if has_own_memory(tensor):
        _cached.add(tensor._number)


def set_written(view: TensorBase, value: UOp) -> None:
    """Let a view have the value that was just written to it, instead of reading it from memory."""
    view._set_node(value)
    _cached.add(view._number)


def cached_views(memory: Collection[UOp]) -> list[TensorBase]:
    """The cached views of these BUFFERs, or of pending writes to them."""
    found = []
    for number in [*_cached]:
        view = live_tensors.find(number)
        if view is None or view_base(view.uop) is view_base(whole_value(view)):
            _cached.discard(number)
        elif written_target(view_base(whole_value(view))) in memory:
            found.append(view)
    return found


def has_own_memory(tensor: TensorBase) -> bool:
    """Whether a view is in other memory than the value that it is a view of."""
    if tensor._aliases is None or not tensor._steps:
        return False
    own, whole = view_base(tensor.uop), view_base(tensor._aliases.uop)
    return own is not whole and own.op is whole.op is Ops.BUFFER


def refresh_views(memory: Collection[UOp]) -> None:
    """Let the cached views of these BUFFERs, whose content changes, be views of it again."""
    for view in cached_views(memory):
        assert view._aliases is not None
        view._set_node(apply_steps(view._aliases.uop, view._steps))
        _cached.discard(view._number)


def set_whole(tensor: TensorBase, whole: UOp) -> None:
    """Replace the whole value that a tensor is a view of, and derive all aliases from it."""
    group = tensor._aliases
    if group is None:
        tensor._set_node(whole)
        return
    group.uop = whole
    for member in group.live():
        member._set_node(apply_steps(whole, member._steps))


def count_references(tensors: Collection[TensorBase]) -> Counter[UOp]:
    """How often these tensors and their alias groups refer to each node."""
    found = Counter(x.uop for x in tensors)
    found.update({x._aliases: x._aliases.uop for x in tensors if x._aliases is not None}.values())
    return found


def is_leaf(tensor: TensorBase) -> bool:
    """Whether a tensor is a leaf that requires a gradient, or a view of one."""
    return any(isinstance(x._requires_grad, Leaf) for x in aliases_of(tensor))
