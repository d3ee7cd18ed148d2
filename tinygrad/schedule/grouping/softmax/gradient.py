"""Rewrite the row sum in the gradient of attention, so that it reads the output, not the scores.

Input and output: a per-device graph. With weights `w = exp / total` and the output
`out[i, d] = sum over j of w[i, j] * v[j, d]`, of which `g[i, d]` is the gradient:

    before:  sum over j of exp[i, j] * (sum over d of g[i, d] * v[j, d])
    after:   total[i] * sum over d of g[i, d] * out[i, d]

where the weights are divided by `total`. Both are equal, since the sums can be exchanged. The
second needs no pass over the scores: with 2,048 keys and heads of 64, it has 64 multiply-adds for
each row instead of 2,048 * 65. It is the row sum D of FlashAttention (arXiv:2205.14135, algorithm
4).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tinygrad.schedule.grouping.softmax.linear_steps import (
    Step,
    divisors,
    linear_path,
    linear_steps,
)
from tinygrad.schedule.grouping.softmax.replace_everywhere import replace_everywhere
from tinygrad.schedule.grouping.softmax.score_axes import factors, moved, roles_of_product
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def reuse_products(sink: UOp) -> UOp:
    """Rewrite all such sums below `sink`."""
    nodes = sink.toposort()
    if not any(u.op in GroupOp.Exponential for u in nodes):
        return sink
    # only MUL and REDUCE_AXIS are looked up as users
    users: dict[UOp, list[UOp]] = {}
    for node in nodes:
        if node.op is Ops.MUL or node.op is Ops.REDUCE_AXIS:
            for x in dict.fromkeys(node.src):
                users.setdefault(x, []).append(node)
    table: dict[UOp, UOp] = {}
    for exponential in nodes:
        if exponential.op in GroupOp.Exponential:
            products = [x for x in users.get(exponential, ()) if x.op is Ops.MUL]
            for total, product in itertools.product(_row_sums(exponential, users), products):
                _add_sum(product, exponential, total, users, table)
    return replace_everywhere(sink, table) if table else sink


def _row_sums(node: UOp, users: dict[UOp, list[UOp]]) -> list[UOp]:
    """The sums of a node over one axis."""
    found = (x for x in users.get(node, ()) if x.op is Ops.REDUCE_AXIS)
    return [x for x in found if x.arg.op is Ops.ADD and len(x.arg.axes) == 1]


def _add_sum(
    product: UOp,
    exponential: UOp,
    total: UOp,
    users: dict[UOp, list[UOp]],
    table: dict[UOp, UOp],
) -> None:
    """Add the replacement of the row sum of `product`, an exponential times the gradient of the
    weights, if the output was computed from the same weights.
    """
    sums = [x for x in _row_sums(product, users) if x.arg == total.arg]
    if not sums:
        return
    other = product.src[1] if product.src[0] is exponential else product.src[0]
    for gradient in _products_below(other):
        steps = linear_steps(other, gradient)
        key = None if steps is None else _reduced_axis(gradient, other, total)
        if steps is None or key is None:
            continue
        found = _output(gradient, exponential, total, steps, key, users)
        if found is not None:
            output, upstream, divisor = found
            row_sum = (upstream * output).r(Ops.ADD, gradient.arg.axes)
            value = divisor.reshape(total.shape) * row_sum.reshape(total.shape).cast(total.dtype)
            table.update((x, value.reshape(x.shape)) for x in sums)


def _products_below(root: UOp) -> Iterator[UOp]:
    """The sums of products in an expression, outside of other reductions."""
    for node in root.toposort(gate=lambda u: u.op is not Ops.REDUCE_AXIS):
        if factors(node) is not None:
            yield node


def _reduced_axis(gradient: UOp, other: UOp, total: UOp) -> int | None:
    """The axis of `gradient`, from which `other` is computed, that `total` reduces."""
    roles = found = roles_of_product(gradient)
    path = linear_path(other, gradient)
    for below, node in itertools.pairwise(path):
        found = moved(found, below, node)
    if roles is None or found is None:
        return None
    role = found[total.arg.axes[0]]
    axes = [i for i, x in enumerate(roles) if x == role]
    return axes[0] if role and len(axes) == 1 else None


def _output(
    gradient: UOp,
    exponential: UOp,
    total: UOp,
    steps: list[Step],
    key: int,
    users: dict[UOp, list[UOp]],
) -> tuple[UOp, UOp, UOp] | None:
    """The output, the product of the weights with the values in `gradient`, its gradient, and what
    the weights are divided by; None if no such product has the same weights.
    """
    pair = factors(gradient)
    assert pair is not None, "the gradient of the weights is a product"
    for values, upstream in (pair, pair[::-1]):
        for output, weight in _products_with(values, users):
            if output.arg.axes != (key,) or output.shape != upstream.src[0].shape:
                continue
            mine = linear_steps(weight, exponential, total)
            found = [] if mine is None else divisors(mine)
            if mine is None or len(found) != 1:
                continue
            if sorted(map(id, _operands(mine))) == sorted(map(id, _operands(steps))):
                return output, upstream.src[0], found[0]
    return None


def _products_with(values: UOp, users: dict[UOp, list[UOp]]) -> Iterator[tuple[UOp, UOp]]:
    """The sums of products with `values`, each with its other factor."""
    for output in (x for product in users.get(values, ()) for x in users.get(product, ())):
        pair = factors(output)
        if pair is not None and values in pair:
            yield output, pair[0] if pair[1] is values else pair[1]


def _operands(steps: list[Step]) -> list[object]:
    """The ops and operands of all steps but the division, which identify the multiple."""
    return [x for step in steps if step[0] is not Ops.RECIPROCAL for x in step]
