"""Sink halo exchanges below the ops where they send fewer bytes.

Input: a tensor graph in which ops that shift elements along a sharded axis, such as PAD or WINDOW,
read a COPY to a layout of intervals. Output: the same graph, with such a COPY replaced by copies of
the sources of its value where those send no more. So the halo of a padded image is exchanged
before the padding, and in the gradient of a convolution the small factors of a large product are
sent, not the product. Invariant: every value keeps its shape, dtype and device.
"""

from __future__ import annotations

from dataclasses import replace

from tinygrad.sharding import (
    LAYOUT_RULES,
    RANGE_OPS,
    Interval,
    Placement,
    Sharding,
    moved_elements,
    movement_layout,
    operand_layout,
    source_layout,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import device_names
from tinygrad.uop.ops import UOp

MAX_DEPTH = 24
"""The number of nested ops below which a halo exchange is sunk."""
_SINKABLE = GroupOp.ALU | {Ops.CAST, Ops.REDUCE_AXIS}


def is_halo_copy(node: UOp) -> bool:
    """Whether a node is a COPY to a layout of intervals."""
    return node.op is Ops.COPY and _has_intervals(node)


def _has_intervals(node: UOp) -> bool:
    return isinstance(node.device, Sharding) and node.device.has_intervals


def copies_slice(node: UOp) -> bool:
    """Whether a COPY to blocks is of what each device selected from its own elements."""
    source = node.src[0]
    if is_halo_copy(node) or not _has_intervals(source):
        return False
    return source.layout.devices == tuple(device_names(node.device))


def reads_halo(node: UOp) -> bool:
    """Whether a node is a COPY of intervals on the same devices: of a slice that each device took
    of its own elements, or of a halo exchange, possibly under movement.
    """
    if node.op is not Ops.COPY or not isinstance(node.device, Sharding):
        return False
    if copies_slice(node):
        return True
    below = node.src[0]
    while below.op in GroupOp.Movement:
        below = below.src[0]
    return is_halo_copy(below) and below.layout.devices == node.layout.devices


def sink_halo_copies(sink: UOp) -> UOp:
    """The graph with its halo exchanges where they send the least data."""
    order = list(sink.toposort())
    if not any(is_halo_copy(node) or reads_halo(node) for node in order):
        return sink
    walk = _Sinking()
    for node in order:
        for x in node.src:
            walk.uses[x] = walk.uses.get(x, 0) + 1
    for node in order:
        if is_halo_copy(node) or reads_halo(node):
            is_only_use = walk.uses[node] == 1
            sunk, nbytes = walk.sink(node.src[0], node.layout, node, is_only_use, MAX_DEPTH)
            if sunk.device is None:
                # each device computes the constants that it needs, where the exchange placed them
                sunk = node.replace(src=(sunk,))
            walk.done[node], walk.sent_nbytes[node] = sunk, nbytes
        else:
            src = tuple(walk.done[x] for x in node.src)
            walk.done[node] = node.with_sources(src)
    return walk.done[sink]


class _Sinking:
    """One walk: the rewritten form of each node, the bytes that each halo exchange sends, and the
    number of uses of each node.
    """

    def __init__(self) -> None:
        self.done: dict[UOp, UOp] = {}
        self.sent_nbytes: dict[UOp, int] = {}
        self.uses: dict[UOp, int] = {}

    def sink(
        self, node: UOp, layout: Sharding, copy: UOp, is_only_use: bool, depth: int
    ) -> tuple[UOp, int]:
        """`node` in `layout`, and the bytes that are sent for it. `copy` is the halo exchange that
        is sunk; with `is_only_use`, every node between `node` and `copy` has no other use.
        """
        if node.device is None or node.device == layout or not node.shape:
            return self.done[node], 0
        is_only_use = is_only_use and self.uses[node] == 1
        if node.op is Ops.COPY and _can_bypass(node, layout):
            return self.sink(node.src[0], layout, copy, is_only_use, depth)
        copied = copy.replace(dtype=node.dtype, src=(self.done[node],), arg=layout)
        nbytes = moved_elements(node.device, layout, node.shape) * node.dtype.itemsize
        # a reduction with other uses would be computed twice
        may_repeat = is_only_use or node.op is not Ops.REDUCE_AXIS
        layouts = source_layouts(node, layout) if depth and may_repeat else None
        if layouts is None:
            return copied, nbytes
        pairs = list(zip(node.src, layouts, strict=True))
        sunk = [self.sink(x, y, copy, is_only_use, depth - 1) for x, y in pairs]
        total = sum(cost for _, cost in sunk)
        if is_only_use:
            nbytes += self.nbytes_below(node, depth)
        # repeated movement is free, repeated computation is not; and a slice that is taken before
        # the copy leaves less to pack
        is_free = (is_only_use or node.op in GroupOp.Movement) and not copies_slice(copy)
        if total > nbytes or (total == nbytes and not is_free):
            return copied, nbytes
        built = node.replace(src=tuple(x for x, _ in sunk))
        return (built, total) if built.device == layout else (copied, nbytes)

    def nbytes_below(self, node: UOp, depth: int) -> int:
        """The bytes of the halo exchanges below `node` that nothing else uses."""
        if self.uses[node] != 1 or not depth:
            return 0
        if node in self.sent_nbytes:
            return self.sent_nbytes[node]
        if node.op not in _SINKABLE | GroupOp.Movement:
            return 0
        return sum(self.nbytes_below(x, depth - 1) for x in node.src)


def _can_bypass(node: UOp, layout: Sharding) -> bool:
    """Whether a COPY to `layout` may read the source of the COPY `node` in its place."""
    source = node.src[0].device
    if source is None or (isinstance(source, Sharding) and source.devices != layout.devices):
        return source is None
    if not isinstance(source, Sharding):
        return False
    return is_halo_copy(node) or source.is_replicated or source.has_intervals


def source_layouts(node: UOp, layout: Sharding) -> list[Sharding] | None:
    """The layouts of the sources of `node` that yield `layout`; None if a COPY cannot be sunk."""
    if node.op is Ops.REDUCE_AXIS:
        kept = not set(node.arg.axes).intersection(layout.split_axes)
        return [layout] if kept and node.src[0].device == node.device else None
    if node.op in _SINKABLE:
        return [layout] * len(node.src)
    if node.op not in GroupOp.Movement:
        return None
    found = _movement_source_layout(node, layout)
    source = node.src[0]
    if found is None or movement_layout(node.op.name, found, source.shape, node.arg) != layout:
        return None
    return [found]


def _movement_source_layout(node: UOp, layout: Sharding) -> Sharding | None:
    source, op = node.src[0], node.op
    if op.name in RANGE_OPS:
        return source_layout(op.name, layout, source.shape, node.arg)
    if op is Ops.EXPAND:
        return operand_layout(layout, source.shape)
    if op is Ops.PERMUTE:
        return layout.with_axes([_permuted(p, node.arg) for p in layout.axes])
    return LAYOUT_RULES["RESHAPE"](layout, node.shape, source.shape)


def _permuted(placement: Placement, order: tuple[int, ...]) -> Placement:
    if isinstance(placement, Interval):
        return replace(placement, axis=order[placement.axis])
    return order[placement] if isinstance(placement, int) else placement
