"""Reverse-mode gradients of eager arrays.

Input: nodes, each with its value and the vector-Jacobian products of its parents. Output: the
adjoints of all nodes below one. Invariant: a node never changes; a write gives its tensor another
node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Product: TypeAlias = Callable[[Array], Array]

# values are multiples of 1 / GRAIN up to LARGEST, so that float32 holds products of two of them
GRAIN = 16
LARGEST = 4096


class Inexact(Exception):
    """A value that another order of operations could round differently."""


def check_exact(value: Array) -> None:
    """Raises Inexact unless float32 holds sums and products of such values exactly."""
    wide = value.astype(np.float64)
    if not (np.abs(wide) <= LARGEST).all() or (wide * GRAIN % 1).any():
        raise Inexact(f"{value} is too large or too fine")


@dataclass(frozen=True, eq=False)
class Node:
    """A value, and how gradients flow from it to its parents."""

    value: Array
    parents: tuple[tuple[Node, Product], ...] = ()

    @property
    def has_history(self) -> bool:
        """Whether gradients flow from it to a leaf."""
        return bool(self.parents)


def adjoints(root: Node, seed: Array) -> dict[Node, Array]:
    """The gradient of the sum of `root * seed` by each node that it depends on."""
    found = {root: seed}
    for node in reversed(list(_in_order(root))):
        for parent, product in node.parents:
            share = product(found[node])
            check_exact(share)
            found[parent] = found[parent] + share if parent in found else share
            check_exact(found[parent])
    return found


def _in_order(root: Node) -> Iterator[Node]:
    """All nodes below `root`, parents first."""
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((parent, False) for parent, _ in node.parents)
