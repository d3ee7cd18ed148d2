"""Compute a chain in blocks, so that scratch memory holds the weights of one block only.

Before: a nest that is one `Chain`. After, for each block of rows of the grid:

    for block of keys:
        weight[key, row] = ...          the products of the block, and elementwise ops of them
        acc[row, column] += sum over key of weight[key, row] * value[key, column]
    out[row, column] = acc[row, column]

Vector lanes are rows while weights are computed, and columns while they are accumulated. With
weights stored as `[key, row]`, neither step transposes.

A size that is no multiple of the block is covered by overlapping blocks. Example: 300 keys in
blocks of 128 start at 0, 128 and 172. The third block computes keys 172 to 255 again, and replaces
them by the identity of the reduction (`only_new`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tinygrad.codegen.analysis.accesses import masked
from tinygrad.codegen.analysis.identity import identity_element
from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    extent,
    is_static,
    loops_of,
    substitute,
    with_loops,
)
from tinygrad.codegen.optimize.chain.bounds import blocks_of, needed_blocks
from tinygrad.codegen.optimize.chain.match import Chain
from tinygrad.codegen.optimize.contraction import below_casts
from tinygrad.codegen.optimize.lanes.vectorize import vectorize_nest
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.product.micro_kernel import tile_inner
from tinygrad.codegen.optimize.staging import row_major_index
from tinygrad.codegen.optimize.threads.elementwise import BLOCK_THREADS
from tinygrad.codegen.optimize.threads.mapping import Block
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# the largest blocks of rows and keys, which together stay in a core's second-level cache
MAX_ROWS = 128
MAX_KEYS = 128
MIN_ROWS = 16
# the largest blocks of rows and keys whose arrays fit the shared memory of a thread block
MAX_SHARED_ROWS = 32
MAX_SHARED_KEYS = 64
# the minimum work items for each thread of a CPU, if blocks have `MIN_ROWS` rows
ITEMS_PER_THREAD = 4
# scratch arrays are numbered: a range of `PER_NEST` for each inner nest, from `SHARED` on those
# that several nests use
PER_NEST = 8
SHARED = 1 << 10


class Array:
    """Scratch memory that several inner nests use. Loads are ordered after `after`, the latest
    stores to the array and the loops around them.
    """

    def __init__(self, number: int, dtype: DType, size: int, after: Iterable[UOp] = ()) -> None:
        pointer = dtype.ptr(size, AddrSpace.LOCAL)
        self.memory = UOp(Ops.DEFINE_LOCAL, pointer, (), SHARED + number)
        self.dtype = dtype
        self.nbytes = pointer.nbytes()
        self.after = tuple(after)

    def at(self, index: UOp) -> UOp:
        """The address of an element."""
        return self.memory.index(index)

    def load(self, index: UOp) -> UOp:
        """An element."""
        return self.at(index).load(dtype=self.dtype)


class Blocks:
    """The loops over blocks of rows and keys of a chain, and the inner nests of one block.

    Each inner nest is a store to an `Array`, tiled and vectorized like a kernel of its own.
    `stages_operands` copies the operands of products to scratch memory first.
    """

    def __init__(self, nest: Nest, chain: Chain, stages_operands: bool = False) -> None:
        self.nest = nest
        self.stages_operands = stages_operands
        self.chain = chain
        self.factory = nest.factory
        self.arrays: list[Array] = []
        self.nests = 0
        self.grid = [r for r in loops_of(chain.store) if r not in (chain.row, *chain.columns)]
        rows, keys = extent(chain.row), extent(chain.key)
        target = nest.renderer.target
        self.threads: UOp | None = None
        if target.has_threads:
            threads = nest.threads or min(BLOCK_THREADS, target.block_threads)
            self.threads = self.factory.new(threads, AxisType.LOCAL)
        self.rows = self.rows_of_block(rows)
        self.keys = min(MAX_KEYS if self.threads is None else MAX_SHARED_KEYS, keys)
        self.row_block = self.factory.new(blocks_of(chain.row, self.rows), AxisType.LOOP)
        self.row_start = start_of(self.row_block, chain.row, self.rows)
        own = self.row_start, self.row_start + (self.rows - 1)
        first, count = needed_blocks(chain, own, self.keys)
        loop = self.factory.new(count, AxisType.REDUCE)
        self.key_block = loop if first is None else first + loop
        self.key_start = start_of(self.key_block, chain.key, self.keys)
        self.grid.append(self.row_block)
        self.inside = [*chain.reduce.src[1:-1], loop]

    def rows_of_block(self, rows: int) -> int:
        """The rows of a block: on a CPU, halved until there are enough work items."""
        if self.threads is not None:
            return min(MAX_SHARED_ROWS, rows)
        block = min(MAX_ROWS, rows)
        items = math.prod(map(extent, self.grid))
        wanted = ITEMS_PER_THREAD * self.nest.renderer.target.threads
        while block >= 2 * MIN_ROWS and items * ceildiv(rows, block) < wanted:
            block //= 2
        return block

    # ---- expressions ----

    def at(
        self, node: UOp, row: UOp, key: UOp | None = None, known: Mapping[UOp, UOp] | None = None
    ) -> UOp:
        """An expression for one row and one key of the blocks, with `known` nodes replaced by their
        values.
        """
        table = {self.chain.row: within(self.row_start + row, self.chain.row)}
        if key is not None:
            table[self.chain.key] = within(self.key_start + key, self.chain.key)
        return substitute(node, {**table, **(known or {})})

    def only_new(self, value: UOp, key: UOp, other: UOp) -> UOp:
        """`value`, or `other` for a key past the end or in an earlier block, so that each counts
        once.
        """
        if not is_static(self.chain.key):
            is_past = self.chain.key.src[0] - 1 < self.key_start + key
            return UOp(Ops.WHERE, value.dtype, (is_past, other, value))
        if extent(self.chain.key) % self.keys == 0:
            return value
        is_old = key < self.key_block * self.keys - self.key_start
        return UOp(Ops.WHERE, value.dtype, (is_old, other, value))

    def only_new_rows(self, address: UOp, row: UOp) -> UOp:
        """The address of a result, masked for rows past the end. On a GPU it is masked for rows of
        the previous block too, so that no two thread blocks write one element.
        """
        if not is_static(self.chain.row):
            is_row = self.row_start + row < self.chain.row.src[0]
            return masked(address, is_row)
        if self.threads is None or extent(self.chain.row) % self.rows == 0:
            return address
        is_old = row < self.row_block * self.rows - self.row_start
        is_new = UOp(Ops.CMPEQ, dtypes.bool, (is_old, UOp.const(dtypes.bool, False)))
        return masked(address, is_new)

    # ---- nests ----

    def block(self, nest: Nest) -> Block:
        """The thread block, whose threads share the loops of each inner nest."""
        assert self.threads is not None
        threads = extent(self.threads)
        return Block(nest, threads, threads, thread=self.threads)

    def make_grid(self) -> None:
        """Make the blocks of rows the grid."""
        if self.threads is not None:
            self.block(self.nest).distribute(self.grid)
        else:
            self.nest.make_grid(self.grid)

    def shared_bytes(self) -> int:
        """The bytes of the arrays that threads share."""
        return sum(array.nbytes for array in self.arrays)

    def loops(self, *sizes: int) -> list[UOp]:
        """New loops."""
        return [self.factory.new(n, AxisType.LOOP) for n in sizes]

    def array(self, dtype: DType, size: int) -> Array:
        """New scratch memory."""
        array = Array(len(self.arrays), dtype, size)
        self.arrays.append(array)
        return array

    def store(self, address: UOp, value: UOp, *own: UOp, lanes: UOp | None = None) -> UOp:
        """Tile or vectorize `address = value` in the loops `own` as an inner nest, ordered after
        the stores to the arrays that it reads. Returns its store. `lanes` is the loop to vectorize.
        """
        self.nests += 1
        inner = Nest(
            UOp.sink(address.store(value, *own)),
            self.nest.renderer,
            self.factory,
            scratch=PER_NEST * self.nests,
        )
        if self.threads is not None:
            self.block(inner).share(own)
        elif not tile_inner(inner, lanes):
            vectorize_nest(inner)
        self.nest.applied += inner.applied
        return inner.root.substitute(
            {array.memory: array.memory.after(*array.after) for array in self.arrays if array.after}
        ).src[0]

    def filled(self, size: int, value: UOp) -> Array:
        """Scratch memory that holds `value` before the first block of keys."""
        array = self.array(value.dtype, size)
        array.after = tuple(self.grid)
        (step,) = self.loops(size)
        array.after = (self.store(array.at(step), value, step), *self.inside)
        return array

    def update(self, array: Array, index: UOp, value: UOp, *own: UOp) -> UOp:
        """The store of `value` to an array of `filled()`, in each block of keys."""
        store = self.store(array.at(index), value, *own)
        return with_loops(store, [*self.inside, *loops_of(store)])

    def weights(self, expression: UOp, other: UOp) -> Array:
        """Scratch memory `[key, row]` with an expression of the weights of a block. Keys of an
        earlier block get `other`. All products but the last are stored in arrays of their own.
        """
        *first, _ = self.chain.products
        stored = {product: self.block_of(product, {}) for product in first}
        return self.block_of(expression, stored, other)

    def block_of(
        self, expression: UOp, stored: dict[UOp, Array], other: UOp | None = None
    ) -> Array:
        """Scratch memory `[key, row]` with `expression` for each key and row of a block. The
        subexpressions in `stored` are loaded from their arrays.
        """
        key, row = self.loops(self.keys, self.rows)
        array = self.array(expression.dtype, self.keys * self.rows)
        place = key * self.rows + row
        known = {part: array.load(place) for part, array in stored.items()}
        value = self.at(expression, row, key, known)
        if self.stages_operands or not is_static(self.chain.row):
            value = self.with_staged_operands(value, row, key)
        if other is not None:
            value = self.only_new(value, key, other)
        array.after = (self.store(array.at(place), value, key, row, lanes=row),)
        return array

    def with_staged_operands(self, value: UOp, row: UOp, key: UOp) -> UOp:
        """An expression whose products read their operands from scratch memory: those of the rows
        are loaded once for a block of rows, those of the keys once for a block of keys.
        """
        free = FreeRanges()
        table: dict[UOp, UOp] = {}
        for reduce in value.toposort():
            product = below_casts(reduce.src[0]) if reduce.op is Ops.REDUCE else reduce
            if product is reduce or product.op is not Ops.MUL or len(loops_of(reduce)) != 1:
                continue
            (depth,) = loops_of(reduce)
            for operand in product.src:
                axes = [r for r in (row, key) if r in free[operand]]
                if axes == [key] and not self.stages_operands:
                    continue
                if len(axes) == 1 and depth in free[operand]:
                    table[operand] = self.staged(operand, axes[0], depth)
        return value.substitute(table)

    def staged(self, operand: UOp, axis: UOp, depth: UOp) -> UOp:
        """An operand, copied to scratch memory and loaded from there. On a GPU, rows are padded by
        one element, so that they start in different banks; on a CPU, the axis is contiguous.
        """
        strides = (extent(depth) + 1, 1) if self.threads is not None else (1, extent(axis))
        array = self.array(
            operand.dtype, max(extent(axis) * strides[0], extent(depth) * strides[1])
        )
        outer, inner = self.loops(extent(axis), extent(depth))
        value = substitute(operand, {axis: outer, depth: inner})
        place = outer * strides[0] + inner * strides[1]
        array.after = (self.store(array.at(place), value, outer, inner),)
        return array.load(axis * strides[0] + depth * strides[1])

    def accumulate(
        self, weight: UOp, block: Array, scale: Array | None = None
    ) -> tuple[Array, UOp]:
        """The accumulators `[row, *columns]`, and the store that adds a block of keys to them.

        `block` holds the values of `weight`. `scale`, with an element for each row, multiplies the
        accumulators of earlier blocks.
        """
        chain, reduce = self.chain, self.chain.reduce
        columns = self.loops(*map(extent, chain.columns))
        (row,) = self.loops(self.rows)
        key = self.factory.new(self.keys, AxisType.REDUCE)
        sums = self.filled(
            self.rows * math.prod(map(extent, columns)), identity_element(reduce.arg, reduce.dtype)
        )
        known = {chain.weight: block.load(key * self.rows + row)}
        value = self.at(reduce.src[0], row, key, known)
        value = substitute(value, dict(zip(chain.columns, columns, strict=True)))
        index = row_major_index([row, *columns])
        old = sums.load(index)
        if scale is not None:
            old = old * scale.load(row).cast(old.dtype)
        new = UOp(reduce.arg, reduce.dtype, (old, value.reduce(key, arg=reduce.arg)))
        return sums, self.update(sums, index, new, row, *columns)

    def result(self, sums: Array, total: Array | None = None) -> UOp:
        """The store of the result: the accumulators, divided by `total` if the softmax divides."""
        chain = self.chain
        (row,) = self.loops(self.rows)
        reduced = sums.load(row_major_index([row, *chain.columns]))
        if total is not None and chain.softmax is not None:
            reduced = chain.softmax.divided(reduced, total.load(row))
        known = {chain.reduce: reduced}
        address, value = (self.at(x, row, known=known) for x in chain.store.src[:2])
        store = self.store(self.only_new_rows(address, row), value, row, *chain.columns)
        return with_loops(store, [*self.grid, *loops_of(store)])

    def statistic(self, store: UOp, values: Array) -> UOp:
        """The store of a statistic of each row, such as its maximum, which `values` holds."""
        (row,) = self.loops(self.rows)
        address = self.only_new_rows(self.at(store.src[0], row), row)
        store = self.store(address, values.load(row), row)
        return with_loops(store, [*self.grid, *loops_of(store)])


def within(index: UOp, axis: UOp) -> UOp:
    """An index clamped to the last element of a loop of symbolic size, so that loads are in range.
    Blocks of a known size do not go past the end.
    """
    return index if is_static(axis) else index.minimum(axis.src[0] - 1)


def start_of(block: UOp, axis: UOp, step: int) -> UOp:
    """The first element of block number `block`. The last block of a known size is moved back, so
    that it ends at the last element: blocks of 128 of 300 start at 0, 128 and 172.
    """
    size = extent(axis)
    if size % step == 0 or not is_static(axis):
        return block * step
    last = UOp.const(dtypes.index, size - step)
    return (block < UOp.const(dtypes.index, size // step)).where(block * step, last)


def blocked_reduction(blocks: Blocks) -> list[UOp]:
    """The store of a chain without softmax."""
    chain = blocks.chain
    other = identity_element(chain.reduce.arg, chain.weight.dtype)
    block = blocks.weights(chain.weight, other)
    sums, update = blocks.accumulate(chain.weight, block)
    sums.after = (update,)
    return [blocks.result(sums)]
