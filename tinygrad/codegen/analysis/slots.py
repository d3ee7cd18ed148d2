"""The parameters that a kernel accesses."""

from __future__ import annotations

from collections.abc import Iterable

from tinygrad.renderer import pointer_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def accessed_slots(nodes: Iterable[UOp], op: Ops) -> tuple[int, ...]:
    """The slots of the DEFINE_GLOBALs that LOADs or STOREs, as `op` says, access."""
    pointers = (pointer_of(u.src[0]) for u in nodes if u.op is op)
    return tuple(sorted({int(p.arg) for p in pointers if p.op is Ops.DEFINE_GLOBAL}))
