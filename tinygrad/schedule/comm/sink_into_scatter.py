"""What is made of few numbers is computed where it goes, instead of being made whole and sent.

In: a tensor graph. Out: the same graph, in which the COPY of such a value to a split layout is of
the few numbers below it: initial weights that are sharded come into being in parts, and no device
holds all of one.
"""

from __future__ import annotations

from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_rules import is_placement
from tinygrad.uop.ops import UOp

# larger expressions are computed once and sent
MAX_NODES = 256
_PASSED = frozenset({Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY})
_COMPUTED = GroupOp.Elementwise | GroupOp.Movement | {Ops.CONTIGUOUS, Ops.DETACH}


def sink_into_scatters(sink: UOp) -> UOp:
    """The graph whose parts are made on the devices that keep them."""
    order = list(sink.toposort())
    if not any(_leaves_one_place(node) for node in order):
        return sink
    uses: dict[UOp, int] = {}
    for node in order:
        for x in node.src:
            uses[x] = uses.get(x, 0) + 1
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple(done[x] for x in node.src)
        new = node.with_sources(src)
        alone = _leaves_one_place(new) and uses[node.src[0]] == 1
        made = _made_in_parts(new) if alone else None
        done[node] = new if made is None else made
    return done[sink]


def _leaves_one_place(node: UOp) -> bool:
    """Whether a value that is whole somewhere is copied to devices that keep a part each."""
    if node.op is not Ops.COPY or not isinstance(node.arg, Sharding) or not node.arg.split_axes:
        return False
    source = node.src[0].device
    if isinstance(source, Sharding):
        return source.is_replicated and source.devices != node.arg.devices
    return source is not None


def _made_in_parts(node: UOp) -> UOp | None:
    """The value of a COPY, computed on its devices; None if that takes many numbers from others."""
    layout, value = node.arg, node.src[0]
    below = list(value.toposort(gate=lambda x: x.device is not None and _is_computed(x)))
    sent = [x for x in below if x.device is not None and not _is_computed(x)]
    if len(below) > MAX_NODES or sum(x.nbytes for x in sent) * len(layout) ** 2 >= value.nbytes:
        return None
    done: dict[UOp, UOp] = {}
    for x in below:
        if x.device is None:
            done[x] = x
        elif not _is_computed(x):
            done[x] = node.replace(dtype=x.dtype, src=(x,), arg=layout.replicated())
        elif x.op in _PASSED:
            # what is whole is not stored on the way: each device computes its part of it
            done[x] = done[x.src[0]]
        else:
            done[x] = x.replace(src=tuple(done[y] for y in x.src))
    parts = node.replace(src=(done[value],))
    return parts.contiguous() if value.op is Ops.CONTIGUOUS else parts


def _is_computed(node: UOp) -> bool:
    """Whether a value is computed element by element, or placed, from what is below it."""
    return node.op in _COMPUTED or is_placement(node)
