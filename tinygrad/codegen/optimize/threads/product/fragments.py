"""Fragments of matrices in the registers of a warp's lanes, and instructions on them.

A fragment is a vector in each lane: its part of an operand of one `MatrixInstruction`, as the lane
map says. It is read from a tile in shared memory. Where the target can, one instruction loads whole
matrices (`ldmatrix`); otherwise a load has as many elements as are contiguous in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinygrad.codegen.analysis.affine_index import collect, index_const
from tinygrad.codegen.analysis.ranges import RangeFactory
from tinygrad.codegen.optimize.threads.product.shared_tile import SharedTile, divided
from tinygrad.dtype import DType
from tinygrad.renderer.matrix_instruction import LaneMap, MatrixInstruction, Step
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

MATRIX_ROWS = 8
"""The rows of the matrices that a warp loads at once, each 8 elements of 16 bits."""
MAX_LOADED = 8
"""16-bit registers of a lane that one load of matrices fills."""


def lane_position(steps: tuple[Step, ...], lane: UOp, axis: int) -> UOp:
    """The row (axis 0) or column (axis 1) that the bits of a number add up to."""
    total = index_const(0)
    first = 0
    while first < len(steps):
        weight, last = steps[first][axis], first + 1
        # bits whose weights double are one field
        while last < len(steps) and weight and steps[last][axis] == weight << (last - first):
            last += 1
        if weight:
            field = divided(divided(lane, 1 << first)[0], 1 << (last - first))[1]
            total = total + field * weight
        first = last
    return collect(total)


@dataclass(frozen=True)
class FragmentSource:
    """An operand of instructions, in a stage of shared memory, as a lane reads it.

    Rows of the lane map are along the outer axis of the tile, its columns along the reduction.
    """

    tile: SharedTile
    memory: UOp
    stage: UOp
    instruction: MatrixInstruction
    side: int
    """0 for the left operand, 1 for the right one."""
    lane: UOp

    @property
    def lane_map(self) -> LaneMap:
        """The lane map of a fragment."""
        return self.instruction.b.transposed() if self.side else self.instruction.a

    @property
    def height(self) -> int:
        """The size of a fragment along the outer axis."""
        return self.instruction.n if self.side else self.instruction.m

    @property
    def dtype(self) -> DType:
        """The dtype of a fragment."""
        return self.instruction.fragment(self.lane_map)

    def load(
        self,
        first: tuple[UOp, UOp],
        repeats: int,
        registers: UOp,
        factory: RangeFactory,
        place: UOp | int = 0,
        own: tuple[UOp, ...] = (),
    ) -> UOp:
        """The store of neighbouring fragments along the outer axis to `registers`, from element
        `place` on, in each step of the loops `own`. `first` is the outer and the deep position of
        the first one in the tile.
        """
        lane_map = self.lane_map
        together = 1
        while (
            self.instruction.loads_matrices
            and lane_map.count < MAX_LOADED
            and repeats % (2 * together) == 0
        ):
            # fragments of neighbouring tiles by one load of more matrices
            far = (together * self.height, 0)
            lane_map = replace(lane_map, registers=(*lane_map.registers, far))
            together *= 2
        number = factory.new(repeats // together, AxisType.TILE)
        origin = first[0] + number * (together * self.height), first[1]
        value = self._fragment(origin, lane_map)
        return registers.index(place + number * value.dtype.count).store(value, *own, number)

    def _fragment(self, origin: tuple[UOp, UOp], lane_map: LaneMap) -> UOp:
        """The fragment of the matrix at `origin`."""
        if self.instruction.loads_matrices:
            return self._matrices(origin, lane_map)
        tile = self.tile
        base = [x + lane_position(lane_map.lanes, self.lane, i) for i, x in enumerate(origin)]
        lanes: dict[int, UOp] = {}
        for registers in lane_map.runs(1 if tile.along_reduction else 0):
            position = lane_map.position(0, registers[0])
            outer, deep = (x + step for x, step in zip(base, position, strict=True))
            address = tile.address(self.memory, self.stage, outer, deep)
            loaded = address.load(dtype=tile.dtype.vec(len(registers)))
            if registers == list(range(lane_map.count)):
                return loaded
            for i, register in enumerate(registers):
                lanes[register] = loaded.gep(i) if len(registers) > 1 else loaded
        ordered = tuple([lanes[i] for i in range(lane_map.count)])
        return UOp(Ops.VECTORIZE, tile.dtype.vec(len(ordered)), ordered)

    def _matrices(self, origin: tuple[UOp, UOp], lane_map: LaneMap) -> UOp:
        """The fragment, loaded as 8x8 matrices: lane `8 * i + j` names row j of matrix i."""
        rows: tuple[Step, ...] = tuple(
            (1 << i, 0) if self.tile.along_reduction else (0, 1 << i)
            for i in range(MATRIX_ROWS.bit_length() - 1)
        )
        steps = (*rows, *lane_map.registers[1:])
        outer, deep = (x + lane_position(steps, self.lane, i) for i, x in enumerate(origin))
        address = self.tile.address(self.memory, self.stage, outer, deep)
        dtype = self.instruction.fragment(lane_map)
        return UOp(Ops.LOAD_MATRIX, dtype, (address,), not self.tile.along_reduction)


def multiply(instruction: MatrixInstruction, a: UOp, b: UOp, c: UOp) -> UOp:
    """The fragment `c + a @ b`."""
    if instruction.name:
        operands = (b, a) if instruction.is_swapped else (a, b)
        return UOp(Ops.MMA, c.dtype, (*operands, c), instruction)
    lanes = []
    registers = {instruction.a.position(0, r): r for r in range(instruction.a.count)}
    others = {instruction.b.position(0, r): r for r in range(instruction.b.count)}
    for register in range(instruction.c.count):
        row, column = instruction.c.position(0, register)
        total = c.gep(register)
        for k in range(instruction.k):
            total = total + a.gep(registers[row, k]) * b.gep(others[k, column])
        lanes.append(total)
    return UOp(Ops.VECTORIZE, c.dtype, tuple(lanes))
