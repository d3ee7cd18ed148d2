"""Threads: what they share stays consistent, with a global interpreter lock and without one."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from test.threads import THREADS, in_threads
from tinygrad import Device, Tensor, TinyJit, dtypes
from tinygrad.device import Buffer
from tinygrad.execution.buffers import storage_of
from tinygrad.helpers import GlobalCounters
from tinygrad.uop.ops import UOp

Wait = Callable[[], object]
ROUNDS = 50


def test_counters_of_memory_are_exact() -> None:
    def work(number: int, wait: Wait) -> None:
        wait()
        for _ in range(ROUNDS // 2):
            sizes = range(1, 20)
            buffers = [Buffer(Device.DEFAULT, 1 << 9 + x % 3, dtypes.uint8) for x in sizes]
            for buffer in buffers:
                buffer.allocate()

    gc.collect()
    before = GlobalCounters.mem_used
    kept = Device[Device.DEFAULT].allocator.free_lists.nbytes - GlobalCounters.mem_kept
    in_threads(work)
    assert GlobalCounters.mem_used == before
    lists = Device[Device.DEFAULT].allocator.free_lists
    assert lists.nbytes - GlobalCounters.mem_kept == kept
    assert lists.nbytes == sum(
        len(stack) * (key if isinstance(key, int) else key[0]) for key, stack in lists.lists.items()
    )


def test_a_buffer_and_a_node_get_one_memory() -> None:
    rounds = [Buffer(Device.DEFAULT, 64, dtypes.uint8) for _ in range(ROUNDS)]
    nodes = [UOp.new_buffer(Device.DEFAULT, (4,), dtypes.float) for _ in range(ROUNDS)]
    found: list[list[object]] = [[] for _ in range(THREADS)]

    def work(number: int, wait: Wait) -> None:
        for buffer, node in zip(rounds, nodes, strict=True):
            wait()
            found[number].append((id(buffer.allocation), id(storage_of(node))))

    in_threads(work)
    assert all(mine == found[0] for mine in found)


def test_tensors_have_different_numbers() -> None:
    made: list[list[Tensor]] = [[] for _ in range(THREADS)]

    def work(number: int, wait: Wait) -> None:
        wait()
        made[number] += [Tensor(1.0) for _ in range(ROUNDS * 10)]

    in_threads(work)
    numbers = [x._number for mine in made for x in mine]
    assert len(set(numbers)) == len(numbers)


def test_views_that_threads_make_see_later_writes() -> None:
    for _ in range(ROUNDS // 5):
        whole = Tensor.zeros(8).contiguous().realize()
        views: list[list[Tensor]] = [[] for _ in range(THREADS)]

        def view(number: int, wait: Wait, whole: Tensor = whole, made: Any = views) -> None:
            wait()
            made[number] += [whole[number : number + 2] for _ in range(9)]

        in_threads(view)
        whole.assign(Tensor.arange(8, dtype=dtypes.float))
        for number, mine in enumerate(views):
            assert [x.tolist() for x in mine] == [[number, number + 1]] * len(mine)


def test_threads_call_one_captured_function() -> None:
    @TinyJit
    def step(x: Tensor, factor: Tensor) -> None:
        x.assign(x * factor + 1).realize()

    own = [Tensor.full((300,), float(i)).contiguous().realize() for i in range(THREADS)]
    factor = Tensor([1.0]).realize()
    for _ in range(2):
        step(Tensor.zeros(300).contiguous().realize(), factor)
    assert step.captured is not None

    def work(number: int, wait: Wait) -> None:
        wait()
        for _ in range(ROUNDS):
            step(own[number], factor)

    in_threads(work)
    for number, x in enumerate(own):
        np.testing.assert_array_equal(x.numpy(), np.full(300, number + ROUNDS))


def test_threads_capture_functions_of_their_own() -> None:
    weight = Tensor.arange(16, dtype=dtypes.float).realize()

    def work(number: int, wait: Wait) -> None:
        step = TinyJit(lambda x: (x * weight + number).sum().realize())
        wait()
        for i in range(6):
            x = Tensor.full((16,), float(i)).contiguous().realize()
            assert step(x).item() == 120 * i + 16 * number

    in_threads(work)
