"""Types of command line arguments, for argparse.

Input: the text of an argument. Output: a checked value, or an ArgumentTypeError whose message says
what is allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isfinite


def integer_at_least(minimum: int) -> Callable[[str], int]:
    """The argument type of integers from `minimum`."""

    def checked(text: str) -> int:
        value = integer(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is below {minimum}")
        return value

    return checked


def integer(text: str) -> int:
    """The argument type of integers.

    >>> integer("-12")
    -12
    """
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error


def number(text: str) -> float:
    """The argument type of finite numbers.

    >>> number("-0.5")
    -0.5
    """
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def number_from_zero(text: str) -> float:
    """The argument type of finite numbers from 0.

    >>> number_from_zero("0.5")
    0.5
    """
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def port(text: str) -> int:
    """The argument type of ports; 0 is any free one."""
    port = integer(text)
    if not 0 <= port < 1 << 16:
        raise argparse.ArgumentTypeError(f"{port} is not a port; these are 0 to 65535")
    return port


def mesh_sizes(text: str) -> dict[str, int]:
    """The argument type of meshes: sizes by name.

    >>> mesh_sizes("dp=2,tp=4")
    {'dp': 2, 'tp': 4}
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if name not in ("dp", "tp") or name in sizes or not size.isdecimal() or not int(size):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a mesh; give sizes for dp, tp or both, as in dp=2,tp=4"
            )
        sizes[name] = int(size)
    return sizes
