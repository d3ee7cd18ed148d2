"""Sink cheap producers below a scatter, so that each shard is computed in place.

Input: a tensor graph. Output: the same graph, in which a COPY of an expression of few elements to a
sharded layout is replaced by copies of those elements and the expression on each device. So
initial weights that are sharded after their creation are computed shard by shard, and no device
holds a whole one. Invariant: every value keeps its shape, dtype and device.
"""

from __future__ import annotations

from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.propagation.device_rules import is_placement

MAX_NODES = 256
"""Larger expressions are computed once and scattered."""
_IDENTITIES = frozenset({Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY})
_SINKABLE = GroupOp.Elementwise | GroupOp.Movement | {Ops.CONTIGUOUS, Ops.DETACH}


def sink_into_scatters(sink: UOp) -> UOp:
    """The graph in which expressions are computed on the devices that keep their shards."""
    order = list(sink.toposort())
    if not any(_is_scatter(node) for node in order):
        return sink
    uses: dict[UOp, int] = {}
    for node in order:
        for x in node.src:
            uses[x] = uses.get(x, 0) + 1
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple(done[x] for x in node.src)
        new = node.with_sources(src)
        is_only_use = _is_scatter(new) and uses[node.src[0]] == 1
        sunk = _sink(new) if is_only_use else None
        done[node] = new if sunk is None else sunk
    return done[sink]


def _is_scatter(node: UOp) -> bool:
    """Whether a value on one device, or replicated on other devices, is copied to shards."""
    if node.op is not Ops.COPY or not isinstance(node.arg, Sharding) or not node.arg.split_axes:
        return False
    source = node.src[0].device
    if isinstance(source, Sharding):
        return source.is_replicated and source.devices != node.arg.devices
    return source is not None


def _sink(node: UOp) -> UOp | None:
    """The value of a scatter, computed on its devices; None if its operands are too large to be
    replicated.
    """
    layout, value = node.arg, node.src[0]
    below = list(value.toposort(gate=lambda x: x.device is not None and _is_sinkable(x)))
    sent = [x for x in below if x.device is not None and not _is_sinkable(x)]
    if len(below) > MAX_NODES or sum(x.nbytes for x in sent) * len(layout) ** 2 >= value.nbytes:
        return None
    done: dict[UOp, UOp] = {}
    for x in below:
        if x.device is None:
            done[x] = x
        elif not _is_sinkable(x):
            done[x] = node.replace(dtype=x.dtype, src=(x,), arg=layout.replicated())
        elif x.op in _IDENTITIES:
            # nothing is materialised on the way: each device computes its own shard
            done[x] = done[x.src[0]]
        else:
            done[x] = x.replace(src=tuple(done[y] for y in x.src))
    shards = node.replace(src=(done[value],))
    return shards.contiguous() if value.op is Ops.CONTIGUOUS else shards


def _is_sinkable(node: UOp) -> bool:
    """Whether a value is elementwise in its sources, or a placed constant."""
    return node.op in _SINKABLE or is_placement(node)
