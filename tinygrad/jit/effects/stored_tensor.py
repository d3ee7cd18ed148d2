"""Stored tensors: where a tensor in memory was when a call began, and whether it is still there.

References are weak: tensor, node and memory may be gone when they are asked for.
"""

from __future__ import annotations

import weakref

from tinygrad.execution.buffers import memory_of
from tinygrad.storage.views import IDENTITY_OPS, is_in_memory, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep


class StoredTensor:
    """A tensor in memory, with its node, which may be gone when the tensor was written."""

    __slots__ = ("_node", "_steps", "base", "buffers", "ref")

    def __init__(self, tensor: Tensor) -> None:
        base = view_base(tensor.uop)
        self.ref = weakref.ref(tensor)
        self._node = weakref.ref(tensor.uop)
        self.base = weakref.ref(base)
        self._steps = _steps_above(tensor.uop, base)
        self.buffers = [weakref.ref(b) for b in memory_of(base)]

    def tensor(self) -> Tensor | None:
        """The tensor, if it lives."""
        return self.ref()

    def node(self) -> UOp | None:
        """The node that the tensor had, if it lives."""
        return self._node()

    def is_in_place(self, tensor: Tensor) -> bool:
        """Whether the tensor is the same view of the same memory."""
        base = self.base()
        if base is None or view_base(tensor.uop) is not base:
            return False
        return tensor.uop is self._node() or _steps_above(tensor.uop, base) == self._steps

    def is_moved(self, tensor: Tensor) -> bool:
        """Whether the tensor is in other memory."""
        return is_in_memory(tensor.uop) and view_base(tensor.uop) is not self.base()


def is_same_view(x: UOp, y: UOp) -> bool:
    """Whether two nodes are the same view of the same memory."""
    base = view_base(x)
    return view_base(y) is base and _steps_above(x, base) == _steps_above(y, base)


def _steps_above(node: UOp, base: UOp) -> list[ViewStep]:
    """The steps from a node down to the BUFFER that it is a view of."""
    steps: list[ViewStep] = []
    while node is not base:
        if node.op not in IDENTITY_OPS:
            steps.append((node.op, node.dtype if node.op is Ops.BITCAST else node.arg))
        node = node.src[0]
    return steps
