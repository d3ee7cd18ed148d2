"""Kernels in C compute what the same kernels in LLVM IR compute, and their text is as expected."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from test.backend.codegen.kernels import Build, Runner, buffer, flat_index, random_array, sink
from test.devices import only_cpu
from test.evaluator.expression import variable
from test.nvrtc import compile_for, why_not
from tinygrad.codegen import get_program
from tinygrad.dtype import DType, dtypes, to_numpy_dtype
from tinygrad.renderer.cstyle import CRenderer, CUDARenderer
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.host_cpu import host_target
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Array = np.ndarray
N = 100
TYPES = [*dtypes.ints, dtypes.bool, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]

pytestmark = [
    only_cpu,
    pytest.mark.skipif(
        not any(map(shutil.which, ("clang", "gcc", "cc"))), reason="there is no C compiler"
    ),
]


def run(kernel: UOp, output: Array, *inputs: Array, in_c: bool, **values: int) -> Array:
    """The contents of `output`, slot 0, after a kernel; inputs are the slots from 1 on."""
    runner = Runner(kernel, CRenderer(host_target("c")) if in_c else None)
    result = output.copy()
    runner({0: result, **{i + 1: x.copy() for i, x in enumerate(inputs)}}, values)
    return result


def check(kernel: UOp, output: Array, *inputs: Array, **values: int) -> Array:
    """The result in C, checked against the result in LLVM IR."""
    got = run(kernel, output, *inputs, in_c=True, **values)
    expected = run(kernel, output, *inputs, in_c=False, **values)
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(got.dtype).eps, atol=1e-30)
    else:
        np.testing.assert_array_equal(got, expected)
    assert got.dtype == bool or not np.array_equal(got, output), "the kernel wrote nothing"
    return got


def elementwise(function: Callable[..., UOp], *types: DType, size: int = N) -> UOp:
    """out[i] = function(in1[i], in2[i], ...)."""
    (i,) = Build().loops(size)
    value = function(*[buffer(n + 1, size, dtype).index(i).load() for n, dtype in enumerate(types)])
    return sink(buffer(0, size, value.dtype).index(i).store(value, i))


def values_of(dtype: DType, seed: int, size: int = N) -> Array:
    kind = to_numpy_dtype(dtype)
    generator = np.random.default_rng(seed)
    if kind.kind == "f":
        return generator.normal(0, 4, size).astype(kind)
    if dtype is dtypes.bfloat16:
        return (generator.normal(0, 4, size).astype(np.float32).view(np.uint32) >> 16).astype(kind)
    if dtype is dtypes.bool:
        return generator.integers(0, 2, size).astype(kind)
    limits = np.iinfo(kind)
    found = generator.integers(limits.min, limits.max, size, dtype=kind, endpoint=True)
    found[: size // 2] %= 7
    return found


def empty(dtype: DType, size: int = N) -> Array:
    """Memory for a result, filled with a value that no kernel here writes everywhere."""
    return np.full(size, 77).astype(to_numpy_dtype(dtype))


INTEGER_OPS = [
    *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR),
    *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ),
]
FLOAT_OPS = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.POW]
BOOL_OPS = [Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ]


def operations_of(dtype: DType) -> list[Ops]:
    if dtypes.is_float(dtype):
        return FLOAT_OPS
    return BOOL_OPS if dtypes.is_bool(dtype) else INTEGER_OPS


# programs of narrow floats compile long
BINARY_CASES = [
    pytest.param(x, marks=[pytest.mark.slow] if x in {dtypes.half, dtypes.bfloat16} else [])
    for x in TYPES
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", BINARY_CASES, ids=str)
def test_binary_operations(dtype: DType) -> None:
    """One kernel with a store for each operation, so that the compiler starts only once."""
    operations = operations_of(dtype)
    build = Build()
    stores, expected = [], []
    a, b = values_of(dtype, 1), values_of(dtype, 2)
    for n, op in enumerate(operations):
        (i,) = build.loops(N)
        x, y = (buffer(slot, N, dtype).index(i).load() for slot in (100, 101))
        value = x.alu(op, y)
        stores.append(buffer(n, N, value.dtype).index(i).store(value, i))
        expected.append(empty(value.dtype))
    arrays = {}
    for in_c in (True, False):
        found = {n: x.copy() for n, x in enumerate(expected)}
        runner = Runner(sink(*stores), CRenderer(host_target("c")) if in_c else None)
        runner({**found, 100: a.copy(), 101: b.copy()})
        arrays[in_c] = found
    for n, op in enumerate(operations):
        # a compiler may round the products and sums of a power together
        may_differ = op is Ops.POW and arrays[True][n].dtype.kind == "f"
        rtol = 4 * np.finfo(arrays[True][n].dtype).eps if may_differ else 0
        np.testing.assert_allclose(arrays[True][n], arrays[False][n], rtol, err_msg=op.name)


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16], ids=str)
@pytest.mark.parametrize(
    "op", [Ops.EXP2, Ops.LOG, Ops.SIN, Ops.ERF, Ops.SQRT, Ops.TRUNC, Ops.NEG, Ops.RECIPROCAL]
)
def test_unary_operations(op: Ops, dtype: DType) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-7, 300.0]
    x = values_of(dtype, 3)
    x[: len(special)] = special
    check(elementwise(lambda v: v.alu(op), dtype), empty(dtype), x)


@pytest.mark.slow
def test_casts_between_all_types() -> None:
    """One kernel for each source, with a store for each target."""
    for source in TYPES:
        x = values_of(source, 4)
        if dtypes.is_float(source):
            x = np.abs(x).astype(x.dtype) if source is not dtypes.bfloat16 else x & 0x7FFF
        build = Build()
        stores = []
        for n, target in enumerate(TYPES):
            (i,) = build.loops(N)
            value = buffer(100, N, source).index(i).load().cast(target)
            stores.append(buffer(n, N, target).index(i).store(value, i))
        results = []
        for renderer in (CRenderer(host_target("c")), None):
            found = {n: empty(target) for n, target in enumerate(TYPES)}
            Runner(sink(*stores), renderer)({**found, 100: x.copy()})
            results.append(found)
        for n, target in enumerate(TYPES):
            np.testing.assert_array_equal(
                results[0][n], results[1][n], err_msg=f"{source!r} to {target!r}"
            )


def test_integers_wrap_around() -> None:
    x = np.array([np.iinfo(np.int32).max, np.iinfo(np.int32).min, 5], np.int32)
    got = check(elementwise(lambda v: v + v, dtypes.int32, size=3), empty(dtypes.int32, 3), x)
    np.testing.assert_array_equal(got, x + x)


def test_division_that_would_trap() -> None:
    for dtype in (dtypes.int32, dtypes.int8, dtypes.uint16):
        kind = to_numpy_dtype(dtype)
        lowest = np.iinfo(kind).min
        x = np.array([7, lowest, 0, lowest, 9, 5, 6, 1] * 5).astype(kind)
        y = np.array([0, -1 if lowest else 1, 0, 1, 2, -1 if lowest else 3, 0, 0] * 5).astype(kind)
        for op in (Ops.IDIV, Ops.MOD):
            kernel = elementwise(lambda a, b, op=op: a.alu(op, b), dtype, dtype, size=40)
            check(kernel, empty(dtype, 40), x, y)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_where(dtype: DType) -> None:
    x, y = values_of(dtype, 1), values_of(dtype, 2)
    flag = values_of(dtypes.bool, 3)
    number = values_of(dtypes.float64, 4)

    def choose(a: UOp, b: UOp, c: UOp, d: UOp) -> UOp:
        return (c & (d < 1) | d.ne(d)).where(a, b)

    kernel = elementwise(choose, dtype, dtype, dtypes.bool, dtypes.float64)
    got = check(kernel, empty(dtype), x, y, flag, number)
    np.testing.assert_array_equal(got, np.where(flag & (number < 1), x, y))


def test_bools_are_computed_combined_and_stored() -> None:
    x, y = values_of(dtypes.float32, 1), values_of(dtypes.float64, 2)

    def combine(a: UOp, b: UOp) -> UOp:
        either = (a < 0) ^ (b < 0)
        return either.eq((a * 2).cast(dtypes.bool)).where(either, (b < 1).logical_not())

    kernel = elementwise(combine, dtypes.float32, dtypes.float64)
    check(kernel, empty(dtypes.bool), x, y)


def test_bitcasts() -> None:
    def scramble(a: UOp) -> UOp:
        return ((a.bitcast(dtypes.uint32) ^ 0x55555555) >> 1).bitcast(dtypes.float32)

    for size in (N, 1):
        x = values_of(dtypes.float32, 1, size)
        kernel = elementwise(scramble, dtypes.float32, size=size)
        check(kernel, empty(dtypes.float32, size), x)


# ---- memory ----


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.bool], ids=str)
def test_a_masked_load_outside_the_buffer_gives_the_alternative(dtype: DType) -> None:
    (i,) = Build().loops(N)
    source = buffer(1, N, dtype)
    alternative = UOp.const(dtype, 1)
    value = source.index(i - 3, UOp.const(dtypes.index, 2) < i).load(alternative)
    kernel = sink(buffer(0, N, dtype).index(i).store(value, i))
    x = values_of(dtype, 1)
    got = check(kernel, empty(dtype), x)
    np.testing.assert_array_equal(got, np.concatenate([np.ones(3, x.dtype), x[:-3]]))


def test_gather_and_masked_store() -> None:
    (i,) = Build().loops(N)
    position = buffer(2, N, dtypes.int32).index(i).load().cast(dtypes.index)
    value = buffer(1, N).index(position).load()
    kernel = sink(buffer(0, N).index(i, i < 60).store(value, i))
    x = values_of(dtypes.float32, 1)
    order = np.random.default_rng(0).permutation(N).astype(np.int32)
    got = check(kernel, empty(dtypes.float32), x, order)
    np.testing.assert_array_equal(got, np.concatenate([x[order][:60], np.full(40, 77)]))


def test_transposed_access() -> None:
    i, j = Build().loops(20, 30)
    value = buffer(1, 600).index(flat_index([j, i], [30, 20])).load()
    kernel = sink(buffer(0, 600).index(flat_index([i, j], [20, 30])).store(value, i, j))
    x = values_of(dtypes.float32, 1, 600)
    got = check(kernel, empty(dtypes.float32, 600), x)
    np.testing.assert_array_equal(got.reshape(20, 30), x.reshape(30, 20).T)


# ---- reductions ----


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    "dtype", [*dtypes.ints, dtypes.bool, dtypes.float32, dtypes.float64], ids=str
)
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX, Ops.MUL])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(op: Ops, dtype: DType, axis: int) -> None:
    build = Build()
    (i,), (k,) = build.loops(24), build.reduces(40)
    index = flat_index([i, k], [24, 40]) if axis else flat_index([k, i], [40, 24])
    value = buffer(1, 960, dtype).index(index).load().reduce(k, arg=op)
    kernel = sink(buffer(0, 24, dtype).index(i).store(value, i))
    x = random_array(np.random.default_rng(0), dtype, 960)
    check(kernel, empty(dtype, 24), x)


@pytest.mark.parametrize("shape", [(64, 64, 64), (37, 29, 41), (1, 100, 70), (130, 1, 9)])
def test_matrix_product(shape: tuple[int, int, int]) -> None:
    rows, columns, inner = shape
    build = Build()
    (i, j), (k,) = build.loops(rows, columns), build.reduces(inner)
    a = buffer(1, rows * inner).index(flat_index([i, k], [rows, inner])).load()
    b = buffer(2, inner * columns).index(flat_index([k, j], [inner, columns])).load()
    at = flat_index([i, j], [rows, columns])
    kernel = sink(buffer(0, rows * columns).index(at).store((a * b).reduce(k, arg=Ops.ADD), i, j))
    x = random_array(np.random.default_rng(0), dtypes.float32, rows, inner)
    y = random_array(np.random.default_rng(1), dtypes.float32, inner, columns)
    got = check(kernel, empty(dtypes.float32, rows * columns), x, y)
    np.testing.assert_array_equal(got.reshape(rows, columns), x @ y)


def test_several_nests_and_a_symbolic_size() -> None:
    build = Build()
    size = UOp.variable("size", 1, N)
    (i,), (j,) = build.loops(size), build.loops(N)
    first = buffer(0, N).index(i).store(buffer(2, N).index(i).load() * 2, i)
    second = (
        buffer(1, N).index(j).store(buffer(2, N).index(j).load() + size.cast(dtypes.float32), j)
    )
    x = values_of(dtypes.float32, 1)
    found = []
    for renderer in (CRenderer(host_target("c")), None):
        arrays = {0: empty(dtypes.float32), 1: empty(dtypes.float32), 2: x.copy()}
        Runner(sink(first, second), renderer)(arrays, {"size": 33})
        found.append(arrays)
    np.testing.assert_array_equal(found[0][0][:33], x[:33] * 2)
    np.testing.assert_array_equal(found[0][0][33:], np.float32(77))
    for slot in (0, 1):
        np.testing.assert_array_equal(found[0][slot], found[1][slot])


# ---- the text ----

GOLDEN = """\
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_mem __attribute__((vector_size(16), aligned(4), may_alias));
static inline f32x4 f32x4_all(float x) { return (f32x4){x, x, x, x}; }
static __attribute__((noinline)) void kernel__body(float *restrict data0, \
const float *restrict data1, long long begin, long long end) {
  for (long long i1 = 0; i1 < 2; i1++) {
    long long v0 = i1 * 4;
    f32x4 v1 = *(f32x4_mem *)(data1 + v0);
    *(f32x4_mem *)(data0 + v0) = (v1 * f32x4_all(2.0f)) + f32x4_all(0.1f);
  }
}
void kernel_(void **buffers, const long long *values, long long begin, long long end) {
  kernel__body(buffers[0], buffers[1], begin, end);
}
"""


@pytest.mark.parametrize("name", ["double", "exp2", "kernel", "main", "2d", "a b", "r_2_3"])
def test_functions_have_names_that_no_language_reserves(name: str) -> None:
    stores = elementwise(lambda x: x + 1, dtypes.float32, size=8).src
    for renderer in (CRenderer(host_target("c")), LLVMRenderer(host_target())):
        runner = Runner(sink(*stores, name=name), renderer)
        arrays = {0: np.zeros(8, "f4"), 1: np.arange(8, dtype="f4")}
        runner(arrays)
        np.testing.assert_array_equal(arrays[0], arrays[1] + 1)
    cuda = get_program(sink(*stores, name=name), CUDARenderer(nvidia_target("sm_80")))
    assert f" {cuda.function}(" in cuda.source
    assert (cuda.function == name) == (name == "r_2_3"), "names of the scheduler stay"


@pytest.mark.parametrize("name", ["v0", "i1", "data1", "double"])
def test_variables_may_have_names_that_the_text_uses(name: str) -> None:
    variable = UOp.variable(name, 1, 9).cast(dtypes.float32)
    kernel = elementwise(lambda x: x + variable, dtypes.float32)
    x = values_of(dtypes.float32, 1)
    got = check(kernel, empty(dtypes.float32), x, **{name: 3})
    np.testing.assert_array_equal(got, x + 3)


def test_text_of_a_small_kernel() -> None:
    kernel = elementwise(lambda x: x * 2 + 0.1, dtypes.float32, size=8)
    assert get_program(kernel, CRenderer(host_target("c", 16))).source == GOLDEN


GOLDEN_CUDA = """\
__device__ inline int block_number() { return blockIdx.x; }
__device__ inline int thread_number() { return threadIdx.x; }
extern "C" __global__ void __launch_bounds__(256) kernel_(float *__restrict__ data0, \
const float *__restrict__ data1) {
  int item2 = block_number();
  int v0 = item2 * 256;
  int thread1 = thread_number();
  int v1 = v0 + thread1;
  bool v2 = v1 < 99999;
  float v3 = (v2 ? data1[v1] : 0.0f);
  if (v2) data0[v1] = v3 + 1.0f;
}
"""


def test_text_of_a_cuda_kernel() -> None:
    kernel = elementwise(lambda x: x + 1, dtypes.float32, size=99_999)
    source = get_program(kernel, CUDARenderer(nvidia_target("sm_80"))).source
    assert source == GOLDEN_CUDA


def everything(x: UOp, y: UOp) -> UOp:
    """An expression with everything that dialects write differently."""
    z = x.exp2().log2().sin().sqrt().alu(Ops.TRUNC).maximum(y) + float("inf")
    z = (x.ne(x) | (x < 2)).where(z, float("nan")).alu(Ops.POW, y)
    bits = z.cast(dtypes.float32).bitcast(dtypes.int32)
    return bits // 7 + (y.cast(dtypes.uint64).threefry(x.cast(dtypes.uint64))).cast(dtypes.int32)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16], ids=str)
def test_cuda_kernels_compile(dtype: DType) -> None:
    if reason := why_not():
        pytest.skip(reason)
    renderer = CUDARenderer(nvidia_target("sm_80"))
    compile_for("sm_90", get_program(elementwise(everything, dtype, dtype), renderer).source)


def test_missing_operation_is_an_error_that_names_it() -> None:
    x = variable("x", dtypes.float32)
    with pytest.raises(NotImplementedError, match="SIN of dtypes.float"):
        CRenderer(host_target("c")).render("kernel", [x, x.sin()])


def test_every_float_literal_is_exact() -> None:
    values = list(itertools.chain([0.1, 1e-45, 3.4e38, 1 / 3, 16777217.0], [2.0**-149]))
    values += [float("inf"), float("-inf"), float("nan"), -0.0]
    for dtype in (dtypes.float32, dtypes.float64):
        for x in values:
            kernel = elementwise(lambda v, x=x: v.const_like(x) + v * 0, dtype, size=1)
            got = run(kernel, empty(dtype, 1), empty(dtype, 1), in_c=True)
            np.testing.assert_array_equal(got, np.array([x]).astype(got.dtype))
