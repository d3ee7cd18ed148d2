"""Simplification under a condition: masks of loads and stores, and the indices they guard.

Input: conjunctions of comparisons of index expressions, such as `(0 <= y-1) & (y-1 < 28)` of a
padded load. Output: an equivalent condition with fewer clauses, and expressions that equal the
given ones wherever the condition holds, and may differ elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.node import Node
from tinygrad.uop.simplify.affine import (
    Addends,
    add_scaled,
    binary,
    build_sum,
    split_sum,
    sum_bounds,
)
from tinygrad.uop.simplify.logic import negated_operand

Constraint: TypeAlias = "tuple[Addends, int]"
"""`(addends, limit)`: the sum of the addends is at most `limit`."""
Intervals: TypeAlias = "dict[Node, tuple[int, int]]"

PROPAGATION_PASSES = 3


def clauses_of(condition: Node) -> list[Node]:
    """The distinct clauses of a conjunction, in order."""
    return list(dict.fromkeys(condition.split_uop(Ops.AND)))


def conjunction(clauses: list[Node]) -> Node:
    """The AND of `clauses`, of which there is at least one."""
    result = clauses[0]
    for clause in clauses[1:]:
        result = binary(Ops.AND, result, clause)
    return result


def constraints_of(clause: Node) -> list[Constraint]:
    """The inequalities that a comparison of indices implies; none for other conditions."""
    inner = negated_operand(clause)
    node = clause if inner is None else inner
    if node.op not in _COMPARISONS or node.src[0].dtype is not dtypes.index:
        return []
    addends, total = split_sum(node.src[0])
    other, other_offset = split_sum(node.src[1])
    addends = add_scaled(addends, other, -1)
    limit = other_offset - total
    opposite = {base: -factor for base, factor in addends.items()}
    if node.op is Ops.CMPLT:
        return [(addends, limit - 1) if inner is None else (opposite, -limit)]
    if (node.op is Ops.CMPEQ) == (inner is None):
        return [(addends, limit), (opposite, -limit)]
    return []


_COMPARISONS = frozenset({Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE})


def intervals_under(constraints: Iterable[Constraint]) -> Intervals | None:
    """The bounds of every base where the constraints hold; None if they contradict."""
    constraints = list(constraints)
    intervals: Intervals = {}
    for addends, _ in constraints:
        for base in addends:
            intervals[base] = base.bounds
    for _ in range(PROPAGATION_PASSES):
        before = dict(intervals)
        for addends, limit in constraints:
            if not _tighten(intervals, addends, limit):
                return None
        if intervals == before:
            break
    return intervals


def _tighten(intervals: Intervals, addends: Addends, limit: int) -> bool:
    """Narrow `intervals` by one constraint; False if they contradict."""
    lowest = {b: f * intervals[b][0 if f > 0 else 1] for b, f in addends.items()}
    total = sum(lowest.values())
    if total > limit:
        return False
    for base, factor in addends.items():
        slack = limit - total + lowest[base]
        low, high = intervals[base]
        if factor > 0:
            intervals[base] = low, min(high, slack // factor)
        else:
            intervals[base] = max(low, -(slack // -factor)), high
    return True


def _upper_bound_under(intervals: Intervals, addends: Addends) -> int:
    total = 0
    for base, factor in addends.items():
        low, high = intervals.get(base, base.bounds)
        total += factor * (high if factor > 0 else low)
    return total


def simplify_conjunction(u: Node) -> Node | None:
    """Keep the tightest of several bounds on one expression in an AND; False if they contradict."""
    if not dtypes.is_bool(u.dtype):
        return None
    clauses = clauses_of(u)
    tightest: dict[tuple[Node, bool], Node] = {}
    kept: dict[Node, None] = {}
    for clause in clauses:
        inner = negated_operand(clause)
        node = clause if inner is None else inner
        if node.op is not Ops.CMPLT or node.src[1].op is not Ops.CONST or not _is_scalar_int(node):
            kept[clause] = None
            continue
        key = node.src[0], inner is None
        other = tightest.get(key)
        if other is not None:
            if (_limit(clause) < _limit(other)) is not key[1]:
                continue
            del kept[other]
        tightest[key] = clause
        kept[clause] = None
    for (expression, is_upper), clause in tightest.items():
        lower = tightest.get((expression, False)) if is_upper else None
        if lower is not None and _limit(clause) <= _limit(lower):
            return u.const_like(False)
    changed = len(kept) < len(clauses) or len(clauses) < _count_leaves(u)
    return conjunction(list(kept)) if changed else None


def _is_scalar_int(comparison: Node) -> bool:
    dtype = comparison.src[0].dtype
    return dtype is dtypes.index or dtype in dtypes.ints


def _limit(clause: Node) -> int:
    inner = negated_operand(clause)
    limit: int = (clause if inner is None else inner).src[1].arg
    return limit


def _count_leaves(u: Node) -> int:
    return sum(_count_leaves(x) if x.op is Ops.AND else 1 for x in u.src)


def simplify_valid(valid: Node) -> Node:
    """An equivalent condition without implied clauses; a CONST if it is known."""
    valid = valid.simplify()
    if valid.op is not Ops.AND:
        return valid
    clauses = clauses_of(valid)
    constraints = {clause: constraints_of(clause) for clause in clauses}
    if intervals_under(c for found in constraints.values() for c in found) is None:
        return valid.const_like(False)
    kept = list(clauses)
    # the last clauses come from the outermost movement, and rarely imply earlier ones
    for clause in clauses:
        others = [x for x in kept if x is not clause]
        if not others:
            break
        under = intervals_under(c for x in others for c in constraints[x])
        assert under is not None
        known = constraints[clause]
        if known and all(_upper_bound_under(under, addends) <= limit for addends, limit in known):
            kept = others
            continue
        simpler = uop_given_valid(conjunction(others), clause)
        if simpler is not clause:
            if simpler.op is Ops.CONST and not simpler.arg:
                return simpler
            constraints[simpler] = constraints_of(simpler)
            kept = [simpler if x is clause else x for x in kept]
            kept = [x for x in kept if x.op is not Ops.CONST]
    return conjunction(kept) if kept else valid.const_like(True)


def uop_given_valid(valid: Node, u: Node) -> Node:
    """An expression equal to `u` wherever `valid` holds, simplified by the condition."""
    constraints = [c for clause in clauses_of(valid) for c in constraints_of(clause)]
    if not constraints or not u.src:
        return u
    found = intervals_under(constraints)
    if found is None:
        return u
    u = _with_intervals(u, {b: i for b, i in found.items() if i != b.bounds})
    for addends, interval in _sum_intervals(constraints):
        if u.src:
            u = _with_sum_interval(u, addends, interval)
    return u


def _placeholder(like: Node, interval: tuple[int, int], number: int) -> Node:
    """A Variable with these bounds and a reserved name; a CONST if the bounds meet."""
    if interval[0] == interval[1]:
        return type(like)(Ops.CONST, like.dtype, (), interval[0])
    return type(like)(Ops.DEFINE_VAR, like.dtype, (), (f" {number}", *interval))


def _with_intervals(u: Node, intervals: Intervals) -> Node:
    """Simplify `u` with narrower bounds of some of its nodes."""
    nodes = u.toposort()
    replaced = {
        b: _placeholder(b, i, n) for n, (b, i) in enumerate(intervals.items()) if b in nodes
    }
    if not replaced:
        return u
    back = {new: old for old, new in replaced.items() if new.op is not Ops.CONST}
    return _cheaper(u, u.substitute(replaced), lambda x: x.substitute(back))


def _sum_intervals(constraints: list[Constraint]) -> list[tuple[Addends, tuple[int, int]]]:
    """The sums of several addends whose bounds the constraints narrow."""
    found: dict[frozenset[tuple[Node, int]], tuple[Addends, int, int]] = {}
    for addends, limit in constraints:
        if len(addends) < 2:
            continue
        opposite = {base: -factor for base, factor in addends.items()}
        key, reverse = frozenset(addends.items()), frozenset(opposite.items())
        if reverse in found:
            known, low, high = found[reverse]
            found[reverse] = known, max(low, -limit), high
        else:
            known, low, high = found.get(key, (addends, *sum_bounds(addends)))
            found[key] = known, low, min(high, limit)
    return [(addends, (low, high)) for addends, low, high in found.values() if low <= high]


def _with_sum_interval(u: Node, addends: Addends, interval: tuple[int, int]) -> Node:
    """Simplify `u` where a sum of several addends lies in an interval: solve for one addend."""
    nodes = u.toposort()
    if not all(base in nodes for base in addends):
        return u
    unit = next((base for base, factor in addends.items() if factor in (1, -1)), None)
    if unit is None:
        return u
    factor = addends[unit]
    variable = _placeholder(unit, interval, 0)
    rest = {base: f for base, f in addends.items() if base is not unit}
    solved = add_scaled({}, rest, -factor)
    total = 0
    if variable.op is Ops.CONST:
        total = factor * interval[0]
    else:
        solved[variable] = factor
    back = {} if variable.op is Ops.CONST else {variable: build_sum(unit, addends)}
    return _cheaper(
        u, u.substitute({unit: build_sum(unit, solved, total)}), lambda x: x.substitute(back)
    )


def _cheaper(old: Node, new: Node, restore: Callable[[Node], Node]) -> Node:
    """`new`, simplified and restored, if it is cheaper to compute than `old`; else `old`."""
    simple = new.simplify()
    if simple is new:
        return old
    restored = restore(simple).simplify()
    return restored if _cost(restored) < _cost(old) else old


def _cost(u: Node) -> int:
    """An estimate of the time to compute an expression."""
    return sum(_WEIGHTS.get(node.op, 2) for node in u.toposort())


_WEIGHTS = {Ops.CONST: 1, Ops.IDIV: 12, Ops.MOD: 12}


def is_always(condition: Node) -> bool:
    """Whether a condition is the constant True, in all lanes if it is a vector."""
    if condition.op is not Ops.CONST:
        return False
    return all(condition.arg) if isinstance(condition.arg, tuple) else bool(condition.arg)


def simplify_index(u: Node) -> Node | None:
    """Simplify the condition and the index of an INDEX; drop a condition that always holds."""
    pointer, index, condition = u.src
    condition = simplify_valid(condition)
    if condition.op is not Ops.CONST:
        return u.replace(src=(pointer, uop_given_valid(condition, index), condition))
    return u.replace(src=(pointer, index) if is_always(condition) else (pointer, index, condition))
