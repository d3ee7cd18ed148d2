"""Rearrangement of named axes, in the notation of einops.

Input: a tensor and a formula like `"b (h d) w -> b h (w d)"`. Output: the tensor with its axes
permuted, split and merged.
"""

from __future__ import annotations

import re
from typing import Self

from tinygrad.errors import ArgumentError
from tinygrad.helpers import prod
from tinygrad.mixin.movement.reshape import MovementMixin
from tinygrad.uop.broadcast import SymbolicShape
from tinygrad.uop.ops import sint
from tinygrad.uop.sint import same_size

ELLIPSIS = "…"
"""The remaining axes of a formula; `...` is the same."""


class RearrangeMixin(MovementMixin):
    """`rearrange`."""

    __slots__ = ()

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Permute, split and merge axes by name, as `einops.rearrange`. `...` is the other axes;
        `(...)` on the right merges them.

        >>> Tensor.empty(2, 6, 3).rearrange("b (h d) w -> b h (w d)", h=2).shape
        (2, 2, 9)
        """
        left, right = _parse_rearrange(formula, self.ndim)
        names = [name for group in left for name in group]
        apart = _rearrange_sizes(formula, left, self.shape, sizes)
        target = [name for group in right for name in group]
        unused = [name for name in sizes if name not in names]
        if unused:
            raise ArgumentError(f"rearrange {formula!r}: there is no axis {unused[0]}")
        if sorted(names) != sorted(target):
            raise ArgumentError(f"rearrange {formula!r}: both sides must have the same axis names")
        moved = self.reshape(tuple(apart[name] for name in names))
        moved = moved.permute(tuple(names.index(name) for name in target))
        return moved.reshape(tuple(prod([apart[name] for name in group]) for group in right))


def _parse_rearrange(formula: str, count: int) -> tuple[list[list[str]], list[list[str]]]:
    """Both sides of a formula as groups of axis names; `...` stands for the remaining axes."""
    if not isinstance(formula, str):
        raise TypeError(f"rearrange takes a formula such as 'a b -> b a', not {formula!r}")
    sides = formula.replace("...", ELLIPSIS).replace(ELLIPSIS, f" {ELLIPSIS} ").split("->")
    if len(sides) != 2:
        raise ArgumentError(f"rearrange {formula!r}: write one ->, as in 'a b -> b a'")
    if [side.count(ELLIPSIS) for side in sides] not in ([0, 0], [1, 1]):
        raise ArgumentError(f"rearrange {formula!r}: write ... once on each side, or on neither")
    if ELLIPSIS in sides[0]:
        if re.search(rf"\([^)]*{ELLIPSIS}", sides[0]):
            raise ArgumentError(f"rearrange {formula!r}: only on the right, ... can be in ()")
        named = len(_parse_groups(formula, sides[0])) - 1
        spare = " ".join(f"{ELLIPSIS}{i}" for i in range(count - named))
        sides = [side.replace(ELLIPSIS, spare) for side in sides]
    left, right = (_parse_groups(formula, side) for side in sides)
    names = [name for group in left for name in group]
    if len(set(names)) != len(names):
        raise ArgumentError(f"rearrange {formula!r}: an axis name occurs twice on the left")
    if len(left) != count:
        raise ArgumentError(f"rearrange {formula!r}: {len(left)} axes on the left, not {count}")
    return left, right


def _parse_groups(formula: str, side: str) -> list[list[str]]:
    groups: list[list[str]] = []
    inside = False
    for token in side.replace("(", " ( ").replace(")", " ) ").split():
        if token in ("(", ")"):
            if inside == (token == "("):
                raise ArgumentError(f"rearrange {formula!r}: the parentheses do not match")
            inside = token == "("
            if inside:
                groups.append([])
        elif token == "1" and not inside:
            groups.append([])
        elif token != "1":
            if inside:
                groups[-1].append(token)
            else:
                groups.append([token])
    if inside:
        raise ArgumentError(f"rearrange {formula!r}: the parentheses do not match")
    return groups


def _rearrange_sizes(
    formula: str, groups: list[list[str]], shape: SymbolicShape, sizes: dict[str, int]
) -> dict[str, sint]:
    """The size of every axis name; one per group may be inferred."""
    found: dict[str, sint] = dict(sizes)
    for group, size in zip(groups, shape):
        unknown = [name for name in group if name not in found]
        if len(unknown) > 1:
            raise ArgumentError(f"rearrange {formula!r}: give the size of {unknown[0]}")
        known = prod([found[name] for name in group if name in found])
        if unknown and not known:
            raise ArgumentError(f"rearrange {formula!r}: give the size of {unknown[0]} beside a 0")
        if unknown:
            found[unknown[0]] = size // known
        if not same_size(prod([found[name] for name in group]), size):
            raise ArgumentError(
                f"rearrange {formula!r}: ({' '.join(group)}) does not have size {size}"
            )
    return found
