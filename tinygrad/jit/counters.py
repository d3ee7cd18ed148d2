"""What a replay adds to the counters: the same each time, so it is added up once.

In: captured items. Out: `ran()`. Always true: the counters and traces show what they would show if
the items ran one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tinygrad.execution.realize import BufferCopy, ExecItem, ScheduleItem, crosses
from tinygrad.execution.trace import Collective
from tinygrad.helpers import GlobalCounters
from tinygrad.uop.ops import sym_infer


class Counted:
    """Kernels, operations and bytes of the items of a capture; what symbolic sizes change is
    counted as it was captured.
    """

    def __init__(self, items: Sequence[ScheduleItem]) -> None:
        kernels = [x for x in items if isinstance(x, ExecItem)]
        estimates = [(x.lower().spec.estimates, x.values) for x in kernels]
        self.kernel_count = len(kernels)
        self.ops = sum(sym_infer(found.flops, values) for found, values in estimates)
        self.nbytes = sum(sym_infer(found.memory_bytes, values) for found, values in estimates)
        # bytes that each device sent to others, and those of each movement
        self.sent: Counter[str] = Counter()
        self.crossed: dict[Collective, int] = {}
        for item in items:
            if isinstance(item, BufferCopy):
                self._count(item)

    def _count(self, item: BufferCopy) -> None:
        # a movement is reported after its last round
        crossed = self.crossed.pop(item.collective, 0)
        for destination, source in item.pairs:
            if crosses(destination, source):
                self.sent[source.device] += source.nbytes
                crossed += source.nbytes
        self.crossed[item.collective] = crossed

    def ran(self) -> None:
        """Count one replay."""
        GlobalCounters.kernel_count += self.kernel_count
        GlobalCounters.global_ops += self.ops
        GlobalCounters.global_mem += self.nbytes
        for device, nbytes in self.sent.items():
            GlobalCounters.count_message(device, nbytes)
        for collective, nbytes in self.crossed.items():
            collective.replayed(nbytes)
