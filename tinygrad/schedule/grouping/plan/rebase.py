"""Rebasing: pass a kernel the range of rows that it reads, instead of the whole array.

Before: `PARAM(100, 4)`, an array of which the kernel reads rows 10 and 11. After: `PARAM(2, 4)`, a
slice of these rows. So kernels that read different rows in the same way, as those of an unrolled
loop over rows, are equal and compiled once. Invariant: a kernel accesses the same elements.
"""

from __future__ import annotations

from tinygrad.caches import cached_function
from tinygrad.helpers import all_int, prod
from tinygrad.schedule.execution_plan import Slices
from tinygrad.schedule.grouping.plan.unit import Unit
from tinygrad.uop import Ops
from tinygrad.uop.ops import ParamArg, UOp


def rebase_params(unit: Unit) -> None:
    """Narrow the arguments that a unit reads at a range of rows."""
    stores, rows = _rebased(tuple(unit.stores))
    unit.stores[:] = stores
    for param, (first, last) in rows.items():
        slot = param.arg.slot
        unit.params[slot] = _narrowed(unit.params[slot], param, first, last)


@cached_function(4096)
def _rebased(stores: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], dict[UOp, tuple[int, int]]]:
    """The stores of a kernel with narrow arguments, and the rows of those that became narrow."""
    reads: dict[UOp, list[UOp]] = {}
    for node in UOp.sink(*stores).toposort():
        for x in node.src:
            if x.op is Ops.PARAM:
                reads.setdefault(x, []).append(node)
    rows = {param: found for param, users in reads.items() if (found := _rows(param, users))}
    table: dict[UOp, UOp] = {}
    for param, (first, last) in rows.items():
        shape = (last - first, *param.shape[1:])
        narrow = param.replace(arg=ParamArg(param.arg.slot, shape))
        for user in reads[param]:
            (start, end), *others = user.arg
            bounds = ((start - first, end - first), *others)
            table[user] = user.replace(src=(narrow,), arg=bounds)
    return UOp.sink(*stores).substitute(table).src, rows


def _rows(param: UOp, users: list[UOp]) -> tuple[int, int] | None:
    """The rows that a kernel reads of a PARAM; None for all of them, or if they are not known."""
    if not param.shape or not all_int(param.shape):
        return None
    if any(user.op is not Ops.SHRINK or not all_int(user.arg[0]) for user in users):
        return None
    first, last = min(u.arg[0][0] for u in users), max(u.arg[0][1] for u in users)
    return None if first >= last or (first, last) == (0, param.shape[0]) else (first, last)


def _narrowed(slices: Slices, param: UOp, first: int, last: int) -> Slices:
    row = prod(param.shape[1:])
    offset, size = first * row * param.dtype.itemsize, (last - first) * row
    return tuple(p._replace(offset=p.offset + offset, size=size) for p in slices)
