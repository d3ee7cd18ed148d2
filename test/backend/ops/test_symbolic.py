"""Symbolic sizes and positions: ops with bound Variables, one kernel for all values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import device_names, nth
from tinygrad import Context, Tensor, TinyJit, UOp, Variable, dtypes
from tinygrad.dtype import DType, truncate
from tinygrad.execution.realize import compiled_kernels

pytestmark = pytest.mark.usefixtures("verified_replays")

DATA = np.random.default_rng(0).normal(size=(3, 16, 4)).astype(np.float32)
LENGTHS = (1, 3, 16)


def bound(length: int) -> UOp:
    return Variable("length", 1, 16).bind(length)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "slice": (lambda x: x, lambda x: x),
    "arithmetic": (lambda x: x * 2 + x, lambda x: x * 3),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "sum along": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "mean": (lambda x: x.mean(1), lambda x: x.mean(1)),
    "variance": (lambda x: x.var(1, correction=0), lambda x: x.var(1)),
    "max": (lambda x: x.max(1), lambda x: x.max(1)),
    "argmax": (lambda x: x.argmax(1), lambda x: x.argmax(1)),
    "softmax": (lambda x: x.softmax(1).sum(1), lambda x: np.ones((3, 4), np.float32)),
    "transpose": (lambda x: x.transpose(0, 1), lambda x: x.transpose(1, 0, 2)),
    "reshape": (lambda x: x.reshape(-1, 2, 2), lambda x: x.reshape(-1, 2, 2)),
    "matmul": (lambda x: x @ x.transpose(1, 2), lambda x: x @ x.transpose(0, 2, 1)),
    "cat": (
        lambda x: x.cat(x[:, :1], dim=1).sum(1),
        lambda x: np.concatenate([x, x[:, :1]], 1).sum(1),
    ),
    "pad": (lambda x: x.pad((0, 0, 1, 0)).sum(1), lambda x: x.sum(1)),
    "range": (
        lambda x: (x.max(2) + x.arange(x.shape[1])).sum(),
        lambda x: (x.max(2) + np.arange(x.shape[1])).sum(),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_a_prefix_of_symbolic_length(name: str) -> None:
    function, expected = FUNCTIONS[name]
    x = Tensor(DATA).realize()
    kernels = []
    for length in LENGTHS:
        found = function(x[:, : bound(length)])
        np.testing.assert_allclose(
            found.numpy(), expected(DATA[:, :length]), rtol=1e-4, atol=1e-5, err_msg=str(length)
        )
        kernels.append(len(compiled_kernels))
    assert kernels[0] == kernels[-1], "a kernel was compiled again for another length"


def test_one_position() -> None:
    x = Tensor(DATA).realize()
    for position in (1, 15):
        at = Variable("position", 0, 15).bind(position)
        np.testing.assert_array_equal(x[:, at].numpy(), DATA[:, position])
        np.testing.assert_array_equal(x[:, at : at + 1].numpy(), DATA[:, position : position + 1])


def test_writing_at_a_position() -> None:
    x, expected = Tensor(DATA).realize(), DATA.copy()
    for position in (2, 7):
        at = Variable("position", 0, 15).bind(position)
        x[:, at : at + 1] = Tensor(np.full((3, 1, 4), float(position), np.float32))
        expected[:, position] = position
        np.testing.assert_array_equal(x.numpy(), expected)


MOVEMENT: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, int], Any]]] = {
    "from a position on": (lambda x, n: x[:, n - 1 :], lambda x, n: x[:, n - 1 :]),
    "up to the end": (lambda x, n: x[:, n - 1 : -1], lambda x, n: x[:, n - 1 : -1]),
    "all but the last": (lambda x, n: x[:, : n - 1], lambda x, n: x[:, : n - 1]),
    "at a position": (lambda x, n: x[:, n - 1], lambda x, n: x[:, n - 1]),
    "flip": (lambda x, n: x[:, :n].flip(1), lambda x, n: x[:, :n][:, ::-1]),
    "flatten": (lambda x, n: x[:, :n].flatten(), lambda x, n: x[:, :n].reshape(-1)),
    "filled up": (
        lambda x, n: x[:, :n].pad((None, (0, 16 - n), None), value=7),
        lambda x, n: np.pad(x[:, :n], ((0, 0), (0, 16 - n), (0, 0)), constant_values=7),
    ),
    "repeat": (lambda x, n: x[:, :n].repeat(1, 2, 1), lambda x, n: np.tile(x[:, :n], (1, 2, 1))),
    "stack": (lambda x, n: x[:, :n].stack(x[:, :n]), lambda x, n: np.stack([x[:, :n]] * 2)),
    "ones": (lambda x, n: Tensor.ones(n, 2), lambda x, n: np.ones((n, 2))),
    "arange": (lambda x, n: Tensor.arange(n, n + 3), lambda x, n: np.arange(n, n + 3)),
    "cat": (
        lambda x, n: x[:, :n].cat(x[:, : 17 - n], dim=1),
        lambda x, n: np.concatenate([x[:, :n], x[:, : 17 - n]], 1),
    ),
    "last row by index": (
        lambda x, n: x[:, :n][:, Tensor([-1, 0])],
        lambda x, n: x[:, :n][:, [-1, 0]],
    ),
    "rows out of range": (lambda x, n: x[:, :n][:, Tensor([16])], lambda x, n: x[:, :1] * 0),
    "elsewhere": (lambda x, n: x[:, :n].to(nth(1)), lambda x, n: x[:, :n]),
    "contiguous": (lambda x, n: x[:, :n].contiguous(), lambda x, n: x[:, :n]),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", MOVEMENT)
def test_movement_by_a_symbolic_size(name: str, length: int) -> None:
    function, expected = MOVEMENT[name]
    found = function(Tensor(DATA).realize(), bound(length))
    np.testing.assert_allclose(found.numpy(), expected(DATA, length), rtol=1e-6)


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "part": lambda x, n: (x[:, :n] * x[:, :n]).sum(),
    "position": lambda x, n: (x[:, n - 1] * 3).sum(),
    "reshape": lambda x, n: (x[:, :n].reshape(-1, 2) * 2).sum(),
    "matmul": lambda x, n: (x[0, :n] @ x[1, :n].T).sum(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_through_a_symbolic_size(name: str) -> None:
    function = GRADIENTS[name]
    for length in LENGTHS:
        x, y = Tensor(DATA, requires_grad=True), Tensor(DATA, requires_grad=True)
        function(x, bound(length)).backward()
        function(y, length).backward()
        assert x.grad is not None
        assert y.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "position": lambda x, n: x.__setitem__((slice(None), n - 1), 5),
    "part": lambda x, n: x.__setitem__((slice(None), slice(None, n)), -1),
    "by rows": lambda x, n: x.__setitem__(([2, 0], slice(None, n)), 4),
    "moved": lambda x, n: x.__setitem__((slice(None), slice(n - 1, n)), x[:, :1] * 2),
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_writing_at_a_symbolic_position(name: str, lazy: bool) -> None:
    for length in LENGTHS:
        expected = DATA.copy()
        if name == "moved":
            expected[:, length - 1 : length] = DATA[:, :1] * 2
        else:
            WRITES[name](expected, length)
        x = Tensor(DATA).neg().neg() if lazy else Tensor(DATA).realize()
        WRITES[name](x, bound(length))
        np.testing.assert_array_equal(x.numpy(), expected)


def test_a_cache_is_filled_by_a_captured_function() -> None:
    cache, expected = Tensor.zeros(2, 8, 4).contiguous().realize(), np.zeros((2, 8, 4), np.float32)

    @TinyJit
    def step(new: Tensor, at: UOp) -> Tensor:
        keys, values = cache[0, at : at + 1], cache[1, at : at + 1]
        keys.assign(new)
        values.assign(values + new * 2)
        Tensor.realize(keys, values)
        return cache[:, : at + 1].sum(1).realize()

    for position in range(8):
        row = np.full((1, 4), position + 1, np.float32)
        expected[:, position] = row * [[1], [2]]
        found = step(Tensor(row).realize(), Variable("at", 0, 7).bind(position))
        np.testing.assert_array_equal(found.numpy(), expected[:, : position + 1].sum(1))
    np.testing.assert_array_equal(cache.numpy(), expected)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, n: x[:, :n] + x, r"shapes \(3, length\[3\], 4\) and \(3, 16, 4\) do not broadc"),
        (lambda x, n: x[:, :n].cat(x, dim=0), r"shapes \(3, length\[3\], 4\) and \(3, 16, 4\)"),
        (lambda x, n: x[:, :n].reshape(7, n, 4), r"\(3, length\[3\], 4\) -> \(7, length\[3\], 4\)"),
        (lambda x, n: x[:, :n].reshape(-1, n + 1), "the size for -1 is not known"),
        (lambda x, n: x[:, :n].split(2, 1), "split: axis 1 .* has no fixed size"),
        (lambda x, n: x[:, :n].unfold(1, 2, 1), "unfold: axis 1 .* has no fixed size"),
        (lambda x, n: x[:, :n].assign(x), r"not broadcast to \(3, length\[3\], 4\)"),
    ],
)
def test_sizes_in_messages_are_expressions(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        function(Tensor(DATA).realize(), bound(3))
    assert "\n" not in str(error.value)


def test_attention_to_a_prefix_of_a_cache() -> None:
    query = np.random.default_rng(1).normal(size=(3, 1, 4)).astype(np.float32)
    cache = Tensor(DATA).realize()
    for length in LENGTHS:
        keys = cache[:, : bound(length)]
        found = Tensor(query).scaled_dot_product_attention(keys, keys).numpy()
        scores = query @ DATA[:, :length].transpose(0, 2, 1) / 2
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(found, weights @ DATA[:, :length], rtol=1e-4, atol=1e-5)


def test_a_variable_is_a_number() -> None:
    n = bound(5)
    assert (Tensor.from_uop(n) * 2).item() == 10
    large = Variable("large", 0, 2**40).bind(2**35)
    for x in (Tensor(large), Tensor.from_uop(large), Tensor(large, dtype=dtypes.int64)):
        assert (x.dtype, x.item()) == (dtypes.int64, 2**35)
    assert (Tensor([1.0, 2.0]) * n).tolist() == [5, 10]
    assert Tensor.ones(n, 2).sum().item() == 10
    assert Tensor.arange(n).tolist() == [0, 1, 2, 3, 4]
    assert Tensor.full((2,), n).tolist() == [5, 5]


@pytest.mark.parametrize("llvm", [0, 1])
@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16])
def test_a_float_variable_is_a_number(dtype: DType, llvm: int) -> None:
    rate = UOp.variable("rate", -4.0, 4.0, dtype).bind(0.3)
    x, rounded = Tensor([2.0, 4.0], dtype=dtype).realize(), truncate[dtype](0.3)
    with Context(CPU_LLVM=llvm):
        assert (x * rate).tolist() == (rate * x).tolist() == [2 * rounded, 4 * rounded]
        assert Tensor(rate).item() == Tensor.full((2,), rate)[1].item() == rounded
        assert ((x + 1) < rate * 4 + 2).tolist() == [True, False]


def test_a_kernel_is_called_with_several_values_of_a_float_variable() -> None:
    def halve(to: UOp, x: UOp) -> UOp:
        i = UOp.range(2, 0)
        return to[i].store(x[i] * rate.bind(0.5)).end(i).sink()

    def step(x: Tensor, by: UOp) -> tuple[Tensor, UOp]:
        return (x - by * x).realize(), by * 2

    rate = Variable("rate", 0.0, 1.0)
    captured, x = TinyJit(step), Tensor([2.0, 4.0], requires_grad=True).realize()
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        found, doubled = captured(x, rate.bind(value))
        assert found.tolist() == [2 - 2 * value, 4 - 4 * value]
        assert (Tensor([1.0]) * doubled).item() == 2 * value
    (x * rate.bind(0.5)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.5, 0.5]
    assert (x.shard(device_names(2), 0) * rate.bind(0.5)).tolist() == [1.0, 2.0]
    assert Tensor.custom_kernel(Tensor.empty(2), x, fxn=halve)[0].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"rate is bound to 0\.5 and to 0\.25"):
        (x * rate.bind(0.5) + rate.bind(0.25)).realize()


@pytest.mark.slow
def test_a_tensor_beside_a_variable_is_no_number() -> None:
    n, x = bound(5), Tensor([2.0, 10.0])
    found = [n * x, n + x, n - x, n / x, n // x, n % x, n**x, n < x, n >= x, n * Tensor([2.0])]
    plain = [5 * x, 5 + x, 5 - x, 5 / x, 5 // x, 5 % x, 5**x, 5 < x, 5 >= x, Tensor([10.0])]
    assert [y.tolist() for y in found] == [y.tolist() for y in plain]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda x: x.sort(), r"sort along axis 0 of \(n\[5\],\)"),
        (lambda x: x.topk(2), r"topk along axis 0 of \(n\[5\],\)"),
        (lambda x: x.cumsum(), r"a cumulative reduction along axis 0 of \(n\[5\],\)"),
        (lambda x: x.logcumsumexp(), r"logcumsumexp along axis 0 of \(n\[5\],\)"),
        (lambda x: Tensor.glorot_uniform(*x.shape, 2), r"symbolic shape \(n\[5\], 2\)"),
    ],
)
def test_ops_that_need_a_known_size_raise(run: Callable[[Tensor], object], message: str) -> None:
    x = Tensor.arange(10)[: Variable("n", 1, 10).bind(5)]
    with pytest.raises(ValueError, match=message):
        run(x)


# ---- positions out of range ----


def position(value: int) -> UOp:
    return Variable("pos", -2, 20).bind(value)


OUT_OF_RANGE: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x[:, position(16)], r"elements 16 to 17 .* axis 1 of size 16: .* with pos = 16"),
    (lambda x: x[:, position(-1)], r"elements -1 to 0 .* axis 1 of size 16: .* with pos = -1"),
    (lambda x: x[position(3), 0], r"elements 3 to 4 .* axis 0 of size 3: .* pos = 3; the shape is"),
    (lambda x: x[:, : position(17)], r"elements 0 to 17 .* of size 16: .* with pos = 17"),
    (lambda x: x[:, position(15) : position(15) + 2], r"elements 15 to 17 .* with pos = 15"),
    (lambda x: x[:, position(5) : 4], r"elements 5 to 4 .* with pos = 5"),
    (lambda x: x[:, : bound(3)][:, position(3)], r"of size 3: .* with pos = 3, length = 3; .*gth"),
    (lambda x: x[:, : bound(3) + 16], r"elements 0 to 19 .* \(0, \(length\+16\)\) with length = 3"),
    (lambda x: x.__setitem__((0, position(16)), 1), "elements 16 to 17 .* with pos = 16"),
    (lambda x: x.shrink((None, (position(16), position(16) + 1), None)), "elements 16 to 17"),
]


@pytest.mark.parametrize(("use", "message"), OUT_OF_RANGE)
def test_a_position_out_of_range_is_an_error(use: Callable[[Any], Any], message: str) -> None:
    x = Tensor(DATA).realize()
    with pytest.raises(IndexError, match=message):
        use(x)
    np.testing.assert_array_equal(x.numpy(), DATA)


def test_positions_are_checked_in_every_call_of_a_captured_function() -> None:
    cache = Tensor.zeros(4).contiguous().realize()

    @TinyJit
    def write(x: Tensor, at: UOp) -> Tensor:
        cache[at] = x[0]
        return cache.neg().neg().realize()

    expected = np.zeros(4)
    for i in (0, 1, 2, 3):
        expected[i] = i + 1
        found = write(Tensor([float(i + 1)]).realize(), position(i))
        assert found.tolist() == expected.tolist()
    for i in (4, 20, -1):
        with pytest.raises(IndexError, match=rf"axis 0 of size 4: .* with pos = {i}"):
            write(Tensor([9.0]).realize(), position(i))
    assert cache.tolist() == expected.tolist()


def test_positions_that_no_value_puts_out_of_range_are_not_checked_in_every_call() -> None:
    cache = Tensor.zeros(4).contiguous().realize()
    read = TinyJit(lambda x, at: (cache[at] + x).realize())
    for i in range(4):
        read(Tensor([1.0]).realize(), Variable("in_range", 0, 3).bind(i))
    assert read.captured is not None
    assert not read.captured._ranges


# ---- memory, windows and shapes of symbolic size ----


def test_new_memory_of_symbolic_size_is_that_of_the_maximum() -> None:
    n = Variable("n", 1, 8)
    cache = Tensor.empty(n.bind(3), 2)
    assert cache.shape == (n.bind(3), 2) and cache.realize().uop.base.shape == (8, 2)
    cache.assign(Tensor.ones(n.bind(3), 2))
    assert cache.sum().item() == 6
    for draw in (Tensor.rand, Tensor.randn, Tensor.randint, Tensor.uniform):
        Tensor.manual_seed(1)
        whole = draw(8, 2).numpy()
        for length in (3, 5):
            Tensor.manual_seed(1)
            x = draw(n.bind(length), 2)
            assert x.shape == (n.bind(length), 2) and x.uop.base.shape == (8, 2)
            np.testing.assert_array_equal(x.numpy(), whole[:length])


@pytest.mark.sample(3)
@pytest.mark.parametrize("arguments", [{}, {"padding": 1}, {"stride": 2, "padding": (0, 1)}])
def test_convolution_over_an_axis_of_symbolic_size(arguments: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    data = rng.integers(-4, 5, (2, 3, 8, 5)).astype(np.float32)
    weight = Tensor(rng.integers(-4, 5, (4, 3, 3, 2)).astype(np.float32)).realize()
    x = Tensor(data).realize()
    for length in (3, 8, 5):
        n = Variable("n", 3, 8).bind(length)
        found = x[:, :, :n].conv2d(weight, **arguments)
        expected = Tensor(data[:, :, :length]).conv2d(weight, **arguments)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
        ours, theirs = ((y * y).sum().gradient(weight)[0] for y in (found, expected))
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "arguments",
    [
        *({"ceil_mode": True, "stride": 3, "padding": 1}, {"stride": 1, "padding": 1}, {}),
        *({"stride": 3, "dilation": 2, "padding": (0, 1)}, {"ceil_mode": True}),
    ],
)
def test_pooling_over_an_axis_of_symbolic_size(arguments: dict[str, Any]) -> None:
    data = np.random.default_rng(3).permutation(2 * 8 * 5).reshape(2, 8, 5).astype(np.float32)
    x = Tensor(data).realize()
    for length in (3, 8, 5, 6):
        n = Variable("n", 3, 8).bind(length)
        symbolic, plain = x[:, :n], Tensor(data[:, :length])
        for found, expected in zip(_pooled(symbolic, arguments), _pooled(plain, arguments)):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())


def _pooled(x: Tensor, arguments: dict[str, Any]) -> list[Tensor]:
    largest, places = x.max_pool2d(2, return_indices=True, **arguments)
    means = [x.avg_pool2d(2, count_include_pad=with_pad, **arguments) for with_pad in (True, False)]
    return [largest, places, *means]


def test_a_descending_range_of_symbolic_size() -> None:
    n = Variable("n", 1, 8)
    for length in (1, 5, 8):
        assert Tensor.arange(n.bind(length), 0, -1).tolist() == [*range(length, 0, -1)]
        assert Tensor.arange(2 * n.bind(length), 0, -3).tolist() == [*range(2 * length, 0, -3)]


def test_rows_are_reshaped_to_a_bound_variable() -> None:
    n = Variable("n", 1, 8)
    for length in (3, 5, 2, 8):
        x = Tensor.arange(length * 4).reshape(length, 4).realize()
        rows = x.reshape(n.bind(length), 4)
        assert rows.shape == (n.bind(length), 4)
        expected = np.arange(length * 4).reshape(length, 4)
        np.testing.assert_array_equal(rows.numpy(), expected)
        assert x.flatten().reshape(n.bind(length), 2, 2).sum().item() == expected.sum()
        assert rows.sum(0).tolist() == expected.sum(0).tolist()
    with pytest.raises(ValueError, match="12 elements are not"):
        Tensor.arange(12).reshape(n.bind(2), 4)


def test_sizes_that_are_equal_sums_agree() -> None:
    start, length = Variable("start", 0, 8).bind(2), Variable("length", 1, 8).bind(3)
    a, b = np.arange(64.0, dtype=np.float32).reshape(4, 16), np.arange(16.0, dtype=np.float32)
    x, v = Tensor(a).realize(), Tensor(b).realize()
    left, right = x[:, : start + length].reshape(4, length + start), v[: start + length]
    short_a, short_b = a[:, :5], b[:5]
    for found, expected in (
        (left.dot(right), short_a @ short_b),
        (Tensor.einsum("ij,j->i", left, right), short_a @ short_b),
        (Tensor.ones(start + length).dot(Tensor.ones(length + start)), np.float32(5)),
        ((left + right).sum(), (short_a + short_b).sum()),
        (left.T.log_softmax().sum(), np.float32(-480)),
        (x.T[: length + start].log_softmax().sum(), np.float32(-480)),
        (right.contiguous().assign(right.reshape(length + start) * 2).sum(), short_b.sum() * 2),
    ):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert left.shape == (4, *right.shape)
