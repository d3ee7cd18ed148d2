"""Shape propagation: the shape of a node, from the shapes of its sources and its argument.

Input: a node whose sources have shapes. Output: a tuple of sizes, each an int or a symbolic
integer, or None outside of the tensor graph.
"""

from __future__ import annotations

from typing import Any

from tinygrad.sharding import Shape
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.node import Node
from tinygrad.uop.shards import selected_shape, stacked_shape

# ops of the kernel graph and the linear program: values are scalars or vectors in a loop nest
SHAPELESS = frozenset(
    {
        *(Ops.SINK, Ops.NOOP, Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.DEFINE_REG, Ops.RANGE),
        *(Ops.END, Ops.REDUCE, Ops.STAGE, Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.IF),
        *(Ops.ENDIF, Ops.BARRIER, Ops.SPECIAL, Ops.VECTORIZE, Ops.GEP, Ops.SHUFFLE),
        *(Ops.MMA, Ops.LOAD_MATRIX, Ops.COPY_ASYNC, Ops.COPY_COMMIT, Ops.COPY_WAIT),
        *(Ops.MMA_BEGIN, Ops.MMA_ASYNC, Ops.MMA_COMMIT, Ops.MMA_WAIT, Ops.ASYNC_FENCE),
        *(Ops.BOX, Ops.COPY_BULK, Ops.MBARRIER_INIT, Ops.MBARRIER_EXPECT, Ops.MBARRIER_ARRIVE),
        Ops.MBARRIER_WAIT,
        Ops.CUSTOM,
    }
)
SCALARS = frozenset({Ops.CONST, Ops.DEFINE_VAR, Ops.BIND})
_STATES_SHAPE = frozenset({Ops.BUFFER, Ops.BUFFER_VIEW, Ops.PARAM, Ops.TRANSFER, Ops.PIECE})


def compute_shape(node: Node) -> Shape | None:
    """The shape of `node`, whose sources have a shape already; None outside the tensor graph."""
    op = node.op
    if op in GroupOp.ALU:
        for x in node.src:
            shape = x.shape_or_none
            if shape != ():
                return shape
        return ()
    if op in SCALARS:
        return ()
    if op in _STATES_SHAPE:
        return tuple(node.arg.shape)
    if op in SHAPELESS:
        return None
    if op is Ops.ARANGE:
        return (_simple(node.arg),)
    if op is Ops.MSTACK:
        return stacked_shape(node)
    source = node.src[0].shape_or_none
    if source is None:
        return None
    if op in GroupOp.Movement:
        return movement_shape(op, source, node.arg)
    if op is Ops.STACK:
        return (len(node.src), *source)
    if op is Ops.REDUCE_AXIS:
        return tuple(1 if i in node.arg.axes else d for i, d in enumerate(source))
    if op is Ops.GATHER:
        return (*node.src[1].shape, *source[node.arg + 1 :])
    if op in GroupOp.Scatter:
        return (*node.arg, *source[node.src[1].ndim :])
    if op is Ops.BITCAST and node.dtype.itemsize != node.src[0].dtype.itemsize:
        size = source[-1] * node.src[0].dtype.itemsize // node.dtype.itemsize
        return (*source[:-1], size)
    if op is Ops.MSELECT:
        return selected_shape(node)
    if op is Ops.CUSTOM_KERNEL:
        written: Node = node.src[node.arg.output]
        return written.shape
    return source


def movement_shape(op: Ops, shape: Shape, arg: Any) -> Shape:
    """The shape of the result of a movement op."""
    if op is Ops.RESHAPE or op is Ops.EXPAND:
        # canonical, so that equal symbolic sizes are one node
        return tuple([d if d.__class__ is int else _simple(d) for d in arg])
    if op is Ops.PERMUTE:
        return tuple([shape[i] for i in arg])
    if op is Ops.PAD:
        return tuple(
            _simple(d + before + after) for d, (before, after) in zip(shape, arg, strict=True)
        )
    if op is Ops.SHRINK:
        return tuple([_extent(start, end) for start, end in arg])
    if op in {Ops.WINDOW, Ops.UNWINDOW}:
        return tuple(arg.sizes(shape))
    assert op is Ops.FLIP
    return shape


def _extent(start: Any, end: Any) -> Any:
    # a slice of fixed size at a symbolic start is the common case, and needs no algebra
    if isinstance(end, int) or end.op is not Ops.ADD or end.src[0] is not start:
        return _simple(end - start)
    if end.src[1].op is Ops.CONST:
        return end.src[1].arg
    return _simple(end - start)


def _simple(size: Any) -> Any:
    return size if isinstance(size, int) else size.ssimplify()
