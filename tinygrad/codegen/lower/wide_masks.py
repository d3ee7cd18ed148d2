"""Masked loads that are wider than a vector register: one load for each register.

Before: a LOAD of contiguous lanes with a condition for each. After: its lanes, taken from LOADs of
one register. The mask of each is computed from its own lanes: LLVM 22, which would split the load
on a CPU with AVX2, then loads a register of which no lane is valid without any mask.
"""

from __future__ import annotations

from tinygrad.renderer import memory_dtype
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def masked_lanes(load: UOp, vector_bytes: int) -> tuple[UOp, ...] | None:
    """The lanes of a masked load, from loads of at most `vector_bytes`; None if it is no wider."""
    dtype, address = load.dtype.scalar(), load.src[0]
    lanes = max(1, vector_bytes // memory_dtype(dtype).itemsize)
    if len(address.src) < 3 or address.src[2].dtype.count == 1 or load.dtype.count <= lanes:
        return None
    pointer, first, valid = address.src
    found: list[UOp] = []
    for start in range(0, load.dtype.count, lanes):
        numbers = tuple(range(start, start + lanes))
        where = UOp(
            Ops.INDEX, address.dtype, (pointer, first + start, select_lanes(valid, numbers))
        )
        others = tuple([select_lanes(x, numbers) for x in load.src[1:]])
        part = UOp(Ops.LOAD, dtype.vec(lanes), (where, *others))
        found += [part.gep(i) for i in range(lanes)] if lanes > 1 else [part]
    return tuple(found)


def select_lanes(node: UOp, lanes: tuple[int, ...]) -> UOp:
    """The vector of some lanes of `node`, computed from those lanes of its sources."""
    dtype = node.dtype.scalar().vec(len(lanes))
    if node.op is Ops.CONST:
        values = tuple([node.arg[i] for i in lanes]) if isinstance(node.arg, tuple) else node.arg
        return UOp(Ops.CONST, dtype, (), values)
    if node.op is Ops.VECTORIZE:
        chosen = node.src if len(node.src) == 1 else tuple([node.src[i] for i in lanes])
        return UOp(Ops.VECTORIZE, dtype, chosen)
    if node.op is Ops.GEP and isinstance(node.arg, tuple):
        return select_lanes(node.src[0], tuple([node.arg[i] for i in lanes]))
    count = node.dtype.count
    if node.op in GroupOp.Elementwise and all(x.dtype.count == count for x in node.src):
        return UOp(node.op, dtype, tuple([select_lanes(x, lanes) for x in node.src]), node.arg)
    return UOp(Ops.GEP, dtype, (node,), lanes)
