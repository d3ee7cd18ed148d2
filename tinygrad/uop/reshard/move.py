"""Resharding one value: where its COPY goes, and which of its sources moves in its place.

Input: a node and a layout. Output: the value in that layout. Invariants: a COPY keeps the logical
value; it is below every EXPAND, so a broadcast operand moves its own bytes and not those of its
expansion. Each COPY has the line of the user's program that caused it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tinygrad.settings import SHARDING
from tinygrad.sharding import LAYOUT_RULES, Sharding, ShardingError, moved_elements
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue, tensor_device
from tinygrad.uop.node import N, Node
from tinygrad.uop.propagation.device_rules import is_index_axis, is_placement
from tinygrad.uop.sint import is_one, same_size
from tinygrad.uop.user_line import UserLine, called_name, find_user_line

# the ops by which an elementwise op broadcasts its operands
BROADCAST = frozenset({Ops.RESHAPE, Ops.EXPAND})
# and by which a product aligns the axes of its factors
ALIGNED = BROADCAST | {Ops.PERMUTE}
# larger expressions of constants are copied like any other value
MAX_CONSTANT_NODES = 32
# the number of nested computations below which sources are sent
MAX_SENT_DEPTH = 8


def record_user_line(node: Node) -> None:
    """Set the line of the user's program that caused this communication, and what it called."""
    if node.user_line is None and node.src[0].device is not None:
        node.user_line = UserLine(find_user_line(), called_name())


def copy(node: N, layout: DeviceValue) -> N:
    """`node` on another device or in another layout."""
    if node.device == layout:
        return node
    moved = node.replace(op=Ops.COPY, src=(node,), arg=tensor_device(layout))
    record_user_line(moved)
    return moved


def device_mismatch(devices: Iterable[DeviceValue]) -> ShardingError:
    """The error for operands that live on different devices."""
    names = " and ".join(dict.fromkeys(str(d) for d in devices))
    return ShardingError(
        f"{called_name()}: the operands live on {names}; bring them together first with .to() or "
        ".shard()"
    )


def smallest_source(node: N) -> N:
    """The smallest node below `node` that `reshard` can move in its place."""
    smallest = node
    while (number := _movable_source(node)) is not None:
        node = node.src[number]
        if node.size < smallest.size:
            smallest = node
    return smallest


def sent_nbytes(node: Node) -> int:
    """The bytes of the values that are sent to reshard all of `node`: its narrow or broadcast
    sources, if `schedule/comm/sink_reshard.py` will send these.
    """
    found: dict[Node, dict[Node, int]] = {}
    return sum(_sent(node, found, MAX_SENT_DEPTH).values())


def _sent(node: Node, found: dict[Node, dict[Node, int]], depth: int) -> dict[Node, int]:
    """The values that are sent for `node`, with their bytes."""
    if node.device is None:
        return {}
    if node not in found:
        found[node] = {node: node.nbytes}
        number = _movable_source(node)
        sources = node.src if number is None else node.src[number : number + 1]
        if depth and (number is not None or node.op in GroupOp.ALU | {Ops.CAST}):
            below: dict[Node, int] = {}
            for x in sources:
                below |= _sent(x, found, depth - (number is None))
            if sum(below.values()) < node.nbytes:
                found[node] = below
    return found[node]


def without_placement(node: N) -> N | None:
    """A small expression of placed constants without their placement, or None for other values.
    Each device can compute its own shard of it.
    """
    constants: dict[N, N] = {}
    stack, visited = [node], 0
    while stack:
        x = stack.pop()
        visited += 1
        if x.device is None or x in constants:
            continue
        if is_placement(x):
            constants[x] = x.src[0]
        elif visited <= MAX_CONSTANT_NODES and x.op in GroupOp.Elementwise | GroupOp.Movement:
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
    """A reshard that the user did not ask for: an op needs `operand` in `layout`.

    `views` are the ops that it itself applies to its operands.
    """

    operand: Node
    layout: Sharding
    views: frozenset[Ops]

    def of_source(self, node: Node, source: Node, layout: Sharding) -> ImplicitReshard:
        """The same where `source` moves in place of `node`: it is the operand if `node` is a view
        that the op made of it.
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
                f"{find_user_line()}: {called_name()} would reshard an operand of shape "
                f"{self.operand.shape} from {self.operand.device} to {self.layout}; "
                f"write that in the program, with .to({self.layout})"
            )


def _squeezed_shape(node: Node) -> list[Any]:
    return [size for size in node.shape if not is_one(size)]


def reshard(
    node: N, layout: Sharding, is_implicit: bool = False, views: frozenset[Ops] = BROADCAST
) -> N:
    """`node` in another layout over the same devices, moving as few bytes as possible.

    It `is_implicit` if an op needs the layout and the user did not ask for it; `views` are the ops
    that this op applies to its operands. Raises ShardingError for an implicit reshard that moves
    bytes under `SHARDING="strict"`.
    """
    request = ImplicitReshard(node, layout, views) if is_implicit else None
    return _resharded(node, layout, request)


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
        return reshard(value, device, is_implicit=True)
    return value.copy_to_device(device)


def _source_layout(node: Node, layout: Sharding) -> Sharding | None:
    """The layout of the source for which `node` has `layout`, or the nearest one to it."""
    source = node.src[-1]
    if node.op is Ops.GATHER:
        return layout.with_axes([p if is_index_axis(p, source) else None for p in layout.axes])
    if node.op is Ops.PERMUTE:
        return layout.with_axes([node.arg[p] if isinstance(p, int) else p for p in layout.axes])
    if node.op is Ops.EXPAND:
        grown = {
            i
            for i, (a, b) in enumerate(zip(source.shape, node.shape, strict=True))
            if not same_size(a, b)
        }
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
    if (
        below is None
        or not isinstance(source.device, Sharding)
        or not can_shard(below, source.shape)
    ):
        return None
    above = LAYOUT_RULES[node.op.name](below, source.shape, node.arg)
    back = LAYOUT_RULES[node.op.name](source.device, source.shape, node.arg)
    return below if above is layout and back is node.device else None


def can_shard(layout: Sharding, shape: tuple[Any, ...]) -> bool:
    """Whether every sharded axis of `layout` exists in `shape`, with a known size other than 1."""
    return all(
        axis < len(shape) and isinstance(shape[axis], int) and shape[axis] != 1
        for axis in layout.split_axes
    )
