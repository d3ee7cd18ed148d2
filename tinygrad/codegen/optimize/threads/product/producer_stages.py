"""Stages of shared memory that a role of the threads fills, while the others read them.

    the first thread: make two mbarriers for each stage, full and empty
    all threads: wait for that
    one thread of the producer:
        for step of the loop:
            wait until the stage is empty
            start to fill it; it is full when the copies are complete
    the consumers:
        for step of the loop:
            wait until the stage is full
            ... start products that read the stage, wait until earlier products are complete ...
            a lane of each warp: arrive at the mbarrier of the stage that the warp has read

The consumers have no barrier, so one warp multiplies while another waits or loads fragments. In a
cluster, a stage is empty when the consumers of all blocks have arrived. Consumers arrive only if a
later step fills the stage again: the producer waits for that, so no block ends before all have
arrived there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.analysis.affine_index import and_conditions
from tinygrad.codegen.analysis.ranges import loops_of, with_loops
from tinygrad.codegen.optimize.threads.product.bulk_stages import BulkStages
from tinygrad.codegen.optimize.threads.product.shared_tile import divided
from tinygrad.codegen.optimize.threads.product.stages import barrier, exists
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


@dataclass(frozen=True)
class ProducerStages(BulkStages):
    """Arrays in shared memory, filled by a producer. `step` is the loop of the consumers, `thread`
    that of all threads of the block.
    """

    producer: UOp
    consumer: UOp
    """The roles."""
    warp: int
    """The threads of a warp."""

    def refill(self, ready: UOp, begun: UOp) -> list[UOp]:
        """Nothing: the producer does that."""
        return []

    def close(self, read: UOp) -> UOp:
        """The arrival at the end of a step, after the wait for what earlier steps read."""
        next_use = self.step + (self.count - self.read_later)
        lane = divided(self.consumer, self.warp)[1]
        condition = and_conditions(lane < self.cluster, exists(next_use, self.step))
        if self.read_later:
            has_read = UOp.const(dtypes.index, self.read_later - 1) < self.step
            condition = and_conditions(condition, has_read)
        stage = divided(next_use, self.count)[1]
        address = self.mbarriers.after(read).index(stage + self.count, condition)
        return UOp(Ops.MBARRIER_ARRIVE, dtypes.void, (address, lane, self.step), self.cluster)

    def _begin(self) -> list[UOp]:
        arrivals = self.cluster * int(self.consumer.src[0].arg) // self.warp
        made = [self._init(0, 1), self._init(self.count, arrivals)]
        before = barrier(UOp(Ops.ASYNC_FENCE, dtypes.void, tuple(made)), cluster=self.cluster)
        steps, none = self.step.src[0], UOp.const(dtypes.index, 0)
        one_acts = UOp(Ops.WHERE, dtypes.index, (self.producer < 1, steps, none))
        step = self.factory.new(one_acts, AxisType.REDUCE)
        turn, stage = divided(step, self.count)
        # before the first use, the phase of number -1 counts as past
        parity = divided(turn + 1, 2)[1]
        address = self.mbarriers.after(before).index(stage + self.count)
        empty = UOp(Ops.MBARRIER_WAIT, dtypes.void, (address, parity, step))
        copies = self._fill([empty], step, None)
        return [with_loops(x, (self.producer, step, *loops_of(x))) for x in copies]
