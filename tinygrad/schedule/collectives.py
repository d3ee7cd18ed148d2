"""ALLREDUCE in the per-device graph: terms on each device become their reduction.

A partial value is the stack of its terms along a new axis that the mesh dimensions of the group
split. Reducing it is then a change of layout of the stack and a local reduction: *direct* sends
every term to everyone, *all-to-all* scatters pieces of the terms, reduces them and gathers the
results, *ring* passes pieces on around a ring and adds on the way. All three work group by group on
a mesh.
"""

from __future__ import annotations

from typing import cast

from tinygrad.helpers import all_int, prod
from tinygrad.schedule.local import (
    Layout,
    device_number,
    device_of,
    local_shape,
    most,
    padded_flat,
    padded_to_most,
)
from tinygrad.schedule.transfer import transfer
from tinygrad.settings import ALL2ALL, RING
from tinygrad.sharding import Partial, Placement, Sharding
from tinygrad.uop import Ops
from tinygrad.uop.args import Move, Reason, TransferArg
from tinygrad.uop.ops import ReduceArg, UOp, sint

# below this size, one round of messages costs less than the bytes that two rounds save
DIRECT_NBYTES = 4096


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


def all_reduce(
    value: UOp, source: Sharding, target: Layout, shape: tuple[sint, ...], line: str | int
) -> UOp:
    """The reduction of the terms of `source`, as `target` wants it.

    `value` and the result are local; `shape` is the global one.
    """
    if not all_int(shape):
        full = all_reduce(padded_to_most(value), source, target, most(shape), line)
        return full.shrink(tuple((0, d) for d in local_shape(target, shape)))
    op = Ops[source.partial_ops[0]]
    whole = source.without_partial()

    def reason(kind: str) -> Reason:
        return Reason(kind, str(source), str(target), line)

    terms = value.reshape((1, *value.shape))
    count = _group_size(source)
    if not isinstance(target, Sharding):
        moved = transfer(terms, stacked(source), target, (count, *shape), reason("reduce"))
        return reduce_first(moved, op).reshape(shape)
    if target.devices != source.devices:
        cut = _on_devices_of(source, target)
        here = all_reduce(value, source, cut, shape, line)
        return transfer(here, cut, target, shape, reason("send"))
    if target == whole and count > 1 and value.nbytes > DIRECT_NBYTES:
        if (RING or not ALL2ALL) and len(source.mesh_shape) == 1:
            return _ring(value, count, op, whole, reason("all_reduce"))
        return _scatter_and_gather(value, source, count, op, reason("all_reduce"))
    up = target.with_axes([_up(p) for p in target.axes])
    kind = "all_reduce" if target == whole else "reduce_scatter"
    moved = transfer(terms, stacked(source), up, (count, *shape), reason(kind))
    return reduce_first(moved, op).reshape(target.local_shape(shape))


def _on_devices_of(source: Sharding, target: Sharding) -> Sharding:
    """The layout in which terms are reduced to be sent to other devices: each sends its block, if
    they are as many.
    """
    if target.is_replicated or len(target) != len(source):
        return source.without_partial()
    return Sharding(source.devices, target.axes, target.mesh_shape)


def _group_size(source: Sharding) -> int:
    sizes = zip(source.axes, source.mesh_shape, strict=True)
    return prod([size for p, size in sizes if isinstance(p, Partial)])


def _scatter_and_gather(value: UOp, source: Sharding, count: int, op: Ops, reason: Reason) -> UOp:
    """Scatter pieces of the terms within each group, reduce them, gather the results."""
    group = [isinstance(p, Partial) for p in source.axes]
    others = len(source) // count

    def layout(axis: int | None) -> Sharding:
        return source.with_axes([axis if member else 1 for member in group])

    flat = padded_flat(value, count)
    length = cast(int, flat.shape[0])
    terms = flat.reshape((1, 1, length))
    shape = (count, others, length)
    pieces = transfer(terms, layout(0), layout(2), shape, reason)
    reduced = reduce_first(pieces, op)
    full = transfer(reduced, layout(2), layout(None), (1, others, length), reason)
    return full.reshape((length,)).shrink(((0, value.size),)).reshape(value.shape)


def _ring(value: UOp, count: int, op: Ops, whole: Sharding, reason: Reason) -> UOp:
    """Pass pieces around the ring, adding on the way; then pass the sums around once more."""
    flat = padded_flat(value, count)
    length = cast(int, flat.shape[0]) // count
    number = device_number(count)

    def own(step: int) -> UOp:
        start = (number + (count - step)) % count * length
        return flat.shrink(((start, start + length),))

    def send(piece: UOp, pieces: int, moves: list[Move]) -> UOp:
        arg = TransferArg(device_of(whole), (pieces, length), tuple(moves), reason)
        return UOp(Ops.COPY, value.dtype, (piece,), arg).reshape((pieces * length,))

    piece = own(0)
    for step in range(1, count):
        received = send(piece, 1, [Move((j + 1) % count, 0, j, 0) for j in range(count)])
        piece = UOp(op, value.dtype, (received, own(step)))
    # device d now holds the whole sum of piece (d + 1) % count
    devices = range(count)
    full = send(piece, count, [Move(k, (j + 1) % count, j, 0) for k in devices for j in devices])
    return full.shrink(((0, value.size),)).reshape(value.shape)
