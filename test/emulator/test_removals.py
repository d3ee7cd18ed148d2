"""Kernels and copies of the library without one barrier, one bound or one wait: each is missed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from test.emulator import emulated_cuda
from test.emulator.test_mappings import KERNELS, Arrays, arrays_of
from test.evaluator.kernel_graph import interpret
from test.gpu_programs import product
from tinygrad import CommTrace, Device, Tensor, TinyJit
from tinygrad.codegen import get_program
from tinygrad.device import Buffer
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.runtime.support.hazards import Hazards
from tinygrad.uop.ops import UOp

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
CallError, EmulatedDevice = cuda_calls.CallError, cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow

TARGET = nvidia_target("sm_90a", units=132)
BARRIER = re.compile(r"(?<=\n) *block_barrier\(\);")
# the condition of a store to the result
BOUND = re.compile(r"if \([^;]*\) (?=(?:\*\(f32x4 \*\)\()?data0\b)")


def without_each(source: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """The text without one of the matches, for each of them in the kernel."""
    start = source.index("__global__")
    for found in pattern.finditer(source, start):
        yield source[: found.start()] + source[found.end() :]


def run(
    gpu: EmulatedDevice, spec: ProgramSpec, source: str, arrays: Arrays, checked: bool
) -> np.ndarray:
    """The result, array 0, of a text in place of a kernel's own."""
    kernel = gpu.load(source, spec.function, checked=checked)
    gpu.allow_shared(kernel, spec.launch.shared)
    pointers = [gpu.upload(arrays[slot]) for slot in spec.slots]
    blocks, threads = spec.launch.blocks()
    gpu.launch(
        *(kernel, blocks, threads, *pointers), shared=spec.launch.shared, maps=spec.launch.maps
    )
    gpu.synchronize()
    return gpu.download(pointers[spec.slots.index(0)], arrays[0])


def is_right(
    gpu: EmulatedDevice, spec: ProgramSpec, source: str, arrays: Arrays, expected: np.ndarray
) -> bool:
    """Whether nothing is wrong with a kernel, in both orders and with checks of each access."""
    for is_backwards, checked in ((False, False), (True, False), (False, True)):
        with emulated_cuda.order(is_backwards):
            try:
                found = run(gpu, spec, source, arrays, checked)
            except CallError:
                gpu.reset()
                return False
        if found.dtype.kind != "f":
            # bits of narrow floats, whose sums are exact
            if not np.array_equal(found, expected):
                return False
        elif not np.allclose(found, expected, rtol=1e-4, atol=1e-4):
            return False
    return True


def case(kernel: UOp) -> tuple[ProgramSpec, Arrays, np.ndarray]:
    """A kernel, its arguments, and its result by plain loops."""
    arrays = arrays_of(kernel)
    expected = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, expected)
    return get_program(kernel, find_renderer(TARGET)), arrays, expected[0]


@pytest.mark.parametrize(
    ("name", "pattern", "count"),
    [
        ("long rows", BARRIER, 1),
        ("columns", BARRIER, 1),
        ("softmax of long rows", BARRIER, 2),
        ("transpose", BARRIER, 1),
        ("odd", BOUND, 1),
        ("columns", BOUND, 1),
        ("transpose", BOUND, 1),
    ],
    ids=lambda x: "" if isinstance(x, re.Pattern) else str(x),
)
def test_a_kernel_without_one_barrier_or_bound_is_wrong(
    gpu: EmulatedDevice, name: str, pattern: re.Pattern[str], count: int
) -> None:
    spec, arrays, expected = case(KERNELS[name]())
    assert is_right(gpu, spec, spec.source, arrays, expected)
    changed = list(without_each(spec.source, pattern))
    assert len(changed) == count
    for source in changed:
        assert not is_right(gpu, spec, source, arrays, expected)


def test_a_product_without_one_barrier_or_wait_is_wrong(gpu: EmulatedDevice) -> None:
    (spec,) = product(96).kernels(TARGET)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (96, 96)).astype(np.float32) for _ in range(2))
    arrays = {0: np.zeros((96, 96), np.float32), 1: a, 2: b}
    expected = a @ b
    assert is_right(gpu, spec, spec.source, arrays, expected)
    waits = re.compile(BARRIER.pattern + r"|(?<=\n) *copy_async_wait<\d+>\(\);")
    changed = list(without_each(spec.source, waits))
    assert len(changed) > 1
    for source in changed:
        assert not is_right(gpu, spec, source, arrays, expected)


def to_another_gpu(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A copy to a GPU, a kernel, a copy to another one, whose source is then overwritten."""
    x = Tensor(values, device="CUDA:4").realize()
    doubled = (x * 2).realize()
    moved = doubled.to("CUDA:5").realize()
    doubled.assign(x * 0).realize()
    return (moved + 1).numpy(), 2 * values + 1


WAITS: dict[str, Callable[..., None]] = {
    "begin_kernels": lambda gpu: gpu.activate(),
    "begin_copy": lambda gpu: gpu.activate(),
    "wait_for": lambda gpu, other, stream: gpu.activate(),
    "block_until": lambda gpu, event: None,
}


@pytest.mark.parametrize("name", ["", *WAITS])
def test_a_runtime_without_one_wait_is_wrong(
    monkeypatch: pytest.MonkeyPatch, emulated_driver: None, name: str
) -> None:
    from tinygrad.runtime.support.cuda.driver import Gpu

    # more than is copied without pinned memory
    values = np.arange(1 << 15, dtype=np.float32)
    right = []
    for number in range(2):
        with emulated_cuda.order(bool(number)), monkeypatch.context() as patch:
            if name:
                patch.setattr(Gpu, name, WAITS[name])
            # other values: memory that is used again holds the last ones
            right.append(np.array_equal(*to_another_gpu(values + number)))
    assert all(right) == (not name)


def reduced_by_peers(values: np.ndarray, is_captured: bool) -> tuple[np.ndarray, ...]:
    """Sums over two GPUs, which read partial sums in memory of each other and then overwrite it."""
    names = ("CUDA:5", "CUDA:4")
    state = Tensor(values).shard(names, 1).realize()

    def step() -> list[Tensor]:
        # of one column on each GPU, the partial sum is the column
        totals = []
        for _ in range(2):
            totals.append(state.sum(1).realize())
            state.assign(state * 2).realize()
        return totals

    run = TinyJit(step) if is_captured else step
    found: list[np.ndarray] = []
    with Device.topology(names), CommTrace() as trace:
        for _ in range(3):
            found += [Buffer.numpy(part) for x in run() for part in x.uop.buffer.bufs]
    assert [record.algorithm for record in trace.records] == ["peer"] * 6
    expected = [values.sum(1) * 2**number for number in range(6) for _ in names]
    return np.stack(found), np.stack(expected)


def _without_edges(hazards: Hazards, read: list[Any], written: list[Any]) -> list[int]:
    _ = HAZARDS(hazards, read, written)
    return []


HAZARDS = Hazards.add


@pytest.mark.parametrize(
    ("name", "is_captured"),
    [
        ("", False),
        ("wait_for", False),
        ("block_until", False),
        ("", True),
        ("edges", True),
    ],
)
def test_an_all_reduce_by_peers_without_one_wait_is_wrong(
    monkeypatch: pytest.MonkeyPatch, emulated_driver: None, name: str, is_captured: bool
) -> None:
    from tinygrad.runtime.support.cuda.driver import Gpu

    values = np.random.default_rng(0).integers(-9, 9, (4096, 2)).astype(np.float32)
    right = []
    for is_backwards in (False, True):
        with emulated_cuda.order(is_backwards), monkeypatch.context() as patch:
            if name == "edges":
                patch.setattr(Hazards, "add", _without_edges)
            elif name:
                patch.setattr(Gpu, name, WAITS[name])
            right.append(np.array_equal(*reduced_by_peers(values, is_captured)))
    assert all(right) == (not name)
