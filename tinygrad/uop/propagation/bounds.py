"""Interval arithmetic: the lower and upper bound of the value of a node.

Input: a node. Output: `(low, high)`, Python numbers that every value of the node lies between.
Invariants: an integer that may overflow has the range of its dtype as its bounds, so narrower
bounds prove that nothing wraps; the bounds of a float are finite only if it is finite and not NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinygrad.dtype import DType, dtypes, saturate, truncate
from tinygrad.helpers import cdiv, cmod
from tinygrad.uop import Ops
from tinygrad.uop.node import Node

Bounds = tuple[Any, Any]
_INFINITY = float("inf")


def compute_bounds(node: Node) -> Bounds:
    """The bounds of `node`. The bounds of its sources are computed first, without recursion, and
    cached.
    """
    stack = [node]
    while True:
        top = stack[-1]
        if top.op in _FROM_SOURCES:
            pending = [x for x in top.src if x._bounds.__class__ is not tuple]
            if pending:
                stack.extend(pending)
                continue
        found = _apply_rule(top)
        stack.pop()
        if not stack:
            return found
        top._bounds = found


def _apply_rule(node: Node) -> Bounds:
    rule = _RULES.get(node.op)
    limits = _dtype_range(node.dtype)
    found = None if rule is None else rule(node)
    if found is None:
        return limits
    low, high = limits
    if low == -_INFINITY:
        return found if low < found[0] and found[1] < high else limits
    return found if low <= found[0] and found[1] <= high else limits


@functools.cache
def _dtype_range(dtype: DType) -> Bounds:
    return dtypes.min(dtype), dtypes.max(dtype)


def _const(node: Node) -> Bounds | None:
    if isinstance(node.arg, tuple):
        # a vector with a number for each lane
        return min(node.arg), max(node.arg)
    convert = truncate.get(node.dtype.scalar())
    value = node.arg if convert is None else convert(node.arg)
    return value, value


def _define_var(node: Node) -> Bounds:
    return node.arg[1], node.arg[2]


def _first_source(node: Node) -> Bounds:
    return _source_bounds(node.src[0])


def _counter(node: Node) -> Bounds:
    return 0, max(0, _source_bounds(node.src[0])[1] - 1)


def _arange(node: Node) -> Bounds:
    size = node.arg if isinstance(node.arg, int) else node.arg.vmax
    return 0, max(0, size - 1)


def _special(node: Node) -> Bounds | None:
    """A grid index, whose size is the first source or the last element of the argument."""
    if node.src:
        return _counter(node)
    size = node.arg[-1] if isinstance(node.arg, tuple) else None
    return (0, max(0, size - 1)) if isinstance(size, int) else None


def _source_bounds(node: Node) -> Bounds:
    bounds: Bounds = node._bounds
    return bounds if bounds.__class__ is tuple else node.bounds


def _operand_bounds(node: Node) -> tuple[Any, Any, Any, Any]:
    return (*_source_bounds(node.src[0]), *_source_bounds(node.src[1]))


def _is_exact(node: Node) -> bool:
    """Whether arithmetic on bounds is exact: floats round, and may be NaN."""
    return not dtypes.is_float(node.src[-1].dtype)


def _add(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    return (a + c, b + d) if _is_exact(node) else None


def _sub(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    return (a - d, b - c) if _is_exact(node) else None


def _neg(node: Node) -> Bounds | None:
    a, b = _source_bounds(node.src[0])
    return -b, -a


def _mul(node: Node) -> Bounds | None:
    if not _is_exact(node):
        return None
    a, b, c, d = _operand_bounds(node)
    if a >= 0 and c >= 0:
        return a * c, b * d
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _idiv(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    if c <= 0 <= d:
        return None
    corners = (cdiv(a, c), cdiv(a, d), cdiv(b, c), cdiv(b, d))
    return min(corners), max(corners)


def _mod(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    if c <= 0 <= d or not _is_exact(node):
        return None
    if c == d and cdiv(a, c) == cdiv(b, c):
        return cmod(a, c), cmod(b, c)
    largest = max(abs(c), abs(d)) - 1
    return max(min(a, 0), -largest), min(max(b, 0), largest)


def _max(node: Node) -> Bounds:
    a, b, c, d = _operand_bounds(node)
    if dtypes.is_float(node.dtype) and -_INFINITY in (a, c):
        # one of them may be NaN
        return -_INFINITY, _INFINITY
    return max(a, c), max(b, d)


def _is_comparable(node: Node) -> bool:
    """Whether the bounds hold for every value: a float without finite bounds may be NaN."""
    if not dtypes.is_float(node.src[0].dtype):
        return True
    a, b, c, d = _operand_bounds(node)
    return bool(-_INFINITY < min(a, c) and max(b, d) < _INFINITY)


def _cmplt(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    return (b < c, a < d) if _is_comparable(node) else None


def _cmpne(node: Node) -> Bounds | None:
    if not _is_comparable(node):
        return None
    a, b, c, d = _operand_bounds(node)
    return b < c or d < a, not a == b == c == d


def _cmpeq(node: Node) -> Bounds | None:
    if not _is_comparable(node):
        return None
    a, b, c, d = _operand_bounds(node)
    return a == b == c == d, not (b < c or d < a)


def _and(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    if dtypes.is_bool(node.dtype):
        return a and c, b and d
    # AND only clears bits, so a source that is not negative bounds the result
    highs = [high for low, high in ((a, b), (c, d)) if low >= 0]
    return (0, min(highs)) if highs else None


def _or(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    if dtypes.is_bool(node.dtype):
        return a or c, b or d
    if a < 0 or c < 0:
        return None
    return max(a, c), (1 << max(b, d).bit_length()) - 1


def _xor(node: Node) -> Bounds | None:
    a, b, c, d = _operand_bounds(node)
    if dtypes.is_bool(node.dtype):
        return _cmpne(node)
    if a < 0 or c < 0:
        return None
    return 0, (1 << max(b, d).bit_length()) - 1


def _shift_amount(node: Node) -> tuple[int, int] | None:
    low, high = _source_bounds(node.src[1])
    return (low, high) if 0 <= low and high < node.dtype.scalar().itemsize * 8 else None


def _shl(node: Node) -> Bounds | None:
    amount = _shift_amount(node)
    if amount is None:
        return None
    a, b = _source_bounds(node.src[0])
    return min(a << amount[0], a << amount[1]), max(b << amount[0], b << amount[1])


def _shr(node: Node) -> Bounds | None:
    amount = _shift_amount(node)
    if amount is None:
        return None
    a, b = _source_bounds(node.src[0])
    return min(a >> amount[0], a >> amount[1]), max(b >> amount[0], b >> amount[1])


def _where(node: Node) -> Bounds:
    condition, yes, no = (_source_bounds(x) for x in node.src)
    if condition[0]:
        return yes
    if not condition[1]:
        return no
    return min(yes[0], no[0]), max(yes[1], no[1])


def _cast(node: Node) -> Bounds | None:
    source = node.src[0]
    target = node.dtype.scalar()
    low, high = _source_bounds(source)
    if low.__class__ is float and not (-_INFINITY < low and high < _INFINITY):
        return None
    if target is dtypes.bool:
        return (low > 0 or high < 0), not low == high == 0
    if dtypes.is_float(target):
        return truncate[target](float(low)), truncate[target](float(high))
    if low.__class__ is float:
        return saturate(low, target), saturate(high, target)
    return int(low), int(high)


def _vectorize(node: Node) -> Bounds:
    lows, highs = zip(*(_source_bounds(x) for x in node.src), strict=True)
    return min(lows), max(highs)


_RULES: dict[Ops, Callable[[Node], Bounds | None]] = {
    Ops.CONST: _const,
    Ops.DEFINE_VAR: _define_var,
    Ops.BIND: _first_source,
    Ops.RANGE: _counter,
    Ops.ARANGE: _arange,
    Ops.SPECIAL: _special,
    Ops.ADD: _add,
    Ops.SUB: _sub,
    Ops.NEG: _neg,
    Ops.MUL: _mul,
    Ops.IDIV: _idiv,
    Ops.MOD: _mod,
    Ops.MAX: _max,
    Ops.CMPLT: _cmplt,
    Ops.CMPNE: _cmpne,
    Ops.CMPEQ: _cmpeq,
    Ops.AND: _and,
    Ops.OR: _or,
    Ops.XOR: _xor,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.WHERE: _where,
    Ops.CAST: _cast,
    Ops.VECTORIZE: _vectorize,
    Ops.GEP: _first_source,
    Ops.SHUFFLE: _first_source,
}
_FROM_SOURCES = frozenset(_RULES) - {Ops.CONST, Ops.DEFINE_VAR, Ops.ARANGE}
