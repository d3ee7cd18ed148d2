"""Compute indices in 32 bits where bounds prove that every value fits.

Before: integers of index arithmetic, 64 bits wide. After, for targets with threads, whose registers
have 32 bits: int32 for every loop counter and expression whose value and operands fit, index for
all others, with casts between them.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer import Renderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import fits_int32

_ANY_WIDTH = frozenset(
    {
        *(Ops.INDEX, Ops.STORE, Ops.AFTER, Ops.REDUCE, Ops.BARRIER, Ops.SINK, Ops.SHUFFLE),
        *(Ops.COPY_ASYNC, Ops.COPY_COMMIT, Ops.COPY_WAIT, Ops.NOOP),
        *(Ops.MMA_BEGIN, Ops.MMA_ASYNC, Ops.MMA_COMMIT, Ops.MMA_WAIT, Ops.ASYNC_FENCE),
        *(Ops.BOX, Ops.COPY_BULK, Ops.MBARRIER_INIT, Ops.MBARRIER_EXPECT, Ops.MBARRIER_ARRIVE),
        Ops.MBARRIER_WAIT,
    }
)


def narrow_indices(sink: UOp, renderer: Renderer) -> UOp:
    """The kernel with indices of 32 bits, if its target has threads."""
    if not renderer.target.has_threads:
        return sink
    done: dict[UOp, UOp] = {}
    for u in sink.toposort():
        done[u] = _narrowed(u, done)
    return done[sink]


def _narrowed(u: UOp, done: dict[UOp, UOp]) -> UOp:
    """The node over narrowed sources."""
    if u.op is Ops.CONST or u.op is Ops.DEFINE_VAR:
        narrow = u.dtype is dtypes.index and fits_int32(u)
        return _as(u, dtypes.int32) if narrow else u
    operands = [x for x in u.src if x.dtype is dtypes.index]
    if not operands and u.dtype is not dtypes.index:
        src = tuple([done[x] for x in u.src])
        return u.with_sources(src)
    counted = [*operands, u] if u.dtype is dtypes.index else operands
    kind = dtypes.int32 if fits_int32(*counted) else dtypes.index
    if u.op is Ops.CAST:
        return _as(done[u.src[0]], kind if u.dtype is dtypes.index else u.dtype)
    if u.op in _ANY_WIDTH:
        # every operand has a width of its own
        src = tuple([done[x] for x in u.src])
        return u.with_sources(src)
    src = tuple([_as(done[x], kind) if x.dtype is dtypes.index else done[x] for x in u.src])
    result = UOp(u.op, kind if u.dtype is dtypes.index else u.dtype, src, u.arg)
    # a value that fits, computed of operands that do not
    return _as(result, dtypes.int32) if _is_narrow_result(u, kind) else result


def _is_narrow_result(u: UOp, kind: DType) -> bool:
    is_wide = u.dtype is dtypes.index and kind is dtypes.index
    return is_wide and u.op is not Ops.RANGE and fits_int32(u)


def _as(node: UOp, dtype: DType) -> UOp:
    """An integer as another type."""
    if node.dtype is dtype:
        return node
    if node.op is Ops.CONST:
        return UOp(Ops.CONST, dtype, (), node.arg)
    return UOp(Ops.CAST, dtype, (node,))
