"""Choose the tile of a chain of products on a GPU: enumerate the tiles that fit, and rank them.

In: the sizes of a chain and the target. Out: a `ChainTile`, a frozen list of decisions. A thread
block computes some rows, each warp rows of its own. The scores of these rows and a block of keys,
and the accumulators of the output, are in registers. Blocks of keys pass through shared memory.

Example: 4 warps, 1 instruction of 16 rows a warp, 64 keys a step are 64 rows a block. With 4,096
rows, 8 heads and batch 2, the grid has 4,096 / 64 * 16 = 1,024 blocks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tinygrad.codegen.analysis.resources import Resources, resident_blocks
from tinygrad.codegen.optimize.threads.product.block_tile import (
    ACCESS_BYTES,
    CACHE_BYTES_PER_CYCLE,
    MATRIX_MULTIPLY_ADDS_PER_CYCLE,
    MULTIPLY_ADDS_PER_CYCLE,
    OTHER_REGISTERS,
    SCHEDULERS,
    SHARED_BYTES_PER_CYCLE,
)
from tinygrad.helpers import ceildiv
from tinygrad.renderer import Target
from tinygrad.renderer.matrix_instruction import MatrixInstruction

WARPS = (8, 4, 2, 1)
# choices for matrix instructions, then for multiply-adds: instructions of a warp along the rows,
# and keys of a step
REPEATS = (2, 1), (8, 4, 2)
KEYS = (128, 64, 32), (64, 32)
# choices of stages with asynchronous copies, then without
STAGES = (3, 2), (2, 1)
# elementwise operations that a multiprocessor computes in a cycle; those for a weight; those for a
# row in each step
OPERATIONS_PER_CYCLE = 128.0
WEIGHT_OPERATIONS = 24.0
ROW_OPERATIONS = 64.0
# the latency of one step in cycles, of which other warps hide a part, and that of the first loads
# of a block
STEP_CYCLES = 600.0
BLOCK_CYCLES = 3000.0
# estimated fragments of keys that are in registers at a time, in unrolled loops
LIVE_FRAGMENTS = 8


@dataclass(frozen=True)
class ChainSize:
    """The size of a chain: a sum over `keys` of weights times `columns`, for each of `rows`."""

    rows: int
    keys: int
    columns: int
    depths: tuple[int, ...]
    """For each product in the weights, the size of its reduction axis, such as the head size."""
    batch: int
    terms: int = 1
    """The narrow terms into which a weight is split, each multiplied once (`matrix_chain.py`)."""

    def padded(self, instruction: MatrixInstruction) -> ChainSize:
        """The size with depths and columns rounded up to multiples of the instruction's."""
        depths = tuple([_multiple(x, instruction.k) for x in self.depths])
        # matrices are loaded by pairs
        columns = _multiple(self.columns, instruction.n * (1 + instruction.loads_matrices))
        return ChainSize(self.rows, self.keys, columns, depths, self.batch, self.terms)


@dataclass(frozen=True)
class ChainTile:
    """The decisions about a chain of products."""

    instruction: MatrixInstruction
    warps: int
    """Warps of a thread block. Each has rows of its own."""
    repeats: int
    """Instructions of a warp along the rows."""
    keys: int
    """Keys of a step."""
    stages: int
    """Stages of shared memory: all but one are being filled."""
    holds_rows: bool
    """Whether the operands of the rows stay in registers, or are read in every step."""

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return self.warps * self.repeats * self.instruction.m

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.warps * self.instruction.lanes

    def resources(self, size: ChainSize) -> Resources:
        """Threads, registers a thread (estimated) and bytes of shared memory of a thread block, for
        a padded size.
        """
        x = self.instruction
        itemsize = x.operand.itemsize
        lines = [(self.rows, depth) for depth in size.depths]
        lines += [(self.keys, n) for n in (*size.depths, size.columns)] * self.stages
        if not x.reads_sums:
            lines += [(self.rows, self.keys)] * size.terms
        shared = sum(a * b * itemsize + ACCESS_BYTES * max(a, b) for a, b in lines)
        elements = self.repeats * x.m * (self.keys * len(size.depths) + size.columns)
        words = x.accumulator.itemsize // 4
        sums = ceildiv(elements, x.lanes) * words
        if x.operand is not x.accumulator:
            sums += ceildiv(self.repeats * x.m * self.keys * itemsize, x.lanes * 4)
        live = LIVE_FRAGMENTS * x.b.count
        if not x.name:
            tiles = max(self.keys, size.columns) // x.n
            live = self.repeats * x.a.count + tiles * x.b.count
        if self.holds_rows:
            live += self.repeats * sum(size.depths) // x.k * x.a.count
        # exponentials of float64 have long polynomials
        registers = sums + live * itemsize // 4 + OTHER_REGISTERS * words
        return Resources(self.threads, registers, shared)

    def __str__(self) -> str:
        rows = "held" if self.holds_rows else "reread"
        return (
            f"blocks of {self.rows} rows by {self.keys} keys of {self.threads} threads, "
            f"{self.instruction.name or 'multiply-adds'}, {self.stages} stages, rows {rows}"
        )


def candidates(
    instruction: MatrixInstruction, size: ChainSize, target: Target
) -> Iterator[ChainTile]:
    """The tiles of which at least one thread block fits a multiprocessor, for a padded size."""
    is_own = not instruction.name
    holds = (False,) if is_own else (True, False)
    choices = REPEATS[is_own], KEYS[is_own], STAGES[not target.has_async_copy], holds
    for options in itertools.product(WARPS, *choices):
        tile = ChainTile(instruction, *options)
        if resident_blocks(tile.resources(size), target):
            yield tile


def cost(tile: ChainTile, size: ChainSize, target: Target) -> float:
    """The estimated cycles of the kernel. A step takes as long as the busiest of arithmetic, shared
    memory and the cache, and the latency that resident warps do not hide.
    """
    x = tile.instruction
    blocks = size.batch * ceildiv(size.rows, tile.rows)
    resident = min(resident_blocks(tile.resources(size), target), ceildiv(blocks, target.units))
    width = sum(size.depths) + size.columns * size.terms
    rate = MULTIPLY_ADDS_PER_CYCLE
    if x.name:
        rate = MATRIX_MULTIPLY_ADDS_PER_CYCLE[x.operand.itemsize] / 2
    busy = min(1.0, resident * tile.warps / SCHEDULERS)
    products = tile.rows * tile.keys * width / (rate * busy)
    # lanes read copies of some elements
    left, right = (1 << m.lanes.count((0, 0)) for m in (x.a, x.b))
    read = tile.warps * tile.keys * width * right
    if not tile.holds_rows:
        read += tile.rows * sum(size.depths) * left
    if not x.reads_sums:
        read += tile.rows * tile.keys * size.terms * left
    shared = read * x.operand.itemsize / SHARED_BYTES_PER_CYCLE
    filled = (
        tile.keys * (sum(size.depths) + size.columns) * x.operand.itemsize / CACHE_BYTES_PER_CYCLE
    )
    # the weights, and the sums, which are scaled in every step
    operations = tile.rows * (tile.keys * WEIGHT_OPERATIONS + size.columns + ROW_OPERATIONS)
    weights = operations / (OPERATIONS_PER_CYCLE * busy)
    hidden = resident * tile.warps / SCHEDULERS
    # one block multiplies while another one computes weights
    computed = max(products, weights) + min(products, weights) / resident
    step = max(computed, shared, filled) + STEP_CYCLES / max(hidden, 1.0)
    steps = ceildiv(size.keys, tile.keys)
    return ceildiv(blocks, target.units) * (steps * step + BLOCK_CYCLES / resident)


@functools.lru_cache(maxsize=4096)
def rank_chain_tiles(
    sizes: tuple[tuple[MatrixInstruction, ChainSize], ...], target: Target, threads: int | None
) -> tuple[ChainTile, ...]:
    """The tiles that fit: those of matrix instructions before those of multiply-adds, and then by
    cost. `sizes` has the size of the chain for each instruction. `threads`, if given, is the size
    of a thread block.
    """
    found = [
        (not x.name, cost(tile, padded, target), tile)
        for x, size in sizes
        for padded in [size.padded(x)]
        for tile in candidates(x, padded, target)
        if threads is None or tile.threads == threads
    ]
    return tuple([tile for *_, tile in sorted(found, key=lambda entry: entry[:2])])


def _multiple(number: int, of: int) -> int:
    return ceildiv(number, of) * of
