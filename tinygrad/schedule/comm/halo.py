"""Runs of elements are fetched from where the fewest bytes move: below what moves or computes them.

In: a tensor graph, with copies to layouts of intervals where something moves along a split axis.
Out: the same graph, where such a copy is of the sources of its value if that is less. So the border
of a padded image is that of the image, and for the gradient of a convolution the small factors of a
large product travel, not the product.
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
    operand_layout,
    source_layout,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# deeper expressions are fetched whole
MAX_LEVELS = 24
_COMPUTED = GroupOp.ALU | {Ops.CAST, Ops.REDUCE_AXIS}


def is_halo_copy(node: UOp) -> bool:
    """Whether a node is a copy to a layout of intervals."""
    layout = node.device if node.op is Ops.COPY else None
    return isinstance(layout, Sharding) and layout.has_intervals


def cuts_a_run(node: UOp) -> bool:
    """Whether a node keeps each device's part of a run that all were given, and then moved."""
    if node.op is not Ops.COPY or not isinstance(node.device, Sharding):
        return False
    below = node.src[0]
    while below.op in GroupOp.Movement:
        below = below.src[0]
    return is_halo_copy(below) and below.layout.devices == node.layout.devices


def sink_halo_copies(sink: UOp) -> UOp:
    """The graph with its copies to intervals where they cost least."""
    order = list(sink.toposort())
    if not any(is_halo_copy(node) for node in order):
        return sink
    walk = _Fetching()
    for node in order:
        for x in node.src:
            walk.uses[x] = walk.uses.get(x, 0) + 1
    for node in order:
        if is_halo_copy(node) or cuts_a_run(node):
            alone = walk.uses[node] == 1
            fetched, nbytes = walk.fetch(node.src[0], node.layout, node, alone, MAX_LEVELS)
            walk.done[node], walk.paid[node] = fetched, nbytes
        else:
            src = tuple(walk.done[x] for x in node.src)
            walk.done[node] = node.with_sources(src)
    return walk.done[sink]


class _Fetching:
    """What is done already, the bytes that each copy to intervals moves, and who uses what."""

    def __init__(self) -> None:
        self.done: dict[UOp, UOp] = {}
        self.paid: dict[UOp, int] = {}
        self.uses: dict[UOp, int] = {}

    def fetch(
        self, node: UOp, layout: Sharding, copied: UOp, alone: bool, levels: int
    ) -> tuple[UOp, int]:
        """`node` in `layout`, and the bytes that move. `copied` is the COPY that asked for it; it
        is `alone` if nothing else uses what lies between.
        """
        if node.device is None or node.device == layout or not node.shape:
            return self.done[node], 0
        alone = alone and self.uses[node] == 1
        if node.op is Ops.COPY and _is_passed(node, layout):
            return self.fetch(node.src[0], layout, copied, alone, levels)
        whole = copied.replace(dtype=node.dtype, src=(self.done[node],), arg=layout)
        nbytes = moved_elements(node.device, layout, node.shape) * node.dtype.itemsize
        below = _layouts_below(node, layout) if levels and (alone or _is_light(node)) else None
        if below is None:
            return whole, nbytes
        pairs = list(zip(node.src, below, strict=True))
        fetched = [self.fetch(x, y, copied, alone, levels - 1) for x, y in pairs]
        total = sum(cost for _, cost in fetched)
        if alone:
            nbytes += self.paid_below(node, levels)
        # to move again is free, to compute again is not
        free = alone or node.op in GroupOp.Movement
        if total > nbytes or (total == nbytes and not free):
            return whole, nbytes
        built = node.replace(src=tuple(x for x, _ in fetched))
        return (built, total) if built.device == layout else (whole, nbytes)

    def paid_below(self, node: UOp, levels: int) -> int:
        """The bytes of the copies that are made for `node` alone."""
        if self.uses[node] != 1 or not levels:
            return 0
        if node in self.paid:
            return self.paid[node]
        if node.op not in _COMPUTED | GroupOp.Movement:
            return 0
        return sum(self.paid_below(x, levels - 1) for x in node.src)


def _is_passed(node: UOp, layout: Sharding) -> bool:
    """Whether the source of a COPY is no further away than its result."""
    source = node.src[0].device
    if source is None or (isinstance(source, Sharding) and source.devices != layout.devices):
        return source is None
    return isinstance(source, Sharding) and (is_halo_copy(node) or source.is_replicated)


def _is_light(node: UOp) -> bool:
    return node.op is not Ops.REDUCE_AXIS


def _layouts_below(node: UOp, layout: Sharding) -> list[Sharding] | None:
    """The layouts of the sources that give `layout`; None where the way down ends."""
    if node.op is Ops.REDUCE_AXIS:
        kept = not set(node.arg.axes).intersection(layout.split_axes)
        return [layout] if kept and node.src[0].device == node.device else None
    if node.op in _COMPUTED:
        return [layout] * len(node.src)
    if node.op not in GroupOp.Movement:
        return None
    below = _layout_below(node, layout)
    source = node.src[0]
    if below is None or LAYOUT_RULES[node.op.name](below, source.shape, node.arg) != layout:
        return None
    return [below]


def _layout_below(node: UOp, layout: Sharding) -> Sharding | None:
    source, op = node.src[0], node.op
    if op.name in RANGE_OPS:
        return source_layout(op.name, layout, source.shape, node.arg)
    if op is Ops.EXPAND:
        return operand_layout(layout, source.shape)
    if op is Ops.PERMUTE:
        return layout.with_axes([_moved(p, node.arg) for p in layout.axes])
    return LAYOUT_RULES["RESHAPE"](layout, node.shape, source.shape)


def _moved(placement: Placement, order: tuple[int, ...]) -> Placement:
    if isinstance(placement, Interval):
        return replace(placement, axis=order[placement.axis])
    return order[placement] if isinstance(placement, int) else placement
