"""Programs of captured functions, whose replays have messages between native segments."""

from __future__ import annotations

import contextlib
import io
import pickle
from typing import Any
from unittest.mock import Mock, patch

import numpy as np

from tinygrad import GlobalCounters, Sharding, Tensor, TinyJit, Variable, dtypes, ranks
from tinygrad.engine import CommTrace
from tinygrad.execution.capture import JitError
from tinygrad.execution.wire import current_wire
from tinygrad.jit.replay.rank_replay import RankReplay
from tinygrad.nn.state.file_bytes import view_bytes
from tinygrad.settings import Context

Devices = tuple[str, ...]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-4, 4, shape).astype(np.float32)


def is_native(step: TinyJit[..., object]) -> bool:
    """Whether a replay is native, with messages in between where there are several ranks."""
    assert step.captured is not None
    native = step.captured._native
    return isinstance(native, RankReplay) if ranks.size() > 1 else native is not None


def replays(devices: Devices) -> None:
    """Small and large messages, in memory of the capture and of its inputs, that are fed back."""
    for size in (8, 1 << 15):
        whole, columns = numbers(len(devices), size), Sharding(devices, 1)
        weight = Tensor(numbers(size)).shard(devices).realize()

        @TinyJit
        def step(
            x: Tensor, weight: Tensor = weight, columns: Sharding = columns
        ) -> tuple[Tensor, Tensor]:
            total = (x * weight).sum(0)
            moved = x.to(columns)
            later = (moved + 1).to(Sharding(devices, 0)) + total * 0.5
            weight.assign(weight + total.sign()).realize()
            return later.sign().realize(), (x.sum(0) + later.max(0)).realize()

        x = Tensor(whole).shard(devices, 0).realize()
        found = []
        for number in range(6):
            x, total = step(x + number % 2)
            found.append(total.numpy())
            if number == 3:
                assert step.captured is not None
                step.captured.free_intermediates()
        print(is_native(step), [array.tolist()[:8] for array in found], float(sum(found).sum()))
        print(weight.numpy()[:8].tolist(), x.numpy()[:, :8].tolist())


def captures(devices: Devices) -> None:
    """Captures in turn, with every algorithm of an all-reduce, Variables and counters."""
    steps = []
    for number in range(3):
        whole = numbers(len(devices), 64) + number
        x = Tensor(whole).shard(devices, 0).realize()

        @TinyJit
        def step(rows: int, x: Tensor = x) -> Tensor:
            return (x[:, :rows].sum(0) * x[0, 0]).sum().realize()

        @TinyJit
        def ring(x: Tensor = x) -> Tensor:
            return x.sum(0).realize()

        with Context(RING=number == 1, ALL2ALL=number):
            ring(), ring()
        steps.append((step, ring))
    rows = Variable("rows", 1, 64)
    for value in (3, 5, 64, 7):
        print([step(rows.bind(value)).item() for step, _ in steps])
        print([ring().tolist()[:3] for _, ring in steps[:: (-1) ** value]])
    counts = []
    for level in (0, 2):
        before = GlobalCounters.bytes_moved, GlobalCounters.kernel_count
        silent = contextlib.redirect_stdout(io.StringIO())
        with CommTrace() as trace, Context(DEBUG=level), silent:
            steps[0][1]()
        counts.append(
            (GlobalCounters.bytes_moved - before[0], GlobalCounters.kernel_count - before[1])
        )
        counts.append(trace.nbytes)
    # a replay item by item counts and sends the same
    assert counts[:2] == counts[2:]


def memory_of_one_rank(devices: Devices) -> None:
    """What a replay depends on is in memory of one rank alone."""
    first, last = devices[0], devices[-1]
    weight = Tensor(numbers(8)).to(first).realize()
    wide = Tensor(numbers(1, 8)).to(last).realize()

    # the rank that receives does not know what the message depends on
    step = TinyJit(lambda x: ((x * 2).to(last) + (weight * 2).to(last)).realize(), prune=True)
    # a view of the last result, which this call overwrites
    view = TinyJit(lambda x: (x[:4], (x * 2).contiguous().realize()))
    # the kernel reads other columns of one memory each time, so it is captured each time
    total = TinyJit(lambda x: (x * 3).sum().realize())

    @TinyJit
    def write(x: Tensor) -> Tensor:
        weight.assign(weight + x.to(first)).realize()
        return x.sum().realize()

    x = y = Tensor(numbers(8)).to(last).realize()
    for number in range(6):
        moved = step((x + number).to(first))
        kept, y = view(y)
        y += 1
        before = weight + number
        start = number % 3
        found = [moved, kept, y, total(wide[:, start : start + 2]), write(x + number), before]
        print([value.tolist() for value in (*found, weight)])
    loaded = pickle.loads(pickle.dumps(write))
    print([loaded(x + number).tolist() for number in range(3)], weight.tolist())
    captures = [jit.captured is not None for jit in (step, view, total, write)]
    print(captures)


def replays_another(devices: Devices) -> None:
    """Rank 1 replays another capture than rank 0."""
    x = Tensor(numbers(len(devices), 64)).shard(devices, 0).realize()
    one, other = (TinyJit(lambda factor=factor: (x * factor).sum(0).realize()) for factor in (2, 3))
    for _ in range(3):
        one(), other()
    print(one().tolist()[:3])
    if ranks.rank() == 0:
        one(), other()
    else:
        other(), one()
    print(one().tolist()[:3])


def one_note_a_replay(devices: Devices) -> None:
    """A replay with several messages is one step of the history."""
    x = Tensor(numbers(len(devices), 64)).shard(devices, 0).realize()
    step = TinyJit(lambda: (x.sum(0) + x).max(0).realize())
    for _ in range(3):
        step()
    if ranks.size() > 1:
        wire = current_wire()
        before = wire.history[-1].number  # type: ignore[attr-defined]
        step()
        assert wire.history[-1].number == before + 1  # type: ignore[attr-defined]
        assert wire._prepared  # type: ignore[attr-defined]
    print(step().tolist()[:3])


def one_start_an_exchange(devices: Devices) -> None:
    """Messages that start together do so in one call, and are waited for in one, also after a new
    start of all ranks.
    """
    whole = numbers(len(devices), 64)
    x = Tensor(whole).shard(devices, 0).realize()
    step = TinyJit(lambda: x.to(Sharding(devices[::-1], 0)).realize())
    for _ in range(3):
        step()
    if ranks.size() > 1:
        wire: Any = current_wire()
        started, waited = Mock(wraps=wire.start_again), Mock(wraps=wire.wait)
        with patch.multiple(wire, start_again=started, wait=waited):
            step()
            wire.restart(wire.history[-1].number, b"a new start")
            x.assign(x + 1).realize()
            step()
        assert started.call_count == waited.call_count == 2
    else:
        x.assign(x + 1).realize()
    assert (step().numpy() == whole + 1).all()
    print(step().tolist())


def arguments_in_one_buffer(devices: Devices) -> None:
    """All ranks refuse arguments that share memory, which one rank alone has."""
    x = Tensor(numbers(8)).to(devices[-1]).realize()
    data = Tensor(np.arange(64, dtype=np.uint8)).to(devices[-1]).realize()
    rows = Variable("rows", 1, 8)
    given = TinyJit(lambda n, x: (x[:n] * 2).contiguous().realize())
    closed = TinyJit(lambda n: (x[:n] * 2).contiguous().realize())
    # results whose size is symbolic are new tensors in the memory of the capture
    for step, arguments in ((given, (x,)), (closed, ())):
        for _ in range(3):
            step(rows.bind(3), *arguments)  # type: ignore[arg-type]
        print_refusal(*(step(rows.bind(3), *arguments) for _ in range(2)))  # type: ignore[arg-type]
    print_refusal(*(view_bytes(data, start, dtypes.int32, (4,)) for start in (0, 32)))
    print_refusal(x, data)


def print_refusal(one: Tensor, other: Tensor) -> None:
    """What a captured function says of two arguments."""
    total = TinyJit(lambda x, y: (x.sum() + y.sum()).realize())
    try:
        print([total(one, other).item() for _ in range(3)])
    except JitError as error:
        print(error)


def writes_of_one_shard(devices: Devices) -> None:
    """A captured write of a shard is captured, and computes lazy readers, as in one process."""
    first, last = devices[0], devices[-1]
    one = Tensor(numbers(4)).to(first).realize()
    whole = Sharding((first, last), 0)
    x, y = ((Tensor(numbers(8)).shard((first, last), 0) + i).realize() for i in range(2))
    parts = [Tensor(numbers(4)).to(device).realize() for device in (first, last)]
    stacked = Tensor.from_shards(parts, whole)

    def write_argument(shard: Tensor, other: Tensor) -> Tensor:
        shard.assign(shard + one).realize()
        return (other * 2).realize()

    def write_closure(other: Tensor) -> Tensor:
        return write_argument(y.shards[0], other)

    steps: list[tuple[Any, tuple[Tensor, ...], Tensor]] = [
        (write_argument, (x.shards[0], x.shards[1]), x),
        (write_argument, (parts[0], stacked), stacked),
        (write_closure, (parts[1],), y),
        (write_closure, (y.shards[1],), y),
    ]
    for function, arguments, memory in steps:
        step, captures = TinyJit(function), []
        for number in range(5):
            readers = [memory.sum(0) + number, *(shard + number for shard in memory.shards)]
            before = GlobalCounters.kernel_count
            result = step(*arguments)
            kernels = sum(ranks.gather(GlobalCounters.kernel_count - before))
            captures.append(step.captured)
            is_replay = number > 0 and captures[-2] is step.captured is not None
            print(kernels, is_replay, [x.tolist() for x in (result, memory, *readers)])
