"""Split a loop into two (strip mining), for any size.

Before: `for r in n`. After: `for outer in ceil(n / f): for inner in f`, with `r` replaced by:

- exact: `outer * f + inner`, where f divides n.
- overlap: the same, but the last block starts at `n - f` and repeats some steps of the previous
  one. No access is masked, but the stores must be idempotent.
- masked: `outer * f + inner`; every load, store and reduction that depends on it is masked.
- bounded: `outer * f + inner`; the inner loop ends early in the last block.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from tinygrad.codegen.analysis.affine_index import and_conditions
from tinygrad.codegen.analysis.identity import identity_element
from tinygrad.codegen.analysis.ranges import RangeFactory, extent, is_static, loops_of, rebuild
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


class Fit(Enum):
    """The treatment of the last block where the factor does not divide the size."""

    OVERLAP = auto()
    MASKED = auto()
    BOUNDED = auto()


def split_axis(
    root: UOp,
    axis: UOp,
    factor: int,
    kind: AxisType,
    factory: RangeFactory,
    fit: Fit,
) -> tuple[UOp, UOp | None, UOp]:
    """Split `axis` everywhere below `root`; the inner loop, of `kind`, has `factor` steps.

    Returns the new root, the outer loop (None if it would have one step) and the inner one.
    """
    size = axis.src[0]
    static = is_static(axis)
    n = extent(axis)
    blocks = ceildiv(n, factor)
    exact = static and n % factor == 0
    outer: UOp | None = None
    if not static:
        count = UOp(Ops.IDIV, dtypes.index, (size + (factor - 1), UOp.const(dtypes.index, factor)))
        outer = factory.new(count, axis.arg.kind)
    elif blocks > 1:
        outer = factory.new(blocks, axis.arg.kind)
    start = UOp.const(dtypes.index, 0) if outer is None else outer * factor
    if fit is Fit.BOUNDED and not exact:
        # a minimum, so that the upper bound of the size is `factor`
        inner = factory.new((size - start).minimum(factor), kind)
    else:
        inner = factory.new(factor, kind)
    condition: UOp | None = None
    if not exact and fit is Fit.OVERLAP:
        assert static and n >= factor, "an overlapping split needs a full block"
        assert outer is not None
        last = UOp.const(dtypes.index, n - factor)
        start = (outer < UOp.const(dtypes.index, blocks - 1)).where(start, last)
    elif not exact and fit is Fit.MASKED:
        condition = inner < (size - start if outer is not None else size)
    position = start + inner if outer is not None else inner
    loops = tuple(r for r in (outer, inner) if r is not None)
    return replace_axis(root, axis, position, loops, condition), outer, inner


def replace_axis(
    root: UOp, axis: UOp, position: UOp, loops: tuple[UOp, ...], condition: UOp | None = None
) -> UOp:
    """Replace `axis` by `position`, and by `loops` in the nests that run it.

    Where `condition` is false, nothing that depends on the axis is loaded, stored or reduced.
    """
    done: dict[UOp, UOp] = {}
    dependent: set[UOp] = {axis}
    for u in root.toposort():
        if u is axis:
            done[u] = position
            continue
        src = tuple([done[x] for x in u.src])
        run = loops_of(u)
        if axis in run:
            operands = src[: len(src) - len(run)]
            swapped: Iterable[UOp] = (r for x in run for r in (loops if x is axis else (done[x],)))
            src = (*operands, *swapped)
        elif dependent.isdisjoint(u.src):
            done[u] = u if src == u.src else rebuild(u, src)
            continue
        if axis not in run:
            dependent.add(u)
        if condition is not None:
            src = _guard(u, src, axis, condition)
        done[u] = u if src == u.src else rebuild(u, src)
    return done[root]


def _guard(u: UOp, src: tuple[UOp, ...], axis: UOp, condition: UOp) -> tuple[UOp, ...]:
    """The sources of a load, store or reduction over `axis`, masked by the condition."""
    if u.op is Ops.REDUCE and axis in loops_of(u):
        other = identity_element(u.arg, u.dtype)
        return (UOp(Ops.WHERE, u.dtype, (condition, src[0], other)), *src[1:])
    if u.op is Ops.LOAD and len(src) == 1:
        return (src[0], UOp.const(u.dtype, 0))
    if u.op is Ops.INDEX:
        valid = and_conditions(condition, *src[2:])
        return (*src[:2], valid)
    return src
