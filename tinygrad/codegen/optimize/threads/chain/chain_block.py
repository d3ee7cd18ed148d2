"""The program of a thread block that computes a block of rows of a chain with matrix instructions.

In: a `MatrixChain` and its `ChainTile`. Out: the stores of the nest.

The weights are the left operand of the second product. Each lane has the accumulators of the first
product in registers. If the instruction expects its left operand in the same lanes
(`MatrixInstruction.reads_sums`), the weights never leave the registers; otherwise they pass through
shared memory. For MFMA, the lanes are the same after the operands are exchanged (transposed).

Example: attention with 64 rows, 64 keys a step and heads of 128, by 4 warps and an instruction of
16 x 8 x 16. Each warp has 16 rows: 1 x 8 accumulator tiles of scores, 1 x 16 of the output.
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
    """Builds the program of a thread block and replaces the nest by it."""

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
        """Replace the loops of the nest by the tiled program."""
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
        """The tile of an operand in shared memory, as the bit type that instructions read."""
        bits = self.instruction.bits
        operand = operand if operand.dtype is bits else operand.bitcast(bits)
        return shared_tile(operand, bits, outer, deep, size, self.factory.number(), FreeRanges())

    def fill(self, memory: Memory, step: UOp, condition: UOp | None) -> list[UOp]:
        """The stores that fill one stage with a block of keys and values."""
        stage, block, zero = divided(step, self.tile.stages)[1], self.key_block(step), _zero()
        places = [*((tile, block, zero) for tile in self.key_tiles), (self.value_tile, zero, block)]
        return [
            tile.fill(x, self.thread, outer, deep, stage, condition, self.factory)
            for x, (tile, outer, deep) in zip(memory, places, strict=True)
        ]

    def fill_shared_memory(self) -> tuple[Memory, Memory]:
        """Fill shared memory. Returns the operands of the rows and those of the keys and values of
        one step; a read of them waits until they are filled.
        """
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
        """Load `repeats` fragments to registers in each step of `inner`, from position `first` of
        the outer axis. Returns the address of the registers.
        """
        dtype = source.dtype
        registers = self.registers(dtype.scalar(), repeats * dtype.count, inner)
        origin = first, inner * self.instruction.k
        loaded = source.load(origin, repeats, registers.memory.after(inner), self.factory)
        return registers.memory.after(loaded)

    def product(self, number: int, rows: UOp, keys: UOp) -> RegisterArray:
        """The accumulators of product `number` of the weights, such as q @ k.T, for one step."""
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
        """Emit `sums[tile] += a @ b` in the loops `own` and over both tile axes. `inside` are loops
        around these, which a later store to `sums` closes.
        """
        own = [*own, *tiles]
        loops = [*inside, *own]
        place = (tiles[0] * self.tiles[along] + tiles[1]) * self.instruction.c.count
        c = sums.load(place, *loops, count=self.instruction.c.count)
        sums.store(place, multiply(self.instruction, *operands, c), *own, after=loops)

    def inner(self, steps: int, in_registers: bool) -> UOp:
        """A loop along a reduction axis. It is unrolled if an operand is in registers, whose index
        must be constant. Otherwise it stays a loop where unrolling would cost too much: long
        bodies of multiply-adds, or targets that copy to shared memory through registers.
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
        """Emit `sums += weights @ values` for a block of keys. `parts` are the nodes of `weight`
        that are in register arrays. `is_last` says that no later product of this step adds to
        `sums`, so that the next step continues from here. Returns the stores of the weights.
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
        """Emit `sums += weights @ values` for weights that are wider than the operands. A weight is
        split into narrow terms: the rounded weight, the rounded error of that, and so on.

        Example, with operands of 2 decimal digits: 3.14159 = 3.1 + 0.041 + 0.00059.
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
        """The weights as the left operand of instructions, in registers: each lane converts its own
        accumulators, and packs neighbours into one register.
        """
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
        """The weights in shared memory, for instructions that read their left operand in other
        lanes than they sum in; and the store by which each lane writes its own.
        """
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
        """The bits of a weight as an operand; 0 for a key past the end, unless the softmax already
        made its exponential 0.
        """
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
        """The store of the result. Sums are divided by the sum of exponentials, which is in
        `stored`, if the softmax divides.
        """
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
        if chain.softmax is not None and chain.softmax.total is not None:
            total = stored[chain.softmax.total].load(row_tile * self.lane_rows + row)
            found = chain.softmax.divided(found, total)
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
        """The store of a statistic of each row, such as its maximum. All lanes of a row hold it;
        the first of them stores it.
        """
        row_tile, row = self.loops(self.tiles[0], self.lane_rows)
        number = self.row_number(row_tile, row)
        is_first = lane_position(self.instruction.c.lanes, self.lane, 1) < 1
        condition = and_conditions(is_first, self.row_exists(number))
        address = _masked(substitute(store.src[0], {self.chain.row: number}), condition)
        value = found.load(row_tile * self.lane_rows + row)
        return address.store(value, *self.grid, self.thread, row_tile, row)


def _hole(part: UOp) -> UOp:
    """A placeholder for a subexpression while the loop counters around it are substituted."""
    return UOp(Ops.NOOP, part.dtype, (), -1)


def _masked(address: UOp, condition: UOp) -> UOp:
    """An address that is accessed where a condition holds."""
    return address.src[0].index(address.src[1], and_conditions(condition, *address.src[2:]))


def _zero() -> UOp:
    return index_const(0)
