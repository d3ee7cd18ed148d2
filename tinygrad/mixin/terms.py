"""Gradients that stay terms, one on each device, until something reads what they add up to.

In: gradients about to be computed, inside of `Tensor.accumulate_gradients()`. Out: what to compute
in their place. Always true: a gradient is the same value in the same layout, whether its terms are
in memory or their sum is. As `allreduce(a) + allreduce(b)` is `allreduce(a + b)`, each device adds
up its terms of several passes, and the devices add up theirs for who reads the gradient.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tinygrad.mixin.core import TensorCore, live_tensors
from tinygrad.schedule.comm.simplify import simplify
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class _Blocks:
    """How many blocks that keep terms are being run."""

    count = 0


@contextmanager
def terms_kept() -> Iterator[None]:
    """While this block runs, realizing a gradient computes its terms."""
    _Blocks.count += 1
    try:
        yield
    finally:
        _Blocks.count -= 1


def parts_to_compute(tensors: Sequence[TensorCore]) -> list[UOp]:
    """What has to be in memory for `tensors` to be: themselves, but of a gradient its terms."""
    gradients = _gradients_among(tensors) if _Blocks.count else {}
    found = [x.uop for x in tensors if x not in gradients]
    if gradients:
        exact = [_sum(map(_without_rounding, x.uop.split_uop(Ops.ADD))) for x in gradients]
        # what is added up over devices comes to the top
        nodes = simplify(UOp.sink(*exact)).src
        for x, node in zip(gradients, nodes, strict=True):
            parts = _parts(node)
            x.uop = _sum(parts)
            found += [part.src[0] if _is_kept(part) else part for part in parts]
    return found


def _gradients_among(tensors: Iterable[TensorCore]) -> dict[TensorCore, None]:
    """Those on several devices that are the `grad` of a tensor."""
    spread = {x: None for x in tensors if isinstance(x.device, Sharding)}
    wanted = {x.grad for x in live_tensors} if spread else set()
    return {x: None for x in spread if x in wanted}


def _without_rounding(node: UOp) -> UOp:
    """What was added up over devices, not rounded to a narrower type and back, as mixed precision
    does with the gradient of each pass.
    """
    moved = []
    below = node
    while below.op in {Ops.CAST, Ops.RESHAPE, Ops.PERMUTE, Ops.COPY}:
        if below.op is not Ops.CAST:
            moved.append(below)
        below = below.src[0]
    if below.op is not Ops.ALLREDUCE or below.dtype != node.dtype:
        return node
    for x in reversed(moved):
        below = UOp(x.op, below.dtype, (below,), x.arg)
    return below


def _parts(node: UOp) -> list[UOp]:
    """The addends of a sum, but those of terms in one layout as one all-reduce, and the others as
    one addend.
    """
    found: dict[object, list[UOp]] = {}
    for x in node.split_uop(Ops.ADD):
        found.setdefault((x.arg, x.src[0].device) if _is_kept(x) else None, []).append(x)
    rest = found.pop(None, [])
    sums = [_sum(x.src[0] for x in alike).allreduce(alike[0].arg) for alike in found.values()]
    return [_sum(rest), *sums] if rest else sums


def _sum(addends: Iterable[UOp]) -> UOp:
    return functools.reduce(operator.add, addends)


def _is_kept(node: UOp) -> bool:
    """Whether this is a sum over devices of which a term is no larger than the result on each."""
    if node.op is not Ops.ALLREDUCE or not isinstance(node.arg, Sharding):
        return False
    terms = node.src[0].device
    assert isinstance(terms, Sharding)
    if terms.partial_ops != ("ADD",):
        return False
    return terms.local_shape(node.shape) == node.arg.local_shape(node.shape)
