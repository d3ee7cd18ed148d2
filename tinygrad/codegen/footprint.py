"""Copy what a window slides over to scratch memory, with its padding.

Before: a factor of a sum of products is a load at `image[c, y + ky, x + kx]`, valid where both sums
lie inside of the image. After: the load reads scratch memory without a condition; a store nest
fills it once for every image, over `c` and over all values that the two sums take, padding
included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygrad.codegen.nest import points
from tinygrad.codegen.ranges import (
    Affine,
    FreeRanges,
    RangeFactory,
    affine,
    build_affine,
    conjunction,
    extent,
    index_const,
    is_static,
)
from tinygrad.codegen.staging import fill_nest, position_of
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# what windows of terms read, in no order, next to all else in a core's second-level cache
FOOTPRINT_BYTES = 1 << 18
# and what windows of rows read, row by row
ROWS_FOOTPRINT_BYTES = 1 << 20
# each element has to be read this often, or conditions cost less than the copy
MIN_REUSE = 8
# about how many columns share what is read of a row
COLUMNS = 32


@dataclass
class _Sum:
    """A sum of loops that conditions are about: its terms, its least value, how many values it
    has."""

    terms: dict[UOp, int]
    least: int
    size: int

    def as_index(self) -> UOp:
        """The sum, counted from 0."""
        return build_affine(Affine(-self.least, dict(self.terms)))


@dataclass
class Footprint:
    """The load that reads scratch memory, and the loops that must stay outside of the nest that
    fills it."""

    load: UOp
    outside: frozenset[UOp]


def find_footprint(
    load: UOp, terms: tuple[UOp, ...], products: int, factory: RangeFactory, number: int
) -> Footprint | None:
    """The load from scratch memory number `number` that replaces `load`, or None if that is no
    gain.

    `terms` are the loops that are summed over, in so many `products`.
    """
    if len(load.src) != 2 or load.src[1].op is not Ops.CONST or len(load.src[0].src) != 3:
        return None
    pointer, position, valid = load.src[0].src
    comparisons = _comparisons(valid)
    sums = None if comparisons is None else _sums(comparisons)
    if not comparisons or not sums:
        return None
    rest = affine(position)
    scales = [_take_out(rest, s) for s in sums]
    loops = list(rest.terms)
    used = {r for s in sums for r in s.terms}
    if 0 in scales or any(r.op is not Ops.RANGE or r in used or not is_static(r) for r in loops):
        return None
    own = [r for r in terms if r in loops]
    size = math.prod(extent(r) for r in own) * math.prod(s.size for s in sums)
    outside = frozenset(loops).difference(own)
    reads, most = points(FreeRanges()[load]), FOOTPRINT_BYTES
    if points(frozenset(used.difference(terms))) > points(frozenset(used.intersection(terms))):
        # rows, which are read again for each block of columns
        reads, most = max(reads, products // COLUMNS), ROWS_FOOTPRINT_BYTES
    if size * load.dtype.itemsize > most:
        return None
    if reads < MIN_REUSE * size * points(outside):
        return None
    return _copied(load, pointer, rest, list(zip(sums, scales, strict=True)), own, factory, number)


def _comparisons(valid: UOp) -> list[UOp] | None:
    """The comparisons whose conjunction is `valid`, some of them negated; None if it is anything
    else."""
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
    """The CMPLT of a comparison, and its left side less its right side."""
    plain = comparison.src[0] if comparison.op is Ops.CMPNE else comparison
    return plain, affine(plain.src[0] - plain.src[1])


def _sums(comparisons: list[UOp]) -> list[_Sum] | None:
    """The distinct sums of loops that are compared with constants."""
    found: list[_Sum] = []
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
        found.append(_Sum(dict(form), low, high - low + 1))
    return found


def _take_out(rest: Affine, part: _Sum) -> int:
    """Subtract as many times `part` from `rest` as its terms appear; how many, or 0 if they
    differ."""
    first = next(iter(part.terms))
    scale, left = divmod(rest.terms.get(first, 0), part.terms[first])
    if left:
        return 0
    for r, c in part.terms.items():
        rest.add(r, -scale * c)
    return scale


def _copied(
    load: UOp,
    pointer: UOp,
    rest: Affine,
    sums: list[tuple[_Sum, int]],
    own: list[UOp],
    factory: RangeFactory,
    number: int,
) -> Footprint:
    """The nest that fills the scratch memory, and the load from it."""
    steps = [factory.new(s.size, AxisType.REDUCE) for s, _ in sums]
    position = Affine(rest.constant, dict(rest.terms))
    for (s, scale), step in zip(sums, steps, strict=True):
        position.add(step, scale)
        position.constant += scale * s.least
    conditions: list[UOp] = []
    for comparison in _comparisons(load.src[0].src[2]) or []:
        conditions.append(_restated(comparison, [s for s, _ in sums], steps))
    address = pointer.index(build_affine(position), conjunction(*conditions))
    value = address.load(load.src[1])
    # the innermost axis is the one that is contiguous in memory
    order = sorted(zip(steps, sums, strict=True), key=lambda pair: -abs(pair[1][1]))
    axes = [*own, *[step for step, _ in order]]
    size = math.prod(extent(r) for r in axes)
    scratch = UOp(Ops.DEFINE_LOCAL, load.dtype.ptr(size, AddrSpace.LOCAL), (), number)
    fill = fill_nest(scratch, value, axes, factory, 0)
    ready = UOp(Ops.AFTER, scratch.dtype, (scratch, fill))
    place = position_of(axes)
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


def _restated(comparison: UOp, sums: list[_Sum], steps: list[UOp]) -> UOp:
    """A comparison with the step that counts its sum in place of the sum."""
    plain, form = _compared(comparison)
    for s, step in zip(sums, steps, strict=True):
        for sign in (1, -1):
            if form.terms == {r: sign * c for r, c in s.terms.items()}:
                difference = Affine(form.constant + sign * s.least, {step: sign})
                less = build_affine(difference).alu(Ops.CMPLT, index_const(0))
                if plain is comparison:
                    return less
                return UOp(comparison.op, comparison.dtype, (less, comparison.src[1]))
    raise AssertionError("every comparison is about one of the sums")
