"""The choice of block tiles, and loops as one axis, without a device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tinygrad import dtypes
from tinygrad.codegen.analysis.ranges import FreeRanges
from tinygrad.codegen.optimize.threads.product.block_tile import (
    BlockTile,
    ProductSize,
    candidates,
    cost,
    rank_tiles,
)
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis, contiguous_width
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.matrix_instruction import CDNA, MMA_BF16, MMA_TF32, WGMMA, multiply_adds
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

H100 = nvidia_target("sm_90a", units=132)
INSTRUCTIONS = (MMA_BF16, MMA_TF32, multiply_adds(dtypes.float32), CDNA[0], WGMMA[-1])


def square(size: int) -> ProductSize:
    return ProductSize(size, size, size, 1)


@pytest.mark.parametrize("x", INSTRUCTIONS, ids=lambda x: x.name or "multiply-adds")
def test_candidates_fit_the_target(x):
    for target in (H100, nvidia_target("sm_75"), replace(H100, block_threads=128)):
        found = list(candidates(x, target))
        assert found
        for tile in found:
            assert tile.threads <= target.block_threads
            assert tile.registers <= target.registers
            assert tile.shared_bytes <= target.shared_bytes
            assert tile.blocks_per_unit(target) >= 1
            # every thread copies equally many vectors of 16 bytes
            for side in (tile.rows, tile.columns):
                copied = side * tile.depth * x.operand.itemsize
                assert copied % (16 * tile.threads) == 0


def test_large_products_get_large_tiles_and_small_ones_fill_the_units():
    large, small = (rank_tiles((MMA_BF16,), square(n), H100)[0] for n in (8192, 256))
    assert large.rows * large.columns >= 128 * 128
    assert large.stages >= 3
    # 256 x 256 outputs on 132 units
    assert (256 // small.rows) * (256 // small.columns) >= 32
    assert cost(large, square(8192), H100) < cost(small, square(8192), H100) / 1.5
    ranked = rank_tiles((MMA_BF16,), square(8192), replace(H100, has_async_copy=False))
    assert ranked[0].stages <= 2


def test_large_products_of_an_h100_read_shared_memory():
    bf16 = tuple(x for x in H100.matrix if x.operand is dtypes.bfloat16)
    large, *_ = rank_tiles(bf16, square(8192), H100)
    assert large.instruction.name == "wgmma_m64n256k16_bf16"
    assert (large.rows, large.columns, large.threads) == (128, 256, 256)
    assert not rank_tiles(bf16, square(512), H100)[0].instruction.reads_shared
    # rows of 128 bytes, which are not padded, and a stage that may still be read
    assert large.shared_bytes == large.stages * (128 + 256) * 128
    assert large.stages >= 3 and large.registers < 200
    synchronous, *_ = rank_tiles((MMA_BF16,), square(8192), H100)
    assert 1.25 < cost(synchronous, square(8192), H100) / cost(large, square(8192), H100) < 2


def test_large_products_of_tf32_keep_an_operand_in_registers():
    tf32 = tuple(x for x in H100.matrix if x.rounds_operands)
    size = square(4096)
    ranked = rank_tiles(tf32, size, H100, in_bulk=True)
    found = next(x for x in ranked if x.instruction.reads_shared)
    assert ranked[0] is found and (found.rows, found.columns) == (128, 256)
    # the multiply-adds of a clock of 1.755 GHz, at 250 TFLOP/s and a fifth more
    assert 2 * 4096**3 / (cost(found, size, H100) / 1.755e9) > 300e12
    assert all(x.in_bulk for x in ranked if x.instruction.reads_shared)
    # what lanes hold they load after the last products of the stage before
    assert found.read_later == 0 and found.registers > 128 + 16
    assert not any(x.instruction.reads_shared for x in rank_tiles(tf32, size, H100))


def test_a_producer_gives_its_registers_to_the_threads_that_multiply():
    size = square(8192)
    ranked = rank_tiles(tuple(H100.matrix), size, H100, in_bulk=True)
    large = ranked[0]
    assert large.producer and (large.consumers, large.threads) == (256, 384)
    # what 384 threads have at the start, moved
    assert large.role_registers(H100) == (40, 232)
    assert 128 * 40 + 256 * 232 == 384 * 168
    assert large.registers <= 232 and large.blocks_per_unit(H100) == 1
    # a search finds the same without a producer, which is predicted to be slower
    alone = replace(large, producer=False)
    assert alone in ranked and alone.role_registers(H100) == (0, 0)
    assert 1.02 < cost(alone, size, H100) / cost(large, size, H100) < 1.15
    # threads of two groups of warps start with the most that one can have
    small = next(x for x in ranked if x.producer and x.consumers == 128)
    assert small.role_registers(H100) == (0, 0)
    assert not any(x.producer for x in rank_tiles(tuple(H100.matrix), size, H100))


def test_blocks_have_the_threads_that_another_nest_has():
    assert {x.threads for x in rank_tiles((MMA_BF16,), square(256), H100, 256)} == {256}
    assert not rank_tiles((MMA_BF16,), square(256), H100, 96)


def test_the_sizes_of_a_tile():
    tile = BlockTile(MMA_BF16, (2, 4), (4, 8), 4, 3)
    assert (tile.rows, tile.columns, tile.depth, tile.threads) == (128, 256, 64, 256)
    assert tile.shared_bytes >= 3 * (128 + 256) * 64 * 2
    # 4 x 8 sums of 4, and fragments of 4 and 2 words
    assert tile.registers == 4 * 8 * 4 + 4 * 4 + 8 * 2 + 40


def loops(*sizes: int) -> tuple[UOp, ...]:
    return tuple(UOp.range(n, i, AxisType.LOOP) for i, n in enumerate(sizes))


def value(index: UOp, number: UOp, at: int) -> int:
    """An index expression at a value of `number`."""
    return int(index.substitute({number: UOp.const(dtypes.index, at)}).simplify().arg)


def test_a_flat_axis_numbers_the_steps_of_its_loops():
    axis = FlatAxis(loops(3, 4, 5))
    number = UOp.variable("number", 0, 59)
    positions = axis.positions(number)
    at = [tuple(value(positions[r], number, i) for r in axis.loops) for i in range(60)]
    assert at == [(i, j, k) for i in range(3) for j in range(4) for k in range(5)]
    assert (axis.max_size, axis.blocks(16), axis.divides(15), axis.divides(16)) == (
        *(60, 4),
        *(True, False),
    )


def test_the_width_of_aligned_neighbours():
    row, column = loops(8, 24)
    pointer = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(1 << 20), (), 0)
    axis = FlatAxis((row, column))

    def width(index: UOp, valid: UOp | None = None) -> int:
        return contiguous_width([pointer.index(index, valid)], axis, 16, FreeRanges())

    assert width(row * 32 + column) == 8  # 24 has no more
    assert width(row * 36 + column) == 4
    assert width(row * 32 + column + 2) == 2
    assert width(row * 33 + column) == 1
    assert width(row * 32 + column * 2) == 1
    assert width(row * 32 + column, column < 20) == 1
    assert width(row * 32 + column, row < 7) == 8
