"""Every mapping of kernels to threads: whether it computes the right values, and how long it takes.

Values are compared with numpy, which runs the kernel graph. Times are stored with all decisions of
a mapping and with the cycles that the cost model predicts, so that it can be fitted to them without
a GPU.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from test.evaluator.kernel_graph import interpret
from test.gpu_programs import BF16, GPUProgram, attention_gradients, of_one, product
from test.hardware.journal import Values
from tinygrad import Context, Device, dtypes
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.chain.match import find_chain
from tinygrad.codegen.optimize.threads.chain import chain_tile
from tinygrad.codegen.optimize.threads.chain.chain_product import _matrix_chains
from tinygrad.codegen.optimize.threads.chain.chain_tile import ChainTile
from tinygrad.codegen.optimize.threads.product import block_tile
from tinygrad.codegen.optimize.threads.product.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.product.matrix_product import find_product
from tinygrad.codegen.optimize.threads.search import TILES, mappings, only_nest, with_mapping
from tinygrad.device import Buffer, copy_buffer
from tinygrad.dtype import DType, PtrDType, to_numpy_dtype
from tinygrad.execution.runner import CompiledRunner
from tinygrad.renderer import Renderer, find_renderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

WARM_UPS, RUNS = 2, 7
FLUSHED_BYTES = 128 << 20
"""What is copied before each run, several times the cache of an H100: nothing that the last run
read is there, and the host has launched the kernel before the copy ends."""
# of values that are rounded on the way, by the bytes of the result's elements
TOLERANCES = {1: 0.1, 2: 2e-2, 4: 2e-4, 8: 1e-6}
NARROW = {dtypes.bfloat16: ml_dtypes.bfloat16}
Job = tuple[str, Callable[[], Values]]


SMALL = 32
"""What sizes are divided by to time programs on an emulated GPU in seconds."""


@dataclass(frozen=True)
class Case:
    """A program whose kernels are mapped in several ways."""

    program: GPUProgram
    best: int
    """Options that are tried of those of least predicted time."""
    others: int
    """Options that are tried of all others, at equal distances."""

    def with_few_options(self) -> Case:
        """The program with the first two options of each kernel."""
        return dataclasses.replace(self, best=0, others=1)


def product_of(name: str, *shapes: tuple[int, ...]) -> GPUProgram:
    """A product of matrices, or of batches of them, in bfloat16."""
    return of_one(name, lambda a, b: a @ b, *shapes, dtype=BF16)


def attention(name: str, shape: tuple[int, ...], dtype: DType, **options: Any) -> GPUProgram:
    """Attention of heads, as in (batch, heads, length, width)."""
    return of_one(
        name,
        lambda q, k, v: q.scaled_dot_product_attention(k, v, **options),
        *[shape] * 3,
        dtype=dtype,
    )


def gradients(shape: tuple[int, ...]) -> GPUProgram:
    """A causal attention in bfloat16, and its gradients."""
    return GPUProgram("gradients of attention bf16", lambda: attention_gradients(BF16, shape))


def right_cases(is_small: bool = False) -> list[Case]:
    """Programs to compare values of, with sizes that fill tiles and sizes that do not."""
    f32, f16 = dtypes.float32, dtypes.float16
    convolution = of_one(
        "convolution bf16",
        lambda x, w: x.conv2d(w, padding=1),
        *((2, 32, 14, 14), (48, 32, 3, 3)),
        dtype=BF16,
    )
    cases = [
        Case(product(512, BF16), 24, 40),
        Case(product(512, BF16, True), 16, 16),
        Case(product_of("product odd bf16", (200, 72), (72, 136)), 12, 24),
        Case(attention("attention bf16", (1, 2, 512, 64), BF16), 16, 24),
        Case(product(512, allow_tf32=True), 24, 24),
        Case(product(512, transposed=True, allow_tf32=True), 16, 24),
        Case(product(256), 16, 24),
        Case(attention("causal attention bf16", (1, 2, 384, 128), BF16, is_causal=True), 8, 16),
        Case(gradients((1, 2, 256, 64)), 6, 12),
        Case(attention("attention f32", (1, 2, 256, 64), f32), 8, 16),
        Case(attention("attention odd f16", (1, 2, 200, 80), f16), 8, 16),
        Case(product(256, f16), 8, 16),
        Case(product_of("batched product bf16", (3, 130, 64), (3, 64, 96)), 8, 16),
        Case(convolution, 8, 16),
        Case(of_one("softmax", lambda x: x.softmax(-1), (300, 1000)), 0, 24),
        Case(of_one("sum of rows", lambda x: x.sum(1), (300, 1001)), 0, 24),
        Case(of_one("sum of columns", lambda x: x.sum(0), (1001, 300)), 0, 24),
        Case(of_one("transpose", lambda x: x.T.contiguous(), (301, 203)), 0, 24),
    ]
    return [x.with_few_options() for x in cases] if is_small else cases


def timed_cases(is_small: bool = False) -> list[Case]:
    """Programs large enough to be timed; with `is_small`, the same at small sizes."""

    def sized(*sizes: int) -> Any:
        return tuple(max(x // SMALL, 1) for x in sizes) if is_small else sizes

    def heads(heads: int, length: int, width: int) -> tuple[int, ...]:
        return (1, *sized(heads, length), width)

    (small,), (medium,), (large,) = sized(1024), sized(4096), sized(8192)
    rows = sized(16384, 4096)
    causal = attention("causal attention bf16", heads(32, 4096, 128), BF16, is_causal=True)
    cases = [
        Case(product(large, BF16), 12, 12),
        Case(attention("attention bf16", heads(64, 2048, 64), BF16), 10, 10),
        Case(product(medium, transposed=True, allow_tf32=True), 10, 10),
        Case(product(medium), 10, 10),
        Case(product(medium, allow_tf32=True), 10, 10),
        Case(causal, 8, 8),
        Case(product(small, BF16), 8, 8),
        Case(product(large, BF16, True), 8, 8),
        Case(attention("attention f32", heads(16, 2048, 64), dtypes.float32), 6, 6),
        Case(gradients(heads(8, 4096, 64)), 4, 4),
        Case(of_one("softmax", lambda x: x.softmax(-1), rows), 0, 12),
        Case(of_one("sum of columns", lambda x: x.sum(0), rows), 0, 12),
        Case(of_one("transpose", lambda x: x.T.contiguous(), rows), 0, 12),
        Case(of_one("copy", lambda x: x + 1, rows), 0, 12),
    ]
    return [x.with_few_options() for x in cases] if is_small else cases


@dataclass(frozen=True)
class Candidate:
    """A kernel with one of its options."""

    case: Case
    number: int
    """The number of the kernel in its program."""
    rank: int
    """The place of the option among those of the kernel; 0 is that of the heuristics."""
    option: Any
    kernel: UOp

    @property
    def name(self) -> str:
        return f"{self.case.program.name}, kernel {self.number}, option {self.rank}: {self.option}"

    def compiled(self, renderer: Renderer, device: str) -> CompiledRunner:
        with Context(ALLOW_TF32=int(self.case.program.allow_tf32)):
            return CompiledRunner(
                get_program(with_mapping(self.kernel, self.option), renderer), device
            )


def candidates(cases: list[Case], device: str) -> Iterator[Candidate]:
    """The candidates of all cases in order, of each kernel those of least predicted time first."""
    for case in cases:
        target = Device[device].target
        renderer = find_renderer(target)
        with Context(ALLOW_TF32=int(case.program.allow_tf32)):
            for number, kernel in enumerate(case.program.graphs(target)):
                options = mappings(kernel, renderer)
                for rank in tried(options, case):
                    yield Candidate(case, number, rank, options[rank], kernel)


def tried(options: list[Any], case: Case) -> list[int]:
    """The numbers of the options that are tried: the first ones, then some of the others."""
    best = 1 + sum(isinstance(x, TILES) for x in options[1 : case.best + 1])
    rest = range(best, len(options))
    step = max(1, math.ceil(len(rest) / case.others)) if case.others else 1
    return [*range(min(best, len(options))), *(rest[::step] if case.others else ())]


# ---- values ----


def right_jobs(device: str, is_small: bool = False) -> Iterator[Job]:
    """For each candidate a job that fails if its values are wrong."""
    inputs: dict[tuple[str, int], Any] = {}
    for candidate in candidates(right_cases(is_small), device):
        key = (candidate.case.program.name, candidate.number)
        if key not in inputs:
            inputs.clear()
            inputs[key] = expected_values(candidate.kernel)
        yield candidate.name, partial(compare, candidate, device, *inputs[key])


Arrays = dict[int, np.ndarray]


def expected_values(kernel: UOp) -> tuple[Arrays, Arrays]:
    """The arguments of a kernel, small integers, before and after it ran."""
    rng = np.random.default_rng(0)
    arrays = {
        slot: rng.integers(-3, 4, dtype.size).astype(_host_dtype(dtype.base))
        for slot, dtype in pointers(kernel).items()
    }
    after = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, after)
    return arrays, after


def compare(candidate: Candidate, device: str, before: Arrays, after: Arrays) -> Values:
    """Runs a candidate. If a value is wrong, the result says where, and has the kernel."""
    renderer = find_renderer(Device[device].target)
    runner = candidate.compiled(renderer, device)
    dtype = pointers(candidate.kernel)
    buffers = [
        Buffer(device, array.size, dtype[slot].base)
        .allocate()
        .copyin(_bytes(array, dtype[slot].base))
        for slot, array in sorted(before.items())
    ]
    runner(device, buffers, {}, wait=True)
    for slot, array in after.items():
        if np.array_equal(array, before[slot], equal_nan=True):
            continue
        kind = NARROW.get(dtype[slot].base, to_numpy_dtype(dtype[slot].base))
        found = np.frombuffer(bytes(buffers[slot].as_memoryview()), kind).astype(array.dtype)
        limit = TOLERANCES[dtype[slot].base.itemsize]
        try:
            np.testing.assert_allclose(found, array, rtol=limit, atol=limit)
        except AssertionError as error:
            return {"failed": str(error), "kernels": runner.spec.source}
    return {}


def _host_dtype(dtype: DType) -> Any:
    """The dtype of numpy that holds the values; narrow ones are float32, as `interpret` has it."""
    return np.float32 if dtype in NARROW else to_numpy_dtype(dtype)


def _bytes(array: np.ndarray, dtype: DType) -> memoryview:
    """The bytes of an array on a device."""
    return memoryview(array.astype(NARROW.get(dtype, to_numpy_dtype(dtype))).view(np.uint8))


def pointers(kernel: UOp) -> dict[int, PtrDType]:
    """The arguments of a kernel by their slots."""
    found = {u.arg: u.dtype for u in kernel.toposort() if u.op is Ops.DEFINE_GLOBAL}
    return {slot: dtype for slot, dtype in sorted(found.items()) if isinstance(dtype, PtrDType)}


# ---- times ----


def timed_jobs(device: str, is_small: bool = False) -> Iterator[Job]:
    """For each candidate a job that measures it."""
    nbytes = 1 << 16 if is_small else FLUSHED_BYTES
    for candidate in candidates(timed_cases(is_small), device):
        yield candidate.name, partial(measure, candidate, device, nbytes)


def measure(candidate: Candidate, device: str, flushed_bytes: int) -> Values:
    """The times of a candidate on random values, in µs, and what is known without a run."""
    renderer = find_renderer(Device[device].target)
    runner = candidate.compiled(renderer, device)
    buffers = _random_buffers(candidate.kernel, device)
    flushed = [Buffer(device, flushed_bytes, dtypes.uint8).allocate() for _ in range(2)]
    times = []
    for _ in range(WARM_UPS + RUNS):
        copy_buffer(*flushed)
        elapsed_s = runner(device, buffers, {}, wait=True)
        assert elapsed_s is not None, "a run that is waited for has a time"
        times.append(elapsed_s * 1e6)
    return {
        "us": statistics.median(times[WARM_UPS:]),
        "all_us": times,
        **prediction(candidate.kernel, candidate.option, renderer),
        "flops": str(runner.spec.estimates.flops),
        "bytes": str(runner.spec.estimates.memory_bytes),
    }


def _random_buffers(kernel: UOp, device: str) -> list[Buffer]:
    """The arguments of a kernel with random values: zeros take less power, and so less time."""
    dtype = pointers(kernel)
    rng = np.random.default_rng(0)
    values = rng.standard_normal(max(x.size for x in dtype.values()), np.float32)
    # integers may be indices
    sources = [values if dtypes.is_float(x.base) else np.zeros_like(values) for x in dtype.values()]
    return [
        Buffer(device, x.size, x.base).allocate().copyin(_bytes(source[: x.size], x.base))
        for x, source in zip(dtype.values(), sources, strict=True)
    ]


def prediction(kernel: UOp, option: Any, renderer: Renderer) -> Values:
    """The decisions of a tile, the size it is for, and the cycles that the model predicts."""
    nest, target = only_nest(kernel, renderer), renderer.target
    assert nest is not None, "a kernel with options is one nest"
    if isinstance(option, BlockTile):
        found = find_product(nest)
        assert found is not None, "a kernel with tiles is a product"
        size: Any = found.size
        cycles = block_tile.cost(option, size, target)
        occupancy = option.blocks_per_unit(target)
    elif isinstance(option, ChainTile):
        chain = find_chain(nest)
        assert chain is not None, "a kernel with such tiles is a chain"
        size = _matrix_chains(nest, chain)[option.instruction].size.padded(option.instruction)
        cycles = chain_tile.cost(option, size, target)
        occupancy = None
    else:
        return {"option": repr(option)}
    decisions = {
        field.name: getattr(option, field.name)
        for field in dataclasses.fields(option)
        if field.name != "instruction"
    }
    return {
        "option": type(option).__name__,
        "instruction": option.instruction.name,
        **decisions,
        "size": dataclasses.asdict(size),
        "cycles": cycles,
        "blocks_per_unit": occupancy,
    }


def compile_jobs(device: str, is_small: bool = False) -> Iterator[Job]:
    """For each candidate to be timed a job that compiles it, to the disk cache."""
    renderer = find_renderer(Device[device].target)

    def compiled(candidate: Candidate) -> Values:
        candidate.compiled(renderer, device)
        return {}

    for candidate in candidates(timed_cases(is_small), device):
        yield candidate.name, partial(compiled, candidate)
