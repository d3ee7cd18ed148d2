"""ALLREDUCE in the per-device graph: terms on each device become their reduction.

A partial value is the stack of its terms along a new axis that the mesh dimensions of the group
split. Reducing it is then a change of layout of the stack and a local reduction: *direct* sends
every term to everyone, *all-to-all* scatters pieces of the terms, reduces them and gathers the
results, *hierarchical* does so inside of each node, with the pieces across nodes before it gathers,
*ring* passes pieces on around a ring and adds on the way. The first three work group by group on a
mesh. Which is the fastest, how the devices are linked says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.schedule.spmd.local import (
    device_number,
    device_of,
    local_shape,
    max_shape,
    pad_to_max_shape,
    padded_flat,
)
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.settings import ALL2ALL, RING
from tinygrad.sharding import (
    Partial,
    Placement,
    Sharding,
    current_topology,
    fastest_allreduce,
    node_size,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo, Message, TransferArg
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import ReduceArg, UOp, sint


def reduce_first(value: UOp, op: Ops) -> UOp:
    """Reduce axis 0, kept as size 1."""
    if value.shape[0] == 1:
        return value
    return UOp(Ops.REDUCE_AXIS, value.dtype, (value,), ReduceArg(op, (0,)))


def stacked(layout: Sharding) -> Sharding:
    """The layout of the stack of terms: axis 0 counts terms, the others move up by one."""
    return layout.with_axes([0 if isinstance(p, Partial) else _up(p) for p in layout.axes])


def _up(placement: Placement) -> Placement:
    return placement + 1 if isinstance(placement, int) else placement


def partial_count(node: UOp) -> int:
    """How many devices of each group hold terms of a partial value: the first ones. Where what is
    reduced does not divide, those behind its end hold what changes nothing.
    """
    group = group_size(node.layout)
    found: int = 0
    for x in node.toposort(gate=_has_terms):
        if not _has_terms(x) or any(map(_has_terms, x.src)):
            continue
        if x.op is not Ops.REDUCE_AXIS:
            return group
        layout, shape = x.src[0].layout, x.src[0].shape
        split = [axis for axis in x.arg.axes if layout.shards(axis) == group]
        if not split:
            return group
        found = max(
            found, ceildiv(max_shape(shape)[split[0]], max(1, layout.span(split[0], shape)[2]))
        )
    return found if found > 1 else group


def _has_terms(node: UOp) -> bool:
    return isinstance(node.device, Sharding) and node.device.is_partial


def all_reduce(
    value: UOp,
    source: Sharding,
    target: TensorDevice,
    shape: tuple[sint, ...],
    line: str | int,
    count: int,
) -> UOp:
    """The reduction of the terms of `source`, of which the first `count` devices of each group hold
    one, as `target` wants it.

    `value` and the result are local; `shape` is the global one.
    """
    if not all_int(shape):
        full = all_reduce(pad_to_max_shape(value), source, target, max_shape(shape), line, count)
        return full.shrink(tuple((0, d) for d in local_shape(target, shape)))
    op = Ops[source.partial_ops[0]]
    whole = source.without_partial()

    def reason(kind: str, algorithm: str = "") -> CommInfo:
        return CommInfo(kind, str(source), str(target), line, algorithm)

    terms = value.reshape((1, *value.shape))
    if not isinstance(target, Sharding):
        moved = transfer(terms, stacked(source), target, (count, *shape), reason("reduce"))
        return reduce_first(moved, op).reshape(shape)
    if target.devices != source.devices:
        cut = _on_devices_of(source, target)
        here = all_reduce(value, source, cut, shape, line, count)
        return transfer(here, cut, target, shape, reason("send"))
    if target == whole:
        algorithm = choose_algorithm(source, value.nbytes)
        why = reason("all_reduce", algorithm)
        if algorithm == "ring":
            return _ring(value, len(source), op, whole, why)
        if algorithm != "direct":
            group = group_size(source)
            inner = node_size(current_topology(), source) if algorithm == "hierarchical" else None
            return _scatter_and_gather(value, _levels(source, inner or group), op, why, count)
    else:
        why = reason("reduce_scatter")
    up = target.with_axes([_up(p) for p in target.axes])
    moved = transfer(terms, stacked(source), up, (count, *shape), why)
    return reduce_first(moved, op).reshape(target.local_shape(shape))


def _on_devices_of(source: Sharding, target: Sharding) -> Sharding:
    """The layout in which terms are reduced to be sent to other devices: each sends its block, if
    they are as many.
    """
    if target.is_replicated or len(target) != len(source):
        return source.without_partial()
    return Sharding(source.devices, target.axes, target.mesh_shape)


def group_size(source: Sharding) -> int:
    """How many devices hold terms of one element."""
    sizes = zip(source.axes, source.mesh_shape, strict=True)
    return prod([size for p, size in sizes if isinstance(p, Partial)])


def choose_algorithm(source: Sharding, nbytes: int) -> str:
    """How terms of `nbytes` are reduced to full copies: the fastest way, or the one asked for.

    Settings choose among the ways of many bytes; few are always sent to everyone at once.
    """
    fastest = fastest_allreduce(current_topology(), source, nbytes)
    if fastest == "direct":
        return fastest
    if (RING or not ALL2ALL) and len(source.mesh_shape) == 1:
        return "ring"
    return "all2all" if ALL2ALL > 1 or RING or not ALL2ALL else fastest


@dataclass(frozen=True)
class _Levels:
    """A mesh whose partial dimensions belong to levels of a hierarchy, number 0 inside.

    `level[i]` is that of mesh dimension i, None for one that is not reduced over.
    """

    devices: tuple[str, ...]
    mesh: tuple[int, ...]
    level: tuple[int | None, ...]

    @property
    def counts(self) -> list[int]:
        """How many devices reduce together in each level."""
        sizes = list(zip(self.level, self.mesh, strict=True))
        numbers = sorted({level for level in self.level if level is not None})
        return [prod([size for level, size in sizes if level == n]) for n in numbers]

    def layout(self, axes: Sequence[int | None], others: int) -> Sharding:
        """Dimensions of level n split `axes[n]`, those that are not reduced over split `others`."""
        placements = [others if level is None else axes[level] for level in self.level]
        return Sharding(self.devices, placements, self.mesh)


def _levels(source: Sharding, inner: int) -> _Levels:
    """The last `inner` devices of each group are level 0, what remains of the group level 1."""
    mesh: list[int] = []
    level: list[int | None] = []
    for placement, size in zip(reversed(source.axes), reversed(source.mesh_shape), strict=True):
        within = math.gcd(size, inner) if isinstance(placement, Partial) else 1
        if not isinstance(placement, Partial):
            parts: list[tuple[int, int | None]] = [(size, None)]
        else:
            parts = [(within, 0), (size // within, 1)]
            inner //= within
        for part, number in parts:
            if part > 1:
                mesh.append(part)
                level.append(number)
    return _Levels(source.devices, tuple(reversed(mesh)), tuple(reversed(level)))


def _scatter_and_gather(value: UOp, levels: _Levels, op: Ops, reason: CommInfo, filled: int) -> UOp:
    """Scatter pieces of the `filled` first terms within each group, reduce them, gather the
    results.

    With several levels, pieces are scattered and reduced level by level and gathered on the way
    back. The axes are: a term of each level, the groups, a piece of each level, the elements.
    """
    counts = levels.counts
    depth = len(counts)
    others = len(levels.devices) // prod(counts)
    flat = padded_flat(value, prod(counts))
    length = cast(int, flat.shape[0]) // prod(counts)
    terms = flat.reshape((*(1 for _ in counts), 1, *counts, length))
    axes: list[int | None] = list(range(depth))
    shape = [*counts, others, *counts, length]
    if depth == 1:
        shape[0] = filled

    def move(local: UOp, level: int, axis: int | None) -> UOp:
        source = levels.layout(axes, depth)
        axes[level] = axis
        return transfer(local, source, levels.layout(axes, depth), tuple(shape), reason)

    for level in range(depth):
        pieces = move(terms, level, depth + 1 + level)
        terms = UOp(Ops.REDUCE_AXIS, value.dtype, (pieces,), ReduceArg(op, (level,)))
        shape[level] = 1
    for level in reversed(range(depth)):
        terms = move(terms, level, None)
    full = terms.reshape((length * prod(counts),))
    return full.shrink(((0, value.size),)).reshape(value.shape)


def _ring(value: UOp, count: int, op: Ops, whole: Sharding, reason: CommInfo) -> UOp:
    """Pass pieces around the ring, adding on the way; then pass the sums around once more."""
    flat = padded_flat(value, count)
    length = cast(int, flat.shape[0]) // count
    number = device_number(count)

    def own(step: int) -> UOp:
        start = (number + (count - step)) % count * length
        return flat.shrink(((start, start + length),))

    def send(piece: UOp, pieces: int, messages: list[Message]) -> UOp:
        arg = TransferArg(device_of(whole), (pieces, length), tuple(messages), reason)
        return UOp(Ops.TRANSFER, value.dtype, (piece,), arg).reshape((pieces * length,))

    piece = own(0)
    for step in range(1, count):
        received = send(piece, 1, [Message((j + 1) % count, 0, j, 0) for j in range(count)])
        piece = UOp(op, value.dtype, (received, own(step)))
    # device d now holds the whole sum of piece (d + 1) % count
    devices = range(count)
    full = send(piece, count, [Message(k, (j + 1) % count, j, 0) for k in devices for j in devices])
    return full.shrink(((0, value.size),)).reshape(value.shape)
