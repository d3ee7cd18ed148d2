"""Reverse-mode differentiation of the tensor graph.

| file | concept |
|---|---|
| `differentiate` | a rule per op, and the walk from a node to the targets |
| `custom` | rules attached to single nodes |
"""

from tinygrad.gradient.custom import CustomRule, carry_over, with_gradient
from tinygrad.gradient.differentiate import compute_gradient, cosine

__all__ = ["CustomRule", "carry_over", "compute_gradient", "cosine", "with_gradient"]
