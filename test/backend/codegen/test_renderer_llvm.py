"""LLVM IR of single nodes, their values, and the parameters of programs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy
import pytest

from test.backend.codegen.kernels import Build, Runner, buffer, sink
from test.devices import only_cpu
from tinygrad import Tensor
from tinygrad.codegen import get_program
from tinygrad.dtype import DType, dtypes, to_numpy_dtype
from tinygrad.renderer import DIALECTS, Target, find_renderer, parameters
from tinygrad.renderer.host_cpu import AVX2_BYTES, host_cpu, host_target
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.renderer.llvm.types import cast_steps, literal, value_type
from tinygrad.runtime.support.llvm import with_scalar_stores
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

pytestmark = only_cpu
KNOWN = sorted(LLVMRenderer.dtypes, key=lambda dtype: dtype.priority)


def elementwise(value: UOp, i: UOp, n: int) -> UOp:
    return sink(buffer(0, n, value.dtype).index(i).store(value, i))


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (dtypes.bool, True, "true"),
        (dtypes.int32, -1, "-1"),
        (dtypes.uint8, 255, "-1"),
        (dtypes.uint64, (1 << 64) - 2, "-2"),
        (dtypes.float32, 1.5, "0x3FF8000000000000"),
        (dtypes.float32, 0.1, "0x3FB99999A0000000"),
        (dtypes.float32, math.inf, "0x7FF0000000000000"),
        (dtypes.float32, math.nan, "0x7FF8000000000000"),
        (dtypes.float16, 1.0, "0xH3C00"),
        (dtypes.float32.vec(4), 0.0, "splat (float 0x0000000000000000)"),
        (dtypes.int32.vec(2), (0, 1), "<i32 0, i32 1>"),
    ],
)
def test_literals(dtype: DType, value: object, text: str) -> None:
    assert literal(dtype, value) == text


def test_only_floats_of_unknown_range_are_saturated() -> None:
    def text(source: DType, target: DType, shift: UOp | None = None) -> str:
        i = Build().loops(64)[0]
        value = buffer(1, 64, source).index(i).load()
        value = value.cast(dtypes.float32).cast(target) if shift is None else value << shift
        return get_program(elementwise(value, i, 64), LLVMRenderer(host_target("llvm", 64))).source

    assert "fcmp" not in text(dtypes.uint8, dtypes.int32)
    assert "fcmp" not in text(dtypes.int16, dtypes.int16)
    assert "fcmp" in text(dtypes.float32, dtypes.int32)
    assert "fcmp" in text(dtypes.uint16, dtypes.uint8)
    # vectors stay vectors
    assert "fptosi <16 x float>" in text(dtypes.float32, dtypes.int32)
    count = UOp.variable("n", 0, 31, dtypes.int32)
    assert "select" not in text(dtypes.int32, dtypes.int32, count)
    assert "select" in text(dtypes.int32, dtypes.int32, UOp.variable("n", 0, 32, dtypes.int32))


@pytest.mark.parametrize("dtype", KNOWN)
def test_every_dtype_has_a_type(dtype: DType) -> None:
    assert value_type(dtype)
    assert value_type(dtype.vec(4)) == f"<4 x {value_type(dtype)}>"


@pytest.mark.parametrize("target", KNOWN)
@pytest.mark.parametrize("source", KNOWN)
def test_conversions_end_in_the_target_type(source: DType, target: DType) -> None:
    steps = cast_steps(source, target)
    last = steps[-1][1] if steps else source
    assert dtypes.is_bool(target) or value_type(last) == value_type(target)


@pytest.mark.sample(10)
@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("target", KNOWN)
@pytest.mark.parametrize("source", KNOWN)
def test_casts_agree_with_numpy(source: DType, target: DType, n: int) -> None:
    x = numpy.arange(n).astype(to_numpy_dtype(source))
    result = numpy.zeros(n, to_numpy_dtype(target))
    (i,) = Build().loops(n)
    kernel = elementwise(buffer(1, n, source).index(i).load().cast(target), i, n)
    Runner(kernel)({0: result, 1: x})
    numpy.testing.assert_array_equal(result, x.astype(result.dtype))


def test_bfloat16_rounds_to_nearest_even() -> None:
    # the last one is subnormal
    bits = numpy.array([0x3F80_8000, 0x3F81_8000, 0x3F80_8001, 0x3F80_7FFF, 0x8012_8000], "u4")
    result = numpy.zeros(5, "u2")
    (i,) = Build().loops(5)
    kernel = elementwise(buffer(1, 5).index(i).load().cast(dtypes.bfloat16), i, 5)
    Runner(kernel)({0: result, 1: bits.view("f4")})
    assert [hex(x) for x in result] == ["0x3f80", "0x3f82", "0x3f81", "0x3f80", "0x8012"]


@pytest.mark.parametrize("n", [5, 64])
def test_comparisons_with_nan_are_false_except_not_equal(n: int) -> None:
    x = numpy.full(n, numpy.nan, "f4")
    (i,) = Build().loops(n)
    value = buffer(1, n).index(i).load()
    for op, expected in ((Ops.CMPLT, False), (Ops.CMPEQ, False), (Ops.CMPNE, True)):
        result = numpy.zeros(n, "?")
        Runner(elementwise(value.alu(op, value), i, n))({0: result, 1: x})
        assert (result == expected).all()


def test_a_masked_load_touches_no_memory() -> None:
    n = 8
    (i,) = Build().loops(n)
    far = i + (1 << 40)
    never = (i < 0) & (buffer(2, n, dtypes.bool).index(i).load())
    for alternative in (UOp.const(dtypes.float32, 3.0), buffer(2, n).index(i).load()):
        value = buffer(1, n).index(far, never).load(alternative)
        result = numpy.zeros(n, "f4")
        ones = numpy.ones(n, "f4")
        Runner(elementwise(value, i, n))({0: result, 1: ones, 2: ones})
        assert (result == (3.0 if alternative.op is Ops.CONST else 1.0)).all()


@pytest.mark.parametrize("source", [dtypes.float64, dtypes.int64, dtypes.int32], ids=str)
@pytest.mark.parametrize("target", [dtypes.int8, dtypes.int16], ids=str)
def test_a_last_lane_of_narrow_integers_is_stored_alone(source: DType, target: DType) -> None:
    # nine columns are a vector of eight and one lane, next to those of the next row
    array = numpy.arange(72).reshape(8, 9).astype(to_numpy_dtype(target))
    written = -1 - numpy.arange(24).reshape(8, 3)
    x, y = Tensor(array).clone(), Tensor(written, dtype=source).realize()
    x[:, 8:0:-3] = y
    array[:, 8:0:-3] = written
    numpy.testing.assert_array_equal(x.numpy(), array)


@pytest.mark.parametrize(("rows", "is_far"), [(1, False), (500, True)])
@pytest.mark.parametrize("columns", [64, 51])
def test_masked_vectors_far_outside_of_their_buffer_read_its_start(
    rows: int, is_far: bool, columns: int
) -> None:
    # the flat index of `rows` rows of zeros, the buffer, and as many rows of zeros
    size, padding = 1000 * columns, rows * columns
    b = Build()
    (i,) = b.loops(size + 2 * padding)
    position = i - padding
    valid = (position < 0).ne(True) & (position < size)
    zero = UOp.const(dtypes.float32, 0.0)
    kernel = elementwise(buffer(1, size).index(position, valid).load(zero), i, i.src[0].arg)
    wide = max(AVX2_BYTES, host_cpu().vector_bytes)
    source = get_program(kernel, LLVMRenderer(host_target("llvm", wide))).source
    assert ("vector.reduce.or" in source) == is_far
    arrays = {0: numpy.ones(size + 2 * padding, "f4"), 1: numpy.arange(size, dtype="f4")}
    Runner(kernel)(arrays)
    numpy.testing.assert_array_equal(arrays[0], numpy.pad(arrays[1], padding))


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.bool, dtypes.float16, dtypes.float32])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_lanes_without_a_masking_instruction_are_tested_together(
    dtype: DType, vector_bytes: int
) -> None:
    target = host_target("llvm", vector_bytes)
    # vectors of which all lanes, some and none lie inside, in memory that is not exceeded
    rows, columns, padding = 3, 71, 70
    b = Build()
    y, x = b.loops(rows, columns + 2 * padding)
    valid = (x < padding).ne(True) & (x < padding + columns)
    other = UOp.const(dtype, 1)
    pixel = buffer(1, rows * columns, dtype).index(y * columns + x - padding, valid).load(other)
    where = buffer(0, rows * (columns + 2 * padding), dtype)
    place = where.index(y * (columns + 2 * padding) + x, (x < 3).ne(True))
    kernel = sink(place.store(pixel, y, x))
    renderer = LLVMRenderer(target)
    source = get_program(kernel, renderer).source
    is_together = dtype.itemsize < target.min_masked_itemsize
    assert ("vector.reduce.and" in source) == is_together
    assert ("label %loaded" in source) == ("label %stored" in source) == is_together
    array = numpy.random.default_rng(0).integers(0, 2, (rows, columns))
    array = array.astype(to_numpy_dtype(dtype))
    expected = numpy.pad(array, ((0, 0), (padding, padding)), constant_values=1)
    expected[:, :3] = 0
    result = numpy.zeros_like(expected)
    Runner(kernel, renderer)({0: result, 1: array})
    numpy.testing.assert_array_equal(result, expected)


def test_masked_stores_of_one_lane_become_scalar_stores() -> None:
    call = "call void @llvm.masked.store.v4i8.p0(<4 x i8> %x, ptr align 1 %p.1, <4 x i1> <{}>)"
    mask = ["i1 false"] * 4
    one = call.format(", ".join([*mask[:2], "i1 true", "i1 false"]))
    assert with_scalar_stores(one).splitlines() == [
        "%lane0 = extractelement <4 x i8> %x, i64 2",
        "  %lane0.at = getelementptr i8, ptr %p.1, i64 2",
        "  store i8 %lane0, ptr %lane0.at, align 1",
    ]
    two = call.format(", ".join([*mask[:2], "i1 true", "i1 true"]))
    assert with_scalar_stores(two) == two


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int16, dtypes.bool])
def test_lanes_are_scattered_one_by_one_without_an_instruction_for_it(dtype: DType) -> None:
    rows, columns = 40, 48
    i, j = Build().loops(rows, columns)
    value = buffer(1, rows * columns, dtype).index(i * columns + j).load()
    # the stride of the store keeps it from being a transpose in blocks
    kernel = sink(
        buffer(0, 2 * rows * columns, dtype).index(j * 2 * rows + i * 2).store(value, i, j)
    )
    array = numpy.random.default_rng(0).integers(0, 2, (rows, columns))
    array = array.astype(to_numpy_dtype(dtype))
    for vector_bytes, scatters in ((32, False), (64, True)):
        renderer = LLVMRenderer(host_target("llvm", vector_bytes))
        assert ("masked.scatter" in get_program(kernel, renderer).source) == scatters
        result = numpy.zeros((columns, rows, 2), array.dtype)
        Runner(kernel, renderer)({0: result, 1: array})
        numpy.testing.assert_array_equal(result[..., 0], array.T)
        assert not result[..., 1].any()


def test_a_masked_store_writes_nothing() -> None:
    n = 21
    (i,) = Build().loops(n)
    where = buffer(0, n).index(i, i < 7)
    result = numpy.zeros(n, "f4")
    Runner(sink(where.store(UOp.const(dtypes.float32, 1.0), i)))({0: result})
    assert result.sum() == 7


def test_variables_are_parameters_sorted_by_name() -> None:
    n = 8
    (i,) = Build().loops(n)
    b, a = UOp.variable("b", 0, 100), UOp.variable("a", 0, 100, dtypes.int32)
    value = (b * 10).cast(dtypes.int32) + a
    runner = Runner(elementwise(value, i, n))
    assert [v.arg[0] for v in runner.program.variables] == ["a", "b"]
    result = numpy.zeros(n, "i4")
    runner({0: result}, {"a": 3, "b": 4})
    assert (result == 43).all()


def test_a_program_lists_the_slots_that_it_reads_and_writes() -> None:
    n = 16
    (i,) = Build().loops(n)
    value = buffer(7, n).index(i).load() + buffer(3, n).index(i).load()
    program = get_program(sink(buffer(5, n).index(i).store(value, i)), LLVMRenderer(host_target()))
    assert (program.slots, program.outputs, program.inputs) == ((3, 5, 7), (5,), (3, 7))
    estimates = program.estimates
    assert (estimates.flops, estimates.loaded_bytes, estimates.stored_bytes) == (n, 8 * n, 4 * n)


def test_parameters_are_sorted_by_slot() -> None:
    pointers = [buffer(2, 1), buffer(0, 1)]
    assert [u.arg for u in parameters(pointers)[0]] == [0, 2]


def test_renderers_are_found_by_dialect() -> None:
    assert {name: type(find_renderer(Target(name))).__name__ for name in DIALECTS} == {
        "llvm": "LLVMRenderer",
        "c": "CRenderer",
        "cuda": "CUDARenderer",
        "hip": "HIPRenderer",
        "opencl": "OpenCLRenderer",
        "metal": "MetalRenderer",
    }
    with pytest.raises(ValueError, match="no renderer called 'fortran'"):
        find_renderer(Target("fortran"))


def test_equal_targets_have_one_renderer_and_different_ones_have_their_own() -> None:
    target = host_target("llvm", 32, threads=2)
    assert find_renderer(target) is find_renderer(replace(target))
    assert hash(target) == hash(replace(target))
    for change in ({"threads": 3}, {"shared_bytes": 64}, {"dtypes": frozenset([dtypes.int32])}):
        other = find_renderer(replace(target, **change))
        assert other is not find_renderer(target) and other.target != target
    assert find_renderer(replace(target, dtypes=frozenset([dtypes.int32]))).dtypes == {dtypes.int32}


def test_a_renderer_declares_missing_arithmetic() -> None:
    missing = GroupOp.ALU - LLVMRenderer.operations
    assert Ops.THREEFRY in missing
    assert Ops.ADD not in missing


@pytest.mark.parametrize(
    ("rows", "transposed", "prefetches"), [(2048, False, 2), (64, False, 0), (2048, True, 0)]
)
def test_a_large_matrix_that_is_read_in_order_is_prefetched(
    rows: int, transposed: bool, prefetches: int
) -> None:
    b = Build()
    (i,) = b.loops(rows)
    (k,) = b.reduces(512)
    place = k * rows + i if transposed else i * 512 + k
    weight = buffer(1, rows * 512).index(place).load()
    product = weight * buffer(2, 512).index(k).load()
    kernel = sink(buffer(0, rows).index(i).store(product.reduce(k, arg=Ops.ADD), i))
    source = get_program(kernel, LLVMRenderer(host_target("llvm", AVX2_BYTES))).source
    # four vectors are two lines, of the matrix alone: all rows read the vector
    assert source.count("call void @llvm.prefetch") == prefetches


@pytest.mark.parametrize(("mask", "in_words"), [(1, True), (2, False)])
def test_bytes_are_shifted_in_words_if_no_bit_of_another_byte_is_taken(
    mask: int, in_words: bool
) -> None:
    b = Build()
    i, j = b.loops(8, 64)
    place = i * 64 + j
    value = (buffer(1, 512, dtypes.uint8).index(place).load() >> i.cast(dtypes.uint8)) & mask
    kernel = sink(buffer(0, 512, dtypes.uint8).index(place).store(value, i, j))
    runner = Runner(kernel)
    x = numpy.random.default_rng(0).integers(0, 256, (8, 64), dtype=numpy.uint8)
    found = numpy.zeros_like(x)
    runner({0: found, 1: x})
    numpy.testing.assert_array_equal(found, x >> numpy.arange(8, dtype="u1")[:, None] & mask)
    source = get_program(kernel, LLVMRenderer(host_target())).source
    assert ("zext i8" in source) == in_words
