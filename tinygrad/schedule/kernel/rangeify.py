"""A kernel's tensor form becomes its kernel graph: movement turns into index arithmetic over
ranges.

In: `SINK(STORE(target, value), ...)` whose leaves are PARAM, CONST, ARANGE and variables; `target`
is a PARAM under movement, or a PARAM alone. Out: `SINK(STORE(INDEX(DEFINE_GLOBAL, idx), value,
*ranges), ...)` without a single movement op. Always true: an element is loaded only where it exists
(`INDEX` carries the condition), so padding never reads out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from tinygrad.dtype import AddrSpace, PtrDType, dtypes
from tinygrad.helpers import prod
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, RangeArg, UOp, sint
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS
from tinygrad.uop.rewrite import PatternMatcher, graph_rewrite
from tinygrad.uop.symbolic import symbolic
from tinygrad.uop.upat import UPat

Index: TypeAlias = tuple[UOp, ...]
# a node of the tensor form at one point: (node, index of each axis, where that point exists)
Point: TypeAlias = tuple[UOp, Index, UOp | None]
Build: TypeAlias = Callable[[list[UOp]], UOp]

ZERO = UOp.const(dtypes.index, 0)


def as_index(size: sint) -> UOp:
    """A size as an index expression, with Variables in place of their bound values."""
    if isinstance(size, int):
        return UOp.const(dtypes.index, size)
    return size.substitute({b: b.src[0] for b in size.toposort() if b.op is Ops.BIND})


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """The conjunction of two conditions, where None is true."""
    if a is None or b is None:
        return a if b is None else b
    return UOp(Ops.AND, dtypes.bool, (a, b))


def within(index: UOp, start: sint, end: sint) -> UOp | None:
    """`start <= index < end`, or None where that always holds."""
    low, high = as_index(start), as_index(end)
    condition = None
    if index.vmin < low.vmax:
        condition = (index < low).ne(True)
    if index.vmax >= high.vmin:
        condition = both(condition, index < high)
    return condition


def movement_index(node: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The index into the source of a movement op, and the condition under which it exists."""
    op, arg, shape = node.op, node.arg, node.src[0].shape
    if op is Ops.PERMUTE:
        return tuple(index[arg.index(i)] for i in range(len(arg))), None
    if op is Ops.EXPAND:
        pairs = zip(index, shape, node.shape, strict=True)
        return tuple(i if old == new else ZERO for i, old, new in pairs), None
    if op is Ops.SHRINK:
        return tuple(i + as_index(s) for i, (s, _) in zip(index, arg, strict=True)), None
    if op is Ops.FLIP:
        pairs = zip(index, shape, arg, strict=True)
        return tuple(as_index(d - 1) - i if flip else i for i, d, flip in pairs), None
    if op is Ops.PAD:
        condition = None
        for i, d, (before, _) in zip(index, shape, arg, strict=True):
            condition = both(condition, within(i, before, before + d))
        return tuple(
            i - as_index(before) for i, (before, _) in zip(index, arg, strict=True)
        ), condition
    if op is Ops.WINDOW:
        inner = list(index)
        for axis, kernel, _, stride, dilation in arg.windows:
            inner[axis] = index[axis] * stride + index[kernel] * dilation
        return tuple(inner), None
    if op is Ops.UNWINDOW:
        return unwindow_index(node, index)
    assert op is Ops.RESHAPE
    return reshape_index(index, node.shape, shape), None


def unwindow_index(node: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The window element that lands on `index`, and whether there is one."""
    inner = list(index)
    condition = None
    for axis, kernel, _, stride, dilation in node.arg.windows:
        offset = index[axis] - index[kernel] * dilation
        position = offset
        if stride > 1:
            # division is only of what is not negative: what is, is out of range all the same
            condition = both(condition, (offset < 0).ne(True))
            condition = both(condition, (offset % stride).eq(0))
            position = offset // stride
        condition = both(condition, within(position, 0, node.src[0].shape[axis]))
        inner[axis] = position
    return tuple(inner), condition


def reshape_index(index: Index, new: Sequence[sint], old: Sequence[sint]) -> Index:
    """The index into `old` of the element that `index` names in `new`.

    Axes are matched in the smallest groups of equal size, so that division stays within a group.
    """
    result: list[UOp] = []
    i = j = 0
    while i < len(new) or j < len(old):
        if i < len(new) and j < len(old) and new[i] == old[j]:
            result.append(index[i])
            i, j = i + 1, j + 1
            continue
        start_i, start_j = i, j
        size_i: sint = 1
        size_j: sint = 1
        while True:
            if i < len(new) and (size_i == 1 or (j == len(old)) or _smaller(size_i, size_j)):
                size_i, i = size_i * new[i], i + 1
            elif j < len(old):
                size_j, j = size_j * old[j], j + 1
            else:
                break
            if _equal(size_i, size_j) and not _continues(size_i, new[i:], old[j:]):
                break
        result += _regroup(index[start_i:i], new[start_i:i], old[start_j:j])
    return tuple(result)


def _smaller(a: sint, b: sint) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a < b


def _equal(a: sint, b: sint) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return as_index(a).simplify() is as_index(b).simplify()


def _continues(size: sint, new: Sequence[sint], old: Sequence[sint]) -> bool:
    # a group of size 1 on one side only would leave the other side's axes without a partner
    return isinstance(size, int) and size == 1 and bool(new or old)


def _regroup(index: Index, new: Sequence[sint], old: Sequence[sint]) -> list[UOp]:
    flat = ZERO
    for i, d in zip(index, new, strict=True):
        flat = flat * as_index(d) + i
    result: list[UOp] = []
    rest = prod(old[1:])
    for k, d in enumerate(old):
        if isinstance(d, int) and d == 1:
            result.append(ZERO)
        else:
            here = flat // as_index(rest)
            result.append(here % as_index(d) if any(x != 1 for x in old[:k]) else here)
        if k + 1 < len(old):
            rest = prod(old[k + 2 :])
    return result


class _Lowering:
    """The state of one kernel's translation: its ranges, and each point already translated."""

    def __init__(self) -> None:
        self.range_count = 0
        self.loops: dict[tuple[sint, ...], list[UOp]] = {}
        self.done: dict[Point, UOp] = {}

    def new_range(self, size: sint, kind: AxisType) -> UOp:
        node = UOp(Ops.RANGE, dtypes.index, (as_index(size),), RangeArg(self.range_count, kind))
        self.range_count += 1
        return node

    def ranges(self, shape: Sequence[sint], kind: AxisType) -> list[UOp]:
        return [ZERO if isinstance(d, int) and d == 1 else self.new_range(d, kind) for d in shape]

    def value(self, node: UOp, index: Index, valid: UOp | None = None) -> UOp:
        """The value of `node` at `index`. Iterative: a kernel's graph may be deeper than the
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
        """The points that `point` depends on, and how its value is built from theirs."""
        node, index, valid = point
        op = node.op
        if op is Ops.PARAM:
            return [], lambda _: load(node, index, valid)
        if op in {Ops.CONST, Ops.DEFINE_VAR}:
            return [], lambda _: node
        if op is Ops.BIND:
            return [], lambda _: node.src[0]
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
        # equal points that are written differently would otherwise get loops of their own
        simple = tuple(i.simplify() for i in index)
        if simple != index:
            return [(node, simple, valid)], lambda v: v[0]
        inner = list(index)
        ranges = [self.new_range(source.shape[axis], AxisType.REDUCE) for axis in node.arg.axes]
        for axis, r in zip(node.arg.axes, ranges, strict=True):
            inner[axis] = r
        return [(source, tuple(inner), valid)], lambda v: v[0].reduce(*ranges, arg=node.arg.op)

    def gather_step(self, point: Point) -> tuple[list[Point], Build]:
        node, index, valid = point
        table, rows = node.src
        row = self.value(rows, index[: rows.ndim], valid).cast(dtypes.index)
        condition = within(row, 0, table.shape[node.arg])
        gate = both(valid, condition)
        inner = (*index[: node.arg], row, *index[rows.ndim :])
        return [(table, inner, gate)], lambda v: masked(v[0], condition, gate)

    def store(self, node: UOp) -> UOp:
        """One STORE of the tensor form as a loop nest."""
        target, value = node.src
        if value.op in GroupOp.Scatter:
            return self.store_scatter(target, value)
        # outputs of one shape are written in one loop nest
        if value.shape not in self.loops:
            self.loops[value.shape] = self.ranges(value.shape, AxisType.LOOP)
        index = self.loops[value.shape]
        address = address_of(target, tuple(index))
        ranges = [r for r in index if r.op is Ops.RANGE]
        return address.store(self.value(value, tuple(index)), *ranges)

    def store_scatter(self, target: UOp, node: UOp) -> UOp:
        """Rows are put in order, since two of them may meet; the other axes are independent."""
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
    """The kernel argument behind a PARAM."""
    size = prod(d if isinstance(d, int) else int(d.vmax) for d in param.arg.shape)
    return UOp(Ops.DEFINE_GLOBAL, param.dtype.ptr(size, AddrSpace.GLOBAL), (), param.arg.slot)


def flat_index(shape: Sequence[sint], index: Index) -> UOp:
    """The row-major element number."""
    flat = ZERO
    for i, d in zip(index, shape, strict=True):
        flat = flat * as_index(d) + i
    return flat


def load_address(address: UOp) -> UOp:
    """A load of an address; where the address has a condition, 0 stands for what does not exist."""
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
    if condition is None or (value.op is Ops.LOAD and vanishes(value, terms(gate))):
        return value
    return condition.where(value, value.const_like(0))


def terms(condition: UOp | None) -> frozenset[UOp]:
    """The conditions that a conjunction is made of."""
    if condition is None:
        return frozenset()
    if condition.op is Ops.AND:
        return terms(condition.src[0]) | terms(condition.src[1])
    return frozenset({condition})


def vanishes(value: UOp, needed: frozenset[UOp]) -> bool:
    """Whether every load below is 0 unless all of `needed` hold, so that the value is 0 as well."""
    if value.op is Ops.LOAD:
        if len(value.src) != 2 or value.src[1].op is not Ops.CONST or value.src[1].arg != 0:
            return False
        return needed <= terms(value.src[0].src[2])
    if value.op in {Ops.MUL, Ops.ADD, Ops.CAST, Ops.MAX}:
        return all(vanishes(x, needed) for x in value.src)
    return False


def in_bounds(load: UOp) -> bool:
    """Whether the address is inside its buffer whatever the condition says."""
    pointer, index = load.src[0].src[:2]
    return bool(index.vmin >= 0 and index.vmax < cast(PtrDType, pointer.dtype).size)


def contraction(value: UOp) -> UOp:
    """A product of loads under one condition: one zero factor is enough, so the other load needs
    none.

    The unconditional factor must be finite, as a weight of a convolution is.
    """
    if value.op is not Ops.MUL:
        return value
    loads = [x.src[0] if x.op is Ops.CAST else x for x in value.src]
    free = [x for x in loads if x.op is Ops.LOAD and len(x.src) == 2 and in_bounds(x)]
    if len(free) != 1 or any(x.op is not Ops.LOAD for x in loads):
        return value
    pointer, index, _ = free[0].src[0].src
    return value.substitute({free[0]: pointer.index(index).load(dtype=free[0].dtype)})


def _merge_reduces(outer: UOp, inner: UOp) -> UOp | None:
    if outer.arg is not inner.arg:
        return None
    return inner.src[0].reduce(*outer.src[1:], *inner.src[1:], arg=outer.arg)


def _merge_masked_reduces(outer: UOp, inner: UOp, condition: UOp, zero: UOp) -> UOp | None:
    if outer.arg is not Ops.ADD or inner.arg is not Ops.ADD or zero.arg != 0:
        return None
    if not set(inner.src[1:]).isdisjoint(condition.toposort()):
        return None
    value = inner.src[0]
    if vanishes(value, terms(condition)):
        value = contraction(value)
    else:
        value = condition.where(value, value.const_like(0))
    return value.reduce(*outer.src[1:], *inner.src[1:], arg=Ops.ADD)


# sum over r2 of (sum over r1 of x) is one sum, also where the inner one is padded with zeros
nested_reduces = PatternMatcher(
    [
        (
            UPat(
                Ops.REDUCE, src=(UPat(Ops.REDUCE, name="inner"),), name="outer", allow_any_len=True
            ),
            _merge_reduces,
        ),
        (
            UPat(
                Ops.REDUCE,
                src=(
                    UPat(
                        Ops.WHERE,
                        src=(
                            UPat.var("condition"),
                            UPat(Ops.REDUCE, name="inner"),
                            UPat.cvar("zero"),
                        ),
                    ),
                ),
                name="outer",
                allow_any_len=True,
            ),
            _merge_masked_reduces,
        ),
    ],
    pure=True,
)
simplify_indices = symbolic + nested_reduces


def is_kernel_graph(ast: UOp) -> bool:
    """Whether a kernel's stores go to addresses, and not to arrays."""
    return ast.src[0].src[0].op is Ops.INDEX


def rangeify(ast: UOp) -> UOp:
    """The kernel graph of a kernel's tensor form, with its indices as movement ops left them."""
    lowering = _Lowering()
    stores = tuple(lowering.store(x) for x in ast.src)
    return UOp(Ops.SINK, dtypes.void, stores, ast.arg)


def simplify_kernel(kernel: UOp) -> UOp:
    """Simplify the indices and conditions of a kernel graph, and merge its nested reductions."""
    return graph_rewrite(kernel, simplify_indices, name="simplify indices")
