"""Rewrite rules of the tensor graph before its layouts are lowered: fewer bytes, fewer collectives.

Input and output: a tensor graph. Invariant: every value keeps its shape, dtype and device. The
rules run at scheduling and not while the graph is built, because a gradient may be taken with
respect to any node, also to one that they remove.
"""

from __future__ import annotations

from tinygrad.schedule.comm.dynamic_slice import gather_dynamic_slice
from tinygrad.schedule.comm.halo import is_halo_copy
from tinygrad.schedule.movement_chains import merged_chain
from tinygrad.sharding import (
    LAYOUT_RULES,
    Sharding,
    max_size,
    reduced_first,
)
from tinygrad.uop import Ops
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import ReduceArg, UOp, sint
from tinygrad.uop.reshard import without_placement
from tinygrad.uop.rewrite import PatternMatcher, graph_rewrite
from tinygrad.uop.upat import UPat


def _reshaped_layout(x: UOp, shape: tuple[sint, ...]) -> Sharding | None:
    return LAYOUT_RULES["RESHAPE"](x.layout, x.shape, shape)


def drop_gradient_ops(x: UOp) -> UOp:
    """`detach(x) -> x`: gradients were computed before scheduling"""
    return x


def reshape_of_reshape(node: UOp, x: UOp) -> UOp | None:
    """`reshape(reshape(x)) -> reshape(x)`"""
    is_sharded = isinstance(x.device, Sharding) and x.shape != node.shape
    if is_sharded and _reshaped_layout(x, node.arg) is None:
        return None
    new = merged_chain(Ops.RESHAPE, node.src[0], node.arg)
    # the layout may have followed another way through the intermediate shape
    return new if new.device == node.device else None


def permute_of_permute(node: UOp, inner: UOp) -> UOp:
    """`permute(permute(x)) -> permute(x)`"""
    return merged_chain(Ops.PERMUTE, inner, node.arg)


def reduce_of_reduce(node: UOp, inner: UOp) -> UOp | None:
    """`sum(sum(x)) -> sum(x)` over all the axes"""
    if node.arg.op is not inner.arg.op:
        return None
    axes = tuple(sorted({*node.arg.axes, *inner.arg.axes}))
    return UOp(Ops.REDUCE_AXIS, node.dtype, inner.src, ReduceArg(node.arg.op, axes))


def copy_of_copy(node: UOp, x: UOp) -> UOp | None:
    """`copy(copy(x, A), B) -> copy(x, B)`, or `x` if `x` is on `B`"""
    if is_halo_copy(node) and not is_halo_copy(node.src[0]):
        return None  # a halo exchange needs the layout `A`
    return x if x.device == node.arg else node.replace(src=(x,))


def copy_of_constants(node: UOp, x: UOp) -> UOp | None:
    """`copy(f(copy(1, A)), B) -> copy(f(1), B)`: each device computes its own shard"""
    constant = None if x.device is None else without_placement(x)
    return None if constant is None else node.replace(src=(constant,))


def copy_of_allreduce(node: UOp, x: UOp) -> UOp | None:
    """`copy(allreduce(x, A), B) -> allreduce(x, B)`: a reduce-scatter, or a reduce. Where it takes
    less time, `copy(allreduce(x, C), B)`.
    """
    if is_halo_copy(node):
        return None
    reduced: TensorDevice = node.arg
    if isinstance(reduced, Sharding) and reduced.devices == x.layout.devices:
        reduced = reduced_first(x.layout, reduced, tuple(map(max_size, x.shape)), x.dtype.itemsize)
    if reduced == node.src[0].arg:
        return None
    found = UOp(Ops.ALLREDUCE, node.dtype, (x,), reduced)
    return found if reduced == node.arg else node.replace(src=(found,))


def sum_of_allreduces(a: UOp, b: UOp) -> UOp | None:
    """`allreduce(x) + allreduce(y) -> allreduce(x + y)`: one collective in place of two"""
    if a.arg != b.arg or any(x.src[0].layout.partial_ops != ("ADD",) for x in (a, b)):
        return None
    x, y = a.src[0], b.src[0]
    if x.device != y.device:
        # one that is less sharded is sliced first
        x, y = _sliced_to(x, y.layout), _sliced_to(y, x.layout)
    if x.device != y.device:
        return None
    total = UOp(Ops.ADD, x.dtype, (x, y))
    return UOp(Ops.ALLREDUCE, x.dtype, (total,), a.arg)


def _sliced_to(partial: UOp, layout: Sharding) -> UOp:
    """A partial value in `layout`, or unchanged if `layout` is not a refinement of its own."""
    pairs = list(zip(partial.layout.axes, layout.axes, strict=False))
    refines = all(p == q or (p is None and isinstance(q, int)) for p, q in pairs)
    if partial.layout.mesh_shape != layout.mesh_shape or not refines:
        return partial
    return UOp(Ops.COPY, partial.dtype, (partial,), layout)


def hoist_allreduce(node: UOp, inner: UOp) -> UOp | None:
    """`reshape(allreduce(x)) -> allreduce(reshape(x))`, also of a permute: then all-reduces that
    are added meet in `sum_of_allreduces`.
    """
    x, target = inner.src[0], inner.arg
    rule = LAYOUT_RULES[node.op.name]
    if rule(x.layout, x.shape, node.arg) is None:
        return None
    if isinstance(target, Sharding):
        target = rule(target, x.shape, node.arg)
        if target is None:
            return None
    return UOp(Ops.ALLREDUCE, node.dtype, (node.replace(src=(x,)),), target)


def _of(op: Ops) -> UPat:
    return UPat(op, src=(UPat.var("x"),))


rules = PatternMatcher(
    [
        (UPat((Ops.DETACH, Ops.CONTIGUOUS_BACKWARD), src=(UPat.var("x"),)), drop_gradient_ops),
        (UPat(Ops.RESHAPE, src=(_of(Ops.RESHAPE),), name="node"), reshape_of_reshape),
        (
            UPat(Ops.PERMUTE, src=(UPat(Ops.PERMUTE, name="inner"),), name="node"),
            permute_of_permute,
        ),
        (
            UPat(Ops.REDUCE_AXIS, src=(UPat(Ops.REDUCE_AXIS, name="inner"),), name="node"),
            reduce_of_reduce,
        ),
        (UPat(Ops.COPY, src=(_of(Ops.COPY),), name="node"), copy_of_copy),
        (UPat(Ops.COPY, src=(UPat.var("x"),), name="node"), copy_of_constants),
        (UPat(Ops.COPY, src=(_of(Ops.ALLREDUCE),), name="node"), copy_of_allreduce),
        (
            UPat(Ops.ADD, src=(UPat(Ops.ALLREDUCE, name="a"), UPat(Ops.ALLREDUCE, name="b"))),
            sum_of_allreduces,
        ),
        (
            UPat(Ops.SHRINK, src=(UPat(Ops.COPY, src=(UPat.var("x"),), name="copy"),), name="node"),
            gather_dynamic_slice,
        ),
        (
            UPat((Ops.RESHAPE, Ops.PERMUTE), src=(UPat(Ops.ALLREDUCE, name="inner"),), name="node"),
            hoist_allreduce,
        ),
    ]
)


def simplify_communication(sink: UOp) -> UOp:
    """Apply all rules. `sink` has passed `keep_round_trips`."""
    return graph_rewrite(sink, rules, name="simplify communication")


def keep_round_trips(sink: UOp) -> UOp:
    """Materialise between the copies of a `copy(copy(x, A), B)` that is asked for, if `x` is memory
    on `B`: the result gets memory of its own, which writing to `x` does not change.
    """
    return sink.replace(src=tuple(_with_round_trip(x) for x in sink.src))


def _with_round_trip(node: UOp) -> UOp:
    if node.op in {Ops.RESHAPE, Ops.CONTIGUOUS} and node.src[0].device is not None:
        return node.replace(src=(_with_round_trip(node.src[0]),))
    if node.op is not Ops.COPY or node.src[0].op is not Ops.COPY:
        return node
    start = node
    while start.op in {Ops.COPY, Ops.RESHAPE}:
        start = start.src[0]
    if start.op not in {Ops.BUFFER, Ops.ASSIGN} or start.device != node.device:
        return node
    return node.replace(src=(node.src[0].contiguous(),))
