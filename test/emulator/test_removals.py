"""Kernels without one barrier, bound, wait, commit or shuffle: each is missed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from test.backend.gpu.test_thread_mapping import attention
from test.emulator import emulated_cuda
from test.emulator.test_mappings import KERNELS, Arrays, arrays_of
from test.evaluator.kernel_graph import interpret
from test.gpu_programs import of_one
from tinygrad.codegen import get_program
from tinygrad.dtype import dtypes
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.uop.ops import UOp

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
CallError, EmulatedDevice = cuda_calls.CallError, cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow

TARGET = nvidia_target("sm_90a", units=132)


@dataclass(frozen=True)
class Removal:
    """What is taken from a text: a match of a pattern, in whose place something else remains."""

    pattern: str
    rest: str | Callable[[re.Match[str]], str] = ""


def _half(found: re.Match[str]) -> str:
    return f"^ {int(found[1]) // 2}"


STATEMENT = r"(?<=\n) *(?:{})\(\);"
REMOVALS = {
    "barrier": Removal(STATEMENT.format("block_barrier")),
    "wait": Removal(STATEMENT.format(r"copy_async_wait<\d+>")),
    "commit": Removal(STATEMENT.format("copy_async_commit")),
    "bound of a store": Removal(r"if \([^;]*\) (?=(?:\*\(\w+ \*\)\()?(?:data0|scratch\d+)\b)"),
    "bound of a wide load": Removal(r"if \([^;]*\) (?=v\d+ = \*\(const)"),
    "bound of a load": Removal(r"\([^;?]* \? (data\d\[[^;?]*\]) : 0\.0f\)", r"\1"),
    # the comparison alone: that a stage is one of the loop remains
    "bound of a copy": Removal(r"(?<=_or_zero)\((?P<places>[^;]*), [^;,]*\);", r"(\g<places>, 1);"),
    "shuffle": Removal(r"= warp_shuffle\((\w+), [^;]*\);", r"= \1;"),
    # lanes exchange with those of a nearer lane
    "distance of a shuffle": Removal(r"\^ (\d+)(?=[;)])", _half),
}


def without_each(source: str, removal: Removal | re.Pattern[str]) -> Iterator[str]:
    """The text without one of the matches, for each of them in the kernel."""
    if isinstance(removal, re.Pattern):
        removal = Removal(removal.pattern)
    start = source.index("__global__")
    for found in re.compile(removal.pattern).finditer(source, start):
        rest = removal.rest
        text = found.expand(rest) if isinstance(rest, str) else rest(found)
        yield source[: found.start()] + text + source[found.end() :]


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


def tolerances(expected: np.ndarray) -> tuple[float, float]:
    """The relative and absolute errors of sums that are added in another order."""
    error = max(1e-4, 2 * float(np.finfo(expected.dtype).eps))
    return error, error / 10 * float(np.abs(expected).max())


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
        elif not np.allclose(found, expected, *tolerances(expected)):
            return False
    return True


def split_product(number: int) -> UOp:
    """A kernel of a product with a long reduction: that of its slices, or of their sum."""
    program = of_one("split product", lambda a, b: a @ b, (40, 6000), (6000, 24))
    return program.graphs(TARGET)[number]


def product_with_edges() -> UOp:
    """A kernel of a product with rows, columns and steps past the end."""
    program = of_one("product", lambda a, b: a @ b.T, (33, 68), (37, 68))
    return program.graphs(TARGET)[0]


BLOCK_REDUCTION = {
    "bound of a store": 2,
    "bound of a wide load": 1,
    "shuffle": 9,
    "distance of a shuffle": 5,
}
# bounds of copies that keep zeros in place of values which no store uses are not needed
STAGES = {"barrier": 1, "wait": 1, "commit": 4, "bound of a store": 1}
CASES: dict[str, tuple[Callable[[], UOp], dict[str, int]]] = {
    "odd": (KERNELS["odd"], {"bound of a store": 1, "bound of a load": 2}),
    "short rows": (
        KERNELS["short rows"],
        {
            "bound of a store": 1,
            "bound of a wide load": 1,
            "shuffle": 5,
            "distance of a shuffle": 5,
        },
    ),
    "long rows": (KERNELS["long rows"], {"barrier": 1, **BLOCK_REDUCTION}),
    "columns": (KERNELS["columns"], {"barrier": 1, "bound of a store": 1, "bound of a load": 1}),
    "softmax of short rows": (
        KERNELS["softmax of short rows"],
        {"bound of a store": 1, "bound of a load": 3, "shuffle": 10, "distance of a shuffle": 5},
    ),
    "softmax of long rows": (
        KERNELS["softmax of long rows"],
        {
            "barrier": 2,
            "bound of a store": 3,
            "bound of a wide load": 3,
            "shuffle": 16,
            "distance of a shuffle": 5,
        },
    ),
    "transpose": (
        KERNELS["transpose"],
        {"barrier": 1, "bound of a store": 1, "bound of a load": 1},
    ),
    "slices of a split product": (lambda: split_product(0), STAGES),
    "sum of a split product": (
        lambda: split_product(1),
        {"bound of a store": 1, "bound of a load": 1},
    ),
    "product of float32": (product_with_edges, {**STAGES, "bound of a copy": 8}),
    "attention by multiply-adds": (
        KERNELS["attention"],
        {"barrier": 2, "wait": 1, "commit": 3, "shuffle": 6, "distance of a shuffle": 3},
    ),
    "attention by matrix instructions": (
        lambda: attention(272, 20, dtypes.float16),
        {
            "barrier": 2,
            "wait": 2,
            "commit": 4,
            "bound of a store": 1,
            "shuffle": 4,
            "distance of a shuffle": 2,
        },
    ),
}
PEAKS = {"softmax of short rows": (77, 31), "softmax of long rows": (5000, 127)}
"""Columns of a row, and that of its maximum: in the last lane of a warp, which all must learn of.
Exponentials of others than the maximum are too large otherwise.
"""


def arguments(name: str, kernel: UOp) -> Arrays:
    """Values for the arguments of a kernel, of which no two are equal."""
    rng = np.random.default_rng(0)
    found = {
        slot: rng.standard_normal(array.shape, np.float32).astype(array.dtype)
        for slot, array in arrays_of(kernel).items()
    }
    if name in PEAKS:
        columns, place = PEAKS[name]
        found[1].reshape(-1, columns)[1, place] += 300
    return found


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, (_, kinds) in CASES.items() for kind in kinds]
)
def test_a_kernel_without_one_statement_is_wrong(gpu: EmulatedDevice, name: str, kind: str) -> None:
    build, counts = CASES[name]
    kernel = build()
    arrays = arguments(name, kernel)
    expected = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, expected)
    spec = get_program(kernel, find_renderer(TARGET))
    assert is_right(gpu, spec, spec.source, arrays, expected[0])
    changed = list(without_each(spec.source, REMOVALS[kind]))
    assert len(changed) == counts[kind]
    for source in changed:
        assert not is_right(gpu, spec, source, arrays, expected[0]), source
