"""Matrix instructions: a warp multiplies small matrices that its lanes hold in registers. A thread
of a CPU is a warp of one lane.

Where an instruction reads its operands from shared memory, they lie there in panels of 128 bytes
along the contiguous axis, of which 8 rows are swizzled (`SWIZZLE_BYTES`).

A `MatrixInstruction` computes `c += a @ b` for `a` of shape `(m, k)`, `b` of shape `(k, n)` and `c`
of shape `(m, n)`. Its lane maps tell which element each register of each lane holds. All of them
are linear over the bits of the lane and of the register, so a map is a list of steps, one a bit.

Sources of the maps: the PTX ISA (sections "Matrix Fragments for mma" and "wgmma"), AMD's ISA guides
of CDNA3 and RDNA3 and its matrix instruction calculator; Intel's Software Developer's Manual
(AMX, VDPBF16PS, VPDPBUSD) and Arm's (BFDOT, SDOT). Metal does not specify the map of
simdgroup matrices; the one here is what its hardware was observed to use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinygrad.dtype import DType, dtypes

SWIZZLE_BYTES = 128
"""The bytes of a row of a panel. 16-byte chunk i of row r is where chunk `i ^ r % 8` would be."""
SWIZZLE_ROWS = 8
Step = tuple[int, int]
"""What a bit adds to (row, column)."""


@dataclass(frozen=True)
class LaneMap:
    """The element of a matrix that a register of a lane holds, by the bits of both numbers."""

    lanes: tuple[Step, ...]
    """The steps of the bits of the lane, the lowest first; (0, 0) where lanes hold copies."""
    registers: tuple[Step, ...]
    """The steps of the bits of the register."""

    @property
    def count(self) -> int:
        """The number of registers of a lane, of one element each."""
        return 1 << len(self.registers)

    def position(self, lane: int, register: int) -> tuple[int, int]:
        """The row and the column of the element."""
        steps = [s for i, s in enumerate(self.lanes) if lane >> i & 1]
        steps += [s for i, s in enumerate(self.registers) if register >> i & 1]
        return sum(s[0] for s in steps), sum(s[1] for s in steps)

    def contiguous(self, axis: int) -> int:
        """The number of neighbouring registers that hold neighbours along an axis."""
        distance, count = self.spaced(axis)
        return count if distance == 1 else 1

    def spaced(self, axis: int) -> tuple[int, int]:
        """The distance between registers that hold neighbours along an axis, and how many do."""
        first = next((i for i, step in enumerate(self.registers) if _is_along(step, axis, 1)), 0)
        count = 1
        for step in self.registers[first:]:
            if not _is_along(step, axis, count):
                break
            count *= 2
        return 1 << first, count

    def runs(self, axis: int) -> list[list[int]]:
        """The registers of a lane in lists of those that hold neighbours along an axis."""
        weights = [0 if step[1 - axis] else step[axis] for step in self.registers]
        inside = [0]
        while len(inside) in weights:
            bit = 1 << weights.index(len(inside))
            inside += [bit + register for register in inside]
        return [[r + i for i in inside] for r in range(self.count) if not r & inside[-1]]

    def transposed(self) -> LaneMap:
        """The map with rows and columns exchanged."""
        return LaneMap(
            tuple((column, row) for row, column in self.lanes),
            tuple((column, row) for row, column in self.registers),
        )


def _is_along(step: Step, axis: int, length: int) -> bool:
    return step[axis] == length and not step[1 - axis]


@dataclass(frozen=True)
class MatrixInstruction:
    """An instruction, or a few multiply-adds of each lane, that a warp multiplies matrices with."""

    name: str
    """The function of the prelude; empty if lanes compute `c` by multiply-adds of their own."""
    m: int
    n: int
    k: int
    operand: DType
    """The dtype of the elements of `a` and `b`."""
    accumulator: DType
    """The dtype of the elements of `c`."""
    a: LaneMap
    b: LaneMap
    c: LaneMap
    rounds_operands: bool = False
    """Whether elements of the operands lose bits, so that a program has to ask for it."""
    loads_matrices: bool = False
    """Whether a warp can load 8x8 matrices of 16-bit elements, also transposed (ldmatrix)."""
    reads_shared: bool = False
    """Whether it reads operands from shared memory, while the threads continue; the lanes are those
    of several warps then, and the maps of the operands that it reads there are empty."""
    is_swapped: bool = False
    """Whether the function is given `b` and `a`, of which it computes the transpose of `c`."""
    is_tile: bool = False
    """Whether a CPU holds the matrices in tile registers, not in vectors."""
    parts: int = 1
    """The products that add up to a product of operands, which are cut into narrower numbers."""

    @property
    def lanes(self) -> int:
        """The number of lanes of a warp, or of the warps that run it together."""
        return 1 << len(self.c.lanes)

    @property
    def held_side(self) -> int | None:
        """The operand, 0 or 1, that lanes hold while the other one is read from shared memory."""
        if not self.reads_shared:
            return None
        return next((i for i, x in enumerate((self.a, self.b)) if x.registers), None)

    @property
    def orders(self) -> tuple[bool | None, bool | None]:
        """Whether each operand has to be contiguous along the reduction, along its other axis, or
        along either (None).
        """
        held = self.held_side
        if held is None:
            return None, None
        lane_map = (self.a, self.b.transposed())[held]
        is_along = lane_map.spaced(0)[1] == 1
        return (is_along, True) if held == 0 else (True, is_along)

    def transposed(self) -> MatrixInstruction:
        """The instruction with rows and columns exchanged, which the same function computes."""
        maps = {name: getattr(self, of).transposed() for name, of in zip("abc", "bac", strict=True)}
        return replace(self, m=self.n, n=self.m, **maps, is_swapped=not self.is_swapped)

    @property
    def reads_sums(self) -> bool:
        """Whether sums, of instructions side by side, are where lanes have left operands. Those of
        a row are next to each other.
        """
        widest = max(self.n, self.k)
        sums = (*self.c.registers, *_doublings(self.n, widest))
        is_row = [step[0] == 0 for step in self.c.registers]
        return (
            self.a.lanes == self.c.lanes
            and (*self.a.registers, *_doublings(self.k, widest)) == sums
            and is_row == sorted(is_row, reverse=True)
        )

    @property
    def bits(self) -> DType:
        """The dtype of the operands in shared memory: integers for narrow floats."""
        return dtypes.uint16 if self.operand.itemsize == 2 else self.operand

    def fragment(self, lane_map: LaneMap) -> DType:
        """The dtype of the registers of an operand in a lane: pairs where matrices are loaded."""
        if self.loads_matrices:
            return dtypes.uint32.vec(lane_map.count // 2)
        return self.bits.vec(lane_map.count)


def _doublings(width: int, widest: int) -> tuple[Step, ...]:
    """The steps between matrices of a width, side by side, of so many columns together."""
    return tuple((0, width << i) for i in range((widest // width).bit_length() - 1))


@dataclass(frozen=True)
class SharedOperand:
    """How an operand that an instruction reads from shared memory lies there."""

    along_reduction: bool
    """Whether the reduction is contiguous."""
    panel_bytes: int
    """The bytes from a panel to the next."""


@dataclass(frozen=True)
class AsyncProduct:
    """An instruction on operands in shared memory."""

    instruction: MatrixInstruction
    operands: tuple[SharedOperand, SharedOperand]
    """That which lanes hold is not read where it lies."""


# ---- NVIDIA, sm_80 and later: a quad of lanes shares a row of `c` ----

_QUAD_ROWS = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
_MMA_C = LaneMap(_QUAD_ROWS, ((0, 1), (8, 0)))


def _mma_m16n8k16(operand: DType, name: str) -> MatrixInstruction:
    a = LaneMap(_QUAD_ROWS, ((0, 1), (8, 0), (0, 8)))
    b = LaneMap(_QUAD_ROWS, ((0, 1), (0, 8))).transposed()
    return MatrixInstruction(
        name, 16, 8, 16, operand, dtypes.float32, a, b, _MMA_C, loads_matrices=True
    )


MMA_F16 = _mma_m16n8k16(dtypes.float16, "mma_m16n8k16_f16")
MMA_BF16 = _mma_m16n8k16(dtypes.bfloat16, "mma_m16n8k16_bf16")

_TF32_LANES = ((0, 1), (0, 2), (1, 0), (2, 0), (4, 0))
MMA_TF32 = MatrixInstruction(
    "mma_m16n8k8_tf32",
    16,
    8,
    8,
    dtypes.float32,
    dtypes.float32,
    LaneMap(_TF32_LANES, ((8, 0), (0, 4))),
    LaneMap(_TF32_LANES, ((0, 4),)).transposed(),
    _MMA_C,
    rounds_operands=True,
)


# ---- NVIDIA, sm_90a alone: four warps, of which each has 16 rows of `c` ----

_NOWHERE = LaneMap((), ())


def _wgmma(columns: int, operand: DType, name: str) -> MatrixInstruction:
    far = tuple((0, 8 << i) for i in range((columns // 8).bit_length() - 1))
    c = LaneMap((*_QUAD_ROWS, (16, 0), (32, 0)), (*_MMA_C.registers, *far))
    name = f"wgmma_m64n{columns}k16_{name}"
    return MatrixInstruction(
        name, 64, columns, 16, operand, dtypes.float32, _NOWHERE, _NOWHERE, c, reads_shared=True
    )


# rows of the lanes of a column and of two registers: in the order of the PTX ISA and, for rows
# that are contiguous in swizzled panels, in one that reads pairs of them without bank conflicts
_HELD_ROWS = ((1, 0), (2, 0), (4, 0), (16, 0), (32, 0)), (8, 0)
_HELD_PAIRS = ((2, 0), (16, 0), (4, 0), (8, 0), (32, 0)), (1, 0)


def _wgmma_tf32(columns: int, is_along_reduction: bool) -> MatrixInstruction:
    """Rows are held by lanes, so they may lie in either order in shared memory; columns, of which
    the instruction reads 4-byte elements, are contiguous along the reduction.
    """
    x = _wgmma(columns, dtypes.float32, "tf32")
    rows, pair = _HELD_ROWS if is_along_reduction else _HELD_PAIRS
    return replace(
        x,
        name=f"wgmma_m64n{columns}k8_tf32",
        k=8,
        a=LaneMap(((0, 1), (0, 2), *rows), (pair, (0, 4))),
        c=LaneMap(((0, 2), (0, 4), *rows), ((0, 1), pair, *x.c.registers[2:])),
        rounds_operands=True,
    )


WGMMA_COLUMNS = (256, 128, 64)
WGMMA = tuple(
    _wgmma(columns, operand, name)
    for operand, name in ((dtypes.float16, "f16"), (dtypes.bfloat16, "bf16"))
    for columns in WGMMA_COLUMNS
)
WGMMA_TF32 = tuple(
    _wgmma_tf32(columns, order) for order in (True, False) for columns in WGMMA_COLUMNS
)


# ---- AMD: MFMA of CDNA2 and later, with 64 lanes, and WMMA of RDNA3, with 32 ----


def _mfma(side: int, operand: DType, name: str) -> MatrixInstruction:
    """A square MFMA: lanes along a side of the matrix, then along groups of four."""
    along = tuple((1 << i, 0) for i in range(side.bit_length() - 1))
    groups = 6 - len(along)
    deep = tuple((0, 4 << i) for i in range(groups))
    a = LaneMap((*along, *deep), ((0, 1), (0, 2)))
    far = tuple((4 << (groups + i), 0) for i in range(len(along) - 2 - groups))
    c = LaneMap(
        (*((0, 1 << i) for i in range(len(along))), *((4 << i, 0) for i in range(groups))),
        ((1, 0), (2, 0), *far),
    )
    k = 4 << groups
    return MatrixInstruction(name, side, side, k, operand, dtypes.float32, a, a.transposed(), c)


MFMA_F16_16 = _mfma(16, dtypes.float16, "mfma_16x16x16_f16")
MFMA_BF16_16 = _mfma(16, dtypes.bfloat16, "mfma_16x16x16_bf16")
MFMA_F16_32 = _mfma(32, dtypes.float16, "mfma_32x32x8_f16")
MFMA_BF16_32 = _mfma(32, dtypes.bfloat16, "mfma_32x32x8_bf16")


def _wmma(operand: DType, name: str) -> MatrixInstruction:
    """Both halves of the warp hold all of `a` and `b`, and every second row of `c`."""
    rows = ((1, 0), (2, 0), (4, 0), (8, 0), (0, 0))
    a = LaneMap(rows, ((0, 1), (0, 2), (0, 4), (0, 8)))
    c = LaneMap(((0, 1), (0, 2), (0, 4), (0, 8), (1, 0)), ((2, 0), (4, 0), (8, 0)))
    return MatrixInstruction(name, 16, 16, 16, operand, dtypes.float32, a, a.transposed(), c)


WMMA_F16 = _wmma(dtypes.float16, "wmma_16x16x16_f16")
WMMA_BF16 = _wmma(dtypes.bfloat16, "wmma_16x16x16_bf16")


# ---- Apple: simdgroup matrices ----

_SIMDGROUP = LaneMap(((0, 2), (1, 0), (2, 0), (0, 4), (4, 0)), ((0, 1),))


def _simdgroup(operand: DType, name: str) -> MatrixInstruction:
    return MatrixInstruction(
        name, 8, 8, 8, operand, dtypes.float32, _SIMDGROUP, _SIMDGROUP, _SIMDGROUP
    )


SIMDGROUP_F32 = _simdgroup(dtypes.float32, "simdgroup_8x8x8_f32")
SIMDGROUP_F16 = _simdgroup(dtypes.float16, "simdgroup_8x8x8_f16")
SIMDGROUP_BF16 = _simdgroup(dtypes.bfloat16, "simdgroup_8x8x8_bf16")


def multiply_adds(dtype: DType, lanes: int = 32, pairs: bool = False) -> MatrixInstruction:
    """Multiply-adds without a matrix instruction: a lane has 1 x 4 elements of `c` and 2 of k.

    Eight lanes share a row of `a`, the others its columns of `b`, which shared memory broadcasts.
    The elements are neighbours, or two pairs, which fewer banks of shared memory conflict for where
    `b` is contiguous along k.
    """
    near, far = (0, 1), (0, 16 if pairs else 2)
    columns = tuple((0, (2 if pairs else 4) << i) for i in range(3))
    rows = tuple((1 << i, 0) for i in range(lanes.bit_length() - 4))
    none = (0, 0)
    return MatrixInstruction(
        "",
        lanes // 8,
        32,
        2,
        dtype,
        dtype,
        LaneMap((none, none, none, *rows), ((0, 1),)),
        LaneMap((*columns, *(none for _ in rows)), (near, far, (1, 0))),
        LaneMap((*columns, *rows), (near, far)),
    )


# ---- CPUs: one thread holds the matrices, four bytes of a row of `b` next to each other ----


def _of_words(
    name: str,
    size: tuple[int, int],
    operand: DType,
    accumulator: DType,
    *,
    is_tile: bool = False,
    parts: int = 1,
) -> MatrixInstruction:
    """An instruction on `size` rows and columns of sums: `a` is row-major, and the elements of `b`
    that are neighbours along the reduction fill 4 bytes, of which neighbouring columns follow. Rows
    of a tile have 64 bytes, those of other `a` 4.
    """
    m, n = size
    k = (64 if is_tile else 4) // operand.itemsize
    rows = tuple((1 << i, 0) for i in range(m.bit_length() - 1))
    columns = tuple((0, 1 << i) for i in range(n.bit_length() - 1))
    along = tuple((0, 1 << i) for i in range(k.bit_length() - 1))
    near = (4 // operand.itemsize).bit_length() - 1
    b = LaneMap((), (*along[:near], *(step[::-1] for step in columns), *along[near:]))
    maps = LaneMap((), (*along, *rows)), b.transposed(), LaneMap((), (*columns, *rows))
    return MatrixInstruction(
        name, m, n, k, operand, accumulator, *maps, is_tile=is_tile, parts=parts
    )


_TILE, _VECTOR, _SHORT_VECTOR = (16, 16), (1, 16), (1, 4)
AMX_BF16 = _of_words("tdpbf16ps", _TILE, dtypes.bfloat16, dtypes.float32, is_tile=True)
# a float16 number is the sum of two bfloat16 numbers
AMX_F16 = replace(AMX_BF16, operand=dtypes.float16, parts=4)
AMX_INT8 = _of_words("tdpbssd", _TILE, dtypes.int8, dtypes.int32, is_tile=True)
AMX_UINT8 = _of_words("tdpbuud", _TILE, dtypes.uint8, dtypes.int32, is_tile=True)
AVX512_BF16 = _of_words("dpbf16ps", _VECTOR, dtypes.bfloat16, dtypes.float32)
# of unsigned `a` and signed `b`: a * b = (a + 128) * b + 128 * (-1 - b) + 128 * 1
AVX512_VNNI = _of_words("dpbusd", _VECTOR, dtypes.int8, dtypes.int32, parts=3)
NEON_BF16 = _of_words("bfdot", _SHORT_VECTOR, dtypes.bfloat16, dtypes.float32)
NEON_INT8 = _of_words("sdot", _SHORT_VECTOR, dtypes.int8, dtypes.int32)
NEON_UINT8 = _of_words("udot", _SHORT_VECTOR, dtypes.uint8, dtypes.int32)
CPU_FEATURES = (
    (frozenset({"amx-tile", "amx-bf16"}), AMX_BF16),
    (frozenset({"amx-tile", "amx-bf16"}), AMX_F16),
    (frozenset({"amx-tile", "amx-int8"}), AMX_INT8),
    (frozenset({"amx-tile", "amx-int8"}), AMX_UINT8),
    (frozenset({"avx512bf16"}), AVX512_BF16),
    (frozenset({"avx512vnni"}), AVX512_VNNI),
    (frozenset({"neon", "bf16"}), NEON_BF16),
    (frozenset({"neon", "dotprod"}), NEON_INT8),
    (frozenset({"neon", "dotprod"}), NEON_UINT8),
)
"""The features that each instruction of a CPU needs, as LLVM names them, the preferred first."""

NVIDIA = (MMA_F16, MMA_BF16, MMA_TF32)
CDNA_ARCHITECTURES = frozenset({"gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
"""CDNA2, 3 and 4: earlier ones have no such instructions on bfloat16."""
CDNA = (MFMA_F16_32, MFMA_BF16_32, MFMA_F16_16, MFMA_BF16_16)
RDNA3 = (WMMA_F16, WMMA_BF16)
APPLE = (SIMDGROUP_F32, SIMDGROUP_F16, SIMDGROUP_BF16)


def matrix_instructions(dialect: str, architecture: str) -> tuple[MatrixInstruction, ...]:
    """The matrix instructions of a device, the preferred ones first."""
    if dialect == "cuda":
        number = "".join(x for x in architecture if x.isdigit())
        if architecture == "sm_90a":
            swapped = (x.transposed() for x in WGMMA_TF32)
            return (*NVIDIA, *WGMMA, *WGMMA_TF32, *swapped)
        return NVIDIA if number and int(number) >= 80 else ()
    if dialect == "hip":
        if architecture in CDNA_ARCHITECTURES:
            return CDNA
        return RDNA3 if architecture.startswith("gfx11") else ()
    return APPLE if dialect == "metal" else ()
