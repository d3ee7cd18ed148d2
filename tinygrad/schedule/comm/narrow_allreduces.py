"""All-reduce in the narrow dtype that a sum is cast to, if `ALLREDUCE_CAST` says so.

Input and output: a tensor graph. The gradient of a bfloat16 weight is summed in float32 and then
cast. With the setting, the partial sum of each device is cast, and half the bytes are sent. The
devices add what they receive in float32. Invariant: every value keeps its shape, dtype and device;
its last bits change.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.settings import ALLREDUCE_CAST
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def narrow_allreduces(sink: UOp) -> UOp:
    """`cast(allreduce(x)) -> allreduce(cast(x))` for a cast to a narrower float, if nothing else
    uses the sum in its wide dtype.
    """
    if not ALLREDUCE_CAST:
        return sink
    order = list(sink.toposort())
    users: dict[UOp, set[UOp]] = {}
    for node in order:
        for x in node.src:
            users.setdefault(x, set()).add(node)
    done: dict[UOp, UOp] = {}
    for node in order:
        if _narrows_sum(node) and users[node.src[0]] == {node}:
            total = node.src[0]
            partial = node.replace(src=(done[total.src[0]],))
            done[node] = total.replace(dtype=node.dtype, src=(partial,))
            done[node].user_line = total.user_line
        else:
            done[node] = node.with_sources(tuple(done[x] for x in node.src))
    return done[sink]


def _narrows_sum(node: UOp) -> bool:
    """Whether a node casts an all-reduced float to a narrower one."""
    if node.op is not Ops.CAST or node.src[0].op is not Ops.ALLREDUCE:
        return False
    dtype, wide = node.dtype, node.src[0].dtype
    return dtypes.is_float(dtype) and dtypes.is_float(wide) and dtype.itemsize < wide.itemsize
