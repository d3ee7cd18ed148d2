"""Kernels without one barrier, bound, wait, commit or shuffle: each is missed.

Those of CUDA in every mapping, those of HIP and Metal in the mappings whose threads meet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from test.backend.gpu.test_thread_mapping import attention
from test.emulator import emulated_cuda
from test.emulator.test_mappings import KERNELS as MAPPINGS
from test.emulator.test_mappings import Arrays, arrays_of
from test.evaluator.kernel_graph import interpret
from test.gpu_programs import of_one
from tinygrad.codegen import get_program
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.target import Target
from tinygrad.uop.ops import UOp

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
CallError, EmulatedDevice = cuda_calls.CallError, cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow

TARGET = nvidia_target("sm_90a", units=132)
TARGETS = {
    "sm_90a": TARGET,
    **{x: emulated_cuda.find_target(x) for x in ("gfx942", "gfx1100", "apple7")},
}
KERNEL = re.compile(r'extern "C" __global__|\bkernel void\b')
"""Where the text of a kernel begins, behind that of the prelude."""


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
    kernel = KERNEL.search(source)
    assert kernel is not None
    for found in re.compile(removal.pattern).finditer(source, kernel.start()):
        rest = removal.rest
        text = found.expand(rest) if isinstance(rest, str) else rest(found)
        yield source[: found.start()] + text + source[found.end() :]


def run(
    gpu: EmulatedDevice,
    spec: ProgramSpec,
    source: str,
    arrays: Arrays,
    checked: bool,
    target: Target = TARGET,
) -> np.ndarray:
    """The result, array 0, of a text in place of a kernel's own."""
    kernel = gpu.load(
        source, spec.function, checked=checked, dialect=target.dialect, warp=target.warp
    )
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
    gpu: EmulatedDevice,
    spec: ProgramSpec,
    source: str,
    arrays: Arrays,
    expected: np.ndarray,
    target: Target = TARGET,
) -> bool:
    """Whether nothing is wrong with a kernel, in both orders and with checks of each access."""
    for is_backwards, checked in ((False, False), (True, False), (False, True)):
        with emulated_cuda.order(is_backwards):
            try:
                found = run(gpu, spec, source, arrays, checked, target)
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


def product_with_edges(dtype: DType = dtypes.float32) -> UOp:
    """A kernel of a product with rows, columns and steps past the end."""
    program = of_one("product", lambda a, b: a @ b.T, (33, 68), (37, 68), dtype=dtype)
    return program.graphs(TARGET)[0]


BLOCK_REDUCTION = {
    "bound of a store": 2,
    "bound of a wide load": 1,
    "shuffle": 9,
    "distance of a shuffle": 5,
}
# bounds of copies that keep zeros in place of values which no store uses are not needed
STAGES = {"barrier": 1, "wait": 1, "commit": 4, "bound of a store": 1}
KERNELS: dict[str, Callable[[], UOp]] = {
    **MAPPINGS,
    "slices of a split product": lambda: split_product(0),
    "sum of a split product": lambda: split_product(1),
    "product of float32": product_with_edges,
    "product of float16": lambda: product_with_edges(dtypes.float16),
    "attention of float16": lambda: attention(272, 20, dtypes.float16),
}
Counts = dict[str, dict[str, int]]
"""The statements of each kind in a kernel."""
NVIDIA: Counts = {
    "odd": {"bound of a store": 1, "bound of a load": 2},
    "short rows": {
        "bound of a store": 1,
        "bound of a wide load": 1,
        "shuffle": 5,
        "distance of a shuffle": 5,
    },
    "long rows": {"barrier": 1, **BLOCK_REDUCTION},
    "columns": {"barrier": 1, "bound of a store": 1, "bound of a load": 1},
    "softmax of short rows": {
        "bound of a store": 1,
        "bound of a load": 3,
        "shuffle": 10,
        "distance of a shuffle": 5,
    },
    "softmax of long rows": {
        "barrier": 2,
        "bound of a store": 3,
        "bound of a wide load": 3,
        "shuffle": 16,
        "distance of a shuffle": 5,
    },
    "transpose": {"barrier": 1, "bound of a store": 1, "bound of a load": 1},
    "slices of a split product": STAGES,
    "sum of a split product": {"bound of a store": 1, "bound of a load": 1},
    "product of float32": {**STAGES, "bound of a copy": 8},
    "attention": {"barrier": 2, "wait": 1, "commit": 3, "shuffle": 6, "distance of a shuffle": 3},
    "attention of float16": {
        "barrier": 2,
        "wait": 2,
        "commit": 4,
        "bound of a store": 1,
        "shuffle": 4,
        "distance of a shuffle": 2,
    },
}


def meetings(barriers: int, shuffles: int, distances: int) -> dict[str, int]:
    """The statements by which threads of AMD's and Apple's GPUs wait for each other."""
    counts = {"barrier": barriers, "shuffle": shuffles, "distance of a shuffle": distances}
    return {kind: count for kind, count in counts.items() if count}


# a warp of gfx942 has 64 lanes; the second product of an attention reads weights of WMMA from
# shared memory
COUNTS: dict[str, Counts] = {
    "sm_90a": NVIDIA,
    "gfx942": {
        "long rows": meetings(1, 9, 6),
        "softmax of short rows": meetings(0, 12, 6),
        "softmax of long rows": meetings(2, 16, 6),
        "columns": meetings(1, 0, 0),
        "transpose": meetings(1, 0, 0),
        "slices of a split product": meetings(1, 0, 0),
        "product of float16": meetings(1, 0, 0),
        "attention": meetings(2, 6, 3),
        "attention of float16": meetings(2, 4, 2),
    },
    "gfx1100": {
        "product of float16": meetings(1, 0, 0),
        "attention of float16": meetings(3, 2, 1),
    },
    "apple7": {
        "long rows": meetings(1, 9, 5),
        "softmax of short rows": meetings(0, 10, 5),
        "softmax of long rows": meetings(2, 16, 5),
        "columns": meetings(1, 0, 0),
        "transpose": meetings(1, 0, 0),
        "slices of a split product": meetings(1, 0, 0),
        "product of float16": meetings(1, 0, 0),
        "attention": meetings(3, 4, 2),
        "attention of float16": meetings(2, 4, 2),
    },
}
PEAKS = {"softmax of short rows": (77, 1), "softmax of long rows": (5000, 4)}
"""Columns of a row, and the elements that a thread reads at once.

A row's maximum is in the last lane of a warp, which all must learn of: exponentials of others than
the maximum are too large.
"""


def arguments(name: str, kernel: UOp, target: Target) -> Arrays:
    """Values for the arguments of a kernel, of which no two are equal."""
    rng = np.random.default_rng(0)
    found = {
        slot: rng.standard_normal(array.shape, np.float32).astype(array.dtype)
        for slot, array in arrays_of(kernel).items()
    }
    if name in PEAKS:
        columns, width = PEAKS[name]
        found[1].reshape(-1, columns)[1, width * target.warp - 1] += 300
    return found


@pytest.mark.parametrize(
    ("architecture", "name", "kind"),
    [
        (architecture, name, kind)
        for architecture, counts in COUNTS.items()
        for name, kinds in counts.items()
        for kind in kinds
    ],
)
def test_a_kernel_without_one_statement_is_wrong(
    gpu: EmulatedDevice, architecture: str, name: str, kind: str
) -> None:
    target, kernel = TARGETS[architecture], KERNELS[name]()
    arrays = arguments(name, kernel, target)
    expected = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, expected)
    spec = get_program(kernel, find_renderer(target))
    assert is_right(gpu, spec, spec.source, arrays, expected[0], target)
    changed = list(without_each(spec.source, REMOVALS[kind]))
    assert len(changed) == COUNTS[architecture][name][kind]
    for source in changed:
        assert not is_right(gpu, spec, source, arrays, expected[0], target), source
