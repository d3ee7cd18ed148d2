"""Stages of shared memory that hardware fills, by copies that one thread starts.

    the first thread: make an mbarrier for each stage
    all threads: wait for that
    the first thread: start to fill the first stages
    for step of the loop:
        wait until the mbarrier of the stage says that it is filled
        ... start products that read the stage ...
        barrier of all threads: the products of earlier steps are complete
        the first thread: start to fill the stage that these read

The phases of an mbarrier are the uses of its stage. They are told apart by their number modulo 2.
Where blocks of a cluster copy to each other, the barriers are those of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad.codegen.analysis.affine_index import and_conditions, collect
from tinygrad.codegen.analysis.ranges import RangeFactory, with_loops
from tinygrad.codegen.optimize.threads.product.block_tile import MBARRIERS_BYTES
from tinygrad.codegen.optimize.threads.product.shared_tile import divided
from tinygrad.codegen.optimize.threads.product.stages import Memory, after, barrier, exists
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

Copy = Callable[[Memory, UOp, UOp, UOp | None], list[UOp]]
"""Starts the copies of a step of the loop, if a condition holds; they signal an mbarrier."""


@dataclass(frozen=True)
class BulkStages:
    """Arrays in shared memory, of `count` stages each, and the loop `step` that reads them."""

    memory: Memory
    count: int
    step: UOp
    thread: UOp
    copy: Copy
    nbytes: int
    """Bytes of a stage of all arrays."""
    read_later: int
    """Steps that may still be reading their stages when the next step starts to fill one."""
    cluster: int
    """Blocks that copy to each other."""
    number: int
    """The number of the array of mbarriers."""
    factory: RangeFactory

    @property
    def ahead(self) -> int:
        """The stages that are filled ahead."""
        return self.count - 1 - self.read_later

    @property
    def mbarriers(self) -> UOp:
        """One or two mbarriers for each stage, and padding."""
        size = MBARRIERS_BYTES // dtypes.uint64.itemsize
        pointer = dtypes.uint64.ptr(size, AddrSpace.LOCAL)
        return UOp(Ops.DEFINE_LOCAL, pointer, (), self.number)

    def ready(self) -> UOp:
        """The wait until the stage of a step is filled, after the first ones were begun."""
        turn, stage = divided(self.step, self.count)
        address = self.mbarriers.after(*self._begin()).index(stage)
        parity = divided(turn, 2)[1]
        return UOp(Ops.MBARRIER_WAIT, dtypes.void, (address, parity, self.step))

    def refill(self, ready: UOp, begun: UOp) -> list[UOp]:
        """Start to fill a later stage, after the products of the step were started."""
        read = barrier(ready, begun, cluster=self.cluster)
        return self._fill_by_first([read], self.step + self.ahead)

    def close(self, read: UOp) -> UOp:
        """The end of a step, after the wait for what earlier steps read."""
        return with_loops(read, (self.step,))

    def _begin(self) -> list[UOp]:
        fenced = UOp(Ops.ASYNC_FENCE, dtypes.void, (self._init(0, 1),))
        begun = [barrier(fenced, cluster=self.cluster)]
        for number in range(self.ahead):
            begun = self._fill_by_first(begun, UOp.const(dtypes.index, number))
        return begun

    def _init(self, first: int, arrivals: int) -> UOp:
        """The initialization of the mbarriers of all stages, from that of number `first` on."""
        loop = self.factory.new(self.count, AxisType.TILE)
        address = self.mbarriers.index(collect(loop + first), self.thread < 1)
        return UOp(Ops.MBARRIER_INIT, dtypes.void, (address, loop), arrivals)

    def _fill_by_first(self, before: list[UOp], step: UOp) -> list[UOp]:
        condition = and_conditions(self.thread < 1, exists(step, self.step))
        return self._fill(before, step, condition)

    def _fill(self, before: list[UOp], step: UOp, condition: UOp | None) -> list[UOp]:
        stage = divided(step, self.count)[1]
        mbarriers = self.mbarriers.after(*before)
        address = mbarriers.index(stage) if condition is None else mbarriers.index(stage, condition)
        expected = UOp(Ops.MBARRIER_EXPECT, dtypes.void, (address,), self.nbytes)
        signalled = self.mbarriers.after(expected).index(stage)
        return self.copy(after(self.memory, [expected]), signalled, step, condition)
