"""Compute a block of rows of a chain of products with matrix instructions.

In: a `MatrixChain` and the tile that was chosen. Out: the stores of the nest. The weights are the
left operand of an instruction. Lanes read it from where the products in the weights were summed, if
the lane maps of both agree, and else from shared memory. Those of MFMA agree where rows and columns
are exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.codegen.analysis.affine_index import and_conditions, index_const
from tinygrad.codegen.analysis.ranges import FreeRanges, substitute
from tinygrad.codegen.optimize.chain.softmax import without_division
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.chain.chain_registers import ChainRegisters
from tinygrad.codegen.optimize.threads.chain.chain_tile import ChainTile
from tinygrad.codegen.optimize.threads.chain.matrix_chain import MatrixChain, narrow_operand
from tinygrad.codegen.optimize.threads.chain.running_softmax import update_softmax
from tinygrad.codegen.optimize.threads.product.block_tile import ACCESS_BYTES
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis, contiguous_width
from tinygrad.codegen.optimize.threads.product.fragments import (
    FragmentSource,
    lane_position,
    multiply,
)
from tinygrad.codegen.optimize.threads.product.register_array import RegisterArray
from tinygrad.codegen.optimize.threads.product.shared_tile import (
    SharedTile,
    divided,
    mask_loads,
    shared_tile,
)
from tinygrad.codegen.optimize.threads.product.stages import (
    Memory,
    Stages,
    after,
    barrier,
    commit,
    wait,
)
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

HALF_BITS = 16


class ChainBlock(ChainRegisters):
    """The nest of a chain while a tile is applied to it."""

    def __init__(self, nest: Nest, found: MatrixChain, tile: ChainTile) -> None:
        super().__init__(nest, found, tile)
        size = found.size.padded(tile.instruction)
        self.depths = size.depths
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
        parts = dict(zip([p.reduce for p in self.found.products], scores, strict=True))
        weight = self.chain.weight
        if softmax is not None:
            stored = update_softmax(self, scores, softmax, sums)
            weight = without_division(weight, softmax)
            parts = {softmax.exponential: scores[0]}
        if self.found.terms == 1:
            weight = narrow_operand(weight, self.instruction)
            self.accumulate(sums, parts, weight, memory[-1])
        else:
            self.accumulate_terms(sums, parts, weight, memory[-1])
        stores = [self.result(sums, stored)]
        if softmax is not None:
            stores += [self.statistic(x, stored[x.src[1]]) for x in self.nest.stores[1:]]
        self.nest.root = UOp.sink(*stores)
        self.nest.make_grid(self.grid)
        self.nest.note(str(self.tile))

    def shared(
        self, operand: UOp, outer: FlatAxis, deep: FlatAxis, size: tuple[int, int, int]
    ) -> SharedTile:
        """The tile of an operand in shared memory, as bits."""
        bits = self.instruction.bits
        operand = operand if operand.dtype is bits else operand.bitcast(bits)
        return shared_tile(operand, bits, outer, deep, size, self.factory.number(), FreeRanges())

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
        stores = [
            tile.fill(x, self.thread, self.row_block, _zero(), _zero(), None, self.factory)
            for tile, x in zip(self.row_tiles, rows, strict=True)
        ]
        memory = tuple([tile.memory for tile in (*self.key_tiles, self.value_tile)])
        stages = Stages(memory, self.tile.stages, self.step, self.thread, self.fill)
        if self.outside:
            # every step of the loops outside reads all blocks of keys
            ready = barrier(wait([commit(stores)], 0))
            begun = stages.begin(barrier(ready, *self.outside))
        elif self.tile.holds_rows:
            begun = stages.begin(commit(stores))
            ready = barrier(wait(begun, self.tile.stages - 1))
        else:
            # each step reads the rows, when the first stage is filled
            memory = stages.read(stages.begin(*stores))
            return after(rows, memory[0].src[1:]), memory
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

    def product(self, number: int, rows: UOp, keys: UOp) -> RegisterArray:
        """The sums of a product in the weights."""
        x = self.instruction
        steps = self.depths[number] // x.k
        source = self.source(self.row_tiles[number], rows, 0)
        first = self.warp * (self.tiles[0] * x.m)
        count = source.dtype.count
        inner = self.inner(steps, self.tile.holds_rows)
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
        self.multiply(sums, (row_tile, tile), 1, (a, b), [inner])
        return sums

    def multiply(
        self,
        sums: RegisterArray,
        tiles: tuple[UOp, UOp],
        along: int,
        operands: tuple[UOp, UOp],
        own: list[UOp],
        inside: Sequence[UOp] = (),
    ) -> None:
        """Add products to sums, in each step of the loops `own` and for all tiles; `inside` of
        others.
        """
        own = [*own, *tiles]
        loops = [*inside, *own]
        place = (tiles[0] * self.tiles[along] + tiles[1]) * self.instruction.c.count
        c = sums.load(place, *loops, count=self.instruction.c.count)
        sums.store(place, multiply(self.instruction, *operands, c), *own, after=loops)

    def inner(self, steps: int, in_registers: bool) -> UOp:
        """A loop along a reduction, unrolled if an operand is in registers. Others are not if steps
        are long, as of multiply-adds, or registers are needed for what is copied to shared memory.
        """
        has_room = self.nest.renderer.target.has_async_copy and self.instruction.name
        kind = AxisType.TILE if in_registers or has_room else AxisType.REDUCE
        return self.factory.new(steps, kind)

    def accumulate(
        self,
        sums: RegisterArray,
        parts: dict[UOp, RegisterArray],
        weight: UOp,
        memory: UOp,
        is_last: bool = True,
    ) -> Sequence[UOp]:
        """Add the products of the weights, of which parts are in arrays, and the values of a block
        of keys. The last products of a step are those that the next one adds to. Returns the
        stores of the weights.
        """
        x = self.instruction
        inner = self.inner(self.tile.keys // x.k, x.reads_sums)
        row_tile, tile = self.loops(self.tiles[0], self.tiles[2])
        count = x.fragment(x.a).count
        if x.reads_sums:
            narrow = self.narrow_weights(parts, weight)
            stores, first = narrow.before, row_tile * (self.tile.keys // x.k) + inner
            a = narrow.load(first * count, count=count)
        else:
            shared, store = self.shared_weights(parts, weight)
            stores = [store]
            source = self.source(shared, shared.memory.after(barrier(store)), 0)
            first = self.warp * (self.tiles[0] * x.m)
            loaded = self.fragments(source, first, self.tiles[0], inner)
            a = loaded.index(row_tile * count).load(dtype=source.dtype)
        source = self.source(self.value_tile, memory, 1)
        loaded = self.fragments(source, _zero(), self.tiles[2], inner)
        b = loaded.index(tile * source.dtype.count).load(dtype=source.dtype)
        steps = [*self.outside, self.step]
        own, inside = ([*steps, inner], []) if is_last else ([inner], steps)
        self.multiply(sums, (row_tile, tile), 2, (a, b), own, inside)
        return stores

    def accumulate_terms(
        self, sums: RegisterArray, parts: dict[UOp, RegisterArray], weight: UOp, memory: UOp
    ) -> None:
        """Add the products of weights that are wider than the operands of the instruction: first of
        the rounded weights, then of the rounding error, and so on.
        """
        rest = next(iter(parts.values()))
        own, place, _ = self.elements(1)
        row_tile, row, tile, neighbour = own
        held = {part: array.load(place, *own) for part, array in parts.items()}
        number, key = self.row_number(row_tile, row), self.key_number(tile, neighbour)
        rest.store(place, self.at(weight, held, number, key), *own, after=own)
        whole = _hole(weight)
        rounded = whole.cast(self.instruction.operand)
        for term in range(self.found.terms):
            is_last = term == self.found.terms - 1
            stores = self.accumulate(sums, {whole: rest}, rounded, memory, is_last)
            own, place, _ = self.elements(1)
            value = rest.load(place, *own)
            left = value - value.cast(self.instruction.operand).cast(value.dtype)
            rest.store(place, left, *own, after=[*own, *stores])

    def narrow_weights(self, parts: dict[UOp, RegisterArray], weight: UOp) -> RegisterArray:
        """The weights as the left operand of instructions, in registers."""
        x = self.instruction
        dtype = x.fragment(x.a).scalar()
        together = dtype.itemsize // x.bits.itemsize
        count = self.lane_columns // together
        own = self.loops(self.tiles[0], self.lane_rows, self.tiles[1], count)
        row_tile, row, tile, place = own
        elements = [[*own[:3], place * together + i] for i in range(together)]
        value, *others = [self.narrow_weight(parts, weight, element) for element in elements]
        for other in others:
            # neighbours share a register
            value = value.cast(dtype) | (other.cast(dtype) << HALF_BITS)
        size = self.tiles[0] * self.tiles[1] * self.lane_rows * count
        narrow = self.registers(dtype, size, self.step)
        position = (row_tile * self.tiles[1] + tile) * self.lane_rows + row
        narrow.store(position * count + place, value, *own)
        return narrow

    def shared_weights(
        self, parts: dict[UOp, RegisterArray], weight: UOp
    ) -> tuple[SharedTile, UOp]:
        """The weights in shared memory, and the store of those of a lane."""
        x, rows, keys = self.instruction, self.tile.rows, self.tile.keys
        shared = SharedTile(
            weight, x.bits, self.rows, self.keys, rows, keys, 1, self.factory.number(), True, 1
        )
        width = min(x.c.contiguous(1), ACCESS_BYTES // x.bits.itemsize)
        count = self.lane_columns // width
        own = self.loops(self.tiles[0], self.lane_rows, self.tiles[1], count)
        row_tile, row, tile, high = own
        first: UOp = high * width
        lane: UOp | int = 0
        if width > 1:
            lane = self.factory.new(width, AxisType.VECTOR)
            own = [*own, lane]
        value = self.narrow_weight(parts, weight, [row_tile, row, tile, first + lane])
        row = self.row_in_block(row_tile, row)
        address = shared.address(shared.memory, _zero(), row, self.column_number(tile, first), lane)
        return shared, address.store(value, *own)

    def narrow_weight(
        self, arrays: dict[UOp, RegisterArray], weight: UOp, element: list[UOp]
    ) -> UOp:
        """The bits of a weight as an operand, 0 for a key past the end."""
        row_tile, row, tile, neighbour = element
        key = self.key_number(tile, neighbour)
        place = self.place(element, 1)
        held = {part: array.load(place) for part, array in arrays.items()}
        value = self.at(weight, held, self.row_number(row_tile, row), key)
        exists = self.key_exists(key)
        if exists is not None and self.chain.softmax is None:
            value = exists.where(value, UOp.const(value.dtype, 0))
        bits = self.instruction.bits
        return value if value.dtype is bits else value.bitcast(bits)

    def result(self, sums: RegisterArray, stored: dict[UOp, RegisterArray]) -> UOp:
        """The store of the result, whose sums are divided by the total of a softmax."""
        chain, columns = self.chain, self.found.columns
        address, value = chain.store.src[:2]
        widest = self.instruction.c.contiguous(1)
        width = contiguous_width([address], columns, widest, FreeRanges())
        row_tile, row, tile = self.loops(self.tiles[0], self.lane_rows, self.tiles[2])
        (high,) = self.loops(self.lane_columns // width)
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


def _hole(part: UOp) -> UOp:
    """What stands for a part of an expression while its ranges are replaced."""
    return UOp(Ops.NOOP, part.dtype, (), -1)


def _masked(address: UOp, condition: UOp) -> UOp:
    """An address that is accessed where a condition holds."""
    return address.src[0].index(address.src[1], and_conditions(condition, *address.src[2:]))


def _zero() -> UOp:
    return index_const(0)
