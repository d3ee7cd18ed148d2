"""Rules of conditions, for all dtypes: comparisons, AND, OR, negation, WHERE; and of casts.

`not x` is written `x != True`. Comparisons of floats are never inverted: both
`x < y` and `x >= y` are false for NaN.
"""

from __future__ import annotations

from tinygrad.dtype import can_lossless_cast, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.node import Node
from tinygrad.uop.simplify.affine import binary, fits_dtype, negation
from tinygrad.uop.simplify.identities import broadcast_like


def negated_operand(node: Node) -> Node | None:
    """`x` if `node` is `not x`, else None."""
    if node.op is not Ops.CMPNE or node.src[1].op is not Ops.CONST or node.src[1].arg is not True:
        return None
    return node.src[0]


def less_than(u: Node, x: Node, y: Node) -> Node | None:
    """`x < x` is false, also for NaN; of bools, `x < y` is `not x & y`."""
    if x is y:
        return u.const_like(False)
    if dtypes.is_bool(x.dtype):
        return u.replace(op=Ops.AND, src=(negation(x), y))
    return None


def unequal(u: Node, x: Node, y: Node) -> Node | None:
    """`x != x` is false unless `x` may be NaN; `x != False` is `x`; equality negates."""
    if x is y and not dtypes.is_float(x.dtype):
        return u.const_like(False)
    if not dtypes.is_bool(x.dtype) or y.op is not Ops.CONST:
        return None
    if not y.arg:
        return x
    if x.op is Ops.CMPEQ:
        return x.replace(op=Ops.CMPNE)
    return x.replace(op=Ops.CMPEQ) if x.op is Ops.CMPNE else None


def equal(u: Node, x: Node, y: Node) -> Node | None:
    """`x == x` is true unless `x` may be NaN; `x == True` is `x`, `x == False` its negation."""
    if x is y and not dtypes.is_float(x.dtype):
        return u.const_like(True)
    if not dtypes.is_bool(x.dtype) or y.op is not Ops.CONST:
        return None
    return x if y.arg else negation(x)


def absorb(u: Node, x: Node, y: Node) -> Node | None:
    """`x & (x | y)` and `x | (x & y)` are `x`; `x & not x` is false, `x | not x` true."""
    other = Ops.OR if u.op is Ops.AND else Ops.AND
    for a, b in ((x, y), (y, x)):
        if b.op is other and (a is b.src[0] or a is b.src[1]):
            return broadcast_like(u, a)
        if b.op is u.op and (a is b.src[0] or a is b.src[1]):
            return broadcast_like(u, b)
        if dtypes.is_bool(u.dtype) and negated_operand(b) is a:
            return u.const_like(u.op is Ops.OR)
    return None


def select(u: Node, condition: Node, x: Node, y: Node) -> Node | None:
    """A WHERE whose condition is known or does not matter; negated and nested conditions."""
    if condition.op is Ops.CONST:
        return broadcast_like(u, x if condition.arg else y)
    if x is y:
        return broadcast_like(u, x)
    positive = negated_operand(condition)
    if positive is not None:
        return u.replace(src=(positive, y, x))
    if x.op is Ops.WHERE:
        if x.src[0] is condition:
            return u.replace(src=(condition, x.src[1], y))
        if x.src[2] is y:
            both = binary(Ops.AND, condition, x.src[0])
            return u.replace(src=(both, x.src[1], y))
    if y.op is Ops.WHERE and y.src[0] is condition:
        return u.replace(src=(condition, x, y.src[2]))
    return _select_bool(u, condition, x, y) if dtypes.is_bool(u.dtype) else None


def _select_bool(u: Node, condition: Node, x: Node, y: Node) -> Node | None:
    if x.op is Ops.CONST and y.op is Ops.CONST:
        chosen = condition if x.arg else negation(condition)
        return broadcast_like(u, chosen)
    if y.op is Ops.CONST and not y.arg:
        return u.replace(op=Ops.AND, src=(condition, x))
    if x.op is Ops.CONST and x.arg:
        return u.replace(op=Ops.OR, src=(condition, y))
    return None


def cast_twice(u: Node, inner: Node, x: Node) -> Node | None:
    """A cast of a cast is one cast if the first loses no bits that the second keeps."""
    source, middle, target = x.dtype, inner.dtype, u.dtype
    integers = dtypes.is_int(source) and dtypes.is_int(middle)
    lossless = can_lossless_cast(source, middle) or (
        integers and fits_dtype(middle, x.bounds) and middle.count == 1
    )
    if not integers and dtypes.is_int(source) and dtypes.is_int(target):
        # a cast of a float saturates, one of an integer wraps around
        lossless = lossless and fits_dtype(target, x.bounds)
    # two narrowing casts of integers drop the same bits as one
    narrowing = integers and dtypes.is_int(target) and target.itemsize <= middle.itemsize
    if not lossless and not (narrowing and dtypes.index not in (source, middle, target)):
        return None
    return x.cast(target)


def lift_index(u: Node) -> Node | None:
    """Arithmetic on integers cast from indices becomes index arithmetic, which never wraps."""
    dtype = u.src[0].dtype
    if dtype is dtypes.index or u.src[0].op not in _LIFTABLE or dtype not in dtypes.ints:
        return None
    sources = []
    for x in u.src:
        if x.op is Ops.CAST and x.src[0].dtype is dtypes.index:
            if not fits_dtype(dtype, x.src[0].bounds):
                return None
            sources.append(x.src[0])
        elif x.op is Ops.CONST and u.src[0].op is Ops.CAST:
            sources.append(x.replace(dtype=dtypes.index))
        else:
            return None
    if u.dtype is dtypes.bool:
        return u.replace(src=tuple(sources))
    lifted = u.replace(dtype=dtypes.index, src=tuple(sources))
    return lifted.cast(u.dtype) if fits_dtype(u.dtype, lifted.bounds) else None


_LIFTABLE = frozenset({Ops.CAST, Ops.CONST})
