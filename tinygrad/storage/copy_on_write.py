"""Copy on write: a write to a tensor changes its aliases, and no other tensor.

Equal nodes of the graph are one object, so `a = x + 1` and `b = x + 1` are computed once, into one
buffer. `x.repeat(2)` is movement of the buffer of `x`, but not a view of it. Input: the nodes that
tensors were realized to, and the tensor about to be written. Output: copies of the shared memory
for all tensors that are not aliases.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.storage.aliases import is_leaf, set_whole, whole_tensor, whole_value
from tinygrad.storage.live_tensors import AliasGroup, TensorBase, live_tensors
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.views import view_base
from tinygrad.uop import Ops
from tinygrad.uop.node_table import NodeTable
from tinygrad.uop.ops import UOp

# the BUFFERs and ASSIGNs to BUFFERs that tensors refer to that are no aliases
_shared = NodeTable[None]()


def mark_common_memory(realized: Sequence[TensorBase | AliasGroup]) -> None:
    """Mark each buffer that several of the tensors and whole values refer to that were just
    realized, unless these are aliases, as shared.
    """
    owners: dict[UOp, TensorBase | AliasGroup] = {}
    for holder in realized:
        base = view_base(holder.uop)
        if base.op is Ops.BUFFER:
            own = holder if isinstance(holder, AliasGroup) else holder._aliases or holder
            if owners.setdefault(base, own) is not own:
                _shared[base] = None


def mark_shared(node: UOp) -> None:
    """Mark the memory of `node`, if it has any, as shared: a tensor refers to it that is no alias
    of those that do already.
    """
    base = view_base(node)
    if base.op in {Ops.BUFFER, Ops.ASSIGN}:
        _shared[base] = None


def _holders_of_shared() -> dict[UOp, dict[TensorBase | AliasGroup, TensorBase]]:
    """For each base that is marked as shared, the tensors that refer to it, one of each group of
    aliases. Marks of what a single group holds are removed, so that this search is rare.
    """
    found: dict[UOp, dict[TensorBase | AliasGroup, TensorBase]] = {}
    for tensor in live_tensors:
        for base in {view_base(tensor.uop), view_base(whole_value(tensor))}:
            if base in _shared:
                found.setdefault(base, {}).setdefault(tensor._aliases or tensor, tensor)
    for base, holders in found.items():
        if len(holders) < 2:
            _shared.pop(base)
    return found


def copy_on_write(tensor: TensorBase, stays: bool = False) -> None:
    """Copy the memory of `tensor`, if it is shared, for all tensors that are no aliases.

    Unless it `stays`, `tensor` gets the copy instead if one of these is older, as arguments of a
    captured function are, or a leaf that requires a gradient: values that were computed from a leaf
    have its gradient, so it stays in its memory. If it stays, the memory of its own that a view may
    be in is copied too.
    """
    memory = view_base(whole_value(tensor))
    _copy_shared(tensor, memory, stays)
    own = view_base(tensor.uop)
    if stays and own is not memory:
        _copy_shared(tensor, own, stays)


def _copy_shared(tensor: TensorBase, base: UOp, stays: bool) -> None:
    if base not in _shared:
        return
    mine = tensor._aliases or tensor
    others = _holders_of_shared().get(base, {})
    others.pop(mine, None)
    if not (stays or is_leaf(tensor)) and any(
        is_leaf(x) or _age(own) < _age(mine) for own, x in others.items()
    ):
        others = {mine: tensor}
    else:
        _shared.pop(base)
    for other in others.values():
        whole = whole_tensor(other)
        set_whole(whole, whole.uop.substitute({base: in_own_memory(base)}))


def _age(own: TensorBase | AliasGroup) -> int:
    """The number of a tensor, or of the first of its aliases."""
    return own.members[0] if isinstance(own, AliasGroup) else own._number
