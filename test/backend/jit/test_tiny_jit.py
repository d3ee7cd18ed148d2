"""`TinyJit`: captures, replays with other inputs, captures again, and errors."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import Mock, call

import numpy as np
import pytest

from test.devices import device_names, nth, only_one_process
from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.device import Sharding
from tinygrad.execution.realize import compiled_kernels
from tinygrad.jit import JitError, RecaptureWarning
from tinygrad.nn.optim import SGD, Adam
from tinygrad.settings import Context

Array = np.ndarray[Any, Any]
SHAPE = (4, 6)
COUNTS_KERNELS = only_one_process("counts kernels, which the process of the device alone has")


def array(seed: int, shape: tuple[int, ...] = SHAPE) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(seed: int, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return Tensor(array(seed, shape)).realize()


def close(found: Tensor, expected: Any) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


# ---- capture and replay ----


def test_replays_equal_calls_without_a_jit() -> None:
    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        return ((x + y).relu() * x).sum(0).realize()

    for i in range(5):
        a, b = array(i), array(i + 10)
        close(step(tensor(i), tensor(i + 10)), (np.maximum(a + b, 0) * a).sum(0))


@COUNTS_KERNELS
def test_python_code_runs_in_the_first_two_calls_only() -> None:
    runs = Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        runs()
        return (x + 1).realize()

    for i in range(5):
        step(tensor(i))
    assert runs.call_count == 2
    assert len(step.jit_cache) == 1
    assert step.captured is not None
    assert len(step.captured.jit_cache) == 1


def test_lazy_results_are_realized() -> None:
    step = TinyJit(lambda x: (x * 2, [x + 1]))
    for i in range(4):
        doubled, (more,) = step(tensor(i))
        close(doubled, array(i) * 2)
        close(more, array(i) + 1)


def test_a_replay_overwrites_the_same_result_tensor() -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    step(tensor(0))
    first = step(tensor(1))
    kept = first.clone().realize()
    second = step(tensor(2))
    assert first is second
    close(first, array(2) + 1)
    close(kept, array(1) + 1)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_results_may_be_nested_containers() -> None:
    step = TinyJit(lambda x: Pair({"k": x + 1}, [None, (x * 2, 3), {}]))
    for i in range(5):
        found = step(tensor(i))
        assert isinstance(found, Pair)
        close(found.first["k"], array(i) + 1)
        nothing, (doubled, three), empty = found.second
        assert (nothing, three, empty) == (None, 3, {})
        close(doubled, array(i) * 2)


def test_a_result_that_is_an_input_is_the_input_of_each_call() -> None:
    step = TinyJit(lambda x, y: (x, [y.T], x + y))
    for i in range(5):
        x, y = tensor(i), tensor(i + 10)
        same, (turned,), total = step(x, y)
        close(same, array(i))
        close(turned, array(i + 10).T)
        close(total, array(i) + array(i + 10))


@COUNTS_KERNELS
def test_cnt_counts_calls_and_captured_is_set_by_the_second() -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    states = []
    for i in range(3):
        states.append((step.cnt, step.captured is None, len(step.jit_cache)))
        step(tensor(i))
    assert states == [(0, True, 0), (1, True, 0), (2, False, 1)]


@COUNTS_KERNELS
def test_counters_count_replays() -> None:
    step = TinyJit(lambda x: (x.sum(1, keepdim=True).realize() + x).realize())
    counts = []
    for i in range(4):
        x = tensor(i)
        GlobalCounters.reset()
        step(x)
        counts.append((GlobalCounters.kernel_count, GlobalCounters.global_mem))
    assert counts[0][0] == 2
    assert len(set(counts)) == 1


def test_a_replay_may_take_its_own_result_as_input() -> None:
    step = TinyJit(lambda x: (x.flip(0) * 0.5 + 1).realize())
    x, expected = tensor(0), array(0)
    for _ in range(6):
        x, expected = step(x), expected[::-1] * 0.5 + 1
        close(x, expected)


def test_a_replay_may_take_its_results_as_inputs_in_another_order() -> None:
    step = TinyJit(lambda x, y: ((x + y).realize(), (x - y).realize()))
    x, y, a, b = tensor(0), tensor(1), array(0), array(1)
    for _ in range(5):
        x, y = reversed(step(x, y))
        a, b = a - b, a + b
        close(x, a)
        close(y, b)


def test_with_jit_off_every_call_runs() -> None:
    runs = Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        runs()
        return (x + 1).realize()

    with Context(JIT=0):
        for i in range(4):
            close(step(tensor(i)), array(i) + 1)
    assert runs.call_count == 4


def test_reset_captures_again() -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    for i in range(3):
        step(tensor(i))
    step.reset()
    for i in range(3):
        close(step(tensor(i, (5,))), array(i, (5,)) + 1)


# ---- inputs ----


def test_inputs_may_be_in_containers_and_keywords() -> None:
    @TinyJit
    def step(pair: list[Tensor], named: dict[str, Tensor], *, scale: Tensor) -> Tensor:
        return ((pair[0] - pair[1]) * named["w"] + scale).realize()

    for i in range(5):
        a, b, w, s = (tensor(i * 4 + k) for k in range(4))
        found = step([a, b], {"w": w}, scale=s)
        expected = (array(i * 4) - array(i * 4 + 1)) * array(i * 4 + 2) + array(i * 4 + 3)
        close(found, expected)


def test_lazy_inputs_are_realized() -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    for i in range(4):
        close(step(tensor(i) * 2), array(i) * 2 + 1)


@pytest.mark.parametrize("device", [None, nth(1), Sharding(device_names(2))])
def test_constants_are_inputs(device: Any) -> None:
    step = TinyJit(lambda x, y: (x + y).realize())
    for i in range(5):
        x, y = Tensor.full((3,), i, device=device), Tensor(0.5, device=device)
        assert step(x, y).tolist() == [i + 0.5] * 3


def test_views_are_inputs() -> None:
    step = TinyJit(lambda x, y: (x + y).realize())
    for i in range(5):
        found = step(tensor(i, (5, 4, 6))[2], tensor(i + 10, (6, 4)).T)
        close(found, array(i, (5, 4, 6))[2] + array(i + 10, (6, 4)).T)


@pytest.mark.parametrize("device", [None, Sharding(device_names(2), axis=0)])
def test_results_may_be_bitcasts_of_inputs(device: Any) -> None:
    step = TinyJit(lambda x: ((x + 1).realize(), x.bitcast(dtypes.short).realize().reshape(2, 4)))
    for i in range(5):
        numbers = np.arange(4, dtype=np.int32) + i
        _, bits = step(Tensor(numbers).to(device).realize())
        np.testing.assert_array_equal(bits.numpy(), numbers.view(np.int16).reshape(2, 4))


def test_variables_bound_inside_keep_their_captured_value() -> None:
    n = Variable("n", 1, 4)
    step = TinyJit(lambda x: (x[: n.bind(2)] + 1).sum().realize())
    for i in range(4):
        assert step(tensor(i)).item() == pytest.approx((array(i)[:2] + 1).sum(), rel=1e-4)


def test_replays_see_what_is_assigned_to_a_weight() -> None:
    weight = tensor(9)
    step = TinyJit(lambda x: (x * weight).realize())
    for i in range(3):
        step(tensor(i))
    weight.assign(Tensor.ones(*SHAPE)).realize()
    # each replay reads the memory of the weight
    close(step(tensor(5)), array(5))


def test_symbolic_sizes_take_the_values_of_each_call() -> None:
    n = Variable("n", 1, 10)
    step = TinyJit(lambda x: (x + 1).sum().realize())
    whole = tensor(0, (10, 3))
    for i in (3, 5, 1, 10, 7):
        found = step(whole[: n.bind(i)])
        assert found.item() == pytest.approx((array(0, (10, 3))[:i] + 1).sum(), rel=1e-4)


def test_symbolic_offsets_take_the_values_of_each_call() -> None:
    start = Variable("start", 0, 9)
    step = TinyJit(lambda x, i: (x[i : i + 1] * 2).realize())
    whole = tensor(0, (10, 3))
    for i in (3, 5, 1, 9, 0):
        close(step(whole, start.bind(i)).reshape(3), array(0, (10, 3))[i] * 2)


@COUNTS_KERNELS
def test_kernels_of_other_threads_are_not_captured() -> None:
    x = Tensor([1.0, 2.0]).realize()
    sums = Mock()

    def elsewhere() -> None:
        sums((x + sums.call_count).sum().item())

    def step(x: Tensor) -> Tensor:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return (x * 2).realize()

    jitted = TinyJit(step)
    for _ in range(3):
        assert jitted(x).tolist() == [2, 4]
    assert len(jitted.jit_cache) == 1
    assert sums.call_args_list == [call(3), call(5)]


def test_a_key_value_cache_grows_inside() -> None:
    cache = Tensor.zeros(8, 4).contiguous().realize()
    position = Variable("position", 0, 7)

    @TinyJit
    def step(new: Tensor, at: Any) -> Tensor:
        cache[at : at + 1].assign(new).realize()
        return cache[: at + 1].sum(0).realize()

    total = np.zeros(4, np.float32)
    for i in range(7):
        total = total + array(i, (1, 4))[0]
        close(step(tensor(i, (1, 4)), position.bind(i)), total)


# ---- Python values ----


@pytest.mark.parametrize(
    "values",
    [(1, 2), (1, 1.5), (True, 2), (0.0, -0.0), (2, None), ("a", "b"), (b"a", b"b"), (1, True)],
    ids=str,
)
def test_another_python_value_is_captured_again(values: tuple[Any, Any]) -> None:
    seen = Mock()

    @TinyJit
    def step(x: Tensor, options: dict[str, Any], *, k: Any) -> Tensor:
        seen(options["k"][0], k)
        return (x + 1).realize()

    for value in values:
        for i in range(3):
            close(step(tensor(i), {"k": [value]}, k=0), array(i) + 1)
    expected = [call(values[0], 0)] * 2 + [call(values[1], 0)]
    assert repr(seen.call_args_list) == repr(expected)
    close(step(tensor(0), {"k": [values[1]]}, k=1), array(0) + 1)
    assert seen.call_args.args[1] == 1


def test_changed_numbers_are_never_stale() -> None:
    step = TinyJit(lambda x, k: (x * k).realize())
    for k in (0, 1, 2, 2, 2, 3.5, 3, 3, 2):
        close(step(tensor(1), k), array(1) * k)


def test_arrays_compare_by_content_and_objects_by_identity() -> None:
    class Scale:
        by = 2.0

    runs = Mock()

    @TinyJit
    def step(x: Tensor, array: Array, scale: Scale) -> Tensor:
        runs()
        return (x * float(array[0]) * scale.by).realize()

    numbers, scale = np.array([1.0, 2.0]), Scale()
    for _ in range(4):
        close(step(tensor(0), numbers.copy(), scale), array(0) * 2)
    assert runs.call_count == 2
    numbers[0] = 3
    close(step(tensor(0), numbers, scale), array(0) * 6)
    numbers[0] = 5
    close(step(tensor(0), numbers, scale), array(0) * 10)
    close(step(tensor(0), numbers, Scale()), array(0) * 10)
    assert runs.call_count == 5


def test_training_mode_is_captured_separately() -> None:
    step = TinyJit(lambda x: (x.dropout(0.5) + 1).realize())
    for training in (True, False, True):
        for _ in range(3):
            with Tensor.train(training):
                found = step(Tensor.ones(64)).tolist()
            assert set(found) == ({1.0, 3.0} if training else {2.0})


# ---- state ----


def test_random_numbers_advance() -> None:
    def draws(wrap: Any) -> list[Array]:
        Tensor.manual_seed(1)
        step = wrap(lambda: Tensor.rand(4).add(0).realize())
        return [step().numpy() for _ in range(6)]

    expected = draws(lambda function: function)
    assert len({tuple(x) for x in expected}) == 6
    np.testing.assert_array_equal(draws(TinyJit), expected)


def test_random_numbers_inside_and_outside_are_one_sequence() -> None:
    def draws(wrap: Any) -> list[Array]:
        Tensor.manual_seed(1)
        step = wrap(lambda: Tensor.rand(4).add(0).realize())
        return [draw().numpy() for _ in range(6) for draw in (step, lambda: Tensor.rand(3))]

    for found, expected in zip(draws(TinyJit), draws(lambda function: function), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_seed_restarts_the_random_numbers_of_a_capture() -> None:
    def draw(x: Tensor) -> Tensor:
        return (x + Tensor.rand(4) * Tensor.randn(4)).realize()

    step = TinyJit(draw)
    for _ in range(3):
        step(Tensor.zeros(4))
    for seed in (7, 8, 7):
        found = []
        for function in (draw, step):
            Tensor.manual_seed(seed)
            found.append([function(Tensor.zeros(4)).tolist() for _ in range(3)])
        np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_random_numbers_drawn_before_a_seed_keep_their_values() -> None:
    step = TinyJit(lambda: Tensor.rand(4).add(0).realize())
    for _ in range(3):
        step()
    Tensor.manual_seed(3)
    expected = Tensor.rand(4).tolist()
    Tensor.manual_seed(3)
    early = Tensor.rand(4)
    Tensor.manual_seed(4)
    assert early.tolist() == expected
    assert step().tolist() != expected


def test_draws_on_two_devices_are_the_same_with_and_without_a_capture() -> None:
    def draws(wrap: Any) -> list[Any]:
        Tensor.manual_seed(5)
        step = wrap(lambda: Tensor.rand(3, device=nth(1)).add(0).realize())
        found = []
        for i in range(6):
            found.append(step().tolist())
            found += [Tensor.rand(2).tolist() for _ in range(i)]
        return found

    assert draws(TinyJit) == draws(lambda function: function)


def test_a_seed_inside_is_an_error() -> None:
    def draw() -> Tensor:
        Tensor.manual_seed(1)
        return Tensor.rand(4).realize()

    step = TinyJit(draw)
    step()
    with pytest.raises(JitError, match="manual_seed"):
        step()


def test_assignments_inside_are_replayed() -> None:
    total = Tensor.zeros(*SHAPE).contiguous().realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return total.assign(total + x).realize()

    expected = np.zeros(SHAPE, np.float32)
    for i in range(6):
        step(tensor(i))
        expected += array(i)
        close(total, expected)


@pytest.mark.parametrize("make", [SGD, Adam])
def test_optimizer_steps_inside_are_replayed(make: Any) -> None:
    def train(wrap: Callable[[Any], Any]) -> list[float]:
        w = tensor(0, (6, 3))
        optimizer = make([w], lr=0.1)

        @wrap
        @Tensor.train()
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (x @ w).square().mean().backward()
            return loss.realize(*optimizer.schedule_step())

        return [step(tensor(i % 2)).item() for i in range(6)]

    expected = train(lambda function: function)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(train(TinyJit), expected, rtol=1e-4)


def test_batchnorm_statistics_advance_inside() -> None:
    def train(wrap: Callable[[Any], Any]) -> tuple[list[float], Array]:
        norm = nn.BatchNorm(3)

        @wrap
        @Tensor.train()
        def step(x: Tensor) -> Tensor:
            out = norm(x).sum()
            return out.realize(norm.running_mean, norm.running_var, norm.num_batches_tracked)

        found = [step(tensor(i, (4, 3, 2, 2))).item() for i in range(5)]
        return found, norm.running_mean.numpy()

    expected, found = train(lambda function: function), train(TinyJit)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4)


# ---- methods, and jits inside jits ----


def test_each_bound_method_has_a_capture() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.weight = Tensor([scale]).realize()
            self.step = TinyJit(self.forward)

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight).realize()

    two, three = Model(2.0), Model(3.0)
    for i in range(4):
        close(two.step(tensor(i)), array(i) * 2)
        close(three.step(tensor(i)), array(i) * 3)


def test_a_decorated_method() -> None:
    class Model:
        weight = 2.0

        @TinyJit
        def __call__(self, x: Tensor) -> Tensor:
            return (x * self.weight).realize()

    model = Model()
    for i in range(4):
        close(model(tensor(i)), array(i) * 2)


def test_two_objects_with_a_decorated_method_do_not_share_a_capture() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.weight = Tensor([scale]).realize()

        @TinyJit
        def __call__(self, x: Tensor) -> Tensor:
            return (x * self.weight).realize()

    two, three = Model(2.0), Model(3.0)
    for i in range(4):
        close(two(tensor(i)), array(i) * 2)
        close(three(tensor(i)), array(i) * 3)


def test_a_jit_inside_a_jit_is_captured_with_it() -> None:
    inner = TinyJit(lambda x: (x + 1).realize())
    outer = TinyJit(lambda x: (inner(x) * 2).realize())
    for i in range(6):
        close(outer(tensor(i)), (array(i) + 1) * 2)


@pytest.mark.parametrize("verify", [0, 1])
def test_a_captured_jit_inside_a_jit_has_a_new_result_at_each_of_its_calls(verify: int) -> None:
    inner = TinyJit(lambda x: (x + 1).realize())
    for i in range(3):
        inner(tensor(i))
    outer = TinyJit(lambda x: (inner(x) * inner(x + 1)).realize())
    with Context(JIT_VERIFY=verify):
        for i in range(5):
            close(outer(tensor(i)), (array(i) + 1) * (array(i) + 2))


def test_two_jits_share_a_weight() -> None:
    weight = tensor(0).clone().realize()
    grow = TinyJit(lambda: weight.assign(weight + 1).realize())
    read = TinyJit(lambda x: (x * weight).realize())
    for i in range(5):
        grow()
        close(read(tensor(i)), array(i) * (array(0) + i + 1))


def test_replays_keep_layouts() -> None:
    devices = device_names(2)
    step = TinyJit(lambda x: (x.sum(0) + 1).realize())
    for i in range(5):
        found = step(tensor(i).shard(devices, 0))
        assert found.device is Sharding(devices)
        close(found, array(i).sum(0) + 1)


# ---- lazy values across a call ----


def old_weights() -> list[Any]:
    weight = tensor(0).clone().realize()
    grow = TinyJit(lambda x: weight.assign(weight + x).realize())
    found = []
    for i in range(6):
        before = weight * 10
        grow(tensor(i))
        found.append(before)
    return found


def old_arguments() -> list[Any]:
    double = TinyJit(lambda x: x.assign(x * 2).realize())
    x = tensor(0).clone().realize()
    found = []
    for _ in range(6):
        before = x + 1
        double(x)
        found.append(before)
    return found


def old_results() -> list[Any]:
    total = TinyJit(lambda x: (x * 2).sum().realize())
    found = [Tensor(0.0)]
    for i in range(6):
        found.append(found[-1] + total(tensor(i)))
    return found


def random_numbers() -> list[Any]:
    Tensor.manual_seed(3)
    noisy = TinyJit(lambda x: (x + Tensor.rand(4, 6)).realize())
    found = []
    for i in range(6):
        drawn = Tensor.rand(3)
        found += [drawn, noisy(tensor(i)) * 1]
    return found


def pending_writes() -> list[Any]:
    weight = tensor(0).clone().realize()
    scale = TinyJit(lambda x: (x * weight).realize())
    found = []
    for i in range(6):
        weight.assign(weight + 1)
        found.append(scale(tensor(i)) + 0)
    return found


@pytest.mark.parametrize(
    "program",
    [old_weights, old_arguments, old_results, random_numbers, pending_writes],
)
def test_lazy_values_keep_the_content_they_were_built_on(program: Callable[[], list[Any]]) -> None:
    found = [x.numpy() for x in program()]
    with Context(JIT=0):
        expected = [x.numpy() for x in program()]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_lazy_values_do_not_prevent_a_capture() -> None:
    weight = tensor(0).clone().realize()
    runs = Mock()

    @TinyJit
    def grow(x: Tensor) -> Tensor:
        runs()
        return weight.assign(weight + x).realize()

    waiting = []
    for i in range(8):
        waiting.append(weight * 10)
        grow(tensor(i))
    # the first call, one that realized `waiting` and cannot be replayed, and the capture
    assert runs.call_count == 3


# ---- forms of a call ----


def test_arguments_by_position_by_name_and_by_default_are_one_call() -> None:
    def combine(a: Tensor, b: Tensor, k: int = 2, *, s: float = 1.0) -> Tensor:
        return (a - b * k) * s

    step = TinyJit(combine)
    for _ in range(2):
        step(tensor(0), tensor(1))
    captured = step.captured
    a, b = tensor(2), tensor(3)
    calls: list[Callable[[Any], Tensor]] = [
        lambda f: f(a, b),
        lambda f: f(a, b=b),
        lambda f: f(b=b, a=a),
        lambda f: f(a, b, 2),
        lambda f: f(a, b, s=1.0, k=2),
    ]
    for run in calls:
        close(run(step), run(combine).numpy())
        assert step.captured is captured
    close(step(a, b, s=3.0), combine(a, b, s=3.0).numpy())
    for bad in (lambda f: f(a), lambda f: f(a, b, c=a), lambda f: f(a, a=b)):
        with pytest.raises(TypeError, match="combine"):
            bad(step)


def test_a_loaded_capture_takes_arguments_by_position_and_by_name() -> None:
    step = TinyJit(scaled_difference)
    for _ in range(3):
        step(tensor(0), tensor(1))
    loaded = pickle.loads(pickle.dumps(step))
    for run in (lambda f: f(tensor(2), b=tensor(3)), lambda f: f(tensor(2), tensor(3), 2)):
        close(run(loaded), array(2) - 2 * array(3))


def scaled_difference(a: Tensor, b: Tensor, k: int = 2) -> Tensor:
    return (a - b * k).realize()


class WithStep:
    @TinyJit
    def step(self, a: Tensor, *others: Tensor, last: Tensor | None = None) -> Tensor:
        return sum(others, a) if last is None else sum(others, a) * last


def test_methods_and_functions_of_any_arguments_have_one_form_too() -> None:
    held = WithStep()
    for i in range(4):
        close(held.step(tensor(i), tensor(1), last=tensor(2)), (array(i) + array(1)) * array(2))
    captured = held.step.captured
    close(held.step(tensor(0), tensor(1), last=tensor(1)), (array(0) + array(1)) * array(1))
    assert held.step.captured is captured
    close(held.step(tensor(0), tensor(1), tensor(2)), array(0) + array(1) + array(2))


class WithoutSignature:
    __signature__ = "unknown"

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


def test_an_unknown_signature_is_an_error_that_says_what_differs() -> None:
    step = TinyJit(WithoutSignature())
    for _ in range(2):
        step(tensor(0), tensor(1))
    with pytest.raises(JitError, match=r"in arguments 0, 1, called with 0, b; give"):
        step(tensor(0), b=tensor(1))


def test_calls_that_race_through_the_first_ones_are_all_counted() -> None:
    for _ in range(5):
        total = Tensor([0]).realize()

        @TinyJit
        def add(total: Tensor = total) -> None:
            total.assign(total + 1).realize()

        barrier = threading.Barrier(4)

        def work(add: Any = add, barrier: Any = barrier) -> None:
            barrier.wait()
            for _ in range(4):
                add()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert total.item() == 16
        assert add.cnt == 16


def test_a_captured_function_may_call_itself_and_others() -> None:
    @TinyJit
    def power(x: Tensor, n: int) -> Tensor:
        return x if n == 0 else power(x, n - 1) * x

    for i in range(5):
        assert power(Tensor([float(i)]).realize(), 2).item() == i**3


# ---- errors ----


def captured() -> Any:
    step = TinyJit(lambda x, y: (x + y).realize())
    for i in range(3):
        step(tensor(i), tensor(i + 1))
    return step


def test_another_shape_is_an_error() -> None:
    with pytest.raises(JitError, match=r"argument 1 .*\(4, 6\).*\(1, 6\)"):
        captured()(tensor(0), tensor(1, (1, 6)))


def test_another_dtype_is_an_error() -> None:
    with pytest.raises(JitError, match=r"argument 0 .*float.*int"):
        captured()(tensor(0).cast(dtypes.int).realize(), tensor(1))


def test_another_layout_is_an_error() -> None:
    with pytest.raises(JitError, match=r"argument 0 .*Sharding"):
        x = tensor(0).shard(device_names(2), 0)
        captured()(x, tensor(1).shard(device_names(2), 0))


def test_another_view_is_captured_anew() -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    whole = tensor(0, (4, 4, 6))
    views = [whole[0], whole[1], whole[2], whole[2], whole[0].flip(0), tensor(1), tensor(2)]
    for view in views:
        close(step(view), view.numpy() + 1)
    captured = step.captured
    close(step(tensor(3)), array(3) + 1)
    assert step.captured is captured
    loaded = pickle.loads(pickle.dumps(step))
    close(loaded(whole[1]), whole[1].numpy() + 1)
    with pytest.raises(JitError, match=r"another view .*\.contiguous\(\)"):
        loaded(whole[0].flip(0))


def test_slices_of_memory_are_replayed_wherever_they_begin() -> None:
    rows, whole = np.arange(48.0).reshape(16, 3).astype(np.float32), tensor(0, (16, 3))
    whole.assign(Tensor(rows)).realize()
    product = TinyJit(lambda x, y: (x @ y.T).relu() + x.sum())
    captures = set()
    for i in (0, 4, 9, 1, 12, 3):
        x, y = rows[i : i + 4], rows[i + 1 : i + 5][:3]
        given = whole[i : i + 4] if i != 1 else Tensor(x).realize()
        target = whole[i + 1 : i + 4] if i != 1 else Tensor(y).realize()
        close(product(given, target), np.maximum(x @ y.T, 0) + x.sum())
        captures.add(product.captured)
    # one tensor of its own is in no memory that the other is in
    assert len(captures - {None}) == 3
    row = TinyJit(lambda x: (x * 2).sum())
    captures = set()
    for i in range(5):
        close(row(whole[i].realize()), rows[i].sum() * 2)
        captures.add(row.captured)
    assert len(captures - {None}) == 1


def test_slices_that_a_function_returns_writes_or_reads_otherwise_are_captured_anew() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        whole, found = tensor(0, (16, 3)), []

        def write(x: Tensor) -> Tensor:
            x += 1
            return x * 2

        both = wrap(lambda x, y: x.sum(0) + y[1])
        for i in (0, 4, 9, 1):
            found += [
                both(whole[i : i + 4], whole).tolist(),
                both(whole[i : i + 4], whole).tolist(),
            ]
        functions = [lambda x: x[:1], write, lambda x: x + whole[0], lambda x: (x + 1, x.T)[1]]
        for function in map(wrap, functions):
            for i in (0, 4, 9, 1):
                found += [function(whole[i : i + 4]).tolist(), whole.tolist()]
        return found

    assert run(TinyJit) == run(lambda function: function)


def test_another_number_of_tensors_is_an_error() -> None:
    step = TinyJit(lambda xs: (xs[0] + xs[1]).realize())
    for i in range(3):
        step([tensor(i), tensor(i + 1)])
    with pytest.raises(JitError, match="captured with 2 .* called with 3"):
        step([tensor(0), tensor(1), tensor(2)])


def test_rebound_state_is_never_stale() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True).realize()
    state = [Tensor([0.0]).realize()]

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state[0] = (state[0] + x.sum()).realize()
        (weight * x).sum().backward()
        return weight.grad.realize()

    for number in range(1, 6):
        total = number * (number + 1) / 2
        assert step(Tensor([float(number)] * 2)).tolist() == [total, total]
        assert state[0].tolist() == [2 * total]


def test_a_tensor_written_inside_may_be_an_argument() -> None:
    weight = Tensor([1.0, 2.0]).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        weight.assign(weight + 1).realize()
        return (x * 2).realize()

    for _ in range(3):
        assert step(Tensor([3.0, 4.0])).tolist() == [6, 8]
    assert step(weight).tolist() == [10, 12]
    assert weight.tolist() == [5, 6]


@pytest.mark.parametrize("function", [lambda x: 1, lambda x: x, lambda x: (x[1:], Tensor(2.0))])
def test_functions_without_kernels_are_captured(function: Any) -> None:
    def numbers(found: Any) -> Any:
        if isinstance(found, tuple):
            return [numbers(x) for x in found]
        return found.tolist() if isinstance(found, Tensor) else found

    step = TinyJit(function)
    for i in range(4):
        assert numbers(step(tensor(i))) == numbers(function(tensor(i)))
    assert step.captured is not None


def test_an_error_inside_leaves_the_jit_usable() -> None:
    fail = [False, True, False, False, False]

    @TinyJit
    def step(x: Tensor) -> Tensor:
        if fail.pop(0):
            raise RuntimeError("not now")
        return (x + 1).realize()

    step(tensor(0))
    with pytest.raises(RuntimeError, match="not now"):
        step(tensor(1))
    # the list is another one at each call
    with pytest.warns(RecaptureWarning, match="fail is another"):
        for i in range(3):
            close(step(tensor(i)), array(i) + 1)


def test_a_captured_function_keeps_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinygrad.execution.realize._runners.limit", lambda: 0)
    step = TinyJit(lambda x: ((x + 1).contiguous() * (x.sum() + 2)).softmax().realize())
    x = Tensor([1.0, 2.0, 3.0]).realize()
    expected = step(x).numpy()
    for _ in range(2):
        step(x)
    kernels = {item.ast for item in step.captured.jit_cache}
    for size in range(4, 12):
        (Tensor.ones(size).contiguous() * size + 1).realize()
    compiled_kernels.clear()
    for context in (Context(DEBUG=0), Context(DEBUG=2)):  # one native call, then item by item
        with context:
            np.testing.assert_array_equal(step(x).numpy(), expected)
    assert not compiled_kernels
    np.testing.assert_array_equal(TinyJit(step.fxn)(x).numpy(), expected)
    assert len(compiled_kernels) == len(kernels), "others were evicted from the cache"


@COUNTS_KERNELS
def test_a_result_passed_back_is_read_before_kernels_of_one_launch_overwrite_it():
    count = Tensor.zeros(64, dtype=dtypes.int32).contiguous().realize()

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        # two kernels that are independent as long as x is not the result
        count.assign(count + 1).realize()
        return (x + 100).realize(), (count * 2).realize()

    jitted = TinyJit(step)
    x = Tensor.zeros(64, dtype=dtypes.int32).contiguous().realize()
    for number in range(6):
        shifted, doubled = jitted(x)
        assert shifted.tolist() == [100 + 2 * number] * 64
        assert doubled.tolist() == [2 * (number + 1)] * 64
        x = doubled
    assert jitted.captured is not None and len(jitted.jit_cache) == 3


@COUNTS_KERNELS
def test_independent_products_are_one_launch():
    count, size = 3, 64
    weights = [tensor(number, (size, size)) for number in range(2 * count)]

    def step(x: Tensor) -> list[Tensor]:
        inner = [(w @ x).relu() for w in weights[:count]]
        outer = [w @ y for w, y in zip(weights[count:], inner, strict=True)]
        Tensor.realize(*outer)
        return outer

    jitted = TinyJit(step)
    for number in range(4):
        x = tensor(number, (size,))
        for found, w, v in zip(jitted(x), weights, weights[count:], strict=False):
            expected = v.numpy() @ np.maximum(w.numpy() @ x.numpy(), 0)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-3)
    assert len(jitted.jit_cache) == 2 * count
    assert jitted.captured is not None and jitted.captured.launch_count == 2
