"""Pruning, intermediates, pickles and copies of captured functions."""

from __future__ import annotations

import copy
import pickle
from unittest.mock import Mock, call

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, numbers
from test.devices import only_one_process
from tinygrad import GlobalCounters, Tensor, TinyJit, Variable
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
