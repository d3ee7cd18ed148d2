"""Place values that are computed from constants alone, where they need memory.

Input: a per-device graph. Output: the same graph, in which such values that are materialised
(reductions and scatters) are computed on the devices of each of their uses. Invariant: a kernel
reads memory of its own device; values that need no memory stay without a device.
"""

from __future__ import annotations

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue
from tinygrad.uop.ops import UOp

NEEDS_MEMORY = frozenset({Ops.REDUCE_AXIS, *GroupOp.Scatter})


def place_constants(sink: UOp) -> UOp:
    """The graph in which materialised values of constants are on the devices of their uses."""
    order = sink.toposort()
    placed: set[UOp] = set()
    for node in order:
        if node.device is not None or node is sink:
            continue
        if node.op in NEEDS_MEMORY or not placed.isdisjoint(node.src):
            placed.add(node)
    if not placed:
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        device = node.device
        src = tuple(
            _placed(done[x], device) if x in placed and device is not None else done[x]
            for x in node.src
        )
        if node.op is Ops.COPY and node.src[0] in placed:
            done[node] = src[0]
        else:
            done[node] = node.with_sources(src)
    return done[sink]


def _placed(root: UOp, device: DeviceValue) -> UOp:
    """The graph of a value of constants, with its leaves placed on `device`."""
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        if node.op in {Ops.CONST, Ops.ARANGE}:
            done[node] = UOp(Ops.COPY, node.dtype, (node,), device)
        else:
            src = tuple(done[x] for x in node.src)
            done[node] = node.with_sources(src)
    return done[root]
