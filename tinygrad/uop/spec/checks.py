"""Checks of single nodes: sources, dtypes, shapes, pointers. `forms.py` lists them for each op.

A check takes a node, whose sources are checked already, and returns None or an error message: the
end of a sentence that starts with the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinygrad.dtype import PtrDType, dtypes
from tinygrad.helpers import all_int, prod
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import AxisType
from tinygrad.uop.node import Node
from tinygrad.uop.sint import same_shape, same_size

Check = Callable[[Node], str | None]

FLOAT_OPS = GroupOp.Elementary | {Ops.SQRT, Ops.RECIPROCAL, Ops.FDIV}
INTEGER_OPS = frozenset({Ops.IDIV, Ops.SHL, Ops.SHR, Ops.THREEFRY})
BIT_OPS = frozenset({Ops.AND, Ops.OR, Ops.XOR})


def sources(*counts: int) -> Check:
    """The node has one of these numbers of sources."""

    def check(node: Node) -> str | None:
        if len(node.src) in counts:
            return None
        return f"has {len(node.src)} sources, not {' or '.join(map(str, counts))}"

    return check


def argument(*kinds: type) -> Check:
    """The argument is of one of these types."""

    def check(node: Node) -> str | None:
        if isinstance(node.arg, kinds):
            return None
        wanted = " or ".join(kind.__name__ for kind in kinds)
        return f"has the argument {node.arg!r}, not a {wanted}"

    return check


def is_void(node: Node) -> str | None:
    """The node has no value."""
    return None if node.dtype is dtypes.void else f"has the dtype {node.dtype!r}, not void"


def keeps_dtype(node: Node) -> str | None:
    """The node has its first source's dtype."""
    found = node.src[0].dtype
    return None if node.dtype is found else f"has the dtype {node.dtype!r} of a source in {found!r}"


def sources_are(op: Ops, start: int = 0) -> Check:
    """All sources, from number `start`, are of one op."""

    def check(node: Node) -> str | None:
        wrong = next((x for x in node.src[start:] if x.op is not op), None)
        return None if wrong is None else f"has the source {wrong.op.name}, not {op.name}"

    return check


def constant_fits(node: Node) -> str | None:
    """A CONST holds a number of its dtype's kind; a vector may hold one a lane."""
    values = node.arg if isinstance(node.arg, tuple) and node.dtype.count > 1 else (node.arg,)
    for value in values:
        kind = float if dtypes.is_float(node.dtype) else int
        kind = bool if dtypes.is_bool(node.dtype) else kind
        if type(value) is not kind:
            return f"holds {value!r}, which is not a {kind.__name__}, in {node.dtype!r}"
    return None


def elementwise_dtypes(node: Node) -> str | None:
    """The dtypes of an ALU node and its sources agree, and the op is defined on them."""
    op, dtype = node.op, node.dtype
    arity = 1 if op in GroupOp.Unary else 2 if op in GroupOp.Binary else 3
    if len(node.src) != arity:
        return f"has {len(node.src)} sources, not {arity}"
    operands = node.src
    if op is Ops.WHERE:
        if not dtypes.is_bool(node.src[0].dtype):
            return f"selects by {node.src[0].dtype!r}, not by bool; compare first"
        operands = node.src[1:]
    if op in GroupOp.Comparison:
        if not dtypes.is_bool(dtype):
            return f"gives {dtype!r}, not bool"
        dtype = node.src[0].dtype
    if op is Ops.SHL or op is Ops.SHR:
        operands = node.src[:1]
    wrong = next((x for x in operands if x.dtype is not dtype), None)
    if wrong is not None:
        return f"in {dtype!r} has a source in {wrong.dtype!r}; cast it"
    if op in FLOAT_OPS and not dtypes.is_float(dtype):
        return f"is not defined on {dtype!r}, only on floats"
    if op in INTEGER_OPS and not dtypes.is_int(dtype):
        return f"is not defined on {dtype!r}, only on integers"
    if op in BIT_OPS and dtypes.is_float(dtype):
        return f"is not defined on {dtype!r}, only on integers and bool"
    return None


def bitcast_sizes(node: Node) -> str | None:
    """A BITCAST is between dtypes with bits, and the last axis can be cut to the new size."""
    source = node.src[0]
    old, new = source.dtype.itemsize, node.dtype.itemsize
    if not old or not new:
        return f"from {source.dtype!r} to {node.dtype!r}: one of them has no bits"
    shape = source.shape_or_none
    if old == new or shape is None:
        return None
    if not shape or (isinstance(shape[-1], int) and shape[-1] * old % new):
        return f"from {source.dtype!r} to {node.dtype!r} does not divide the last axis of {shape}"
    return None


# ---- shapes ----


def elementwise_shapes(node: Node) -> str | None:
    """The sources of an elementwise op have one shape, or ()."""
    shapes = [x.shape_or_none for x in node.src]
    if None in shapes:
        position = shapes.index(None)
        return f"has the source {node.src[position].op.name}, which has no shape"
    full = [s for s in shapes if s]
    if all(same_shape(full[0], s) for s in full[1:]):
        return None
    return f"has sources of the shapes {', '.join(map(str, dict.fromkeys(full)))}; expand first"


def movement_argument(node: Node) -> str | None:
    """The argument of a movement op fits its source's shape."""
    shape = node.src[0].shape_or_none
    if shape is None:
        return f"moves {node.src[0].op.name}, which has no shape"
    if not _MOVEMENT[node.op](shape, node.arg):
        return f"{node.arg} does not fit the shape {shape}"
    return None


def _reshape_fits(shape: tuple[Any, ...], arg: Any) -> bool:
    return isinstance(arg, tuple) and (not all_int((*shape, *arg)) or prod(shape) == prod(arg))


def _expand_fits(shape: tuple[Any, ...], arg: Any) -> bool:
    if not isinstance(arg, tuple) or len(arg) != len(shape):
        return False
    return all(old == 1 or same_size(old, new) for old, new in zip(shape, arg))


def _permute_fits(shape: tuple[Any, ...], arg: Any) -> bool:
    return isinstance(arg, tuple) and sorted(arg) == list(range(len(shape)))


def _is_pairs(shape: tuple[Any, ...], arg: Any) -> bool:
    return isinstance(arg, tuple) and len(arg) == len(shape) and all(len(pair) == 2 for pair in arg)


def _pad_fits(shape: tuple[Any, ...], arg: Any) -> bool:
    # some values of a Variable may not fit; indexing checks those that it is bound to
    return _is_pairs(shape, arg) and all(_upper_bound(n) >= 0 for pair in arg for n in pair)


def _shrink_fits(shape: tuple[Any, ...], arg: Any) -> bool:
    if not _is_pairs(shape, arg):
        return False
    for (start, end), size in zip(arg, shape):
        if _upper_bound(start) < 0 or (all_int((start, end, size)) and not start <= end <= size):
            return False
    return True


def _flip_fits(shape: tuple[Any, ...], arg: Any) -> bool:
    return isinstance(arg, tuple) and len(arg) == len(shape) and set(arg) <= {True, False}


def _window_fits(shape: tuple[Any, ...], arg: Any) -> bool:
    return all(axis in range(len(shape)) for axis in arg.axes)


_MOVEMENT: dict[Ops, Callable[[tuple[Any, ...], Any], bool]] = {
    Ops.RESHAPE: _reshape_fits,
    Ops.EXPAND: _expand_fits,
    Ops.PERMUTE: _permute_fits,
    Ops.PAD: _pad_fits,
    Ops.SHRINK: _shrink_fits,
    Ops.FLIP: _flip_fits,
    Ops.WINDOW: _window_fits,
    Ops.UNWINDOW: _window_fits,
}


def _upper_bound(size: Any) -> int:
    """The upper bound of a size, simplified first."""
    return size if isinstance(size, int) else int(size.simplify().vmax)


def reduce_axes(node: Node) -> str | None:
    """A REDUCE_AXIS names axes of its source once each, and an op that reduces."""
    axes, ndim = node.arg.axes, node.src[0].ndim
    if node.arg.op not in GroupOp.Reduce:
        return f"reduces by {node.arg.op.name}, which is not one of ADD, MUL, MAX"
    if len(set(axes)) != len(axes) or not all(axis in range(ndim) for axis in axes):
        return f"reduces the axes {axes} of a source of {ndim} axes"
    return None


def assign_fits(node: Node) -> str | None:
    """An ASSIGN stores a value of its target's dtype and shape."""
    target, value = node.src[:2]
    if target.dtype is not value.dtype:
        return f"stores {value.dtype!r} into {target.dtype!r}; cast it"
    if not same_shape(target.shape, value.shape):
        return f"stores the shape {value.shape} into {target.shape}"
    return None


def integer_index(node: Node) -> str | None:
    """The second source, an index, is of integers."""
    dtype = node.src[1].dtype
    return None if dtypes.is_int(dtype) else f"indexes by {dtype!r}, not by integers"


def gather_batch(node: Node) -> str | None:
    """The batch axes of a GATHER or scatter are axes of its index too."""
    first, index = node.src
    is_gather = node.op is Ops.GATHER
    batch = node.arg if is_gather else len(node.arg) - 1
    shared = batch if is_gather else index.ndim
    if batch > min(index.ndim, first.ndim - is_gather):
        return f"has a batch of {batch} axes, and sources of {first.ndim} and {index.ndim}"
    if not same_shape(first.shape[:shared], index.shape[:shared]):
        return f"selects by an index {index.shape} beside a source {first.shape}"
    return None


# ---- kernels ----


def pointer(node: Node) -> str | None:
    """The dtype is that of a pointer."""
    return None if isinstance(node.dtype, PtrDType) else f"has the dtype {node.dtype!r}, no pointer"


def index_sources(node: Node) -> str | None:
    """An INDEX takes a pointer, an integer and, where it may be out of bounds, a condition."""
    if len(node.src) not in (2, 3):
        return f"has {len(node.src)} sources, not (pointer, index[, condition])"
    if not isinstance(node.src[0].dtype, PtrDType):
        return f"indexes {node.src[0].dtype!r}, which is not a pointer"
    if not dtypes.is_int(node.src[1].dtype):
        return f"indexes by {node.src[1].dtype!r}, not by an integer"
    if len(node.src) == 3 and not dtypes.is_bool(node.src[2].dtype):
        return f"has a condition in {node.src[2].dtype!r}, not in bool"
    return None


def load_sources(node: Node) -> str | None:
    """A LOAD takes an INDEX and, if that has a condition, an alternative value."""
    if not node.src or node.src[0].op not in {Ops.INDEX, Ops.CAST}:
        return "does not load from an INDEX"
    if len(node.src) > 1 and node.src[1].dtype is not node.dtype:
        return f"in {node.dtype!r} has an alternative in {node.src[1].dtype!r}"
    if len(node.src) == 1 and node.src[0].op is Ops.INDEX and len(node.src[0].src) == 3:
        return "has no value where its condition is false"
    return None


def vector_load_sources(node: Node) -> str | None:
    """A LOAD takes an INDEX; a GEP may select only lanes whose condition is true, so that a vector
    needs no value where it is false.
    """
    if node.dtype.count > 1 and len(node.src) == 1 and node.src[0].op is Ops.INDEX:
        return None
    return load_sources(node)


def store_sources(node: Node) -> str | None:
    """A STORE takes an INDEX, a value, and the ranges it runs over."""
    if len(node.src) < 2 or node.src[0].op not in {Ops.INDEX, Ops.CAST}:
        return "does not store to an INDEX"
    element, value = node.src[0].dtype.base, node.src[1].dtype
    if element.scalar() is not value.scalar():
        return f"stores {value!r} into {element!r}; cast it"
    return None


def is_plain_loop(node: Node) -> str | None:
    """A RANGE has no kind yet but whether its steps depend on each other."""
    if node.arg.kind in {AxisType.LOOP, AxisType.REDUCE}:
        return None
    return f"has the kind {node.arg.kind.name} before loops are optimized"


def is_not_over_lanes(node: Node) -> str | None:
    """A RANGE is not over the lanes of a vector, which were expanded."""
    return "is over lanes that were expanded" if node.arg.kind is AxisType.VECTOR else None


def reduce_sources(node: Node) -> str | None:
    """A REDUCE has an op that reduces, over ranges."""
    if node.arg not in GroupOp.Reduce:
        return f"reduces by {node.arg!r}, which is not one of ADD, MUL, MAX"
    return None


def threads_stay_together(program: Sequence[Node]) -> tuple[Node, str] | None:
    """A BARRIER or SHUFFLE is where all threads of a block come: in no branch, and in no loop whose
    number of steps depends on the thread.
    """
    varying: set[Node] = set()
    divergent: list[bool] = [False]
    for node in program:
        is_thread = node.op is Ops.RANGE and node.arg.kind is AxisType.LOCAL
        if is_thread or not varying.isdisjoint(node.src):
            varying.add(node)
        if node.op is Ops.RANGE:
            divergent.append(divergent[-1] or any(x in varying for x in node.src))
        elif node.op is Ops.IF:
            divergent.append(True)
        elif node.op in {Ops.END, Ops.ENDIF}:
            divergent.pop()
        elif node.op in {Ops.BARRIER, Ops.SHUFFLE} and divergent[-1]:
            return node, "is where not all threads of a block come"
    return None
