"""Values that are stored on the way to others are kept, if a live tensor has them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.models.resnet import ResNet18
from test.models.transformer import Transformer
from tinygrad import GlobalCounters, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace

DEVICES = device_names(2)


def work(function: Callable[[], Any]) -> tuple[int, int, int]:
    """The kernels, operations and bytes of kernels that run."""
    GlobalCounters.reset()
    function()
    return GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.global_mem


def sent_bytes(function: Callable[[], Any]) -> int:
    with CommTrace() as trace:
        function()
    return trace.nbytes


def random(*shape: int, seed: int = 0, **options: Any) -> Tensor:
    values = np.random.default_rng(seed).random(shape, np.float32)
    return Tensor(values, **options).realize()


def test_a_contiguous_value_is_computed_once() -> None:
    a, b = random(16, 16), random(16, 16, seed=1)
    y = (a @ b).contiguous()
    first, second = y + 1, y + 2
    assert work(first.realize)[0] == 2
    assert work(y.realize) == (0, 0, 0)
    assert work(second.realize) == (1, 256, 2 * 256 * 4)
    product = a.numpy() @ b.numpy()
    np.testing.assert_allclose(first.numpy(), product + 1, rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), product + 2, rtol=1e-5)


def test_a_value_of_which_a_view_lives_is_computed_once() -> None:
    a = random(16, 16)
    rows = (a @ a).contiguous().reshape(4, 64)
    (rows + 1).realize()
    assert work((rows[0] + 2).realize)[0] == 1


def test_a_value_that_no_tensor_has_is_not_kept() -> None:
    a = random(256, 256)
    before = GlobalCounters.mem_used
    result = ((a @ a).contiguous() + 1).sum().realize()
    assert GlobalCounters.mem_used - before < 1024
    del result


@pytest.mark.parametrize("count", [1, 12])
def test_keeping_takes_no_kernel_and_no_operation(count: int) -> None:
    a, kept = random(8, 8), []

    def chain(keep: bool) -> Tensor:
        y = a
        for _ in range(count):
            y = (y @ a).exp().contiguous()
            if keep:
                kept.append(y)
        return y.sum()

    assert work(chain(True).realize) == work(chain(False).realize)
    assert work(lambda: Tensor.realize(*kept)) == (0, 0, 0)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.to(DEVICES[1]),
        lambda x: x.shard(DEVICES, 0),
        lambda x: x.shard(DEVICES, 1),
        lambda x: x.shard(DEVICES),
        lambda x: x.shard(DEVICES, 0).to(DEVICES[1]),
        lambda x: x.shard(DEVICES, 0).sum(0).to(DEVICES[1]),
    ],
    ids=["to", "rows", "columns", "replicas", "to one", "sums to one"],
)
def test_a_value_is_sent_once(move: Callable[[Tensor], Tensor]) -> None:
    x = random(8, 8)
    moved = move(x)
    sent = sent_bytes((moved + 1).realize)
    assert sent > 0
    assert sent_bytes((moved * 2).realize) == 0
    np.testing.assert_allclose(moved.numpy(), move(x).numpy(), rtol=1e-6)


def test_rows_of_a_host_array_copy_it_once() -> None:
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    array = Tensor(values)
    (array[0] + 1).realize()
    assert array.uop.is_realized
    assert [(array[i] * 2).tolist() for i in range(8)] == (values * 2).tolist()


def test_what_other_kernels_would_be_needed_for_is_not_kept() -> None:
    # the sum is sent to one device, not to both
    x = random(8, 8).shard(DEVICES, 0).realize()
    total = x.sum(0)
    moved = total.to(DEVICES[0])
    with CommTrace() as trace:
        moved.realize()
    assert trace.kinds().keys() == {"reduce"}
    np.testing.assert_allclose(total.numpy(), x.numpy().sum(0), rtol=1e-5)


@pytest.mark.parametrize("requires_grad", [None, True])
@pytest.mark.parametrize("depth", [3, 40])
def test_kept_values_change_no_gradient(depth: int, requires_grad: bool | None) -> None:
    def gradients(keep: bool, before: bool) -> list[np.ndarray[Any, Any]]:
        weights = [random(4, 4, seed=i, requires_grad=requires_grad) for i in range(depth)]
        y, kept = random(2, 4, seed=99), []
        for weight in weights:
            y = (y @ weight).tanh().contiguous()
            if keep:
                kept.append(y)
        loss = y.sum()
        if before:
            loss.realize()
        nn.optim.SGD(weights)
        loss.backward()
        return [weight.grad.numpy() for weight in weights]

    expected = gradients(keep=False, before=False)
    for found, value in zip(gradients(keep=True, before=True), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-7)


def test_a_gradient_by_a_kept_value() -> None:
    x = random(4, requires_grad=True)
    y = (x * 3).contiguous()
    z = (y * y).sum()
    z.realize()
    (found,) = z.gradient(y)
    np.testing.assert_allclose(found.numpy(), 2 * 3 * x.numpy(), rtol=1e-6)


def test_a_kept_value_has_the_content_before_a_write() -> None:
    x = random(8)
    old = x.numpy().copy()
    kept = (x * 2).contiguous()
    copy = x.to(DEVICES[1])
    x.assign(kept + copy.to(x.device)).realize()
    x.assign(x * 0 + 1).realize()
    np.testing.assert_allclose(kept.numpy(), old * 2, rtol=1e-6)
    np.testing.assert_allclose(copy.numpy(), old, rtol=1e-6)
    # and each is in memory of its own
    kept += 1
    assert x.tolist() == [1.0] * 8


# ---- memory ----


def peak(*results: Tensor) -> int:
    """The bytes that realizing the results takes at the same time, beyond those in use."""
    before = GlobalCounters.mem_used
    GlobalCounters.reset()
    Tensor.realize(*results)
    return GlobalCounters.mem_peak - before


def test_large_products_are_kept_beside_values_that_could_take_their_memory() -> None:
    x = random(1024, 512)
    y = (x @ x.T).contiguous()
    assert peak(y + 1) == 2 * y.nbytes()
    assert work((y + 2).realize)[0] == 1


def test_what_is_cheap_to_compute_is_not_kept_where_another_value_takes_its_memory() -> None:
    x, weight = random(1024, 4), random(4, 512, seed=1)
    y = (x @ weight).contiguous()
    z = y + 1
    assert peak(z) == z.nbytes()
    assert not y.uop.is_realized
    (y @ y.T).realize()
    assert y.uop.is_realized
    np.testing.assert_allclose(y.numpy(), x.numpy() @ weight.numpy(), rtol=1e-5)


def test_training_on_rows_of_a_host_array_takes_no_memory_for_the_array() -> None:
    values = np.random.default_rng(0).random((4096, 16), np.float32)
    weight = random(16, 2048, seed=1, requires_grad=True)
    rows = Tensor(np.arange(0, 4096, 16, dtype=np.int32)).realize()

    def step(data: Tensor) -> int:
        (gradient,) = (data[rows] @ weight).tanh().sum().gradient(weight)
        return peak(gradient)

    array = Tensor(values)
    assert step(array) < 3 * 256 * 2048 * 4
    assert not array.uop.is_realized


def test_a_large_host_array_is_copied_once() -> None:
    array = Tensor(np.random.default_rng(0).random((1024, 512), np.float32))
    assert peak(array + 1) == 2 * array.nbytes()
    assert array.uop.is_realized


@pytest.mark.parametrize("requires_grad", [None, False, True])
def test_a_host_array_is_dropped_once_it_was_copied(requires_grad: bool | None) -> None:
    array = Tensor(np.ones((16, 16), np.float32), requires_grad=requires_grad)
    data = weakref.ref(array.uop.src[0])
    assert data() is not None
    total = (array * 2).sum().realize()
    assert data() is None
    assert total.item() == 2 * 16 * 16
    if requires_grad is not False:
        np.testing.assert_array_equal(total.gradient(array)[0].numpy(), 2)


@pytest.mark.parametrize("requires_grad", [None, False, True])
def test_histories_keep_no_memory_of_values_that_nobody_holds(requires_grad: bool | None) -> None:
    weight = random(64, 64, requires_grad=requires_grad)

    def used(keep: bool) -> int:
        before, x = GlobalCounters.mem_used, random(64, 64, seed=1)
        for _ in range(4):
            hidden = (x @ weight).contiguous() if keep else x @ weight
            x = (hidden.tanh() + x).realize()
            hidden = x
        return GlobalCounters.mem_used - before

    assert used(keep=True) == used(keep=False)


# ---- gradients ----


@pytest.mark.parametrize("requires_grad", [None, True])
def test_a_gradient_through_a_kept_value_after_another_one_was_taken(
    requires_grad: bool | None,
) -> None:
    x = random(8, requires_grad=True)
    y = (x * x).contiguous()
    assert y.requires_grad
    (y + 1).realize()
    (y * 2).sum().backward()
    (y * 3).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 10 * x.numpy(), rtol=1e-6)


def test_gradients_by_views_of_kept_values_and_by_what_they_were_computed_from() -> None:
    x = random(2, 4)
    y = (x * 3).contiguous()
    row, turned = y[0], y.T
    z = (row * row).sum() + (turned * 2).sum() + y.sum()
    z.realize()
    assert y.uop.is_realized
    later = z * 2 + (y * 5).sum()
    a, b, c = (x.numpy() for x in later.gradient(y, row, x))
    first = np.array([[1.0], [0.0]], np.float32)
    expected = 2 * (first * 2 * 3 * x.numpy() + 3) + 5
    np.testing.assert_allclose(a, expected, rtol=1e-5)
    np.testing.assert_allclose(b, 2 * 2 * 3 * x.numpy()[0], rtol=1e-5)
    np.testing.assert_allclose(c, 3 * expected, rtol=1e-5)


def test_a_gradient_does_not_compute_a_kept_value_again() -> None:
    x, weight = random(64, 64, requires_grad=False), random(64, 64, seed=1, requires_grad=True)

    def gradient(keep: Callable[[Tensor], Tensor]) -> tuple[tuple[int, int, int], Any]:
        hidden = keep(x @ weight)
        loss = (hidden.tanh() ** 2).sum().realize()
        (found,) = loss.gradient(weight)
        return work(found.realize), (found.numpy(), hidden)

    kept, (values, _) = gradient(Tensor.contiguous)
    realized, (expected, _) = gradient(Tensor.realize)
    assert kept == realized
    np.testing.assert_allclose(values, expected, rtol=1e-5)


# ---- models ----


def images() -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32))


def tokens() -> Tensor:
    return Tensor(np.random.default_rng(0).integers(0, 32, (4, 8)).astype(np.int32))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Tensor]]] = {
    "resnet": (lambda: ResNet18(width=8), images),
    "transformer": (lambda: Transformer(vocab=32, dim=16, layers=1, heads=4, seq=8), tokens),
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", [pytest.param("resnet", marks=pytest.mark.slow), "transformer"])
def test_no_live_value_of_a_training_step_is_computed_or_sent_twice(name: str, count: int) -> None:
    make, data = MODELS[name]

    def step(keep: Callable[[Tensor], Tensor]) -> list[tuple[tuple[int, int, int], int]]:
        Tensor.manual_seed(0)
        model, x = make(), data()
        if count > 1:
            for parameter in nn.state.get_parameters(model):
                parameter.shard_(DEVICES)
        optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1)
        Tensor.realize(*nn.state.get_parameters(model), *nn.state.get_parameters(optimizer))
        found: list[tuple[tuple[int, int, int], int]] = []

        def counted(*nodes: Tensor) -> None:
            with CommTrace() as trace:
                counts = work(lambda: Tensor.realize(*nodes))
            found.append((counts, trace.nbytes))

        with Tensor.train():
            x = keep(x.shard(DEVICES, 0) if count > 1 else x.to(DEVICES[0]))
            scores = keep(model(x).contiguous())
            loss = (scores.log_softmax() ** 2).mean()
            counted(loss)
            counted(scores.argmax(-1), scores.max())
            loss.backward()
            counted(*optimizer.schedule_step())
            counted(x + 1)
        return found[1:]

    assert step(lambda x: x) == step(Tensor.realize)


# ---- a decoder, and captured functions ----

WIDTH, HEADS, LENGTH = 16, 2, 8


class Block:
    """A pre-norm block of attention over a cache, (1, 1, WIDTH) to (1, 1, WIDTH)."""

    def __init__(self) -> None:
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.cache = Tensor.zeros(2, 1, LENGTH, WIDTH).contiguous().realize()

    def __call__(self, x: Tensor, position: int, end: Callable[[Tensor], Tensor]) -> Tensor:
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        self.cache[:, :, position : position + 1].assign(Tensor.stack(k, v)).realize()
        keys, values = (self.cache[i, :, : position + 1] for i in range(2))
        q, keys, values = (
            t.reshape(1, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, keys, values)
        )
        attended = q.scaled_dot_product_attention(keys, values).transpose(1, 2)
        x = x + self.out(attended.reshape(1, 1, WIDTH))
        return end(x + self.down(self.up(self.norms[1](x)).gelu()))


@pytest.mark.parametrize("jit", [False, True])
def test_the_work_of_a_decoder_is_linear_in_its_layers(jit: bool) -> None:
    def token(layers: int, end: Callable[[Tensor], Tensor]) -> tuple[tuple[int, int, int], Any]:
        Tensor.manual_seed(0)
        blocks = [Block() for _ in range(layers)]
        Tensor.realize(*nn.state.get_parameters(blocks))

        def run(x: Tensor) -> Tensor:
            for block in blocks:
                x = block(x, 3, end)
            return x.sum(-1).realize()

        function = TinyJit(run) if jit else run
        x = random(1, 1, WIDTH)
        results: list[Tensor] = []
        for _ in range(3 if jit else 1):
            found = work(lambda: results.append(function(x)))
        return found, results[-1].numpy()

    one, two, four = (token(layers, Tensor.contiguous) for layers in (1, 2, 4))
    for i in range(2):
        assert four[0][i] - two[0][i] == 2 * (two[0][i] - one[0][i])
    realized, expected = token(4, Tensor.realize)
    assert four[0] == realized
    np.testing.assert_allclose(four[1], expected, rtol=1e-5)


def test_values_kept_in_a_captured_function_share_memory_once_they_die() -> None:
    weight = random(64, 256, requires_grad=False)

    def peak(count: int) -> int:
        @TinyJit
        def step(x: Tensor) -> Tensor:
            for _ in range(count):
                hidden = (x @ weight).contiguous()
                x = (hidden.sum(1, keepdim=True) * x).realize()
            return x

        before = GlobalCounters.mem_used
        x = random(64, 64, requires_grad=False)
        for _ in range(3):
            step(x)
        return GlobalCounters.mem_used - before

    assert peak(8) <= peak(2) + 4 * 64 * 64 * 4
