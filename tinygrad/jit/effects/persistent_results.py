"""Persistent results: the same tensor objects in each call, whose memory each call overwrites.

Between calls the caller may have assigned to such a tensor, or to an alias of it. So before each
replay they are restored: each refers to the memory that the replay writes, and aliases in the
captured call are aliases again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tinygrad.storage.aliases import has_own_memory, note_stored, set_whole
from tinygrad.storage.copy_on_write import mark_shared
from tinygrad.storage.realization import realize_readers
from tinygrad.storage.views import is_in_memory, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import apply_steps


class PersistentResult:
    """A tensor that each call returns, with its node and alias group in the captured call.

    `owns_value`: whether the function created the tensor and all of its aliases.
    """

    def __init__(self, tensor: Tensor, owns_value: bool) -> None:
        self._group = tensor._alias_group()
        if owns_value and has_own_memory(tensor):
            view = apply_steps(self._group.uop, tensor._steps)
            if is_in_memory(view):
                # a view of the memory of its group; its own memory is not needed
                tensor._set_node(view)
        self.tensor = tensor
        self._node = tensor.uop
        self._steps = tensor._steps
        self._whole = self._group.uop
        self._owns_value = owns_value
        bases = {view_base(node) for node in (self._node, self._whole)} if owns_value else set()
        self.memory = [base for base in bases if base.op is Ops.BUFFER]
        """The BUFFERs of it and its aliases; none unless `owns_value`."""

    def references(self) -> Counter[UOp]:
        """How often this object refers to each node."""
        return Counter((self._node, self._whole, *self.memory))

    def is_restored(self) -> bool:
        """Whether the tensor is what it was in the captured call."""
        x, group = self.tensor, self._group
        return x.uop is self._node and x._aliases is group and group.uop is self._whole

    def restore(self) -> None:
        """Let the tensor and its aliases be what they were in the captured call."""
        x, group = self.tensor, self._group
        x._aliases, x._steps = group, self._steps
        if self._owns_value and group.uop is not self._whole:
            set_whole(x, self._whole)
        is_same = group.uop is self._whole
        x._set_node(self._node if is_same else apply_steps(group.uop, self._steps))
        for memory in self.memory:
            mark_shared(memory)
        note_stored(x)


def restore_all(results: Sequence[PersistentResult]) -> None:
    """Restore all results. Other tensors in their memory, and lazy values that read it, keep its
    content.
    """
    moved = [x for x in results if not x.is_restored()]
    if not moved:
        return
    for x in moved:
        x.restore()
    realize_readers({node for x in moved for node in x.memory}, [x.tensor for x in moved])
    for x in results:
        # equal results share memory
        if not x.is_restored():
            x.restore()
