"""Products of a few rows with one operand in common become one product of all rows.

Before: `a @ w` and `b @ w`, as in the steps of a recurrent network, each of which reads all of `w`
for a few rows. After: slices of `cat(a, b) @ w`. Invariant: stacked products do not depend on each
other, so their operands are known together; they depend on the same messages and assignments, and
the same messages depend on them. So devices wait for no further message, and no value is read
after it was overwritten.

Example: an LSTM's steps project their inputs by one weight. The inputs of the first layer are known
from the start, those of another layer after the layer before: one product for each layer. The
projections of the hidden state need each other, and stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from tinygrad.dtype import dtypes
from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.schedule.grouping.rewrite.preserve import PRESERVED
from tinygrad.schedule.storage_views import below_reshapes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import ReduceArg, UOp

MAX_ROWS = 1 << 6
MAX_STACKED_ROWS = 192
"""The maximum rows of a product that is stacked, and of a stack: more are not faster."""
MIN_SHARED = 1 << 14
"""The minimum elements of the common operand: reading fewer takes less time than to copy rows."""
MAX_GROWTH = 1
"""The maximum elements of stacked rows and their products, relative to the common operand."""
MIN_STACKED = 3
"""The minimum products in a stack: it takes two kernels, with the copy of its rows."""
MAX_STACKED = 32
"""The maximum products in a stack: the copy of its rows has an argument for each."""

# nodes that order what happens outside of a value
_EFFECTS = frozenset({Ops.TRANSFER, Ops.ASSIGN, Ops.AFTER, Ops.CUSTOM_KERNEL})


class _Product(NamedTuple):
    """A sum of products of the elements of `rows`, and of `shared`, that has an axis which `rows`
    repeats.
    """

    node: UOp
    rows: UOp
    shared: UOp
    limit: int
    """The maximum products in a stack."""

    def stack_key(self) -> tuple[Any, ...]:
        """What products of one stack have in common."""
        is_left = self.node.src[0].src[0] is self.rows
        return self.shared, self.rows.src[0].shape, self.node.arg, self.node.dtype, is_left


def stack_products(sink: UOp) -> UOp:
    """`sink` with one product for each stack."""
    order = sink.toposort()
    groups: defaultdict[Any, list[_Product]] = defaultdict(list)
    for node in order:
        if node.op is Ops.REDUCE_AXIS and (product := _product(node)) is not None:
            groups[product.stack_key()].append(product)
    several = [products for products in groups.values() if len(products) >= MIN_STACKED]
    if not several:
        return sink
    stacks = _Dependencies(order, [x for products in several for x in products]).stacks(several)
    return _Rebuilt(sink, stacks).sink if stacks else sink


def _product(node: UOp) -> _Product | None:
    """The product that a REDUCE_AXIS sums, if it is one of a few rows."""
    product = node.src[0]
    if node.arg.op is not Ops.ADD or product.op is not Ops.MUL:
        return None
    if not dtypes.is_float(product.dtype) or not all_int(product.shape):
        return None
    for rows, shared in (product.src, product.src[::-1]):
        limit = _max_stacked(node, rows, shared)
        if limit >= MIN_STACKED:
            return _Product(node, rows, shared, limit)
    return None


def _max_stacked(node: UOp, rows: UOp, shared: UOp) -> int:
    """The maximum products in a stack, if `rows` are a few rows and `shared` is a matrix."""
    if rows.op is not Ops.EXPAND or shared.shape != rows.shape:
        return 0
    shape = cast(tuple[int, ...], rows.shape)
    repeated, others = _repeated_axes(rows), _repeated_axes(shared)
    kept = [i for i, size in enumerate(shape) if i not in node.arg.axes and size > 1]
    columns = [i for i in kept if i in repeated]
    count = prod([shape[i] for i in kept if i not in repeated])
    # all axes but those of rows and columns are reduced, and no operand repeats those
    if others != {i for i in kept if i not in repeated} or repeated != set(columns):
        return 0
    depth: int = prod([shape[i] for i in node.arg.axes])
    width: int = prod([shape[i] for i in columns])
    if count > min(MAX_ROWS, width) or depth * width < MIN_SHARED:
        return 0
    growth = MAX_GROWTH * depth * width // (depth + width)
    return min(MAX_STACKED, min(MAX_STACKED_ROWS, growth) // count)


def _repeated_axes(operand: UOp) -> set[int]:
    if operand.op is not Ops.EXPAND:
        return set()
    pairs = enumerate(zip(operand.src[0].shape, operand.shape, strict=True))
    return {i for i, (old, new) in pairs if old != new}


class _Dependencies:
    """Which products and effects each product depends on, as bits of a number."""

    def __init__(self, order: Iterable[UOp], products: list[_Product]) -> None:
        self.bits = {x.node: 1 << number for number, x in enumerate(products)}
        self.members = (1 << len(products)) - 1
        nodes = list(order)
        effects = [x for x in nodes if x.op in _EFFECTS]
        bits = self.bits | {x: 1 << len(products) + i for i, x in enumerate(effects)}
        below = _reached(nodes, bits)
        self.effects = {x.node: below[x.node] & ~self.members for x in products}
        self.below = {x.node: below[x.node] & self.members for x in products}
        self.above: dict[UOp, int] = dict.fromkeys(self.bits, 0)
        messages = {x: bits[x] for x in effects if x.op is Ops.TRANSFER}
        if messages:
            self.above = _reaching(nodes, messages)

    def stacks(self, groups: list[list[_Product]]) -> list[list[_Product]]:
        """Stacks of independent products."""
        found: list[list[_Product]] = []
        for products in groups:
            for together in self._independent(products):
                count = ceildiv(len(together), together[0].limit)
                size = ceildiv(len(together), count)
                for start in range(0, len(together), size):
                    stack = together[start : start + size]
                    if len(stack) >= MIN_STACKED:
                        self._merge(stack)
                        found.append(stack)
        return found

    def _independent(self, products: list[_Product]) -> list[list[_Product]]:
        """The products of a group, those that are as many products deep together."""
        depth: dict[UOp, int] = {}
        levels: defaultdict[Any, list[_Product]] = defaultdict(list)
        # what a product depends on depends on less
        for x in sorted(products, key=lambda x: self.below[x.node].bit_count()):
            below = self.below[x.node]
            level = max((d + 1 for node, d in depth.items() if below & self.bits[node]), default=0)
            depth[x.node] = level
            levels[level, self.effects[x.node], self.above[x.node]].append(x)
        return list(levels.values())

    def _merge(self, stack: list[_Product]) -> None:
        """Let what depends on one product of a stack depend on all."""
        members = below = 0
        for x in stack:
            members |= self.bits[x.node]
            below |= self.below[x.node]
        for node, found in self.below.items():
            if found & members:
                self.below[node] = found | members | below
        for x in stack:
            self.below[x.node] = below


def _reached(order: list[UOp], bits: dict[UOp, int]) -> dict[UOp, int]:
    """For each node, the bits of the nodes below it."""
    found: dict[UOp, int] = {}
    for node in order:
        total = 0
        for x in node.src:
            total |= found[x] | bits.get(x, 0)
        found[node] = total
    return found


def _reaching(order: list[UOp], bits: dict[UOp, int]) -> dict[UOp, int]:
    """For each node, the bits of the nodes above it."""
    found = dict.fromkeys(order, 0)
    for node in reversed(order):
        total = found[node] | bits.get(node, 0)
        for x in node.src:
            found[x] |= total
    return found


class _Rebuilt:
    """`sink`, in which products of one stack are slices of one product."""

    def __init__(self, sink: UOp, stacks: list[list[_Product]]) -> None:
        self.stack_of = {x.node: stack for stack in stacks for x in stack}
        # computed rows that are placed in a stack, each in one
        self.placed: set[UOp] = set()
        self.in_place = [stack for stack in stacks if self._place(stack, sink)]
        self.done: dict[UOp, UOp] = {}
        self.sink = self._rebuild(sink)

    def _place(self, stack: list[_Product], sink: UOp) -> bool:
        """Whether rows are computed in the memory of their stack. Outputs of the plan, and what is
        in memory already, have memory of their own.
        """
        rows = [below_reshapes(x.rows.src[0]) for x in stack]
        outputs = {below_reshapes(x) for x in sink.src}
        if len({*rows} - self.placed - outputs) < len(rows) or not all(map(_is_computed, rows)):
            return False
        self.placed.update(rows)
        return True

    def _rebuild(self, sink: UOp) -> UOp:
        done, waiting = self.done, [sink]
        while waiting:
            node = waiting[-1]
            stack = self.stack_of.get(node)
            sources = node.src if stack is None else (stack[0].shared, *(x.rows for x in stack))
            missing = [x for x in sources if x not in done]
            if missing:
                waiting.extend(missing)
                continue
            waiting.pop()
            if node in done:
                continue
            if stack is not None:
                done |= self._stacked(stack)
                continue
            new = done[node] = node.with_sources(tuple([done[x] for x in node.src]))
            if node in self.placed:
                value = new.src[0] if new.op is Ops.CONTIGUOUS else new
                done[node] = UOp(Ops.CONTIGUOUS, new.dtype, (value,), tag=PRESERVED)
        return done[sink]

    def _stacked(self, stack: list[_Product]) -> dict[UOp, UOp]:
        """The products of a stack as slices of one, of operands that are rebuilt."""
        node = stack[0].node
        count = len(stack)
        parts = [self.done[x.rows].src[0] for x in stack]
        if stack in self.in_place:
            rows = UOp(Ops.STACK, parts[0].dtype, tuple(map(below_reshapes, parts)))
            rows = rows.reshape((count, *parts[0].shape))
        else:
            rows = _joined(parts)
        shared = self.done[stack[0].shared]
        shape = (count, *node.src[0].shape)
        rows = rows.expand(shape)
        shared = shared.reshape((1, *shared.shape)).expand(shape)
        pair = (rows, shared) if node.src[0].src[0] is stack[0].rows else (shared, rows)
        product = UOp(Ops.MUL, node.dtype, pair)
        arg = ReduceArg(node.arg.op, tuple(axis + 1 for axis in node.arg.axes))
        total = UOp(Ops.REDUCE_AXIS, node.dtype, (product,), arg)
        total = UOp(Ops.CONTIGUOUS, node.dtype, (total,))
        whole = tuple((0, size) for size in node.shape)
        return {
            x.node: total.shrink(((number, number + 1), *whole)).reshape(node.shape)
            for number, x in enumerate(stack)
        }


def _is_computed(node: UOp) -> bool:
    """Whether a kernel can compute a value in memory of any choice."""
    if node.op is Ops.CONTIGUOUS:
        return node.tag is None
    is_value = node.op is Ops.REDUCE_AXIS or node.op in GroupOp.Elementwise
    return is_value and bool(node.src) and node.device is not None


def _joined(parts: list[UOp]) -> UOp:
    """An array of equal parts, along a new axis."""
    last = len(parts) - 1
    total: UOp | None = None
    for number, part in enumerate(parts):
        around = ((number, last - number), *((0, 0) for _ in part.shape))
        padded = part.reshape((1, *part.shape)).pad(around)
        total = padded if total is None else UOp(Ops.ADD, part.dtype, (total, padded))
    assert total is not None
    return UOp(Ops.CONTIGUOUS, total.dtype, (total,))
