"""A tile of an operand in shared memory, which the threads of a block fill together.

A tile has rows along one axis of the operand and the reduction along the other; whichever is
contiguous in global memory is contiguous in the tile. Rows are padded by one access, so that the
same column of neighbouring rows is in different banks; for instructions that read shared memory
themselves they are cut into swizzled panels instead. There is a copy of the tile for each stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.analysis.affine_index import (
    and_conditions,
    collect,
    simplify_division,
)
from tinygrad.codegen.analysis.ranges import FreeRanges, RangeFactory, substitute
from tinygrad.codegen.optimize.threads.product.block_tile import ACCESS_BYTES
from tinygrad.codegen.optimize.threads.product.bulk_source import BulkSource
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis, contiguous_width
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer.matrix_instruction import SWIZZLE_BYTES, SWIZZLE_ROWS, SharedOperand
from tinygrad.renderer.tensor_map import MAX_BOX
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# copies of a thread that are unrolled: the addresses of more take too many registers
MAX_UNROLLED_COPIES = 16
# conversions of zero, the value of a masked load, that give zero
_KEEPS_ZERO = frozenset({Ops.CAST, Ops.BITCAST})


def divided(number: UOp, divisor: int) -> tuple[UOp, UOp]:
    """The quotient and the remainder of a number by a constant."""
    number, by = collect(number), UOp.const(dtypes.index, divisor)
    quotient, remainder = (
        simplify_division(UOp(op, dtypes.index, (number, by))) for op in (Ops.IDIV, Ops.MOD)
    )
    return quotient, remainder


@dataclass(frozen=True)
class SharedTile:
    """The tile of one operand. `outer` is the axis of the operand alone, cut in `length` steps."""

    operand: UOp
    dtype: DType
    outer: FlatAxis
    reduction: FlatAxis
    length: int
    depth: int
    stages: int
    number: int
    along_reduction: bool
    """Whether the reduction is contiguous."""
    width: int
    """Elements of one access to global memory."""
    swizzled: bool = False
    """Whether rows are cut into swizzled panels, and not padded."""
    source: BulkSource | None = None
    """Where hardware copies the tile from, if it does."""

    @property
    def row_length(self) -> int:
        """The elements of a row, without padding."""
        return self.depth if self.along_reduction else self.length

    @property
    def row_count(self) -> int:
        """The rows of a stage."""
        return self.length if self.along_reduction else self.depth

    @property
    def stage_size(self) -> int:
        """The elements of a stage."""
        padding = 0 if self.swizzled else ACCESS_BYTES // self.dtype.itemsize
        return self.row_count * (self.row_length + padding)

    @property
    def panel_size(self) -> int:
        """The elements of a panel, of all rows."""
        return self.row_count * (SWIZZLE_BYTES // self.dtype.itemsize)

    @property
    def memory(self) -> UOp:
        """The shared memory of all stages."""
        pointer = self.dtype.ptr(self.stages * self.stage_size, AddrSpace.LOCAL)
        return UOp(Ops.DEFINE_LOCAL, pointer, (), self.number)

    @property
    def shape(self) -> SharedOperand:
        """How an instruction that reads shared memory finds the elements."""
        return SharedOperand(self.along_reduction, self.panel_size * self.dtype.itemsize)

    def address(self, memory: UOp, stage: UOp, outer: UOp, deep: UOp, lane: UOp | int = 0) -> UOp:
        """The address of an element, or of lane `lane` of the 16-byte access that starts there;
        `memory` may be an AFTER.
        """
        row, column = (outer, deep) if self.along_reduction else (deep, outer)
        inside = self._swizzled(row, column) if self.swizzled else self._padded(row, column)
        return memory.index(collect(stage * self.stage_size + inside + lane))

    def _padded(self, row: UOp, column: UOp) -> UOp:
        return row * (self.stage_size // self.row_count) + column

    def _swizzled(self, row: UOp, column: UOp) -> UOp:
        panel, column = divided(column, SWIZZLE_BYTES // self.dtype.itemsize)
        chunk, inside = divided(column, ACCESS_BYTES // self.dtype.itemsize)
        turn = divided(row, SWIZZLE_ROWS)[1]
        place = chunk if turn.vmax == 0 else UOp(Ops.XOR, dtypes.index, (chunk, turn))
        first = row * (self.panel_size // self.row_count) + place * (
            ACCESS_BYTES // self.dtype.itemsize
        )
        return panel * self.panel_size + first + inside

    def fill(
        self,
        memory: UOp,
        thread: UOp,
        block: UOp,
        step: UOp,
        stage: UOp,
        condition: UOp | None,
        factory: RangeFactory,
    ) -> UOp:
        """The store of a stage by all threads: block `block` of the outer axis, `step` of the
        reduction. Elements past the end, or where the condition is false, are 0.
        """
        threads = int(thread.src[0].arg)
        per_row = self.row_length // self.width
        total = self.row_count * per_row
        copies = ceildiv(total, threads)
        kind = AxisType.TILE if copies <= MAX_UNROLLED_COPIES else AxisType.LOOP
        loop = factory.new(copies, kind)
        number = loop * threads + thread
        exists = None if total % threads == 0 else number < total
        row, group = divided(number, per_row)
        first = group * self.width
        lane: UOp | int = 0
        own = [loop]
        if self.width > 1:
            lane = factory.new(self.width, AxisType.VECTOR)
            own = [loop, lane]
        if exists is not None:
            condition = and_conditions(exists, condition)
        value = self.element(block, step, row, first + lane, first, condition)
        outer, deep = (row, first) if self.along_reduction else (first, row)
        address = self.address(memory, stage, outer, deep, lane)
        if exists is not None:
            address = address.src[0].index(address.src[1], exists)
        return address.store(value, *own)

    def copy(
        self,
        memory: UOp,
        mbarrier: UOp,
        block: UOp,
        step: UOp,
        stage: UOp,
        condition: UOp | None,
        part: tuple[UOp, int] | None,
        factory: RangeFactory,
    ) -> UOp:
        """Start bulk copies of the elements that `fill` stores, by the thread for which the
        condition holds.

        In a cluster, `part` is the number of this block and the number of blocks: each block copies
        one part to all of them.
        """
        assert self.source is not None, "the operand is a tensor in memory"
        width = SWIZZLE_BYTES // self.dtype.itemsize
        panels = self.row_length // width
        number, parts = part or (UOp.const(dtypes.index, 0), 1)
        rows = min(self.row_count // (parts if panels % parts else 1), MAX_BOX)
        boxes = self.row_count // rows
        loop = factory.new(panels * boxes // parts, AxisType.TILE)
        panel, part_of_rows = divided(number * (panels * boxes // parts) + loop, boxes)
        row, column = collect(part_of_rows * rows), collect(panel * width)
        outer, deep = (row, column) if self.along_reduction else (column, row)
        coordinates = {
            self.outer.loops[0]: collect(block * self.length + outer),
            self.reduction.loops[0]: collect(step * self.depth + deep),
        }
        box = self.source.box(coordinates, rows)
        place = collect(stage * self.stage_size + panel * self.panel_size + row * width)
        address = memory.index(place) if condition is None else memory.index(place, condition)
        return UOp(Ops.COPY_BULK, dtypes.void, (address, mbarrier, box, loop), parts)

    def element(
        self, block: UOp, step: UOp, row: UOp, column: UOp, first: UOp, condition: UOp | None
    ) -> UOp:
        """The value at a row and a column, in an access that starts at column `first`."""

        def numbers(column: UOp) -> tuple[UOp, UOp]:
            outer, deep = (row, column) if self.along_reduction else (column, row)
            return block * self.length + outer, step * self.depth + deep

        outer, deep = numbers(column)
        table = {**self.outer.positions(outer), **self.reduction.positions(deep)}
        value = substitute(self.operand, table)
        outer, deep = (collect(x) for x in numbers(first))
        if not self.outer.divides(self.length):
            condition = and_conditions(condition, outer < self.outer.size)
        if not self.reduction.divides(self.depth):
            condition = and_conditions(condition, deep < self.reduction.size)
        return value if condition is None else masked(value, condition)


def masked(value: UOp, condition: UOp) -> UOp:
    """A value whose loads are masked by a condition, 0 where that is false."""
    result = mask_loads(value, condition)
    node = result
    while node.op in _KEEPS_ZERO:
        node = node.src[0]
    if node.op is Ops.LOAD and node.src[1].op is Ops.CONST and not node.src[1].arg:
        return result
    return UOp(Ops.WHERE, value.dtype, (condition, result, UOp.const(value.dtype, 0)))


def mask_loads(value: UOp, condition: UOp, keep: UOp | None = None) -> UOp:
    """A value whose loads, except below the node `keep`, are masked by a condition."""
    table: dict[UOp, UOp] = {}
    for u in value.toposort(gate=lambda x: x is not keep):
        if u.op is Ops.LOAD and u is not keep:
            # the index may be loaded too
            pointer, index, *valid = (x.substitute(table) for x in u.src[0].src)
            alternative = u.src[1] if len(u.src) > 1 else UOp.const(u.dtype, 0)
            address = pointer.index(index, and_conditions(condition, *valid))
            table[u] = address.load(alternative.substitute(table), dtype=u.dtype)
    return value.substitute(table)


def shared_tile(
    operand: UOp,
    dtype: DType,
    outer: FlatAxis,
    reduction: FlatAxis,
    size: tuple[int, int, int],
    number: int,
    free: FreeRanges,
    swizzled: bool = False,
    source: BulkSource | None = None,
) -> SharedTile:
    """The tile of an operand; `size` is the length, the depth and the number of stages."""
    addresses = [u.src[0] for u in operand.toposort() if u.op is Ops.LOAD]
    widest = ACCESS_BYTES // dtype.itemsize
    deep, wide = (contiguous_width(addresses, axis, widest, free) for axis in (reduction, outer))
    along = deep > wide or (deep == wide and _is_along(addresses, reduction.loops[-1], free))
    length, depth, stages = size
    width = max(deep, wide)
    if source is not None:
        along = source.loops[0] in reduction.loops
    axes = outer, reduction, length, depth
    return SharedTile(operand, dtype, *axes, stages, number, along, width, swizzled, source)


def _is_along(addresses: list[UOp], loop: UOp, free: FreeRanges) -> bool:
    """Whether every address is contiguous along a loop."""
    return all(free.stride(x.src[1], loop) == 1 for x in addresses)
