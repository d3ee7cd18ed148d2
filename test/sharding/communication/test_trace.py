"""What users see of communication and memory: the table of a trace, lines at DEBUG=2, counters."""

from __future__ import annotations

import contextvars
import gc
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth
from test.sharding.common import DEVICES, array, on, placed
from test.together import CommTrace, GlobalCounters
from tinygrad import Tensor, TinyJit, nn
from tinygrad.settings import Context

ROWS, COLUMNS = on(0), on(1)
HERE = Path(__file__).name


def test_a_trace_is_a_table_with_a_row_for_each_kind_and_line() -> None:
    x = placed(array(8, 8), ROWS)
    with CommTrace() as trace:
        for _ in range(2):
            x.to(COLUMNS).realize()
        x.sum(axis=0).realize()
    heading, *rows, total = str(trace).splitlines()
    assert heading.split() == ["kind", "for", "count", "bytes", "from", "->", "to", "line"]
    moves = [re.split(r"  +", row) for row in rows]
    assert [row[:4] for row in moves] == [
        ["all_to_all", "to", "2", "384"],
        ["all_reduce", "sum", "1", "384"],
    ]
    assert moves[0][4] == f"Sharding({DEVICE}:0-3, axis=0) -> Sharding({DEVICE}:0-3, axis=1)"
    assert all(re.search(rf"{re.escape(HERE)}:\d+$", row[5]) for row in moves)
    assert [row[6] for row in moves] == ["x.to(COLUMNS).realize()", "x.sum(axis=0).realize()"]
    assert total.split() == ["total", str(len(trace.records)), f"{trace.nbytes:,}"]
    # columns of numbers are right-aligned
    assert (
        len(
            {
                line.index(word) + len(word)
                for line, word in zip(
                    (heading, *rows, total), ("bytes", *(row[3] for row in moves), total.split()[2])
                )
            }
        )
        == 1
    )


def test_a_record_says_what_the_line_called() -> None:
    x, w = placed(array(1, 2, 16, 4), on(2)), placed(array(2, 2, 3, 1), on(None))
    layer = nn.Conv2d(2, 2, 1)
    layer.weight.to_(on(1))
    layer.bias.to_(on(None))
    with CommTrace() as trace:
        x.conv2d(w).realize()
        x.max_pool2d((3, 1), stride=1).realize()
        layer(x.to(on(None)).realize()).realize()
        (x[:, :, 1:] @ placed(array(4, 4), on(0))).realize()
    called = {"conv2d", "max_pool2d", "Conv2d", "to", "getitem", "matmul"}
    assert {r.op for r in trace.records} == called
    assert all(re.search(r"test_trace\.py:\d+$", r.line) for r in trace.records)


def test_an_empty_trace_is_a_table_too() -> None:
    with CommTrace() as trace:
        Tensor([1.0]).realize()
    assert [line.split()[0] for line in str(trace).splitlines()] == ["kind", "total"]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("ring", [0, 1])
def test_debug_2_prints_one_line_for_each_collective(
    capsys: pytest.CaptureFixture[str], ring: int, jit: bool
) -> None:
    # rounds of a ring, or of an all-to-all and a gather, are one line
    with Context(RING=ring, ALL2ALL=1 - ring):
        x = placed(array(64, 4096), ROWS)

        def total(x: Tensor) -> Tensor:
            return x.sum(axis=0).realize()

        run = TinyJit(total) if jit else total
        for _ in range(3):
            run(x)
        capsys.readouterr()
        with CommTrace() as trace, Context(DEBUG=2):
            run(x)
    lines = [line for line in capsys.readouterr().out.splitlines() if "all_reduce" in line]
    assert len(lines) == len(trace.records) == 1
    assert "bytes" in lines[0]
    assert "GB/s" in lines[0]
    assert re.search(rf"{re.escape(HERE)}:\d+ sum$", lines[0])
    assert "\x1b" not in lines[0]


def test_a_trace_collects_the_messages_of_its_own_thread() -> None:
    def move() -> None:
        Tensor.arange(4).shard(device_names(2, 1), axis=0).realize().to(nth(1)).realize()

    with CommTrace() as trace:
        # with `thread_inherit_context`, a thread starts in a copy of the context, and is traced too
        thread = threading.Thread(target=contextvars.Context().run, args=(move,))
        thread.start()
        thread.join()
        assert not trace.records
        move()
    assert trace.nbytes == 8


def test_bytes_are_counted_for_the_sending_device() -> None:
    x = placed(array(8, 8), ROWS)
    GlobalCounters.reset()
    x.to(DEVICE).realize()
    assert dict(GlobalCounters.bytes_moved_per_device) == dict.fromkeys(DEVICES[1:], 64)
    assert GlobalCounters.bytes_moved == 3 * 64
    GlobalCounters.reset()
    assert GlobalCounters.bytes_moved == 0
    assert not GlobalCounters.bytes_moved_per_device


def test_current_and_peak_memory_of_each_device_are_counted() -> None:
    gc.collect()
    GlobalCounters.reset()
    before = {device: GlobalCounters.mem_used_per_device[device] for device in DEVICES}
    kept = placed(np.zeros((8, 1024), np.float32), ROWS)
    larger = placed(np.zeros((32, 1024), np.float32), ROWS)
    del larger
    gc.collect()
    for device in DEVICES[1:]:
        assert GlobalCounters.mem_used_per_device[device] == before[device] + 2 * 4096
        assert GlobalCounters.mem_peak_per_device[device] == before[device] + 10 * 4096
    # memory in use is a state, not a count: after a reset, peaks start from it
    GlobalCounters.reset()
    for device in DEVICES:
        now = GlobalCounters.mem_used_per_device[device]
        assert GlobalCounters.mem_peak_per_device[device] == now
    assert now == before[device] + kept.nbytes() // 4


def test_a_sum_of_constants_is_planned_once_with_and_without_detach() -> None:
    ones = Tensor.zeros(16, device=ROWS) + 1
    for x in (ones.detach(), ones, ones.detach()):
        with CommTrace() as trace:
            assert x.sum().item() == 16
        assert len(trace.records) == 1
