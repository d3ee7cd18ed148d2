"""The parameters that a kernel accesses."""

from __future__ import annotations

from collections.abc import Iterable

from tinygrad.renderer import pointer_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def accessed_slots(nodes: Iterable[UOp], *ops: Ops) -> tuple[int, ...]:
    """The slots of the DEFINE_GLOBALs that nodes of these ops access."""
    addresses = (u.src[u.op is Ops.COPY_ASYNC] for u in nodes if u.op in ops)
    pointers = (pointer_of(x) for x in addresses)
    return tuple(sorted({int(p.arg) for p in pointers if p.op is Ops.DEFINE_GLOBAL}))
