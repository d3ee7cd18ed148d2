"""Lower REDUCE to accumulators in registers: initialized, updated in a loop, and read.

Before: `REDUCE(value, *ranges)` anywhere in an expression, possibly inside of TILE loops. After:
`LOAD(register[tile])` after `STORE(register, register op value, *ranges, *tiles)` after
`STORE(register, identity, *tiles)`. The register array holds an accumulator for each step of the
TILE ranges that the value depends on. The reduction loop runs outside of these, so that an operand
loaded once feeds many accumulators. Sums that are added share their accumulators: each
continues from the result of the one before.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from tinygrad.codegen.analysis.identity import MAX_BLOCK, identity_element, steps_of_block
from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    RangeFactory,
    extent,
    is_static,
    loops_of,
    substitute,
)
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

MAX_BLOCK_ACCUMULATORS = 8
"""More accumulators would need a register each for the sums of the blocks."""


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
    return _ReduceLowering(sink).lowered(sink)


def _is_over_ranges(node: UOp) -> bool:
    return node.op is Ops.REDUCE and bool(loops_of(node))


class _Sum(NamedTuple):
    """Sums with common accumulators, for `tiles` in every step of `context`. Each of `parts` is a
    summand and the loops over which it is summed.
    """

    register: UOp
    update: UOp
    parts: tuple[tuple[UOp, tuple[UOp, ...]], ...]
    tiles: list[UOp]
    context: list[UOp]


class _ReduceLowering:
    """Lowers the reductions of one kernel, and numbers the new loops and registers."""

    def __init__(self, sink: UOp) -> None:
        nodes = sink.toposort()
        self.factory = RangeFactory(nodes)
        self.registers = 1 + max((u.arg for u in nodes if u.op is Ops.DEFINE_REG), default=-1)
        self.free = FreeRanges()
        self.uses = Counter(x for u in nodes for x in u.src)
        # sums, by the load of their result
        self.sums: dict[UOp, _Sum] = {}

    def lowered(self, sink: UOp) -> UOp:
        """The kernel with all reductions lowered."""
        done: dict[UOp, UOp] = {}
        for u in sink.toposort():
            node = u.with_sources(tuple([done[x] for x in u.src]))
            if _is_over_ranges(node):
                node = self.split_tiles(node)
            elif node.op is Ops.ADD and all(self.uses[x] == 1 for x in u.src):
                # the accumulators no longer hold the first sum then: nothing else may use it
                node = self.add_sums(node)
            done[u] = node
        return done[sink]

    def add_sums(self, node: UOp) -> UOp:
        """The load of two sums that share accumulators, or `node` where its sources cannot."""
        if not all(x in self.sums for x in node.src):
            return node
        total, added = [self.sums[x] for x in node.src]
        if total.tiles != added.tiles or total.context != added.context:
            return node
        for value, own in added.parts:
            node = self.lower(Ops.ADD, value, own, after=total)
            total = self.sums[node]
        return node

    def split_tiles(self, node: UOp) -> UOp:
        """Lower a reduction; with TILE ranges, each of their steps has a partial result."""
        own = loops_of(node)
        tiles = tuple(r for r in own if r.arg.kind is AxisType.TILE)
        loops = tuple(r for r in own if r.arg.kind is not AxisType.TILE)
        if not tiles or not loops:
            return self.reduce_loops(node.arg, node.src[0], own)
        partial = self.reduce_loops(node.arg, node.src[0], loops)
        return self.lower(node.arg, partial, tiles)

    def reduce_loops(self, op: Ops, value: UOp, own: tuple[UOp, ...]) -> UOp:
        """Lower a reduction over loops. A long sum of floats is a sum of sums of blocks, since the
        rounding errors of one accumulator grow with its steps.
        """
        axis = own[-1]
        if op is not Ops.ADD or not self.is_long_sum(value, own):
            return self.lower(op, value, own)
        steps = steps_of_block(extent(axis))
        if steps == extent(axis):
            block, others, term = axis, own[:-1], value
        else:
            outer = self.factory.new(ceildiv(extent(axis), steps), AxisType.REDUCE)
            rest = extent(axis) - outer * steps
            size = steps if extent(axis) % steps == 0 else rest.minimum(steps)
            block = self.factory.new(size, AxisType.REDUCE)
            others = (*own[:-1], outer)
            term = substitute(value, {axis: outer * steps + block}, self.free)
        total = self.lower(Ops.ADD, self.lower(Ops.ADD, term, (block,)), others)
        # the accumulators of the blocks are no continuation of another sum
        del self.sums[total]
        return total

    def is_long_sum(self, value: UOp, own: tuple[UOp, ...]) -> bool:
        """Whether a sum has many steps, and few accumulators, which only it updates."""
        if math.prod(map(extent, own)) <= MAX_BLOCK or not dtypes.is_float(value.dtype):
            return False
        if not all(r.arg.kind is AxisType.REDUCE and is_static(r) for r in own):
            return False
        tiles = [extent(r) for r in self.free[value] if r.arg.kind is AxisType.TILE]
        if math.prod(tiles) > MAX_BLOCK_ACCUMULATORS:
            return False
        return not any(u.op is Ops.AFTER and own[-1] in self.free[u] for u in value.toposort())

    def lower(self, op: Ops, value: UOp, own: tuple[UOp, ...], after: _Sum | None = None) -> UOp:
        """The load of the result, after the loops that initialize and update the accumulators;
        those of another sum of the same type, if given, are updated instead.
        """
        if op is Ops.MAX and dtypes.is_float(value.dtype) and value.dtype.scalar().itemsize < 4:
            # the maximum is exact, so it is converted once, not in each step
            wide = value.cast(dtypes.float32.vec(value.dtype.count))
            return self.lower(op, wide, own).cast(value.dtype)
        tiles = sorted(
            (r for r in self.free[value] if r.arg.kind is AxisType.TILE and r not in own),
            key=lambda r: int(r.arg.index),
        )
        dtype = value.dtype
        # the size of a loop may depend on another one
        around = self.free[value].union(*(self.free[r.src[0]] for r in own))
        outer = sorted(around.difference(own, tiles), key=lambda r: int(r.arg.index))
        if after is not None:
            register, clear = after.register, after.update
        else:
            size = math.prod(extent(r) for r in tiles)
            pointer = dtype.ptr(size, AddrSpace.REG)
            register = UOp(Ops.DEFINE_REG, pointer, (), self.registers)
            self.registers += 1
            # the accumulators are initialized again in every step of the enclosing loops
            cleared = [self.factory.like(r) for r in tiles]
            start = register.after(*outer) if outer else register
            clear = start.index(tile_index(cleared)).store(identity_element(op, dtype), *cleared)

        inner = [self.factory.like(r) for r in tiles]
        current = register.after(clear, *own).index(tile_index(inner))
        term = substitute(value, dict(zip(tiles, inner, strict=True)))
        updated = UOp(op, dtype, (current.load(dtype=dtype), term))
        update = current.store(updated, *own, *inner)
        result = register.after(update).index(tile_index(tiles)).load(dtype=dtype)
        if op is Ops.ADD:
            before = () if after is None else after.parts
            self.sums[result] = _Sum(register, update, (*before, (value, own)), tiles, outer)
        return result
