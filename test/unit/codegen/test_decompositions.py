"""Decompositions keep values and leave only ops and dtypes that the target has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from test.evaluator.arithmetic import Array
from test.evaluator.expression import evaluate, variable
from tinygrad.codegen.decompose import decompositions
from tinygrad.codegen.decompose.narrow_floats import FORMATS, NARROW, compute_wide, decode, encode
from tinygrad.codegen.decompose.threefry import threefry
from tinygrad.dtype import (
    AddrSpace,
    DType,
    dtypes,
    from_float32_array,
    to_float32_array,
    to_numpy_dtype,
)
from tinygrad.renderer import Renderer, Target
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

ANY = Target("")


class Minimal(Renderer):
    """A target with few operations."""

    operations = frozenset(
        {
            *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.IDIV, Ops.MOD, Ops.SQRT, Ops.WHERE),
            *(Ops.CMPLT, Ops.CMPNE, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
        }
    )
    dtypes = frozenset(dtypes.all) - frozenset(NARROW)


class NoDivision(Minimal):
    """A target with reciprocals, and without divisions and subtractions."""

    operations = Minimal.operations - {Ops.FDIV, Ops.SUB} | {Ops.RECIPROCAL}


def decompose(expression: UOp, renderer: Renderer | None = None) -> UOp:
    """The decomposed expression, which has only operations and dtypes of the target."""
    renderer = renderer or Minimal(ANY)
    result = decompositions.decompose(expression, renderer)
    for node in result.toposort():
        assert node.op not in GroupOp.ALU or node.op in renderer.operations, node.op
        assert node.dtype.scalar() in renderer.dtypes | {dtypes.void, dtypes.index}, node.dtype
    return result


FLOAT_VALUES = np.array(
    [0.0, -0.0, 1.0, -1.5, 2.5, -7.99, 0.3, 1e-40, 1e9, -3e38, 16777217, np.inf, -np.inf, np.nan]
)
X, Y = (a.ravel() for a in np.meshgrid(FLOAT_VALUES, FLOAT_VALUES))

BINARY = {
    Ops.MAX: np.maximum,
    Ops.FDIV: np.divide,
    Ops.SUB: np.subtract,
    Ops.CMPEQ: np.equal,
}
UNARY = {Ops.TRUNC: np.trunc, Ops.NEG: np.negative, Ops.RECIPROCAL: np.reciprocal}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("op", [*BINARY, *UNARY])
def test_float_operations_give_numpys_values(op: Ops, dtype: DType) -> None:
    x, y = X.astype(to_numpy_dtype(dtype)), Y.astype(to_numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        expected = UNARY[op](x) if op in UNARY else BINARY[op](x, y)
    a, b = variable("x", dtype), variable("y", dtype)
    expression = a.alu(op) if op in UNARY else a.alu(op, b)
    np.testing.assert_array_equal(evaluate(decompose(expression), x=x, y=y), expected)


def test_division_without_a_division() -> None:
    x, y = variable("x", dtypes.float32), variable("y", dtypes.float32)
    expression = decompose(x.alu(Ops.FDIV, y).alu(Ops.SUB, y), NoDivision(ANY))
    a, b = np.float32([1, -6, 10]), np.float32([4, 3, 8])
    np.testing.assert_allclose(evaluate(expression, x=a, y=b), a / b - b, rtol=1e-6)


def test_maximum_of_integers() -> None:
    for dtype in dtypes.ints:
        x = np.array([0, 1, 5, 100, 127]).astype(to_numpy_dtype(dtype))
        y = np.flip(x).copy()
        expression = decompose(variable("x", dtype).maximum(variable("y", dtype)))
        np.testing.assert_array_equal(evaluate(expression, x=x, y=y), np.maximum(x, y))


def test_multiply_add_without_one() -> None:
    x, y, z = (variable(name, dtypes.float32) for name in "xyz")
    expression = decompose(x.alu(Ops.MULACC, y, z))
    got = evaluate(expression, x=np.float32([2]), y=np.float32([3]), z=np.float32([4]))
    assert got == [10]


@pytest.mark.parametrize("op", [Ops.EXP2, Ops.LOG2, Ops.SIN])
def test_a_supported_operation_is_kept(op: Ops) -> None:
    class Native(Renderer):
        operations = GroupOp.ALU

    expression = variable("x", dtypes.float32).alu(op)
    assert decompositions.decompose(expression, Native(ANY)) is expression


# ---- powers ----


@pytest.mark.parametrize("exponent", [1, 2, 3, 5, 8, -1, -2, 0.5, -0.5, 2.5, 20, 0])
def test_constant_powers(exponent: float) -> None:
    x = np.random.default_rng(0).uniform(0.1, 3, 1000).astype(np.float32)
    expression = variable("x", dtypes.float32)
    result = decompose(expression.alu(Ops.POW, expression.const_like(exponent)))
    got = evaluate(result, x=x)
    np.testing.assert_allclose(got, x.astype(np.float64) ** exponent, rtol=5e-7)


def test_square_is_one_multiplication() -> None:
    x = variable("x", dtypes.float32)
    assert decompose(x.alu(Ops.POW, x.const_like(2))) is x * x


def test_powers_of_float32_are_computed_in_float64_if_supported() -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(0, 100, 10_000).astype(np.float32)
    y = generator.uniform(-19, 19, 10_000).astype(np.float32)
    expression = decompose(
        variable("x", dtypes.float32).alu(Ops.POW, variable("y", dtypes.float32))
    )
    expected = (x.astype(np.float64) ** y).astype(np.float32)
    np.testing.assert_array_almost_equal_nulp(evaluate(expression, x=x, y=y), expected, nulp=1)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint8, dtypes.int64])
def test_integer_powers_wrap_around(dtype: DType) -> None:
    kind = to_numpy_dtype(dtype)
    x = np.array([0, 1, 2, 3, 7, 10, 100, 5]).astype(kind)
    y = np.array([0, 5, 7, 3, 30, 4, 20, 1]).astype(kind)
    expression = decompose(variable("x", dtype).alu(Ops.POW, variable("y", dtype)))
    np.testing.assert_array_equal(evaluate(expression, x=x, y=y), x**y)
    base = variable("x", dtype)
    cube = decompose(base.alu(Ops.POW, base.const_like(3)))
    np.testing.assert_array_equal(evaluate(cube, x=x), x**3)


# ---- random bits ----


@pytest.mark.parametrize(
    ("counter", "key", "bits"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(
    counter: tuple[int, int], key: tuple[int, int], bits: tuple[int, int]
) -> None:
    def joined(words: tuple[int, int]) -> Array:
        return np.array([words[1] << 32 | words[0]], np.uint64)

    x, y = variable("x", dtypes.uint64), variable("y", dtypes.uint64)
    expression = decompose(x.threefry(y))
    assert evaluate(expression, x=joined(counter), y=joined(key)) == joined(bits)
    assert expression is threefry(x, y)


# ---- bools and integer division ----


def test_arithmetic_of_bools_is_logic() -> None:
    x, y = variable("x", dtypes.bool), variable("y", dtypes.bool)
    assert decompose(x + y) is (x | y)
    assert decompose(x * y) is (x & y)
    assert decompose(x.maximum(y)) is (x | y)
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    np.testing.assert_array_equal(evaluate(decompose(x < y), x=a, y=b), [0, 1, 0, 0])


def test_division_by_a_power_of_two_is_a_shift() -> None:
    x = UOp.variable("x", 0, 1000, dtypes.int32)
    assert decompose(x // 8) is x >> 3
    assert decompose(x % 8) is x & 7
    for unchanged in (UOp.variable("y", -5, 1000, dtypes.int32) // 8, x // 6, x % -8):
        assert decompose(unchanged) is unchanged
    lanes = UOp(Ops.CONST, dtypes.int32.vec(4), (), (0, 9, 17, 31))
    assert decompose(lanes // 8) is lanes >> 3


# ---- division ----


def test_product_with_a_reciprocal_is_one_division() -> None:
    x, y = variable("x", dtypes.float32), variable("y", dtypes.float32)
    assert decompose(x / y) is x.alu(Ops.FDIV, y)
    assert decompose(y.reciprocal() * x) is x.alu(Ops.FDIV, y)


def test_loop_invariant_reciprocal_stays_outside_of_the_loop() -> None:
    source = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(64), (), 0)
    outer, inner = UOp.range(8, 0, AxisType.LOOP), UOp.range(8, 1, AxisType.LOOP)
    whole = source.index(outer).load()
    part = source.index(outer * 8 + inner).load()
    divided = decompose(part / whole)
    assert divided.op is Ops.MUL
    assert decompose(whole / part).op is Ops.FDIV


# ---- narrow floats ----

ML_TYPES = {
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.fp8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    dtypes.fp8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.float16: np.float16,
}


def all_bits(dtype: DType) -> Array:
    kind = np.uint8 if dtype.itemsize == 1 else np.uint16
    return np.arange(1 << (8 * dtype.itemsize)).astype(kind)


def hard_to_round(dtype: DType) -> Array:
    """float32 values: all of a format, the midpoints between neighbours, and their neighbours."""
    with np.errstate(all="ignore"):
        values = all_bits(dtype).view(ML_TYPES[dtype]).astype(np.float32)
        values = np.sort(values[np.isfinite(values)])
        middle = values[:-1] + (values[1:] - values[:-1]) / 2
        near = [np.nextafter(middle, np.float32(s * np.inf)) for s in (1, -1)]
        largest = values[-1]
        beyond = np.outer([-1, 1], largest * np.array([1.02, 1.04, 1.07, 1.2, 2, 1e6])).ravel()
        special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-44, -1e-44])
        return np.concatenate([values, middle, *near, beyond, special]).astype(np.float32)


def as_narrow(values: Array, dtype: DType) -> Array:
    """float32 values rounded by ml_dtypes, except that 8-bit floats saturate."""
    kind = ML_TYPES[dtype]
    if dtype in dtypes.fp8s:
        limit = float(ml_dtypes.finfo(kind).max)
        values = np.where(np.isinf(values), values, np.clip(values, -limit, limit))
    with np.errstate(all="ignore"):
        return values.astype(kind)


def unsigned(dtype: DType) -> DType:
    return dtypes.uint8 if dtype.itemsize == 1 else dtypes.uint16


@pytest.mark.parametrize("dtype", NARROW)
def test_decoding_gives_every_value(dtype: DType) -> None:
    bits = all_bits(dtype)
    got = evaluate(decode(variable("x", unsigned(dtype)), FORMATS[dtype]), x=bits)
    expected = bits.view(ML_TYPES[dtype]).astype(np.float32)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("dtype", [x for x in NARROW if x is not dtypes.bfloat16])
def test_decoding_computes_with_no_subnormals_of_float32(dtype: DType) -> None:
    """GPUs of Apple, and others with OpenCL, take them for zero; those of bfloat16 are the same."""
    bits = all_bits(dtype)
    decoded = decode(variable("x", unsigned(dtype)), FORMATS[dtype])
    smallest = np.finfo(np.float32).smallest_normal
    floats = [u for u in decoded.toposort() if u.dtype is dtypes.float32 and u is not decoded]
    assert {u.op for u in floats} == {Ops.CONST, Ops.CAST, Ops.MUL}
    for node in floats:
        values = np.abs(evaluate(node, x=bits))
        assert not ((values > 0) & (values < smallest)).any(), node.op


@pytest.mark.parametrize("dtype", NARROW)
def test_encoding_rounds_to_nearest_even(dtype: DType) -> None:
    values = hard_to_round(dtype)
    got = evaluate(encode(variable("x", dtypes.float32), FORMATS[dtype]), x=values)
    expected = as_narrow(values, dtype)
    number = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(got[number], expected.view(got.dtype)[number])
    assert np.isnan(got.view(ML_TYPES[dtype])[~number].astype(np.float32)).all()


@pytest.mark.parametrize("dtype", [*dtypes.fp8s, dtypes.bfloat16])
def test_encoding_agrees_with_copies_from_numpy(dtype: DType) -> None:
    values = np.random.default_rng(0).normal(0, 10, 1000).astype(np.float32)
    got = evaluate(encode(variable("x", dtypes.float32), FORMATS[dtype]), x=values)
    np.testing.assert_array_equal(got, from_float32_array(values, dtype))


def kernel(dtype: DType, *, lanes: int = 1) -> UOp:
    """out[0:lanes] = where(a < 2, a * a + 1.5, a) with a = in[0:lanes]."""
    out = UOp(Ops.DEFINE_GLOBAL, dtype.ptr(lanes), (), 0)
    source = UOp(Ops.DEFINE_GLOBAL, dtype.ptr(lanes), (), 1)
    zero = UOp.const(dtypes.index, 0)
    a = source.index(zero).load(dtype=dtype.vec(lanes))
    value = (a < 2).where(a * a + 1.5, a)
    return UOp.sink(out.index(zero).store(value))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", NARROW)
def test_missing_dtype_is_kept_as_integers(dtype: DType, lanes: int) -> None:
    sink = decompose(kernel(dtype, lanes=lanes))
    nodes = sink.toposort()
    (store,) = sink.src
    integer = unsigned(dtype)
    assert store.src[0].dtype is integer.ptr(lanes)
    assert store.src[1].dtype is integer.vec(lanes)
    assert {u.dtype for u in nodes if u.op is Ops.LOAD} == {integer.vec(lanes)}
    assert not any(u.op is Ops.BITCAST and u.dtype is u.src[0].dtype for u in nodes)


@pytest.mark.parametrize("dtype", NARROW)
def test_arithmetic_on_an_missing_dtype_is_rounded(dtype: DType) -> None:
    (store,) = decompose(kernel(dtype)).src
    (load,) = (u for u in store.toposort() if u.op is Ops.LOAD)
    value = store.src[1].substitute({load: variable("a", load.dtype)})
    bits = all_bits(dtype)
    with np.errstate(all="ignore"):
        a = bits.view(ML_TYPES[dtype])
        wide = a.astype(np.float32)
        product = as_narrow(wide * wide, dtype).astype(np.float32)
        total = as_narrow(product + np.float32(1.5), dtype)
        expected = np.where(wide < 2, total, a).astype(np.float32)
        got = evaluate(value, a=bits).view(ML_TYPES[dtype]).astype(np.float32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", NARROW)
def test_product_of_an_missing_dtype_is_rounded(dtype: DType) -> None:
    bits = all_bits(dtype)
    x = variable("x", unsigned(dtype)).bitcast(dtype)
    result = decompose((x * 3.0).bitcast(unsigned(dtype)))
    with np.errstate(all="ignore"):
        expected = as_narrow(bits.view(ML_TYPES[dtype]).astype(np.float32) * 3, dtype)
        got = evaluate(result, x=bits).view(ML_TYPES[dtype]).astype(np.float32)
    np.testing.assert_array_equal(got, expected.astype(np.float32))


def test_supported_narrow_dtype_stays_in_memory_and_computes_in_float32() -> None:
    sink = decompositions.decompose(kernel(dtypes.float16, lanes=4), Renderer(ANY))
    types = {u.op: u.dtype for u in sink.toposort()}
    assert types[Ops.LOAD] is dtypes.float16.vec(4)
    assert types[Ops.MUL] is types[Ops.ADD] is dtypes.float32.vec(4)


def test_exact_product_of_a_narrow_type_is_not_rounded_before_a_sum() -> None:
    x, y = variable("x", dtypes.float16), variable("y", dtypes.float16)
    product = (x * y).cast(dtypes.float32)
    register = UOp(Ops.DEFINE_REG, dtypes.float32.ptr(1, AddrSpace.REG), (), 0)
    place = register.index(UOp.const(dtypes.index, 0))
    total = place.load()
    wide = x.cast(dtypes.float32) * y.cast(dtypes.float32)

    def stored(value: UOp) -> UOp:
        return decompositions.decompose(place.store(value), Renderer(ANY)).src[1]

    assert stored(total + product) is total + wide
    masked = variable("valid", dtypes.bool).where(product, 0.0)
    assert stored(total + masked).src[1].src[1] is wide
    # no sum, or a sum of something else
    rounded = wide.cast(dtypes.float16).cast(dtypes.float32)
    assert stored(total - product) is total - rounded
    other = variable("other", dtypes.float32)
    assert decompositions.decompose(other + product, Renderer(ANY)) is other + rounded


def test_conversions_between_missing_dtypes() -> None:
    source = UOp(Ops.DEFINE_GLOBAL, dtypes.bfloat16.ptr(1), (), 1)
    load = source.index(UOp.const(dtypes.index, 0)).load()
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.fp8e4m3.ptr(1), (), 0)
    store = out.index(UOp.const(dtypes.index, 0)).store(load.cast(dtypes.fp8e4m3))
    result = decompose(UOp.sink(store)).src[0].src[1]
    (load,) = (u for u in result.toposort() if u.op is Ops.LOAD)
    values = np.array([1.0, -2.75, 0.1, 447.0, 1e5], np.float32)
    bits = from_float32_array(values, dtypes.bfloat16)
    got = evaluate(result.substitute({load: variable("x", load.dtype)}), x=bits)
    through = to_float32_array(bits, dtypes.bfloat16)
    np.testing.assert_array_equal(got, from_float32_array(through, dtypes.fp8e4m3))


def test_bits_of_an_missing_dtype_are_the_integer() -> None:
    x = variable("x", dtypes.uint16)
    assert decompose(x.bitcast(dtypes.bfloat16).bitcast(dtypes.int16)) is x.bitcast(dtypes.int16)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_results_that_a_narrow_dtype_represents_stay_in_float32(dtype: DType) -> None:
    x = UOp(Ops.DEFINE_GLOBAL, dtype.ptr(1), (), 1).index(UOp.const(dtypes.index, 0)).load()
    out = UOp(Ops.DEFINE_GLOBAL, dtype.ptr(1), (), 0).index(UOp.const(dtypes.index, 0))
    largest = x.alu(Ops.MAX, x * -1)
    sink = compute_wide(
        UOp(Ops.SINK, dtypes.void, (out.store(largest.alu(Ops.TRUNC)),)), dtypes.all
    )
    conversions = [u for u in sink.toposort() if u.op is Ops.CAST]
    assert [u.dtype for u in conversions if u.src[0].op is not Ops.CONST] == [dtypes.float32, dtype]
