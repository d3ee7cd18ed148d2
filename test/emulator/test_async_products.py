"""Products by instructions that read shared memory asynchronously: values and waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from test.emulator.test_removals import TARGET, is_right, without_each
from test.gpu_programs import BF16, GPUProgram, of_one
from tinygrad import Context, Tensor
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.threads.product.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.search import mappings, with_mapping
from tinygrad.renderer import ProgramSpec, find_renderer

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
EmulatedDevice = cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow

Product = Callable[[Tensor, Tensor], Tensor]


def to_bits(values: np.ndarray) -> np.ndarray:
    """Integers as bfloat16."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Kernels(Mapping[BlockTile, ProgramSpec]):
    """The kernel of a program by each tile that reads shared memory, generated when it is taken."""

    def __init__(self, program: GPUProgram) -> None:
        (self.graph,) = program.graphs(TARGET)
        self.renderer = find_renderer(TARGET)
        self.allow_tf32 = program.allow_tf32
        with Context(ALLOW_TF32=int(self.allow_tf32)):
            found = [x for x in mappings(self.graph, self.renderer) if isinstance(x, BlockTile)]
        self.tiles = [x for x in found if x.instruction.reads_shared]

    def __getitem__(self, tile: BlockTile) -> ProgramSpec:
        with Context(ALLOW_TF32=int(self.allow_tf32)):
            return get_program(with_mapping(self.graph, tile), self.renderer)

    def __iter__(self) -> Iterator[BlockTile]:
        return iter(self.tiles)

    def __len__(self) -> int:
        return len(self.tiles)


def arguments(function: Product, *shapes: tuple[int, int]) -> dict[int, np.ndarray]:
    """The result and the operands of a product of integers, whose sums bfloat16 holds."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1, 2, shape).astype(np.float32) for shape in shapes)
    # a sum has at most 8 bits
    a[rng.random(a.shape) < 0.8] = 0
    result = function(Tensor(a, device="CPU"), Tensor(b, device="CPU")).numpy()
    assert np.abs(result).max() < 256
    return {number: to_bits(x) for number, x in enumerate((result, a, b))}


def batch(a: Tensor, b: Tensor) -> Tensor:
    return a.reshape(3, -1, a.shape[1]) @ b.reshape(3, -1, b.shape[1])


CASES: dict[str, tuple[Product, tuple[int, int], tuple[int, int], int]] = {
    "several blocks and steps": (lambda a, b: a @ b, (256, 320), (320, 192), 40),
    "edges": (lambda a, b: a @ b.T, (70, 136), (90, 136), 40),
    "batch": (batch, (192, 80), (240, 72), 40),
    "columns from 8 to 75": (lambda a, b: a[:, 8:75] @ b[:, :67].T, (65, 88), (41, 72), 40),
    "rows along the reduction": (lambda a, b: (a.T @ b).relu(), (136, 80), (136, 130), 15),
    "one element a copy": (lambda a, b: a @ b, (65, 67), (67, 33), 15),
}
THREADS_ALONE = {"rows along the reduction", "one element a copy"}
"""Cases with rows whose bytes are no multiple of 16, of which hardware copies no boxes."""
Kind = tuple[bool, int, bool]
"""Whether stages are filled in bulk, by how many blocks together, and whether by a producer."""
THREADS, ALONE, PAIRS = (False, 1, False), (True, 1, False), (True, 2, False)
PRODUCER, PRODUCER_PAIRS = (True, 1, True), (True, 2, True)
OF_PRODUCTS = r"async_fence|wgmma_begin|wgmma_commit|wgmma_wait<\d>"
WAITS = {
    THREADS: rf"block_barrier|copy_async_commit|copy_async_wait<\d>|{OF_PRODUCTS}",
    ALONE: rf"block_barrier|mbarrier_\w+|copy_box_2d|{OF_PRODUCTS}",
    PAIRS: rf"cluster_barrier|mbarrier_\w+|copy_box_2d\w*|{OF_PRODUCTS}",
}
WAITS |= {of: WAITS[like] for of, like in ((PRODUCER, ALONE), (PRODUCER_PAIRS, PAIRS))}


def waits_of(kind: Kind) -> re.Pattern[str]:
    """What the text of a kernel waits with."""
    return re.compile(
        rf"(?<=\n) *(?:if \([^;]*\) )?(?:{WAITS[kind]}|release_registers<\d+>)\([^;]*;"
    )


def kind_of(tile: BlockTile) -> Kind:
    """How a tile fills its stages."""
    return tile.in_bulk, tile.cluster, tile.producer


@pytest.mark.parametrize("name", CASES)
def test_every_tile_computes_the_product(gpu: EmulatedDevice, name: str) -> None:
    function, *shapes, stride = CASES[name]
    found = Kernels(of_one(name, function, *shapes, dtype=BF16))
    assert {x.instruction.n for x in found} == {64, 128, 256}
    assert {x.stages for x in found} == {3, 4, 5}
    # filled by hardware, where it can: the option of the heuristics is such a one
    kinds = {kind_of(x) for x in found}
    assert next(iter(found)).in_bulk == (name not in THREADS_ALONE)
    # of a batch, a block has all rows
    pairs = {PAIRS, PRODUCER_PAIRS} if name != "batch" else set()
    in_bulk = {ALONE, PRODUCER, *pairs}
    assert kinds == ({THREADS} if name in THREADS_ALONE else {THREADS, *in_bulk})
    chosen = list(found)[::stride]
    # one with more rows than a box has, and one of each kind
    chosen += [x for x in found if x.in_bulk and x.columns > 256][:1]
    for kind in kinds:
        of_kind = [x for x in found if kind_of(x) == kind]
        chosen.append(of_kind[len(of_kind) // 2])
    arrays = arguments(function, *shapes)
    expected = arrays[0].copy()
    for tile in dict.fromkeys(chosen):
        arrays[0][...] = 0x7FC0
        spec = found[tile]
        assert is_right(gpu, spec, spec.source, arrays, expected), spec.applied


def tf32(values: np.ndarray) -> np.ndarray:
    """Floats with 10 bits of the mantissa; ties are rounded to even."""
    bits = values.view(np.uint32)
    return (bits + 0xFFF + (bits >> 13 & 1) & np.uint32(0xFFFFE000)).view(np.float32)


TF32_CASES: dict[str, tuple[Product, tuple[int, int], tuple[int, int], bool]] = {
    "rows contiguous": (lambda a, b: a @ b, (130, 72), (72, 132), True),
    "both along the reduction": (lambda a, b: (a @ b.T).relu(), (70, 136), (90, 136), False),
    "columns along the reduction": (lambda a, b: a.T @ b.T, (96, 132), (70, 96), False),
    "batch": (batch, (192, 80), (240, 72), True),
}


@pytest.mark.parametrize("name", TF32_CASES)
def test_a_product_of_tf32_is_that_of_rounded_operands(gpu: EmulatedDevice, name: str) -> None:
    """The operand that lanes hold, rows or columns, may lie in either order in memory."""
    function, *shapes, is_swapped = TF32_CASES[name]
    program = replace(of_one(name, function, *shapes), allow_tf32=True)
    found = Kernels(program)
    assert {x.instruction.n * x.instruction.m // 64 for x in found} == {64, 128, 256}
    assert {x.instruction.is_swapped for x in found} >= {is_swapped}
    assert all(x.in_bulk and not x.read_later for x in found)
    rng = np.random.default_rng(0)
    # positive, so that bits that are dropped instead of rounded do not cancel out
    a, b = (rng.random(shape, np.float32) for shape in shapes)
    result = function(*(Tensor(tf32(x), device="CPU") for x in (a, b))).numpy()
    arrays = {0: np.full_like(result, np.nan), 1: a, 2: b}
    for tile in list(found)[::9]:
        spec = found[tile]
        assert is_right(gpu, spec, spec.source, arrays, result), spec.applied


def test_operands_of_tf32_both_across_the_reduction_are_multiplied_by_single_warps() -> None:
    program = of_one("a.T @ b", lambda a, b: a.T @ b, (2048, 2048), (2048, 2048))
    assert not Kernels(replace(program, allow_tf32=True))


@pytest.mark.parametrize(("kind", "count"), [(ALONE, 17), (PRODUCER, 13)], ids=["bulk", "producer"])
def test_a_product_of_tf32_without_a_barrier_a_wait_or_a_fence_is_wrong(
    gpu: EmulatedDevice, kind: Kind, count: int
) -> None:
    shapes = (64, 192), (192, 128)
    found = Kernels(replace(of_one("six steps", Tensor.matmul, *shapes), allow_tf32=True))
    wanted = (3, 64, kind)
    spec = found[next(x for x in found if (x.stages, x.rows, kind_of(x)) == wanted)]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in shapes)
    arrays = {0: np.full((64, 128), np.nan, np.float32), 1: a, 2: b}
    assert is_right(gpu, spec, spec.source, arrays, a @ b)
    changed = list(without_each(spec.source, waits_of(kind)))
    assert len(changed) == count
    if kind == PRODUCER:
        changed.append(arriving_early(spec.source))
    for source in changed:
        assert source != spec.source
        assert not is_right(gpu, spec, source, arrays, a @ b), source


def arriving_early(source: str) -> str:
    """The text of a kernel whose consumers arrive before the products that read a stage end."""
    pattern = r"\n *wgmma_wait<\d>\(\w+\);((?:\n *int [^;]*;)?)(\n *if [^;]*mbarrier_arrive[^;]*;)"
    found = re.search(pattern, source)
    assert found is not None
    wait = found.group().split(";")[0] + ";"
    return source.replace(found.group(), f"{found[1]}{found[2]}{wait}")


def faulty_arrivals(source: str, count: int) -> list[str]:
    """The text of a kernel with other arrivals at its mbarriers of empty stages."""
    start = source.index("__global__")
    head, body = source[:start], source[start:]
    assert body.count(f", {count});") == 1
    in_another = re.sub(r"mbarrier_arrive_in\(([^;]*), \w+\);", r"mbarrier_arrive(\1);", body)
    changed = [
        # fewer or more warps, another phase, the stage of this step, which is being read
        body.replace(f", {count});", f", {count - 1});"),
        body.replace(f", {count});", f", {count + 1});"),
        re.sub(r"\(\((k\d+ / 3)\) \+ 1\) & 1\);", r"\1 & 1);", body),
        re.sub(r"(mbarrier_arrive\w*\(\w+ \+ \(\()v\d+ % 3", r"\1k3 % 3", body),
    ]
    if in_another != body:
        changed.append(in_another)
    return [head + x for x in changed]


@pytest.mark.parametrize(
    ("kind", "groups", "count"),
    [
        (THREADS, 1, 9),
        (ALONE, 1, 15),
        (PAIRS, 1, 15),
        (PRODUCER, 1, 14),
        (PRODUCER, 2, 15),
        (PRODUCER_PAIRS, 2, 15),
    ],
    ids=["threads", "bulk", "cluster", "producer", "producer of two", "producers of a cluster"],
)
def test_a_product_without_a_barrier_a_wait_or_a_fence_is_wrong(
    gpu: EmulatedDevice, kind: Kind, groups: int, count: int
) -> None:
    rows = 64 * groups * kind[1]
    function, *shapes = Tensor.matmul, (rows, 384), (384, 64)
    found = Kernels(of_one("six steps", function, *shapes, dtype=BF16))
    wanted = (3, 64 * groups, 64, kind)
    tile = next(x for x in found if (x.stages, x.rows, x.columns, kind_of(x)) == wanted)
    assert tile.warps == (groups, 1)
    spec = found[tile]
    arrays = arguments(function, *shapes)
    expected = arrays[0].copy()
    assert is_right(gpu, spec, spec.source, arrays, expected)
    changed = list(without_each(spec.source, waits_of(kind)))
    assert len(changed) == count
    if kind != THREADS:
        # other numbers of bytes, another phase
        nbytes = 8192 * (groups + 1)
        text = f", {nbytes});"
        assert spec.source.count(text) == (1 if kind[2] else 2)
        changed += [spec.source.replace(text, f", {nbytes + x});") for x in (-16, 16)]
        changed.append(spec.source.replace("k3 / 3)", "k3 / 3 ^ 1)"))
    if kind[2]:
        changed.append(arriving_early(spec.source))
        changed += faulty_arrivals(spec.source, 4 * groups * kind[1])
    if kind in {PAIRS, PRODUCER_PAIRS}:
        # a barrier of the block alone, a copy to this block alone
        start = spec.source.index("__global__")
        head, body = spec.source[:start], spec.source[start:]
        changed += [head + body.replace("cluster_barrier", "block_barrier")]
        changed += [head + body.replace("copy_box_2d_to_2", "copy_box_2d")]
    for source in changed:
        assert source != spec.source
        assert not is_right(gpu, spec, source, arrays, expected), source
    # what these left unfinished is no part of a later kernel
    assert is_right(gpu, spec, spec.source, arrays, expected)
