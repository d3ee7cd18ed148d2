"""Compiled kernels give numpy's results, with plain loops and with every loop optimization."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from test.backend.codegen.kernels import Build, Runner, buffer, flat_index, random_array, sink
from test.devices import only_cpu
from test.evaluator.kernel_graph import interpret
from tinygrad.codegen import get_linear, get_program
from tinygrad.codegen.analysis.identity import identity_element
from tinygrad.codegen.lower.linearize import LoopOrderError, linearize
from tinygrad.codegen.optimize import contraction
from tinygrad.codegen.optimize.lanes import streaming
from tinygrad.codegen.optimize.nest import smallest_divisor
from tinygrad.codegen.optimize.product import footprint, micro_kernel, tiling
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.host_cpu import AVX2_BYTES, host_cpu, host_target
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.settings import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

Arrays = dict[int, numpy.ndarray]
RNG = numpy.random.default_rng(0)
pytestmark = only_cpu
WIDE_BYTES = max(AVX2_BYTES, host_cpu().vector_bytes)
"""Vectors for which some transformations are worth it that are not with SSE."""


def check(
    kernel: UOp,
    arrays: Arrays,
    values: dict[str, int] | None = None,
    tolerance: float = 1e-4,
    parts: int = 3,
    vector_bytes: int | None = None,
    threads: int | None = None,
    **machine: Any,
) -> Runner:
    """Runs a kernel, and compares all arrays with those of the oracle."""
    expected = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, expected, values)
    target = host_target("llvm", vector_bytes, threads=threads)
    runner = Runner(kernel, LLVMRenderer(replace(target, **machine)))
    assert not any("plain loops" in x for x in runner.program.applied)
    runner(arrays, values, parts)
    for slot, array in arrays.items():
        numpy.testing.assert_allclose(
            array.astype("f8"), expected[slot].astype("f8"), rtol=tolerance, atol=tolerance
        )
    return runner


def matmul(m: int, n: int, k: int, left: str = "ik", right: str = "kj", batch: int = 1) -> UOp:
    """`C[z, i, j] = sum over k of A[z, ...] * B[z, ...]`, with operand axes in any order."""
    b = Build()
    z, i, j = b.loops(batch, m, n)
    (reduced,) = b.reduces(k)
    axes = {"i": (i, m), "j": (j, n), "k": (reduced, k)}

    def operand(slot: int, order: str) -> UOp:
        positions = [z, *[axes[c][0] for c in order]]
        sizes = [batch, *[axes[c][1] for c in order]]
        size = int(numpy.prod(sizes))
        return buffer(slot, size).index(flat_index(positions, sizes)).load()

    value = (operand(1, left) * operand(2, right)).reduce(reduced, arg=Ops.ADD)
    target = buffer(0, batch * m * n).index(flat_index([z, i, j], [batch, m, n]))
    return sink(target.store(value, z, i, j), name="matmul")


def matmul_arrays(m: int, n: int, k: int, batch: int = 1) -> Arrays:
    return {
        0: numpy.zeros(batch * m * n, "f4"),
        1: random_array(RNG, dtypes.float32, batch * m * k),
        2: random_array(RNG, dtypes.float32, batch * k * n),
    }


@pytest.mark.parametrize("right", ["kj", "jk"])
@pytest.mark.parametrize("left", ["ik", "ki"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (33, 50, 77), (7, 129, 40), (100, 10, 57)])
def test_matmul_in_every_transposition(shape: tuple[int, int, int], left: str, right: str) -> None:
    m, n, k = shape
    runner = check(matmul(m, n, k, left, right), matmul_arrays(m, n, k))
    assert any("tile" in x for x in runner.program.applied)


@pytest.mark.sample(2)
@pytest.mark.parametrize("n", [1, 3, 10, 17])
@pytest.mark.parametrize("m", [1, 3, 10, 17])
@pytest.mark.parametrize("k", [1, 3, 150])
def test_matmul_of_small_and_odd_sizes(m: int, n: int, k: int) -> None:
    check(matmul(m, n, k), matmul_arrays(m, n, k))


def test_matmul_with_batches() -> None:
    check(matmul(20, 33, 24, right="jk", batch=5), matmul_arrays(20, 33, 24, 5))


@pytest.mark.slow
def test_a_very_long_reduction_is_blocked() -> None:
    m, n, k = 200, 48, 9001
    runner = check(matmul(m, n, k, right="jk"), matmul_arrays(m, n, k), tolerance=1e-2)
    assert any("blocks" in x for x in runner.program.applied)


@pytest.mark.parametrize("k", [1000, 4096])
def test_rows_that_share_cache_sets_are_few_in_a_tile(k: int) -> None:
    # rows that are a multiple of 4096 bytes apart have one set of 8 lines
    target = host_target("llvm", 64, threads=1)
    (note,) = [
        x for x in get_program(matmul(72, 72, k), LLVMRenderer(target)).applied if "tile" in x
    ]
    rows = int(note.split()[1])
    assert (rows > 8) == (k == 1000), note


def test_wide_broadcast_loads_make_tiles_of_two_or_more_vectors() -> None:
    # an AVX2 core loads two operands in the time of two multiply-adds
    target = host_target("llvm", 32, threads=1)
    applied = get_program(matmul(64, 512, 128), LLVMRenderer(target)).applied
    assert any(f"by {n} x 8 lanes" in x for x in applied for n in (2, 3, 4)), applied


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_matmul_with_vectors_of_any_width(vector_bytes: int) -> None:
    check(matmul(40, 70, 90), matmul_arrays(40, 70, 90), vector_bytes=vector_bytes)


@pytest.mark.parametrize("width", [1, 3, 5])
@pytest.mark.parametrize(
    ("size", "pad", "stride"), [(12, 0, 1), (9, 1, 1), (13, 2, 2), (8, 1, 3), (20, 2, 1)]
)
def test_convolution(size: int, pad: int, stride: int, width: int) -> None:
    batch, channels, filters = 3, 5, 20
    out = (size + 2 * pad - width) // stride + 1
    b = Build()
    z, f, y, x = b.loops(batch, filters, out, out)
    c, ky, kx = b.reduces(channels, width, width)
    row, column = y * stride + ky - pad, x * stride + kx - pad
    inside = (row < 0).ne(True) & (row < size) & (column < 0).ne(True) & (column < size)
    position = flat_index([z, c, row, column], [batch, channels, size, size])
    image = buffer(1, batch * channels * size * size).index(position, inside if pad else None)
    pixel = image.load(UOp.const(dtypes.float32, 0.0)) if pad else image.load()
    weights = buffer(2, filters * channels * width * width)
    weight = weights.index(flat_index([f, c, ky, kx], [filters, channels, width, width])).load()
    target = buffer(0, batch * filters * out * out)
    where = target.index(flat_index([z, f, y, x], [batch, filters, out, out]))
    kernel = sink(where.store((pixel * weight).reduce(c, ky, kx, arg=Ops.ADD), z, f, y, x))
    arrays = {
        0: numpy.zeros(batch * filters * out * out, "f4"),
        1: random_array(RNG, dtypes.float32, batch * channels * size * size),
        2: random_array(RNG, dtypes.float32, filters * channels * width * width),
    }
    runner = check(kernel, arrays)
    if (width, pad, stride) in {(5, 2, 1), (3, 1, 1)}:
        assert "windows staged" in runner.program.applied


@pytest.mark.parametrize(("stride", "start"), [(2, 0), (2, 1), (2, 2), (3, 1), (4, 3)])
def test_transposed_convolution(stride: int, start: int) -> None:
    """Rows of both operands depend on the quotient and the remainder of an output row."""
    batch, channels, filters, taps, size, columns = 3, 6, 20, 2, 7, 9
    out = (size - 1) * stride
    b = Build()
    z, f, y, x = b.loops(batch, filters, out, columns)
    c, ky = b.reduces(channels, taps)
    row, phase = (y + start) // stride - ky, (y + start) % stride
    inside = (row < 0).ne(True) & (row < size)
    position = flat_index([z, c, row, x], [batch, channels, size, columns])
    image = buffer(1, batch * channels * size * columns).index(position, inside)
    weight = buffer(2, channels * filters * taps * stride)
    sizes = [channels, filters, taps, stride]
    factor = weight.index(flat_index([c, f, ky, phase], sizes)).load()
    value = (image.load(UOp.const(dtypes.float32, 0.0)) * factor).reduce(c, ky, arg=Ops.ADD)
    target = buffer(0, batch * filters * out * columns)
    where = target.index(flat_index([z, f, y, x], [batch, filters, out, columns]))
    arrays = {
        0: numpy.zeros(batch * filters * out * columns, "f4"),
        1: random_array(RNG, dtypes.float32, batch * channels * size * columns),
        2: random_array(RNG, dtypes.float32, int(numpy.prod(sizes))),
    }
    applied = check(sink(where.store(value, z, f, y, x)), arrays).program.applied
    assert any(text.endswith(f"in {stride} phases") for text in applied), applied
    assert any(text.startswith("tile ") for text in applied), applied


@pytest.mark.parametrize(("batch", "size"), [(20, 32), (32, 24), (3, 100)])
def test_windows_of_a_long_reduction_are_staged_for_a_block(batch: int, size: int) -> None:
    """As in the gradient of a padded convolution by its weight."""
    channels, filters, width = 3, 17, 3
    b = Build()
    f, c, ky, kx = b.loops(filters, channels, width, width)
    z, y, x = b.reduces(batch, size, size)
    row, column = y + ky - 1, x + kx - 1
    inside = (row < 0).ne(True) & (row < size) & (column < 0).ne(True) & (column < size)
    shape = [batch, channels, size, size]
    image = buffer(2, int(numpy.prod(shape))).index(flat_index([z, c, row, column], shape), inside)
    above = [batch, filters, size, size]
    a = buffer(1, int(numpy.prod(above))).index(flat_index([z, f, y, x], above)).load()
    value = (a * image.load(UOp.const(dtypes.float32, 0.0))).reduce(z, y, x, arg=Ops.ADD)
    sizes = [filters, channels, width, width]
    target = buffer(0, int(numpy.prod(sizes)))
    kernel = sink(target.index(flat_index([f, c, ky, kx], sizes)).store(value, f, c, ky, kx))
    arrays = {
        0: numpy.zeros(int(numpy.prod(sizes)), "f4"),
        1: random_array(RNG, dtypes.float32, int(numpy.prod(above))),
        2: random_array(RNG, dtypes.float32, int(numpy.prod(shape))),
    }
    applied = check(kernel, arrays, tolerance=1e-2).program.applied
    assert "windows staged" in applied
    assert any(text.startswith("reduction in blocks of ") for text in applied), applied


@pytest.mark.parametrize("size", [8, 11])
def test_weight_gradient_of_a_convolution(size: int) -> None:
    batch, channels, filters, width = 40, 3, 17, 3
    out = size - width + 1
    b = Build()
    f, c, ky, kx = b.loops(filters, channels, width, width)
    z, y, x = b.reduces(batch, out, out)
    gradient = buffer(1, batch * filters * out * out)
    image = buffer(2, batch * channels * size * size)
    a = gradient.index(flat_index([z, f, y, x], [batch, filters, out, out])).load()
    position = flat_index([z, c, y + ky, x + kx], [batch, channels, size, size])
    value = (a * image.index(position).load()).reduce(z, y, x, arg=Ops.ADD)
    sizes = [filters, channels, width, width]
    target = buffer(0, filters * channels * width * width)
    kernel = sink(target.index(flat_index([f, c, ky, kx], sizes)).store(value, f, c, ky, kx))
    arrays = {
        0: numpy.zeros(filters * channels * width * width, "f4"),
        1: random_array(RNG, dtypes.float32, batch * filters * out * out),
        2: random_array(RNG, dtypes.float32, batch * channels * size * size),
    }
    check(kernel, arrays)


@pytest.mark.sample(2)
@pytest.mark.parametrize("n", [1, 5, 16, 100, 1000])
@pytest.mark.parametrize(
    "dtype", [d for d in dtypes.all if d not in dtypes.fp8s and d is not dtypes.bfloat16]
)
def test_elementwise_in_every_dtype(dtype: DType, n: int) -> None:
    b = Build()
    (i,) = b.loops(n)
    x, y = (buffer(s, n, dtype).index(i).load() for s in (1, 2))
    value = x.alu(Ops.XOR, y) if dtypes.is_bool(dtype) else (x * y + x).alu(Ops.MAX, y)
    kernel = sink(buffer(0, n, dtype).index(i).store(value, i))
    arrays = {s: random_array(RNG, dtype, n) for s in (0, 1, 2)}
    check(kernel, arrays)


@pytest.mark.sample(2)
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
@pytest.mark.parametrize("kept", ["rows", "columns", "none"])
@pytest.mark.parametrize(
    ("rows", "columns"), [(5, 7), (5, 14), (5, 20), (64, 100), (3, 1000), (333, 48)]
)
def test_reductions_along_each_axis(op: Ops, kept: str, rows: int, columns: int) -> None:
    b = Build()
    sizes = {"rows": rows, "columns": columns}
    loops = {name: (b.loops if name == kept else b.reduces)(n)[0] for name, n in sizes.items()}
    position = flat_index([loops["rows"], loops["columns"]], [rows, columns])
    reduced = [r for name, r in loops.items() if name != kept]
    own = [loops[kept]] if kept != "none" else []
    value = buffer(1, rows * columns).index(position).load().reduce(*reduced, arg=op)
    size = sizes.get(kept, 1)
    where = own[0] if own else UOp.const(dtypes.index, 0)
    kernel = sink(buffer(0, size).index(where).store(value, *own))
    arrays = {
        0: numpy.zeros(size, "f4"),
        1: random_array(RNG, dtypes.float32, rows * columns),
    }
    runner = check(kernel, arrays)
    lanes = host_cpu().vector_bytes // 4
    if kept == "rows" and lanes < columns < 2 * lanes:
        # without a loop over the two vectors, of which one is masked
        assert any(f"2 x {lanes} lanes" in x for x in runner.program.applied)


def softmax_store(b: Build, slot: int, rows: int, columns: int, shared: bool = False) -> UOp:
    """Array `slot` is the softmax of the rows of the next array, in base 2."""
    i, j = b.loops(rows, columns)
    (k,) = b.reduces(columns)
    other = k if shared else b.reduces(columns)[0]

    def at(axis: UOp) -> UOp:
        return buffer(slot + 1, rows * columns).index(flat_index([i, axis], [rows, columns])).load()

    maximum = at(k).reduce(k, arg=Ops.MAX)
    total = (at(other) - maximum).exp2().reduce(other, arg=Ops.ADD)
    where = buffer(slot, rows * columns).index(flat_index([i, j], [rows, columns]))
    return where.store((at(j) - maximum).exp2() / total, i, j)


def test_kernels_of_two_softmaxes_keep_the_values_of_both() -> None:
    b = Build()
    kernel = sink(softmax_store(b, 0, 8, 100), softmax_store(b, 2, 8, 200))
    sizes = {0: 800, 1: 800, 2: 1600, 3: 1600}
    arrays = {s: random_array(RNG, dtypes.float32, n) for s, n in sizes.items()}
    applied = check(kernel, arrays).program.applied
    assert sum("row values" in x for x in applied) == 2


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (40, 100), (300, 129)])
def test_elements_read_two_reductions_of_their_row(rows: int, columns: int, shared: bool) -> None:
    kernel = sink(softmax_store(Build(), 0, rows, columns, shared))
    arrays = {
        0: numpy.zeros(rows * columns, "f4"),
        1: random_array(RNG, dtypes.float32, rows * columns),
    }
    applied = check(kernel, arrays, parallel_work=1).program.applied
    # a row is computed by one work item, and its exponentials once
    assert f"grid {rows}" in applied
    assert any("row values" in x for x in applied) == (columns >= 100)


def test_several_stores_share_loops_and_a_grid() -> None:
    b = Build()
    n, m = 5000, 70000
    (i,), (j,) = b.loops(n), b.loops(m)
    first = buffer(1, n).index(i).load()
    second = buffer(4, m).index(j).load()
    kernel = sink(
        buffer(0, n).index(i).store(first + 1.0, i),
        buffer(2, n).index(i).store(first * 2.0, i),
        buffer(3, m).index(j).store(second + 3.0, j),
    )
    sizes = {0: n, 1: n, 2: n, 3: m, 4: m}
    arrays = {s: random_array(RNG, dtypes.float32, size) for s, size in sizes.items()}
    check(kernel, arrays, parts=7)


def test_an_in_place_update_runs_once() -> None:
    n = 1037
    b = Build()
    (i,) = b.loops(n)
    where = buffer(0, n).index(i)
    kernel = sink(where.store(where.load() + 1.0, i))
    check(kernel, {0: random_array(RNG, dtypes.float32, n)})


def test_rows_are_added_in_order_where_indices_repeat() -> None:
    rows, columns, targets = 50, 37, 6
    b = Build()
    (i,) = b.reduces(rows)
    (j,) = b.loops(columns)
    row = buffer(2, rows, dtypes.int32).index(i).load().cast(dtypes.index)
    where = buffer(0, targets * columns).index(row * columns + j)
    added = buffer(1, rows * columns).index(flat_index([i, j], [rows, columns])).load()
    kernel = sink(where.store(where.load() + added, i, j))
    index = RNG.integers(0, targets, rows).astype("i4")
    values = random_array(RNG, dtypes.float32, rows, columns)
    result = numpy.zeros((targets, columns), "f4")
    expected = result.copy()
    numpy.add.at(expected, index, values)
    Runner(kernel)({0: result, 1: values, 2: index})
    numpy.testing.assert_allclose(result, expected)


def test_a_gather_loads_at_loaded_indices() -> None:
    rows, columns, gathered = 30, 45, 200
    b = Build()
    i, j = b.loops(gathered, columns)
    row = buffer(2, gathered, dtypes.int64).index(i).load().cast(dtypes.index)
    inside = (row < 0).ne(True) & (row < rows)
    value = buffer(1, rows * columns).index(row * columns + j, inside)
    loaded = value.load(UOp.const(dtypes.float32, -1.0))
    where = buffer(0, gathered * columns).index(flat_index([i, j], [gathered, columns]))
    arrays = {
        0: numpy.zeros((gathered, columns), "f4"),
        1: random_array(RNG, dtypes.float32, rows, columns),
        2: RNG.integers(-5, rows + 5, gathered),
    }
    check(sink(where.store(loaded, i, j)), arrays)


@pytest.mark.parametrize("n", [0, 1, 13, 500])
def test_a_symbolic_size(n: int) -> None:
    variable = UOp.variable("n", 0, 512)
    b = Build()
    (i,) = b.loops(40)
    (k,) = b.reduces(variable)
    value = buffer(1, 40 * 512).index(i * 512 + k).load().reduce(k, arg=Ops.ADD)
    (j,) = b.loops(variable)
    doubled = buffer(1, 40 * 512).index(j).load() * 2.0
    kernel = sink(buffer(0, 40).index(i).store(value, i), buffer(2, 512).index(j).store(doubled, j))
    arrays = {
        0: numpy.zeros(40, "f4"),
        1: random_array(RNG, dtypes.float32, 40 * 512),
        2: numpy.zeros(512, "f4"),
    }
    check(kernel, arrays, {"n": n})


@pytest.mark.parametrize("op", [Ops.IDIV, Ops.MOD])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint8])
def test_integer_division_truncates_and_never_traps(op: Ops, dtype: DType) -> None:
    n = 400
    b = Build()
    (i,) = b.loops(n)
    value = buffer(1, n, dtype).index(i).load().alu(op, buffer(2, n, dtype).index(i).load())
    kernel = sink(buffer(0, n, dtype).index(i).store(value, i))
    arrays = {s: random_array(RNG, dtype, n) for s in (0, 1, 2)}
    arrays[1][:3], arrays[2][:3] = dtypes.min(dtype), (-1 if dtype in dtypes.sints else 3)
    expected = arrays[0].copy()
    with numpy.errstate(over="ignore"):
        interpret(kernel, {**arrays, 0: expected})
    Runner(kernel)(arrays)
    numpy.testing.assert_array_equal(arrays[0][3:], expected[3:])


def test_maximum_keeps_nan() -> None:
    n = 40
    b = Build()
    (i,) = b.loops(n)
    value = buffer(1, n).index(i).load().maximum(0.0)
    x = RNG.standard_normal(n).astype("f4")
    x[::7] = numpy.nan
    arrays = {0: numpy.zeros(n, "f4"), 1: x}
    Runner(sink(buffer(0, n).index(i).store(value, i)))(arrays)
    numpy.testing.assert_array_equal(arrays[0], numpy.maximum(x, 0))


def test_without_heuristics_loops_stay_loops() -> None:
    with Context(NOOPT=1):
        runner = check(matmul(20, 30, 40), matmul_arrays(20, 30, 40))
    assert runner.program.applied == ()
    assert runner.program.launch.grid == 1
    assert "x float>" not in runner.program.source


# ---- random nests ----


@st.composite
def nests(draw: st.DrawFn) -> tuple[UOp, Arrays, dict[str, int]]:
    """A store of an expression of one or two loads with any strides and up to two reductions."""
    b = Build()
    dims = st.integers(1, 40)
    values: dict[str, int] = {}

    def size() -> int | UOp:
        n = draw(dims)
        if not values and draw(st.integers(0, 4)) == 0:
            values["n"] = draw(st.integers(0, n))
            return UOp.variable("n", 0, n)
        return n

    outputs = [b.loops(size())[0] for _ in range(draw(st.integers(1, 3)))]
    reduced = [b.reduces(size())[0] for _ in range(draw(st.integers(0, 2)))]
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.int32, dtypes.float64, dtypes.int64]))
    arrays: Arrays = {}

    def load(slot: int, axes: list[UOp]) -> UOp:
        chosen = draw(st.permutations(axes))[: draw(st.integers(0, len(axes)))]
        index = UOp.const(dtypes.index, draw(st.integers(0, 3)))
        for r in chosen:
            index = index + r * draw(st.sampled_from([1, 1, 2, 7, 40]))
        form = draw(st.sampled_from(["plain", "masked", "divided"]))
        if form == "divided":
            index = index // 3 * 2 + index % 3
        total = int(index.vmax) + 1
        arrays[slot] = random_array(RNG, dtype, total)
        pointer = buffer(slot, total, dtype)
        if form != "masked":
            return pointer.index(index).load()
        shift = draw(st.integers(0, 9))
        inside = (index < shift).ne(True) & (index < total - 1)
        alternative = UOp.const(dtype, draw(st.integers(0, 2)))
        return pointer.index(index - shift, inside).load(alternative)

    value = load(1, outputs + reduced)
    if draw(st.booleans()):
        value = value.alu(
            draw(st.sampled_from([Ops.MUL, Ops.ADD, Ops.MAX])), load(2, outputs + reduced)
        )
    if reduced:
        split = draw(st.integers(0, len(reduced)))
        for group in (reduced[:split], reduced[split:]):
            if group:
                value = value.reduce(*group, arg=draw(st.sampled_from([Ops.ADD, Ops.MAX])))
    if draw(st.booleans()):
        value = value + load(3, outputs)
    sizes = [int(r.src[0].vmax) for r in outputs]
    total = int(numpy.prod(sizes)) if 0 not in sizes else 1
    arrays[0] = random_array(RNG, dtype, max(1, total))
    where = buffer(0, max(1, total), dtype).index(flat_index(outputs, sizes))
    return sink(where.store(value, *outputs)), arrays, values


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests(), st.sampled_from([16, 32, 64]), st.integers(1, 4))
def test_random_nests(
    case: tuple[UOp, Arrays, dict[str, int]], vector_bytes: int, parts: int
) -> None:
    kernel, arrays, values = case
    empty_max = "n" in values and values["n"] == 0
    if empty_max:
        values = {"n": 1} if kernel.variables()[0].arg[2] >= 1 else values
    check(kernel, arrays, values, parts=parts, vector_bytes=vector_bytes)


def test_a_range_may_be_a_loop_and_a_reduction_axis() -> None:
    n = 24
    b = Build()
    (i,) = b.loops(n)
    row = buffer(1, n * n)
    total = row.index(i * n).load().reduce(i, arg=Ops.ADD)
    kernel = sink(buffer(0, n).index(i).store(row.index(i).load() * total, i))
    arrays = {0: numpy.zeros(n, "f4"), 1: random_array(RNG, dtypes.float32, n * n)}
    check(kernel, arrays)


def test_ranges_keep_their_kinds() -> None:
    b = Build()
    assert b.loops(3)[0].arg.kind is AxisType.LOOP
    assert b.reduces(3)[0].arg.kind is AxisType.REDUCE


@pytest.mark.parametrize("n", [5, 16, 1000])
def test_large_angles_are_reduced_in_a_branch(n: int) -> None:
    b = Build()
    (i,) = b.loops(n)
    angle = buffer(1, n).index(i).load()
    kernel = sink(buffer(0, n).index(i).store(angle.alu(Ops.SIN), i))
    angles = numpy.linspace(-3, 3, n, dtype="f4")
    angles[::7] *= 1e5
    check(kernel, {0: numpy.zeros(n, "f4"), 1: angles}, tolerance=1e-6)
    _, linear = get_linear(kernel, LLVMRenderer(host_target("llvm")))
    (branch,) = [u for u in linear if u.op is Ops.RANGE and u.arg.kind is AxisType.REDUCE]
    inside = linear[linear.index(branch) : linear.index(UOp(Ops.END, dtypes.void, (branch,)))]
    wide = [u for u in linear if u.op is Ops.MUL and u.dtype.scalar() is dtypes.uint64]
    assert wide
    assert set(wide) <= set(inside)


def test_an_expensive_operand_is_computed_once_for_each_element() -> None:
    m, n, k = 45, 64, 70
    b = Build()
    i, j = b.loops(m, n)
    (reduced,) = b.reduces(k)
    left = buffer(1, m * k).index(flat_index([i, reduced], [m, k])).load()
    right = buffer(2, k * n).index(flat_index([reduced, j], [k, n])).load()
    value = ((left * 0.5 + 1.0).sqrt() * right).reduce(reduced, arg=Ops.ADD)
    kernel = sink(buffer(0, m * n).index(flat_index([i, j], [m, n])).store(value, i, j))
    arrays = matmul_arrays(m, n, k)
    arrays[1] = numpy.abs(arrays[1])
    runner = check(kernel, arrays)
    assert any("rows staged" in x for x in runner.program.applied)


@pytest.mark.parametrize("shape", [(64, 80), (33, 100), (5, 300), (256, 96)])
def test_a_transpose_is_blocked(shape: tuple[int, int]) -> None:
    m, n = shape
    b = Build()
    i, j = b.loops(m, n)
    turned = buffer(1, m * n).index(j * m + i).load()
    straight = buffer(2, m * n).index(flat_index([i, j], [m, n])).load()
    kernel = sink(buffer(0, m * n).index(i * n + j).store(turned + straight, i, j))
    arrays = {s: random_array(RNG, dtypes.float32, m * n) for s in (0, 1, 2)}
    runner = check(kernel, arrays, vector_bytes=WIDE_BYTES)
    assert any("transposed" in x for x in runner.program.applied) == (min(m, n) >= 16)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
@pytest.mark.parametrize("is_forward", [True, False])
@pytest.mark.parametrize(
    ("rows", "size", "columns", "kind"),
    [(3, 20, 70, "columns"), (5, 37, 1, "lanes"), (5, 64, 1, "lanes"), (19, 5, 1, "rows")],
)
def test_reductions_of_prefixes_are_running(
    rows: int, size: int, columns: int, kind: str, is_forward: bool, op: Ops
) -> None:
    b = Build()
    row, i, column = b.loops(rows, size, columns)
    (k,) = b.reduces(size)
    sizes = [rows, size, columns]
    x = buffer(1, rows * size * columns).index(flat_index([row, k, column], sizes)).load()
    nothing = identity_element(op, dtypes.float32)
    is_left_out = i < k if is_forward else k < i
    before = buffer(2, rows).index(row).load()
    value = is_left_out.where(nothing, x).reduce(k, arg=op) + before
    where = buffer(0, rows * size * columns).index(flat_index([row, i, column], sizes))
    arrays = {
        0: numpy.zeros(rows * size * columns, "f4"),
        1: random_array(RNG, dtypes.float32, rows * size * columns),
        2: random_array(RNG, dtypes.float32, rows),
    }
    kernel = sink(where.store(value, row, i, column))
    applied = check(kernel, arrays, vector_bytes=WIDE_BYTES).program.applied
    assert any(x.startswith("running") and kind in x for x in applied), applied


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32])
@pytest.mark.parametrize(("rows", "columns"), [(64, 1024), (91, 1100), (8, 2051)])
def test_a_column_reduction_streams_long_rows(
    monkeypatch: pytest.MonkeyPatch, op: Ops, dtype: DType, rows: int, columns: int
) -> None:
    monkeypatch.setattr(streaming, "MIN_ARRAY_BYTES", 0)
    b = Build()
    z, j = b.loops(2, columns)
    (i,) = b.reduces(rows)
    source = buffer(1, 2 * rows * columns, dtype)
    value = source.index(flat_index([z, i, j], [2, rows, columns])).load().reduce(i, arg=op)
    target = buffer(0, 2 * columns, dtype).index(flat_index([z, j], [2, columns]))
    sizes = (2 * columns, 2 * rows * columns)
    arrays = {slot: random_array(RNG, dtype, size) for slot, size in enumerate(sizes)}
    runner = check(sink(target.store(value * 2, z, j)), arrays, threads=2)
    assert any("rows of" in x for x in runner.program.applied)


def test_a_grid_has_work_items_for_every_thread_of_the_renderer() -> None:
    b = Build()
    i, j = b.loops(512, 512)
    (k,) = b.reduces(512)
    left = buffer(1, 512 * 512).index(i * 512 + k).load()
    right = buffer(2, 512 * 512).index(k * 512 + j).load()
    product = (left * right).reduce(k, arg=Ops.ADD)
    kernel = sink(buffer(0, 512 * 512).index(i * 512 + j).store(product, i, j))
    renderers = {n: LLVMRenderer(host_target("llvm", 32, threads=n)) for n in (2, 16, 64)}
    grids = {n: get_program(kernel, x).launch.items for n, x in renderers.items()}
    assert all(grid >= n for n, grid in grids.items())
    assert grids[2] < grids[64]


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 3000))
def test_the_smallest_divisor_in_a_range_is_that_of_a_search(n: int, start: int, more: int) -> None:
    stop = start + more
    expected = next((d for d in range(start, stop) if n % d == 0), 0)
    assert smallest_divisor(n, start, stop) == expected


def test_a_grid_of_many_items_is_split_without_trying_all_sizes() -> None:
    # 2^40 + 15 is a prime: a search of all sizes would take minutes
    prime, wanted = (1 << 40) + 15, 1 << 41
    b = Build()
    i, j = b.loops(3, prime)
    kernel = sink(buffer(0, 3 * prime).index(i * prime + j).store(1.0, i, j))
    target = replace(host_target("llvm", 32, threads=1), enough_items=wanted, vector_bytes=1)
    assert get_program(kernel, LLVMRenderer(target)).launch.items == 3 * prime


def test_a_reduction_over_blocks_with_headers_is_vectorized() -> None:
    rows, columns, size, head = 96, 64, 32, 5
    b = Build()
    (i,) = b.loops(rows)
    (reduced,) = b.reduces(columns)
    blocks = rows * columns // size
    block = i * (columns // size) + reduced // size
    value = buffer(1, blocks * (head + size)).index(block * (head + size) + reduced % size + head)
    total = (value.load() * buffer(2, columns).index(reduced).load()).reduce(reduced, arg=Ops.ADD)
    kernel = sink(buffer(0, rows).index(i).store(total, i))
    sizes = {0: rows, 1: blocks * (head + size), 2: columns}
    runner = check(kernel, {s: random_array(RNG, dtypes.float32, n) for s, n in sizes.items()})
    assert any("reduction loop" in x for x in runner.program.applied)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(96, 300, 64), (97, 131, 70), (13, 200, 130), (64, 64, 500)]
)
def test_rows_scattered_along_the_reduction_are_staged_for_many_columns(
    m: int, n: int, k: int, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_kernel, "MAX_PANEL_BYTES", 1 << 14)
    monkeypatch.setattr(micro_kernel, "MAX_STAGED_ACCUMULATOR_BYTES", 1 << 13)
    monkeypatch.setattr(micro_kernel, "STAGED_COLUMNS", 128)
    monkeypatch.setattr(tiling, "MAX_ROW_BYTES", 1 << 12)
    monkeypatch.setattr(tiling, "MAX_STREAMED_ROWS", 0)
    stride = 99
    b = Build()
    i, j = b.loops(m, n)
    (reduced,) = b.reduces(k)
    left = buffer(1, k * stride).index(flat_index([reduced, i], [k, stride])).load()
    right = buffer(2, k * n).index(flat_index([reduced, j], [k, n])).load()
    where = buffer(0, m * n).index(flat_index([i, j], [m, n]))
    value = (left * right).reduce(reduced, arg=Ops.ADD)
    kernel = sink(where.store(value + where.load() if in_place else value, i, j))
    arrays = matmul_arrays(m, n, k)
    arrays[1] = random_array(RNG, dtypes.float32, k * stride)
    runner = check(kernel, arrays)
    assert any("rows staged" in x for x in runner.program.applied)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("left", ["ik", "ki"])
@pytest.mark.parametrize(("m", "n", "k"), [(20, 650, 130), (9, 1100, 64), (33, 300, 71)])
def test_the_panel_of_a_few_rows_is_streamed(
    m: int, n: int, k: int, left: str, threads: int
) -> None:
    kernel = matmul(m, n, k, left)
    applied = check(kernel, matmul_arrays(m, n, k), threads=threads).program.applied
    assert any("panel streamed" in x for x in applied), applied


def test_a_work_item_packs_the_panels_of_few_columns() -> None:
    # one of each of the outer columns would be too many for the stack
    outer, inner, rows, k = 64, 256, 96, 128
    b = Build()
    z, i, y, x = b.loops(16, rows, outer, inner)
    (reduced,) = b.reduces(k)
    left = buffer(1, rows * k).index(flat_index([i, reduced], [rows, k])).load()
    sizes = [16, k, outer, inner]
    right = buffer(2, int(numpy.prod(sizes))).index(flat_index([z, reduced, y, x], sizes)).load()
    sizes = [16, rows, outer, inner]
    where = buffer(0, int(numpy.prod(sizes))).index(flat_index([z, i, y, x], sizes))
    kernel = sink(where.store((left * right).reduce(reduced, arg=Ops.ADD), z, i, y, x))
    source = get_program(kernel, LLVMRenderer(host_target("llvm", threads=1))).source
    scratch = [int(n) for n in re.findall(r"alloca \[(\d+) x float\]", source)]
    assert scratch
    assert 4 * sum(scratch) <= 1 << 21


@pytest.mark.parametrize("rows", [199, 700])
def test_a_matmul_dequantizes_each_block_once(rows: int) -> None:
    vectors, columns, size, head = 64, 96, 32, 5
    b = Build()
    i, j = b.loops(vectors, rows)
    (reduced,) = b.reduces(columns)
    blocks = rows * columns // size
    start = (j * (columns // size) + reduced // size) * (head + size)
    memory = buffer(1, blocks * (head + size))
    number = memory.index(start + reduced % size + head).load() * memory.index(start).load()
    number = number + memory.index(start + 1).load()
    other = buffer(2, vectors * columns).index(flat_index([i, reduced], [vectors, columns])).load()
    value = (other * number).reduce(reduced, arg=Ops.ADD)
    where = buffer(0, vectors * rows).index(flat_index([i, j], [vectors, rows]))
    sizes = {0: vectors * rows, 1: blocks * (head + size), 2: vectors * columns}
    arrays = {s: random_array(RNG, dtypes.float32, n) for s, n in sizes.items()}
    runner = check(sink(where.store(value, i, j)), arrays)
    (note,) = [x for x in runner.program.applied if x.startswith("tile")]
    assert "rows staged" in note or "panel packed" in note


@pytest.mark.parametrize(("m", "n", "k"), [(2, 50, 128), (5, 33, 77), (8, 64, 40)])
def test_a_skinny_product_loads_each_element_of_a_matrix_once(m: int, n: int, k: int) -> None:
    for shape, left, right in (((m, n, k), "ik", "jk"), ((n, m, k), "ik", "jk")):
        runner = check(matmul(*shape, left, right), matmul_arrays(*shape))
        assert f"skinny tile of {m} outputs" in runner.program.applied
    # rows that are contiguous along the outputs are read in that order
    runner = check(matmul(m, n, k, "ik", "kj"), matmul_arrays(m, n, k))
    assert not any("skinny" in x for x in runner.program.applied)


@pytest.mark.parametrize("count", [1, 37, 90])
def test_contractions_with_symbolic_rows_are_tiled(count: int) -> None:
    vectors, max_rows, columns = 48, 90, 64
    b = Build()
    i, j = b.loops(vectors, UOp.variable("n", 1, max_rows))
    (reduced,) = b.reduces(columns)
    left = buffer(1, vectors * columns).index(flat_index([i, reduced], [vectors, columns])).load()
    right = (
        buffer(2, max_rows * columns).index(flat_index([j, reduced], [max_rows, columns])).load()
    )
    where = buffer(0, vectors * max_rows).index(flat_index([i, j], [vectors, max_rows]))
    sizes = {0: vectors * max_rows, 1: vectors * columns, 2: max_rows * columns}
    arrays = {s: random_array(RNG, dtypes.float32, n) for s, n in sizes.items()}
    value = (left * right).reduce(reduced, arg=Ops.ADD)
    runner = check(sink(where.store(value, i, j)), arrays, {"n": count})
    assert any("tile" in x for x in runner.program.applied)


@pytest.mark.parametrize("stride", [-1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", [10, 16, 100])
def test_strided_loads_do_not_read_past_the_end(n: int, stride: int) -> None:
    b = Build()
    (i,) = b.loops(n)
    size = (n - 1) * abs(stride) + 1
    position = i * stride + (n - 1 if stride < 0 else 0)
    value = buffer(1, size).index(position).load() + 1.0
    kernel = sink(buffer(0, n).index(i).store(value, i))
    check(kernel, {0: numpy.zeros(n, "f4"), 1: random_array(RNG, dtypes.float32, size)})


@pytest.mark.parametrize("n", [7, 20, 40, 48])
@pytest.mark.parametrize("pattern", ["pairs", "backward pairs", "tiles of 4", "pairs of 3"])
def test_repeated_elements_are_loaded_once(pattern: str, n: int) -> None:
    b = Build()
    (i,) = b.loops(n)
    position = {
        "pairs": i // 2,
        "backward pairs": i // 2 * -1 + (n - 1) // 2,
        "tiles of 4": i % 4,
        "pairs of 3": i // 2 * 3 + i % 2,
    }[pattern]
    size = int(position.vmax) + 1
    value = buffer(1, size).index(position).load() * 2.0
    kernel = sink(buffer(0, n).index(i).store(value, i))
    arrays = {0: numpy.zeros(n, "f4"), 1: random_array(RNG, dtypes.float32, size)}
    runner = check(kernel, arrays, vector_bytes=WIDE_BYTES)
    assert "gather" not in runner.program.source


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64, dtypes.float32])
def test_matmul_of_other_floats_accumulates_in_the_wide_type(dtype: DType) -> None:
    m, n, k = 40, 50, 60
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    b = Build()
    i, j = b.loops(m, n)
    (reduced,) = b.reduces(k)
    left = buffer(1, m * k, dtype).index(flat_index([i, reduced], [m, k])).load().cast(wide)
    right = buffer(2, k * n, dtype).index(flat_index([reduced, j], [k, n])).load().cast(wide)
    value = (left * right).reduce(reduced, arg=Ops.ADD).cast(dtype)
    kernel = sink(buffer(0, m * n, dtype).index(flat_index([i, j], [m, n])).store(value, i, j))
    sizes = {0: m * n, 1: m * k, 2: k * n}
    arrays = {s: random_array(RNG, dtype, size) for s, size in sizes.items()}
    runner = check(kernel, arrays, vector_bytes=WIDE_BYTES)
    # by registers, or by a matrix instruction if this processor has one of the dtype
    assert any("tile" in x or "blocks" in x for x in runner.program.applied)


def test_an_epilogue_may_read_the_output_in_place() -> None:
    m, n, k = 33, 70, 50
    plain = matmul(m, n, k).src[0]
    where, value, *loops = plain.src
    kernel = sink(where.store(where.load() + value.maximum(0.0), *loops))
    arrays = matmul_arrays(m, n, k)
    arrays[0] = random_array(RNG, dtypes.float32, m * n)
    check(kernel, arrays)


@pytest.mark.parametrize(
    ("size", "limit", "steps"),
    [(2560, 2048, 1280), (9728, 1024, 608), (100, 64, 50), (127, 100, 96), (7, 8, 7), (13, 9, 9)],
)
def test_blocks_of_a_reduction_are_whole_and_equal_if_they_can_be(
    size: int, limit: int, steps: int
) -> None:
    assert micro_kernel.block_steps(size, limit) == steps


# accumulators in registers; in memory, where a panel is blocked
@pytest.mark.parametrize(("panel_bytes", "second"), [(1 << 18, "%acc1 ="), (4096, "%scratch5 =")])
def test_added_products_share_accumulators(
    panel_bytes: int, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_kernel, "MAX_PANEL_BYTES", panel_bytes)
    m, n, k, depth = 40, 70, 60, 90
    plain = matmul(m, n, k).src[0]
    where, value, z, i, j = plain.src
    reduced = UOp.range(depth, 9, AxisType.REDUCE)
    left = buffer(3, m * depth).index(flat_index([i, reduced], [m, depth])).load()
    right = buffer(4, n * depth).index(flat_index([j, reduced], [n, depth])).load()
    total = value + 1.0 + (right * left).reduce(reduced, arg=Ops.ADD)
    arrays = matmul_arrays(m, n, k)
    arrays |= {3: random_array(RNG, dtypes.float32, m * depth)}
    arrays |= {4: random_array(RNG, dtypes.float32, n * depth)}
    runner = check(sink(where.store(total, z, i, j)), arrays, tolerance=2e-3)
    assert any("2 sums" in x for x in runner.program.applied)
    assert any("blocks" in x for x in runner.program.applied) == (panel_bytes == 4096)
    assert second not in runner.program.source


@pytest.mark.parametrize(
    "combine",
    [
        lambda a, b, c: a + (b + c),
        lambda a, b, c: (a + b) + c,
        lambda a, b, c: (a + b) + (c + a),
        lambda a, b, c: (a + (b + c)) * a,
    ],
)
def test_added_sums_are_right_in_any_order(combine: Callable[..., UOp]) -> None:
    rows = UOp.range(3, 0)
    arrays: Arrays = {0: numpy.zeros(3, "f4")}
    sums: list[UOp] = []
    for slot in (1, 2, 3):
        n = 5 + slot
        column = UOp.range(n, slot, AxisType.REDUCE)
        address = buffer(slot, 3 * n).index(flat_index([column, rows], [n, 3]))
        sums.append(address.load().reduce(column, arg=Ops.ADD))
        arrays[slot] = random_array(RNG, dtypes.float32, 3 * n)
    check(sink(buffer(0, 3).index(rows).store(combine(*sums), rows)), arrays, tolerance=1e-5)


def test_loops_that_cannot_be_ordered_are_an_error() -> None:
    a, b = UOp.range(3, 0), UOp.range(4, 1)
    first = buffer(0, 12).index(a).store(b.cast(dtypes.float32), a)
    second = buffer(1, 12).index(b).store(a.cast(dtypes.float32), b)
    with pytest.raises(LoopOrderError):
        linearize(UOp.sink(first, second))


# ---- random sums of products ----


@st.composite
def contractions(draw: st.DrawFn) -> tuple[UOp, Arrays]:
    """Sums of products over axes of either operand or both, possibly with a sliding window."""
    b = Build()
    dims = st.integers(1, 21)
    only_left, only_right, shared = (draw(st.integers(*x)) for x in ((1, 2), (1, 2), (0, 1)))
    left_axes = b.loops(*[draw(dims) for _ in range(only_left)])
    right_axes = b.loops(*[draw(dims) for _ in range(only_right)])
    both = b.loops(*[draw(st.integers(1, 4)) for _ in range(shared)])
    arrays: Arrays = {}

    def load(slot: int, axes: list[UOp], window: bool) -> UOp:
        order = list(draw(st.permutations(axes)))
        if window:
            # the last two axes index their sum, shifted into the padding
            *order, x, k = order
            pad = draw(st.integers(0, 3))
            position = x + k - pad
            size = max(1, int(x.vmax) + int(k.vmax) + 1 - 2 * pad)
            inside = (position < 0).ne(True) & (position < size)
            parts, sizes = [*order, position], [*(int(r.vmax) + 1 for r in order), size]
        else:
            parts, sizes, inside = list(order), [int(r.vmax) + 1 for r in order], None
        total = int(numpy.prod(sizes))
        arrays[slot] = random_array(RNG, dtypes.float32, total)
        address = buffer(slot, total).index(flat_index(parts, sizes), inside)
        return address.load() if inside is None else address.load(UOp.const(dtypes.float32, 0.0))

    terms: list[UOp] = []
    for number in range(draw(st.integers(1, 3))):
        reduced = b.reduces(*[draw(dims) for _ in range(draw(st.integers(1, 3)))])
        left = load(2 * number + 1, [*left_axes, *both, *reduced], draw(st.booleans()))
        right = load(2 * number + 2, [*right_axes, *both, *reduced], False)
        if draw(st.booleans()):
            left = (left * left + 1.0).sqrt()
        factors = (left, right) if draw(st.booleans()) else (right, left)
        terms.append((factors[0] * factors[1]).reduce(*reduced, arg=Ops.ADD))
        if draw(st.booleans()):
            terms.append(right.const_like(0.5))
    value = functools.reduce(operator.add, terms)
    if draw(st.booleans()):
        value = value.maximum(0.0)
    outputs = list(draw(st.permutations([*left_axes, *right_axes, *both])))
    sizes = [int(r.vmax) + 1 for r in outputs]
    total = int(numpy.prod(sizes))
    arrays[0] = random_array(RNG, dtypes.float32, total)
    where = buffer(0, total).index(flat_index(outputs, sizes))
    if draw(st.integers(0, 3)) == 0:
        value = value + where.load()
    loops = list(draw(st.permutations(outputs)))
    return sink(where.store(value, *loops)), arrays


@pytest.mark.parametrize("op", [Ops.EXP, Ops.SIN])
def test_a_short_reduction_of_a_function_has_no_more_code_than_a_long_one(op: Ops) -> None:
    def code(rows: int) -> bytes:
        b = Build()
        (i,), (r,) = b.loops(512), b.reduces(rows)
        value = buffer(1, rows * 512).index(flat_index([r, i], [rows, 512])).load()
        total = UOp(op, value.dtype, (value,)).reduce(r, arg=Ops.ADD)
        return Runner(sink(buffer(0, 512).index(i).store(total, i))).object_code

    assert len(code(10)) <= 1.5 * len(code(300))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(contractions(), st.sampled_from([16, 32, 64]), st.sampled_from([256, 4096, 1 << 18]))
def test_random_contractions(case: tuple[UOp, Arrays], vector_bytes: int, panel_bytes: int) -> None:
    kernel, arrays = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contraction, "MIN_PRODUCTS", 1)
        patch.setattr(micro_kernel, "MAX_PANEL_BYTES", panel_bytes)
        patch.setattr(micro_kernel, "MAX_ACCUMULATOR_BYTES", 4 * panel_bytes)
        patch.setattr(footprint, "MIN_REUSE", 0)
        check(kernel, arrays, tolerance=2e-3, vector_bytes=vector_bytes, parallel_work=1)
