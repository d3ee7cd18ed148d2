"""From the logits of a token to a token.

In: logits of one position. Out: a token with its log-probability. Always true: the same seed and
the same logits give the same tokens, and temperature 0 gives the token of the largest logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad.apps.language.generation.grammar import Constraint
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Those that fail one of the limits are never drawn.

    `temperature` divides the logits; 0 takes the most likely token. `top_k` keeps the k most likely
    ones (0: all), `top_p` the fewest that have this probability together, `min_p` those with at
    least this share of the largest probability, all after the temperature. `repetition_penalty`
    makes tokens that were there less likely (arXiv:1909.05858). `seed` makes draws repeatable.
    `logprobs` asks for so many tokens with their log-probabilities. Raises ValueError for values
    out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
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


@dataclass(frozen=True)
class Generated:
    """A token, its log-probability, and the most likely tokens with theirs if they were asked for.

    Log-probabilities are those of the model, before temperature and limits.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]] | None = None


class Sampler:
    """Draws tokens as a `Sampling` says, each call the next one, of those `constraint` allows.

    >>> from tinygrad.apps.language.generation.sampling import Sampler, Sampling
    >>> Sampler(Sampling(logprobs=2))(Tensor([0.0, 2.0, 1.0]), []).token
    1
    """

    def __init__(self, sampling: Sampling, constraint: Constraint | None = None) -> None:
        self.sampling, self.constraint = sampling, constraint
        self.random = np.random.default_rng(sampling.seed)

    def __call__(self, logits: Tensor, tokens: Sequence[int]) -> Generated:
        """A token for logits (vocab,), where `tokens` is the sequence so far."""
        sampling = self.sampling
        values = logits.numpy().astype(np.float64)
        logprobs = _log_softmax(values)
        if sampling.repetition_penalty != 1 and len(tokens):
            values = _penalized(values, tokens, sampling.repetition_penalty)
        if self.constraint is not None:
            values = np.where(self.constraint.allowed(), values, -np.inf)
        token = int(values.argmax()) if sampling.temperature == 0 else self._draw(values)
        if self.constraint is not None:
            self.constraint.take(token)
        top = None
        if sampling.logprobs:
            best = np.argsort(-logprobs, kind="stable")[: sampling.logprobs]
            top = [(int(i), float(logprobs[i])) for i in best]
        return Generated(token, float(logprobs[token]), top)

    @property
    def is_complete(self) -> bool:
        """Whether the constraint lets nothing follow."""
        return self.constraint is not None and self.constraint.is_complete

    def _draw(self, values: Any) -> int:
        sampling = self.sampling
        order = _likeliest(values, sampling.top_k)
        probabilities = np.exp(_log_softmax(values[order] / sampling.temperature))
        before = np.cumsum(probabilities) - probabilities
        allowed = before < sampling.top_p
        allowed &= probabilities >= sampling.min_p * probabilities[0]
        # the likeliest token may always be drawn
        allowed[0] = True
        share = probabilities * allowed
        return int(order[self.random.choice(len(order), p=share / share.sum())])


def _log_softmax(values: Any) -> Any:
    shifted = values - values.max()
    return shifted - np.log(np.exp(shifted).sum())


def _penalized(values: Any, tokens: Sequence[int], penalty: float) -> Any:
    seen = np.unique(np.asarray(tokens))
    values = values.copy()
    values[seen] = np.where(values[seen] > 0, values[seen] / penalty, values[seen] * penalty)
    return values


def _likeliest(values: Any, count: int) -> Any:
    """The tokens of the `count` largest values, or all (0), the largest first."""
    chosen = np.arange(len(values))
    if 0 < count < len(values):
        chosen = np.argpartition(-values, count - 1)[:count]
    return chosen[np.argsort(-values[chosen], kind="stable")]
