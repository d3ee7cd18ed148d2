"""Symbolic ranges of an axis, checked with the values of their Variables.

Input: a range whose start, end or axis depends on Variables. Output: nothing, or IndexError with
the values. Invariant: a range that some values put outside of its axis is checked with the bound
values, and in a captured function again with those of each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad.errors import ArgumentIndexError
from tinygrad.execution.capture import capturing
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import format_shape
from tinygrad.uop.ops import UOp, sint, sym_infer


@dataclass(frozen=True)
class SymbolicRange:
    """Elements `start` to `end` of axis `axis` of `shape`, by Variables that are not bound."""

    start: sint
    end: sint
    axis: int
    shape: tuple[sint, ...]

    def check(self, values: Mapping[str, int]) -> None:
        """Raises IndexError if the range is not within the axis for these values of Variables."""
        parts = (self.start, self.end, self.shape[self.axis])
        start, end, size = (sym_infer(x, dict(values)) for x in parts)
        if 0 <= start <= end <= size:
            return
        names = dict.fromkeys(v.expr for x in parts if isinstance(x, UOp) for v in x.variables())
        given = ", ".join(f"{name} = {values[name]}" for name in names)
        raise ArgumentIndexError(
            f"elements {start} to {end} are out of range for axis {self.axis} of size {size}: the "
            f"index is {format_shape((self.start, self.end))} with {given}; the shape is "
            f"{format_shape(self.shape)}"
        )


def check_range(start: sint, end: sint, axis: int, shape: tuple[sint, ...]) -> None:
    """Raises IndexError if `start` to `end` is not within the axis for the bound values, or for no
    value at all. A Variable without a value is not checked further.
    """
    size = shape[axis]
    known = [_truth(0 <= start), _truth(start <= end), _truth(end <= size)]
    if all(known):
        return
    values: dict[str, int] = {}
    plain = [_unbound(x, values) for x in (start, end, *shape)]
    found = SymbolicRange(plain[0], plain[1], axis, tuple(plain[2:]))
    if all(v.expr in values for x in plain if isinstance(x, UOp) for v in x.variables()):
        found.check(values)
        for capture in capturing()[-1:]:
            capture.ranges[found] = values
    elif False in known:
        raise ArgumentIndexError(
            f"elements {format_shape((start, end))} are out of range for axis {axis} of shape "
            f"{format_shape(shape)}"
        )


def _truth(condition: Any) -> bool | None:
    """Whether a symbolic condition holds for all values of its Variables; None if for some."""
    if isinstance(condition, bool):
        return condition
    simple = condition.simplify()
    return bool(simple.vmin) if simple.vmin == simple.vmax else None


def _unbound(x: sint, values: dict[str, int]) -> sint:
    """`x` with its bound Variables unbound; their values are added to `values`."""
    if not isinstance(x, UOp):
        return x
    bound = [node for node in x.toposort() if node.op is Ops.BIND]
    values |= {node.expr: node.val for node in bound}
    return x.substitute({node: node.src[0] for node in bound})
