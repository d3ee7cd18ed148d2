"""Multiply narrow numbers by the matrix instructions of a CPU.

Before: a nest of plain loops that is one contraction, of operands that a `MatrixInstruction` of the
target multiplies. After, for blocks of rows, columns and the reduction:

    for item in grid:
        sums[...] = 0
        for block of the reduction:
            b[...] = packed columns
            for some rows:
                a[...] = packed rows
                for tile of columns: for tile of rows:
                    c[...] = sums[tile]
                    for k in block: c[...] += a[...] @ b[...]
                    sums[tile] = c[...]
        for row: for column: store(f(sums[row, column]))

If there is one block of the reduction, `sums` are those of the rows that are packed together. Rows
are stored as a whole, since a processor prefetches along them.

Operands and sums are packed in cells of 16 x 16 words of 4 bytes, in scratch memory. A word of `a`
or `b` has 2 or 4 neighbours along the reduction. A row of a cell is a row of `a`, with the words
along the reduction, or a word of all columns of `b`, with the columns next to each other. So a cell
is a tile register, and a row of it a vector register. Where an operand is contiguous along the
other axis, its cells are transposed. Past the end of an axis, cells hold zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tinygrad.codegen.analysis.affine_index import and_conditions, collect, index_const
from tinygrad.codegen.analysis.ranges import FreeRanges, RangeFactory, extent, is_static, substitute
from tinygrad.codegen.optimize.contraction import find_contraction
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis
from tinygrad.codegen.optimize.threads.product.matrix_product import (
    Product,
    as_product,
    unconverted,
)
from tinygrad.codegen.optimize.threads.product.shared_tile import divided, mask_loads, masked
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.helpers import ceildiv, round_up
from tinygrad.renderer.matrix_instruction import MatrixInstruction
from tinygrad.renderer.target import Target
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

WORD_BYTES = 4
# rows of a cell, and words of a row
SIDE = 16
CELL = SIDE * SIDE
# the bits of the number of a row or a column of a cell
TRANSPOSE_STEPS = 4
# the shorter side of a product, below which too much of a cell is past the end, and the reduction
MIN_SIDE = 16
MIN_DEPTH = 32
# times that an element is used, below which it does not pay to gather it into a cell
MIN_USES_OF_GATHERED = 256
# operations on an element, beyond which it does not pay to compute it for each of several parts
MAX_REPEATED_OPERATIONS = 4
# the bytes of a reduction that is one block, and of the blocks of a longer one, at most; of the
# packed columns; the columns of a block, and its rows and columns whose sums are kept between the
# blocks of a reduction. All of a block stays in the second-level cache.
MAX_DEPTH_BYTES, BLOCK_DEPTH_BYTES = 1 << 12, 1 << 10
MAX_PANEL_BYTES = 1 << 20
MAX_COLUMNS = 512
MAX_SUMS = 512, 512
# times that equal blocks may be shorter than unequal ones
MAX_SHORTER = 4
# rows that are packed together, whose memory is contiguous along the reduction, or across it
PACKED_ALONG, PACKED_ACROSS = 32, 128
# instructions of a tile along the rows and the columns: their sums are independent, so that none
# waits for the one before; of cells, and of vectors
CELL_REPEATS = 2, 2
VECTOR_REPEATS = 8, 2
ITEMS_PER_THREAD = 2


def tile_matrix_product(nest: Nest) -> bool:
    """Tile the nest if a matrix instruction computes it; returns whether it is tiled."""
    known = nest.renderer.target.matrix
    operands = {x.operand for x in known}
    if not any(u.op is Ops.CAST and u.src[0].dtype in operands for u in nest.root.toposort()):
        return False
    found = find_contraction(nest, integers=True)
    product = None if found is None else as_product(found)
    if product is None:
        return False
    usable = [x for x in product.usable(known) if repeats_little(product, x)]
    if not usable or not is_large_enough(product):
        return False
    _MatrixProduct(nest, product, usable[0]).build()
    return True


def repeats_little(product: Product, x: MatrixInstruction) -> bool:
    """Whether operands are packed in one part, or computed by few operations for each part."""
    return x.parts == 1 or all(
        sum(u.op in GroupOp.ALU and u.dtype is not dtypes.index for u in operand.toposort())
        <= MAX_REPEATED_OPERATIONS
        for operand in product.operands
    )


def is_large_enough(product: Product) -> bool:
    """Whether the cells of a product are not mostly padding, and are read often enough to pack
    them; the reduction must be static.
    """
    size = product.size
    if not all(map(is_static, product.reduction.loops)):
        return False
    if min(size.rows, size.columns) < MIN_SIDE or size.depth < MIN_DEPTH:
        return False
    uses = size.columns, size.rows
    return all(
        uses[side] >= MIN_USES_OF_GATHERED or not _is_gathered(product, side) for side in (0, 1)
    )


def _is_gathered(product: Product, side: int) -> bool:
    """Whether the elements of a row of a cell are not neighbours in memory."""
    operand = unconverted(product.operands[side])
    outer = (product.rows, product.columns)[side]
    along = _is_along(operand, product.reduction, outer, side == 0)
    axis = product.reduction if along else outer
    loop, free = axis.loops[-1], FreeRanges()
    lanes = SIDE * (WORD_BYTES // operand.dtype.itemsize if along else 1)
    is_cut = len(axis.loops) > 1 and bool(extent(loop) % lanes)
    # a row of quantised numbers may be several vectors: blocks begin at multiples of `SIDE`
    return is_cut or any(
        free.lane_stride(u.src[0].src[1], loop, SIDE) not in {0, 1}
        for u in operand.toposort()
        if u.op is Ops.LOAD
    )


@dataclass(frozen=True)
class MatrixTile:
    """A block of a product: `rows` and `columns` of the output, and `depth` of the reduction. Of
    the rows, `packed` are packed together.
    """

    instruction: MatrixInstruction
    rows: int
    columns: int
    depth: int
    packed: int

    def __str__(self) -> str:
        size = f"{self.rows} x {self.columns} x {self.depth}"
        return f"{self.instruction.name} in blocks of {size}"

    @property
    def per_word(self) -> int:
        """The elements of a word."""
        return WORD_BYTES // self.instruction.operand.itemsize

    @property
    def repeats(self) -> tuple[int, int]:
        """The instructions of a tile along rows and columns."""
        return CELL_REPEATS if self.instruction.m == SIDE else VECTOR_REPEATS

    @property
    def deep_cells(self) -> int:
        """The cells of a block along the reduction, for each part of the elements."""
        return self.depth // (SIDE * self.per_word)

    @property
    def row_cells(self) -> int:
        """The cells of all parts along the reduction."""
        return self.deep_cells * self.instruction.parts


def choose_tile(product: Product, x: MatrixInstruction, target: Target, along: bool) -> MatrixTile:
    """The blocks of least padding below the upper bounds, enough of them for all threads; `along`
    is whether the rows are contiguous along the reduction.
    """
    size, itemsize = product.size, x.operand.itemsize
    nbytes = size.depth * itemsize * x.parts
    steps = 1 if nbytes <= MAX_DEPTH_BYTES else ceildiv(nbytes, BLOCK_DEPTH_BYTES)
    unit = SIDE * WORD_BYTES // itemsize
    depth = round_up(ceildiv(size.depth, steps), unit)
    # equal blocks need no conditions, which vectors of a quantised operand would be gathered under
    equal = (x for x in range(depth, depth // MAX_SHORTER, -unit) if size.depth % x == 0)
    depth = next(equal, depth)
    packed = PACKED_ALONG if along else PACKED_ACROSS
    packed = min(packed, round_up(size.rows, PACKED_ALONG))
    columns = min(MAX_COLUMNS, MAX_PANEL_BYTES // (depth * itemsize * x.parts))
    longest = [size.rows, columns] if steps == 1 else list(MAX_SUMS)
    lengths, units = (size.rows, size.columns), (packed, 2 * SIDE)
    wanted = ITEMS_PER_THREAD * target.threads if target.threads > 1 else 1

    def blocks(axis: int) -> int:
        return ceildiv(lengths[axis], min(longest[axis], lengths[axis]))

    while size.batch * blocks(0) * blocks(1) < wanted:
        wider = max((0, 1), key=lambda i: min(longest[i], lengths[i]))
        if min(longest[wider], lengths[wider]) <= 2 * units[wider]:
            break
        longest[wider] = min(longest[wider], lengths[wider]) // 2
    rows, columns = (round_up(ceildiv(lengths[i], blocks(i)), units[i]) for i in (0, 1))
    return MatrixTile(x, rows, columns, depth, packed)


@dataclass(frozen=True)
class _Packed:
    """A packed block of an operand, whose cells have the order [outer][part][reduction]."""

    parts: tuple[UOp, ...]
    """The bits of each part of the elements, as unsigned integers."""
    outer: FlatAxis
    reduction: FlatAxis
    length: int
    """The steps of the outer axis in a block."""
    tile: MatrixTile
    is_rows: bool
    """Whether a row of a cell is a step of the outer axis, rather than a word of the reduction."""
    along: bool
    """Whether the operand is contiguous along the reduction."""
    number: int
    factory: RangeFactory

    @property
    def has_elements(self) -> bool:
        """Whether memory is accessed by elements, not by words: rows are copied."""
        return self.is_rows and self.along

    @property
    def bits(self) -> DType:
        """The dtype of the bits of an element."""
        return self.parts[0].dtype

    @property
    def dtype(self) -> DType:
        """The dtype of the memory."""
        return self.bits if self.has_elements else dtypes.uint32

    @property
    def scale(self) -> int:
        """Elements of the memory in a word."""
        return self.tile.per_word if self.has_elements else 1

    @property
    def memory(self) -> UOp:
        """The scratch memory."""
        cells = self.length // SIDE * self.tile.row_cells
        return self.array(self.dtype, cells * CELL * self.scale, self.number)

    @staticmethod
    def array(dtype: DType, size: int, number: int) -> UOp:
        """Scratch memory."""
        return UOp(Ops.DEFINE_LOCAL, dtype.ptr(size, AddrSpace.LOCAL), (), number)

    def element(self, part: int, first: tuple[UOp, UOp], outer: UOp, deep: UOp) -> UOp:
        """The bits of a part of an element of the block from `first` on, 0 past the end of an
        axis.
        """
        outer, deep = first[0] + outer, first[1] + deep
        table = {**self.outer.positions(outer), **self.reduction.positions(deep)}
        condition: UOp | None = None
        lengths = self.length, self.tile.depth
        for axis, number, length in zip(
            (self.outer, self.reduction), (outer, deep), lengths, strict=True
        ):
            if not axis.divides(length):
                condition = and_conditions(condition, collect(number) < axis.size)
        value = substitute(self.parts[part], table)
        return value if condition is None else masked(value, condition)

    def word(self, part: int, first: tuple[UOp, UOp], outer: UOp, deep: UOp) -> UOp:
        """The word of neighbours along the reduction, the first in the lowest bits."""
        elements = [
            self.element(part, first, outer, deep * self.tile.per_word + i).cast(dtypes.uint32)
            for i in range(self.tile.per_word)
        ]
        total = elements[0]
        for i, x in enumerate(elements[1:], 1):
            total = total | x.alu(Ops.SHL, x.const_like(self.bits.itemsize * 8 * i))
        return total

    def fill(self, first: tuple[UOp, UOp], context: tuple[UOp, ...]) -> UOp:
        """The memory, after the nests that pack the block that starts at `first`."""
        memory = self.memory.after(*context)
        stores = [self.fill_part(part, memory, first, context) for part in range(len(self.parts))]
        return memory.after(*itertools.chain.from_iterable(stores))

    def fill_part(
        self, part: int, memory: UOp, first: tuple[UOp, UOp], context: tuple[UOp, ...]
    ) -> list[UOp]:
        """The stores of a part of all elements."""
        counts = self.length // SIDE, self.tile.deep_cells
        # strips of cells side by side in the memory that is read
        strip, cell = (
            self.factory.new(counts[x], AxisType.LOOP) for x in (not self.along, self.along)
        )
        cells = (strip, cell) if self.along else (cell, strip)
        if self.is_rows == self.along:
            number = self.cell_number(part, *cells)
            return [self.fill_strip(part, memory, number, first, cells, (strip,), cell)]
        size = counts[self.along] * CELL * (self.tile.per_word if self.along else 1)
        dtype = self.bits if self.along else dtypes.uint32
        scratch = self.array(dtype, size, self.factory.number()).after(*context, strip)
        filled = self.fill_strip(part, scratch, cell, first, cells, (), cell)
        return self.transpose(part, scratch.after(filled), memory, strip, context)

    def cell_number(self, part: int, outer: UOp, deep: UOp) -> UOp:
        """The number of a cell in memory."""
        return outer * self.tile.row_cells + (part * self.tile.deep_cells) + deep

    def fill_strip(
        self,
        part: int,
        memory: UOp,
        number: UOp,
        first: tuple[UOp, UOp],
        cells: tuple[UOp, UOp],
        loops: tuple[UOp, ...],
        cell: UOp,
    ) -> UOp:
        """The store of a strip of cells, whose rows are contiguous in the operand; `number` is that
        of a cell in memory.
        """
        row = self.factory.new(SIDE, AxisType.LOOP)
        scale = self.tile.per_word if self.along else 1
        lane = self.factory.new(SIDE * scale, AxisType.VECTOR)
        place = memory.index(collect((number * CELL + row * SIDE) * scale + lane))
        if self.along:
            deep = cells[1] * (SIDE * scale) + lane
            value = self.element(part, first, cells[0] * SIDE + row, deep)
        else:
            value = self.word(part, first, cells[0] * SIDE + lane, cells[1] * SIDE + row)
        return place.store(value, *loops, row, cell, lane)

    def transpose(
        self, part: int, source: UOp, memory: UOp, strip: UOp, context: tuple[UOp, ...]
    ) -> list[UOp]:
        """The stores of the transposes of a strip of cells.

        Even words of two rows become row i, odd ones row i + 8: the bits of a word's place, those
        of its row and then of its column, rotate by one. After four times they are exchanged.
        """
        scale = self.tile.per_word if self.along else 1
        count = self.tile.deep_cells if self.along else self.length // SIDE
        cell = self.factory.new(count, AxisType.LOOP)
        outer, deep = (strip, cell) if self.along else (cell, strip)
        loops: tuple[UOp, ...] = ()
        start, place = cell * (CELL * scale), index_const(0)
        for step in range(TRANSPOSE_STEPS):
            if step == TRANSPOSE_STEPS - 1:
                target, loops = memory, (strip, cell)
                place = self.cell_number(part, outer, deep) * CELL
            else:
                target = self.array(dtypes.uint32, CELL, self.factory.number())
                target = target.after(*context, strip, cell)
            pair = self.factory.new(SIDE // 2, AxisType.LOOP)
            loaded = source.index(collect(start + pair * (2 * SIDE * scale))).load(
                dtype=source.dtype.base.vec(2 * SIDE * scale)
            )
            if scale > 1:
                loaded = UOp(Ops.BITCAST, dtypes.uint32.vec(2 * SIDE), (loaded,))
            stores = [
                target.index(collect(place + pair * SIDE + odd * (CELL // 2))).store(
                    _lanes(loaded, [2 * i + odd for i in range(SIDE)]), *loops, pair
                )
                for odd in (0, 1)
            ]
            source, start, scale = target.after(*stores), index_const(0), 1
        return stores

    def load(self, memory: UOp, number: UOp, deep: UOp, nbytes: int) -> UOp:
        """Bytes of the memory, from word `deep` of step `number` of the outer axis on."""
        cell, inside = divided(number, SIDE)
        deep_cell, word = divided(deep, SIDE)
        row, column = (inside, word) if self.is_rows else (word, inside)
        first = (cell * self.tile.row_cells + deep_cell) * CELL + row * SIDE + column
        return memory.index(collect(first * self.scale)).load(
            dtype=self.dtype.vec(nbytes // self.dtype.itemsize)
        )


def _lanes(vector: UOp, numbers: list[int]) -> UOp:
    return UOp(Ops.GEP, vector.dtype.scalar().vec(len(numbers)), (vector,), tuple(numbers))


class _MatrixProduct:
    """The nest of a product while a tile is applied to it."""

    def __init__(self, nest: Nest, product: Product, x: MatrixInstruction) -> None:
        self.nest = nest
        self.product = product
        self.factory = nest.factory
        self.instruction = x
        # an operand that is contiguous along neither axis is read in the order of its packed cells
        along = [
            _is_along(unconverted(operand), product.reduction, axis, default)
            for operand, axis, default in zip(
                product.operands, (product.rows, product.columns), (True, False), strict=True
            )
        ]
        self.tile = tile = choose_tile(product, x, nest.renderer.target, along[0])
        self.row_block = self.factory.new(product.rows.blocks(tile.rows), AxisType.LOOP)
        self.column_block = self.factory.new(product.columns.blocks(tile.columns), AxisType.LOOP)
        self.grid = [*product.batch, self.row_block, self.column_block]
        steps = ceildiv(product.size.depth, tile.depth)
        # the sums of the whole block are kept between the blocks of the reduction
        self.keeps_sums = steps > 1
        self.sum_rows = tile.rows if self.keeps_sums else tile.packed
        self.step_loops = (self.factory.new(steps, AxisType.REDUCE),) if self.keeps_sums else ()
        self.packed_rows = self.factory.new(self.packed_count(), AxisType.LOOP)
        height, width = tile.repeats[0] * x.m, tile.repeats[1] * x.n
        self.row = self.factory.new(tile.packed // height, AxisType.LOOP)
        self.column = self.factory.new(tile.columns // width, AxisType.LOOP)
        axes, lengths = (product.rows, product.columns), (tile.packed, tile.columns)
        self.packed = [
            _Packed(
                _parts_of(unconverted(operand), side, x),
                axis,
                product.reduction,
                length,
                tile,
                side == 0,
                along[side],
                self.factory.number(),
                self.factory,
            )
            for side, (operand, axis, length) in enumerate(
                zip(product.operands, axes, lengths, strict=True)
            )
        ]

    def packed_count(self) -> UOp | int:
        """How many times rows are packed for a block: not past the end of the axis, which may be of
        symbolic size.
        """
        tile, rows = self.tile, self.product.rows
        if rows.divides(tile.rows):
            return tile.rows // tile.packed
        left = rows.size - self.row_block * tile.rows + (tile.packed - 1)
        count = UOp(Ops.IDIV, dtypes.index, (left, UOp.const(dtypes.index, tile.packed)))
        return count.minimum(tile.rows // tile.packed)

    @property
    def tile_loops(self) -> tuple[UOp, ...]:
        """The loops over the tiles of a block."""
        return self.packed_rows, self.column, self.row

    def build(self) -> None:
        """Replace the nest."""
        self.nest.root = UOp.sink(self.store(self.accumulate()))
        self.nest.make_grid(self.grid)
        self.nest.note(str(self.tile))

    def accumulate(self) -> UOp:
        """The memory of the sums, after all of them are added."""
        x, tile = self.instruction, self.tile
        size = self.sum_rows * tile.columns
        sums = _Packed.array(x.accumulator, size, self.factory.number())
        sums = current = sums.after(*self.grid)
        if self.keeps_sums:
            cleared = self.factory.new(size // SIDE, AxisType.LOOP)
            zero = UOp.const(x.accumulator.vec(SIDE), 0)
            current = sums.after(sums.index(cleared * SIDE).store(zero, cleared), *self.step_loops)
        deep = index_const(0)
        for step in self.step_loops:
            deep = step * tile.depth
        context = (*self.grid, *self.step_loops)
        b = self.packed[1].fill((self.column_block * tile.columns, deep), context)
        first = self.row_block * tile.rows + self.packed_rows * tile.packed
        a = self.packed[0].fill((first, deep), (*context, self.packed_rows))
        return sums.after(*self.multiply(a, b, current))

    def multiply(self, a: UOp, b: UOp, sums: UOp) -> Iterator[UOp]:
        """The stores of the sums of a tile, after the products of a block are added to them."""
        x, tile = self.instruction, self.tile
        rows = [self.row * (tile.repeats[0] * x.m) + i * x.m for i in range(tile.repeats[0])]
        columns = [self.column * (tile.repeats[1] * x.n) + i * x.n for i in range(tile.repeats[1])]
        words = x.k // tile.per_word
        step = self.factory.new(tile.row_cells * SIDE // words, AxisType.REDUCE)
        itemsize = x.operand.itemsize
        left, right = (
            [p.load(memory, n, step * words, lane_map.count * itemsize) for n in numbers]
            for p, memory, numbers, lane_map in zip(
                self.packed, (a, b), (rows, columns), (x.a, x.b), strict=True
            )
        )
        fragment = x.accumulator.vec(x.c.count)
        pointer = x.accumulator.ptr(x.c.count, AddrSpace.REG)
        first = self.packed_rows * tile.packed if self.keeps_sums else index_const(0)
        for i, j in itertools.product(*map(range, tile.repeats)):
            place = sums.index(self.sum_index(first + rows[i], columns[j]))
            register = UOp(Ops.DEFINE_REG, pointer, (), self.factory.number())
            if self.keeps_sums:
                start = place.load(dtype=fragment)
            else:
                start = UOp.const(fragment, 0)
                register = register.after(*self.grid, *self.tile_loops)
            begin = register.index(index_const(0)).store(start)
            at = register.after(begin, step).index(index_const(0))
            total = UOp(Ops.MMA, fragment, (left[i], right[j], at.load(dtype=fragment)), x)
            done = register.after(at.store(total, step)).index(index_const(0))
            loops = self.tile_loops if self.keeps_sums else self.tile_loops[1:]
            loops = (*self.step_loops, *loops)
            yield place.store(done.load(dtype=fragment), *loops)

    def sum_index(self, row: UOp, column: UOp) -> UOp:
        """Where the sum of a row and a column is, both counted from the first in memory."""
        row_cell, row = divided(row, SIDE)
        column_cell, column = divided(column, SIDE)
        cell = row_cell * (self.tile.columns // SIDE) + column_cell
        return collect(cell * CELL + row * SIDE + column)

    def store(self, sums: UOp) -> UOp:
        """The store of the rows whose sums are in memory, each as a whole."""
        product, tile, x = self.product, self.tile, self.instruction
        row = self.factory.new(self.sum_rows, AxisType.LOOP)
        cell = self.factory.new(tile.columns // SIDE, AxisType.LOOP)
        lane = self.factory.new(SIDE, AxisType.VECTOR)
        column = cell * SIDE + lane
        own = (row, cell, lane) if self.keeps_sums else (self.packed_rows, row, cell, lane)
        first = index_const(0) if self.keeps_sums else self.packed_rows * tile.packed
        held = sums.index(self.sum_index(row, column)).load(dtype=x.accumulator)
        numbers = (
            self.row_block * tile.rows + first + row,
            self.column_block * tile.columns + column,
        )
        axes, lengths = (product.rows, product.columns), (tile.rows, tile.columns)
        condition: UOp | None = None
        table: dict[UOp, UOp] = {}
        for axis, number, length in zip(axes, numbers, lengths, strict=True):
            table |= axis.positions(number)
            if not axis.divides(length):
                condition = and_conditions(condition, collect(number) < axis.size)
        address, value = product.store.src[:2]
        value = substitute(value, {**table, product.reduce: held})
        address = substitute(address, table)
        if condition is not None:
            address = address.src[0].index(
                address.src[1], and_conditions(condition, *address.src[2:])
            )
            value = mask_loads(value, condition, held)
        return address.store(value, *self.grid, *own)


def _parts_of(operand: UOp, side: int, x: MatrixInstruction) -> tuple[UOp, ...]:
    """The bits of the numbers whose products with those of the other side add up to products of the
    operands: those of the operand itself or `x.parts` others.
    """
    if x.parts == 1:
        return (operand.bitcast(dtypes.uint16 if operand.dtype.itemsize == 2 else dtypes.uint8),)
    return _halves(operand, side) if operand.dtype is dtypes.float16 else _unsigned(operand, side)


def _halves(operand: UOp, side: int) -> tuple[UOp, ...]:
    """A float16 number of 11 significant bits is the sum of two bfloat16 numbers: its high 8 bits,
    and the others. All four products count. Infinity and NaN are in the first of them alone, else
    they would meet a low part of zero.
    """
    wide = operand.cast(dtypes.float32)
    word = wide.bitcast(dtypes.uint32)
    rest = wide - (word & 0xFFFF_0000).bitcast(dtypes.float32)
    high, low = ((x >> 16).cast(dtypes.uint16) for x in (word, rest.bitcast(dtypes.uint32)))
    is_finite = (word & 0x7FFF_FFFF) < 0x7F80_0000
    finite, low = (is_finite.where(x, x.const_like(0)) for x in (high, low))
    return (high, low, finite, low) if side else (high, finite, low, low)


def _unsigned(operand: UOp, side: int) -> tuple[UOp, ...]:
    """Of int8 numbers, with `a` unsigned: a * b is (a + 128) * b + 128 * (-1 - b) + 128 * 1."""
    bits = operand.bitcast(dtypes.uint8)
    if side:
        return bits, bits ^ 255, bits.const_like(1)
    return bits ^ 128, bits.const_like(128), bits.const_like(128)


def _is_along(operand: UOp, reduction: FlatAxis, outer: FlatAxis, default: bool) -> bool:
    """Whether an operand is contiguous along the reduction; `default` if it is along both axes or
    neither.
    """
    free = FreeRanges()
    indices = [u.src[0].src[1] for u in operand.toposort() if u.op is Ops.LOAD]
    strides = (
        {free.lane_stride(x, axis.loops[-1], SIDE) for x in indices} for axis in (reduction, outer)
    )
    # numbers may be scaled by one that they have in common
    along, across = (found in ({1}, {0, 1}) for found in strides)
    return default if along == across else along
