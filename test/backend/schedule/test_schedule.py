"""Scheduling: kernel counts, order of items, and the plan cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.schedule.kernel_counts import Array, array, kernels, tensor
from test.devices import only_cpu
from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.dtype import DType, _to_np_dtype
from tinygrad.execution.realize import compiled_kernels
from tinygrad.execution.schedule import plan_cache
from tinygrad.nn.optim import SGD, Adam
from tinygrad.renderer.gpu_targets import apple_target
from tinygrad.schedule.grouping.fusion import argument_limit
from tinygrad.settings import Context

# ---- kernel counts ----


def attention() -> Tensor:
    q, k, v = (tensor(2, 4, 8, 16, seed=i) for i in range(3))
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def normalized() -> Tensor:
    weight, bias = tensor(32), tensor(32, seed=1)
    return tensor(8, 32).layernorm() * weight + bias


# the maximum number of kernels of each, with inputs in memory
COUNTS: dict[str, tuple[Callable[[], Tensor], int]] = {
    "arithmetic": (lambda: 1 - tensor(8, 8).exp() * tensor(8, 8, seed=1), 1),
    "sum": (lambda: (tensor(8, 32) + 1).sum(1).sqrt(), 1),
    "mean": (lambda: tensor(8, 32).mean(1), 1),
    "sum of a sum": (lambda: tensor(4, 8, 16).sum(2).sum(1), 1),
    "softmax": (lambda: tensor(8, 32).softmax(), 1),
    "log_softmax": (lambda: tensor(8, 32).log_softmax(), 1),
    "layernorm": (normalized, 1),
    "std": (lambda: tensor(8, 32).std(1), 1),
    "var": (lambda: tensor(8, 32).var(), 1),
    "argmax": (lambda: tensor(8, 32).argmax(1), 2),
    "matmul": (lambda: (tensor(8, 16) @ tensor(16, 8)).relu() + tensor(8), 1),
    "linear": (lambda: tensor(8, 16).linear(tensor(16, 8), tensor(8)).gelu(), 1),
    "two matmuls": (lambda: tensor(8, 16) @ tensor(16, 8) @ tensor(8, 4), 2),
    "convolution": (
        lambda: tensor(2, 4, 8, 8).conv2d(tensor(6, 4, 3, 3), tensor(6), padding=1).relu(),
        1,
    ),
    "convolution and pooling": (
        lambda: tensor(2, 4, 8, 8).conv2d(tensor(6, 4, 3, 3), tensor(6)).relu().max_pool2d(2),
        2,
    ),
    "attention": (attention, 3),
    "embedding": (lambda: tensor(64, 16)[Tensor([[1, 2, 3], [4, 5, 6]]).realize()], 2),
    "gather": (
        lambda: tensor(8, 32).gather(1, Tensor(np.zeros((8, 4), np.int32)).realize()),
        2,
    ),
    "arange": (lambda: Tensor.arange(1, 129, 2).contiguous(), 1),
    "one hot": (lambda: Tensor([1, 2, 3]).realize().one_hot(5).contiguous(), 1),
    "padding": (lambda: (tensor(8, 8).pad(((1, 1), (2, 2))) + 1).sum(1), 1),
    "concatenation": (lambda: tensor(4, 8).cat(tensor(4, 8, seed=1)) * 2, 1),
    "permutation": (lambda: tensor(4, 8).permute(1, 0).contiguous(), 1),
    "triangle": (lambda: tensor(8, 8).tril() + 0.5, 1),
    "cumulative sum": (lambda: tensor(8, 32).cumsum(1), 2),
    "cross entropy": (
        lambda: tensor(8, 10).sparse_categorical_crossentropy(Tensor([1] * 8).realize()),
        4,
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_kernel_counts(name: str) -> None:
    make, most = COUNTS[name]
    assert kernels(make()) <= most


@only_cpu
def test_decoding_with_a_symbolic_length_is_two_products_and_a_softmax() -> None:
    q, k, v = array(1, 8, 1, 16), array(1, 8, 90, 16, seed=1), array(1, 8, 90, 16, seed=2)
    query, keys, values = (Tensor(x).realize() for x in (q, k, v))
    for length in (70, 83):
        n = Variable("n", 1, 90).bind(length)
        result = query.scaled_dot_product_attention(keys[:, :, :n], values[:, :, :n])
        assert kernels(result) == 3
        scores = q @ k[:, :, :length].transpose(0, 1, 3, 2) / 4
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ v[:, :, :length]
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


@only_cpu
def test_reductions_of_rows_are_nested_where_results_keep_a_cpu_busy() -> None:
    found = {}
    for shape in ((32, 32, 32), (64, 128, 256), (2, 256, 256), (512, 64, 4)):
        x = array(*shape)
        result = Tensor(x).realize().sum(2).relu().sum(1)
        found[shape] = kernels(result)
        expected = np.maximum(x.sum(2, dtype=np.float64), 0).sum(1)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)
    # few results, and short rows, are reduced by two
    assert list(found.values()) == [1, 1, 2, 2]
    assert kernels(tensor(64, 32, 64).sum(1).relu().sum(1)) == 2


@only_cpu
def test_large_rows_of_an_input_are_one_kernel() -> None:
    x = array(512, 1024)
    value = np.exp(x - x.max(-1, keepdims=True))
    softmax = Tensor(x).realize().softmax()
    assert kernels(softmax) == 1
    np.testing.assert_allclose(softmax.numpy(), value / value.sum(-1, keepdims=True), rtol=1e-5)
    norm = Tensor(x).realize().layernorm()
    assert kernels(norm) == 1
    expected = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    np.testing.assert_allclose(norm.numpy(), expected, rtol=1e-4, atol=1e-5)


@only_cpu
def test_large_rows_of_a_product_are_overwritten_by_their_softmax() -> None:
    x, w = tensor(512, 64), tensor(64, 1024, seed=1)
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    result = (x @ w).softmax().realize()
    assert GlobalCounters.mem_peak - before < 1.5 * result.nbytes()


def test_dropout_is_one_kernel() -> None:
    x = tensor(8, 32)
    with Tensor.train():
        x.dropout(0.5).realize()
        assert kernels(x.dropout(0.5)) == 1


def test_a_gradient_of_a_matmul_is_one_kernel() -> None:
    x, w = tensor(8, 16), tensor(16, 4)
    assert kernels(*(x @ w).sum().gradient(w)) == 1


def test_an_adam_step_takes_few_kernels() -> None:
    parameters = [tensor(8, 8, seed=i) for i in range(12)]
    optimizer = Adam(parameters)
    for parameter in parameters:
        parameter.grad = tensor(8, 8)
    with Tensor.train():
        steps = optimizer.schedule_step()
    # at most one for each parameter and its two moments, and the powers of the betas
    assert kernels(*steps) <= len(parameters) + 2


def test_a_training_step_of_a_perceptron() -> None:
    x, y = tensor(8, 16), Tensor([0, 1, 2, 3] * 2).realize()
    layers = [nn.Linear(16, 32), nn.Linear(32, 4)]
    optimizer = SGD(nn.state.get_parameters(layers), lr=0.1)
    Tensor.realize(*optimizer.params)
    with Tensor.train():
        out = layers[1](layers[0](x).relu())
        loss = out.sparse_categorical_crossentropy(y).backward()
        assert kernels(loss, *optimizer.schedule_step()) <= 20


# ---- values computed once ----


def test_an_expensive_value_that_is_read_twice_is_computed_once() -> None:
    x = tensor(16, 16)
    product = x @ x
    GlobalCounters.reset()
    Tensor.realize(product.sum(0), product.sum(1))
    flops = GlobalCounters.global_ops
    assert flops < 2 * 2 * 16**3


def test_a_diamond_is_planned_once() -> None:
    x = tensor(8, 8)
    expected = array(8, 8).astype(np.float64)
    for _ in range(40):
        # 2**40 paths
        x = x + x.flip(0) * 0.25
        expected = expected + expected[::-1] * 0.25
        x = x * 0.75
        expected = expected * 0.75
    # a planner that followed every path would not end
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-3, atol=1e-3)


def test_a_diamond_of_reductions() -> None:
    x, expected = tensor(8, 8), array(8, 8)
    for _ in range(6):
        x = x - x.sum(1, keepdim=True) * 0.1
        expected = expected - expected.sum(1, keepdims=True) * 0.1
    assert kernels(x) <= 12
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_deep_chain() -> None:
    x = tensor(4)
    # numbers that cannot be folded into one
    one = Tensor([1.0]).realize()
    for _ in range(5000):
        x = x + one
    np.testing.assert_allclose(x.numpy(), array(4) + 5000, rtol=1e-5)


def test_a_deep_chain_of_constants() -> None:
    x = tensor(4)
    for _ in range(5000):
        x = x + 1
    np.testing.assert_allclose(x.numpy(), array(4) + 5000, rtol=1e-5)


def test_a_deep_chain_of_views() -> None:
    x = tensor(4, 4)
    for _ in range(500):
        x = x.permute(1, 0).flip(0)
    np.testing.assert_array_equal(x.numpy(), array(4, 4))


def test_a_wide_sum() -> None:
    parts = [tensor(4, seed=i) for i in range(60)]
    total = sum(parts, start=Tensor.zeros(4))
    expected = sum(array(4, seed=i) for i in range(60))
    np.testing.assert_allclose(total.numpy(), expected, rtol=1e-4, atol=1e-4)


# ---- the schedule cache ----


def test_graphs_of_equal_structure_are_planned_once() -> None:
    def run(seed: int) -> Array:
        return (tensor(7, 5, seed=seed).softmax(0) @ tensor(5, 3, seed=seed + 1)).numpy()

    plan_cache.clear()
    run(0)
    plans = len(plan_cache)
    np.testing.assert_allclose(run(2).shape, (7, 3))
    assert len(plan_cache) == plans


def test_bound_values_are_not_part_of_the_structure() -> None:
    from tinygrad import Variable

    x = tensor(10, 3)
    n = Variable("n", 1, 10)

    def run(value: int) -> float:
        return float(x[: n.bind(value)].sum().item())

    plan_cache.clear()
    assert run(3) == pytest.approx(array(10, 3)[:3].sum(), rel=1e-4)
    plans = len(plan_cache)
    assert run(7) == pytest.approx(array(10, 3)[:7].sum(), rel=1e-4)
    assert len(plan_cache) == plans


NUMBERS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "a learning rate": lambda x, n: x - n * (x * x),
    "an exponential average": lambda x, n: x * (1 - n) + x.exp() * n * n,
    "a divisor": lambda x, n: x / n + n / (x + 5),
    "a bound": lambda x, n: (x < n).where(x, n).maximum(-n),
    "a number to fill with": lambda x, n: x.full_like(n).contiguous(),
    "a number beside a sum": lambda x, n: (x * n).sum(1) + n,
    "a number on shards": lambda x, n: x.shard(("CPU:1", "CPU:2"), axis=0) * n + n,
    "a number that is written": lambda x, n: (x + 0).contiguous().assign(x * n),
    "padding": lambda x, n: x.pad((1, 2), value=n),
    "a number beside a counter": lambda x, n: (Tensor.arange(12) < n * 10).where(x, n),
}


def bits(x: Tensor) -> Array:
    widths = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
    return x.contiguous().bitcast(widths[x.dtype.itemsize]).numpy()


@pytest.mark.parametrize("name", [name for name in NUMBERS if "counter" not in name])
def test_a_number_that_varies_compiles_nothing_from_the_third_value_on(name: str) -> None:
    x = tensor(8, 12).realize()
    for number in (0.3, 0.7):
        NUMBERS[name](x, number).realize()
    known = len(compiled_kernels)
    result = NUMBERS[name](x, 0.11).realize()
    assert len(compiled_kernels) == known
    with Context(SCHEDULE_CACHE=0):
        np.testing.assert_array_equal(bits(result), bits(NUMBERS[name](x, 0.11)))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
def test_numbers_that_vary_have_the_bits_of_constants(name: str, dtype: DType) -> None:
    x = tensor(8, 12).cast(dtype).realize()
    for number in (0.3, 0.7, 3, 0, 4, 1e30, math.inf):
        result = NUMBERS[name](x, number).realize()
        with Context(SCHEDULE_CACHE=0):
            expected = NUMBERS[name](x, number).realize()
        # the sign of NaN is not specified
        found, known = result.float().numpy(), expected.float().numpy()
        assert result.dtype is expected.dtype
        np.testing.assert_array_equal(np.isnan(found), np.isnan(known))
        keep = ~np.isnan(known)
        np.testing.assert_array_equal(bits(result)[keep], bits(expected)[keep])


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32])
def test_integers_that_vary_wrap_and_divide_as_numpy(dtype: DType) -> None:
    values = np.arange(-100, 100, 7).astype(_to_np_dtype(dtype))
    x = Tensor(values).realize()
    for number in (3, 5, 1, 7, 100, 2, 64):
        n = values.dtype.type(number)
        np.testing.assert_array_equal((x * number + number).numpy(), values * n + n)
        np.testing.assert_array_equal((x // number).numpy(), values // n)
        np.testing.assert_array_equal((x & number).numpy(), values & n)
        np.testing.assert_array_equal((x % number - number).numpy(), values % n - n)


def test_a_slice_that_moves_compiles_nothing_from_the_third_place_on() -> None:
    x = array(8, 12)
    memory = tensor(8, 12).realize()
    for place in (0, 3, 8, 1, 5):
        if place == 8:
            known = len(compiled_kernels)
        np.testing.assert_array_equal((memory[:, place] * 2).numpy(), x[:, place] * 2)
        part = memory[1:3, place : place + 4].contiguous()
        np.testing.assert_array_equal(part.numpy(), x[1:3, place : place + 4])
    assert len(compiled_kernels) == known


def test_a_captured_function_keeps_its_numbers_beside_those_that_vary() -> None:
    x = tensor(8, 12).realize()
    for number in (0.3, 0.7, 0.4):
        (x * number).realize()
    scaled = TinyJit(lambda x: (x * 0.6).realize())
    for _ in range(4):
        (x * 0.9).realize()
        np.testing.assert_array_equal(scaled(x).numpy(), x.numpy() * np.float32(0.6))


def test_equal_kernels_stay_equal_when_a_number_varies() -> None:
    weights = [tensor(33 + 7, 5, seed=i).realize() for i in range(3)]
    for rate in (0.3, 0.7):
        known = len(compiled_kernels)
        Tensor.realize(*[(w.exp() - rate * w).sum(1) for w in weights])
    assert len(compiled_kernels) - known <= 1


def test_the_plan_cache_is_least_recently_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [tensor(size, 2).realize() for size in range(2, 7)]
    plan_cache.clear()
    for number in range(3):
        (tensors[number] + 1).realize()
    three, one = plan_cache.nbytes, plan_cache.nbytes // 3
    monkeypatch.setattr(plan_cache, "limit", lambda: three + one // 2)
    plan_cache.clear()
    assert plan_cache.nbytes == 0
    for number in (0, 1, 2, 0, 3, 4):
        (tensors[number] + 1).realize()
    first, *others = plan_cache
    assert len(others) == 2
    (tensors[0] + 1).realize()
    assert list(plan_cache) == [*others, first]
    assert plan_cache.nbytes == three


def test_without_the_cache_results_are_the_same() -> None:
    with Context(SCHEDULE_CACHE=0):
        np.testing.assert_allclose(tensor(4, 4).softmax().numpy().sum(1), np.ones(4), rtol=1e-5)


# ---- order ----


def test_a_value_read_before_an_assign_is_computed_first() -> None:
    x, y = tensor(8), tensor(8, seed=1)
    total = x.sum()
    x.assign(y)
    scaled = x * total
    Tensor.realize(x, total, scaled)
    assert total.item() == pytest.approx(array(8).sum(), rel=1e-4)
    np.testing.assert_allclose(
        scaled.numpy(), array(8, seed=1) * array(8).sum(), rtol=1e-4, atol=1e-5
    )


def test_two_assigns_that_read_each_other_materialise_the_old_value() -> None:
    x, y = tensor(8), tensor(8, seed=1)
    a, b = x + y, x - y
    x.assign(a)
    y.assign(b)
    try:
        Tensor.realize(x, y)
    except RuntimeError as error:
        assert ".contiguous()" in str(error)
    else:
        np.testing.assert_allclose(x.numpy(), array(8) + array(8, seed=1), rtol=1e-5)
        np.testing.assert_allclose(y.numpy(), array(8) - array(8, seed=1), rtol=1e-5)


def test_two_assigns_to_slices_of_one_buffer() -> None:
    x = tensor(8, 4)
    ones, zeros = x[:4].assign(Tensor.ones(4, 4)), x[4:].assign(Tensor.zeros(4, 4))
    Tensor.realize(ones, zeros)
    expected = np.concatenate([np.ones((4, 4)), np.zeros((4, 4))])
    np.testing.assert_array_equal(x.numpy(), expected)


# ---- large reductions ----


def test_a_large_reduction_is_split_in_two() -> None:
    x = Tensor.ones(1 << 19).contiguous().realize()
    assert kernels(x.sum()) == 2
    with Context(SPLIT_REDUCEOP=0):
        assert kernels((x * 2).sum()) == 1
    assert x.sum().item() == 1 << 19


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["sum", "max", "mean", "prod"])
def test_split_reductions_are_correct(name: str, axis: int | None) -> None:
    value = (1 + array(1 << 17, 4) * 1e-4).astype(np.float32)
    found = getattr(Tensor(value), name)(axis=axis).numpy()
    expected = getattr(value.astype(np.float64), name)(axis=axis)
    # a product of this many has a larger error than a sum
    np.testing.assert_allclose(found, expected, rtol=1e-2 if name == "prod" else 1e-3)


def test_integers_are_summed_exactly() -> None:
    value = np.arange(1 << 19, dtype=np.int64)
    assert Tensor(value).sum().item() == value.sum()
    assert Tensor(value, dtype=dtypes.int64).max().item() == value.max()


MANY_ARRAYS: dict[str, tuple[Callable[[list[Tensor]], Tensor], Callable[[list[Array]], Array]]] = {
    "sum": (lambda xs: sum(xs[1:], xs[0]), lambda xs: np.sum(xs, 0)),
    "cat": (lambda xs: Tensor.cat(*xs), np.concatenate),
    "reduced": (lambda xs: sum(xs[1:], xs[0]).sum(0).exp(), lambda xs: np.exp(np.sum(xs, (0, 1)))),
    "symbolic": (
        lambda xs: sum((x[: Variable("rows", 1, 6).bind(4)] for x in xs[1:]), xs[0][0]).sum(0),
        lambda xs: np.sum(xs[1:], 0)[:4].sum(0) + xs[0][0] * 4,
    ),
}


@pytest.mark.parametrize("name", MANY_ARRAYS)
def test_kernels_take_no_more_arguments_than_their_target(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metal has 31 entries for buffers, integers among them."""
    monkeypatch.setattr(argument_limit, "find_target", lambda *_: apple_target())
    values = [array(6, 3, seed=i) for i in range(40)]
    tensors = [Tensor(x).realize() for x in values]
    build, expected = MANY_ARRAYS[name]
    with Context(SCHEDULE_CACHE=0):
        items = list(build(tensors).schedule())
        integers = int(name == "symbolic")
        assert len(items) > 1
        assert max(len(x.bufs) for x in items) + integers <= apple_target().max_arguments
        found = build(tensors).numpy()
    np.testing.assert_allclose(found, expected(values), rtol=1e-4, atol=1e-4)


def peak(*results: Tensor) -> int:
    """The bytes that realizing the results takes at the same time."""
    before = GlobalCounters.mem_used
    GlobalCounters.reset()
    Tensor.realize(*results)
    return GlobalCounters.mem_peak - before


@pytest.mark.parametrize("indices", [True, False])
def test_the_gradient_of_logits_takes_the_memory_of_the_logits(indices: bool) -> None:
    count, words, width = 64, 8200, 16
    h, w = tensor(count, width).requires_grad_(), tensor(words, width, seed=1).requires_grad_()
    labels = np.random.default_rng(2).integers(0, words, count)
    logits = h @ w.T
    loss = (
        logits.sparse_categorical_crossentropy(Tensor(labels).realize())
        if indices
        else logits.cross_entropy(Tensor(labels).realize())
    )
    parts = loss.gradient(h, w)
    assert peak(loss, *parts) < 1.5 * count * words * 4
    x, y = h.numpy().astype(np.float64), w.numpy().astype(np.float64)
    scores = x @ y.T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(
        loss.item(), -np.log(weights[np.arange(count), labels]).mean(), rtol=1e-5
    )
    weights[np.arange(count), labels] -= 1
    np.testing.assert_allclose(parts[0].numpy(), weights @ y / count, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(parts[1].numpy(), weights.T @ x / count, rtol=1e-4, atol=1e-6)


def test_results_take_the_memory_of_arguments_that_nothing_else_reads() -> None:
    x, y = tensor(512, 8), tensor(8, 513, seed=1)
    values = (x @ y).numpy()

    def stored(*nodes: Tensor) -> int:
        return -(-peak(*nodes) // values.nbytes)

    def product(seed: int) -> Tensor:
        # a product has a kernel of its own
        return (x @ (y * seed)).contiguous()

    twice = product(1) * 2
    assert stored(twice) == 1
    np.testing.assert_allclose(twice.numpy(), values * 2, rtol=1e-6)
    backwards = product(2).flip(0).exp()
    assert stored(backwards) == 2
    np.testing.assert_allclose(backwards.numpy(), np.exp(values * 2)[::-1], rtol=1e-5)
    # a later reader of the argument
    base = product(3)
    later = (base * 2).contiguous().flip(0) + base
    assert stored(later) == 2
    np.testing.assert_allclose(later.numpy(), values[::-1] * 6 + values * 3, rtol=1e-5, atol=1e-5)
    kept = product(4)
    both = (kept * 2).contiguous()
    assert stored(kept, both) == 2
    np.testing.assert_allclose(kept.numpy(), values * 4, rtol=1e-6)
    np.testing.assert_allclose(both.numpy(), values * 8, rtol=1e-6)


# ---- rows that are added in place ----


def added_rows(values: Any, index: Any, rows: int) -> Any:
    """A table of zeros to which values were added by row; numbers out of range are dropped."""
    if isinstance(values, Tensor):
        return values._derive(values.uop.scatter_add(index.uop, rows))
    table = np.zeros((rows, *values.shape[1:]), np.float64)
    inside = (index >= 0) & (index < rows)
    np.add.at(table, index[inside], values[inside])
    return table


ROWS_ADDED: dict[str, tuple[Callable[[Any, Any, Any], Any], bool]] = {
    "rows": (lambda w, v, i: w + added_rows(v, i, 20), True),
    "scaled rows first": (lambda w, v, i: added_rows(v, i, 20) * 2.5 + w, True),
    "rows and a rate from the table": (lambda w, v, i: w - added_rows(v, i, 20) * w[0, 0], False),
    "rows of the table": (lambda w, v, i: w - added_rows(w[2:7], i, 20), False),
    "rows twice": (lambda w, v, i: w + added_rows(v, i, 20) * (added_rows(v, i, 20)[3, 0]), False),
    "rows for each column": (lambda w, v, i: w + added_rows(v, i, 20) * v[0], False),
}


@pytest.mark.parametrize("name", ROWS_ADDED)
def test_an_assignment_that_adds_rows_equals_the_sum(name: str) -> None:
    function, is_one_kernel = ROWS_ADDED[name]
    w, v, numbers = tensor(20, 5), tensor(5, 5, seed=1), np.array([1, 1, 3, 25, -4])
    index = Tensor(numbers).realize()
    before, rows = (x.numpy().astype(np.float64) for x in (w, v))
    GlobalCounters.reset()
    w.assign(function(w, v, index)).realize()
    assert not is_one_kernel or GlobalCounters.kernel_count == 1
    np.testing.assert_allclose(w.numpy(), function(before, rows, numbers), rtol=1e-5, atol=1e-6)


def test_tables_that_add_rows_of_each_other_read_both_as_they_were() -> None:
    v, w, numbers = tensor(20, 5), tensor(20, 5, seed=1), np.array([1, 1, 3, 19, 0])
    index = Tensor(numbers).realize()
    a, b = v.numpy(), w.numpy()
    x, y = v + added_rows(w[2:7], index, 20), w + added_rows(v[2:7], index, 20)
    Tensor.realize(v.assign(x), w.assign(y))
    for found, own, other in ((v, a, b), (w, b, a)):
        expected = own + added_rows(other[2:7], numbers, 20)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
