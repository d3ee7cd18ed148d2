"""The gate: the only way to overwrite memory that exists.

A BUFFER node is one content of some memory, and that never changes. So before memory is
overwritten, whoever can let go of the node of its content does: the cell that writes it, and what
is computed with the write. Then one look: if the node lives, somebody can still read the older
content. Such a reader moves out: its node gets other memory, with a copy. The memory, and the cell
that owns it, stay where they are.

Input: memory about to be overwritten. Output: nobody can read its older content in it. Invariant: a
reader that was forgotten costs a copy, and never a value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tinygrad.execution.buffers import move_out
from tinygrad.execution.capture import capturing
from tinygrad.execution.versions import Base, versions_in
from tinygrad.measure import GlobalCounters
from tinygrad.uop.ops import UOp


def make_writable(memory: Iterable[Base], new: Collection[UOp] = ()) -> bool:
    """Let nobody read the content of memory that is about to be overwritten. Returns whether a
    reader had to move out; nothing is overwritten yet if there is no memory for its copy.

    `new` are the nodes of what is stored there.
    """
    readers = [node for node in versions_in(memory) if node not in new]
    for node in readers:
        move_out(node)
        GlobalCounters.moved_out += 1
        for capture in capturing()[-1:]:
            capture.has_moved = True
    return bool(readers)
