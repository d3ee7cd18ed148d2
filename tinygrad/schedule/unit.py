"""A unit of work while a plan is made: one kernel, or one transfer."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygrad.schedule.plan import Part, TransferItem
from tinygrad.uop.ops import UOp


@dataclass(eq=False)
class Unit:
    """What makes the stored value `node`.

    `reads` are the stored nodes it needs; `stores` the kernel's tensor form; `params[i]` the parts,
    one a device, behind PARAM number i; `overwrites` the stored node whose memory an assignment
    takes over; `after` a unit that runs before it.
    """

    node: UOp
    reads: list[UOp]
    item: TransferItem | None = None
    stores: list[UOp] = field(default_factory=list)
    params: list[tuple[Part, ...]] = field(default_factory=list)
    overwrites: UOp | None = None
    after: Unit | None = None
