"""Content: what is in some memory, whatever it is.

Input: a node over memory. Output: the same node over what is in the memory later. Invariant: it
keeps memory alive, and no version of its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tinygrad.execution.buffers import name_content, tokens_of
from tinygrad.execution.versions import is_same_memory
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Content:
    """What is in some memory, whatever it is: a node over it, whose BUFFERs are named when somebody
    asks for it.
    """

    __slots__ = ("like", "memory", "named")

    def __init__(self, node: UOp) -> None:
        self.named: Callable[[Iterable[UOp]], None] | None = None
        """What is told of new names."""
        memory = [x for x in node.toposort() if x.op is Ops.BUFFER]
        blank = {x: UOp.new_buffer(x.arg.device, x.arg.shape, x.dtype) for x in memory}
        self.like = blank[node] if node in blank else node.substitute(blank)
        """The node, over BUFFERs without memory."""
        self.memory = {new: (old.memory, tokens_of(old)) for old, new in blank.items()}
        """For each BUFFER that stands for memory, the memory and its tokens."""

    def node(self) -> UOp:
        """A node over what is in the memory now."""
        named = {
            x: name_content(memory, x.arg, x.dtype, tokens)
            for x, (memory, tokens) in self.memory.items()
        }
        if self.named is not None:
            self.named(named.values())
        return named[self.like] if self.like in named else self.like.substitute(named)

    def is_of(self, node: UOp) -> bool:
        """Whether a node is the same view of the same memory."""
        if node.op is Ops.BUFFER and self.like.op is Ops.BUFFER:
            # most are, and have nothing to substitute
            return is_same_memory(self.memory[self.like][0], node.memory)
        other = Content(node)
        mine, theirs = self.memory.items(), other.memory.items()
        if len(mine) != len(theirs):
            return False
        pairs = [*zip(mine, theirs, strict=True)]
        if not all(is_same_memory(a[0], b[0]) for (_, a), (_, b) in pairs):
            return False
        moved = {x: y for (x, _), (y, _) in pairs}
        return self.like.substitute(moved) is other.like
