"""Choose the block tile of a product on a GPU: the options of a kernel, and their cost.

In: the sizes of a product and the target. Out: a `BlockTile`, a frozen list of decisions. A block
of threads computes a tile of the output; each of its warps computes a part, in registers, by
repeated matrix instructions (or multiply-adds, described alike); the operands of one step of the
reduction are staged in shared memory. Candidates that do not fit registers, shared memory or
threads are pruned, and the others compared by a model in cycles, without a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tinygrad.codegen.analysis.resources import REGISTER_GRANULARITY, Resources, resident_blocks
from tinygrad.helpers import ceildiv
from tinygrad.renderer import Target
from tinygrad.renderer.matrix_instruction import SWIZZLE_BYTES, SWIZZLE_ROWS, MatrixInstruction

# bytes of an aligned access, which also pad the rows of shared memory: banks of a column differ
ACCESS_BYTES = 16
# bytes of the mbarriers of all stages, padded so that the array after them is aligned for swizzling
MBARRIERS_BYTES = SWIZZLE_ROWS * SWIZZLE_BYTES
# registers of a thread for addresses and loop counters
OTHER_REGISTERS = 40
# cycles to start a block and to store its tile
BLOCK_CYCLES = 1500.0
# cycles of each step of the reduction: barriers, and addresses of the copies
STEP_CYCLES = 40.0
# the same where hardware copies, so that threads compute no addresses
BULK_STEP_CYCLES = 20.0
# further cycles of a step to wait for the other blocks of a cluster
CLUSTER_STEP_CYCLES = 40.0
# instead of BULK_STEP_CYCLES where a producer fills stages: consumers wait for a full stage without
# a barrier; the producer waits for other blocks while consumers read stages that are filled
PRODUCER_STEP_CYCLES = 10.0
# cycles of a step to load the fragments of its products, while no product of the block runs
HELD_STEP_CYCLES = 250.0
# the share of these without a barrier: some groups of warps may multiply while others load, but
# nothing makes them drift apart
DRIFTING_SHARE = 0.5
# blocks that share an operand
CLUSTERS = (1, 2)
# threads of the producer: `setmaxnreg` moves registers of four warps, though one thread copies
PRODUCER_THREADS = 128
# registers of each, for the coordinates of boxes of any rank
PRODUCER_REGISTERS = 40
# what a multiprocessor does in a cycle: multiply-adds, and bytes of shared memory and of the cache
MULTIPLY_ADDS_PER_CYCLE = 128.0
MATRIX_MULTIPLY_ADDS_PER_CYCLE = {1: 4096.0, 2: 2048.0, 4: 1024.0}
# the share of these rates that instructions on operands in registers reach
SYNCHRONOUS_SHARE = 0.5
SHARED_BYTES_PER_CYCLE = 128.0
CACHE_BYTES_PER_CYCLE = 32.0
# arrangements of the warps of a block along rows and columns
WARPS = ((2, 4), (4, 2), (2, 2), (1, 4), (4, 1), (1, 2), (2, 1))
# the same for groups of warps that run an instruction together
WARP_GROUPS = ((2, 1), (1, 2), (1, 1))
WARP_LANES = 32
SCHEDULERS = 4
# steps whose asynchronous products may be running while the next step begins its own
STEPS_IN_FLIGHT = 1
# blocks along the rows that run together, so that they share operands in the cache
GROUPED_BLOCKS = 8


@dataclass(frozen=True)
class BlockTile:
    """The decisions about a product. Rows are those of `a` and columns those of `b`."""

    instruction: MatrixInstruction
    warps: tuple[int, int]
    """Warps of a block along rows and columns."""
    repeats: tuple[int, int]
    """Instructions of a warp along rows and columns: its register tile."""
    steps: int
    """Instructions along the reduction in one stage of shared memory."""
    stages: int
    """Stages of shared memory: all but one are being filled."""
    in_bulk: bool = False
    """Whether hardware fills them, by copies that one thread starts."""
    cluster: int = 1
    """The blocks of a cluster, along the rows. Each copies a part of the columns to all of them."""

    producer: bool = False
    """Whether threads that do nothing else start these copies."""

    @property
    def rows(self) -> int:
        """The rows of the tile."""
        return self.warps[0] * self.repeats[0] * self.instruction.m

    @property
    def columns(self) -> int:
        """The columns of the tile."""
        return self.warps[1] * self.repeats[1] * self.instruction.n

    @property
    def depth(self) -> int:
        """The steps of the reduction in one stage."""
        return self.steps * self.instruction.k

    @property
    def consumers(self) -> int:
        """The threads of a block that multiply."""
        return math.prod(self.warps) * self.instruction.lanes

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.consumers + (PRODUCER_THREADS if self.producer else 0)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block, with rows, if they are, padded along the longer side."""
        itemsize = self.instruction.operand.itemsize
        sides = self.rows + self.columns
        padding = ACCESS_BYTES * max(2 * self.depth, sides)
        if self.instruction.reads_shared:
            padding = 0
        mbarriers = MBARRIERS_BYTES if self.in_bulk else 0
        return self.stages * (sides * self.depth * itemsize + padding) + mbarriers

    @property
    def read_later(self) -> int:
        """Steps that may still be reading their stages when the next begins to fill one."""
        x = self.instruction
        # registers that products read are not loaded before these are complete
        return STEPS_IN_FLIGHT if x.reads_shared and x.held_side is None else 0

    @property
    def registers(self) -> int:
        """An estimate of the 32-bit registers of a thread."""
        x = self.instruction
        words = x.operand.itemsize / 4
        sums = math.prod(self.repeats) * x.c.count
        fragments = self.repeats[0] * x.a.count + self.repeats[1] * x.b.count
        if x.held_side is not None:
            fragments *= self.steps
        return math.ceil(sums + fragments * words) + OTHER_REGISTERS

    def role_registers(self, target: Target) -> tuple[int, int]:
        """The registers of a thread of the producer and of the others, to be set; 0 if they start
        with as many as a thread can have.
        """
        at_start = target.unit_registers // self.threads // REGISTER_GRANULARITY
        if not self.producer or at_start * REGISTER_GRANULARITY >= target.registers:
            return 0, 0
        kept = PRODUCER_REGISTERS // REGISTER_GRANULARITY * PRODUCER_THREADS
        given = (at_start * self.threads - kept) // self.consumers
        return PRODUCER_REGISTERS, given * REGISTER_GRANULARITY

    def blocks_per_unit(self, target: Target) -> int:
        """The blocks that a multiprocessor holds."""
        consumer = self.role_registers(target)[1]
        if consumer:
            # it has all registers
            fits = self.registers <= consumer and self.shared_bytes <= target.shared_bytes
            return int(fits)
        return resident_blocks(Resources(self.threads, self.registers, self.shared_bytes), target)

    def __str__(self) -> str:
        name = self.instruction.name or "multiply-adds"
        return (
            f"block {self.rows} x {self.columns} x {self.depth} of {self.threads} threads, "
            f"{self.repeats[0]} x {self.repeats[1]} {name} a warp, {self.stages} stages"
            f"{', filled in bulk' if self.in_bulk else ''}"
            f"{' by a producer' if self.producer else ''}"
            f"{f', clusters of {self.cluster}' if self.cluster > 1 else ''}"
        )


@dataclass(frozen=True)
class ProductSize:
    """The size of a batch of products; upper bounds of symbolic sizes."""

    rows: int
    columns: int
    depth: int
    batch: int


Sizes = tuple[int, ...]


def candidates(
    instruction: MatrixInstruction, target: Target, in_bulk: bool = False
) -> Iterator[BlockTile]:
    """The tiles that fit the target, also those that are filled in bulk if that is possible."""
    if instruction.reads_shared:
        choices = _that_read_shared(instruction, in_bulk)
    else:
        choices = _that_read_registers(instruction, target)
    for tile in choices:
        if tile.blocks_per_unit(target) and _is_filled_evenly(tile):
            yield tile


def _that_read_registers(instruction: MatrixInstruction, target: Target) -> Iterator[BlockTile]:
    heights, widths = ((4, 2, 1), (8, 4, 2)) if instruction.name else ((8, 4, 2), (2, 1))
    stages = (4, 3, 2, 1) if target.has_async_copy else (2, 1)
    return _tiles(instruction, WARPS, (heights, widths), (64, 128), stages)


def _that_read_shared(instruction: MatrixInstruction, in_bulk: bool) -> Iterator[BlockTile]:
    """Tiles with rows of swizzled panels. Of their stages, one is read and another may still be."""
    sides = ((1,), (2, 1)) if instruction.is_swapped else ((2, 1), (1,))
    for tile in _tiles(instruction, WARP_GROUPS, sides, (SWIZZLE_BYTES,), (5, 4, 3)):
        if in_bulk:
            # alone or in clusters
            for cluster, producer in itertools.product(CLUSTERS, (True, False)):
                yield replace(tile, in_bulk=True, cluster=cluster, producer=producer)
        # an operand that no lane holds is rounded by the hardware that copies it
        if not instruction.rounds_operands:
            yield tile


def _tiles(
    instruction: MatrixInstruction,
    warps: tuple[tuple[int, int], ...],
    sides: tuple[Sizes, Sizes],
    row_bytes: Sizes,
    stages: Sizes,
) -> Iterator[BlockTile]:
    """The tiles of all choices."""
    steps = [x // instruction.operand.itemsize // instruction.k for x in row_bytes]
    for arrangement, rows, columns, deep, count in itertools.product(warps, *sides, steps, stages):
        yield BlockTile(instruction, arrangement, (rows, columns), deep, count)


def _is_filled_evenly(tile: BlockTile) -> bool:
    """Whether every thread copies as many elements of each operand as the others."""
    width = ACCESS_BYTES // tile.instruction.operand.itemsize
    return all(
        side * tile.depth % (tile.consumers * width) == 0 for side in (tile.rows, tile.columns)
    )


def cost(tile: BlockTile, size: ProductSize, target: Target) -> float:
    """An estimate of the cycles of the whole product."""
    x = tile.instruction
    blocks = size.batch * ceildiv(size.rows, tile.rows) * ceildiv(size.columns, tile.columns)
    resident = min(tile.blocks_per_unit(target), ceildiv(blocks, target.units))
    rate = MULTIPLY_ADDS_PER_CYCLE
    if x.name:
        share = 1.0 if x.reads_shared else SYNCHRONOUS_SHARE
        rate = MATRIX_MULTIPLY_ADDS_PER_CYCLE[x.operand.itemsize] * share
    products = tile.rows * tile.columns * tile.depth
    # a unit has several schedulers, each of which runs some of the warps
    warps = math.prod(tile.warps) * (x.lanes // WARP_LANES if x.reads_shared else 1)
    rate *= min(1.0, resident * warps / SCHEDULERS)
    # lanes, or instructions, read fragments from shared memory, a block fills it from the cache
    if x.reads_shared:
        read = math.prod(tile.warps) * math.prod(tile.repeats) * (x.m + x.n) * tile.depth
    else:
        fragments = tile.repeats[0] * x.a.count + tile.repeats[1] * x.b.count
        read = tile.threads * tile.steps * fragments
    read *= x.operand.itemsize
    filled = (tile.rows + tile.columns / tile.cluster) * tile.depth * x.operand.itemsize
    written = (tile.rows + tile.columns) * tile.depth * x.operand.itemsize
    shared = (read + written) / SHARED_BYTES_PER_CYCLE
    step = max(products / rate, shared, filled / CACHE_BYTES_PER_CYCLE)
    # stages and other blocks hide latency
    hidden = min(4, resident * max(1, tile.stages - 1 - tile.read_later))
    overhead = BLOCK_CYCLES / resident
    steps = ceildiv(size.depth, tile.depth)
    waited = BULK_STEP_CYCLES if tile.in_bulk else STEP_CYCLES
    waited += CLUSTER_STEP_CYCLES if tile.cluster > 1 else 0
    if tile.producer:
        waited = PRODUCER_STEP_CYCLES
    if x.held_side is not None:
        drifts = tile.producer and math.prod(tile.warps) > 1
        step += HELD_STEP_CYCLES * (DRIFTING_SHARE if drifts else 1.0)
    step += waited * 4 / hidden
    return ceildiv(blocks, target.units) * (steps * step + overhead)


def rank_tiles(
    instructions: tuple[MatrixInstruction, ...],
    size: ProductSize,
    target: Target,
    threads: int | None = None,
    in_bulk: bool = False,
) -> tuple[BlockTile, ...]:
    """The tiles that fit, that of least cost first; with `threads`, only blocks of that size.

    With `in_bulk`, hardware can copy the operands.
    """
    found = [
        tile
        for x in instructions
        for tile in candidates(x, target, in_bulk)
        if (threads is None or tile.threads == threads)
        and ceildiv(size.rows, tile.rows) % tile.cluster == 0
    ]
    return tuple(sorted(found, key=lambda tile: cost(tile, size, target)))
