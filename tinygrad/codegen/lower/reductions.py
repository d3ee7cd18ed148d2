"""Lower REDUCE to accumulators in registers: initialized, updated in a loop, and read.

Before: `REDUCE(value, *ranges)` anywhere in an expression, possibly inside of TILE loops. After:
`LOAD(register[tile])` after `STORE(register, register op value, *ranges, *tiles)` after
`STORE(register, identity, *tiles)`. The register array holds an accumulator for each step of the
TILE ranges that the value depends on. The reduction loop runs outside of these, so that an operand
loaded once feeds many accumulators.
"""

from __future__ import annotations

import math

from tinygrad.codegen.analysis.identity import identity_element
from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    RangeFactory,
    extent,
    loops_of,
    map_nodes,
    substitute,
)
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


def tile_index(tiles: list[UOp]) -> UOp:
    """The row-major index of a step of the TILE ranges."""
    index = UOp.const(dtypes.index, 0)
    for tile in tiles:
        index = tile if index.op is Ops.CONST else index * extent(tile) + tile
    return index


def lower_reductions(sink: UOp) -> UOp:
    """Lower every REDUCE over ranges; one without ranges reduces lanes and stays."""
    if not any(map(_is_over_ranges, sink.toposort())):
        return sink
    lowering = _ReduceLowering(sink)
    return map_nodes(sink, lambda u: lowering.split_tiles(u) if _is_over_ranges(u) else u)


def _is_over_ranges(node: UOp) -> bool:
    return node.op is Ops.REDUCE and bool(loops_of(node))


class _ReduceLowering:
    """Lowers the reductions of one kernel, and numbers the new loops and registers."""

    def __init__(self, sink: UOp) -> None:
        nodes = sink.toposort()
        self.factory = RangeFactory(nodes)
        self.registers = 1 + max((u.arg for u in nodes if u.op is Ops.DEFINE_REG), default=-1)
        self.free = FreeRanges()

    def split_tiles(self, node: UOp) -> UOp:
        """Lower a reduction; with TILE ranges, each of their steps has a partial result."""
        own = loops_of(node)
        tiles = tuple(r for r in own if r.arg.kind is AxisType.TILE)
        loops = tuple(r for r in own if r.arg.kind is not AxisType.TILE)
        if not tiles or not loops:
            return self.lower(node.arg, node.src[0], own)
        partial = self.lower(node.arg, node.src[0], loops)
        return self.lower(node.arg, partial, tiles)

    def lower(self, op: Ops, value: UOp, own: tuple[UOp, ...]) -> UOp:
        """The load of the result, after the loops that initialize and update the accumulators."""
        tiles = sorted(
            (r for r in self.free[value] if r.arg.kind is AxisType.TILE and r not in own),
            key=lambda r: int(r.arg.index),
        )
        dtype = value.dtype
        size = math.prod(extent(r) for r in tiles)
        pointer = dtype.ptr(size, AddrSpace.REG)
        register = UOp(Ops.DEFINE_REG, pointer, (), self.registers)
        self.registers += 1

        # the accumulators are initialized again in every step of the enclosing loops
        outer = sorted(self.free[value].difference(own, tiles), key=lambda r: int(r.arg.index))
        cleared = [self.factory.like(r) for r in tiles]
        start = register.after(*outer) if outer else register
        clear = start.index(tile_index(cleared)).store(identity_element(op, dtype), *cleared)

        inner = [self.factory.like(r) for r in tiles]
        current = register.after(clear, *own).index(tile_index(inner))
        term = substitute(value, dict(zip(tiles, inner, strict=True)))
        updated = UOp(op, dtype, (current.load(dtype=dtype), term))
        update = current.store(updated, *own, *inner)
        result = register.after(update).index(tile_index(tiles))
        return result.load(dtype=dtype)
