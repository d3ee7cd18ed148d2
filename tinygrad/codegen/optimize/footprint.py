"""Stage the footprint of sliding windows in scratch memory, padding included.

Before: an operand of a contraction is a load of `image[c, y + ky, x + kx]`, masked where a sum lies
outside of the image. After: an unmasked load from scratch memory; a nest fills it once per image,
over `c` and the range of values of each sum, padding included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygrad.codegen.analysis.affine_index import (
    Affine,
    affine,
    and_conditions,
    build_affine,
    index_const,
)
from tinygrad.codegen.analysis.ranges import FreeRanges, RangeFactory, extent, is_static
from tinygrad.codegen.optimize.nest import points
from tinygrad.codegen.optimize.staging import fill_nest, row_major_index
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# maximum footprint of windows along reduction axes, which shares a core's second-level cache
MAX_FOOTPRINT_BYTES = 1 << 18
# and of windows along output rows, which are read in order
MAX_ROWS_FOOTPRINT_BYTES = 1 << 20
# minimum reads per element, below which masks cost less than staging
MIN_REUSE = 8
# columns that typically share a load of a row
COLUMNS = 32


@dataclass
class _WindowSum:
    """A sum of loop counters that conditions compare: its terms, minimum and number of values."""

    terms: dict[UOp, int]
    minimum: int
    size: int

    def as_index(self) -> UOp:
        """The sum, shifted to start at 0."""
        return build_affine(Affine(-self.minimum, dict(self.terms)))


@dataclass
class Footprint:
    """The load from scratch memory, and the loops that enclose the nest that fills it."""

    load: UOp
    outside: frozenset[UOp]


def find_footprint(
    load: UOp, reduction: tuple[UOp, ...], products: int, factory: RangeFactory, number: int
) -> Footprint | None:
    """The staged form of `load` in scratch memory number `number`, or None if it does not pay.

    `reduction` are the reduction loops of the contraction, which has so many `products`.
    """
    if len(load.src) != 2 or load.src[1].op is not Ops.CONST or len(load.src[0].src) != 3:
        return None
    pointer, position, valid = load.src[0].src
    comparisons = _comparisons(valid)
    sums = None if comparisons is None else _sums(comparisons)
    if not comparisons or not sums:
        return None
    rest = affine(position)
    scales = [_subtract_multiple(rest, s) for s in sums]
    loops = list(rest.terms)
    used = {r for s in sums for r in s.terms}
    if 0 in scales or any(r.op is not Ops.RANGE or r in used or not is_static(r) for r in loops):
        return None
    own = [r for r in reduction if r in loops]
    size = math.prod(extent(r) for r in own) * math.prod(s.size for s in sums)
    outside = frozenset(loops).difference(own)
    reads, limit = points(FreeRanges()[load]), MAX_FOOTPRINT_BYTES
    reduced = used.intersection(reduction)
    if points(frozenset(used - reduced)) > points(frozenset(reduced)):
        # output rows, which are read again for each block of columns
        reads, limit = max(reads, products // COLUMNS), MAX_ROWS_FOOTPRINT_BYTES
    if size * load.dtype.itemsize > limit:
        return None
    if reads < MIN_REUSE * size * points(outside):
        return None
    return _stage(load, pointer, rest, list(zip(sums, scales, strict=True)), own, factory, number)


def _comparisons(valid: UOp) -> list[UOp] | None:
    """The comparisons, possibly negated, whose AND is `valid`; None for any other form."""
    if valid.op is Ops.AND:
        found: list[UOp] = []
        for x in valid.src:
            inner = _comparisons(x)
            if inner is None:
                return None
            found += inner
        return found
    plain = valid
    if valid.op is Ops.CMPNE and valid.src[1].op is Ops.CONST and valid.src[0].dtype is dtypes.bool:
        plain = valid.src[0]
    if plain.op is Ops.CMPLT and plain.src[0].dtype is dtypes.index:
        return [valid]
    return None


def _compared(comparison: UOp) -> tuple[UOp, Affine]:
    """The CMPLT of a comparison, and the difference of its sides."""
    plain = comparison.src[0] if comparison.op is Ops.CMPNE else comparison
    return plain, affine(plain.src[0] - plain.src[1])


def _sums(comparisons: list[UOp]) -> list[_WindowSum] | None:
    """The distinct sums of loop counters that are compared with constants."""
    found: list[_WindowSum] = []
    for comparison in comparisons:
        form = _compared(comparison)[1].terms
        negated = {r: -c for r, c in form.items()}
        if any(r.op is not Ops.RANGE or not is_static(r) for r in form):
            return None
        if any(s.terms in (form, negated) for s in found):
            continue
        if any(r in s.terms for s in found for r in form):
            return None
        value = build_affine(Affine(0, dict(form)))
        low, high = int(value.vmin), int(value.vmax)
        found.append(_WindowSum(dict(form), low, high - low + 1))
    return found


def _subtract_multiple(rest: Affine, part: _WindowSum) -> int:
    """Subtract a multiple of `part` from `rest`; returns the multiple, or 0 if it does not fit."""
    first = next(iter(part.terms))
    scale, left = divmod(rest.terms.get(first, 0), part.terms[first])
    if left:
        return 0
    for r, c in part.terms.items():
        rest.add(r, -scale * c)
    return scale


def _stage(
    load: UOp,
    pointer: UOp,
    rest: Affine,
    sums: list[tuple[_WindowSum, int]],
    own: list[UOp],
    factory: RangeFactory,
    number: int,
) -> Footprint:
    """The load from scratch memory, after the nest that fills it."""
    steps = [factory.new(s.size, AxisType.REDUCE) for s, _ in sums]
    position = Affine(rest.constant, dict(rest.terms))
    for (s, scale), step in zip(sums, steps, strict=True):
        position.add(step, scale)
        position.constant += scale * s.minimum
    conditions: list[UOp] = []
    for comparison in _comparisons(load.src[0].src[2]) or []:
        conditions.append(_compare_step(comparison, [s for s, _ in sums], steps))
    address = pointer.index(build_affine(position), and_conditions(*conditions))
    value = address.load(load.src[1])
    # the innermost axis is the one that is contiguous in memory
    order = sorted(zip(steps, sums, strict=True), key=lambda pair: -abs(pair[1][1]))
    axes = [*own, *[step for step, _ in order]]
    size = math.prod(extent(r) for r in axes)
    scratch = UOp(Ops.DEFINE_LOCAL, load.dtype.ptr(size, AddrSpace.LOCAL), (), number)
    fill = fill_nest(scratch, value, axes, factory, 0)
    ready = UOp(Ops.AFTER, scratch.dtype, (scratch, fill))
    place = row_major_index(axes)
    form = affine(place)
    for step, (s, _) in order:
        scale = form.terms.pop(step)
        shifted = affine(s.as_index())
        form.constant += scale * shifted.constant
        for r, c in shifted.terms.items():
            form.add(r, scale * c)
    return Footprint(
        ready.index(build_affine(form)).load(dtype=load.dtype),
        frozenset(r for r in rest.terms if r not in own),
    )


def _compare_step(comparison: UOp, sums: list[_WindowSum], steps: list[UOp]) -> UOp:
    """A comparison of the loop counter that replaces its sum."""
    plain, form = _compared(comparison)
    for s, step in zip(sums, steps, strict=True):
        for sign in (1, -1):
            if form.terms == {r: sign * c for r, c in s.terms.items()}:
                difference = Affine(form.constant + sign * s.minimum, {step: sign})
                less = build_affine(difference).alu(Ops.CMPLT, index_const(0))
                if plain is comparison:
                    return less
                return UOp(comparison.op, comparison.dtype, (less, comparison.src[1]))
    raise AssertionError("every comparison compares one of the sums")
