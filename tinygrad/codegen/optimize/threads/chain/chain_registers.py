"""The map from elements of a chain's tile to the registers of lanes.

A warp computes `tiles = (along rows, along keys, along columns)` instructions. Its scores are
`tiles[0] x tiles[1]` accumulators, its output `tiles[0] x tiles[2]`. A lane holds `c.count`
elements of each: `lane_rows` rows of `lane_columns` columns.

Example: `mma.m16n8k16` has 16 x 8 accumulators for 32 lanes. Lane 5 holds columns 2 and 3 of rows 1
and 9, so `c.count` is 4, `lane_rows` 2 and `lane_columns` 2. Lanes 4 to 7 share these rows.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.affine_index import and_conditions, collect, index_const
from tinygrad.codegen.analysis.ranges import substitute
from tinygrad.codegen.optimize.chain.bounds import needed_blocks
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.chain.chain_tile import ChainTile
from tinygrad.codegen.optimize.threads.chain.matrix_chain import MatrixChain
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis
from tinygrad.codegen.optimize.threads.product.fragments import lane_position
from tinygrad.codegen.optimize.threads.product.register_array import RegisterArray
from tinygrad.codegen.optimize.threads.product.shared_tile import divided, mask_loads
from tinygrad.dtype import DType
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


class ChainRegisters:
    """The loops of a thread block, and the row, key or column of each register of each lane."""

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
        # instructions along the rows, the keys and the columns
        self.tiles = tile.repeats, tile.keys // x.n, size.columns // x.n
        # sums of a lane in a row, and rows of a lane, in an instruction
        self.lane_columns = 1 << sum(step[1] > 0 for step in x.c.registers)
        self.lane_rows = x.c.count // self.lane_columns

    def loops(self, *sizes: int) -> list[UOp]:
        """New loops of kind TILE, which are unrolled."""
        return [self.factory.new(n, AxisType.TILE) for n in sizes]

    def registers(self, dtype: DType, size: int, *before: UOp) -> RegisterArray:
        """An array of `size` registers in each lane, a new one in each step of the loops
        `before`.
        """
        return RegisterArray(dtype, size, self.factory.number(), *before)

    def cleared(self, size: int, loop: UOp, value: float = 0) -> RegisterArray:
        """Accumulators that are set to `value` at the start of each step of `loop`."""
        array = self.registers(self.instruction.accumulator, size, loop)
        (element,) = self.loops(size)
        array.store(element, UOp.const(array.dtype, value), element)
        return array

    def elements(self, along: int) -> tuple[list[UOp], UOp, UOp]:
        """Loops over the accumulators of a lane, those of scores (`along` 1) or of outputs (2).

        Returns the loops `(row tile, row, tile, neighbour)`, the position of an accumulator in its
        array, and the position of its row in arrays with one element a row.
        """
        own = self.loops(self.tiles[0], self.lane_rows, self.tiles[along], self.lane_columns)
        return own, self.place(own, along), own[0] * self.lane_rows + own[1]

    def place(self, own: list[UOp], along: int) -> UOp:
        """The position of an accumulator in its array, row tiles outermost."""
        row_tile, row, tile, neighbour = own
        first = (row_tile * self.tiles[along] + tile) * self.instruction.c.count
        return first + row * self.lane_columns + neighbour

    def row_number(self, row_tile: UOp, row: UOp) -> UOp:
        """The row of the chain that a lane holds as `row` of a row tile."""
        return collect(self.row_block * self.tile.rows + self.row_in_block(row_tile, row))

    def row_in_block(self, row_tile: UOp, row: UOp) -> UOp:
        """The same, relative to the first row of the thread block."""
        c = self.instruction.c
        inside = lane_position(c.lanes, self.lane, 0)
        held = lane_position(c.registers, row * self.lane_columns, 0)
        number = self.warp * self.tiles[0] + row_tile
        return collect(number * self.instruction.m + inside + held)

    def column_number(self, tile: UOp, neighbour: UOp) -> UOp:
        """The key or column that a lane holds as `neighbour` of a tile, relative to the first of
        the block.
        """
        c = self.instruction.c
        inside = lane_position(c.lanes, self.lane, 1)
        held = lane_position(c.registers, neighbour, 1)
        return collect(tile * self.instruction.n + inside + held)

    def key_number(self, tile: UOp, neighbour: UOp) -> UOp:
        """The key of the chain that a lane holds as `neighbour` of a tile in this step."""
        first = self.key_block(self.step) * self.tile.keys
        return collect(first + self.column_number(tile, neighbour))

    def key_block(self, step: UOp) -> UOp:
        """The block of keys that a step computes; steps skip blocks before `first_block`."""
        return step if self.first_block is None else self.first_block + step

    def at(self, node: UOp, held: dict[UOp, UOp], row: UOp, key: UOp | None = None) -> UOp:
        """The expression `node` for one row and key. Its subexpressions in `held` are replaced by
        their registers. Loads past the end of either axis are masked.
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
        """The condition that a row is not past the end; None if blocks divide the rows."""
        return None if self.rows.divides(self.tile.rows) else row < self.rows.size

    def key_exists(self, key: UOp | None) -> UOp | None:
        """The condition that a key is not past the end; None if blocks divide the keys."""
        if key is None or self.keys.divides(self.tile.keys):
            return None
        return key < self.keys.size

    def over_lanes(self, value: UOp, op: Ops) -> UOp:
        """The reduction of a value over the lanes that share a row, by a butterfly of shuffles.
        With 4 lanes, each combines its value with that of lane ^ 1, and the result with lane ^ 2.
        """
        for bit, step in enumerate(self.instruction.c.lanes):
            if step[0] == 0:
                other = self.lane.alu(Ops.XOR, index_const(1 << bit))
                shuffled = UOp(Ops.SHUFFLE, value.dtype, (value, other))
                value = UOp(op, value.dtype, (value, shuffled))
        return value
