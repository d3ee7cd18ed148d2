"""Gradients of ops that move values: over axes, into memory, and between devices.

Input: the gradient of the result and the node. Output: the gradient by what was moved. Invariant:
the gradient of a layout change is the same value; those of equal replicas add up to that of the
value.
"""

from __future__ import annotations

from tinygrad.gradient.rule import GradientRule, Gradients, number, total
from tinygrad.sharding import Partial, replica_count, shard_shapes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import gradient_of_allreduce, gradient_of_copy
from tinygrad.uop.sint import same_size


def _pass(g: UOp, y: UOp) -> Gradients:
    return (g,)


def _contiguous_backward(g: UOp, y: UOp) -> Gradients:
    return (g.contiguous(),)


def _copy(g: UOp, y: UOp) -> Gradients:
    return (None if y.src[0].device is None else gradient_of_copy(g, y),)


def _allreduce(g: UOp, y: UOp) -> Gradients:
    return (gradient_of_allreduce(g, y),)


def _mstack(g: UOp, y: UOp) -> Gradients:
    layout = y.arg
    replicas = replica_count(layout)
    if replicas > 1:
        # equal replicas get equal gradients, which add up to that of the value
        g = g.alu(Ops.MUL, number(g, 1 / replicas))
    if g.device != layout:
        g = g.copy_to_device(layout)
    return tuple(g.mselect(number) for number in range(len(layout)))


def _mselect(g: UOp, y: UOp) -> Gradients:
    x = y.src[0]
    layout = x.layout
    shapes = shard_shapes(layout, x.shape)
    # the gradients of replicas add up
    summed = layout.with_axes([Partial("ADD") if p is None else p for p in layout.axes])
    parts = [
        (g if i == y.arg else number(g, 0).broadcast_to(shape)).copy_to_device(device)
        for i, (device, shape) in enumerate(zip(layout.devices, shapes, strict=True))
    ]
    stack = UOp(Ops.MSTACK, g.dtype, tuple(parts), summed)
    return (stack.allreduce(layout) if summed.is_partial else stack,)


def _assign(g: UOp, y: UOp) -> Gradients:
    return None, g


def _custom_kernel(g: UOp, y: UOp) -> Gradients:
    raise RuntimeError(
        f"custom kernel {y.arg.kernel.arg.name} has no gradient; pass custom_kernel(grad_fxn=...), "
        "or detach() its inputs"
    )


def _reshape(g: UOp, y: UOp) -> Gradients:
    return (g.reshape(y.src[0].shape),)


def _expand(g: UOp, y: UOp) -> Gradients:
    pairs = enumerate(zip(y.src[0].shape, y.shape, strict=True))
    return (total(g, tuple(i for i, (old, new) in pairs if not same_size(old, new))),)


def _permute(g: UOp, y: UOp) -> Gradients:
    return (g.permute(y.inverse_permute()),)


def _pad(g: UOp, y: UOp) -> Gradients:
    sizes = zip(y.src[0].shape, y.arg, strict=True)
    return (g.shrink(tuple((before, before + size) for size, (before, _) in sizes)),)


def _shrink(g: UOp, y: UOp) -> Gradients:
    sizes = zip(y.src[0].shape, y.arg, strict=True)
    return (g.pad(tuple((start, size - end) for size, (start, end) in sizes)),)


def _flip(g: UOp, y: UOp) -> Gradients:
    return (g.flip(y.arg),)


def _window(g: UOp, y: UOp) -> Gradients:
    return (g.unwindow(y.arg.resized(y.src[0].shape)),)


def _unwindow(g: UOp, y: UOp) -> Gradients:
    return (g.window(y.arg.resized(y.src[0].shape)),)


MOVEMENT_RULES: dict[Ops, GradientRule] = {
    Ops.CONTIGUOUS: _pass,
    Ops.CONTIGUOUS_BACKWARD: _contiguous_backward,
    Ops.COPY: _copy,
    Ops.ALLREDUCE: _allreduce,
    Ops.MSTACK: _mstack,
    Ops.MSELECT: _mselect,
    Ops.ASSIGN: _assign,
    Ops.CUSTOM_KERNEL: _custom_kernel,
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.WINDOW: _window,
    Ops.UNWINDOW: _unwindow,
}
