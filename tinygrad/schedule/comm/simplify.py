"""Rewrites of the tensor graph before its layouts are lowered: less movement, fewer collectives.

They wait until here because a gradient may be asked for by any node of the graph as it was built,
also by one that these rules would pass over.
"""

from __future__ import annotations

from tinygrad.schedule.comm.dynamic_slice import pick
from tinygrad.schedule.comm.halo import is_halo_copy, sink_halo_copies
from tinygrad.schedule.comm.sink_into_scatter import spread
from tinygrad.sharding import LAYOUT_RULES, Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import ReduceArg, UOp, sint
from tinygrad.uop.reshard import inherit, unplaced
from tinygrad.uop.upat import PatternMatcher, UPat, graph_rewrite


def _kept(x: UOp, shape: tuple[sint, ...]) -> Sharding | None:
    return LAYOUT_RULES["RESHAPE"](x.device, x.shape, shape)


def drop(x: UOp) -> UOp:
    """What matters to the gradient alone is gone by now: `detach(x) -> x`"""
    return x


def reshape_of_reshape(node: UOp, x: UOp) -> UOp | None:
    """`reshape(reshape(x)) -> reshape(x)`"""
    if x.shape == node.shape:
        return x if x.device == node.device else None
    if isinstance(x.device, Sharding) and _kept(x, node.arg) is None:
        return None
    new = UOp(Ops.RESHAPE, node.dtype, (x,), node.arg)
    # through the shape between, a layout may have been kept another way
    return new if new.device == node.device else None


def permute_of_permute(node: UOp, inner: UOp) -> UOp:
    """`permute(permute(x)) -> permute(x)`"""
    return inner.src[0].permute(tuple(inner.arg[i] for i in node.arg))


def reduce_of_reduce(node: UOp, inner: UOp) -> UOp | None:
    """`sum(sum(x)) -> sum(x)` over all the axes"""
    if node.arg.op is not inner.arg.op:
        return None
    axes = tuple(sorted({*node.arg.axes, *inner.arg.axes}))
    return UOp(Ops.REDUCE_AXIS, node.dtype, inner.src, ReduceArg(node.arg.op, axes))


def copy_of_copy(node: UOp, x: UOp) -> UOp | None:
    """`copy(copy(x, A), B) -> copy(x, B)`, which is `x` if that is where it was"""
    if is_halo_copy(node) and not is_halo_copy(node.src[0]):
        return None  # `A` is where the neighbours of an element are
    return x if x.device == node.arg else inherit(node.replace(src=(x,)), node)


def copy_of_constants(node: UOp, x: UOp) -> UOp | None:
    """`copy(f(copy(1, A)), B) -> copy(f(1), B)`: each device makes its own part of it"""
    constant = None if x.device is None else unplaced(x)
    return None if constant is None else inherit(node.replace(src=(constant,)), node)


def copy_of_allreduce(node: UOp, x: UOp) -> UOp | None:
    """`copy(allreduce(x, A), B) -> allreduce(x, B)`: a reduce-scatter, or a reduce"""
    if is_halo_copy(node):
        return None
    return inherit(UOp(Ops.ALLREDUCE, node.dtype, (x,), node.arg), node)


def sum_of_allreduces(a: UOp, b: UOp) -> UOp | None:
    """`allreduce(x) + allreduce(y) -> allreduce(x + y)`: one collective in place of two"""
    if a.arg != b.arg or any(x.src[0].device.partial_ops != ("ADD",) for x in (a, b)):
        return None
    x, y = a.src[0], b.src[0]
    if x.device != y.device:
        # terms of which each device has more than is asked for are cut first
        x, y = _cut_to(x, y.device), _cut_to(y, x.device)
    if x.device != y.device:
        return None
    terms = UOp(Ops.ADD, x.dtype, (x, y))
    return inherit(UOp(Ops.ALLREDUCE, x.dtype, (terms,), a.arg), a)


def _cut_to(terms: UOp, layout: Sharding) -> UOp:
    """Terms in a layout that splits what theirs keeps whole, if it is such a one."""
    pairs = list(zip(terms.device.axes, layout.axes, strict=False))
    cuts = all(p == q or (p is None and isinstance(q, int)) for p, q in pairs)
    if terms.device.mesh_shape != layout.mesh_shape or not cuts:
        return terms
    return UOp(Ops.COPY, terms.dtype, (terms,), layout)


def raise_allreduce(node: UOp, inner: UOp) -> UOp | None:
    """`reshape(allreduce(x)) -> allreduce(reshape(x))`, also of a permute, so that sums meet"""
    x, target = inner.src[0], inner.arg
    rule = LAYOUT_RULES[node.op.name]
    if rule(x.device, x.shape, node.arg) is None:
        return None
    if isinstance(target, Sharding):
        target = rule(target, x.shape, node.arg)
        if target is None:
            return None
    terms = node.replace(src=(x,))
    return inherit(UOp(Ops.ALLREDUCE, node.dtype, (terms,), target), inner)


def _over(op: Ops) -> UPat:
    return UPat(op, src=(UPat.var("x"),))


_RAISED = (Ops.RESHAPE, Ops.PERMUTE)

rules = PatternMatcher(
    [
        (UPat((Ops.DETACH, Ops.CONTIGUOUS_BACKWARD), src=(UPat.var("x"),)), drop),
        (UPat(Ops.RESHAPE, src=(_over(Ops.RESHAPE),), name="node"), reshape_of_reshape),
        (
            UPat(Ops.PERMUTE, src=(UPat(Ops.PERMUTE, name="inner"),), name="node"),
            permute_of_permute,
        ),
        (
            UPat(Ops.REDUCE_AXIS, src=(UPat(Ops.REDUCE_AXIS, name="inner"),), name="node"),
            reduce_of_reduce,
        ),
        (UPat(Ops.COPY, src=(_over(Ops.COPY),), name="node"), copy_of_copy),
        (UPat(Ops.COPY, src=(UPat.var("x"),), name="node"), copy_of_constants),
        (UPat(Ops.COPY, src=(_over(Ops.ALLREDUCE),), name="node"), copy_of_allreduce),
        (
            UPat(Ops.ADD, src=(UPat(Ops.ALLREDUCE, name="a"), UPat(Ops.ALLREDUCE, name="b"))),
            sum_of_allreduces,
        ),
        (
            UPat(
                Ops.SHRINK, src=(UPat(Ops.COPY, src=(UPat.var("x"),), name="moved"),), name="node"
            ),
            pick,
        ),
        (UPat(_RAISED, src=(UPat(Ops.ALLREDUCE, name="inner"),), name="node"), raise_allreduce),
    ]
)


def simplify(sink: UOp) -> UOp:
    """The tensor graph after all rules."""
    sink = spread(sink_halo_copies(sink))
    sink = sink.replace(src=tuple(_with_round_trip(x) for x in sink.src))
    sink = graph_rewrite(sink, rules, name="simplify tensor graph", rebuilt=inherit)
    return reduce_once(sink)


def _with_round_trip(node: UOp) -> UOp:
    """`copy(copy(x, A), B)`, kept as it is if `x` is memory on `B`: a value that is asked for gets
    memory of its own, which writing to `x` does not change.
    """
    if node.op in {Ops.RESHAPE, Ops.CONTIGUOUS} and node.src[0].device is not None:
        return node.replace(src=(_with_round_trip(node.src[0]),))
    if node.op is not Ops.COPY or node.src[0].op is not Ops.COPY:
        return node
    start = node
    while start.op in {Ops.COPY, Ops.RESHAPE}:
        start = start.src[0]
    if start.op not in {Ops.BUFFER, Ops.ASSIGN} or start.device != node.device:
        return node
    return inherit(node.replace(src=(node.src[0].contiguous(),)), node)


def reduce_once(sink: UOp) -> UOp:
    """`allreduce(x), allreduce(reshape(x)) -> allreduce(x), reshape(allreduce(x))`: of several
    views of the same terms, as raised for different users, one is reduced and the others are read
    from that.
    """
    done: dict[UOp, UOp] = {}
    reduced: dict[UOp, list[UOp]] = {}
    for node in sink.toposort():
        src = tuple(done[x] for x in node.src)
        new = node if src == node.src else inherit(node.replace(src=src), node)
        if node.op is Ops.ALLREDUCE:
            alike = reduced.setdefault(_moved_from(new.src[0])[-1], [])
            views = [view for first in alike if (view := _seen_in(first, new)) is not None]
            if views:
                new = views[0]
            else:
                alike.append(new)
        done[node] = new
    return done[sink]


def _moved_from(node: UOp) -> list[UOp]:
    """`node`, and what it is a reshape or permute of, down to what is none."""
    found = [node]
    while found[-1].op in _RAISED:
        found.append(found[-1].src[0])
    return found


def _seen_in(first: UOp, node: UOp) -> UOp | None:
    """An all-reduce as a view of another one of the same terms, if its layout is kept."""
    back = [_inverse(moved) for moved in _moved_from(first.src[0])[:-1]]
    forth = [(moved.op, moved.arg) for moved in reversed(_moved_from(node.src[0])[:-1])]
    view = first
    for op, arg in (*back, *forth):
        layout = view.device
        if isinstance(layout, Sharding) and LAYOUT_RULES[op.name](layout, view.shape, arg) is None:
            return None
        view = UOp(op, view.dtype, (view,), arg)
    return view if view.device == node.device else None


def _inverse(moved: UOp) -> tuple[Ops, tuple[sint, ...]]:
    """The reshape or permute that takes another one back."""
    if moved.op is Ops.RESHAPE:
        return moved.op, moved.src[0].shape
    return moved.op, tuple(moved.arg.index(axis) for axis in range(len(moved.arg)))
