"""The memory accesses of a kernel: their parts by name, and the parameters that they use.

INDEX(pointer, index[, condition])    the address of an element
LOAD(address[, alternative])          its value, or the alternative where the condition fails
STORE(address, value, *loops)         written in each step of the loops
"""

from __future__ import annotations

from collections.abc import Iterable

from tinygrad.codegen.analysis.affine_index import and_conditions
from tinygrad.renderer import pointer_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def index_of(access: UOp) -> UOp:
    """The index of the element that a LOAD or a STORE accesses."""
    return access.src[0].src[1]


def condition_of(access: UOp) -> UOp | None:
    """The condition of a masked LOAD or STORE; None for one that is not masked."""
    address = access.src[0]
    return address.src[2] if len(address.src) > 2 else None


def masked(address: UOp, condition: UOp) -> UOp:
    """An address that is valid where `condition` holds too."""
    return address.replace(src=(*address.src[:2], and_conditions(condition, *address.src[2:])))


def accessed_slots(nodes: Iterable[UOp], *ops: Ops) -> tuple[int, ...]:
    """The slots of the DEFINE_GLOBALs that nodes of these ops access."""
    addresses = (u.src[u.op is Ops.COPY_ASYNC] for u in nodes if u.op in ops)
    pointers = (pointer_of(x) for x in addresses)
    return tuple(sorted({int(p.arg) for p in pointers if p.op is Ops.DEFINE_GLOBAL}))
