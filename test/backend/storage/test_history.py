"""Reading and realizing change nothing about gradients: histories of stored values."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import device_names, nth
from tinygrad import GlobalCounters, Tensor, TinyJit, dtypes, nn
from tinygrad.device import Buffer
from tinygrad.helpers import prod
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.gradients.undecided import MAX_DEPTH
from tinygrad.uop.ops import UOp

Look = Callable[[Tensor], Tensor]
Program = Callable[[Look], tuple[Tensor, list[Tensor]]]


def values(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(values(*shape, seed=seed), requires_grad=True)


def untouched(x: Tensor) -> Tensor:
    return x


def by_item(x: Tensor) -> Tensor:
    x.sum().item()
    return x


def by_numpy(x: Tensor) -> Tensor:
    x.numpy()
    return x


def by_list(x: Tensor) -> Tensor:
    x.tolist()
    return x


LOOKS: dict[str, Look] = {
    "item": by_item,
    "numpy": by_numpy,
    "realize": Tensor.realize,
    "tolist": by_list,
}


# ---- programs: each gives a loss and the tensors to differentiate by ----


def mlp(look: Look) -> tuple[Tensor, list[Tensor]]:
    weights = [leaf(4, 8), leaf(8, 3, seed=1)]
    hidden = look((look(Tensor(values(5, 4, seed=2))) @ weights[0]).relu())
    return look((look(hidden @ weights[1])).square().mean()), weights


def conv_batchnorm(look: Look) -> tuple[Tensor, list[Tensor]]:
    norm = nn.BatchNorm(3)
    weights = [leaf(3, 2, 3, 3), norm.weight.requires_grad_(), norm.bias.requires_grad_()]
    with Tensor.train():
        x = look(Tensor(values(2, 2, 6, 6, seed=1)).conv2d(weights[0]))
        pooled = look(look(norm(x)).relu()).max_pool2d()
    return look(look(pooled * Tensor(values(2, 3, 2, 2, seed=2))).sum()), weights


def attention(look: Look) -> tuple[Tensor, list[Tensor]]:
    weights = [leaf(4, 4, seed=i) for i in range(3)]
    x = Tensor(values(1, 5, 4, seed=3))
    q, k, v = (look(x @ w) for w in weights)
    scores = look(look(q @ k.transpose(1, 2)).softmax())
    return look(look(look(scores @ v).max(1)).square().sum()), weights


def scans(look: Look) -> tuple[Tensor, list[Tensor]]:
    t = leaf(4, 4)
    h = look(look(t @ t.T).cumsum(1))
    y = look(h.cummax(0)[0])
    return look(look(y.square()).sum() + look(h.logcumsumexp(1)).sum()), [t]


def sorting(look: Look) -> tuple[Tensor, list[Tensor]]:
    t = leaf(6, 4)
    ordered = look(look(t @ t.T).sort(1)[0])
    chosen = look(ordered.gather(1, Tensor([[0, 2], [1, 1], [3, 0], [5, 4], [2, 2], [0, 1]])))
    return look(look(chosen.exp() * chosen).sum() + look(t[Tensor([0, 2, 2])]).prod()), [t]


def sharded(look: Look) -> tuple[Tensor, list[Tensor]]:
    devices = device_names(2)
    w = Tensor(values(4, 6)).shard(devices, axis=1).requires_grad_()
    x = look(Tensor(values(8, 4, seed=1)).shard(devices, axis=0))
    h = look(look(x @ w).max(1))
    return look(look(h.exp()).sum()), [w]


def ties(look: Look) -> tuple[Tensor, list[Tensor]]:
    t = leaf(5, 7)
    gram = look((t @ t.T) / 7)
    top = look(gram.max(0, keepdim=True))
    return look((top * Tensor(values(1, 5, seed=1))).sum() + look(gram.relu()).mean()), [t]


def custom_gradients(look: Look) -> tuple[Tensor, list[Tensor]]:
    t = leaf(3, 4)
    a, b = look(t.exp()), look(t.sigmoid())
    c = look(look(a * b).log().tanh())
    return look(look(c.cumprod(1)).sum() + look((t * 0.1).asin()).sum()), [t]


def twice(result: UOp, x: UOp) -> UOp:
    i = UOp.range(prod(x.shape), 0)
    return result[i].store(x[i] * 2).end(i).sink()


def twice_gradient(gradient: UOp, kernel: UOp) -> tuple[UOp | None, UOp]:
    return None, gradient * UOp.const(gradient.dtype, 2)


def custom_kernel(look: Look) -> tuple[Tensor, list[Tensor]]:
    t = leaf(6)
    scaled = look(t * 3)
    result = Tensor.empty(6).custom_kernel(scaled, fxn=twice, grad_fxn=twice_gradient)[0]
    return look(look(look(result).square()).sum()), [t]


def in_place(look: Look) -> tuple[Tensor, list[Tensor]]:
    w = leaf(3)
    x = look(Tensor.zeros(3).contiguous())
    x.assign(w * 2)
    y = look(look(x) * x)
    return look((y * w).sum() + look(x).sum()), [w]


PROGRAMS: list[Program] = [
    mlp,
    conv_batchnorm,
    attention,
    scans,
    sorting,
    sharded,
    ties,
    custom_gradients,
    custom_kernel,
    in_place,
]


def gradients_of(program: Program, look: Look) -> list[np.ndarray[Any, Any]]:
    loss, targets = program(look)
    loss.backward()
    return [x.grad.numpy() for x in targets if x.grad is not None]


def assert_equal_gradients(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        size = max(float(np.abs(b).max()), 1.0)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=64 * np.finfo(b.dtype).eps * size)


@pytest.mark.sample(22)
@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_looking_everywhere_changes_no_gradient(program: Program, name: str) -> None:
    assert_equal_gradients(gradients_of(program, LOOKS[name]), gradients_of(program, untouched))


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_looking_at_one_place_changes_no_gradient(program: Program) -> None:
    expected = gradients_of(program, untouched)
    places: list[int] = []
    program(lambda x: (places.append(0), x)[1])
    for place in range(len(places)):
        number = itertools.count()
        found = gradients_of(program, lambda x: x.realize() if next(number) == place else x)  # noqa: B023
        assert_equal_gradients(found, expected)


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_looking_in_any_order_changes_no_gradient(program: Program) -> None:
    expected = gradients_of(program, untouched)
    for seed in range(3):
        choice = random.Random(seed)
        seen: list[Tensor] = []

        def note(x: Tensor) -> Tensor:
            seen.append(x)  # noqa: B023
            return x

        loss, targets = program(note)
        seen += targets
        choice.shuffle(seen)
        for x in seen[: len(seen) * 2 // 3]:
            choice.choice(list(LOOKS.values()))(x)
        loss.backward()
        assert_equal_gradients([x.grad.numpy() for x in targets if x.grad is not None], expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize("size, count", [(4, 1), (150, 1), (6, 2)])
def test_a_leaf_may_be_stored_after_what_has_a_gradient_of_its_own(size: int, count: int) -> None:
    def gradient(looks_at: Callable[[Tensor, Tensor], list[Tensor]]) -> Any:
        t = Tensor(values(2, size)).shard(device_names(count), axis=1)
        y = t.requires_grad_().cummax(1)[0]
        for x in looks_at(t, y):
            x.numpy()
        y.square().sum().backward()
        return t.grad.tolist()

    expected = gradient(lambda t, y: [])
    assert gradient(lambda t, y: [y, t]) == gradient(lambda t, y: [t, y]) == expected


def test_gradients_by_values_that_were_stored() -> None:
    t = Tensor([1.0, 2.0])
    square = (t * t).realize()
    cube = (square * t).realize()
    by_square, by_t = cube.sum().gradient(square, t)
    assert by_square.tolist() == [1.0, 2.0]
    assert by_t.tolist() == [3.0, 12.0]


def test_second_order_gradients_go_through_stored_values() -> None:
    t = Tensor([1.0, 2.0], requires_grad=True)
    cube = (t.square().realize() * t).realize()
    (first,) = cube.sum().gradient(t)
    assert first.realize().tolist() == [3.0, 12.0]
    assert first.sum().gradient(t)[0].tolist() == [6.0, 12.0]


def test_detached_values_that_share_memory_stay_detached() -> None:
    t = Tensor([1.0, 2.0], requires_grad=True)
    h = t * 3
    fixed = h.detach()
    Tensor.realize(h, fixed)
    (h * fixed).sum().backward()
    assert t.grad is not None
    assert t.grad.tolist() == [9.0, 18.0]


def test_accumulated_gradients_do_not_depend_on_when_they_are_realized() -> None:
    devices = device_names(2)
    w = Tensor.ones(3).contiguous().shard(devices).realize().requires_grad_()
    for value in (1.0, 2.0):
        x = Tensor.full((4, 3), value).contiguous().shard(devices, axis=0)
        (x * w).realize().sum().realize().backward()
        with Tensor.accumulate_gradients():
            assert w.grad is not None
            w.grad.realize()
    assert w.grad is not None
    assert w.grad.tolist() == [12.0, 12.0, 12.0]


# ---- leaves, blocks without gradients ----


def test_a_leaf_stays_a_leaf_when_it_is_assigned() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for expected in ([2.0, 4.0], [-2.0, -4.0]):
        w.grad = None
        (w * w).sum().realize().backward()
        assert w.grad is not None
        assert w.grad.tolist() == expected  # type: ignore[unreachable]
        w.assign(w - 2 * w)
        if expected[0] > 0:
            w.realize()


@pytest.mark.parametrize("is_realized", [False, True])
def test_a_plain_tensor_has_the_gradient_of_what_is_assigned(is_realized: bool) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    x = Tensor.zeros(2).contiguous().realize()
    x.assign(w * w)
    assert x.requires_grad
    if is_realized:
        x.realize()
    x.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("is_realized", [False, True])
def test_values_of_a_leaf_before_a_write_have_its_gradient(is_realized: bool) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    before = (w * 5).sum()
    w.assign(w * 2)
    if is_realized:
        w.realize()
    (before + w.sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [6.0, 6.0]


def test_a_leaf_that_is_written_through_a_view_stays_a_leaf() -> None:
    w = Tensor.ones(2, 2).requires_grad_()
    before = (w * 3).sum()
    w[0] = 5
    (before + w.square().sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[13.0, 13.0], [5.0, 5.0]]


def test_a_leaf_stays_in_its_memory_when_a_tensor_that_shares_it_is_written() -> None:
    w = Tensor([[2.0, 3.0]]).realize().requires_grad_()
    before = w.square().sum()
    total = w.sum(0)
    total -= 1
    assert total.tolist() == [1.0, 2.0]
    assert w.tolist() == [[2.0, 3.0]]
    (before + total.sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[5.0, 7.0]]


def test_two_writes_of_a_leaf_before_it_is_realized() -> None:
    w = Tensor([1.0, 2.0]).realize().requires_grad_()
    w.square().sum().backward()
    for _ in range(2):
        assert w.grad is not None
        w.assign(w.detach() - w.grad)
    assert w.tolist() == [-3.0, -6.0]


def test_no_grad_is_a_block_and_a_decorator() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    @Tensor.no_grad()
    def doubled() -> Tensor:
        return w * 2

    with Tensor.no_grad():
        tripled = w * 3
    assert doubled().requires_grad is False
    assert tripled.requires_grad is False
    (doubled() * w + tripled.realize() * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [5.0, 10.0]


# ---- errors ----


def test_a_second_backward_needs_retain_graph() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum().realize()
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4.0, 8.0]
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        loss.backward()


def test_a_lazy_value_may_be_differentiated_again() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    loss.backward()
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4.0, 8.0]


def test_a_value_that_was_modified_in_place_is_named() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    loss = (w * w).sum().realize()
    w.assign(w + 1).realize()
    with pytest.raises(RuntimeError, match=r"shape \(2,\) that was modified in place"):
        loss.backward()


def test_a_derived_value_that_was_modified_in_place_is_computed_again() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    y = (w * 3).realize()
    square = (y * y).realize()
    y.assign(y + 1).realize()
    (square.sum() + y.sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [18.0 + 3, 36.0 + 3]


def test_backward_without_a_tensor_that_requires_a_gradient_says_so() -> None:
    for loss in (
        Tensor([1.0]).sum(),
        Tensor(1.0),
        Tensor([1.0], requires_grad=True).detach().sum(),
    ):
        with pytest.raises(RuntimeError, match="requires_grad=True"):
            loss.backward()


def test_a_history_that_was_cut_is_an_error_and_not_a_part_of_a_gradient() -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = x
    for _ in range(MAX_DEPTH + 4):
        y = (y + x).realize()
    with pytest.raises(RuntimeError, match="requires_grad=True"):
        y.sum().gradient(x)
    with pytest.raises(RuntimeError, match="requires_grad=True"):
        (y * x).sum().gradient(x)
    w = Tensor([3.0, 4.0], requires_grad=True)
    (y * w).sum().backward()
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), y.numpy())


# ---- memory ----


def live() -> tuple[int, int]:
    """The number of live nodes, and the bytes of live memory."""
    gc.collect()
    objects = gc.get_objects()
    nodes = sum(type(x) is UOp for x in objects)
    buffers = [x for x in objects if type(x) is Buffer and x.base is None and x.is_allocated()]
    return nodes, sum(x.nbytes for x in buffers)


def grows_by(step: Callable[[], object], count: int) -> tuple[float, float]:
    """The nodes and bytes that one step leaves behind, on average."""
    for _ in range(3):
        step()
    nodes, size = live()
    for _ in range(count):
        step()
    after, size_after = live()
    return (after - nodes) / count, (size_after - size) / count


@pytest.mark.parametrize("first", ["item", "backward"])
def test_a_list_of_losses_holds_no_graphs(first: str) -> None:
    w = Tensor(values(8, 8), requires_grad=True)
    optimizer = nn.optim.SGD([w], lr=0.01)
    x = Tensor(values(16, 8, seed=1)).realize()
    losses: list[Tensor] = []

    def step() -> None:
        optimizer.zero_grad()
        loss = (x @ w).relu().square().mean()
        if first == "item":
            loss.item()
        loss.backward()
        with Tensor.train():
            optimizer.step()
        losses.append(loss.realize())

    nodes, size = grows_by(step, 30)
    assert nodes <= 2  # a loss: its BUFFER, and the view of it
    assert size <= 8 * dtypes.float.itemsize


def test_kept_activations_hold_no_graphs() -> None:
    w = Tensor(values(8, 8), requires_grad=True)
    optimizer = nn.optim.SGD([w], lr=0.01)
    x = Tensor(values(16, 8, seed=1)).realize()
    kept: list[Tensor] = []

    def step() -> None:
        optimizer.zero_grad()
        h = (x @ w).relu()
        (h @ w).mean().backward()
        with Tensor.train():
            optimizer.step()
        kept.append(h.realize())

    nodes, size = grows_by(step, 20)
    assert nodes <= 3  # an activation, its gradient, and their memory
    assert size <= 2 * 16 * 8 * dtypes.float.itemsize


def test_an_endless_chain_of_stored_values_reaches_a_steady_state() -> None:
    x = Tensor(values(8)).realize()
    weight = Tensor(values(8, seed=1)).realize()

    def step() -> None:
        nonlocal x
        x = (x * weight + 1).realize()

    for _ in range(MAX_DEPTH):
        step()
    nodes, size = grows_by(step, 20)
    assert (nodes, size) == (0, 0)
    assert x.uop not in histories.definitions


def test_values_that_require_no_gradient_keep_no_history() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    with Tensor.no_grad():
        hidden = (w * 2).realize()
    plain = Tensor([1.0], requires_grad=False).realize()
    for x in (w, hidden, w.detach().realize(), (plain * 2).realize()):
        assert x.uop.base not in histories.definitions


def test_loaded_values_do_not_keep_what_they_were_made_from() -> None:
    x = Tensor(values(4)).cast(dtypes.half).realize()
    assert x.uop not in histories.definitions


# ---- captured functions ----


def test_replays_overwrite_what_histories_read() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()

    @TinyJit
    def double() -> None:
        w.assign(w * 2).realize()

    for number in range(5):
        square, triple = w.square().sum().realize(), (w * 3).sum().realize()
        double()
        with pytest.raises(RuntimeError, match="modified in place"):
            square.backward()
        w.grad = None
        triple.backward()
        assert w.grad is not None
        assert w.grad.tolist() == [3.0, 3.0]
        assert square.item() == 5.0 * 4**number


def test_results_of_a_captured_function_have_no_history() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    step = TinyJit(lambda x: (x * w).sum().realize())
    for _ in range(4):
        loss = step(Tensor([3.0, 4.0]).realize())
        with pytest.raises(RuntimeError, match="TinyJit"):
            (loss * 2).backward()


def test_results_that_need_no_gradient_inside_are_constants_outside() -> None:
    v, other = Tensor([2.0, 3.0]).realize(), Tensor([1.0, 1.0], requires_grad=True)

    def without(x: Tensor) -> Tensor:
        with Tensor.no_grad():
            return x * other

    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x * 2,
        lambda x: x * v,
        lambda x: (x * other).detach(),
        without,
    ]
    for function in functions:
        step, w = TinyJit(function), Tensor([3.0, 4.0], requires_grad=True)
        for number in range(4):
            x = Tensor([number + 1.0, 2.0]).realize()
            w.grad = None
            (step(x) * w).sum().backward()
            assert w.grad.tolist() == function(x).tolist()


def test_a_leaf_that_was_none_when_a_result_was_captured_is_an_error() -> None:
    v = Tensor([2.0, 3.0]).realize()
    step = TinyJit(lambda x: x * v)
    for _ in range(3):
        result = step(Tensor([1.0, 2.0]).realize())
    v.requires_grad = True
    with pytest.raises(RuntimeError, match="TinyJit"):
        result.sum().backward()


# ---- copies and writes ----


def test_a_copy_of_a_leaf_keeps_its_history() -> None:
    copies: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.clone(),
        lambda x: x.clone().to(nth(1)),
        lambda x: x.clone().shard(device_names(2), axis=0),
    ]
    data = Tensor([1.0, 2.0, 3.0], requires_grad=False).realize()
    for make in (lambda: Tensor.ones(3), lambda: Tensor([1.0, 2.0, 3.0]), lambda: data + 1):
        for is_realized, copy in itertools.product((False, True), copies):
            x = make().requires_grad_()
            x = x.realize() if is_realized else x
            copied = copy(x)
            copied.numpy()
            (copied * 3).sum().backward()
            (x * 2).sum().backward()
            assert x.grad.tolist() == [5, 5, 5]


@pytest.mark.parametrize("is_realized", [False, True])
def test_a_copy_keeps_its_history_when_the_original_is_written(is_realized: bool) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    x = (w * 2).realize()
    copied = x.clone()
    if is_realized:
        copied.realize()
    x.assign(x * w * 5).realize()
    assert copied.tolist() == [2, 4]
    (copied * 3).sum().backward()
    assert w.grad.tolist() == [6, 6]


@pytest.mark.parametrize("is_realized", [False, True])
def test_what_is_overwritten_has_a_gradient_of_zeros(is_realized: bool) -> None:
    a, b = leaf(3), leaf(3, seed=1)
    product = a * b
    if is_realized:
        product.realize()
    product.assign(a * 3)
    GlobalCounters.reset()
    product.realize()
    assert GlobalCounters.kernel_count == 1
    (product * 2).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([6, 6, 6], [0, 0, 0])
    b.grad = None
    product = leaf(3) * b
    product.unsqueeze(0).assign(a.unsqueeze(0) * 2)
    product.sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([8, 8, 8], [0, 0, 0])


def test_a_history_goes_through_two_writes_that_are_stored_together() -> None:
    w, x = leaf(3), Tensor.zeros(4, 3).contiguous().realize()
    x[1:3] = w * 2
    x[:, 1] += w[0]
    x.sum().backward()
    assert w.grad.tolist() == [8, 4, 4]


@pytest.mark.parametrize("device", [None, device_names(2)], ids=["one", "two"])
def test_a_gradient_may_need_the_content_before_a_lazy_write(device: Any) -> None:
    w, x = leaf(3), Tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).to(device).realize()
    w.to_(device)
    old = x.tolist()
    x *= w
    (x * x).sum().backward()
    expected = 2 * np.square(old).sum(0) * w.numpy()
    np.testing.assert_allclose(w.grad.numpy(), expected, 1e-5)
    np.testing.assert_allclose(x.numpy(), old * w.numpy(), 1e-6)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_copy_of_written_memory_keeps_its_history(is_written: bool) -> None:
    w, x = leaf(3), Tensor.ones(4, 3).contiguous().realize()
    x[::2] += w[0]
    y = x.clone()
    if is_written:
        x[:, 1] = 2
    y.realize().sum().backward()
    assert w.grad.tolist() == [6, 0, 0]


def test_older_content_of_a_tensor_that_is_a_leaf_no_longer_leads_nowhere() -> None:
    w, x = leaf(3), Tensor.ones(4, 3).contiguous().realize()
    y = x + w
    x[2, 1] += 1
    x[1:] += y.mean()
    x.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), [3, 3, 3], 1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("index", [..., slice(1, 3), (0, 1), [0, 2], (slice(None), [1])], ids=str)
@pytest.mark.parametrize("look", [lambda x: x, Tensor.realize], ids=["lazy", "realized"])
def test_in_place_products_keep_what_their_gradient_needs(look: Look, index: Any) -> None:
    for update, expected in (
        ("x[i] *= w", lambda x, w: x),
        ("x[i] /= w", lambda x, w: -x / w**2),
        ("x[i] **= w", lambda x, w: x**w * np.log(x)),
        ("x[i] %= w", lambda x, w: -np.floor(x / w)),
    ):
        array = np.array([[0.5, 2.5, 3.0], [7.0, 1.5, 2.0], [2.0, 3.0, 0.25]], np.float32)
        x, w = Tensor(array).realize(), Tensor(1.25, requires_grad=True)
        exec(update, {"x": x, "w": w, "i": index})
        look(x).sum().backward()
        wanted = expected(array[index].astype(np.float64), 1.25).sum()
        assert w.grad.item() == pytest.approx(wanted, rel=1e-5), update


# ---- accumulation ----


def test_grad_is_one_object_that_accumulates_in_place() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    grad, view = w.grad.realize(), w.grad[1:]
    memory = grad.uop.buffer
    for count in (2, 3):
        (w * w).sum().backward()
        assert w.grad is grad
        assert (grad.tolist(), view.tolist()) == ([2 * count, 4 * count], [4 * count])
    assert grad.uop.buffer is memory
    before = grad.clone()
    w.sum().backward()
    assert (before.tolist(), grad.tolist()) == ([6, 12], [7, 13])


def test_the_upstream_gradient_of_a_number_has_one_element_in_any_shape() -> None:
    for upstream in (Tensor(3.0), Tensor([3.0]), Tensor([[3]])):
        w = Tensor([1.0, 2.0], requires_grad=True)
        (w * w).sum().backward(gradient=upstream)
        assert w.grad.tolist() == [6, 12]
        assert (w * w).sum().gradient(w, gradient=upstream)[0].tolist() == [6, 12]
    with pytest.raises(RuntimeError, match=r"shape \(2,\), not \(\)"):
        w.sum().backward(gradient=Tensor([1.0, 2.0]))
