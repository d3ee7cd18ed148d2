"""Creation functions against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from test.devices import device_names, nth
from tinygrad import Sharding, Tensor, Variable, dtypes, nn
from tinygrad.uop import Ops


@pytest.mark.parametrize("shape", [(), (3,), (1, 1), (0, 2), (2, 3, 4)], ids=str)
def test_constants(shape: tuple[int, ...]) -> None:
    for x, value in (
        (Tensor.zeros(shape), 0),
        (Tensor.ones(*shape), 1),
        (Tensor.full(shape, 7), 7),
    ):
        np.testing.assert_array_equal(x.numpy(), np.full(shape, value))
        assert x.shape == shape
    like = Tensor.empty(shape, dtype=dtypes.int8)
    assert like.zeros_like().dtype == like.ones_like().dtype == like.empty_like().dtype
    assert like.full_like(3, dtype=dtypes.half).dtype == dtypes.half
    np.testing.assert_array_equal(like.full_like(3).numpy(), np.full(shape, 3))


def test_dtypes_of_constants() -> None:
    assert Tensor.zeros(2).dtype == Tensor.ones(2).dtype == Tensor.empty(2).dtype == dtypes.float
    assert Tensor.full((2,), 1).dtype == dtypes.int
    assert Tensor.full((2,), 1.0).dtype == dtypes.float
    assert Tensor.full((2,), True).dtype == dtypes.bool
    assert Tensor.full((2,), 1.7, dtype="int").tolist() == [1, 1]
    assert Tensor.full((2,), math.inf).tolist() == [math.inf] * 2
    assert Tensor.full((2,), 300, dtype=dtypes.uint8).tolist() == [44, 44]
    assert Tensor.full((2,), -1, dtype=dtypes.uint8).tolist() == [255, 255]


RANGES: list[tuple[Any, ...]] = [
    *((5,), (0,), (2, 7), (7, 2), (7, 2, -1), (5, 10, 2), (5, 11, 2), (-3, 3), (10, 0, -3)),
    *((0, 1, 0.1), (0.5,), (1.5, 4), (3.0, 0.0, -0.7), (-5,), (0, 10, 20)),
]


@pytest.mark.parametrize("arguments", RANGES, ids=str)
def test_arange(arguments: tuple[Any, ...]) -> None:
    found = Tensor.arange(*arguments)
    expected = np.arange(*arguments)
    assert found.is_floating_point() == (expected.dtype.kind == "f")
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("bounds", [(0, 10), (3, 10), (10, 0), (5, 6)], ids=str)
@pytest.mark.parametrize("step", [1, 3, 4, 12, -1, -3])
def test_arange_with_a_step_of_a_variable(bounds: tuple[int, int], step: int) -> None:
    variable = Variable("step", 1, 12) if step > 0 else Variable("step", -5, -1)
    found = Tensor.arange(*bounds, variable.bind(step))
    np.testing.assert_array_equal(found.numpy(), np.arange(*bounds, step))


def test_arange_with_all_numbers_of_variables() -> None:
    start, stop, step = (
        Variable(name, 1, 20).bind(n) for name, n in (("a", 2), ("b", 17), ("c", 4))
    )
    assert Tensor.arange(start, stop, step).numpy().tolist() == [2, 6, 10, 14]
    assert Tensor.arange(stop, start, step).numpy().tolist() == []
    with pytest.raises(ValueError, match="must not be 0; declare its Variables"):
        Tensor.arange(0, 9, Variable("d", 0, 5).bind(3))


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int64, dtypes.float16, dtypes.double])
def test_arange_of_a_dtype(dtype: Any) -> None:
    found = Tensor.arange(3, 20, 4, dtype=dtype)
    assert found.dtype == dtype
    assert found.tolist() == [3, 7, 11, 15, 19]


@pytest.mark.parametrize(
    ("start", "stop", "steps"), [(0, 10, 5), (3, -3, 7), (0.1, 0.2, 33), (2, 5, 1), (0, 1, 0)]
)
def test_linspace(start: float, stop: float, steps: int) -> None:
    found = Tensor.linspace(start, stop, steps).numpy()
    expected = np.linspace(start, stop, steps, dtype=np.float64).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    if steps > 1:
        assert (found[0], found[-1]) == (np.float32(start), np.float32(stop))


def test_linspace_of_integers() -> None:
    assert Tensor.linspace(0, 10, 3, dtype=dtypes.int).tolist() == [0, 5, 10]


@pytest.mark.parametrize("sizes", [(3,), (2, 4), (4, 2), (0,), (0, 3), (1, 1)], ids=str)
def test_eye(sizes: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(Tensor.eye(*sizes).numpy(), np.eye(*sizes))
    assert Tensor.eye(*sizes, dtype=dtypes.bool).dtype == dtypes.bool


@pytest.mark.sample(3)
@pytest.mark.parametrize("diagonal", [-4, -1, 0, 1, 4])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (1, 1), (0, 3)], ids=str)
def test_triangles(shape: tuple[int, ...], diagonal: int) -> None:
    x = np.arange(1, 1 + math.prod(shape), dtype=np.int32).reshape(shape)
    upper, lower = Tensor(x).triu(diagonal), Tensor(x).tril(diagonal)
    np.testing.assert_array_equal(upper.numpy(), np.triu(x, diagonal))
    np.testing.assert_array_equal(lower.numpy(), np.tril(x, diagonal))


def test_triangles_drop_nan_and_pass_the_gradient_of_the_rest() -> None:
    x = Tensor([[1.0, math.nan], [2.0, 3.0]], requires_grad=True)
    assert x.tril().tolist() == [[1, 0], [2, 3]]
    assert x.tril().sum().gradient(x)[0].tolist() == [[1, 0], [1, 1]]


def test_constants_on_devices_and_in_layouts() -> None:
    layout = Sharding(device_names(2), 0)
    x = Tensor.ones(4, 2, device=layout)
    assert x.device is layout
    assert x.zeros_like().device is layout
    assert Tensor.arange(4, device=nth(1)).device == nth(1)
    assert Tensor.eye(2, device=nth(1)).device == nth(1)
    # one row cannot be sharded, so it is replicated
    assert Tensor.ones(1, device=layout).device == layout.replicated()


@pytest.mark.parametrize(
    "layout", [nth(0), nth(1), Sharding(device_names(2)), Sharding(device_names(2), 0)], ids=str
)
def test_a_constant_like_a_tensor_is_beside_it(layout: Any) -> None:
    shards = Tensor([[1, 2], [3, 4]], dtype=dtypes.int8).to(layout).realize()
    for x in (shards, shards + 1, shards[:1], shards.T, shards.sum(0)):
        found = x.const_like(7)
        assert (found.device, found.dtype, found.shape) == (x.device, x.dtype, x.shape)
        assert (found + x).device == x.device
        np.testing.assert_array_equal(found.numpy(), np.full(x.shape, 7))


def test_a_buffer_has_memory_of_its_own_and_a_constant_has_none() -> None:
    for make in (Tensor.zeros, Tensor.ones, lambda n, **kwargs: Tensor.full((n,), 7, **kwargs)):
        expected = make(3).tolist()
        assert make(3, buffer=False).realize().uop.base.op is not Ops.BUFFER
        x = make(3, buffer=True, device=nth(1)).realize()
        assert x.device == nth(1) and x.tolist() == expected
        assert x.uop.base.op is Ops.BUFFER
    layout = Sharding(device_names(2), 0)
    assert Tensor.zeros(4, buffer=True, device=layout).realize().device == layout


def test_equal_constants_that_need_gradients_are_distinct() -> None:
    x, y = Tensor.ones(2, requires_grad=True), Tensor.ones(2, requires_grad=True)
    (x * 3 + y * 5).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([3, 3], [5, 5])


@pytest.mark.parametrize("make", ["empty", "rand", "randn", "uniform", "ones", "eye"])
def test_what_is_created_with_a_gradient_is_a_leaf(make: str) -> None:
    x, w = getattr(Tensor, make)(2, requires_grad=True), Tensor(2.0, requires_grad=True)
    x.assign(w * 3)
    x.sum().backward()
    assert x.grad is not None and w.grad is None


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "negative size": (
        lambda: Tensor.zeros(2, -1),
        ValueError,
        r"shape \(2, -1\): -1 is not a size",
    ),
    "float size": (
        lambda: Tensor.ones(1.5),
        ValueError,
        "1.5 is not a size; use nonnegative integers",
    ),
    "size of eye": (lambda: Tensor.eye(-1), ValueError, "-1 is not a size"),
    "a word": (lambda: Tensor.full((2,), "a"), TypeError, "no dtype for 'a' of type str"),
    "step of 0": (lambda: Tensor.arange(0, 5, 0), ValueError, r"arange\(0, 5, 0\): the step"),
    "no end": (lambda: Tensor.arange(math.inf), ValueError, "the numbers must be finite"),
    "negative steps": (lambda: Tensor.linspace(0, 1, -1), ValueError, "linspace: steps=-1 must be"),
    "float steps": (lambda: Tensor.linspace(0, 1, 2.5), ValueError, "linspace: steps=2.5 must be"),
    "bools": (lambda: Tensor.linspace(0, 1, 2, dtype=dtypes.bool), ValueError, "dtypes.bool"),
    "triangle": (lambda: Tensor.ones(3).triu(), ValueError, r"matrices, not shape \(3,\)"),
    "dtype": (lambda: Tensor.zeros(2, dtype="float33"), TypeError, "float33"),
    "device": (lambda: Tensor.zeros(2, device=3), TypeError, "device must be a name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_of_creation_name_the_mistake(name: str) -> None:
    function, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        function()


@pytest.mark.parametrize("data", [2**40, [1, 2**40], [[-(2**40)]]], ids=str)
def test_integers_that_need_64_bits_suggest_a_dtype_that_works(data: Any) -> None:
    with pytest.raises(
        ValueError, match="1099511627776 does not fit dtypes.int; pass dtype=dtypes.int64"
    ):
        Tensor(data)
    assert Tensor(data, dtype=dtypes.int64).tolist() == data
    with pytest.raises(ValueError, match=r"pass dtype=dtypes.uint64"):
        Tensor([2**63])
    with pytest.raises(ValueError, match=r"make it a float, which rounds it"):
        Tensor([2**64])


def test_a_list_of_bytes_is_a_matrix_of_bytes() -> None:
    rows = [b"abc", bytearray(b"def")]
    assert Tensor(rows).tolist() == [[97, 98, 99], [100, 101, 102]]
    assert Tensor(rows).dtype == dtypes.uint8
    assert Tensor([[b"ab"], [b"cd"]], dtype=dtypes.int).tolist() == [[[97, 98]], [[99, 100]]]
    assert Tensor([b"abc"]).keccak().tolist() == [Tensor(b"abc").keccak().tolist()]
    with pytest.raises(ValueError, match="no tensor of dtypes.uchar can be built"):
        Tensor([b"abc", b"de"])


def test_a_parameter_is_a_tensor_that_requires_a_gradient() -> None:
    x, y = Tensor([1.0, 2.0]).is_param_(), Tensor([3.0, 4.0])
    assert (x.is_param, x.requires_grad, y.is_param) == (True, True, None)
    (x * y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 4] and y.grad is None
    y.is_param = False
    assert y.requires_grad is False and nn.optim.SGD([x, y]).params == [x]


def test_sizes_may_be_numpy_integers() -> None:
    assert Tensor.zeros(np.int64(2), np.uint8(3)).shape == (2, 3)
    assert all(type(size) is int for size in Tensor.rand(np.int32(4)).shape)
