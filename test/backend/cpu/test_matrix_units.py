"""Products of narrow numbers by matrix instructions of a CPU, against float64 and int64."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from test.backend.codegen.kernels import Build, buffer, sink
from tinygrad import Context, Device, Tensor, Variable, dtypes
from tinygrad.codegen import get_linear
from tinygrad.codegen.optimize.product.matrix_units import MAX_DEPTH_BYTES
from tinygrad.nn.state.ggml import FORMATS
from tinygrad.renderer.host_cpu import host_matrix_instructions, host_target
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.renderer.matrix_instruction import MatrixInstruction
from tinygrad.uop import Ops

KNOWN = host_matrix_instructions()
FLOATS = [x for x in KNOWN if dtypes.is_float(x.operand)]
INTEGERS = [x for x in KNOWN if dtypes.is_int(x.operand)]
LAYOUTS = ("NN", "NT", "TN", "TT")
SIZES = [(16, 16, 32), (33, 75, 99), (130, 40, MAX_DEPTH_BYTES + 70)]
# bfdot rounds to odd, so to a neighbour of the sum, not the nearest
ROUNDING = 2.0**-23 if any(x.name == "bfdot" for x in KNOWN) else 2.0**-24
pytestmark = pytest.mark.skipif(
    not KNOWN or Device.DEFAULT != "CPU", reason="this machine has no matrix instructions"
)


@pytest.fixture(params=FLOATS, ids=lambda x: f"{x.name}_{x.operand.name}")
def instruction(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MatrixInstruction]:
    with_only(request.param, monkeypatch)
    yield request.param


def with_only(x: MatrixInstruction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels use one matrix instruction."""
    device = Device["CPU"]
    monkeypatch.setattr(device, "_target", replace(device.target, matrix=(x,)))


def operands(
    layout: str, rows: int, columns: int, depth: int, dtype: dtypes.DType
) -> tuple[Tensor, Tensor]:
    """Random matrices (rows, depth) and (depth, columns), of which "T" lie transposed in memory."""
    rng = np.random.default_rng(rows + columns + depth)
    found = []
    for letter, (m, n) in zip(layout, ((rows, depth), (depth, columns)), strict=True):
        shape = (m, n) if letter == "N" else (n, m)
        if dtypes.is_int(dtype):
            low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
            x = Tensor(rng.integers(low, high, shape, endpoint=True), dtype=dtype).realize()
        else:
            x = Tensor(rng.standard_normal(shape), dtype=dtype).realize()
        found.append(x if letter == "N" else x.T)
    return found[0], found[1]


def float64(x: Tensor) -> np.ndarray:
    return x.cast(dtypes.float64).numpy()


def assert_close(result: Tensor, a: Tensor, b: Tensor) -> None:
    """Products are exact in float32, and a sum rounds once for each. Those of float16 numbers are
    added in parts, whose magnitudes add up to 1 + 2**-7 times that of the product.
    """
    x, y = float64(a), float64(b)
    bound = (1 + 2.0**-7) * x.shape[-1] * ROUNDING * (np.abs(x) @ np.abs(y))
    assert result.dtype is dtypes.float32
    assert np.all(np.abs(float64(result) - x @ y) <= bound)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_are_exact_and_summed_in_float32(size, layout, instruction):
    a, b = operands(layout, *size, instruction.operand)
    assert_close(a.matmul(b, dtype=dtypes.float32), a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("x", INTEGERS, ids=lambda x: x.name)
def test_integer_products_are_exact(x, size, layout, monkeypatch):
    with_only(x, monkeypatch)
    a, b = operands(layout, *size, x.operand)
    result = a.matmul(b, dtype=dtypes.int32)
    exact = a.numpy().astype("i8") @ b.numpy().astype("i8")
    np.testing.assert_array_equal(result.numpy(), exact)


def test_products_are_computed_by_the_instruction(instruction, capsys):
    a, b = operands("NN", 48, 80, 96, instruction.operand)
    with Context(DEBUG=3):
        (a @ b).realize()
    assert f"{instruction.name} in blocks of" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K", "Q8_0"])
def test_blocks_of_quantised_numbers_are_packed_by_vectors(name, instruction, capsys):
    if instruction.operand is not dtypes.bfloat16:
        pytest.skip("the numbers of blocks are rounded to bfloat16")
    format = next(x for x in FORMATS.values() if x.name == name)
    # 16 rows, so a packed number is used too rarely to be gathered
    blocks = np.zeros((48, 512 // format.elements, format.nbytes), "u1")
    blocks[...] = np.arange(blocks.size, dtype="u4").reshape(blocks.shape) % 59
    b = format.dequantize(Tensor(blocks)).flatten(-2).cast(dtypes.bfloat16)
    a = operands("NN", 16, 48, 512, dtypes.bfloat16)[0]
    with Context(DEBUG=3):
        result = a.matmul(b.T, dtype=dtypes.float32).realize()
    assert f"{instruction.name} in blocks of" in capsys.readouterr().out
    assert_close(result, a, b.T.contiguous())


def test_tc_0_computes_products_by_multiply_adds(instruction, capsys):
    a, b = operands("NN", 48, 81, 96, instruction.operand)
    with Context(DEBUG=3, TC=0):
        (a @ b).realize()
    assert instruction.name not in capsys.readouterr().out


def test_a_long_expression_is_not_computed_for_each_part(instruction, capsys):
    a, b = operands("NN", 48, 82, 96, instruction.operand)
    long = ((((a * 2).relu() - 1) * 3).relu() + 1).relu()
    with Context(DEBUG=3):
        (long @ b).realize()
    is_used = f"{instruction.name} in blocks of" in capsys.readouterr().out
    assert is_used == (instruction.parts == 1)


def test_what_is_computed_from_a_product_is_fused(instruction):
    a, b = operands("NT", 70, 50, 64, instruction.operand)
    bias = Tensor(np.arange(50, dtype="f4") / 8, dtype=dtypes.bfloat16).realize()
    result = ((a * 2).relu() @ b + bias).relu()
    product = np.maximum(float64(a) * 2, 0) @ float64(b)
    total = product + float64(bias)
    # the product and the sum are rounded
    bound = 2.0**-8 * (np.abs(product) + np.abs(total))
    assert np.all(np.abs(float64(result) - np.maximum(total, 0)) <= bound)


def test_batches_and_windows_are_products(instruction):
    rng = np.random.default_rng(0)
    a, b = (
        Tensor(rng.standard_normal(s), dtype=instruction.operand).realize()
        for s in ((3, 2, 40, 64), (3, 1, 64, 48))
    )
    assert_close(a.matmul(b, dtype=dtypes.float32), a, b)
    x, w = (
        Tensor(rng.standard_normal(s), dtype=instruction.operand).realize()
        for s in ((2, 32, 20, 20), (256, 32, 3, 3))
    )
    with Context(TC=0):
        exact = float64(x.cast(dtypes.float64).conv2d(w.cast(dtypes.float64), padding=1))
    np.testing.assert_allclose(float64(x.conv2d(w, padding=1)), exact, 2.0**-8, 2.0**-4)


@pytest.mark.parametrize("depth", [64, MAX_DEPTH_BYTES + 70])
def test_rows_of_symbolic_number_are_computed_up_to_their_number(instruction, depth):
    a, b = operands("NN", 300, 40, depth, instruction.operand)
    for count in (3, 140):
        rows = Variable("rows", 1, 300).bind(count)
        result = a[:rows].matmul(b, dtype=dtypes.float32)[:rows]
        assert_close(result.contiguous().realize().shrink(((0, count), None)), a[:count], b)


def test_infinities_and_nan_stay_in_their_rows_and_columns(instruction):
    a, b = (x.numpy().copy() for x in operands("NN", 33, 35, 70, dtypes.float32))
    a[3, 5], a[7, 9], b[69, 34] = np.inf, np.nan, -np.inf
    x, y = (Tensor(v, dtype=instruction.operand).realize() for v in (a, b))
    with np.errstate(invalid="ignore"):
        exact = float64(x) @ float64(y)
    result = float64(x.matmul(y, dtype=dtypes.float32))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(exact))
    np.testing.assert_array_equal(np.sign(result[np.isinf(exact)]), np.sign(exact[np.isinf(exact)]))


def test_subnormal_factors_of_float16_count(instruction):
    if instruction.operand is not dtypes.float16:
        pytest.skip("for bfloat16, see the next test")
    a, b = Tensor.full((16, 32), 2.0**-24), Tensor.full((32, 16), 3 * 2.0**-24)
    x, y = (v.cast(dtypes.float16).contiguous().realize() for v in (a, b))
    assert set(x.matmul(y, dtype=dtypes.float32).numpy().flat) == {96 * 2.0**-48}


def test_subnormal_factors_and_sums_are_zero_with_instructions_alone(instruction):
    if instruction.operand is dtypes.float16:
        pytest.skip("products of float16 numbers are no subnormal numbers of float32")
    factor, small = Tensor.full((16, 32), 2.0**-130), Tensor.full((16, 32), 2.0**-70)
    one, half = Tensor.full((32, 16), 1.0), Tensor.full((32, 16), 2.0**-70)
    for a, b, exact in ((factor, one, 2.0**-125), (small, half, 2.0**-135)):
        x, y = (v.cast(dtypes.bfloat16).contiguous().realize() for v in (a, b))
        assert set(x.matmul(y, dtype=dtypes.float32).numpy().flat) == {0.0}
        with Context(TC=0):
            assert set(x.matmul(y, dtype=dtypes.float32).numpy().flat) == {exact}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("x", KNOWN, ids=lambda x: f"{x.name}_{x.operand.name}")
def test_scratch_memory_fits_the_stack_of_a_thread(x, layout):
    target = replace(host_target(threads=2), matrix=(x,))
    for depth in (MAX_DEPTH_BYTES // x.operand.itemsize // x.parts, 2 * MAX_DEPTH_BYTES):
        b = Build()
        i, j = b.loops(2048, 2048)
        (k,) = b.reduces(depth)
        first = i * depth + k if layout[0] == "N" else k * 2048 + i
        second = k * 2048 + j if layout[1] == "N" else j * depth + k
        left, right = (
            buffer(slot, 2048 * depth, x.operand).index(index).load().cast(x.accumulator)
            for slot, index in ((1, first), (2, second))
        )
        place = buffer(0, 2048 * 2048, x.accumulator).index(i * 2048 + j)
        kernel = sink(place.store((left * right).reduce(k, arg=Ops.ADD), i, j), name="product")
        linear = get_linear(kernel, LLVMRenderer(target))[1]
        arrays = [u.dtype.nbytes() for u in linear if u.op is Ops.DEFINE_LOCAL]
        assert 0 < sum(arrays) <= target.shared_bytes


@pytest.mark.slow
def test_a_level_of_x86_64_has_no_matrix_instructions():
    code = "from tinygrad.renderer.host_cpu import host_target; print(host_target().matrix)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "CPU_ARCH": "x86-64-v3"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "()"
