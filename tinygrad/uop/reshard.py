"""Layout decisions: the communication that a graph needs, inserted while it is built.

Input: the nodes that become the sources of a new one. Output: sources whose layouts agree, or that
a movement can follow. Invariants: an inserted COPY or ALLREDUCE keeps the logical value; it is
below every EXPAND, so a broadcast operand moves its own bytes and not those of its expansion.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from tinygrad.dtype import DType
from tinygrad.settings import SHARDING
from tinygrad.sharding import (
    LAYOUT_RULES,
    RANGE_OPS,
    Placement,
    Sharding,
    ShardingError,
    common_layout,
    dynamic_slice_layout,
    moved_elements,
    padded_reshapes,
    source_layouts,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_rules import is_index_axis, is_placement
from tinygrad.uop.device_value import DeviceValue, tensor_device
from tinygrad.uop.node import N, Node
from tinygrad.uop.shape import movement_shape

# the ops by which an elementwise op broadcasts its operands
BROADCAST = frozenset({Ops.RESHAPE, Ops.EXPAND})
# and by which a product aligns the axes of its factors
ALIGNED = BROADCAST | {Ops.PERMUTE}
# larger expressions of constants are copied like any other value
MAX_CONSTANT_NODES = 32
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find_user_line() -> str:
    """`file:line` of the innermost caller outside this package."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def record_user_line(node: Node) -> None:
    """Set the line of the user's program that caused this communication."""
    if node.user_line is None and node.src[0].device is not None:
        node.user_line = find_user_line()


def copy(node: N, layout: DeviceValue) -> N:
    """`node` on another device or in another layout."""
    if node.device == layout:
        return node
    moved = node.replace(op=Ops.COPY, src=(node,), arg=tensor_device(layout))
    record_user_line(moved)
    return moved


def device_mismatch(op: Ops, devices: Iterable[DeviceValue]) -> ShardingError:
    """The error for operands that live on different devices."""
    names = " and ".join(dict.fromkeys(str(d) for d in devices))
    return ShardingError(
        f"{op.name}: the operands live on {names}; bring them together first with .to() or .shard()"
    )


def reshard_to_common_layout(
    op: Ops, srcs: tuple[N, ...], reduced_axes: tuple[int, ...] = ()
) -> tuple[N, ...]:
    """The sources of an elementwise op, resharded to the common layout that moves the fewest bytes.

    If the result is then summed over `reduced_axes`, the bytes of that reduction count too.

    Raises:
        ShardingError: the devices differ, or a transfer is needed under `SHARDING="strict"`.
    """
    placed = [x for x in srcs if x.device is not None]
    devices = [x.device for x in placed]
    if len(set(devices)) <= 1:
        return srcs
    layouts = [d for d in devices if isinstance(d, Sharding)]
    if len(layouts) < len(devices) or len({layout.devices for layout in layouts}) > 1:
        raise device_mismatch(op, devices)
    arrays = [x for x in placed if x.shape]
    target = common_layout(
        [x.layout for x in arrays],
        [smallest_source(x).nbytes for x in arrays],
        [_shape_before_broadcast(x) for x in arrays],
        reduced_axes,
        arrays[0].dtype.itemsize,
    )
    views = ALIGNED if reduced_axes else BROADCAST
    return tuple(x if x.device is None else reshard(x, target, op.name, views) for x in srcs)


def _shape_before_broadcast(node: Node) -> tuple[Any, ...]:
    """The shape of a node before it was expanded: 1 along broadcast axes."""
    if node.op is Ops.EXPAND:
        return _shape_before_broadcast(node.src[0])
    if node.op is Ops.PERMUTE:
        shape = _shape_before_broadcast(node.src[0])
        return tuple(shape[axis] for axis in node.arg)
    return node.shape


def smallest_source(node: N) -> N:
    """The smallest node below `node` that `reshard` can move in its place."""
    smallest = node
    while (number := _movable_source(node)) is not None:
        node = node.src[number]
        if node.size < smallest.size:
            smallest = node
    return smallest


def without_placement(node: N) -> N | None:
    """A small expression of placed constants without their placement, or None for other values.
    Each device can compute its own shard of it.
    """
    constants: dict[N, N] = {}
    stack, met = [node], 0
    while stack:
        x = stack.pop()
        met += 1
        if x.device is None or x in constants:
            continue
        if is_placement(x):
            constants[x] = x.src[0]
        elif met <= MAX_CONSTANT_NODES and x.op in GroupOp.Elementwise | GroupOp.Movement:
            stack.extend(x.src)
        else:
            return None
    return node.substitute(constants)


def _movable_source(node: Node) -> int | None:
    """The number of the source that can move in place of `node`: for a GATHER from a replicated
    table, the index.
    """
    if node.op in {Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND}:
        return 0
    if node.op is Ops.GATHER and not node.arg and isinstance(node.src[1].device, Sharding):
        table = node.src[0].device
        return 1 if isinstance(table, Sharding) and table.is_replicated else None
    return None


class ImplicitReshard(NamedTuple):
    """A reshard that the user did not ask for: the op `consumer` needs `operand` in `layout`.

    `views` are the ops that the consumer itself applies to its operands.
    """

    consumer: str
    operand: Node
    layout: Sharding
    views: frozenset[Ops]

    def of_source(self, node: Node, source: Node, layout: Sharding) -> ImplicitReshard:
        """The same where `source` moves in place of `node`: it is the operand if `node` is a view
        that the consumer made of it.
        """
        if node is not self.operand or node.op not in self.views:
            return self
        if node.op is Ops.RESHAPE and _squeezed_shape(node) != _squeezed_shape(source):
            return self
        return self._replace(operand=source, layout=layout)

    def check(self, node: Node, layout: Sharding) -> None:
        """Raises ShardingError if this moves bytes of `node` under `SHARDING="strict"`."""
        if SHARDING.value != "strict":
            return
        if moved_elements(node.device, layout, node.shape):
            raise ShardingError(
                f"{find_user_line()}: {self.consumer} needs {self.operand.device} "
                f"{self.operand.shape} as {self.layout}; say so with .to({self.layout})"
            )


def _squeezed_shape(node: Node) -> list[Any]:
    return [size for size in node.shape if size != 1]


def reshard(
    node: N, layout: Sharding, consumer: str | None = None, views: frozenset[Ops] = BROADCAST
) -> N:
    """`node` in another layout over the same devices, moving as few bytes as possible.

    `consumer` is the op that needs it, if the reshard is implicit, and `views` are the ops that it
    applies to its operands. Raises ShardingError for an implicit reshard that moves bytes under
    `SHARDING="strict"`.
    """
    if consumer is None:
        return _resharded(node, layout, None)
    return _resharded(node, layout, ImplicitReshard(consumer, node, layout, views))


def _resharded(node: N, layout: Sharding, request: ImplicitReshard | None) -> N:
    if node.device == layout or not node.shape:
        return node if node.device == layout else copy(node, layout)
    if without_placement(node) is not None:
        return copy(node, layout)

    def below(inner: Sharding) -> N:
        source = node.src[-1]
        inner_request = None if request is None else request.of_source(node, source, inner)
        return node.replace(src=(*node.src[:-1], _resharded(source, inner, inner_request)))

    if node.op in {Ops.RESHAPE, Ops.PERMUTE}:
        # a view of the moved source is free, and other consumers may need the same source
        exact = _exact_source_layout(node, layout)
        if exact is not None and exact.devices == node.layout.devices:
            return below(exact)
    if smallest_source(node) is not node:
        inner = _source_layout(node, layout)
        if inner is not None and inner.devices == node.layout.devices:
            return copy(below(inner), layout)
    if request is not None:
        request.check(node, layout)
    return copy(node, layout)


def reshard_for_assign(value: N, device: DeviceValue) -> N:
    """`value` on the device of the buffer that it is assigned to.

    Raises:
        ShardingError: it has another layout of the same devices, under `SHARDING="strict"`.
    """
    layout = value.device
    if device is None or layout == device:
        return value
    if not isinstance(layout, Sharding) or not isinstance(device, Sharding):
        return value.copy_to_device(device)
    if layout.devices == device.devices:
        return reshard(value, device, Ops.ASSIGN.name)
    return value.copy_to_device(device)


def _source_layout(node: Node, layout: Sharding) -> Sharding | None:
    """The layout of the source for which `node` has `layout`, or the nearest one to it."""
    source = node.src[-1]
    if node.op is Ops.GATHER:
        return layout.with_axes([p if is_index_axis(p, source) else None for p in layout.axes])
    if node.op is Ops.PERMUTE:
        return layout.with_axes([node.arg[p] if isinstance(p, int) else p for p in layout.axes])
    if node.op is Ops.EXPAND:
        grown = {i for i, (a, b) in enumerate(zip(source.shape, node.shape, strict=True)) if a != b}
        return layout.with_axes([None if p in grown else p for p in layout.axes])
    if node.op is Ops.RESHAPE:
        # along a sharded axis that the source does not have, the source is replicated
        kept = layout
        for p in layout.split_axes:
            alone = layout.with_axes([q if q == p else None for q in layout.axes])
            if LAYOUT_RULES["RESHAPE"](alone, node.shape, source.shape) is None:
                kept = kept.with_axes([None if q == p else q for q in kept.axes])
        below = LAYOUT_RULES["RESHAPE"](kept, node.shape, source.shape)
        if below is None or LAYOUT_RULES["RESHAPE"](below, source.shape, node.shape) is None:
            return None
        return below
    return None


def _exact_source_layout(node: Node, layout: Sharding) -> Sharding | None:
    """The layout of a source of RESHAPE or PERMUTE that yields exactly `layout`, at equal cost."""
    source = node.src[0]
    below = _source_layout(node, layout)
    if below is None or not isinstance(source.device, Sharding) or not _fits(below, source.shape):
        return None
    above = LAYOUT_RULES[node.op.name](below, source.shape, node.arg)
    back = LAYOUT_RULES[node.op.name](source.device, source.shape, node.arg)
    return below if above is layout and back is node.device else None


# ---- movement that does not preserve the layout of its source ----


def reshard_for_movement(node: N, op: Ops, arg: Any) -> N:
    """`node` in the nearest layout under which the movement is local to each device.

    Raises:
        ShardingError: the movement needs a transfer under `SHARDING="strict"`.
    """
    if op is Ops.SHRINK:
        selected = dynamic_slice_layout(
            node.layout, node.shape, arg, movement_shape(op, node.shape, arg)
        )
        if selected is not None:
            return copy(node, selected)
    target = _layout_for_movement(node.layout, node.shape, op, arg)
    return copy(node, target) if target.has_intervals else reshard(node, target, op.name)


def reshape_padded(node: N, shape: tuple[Any, ...]) -> N | None:
    """A reshape that does not preserve the layout, as the reshape of a padded array whose shards
    are whole rows. None if a reshard to another layout moves fewer bytes, or one to even shards
    of another axis less than twice as many.
    """
    layout = node.layout
    is_known = all(isinstance(size, int) and size for size in (*node.shape, *shape))
    if SHARDING.value == "strict" or layout.is_partial or not is_known:
        return None
    target = _layout_for_movement(layout, node.shape, Ops.RESHAPE, shape)
    best, best_cost = None, moved_elements(layout, target, node.shape)
    # uneven shards leave some devices with less work in all later ops
    weight = 2 if target.is_even(node.shape) else 1
    for padded, whole in padded_reshapes(layout, node.shape, shape):
        after = [(0, new - old) for old, new in zip(node.shape, padded, strict=True)]
        found = node.pad(tuple(after)).reshape(whole)
        found = found.shrink(tuple((0, size) for size in shape))
        added = found.toposort(gate=lambda x: x is not node)
        moves = [x for x in added if x.op is Ops.COPY and x is not node]
        cost = weight * sum(moved_elements(x.src[0].device, x.device, x.shape) for x in moves)
        if cost < best_cost:
            best, best_cost = found, cost
    return best


@lru_cache(maxsize=4096)
def _layout_for_movement(layout: Sharding, shape: tuple[Any, ...], op: Ops, arg: Any) -> Sharding:
    slid = source_layouts(op.name, layout, shape, arg) if op.name in RANGE_OPS else []
    options: list[list[Placement]] = [
        [p, None, *(i for i in range(len(shape)) if i != p)] if isinstance(p, int) else [p]
        for p in layout.axes
    ]
    # a reshard to another axis is most likely reverted later, which costs as much again
    others = {layout.with_axes(axes): 2 for axes in itertools.product(*options)}
    best, best_cost = None, 0
    for candidate, weight in {**others, **dict.fromkeys(slid, 1)}.items():
        if not _fits(candidate, shape) or LAYOUT_RULES[op.name](candidate, shape, arg) is None:
            continue
        cost = moved_elements(layout, candidate, shape) * weight
        if best is None or cost < best_cost:
            best, best_cost = candidate, cost
    assert best is not None, "the replicated layout can follow every movement"
    return best


def _fits(layout: Sharding, shape: tuple[Any, ...]) -> bool:
    return all(isinstance(shape[i], int) and shape[i] != 1 for i in layout.split_axes)


def unshard_axis(node: N, axis: int, consumer: str | None) -> N:
    """`node` with `axis` unsharded, for the op `consumer`; another axis is sharded if possible.

    Raises:
        ShardingError: bytes move under `SHARDING="strict"`, unless `consumer` is None.
    """
    layout = node.device
    if not isinstance(layout, Sharding) or axis not in layout.split_axes:
        return node
    return reshard(node, unsharded_layout(layout, node.shape, axis), consumer)


def unsharded_layout(layout: Sharding, shape: tuple[Any, ...], axis: int) -> Sharding:
    """The layout nearest to this one in which `axis` is unsharded."""
    others = [None, *(i for i in range(len(shape)) if i != axis)]
    options = [others if p == axis else [p] for p in layout.axes]
    candidates = (layout.with_axes(axes) for axes in itertools.product(*options))
    fitting = [candidate for candidate in candidates if _fits(candidate, shape)]
    return min(fitting, key=lambda candidate: moved_elements(layout, candidate, shape))


def reshard_for_bitcast(node: N, dtype: DType) -> N:
    """`node` in a layout under which the bitcast is local to each device."""
    layout = node.device
    old, new = node.dtype.itemsize, dtype.itemsize
    if old == new or not isinstance(layout, Sharding) or node.ndim - 1 not in layout.split_axes:
        return node
    last = node.ndim - 1
    pieces, size = layout.shards(last), node.shape[last]
    is_even = size % pieces == 0 and (size * old // new) % pieces == 0
    return node if is_even else unshard_axis(node, last, Ops.BITCAST.name)
