"""RMS norm (arXiv:1910.07467)."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class Norm:
    """Divides vectors along the last axis by their root mean square, and scales their elements.

    `count` is the number of elements of the mean: those behind are zeros, added for a layout.

    >>> from tinygrad.apps.language.model.norm import Norm
    >>> Norm(Tensor([1.0, 10.0]), 0.0, 2)(Tensor([3.0, 3.0])).tolist()
    [1.0, 10.0]
    """

    weight: Tensor
    epsilon: float
    count: int

    def __call__(self, x: Tensor) -> Tensor:
        mean = x.square().sum(-1, keepdim=True) / self.count
        return x * (mean + self.epsilon).rsqrt() * self.weight
