"""Values made of constants alone get a device where they need memory.

In: a per-device graph. Out: the same graph, in which whatever is computed from constants and has to
be stored (a reduction, rows combined by index) lives on the devices of each of its readers. Always
true: a kernel reads memory of its own device; what needs no memory stays without a device.
"""

from __future__ import annotations

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue
from tinygrad.uop.ops import UOp

NEEDS_MEMORY = frozenset({Ops.REDUCE_AXIS, *GroupOp.Scatter})


def place_constants(sink: UOp) -> UOp:
    """The graph in which stored values made of constants live where they are read."""
    order = sink.toposort()
    stored: set[UOp] = set()
    for node in order:
        if node.device is not None or node is sink:
            continue
        if node.op in NEEDS_MEMORY or not stored.isdisjoint(node.src):
            stored.add(node)
    if not stored:
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        device = node.device
        src = tuple(
            _placed(done[x], device) if x in stored and device is not None else done[x]
            for x in node.src
        )
        if node.op is Ops.COPY and node.src[0] in stored:
            done[node] = src[0]
        else:
            done[node] = node.with_sources(src)
    return done[sink]


def _placed(root: UOp, device: DeviceValue) -> UOp:
    """The graph of a value made of constants, whose leaves live on `device`."""
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        if node.op in {Ops.CONST, Ops.ARANGE}:
            done[node] = UOp(Ops.COPY, node.dtype, (node,), device)
        else:
            src = tuple(done[x] for x in node.src)
            done[node] = node.with_sources(src)
    return done[root]
