"""Known memory: where a tensor was when a call was captured, and whether it is still there.

Memory is compared, not nodes: each write gives memory another node, and a capture reads and writes
what is in the memory.
"""

from __future__ import annotations

import weakref
from typing import Any

from tinygrad.execution.buffers import memory_of
from tinygrad.execution.versions import bases_of, is_same_memory
from tinygrad.storage.content import Content
from tinygrad.storage.live_tensors import Cell
from tinygrad.storage.views import IDENTITY_OPS, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep


class StoredTensor:
    """A tensor in memory when a call began, whole or in partial sums. It keeps neither alive."""

    __slots__ = ("_memory", "_node", "_steps", "buffers", "ref")

    def __init__(self, tensor: Tensor) -> None:
        node = tensor.uop
        base = view_base(node)
        self.ref = weakref.ref(tensor)
        self._node = weakref.ref(node)
        is_whole = base.op is Ops.BUFFER
        self._memory = weakref.ref(base.memory) if is_whole else None
        self._steps = _steps_above(node, base)
        below = [base] if is_whole else [x for x in base.toposort() if x.op is Ops.BUFFER]
        self.buffers = [weakref.ref(b) for x in below for b in memory_of(x)]

    def tensor(self) -> Tensor | None:
        """The tensor, if it lives."""
        return self.ref()

    def node(self) -> UOp | None:
        """The node that the tensor had, if it lives."""
        return self._node()

    def is_in_place(self, tensor: Tensor) -> bool:
        """Whether the tensor is the same view of the same memory."""
        node = tensor.uop
        return not self.is_moved(tensor) and (
            node is self._node() or _steps_above(node, view_base(node)) == self._steps
        )

    def is_moved(self, tensor: Tensor) -> bool:
        """Whether the tensor is in other memory, or in none."""
        if self._memory is None:
            return tensor.uop is not self._node()
        base, memory = view_base(tensor.uop), self._memory()
        is_stored = base.op is Ops.BUFFER and base.memory is not None
        return memory is None or not (is_stored and is_same_memory(base.memory, memory))


class KnownMemory:
    """The view of memory that a tensor is, which it does not keep alive."""

    __slots__ = ("_content",)

    def __init__(self, tensor: Tensor) -> None:
        self._content = Content(tensor.uop)

    def is_memory_of(self, tensor: Tensor) -> bool:
        """Whether a tensor is the same view of the same memory."""
        return self._content.is_of(tensor.uop)

    def base(self) -> Any:
        """What identifies the memory."""
        return next((bases_of(memory)[0] for memory, _ in self._content.memory.values()), None)


class KnownTensor:
    """A tensor that a capture finds by name: a view by some steps of a cell in some memory."""

    __slots__ = ("_base", "_cell", "_content", "_memory", "_seen", "_steps", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._cell: Cell = tensor._own_cell()
        self._steps = tensor._steps
        tensor._own_memory()
        node = self._cell.uop
        self._content: Content = self._cell.note_content(node)
        self._see(node)

    def _see(self, node: UOp) -> None:
        """Note a node that is known to be in the memory."""
        base = view_base(node)
        self._seen, self._base = weakref.ref(node), weakref.ref(base)
        self._memory = base.memory

    def is_in_place(self) -> bool:
        """Whether the tensor is the same view of the same memory."""
        x, cell = self.tensor, self._cell
        if x._cell is not cell or x._steps is not self._steps:
            return False
        node = cell._node
        if node is None:
            return cell.content is self._content
        base = self._base()
        if node is self._seen() and base is not None and base.memory is self._memory:
            return True
        if view_base(node).op is not Ops.BUFFER or not self._content.is_of(node):
            return False
        self._see(node)
        return True


def _steps_above(node: UOp, base: UOp) -> list[ViewStep]:
    """The steps from a node down to the BUFFER that it is a view of."""
    steps: list[ViewStep] = []
    while node is not base:
        if node.op not in IDENTITY_OPS:
            steps.append((node.op, node.dtype if node.op is Ops.BITCAST else node.arg))
        node = node.src[0]
    return steps
