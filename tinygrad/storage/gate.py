"""The gate: the only way to overwrite memory that exists.

A BUFFER node is one version of the content of some memory, and a version never changes. So before
memory is overwritten, whoever can let go of the version does: the cell that owns the memory, and
what is computed with the write. Then one look: if the node lives, somebody can still read the older
content. Such a reader moves out: its node gets other memory, with a copy. The memory, and the cell
that owns it, stay where they are.

What happens at `c[1:3] += x`, where `c` is a vector in memory:

1. Python calls `view = c[1:3]`. A view is (cell, steps): it has the cell of `c`, and one step, a
   SHRINK. The node of `c` is a version, `BUFFER 1`, that of the view `SHRINK(BUFFER 1)`.
2. `view += x` calls `view.assign(view + x)` (`assignment.py`). The cell owns the memory, so its
   node becomes a pending write, `ASSIGN(BUFFER 1, where(mask, pad(view + x), BUFFER 1))`. Nothing
   runs. A cell that had borrowed the memory, as that of `c + 0`, would get the value alone: it has
   no memory of its own yet. All members of the cell derive their nodes from it when asked.
3. `c.tolist()` realizes it (`realization.py`). A schedule is planned: a kernel that stores three
   elements in place. Lazy tensors that read `BUFFER 1` join it (`readers.py`), as it is cheaper to
   compute them now than to copy what they read; no value depends on whether all are found.
4. The cell, and lazy tensors that contain the write, are rebuilt over `BUFFER 2`, a node for the
   content to come. From then on only a forgotten reader refers to `BUFFER 1`.
5. `make_writable` looks. The memory has a weak reference to `BUFFER 1`. If it is dead, nobody can
   read the older content. If not, `BUFFER 1` is bound to a copy.
6. `BUFFER 2` is bound to the memory, and the kernel runs. If it fails, `put_back.py` lets the cell
   be a pending write again.

A captured function does the same for all memory that it writes (`jit/effects/written_memory.py`),
but gives no names: a cell whose content has no node since a replay is named when somebody asks.
What was never named was never read, so the look of a replay is cheap.

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
