"""The keys that a mask leaves to a block of rows, so that blocks of keys that it excludes are
skipped.

Input: the scores of a chain, or its weights if it has no softmax, and the value of an excluded
element: -inf for scores, the identity of the reduction for weights. Output: the first block of keys
that any row of the block needs, and the number of blocks.

Only masks that are affine inequalities of row and key give a bound. One that is loaded from memory
gives none, and all keys are computed.

Example: `where(key > row, -inf, score)` for rows 128 to 191 excludes `key - row > 0` in all rows
from key 192 on. So the upper bound is 192, and blocks of 64 keys are 0, 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from tinygrad.codegen.analysis.affine_index import Affine, affine
from tinygrad.codegen.analysis.identity import identity_element
from tinygrad.codegen.analysis.ranges import extent, is_static
from tinygrad.codegen.optimize.chain.match import Chain
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


@dataclass
class KeyBounds:
    """Lower bounds of the keys that a block of rows needs, and exclusive upper bounds. A key must
    satisfy all of them.
    """

    lower: list[UOp] = field(default_factory=list)
    upper: list[UOp] = field(default_factory=list)


def blocks_of(axis: UOp, step: int) -> UOp | int:
    """The number of blocks of `step` that cover a loop."""
    if is_static(axis):
        return ceildiv(extent(axis), step)
    return (axis.src[0] + (step - 1)).alu(Ops.IDIV, UOp.const(dtypes.index, step)).simplify()


def needed_blocks(chain: Chain, rows: tuple[UOp, UOp], size: int) -> tuple[UOp | None, UOp | int]:
    """The range of blocks of `size` keys that a block of rows needs, `rows` being the first and the
    last one: the first block, None for block 0, and the number of blocks, at least 1.
    """
    blocks = blocks_of(chain.key, size)
    if chain.softmax is not None:
        expression, excluded = chain.softmax.scores, -math.inf
    else:
        expression = chain.weight
        excluded = identity_element(chain.reduce.arg, expression.dtype).arg
    bounds = key_bounds(expression, excluded, chain.key, chain.row, rows)
    first: UOp | None = None
    for lower in bounds.lower:
        block = lower.alu(Ops.IDIV, _number(size)).minimum(blocks - 1)
        first = block if first is None else first.maximum(block)
    end: UOp | int = blocks
    for upper in bounds.upper:
        end = (upper + (size - 1)).alu(Ops.IDIV, _number(size)).minimum(end)
    if first is not None:
        end = end - first
    return first, end.maximum(1).simplify() if isinstance(end, UOp) else end


def key_bounds(
    expression: UOp, excluded: float, key: UOp, row: UOp, rows: tuple[UOp, UOp]
) -> KeyBounds:
    """Bounds of the keys that a block of rows needs. Outside of them, `expression` is `excluded`
    for every row from `rows[0]` to `rows[1]`.
    """
    bounds = KeyBounds()
    for condition, holds in excluding(expression, excluded):
        for small, large in inequalities(condition, holds):
            form = difference(large, small)
            if form is not None:
                _add_bound(bounds, form, key, row, rows)
    return bounds


def _add_bound(bounds: KeyBounds, form: Affine, key: UOp, row: UOp, rows: tuple[UOp, UOp]) -> None:
    """Add the bound that follows from a mask that excludes a key where `form > 0`. The key is
    needed if `form <= 0` for some row of the block.
    """
    terms = dict(form.terms)
    step, slope = terms.pop(key, 0), terms.pop(row, 0)
    if not step:
        return
    rest = _number(form.constant)
    for node, factor in terms.items():
        if any(u.op in {Ops.LOAD, Ops.RANGE} for u in node.toposort()):
            return
        rest = rest + node.cast(dtypes.index) * factor
    # a key is needed if `step * key + lowest <= 0`, where `lowest` is the minimum over the rows
    lowest = rest + rows[0 if slope > 0 else 1] * slope
    if step > 0:
        bounds.upper.append((lowest * -1).maximum(-step).alu(Ops.IDIV, _number(step)) + 1)
    else:
        bounds.lower.append((lowest + (-step - 1)).maximum(0).alu(Ops.IDIV, _number(-step)))


def _number(value: int) -> UOp:
    return UOp.const(dtypes.index, value)


def excluding(node: UOp, excluded: float) -> Iterator[tuple[UOp, bool]]:
    """Pairs `(condition, value)`: where the condition has that value, `node` is `excluded`.

    `exp(where(c, -inf, x)) * y` is 0 where c is True: yields `(c, True)` for `excluded` 0.
    """
    if node.op is Ops.WHERE:
        condition, yes, no = node.src
        if _is_constant(yes, excluded):
            yield condition, True
            yield from excluding(no, excluded)
        elif _is_constant(no, excluded):
            yield condition, False
            yield from excluding(yes, excluded)
    elif node.op is Ops.CAST:
        yield from excluding(node.src[0], excluded)
    elif node.op in GroupOp.Exponential and excluded == 0:
        yield from excluding(node.src[0], -math.inf)
    elif node.op is Ops.MUL and excluded == 0:
        for x in node.src:
            yield from excluding(x, 0)
    elif node.op is Ops.MUL and node.src[1].op is Ops.CONST and node.src[1].arg > 0:
        yield from excluding(node.src[0], excluded)
    elif node.op is Ops.ADD and math.isinf(excluded):
        for x in node.src:
            yield from excluding(x, excluded)


def _is_constant(node: UOp, value: float) -> bool:
    return node.op is Ops.CONST and node.arg == value


def inequalities(condition: UOp, holds: bool) -> Iterator[tuple[UOp, UOp]]:
    """Pairs `(a, b)` of integers such that each `a < b` alone makes `condition` have the value
    `holds`.
    """
    if condition.op is Ops.CMPNE and _is_constant(condition.src[1], True):
        if dtypes.is_bool(condition.src[0].dtype):
            yield from inequalities(condition.src[0], not holds)
    elif condition.op is (Ops.OR if holds else Ops.AND):
        for x in condition.src:
            yield from inequalities(x, holds)
    elif condition.op is Ops.CMPLT:
        a, b = condition.src
        if holds:
            yield a, b
        else:
            # not a < b is b < a + 1
            yield b, a.alu(Ops.ADD, UOp.const(a.dtype, 1))


def difference(a: UOp, b: UOp) -> Affine | None:
    """`a - b` in affine form; None if either is no integer, or may wrap around."""
    result = Affine()
    for x, sign in ((a, 1), (b, -1)):
        if not dtypes.is_int(x.dtype):
            return None
        form = affine(x, through_casts=True)
        if not form.fits(x.dtype):
            return None
        result.add_scaled(form, sign)
    return result
