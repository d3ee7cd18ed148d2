"""Sink an all-reduce of sums below movement and sums that leave fewer elements.

Input and output: a tensor graph whose all-reduces of one value were merged. Invariant: every value
keeps its shape, dtype and device. The gradient of a convolution with sharded output channels is an
example: all-reduced last, it is an image, and not one image for each element of the kernel.
"""

from __future__ import annotations

from tinygrad.helpers import prod
from tinygrad.sharding import LAYOUT_RULES, Sharding, max_size, reduce_layout
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue
from tinygrad.uop.ops import UOp


def reduce_first(sink: UOp) -> UOp:
    """`sum(unwindow(allreduce(x))) -> allreduce(sum(unwindow(x)))`, if nothing else reads the
    all-reduced values.
    """
    order = list(sink.toposort())
    if not any(node.op is Ops.ALLREDUCE for node in order):
        return sink
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        for x in set(node.src):
            users.setdefault(x, []).append(node)
    chains = {}
    for node in order:
        if node.op is Ops.ALLREDUCE:
            chain = _smaller_views(node, users)
            if chain:
                chains[chain[-1]] = (node, chain)
    done: dict[UOp, UOp] = {}
    for node in order:
        if node in chains:
            allreduce, chain = chains[node]
            value = done[allreduce.src[0]]
            for x in chain:
                value = x.replace(src=(value,))
            done[node] = allreduce.replace(src=(value,), arg=node.device)
        else:
            done[node] = node.with_sources(tuple(done[x] for x in node.src))
    return done[sink]


def _smaller_views(allreduce: UOp, users: dict[UOp, list[UOp]]) -> list[UOp]:
    """The ops after an all-reduce, each the only user of the one before, up to the one of the
    fewest elements; none if the all-reduce has no more.
    """
    partial: DeviceValue = allreduce.src[0].layout
    if allreduce.src[0].layout.partial_ops != ("ADD",):
        return []
    found: list[UOp] = []
    node, min_size, count = allreduce, _elements(allreduce), 0
    while partial is not None and len(users.get(node, [])) == 1:
        (user,) = users[node]
        partial = _followed(partial, user)
        if partial is None or _followed(node.device, user) != user.device:
            break
        found.append(user)
        node = user
        if (size := _elements(node)) < min_size:
            min_size, count = size, len(found)
    return found[:count]


def _elements(node: UOp) -> int:
    return prod(max_size(size) for size in node.shape)


def _followed(layout: DeviceValue, user: UOp) -> DeviceValue:
    """The layout after an op that commutes with sums; None if it does not follow."""
    if user.op is Ops.REDUCE_AXIS:
        if not isinstance(layout, Sharding) or user.arg.op is not Ops.ADD:
            return layout if user.arg.op is Ops.ADD else None
        found = reduce_layout(layout, user.arg.axes, "ADD")
        return found if found is None or found.partial_ops == layout.partial_ops else None
    if user.op not in GroupOp.Movement:
        return None
    if not isinstance(layout, Sharding):
        return layout
    return LAYOUT_RULES[user.op.name](layout, user.src[0].shape, user.arg)
