"""Interchange with Python, numpy, torch and DLPack: conversions both ways, and shared memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from test.devices import device_names, nth, only_cpu
from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.dtype import DType, to_numpy_dtype

WIDE = [dtype for dtype in dtypes.all if dtype.fmt is not None]
NARROW = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.fp8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    dtypes.fp8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}
TORCH_NAMES = {dtypes.fp8e4m3: "float8_e4m3fn"} | {x: x.name for x in dtypes.fp8s[1:]}


def address(tensor: Tensor) -> int:
    """The address of a realized tensor."""
    return int(tensor.uop.base.buffer.address)


def torch_dtype(torch: Any, dtype: DType) -> Any:
    name = next(name for name, found in dtypes.fields().items() if found is dtype)
    return getattr(torch, TORCH_NAMES.get(dtype, name))


# ---- Python values ----


@pytest.mark.parametrize(
    ("data", "dtype", "values"),
    [
        ([True, False], dtypes.bool, [True, False]),
        ([True, 2], dtypes.int, [1, 2]),
        ([[1, 2.5]], dtypes.float, [[1, 2.5]]),
        ((1, (2)), dtypes.int, [1, 2]),
        ([np.float64(2.5), np.int8(1)], dtypes.float, [2.5, 1]),
        ([np.arange(2), np.arange(2)], dtypes.int, [[0, 1], [0, 1]]),
        (np.float64(0.1), dtypes.float, np.float32(0.1).item()),
        (np.int8(3), dtypes.int8, 3),
        (np.array(5, np.uint16), dtypes.uint16, 5),
        ([[], []], dtypes.float, [[], []]),
        (None, dtypes.float, []),
        (b"\x01\xff", dtypes.uint8, [1, 255]),
        (bytearray(b"\x01"), dtypes.uint8, [1]),
        (memoryview(np.array([1.5])), dtypes.float64, [1.5]),
    ],
)
def test_python_values_have_a_dtype(data: Any, dtype: DType, values: Any) -> None:
    x = Tensor(data)
    assert x.dtype is dtype
    assert x.tolist() == values


@pytest.mark.parametrize("dtype", dtypes.ints, ids=repr)
def test_integers_wrap_around_in_an_explicit_dtype(dtype: DType) -> None:
    values = [dtypes.max(dtype) + 1, dtypes.min(dtype) - 1, dtypes.max(dtype), 2.75]
    expected = [dtypes.min(dtype), dtypes.max(dtype), dtypes.max(dtype), 2]
    assert Tensor(values, dtype=dtype).tolist() == expected
    assert [Tensor(x, dtype=dtype).item() for x in values] == expected


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if d is not dtypes.bool], ids=repr)
def test_bytes_are_raw_elements(dtype: DType) -> None:
    expected = Tensor([1, 2, 3], dtype=dtype)
    data = expected.bitcast(dtypes.uint8).numpy().tobytes()
    assert Tensor(data, dtype=dtype).tolist() == [1, 2, 3]
    assert Tensor(b"", dtype=dtype).shape == (0,)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Tensor("text"), TypeError, "no tensor can be built from 'text'"),
        (lambda: Tensor({1}), TypeError, "of type set"),
        (lambda: Tensor(["1"], dtype=dtypes.float), ValueError, "no dtype for '1' of type str"),
        (lambda: Tensor([None]), ValueError, "no dtype for None"),
        (lambda: Tensor([[1, 2], [3]]), ValueError, "inhomogeneous"),
        (lambda: Tensor([2**40]), ValueError, "does not fit dtypes.int; pass dtype=dtypes.int64"),
        (lambda: Tensor(2**40), ValueError, "pass dtype=dtypes.int64"),
        (lambda: Tensor(b"123", dtype=dtypes.int), ValueError, "3 bytes are not a multiple"),
        (lambda: Tensor([Tensor(1), Tensor(2)]), TypeError, r"use Tensor\.stack"),
        (lambda: Tensor(np.array(["a"])), TypeError, "no dtype for numpy's str"),
        (lambda: Tensor(np.array([None])), TypeError, "no dtype for numpy's object"),
        (lambda: Tensor(np.array([1j])), TypeError, "no dtype for numpy's complex128"),
        (lambda: Tensor.from_blob(0, (1,)), ValueError, "no memory at address 0"),
    ],
)
def test_other_types_are_errors(
    make: Callable[[], Tensor], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


# ---- numpy arrays, copied ----


@pytest.mark.parametrize("dtype", dtypes.all, ids=repr)
def test_arrays_survive_a_round_trip(dtype: DType) -> None:
    kind = NARROW.get(dtype) or to_numpy_dtype(dtype)
    array = np.array([[0, 1, 3], [1, 0, 2]]).astype(kind)
    for view in (array, array.T, array[:, ::2], array[::-1], array[:0]):
        x = Tensor(view)
        assert x.dtype is dtype
        assert x.numpy().dtype == (np.float32 if dtype in NARROW else kind)
        np.testing.assert_array_equal(x.numpy(), view.astype(x.numpy().dtype))


def test_arrays_in_any_form_are_copied() -> None:
    assert Tensor(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    array = np.arange(3)
    array.flags.writeable = False
    x = Tensor(array)
    x += 1
    assert (x.tolist(), array.tolist()) == ([1, 2, 3], [0, 1, 2])
    narrow = np.array([1.5, 300.0], ml_dtypes.bfloat16)
    assert Tensor(narrow, dtype=dtypes.fp8e4m3).tolist() == [1.5, 288.0]
    assert Tensor(narrow, dtype=dtypes.float64).tolist() == [1.5, 300.0]


@pytest.mark.parametrize("dtype", WIDE, ids=repr)
def test_data_is_a_memoryview_of_the_dtype_and_shape(dtype: DType) -> None:
    x = Tensor([[0, 1], [0, 1]], dtype=dtype)
    data = x.T.data()
    assert (data.format, data.shape, data.itemsize) == (dtype.fmt, (2, 2), dtype.itemsize)
    np.testing.assert_array_equal(np.asarray(data), [[0, 0], [1, 1]])
    assert (x[0, 1].data().shape, x[0, 1].item()) == ((), 1)


@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_types_missing_in_python_are_read_as_float32(dtype: DType) -> None:
    x = Tensor([1.5, 3.0], dtype=dtype)
    assert x.tolist() == [1.5, 3.0]
    assert x.numpy().dtype == np.asarray(x).dtype == np.float32
    with pytest.raises(TypeError, match="cast to float32 first"):
        x.data()


@only_cpu
def test_numpy_converts_tensors_to_arrays() -> None:
    x = Tensor([[1, 2], [3, 4]]).realize()
    np.testing.assert_array_equal(np.asarray(x.T), [[1, 3], [2, 4]])
    assert np.array(x, dtype=np.float64).dtype == np.float64
    copied, shared = np.array(x), np.array(x, copy=False)
    x += 1
    x.realize()
    assert copied.tolist() == [[1, 2], [3, 4]]
    assert shared.tolist() == [[2, 3], [4, 5]]
    assert np.array(Tensor([1, 2]).flip(0), copy=False).tolist() == [2, 1]


def test_an_array_without_copy_is_refused_if_it_needs_one() -> None:
    for x in (
        Tensor([1.0], dtype=dtypes.bfloat16),
        Tensor([1, 2]).shard(device_names(2, 1), axis=0),
    ):
        with pytest.raises(ValueError, match="leave out copy=False"):
            x.__array__(copy=False)
    with pytest.raises(ValueError, match="leave out copy=False"):
        Tensor([1]).__array__(dtype=np.float64, copy=False)


# ---- DLPack with numpy, without a copy ----


@pytest.mark.parametrize("dtype", WIDE, ids=repr)
def test_memory_of_numpy_is_shared(dtype: DType) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(to_numpy_dtype(dtype))
    x, transposed = Tensor.from_dlpack(array), Tensor.from_dlpack(array.T)
    assert x.dtype is dtype
    assert address(x) == address(transposed) == array.ctypes.data
    array[0, 0] = 1
    assert x.tolist() == array.tolist()
    assert transposed.tolist() == array.T.tolist()
    x.assign(x.zeros_like()).realize()
    assert not array.any()


@only_cpu
@pytest.mark.parametrize("dtype", WIDE, ids=repr)
def test_memory_is_shared_with_numpy(dtype: DType) -> None:
    x = Tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype).realize()
    array = np.from_dlpack(x.T)
    assert (array.dtype, array.ctypes.data) == (to_numpy_dtype(dtype), address(x))
    assert array.tolist() == x.T.tolist()
    array[0, 0] = 1
    assert x[0, 0].item() == 1
    x.assign(x.zeros_like()).realize()
    assert not array.any()


@only_cpu
def test_a_view_is_exported_with_its_strides() -> None:
    x = Tensor([[0, 1, 2], [3, 4, 5]]).realize()
    part = np.from_dlpack(x[:, 1:])
    assert (part.tolist(), part.strides) == ([[1, 2], [4, 5]], (12, 4))
    part[:] = 0
    assert x.tolist() == [[0, 0, 0], [3, 0, 0]]


@only_cpu
def test_constants_and_lazy_tensors_are_realized() -> None:
    for x in (Tensor.ones(2), Tensor([1.0, 2.0]) - Tensor([0.0, 1.0]), Tensor(1.0)):
        array = np.from_dlpack(x)
        array[...] = 5
        assert np.ravel(x.numpy()).tolist() == [5] * x.numel()
    assert Tensor.ones(2).tolist() == [1, 1]
    assert np.from_dlpack(Tensor.zeros(0, 3)).shape == (0, 3)
    assert Tensor.from_dlpack(np.zeros((0, 3))).shape == (0, 3)


@only_cpu
def test_memory_that_cannot_be_shared_is_copied() -> None:
    array = np.arange(6.0).reshape(2, 3)
    readonly = array.copy()
    readonly.flags.writeable = False
    for source in (array[:, ::2], array[::-1], np.broadcast_to(array[0], (2, 3)), readonly):
        x = Tensor.from_dlpack(source)
        assert x.tolist() == source.tolist()
        x.assign(x.zeros_like()).realize()
        assert source.any()
        with pytest.raises(BufferError, match="leave out copy=False"):
            Tensor.from_dlpack(source, copy=False)
    y = Tensor([1.0, 2.0]).realize()
    for view, values in ((y.flip(0), [2, 1]), (y.reshape(2, 1).expand(2, 2), [[1, 1], [2, 2]])):
        result = np.from_dlpack(view)
        assert result.tolist() == values
        result[:] = 0
        with pytest.raises(BufferError, match="repeats or reverses memory"):
            view.__dlpack__(copy=False)
    assert y.tolist() == [1, 2]


def test_copies_are_made_on_request() -> None:
    array = np.zeros(2)
    x = Tensor.from_dlpack(array, copy=True)
    given = np.from_dlpack(x, copy=True)
    array[:], given[:] = 1, 2
    assert x.tolist() == [0, 0]
    assert Tensor.from_dlpack(array, device=nth(1)).device == nth(1)


def test_memory_lives_as_long_as_a_tensor_uses_it() -> None:
    class Watched(np.ndarray[Any, Any]):
        pass

    array = np.ones(4).view(Watched)
    freed = weakref.ref(array)
    x = Tensor.from_dlpack(array)
    view = x.reshape(2, 2)
    del array, x
    gc.collect()
    assert freed() is not None
    assert view.tolist() == [[1, 1], [1, 1]]
    del view
    gc.collect()
    assert freed() is None


@only_cpu
def test_memory_lives_as_long_as_an_array_uses_it() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    array, place = np.from_dlpack(x), address(x)
    del x
    gc.collect()
    others = [Tensor([7.0, 7.0, 7.0]).realize() for _ in range(8)]
    assert place not in [address(other) for other in others]
    assert array.tolist() == [1, 2, 3]


@only_cpu
def test_a_capsule_keeps_memory_until_it_is_dropped() -> None:
    gc.collect()
    used = GlobalCounters.mem_used
    x = Tensor([1.0, 2.0, 3.0]).realize()
    capsule = x.__dlpack__(max_version=(1, 0))
    del x
    gc.collect()
    assert GlobalCounters.mem_used == used + 12
    del capsule
    gc.collect()
    assert GlobalCounters.mem_used == used


@only_cpu
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 5)])
def test_capsules_have_the_version_that_the_consumer_supports(version: Any) -> None:
    capsule = Tensor([1, 2]).__dlpack__(max_version=version)
    versioned = version is not None and version >= (1, 0)
    assert ("dltensor_versioned" in repr(capsule)) == versioned
    x = Tensor.from_dlpack(capsule)
    x.assign(x + 1).realize()
    assert x.tolist() == [2, 3]
    with pytest.raises(BufferError, match="was consumed before"):
        Tensor.from_dlpack(capsule)


@pytest.mark.parametrize(
    ("give", "error", "message"),
    [
        (lambda: Tensor([1]).__dlpack__(stream=1), BufferError, "leave out stream=1"),
        (lambda: Tensor([1]).__dlpack__(dl_device=(2, 0)), BufferError, "leave out dl_device"),
        (
            lambda: Tensor([1, 2]).shard(device_names(2, 1), axis=0).__dlpack__(),
            BufferError,
            r"copy it there first: \.to\('CPU'\)",
        ),
        (lambda: Tensor([1], device="NULL").__dlpack_device__(), BufferError, r"\.to\('CPU'\)"),
        (lambda: Tensor.from_dlpack([1]), TypeError, "takes an array that has __dlpack__"),
        (lambda: Tensor.from_dlpack(np.ones(1, np.complex64)), BufferError, "convert the array"),
    ],
)
def test_tensors_that_cannot_be_exported_are_errors(
    give: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        give()


@only_cpu
def test_arrays_of_other_devices_are_refused() -> None:
    class OnGPU:
        def __dlpack__(self, **wishes: Any) -> Any:
            raise AssertionError("the device is asked first")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    with pytest.raises(BufferError, match=r"device \(2, 1\), not on the CPU; copy it to the CPU"):
        Tensor.from_dlpack(OnGPU())
    assert Tensor([1]).to(nth(1)).__dlpack_device__() == (1, 0)


# ---- DLPack with types missing in numpy, and with torch ----


@only_cpu
@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_types_missing_in_numpy_survive_a_round_trip(dtype: DType) -> None:
    x = Tensor([[1.5, 2.0], [-0.0, 3.0]], dtype=dtype).realize()
    back = Tensor.from_dlpack(x.T)
    assert back.dtype is dtype
    assert address(back) == address(x)
    assert back.tolist() == x.T.tolist()
    with pytest.raises((RuntimeError, BufferError), match="dtype"):
        np.from_dlpack(x)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "@": lambda a, b: a @ b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_an_array_and_a_tensor_is_that_of_tensors(name: str) -> None:
    operator = OPERATORS[name]
    a, b = np.array([7.0, 2.0], np.float32), np.array([3.0, 5.0], np.float32)
    for result in (operator(a, Tensor(b)), operator(Tensor(a), b)):
        assert isinstance(result, Tensor)
        np.testing.assert_allclose(result.numpy(), operator(a, b), rtol=1e-6)


def test_a_numpy_number_takes_the_dtype_of_the_tensor() -> None:
    x = Tensor([1.0, 2.0])
    for number in (np.float64(3), np.float32(3), np.array(3.0)):
        for result in (number * x, x * number):
            assert isinstance(result, Tensor)
            assert (result.dtype, result.tolist()) == (dtypes.float32, [3, 6])


def test_functions_of_numpy_take_tensors() -> None:
    x = Tensor([[1.0, 4.0], [9.0, 16.0]])
    assert np.sum(x) == 30
    assert np.max(x, axis=0).tolist() == [9, 16]
    assert np.sqrt(x).tolist() == [[1, 2], [3, 4]]
    assert np.stack([x, x]).shape == (2, 2, 2)
    assert np.add.reduce(x, axis=1).tolist() == [5, 25]


def test_an_array_in_place_stays_an_array() -> None:
    array = np.ones(2, np.float32)
    alias = array
    array += Tensor([1.0, 2.0])
    assert array is alias
    assert alias.tolist() == [2, 3]


def test_floats_out_of_range_of_an_integer_dtype_saturate_in_every_way_of_creation() -> None:
    values = [1e10, -1e10, float("nan"), float("inf"), 1.7]
    expected = [2**31 - 1, -(2**31), 0, 2**31 - 1, 1]
    assert Tensor(values, dtype=dtypes.int).tolist() == expected
    assert Tensor(np.array(values), dtype=dtypes.int).tolist() == expected
    assert Tensor(np.array(values, np.float32)).cast(dtypes.int).tolist() == expected
    assert [Tensor(x, dtype=dtypes.int).item() for x in values] == expected
    large = Tensor(np.array([1e30, -1e30]), dtype=dtypes.long)
    assert large.tolist() == [2**63 - 1, -(2**63)]


def test_a_range_of_python_is_a_list() -> None:
    assert Tensor(range(3)).tolist() == [0, 1, 2]
    assert Tensor([10, 20, 30])[range(2, 0, -1)].tolist() == [30, 20]


@pytest.mark.parametrize("dtype", dtypes.all, ids=repr)
def test_torch_and_tensors_share_memory_in_both_directions(dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    kind = torch_dtype(torch, dtype)
    source = torch.tensor([[0, 1], [1, 1]]).to(kind).t()
    x = Tensor.from_dlpack(source)
    assert x.dtype is dtype
    assert address(x) == source.data_ptr()
    source[0, 1] = 0
    assert x.tolist() == source.float().tolist() == [[0, 0], [1, 1]]
    back = torch.from_dlpack(x)
    assert (back.dtype, back.data_ptr()) == (kind, source.data_ptr())
    x.assign(x.zeros_like()).realize()
    assert not back.float().any()
    own = Tensor([1, 1], dtype=dtype, device="CPU").realize()
    given, place = torch.from_dlpack(own), address(own)
    del own
    gc.collect()
    assert (given.data_ptr(), given.float().tolist()) == (place, [1, 1])


def test_torch_tensors_are_imported_by_copy_or_by_dlpack() -> None:
    torch = pytest.importorskip("torch")
    assert Tensor(torch.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match=r"use Tensor\.from_dlpack"):
        Tensor(torch.ones(2, dtype=torch.bfloat16))
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(2))
    assert Tensor.from_dlpack(capsule).tolist() == [1, 1]
