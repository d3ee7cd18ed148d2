"""The roles of the axes of scores: batch axes (0), and the axes of either operand (1 and 2).

Input: a product of the per-device graph, and nodes computed from it. Output: a role for each axis
of these nodes. Axes of both operands have role 0. Axes of one operand only have role 1 or 2; the
first such axis has role 1.

Example: `q @ k.T` of shape (batch, heads, rows, keys, 1), with the reduced axis last, has the roles
(0, 0, 1, 2, 0). A reshape to (batch * heads, rows, keys) has (0, 1, 2); one that merges rows and
keys has none.
"""

from __future__ import annotations

from typing import TypeAlias

from tinygrad.schedule.grouping.values import below_casts
from tinygrad.sharding import max_shape
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import same_size

KEEPS_ORDER = frozenset({Ops.RESHAPE, Ops.PERMUTE})
"""Movement that neither repeats nor drops elements."""

Roles: TypeAlias = tuple[int, ...]
"""For each axis 0 if both operands have it, else 1 or 2."""


def factors(reduce: UOp) -> tuple[UOp, UOp] | None:
    """The broadcast operands of a sum of products, or None."""
    if reduce.op is not Ops.REDUCE_AXIS or reduce.arg.op is not Ops.ADD:
        return None
    product = below_casts(reduce.src[0])
    if product.op is not Ops.MUL:
        return None
    pair = tuple(below_casts(x) for x in product.src)
    return (pair[0], pair[1]) if all(map(broadcast_axes, pair)) else None


def broadcast_axes(node: UOp) -> tuple[int, ...]:
    """The axes along which an EXPAND repeats elements."""
    if node.op is not Ops.EXPAND:
        return ()
    shapes = enumerate(zip(node.src[0].shape, node.shape, strict=True))
    return tuple(i for i, (old, new) in shapes if not same_size(old, new))


def roles_of_product(reduce: UOp) -> Roles | None:
    """The roles of the axes of a product; None if one operand alone is broadcast."""
    pair = factors(reduce)
    if pair is None:
        return None
    first, second = map(broadcast_axes, pair)
    found = [1 if i in first else 2 if i in second else 0 for i in range(reduce.ndim)]
    if not set(first).isdisjoint(second) or not {1, 2} <= set(found):
        return None
    one = next(x for x in found if x)
    return tuple(0 if not x else 1 if x == one else 2 for x in found)


def moved(roles: Roles | None, source: UOp, node: UOp) -> Roles | None:
    """The roles of the axes of `node`, computed from `source`; None if axes of two roles merge."""
    if roles is None:
        return None
    if node.op is Ops.PERMUTE:
        return tuple(roles[i] for i in node.arg)
    if node.op is Ops.EXPAND:
        return roles
    if node.op is Ops.RESHAPE:
        return _reshaped(roles, source, node)
    assert node.op in GroupOp.Elementwise, f"{node.op.name} does not keep elements"
    return roles if node.shape == source.shape else None


def _reshaped(roles: Roles, source: UOp, node: UOp) -> Roles | None:
    """The roles after a RESHAPE: axes are matched by the sizes of everything before them."""
    pairs = zip(max_shape(source.shape), roles, strict=True)
    old = [(d, r) for d, r in pairs if d != 1]
    found: list[int] = []
    done = total = 1
    position = 0
    for size in max_shape(node.shape):
        if size == 1:
            found.append(0)
            continue
        merged: set[int] = set()
        total *= size
        # an axis takes the roles of the old ones that it is made of, or is a part of
        while done < total and position < len(old):
            merged.add(old[position][1])
            done *= old[position][0]
            position += 1
        if not merged and position:
            merged.add(old[position - 1][1])
        if len(merged) != 1 or (done != total and done % total):
            return None
        found.append(merged.pop())
    return tuple(found) if done == total else None
