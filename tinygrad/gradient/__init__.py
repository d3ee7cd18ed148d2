"""Reverse-mode differentiation of the tensor graph.

| file | concept |
|---|---|
| `differentiate` | the walk from a node to the targets, and the rules of reductions |
| `elementwise` | the rules of functions of numbers |
| `movement` | the rules of movements, copies and shards |
| `rule` | what rules are made of |
| `custom` | rules attached to single nodes |
"""

from tinygrad.gradient.custom import CustomRule, carry_over, carry_over_to, with_gradient
from tinygrad.gradient.differentiate import (
    Paths,
    compute_gradient,
    find_paths,
    gradient_along,
)

__all__ = [
    "CustomRule",
    "Paths",
    "carry_over",
    "carry_over_to",
    "compute_gradient",
    "find_paths",
    "gradient_along",
    "with_gradient",
]
