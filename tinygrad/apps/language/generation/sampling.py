"""Sampling: logits to the next token.

Input: the logits of one position. Output: a token with its log-probability. Invariants: equal seeds
and logits give equal tokens, and temperature 0 gives the token of the largest logit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tinygrad.apps.language.generation.grammar import Constraint

MAX_LOGIT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters.

    `temperature` divides the logits; 0 is greedy. `top_k` keeps the k most likely tokens (0: all),
    `top_p` the smallest set of likeliest tokens with this total probability, `min_p` the tokens
    with at least this fraction of the largest probability, all after the temperature.
    `repetition_penalty` above 1 makes tokens of the sequence less likely (arXiv:1909.05858).
    `presence_penalty` is subtracted from the logits of tokens that were generated,
    `frequency_penalty` once for each time. `logit_bias` has pairs of a token and the number that is
    added to its logit. `seed` makes sampling reproducible. `logprobs` is the number of likeliest
    tokens to return with their log-probabilities. Raises ValueError for values out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    logprobs: int = 0

    def __post_init__(self) -> None:
        limits = {
            "temperature": (self.temperature >= 0, "0 or more"),
            "top_k": (self.top_k >= 0, "0 (no limit) or more"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "min_p": (0 <= self.min_p <= 1, "between 0 and 1"),
            "repetition_penalty": (self.repetition_penalty > 0, "above 0"),
            "logprobs": (self.logprobs >= 0, "0 or more"),
        }
        for name, (is_valid, wanted) in limits.items():
            if not is_valid:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {wanted}")


class Logits(Protocol):
    """The logits (vocab,) of one position: a `Tensor`, or what another process computed."""

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of them."""


@dataclass(frozen=True)
class Generated:
    """A token, its log-probability, and the likeliest tokens with theirs if requested.

    Log-probabilities are those of the model, before temperature and truncation. That of the first
    token of a text is NaN.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]] | None = None


class Sampler:
    """Samples one token a call with the given parameters, among those that `constraint` allows.

    >>> from tinygrad.apps.language.generation.sampling import Sampler, Sampling
    >>> from tinygrad import Tensor
    >>> Sampler(Sampling(logprobs=2))(Tensor([0.0, 2.0, 1.0]), []).token
    1
    """

    def __init__(self, sampling: Sampling, constraint: Constraint | None = None) -> None:
        self.sampling, self.constraint = sampling, constraint
        self.random = np.random.default_rng(sampling.seed)

    def __call__(
        self,
        logits: Logits,
        tokens: Sequence[int],
        prompt_length: int = 0,
        barred: Collection[int] = (),
    ) -> Generated:
        """Sample a token from logits (vocab,); `tokens` is the sequence so far, prompt first.

        It is none of the `barred` ones, unless the constraint allows only these.
        """
        sampling = self.sampling
        values = logits.numpy().astype(np.float64)
        logprobs = _log_softmax(values)
        if sampling.repetition_penalty != 1 and len(tokens):
            values = _penalize(values, tokens, sampling.repetition_penalty)
        if sampling.presence_penalty or sampling.frequency_penalty:
            values = _subtract_penalties(values, tokens[prompt_length:], sampling)
        if sampling.logit_bias:
            chosen, biases = zip(*sampling.logit_bias)
            values = values.copy()
            values[list(chosen)] += biases
        if self.constraint is not None or barred:
            values = np.where(self._allowed(len(values), barred), values, -np.inf)
        token = int(values.argmax()) if sampling.temperature == 0 else self._sample(values)
        if self.constraint is not None:
            self.constraint.advance(token)
        return self._generated(token, logprobs)

    def _allowed(self, count: int, barred: Collection[int]) -> Any:
        """The mask of the tokens that may be sampled, bool (count,)."""
        allowed = self.constraint.allowed() if self.constraint else np.ones(count, bool)
        kept = allowed.copy()
        kept[list(barred)] = False
        return kept if kept.any() else allowed

    def score(self, logits: Logits, token: int) -> Generated:
        """A given token, with its log-probability by logits (vocab,)."""
        return self._generated(token, _log_softmax(logits.numpy().astype(np.float64)))

    def _generated(self, token: int, logprobs: Any) -> Generated:
        top = None
        if self.sampling.logprobs:
            best = np.argsort(-logprobs, kind="stable")[: self.sampling.logprobs]
            top = [(int(i), float(logprobs[i])) for i in best]
        return Generated(token, float(logprobs[token]), top)

    @property
    def is_complete(self) -> bool:
        """Whether the constraint allows no further token."""
        return self.constraint is not None and self.constraint.is_complete

    def _sample(self, values: Any) -> int:
        sampling = self.sampling
        chosen = _likeliest(values, sampling.top_k)
        # differences to the largest: a tiny temperature makes them infinite, which is greedy
        with np.errstate(over="ignore"):
            scaled = (values[chosen] - values.max()) / sampling.temperature
        probabilities = np.exp(_log_softmax(scaled))
        # all tokens below the first limit have less than 1 - top_p together; sorting few is faster
        limit = max((1 - sampling.top_p) / len(chosen), sampling.min_p * probabilities.max())
        kept = np.flatnonzero(probabilities >= limit)
        kept = kept[np.argsort(-probabilities[kept], kind="stable")]
        share = probabilities[kept]
        before = np.cumsum(share) - share
        # the likeliest token is always kept
        share[1:] *= before[1:] < sampling.top_p
        return int(chosen[kept[self.random.choice(len(kept), p=share / share.sum())]])


def _log_softmax(values: Any) -> Any:
    shifted = values - values.max()
    return shifted - np.log(np.exp(shifted).sum())


def _penalize(values: Any, tokens: Sequence[int], penalty: float) -> Any:
    seen = np.unique(np.asarray(tokens))
    values = values.copy()
    with np.errstate(over="ignore"):
        penalized = np.where(values[seen] > 0, values[seen] / penalty, values[seen] * penalty)
    # a tiny penalty leaves tokens comparable
    values[seen] = np.minimum(penalized, MAX_LOGIT)
    return values


def _subtract_penalties(values: Any, generated: Sequence[int], sampling: Sampling) -> Any:
    seen, counts = np.unique(np.asarray(generated, np.int64), return_counts=True)
    values = values.copy()
    values[seen] -= sampling.presence_penalty + sampling.frequency_penalty * counts
    return values


def _likeliest(values: Any, count: int) -> Any:
    """The tokens of the `count` largest values, or all (0)."""
    if 0 < count < len(values):
        return np.argpartition(-values, count - 1)[:count]
    return np.arange(len(values))
