"""Give values that are computed from constants a device, if they may be materialised.

Constants have no device, and neither has a value computed from them. Input: a per-device graph.
Output: the same graph, in which reductions, scatters and long expressions of constants are computed
on the device of each of their uses. Invariant: a kernel reads memory of its own device; values that
need no memory stay without a device.

Example: `x + arange(1000).sum()` with x on CPU:1. The sum has no device; its leaf becomes
`COPY(arange, CPU:1)`, so the sum is materialised there.
"""

from __future__ import annotations

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue
from tinygrad.uop.ops import UOp

NEEDS_MEMORY = frozenset({Ops.REDUCE_AXIS, *GroupOp.Scatter})
MAX_CONSTANT_WORK = 256
"""The maximum operations on constants that every kernel repeats. A value that takes more is given a
device, so that it may be materialised."""


def place_constants(sink: UOp, default_device: str) -> UOp:
    """The graph in which materialised values of constants are on the devices of their uses, or on
    the default device.
    """
    order = sink.toposort()
    placed: set[UOp] = set()
    work: dict[UOp, int] = {}
    for node in order:
        if node.device is not None or node is sink:
            continue
        work[node] = min(_work(node, work), MAX_CONSTANT_WORK + 1)
        needs_memory = node.op in NEEDS_MEMORY or work[node] > MAX_CONSTANT_WORK
        if needs_memory or not placed.isdisjoint(node.src):
            placed.add(node)
    if not placed:
        return sink
    done: dict[UOp, UOp] = {}
    copies: dict[DeviceValue, dict[UOp, UOp]] = {}
    for node in order:
        device = default_device if node is sink else node.device
        src = tuple(
            _placed(x, device, copies.setdefault(device, {}))
            if x in placed and device is not None
            else done[x]
            for x in node.src
        )
        if node.op is Ops.COPY and node.src[0] in placed:
            done[node] = src[0]
        else:
            done[node] = node.with_sources(src)
    return done[sink]


def _work(node: UOp, work: dict[UOp, int]) -> int:
    """The operations for one element, where shared values count once for each use."""
    own = 1 if node.op in GroupOp.ALU else 0
    return own + sum(work[x] for x in dict.fromkeys(node.src) if x in work)


def _placed(root: UOp, device: DeviceValue, done: dict[UOp, UOp]) -> UOp:
    """A value of constants with its leaves placed on `device`; `done` are earlier results."""
    for node in root.toposort(gate=lambda u: u not in done):
        if node in done:
            continue
        if node.op in {Ops.CONST, Ops.ARANGE}:
            done[node] = UOp(Ops.COPY, node.dtype, (node,), device)
        else:
            src = tuple(done[x] for x in node.src)
            done[node] = node.with_sources(src)
    return done[root]
