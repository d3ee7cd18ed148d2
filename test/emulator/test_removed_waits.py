"""The CUDA runtime without one call that orders work: each is missed."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.emulator import emulated_cuda
from test.emulator.conftest import FIRST
from test.emulator.kernels import DOUBLE
from tinygrad import CommTrace, Device, Tensor, TinyJit, dtypes
from tinygrad.device import Buffer, DeviceError, copy_buffer
from tinygrad.renderer.target import LaunchShape
from tinygrad.runtime.support import cuda
from tinygrad.runtime.support.hazards import Hazards

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("emulated_driver")]

DRIVER = ("cuStreamWaitEvent", "cuEventRecord", "cuStreamSynchronize", "cuEventSynchronize")
"""Functions of the driver that order work."""
METHODS = ("begin_kernels", "begin_copy", "wait_for", "block_until")
"""Methods of a `Gpu` that do, and activate its context."""
PAIR = "CUDA:5", "CUDA:4"
# more than is copied without pinned memory
VALUES = np.arange(1 << 15, dtype=np.float32)

Found = tuple[np.ndarray, np.ndarray]
"""What a program computed, and what it should have."""


@contextlib.contextmanager
def graphs(are_made: bool) -> Iterator[None]:
    """Replays are graphs, or are launched one by one."""
    from tinygrad.runtime.support.cuda.driver import driver

    refusal = (driver.CUresult.CUDA_ERROR_NOT_SUPPORTED,)
    with pytest.MonkeyPatch.context() as patch:
        if not are_made:
            patch.setattr(driver, "cuGraphInstantiate", lambda *_: refusal)
        yield


def to_another_gpu(number: int) -> Found:
    """A copy to a GPU, a kernel, a copy to another one, whose source is then overwritten."""
    values = VALUES + number
    x = Tensor(values, device="CUDA:4").realize()
    doubled = (x * 2).realize()
    moved = doubled.to("CUDA:5").realize()
    doubled.assign(x * 0).realize()
    return (moved + 1).numpy(), 2 * values + 1


def straight_to_another_gpu(number: int) -> Found:
    """A copy to a GPU, and from there to another one."""
    x = Tensor(VALUES + number, device="CUDA:4").realize()
    return x.to("CUDA:5").numpy(), VALUES + number


def with_new_values(number: int) -> Found:
    """Copies to memory whose last values a kernel has still to read."""
    source = Tensor(VALUES * 3, device="CUDA:5").realize()
    Device["CUDA:5"].synchronize()
    x = Tensor(VALUES + number, device="CUDA:4").realize()
    found = [(x + 1).realize()]
    copy_buffer(x.uop.buffer, source.uop.buffer)
    found.append((x + 1).realize())
    x.uop.buffer.copyin((VALUES * 5).data)
    expected = [VALUES + number + 1, VALUES * 3 + 1, VALUES * 5]
    return np.stack([each.numpy() for each in (*found, x)]), np.stack(expected)


def through_pinned_memory(number: int) -> Found:
    """Copies of more bytes than there is pinned memory, to a GPU and back."""
    values = np.tile(VALUES + number, 170)
    return (Tensor(values, device="CUDA:4").realize() + 1).realize().numpy(), values + 1


def to_pinned_memory(number: int) -> Found:
    """A copy to memory that the driver copies to when it has time, as a library may own it."""
    from cuda.bindings import driver

    from tinygrad.runtime.support.cuda.driver import check

    pinned = int(check(driver.cuMemHostAlloc(64, 0)))
    target = (ctypes.c_char * 64).from_address(pinned)
    target[:] = bytes(64)
    x = (Tensor.arange(16, dtype=dtypes.int32, device="CUDA:4") + number).contiguous().realize()
    Device["CUDA:4"].synchronize()
    x.uop.buffer.copyout(memoryview(target))
    found = np.frombuffer(bytes(target), np.int32)
    Device["CUDA:4"].synchronize()
    check(driver.cuMemFreeHost(pinned))
    return found, np.arange(16) + number


def waited_for(number: int) -> Found:
    """Whether both streams are done when a device has been waited for, whichever is the last."""
    from cuda.bindings import driver

    gpu, found = Device["CUDA:4"].gpu, []
    for has_copy_last in (False, True):
        x = Tensor(VALUES + number, device="CUDA:4").realize()
        (x + 1).realize()
        if has_copy_last:
            x.uop.buffer.copyin(VALUES.data)
        Device["CUDA:4"].synchronize()
        found += [driver.cuStreamQuery(stream)[0].value for stream in (gpu.kernels, gpu.copies)]
    return np.array(found), np.zeros(4)


def timed(number: int) -> Found:
    """A kernel whose time is asked for."""
    item = (Tensor(VALUES + number, device="CUDA:4").realize() + 1).contiguous().schedule()[-1]
    elapsed = item.run(wait=True)
    return np.array(elapsed is not None and elapsed > 0), np.array(True)


def unloaded(number: int) -> Found:
    """A kernel whose program is dropped before it has run, on a GPU of its own."""
    from cuda.bindings import driver

    from test.emulator.kernel_text import compile_kernel
    from tinygrad.runtime.support.cuda.driver import Gpu
    from tinygrad.runtime.support.cuda.program import CudaProgram

    device = cuda_calls.EmulatedDevice(FIRST)
    try:
        gpu = Gpu("CUDA:77", FIRST)
        address = device.upload(VALUES[:64] + number)
        program = CudaProgram(gpu, "double_it", compile_kernel(DOUBLE, "cuda"))
        program._arguments.set([])
        gpu.begin_kernels()
        program.launch([address, address, 64], LaunchShape(1, 64))
        del program
        gpu.check(driver.cuStreamSynchronize(gpu.kernels))
        return device.download(address, VALUES[:64]), 2 * (VALUES[:64] + number)
    finally:
        device.reset()


def reduced_by_peers(number: int, has_replays: bool = False, has_graphs: bool = False) -> Found:
    """Sums over two GPUs, which read partial sums in memory of each other and then overwrite it."""
    values = np.random.default_rng(number).integers(-9, 9, (4096, 2)).astype(np.float32)
    state = Tensor(values).shard(PAIR, 1).realize()

    def step() -> list[Tensor]:
        # of one column on each GPU, the partial sum is the column
        totals = []
        for _ in range(2):
            totals.append(state.sum(1).realize())
            state.assign(state * 2).realize()
        return totals

    run = TinyJit(step) if has_replays else step
    found: list[np.ndarray] = []
    with Device.topology(PAIR), CommTrace() as trace, graphs(has_graphs):
        for _ in range(4):
            # of the last GPU first
            found += [Buffer.numpy(part) for x in run() for part in x.uop.buffer.bufs[::-1]]
            state.assign(state * 3).realize()
    assert [record.algorithm for record in trace.records] == ["peer"] * 8
    expected = [
        values.sum(1) * 12**call * 2**step for call in range(4) for step in range(2) for _ in PAIR
    ]
    return np.stack(found), np.stack(expected)


def reduced_in_replays(number: int) -> Found:
    return reduced_by_peers(number, has_replays=True)


def reduced_in_graphs(number: int) -> Found:
    return reduced_by_peers(number, has_replays=True, has_graphs=True)


def replayed(number: int, has_graphs: bool = False) -> Found:
    """Replays of inputs that have just been copied."""
    found = []
    step = TinyJit(lambda x: (x + 1).realize())
    with graphs(has_graphs):
        for i in range(5):
            found.append(step(Tensor(VALUES * i + number, device="CUDA:4").realize()).numpy())
    return np.stack(found), np.stack([VALUES * i + number + 1 for i in range(5)])


def replayed_in_graphs(number: int) -> Found:
    return replayed(number, has_graphs=True)


SCENARIOS: tuple[Callable[[int], Found], ...] = (
    to_another_gpu,
    straight_to_another_gpu,
    with_new_values,
    replayed,
    replayed_in_graphs,
    reduced_by_peers,
    reduced_in_replays,
    reduced_in_graphs,
    through_pinned_memory,
    to_pinned_memory,
    waited_for,
    timed,
    unloaded,
)


numbers = itertools.count()


def is_right(scenario: Callable[[int], Found]) -> bool:
    """Whether a program computes what it should, in both orders."""
    for is_backwards in (False, True):
        with emulated_cuda.order(is_backwards):
            try:
                # other values each time: memory that is used again holds the last ones
                found, expected = scenario(next(numbers))
            except (DeviceError, cuda_calls.CallError):
                return False
        if not np.array_equal(found, expected):
            return False
    return True


Place = tuple[str, int]
"""The file and the line of a call."""


def _calls() -> Iterator[tuple[str, Place]]:
    for path in sorted(Path(cuda.__file__).parent.glob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        for function in (x for x in nodes if isinstance(x, ast.FunctionDef)):
            for node in ast.walk(function):
                name = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
                if name in DRIVER + METHODS:
                    yield f"{path.stem} {function.name} {name}", (str(path), node.lineno)


CALLS = list(_calls())
"""The calls in the text of the runtime that order work, by the functions they are in."""
NOT_REMOVED = {
    "graph _discard cuStreamSynchronize": "the emulated driver frees a graph when it has run",
    "nccl all_reduce begin_kernels": "the emulator has no NCCL; see test/backend/gpu/test_nccl.py",
}


def leave_out(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    """Lets the calls of one place order nothing."""
    from tinygrad.runtime.support.cuda.driver import Gpu, driver

    def is_there() -> bool:
        caller = sys._getframe(2)
        return (caller.f_code.co_filename, caller.f_lineno) == place

    def patch(owner: Any, name: str, rest: Callable[..., Any]) -> None:
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *x: rest(*x) if is_there() else call(*x))

    for name in DRIVER:
        patch(driver, name, lambda *_: (driver.CUresult.CUDA_SUCCESS,))
    for name in METHODS:
        patch(Gpu, name, lambda gpu, *_: gpu.activate())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda x: x.__name__)
def test_a_runtime_with_all_waits_is_right(scenario: Callable[[int], Found]) -> None:
    assert is_right(scenario)


@pytest.mark.parametrize(
    ("name", "place"), [pytest.param(*x, id=x[0]) for x in CALLS if x[0] not in NOT_REMOVED]
)
def test_a_runtime_without_one_wait_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, place: Place
) -> None:
    leave_out(monkeypatch, place)
    assert not all(map(is_right, SCENARIOS))


def _without_edges(hazards: Hazards, read: list[Any], written: list[Any]) -> list[int]:
    _ = HAZARDS(hazards, read, written)
    return []


HAZARDS = Hazards.add


def test_a_graph_without_its_edges_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hazards, "add", _without_edges)
    assert not is_right(reduced_in_graphs)
