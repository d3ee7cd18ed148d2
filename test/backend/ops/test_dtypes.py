"""Dtypes on the device: conversions, bitcasts, arithmetic, promotion, in-place operators.

The oracles are numpy and ml_dtypes. Unlike ml_dtypes', 8-bit floats saturate, and so do floats that
are cast to integers; NaN becomes 0.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.devices import DEVICE, only_cpu
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.device import is_dtype_supported
from tinygrad.dtype import DType, least_upper_dtype, sum_acc_dtype, to_numpy_dtype

Array = np.ndarray[Any, Any]

BITS_ONLY = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.fp8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    dtypes.fp8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}
EDGES = [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 127.5, 128, 255, -129, 32768, 448, 464, 465, 1e6, -1e6]
EDGES += [57344, 61440, 65504, 65520, 2**31 - 1, 2**31, 2**32, 2**63, 1.5 * 2**63, -(2**31), 3.4e38]
EDGES += [-1e300, math.inf, -math.inf, math.nan]
# halves of the smallest subnormals, which round to even, and slightly larger values
EDGES += [2.0**-n * f for n in (10, 17, 25, 134, 150) for f in (1, 1.01, 2, 3)]


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    return np.dtype(BITS_ONLY.get(dtype) or to_numpy_dtype(dtype))


def values_of(dtype: DType) -> Array:
    """All values of a narrow type; for others, random bits and the limits of all types."""
    kind = numpy_dtype(dtype)
    if dtype is dtypes.bool:
        return np.array([False, True])
    if kind.itemsize <= 2:
        return np.arange(1 << (8 * kind.itemsize)).astype(f"u{kind.itemsize}").view(kind)
    bits = np.random.default_rng(0).integers(0, 256, 300 * kind.itemsize, np.uint8).view(kind)
    if dtypes.is_int(dtype):
        low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
        edges = [low, low + 1, high, high - 1, 0, 1, 127, 128, 255, 256, 2**24 + 1, 2**31 - 1]
        return np.concatenate([bits, np.array(edges, kind)])
    with np.errstate(all="ignore"):
        return np.concatenate([bits, np.array(EDGES).astype(kind)])


def converted(values: Array, target: DType) -> Array:
    """Values in another type."""
    kind = numpy_dtype(target)
    is_float = values.dtype.kind not in "biu"
    with np.errstate(all="ignore"):
        if is_float and dtypes.is_int(target):
            low, high = int(dtypes.min(target)), int(dtypes.max(target))
            limited = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=high, neginf=low)
            return np.array([max(low, min(int(x), high)) for x in limited.tolist()], kind)
        if target in dtypes.fp8s:
            limit = float(ml_dtypes.finfo(kind).max)
            values = values.astype(np.float32)
            values = np.where(np.isinf(values), values, np.clip(values, -limit, limit))
        return values.astype(kind)


def assert_same(found: Array, expected: Array) -> None:
    """Checks equal values, signs of zeros, and positions of NaN."""
    wide = expected.astype(np.float32) if expected.dtype in BITS_ONLY.values() else expected
    np.testing.assert_array_equal(found, wide)
    if wide.dtype.kind == "f":
        numbers = ~np.isnan(wide)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wide[numbers]))


@only_cpu
def test_the_cpu_has_every_dtype() -> None:
    assert all(is_dtype_supported(dtype, DEVICE) for dtype in dtypes.all)


# ---- conversions and bits ----


@pytest.mark.sample(3)
@pytest.mark.parametrize("source", dtypes.all, ids=repr)
def test_conversions_to_every_dtype(source: DType) -> None:
    values = values_of(source)
    x = Tensor(values).realize()
    for target in dtypes.all:
        found = x.cast(target)
        assert found.dtype is target
        assert_same(found.numpy(), converted(values, target))


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", dtypes.all, ids=repr)
def test_conversions_of_constants_equal_those_of_memory(target: DType) -> None:
    values = (0, -1, 300, 2.5, -2.5, -0.0, 1e-8, 464.5, 1e5, 1e10, -1e30, math.inf, -math.inf)
    for value in (*values, math.nan):
        stored = Tensor([value]).realize().cast(target)
        assert_same(Tensor(value).cast(target).numpy(), stored.numpy()[0])
        assert_same(Tensor.full((2,), value).cast(target).numpy()[1], stored.numpy()[0])


def test_integers_in_floats_saturate_when_they_are_cast_to_narrow_integers() -> None:
    # two casts must not become one, which would wrap around
    x = Tensor([-1, 127, 200, 300, -300], dtype=dtypes.int16).realize()
    assert x.float().cast(dtypes.uint8).tolist() == [0, 127, 200, 255, 0]
    assert x.float().cast(dtypes.int8).tolist() == [-1, 127, 127, 127, -128]
    assert x.cast(dtypes.uint8).tolist() == [255, 127, 200, 44, 212]


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", [d for d in dtypes.all if d is not dtypes.bool], ids=repr)
def test_bitcasts_to_every_dtype(source: DType) -> None:
    values = values_of(source)
    values = values[: len(values) // 8 * 8]
    x = Tensor(values).realize()
    for target in dtypes.all:
        if target is not dtypes.bool:
            kind = numpy_dtype(target)
            assert_same(x.bitcast(target).numpy(), values.view(kind))
            assert_same(x.reshape(-1, 8).bitcast(target).numpy(), values.reshape(-1, 8).view(kind))


def test_bitcasts_to_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuntimeError, match="sizes do not fit"):
        Tensor([1, 2, 3], dtype=dtypes.uint8).bitcast(dtypes.uint16)
    with pytest.raises(RuntimeError, match="sizes do not fit"):
        Tensor(1, dtype=dtypes.int32).bitcast(dtypes.int8)
    assert Tensor(1.0).bitcast(dtypes.uint32).item() == 0x3F80_0000
    assert Tensor([True, False]).bitcast(dtypes.uint8).tolist() == [1, 0]


# ---- arithmetic ----


@pytest.mark.parametrize("dtype", dtypes.floats, ids=repr)
def test_arithmetic_of_floats_is_rounded_to_the_dtype(dtype: DType) -> None:
    kind = numpy_dtype(dtype)
    a = np.array([0.0, 1.0, 1.5, -2.5, 3.0, 0.0625, 200.0, 1e-3, -7.0]).astype(kind)
    a, b = (x.ravel() for x in np.meshgrid(a, a[1:]))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    wide = np.float64 if dtype is dtypes.float64 else np.float32
    for function in (operator.add, operator.sub, operator.mul, operator.truediv):
        expected = converted(function(a.astype(wide), b.astype(wide)), dtype)
        found = function(x, y)
        assert found.dtype is dtype
        assert_same(found.numpy(), expected)
    for function in (operator.lt, operator.eq, operator.ge):
        np.testing.assert_array_equal(function(x, y).numpy(), function(a, b))
    assert_same(x.maximum(y).numpy(), np.maximum(a.astype(wide), b.astype(wide)).astype(kind))


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", dtypes.all, ids=repr)
def test_sums_are_accumulated_in_the_wide_type(dtype: DType) -> None:
    # 600 exceeds 8 bits, and bfloat16 cannot count to it by ones
    x = Tensor.ones(3, 600, dtype=dtype).contiguous().realize()
    wide = sum_acc_dtype(dtype)
    kind = wide if dtypes.is_bool(dtype) or dtypes.is_int(dtype) else dtype
    found = x.sum(axis=1)
    assert found.dtype is kind
    expected = converted(np.full(3, 600), kind)
    assert_same(found.numpy(), expected)
    assert x.sum(axis=1, dtype=dtypes.float32).tolist() == [600] * 3
    assert x.max(axis=1).tolist() == [1] * 3


@pytest.mark.parametrize("dtype", dtypes.all, ids=repr)
def test_matrix_products(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 3, shape) for shape in ((5, 17), (17, 9)))
    if dtype is dtypes.bool:
        a, b = a > 1, b > 1
    x, y = Tensor(a).cast(dtype).realize(), Tensor(b).cast(dtype).realize()
    # sums of small integers are exact before they are rounded
    expected = converted(a @ b, dtype)
    found = x @ y
    assert found.dtype is dtype
    assert_same(found.numpy(), expected)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=repr)
def test_integers_wrap_around(dtype: DType) -> None:
    values = values_of(dtype)[-300:]
    a, b = values, np.roll(values, 7)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    with np.errstate(all="ignore"):
        for function in (operator.add, operator.sub, operator.mul, operator.and_, operator.xor):
            assert_same(function(x, y).numpy(), function(a, b))
        assert_same((-x).numpy(), (-a))
        assert_same((~x).numpy(), ~a)
        assert_same(
            (x * 3 - 5).numpy(), a * numpy_dtype(dtype).type(3) - numpy_dtype(dtype).type(5)
        )
        # compilers that take an overflow to be impossible would drop these
        one, two = numpy_dtype(dtype).type(1), numpy_dtype(dtype).type(2)
        assert_same((x + 1 < x).numpy(), a + one < a)
        assert_same((x * 2 // 2).numpy(), a * two // two)
        assert_same((x.abs() < 0).numpy(), np.abs(a) < 0)
        assert_same((x - y < 0).numpy(), a - b < 0)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=repr)
def test_floor_division_and_the_sign_of_the_remainder(dtype: DType) -> None:
    low = -9 if dtype in dtypes.sints else 0
    pairs = list(itertools.product(range(low, 10), [n for n in range(low // 3, 5) if n]))
    a, b = np.array(pairs).astype(numpy_dtype(dtype)).T
    x, y = Tensor(a).realize(), Tensor(b).realize()
    for found, expected in (
        (x // y, a // b),
        (x % y, a % b),
        (x.div(y, rounding_mode="floor"), a // b),
        (x.div(y, rounding_mode="trunc"), np.trunc(a / b).astype(a.dtype)),
        (x.idiv(y), np.trunc(a / b).astype(a.dtype)),
        (17 // y, 17 // b),
        (17 % y, 17 % b),
    ):
        assert found.dtype is dtype
        assert_same(found.numpy(), expected)
    quotient = x / y
    assert quotient.dtype is dtypes.float32
    assert_same(quotient.numpy(), a.astype(np.float32) / b.astype(np.float32))
    shifts = Tensor(np.arange(8).astype(numpy_dtype(dtype)))
    one = Tensor([77], dtype=dtype)
    assert_same((one << shifts).numpy(), np.array([77], a.dtype) << shifts.numpy())
    assert_same((one >> shifts).numpy(), np.array([77], a.dtype) >> shifts.numpy())
    assert (1 << shifts).tolist()[:4] == [1, 2, 4, 8]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", dtypes.ints, ids=repr)
def test_shifts_by_the_width_or_more_shift_all_bits_out(dtype: DType) -> None:
    width, is_signed = dtype.itemsize * 8, dtype in dtypes.sints
    numbers = [1, 77, int(dtypes.max(dtype)), int(dtypes.min(dtype))]
    counts = [0, 1, width - 1, width, width + 1, 100, *([-1, -width] if is_signed else [])]
    x, n = Tensor(numbers, dtype=dtype).realize(), Tensor(counts, dtype=dtype).realize()
    left = [[(a << b) % (1 << width) if 0 <= b < width else 0 for b in counts] for a in numbers]
    right = [[a >> (b if 0 <= b < width else width) for b in counts] for a in numbers]
    modulus = np.array(left, np.uint64).astype(numpy_dtype(dtype))
    rows = x.reshape(-1, 1)
    np.testing.assert_array_equal((rows << n).numpy(), modulus)
    np.testing.assert_array_equal((rows >> n).numpy(), np.array(right, numpy_dtype(dtype)))
    # a constant count, and constants
    for column, count in enumerate(counts[:6]):
        for found in (x << count, Tensor.full((4,), 1, dtype=dtype) * x << count):
            np.testing.assert_array_equal(found.numpy(), modulus[:, column])
        assert (x >> count).tolist() == [row[column] for row in right]
        assert (Tensor.full((2,), 77, dtype=dtype) >> count).tolist() == [right[1][column]] * 2


def test_the_sign_of_zero_is_that_of_ieee_arithmetic() -> None:
    x, zero = Tensor([-0.0, 0.0]).realize(), Tensor([0.0]).realize()
    for found, expected in (
        (x + zero, [0.0, 0.0]),
        (x - zero, [-0.0, 0.0]),
        (0.0 - x, [0.0, 0.0]),
        (-x, [0.0, -0.0]),
        (x * -1 + zero, [0.0, 0.0]),
        (1 / (x + zero), [math.inf, math.inf]),
        # numbers that change nothing else
        (x + 0.0, [-0.0, 0.0]),
        (x - 0.0, [-0.0, 0.0]),
    ):
        assert_same(found.numpy(), np.array(expected, np.float32))


@pytest.mark.parametrize("dtype", dtypes.ints, ids=repr)
def test_division_by_zero_is_not_an_exception(dtype: DType) -> None:
    x, zero = Tensor([7, 0], dtype=dtype).realize(), Tensor([0, 0], dtype=dtype).realize()
    assert x.idiv(zero).tolist() == (x // zero).tolist() == [0, 0]
    assert (x % zero).tolist() == [7, 0]
    np.testing.assert_array_equal((x / zero).numpy(), [np.inf, np.nan])
    if dtype in dtypes.sints:
        least = int(dtypes.min(dtype))
        assert Tensor([least], dtype=dtype).idiv(-1).tolist() == [least]
        assert (Tensor([least], dtype=dtype).realize() % Tensor([-1], dtype=dtype)).item() == 0


REMAINDER_EDGES = [0.0, -0.0, 5, 6, -7.5, 0.1, -0.1, 1e7, 3, -2, 0.5, 1e30, 3e38, 1e-30, 1e-45]
REMAINDER_EDGES += [-1e-45, 2.0**24 + 1, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=repr)
def test_floor_division_and_remainder_of_floats_are_those_of_numpy(dtype: DType) -> None:
    kind = numpy_dtype(dtype)
    rng = np.random.default_rng(2)
    with np.errstate(all="ignore"):
        edges = np.array(REMAINDER_EDGES + [1e300] * (dtype is dtypes.float64)).astype(kind)
        a, b = (x.ravel() for x in np.meshgrid(edges, edges))
        a = np.concatenate([a, (rng.standard_normal(500) * 1000).astype(kind)])
        b = np.concatenate([b, rng.standard_normal(500).astype(kind)])
        x, y = Tensor(a).realize(), Tensor(b).realize()
        assert_same((x % y).numpy(), a % b)
        assert_same((x // y).numpy(), a // b)
        for divisor in (0.1, 2.0, -0.25, 6.2831853, math.inf, 0.0):
            assert_same((x % divisor).numpy(), a % kind.type(divisor))
            assert_same((x // divisor).numpy(), a // kind.type(divisor))
    with pytest.raises(TypeError, match="idiv takes integers"):
        x.idiv(y)


def test_remainders_of_constants_are_those_of_memory() -> None:
    for a, b in itertools.product((1e7, 6.0, -5.0, -0.0, math.inf), (0.1, math.inf, 0.0, -3.0)):
        x, y = Tensor([a]).realize(), Tensor([b]).realize()
        assert_same((Tensor(a) % b).numpy(), (x % y).numpy()[0])
        assert_same((Tensor(a) // b).numpy(), (x // y).numpy()[0])
    assert (5 % Tensor([math.inf])).tolist() == [5]
    assert (6 // Tensor([0.1])).tolist() == [59]


@pytest.mark.parametrize("signed", dtypes.sints, ids=repr)
@pytest.mark.parametrize("unsigned", dtypes.uints[:3], ids=repr)
def test_signed_and_unsigned_are_compared_by_value(signed: DType, unsigned: DType) -> None:
    a = np.array([-1, 0, 1, 127], numpy_dtype(signed))
    b = np.array([0, 127, 255], numpy_dtype(unsigned))
    found = Tensor(a).realize().reshape(-1, 1) < Tensor(b).realize()
    np.testing.assert_array_equal(found.numpy(), a.reshape(-1, 1).astype(int) < b.astype(int))


# ---- promotion ----

# JAX's lattice, from its documentation: the types directly above each type. The 8-bit floats, which
# JAX does not promote to each other, are between integers and 16-bit floats.
ABOVE = {
    "bool": ("uint8", "int8"),
    "uint8": ("uint16", "int16"),
    "uint16": ("uint32", "int32"),
    "uint32": ("uint64", "int64"),
    "uint64": ("weak float",),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("weak float",),
    "weak float": ("fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz"),
    "fp8e4m3": ("float16", "bfloat16"),
    "fp8e5m2": ("float16", "bfloat16"),
    "fp8e4m3fnuz": ("float16", "bfloat16"),
    "fp8e5m2fnuz": ("float16", "bfloat16"),
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "float32": ("float64",),
    "float64": (),
}


def reachable(name: str) -> set[str]:
    return {name}.union(*(reachable(above) for above in ABOVE[name]))


def joined(*types: DType) -> DType:
    """The join of the types in the lattice."""
    if len({*types} & {*dtypes.fp8s}) > 1 and dtypes.bfloat16 not in types:
        # float16 and bfloat16 are both minimal; the narrower exponent is chosen
        types = (*types, dtypes.float16)
    names = [next(n for n in ABOVE if dtypes.fields().get(n) is dtype) for dtype in types]
    common = set.intersection(*(reachable(name) for name in names))
    (least,) = [name for name in common if common <= reachable(name)]
    return dtypes.default_float if least == "weak float" else dtypes.fields()[least]


ANY = st.sampled_from(dtypes.all)


@given(ANY, ANY, ANY)
def test_promotion_is_the_join_of_the_lattice(a: DType, b: DType, c: DType) -> None:
    assert least_upper_dtype(a, b) is least_upper_dtype(b, a) is joined(a, b)
    assert least_upper_dtype(a, a) is a
    assert least_upper_dtype(a, b, c) is joined(a, b, c)
    # pairwise promotion is the same, except with the default float or the narrower exponent
    trio = {a, b, c}
    if not (
        len(trio & set(dtypes.fp8s)) > 1 or (dtypes.uint64 in trio and trio & set(dtypes.sints))
    ):
        assert least_upper_dtype(least_upper_dtype(a, b), c) is joined(a, b, c)


def test_tensors_promote_like_their_types() -> None:
    for a, b in itertools.product(dtypes.all, dtypes.all):
        x, y = Tensor([1], dtype=a), Tensor([1], dtype=b)
        assert (x + y).dtype is (x * y).dtype is x.maximum(y).dtype is joined(a, b)
        assert Tensor([True]).where(x, y).dtype is joined(a, b)
        assert (x < y).dtype is dtypes.bool
        quotient = joined(a, b)
        assert (x / y).dtype is (quotient if dtypes.is_float(quotient) else dtypes.default_float)


@pytest.mark.parametrize("dtype", dtypes.all, ids=repr)
def test_numbers_take_the_dtype_of_the_tensor_if_it_is_of_their_kind(dtype: DType) -> None:
    is_int, is_float = dtypes.is_int(dtype), dtypes.is_float(dtype)
    x = Tensor([1], dtype=dtype)
    for number, result in (
        (True, dtype),
        (2, dtype if is_int or is_float else dtypes.default_int),
        (0.5, dtype if is_float else dtypes.default_float),
    ):
        for found in (x + number, number + x, x * number, x.where(x, number), x.maximum(number)):
            assert found.dtype is result, number
    assert (x / 2).dtype is (2 / x).dtype is (dtype if is_float else dtypes.default_float)
    assert (x == 2.5).dtype is dtypes.bool


COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", dtypes.ints, ids=repr)
def test_comparisons_with_numbers_out_of_range_are_exact(dtype: DType) -> None:
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    values = [low, 0, 1, high]
    x = Tensor(values, dtype=dtype).realize()
    for number in (low - 1, low, -1, 0, 255, 256, high, high + 1, 2**70):
        for compared in COMPARISONS:
            assert compared(x, number).tolist() == [compared(v, number) for v in values]
            assert compared(number, x).tolist() == [compared(number, v) for v in values]
    assert x.clip(low - 5, high + 5).tolist() == x.maximum(low - 1).tolist() == values
    assert x.minimum(high + 1).tolist() == values
    assert x.clip(low - 5, 1).tolist() == [min(v, 1) for v in values]
    assert x.isclose(2**70).tolist() == [False] * 4


def test_numbers_that_the_dtype_cannot_hold_raise_or_are_used_as_they_are() -> None:
    x, i = Tensor([1, 200], dtype=dtypes.uint8).realize(), Tensor([5, -7]).realize()
    for refused in (
        lambda: i + 2**40,
        lambda: 2**40 - i,
        lambda: x + 256,
        lambda: x * 300,
        lambda: x.maximum(300),
        lambda: x.minimum(-1),
        lambda: x.clip(300, 400),
        lambda: x.where(300, x),
        lambda: x.full_like(300),
        lambda: x % 300,
        lambda: Tensor.full((2,), 2**40),
        lambda: Tensor.arange(2**31, 2**31 + 3),
        lambda: Tensor([True]) + 2**40,
    ):
        with pytest.raises(ValueError, match="out of range|does not fit"):
            refused()
    # negative numbers beside unsigned types are modulo the range, as are results
    assert (x - 2).tolist() == (x + -2).tolist() == [255, 198]
    assert (x * -1).tolist() == (-x).tolist() == [255, 56]
    assert (Tensor([2**31 - 1]) + 1).tolist() == [-(2**31)]
    # bit patterns
    assert (i & 0xFFFFFFFF).tolist() == [5, -7]
    assert (i ^ 0x80000000).tolist() == [5 - 2**31, 2**31 - 7]
    # quotients are floats, and exponents and shifts are no operands
    np.testing.assert_allclose((x / 300).numpy(), [1 / 300, 200 / 300], rtol=1e-6)
    np.testing.assert_allclose((x / -2).numpy(), [-0.5, -100])
    assert (x**300).tolist() == [1, 0]
    assert (x << 300).tolist() == (x >> 300).tolist() == [0, 0]
    # with a dtype that holds them
    large = [2**31, 2**31 + 1, 2**31 + 2]
    assert Tensor.arange(2**31, 2**31 + 3, dtype=dtypes.int64).tolist() == large
    assert Tensor.arange(2**31, 2**31 + 3, dtype=dtypes.float64).tolist() == large
    assert Tensor.full((2,), 2**40, dtype=dtypes.int64).tolist() == [2**40] * 2
    assert (i.long() + 2**40).tolist() == [2**40 + 5, 2**40 - 7]


def test_bits_of_a_tensor_that_requires_a_gradient_are_refused() -> None:
    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="bitcast to dtypes.int has no gradient"):
        x.bitcast(dtypes.int32)
    assert x.detach().bitcast(dtypes.int32).tolist() == [0x3F80_0000]


# ---- in-place operators ----

INPLACE: dict[str, tuple[Callable[[Any, Any], Any], Any, Any]] = {
    "+=": (operator.iadd, [5, -7], 3),
    "-=": (operator.isub, [5, -7], 3),
    "*=": (operator.imul, [5, -7], 3),
    "//=": (operator.ifloordiv, [5, -7], 3),
    "%=": (operator.imod, [5, -7], 3),
    "**=": (operator.ipow, [5, -7], 3),
    "&=": (operator.iand, [5, -7], 3),
    "|=": (operator.ior, [5, -7], 3),
    "^=": (operator.ixor, [5, -7], 3),
    "<<=": (operator.ilshift, [5, 7], 3),
    ">>=": (operator.irshift, [50, -70], 3),
    "/=": (operator.itruediv, [5.0, -7.0], 2.0),
    "@=": (operator.imatmul, [[1, 2], [3, 4]], [[0, 1], [1, 1]]),
}


@pytest.mark.parametrize("name", INPLACE)
def test_in_place_operators_write_to_the_memory_of_the_tensor(name: str) -> None:
    function, values, other = INPLACE[name]
    array = np.array(values, np.int32 if isinstance(values[0], (int, list)) else np.float32)
    x = Tensor(array).realize()
    same, view, buffer, older = x, x.flip(0), x.uop.buffer, x + 1
    operand = np.array(other, array.dtype) if isinstance(other, list) else other
    expected = function(array.copy(), operand)
    x = function(x, Tensor(other) if isinstance(other, list) else other)
    assert x is same
    x.realize()
    assert x.uop.buffer is buffer
    assert_same(x.numpy(), expected)
    assert_same(view.numpy(), np.flip(expected, 0))
    assert_same(older.numpy(), array + 1)


@pytest.mark.parametrize("name", [name for name in INPLACE if name != "@="])
def test_reflected_operators_take_numbers_on_the_left(name: str) -> None:
    function = {"/=": operator.truediv}.get(name) or getattr(
        operator, INPLACE[name][0].__name__[1:] + ("_" if name in ("&=", "|=") else "")
    )
    array = np.array([1, 2, 3], np.float32 if name == "/=" else np.int32)
    found = function(6, Tensor(array).realize())
    np.testing.assert_allclose(found.numpy(), function(np.int32(6), array), rtol=1e-6)


def test_in_place_operators_keep_shape_and_dtype() -> None:
    x = Tensor([1, 2]).realize()
    for change in (
        lambda: operator.itruediv(x, 2),
        lambda: operator.iadd(x, 1.5),
        lambda: operator.iadd(x, Tensor([[1], [2]])),
        lambda: operator.iadd(x, Tensor([1, 2], dtype=dtypes.int64)),
    ):
        with pytest.raises(ValueError, match=r"does not fit dtypes.int of shape \(2,\); cast or"):
            change()
    assert x.tolist() == [1, 2]


def test_in_place_operators_on_unrealized_tensors() -> None:
    x = y = Tensor.zeros(2)
    x += 1
    x *= Tensor([2.0, 3.0])
    assert y is x
    assert x.tolist() == [2, 3]
    part = Tensor([1.0, 2.0, 3.0]).realize()
    part[1:] += 10
    assert part.tolist() == [1, 12, 13]


def test_gradients_flow_through_in_place_addition() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    total = Tensor.zeros(2).contiguous().realize()
    total += w * 3
    total *= 2
    assert total.sum().gradient(w)[0].tolist() == [6, 6]


def test_one_element_is_a_python_number() -> None:
    assert (float(Tensor([2.5])), int(Tensor(-2.5)), complex(Tensor(1.5))) == (2.5, -2, 1.5)
    assert (abs(Tensor(-2.5)).item(), f"{Tensor([2.5]):.2f} {Tensor(3):03d}") == (2.5, "2.50 003")
    assert [bool(Tensor(x)) for x in (0, [3], [[-0.0]], float("nan"))] == [False, True, False, True]
    for convert in (float, int):
        with pytest.raises(ValueError, match=r"one element, not shape \(2,\)"):
            convert(Tensor([1, 2]))
    captured = TinyJit(lambda x: x + 1 if x.sum() > 0 else x)
    captured(Tensor([1.0]))
    with pytest.raises(RuntimeError, match="captures"):
        captured(Tensor([1.0]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float32, dtypes.float32),
        (np.dtype("uint16"), dtypes.uint16),
        (np.bool_, dtypes.bool),
        (np.longlong, dtypes.int64),
        (ml_dtypes.bfloat16, dtypes.bfloat16),
        (float, dtypes.float32),
        (int, dtypes.int32),
        (bool, dtypes.bool),
        ("half", dtypes.float16),
    ],
)
def test_numpy_and_python_types_are_dtypes(given: Any, expected: DType) -> None:
    x = Tensor([1, 2])
    results = [
        Tensor([1, 0], dtype=given),
        Tensor.zeros(2, dtype=given),
        x.cast(given),
        x.full_like(1, dtype=given),
        x.sum(dtype=given),
    ]
    assert [y.dtype for y in results] == [expected] * len(results)
    for wrong in (np.complex64, str, None, 3):
        with pytest.raises(TypeError, match="is not a dtype"):
            x.cast(wrong)


def test_unsupported_python_protocols_are_errors() -> None:
    x = Tensor([1, 2])
    with pytest.raises(TypeError, match="truth value of a tensor is ambiguous"):
        bool(x)
    with pytest.raises(TypeError, match="elements cannot be deleted"):
        del x[0]
    with pytest.raises(TypeError, match="no len"):
        len(Tensor(1))
    with pytest.raises(RuntimeError, match="takes integers and bools"):
        x.float() & 1
    assert len(Tensor.zeros(3, 2)) == 3


@pytest.mark.parametrize("dtype", [dtypes.fp8e4m3fnuz, dtypes.fp8e5m2fnuz])
def test_types_with_one_zero_have_no_negative_one(dtype: DType) -> None:
    x = Tensor([0.0, -0.0, 0.5, -0.25, 1e9, math.nan, math.inf]).cast(dtype)
    largest = float(ml_dtypes.finfo(BITS_ONLY[dtype]).max)
    for values, expected in {
        x: [0, 0, 0.5, -0.25, largest, math.nan, math.nan],
        -x: [0, 0, -0.5, 0.25, -largest, math.nan, math.nan],
        x.trunc() * -1.0: [0, 0, 0, 0, -largest, math.nan, math.nan],
    }.items():
        for found in (values.float(), values.contiguous().realize().float()):
            np.testing.assert_array_equal(found.numpy(), np.array(expected, np.float32))
            assert not np.signbit(found.numpy()[:2]).any()
