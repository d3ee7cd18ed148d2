"""Simplification of expressions: the sets of rewrite rules.

`symbolic_simple` has the rules for values of every dtype. `symbolic` adds integer arithmetic, for
index expressions: canonical sums, divisions that bounds make redundant, comparisons, conditions.
`symbolic_valid` adds the simplification of an index under its condition.
Invariant: the value stays exactly the same, but an index may change where its condition is false.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.node import Node
from tinygrad.uop.rewrite import PatternMatcher, Rule
from tinygrad.uop.simplify import affine, compare, divmod, fold, identities, logic, valid
from tinygrad.uop.upat import UPat

__all__ = ["symbolic", "symbolic_simple", "symbolic_valid"]

CONST = UPat(Ops.CONST)
x, y = UPat.var("x"), UPat.var("y")
c = UPat.cvar("c")


def _root(op: Ops, *src: UPat) -> UPat:
    return UPat(op, src=src, name="u")


folding: list[Rule] = [
    (UPat(GroupOp.Unary, src=(CONST,), name="u"), fold.fold_constants),
    (UPat(GroupOp.Binary, src=(CONST, CONST), name="u"), fold.fold_constants),
    (UPat(GroupOp.Ternary, src=(CONST, CONST, CONST), name="u"), fold.fold_constants),
    (_root(Ops.CAST, CONST), fold.fold_cast),
    (_root(Ops.BITCAST, CONST), fold.fold_bitcast),
    (
        UPat(GroupOp.Commutative, src=(c, x), name="u"),
        identities.move_constant_right,
    ),
]

arithmetic: list[Rule] = [
    (UPat({Ops.ADD, Ops.MUL, Ops.MAX}, dtypes.bool, name="u"), identities.bool_arithmetic),
    (_root(Ops.ADD, x, c), identities.add_constant),
    (_root(Ops.SUB, x, y), identities.subtract),
    (_root(Ops.MUL, x, c), identities.multiply_constant),
    (_root(Ops.FDIV, x, c), identities.divide_float),
    (_root(Ops.IDIV, x, y), identities.divide_integer),
    (_root(Ops.MOD, x, y), identities.remainder_integer),
    (_root(Ops.MAX, x, y), identities.maximum),
    (UPat(Ops.NEG, src=(UPat(Ops.NEG, src=(x,)),)), identities.negate_twice),
    (UPat(Ops.TRUNC, src=(x,)), identities.truncate_integral),
    (_root(Ops.POW, x, c), identities.power_constant),
    (_root(Ops.AND, x, y), identities.bits_and),
    (_root(Ops.OR, x, y), identities.bits_or),
    (_root(Ops.XOR, x, y), identities.bits_xor),
    (UPat({Ops.SHL, Ops.SHR}, src=(x, c)), identities.shift_by_zero),
    (
        UPat(Ops.GEP, src=(UPat(Ops.VECTORIZE, name="x"),), name="lane"),
        identities.lane_of_vector,
    ),
    (UPat(Ops.VECTORIZE, name="u"), identities.vector_of_lanes),
]

conditions: list[Rule] = [
    (_root(Ops.CMPLT, x, y), logic.less_than),
    (_root(Ops.CMPNE, x, y), logic.unequal),
    (_root(Ops.CMPEQ, x, y), logic.equal),
    (UPat({Ops.AND, Ops.OR}, src=(x, y), name="u"), logic.absorb),
    (_root(Ops.WHERE, UPat.var("condition"), x, y), logic.select),
    (_root(Ops.CAST, UPat(Ops.CAST, src=(x,), name="inner")), logic.cast_twice),
]

symbolic_simple = PatternMatcher([*folding, *arithmetic, *conditions], pure=True)


def subtraction_as_sum(u: Node) -> Node | None:
    """`x - y` and `-x` of indices, as canonical sums."""
    if u.dtype is not dtypes.index:
        return None
    return affine.build_sum(u, *affine.split_sum(u))


INTEGER_OPS = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.SHL, Ops.SHR),
        *(Ops.AND, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.CAST),
    }
)
LIFTED_OPS = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.IDIV, Ops.MOD, Ops.MAX),
        *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ),
    }
)


def _any(op: Ops) -> UPat:
    return UPat(op, name="u")


integers: list[Rule] = [
    (_any(Ops.ADD), affine.simplify_sum),
    (_any(Ops.MUL), affine.simplify_product),
    (UPat({Ops.SUB, Ops.NEG}, name="u"), subtraction_as_sum),
    (_any(Ops.IDIV), divmod.simplify_idiv),
    (_any(Ops.MOD), divmod.simplify_mod),
    (_any(Ops.CMPLT), compare.simplify_cmplt),
    (UPat({Ops.CMPNE, Ops.CMPEQ}, name="u"), compare.simplify_equality),
    (_any(Ops.MAX), compare.simplify_max),
    (_any(Ops.AND), valid.simplify_conjunction),
    (UPat(INTEGER_OPS, name="u"), identities.fold_single_value),
    (UPat(LIFTED_OPS, name="u"), logic.lift_index),
]

symbolic = PatternMatcher([*integers, *symbolic_simple.rules], pure=True)

index_rule = (UPat(Ops.INDEX, src=(UPat(), UPat(), UPat()), name="u"), valid.simplify_index)
symbolic_valid = PatternMatcher([*symbolic.rules, index_rule], pure=True)
