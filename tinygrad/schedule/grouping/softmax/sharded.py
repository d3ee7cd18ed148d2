"""Attention with sharded keys: each device subtracts the maximum of its own scores.

Input and output: a per-device graph. Before: exponentials of local scores minus the maximum of all
devices. Sums and products of them wait for an all-reduce; meanwhile the scores are stored, or they
are computed twice. After: with the maximum of the device's own scores, and a factor for each row,

    exp(score - max) = exp(score - local) * factor,    factor = exp(local - max)

The factor, like everything that has one value a row, is hoisted out of the sums over keys. So one
kernel computes local maxima, sums and products (`chains.py`), and devices exchange only these.

Example: the largest scores of a row are 3 on device 0 and 5 on device 1. Device 0 computes
`sum(exp(score - 3))` and multiplies it by exp(-2), device 1 `sum(exp(score - 5))`, times 1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tinygrad.schedule.grouping.softmax.linear_steps import is_clamped, is_linear, linear_path
from tinygrad.schedule.grouping.softmax.replace_everywhere import replace_everywhere
from tinygrad.schedule.grouping.softmax.score_axes import KEEPS_ORDER, Roles, broadcast_axes, moved
from tinygrad.schedule.storage_views import is_storage
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reduction import lowest

_MOVES = KEEPS_ORDER | {Ops.EXPAND, Ops.CAST}
_EXCHANGES = frozenset({Ops.TRANSFER, Ops.PEER, Ops.PIECE})
_ALL_REDUCES = KEEPS_ORDER | _EXCHANGES | {*(Ops.CONTIGUOUS, Ops.SHRINK, Ops.PAD)}
MIN_SUM_BYTES = 4
"""Sums of narrower dtypes may overflow before they are multiplied with the factor of their row."""


@dataclass(frozen=True)
class _LocalSoftmax:
    """An exponential as a product of `local`, which needs no communication, and of `factor`, with
    one value for each row.
    """

    local: UOp
    factor: UOp


def split_sharded_softmax(sink: UOp) -> UOp:
    """Rewrite every softmax over a sharded axis below `sink`."""
    nodes = sink.toposort()
    if not any(u.op in GroupOp.Exponential for u in nodes):
        return sink
    found: dict[UOp, _LocalSoftmax] = {}
    for node in nodes:
        softmax = _local_softmax(node) if node.op in GroupOp.Exponential else None
        if softmax is not None:
            found[node] = softmax
    if not found:
        return sink
    table = {u: x.local * x.factor.expand(u.shape) for u, x in found.items()}
    # for each node that is a multiple of one of the exponentials, that exponential
    below: dict[UOp, UOp] = {}
    for node in nodes:
        if node in found:
            below[node] = node
        elif node.op is Ops.REDUCE_AXIS:
            if node.arg.op is Ops.ADD and node.src[0] in below:
                _hoist_factors(node, below[node.src[0]], found, table)
        elif not is_storage(node):
            sides = [i for i, x in enumerate(node.src) if x in below]
            if len(sides) == 1 and (node.op in _MOVES or is_linear(node, sides[0])):
                below[node] = below[node.src[sides[0]]]
    return replace_everywhere(sink, table)


def _local_softmax(exponential: UOp) -> _LocalSoftmax | None:
    """The parts of `exp((scores - maximum) * c)`, where the maximum is exchanged."""
    argument, scale = exponential.src[0], None
    if argument.op is Ops.MUL and argument.src[1].op is Ops.CONST:
        argument, scale = argument.src
    pair = _scores_and_maximum(argument)
    if pair is None:
        return None
    scores, maximum = pair
    local = _local_maximum(maximum, scores)
    if local is None or local.shape != maximum.shape:
        return None
    # a row whose keys on this device are all masked: with a finite maximum its exponentials are 0,
    # where -inf - -inf would be NaN
    local = local.alu(Ops.MAX, UOp.const(local.dtype, lowest(local.dtype)))

    def exponential_of(difference: UOp) -> UOp:
        argument = difference if scale is None else difference * scale
        return exponential.replace(src=(argument,))

    return _LocalSoftmax(
        exponential_of(scores - local.expand(scores.shape)), exponential_of(local - maximum)
    )


def _scores_and_maximum(difference: UOp) -> tuple[UOp, UOp] | None:
    """`x` and `y` of `x - y`, where y is broadcast along one axis."""
    if difference.op not in {Ops.SUB, Ops.ADD}:
        return None
    scores, other = difference.src
    if difference.op is Ops.ADD:
        if other.op is not Ops.MUL or other.src[1].op is not Ops.CONST or other.src[1].arg != -1:
            return None
        other = other.src[0]
    return (scores, other.src[0]) if len(broadcast_axes(other)) == 1 else None


def _local_maximum(maximum: UOp, scores: UOp) -> UOp | None:
    """The maximum of the device's own `scores` that an all-reduce of maxima started with."""
    node = maximum
    is_exchanged = False
    while node.src and node.src[0] is not scores:
        is_maximum = node.op is Ops.REDUCE_AXIS and node.arg.op is Ops.MAX
        is_inside = node.op in _ALL_REDUCES or is_clamped(node)
        if not is_inside and not is_maximum and not _is_maximum_of_peers(node):
            return None
        is_exchanged |= node.op in _EXCHANGES
        node = node.src[0]
    is_maximum = node.op is Ops.REDUCE_AXIS and node.arg.op is Ops.MAX
    return node if is_exchanged and is_maximum and len(node.arg.axes) == 1 else None


def _is_maximum_of_peers(node: UOp) -> bool:
    """Whether a node is the maximum of one value of several devices."""
    values = {x.src for x in _maxima(node)}
    return len(values) == 1 and all(x.op in {Ops.PEER, Ops.PIECE} for x in _maxima(node))


def _maxima(node: UOp) -> list[UOp]:
    """The operands of nested maxima."""
    return [x for s in node.src for x in _maxima(s)] if node.op is Ops.MAX else [node]


def _hoist_factors(
    total: UOp, exponential: UOp, found: dict[UOp, _LocalSoftmax], table: dict[UOp, UOp]
) -> None:
    """Add the replacement of a sum over keys: everything with one value a row multiplies the sum,
    not its elements.
    """
    if len(total.arg.axes) != 1 or total.dtype.itemsize < MIN_SUM_BYTES:
        return
    softmax = found[exponential]
    value, factor = softmax.local, softmax.factor.expand(exponential.shape)
    keys = broadcast_axes(factor)
    roles: Roles | None = tuple(1 if i in keys else 2 for i in range(factor.ndim))
    is_moved = False
    for below, node in itertools.pairwise(linear_path(total.src[0], exponential)):
        roles = moved(roles, below, node)
        if node.op is Ops.CAST:
            # the factor is rounded once, with the result
            value = node.with_sources((value,))
        elif node.op in _MOVES:
            is_moved = True
            value, factor = (node.with_sources((x,)) for x in (value, factor))
        elif not is_moved and node.op is not Ops.WHERE and _is_of_rows(node, below, keys):
            factor = node.with_sources(tuple(factor if x is below else x for x in node.src))
        else:
            value = node.with_sources(tuple(value if x is below else x for x in node.src))
    (axis,) = total.arg.axes
    if roles is not None and roles[axis] == 1:
        bounds = tuple((0, 1 if i == axis else d) for i, d in enumerate(factor.shape))
        table[total] = total.with_sources((value,)) * factor.shrink(bounds).cast(total.dtype)


def _is_of_rows(node: UOp, below: UOp, keys: tuple[int, ...]) -> bool:
    """Whether the operand of a node that is not `below` has one element for each row."""
    return any(set(keys) <= set(broadcast_axes(x)) for x in node.src if x is not below)
