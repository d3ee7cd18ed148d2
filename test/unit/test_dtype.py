"""Element types: identity, names, promotion, limits, and the values they hold."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad.dtype import (
    AddrSpace,
    DType,
    PtrDType,
    can_lossless_cast,
    dtypes,
    from_float32_array,
    from_numpy_dtype,
    is_stored_as_bits,
    least_upper_dtype,
    least_upper_float,
    sum_acc_dtype,
    to_dtype,
    to_float32_array,
    to_numpy_dtype,
    truncate,
)

BITS_ONLY = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.fp8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    dtypes.fp8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}
DERIVED = (
    dtypes.float,
    dtypes.float.vec(4),
    dtypes.half.ptr(16),
    dtypes.half.vec(2).ptr(16, AddrSpace.LOCAL),
    dtypes.int.ptr(addrspace=AddrSpace.REG).vec(4),
)


# ---- names, limits, order ----


def test_names_limits_and_order_of_the_types_of_elements():
    fields = dtypes.fields()
    assert len(fields) == 28
    assert set(fields.values()) == set(dtypes.all)
    assert fields["half"] is fields["float16"] is dtypes.float16
    for dtype in dtypes.all:
        assert dtype.min == dtypes.min(dtype)
        assert dtype.max == dtypes.max(dtype)
        assert dtype.bitsize == (1 if dtype is dtypes.bool else dtype.itemsize * 8)
        assert dtype.vec(4).bitsize == 4 * dtype.bitsize
    assert sorted(dtypes.all)[0] is dtypes.bool
    assert dtypes.int8 < dtypes.float32 <= dtypes.float32 < dtypes.float64
    assert max(dtypes.int64, dtypes.bfloat16, dtypes.half) is dtypes.bfloat16
    with pytest.raises(TypeError, match="not supported"):
        _ = dtypes.int8 < 3


# ---- identity ----


@pytest.mark.parametrize("dtype", [*dtypes.all, *DERIVED], ids=repr)
def test_copies_and_pickles_are_the_same_object(dtype: DType):
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_equal_types_are_one_object():
    assert dtypes.float.vec(4) is dtypes.float32.vec(4)
    assert dtypes.float.vec(4).ptr(8) is dtypes.float.vec(4).ptr(8)
    assert dtypes.float.ptr(8) is not dtypes.float.ptr(8, AddrSpace.LOCAL)
    assert dtypes.float.vec(1) is dtypes.float


def test_vector_knows_its_lanes():
    vector = dtypes.half.vec(4)
    assert (vector.count, vector.itemsize, vector.scalar()) == (4, 8, dtypes.half)
    assert vector.base is vector
    assert vector.vcount == 4


def test_pointer_knows_what_it_points_to():
    pointer = dtypes.half.vec(4).ptr(16, AddrSpace.LOCAL)
    assert isinstance(pointer, PtrDType)
    assert (pointer.base, pointer.size, pointer.vcount) == (dtypes.half.vec(4), 16, 1)
    assert (pointer.addrspace, pointer.scalar()) == (AddrSpace.LOCAL, dtypes.half)
    assert pointer.nbytes() == 16 * 8
    assert pointer.vec(3).vcount == 3
    assert pointer.vec(3).base is pointer.base


def test_void_stays_void_as_a_vector():
    assert dtypes.void.vec(4) is dtypes.void


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dtypes.float.vec(2).vec(4), r"4 lanes of dtypes.float.vec\(2\)"),
        (lambda: dtypes.float.ptr(2).vec(2).vec(4), "is a vector already"),
        (lambda: dtypes.float.ptr(2).ptr(4), r"cannot point to dtypes.float.ptr\(2\)"),
        (lambda: dtypes.float.ptr().nbytes(), "does not say how many"),
    ],
)
def test_impossible_types_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (dtypes.float32, "dtypes.float"),
        (dtypes.uint8, "dtypes.uchar"),
        (dtypes.bfloat16, "dtypes.bfloat16"),
        (dtypes.int64.vec(2), "dtypes.long.vec(2)"),
        (dtypes.half.ptr(3), "dtypes.half.ptr(3)"),
        (dtypes.half.ptr(3, AddrSpace.REG).vec(2), "dtypes.half.ptr(3, AddrSpace.REG).vec(2)"),
    ],
)
def test_the_repr_of_a_type_evaluates_to_it(dtype, text):
    assert repr(dtype) == text
    assert eval(text, {"dtypes": dtypes, "AddrSpace": AddrSpace}) is dtype


def test_a_type_is_found_by_any_of_its_names():
    assert to_dtype("float32") is to_dtype("float") is to_dtype(dtypes.float) is dtypes.float32
    assert to_dtype("half") is dtypes.float16
    with pytest.raises(
        TypeError, match="'float31' is not a dtype; there are void, weakint, index, bool"
    ):
        to_dtype("float31")


# ---- predicates and limits ----


def test_every_type_is_of_exactly_one_kind():
    for dtype in dtypes.all:
        kinds = (dtypes.is_float(dtype), dtypes.is_int(dtype), dtypes.is_bool(dtype))
        assert sum(kinds) == 1, dtype
        assert dtypes.is_float(dtype.vec(2)) == kinds[0]
    assert dtypes.is_int(dtypes.index)
    assert not dtypes.is_unsigned(dtypes.index)
    assert all(dtypes.is_unsigned(dtype) for dtype in dtypes.uints)
    assert not any(dtypes.is_unsigned(dtype) for dtype in dtypes.sints)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=repr)
def test_limits_of_integers_are_numpys(dtype):
    info = np.iinfo(to_numpy_dtype(dtype))
    assert (dtypes.min(dtype), dtypes.max(dtype)) == (info.min, info.max)


def test_limits_of_other_types():
    assert (dtypes.min(dtypes.half), dtypes.max(dtypes.half)) == (-math.inf, math.inf)
    assert (dtypes.min(dtypes.fp8e4m3), dtypes.max(dtypes.fp8e4m3)) == (-448, 448)
    for dtype in dtypes.fp8s:
        if not math.isinf(dtype.max):
            assert dtype.max == -dtype.min == float(ml_dtypes.finfo(BITS_ONLY[dtype]).max)
    assert (dtypes.min(dtypes.bool), dtypes.max(dtypes.bool)) == (False, True)


@pytest.mark.parametrize("dtype", dtypes.floats, ids=repr)
def test_finfo_is_that_of_ml_dtypes(dtype):
    info = ml_dtypes.finfo(BITS_ONLY.get(dtype) or to_numpy_dtype(dtype))
    assert dtypes.finfo(dtype) == (info.nexp, info.nmant)


def test_finfo_of_an_integer_is_an_error():
    with pytest.raises(TypeError, match=r"needs a floating-point type, not dtypes\.int"):
        dtypes.finfo(dtypes.int)


def test_constants_take_the_python_type_of_the_dtype():
    assert repr(dtypes.as_const(1, dtypes.float)) == "1.0"
    assert repr(dtypes.as_const(1.9, dtypes.int)) == "1"
    assert repr(dtypes.as_const(2, dtypes.bool)) == "True"
    assert repr(dtypes.as_const((1, 2.5), dtypes.int)) == "(1, 2)"


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, dtypes.bool), (1, dtypes.int), (1.0, dtypes.float), ([[1], [True, 2.0]], dtypes.float)],
)
def test_python_values_have_a_type(value, dtype):
    assert dtypes.from_py(value) is dtype


def test_empty_list_is_of_floats_and_text_has_no_type():
    assert dtypes.from_py([]) is dtypes.default_float
    with pytest.raises(TypeError, match="no dtype for 'text' of type str"):
        dtypes.from_py("text")


def test_default_float_can_be_set(monkeypatch):
    monkeypatch.setattr(dtypes, "default_float", dtypes.half)
    assert dtypes.from_py(1.0) is dtypes.half
    assert least_upper_float(dtypes.int) is dtypes.half
    assert least_upper_dtype(dtypes.int64, dtypes.uint64) is dtypes.half


def python_with_default_float(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tinygrad.dtype import dtypes; print(dtypes.default_float)"],
        env={"DEFAULT_FLOAT": name},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def test_default_float_comes_from_the_environment():
    assert python_with_default_float("bfloat16").stdout.split()[-1] == "dtypes.bfloat16"


def test_a_default_float_that_is_no_float_is_an_error():
    assert "DEFAULT_FLOAT=int8 is not a floating" in python_with_default_float("int8").stderr


# ---- promotion ----

# rows and columns in this order; from the table in JAX's documentation, with the default float in
# place of the weak one, and with promotion of 8-bit floats, which JAX refuses
PROMOTION = """
        b1  i8  u8  i16 u16 i32 u32 i64 u64 f8a f8b f8c f8d f16 bf  f32 f64
b1      b1  i8  u8  i16 u16 i32 u32 i64 u64 f8a f8b f8c f8d f16 bf  f32 f64
i8      i8  i8  i16 i16 i32 i32 i64 i64 f32 f8a f8b f8c f8d f16 bf  f32 f64
u8      u8  i16 u8  i16 u16 i32 u32 i64 u64 f8a f8b f8c f8d f16 bf  f32 f64
i16     i16 i16 i16 i16 i32 i32 i64 i64 f32 f8a f8b f8c f8d f16 bf  f32 f64
u16     u16 i32 u16 i32 u16 i32 u32 i64 u64 f8a f8b f8c f8d f16 bf  f32 f64
i32     i32 i32 i32 i32 i32 i32 i64 i64 f32 f8a f8b f8c f8d f16 bf  f32 f64
u32     u32 i64 u32 i64 u32 i64 u32 i64 u64 f8a f8b f8c f8d f16 bf  f32 f64
i64     i64 i64 i64 i64 i64 i64 i64 i64 f32 f8a f8b f8c f8d f16 bf  f32 f64
u64     u64 f32 u64 f32 u64 f32 u64 f32 u64 f8a f8b f8c f8d f16 bf  f32 f64
f8a     f8a f8a f8a f8a f8a f8a f8a f8a f8a f8a f16 f16 f16 f16 bf  f32 f64
f8b     f8b f8b f8b f8b f8b f8b f8b f8b f8b f16 f8b f16 f16 f16 bf  f32 f64
f8c     f8c f8c f8c f8c f8c f8c f8c f8c f8c f16 f16 f8c f16 f16 bf  f32 f64
f8d     f8d f8d f8d f8d f8d f8d f8d f8d f8d f16 f16 f16 f8d f16 bf  f32 f64
f16     f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f32 f64
bf      bf  bf  bf  bf  bf  bf  bf  bf  bf  bf  bf  bf  bf  f32 bf  f32 f64
f32     f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64     f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""
SHORT = {
    "b1": dtypes.bool,
    "i8": dtypes.int8,
    "u8": dtypes.uint8,
    "i16": dtypes.int16,
    "u16": dtypes.uint16,
    "i32": dtypes.int32,
    "u32": dtypes.uint32,
    "i64": dtypes.int64,
    "u64": dtypes.uint64,
    "f8a": dtypes.fp8e4m3,
    "f8b": dtypes.fp8e5m2,
    "f8c": dtypes.fp8e4m3fnuz,
    "f8d": dtypes.fp8e5m2fnuz,
    "f16": dtypes.float16,
    "bf": dtypes.bfloat16,
    "f32": dtypes.float32,
    "f64": dtypes.float64,
}


def test_promotion_of_every_pair_is_jaxs():
    header, *rows = [line.split() for line in PROMOTION.strip().splitlines()]
    assert set(SHORT.values()) == set(dtypes.all)
    for first, *results in rows:
        for second, result in zip(header, results, strict=True):
            found = least_upper_dtype(SHORT[first], SHORT[second])
            assert found is SHORT[result], (first, second)


def test_promotion_does_not_depend_on_the_order():
    for trio in itertools.combinations(dtypes.all, 3):
        assert len({least_upper_dtype(*order) for order in itertools.permutations(trio)}) == 1


def test_types_that_do_not_promote_are_named():
    assert least_upper_dtype(dtypes.index, dtypes.index) is dtypes.index
    with pytest.raises(TypeError, match=r"dtypes\.index does not promote"):
        least_upper_dtype(dtypes.index, dtypes.int)


def test_least_upper_float_keeps_floats():
    assert least_upper_float(dtypes.half) is dtypes.half
    assert least_upper_float(dtypes.int64) is dtypes.float32


@pytest.mark.parametrize("target", dtypes.all, ids=repr)
@pytest.mark.parametrize("source", dtypes.all, ids=repr)
def test_lossless_casts_are_those_that_keep_the_extreme_values(source, target):
    assert can_lossless_cast(source, target) == all(
        truncate[target](value) == value for value in extreme_values(source)
    )


def extreme_values(dtype: DType) -> list[float]:
    """Values that no type can hold unless it can hold all of `dtype`."""
    if not dtypes.is_float(dtype):
        # the odd number below the maximum needs every bit of a mantissa
        return [dtypes.min(dtype), dtypes.max(dtype), max(int(dtypes.max(dtype)) - 2, 0)]
    exponent, mantissa = dtypes.finfo(dtype)
    bias = 2 ** (exponent - 1) - 1
    return [math.ldexp(1, 1 - bias - mantissa), 1 + math.ldexp(1, -mantissa), math.ldexp(1, bias)]


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    [
        (dtypes.bool, dtypes.int32),
        (dtypes.int8, dtypes.int32),
        (dtypes.int64, dtypes.int64),
        (dtypes.uint8, dtypes.uint32),
        (dtypes.uint64, dtypes.uint64),
        (dtypes.half, dtypes.float32),
        (dtypes.bfloat16, dtypes.float32),
        (dtypes.float64, dtypes.float64),
    ],
)
def test_sums_are_accumulated_in_at_least_32_bits(dtype, accumulator):
    assert sum_acc_dtype(dtype) is accumulator


# ---- values ----


def test_every_type_can_be_rounded_to():
    assert truncate.keys() == set(dtypes.all)


@given(st.integers(-(2**70), 2**70), st.sampled_from(dtypes.ints))
def test_integers_wrap_around(value: int, dtype: DType):
    wrapped = truncate[dtype](value)
    assert dtypes.min(dtype) <= wrapped <= dtypes.max(dtype)
    assert (wrapped - value) % 2 ** (dtype.itemsize * 8) == 0


@given(st.floats())
def test_float32_rounds_as_numpy_does(value: float):
    with np.errstate(all="ignore"):
        expected = float(np.float32(value))
    assert same(truncate[dtypes.float32](value), expected)


@given(st.floats() | st.floats(-70000, 70000) | st.floats(-1e-4, 1e-4))
def test_float16_rounds_as_numpy_does(value: float):
    with np.errstate(all="ignore"):
        expected = float(np.float16(value))
    assert same(truncate[dtypes.float16](value), expected)


@pytest.mark.parametrize("dtype", BITS_ONLY, ids=repr)
@given(value=st.floats(width=32) | st.floats(-500, 500, width=32))
def test_narrow_floats_round_as_ml_dtypes_does_but_8_bits_saturate(dtype: DType, value: float):
    limit = truncate[dtype](float(ml_dtypes.finfo(BITS_ONLY[dtype]).max))
    fits = dtype is dtypes.bfloat16 or math.isinf(value) or abs(value) <= limit or value != value
    with np.errstate(all="ignore"):
        source = value if fits else math.copysign(limit, value)
        expected = float(np.array(source, np.float32).astype(BITS_ONLY[dtype]))
    assert same(truncate[dtype](value), expected)


def test_a_double_is_rounded_to_bfloat16_once():
    # just above a tie: via float32 it would become the tie, and round down to even
    assert truncate[dtypes.bfloat16](1 + 2**-8 + 2**-40) == 1 + 2**-7


def test_too_large_an_integer_rounds_to_infinity():
    assert truncate[dtypes.half](10**400) == math.inf
    assert truncate[dtypes.half](-(10**400)) == -math.inf
    assert truncate[dtypes.fp8e4m3](-(10**400)) == -448


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (dtypes.fp8e4m3, 465, 448.0),
        (dtypes.fp8e4m3, -1e300, -448.0),
        (dtypes.fp8e4m3, math.inf, math.nan),
        (dtypes.fp8e5m2, 61440, 57344.0),
        (dtypes.fp8e5m2, -1e300, -57344.0),
        (dtypes.fp8e5m2, math.inf, math.inf),
        (dtypes.fp8e5m2, 2**-17, 0.0),
        (dtypes.fp8e4m3fnuz, 1e9, 240.0),
        (dtypes.fp8e4m3fnuz, -math.inf, math.nan),
        (dtypes.fp8e4m3fnuz, -0.0, 0.0),
        (dtypes.fp8e4m3fnuz, -(2**-11), 0.0),
        (dtypes.fp8e5m2fnuz, -1e9, -57344.0),
        (dtypes.fp8e5m2, 2**-17 * 1.01, 2**-16),
        (dtypes.half, 65520, math.inf),
        (dtypes.bfloat16, -0.0, -0.0),
    ],
)
def test_rounding_at_the_edges(dtype, value, expected):
    assert same(truncate[dtype](value), expected)


@pytest.mark.parametrize("dtype", BITS_ONLY, ids=repr)
def test_every_narrow_float_survives_a_round_trip(dtype: DType):
    stored = np.arange(2 ** (8 * dtype.itemsize)).astype(to_numpy_dtype(dtype))
    values = to_float32_array(stored, dtype)
    expected = stored.view(BITS_ONLY[dtype]).astype(np.float32)
    np.testing.assert_array_equal(values, expected)
    numbers = ~np.isnan(values)
    back = from_float32_array(values, dtype)
    np.testing.assert_array_equal(back[numbers], stored[numbers])
    assert np.isnan(to_float32_array(back[~numbers], dtype)).all()


@pytest.mark.parametrize("dtype", BITS_ONLY, ids=repr)
def test_arrays_round_as_scalars_do(dtype: DType):
    generator = np.random.default_rng(0)
    sample = generator.normal(size=(8, 250)) * 10.0 ** generator.uniform(-8, 6, (8, 250))
    sample[0, :5] = [0.0, -0.0, math.inf, -math.inf, math.nan]
    values = sample.astype(np.float32)
    stored = from_float32_array(values, dtype)
    assert stored.dtype == to_numpy_dtype(dtype)
    expected = [[truncate[dtype](value) for value in row] for row in values.tolist()]
    np.testing.assert_array_equal(to_float32_array(stored, dtype), np.array(expected))
    assert from_float32_array(np.float32(1.5), dtype).shape == ()


# ---- numpy ----


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if d.fmt], ids=repr)
def test_a_numpy_type_has_the_same_size_and_converts_back(dtype: DType):
    found = to_numpy_dtype(dtype)
    assert dtype.fmt is not None
    assert found.itemsize == dtype.itemsize == struct.calcsize(dtype.fmt)
    assert from_numpy_dtype(found) is dtype
    assert not is_stored_as_bits(dtype)


@pytest.mark.parametrize("dtype", BITS_ONLY, ids=repr)
def test_types_missing_in_numpy_are_stored_as_bits(dtype: DType):
    assert is_stored_as_bits(dtype)
    assert to_numpy_dtype(dtype) == np.dtype(f"u{dtype.itemsize}")
    assert from_numpy_dtype(BITS_ONLY[dtype]) is dtype


def test_types_without_a_counterpart_are_named():
    with pytest.raises(TypeError, match="numpy has no type for dtypes.void"):
        to_numpy_dtype(dtypes.void)
    with pytest.raises(TypeError, match="no dtype for numpy's complex64"):
        from_numpy_dtype(np.complex64)


def same(found: float, expected: float) -> bool:
    """Whether two values are equal; NaN equals NaN, and -0.0 does not equal 0.0."""
    if math.isnan(expected):
        return math.isnan(found)
    return found == expected and math.copysign(1, found) == math.copysign(1, expected)
