"""From a kernel's tensor form to its kernel graph: axes become loops, movement becomes indices.

Input: `SINK(STORE(target, value), ...)` whose leaves are PARAM, CONST, ARANGE and variables;
`target` is a PARAM, possibly under movement. Output: `SINK(STORE(INDEX(DEFINE_GLOBAL, index),
value, *ranges), ...)` without movement ops. Invariant: an element is loaded only where it exists
(`INDEX` carries the condition), so padding never reads out of bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.kernel.movement_index import (
    ZERO,
    Index,
    as_index,
    both,
    flat_index,
    movement_index,
    within,
)
from tinygrad.schedule.kernel.simplify_kernel import conjuncts, vanishes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.float_variables import read_argument
from tinygrad.uop.ops import AxisType, RangeArg, UOp, sint
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS
from tinygrad.uop.sint import is_one

Point: TypeAlias = tuple[UOp, Index, UOp | None]
"""One element of a node of the tensor form: the node, its index, and the condition under which the
element exists (None: always)."""
Build: TypeAlias = Callable[[list[UOp]], UOp]
"""Makes the value of a point from the values of the points that it depends on."""


class _Rangeifier:
    """The lowering of one kernel: its loops, and the value of each point that was lowered."""

    def __init__(self, shares_reductions: bool) -> None:
        self.range_count = 0
        self.shares_reductions = shares_reductions
        self.loops: dict[tuple[sint, ...], list[UOp]] = {}
        # the loops of reductions of each store, which those of other stores share
        self.reductions: dict[tuple[Any, ...], list[list[UOp]]] = {}
        self.taken: Counter[tuple[Any, ...]] = Counter()
        self.done: dict[Point, UOp] = {}

    def new_range(self, size: sint, kind: AxisType) -> UOp:
        node = UOp(Ops.RANGE, dtypes.index, (as_index(size),), RangeArg(self.range_count, kind))
        self.range_count += 1
        return node

    def ranges(self, shape: Sequence[sint], kind: AxisType) -> list[UOp]:
        return [ZERO if isinstance(d, int) and d == 1 else self.new_range(d, kind) for d in shape]

    def value(self, node: UOp, index: Index, valid: UOp | None = None) -> UOp:
        """The value of `node` at `index`. Iterative, as a graph may be deeper than Python's
        stack.
        """
        root = (node, index, valid)
        stack: list[tuple[Point, list[Point], Build | None]] = [(root, [], None)]
        while stack:
            point, below, build = stack.pop()
            if point in self.done:
                continue
            if build is None:
                below, build = self.step(point)
                stack.append((point, below, build))
                stack.extend((p, [], None) for p in below if p not in self.done)
            else:
                self.done[point] = build([self.done[p] for p in below])
        return self.done[root]

    def step(self, point: Point) -> tuple[list[Point], Build]:
        """The points that `point` depends on, and the function that builds its value."""
        node, index, valid = point
        op = node.op
        if op is Ops.PARAM:
            return [], lambda _: load(node, index, valid)
        if op is Ops.CONST:
            return [], lambda _: node
        if op in {Ops.DEFINE_VAR, Ops.BIND}:
            return [], lambda _: read_argument(node.src[0] if node.src else node)
        if op is Ops.ARANGE:
            return [], lambda _: index[0].cast(node.dtype)
        if op is Ops.REDUCE_AXIS:
            return self.reduce_step(point)
        if op is Ops.GATHER:
            return self.gather_step(point)
        if op in GroupOp.Movement:
            below, condition = movement_index(node, index)
            gate = both(valid, condition)
            return [(node.src[0], below, gate)], lambda v: masked(v[0], condition, gate)
        assert op in GroupOp.Elementwise, f"{op.name} cannot be part of a kernel"
        points = [(x, index if x.shape else (), valid) for x in node.src]
        return points, lambda v: UOp(op, node.dtype, tuple(v), node.arg)

    def reduce_step(self, point: Point) -> tuple[list[Point], Build]:
        node, index, valid = point
        source = node.src[0]
        # equal indices in different forms would otherwise get loops of their own
        simple = tuple(i.simplify() for i in index)
        if simple != index:
            return [(node, simple, valid)], lambda v: v[0]
        inner = list(index)
        ranges = self.reduction_ranges(node, index)
        for axis, r in zip(node.arg.axes, ranges, strict=True):
            inner[axis] = r
        return [(source, tuple(inner), valid)], lambda v: v[0].reduce(*ranges, arg=node.arg.op)

    def reduction_ranges(self, node: UOp, index: Index) -> list[UOp]:
        """The loops of a reduction: those of one over the same elements in an earlier store."""
        sizes, axes = node.src[0].shape, node.arg.axes
        key = tuple(
            (d, None if i in axes else index[i]) for i, d in enumerate(sizes) if not is_one(d)
        )
        found = self.reductions.setdefault(key, [])
        number = self.taken[key]
        self.taken[key] += 1
        if number == len(found):
            found.append(
                [self.new_range(sizes[i], AxisType.REDUCE) for i in axes if not is_one(sizes[i])]
            )
        ranges = iter(found[number])
        return [
            self.new_range(1, AxisType.REDUCE) if is_one(sizes[i]) else next(ranges) for i in axes
        ]

    def gather_step(self, point: Point) -> tuple[list[Point], Build]:
        node, index, valid = point
        table, rows = node.src
        row = self.value(rows, index[: rows.ndim], valid).cast(dtypes.index)
        condition = within(row, 0, table.shape[node.arg])
        gate = both(valid, condition)
        inner = (*index[: node.arg], row, *index[rows.ndim :])
        return [(table, inner, gate)], lambda v: masked(v[0], condition, gate)

    def store(self, node: UOp) -> UOp:
        """Lower one STORE of the tensor form to a loop nest."""
        if self.shares_reductions:
            self.taken.clear()
        target, value = node.src
        scatter = next((x for x in (value, *value.src) if x.op in GroupOp.Scatter), None)
        if scatter is not None:
            # into the identity of its reduction, or into what it is added to
            return self.store_scatter(target, scatter)
        # outputs of equal shape share one loop nest
        if value.shape not in self.loops:
            self.loops[value.shape] = self.ranges(value.shape, AxisType.LOOP)
        index = self.loops[value.shape]
        address = address_of(target, tuple(index))
        ranges = [r for r in index if r.op is Ops.RANGE]
        return address.store(self.value(value, tuple(index)), *ranges)

    def store_scatter(self, target: UOp, node: UOp) -> UOp:
        """Lower the STORE of a scatter. Updates run in order, since two may have the same index;
        the other axes are independent.
        """
        values, rows = node.src
        *sizes, count = node.arg
        batch = self.ranges(tuple(sizes), AxisType.LOOP)
        outer = self.ranges(rows.shape[len(batch) :], AxisType.REDUCE)
        inner = self.ranges(values.shape[rows.ndim :], AxisType.LOOP)
        row = self.value(rows, (*batch, *outer)).cast(dtypes.index)
        address = address_of(target, (*batch, row, *inner), within(row, 0, count))
        old = load_address(address)
        loops = (*batch, *outer, *inner)
        new = old.alu(SCATTER_REDUCE_OPS[node.op], self.value(values, loops))
        return address.store(new, *(r for r in loops if r.op is Ops.RANGE))


def global_pointer(param: UOp) -> UOp:
    """The kernel argument of a PARAM."""
    size = prod(d if isinstance(d, int) else int(d.vmax) for d in param.arg.shape)
    return UOp(Ops.DEFINE_GLOBAL, param.dtype.ptr(size, AddrSpace.GLOBAL), (), param.arg.slot)


def load_address(address: UOp) -> UOp:
    """A load from an address, or 0 where its condition is false."""
    dtype = address.dtype.base
    alt = UOp.const(dtype, 0) if len(address.src) == 3 else None
    return address.load(alt, dtype=dtype)


def load(param: UOp, index: Index, valid: UOp | None) -> UOp:
    """The element of a PARAM at `index`."""
    return load_address(global_pointer(param).index(flat_index(param.arg.shape, index), valid))


def address_of(target: UOp, index: Index, valid: UOp | None = None) -> UOp:
    """The address of one element of a PARAM under movement."""
    while target.op is not Ops.PARAM:
        assert target.op in GroupOp.Movement, f"cannot store into {target.op.name}"
        index, condition = movement_index(target, index)
        valid = both(valid, condition)
        target = target.src[0]
    return global_pointer(target).index(flat_index(target.arg.shape, index), valid)


def masked(value: UOp, condition: UOp | None, gate: UOp | None) -> UOp:
    """`value` where `condition` holds, else 0. A load under the same gate is 0 already."""
    if condition is None or (value.op is Ops.LOAD and vanishes(value, conjuncts(gate))):
        return value
    return condition.where(value, value.const_like(0))


def has_nested_reductions(ast: UOp) -> bool:
    """Whether a reduction is computed from another one."""
    reduced: set[UOp] = set()
    for node in ast.toposort():
        is_reduced = not reduced.isdisjoint(node.src)
        if is_reduced and node.op is Ops.REDUCE_AXIS:
            return True
        if is_reduced or node.op is Ops.REDUCE_AXIS:
            reduced.add(node)
    return False


def is_kernel_graph(ast: UOp) -> bool:
    """Whether a kernel stores to addresses, and so needs no lowering of its tensor form."""
    return ast.src[0].src[0].op is Ops.INDEX


def rangeify(ast: UOp) -> UOp:
    """The kernel graph of a kernel's tensor form; its indices are not simplified."""
    lowering = _Rangeifier(len(ast.src) > 1 and not has_nested_reductions(ast))
    stores = tuple(lowering.store(x) for x in ast.src)
    return UOp(Ops.SINK, dtypes.void, stores, ast.arg)
