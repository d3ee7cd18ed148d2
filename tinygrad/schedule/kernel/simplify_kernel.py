"""Rewrite rules of kernel graphs: indices and conditions are simplified, nested reductions merged.

Input and output: a kernel graph. Invariant: every store writes the same values to the same
addresses, except that a product may skip the condition of one factor whose load is in bounds.
"""

from __future__ import annotations

from typing import cast

from tinygrad.dtype import PtrDType
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import PatternMatcher, graph_rewrite
from tinygrad.uop.symbolic import symbolic
from tinygrad.uop.upat import UPat


def conjuncts(condition: UOp | None) -> frozenset[UOp]:
    """The operands of a conjunction of conditions; none for None, which is true."""
    if condition is None:
        return frozenset()
    if condition.op is Ops.AND:
        return conjuncts(condition.src[0]) | conjuncts(condition.src[1])
    return frozenset({condition})


def vanishes(value: UOp, needed: frozenset[UOp]) -> bool:
    """Whether the value is 0 unless all of `needed` hold, because every load below is."""
    if value.op is Ops.LOAD:
        if len(value.src) != 2 or value.src[1].op is not Ops.CONST or value.src[1].arg != 0:
            return False
        return needed <= conjuncts(value.src[0].src[2])
    if value.op in {Ops.MUL, Ops.ADD, Ops.CAST, Ops.MAX}:
        return all(vanishes(x, needed) for x in value.src)
    return False


def in_bounds(load: UOp) -> bool:
    """Whether the address of a load lies in its buffer even where its condition is false."""
    pointer, index = load.src[0].src[:2]
    return bool(index.vmin >= 0 and index.vmax < cast(PtrDType, pointer.dtype).size)


def drop_redundant_condition(value: UOp) -> UOp:
    """A product of two loads under one condition, without the condition of the load that is always
    in bounds: the other factor is 0 where the condition is false.

    Deviation: an infinity or NaN in the unconditional factor yields NaN in place of 0.
    """
    if value.op is not Ops.MUL:
        return value
    loads = [x.src[0] if x.op is Ops.CAST else x for x in value.src]
    free = [x for x in loads if x.op is Ops.LOAD and len(x.src) == 2 and in_bounds(x)]
    if len(free) != 1 or any(x.op is not Ops.LOAD for x in loads):
        return value
    pointer, index, _ = free[0].src[0].src
    return value.substitute({free[0]: pointer.index(index).load(dtype=free[0].dtype)})


def _merge_reduces(outer: UOp, inner: UOp) -> UOp | None:
    if outer.arg is not inner.arg:
        return None
    return inner.src[0].reduce(*outer.src[1:], *inner.src[1:], arg=outer.arg)


def _merge_masked_reduces(outer: UOp, inner: UOp, condition: UOp, zero: UOp) -> UOp | None:
    if outer.arg is not Ops.ADD or inner.arg is not Ops.ADD or zero.arg != 0:
        return None
    if not set(inner.src[1:]).isdisjoint(condition.toposort()):
        return None
    value = inner.src[0]
    if vanishes(value, conjuncts(condition)):
        value = drop_redundant_condition(value)
    else:
        value = condition.where(value, value.const_like(0))
    return value.reduce(*outer.src[1:], *inner.src[1:], arg=Ops.ADD)


def _drop_mask(reduce: UOp, condition: UOp, value: UOp, zero: UOp) -> UOp | None:
    if reduce.arg is not Ops.ADD or zero.arg != 0 or not vanishes(value, conjuncts(condition)):
        return None
    return reduce.replace(src=(drop_redundant_condition(value), *reduce.src[1:]))


# nested sums are one sum over both loops, also where the inner one is padded with zeros
nested_reduces = PatternMatcher(
    [
        (
            UPat(
                Ops.REDUCE, src=(UPat(Ops.REDUCE, name="inner"),), name="outer", allow_any_len=True
            ),
            _merge_reduces,
        ),
        (
            UPat(
                Ops.REDUCE,
                src=(
                    UPat(
                        Ops.WHERE,
                        src=(
                            UPat.var("condition"),
                            UPat(Ops.REDUCE, name="inner"),
                            UPat.cvar("zero"),
                        ),
                    ),
                ),
                name="outer",
                allow_any_len=True,
            ),
            _merge_masked_reduces,
        ),
    ],
    pure=True,
)
# a sum needs no mask of terms that are zero where they are masked
masked_sums = PatternMatcher(
    [
        (
            UPat(
                Ops.REDUCE,
                src=(
                    UPat(
                        Ops.WHERE,
                        src=(UPat.var("condition"), UPat.var("value"), UPat.cvar("zero")),
                    ),
                ),
                name="reduce",
                allow_any_len=True,
            ),
            _drop_mask,
        )
    ],
    pure=True,
)
simplify_indices = symbolic + nested_reduces + masked_sums


def simplify_kernel(kernel: UOp) -> UOp:
    """Simplify the indices and conditions of a kernel graph, and merge its nested reductions."""
    return graph_rewrite(kernel, simplify_indices, name="simplify indices")
