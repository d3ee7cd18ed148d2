"""Affine forms of index arithmetic, and simplification by them.

In: integer expressions of a kernel graph. Out: their affine forms, or equal simpler expressions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp
from tinygrad.uop.simplify.affine import fits_dtype, sum_bounds


@dataclass
class Affine:
    """An integer expression as `constant + sum(coefficient * factor)`."""

    constant: int = 0
    terms: dict[UOp, int] = field(default_factory=dict)

    def add(self, factor: UOp, coefficient: int) -> None:
        """Add `coefficient * factor`."""
        total = self.terms.get(factor, 0) + coefficient
        if total:
            self.terms[factor] = total
        else:
            self.terms.pop(factor, None)

    def add_scaled(self, other: Affine, scale: int) -> None:
        """Add `scale * other`."""
        self.constant += scale * other.constant
        for factor, coefficient in other.terms.items():
            self.add(factor, scale * coefficient)

    def fits(self, *types: DType) -> bool:
        """Whether these integer dtypes represent every value of the form."""
        bounds = sum_bounds(dict(self.terms.items()), self.constant)
        return all(fits_dtype(dtype, bounds) for dtype in types)


def affine(index: UOp, through_casts: bool = False) -> Affine:
    """The affine form of `index`. Any op but +, - and * by a constant is a factor of its own.

    With `through_casts`, casts of integers that keep every value are looked through.
    """
    result = Affine()
    stack = [(index, 1)]
    while stack:
        node, scale = stack.pop()
        if node.op is Ops.CONST:
            result.constant += scale * int(node.arg)
        elif node.op is Ops.ADD:
            stack += [(x, scale) for x in node.src]
        elif node.op is Ops.SUB:
            stack += [(node.src[0], scale), (node.src[1], -scale)]
        elif node.op is Ops.NEG:
            stack.append((node.src[0], -scale))
        elif node.op is Ops.MUL and node.src[1].op is Ops.CONST:
            stack.append((node.src[0], scale * int(node.src[1].arg)))
        elif node.op is Ops.MUL and node.src[0].op is Ops.CONST:
            stack.append((node.src[1], scale * int(node.src[0].arg)))
        elif through_casts and (form := _form_below_cast(node)) is not None:
            result.add_scaled(form, scale)
        else:
            result.add(node, scale)
    return result


def _form_below_cast(node: UOp) -> Affine | None:
    """The form of what `node` casts, if neither that nor the cast can wrap around."""
    if node.op is not Ops.CAST or not dtypes.is_int(node.src[0].dtype):
        return None
    form = affine(node.src[0], through_casts=True)
    return form if form.fits(node.src[0].dtype, node.dtype) else None


_KIND_ORDER = {kind: i for i, kind in enumerate(AxisType)}


def _term_key(factor: UOp) -> tuple[int, int]:
    # inner loops last, so that the sum of the others is loop-invariant
    if factor.op is Ops.RANGE:
        return (1 + _KIND_ORDER[factor.arg.kind], factor.arg.index)
    return (0, 0)


def build_affine(value: Affine) -> UOp:
    """The expression of an affine form; innermost loops are added last."""
    total: UOp | None = None
    for factor in sorted(value.terms, key=_term_key):
        coefficient = value.terms[factor]
        term = factor
        if coefficient != 1:
            term = UOp(Ops.MUL, dtypes.index, (factor, index_const(coefficient)))
        total = term if total is None else UOp(Ops.ADD, dtypes.index, (total, term))
    if total is None:
        return index_const(value.constant)
    if not value.constant:
        return total
    return UOp(Ops.ADD, dtypes.index, (total, index_const(value.constant)))


def index_const(value: int) -> UOp:
    """A constant of index arithmetic."""
    return UOp(Ops.CONST, dtypes.index, (), value)


def collect(index: UOp) -> UOp:
    """The index in affine form: products distributed, equal factors collected."""
    return build_affine(affine(index))


def simplify_division(node: UOp) -> UOp:
    """Simplify an IDIV or MOD of a non-negative dividend by taking multiples of the divisor out."""
    dividend, divisor = node.src
    if divisor.op is not Ops.CONST or divisor.arg <= 0:
        return node
    by = int(divisor.arg)
    if dividend.vmin < 0:
        return node
    if dividend.vmax < by:
        return UOp.const(dtypes.index, 0) if node.op is Ops.IDIV else dividend
    form = affine(dividend)
    if len(form.terms) == 1 and (found := _of_two_steps(node.op, form, by)) is not None:
        return found
    whole, rest = Affine(), Affine()
    for factor, coefficient in form.terms.items():
        multiple = coefficient // by if coefficient >= 0 else 0
        if multiple:
            whole.add(factor, multiple)
        left = coefficient - multiple * by
        quotient = _exact_quotient(factor, left, by) if left else None
        if quotient is not None:
            whole.add(quotient, 1)
        elif left:
            rest.add(factor, left)
    whole.constant, rest.constant = form.constant // by, form.constant % by
    remainder = build_affine(rest)
    if remainder.vmin < 0:
        return node
    if node.op is Ops.MOD:
        if remainder.vmax < by:
            return remainder
        if not whole.terms and not whole.constant:
            return _reduce_fraction(node)
        return simplify_division(UOp(Ops.MOD, dtypes.index, (remainder, divisor)))
    multiples = build_affine(whole)
    if remainder.vmax < by:
        return multiples
    if not whole.terms and not whole.constant:
        return _reduce_fraction(node)
    return collect(multiples + simplify_division(UOp(Ops.IDIV, dtypes.index, (remainder, divisor))))


def _of_two_steps(op: Ops, dividend: Affine, by: int) -> UOp | None:
    """A quotient or remainder of a loop of two steps: any function of it is affine."""
    ((factor, coefficient),) = dividend.terms.items()
    if factor.op is not Ops.RANGE or factor.vmin != 0 or factor.vmax != 1:
        return None
    steps = (dividend.constant, dividend.constant + coefficient)
    first, second = (x // by if op is Ops.IDIV else x % by for x in steps)
    result = Affine(first)
    result.add(factor, second - first)
    return build_affine(result)


def _exact_quotient(factor: UOp, scale: int, by: int) -> UOp | None:
    """`factor * scale // by`, where the factor is a choice between multiples, as the start of a
    block that overlaps the previous one is.
    """
    if factor.op is not Ops.WHERE:
        return None
    choices: list[UOp] = []
    for x in factor.src[1:]:
        form = affine(x)
        if any(c * scale % by for c in (form.constant, *form.terms.values())):
            return None
        terms = {term: c * scale // by for term, c in form.terms.items()}
        choices.append(build_affine(Affine(form.constant * scale // by, terms)))
    return UOp(Ops.WHERE, dtypes.index, (factor.src[0], *choices))


def _reduce_fraction(node: UOp) -> UOp:
    """`(g*x + r) // (g*n)` is `x // n`, and `% (g*n)` is `(x % n) * g + r`, where `0 <= r < g`."""
    dividend, divisor = node.src
    by = int(divisor.arg)
    parts = affine(dividend)
    divisors = {_divisor(factor, c, by) for factor, c in parts.terms.items()}
    for common in sorted(divisors, reverse=True):
        if common <= 1 or by % common:
            continue
        high, low = Affine(parts.constant // common), Affine(parts.constant % common)
        for factor, coefficient in parts.terms.items():
            if coefficient % common == 0:
                high.add(factor, coefficient // common)
            elif (quotient := _exact_quotient(factor, coefficient, common)) is not None:
                high.add(quotient, 1)
            else:
                low.add(factor, coefficient)
        rest = build_affine(low)
        whole = build_affine(high)
        if rest.vmin < 0 or rest.vmax >= common or whole.vmin < 0:
            continue
        divided = UOp(node.op, dtypes.index, (whole, UOp.const(dtypes.index, by // common)))
        smaller = simplify_division(divided)
        return smaller if node.op is Ops.IDIV else collect(smaller * common + rest)
    return node


def _divisor(factor: UOp, scale: int, by: int) -> int:
    """A number that divides `factor * scale`; of a choice, one that divides `by` too."""
    if factor.op is not Ops.WHERE:
        return abs(scale)
    forms = map(affine, factor.src[1:])
    return math.gcd(by, *(c * scale for x in forms for c in (x.constant, *x.terms.values())))


def and_conditions(*conditions: UOp | None) -> UOp:
    """The AND of conditions, where None is true."""
    result: UOp | None = None
    for x in conditions:
        if x is None or (x.op is Ops.CONST and x.arg):
            continue
        if x.op is Ops.CONST:
            return x
        result = x if result is None or result is x else UOp(Ops.AND, dtypes.bool, (result, x))
    return UOp.const(dtypes.bool, True) if result is None else result


def is_multiple(index: UOp, of: int) -> bool:
    """Whether an index is provably a multiple of a power of two."""
    form = affine(index)
    if form.constant % of:
        return False
    return all(
        coefficient % of == 0 or _is_multiple_factor(factor, of // _common(coefficient, of))
        for factor, coefficient in form.terms.items()
    )


def _common(coefficient: int, of: int) -> int:
    """The largest power of two that divides both."""
    return min(coefficient & -coefficient, of)


def _is_multiple_factor(node: UOp, of: int) -> bool:
    if node.op is Ops.WHERE:
        return all(is_multiple(x, of) for x in node.src[1:])
    if node.op is Ops.MOD and node.src[1].op is Ops.CONST and node.src[1].arg % of == 0:
        return is_multiple(node.src[0], of)
    return node.op is Ops.MUL and any(is_multiple(x, of) for x in node.src)
