"""A unit of work while a plan is made: one kernel, or one transfer."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygrad.schedule.execution_plan import StorageSlice, TransferItem
from tinygrad.uop.ops import UOp


@dataclass(eq=False)
class Unit:
    """What makes the stored value `node`.

    `reads` are the stored nodes it needs; `stores` the kernel's tensor form; `params[i]` the parts,
    one a device, behind PARAM number i; `kernel` the kernel graph, where that was written by hand;
    `overwrites` the assignments (values) that take over the memory of stored nodes (keys); `after`
    a unit that runs before it.
    """

    node: UOp
    reads: list[UOp]
    item: TransferItem | None = None
    stores: list[UOp] = field(default_factory=list)
    params: list[tuple[StorageSlice, ...]] = field(default_factory=list)
    kernel: UOp | None = None
    overwrites: dict[UOp, UOp] = field(default_factory=dict)
    after: Unit | None = None
