"""What a replay adds to the counters. It is the same for each replay, so it is summed once.

Input: captured items. Output: `count_replay()`. Invariant: counters and traces show what they would
show if the items ran one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ExecItem, ScheduleItem
from tinygrad.execution.trace import Collective, active_traces
from tinygrad.helpers import GlobalCounters
from tinygrad.uop.ops import sym_infer


class ReplayCounters:
    """The kernels, operations and bytes of captured items. What depends on symbolic sizes is
    counted with the sizes of the captured call.
    """

    def __init__(self, items: Sequence[ScheduleItem]) -> None:
        kernels = [x for x in items if isinstance(x, ExecItem)]
        estimates = [(x.lower().spec.estimates, x.values) for x in kernels]
        self._kernel_count = len(kernels)
        self._ops = sum(sym_infer(found.flops, values) for found, values in estimates)
        self._nbytes = sum(sym_infer(found.memory_bytes, values) for found, values in estimates)
        # bytes that each device sends to others, and that each collective sends
        self._sent: Counter[str] = Counter()
        self._crossed: dict[Collective, int] = {}
        for item in items:
            if isinstance(item, BufferCopy):
                self._add_messages(item)
            elif item.peers is not None:
                self._add_peer_reads(item.peers.collective, item.read_from_peers)

    def _add_peer_reads(self, collective: Collective, buffers: list[Buffer]) -> None:
        for buffer in buffers:
            self._sent[buffer.device] += buffer.nbytes
        crossed = self._crossed.pop(collective, 0)
        self._crossed[collective] = crossed + sum(buffer.nbytes for buffer in buffers)

    def _add_messages(self, item: BufferCopy) -> None:
        # a collective is reported after its last round
        crossed = self._crossed.pop(item.collective, 0)
        for device, nbytes in item.traffic:
            self._sent[device] += nbytes
            crossed += nbytes
        self._crossed[item.collective] = crossed

    def count_replay(self) -> None:
        """Count one replay."""
        GlobalCounters.kernel_count += self._kernel_count
        GlobalCounters.global_ops += self._ops
        GlobalCounters.global_mem += self._nbytes
        for device, nbytes in self._sent.items():
            GlobalCounters.count_message(device, nbytes)
        if self._crossed and active_traces():
            for collective, nbytes in self._crossed.items():
                collective.replayed(nbytes)
