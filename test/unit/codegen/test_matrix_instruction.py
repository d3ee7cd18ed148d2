"""The lane maps of matrix instructions."""

import itertools

import numpy as np
import pytest

from tinygrad import dtypes
from tinygrad.renderer.matrix_instruction import (
    APPLE,
    CDNA,
    CPU_FEATURES,
    NVIDIA,
    RDNA3,
    WGMMA,
    WGMMA_TF32,
    LaneMap,
    MatrixInstruction,
    matrix_instructions,
    multiply_adds,
)

MULTIPLY_ADDS = (multiply_adds(dtypes.float32), multiply_adds(dtypes.float32, lanes=64))
CPUS = tuple(x for _, x in CPU_FEATURES)
ALL = (*NVIDIA, *CDNA, *RDNA3, *APPLE, *CPUS, *MULTIPLY_ADDS)
NAMES = [x.name or f"multiply_adds_{x.lanes}" for x in ALL]


def held(lane_map: LaneMap) -> list[tuple[int, int]]:
    """The elements of all registers of all lanes."""
    lanes = range(1 << len(lane_map.lanes))
    return [lane_map.position(x, r) for x in lanes for r in range(lane_map.count)]


def emulate(x: MatrixInstruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What the warp computes from its registers alone."""
    shapes = (x.m, x.k), (x.k, x.n)
    spread = [np.full(shape, np.nan) for shape in shapes]
    for matrix, lane_map, into in zip((a, b), (x.a, x.b), spread, strict=True):
        for lane in range(x.lanes):
            for register in range(lane_map.count):
                into[lane_map.position(lane, register)] = matrix[lane, register]
    product = spread[0] @ spread[1]
    return np.array(
        [[c[i, r] + product[x.c.position(i, r)] for r in range(x.c.count)] for i in range(x.lanes)]
    )


@pytest.mark.parametrize("x", ALL, ids=NAMES)
def test_every_element_is_held_and_each_of_c_by_one_register(x):
    shapes = {"a": (x.m, x.k), "b": (x.k, x.n), "c": (x.m, x.n)}
    for name, shape in shapes.items():
        positions = held(getattr(x, name))
        assert set(positions) == set(np.ndindex(shape)), name
        copies = len(positions) // (shape[0] * shape[1])
        assert all(positions.count(p) == copies for p in set(positions)), name
        assert name != "c" or copies == 1


@pytest.mark.parametrize("x", ALL, ids=NAMES)
def test_registers_filled_by_the_maps_give_the_product(x):
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-8, 8, s) for s in ((x.m, x.k), (x.k, x.n), (x.m, x.n)))
    lanes = [
        np.array(
            [[m[f.position(i, r)] for r in range(f.count)] for i in range(x.lanes)], dtype=float
        )
        for m, f in ((a, x.a), (b, x.b), (c, x.c))
    ]
    result = emulate(x, *lanes)
    expected = a @ b + c
    for lane in range(x.lanes):
        for register in range(x.c.count):
            assert result[lane, register] == expected[x.c.position(lane, register)]


def test_maps_are_those_of_the_vendors():
    """A few formulas as the vendors write them, against the bits."""
    f16, _, tf32 = NVIDIA
    big, small = CDNA[0], CDNA[2]
    for lane in range(32):
        group, pair = lane // 4, lane % 4
        for i in range(8):
            row = group if i < 2 or 4 <= i < 6 else group + 8
            assert f16.a.position(lane, i) == (row, pair * 2 + i % 2 + (8 if i >= 4 else 0))
        for i in range(4):
            assert f16.b.position(lane, i) == (pair * 2 + i % 2 + (8 if i >= 2 else 0), group)
            assert f16.c.position(lane, i) == (group + 8 * (i >= 2), pair * 2 + i % 2)
            assert tf32.a.position(lane, i) == (group + 8 * (i % 2), pair + 4 * (i >= 2))
        for i in range(2):
            assert tf32.b.position(lane, i) == (pair + 4 * i, group)
        for i in range(8):
            assert RDNA3[0].c.position(lane, i) == (2 * i + lane // 16, lane % 16)
    for lane in range(64):
        for i in range(4):
            assert small.a.position(lane, i) == (lane % 16, 4 * (lane // 16) + i)
            assert small.c.position(lane, i) == (4 * (lane // 16) + i, lane % 16)
            assert big.b.position(lane, i) == (4 * (lane // 32) + i, lane % 32)
        for i in range(16):
            row = 8 * (i // 4) + 4 * (lane // 32) + i % 4
            assert big.c.position(lane, i) == (row, lane % 32)


@pytest.mark.parametrize("x", WGMMA, ids=lambda x: x.name)
def test_four_warps_have_16_rows_each_of_what_they_multiply_together(x):
    assert x.reads_shared and (x.lanes, x.m, x.k) == (128, 64, 16)
    assert sorted(held(x.c)) == list(np.ndindex(x.m, x.n))
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(x.c.count):
            row = warp * 16 + lane // 4 + i // 2 % 2 * 8
            assert x.c.position(thread, i) == (row, i // 4 * 8 + lane % 4 * 2 + i % 2)


@pytest.mark.parametrize("x", WGMMA_TF32, ids=lambda x: f"{x.name} {x.orders}")
def test_four_warps_hold_16_rows_each_that_they_multiply_with_shared_columns(x):
    assert (x.held_side, x.lanes, x.m, x.k) == (0, 128, 64, 8)
    assert sorted(held(x.a)) == list(np.ndindex(x.m, x.k))
    assert sorted(held(x.c)) == list(np.ndindex(x.m, x.n))
    # rows may have other names than in the PTX ISA, the same in the operand and the sums
    isa = [[None] * 2 for _ in range(64)]
    for thread in range(128):
        row = thread // 32 * 16 + thread % 32 // 4
        for i in range(4):
            held_row, column = x.a.position(thread, i)
            assert column == thread % 4 + i // 2 * 4
            assert isa[row + i % 2 * 8][0] in (None, held_row)
            isa[row + i % 2 * 8][0] = held_row
        for i in range(x.c.count):
            held_row, column = x.c.position(thread, i)
            assert column == i // 4 * 8 + thread % 4 * 2 + i % 2
            isa[row + i // 2 % 2 * 8][1] = held_row
    assert all(a == c for a, c in isa) and sorted(a for a, _ in isa) == list(range(64))
    assert x.transposed().held_side == 1 and x.transposed().orders == x.orders[::-1]


def test_lanes_that_hold_an_operand_read_it_from_different_banks():
    """In swizzled rows of 128 bytes: each bank once, or once by half of accesses to 8 bytes."""
    for x in (WGMMA_TF32[0], WGMMA_TF32[-1]):
        is_along = x.orders[0]
        banks = []
        for lane in range(32):
            row, deep = x.a.position(lane, 0)
            line, column = (row, deep) if is_along else (deep, row)
            word = (column // 4 ^ line % 8) % 8 * 4 + column % 4
            banks.append([word] if is_along else [word, word + 1])
        for half in (banks,) if is_along else (banks[:16], banks[16:]):
            assert sorted(itertools.chain.from_iterable(half)) == list(range(32))


def test_a_device_has_the_instructions_of_its_architecture():
    tf32 = (*WGMMA_TF32, *(x.transposed() for x in WGMMA_TF32))
    assert matrix_instructions("cuda", "sm_90a") == (*NVIDIA, *WGMMA, *tf32)
    assert matrix_instructions("cuda", "sm_90") == matrix_instructions("cuda", "sm_100a") == NVIDIA
    assert matrix_instructions("cuda", "sm_75") == ()
    assert matrix_instructions("hip", "gfx942") == CDNA
    assert matrix_instructions("hip", "gfx1100") == RDNA3
    assert matrix_instructions("hip", "gfx1030") == ()
    assert matrix_instructions("opencl", "") == ()
