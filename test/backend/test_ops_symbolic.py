"""Operations on sizes and positions that are bound when they run: one kernel for all values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, UOp, Variable
from tinygrad.engine.realize import compiled_kernels

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
def test_function_of_a_part_whose_length_is_bound(name: str) -> None:
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


def test_attention_to_a_part_of_a_cache() -> None:
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
    assert (Tensor([1.0, 2.0]) * n).tolist() == [5, 10]
    assert Tensor.ones(n, 2).sum().item() == 10
    assert Tensor.arange(n).tolist() == [0, 1, 2, 3, 4]
    assert Tensor.full((2,), n).tolist() == [5, 5]
