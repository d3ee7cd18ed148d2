"""Run a schedule: kernels and rounds of messages over real buffers.

Input: `ExecItem`s and `BufferCopy`s. Output: written buffers. Invariant: a kernel is compiled once
for its tensor form and kind of device, whatever devices and buffers it runs on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from tinygrad.caches import NODE_BYTES, LruTable, cache_bytes
from tinygrad.device import Buffer, Device, copy_buffer
from tinygrad.execution.capture import capturing
from tinygrad.execution.interrupts import interrupts_kept
from tinygrad.execution.programs import kernel_program
from tinygrad.execution.runner import CompiledRunner
from tinygrad.execution.trace import Collective
from tinygrad.execution.wire import RemoteMessage, current_wire
from tinygrad.helpers import GlobalCounters, dedup
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.renderer.target import Target
from tinygrad.schedule.kernel.custom_kernel import written_slots
from tinygrad.schedule.kernel.rangeify import is_kernel_graph
from tinygrad.settings import ALLOW_TF32, BEAM, DEBUG, NOOPT, TC
from tinygrad.sharding import allreduce_bytes, current_local_devices
from tinygrad.text import highlighted
from tinygrad.uop.args import CommInfo, Reduction
from tinygrad.uop.ops import UOp, sym_infer

LINKED_BYTES = 48 << 10
"""An estimate of the bytes of a kernel in this process, besides its nodes and its source: mapped
code, and what the linker and Python keep for it. Measured: 41 KiB and 5 KiB."""
FEW_KERNELS = 12
"""Fewer are compiled by this process, before another one would have started."""
RunnerKey: TypeAlias = tuple[str, Target, tuple[int, int, int, int], UOp]


def _runner_bytes(key: RunnerKey, runner: CompiledRunner) -> int:
    """An estimate of the bytes that a compiled kernel keeps."""
    nodes = len(key[3].toposort())
    return LINKED_BYTES + len(runner.spec.source) + len(runner.code) + nodes * NODE_BYTES


# Captured functions keep their kernels alive; any other is unloaded when it is dropped from here.
_runners: LruTable[RunnerKey, CompiledRunner] = LruTable(
    lambda: cache_bytes() * 2 // 3, _runner_bytes
)
compiled_kernels: deque[str] = deque(maxlen=1 << 16)
"""The names of the kernels that were compiled last; tests count these."""


def _runner_key(device: str, ast: UOp, is_aligned: bool = True) -> RunnerKey:
    target = Device[device].target
    if not is_aligned:
        target = replace(target, vector_bytes=1)
    settings = NOOPT.get(), ALLOW_TF32.get(), BEAM.get(), TC.get()
    return device.partition(":")[0], target, settings, ast


def get_runner(
    device: str, ast: UOp, *, is_aligned: bool = True, spec: ProgramSpec | None = None
) -> CompiledRunner:
    """The compiled kernel of a tensor form, for all devices of the kind of `device`; `spec` is its
    program if that is known.

    If not `is_aligned`, it accesses single elements only, so buffers may begin at any address.
    """
    key = _runner_key(device, ast, is_aligned)
    found = _runners.get(key)
    if found is None:
        spec = spec or kernel_program(ast, find_renderer(key[1]), device)
        if DEBUG >= 3:
            print(f"{spec.name}: {', '.join(spec.applied) or 'plain loops'}")
        if DEBUG >= 4:
            print(spec.source)
        found = CompiledRunner(spec, device)
        compiled_kernels.append(spec.name)
        _runners.put(key, found)
    return found


class PeerReads(NamedTuple):
    """Round number `number` of a collective: a kernel that reads memory of other devices."""

    collective: Collective
    number: int


@dataclass(eq=False, slots=True)
class ExecItem:
    """One run of a kernel on one device. `bufs[i]` is PARAM number i of `ast`; with `peers`, some
    of them are on other devices.
    """

    ast: UOp
    bufs: tuple[Buffer, ...]
    device: str
    values: dict[str, int]
    runner: CompiledRunner | None = None
    peers: PeerReads | None = None

    @property
    def written(self) -> list[Buffer]:
        """The buffers that the kernel writes."""
        return [self.bufs[slot] for slot in _written_params(self.ast)]

    @property
    def read_from_peers(self) -> list[Buffer]:
        """The buffers on other devices."""
        return [b for b in self.bufs if b.device != self.device] if self.peers else []

    def lower(self) -> CompiledRunner:
        """Compile the kernel, once."""
        if self.runner is None:
            runner = get_runner(self.device, self.ast)
            if not runner.accepts(self.bufs):
                runner = get_runner(self.device, self.ast, is_aligned=False)
            self.runner = runner
        return self.runner

    def run(self, wait: bool = False) -> float | None:
        """Run the kernel; with `wait`, return the seconds it took."""
        runner = self.runner or self.lower()
        wait = wait or DEBUG.get() >= 2
        if self.peers is None:
            elapsed = runner(self.device, self.bufs, self.values, wait)
        else:
            others = [Device[name] for name in dedup(b.device for b in self.read_from_peers)]
            with Device[self.device].reading_memory_of(others):
                elapsed = runner(self.device, self.bufs, self.values, wait)
        self.count(elapsed, runner)
        return elapsed

    def count(self, elapsed: float | None, runner: CompiledRunner | None = None) -> None:
        """Add this run to the counters, and print a line at DEBUG=2."""
        spec = (runner or self.lower()).spec
        ops, nbytes = spec.estimates.flops, spec.estimates.memory_bytes
        if ops.__class__ is not int or nbytes.__class__ is not int:
            ops, nbytes = sym_infer(ops, self.values), sym_infer(nbytes, self.values)
        GlobalCounters.kernel_count += 1
        GlobalCounters.global_ops += ops
        GlobalCounters.global_mem += nbytes
        if self.peers is not None:
            self._count_messages(self.peers, elapsed)
        if elapsed is None:
            return
        GlobalCounters.time_sum_s += elapsed
        if DEBUG >= 2:
            rate = (
                f"{ops / elapsed * 1e-9:8.1f} GFLOP/s {nbytes / elapsed * 1e-9:7.1f} GB/s"
                if elapsed
                else ""
            )
            name = highlighted(f"{spec.name:40s}", "cyan")
            number = GlobalCounters.kernel_count
            print(f"*** {self.device:7s} {number:5d} {name} {elapsed * 1e6:10.1f} us {rate}")

    def _count_messages(self, peers: PeerReads, elapsed: float | None) -> None:
        for buffer in self.read_from_peers:
            GlobalCounters.count_message(buffer.device, buffer.nbytes)
        sent = sum(buffer.nbytes for buffer in self.read_from_peers)
        peers.collective.ran(peers.number, sent, sent, elapsed)


@dataclass(eq=False)
class BufferCopy:
    """Round number `number` of a collective.

    `pairs` are the destination and the source of messages within this process, `remote` the
    messages of which another process has one end. With a `reduction`, each pair is on one device,
    and a library reduces the sources to the destinations.
    """

    collective: Collective
    number: int
    pairs: tuple[tuple[Buffer, Buffer], ...]
    remote: tuple[RemoteMessage, ...] = ()
    reduction: Reduction | None = None
    ast: None = None

    @property
    def info(self) -> CommInfo:
        """The description of the collective."""
        return self.collective.info

    @property
    def bufs(self) -> tuple[Buffer, ...]:
        """The destinations, then the sources, then the local ends of messages to and from other
        processes.
        """
        ends = tuple(d for d, _ in self.pairs) + tuple(s for _, s in self.pairs)
        return ends + tuple(m.buffer for m in self.remote) if self.remote else ends

    @property
    def written(self) -> list[Buffer]:
        """The destinations."""
        written = [d for d, _ in self.pairs]
        return written + [m.buffer for m in self.remote if not m.is_sent]

    @property
    def traffic(self) -> list[tuple[str, int]]:
        """The devices that send messages to others, with the bytes of each message."""
        if self.reduction is not None:
            # as by a ring; what the library sends is not known
            return [
                (device, allreduce_bytes(len(group), self.pairs[number][1].nbytes, "ring"))
                for group in self.reduction.groups
                for number in group
                for device in [self.pairs[number][1].device]
            ]
        sent = [(s.device, s.nbytes) for d, s in self.pairs if crosses(d, s)]
        return sent + [(m.source, m.nbytes) for m in self.remote if m.is_sent]

    def lower(self) -> BufferCopy:
        """Nothing is to be compiled."""
        return self

    def run(self, wait: bool = False) -> float | None:
        """Send and receive every message."""
        start = time.perf_counter()
        if self.reduction is not None:
            Device[self.pairs[0][0].device].all_reduce(self.pairs, self.reduction)
            for device, nbytes in self.traffic:
                GlobalCounters.count_message(device, nbytes)
            elapsed = time.perf_counter() - start
            self.count(elapsed)
            return elapsed if wait else None
        if self.remote:
            wire = current_wire()
            for message in self.remote:
                message.buffer.ensure_allocated()
            ticket = wire.start(self.remote)
        for destination, source in self.pairs:
            copy_buffer(destination.ensure_allocated(), source.ensure_allocated())
        if self.remote:
            wire.wait(ticket)
            for message in self.remote:
                if message.is_sent:
                    GlobalCounters.count_message(message.source, message.nbytes)
        elapsed = time.perf_counter() - start
        self.count(elapsed)
        return elapsed if wait else None

    def count(self, elapsed: float | None) -> None:
        """Add this round to the counts of its collective. A message counts for its sender."""
        crossed = sum(nbytes for _, nbytes in self.traffic)
        from_host = [d.nbytes for d, s in self.pairs if d.device != s.device and not crosses(d, s)]
        self.collective.ran(self.number, crossed, crossed + sum(from_host), elapsed)


def _written_params(ast: UOp) -> tuple[int, ...]:
    """The numbers of the arguments that a kernel writes."""
    if is_kernel_graph(ast):
        return written_slots(ast)
    return tuple(dedup(int(store.src[0].base.arg.slot) for store in ast.src))


def crosses(destination: Buffer, source: Buffer) -> bool:
    """Whether a copy is traffic between devices, and not from the host's memory or a file."""
    return source.device != destination.device and not Device[source.device].is_host_source


ScheduleItem = ExecItem | BufferCopy


def run_schedule(
    schedule: Sequence[ScheduleItem],
    completed: list[ScheduleItem] | None = None,
    stored: Sequence[Collection[Any]] = (),
) -> None:
    """Run items in order, and append each to `completed` once it ran. No interrupt comes while part
    of some memory, one of `stored`, is overwritten.
    """
    ran: list[ScheduleItem] = [] if completed is None else completed
    compile_items(schedule)
    try:
        for number, item in enumerate(schedule):
            if interrupts_kept.wants_end and _is_between(ran, schedule[number:], stored):
                raise KeyboardInterrupt
            item.run()
            ran.append(item)
    finally:
        for capture in capturing()[-1:]:
            capture.items.extend(ran)


def compile_items(schedule: Sequence[ScheduleItem]) -> None:
    """Compile the kernels of a schedule, once."""
    missing: dict[RunnerKey, str] = {}
    for item in schedule:
        if isinstance(item, ExecItem) and item.runner is None:
            key = _runner_key(item.device, item.ast)
            found = None if key in missing else _runners.get(key)
            if found is None:
                missing[key] = item.device
            elif found.accepts(item.bufs):
                item.runner = found
    if len(missing) >= FEW_KERNELS and current_local_devices().is_all and DEBUG < 3:
        _compile_together(missing)
    for item in schedule:
        item.lower()


def _compile_together(missing: dict[RunnerKey, str]) -> None:
    """Compile many kernels: worker processes compile some while this one generates the code of
    others. Not for one of several processes: together they would start too many.
    """
    specs = []
    for key, device in missing.items():
        spec = kernel_program(key[3], find_renderer(key[1]), device)
        Device[device].compile_ahead(spec.source, spec.is_vectorized)
        specs.append(spec)
    # workers begin with the first
    for (key, device), spec in reversed(list(zip(missing.items(), specs, strict=True))):
        get_runner(device, key[3], spec=spec)


def _is_between(
    ran: Sequence[ScheduleItem], rest: Sequence[ScheduleItem], stored: Sequence[Collection[Any]]
) -> bool:
    """Whether no memory of `stored` is written both by items that ran and by others."""
    before, after = ({b.base or b for item in x for b in item.written} for x in (ran, rest))
    return all(before.isdisjoint(memory) or after.isdisjoint(memory) for memory in stored)
