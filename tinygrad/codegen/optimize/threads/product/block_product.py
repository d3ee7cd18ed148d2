"""Tile a contraction for the blocks of threads of a GPU.

Before: a nest of plain loops that is one contraction. After:

    for item in grid: for thread in block:
        sums[...] = 0
        fill the first stages of shared memory
        for step of the reduction:
            wait until the oldest stage is filled, by all threads
            start to fill the stage that the step before read
            for k in stage:
                a[...] = fragments of rows; b[...] = fragments of columns
                for row in tile: for column in tile: sums[row, column] += a[row] @ b[column]
        for row in tile: for column in tile: store(f(sums[row, column]))

`matrix_product.py` finds the contraction, `stages.py` has the stages. The edges of a tile past the
end of an axis are masked: they are filled with zeros, and not stored.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from tinygrad.codegen.analysis.affine_index import and_conditions, collect
from tinygrad.codegen.analysis.ranges import FreeRanges, substitute
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.staging import row_major_index
from tinygrad.codegen.optimize.threads.product.async_product import multiply_stages
from tinygrad.codegen.optimize.threads.product.block_tile import (
    GROUPED_BLOCKS,
    BlockTile,
    rank_tiles,
)
from tinygrad.codegen.optimize.threads.product.bulk_stages import BulkStages
from tinygrad.codegen.optimize.threads.product.flat_axis import contiguous_width
from tinygrad.codegen.optimize.threads.product.fragments import (
    FragmentSource,
    lane_position,
    multiply,
)
from tinygrad.codegen.optimize.threads.product.matrix_product import (
    Product,
    find_product,
    unconverted,
)
from tinygrad.codegen.optimize.threads.product.producer_stages import ProducerStages
from tinygrad.codegen.optimize.threads.product.shared_tile import (
    divided,
    mask_loads,
    shared_tile,
)
from tinygrad.codegen.optimize.threads.product.stages import Stages
from tinygrad.dtype import AddrSpace, DType
from tinygrad.renderer.tensor_map import ALIGNMENT
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# bytes of the widest store of neighbouring sums
STORE_BYTES = 16

rank = functools.lru_cache(maxsize=4096)(rank_tiles)


def tile_block_product(nest: Nest) -> bool:
    """Tile the nest if it is one contraction that fills blocks; returns whether it is tiled."""
    product = find_product(nest)
    tile = None if product is None else nest.choose(product_options(nest, product))
    if product is None or tile is None:
        return False
    _BlockProduct(nest, product, tile).build()
    return True


def product_options(nest: Nest, product: Product) -> tuple[BlockTile, ...]:
    """The tiles that fit the target, that of least predicted time first."""
    target = nest.renderer.target
    instructions = product.instructions(target.matrix, target.warp)
    # a view whose address is not aligned has a kernel that accesses single elements
    in_bulk = (
        target.has_bulk_copy
        and target.vector_bytes >= ALIGNMENT
        and all(x is not None for x in product.sources())
    )
    return rank(instructions, product.size, target, nest.threads, in_bulk)


def _common_blocks(rows: UOp | int, cluster: int) -> int:
    """The number of the `rows` blocks along the rows that run together."""
    if isinstance(rows, int) and rows % GROUPED_BLOCKS == 0:
        return GROUPED_BLOCKS
    return cluster


class _BlockProduct:
    """The nest of a product while a block tile is applied to it."""

    def __init__(self, nest: Nest, product: Product, tile: BlockTile) -> None:
        self.nest = nest
        self.product = product
        self.factory = nest.factory
        steps = product.reduction.blocks(tile.depth)
        self.tile = tile
        self.instruction = tile.instruction
        needed = steps if isinstance(steps, int) else tile.stages
        stages = min(tile.stages, needed + 2 * tile.read_later)
        self.stages = stages
        self.step = self.factory.new(steps, AxisType.REDUCE)
        self.threads = self.make_threads()
        self.thread = self.threads[-1]
        self.row_block, self.column_block, self.grid = self.blocks()
        self.rank = divided(self.row_block, tile.cluster)[1]
        warp, self.lane = divided(self.thread, self.instruction.lanes)
        self.warp = divided(warp, tile.warps[1])
        free = FreeRanges()
        lengths = tile.rows, tile.columns
        axes = product.rows, product.columns
        # what instructions read, nothing else rounds
        rounds = self.instruction.reads_shared and self.instruction.rounds_operands
        sources = [
            replace(x, map=replace(x.map, rounds_to_tf32=rounds)) if x and tile.in_bulk else None
            for x in product.sources()
        ]
        self.shared = tuple(
            shared_tile(
                self.as_bits(x),
                self.instruction.bits,
                axis,
                product.reduction,
                (length, tile.depth, stages),
                self.factory.number(),
                free,
                self.instruction.reads_shared,
                source,
            )
            for x, axis, length, source in zip(
                product.operands, axes, lengths, sources, strict=True
            )
        )

    def as_bits(self, operand: UOp) -> UOp:
        """The operand in the dtype that shared memory holds."""
        x = self.instruction
        if x.operand is not x.bits:
            return unconverted(operand).bitcast(x.bits)
        return operand if operand.dtype is x.operand else operand.cast(x.operand)

    def make_threads(self) -> tuple[UOp, ...]:
        """The threads of a block and, if they have roles, those of them that multiply."""
        tile = self.tile
        block = self.factory.new(tile.threads, AxisType.LOCAL)
        if not tile.producer:
            return (block,)
        registers = tile.role_registers(self.nest.renderer.target)[1]
        return block, self.factory.role(block, range(tile.consumers), registers)

    def blocks(self) -> tuple[UOp, UOp, list[UOp]]:
        """The numbers of the row block and the column block, and the loops of the grid.

        A few blocks along the rows run together with all along the columns. Those of a cluster are
        next to each other.
        """
        rows = self.product.rows.blocks(self.tile.rows)
        columns = self.factory.new(self.product.columns.blocks(self.tile.columns), AxisType.LOOP)
        batch = list(self.product.batch)
        together = _common_blocks(rows, self.tile.cluster)
        if together > 1:
            group = self.factory.new(rows // together, AxisType.LOOP)
            inside = self.factory.new(together, AxisType.LOOP)
            return group * together + inside, columns, [*batch, group, columns, inside]
        row = self.factory.new(rows, AxisType.LOOP)
        return row, columns, [*batch, row, columns]

    def build(self) -> None:
        """Replace the nest."""
        update, sums = self.accumulate()
        store = self.store(sums.after(update))
        self.nest.root = UOp.sink(store)
        self.nest.make_grid(self.grid)
        self.nest.note(str(self.tile))

    # ---- stages of shared memory ----

    def fill(self, memory: tuple[UOp, ...], step: UOp, condition: UOp | None) -> list[UOp]:
        """The stores of one stage of both operands."""
        stage = divided(step, self.stages)[1]
        blocks = self.row_block, self.column_block
        return [
            tile.fill(x, self.thread, block, step, stage, condition, self.factory)
            for tile, x, block in zip(self.shared, memory, blocks, strict=True)
        ]

    def copy(
        self, memory: tuple[UOp, ...], mbarrier: UOp, step: UOp, condition: UOp | None
    ) -> list[UOp]:
        """Start the copies of one stage of both operands."""
        stage = divided(step, self.stages)[1]
        blocks = self.row_block, self.column_block
        # the blocks of a cluster have other rows and the same columns
        parts = None, (self.rank, self.tile.cluster) if self.tile.cluster > 1 else None
        return [
            tile.copy(x, mbarrier, block, step, stage, condition, part, self.factory)
            for tile, x, block, part in zip(self.shared, memory, blocks, parts, strict=True)
        ]

    def bulk_pipeline(self) -> BulkStages:
        """The stages of both operands, filled by hardware."""
        tile, target, block = self.tile, self.nest.renderer.target, self.threads[0]
        common = (
            tuple(x.memory for x in self.shared),
            self.stages,
            self.step,
            block,
            self.copy,
            sum(x.stage_size * x.dtype.itemsize for x in self.shared),
            tile.read_later,
            tile.cluster,
            self.factory.number(),
            self.factory,
        )
        if not tile.producer:
            return BulkStages(*common)
        registers = tile.role_registers(target)[0]
        producer = self.factory.role(block, range(tile.consumers, tile.threads), registers)
        return ProducerStages(*common, producer, self.thread, target.warp)

    def pipeline(self) -> Stages:
        """The stages of both operands."""
        memory = tuple(x.memory for x in self.shared)
        later = self.tile.read_later
        return Stages(memory, self.stages, self.step, self.thread, self.fill, later)

    # ---- sums in registers ----

    def accumulate(self) -> tuple[UOp, UOp]:
        """The store that updates the sums, and their registers."""
        x, tile = self.instruction, self.tile
        size = tile.repeats[0] * tile.repeats[1] * x.c.count
        sums = self.registers(x.accumulator, size)
        cleared = self.factory.new(size, AxisType.TILE)
        clear = sums.after(self.thread).index(cleared).store(0, cleared)
        if x.reads_shared:
            pipeline = self.bulk_pipeline() if tile.in_bulk else self.pipeline()
            start = sums.after(clear)
            done = multiply_stages(
                pipeline, self.shared, tile, self.warp, self.lane, start, self.factory
            )
            return done, sums
        stages = self.pipeline()
        memory = stages.read(stages.begin())
        # what is not copied asynchronously passes through registers, which leaves fewer of them for
        # the fragments of several steps
        unrolls = self.nest.renderer.target.has_async_copy
        inner = self.factory.new(tile.steps, AxisType.TILE if unrolls else AxisType.REDUCE)
        fragments = [self.load(side, memory[side], inner) for side in (0, 1)]
        tiles = [self.factory.new(n, AxisType.TILE) for n in tile.repeats]
        a, b = (
            f.index(r * dtype.count).load(dtype=dtype)
            for f, r, dtype in zip(fragments, tiles, map(x.fragment, (x.a, x.b)), strict=True)
        )
        own = (self.step, inner, *tiles)
        current = sums.after(clear, *own).index(row_major_index(tiles) * x.c.count)
        c = current.load(dtype=x.accumulator.vec(x.c.count))
        return current.store(multiply(x, a, b, c), *own), sums

    def load(self, side: int, memory: UOp, inner: UOp) -> UOp:
        """The registers of the fragments of one operand, loaded in each step of `inner`."""
        x, repeats = self.instruction, self.tile.repeats[side]
        stage = divided(self.step, self.stages)[1]
        source = FragmentSource(self.shared[side], memory, stage, x, side, self.lane)
        registers = self.registers(source.dtype.scalar(), repeats * source.dtype.count)
        first = self.warp[side] * (repeats * source.height), inner * x.k
        loaded = source.load(first, repeats, registers.after(inner), self.factory)
        return registers.after(loaded)

    def registers(self, dtype: DType, size: int) -> UOp:
        """An array of registers."""
        return UOp(Ops.DEFINE_REG, dtype.ptr(size, AddrSpace.REG), (), self.factory.number())

    # ---- output ----

    def store(self, sums: UOp) -> UOp:
        """The store of the tile."""
        x, tile, product = self.instruction, self.tile, self.product
        width = self.store_width()
        apart = x.c.spaced(1)[0] if width > 1 else 1
        tiles = [self.factory.new(n, AxisType.TILE) for n in tile.repeats]
        other = self.factory.new(x.c.count // width, AxisType.TILE)
        own = [*tiles, other]
        high, low = divided(other, apart)
        register = collect(high * (width * apart) + low)
        first = [self.position(axis, tiles, register) for axis in (0, 1)]
        numbers = first
        if width > 1:
            lane = self.factory.new(width, AxisType.VECTOR)
            own, register = [*own, lane], register + lane * apart
            numbers = [first[0], first[1] + lane]
        table: dict[UOp, UOp] = product.rows.positions(numbers[0]) | product.columns.positions(
            numbers[1]
        )
        element = sums.index(collect(row_major_index(tiles) * x.c.count + register))
        held = element.load(dtype=x.accumulator)
        address, value = product.store.src[:2]
        value = substitute(value, {**table, product.reduce: held})
        address = substitute(address, table)
        condition = self.inside(first)
        if condition is not None:
            address = address.src[0].index(
                address.src[1], and_conditions(condition, *address.src[2:])
            )
            value = mask_loads(value, condition, held)
        return address.store(value, *self.grid, *self.threads, *own)

    def position(self, axis: int, tiles: list[UOp], register: UOp) -> UOp:
        """The row or the column of the output that a register of this lane holds."""
        x = self.instruction
        length, side = ((self.tile.rows, x.m), (self.tile.columns, x.n))[axis]
        block = (self.row_block, self.column_block)[axis]
        repeat = self.warp[axis] * self.tile.repeats[axis] + tiles[axis]
        inside = lane_position(x.c.lanes, self.lane, axis)
        held = lane_position(x.c.registers, register, axis)
        return collect(block * length + repeat * side + inside + held)

    def store_width(self) -> int:
        """The number of neighbouring sums of a lane that are contiguous in the output."""
        product = self.product
        itemsize = product.store.src[1].dtype.itemsize
        widest = min(self.instruction.c.spaced(1)[1], STORE_BYTES // itemsize)
        return contiguous_width([product.store.src[0]], product.columns, widest, FreeRanges())

    def inside(self, first: list[UOp]) -> UOp | None:
        """The condition that a row and a column are inside of the output."""
        condition: UOp | None = None
        axes = self.product.rows, self.product.columns
        for axis, length, number in zip(
            axes, (self.tile.rows, self.tile.columns), first, strict=True
        ):
            if not axis.divides(length):
                condition = and_conditions(condition, number < axis.size)
        return condition
