"""Copy to shared memory asynchronously, where the target can.

Before: `STORE(shared address, LOAD(global address))`, in a kernel that has a COPY_WAIT. After:
`COPY_ASYNC(shared address, global address)` where the copy has 4, 8 or 16 bytes. A copy of less
stays a load and a store, which a wait and a barrier order as well. For a target without
asynchronous copies, COPY_COMMIT and COPY_WAIT become NOOPs, which only order effects.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.ranges import map_nodes
from tinygrad.dtype import dtypes
from tinygrad.renderer import Renderer, pointer_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

COPIED_BYTES = frozenset({4, 8, 16})


def copy_asynchronously(sink: UOp, renderer: Renderer) -> UOp:
    """Replace the copies of a kernel that waits for them, or the waits if the target cannot."""
    if not any(u.op is Ops.COPY_WAIT for u in sink.toposort()):
        return sink
    return map_nodes(sink, _copy if renderer.target.has_async_copy else _order)


def _order(u: UOp) -> UOp:
    """A wait or a commit as an order of effects alone."""
    return u.replace(op=Ops.NOOP) if u.op in {Ops.COPY_COMMIT, Ops.COPY_WAIT} else u


def _copy(u: UOp) -> UOp:
    """A store as the asynchronous copy that it may be."""
    if u.op is not Ops.STORE or pointer_of(u.src[0]).op is not Ops.DEFINE_LOCAL:
        return u
    value = _moved(u.src[1])
    if value.op is not Ops.LOAD or value.dtype.itemsize not in COPIED_BYTES:
        return u
    if pointer_of(value.src[0]).op is not Ops.DEFINE_GLOBAL or not _is_zero(value.src[1:]):
        return u
    src = (u.src[0], value.src[0], *u.src[2:])
    return UOp(Ops.COPY_ASYNC, dtypes.void, src, value.dtype.itemsize)


def _moved(value: UOp) -> UOp:
    """The load whose bits a value has, or the value."""
    if value.op is Ops.BITCAST and value.dtype.itemsize == value.src[0].dtype.itemsize:
        return _moved(value.src[0])
    if value.op is not Ops.VECTORIZE:
        return value
    lanes = [_moved(x) for x in value.src]
    whole = lanes[0].src[0] if lanes[0].op is Ops.GEP else value
    in_order = all(
        x.op is Ops.GEP and x.src[0] is whole and x.arg == i for i, x in enumerate(lanes)
    )
    return _moved(whole) if in_order and whole.dtype.count == len(lanes) else value


def _is_zero(alternative: tuple[UOp, ...]) -> bool:
    """Whether the value of a masked load is zero where it is not loaded."""
    if not alternative:
        return True
    (node,) = alternative
    parts = node.src if node.op is Ops.VECTORIZE else (node,)
    return all(_is_zero_bits(x) for x in parts)


def _is_zero_bits(node: UOp) -> bool:
    while node.op is Ops.BITCAST:
        node = node.src[0]
    return node.op is Ops.CONST and not node.arg
