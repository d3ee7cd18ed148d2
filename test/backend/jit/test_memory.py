"""Pruning, intermediates, pickles and copies of captured functions."""

from __future__ import annotations

import copy
import pickle
from unittest.mock import Mock, call

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, numbers
from test.devices import only_one_process
from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, nn
from tinygrad.jit import JitError

LOOKS_AT_DEVICE = only_one_process(
    "looks at kernels and memory, which the process of the device has"
)


@LOOKS_AT_DEVICE
def test_pruning_runs_what_depends_on_no_argument_once() -> None:
    w, count = numbers(1, 2), numbers(0)

    def scaled(x: Tensor) -> Tensor:
        count.assign(count + 1)
        prepared = (w * 2).softmax().contiguous()
        return (x * prepared).contiguous().softmax() + count + Tensor.rand(2) * 0

    plain, step = TinyJit(scaled), TinyJit(scaled, prune=True, optimize=True)
    for i in range(CALLS):
        count.assign(numbers(i)).realize()
        expected = plain(numbers(i, 1)).numpy()
        count.assign(numbers(i)).realize()
        np.testing.assert_allclose(step(numbers(i, 1)).numpy(), expected, rtol=1e-6)
    assert len(step.jit_cache) < len(plain.jit_cache)


@LOOKS_AT_DEVICE
@pytest.mark.parametrize("prune", [False, True])
def test_intermediates_are_allocated_again_after_they_were_freed(prune: bool) -> None:
    w = numbers(1, 2)
    step = TinyJit(lambda x: ((x + w.sum()).contiguous().sum() * x).contiguous(), prune=prune)
    for i in range(CALLS):
        assert step(numbers(i, 1)).tolist() == [(i + 7) * i, i + 7]
        if step.captured is not None:
            before = GlobalCounters.mem_used
            step.captured.free_intermediates()
            assert GlobalCounters.mem_used < before


@LOOKS_AT_DEVICE
def test_another_capture_takes_the_memory_of_the_one_before() -> None:
    w = Tensor.ones(64, 64).contiguous().requires_grad_()
    calls = Mock()

    @TinyJit
    def step(x: Tensor, scale: int) -> Tensor:
        calls()
        w.grad = None
        (x @ w * scale).tanh().matmul(w).square().sum().backward()
        return (x.sum() * scale).realize()

    x, peaks = Tensor.ones(512, 64).contiguous().realize(), []
    for scale in (1, 1, 1, 2, 2, 3):
        GlobalCounters.reset()
        assert step(x, scale).item() == 512 * 64 * scale
        peaks.append(GlobalCounters.mem_peak)
        # gradients that the captures before left in their memory are not copied
        assert GlobalCounters.moved_out == 0
    assert calls.call_count == 4
    # the result and the gradient of the capture before
    assert max(peaks) - peaks[1] <= w.nbytes() + 64


def test_constants_that_a_function_writes_are_in_memory_when_it_is_captured() -> None:
    state = {"count": Tensor(0), "view": Tensor.zeros(4)}
    hidden, calls = Tensor.ones(2), Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        calls()
        state["count"] += 1
        state["view"][1:3] += 1
        hidden.assign(hidden * 2)
        return (x + 1).realize()

    for i in range(1, CALLS + 1):
        assert step(numbers(i)).item() == i + 1
        assert (state["count"].item(), hidden.tolist()) == (i, [2.0**i] * 2)
        assert state["view"].tolist() == [0, i, i, 0]
    assert calls.call_count == 2


@pytest.mark.parametrize("is_read", [False, True])
def test_a_norm_without_an_optimizer_of_its_count_is_captured_once(is_read: bool) -> None:
    norm, calls = nn.BatchNorm(2), Mock()

    @TinyJit
    @Tensor.train()
    def step(x: Tensor) -> Tensor:
        calls()
        return norm(x).realize()

    for i in range(CALLS):
        step(numbers(1, 2, 3, 4 + i).reshape(2, 2))
        if is_read:
            assert norm.num_batches_tracked.item() == i + 1
    assert norm.num_batches_tracked.item() == CALLS
    assert calls.call_count == 2


def test_a_pickle_replays_with_weights_and_state_of_its_own() -> None:
    w, total, size = numbers(2, 3, 4), numbers(0), Variable("size", 1, 3)
    runs = Mock()

    def add(x: Tensor, scale: int) -> tuple[Tensor, Tensor]:
        runs(scale)
        total.assign(total + x.sum() * scale)
        return x * 2, (w * scale).contiguous().sum() + total

    step = TinyJit(add)
    for i in range(3):
        step(w[: size.bind(i + 1)], 2)
    loaded = pickle.loads(pickle.dumps(step))
    assert runs.call_args_list == [call(2), call(2)]
    for i in (2, 1):
        expected = [x.tolist() for x in step(w[: size.bind(i)], 2)]
        assert [x.tolist() for x in loaded(w[: size.bind(i)], 2)] == expected
    assert runs.call_args_list == [call(2), call(2)]
    with pytest.raises(JitError, match="without its function"):
        loaded(w[: size.bind(1)], 3)


def test_a_deep_copy_captures_its_own_tensors() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = numbers(2)
            self.step = TinyJit(self.forward)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.w

    model = Model()
    for _ in range(3):
        model.step(numbers(1))
    other = copy.deepcopy(model)
    other.w.assign(numbers(5)).realize()
    for _ in range(3):
        assert (model.step(numbers(1)).item(), other.step(numbers(1)).item()) == (2, 5)
