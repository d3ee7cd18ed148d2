"""Compute a block of rows of a chain of products in the registers of warps.

In: a `MatrixChain` and the tile that was chosen. Out: the stores of the nest. Lanes hold weights as
the instruction leaves its sums, of `tiles` instructions along the rows and the keys; the next one
reads them as its left operand from the same lanes, pairs of neighbouring keys as one register.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.affine_index import and_conditions, collect, index_const
from tinygrad.codegen.analysis.ranges import FreeRanges, substitute
from tinygrad.codegen.optimize.chain import Softmax, without_division
from tinygrad.codegen.optimize.chain_bounds import needed_blocks
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.chain_tile import ChainTile
from tinygrad.codegen.optimize.threads.flat_axis import FlatAxis, contiguous_width
from tinygrad.codegen.optimize.threads.fragments import FragmentSource, lane_position
from tinygrad.codegen.optimize.threads.matrix_chain import MatrixChain, narrow_operand
from tinygrad.codegen.optimize.threads.register_array import RegisterArray
from tinygrad.codegen.optimize.threads.shared_tile import (
    SharedTile,
    divided,
    mask_loads,
    shared_tile,
)
from tinygrad.codegen.optimize.threads.stages import Memory, Stages, after, barrier, commit, wait
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp
from tinygrad.uop.reduction import lowest

HALF_BITS = 16


class ChainBlock:
    """The nest of a chain while a tile is applied to it."""

    def __init__(self, nest: Nest, found: MatrixChain, tile: ChainTile) -> None:
        self.nest, self.found, self.tile = nest, found, tile
        self.factory = nest.factory
        self.chain = chain = found.chain
        self.instruction = x = tile.instruction
        size = found.size.padded(x)
        self.thread = self.factory.new(tile.threads, AxisType.LOCAL)
        self.warp, self.lane = divided(self.thread, x.lanes)
        self.rows, self.keys = FlatAxis((chain.row,)), FlatAxis((chain.key,))
        self.row_block = self.factory.new(self.rows.blocks(tile.rows), AxisType.LOOP)
        batch = [r for r in chain.store.src[2:] if r not in (chain.row, *chain.columns)]
        self.grid = [*batch, self.row_block]
        start = self.row_block * tile.rows
        self.first_block, count = needed_blocks(chain, (start, start + (tile.rows - 1)), tile.keys)
        self.outside = chain.reduce.src[1:-1]
        self.step = self.factory.new(count, AxisType.REDUCE)
        self.depths = size.depths
        # instructions along the rows, the keys and the columns
        self.tiles = tile.repeats, tile.keys // x.n, size.columns // x.n
        # sums of a lane that are neighbours in a row, and rows of a lane in an instruction
        self.pair = x.c.contiguous(1)
        self.lane_rows = x.c.count // self.pair
        self.row_tiles = [
            self.shared(p.rows, self.rows, p.depth, (tile.rows, depth, 1))
            for p, depth in zip(found.products, size.depths, strict=True)
        ]
        self.key_tiles = [
            self.shared(p.keys, self.keys, p.depth, (tile.keys, depth, tile.stages))
            for p, depth in zip(found.products, size.depths, strict=True)
        ]
        self.value_tile = self.shared(
            found.value, found.columns, self.keys, (size.columns, tile.keys, tile.stages)
        )

    def build(self) -> None:
        """Replace the nest."""
        rows, memory = self.fill_shared_memory()
        scores = [self.product(i, rows[i], memory[i]) for i in range(len(rows))]
        sums = self.cleared(self.tiles[0] * self.tiles[2] * self.instruction.c.count, self.thread)
        softmax, stored = self.chain.softmax, {}
        if softmax is None:
            narrow = self.weights(scores, narrow_operand(self.chain.weight))
        else:
            stored = self.update_softmax(scores, softmax, sums)
            weight = narrow_operand(without_division(self.chain.weight, softmax))
            narrow = self.pairs({softmax.exponential: scores[0]}, weight)
        self.accumulate(sums, narrow, memory[-1])
        stores = [self.result(sums, stored)]
        if softmax is not None:
            stores += [self.statistic(x, stored[x.src[1]]) for x in self.nest.stores[1:]]
        self.nest.root = UOp.sink(*stores)
        self.nest.make_grid(self.grid)
        self.nest.note(self.tile.describe())

    # ---- loops, numbers and memory ----

    def loops(self, *sizes: int) -> list[UOp]:
        """New loops that are unrolled."""
        return [self.factory.new(n, AxisType.TILE) for n in sizes]

    def number(self) -> int:
        """A number that no other array of the kernel has."""
        self.factory.next += 1
        return self.factory.next - 1

    def registers(self, dtype: DType, size: int, *before: UOp) -> RegisterArray:
        """An array of registers, a new one in each step of the loops `before`."""
        return RegisterArray(dtype, size, self.number(), *before)

    def cleared(self, size: int, loop: UOp, value: float = 0) -> RegisterArray:
        """Sums that hold a value at the beginning of each step of a loop."""
        array = self.registers(self.instruction.accumulator, size, loop)
        (element,) = self.loops(size)
        array.store(element, UOp.const(array.dtype, value), element)
        return array

    def shared(
        self, operand: UOp, outer: FlatAxis, deep: FlatAxis, size: tuple[int, int, int]
    ) -> SharedTile:
        """The tile of an operand in shared memory, as bits."""
        bits = self.instruction.bits
        return shared_tile(
            operand.bitcast(bits), bits, outer, deep, size, self.number(), FreeRanges()
        )

    def elements(self, along: int) -> tuple[list[UOp], UOp, UOp]:
        """Loops over the sums of a lane, in rows and then along the keys (1) or columns (2): row
        tile, row, tile, neighbour; the place of a sum in its array and of its row in others.
        """
        own = self.loops(self.tiles[0], self.lane_rows, self.tiles[along], self.pair)
        return own, self.place(own, along), own[0] * self.lane_rows + own[1]

    def place(self, own: list[UOp], along: int) -> UOp:
        """The place of a sum."""
        row_tile, row, tile, neighbour = own
        first = (row_tile * self.tiles[along] + tile) * self.instruction.c.count
        return first + row * self.pair + neighbour

    def row_number(self, row_tile: UOp, row: UOp) -> UOp:
        """The number of a row of a lane."""
        c = self.instruction.c
        inside = lane_position(c.lanes, self.lane, 0)
        held = lane_position(c.registers, row * self.pair, 0)
        first = self.row_block * self.tile.rows
        number = self.warp * self.tiles[0] + row_tile
        return collect(first + number * self.instruction.m + inside + held)

    def column_number(self, tile: UOp, neighbour: UOp) -> UOp:
        """The number of a key or a column of a lane, in the block."""
        inside = lane_position(self.instruction.c.lanes, self.lane, 1)
        return collect(tile * self.instruction.n + inside + neighbour)

    # ---- shared memory ----

    def key_block(self, step: UOp) -> UOp:
        """The number of the block of keys of a step."""
        return step if self.first_block is None else self.first_block + step

    def fill(self, memory: Memory, step: UOp, condition: UOp | None) -> list[UOp]:
        """The stores of one stage of the operands of the keys, and of the values."""
        stage, block, zero = divided(step, self.tile.stages)[1], self.key_block(step), _zero()
        places = [*((tile, block, zero) for tile in self.key_tiles), (self.value_tile, zero, block)]
        return [
            tile.fill(x, self.thread, outer, deep, stage, condition, self.factory)
            for x, (tile, outer, deep) in zip(memory, places, strict=True)
        ]

    def fill_shared_memory(self) -> tuple[Memory, Memory]:
        """The operands of the rows, and those of the keys of a step, as they may be read."""
        rows = tuple([tile.memory for tile in self.row_tiles])
        filled = commit(
            [
                tile.fill(x, self.thread, self.row_block, _zero(), _zero(), None, self.factory)
                for tile, x in zip(self.row_tiles, rows, strict=True)
            ]
        )
        memory = tuple([tile.memory for tile in (*self.key_tiles, self.value_tile)])
        stages = Stages(memory, self.tile.stages, self.step, self.thread, self.fill)
        if self.outside:
            # every step of the loops outside reads all blocks of keys
            ready = barrier(wait([filled], 0))
            begun = stages.begin(barrier(ready, *self.outside))
        else:
            begun = stages.begin(filled)
            ready = barrier(wait(begun, self.tile.stages - 1))
        return after(rows, [ready]), stages.read(begun)

    def source(self, tile: SharedTile, memory: UOp, side: int) -> FragmentSource:
        """An operand of instructions in shared memory."""
        stage = divided(self.step, tile.stages)[1]
        return FragmentSource(tile, memory, stage, self.instruction, side, self.lane)

    def fragments(self, source: FragmentSource, first: UOp, repeats: int, inner: UOp) -> UOp:
        """The address of fragments, loaded to registers in each step of `inner`; `first` is the
        position along the outer axis.
        """
        dtype = source.dtype
        registers = self.registers(dtype.scalar(), repeats * dtype.count, inner)
        origin = first, inner * self.instruction.k
        loaded = source.load(origin, repeats, registers.memory.after(inner), self.factory)
        return registers.memory.after(loaded)

    # ---- products ----

    def product(self, number: int, rows: UOp, keys: UOp) -> RegisterArray:
        """The sums of a product in the weights."""
        x = self.instruction
        steps = self.depths[number] // x.k
        source = self.source(self.row_tiles[number], rows, 0)
        first = self.warp * (self.tiles[0] * x.m)
        count = source.dtype.count
        (inner,) = self.loops(steps)
        row_tile, tile = self.loops(*self.tiles[:2])
        if self.tile.holds_rows:
            (outer,) = self.loops(steps)
            held = self.registers(source.dtype.scalar(), steps * self.tiles[0] * count, self.thread)
            store = source.load(
                (first, outer * x.k),
                self.tiles[0],
                held.memory.after(self.thread),
                self.factory,
                outer * (self.tiles[0] * count),
            )
            held.before = (store.replace(src=(*store.src[:2], outer, *store.src[2:])),)
            a = held.load((inner * self.tiles[0] + row_tile) * count, count=count)
        else:
            loaded = self.fragments(source, first, self.tiles[0], inner)
            a = loaded.index(row_tile * count).load(dtype=source.dtype)
        source = self.source(self.key_tiles[number], keys, 1)
        loaded = self.fragments(source, _zero(), self.tiles[1], inner)
        b = loaded.index(tile * source.dtype.count).load(dtype=source.dtype)
        sums = self.cleared(self.tiles[0] * self.tiles[1] * x.c.count, self.step)
        self.multiply(sums, (row_tile, tile), 1, a, b, [inner])
        return sums

    def multiply(
        self,
        sums: RegisterArray,
        tiles: tuple[UOp, UOp],
        along: int,
        a: UOp,
        b: UOp,
        loops: list[UOp],
    ) -> None:
        """Add products to sums, in each step of some loops and for all tiles."""
        own = [*loops, *tiles]
        place = (tiles[0] * self.tiles[along] + tiles[1]) * self.instruction.c.count
        c = sums.load(place, *own, count=self.instruction.c.count)
        sums.store(place, UOp(Ops.MMA, c.dtype, (a, b, c), self.instruction), *own, after=own)

    def accumulate(self, sums: RegisterArray, weights: RegisterArray, memory: UOp) -> None:
        """Add the products of the weights and the values of a block of keys."""
        x = self.instruction
        (inner,) = self.loops(self.tile.keys // x.k)
        row_tile, tile = self.loops(self.tiles[0], self.tiles[2])
        key_tile = row_tile * self.tiles[1] + inner * (x.k // x.n)
        a = weights.load(key_tile * self.lane_rows, count=x.fragment(x.a).count)
        source = self.source(self.value_tile, memory, 1)
        loaded = self.fragments(source, _zero(), self.tiles[2], inner)
        b = loaded.index(tile * source.dtype.count).load(dtype=source.dtype)
        loops = [*self.outside, self.step, inner]
        self.multiply(sums, (row_tile, tile), 2, a, b, loops)

    # ---- weights ----

    def at(self, node: UOp, held: dict[UOp, UOp], row: UOp, key: UOp | None = None) -> UOp:
        """An expression for a row and a key, where parts of it are `held` in registers. Nothing
        past the end of either axis is loaded.
        """
        holes = {part: UOp(Ops.NOOP, part.dtype, (), i) for i, part in enumerate(held)}
        table = {self.chain.row: row}
        if key is not None:
            table[self.chain.key] = key
        value = substitute(node.substitute(holes), table)
        condition = and_conditions(self.row_exists(row), self.key_exists(key))
        if condition.op is not Ops.CONST:
            value = mask_loads(value, condition)
        return value.substitute({holes[part]: x for part, x in held.items()})

    def row_exists(self, row: UOp) -> UOp | None:
        """The condition that a row is not past the end."""
        return None if self.rows.divides(self.tile.rows) else row < self.rows.size

    def key_exists(self, key: UOp | None) -> UOp | None:
        """The condition that a key is not past the end."""
        if key is None or self.keys.divides(self.tile.keys):
            return None
        return key < self.keys.size

    def weights(self, scores: list[RegisterArray], weight: UOp) -> RegisterArray:
        """The weights of a chain without softmax, from its products."""
        products = [p.reduce for p in self.found.products]
        return self.pairs(dict(zip(products, scores, strict=True)), weight)

    def pairs(self, arrays: dict[UOp, RegisterArray], weight: UOp) -> RegisterArray:
        """The weights as narrow floats, of which a register holds two neighbours: the left operand
        of instructions. Parts of them are in `arrays`.
        """
        row_tile, row, tile = own = self.loops(self.tiles[0], self.lane_rows, self.tiles[1])
        packed = UOp.const(dtypes.uint32, 0)
        for i in range(self.pair):
            element = [*own, index_const(i)]
            place = self.place(element, 1)
            number = self.row_number(row_tile, row)
            key = self.key_number(tile, index_const(i))
            held = {part: array.load(place) for part, array in arrays.items()}
            value = self.at(weight, held, number, key)
            exists = self.key_exists(key)
            if exists is not None and self.chain.softmax is None:
                value = exists.where(value, UOp.const(value.dtype, 0))
            bits = value.bitcast(self.instruction.bits).cast(dtypes.uint32)
            packed = packed | (bits << (HALF_BITS * i)) if i else bits
        size = self.tiles[0] * self.tiles[1] * self.lane_rows
        narrow = self.registers(dtypes.uint32, size, self.step)
        position = (row_tile * self.tiles[1] + tile) * self.lane_rows + row
        narrow.store(position, packed, *own)
        return narrow

    def key_number(self, tile: UOp, neighbour: UOp) -> UOp:
        """The number of a key of a lane."""
        first = self.key_block(self.step) * self.tile.keys
        return collect(first + self.column_number(tile, neighbour))

    # ---- softmax ----

    def update_softmax(
        self, products: list[RegisterArray], softmax: Softmax, sums: RegisterArray
    ) -> dict[UOp, RegisterArray]:
        """Make the exponentials of the scores of the first array of products; scale the sums by
        what the maxima grew. Returns the arrays of the maxima and the sums of each row.
        """
        scores, rows = products[0], self.tiles[0] * self.lane_rows
        self.make_scores(products, softmax)
        before = self.cleared(rows, self.thread, lowest(self.instruction.accumulator))
        total = self.cleared(rows, self.thread)
        largest = self.largest(scores, before)
        scale = self.registers(before.dtype, rows, self.step)
        (row,) = self.loops(rows)
        grown = _exponential(softmax, before.load(row, self.step), largest.load(row))
        scale.store(row, grown, row)
        own, place, row = self.elements(1)
        value = _exponential(softmax, scores.load(place, *own), largest.load(row))
        scores.store(place, value, *own, after=own)
        (row,) = self.loops(rows)
        scaled = total.load(row, self.step) * scale.load(row)
        total.store(row, scaled, row, after=[self.step])
        own, place, row = self.elements(1)
        value = total.load(row, *own) + scores.load(place)
        total.store(row, value, self.step, *own, after=own)
        own, place, row = self.elements(2)
        value = sums.load(place, self.step) * scale.load(row)
        sums.store(place, value, *own, after=[self.step])
        (row,) = self.loops(rows)
        before.store(row, largest.load(row), self.step, row, after=[*scale.before, self.step])
        (row,) = self.loops(rows)
        # the maxima are what the next step begins with, though nothing else reads them
        summed = self.over_lanes(total.load(row), Ops.ADD)
        total.store(row, summed, row, after=before.before)
        stored = {softmax.maximum: before}
        return stored if softmax.total is None else {**stored, softmax.total: total}

    def make_scores(self, products: list[RegisterArray], softmax: Softmax) -> None:
        """Make scores of products, in the array of the first one."""
        parts = [p.reduce for p in self.found.products]
        own, place, _ = self.elements(1)
        row_tile, row, tile, neighbour = own
        key = self.key_number(tile, neighbour)
        held = {part: array.load(place, *own) for part, array in zip(parts, products, strict=True)}
        value = self.at(softmax.scores, held, self.row_number(row_tile, row), key)
        exists = self.key_exists(key)
        if exists is not None:
            value = exists.where(value, UOp.const(value.dtype, float("-inf")))
        products[0].store(place, value, *own, after=own)

    def largest(self, scores: RegisterArray, before: RegisterArray) -> RegisterArray:
        """The maxima of the rows so far, in every lane of a row."""
        rows = self.tiles[0] * self.lane_rows
        largest = self.registers(before.dtype, rows, self.step)
        (row,) = self.loops(rows)
        largest.store(row, before.load(row, self.step), row)
        own, place, row = self.elements(1)
        value = UOp(Ops.MAX, before.dtype, (largest.load(row, *own), scores.load(place)))
        largest.store(row, value, *own, after=own)
        (row,) = self.loops(rows)
        largest.store(row, self.over_lanes(largest.load(row, row), Ops.MAX), row, after=[row])
        return largest

    def over_lanes(self, value: UOp, op: Ops) -> UOp:
        """The reduction of a value over the lanes that share a row, by a butterfly of shuffles."""
        for bit, step in enumerate(self.instruction.c.lanes):
            if step[0] == 0:
                other = self.lane.alu(Ops.XOR, index_const(1 << bit))
                shuffled = UOp(Ops.SHUFFLE, value.dtype, (value, other))
                value = UOp(op, value.dtype, (value, shuffled))
        return value

    # ---- output ----

    def result(self, sums: RegisterArray, stored: dict[UOp, RegisterArray]) -> UOp:
        """The store of the result, whose sums are divided by the total of a softmax."""
        chain, columns = self.chain, self.found.columns
        address, value = chain.store.src[:2]
        width = contiguous_width([address], columns, self.pair, FreeRanges())
        row_tile, row, tile = self.loops(self.tiles[0], self.lane_rows, self.tiles[2])
        (high,) = self.loops(self.pair // width)
        neighbour: UOp = high * width
        own = [row_tile, row, tile, high]
        first = self.column_number(tile, neighbour)
        column = first
        if width > 1:
            lane = self.factory.new(width, AxisType.VECTOR)
            own, neighbour, column = [*own, lane], neighbour + lane, first + lane
        number = self.row_number(row_tile, row)
        found = sums.load(self.place([row_tile, row, tile, neighbour], 2))
        if chain.softmax is not None and chain.softmax.divides:
            assert chain.softmax.total is not None
            total = stored[chain.softmax.total].load(row_tile * self.lane_rows + row)
            found = found * total.reciprocal()
        table = columns.positions(column)
        condition = self.row_exists(number)
        if not columns.divides(self.tiles[2] * self.instruction.n):
            condition = and_conditions(condition, first < columns.size)
        address = substitute(self.at(address, {}, number), table)
        value = substitute(self.at(value, {chain.reduce: _hole(chain.reduce)}, number), table)
        if condition is not None:
            value = mask_loads(value, condition)
            address = _masked(address, condition)
        value = value.substitute({_hole(chain.reduce): found})
        return address.store(value, *self.grid, self.thread, *own)

    def statistic(self, store: UOp, found: RegisterArray) -> UOp:
        """A store of a statistic of each row, by one lane of those that share it."""
        row_tile, row = self.loops(self.tiles[0], self.lane_rows)
        number = self.row_number(row_tile, row)
        is_first = lane_position(self.instruction.c.lanes, self.lane, 1) < 1
        condition = and_conditions(is_first, self.row_exists(number))
        address = _masked(substitute(store.src[0], {self.chain.row: number}), condition)
        value = found.load(row_tile * self.lane_rows + row)
        return address.store(value, *self.grid, self.thread, row_tile, row)


def _exponential(softmax: Softmax, score: UOp, maximum: UOp) -> UOp:
    """The exponential of a score with a maximum."""
    holes = [UOp(Ops.NOOP, score.dtype, (), i) for i in range(2)]
    table = {softmax.scores: holes[0], softmax.maximum: holes[1]}
    template = softmax.exponential.substitute(table)
    return template.substitute(dict(zip(holes, (score, maximum), strict=True)))


def _hole(part: UOp) -> UOp:
    """What stands for a part of an expression while its ranges are replaced."""
    return UOp(Ops.NOOP, part.dtype, (), -1)


def _masked(address: UOp, condition: UOp) -> UOp:
    """An address that is accessed where a condition holds."""
    return address.src[0].index(address.src[1], and_conditions(condition, *address.src[2:]))


def _zero() -> UOp:
    return index_const(0)
