"""Sink resharding below elementwise ops whose sources take fewer bytes than their result.

Input: a tensor graph. Output: the same graph, in which a COPY to another layout of the same devices
is replaced by copies of the sources of its value. So quantised weights are all-gathered in their
narrow dtype and with their scales, and each device dequantises them; and of a one-hot mask, the
numbers are sent. Invariant: every value keeps its shape, dtype and device.
"""

from __future__ import annotations

from tinygrad.schedule.comm.halo import source_layouts
from tinygrad.sharding import Sharding, moved_elements
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

MAX_REPEATED_OPS = 32
"""Larger expressions are computed once, shard by shard, and their values sent."""
_REPEATED = GroupOp.ALU | {Ops.CAST}
_SINKABLE = _REPEATED | GroupOp.Movement

_Sent = dict[tuple[UOp, Sharding], int]


def sink_resharding(sink: UOp) -> UOp:
    """`copy(f(x, y)) -> f(copy(x), copy(y))`, where that sends fewer bytes."""
    order = sink.toposort()
    if not any(_is_reshard(node) for node in order):
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        new = node.with_sources(tuple(done[x] for x in node.src))
        if _is_reshard(new):
            new = _sunk(new)
        done[node] = new
    return done[sink]


def _is_reshard(node: UOp) -> bool:
    """Whether a node is a COPY of a computed value to another layout of the same devices."""
    if node.op is not Ops.COPY or not isinstance(node.arg, Sharding) or node.arg.has_intervals:
        return False
    layout = node.src[0].device
    if not isinstance(layout, Sharding) or layout.devices != node.arg.devices:
        return False
    return node.src[0].op in _SINKABLE and not layout.is_partial and not layout.has_intervals


def _can_sink(node: UOp) -> bool:
    """Whether a COPY may be sunk below `node`: not if a source has intervals, as a halo exchange
    leaves them, which do not hold every element.
    """
    layouts = [x.device for x in node.src]
    return node.op in _SINKABLE and not any(
        isinstance(x, Sharding) and x.has_intervals for x in layouts
    )


def _sunk(copy: UOp) -> UOp:
    """A COPY, or the value computed from copies of sources. What sends as many bytes is repeated on
    each device only if values then have a source in common.
    """
    value, layout = copy.src[0], copy.arg
    ways = [_Sinking(copy, sinks_ties=sinks_ties) for sinks_ties in (False, True)]
    best = min(ways, key=lambda way: sum(way.choice(value, layout)[0].values()))
    return best.sunk(value, layout)


class _Sinking:
    """The cheapest sources of one COPY. `choices` are the values that are sent for a value in a
    layout, with their bytes, and the layouts of its sources where these are computed with.
    """

    def __init__(self, copy: UOp, sinks_ties: bool) -> None:
        self.copy = copy
        self.sinks_ties = sinks_ties
        self.choices: dict[tuple[UOp, Sharding], tuple[_Sent, list[Sharding] | None]] = {}
        self.repeated = 0

    def sunk(self, node: UOp, layout: Sharding) -> UOp:
        """`node` in `layout`, computed from copies of the sources that send the fewest bytes."""
        if node.device is None or node.device == layout:
            return node
        layouts = self.choice(node, layout)[1]
        if layouts is None:
            copied = self.copy.replace(dtype=node.dtype, src=(node,), arg=layout)
            copied.user_line = self.copy.user_line
            return copied
        pairs = zip(node.src, layouts, strict=True)
        return node.replace(src=tuple(self.sunk(x, below) for x, below in pairs))

    def choice(self, node: UOp, layout: Sharding) -> tuple[_Sent, list[Sharding] | None]:
        """What is sent for `node` in `layout`, and the layouts of its sources if these are sent."""
        if node.device is None or node.device == layout:
            return {}, None
        key = node, layout
        if key not in self.choices:
            nbytes = moved_elements(node.device, layout, node.shape) * node.dtype.itemsize
            self.choices[key] = {key: nbytes}, None
            self.repeated += node.op in _REPEATED
            layouts = None
            if _can_sink(node) and self.repeated <= MAX_REPEATED_OPS:
                layouts = source_layouts(node, layout)
            if layouts is not None and not any(below.has_intervals for below in layouts):
                sent: _Sent = {}
                for x, below in zip(node.src, layouts, strict=True):
                    sent |= self.choice(x, below)[0]
                total = sum(sent.values())
                if total < nbytes or (total == nbytes and self.sinks_ties):
                    self.choices[key] = sent, layouts
        return self.choices[key]
