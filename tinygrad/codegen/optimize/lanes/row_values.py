"""Keep expensive values of a row that a reduction and the outputs both need.

Before: `store(exp(x[i, j] - m) / sum over k of exp(x[i, k] - m))`, as in a softmax. After: a nest
computes the exponentials of row i once, vectorized, into scratch memory, which stays in a cache;
the sum and the outputs read them there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tinygrad.codegen.analysis.alpha_equivalence import is_alpha_equivalent
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, loops_of, substitute
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.product.tiling import SLOW_OPERATIONS
from tinygrad.codegen.optimize.staging import stage
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

MAX_ROW_BYTES = 1 << 18
MIN_ROW = 64
"""A shorter row is computed twice in the time that storing it takes."""
FIRST_SCRATCH = 1 << 16
"""The first number of the scratch arrays, above those of products."""


def keep_row_values(nest: Nest, lanes: list[UOp]) -> None:
    """Stage the first expensive value that the nest computes for a reduction and for the outputs
    along one of its loops, both of which are to be `lanes`.
    """
    if len(nest.stores) != 1:
        return
    found = next((x for x in _shared_values(nest) if x[1] in lanes and x[3] in lanes), None)
    if found is None:
        return
    value, output, equal, reduced = found
    # loops have different numbers in all nests of a kernel
    number = FIRST_SCRATCH + int(output.arg.index)
    staged = stage(value, [output], nest.factory, number)
    again = substitute(staged, {output: reduced})
    nest.root = nest.root.substitute({value: staged, equal: again})
    nest.note(f"row values of loop {output.arg.index} kept")


def _shared_values(nest: Nest) -> Iterator[tuple[UOp, UOp, UOp, UOp]]:
    """Values of outputs and the loop that they lie along, with the equal values of a reduction and
    its loop.
    """
    (store,) = nest.stores
    free = FreeRanges()
    outside = store.src[1].toposort(gate=lambda u: u.op is not Ops.REDUCE)
    reduces = [u for u in outside if u.op is Ops.REDUCE and len(u.src) == 2]
    expensive = [u for u in outside if u.op in SLOW_OPERATIONS]
    for value, reduce in itertools.product(expensive, reduces):
        reduced = reduce.src[1]
        own = [r for r in loops_of(store) if r in free[value] and r not in free[reduce]]
        if len(own) != 1 or own[0].src != reduced.src or not MIN_ROW <= extent(reduced):
            continue
        if extent(reduced) * value.dtype.itemsize > MAX_ROW_BYTES:
            continue
        for equal in reduce.src[0].toposort():
            if equal.op is value.op and is_alpha_equivalent(value, equal, {own[0]: reduced}):
                yield value, own[0], equal, reduced
