"""A unit of work while a plan is made: one kernel or one transfer."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygrad.schedule.execution_plan import Slices, TransferItem
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo
from tinygrad.uop.ops import UOp


@dataclass(eq=False)
class Unit:
    """The work that makes the materialised value `node`.

    `reads` are the materialised nodes that it needs; `stores` the tensor form of its kernel;
    `params[i]` the memory of PARAM number i; `kernel` the kernel graph of
    a hand-written kernel; `overwrites` maps the memory that it overwrites to the assignments;
    `after` is a unit that runs before it.
    """

    node: UOp
    reads: list[UOp]
    item: TransferItem | None = None
    stores: list[UOp] = field(default_factory=list)
    params: list[Slices] = field(default_factory=list)
    kernel: UOp | None = None
    overwrites: dict[UOp, UOp] = field(default_factory=dict)
    after: Unit | None = None

    @property
    def info(self) -> CommInfo | None:
        """The collective of a kernel that reads the memory of peers."""
        return next((x.arg.info for x in self.reads if x.op is Ops.PEER), None)
