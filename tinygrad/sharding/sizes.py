"""Sizes, shapes and boxes of arrays; a size may be symbolic.

Input: sizes. Output: their upper bounds. Symbolic sizes are objects of a higher layer, of which
only `vmax` is known here.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Size: TypeAlias = Any
"""The size of one axis: an int, or a symbolic object of a higher layer, which is sharded as its
upper bound `vmax`.
"""
Shape: TypeAlias = tuple[Size, ...]
Region: TypeAlias = tuple[tuple[Size, Size], ...]
"""A box of the global array: one half-open (start, stop) for each tensor axis."""


def is_int(value: object) -> bool:
    """Whether a value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def max_size(size: Size) -> int:
    """The size of an axis; of a symbolic one, its upper bound."""
    return int(size) if is_int(size) else int(size.vmax)


def max_shape(shape: Shape) -> tuple[int, ...]:
    """The upper bound of each size."""
    return tuple(max_size(size) for size in shape)
