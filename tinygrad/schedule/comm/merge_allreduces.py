"""Merge all-reduces of views of one value: one is kept, the others become views of its result.

These are resharded where they have another layout. Input and output: a tensor graph whose reshapes
and permutes were sunk below its all-reduces. Invariant: every value keeps its shape, dtype and
device.
"""

from __future__ import annotations

from tinygrad.sharding import LAYOUT_RULES, Sharding, max_size, moved_elements, reduced_elements
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint

_VIEWS = (Ops.RESHAPE, Ops.PERMUTE)


def merge_allreduces(sink: UOp) -> UOp:
    """`allreduce(x), allreduce(reshape(x)) -> allreduce(x), reshape(allreduce(x))`"""
    order = sink.toposort()
    if not any(node.op is Ops.ALLREDUCE for node in order):
        return sink
    done: dict[UOp, UOp] = {}
    reduced: dict[UOp, list[UOp]] = {}
    for node in order:
        src = tuple(done[x] for x in node.src)
        new = node.with_sources(src)
        if node.op is Ops.ALLREDUCE:
            alike = reduced.setdefault(_chain_of_views(new.src[0])[-1], [])
            views = [view for first in alike if (view := _view_of(first, new)) is not None]
            best = min(views, key=lambda view: _moved(view, new), default=None)
            if best is None or _moved(best, new) >= _reduced(new):
                alike.append(new)
            else:
                new = best if best.device == new.device else new.replace(op=Ops.COPY, src=(best,))
        done[node] = new
    return done[sink]


def _chain_of_views(node: UOp) -> list[UOp]:
    """`node` and the chain of reshapes and permutes below it, down to the value that they view."""
    found = [node]
    while found[-1].op in _VIEWS:
        found.append(found[-1].src[0])
    return found


def _view_of(first: UOp, node: UOp) -> UOp | None:
    """An all-reduce as a view of an earlier one of the same partial sums, or None if a movement on
    the way does not keep its layout.
    """
    back = [_inverse(moved) for moved in _chain_of_views(first.src[0])[:-1]]
    forth = [(moved.op, moved.arg) for moved in reversed(_chain_of_views(node.src[0])[:-1])]
    view = first
    for op, arg in (*back, *forth):
        layout = view.device
        if isinstance(layout, Sharding) and LAYOUT_RULES[op.name](layout, view.shape, arg) is None:
            return None
        view = UOp(op, view.dtype, (view,), arg)
    if view.device == node.device:
        return view
    layouts = [view.device, node.device, node.src[0].device]
    devices = {x.devices if isinstance(x, Sharding) else None for x in layouts}
    return view if len(devices) == 1 else None


def _moved(view: UOp, node: UOp) -> int:
    """The elements that are sent to reshard the view of another all-reduce."""
    return moved_elements(view.device, node.device, node.shape)


def _reduced(node: UOp) -> int:
    """The elements that are sent to all-reduce, or reduce-scatter, once more."""
    source, target = node.src[0].layout, node.arg
    if not isinstance(target, Sharding) or target.devices != source.devices:
        return 1
    return reduced_elements(source, target, tuple(map(max_size, node.shape)))


def _inverse(moved: UOp) -> tuple[Ops, tuple[sint, ...]]:
    """The reshape or permute that undoes another one."""
    if moved.op is Ops.RESHAPE:
        return moved.op, moved.src[0].shape
    return moved.op, tuple(moved.arg.index(axis) for axis in range(len(moved.arg)))
