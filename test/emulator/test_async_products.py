"""Products by instructions that read shared memory asynchronously: values and waits."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from test.emulator.test_removals import TARGET, is_right, without_each
from test.gpu_programs import BF16, GPUProgram, of_one
from tinygrad import Tensor
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.threads.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.search import mappings, with_mapping
from tinygrad.renderer import ProgramSpec, find_renderer

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
EmulatedDevice = cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow

Product = Callable[[Tensor, Tensor], Tensor]


def to_bits(values: np.ndarray) -> np.ndarray:
    """Integers as bfloat16."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def kernels(program: GPUProgram) -> dict[BlockTile, ProgramSpec]:
    """The kernel of a program by each tile that reads shared memory."""
    (graph,) = program.graphs(TARGET)
    renderer = find_renderer(TARGET)
    tiles = [x for x in mappings(graph, renderer) if isinstance(x, BlockTile)]
    return {
        x: get_program(with_mapping(graph, x), renderer)
        for x in tiles
        if x.instruction.reads_shared
    }


def arguments(function: Product, *shapes: tuple[int, int]) -> dict[int, np.ndarray]:
    """The result and the operands of a product of integers, whose sums bfloat16 holds."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1, 2, shape).astype(np.float32) for shape in shapes)
    # a sum has at most 8 bits
    a[rng.random(a.shape) < 0.8] = 0
    result = function(Tensor(a, device="CPU"), Tensor(b, device="CPU")).numpy()
    assert np.abs(result).max() < 256
    return {number: to_bits(x) for number, x in enumerate((result, a, b))}


CASES: dict[str, tuple[Product, tuple[int, int], tuple[int, int], int]] = {
    "several blocks and steps": (lambda a, b: a @ b, (256, 320), (320, 192), 8),
    "edges": (lambda a, b: a @ b.T, (70, 136), (90, 136), 15),
    "rows along the reduction": (lambda a, b: (a.T @ b).relu(), (136, 80), (136, 130), 15),
    "one element a copy": (lambda a, b: a @ b, (65, 67), (67, 33), 15),
}


@pytest.mark.parametrize("name", CASES)
def test_every_tile_computes_the_product(gpu: EmulatedDevice, name: str) -> None:
    function, *shapes, stride = CASES[name]
    found = kernels(of_one(name, function, *shapes, dtype=BF16))
    assert {x.instruction.n for x in found} == {64, 128, 256}
    assert {x.stages for x in found} == {3, 4, 5}
    arrays = arguments(function, *shapes)
    expected = arrays[0].copy()
    for spec in list(found.values())[::stride]:
        arrays[0][...] = 0x7FC0
        assert is_right(gpu, spec, spec.source, arrays, expected), spec.applied


def test_a_product_without_a_barrier_a_wait_or_a_fence_is_wrong(gpu: EmulatedDevice) -> None:
    function, *shapes = Tensor.matmul, (64, 384), (384, 64)
    found = kernels(of_one("six steps", function, *shapes, dtype=BF16))
    spec = next(spec for tile, spec in found.items() if tile.stages == 3 and tile.rows == 64)
    arrays = arguments(function, *shapes)
    expected = arrays[0].copy()
    assert is_right(gpu, spec, spec.source, arrays, expected)
    waits = r"(?<=\n) *(?:block_barrier|async_fence|copy_async_wait<\d>|wgmma_wait<\d>)\([^;]*;"
    changed = list(without_each(spec.source, re.compile(waits)))
    assert len(changed) == 5
    for source in changed:
        assert not is_right(gpu, spec, source, arrays, expected)
    # what these left unfinished is no part of a later kernel
    assert is_right(gpu, spec, spec.source, arrays, expected)
