"""Let the roles of a block's threads follow each other without anything in between.

Before: a linear program whose values are hoisted as far as possible, so that some that only a later
role uses are computed by all threads, between it and the role before. After: that role computes
them. A renderer can then write roles as branches of one statement.
"""

from __future__ import annotations

from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


def join_roles(linear: list[UOp]) -> list[UOp]:
    """The program with what is between two roles inside of the later one."""
    result: list[UOp] = []
    between: list[UOp] = []
    is_between = False
    for u in linear:
        if _is_role(u) and is_between:
            # its own sources, which are constants, come before
            needed = u.toposort()
            result += [x for x in between if x in needed]
            between = [x for x in between if x not in needed]
            result += [u, *between]
            between, is_between = [], False
        elif u.op is Ops.END and _is_role(u.src[0]):
            result.append(u)
            is_between = True
        elif is_between:
            between.append(u)
        else:
            result.append(u)
    return result + between


def _is_role(u: UOp) -> bool:
    return u.op is Ops.RANGE and u.arg.kind is AxisType.ROLE
