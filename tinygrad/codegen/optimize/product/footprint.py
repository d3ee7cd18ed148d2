"""Stage the footprint of sliding windows in scratch memory, padding included.

Before: an operand of a contraction is a load of `image[c, y + ky, x + kx]`, masked where a sum lies
outside of the image. After: an unmasked load from scratch memory; a nest fills it once per image,
over `c` and the range of values of each sum, padding included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from tinygrad.codegen.analysis.accesses import condition_of, index_of
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
MIN_REUSE = 4
# columns that typically share a load of a row
COLUMNS = 32


@dataclass
class _WindowSum:
    """A sum of loop counters that conditions compare: its terms, minimum, number of values, and its
    stride in memory.
    """

    terms: dict[UOp, int]
    minimum: int
    size: int
    stride: int = 0

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
    windows = _find_windows(load)
    if windows is None:
        return None
    sums, rest = windows
    windowed = {r for s in sums for r in s.terms}
    inside = [r for r in reduction if r in rest.terms]
    size = math.prod(extent(r) for r in inside) * math.prod(s.size for s in sums)
    outside = frozenset(rest.terms).difference(inside)
    reads, limit = points(FreeRanges()[load]), MAX_FOOTPRINT_BYTES
    reduced = windowed.intersection(reduction)
    if points(windowed - reduced) > points(reduced):
        # output rows, which are read again for each block of columns
        reads, limit = max(reads, products // COLUMNS), MAX_ROWS_FOOTPRINT_BYTES
    if size * load.dtype.itemsize > limit:
        return None
    if reads < MIN_REUSE * size * points(outside):
        return None
    return Footprint(_stage(load, rest, sums, inside, factory, number), outside)


def _find_windows(load: UOp) -> tuple[list[_WindowSum], Affine] | None:
    """The sums that the condition of a masked load compares, and the rest of its index: plain loops
    that no sum has. None for any other load.
    """
    valid = condition_of(load)
    if valid is None or len(load.src) != 2 or load.src[1].op is not Ops.CONST:
        return None
    sums = _sums(_comparisons(valid) or [])
    rest = affine(index_of(load))
    for s in sums or ():
        s.stride = _subtract_multiple(rest, s)
    if not sums or any(s.stride == 0 for s in sums):
        return None
    windowed = {r for s in sums for r in s.terms}
    if any(r.op is not Ops.RANGE or r in windowed or not is_static(r) for r in rest.terms):
        return None
    return sums, rest


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
    rest: Affine,
    sums: list[_WindowSum],
    inside: list[UOp],
    factory: RangeFactory,
    number: int,
) -> UOp:
    """The load from scratch memory, after the nest that fills it over the loops `inside` and all
    values of the sums.
    """
    steps = [factory.new(s.size, AxisType.REDUCE) for s in sums]
    value = _load_of_steps(load, rest, sums, steps)
    # the innermost axis is the one that is contiguous in memory
    order = sorted(zip(steps, sums, strict=True), key=lambda pair: -abs(pair[1].stride))
    axes = [*inside, *[step for step, _ in order]]
    size = math.prod(extent(r) for r in axes)
    scratch = UOp(Ops.DEFINE_LOCAL, load.dtype.ptr(size, AddrSpace.LOCAL), (), number)
    fill = fill_nest(scratch, value, axes, factory, 0)
    # where it is read, a step is the value of its sum
    place = affine(row_major_index(axes))
    for step, s in order:
        scale = place.terms.pop(step)
        shifted = affine(s.as_index())
        place.constant += scale * shifted.constant
        for r, c in shifted.terms.items():
            place.add(r, scale * c)
    return scratch.after(fill).index(build_affine(place)).load(dtype=load.dtype)


def _load_of_steps(load: UOp, rest: Affine, sums: list[_WindowSum], steps: list[UOp]) -> UOp:
    """The load with each sum replaced by a step, from its minimum on; `rest` is the other index."""
    pointer, _, valid = load.src[0].src
    position = Affine(rest.constant, dict(rest.terms))
    for s, step in zip(sums, steps, strict=True):
        position.add(step, s.stride)
        position.constant += s.stride * s.minimum
    conditions = [_compare_step(x, sums, steps) for x in _comparisons(valid) or ()]
    return pointer.index(build_affine(position), and_conditions(*conditions)).load(load.src[1])


def _compare_step(comparison: UOp, sums: list[_WindowSum], steps: list[UOp]) -> UOp:
    """A comparison of the loop counter that replaces its sum."""
    plain, form = _compared(comparison)
    for (s, step), sign in product(zip(sums, steps, strict=True), (1, -1)):
        if form.terms != {r: sign * c for r, c in s.terms.items()}:
            continue
        difference = Affine(form.constant + sign * s.minimum, {step: sign})
        less = build_affine(difference).alu(Ops.CMPLT, index_const(0))
        if plain is comparison:
            return less
        return UOp(comparison.op, comparison.dtype, (less, comparison.src[1]))
    raise AssertionError("every comparison compares one of the sums")
