"""Integer expressions in affine form: addends, `{base: factor}`, plus a constant offset.

The canonical form of a sum is `((b0*f0 + b1*f1) + b2) + offset`: larger factors first, each base
once, the offset last. All functions expect canonical sources.
"""

from __future__ import annotations

import math

from tinygrad.dtype import DType, dtypes, truncate
from tinygrad.uop import Ops
from tinygrad.uop.node import Node

Addends = dict[Node, int]
INDEX = dtypes.index
INTEGERS = frozenset({*dtypes.ints, INDEX})


def constant(like: Node, value: int) -> Node:
    """The scalar constant `value`, wrapped to the integer dtype of `like`."""
    dtype = like.dtype
    if dtype is not INDEX:
        value = truncate[dtype](value)
    return type(like)(Ops.CONST, dtype, (), value)


def binary(op: Ops, x: Node, y: Node) -> Node:
    """`op(x, y)` in the dtype of `x`, without a reshard: both have the same device."""
    return type(x)(op, x.dtype, (x, y))


def multiply(x: Node, factor: int) -> Node:
    """`x * factor`."""
    return binary(Ops.MUL, x, constant(x, factor))


def divide(x: Node, divisor: int) -> Node:
    """`x // divisor`."""
    return binary(Ops.IDIV, x, constant(x, divisor))


def remainder(x: Node, divisor: int) -> Node:
    """`x % divisor`."""
    return binary(Ops.MOD, x, constant(x, divisor))


def negation(condition: Node) -> Node:
    """`not condition`, of a bool."""
    true = type(condition)(Ops.CONST, condition.dtype, (), True)
    return binary(Ops.CMPNE, condition, true)


def split_sum(node: Node) -> tuple[Addends, int]:
    """The addends and the offset of an integer expression. No base is a sum or has factor 0."""
    addends: Addends = {}
    offset = 0
    stack = [(node, 1)]
    while stack:
        x, factor = stack.pop()
        op = x.op
        if op is Ops.ADD:
            stack.append((x.src[1], factor))
            stack.append((x.src[0], factor))
        elif op is Ops.MUL and x.src[1].op is Ops.CONST:
            stack.append((x.src[0], factor * x.src[1].arg))
        elif op is Ops.CONST:
            offset += factor * x.arg
        elif op is Ops.SUB:
            stack.append((x.src[1], -factor))
            stack.append((x.src[0], factor))
        elif op is Ops.NEG:
            stack.append((x.src[0], -factor))
        else:
            bounds = x._bounds
            if bounds.__class__ is not tuple:
                bounds = x.bounds
            if bounds[0] == bounds[1]:
                offset += factor * bounds[0]
            else:
                addends[x] = addends.get(x, 0) + factor
    if 0 in addends.values():
        addends = {base: factor for base, factor in addends.items() if factor}
    return addends, offset


def add_scaled(addends: Addends, other: Addends, factor: int = 1) -> Addends:
    """`addends + factor * other`."""
    result = dict(addends)
    for base, f in other.items():
        result[base] = result.get(base, 0) + factor * f
    return {base: f for base, f in result.items() if f}


def sum_bounds(addends: Addends, offset: int = 0) -> tuple[int, int]:
    """The lower and upper bound of a sum, computed without wrapping."""
    low = high = offset
    for base, factor in addends.items():
        a, b = base.bounds
        if factor > 0:
            low += factor * a
            high += factor * b
        else:
            low += factor * b
            high += factor * a
    return low, high


def is_always_less(x: Node, y: Node) -> bool:
    """Whether `x < y` for all values, also if a loop variable has a symbolic bound."""
    addends, offset = split_sum(x)
    other, other_offset = split_sum(y)
    return upper_bound(add_scaled(addends, other, -1), offset - other_offset) < 0


def upper_bound(addends: Addends, offset: int) -> int:
    """The upper bound of a sum; the bound of a loop variable is its own symbolic size."""
    if not any(base.op is Ops.RANGE and base.src[0].op is not Ops.CONST for base in addends):
        return sum_bounds(addends, offset)[1]
    bounded: Addends = {}
    for base, factor in addends.items():
        if factor > 0 and base.op is Ops.RANGE:
            size_addends, size_offset = split_sum(base.src[0])
            bounded = add_scaled(bounded, size_addends, factor)
            offset += factor * (size_offset - 1)
        else:
            bounded = add_scaled(bounded, {base: factor})
    return sum_bounds(bounded, offset)[1]


def fits_dtype(dtype: DType, bounds: tuple[int, int]) -> bool:
    """Whether an integer dtype represents all values between the bounds."""
    return dtypes.min(dtype) <= bounds[0] and bounds[1] <= dtypes.max(dtype)


def build_sum(like: Node, addends: Addends, offset: int = 0) -> Node:
    """The canonical sum, in the dtype of `like`."""
    make, dtype = type(like), like.dtype
    result: Node | None = None
    for base, factor in sorted_addends(addends):
        addend = base
        if factor != 1:
            addend = multiply(base, factor)
        result = addend if result is None else make(Ops.ADD, dtype, (result, addend))
    if result is None:
        return constant(like, offset)
    return make(Ops.ADD, dtype, (result, constant(like, offset))) if offset else result


def sorted_addends(addends: Addends) -> list[tuple[Node, int]]:
    """The addends in canonical order: by decreasing absolute factor, then by `order_key`."""
    if len(addends) < 2:
        return list(addends.items())
    sizes = {abs(factor) for factor in addends.values()}
    if len(sizes) == len(addends):
        return sorted(addends.items(), key=lambda addend: -abs(addend[1]))
    return sorted(addends.items(), key=lambda addend: (-abs(addend[1]), *order_key(addend[0])))


def order_key(node: Node) -> tuple[int, str]:
    """A key that orders the operands of a commutative op, the same in every process."""
    if node.op is Ops.RANGE:
        return node.op.value, f"{node.arg.index!s:>9}"
    if node.op is Ops.DEFINE_VAR:
        return node.op.value, node.arg[0]
    return node.op.value, node.key.hex()


def common_factor(addends: Addends, offset: int = 0) -> int:
    """The greatest common divisor of all factors and the offset; 0 for an empty sum."""
    return math.gcd(*addends.values(), offset)


def simplify_sum(u: Node) -> Node | None:
    """The canonical form of an ADD of indices, or None if it is canonical already."""
    if u.dtype is not INDEX or _is_canonical(u):
        return None
    addends, offset = split_sum(u)
    addends, offset = _merge_divisions(addends, offset)
    return build_sum(u, addends, offset)


def _is_canonical(u: Node) -> bool:
    """Whether an ADD is known to be canonical; if False, `split_sum` decides."""
    left, right = u.src
    if right.op is Ops.ADD or left.op is Ops.CONST:
        return False
    if right.op is Ops.CONST:
        return bool(right.arg) and (left.op is not Ops.ADD or left.src[1].op is not Ops.CONST)
    base, smallest = _base_and_factor(right)
    if base.op is Ops.MOD or base.op is Ops.IDIV:
        return False
    low, high = base.bounds
    if low == high:
        return False
    last = True
    while True:
        addend = left
        if left.op is Ops.ADD:
            left, addend = left.src
        other, factor = _base_and_factor(addend)
        if other is base or other.op is Ops.CONST or other.op is Ops.IDIV:
            return False
        if last and not _is_before(other, factor, base, smallest):
            return False
        last = False
        if addend is left:
            low, high = other.bounds
            return bool(low != high)


def _is_before(base: Node, factor: int, other: Node, other_factor: int) -> bool:
    """Whether one addend precedes another in a canonical sum."""
    if abs(factor) != abs(other_factor):
        return abs(factor) > abs(other_factor)
    return order_key(base) < order_key(other)


def _base_and_factor(addend: Node) -> tuple[Node, int]:
    if addend.op is Ops.MUL and addend.src[1].op is Ops.CONST:
        return addend.src[0], addend.src[1].arg
    return addend, 1


def _merge_divisions(addends: Addends, offset: int) -> tuple[Addends, int]:
    """Merge quotients and remainders: see `_merge_remainder` and `_merge_quotient`."""
    merged: tuple[Addends, int] | None = addends, offset
    while merged is not None:
        addends, offset = merged
        merged = None
        for base, factor in addends.items():
            if base.op is Ops.MOD and base.src[1].op is Ops.CONST:
                merged = _merge_remainder(base, factor, addends, offset)
            elif base.op is Ops.IDIV and base.src[1].op is Ops.CONST:
                merged = _merge_quotient(base, factor, addends, offset)
            if merged is not None:
                break
    return addends, offset


def _merge_quotient(
    base: Node, factor: int, addends: Addends, offset: int
) -> tuple[Addends, int] | None:
    """`x - x//d*d` is `x%d`, also where `x` is itself a quotient, and beside more of `x`."""
    x, divisor = base.src[0], base.src[1].arg
    inner = [b for b in addends if b.op is Ops.IDIV and b.src[0] is x and b is not base]
    for part in [x, *inner]:
        known = 1 if part is x else part.src[1].arg
        if part is not x and (part.src[1].op is not Ops.CONST or known <= 0):
            continue
        d = divisor // known
        if d < 2 or divisor % known or factor % d:
            continue
        scale = -factor // d
        part_addends, part_offset = split_sum(part)
        if not all(_contains(addends.get(b, 0), scale * f) for b, f in part_addends.items()):
            continue
        rest = add_scaled({b: f for b, f in addends.items() if b is not base}, part_addends, -scale)
        return add_scaled(rest, {remainder(part, d): scale}), offset - scale * part_offset
    return None


def _contains(factor: int, part: int) -> bool:
    """Whether `part` and the rest of `factor` have its sign, or there is no rest."""
    return abs(part) <= abs(factor) and (part < 0) == (factor < 0)


def _merge_remainder(
    base: Node, factor: int, addends: Addends, offset: int
) -> tuple[Addends, int] | None:
    """`x%b + x//b*b` is `x`, `x%b + (x//b)%m*b` is `x%(b*m)`, and `x - x%b` is `x//b*b`."""
    found = _remainder_partner(base, factor, addends)
    if found is None:
        return _merge_dividend(base, factor, addends, offset)
    partner, merged = found
    rest = {b: f for b, f in addends.items() if b is not base and b is not partner}
    more, more_offset = split_sum(merged)
    return add_scaled(rest, more, factor), offset + factor * more_offset


def _merge_dividend(
    base: Node, factor: int, addends: Addends, offset: int
) -> tuple[Addends, int] | None:
    """`x - x%b` is `x//b*b`, also beside more of `x`."""
    x, divisor = base.src
    parts, part_offset = split_sum(x)
    if divisor.arg < 2 or not parts:
        return None
    if not all(_contains(addends.get(b, 0), -factor * f) for b, f in parts.items()):
        return None
    rest = add_scaled({b: f for b, f in addends.items() if b is not base}, parts, factor)
    quotient = {quotient_node(x, divisor): -factor * divisor.arg}
    return add_scaled(rest, quotient), offset + factor * part_offset


def _remainder_partner(base: Node, factor: int, addends: Addends) -> tuple[Node, Node] | None:
    """The addend that merges with `base`, a MOD, and their sum divided by `factor`."""
    x, divisor = base.src
    wanted = factor * divisor.arg
    candidates = [b for b, f in addends.items() if f == wanted and b is not base]
    if not candidates:
        return None
    quotient = quotient_node(x, divisor)
    for other in candidates:
        if other is quotient:
            return other, x
        if other.op is Ops.MOD and other.src[0] is quotient and other.src[1].op is Ops.CONST:
            if quotient.bounds[0] < 0 or divisor.arg < 0:
                continue
            merged = remainder(x, divisor.arg * other.src[1].arg)
            return (other, merged) if merged.bounds[0] >= 0 else None
    return None


def quotient_node(x: Node, divisor: Node) -> Node:
    """`x // divisor` in simplified form."""
    if x.op is Ops.IDIV and x.src[1].op is Ops.CONST:
        divisor = constant(x, x.src[1].arg * divisor.arg)
        x = x.src[0]
    return binary(Ops.IDIV, x, divisor)


def simplify_product(u: Node) -> Node | None:
    """The canonical form of a MUL of indices: constants distributed over sums, else outermost."""
    if u.dtype is not INDEX:
        return None
    left, right = u.src
    if left.op is Ops.CONST:
        left, right = right, left
    if right.op is Ops.CONST:
        if left.op in _SPLIT or right.arg in (0, 1) or left.bounds[0] == left.bounds[1]:
            addends, offset = split_sum(binary(Ops.MUL, left, right))
            return build_sum(u, addends, offset)
        return None if left is u.src[0] else binary(Ops.MUL, left, right)
    left, first = split_content(left)
    right, second = split_content(right)
    if left.op is Ops.CONST or right.op is Ops.CONST:
        return multiply(binary(Ops.MUL, left, right), first * second)
    if order_key(right) < order_key(left):
        left, right = right, left
    product = binary(Ops.MUL, left, right)
    if first * second == 1:
        return product
    return multiply(product, first * second)


_SPLIT = frozenset({Ops.ADD, Ops.MUL, Ops.CONST})


def split_content(node: Node) -> tuple[Node, int]:
    """`node` divided by the common factor of its addends, and that factor."""
    if node.op is not Ops.ADD and node.op is not Ops.MUL:
        return node, 1
    addends, offset = split_sum(node)
    content = common_factor(addends, offset)
    if content <= 1:
        return node, 1
    reduced = {base: factor // content for base, factor in addends.items()}
    return build_sum(node, reduced, offset // content), content
