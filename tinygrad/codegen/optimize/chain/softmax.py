"""Match the softmax in the weights of a chain.

In: the weights, and the reductions in them that do not depend on the key. Out: the nodes of the
softmax: the scores, their maximum, the exponentials of the difference, and their sum, by which the
weights may be divided.

Example: the weights `where(keep, exp(s - max(s)) / sum(exp(s - max(s))), 0) * 1.25` of a dropout
after a softmax match. From the weights down to the exponential, the steps are MUL, WHERE and a
division: all are linear in the exponential.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.analysis.alpha_equivalence import is_alpha_equivalent
from tinygrad.codegen.analysis.ranges import FreeRanges
from tinygrad.codegen.optimize.contraction import below_casts
from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reduction import lowest


@dataclass(frozen=True)
class Softmax:
    """A softmax in the weights of a chain: `exponential` of `scores` minus their `maximum`."""

    scores: UOp
    exponential: UOp
    maximum: UOp
    subtracted: UOp
    """`maximum`, or the larger of it and the lowest finite number."""
    total: UOp | None
    """The sum of the exponentials, if it is needed."""
    divisor: UOp | None
    """What the weights are divided by: the sum, or the larger of it and a constant."""

    def exponential_of(self, score: UOp, maximum: UOp) -> UOp:
        """The exponential of `score` minus `maximum`, such as the maximum so far, which is at least
        the lowest finite number.
        """
        return self.exponential.substitute({self.scores: score, self.subtracted: maximum})

    def divided(self, value: UOp, total: UOp) -> UOp:
        """`value` over the sum `total`, if the weights are divided by it."""
        if self.divisor is None:
            return value
        assert self.total is not None, "the divisor is computed from the sum"
        divisor = self.divisor.substitute({self.total: total})
        return value * divisor.reciprocal().cast(value.dtype)


def find_softmax(weight: UOp, key: UOp, statistics: list[UOp]) -> Softmax | None:
    """The softmax in `weight`, of which `statistics` are the reductions that do not depend on
    `key`; None if they are anything but its maximum and its sum.
    """
    maxima = [u for u in statistics if u.arg is Ops.MAX]
    totals = [u for u in statistics if u.arg is Ops.ADD]
    if len(maxima) != 1 or len(totals) > 1 or len(maxima) + len(totals) < len(statistics):
        return None
    maximum = maxima[0]
    if len(maximum.src) != 2:
        return None
    found = [u for u in weight.toposort() if u.op in GroupOp.Exponential and key in FreeRanges()[u]]
    for exponential in found:
        difference = _difference_of(exponential, maximum)
        if difference is None:
            continue
        scores, subtracted = difference
        if not is_alpha_equivalent(scores, maximum.src[0], {key: maximum.src[1]}):
            continue
        total = totals[0] if totals else None
        if total is not None:
            renamed = {key: total.src[1]}
            if len(total.src) != 2 or not is_alpha_equivalent(exponential, total.src[0], renamed):
                return None
        steps = linear_steps(weight, exponential, total)
        if steps is None:
            return None
        divisors = [x for x in (_divisor(u, total) for u in steps) if x is not None]
        if len(divisors) != len(totals):
            return None
        divisor = divisors[0] if divisors else None
        return Softmax(scores, exponential, maximum, subtracted, total, divisor)
    return None


def _difference_of(exponential: UOp, maximum: UOp) -> tuple[UOp, UOp] | None:
    """`x` and `y` of the exponential of `(x - y) * c` with a positive constant c, where y is
    `maximum`, or the larger of it and the lowest finite number.
    """
    node = exponential.src[0]
    if node.op is Ops.MUL and node.src[1].op is Ops.CONST and node.src[1].arg > 0:
        node = node.src[0]
    if node.op is Ops.SUB and _is_maximum(node.src[1], maximum):
        return node.src[0], node.src[1]
    if node.op is not Ops.ADD:
        return None
    for x, y in (node.src, node.src[::-1]):
        if y.op is Ops.NEG and _is_maximum(y.src[0], maximum):
            return x, y.src[0]
        if y.op is Ops.MUL and _is_maximum(y.src[0], maximum) and y.src[1].op is Ops.CONST:
            return (x, y.src[0]) if y.src[1].arg == -1 else None
    return None


def _is_maximum(node: UOp, maximum: UOp) -> bool:
    """Whether a node is `maximum`, or `max(maximum, lowest finite number)`."""
    if node.op is Ops.MAX and node.src[1].op is Ops.CONST:
        return node.src[0] is maximum and node.src[1].arg == lowest(node.dtype)
    return node is maximum


def linear_steps(weight: UOp, exponential: UOp, total: UOp | None) -> list[UOp] | None:
    """The ops from `weight` down to `exponential`; None if one of them is not linear in it."""
    steps: list[UOp] = []
    node = weight
    while node is not exponential:
        inside = [i for i, x in enumerate(node.src) if exponential in x.toposort()]
        if len(inside) != 1 or not _is_linear(node, inside[0], total):
            return None
        steps.append(node)
        node = node.src[inside[0]]
    return steps


def _is_linear(node: UOp, side: int, total: UOp | None) -> bool:
    """Whether an op is linear in operand `side`. The other operands must not contain `total`,
    except as the divisor.
    """
    if node.op is Ops.CAST:
        return dtypes.is_float(node.dtype)
    if node.op is Ops.WHERE and side > 0:
        condition, other = node.src[0], node.src[3 - side]
        return _is_zero(other) and total not in condition.toposort()
    if node.op is Ops.MUL or (node.op is Ops.FDIV and side == 0):
        return _divisor(node, total) is not None or total not in node.src[1 - side].toposort()
    return False


def _is_zero(node: UOp) -> bool:
    return node.op is Ops.CONST and node.arg == 0


def _divisor(node: UOp, total: UOp | None) -> UOp | None:
    """What a quotient is divided by, if that is `total`, or the larger of it and a constant."""
    divisor = node.src[1] if node.op is Ops.FDIV else None
    if node.op is Ops.MUL:
        inverses = [x for x in map(below_casts, node.src) if x.op is Ops.RECIPROCAL]
        divisor = inverses[0].src[0] if inverses else None
    if divisor is None or total is None:
        return None
    is_clamped = divisor.op is Ops.MAX and divisor.src[1].op is Ops.CONST
    return divisor if (divisor.src[0] if is_clamped else divisor) is total else None


def without_division(weight: UOp, softmax: Softmax) -> UOp:
    """The weights before they are divided by the sum of the exponentials."""
    if softmax.divisor is None:
        return weight
    steps = linear_steps(weight, softmax.exponential, softmax.total)
    assert steps is not None, "the weights are linear in the exponential"
    node = softmax.exponential
    below = softmax.exponential
    for step in reversed(steps):
        if _divisor(step, softmax.total) is None:
            node = step.replace(src=tuple(node if x is below else x for x in step.src))
        below = step
    return node
