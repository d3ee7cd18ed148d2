"""Equality of expressions up to the names of their ranges."""

from __future__ import annotations

from collections.abc import Collection

from tinygrad.codegen.analysis.ranges import loops_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def is_alpha_equivalent(
    a: UOp, b: UOp, renamed: dict[UOp, UOp], loops: Collection[UOp] = ()
) -> bool:
    """Whether two expressions are equal after ranges of `a` are `renamed`. A range in `loops` takes
    the name that makes them equal, if one does.
    """
    seen: set[tuple[UOp, UOp]] = set()
    stack = [(a, b)]
    while stack:
        pair = stack.pop()
        x, y = pair
        if pair in seen:
            continue
        seen.add(pair)
        if x.op is not y.op or x.dtype is not y.dtype or len(x.src) != len(y.src):
            return False
        if x.op is Ops.RANGE:
            if x in loops and x not in renamed and x.src == y.src and y not in renamed.values():
                renamed[x] = y
            if renamed.get(x, x) is not y:
                return False
            continue
        if x.arg != y.arg:
            return False
        if x.op is Ops.REDUCE:
            pairs = list(zip(loops_of(x), loops_of(y), strict=True))
            if any(r.src[0] is not s.src[0] for r, s in pairs):
                return False
            renamed.update(pairs)
        stack += zip(x.src, y.src, strict=True)
    return True
