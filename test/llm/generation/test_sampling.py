"""Sampling: top-k, top-p and min-p limits, reproducible seeds, and frequencies of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.apps.language.generation.sampling import Sampler, Sampling

PROBABILITIES = np.array([0.05, 0.4, 0.02, 0.3, 0.2, 0.03])
LOGITS = np.log(PROBABILITIES).astype(np.float32) + 3


def drawn(count: int, tokens: tuple[int, ...] = (), **choices: Any) -> Any:
    """The relative frequency of each token in this number of draws."""
    sampler = Sampler(Sampling(seed=0, **choices))
    logits = Tensor(LOGITS).realize()
    found = [sampler(logits, tokens).token for _ in range(count)]
    return np.bincount(found, minlength=len(LOGITS)) / count


def test_temperature_0_is_greedy():
    assert drawn(5)[1] == 1
    generated = Sampler(Sampling())(Tensor(LOGITS), [])
    assert generated.token == 1
    assert generated.logprob == pytest.approx(np.log(0.4), abs=1e-6)
    assert generated.top is None


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-40])
def test_a_tiny_temperature_is_greedy(temperature: float):
    assert drawn(5, temperature=temperature)[1] == 1
    biased = drawn(5, temperature=temperature, logit_bias=((1, -100.0),))
    assert biased[3] == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_barred_token_is_sampled(temperature: float):
    sampler = Sampler(Sampling(seed=0, temperature=temperature))
    found = {sampler(Tensor(LOGITS), [], barred={1, 3}).token for _ in range(50)}
    assert found and found <= {0, 2, 4, 5}
    # one of them is sampled if there are no others
    everything = range(len(LOGITS))
    assert sampler(Tensor(LOGITS), [], barred=everything).token in everything


@pytest.mark.parametrize("penalty", [5e-324, 1e-308, 1e308])
@pytest.mark.parametrize("temperature", [0.0, 1e-308, 1.0])
def test_an_extreme_penalty_draws_the_repeated_token_always_or_never(penalty, temperature):
    share = drawn(5, (3,), temperature=temperature, repetition_penalty=penalty)[3]
    assert share == (penalty < 1)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_are_sampled_by_their_probabilities(temperature: float):
    expected = PROBABILITIES ** (1 / temperature)
    expected /= expected.sum()
    # four standard deviations of a frequency in 2000 draws are below 0.045
    np.testing.assert_allclose(drawn(2000, temperature=temperature), expected, atol=0.045)


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"top_k": 1}, {1}),
        ({"top_k": 3}, {1, 3, 4}),
        ({"top_k": 100}, {0, 1, 2, 3, 4, 5}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.69}, {1, 3}),
        ({"top_p": 0.71}, {1, 3, 4}),
        ({"min_p": 0.6}, {1, 3}),
        ({"min_p": 1.0}, {1}),
        ({"min_p": 0.1}, {0, 1, 3, 4}),
        ({"top_k": 3, "top_p": 0.5}, {1, 3}),
    ],
)
def test_truncation_keeps_the_likeliest_tokens(limits: dict[str, Any], kept: set[int]):
    shares = drawn(400, temperature=1.0, **limits)
    assert set(np.flatnonzero(shares).tolist()) <= kept
    expected = {i for i in kept if PROBABILITIES[i] > 0.04}
    assert set(np.flatnonzero(shares).tolist()) >= expected


def test_truncation_uses_probabilities_at_the_temperature():
    # at 0.5 the two likeliest tokens have 0.85 together, at 1 only 0.7
    assert set(np.flatnonzero(drawn(300, temperature=0.5, top_p=0.8)).tolist()) == {1, 3}
    assert set(np.flatnonzero(drawn(300, temperature=1.0, top_p=0.8)).tolist()) == {1, 3, 4}


def test_equal_seeds_give_equal_samples():
    def draws(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=seed))
        return [sampler(Tensor(LOGITS), []).token for _ in range(30)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def test_a_penalty_makes_repeated_tokens_less_likely():
    # for logits of both signs
    logits = Tensor([2.0, 1.5, -1.0, -1.5])
    sampler = Sampler(Sampling(repetition_penalty=2.0))
    assert sampler(logits, []).token == 0
    assert sampler(logits, [0, 0, 3]).token == 1
    negative = Tensor([-1.0, -1.5])
    assert sampler(negative, [0]).token == 1


def test_log_probabilities_precede_temperature_and_penalty():
    sampler = Sampler(
        Sampling(temperature=3.0, top_k=1, repetition_penalty=1.1, seed=0, logprobs=2)
    )
    found = sampler(Tensor(LOGITS), [1])
    assert found.top is not None
    assert [token for token, _ in found.top] == [1, 3]
    np.testing.assert_allclose([x for _, x in found.top], np.log([0.4, 0.3]), atol=1e-6)
    assert found.logprob == pytest.approx(np.log(PROBABILITIES[found.token]), abs=1e-6)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; it must be 0 or more"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": 2.0}, "min_p is 2.0; it must be between 0 and 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be above 0"),
        ({"logprobs": -2}, "logprobs is -2"),
    ],
)
def test_parameters_out_of_range_are_errors(choice: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Sampling(**choice)
