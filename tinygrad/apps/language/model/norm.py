"""RMS norm (arXiv:1910.07467), also of padded vectors."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class Norm:
    """Divides the last axis by its root mean square, and multiplies by a weight.

    The mean is over `count` elements; those past them are zeros, added as padding for a layout.

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
