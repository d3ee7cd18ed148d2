"""Checks of the numbers and integers that users pass as arguments.

Input: any Python value. Output: an int, a float or a symbolic size; numpy's numbers become
Python's. Invariant: anything else is a TypeError that names the operation and the argument.
"""

from __future__ import annotations

import operator
from typing import Any

from tinygrad.dtype import ConstType
from tinygrad.uop.ops import UOp, sint


def is_integer(x: object) -> bool:
    """Whether `x` is an integer of Python or numpy, or a symbolic size."""
    if isinstance(x, (int, UOp)):
        return True
    try:
        # an array of several elements has __index__, which raises
        operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def plain_number(x: Any) -> Any:
    """A number of numpy, or an array of it without axes, as Python's; anything else unchanged."""
    is_numpy = type(x).__module__ == "numpy" and getattr(x, "shape", None) == ()
    return x.item() if is_numpy and x.dtype.kind in "biuf" else x


def number_argument(op: str, name: str, x: Any) -> ConstType:
    """`x` as a Python number. Raises TypeError for anything else."""
    plain = plain_number(x)
    if not isinstance(plain, (int, float)):
        raise TypeError(f"{op}: {name}={x!r} of type {type(x).__name__} is not a number")
    return plain


def integer_argument(op: str, name: str, x: Any) -> int:
    """`x` as an int. Raises TypeError for anything else."""
    if not is_integer(x):
        raise TypeError(f"{op}: {name}={x!r} of type {type(x).__name__} is not an integer")
    return operator.index(x)


def size_argument(op: str, name: str, x: Any) -> sint:
    """`x` as an int or a symbolic size. Raises TypeError for anything else."""
    return x if isinstance(x, UOp) else integer_argument(op, name, x)
