"""Outputs in memory of their own.

Input and output: a per-device graph. Invariant: no output of a plan is a view of memory that an
input, or another output, owns. So a write to one of them never changes the other.
"""

from __future__ import annotations

from tinygrad.schedule.storage_views import SHARD_NAMES, below_reshapes, below_views
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# nodes that a plan gives memory to
_COMPUTED = frozenset({Ops.CONTIGUOUS, Ops.TRANSFER, *GroupOp.Scatter})


def copy_shared_outputs(sink: UOp) -> UOp:
    """Copy each output that is a view of memory that an input or another output owns."""
    owned = {below_reshapes(x) for x in sink.src}
    return sink.replace(src=tuple(_copied_if_shared(x, owned) for x in sink.src))


def _copied_if_shared(output: UOp, owned: set[UOp]) -> UOp:
    view = below_reshapes(output)
    base = below_views(view)
    if base is view and base.op not in SHARD_NAMES:
        return output
    memory = base.src if base.op in SHARD_NAMES else (base,)
    if all(x.op in _COMPUTED and x not in owned for x in memory):
        # of the outputs that are views of one temporary, the first has its memory
        owned.update(memory)
        return output
    return UOp(Ops.CONTIGUOUS, output.dtype, (output,))
