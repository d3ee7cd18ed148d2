"""Reverse-mode differentiation of the tensor graph: the walk to the targets, and the rules of
reductions.

Input: a node, its upstream gradient, and target nodes. Output: the gradient by each target that the
node depends on, in the target's own layout. Invariant: the gradient of a layout change is the same
value. Layouts are brought together where gradients meet other values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, cast

from tinygrad.dtype import dtypes, sum_acc_dtype
from tinygrad.gradient.custom import CustomRule, custom_gradient, with_gradient
from tinygrad.gradient.elementwise import ELEMENTWISE_RULES, STOPS, STOPS_OF_INTEGERS
from tinygrad.gradient.movement import MOVEMENT_RULES
from tinygrad.gradient.rule import GradientRule, Gradients, number, total
from tinygrad.helpers import all_int
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.propagation.device_rules import is_placement
from tinygrad.uop.reshard import fully_reduced, gradient_like


class Paths(NamedTuple):
    """The way from a root to targets: `order` are the nodes on some path, sources first, each with
    the nodes that its gradient may go to. That of a BUFFER among `definitions` is its definition.
    """

    targets: set[UOp]
    order: dict[UOp, tuple[UOp, ...]]
    definitions: dict[UOp, UOp]


def compute_gradient(root: UOp, root_gradient: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradient by each of `targets` that `root` depends on.

    `root_gradient` has the shape of `root`; each result the shape, dtype and layout of its target.
    """
    return gradient_along(find_paths(root, targets), root, root_gradient)


def find_paths(
    root: UOp,
    targets: Iterable[UOp],
    definition_of: Callable[[UOp], UOp | None] | None = None,
    leaves: Collection[UOp] = (),
) -> Paths:
    """The paths from `root` to `targets`, which end at `leaves`.

    `definition_of(buffer)` is the node that was stored in a BUFFER, at which a path goes on, or
    None.
    """
    paths = Paths(set(targets), {}, {})
    order = paths.order
    visited: dict[UOp, tuple[UOp, ...]] = {}
    # those that lead to no target
    others: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        if node in order or node in others:
            stack.pop()
            continue
        sources = visited.get(node)
        if sources is None:
            if node.op is Ops.BUFFER and definition_of is not None:
                definition = definition_of(node)
                if definition is not None:
                    paths.definitions[node] = definition
            sources = () if node in leaves else _sources(node, paths.definitions)
            if sources:
                visited[node] = sources
                stack += sources
                continue
        stack.pop()
        if node in paths.targets or not order.keys().isdisjoint(sources):
            order[node] = sources
        else:
            others.add(node)
    return paths


def gradient_along(paths: Paths, root: UOp, root_gradient: UOp) -> dict[UOp, UOp]:
    """The gradient by each target of `paths` that `root` depends on."""
    order, definitions = paths.order, paths.definitions
    gradients: dict[UOp, UOp] = {root: root_gradient}
    for node, sources in reversed(order.items()):
        gradient = gradients.get(node)
        if gradient is None or not sources:
            continue
        is_stored = node in definitions
        parts = (gradient,) if is_stored else _gradients_by_sources(node, gradient)
        for source, part in zip(sources, parts):
            if part is None or source not in order:
                continue
            known = gradients.get(source)
            gradients[source] = part if known is None else _add(known, part)
    return {x: gradient_like(gradients[x], x) for x in paths.targets if x in gradients}


def _sources(node: UOp, definitions: dict[UOp, UOp]) -> tuple[UOp, ...]:
    if not node.src:
        definition = definitions.get(node)
        return () if definition is None else (definition,)
    custom = custom_gradient(node)
    if custom is not None:
        return custom.sources
    op = node.op
    if op in STOPS or (op in STOPS_OF_INTEGERS and not dtypes.is_float(node.dtype)):
        return ()
    return node.src


def _gradients_by_sources(node: UOp, gradient: UOp) -> Sequence[UOp | None]:
    custom = custom_gradient(node)
    if custom is not None:
        return custom.rule(gradient, node, *custom.sources)
    rule = RULES.get(node.op)
    if rule is None:
        raise RuntimeError(f"{node.op.name} has no gradient; use detach() to stop it")
    return [
        None if part is None else _without_broadcast(part, source)
        for part, source in zip(rule(gradient, node), node.src)
    ]


def _without_broadcast(gradient: UOp, source: UOp) -> UOp:
    """The gradient by a scalar operand, which an elementwise op broadcasts implicitly."""
    if source.shape or not gradient.shape:
        return gradient
    return total(gradient, tuple(range(gradient.ndim))).reshape(())


def _add(a: UOp, b: UOp) -> UOp:
    """The sum of two gradients of one value, of stacks of shards shard by shard."""
    if a.op is b.op and a.arg == b.arg:
        if a.op is Ops.ALLREDUCE and a.src[0].op is b.src[0].op is Ops.MSTACK:
            return _add(a.src[0], b.src[0]).allreduce(a.arg)
        if a.op is Ops.MSTACK:
            pairs = zip(a.src, b.src, strict=True)
            return a.replace(src=tuple(_add(x, y) for x, y in pairs))
    if _is_zero(a):
        return b
    return a if _is_zero(b) else a + b


def _is_zero(node: UOp) -> bool:
    base = node.src[0].base if is_placement(node) else node.base
    return base.op is Ops.CONST and base.arg == 0


# ---- rules of reductions: the second gradient of a product walks on its own ----


def _reduce(g: UOp, y: UOp) -> Gradients:
    x = y.src[0]
    wide = g.expand(x.shape)
    if y.arg.op is Ops.ADD:
        return (wide,)
    if y.arg.op is Ops.MUL:
        others = _product_of_others(x, lambda op, z: z.r(op, y.arg.axes).expand(z.shape))
        return (with_gradient(wide * others, _product_tree_gradient(y), g, x),)
    # equal maxima share the gradient
    is_max = x.eq(fully_reduced(y).expand(x.shape)).cast(g.dtype)
    count = total(is_max, y.arg.axes)
    return (is_max * g.alu(Ops.FDIV, count).expand(x.shape),)


def _product_of_others(x: UOp, combined: Callable[[Ops, UOp], UOp]) -> UOp:
    """For each element, the product of all other elements of its reduction; exact for zeros.

    `combined(op, z)` reduces `z` by `op` and broadcasts the result to the shape of `x`.
    """
    zero, one = number(x, 0), number(x, 1)
    is_zero = x.eq(zero)
    others = is_zero.where(one, x)
    product = combined(Ops.MUL, others)
    zeros = combined(Ops.ADD, is_zero.where(one, zero))
    at_zero = zeros.eq(one).where(product, zero)
    elsewhere = zeros.eq(zero).where(product.alu(Ops.FDIV, others), zero)
    return is_zero.where(at_zero, elsewhere)


def _product_tree_gradient(y: UOp) -> CustomRule:
    """The second-order gradient of a product reduction: that of a tree of binary products.

    The quotient in `_product_of_others` has a wrong gradient where a factor is zero.
    """

    def tree_product(x: UOp, axis: int) -> UOp:
        def part(start: int, stop: int) -> UOp:
            return x.shrink(tuple((0, size) if i != axis else (start, stop) for i, size in sizes))

        sizes = list(enumerate(x.shape))
        length = cast(int, x.shape[axis])
        if length < 2:
            return x
        half = length // 2
        product = tree_product(part(0, half) * part(half, 2 * half), axis)
        return product * part(length - 1, length) if length % 2 else product

    def rule(gg: UOp, node: UOp, g: UOp, x: UOp) -> Sequence[UOp | None]:
        # a change of layout of `g` could start from what `g` is computed from, and not depend on it
        leaves = {_leaf(u): u for u in (g, x)}
        g, x = leaves
        product = x
        for axis in y.arg.axes:
            product = tree_product(product, axis)
        first = compute_gradient(product, g, [x])[x]
        second = compute_gradient(first, gg, [g, x])
        return [None if u not in second else second[u].substitute(leaves) for u in (g, x)]

    return rule


def _leaf(node: UOp) -> UOp:
    """A BUFFER to compute with in place of a node; the node itself if it is on no device, or of a
    symbolic size.
    """
    if node.device is None or not all_int(node.shape):
        return node
    return UOp.new_buffer(node.device, node.shape, node.dtype)


def _gather(g: UOp, y: UOp) -> Gradients:
    table, index = y.src
    # accumulate in the wide dtype: many rows may be added
    wide = g.cast(sum_acc_dtype(g.dtype))
    added = wide.scatter_add(index, table.shape[y.arg], y.arg)
    return added.cast(g.dtype), None


def _scatter_add(g: UOp, y: UOp) -> Gradients:
    return g.gather(y.src[1], len(y.arg) - 1), None


def _scatter_mul(g: UOp, y: UOp) -> Gradients:
    x, index = y.src
    *batch, rows = y.arg
    scatters = {Ops.MUL: Ops.SCATTER_MUL, Ops.ADD: Ops.SCATTER_ADD}

    def combined(op: Ops, z: UOp) -> UOp:
        return z.scatter(scatters[op], index, rows, len(batch)).gather(index, len(batch))

    return g.gather(index, len(batch)) * _product_of_others(x, combined), None


def _scatter_max(g: UOp, y: UOp) -> Gradients:
    x, index = y.src
    *sizes, rows = y.arg
    batch = len(sizes)
    # equal maxima share the gradient; an index out of range selects no row
    is_max = x.eq(fully_reduced(y).gather(index, batch)).cast(g.dtype)
    count = is_max.scatter_add(index, rows, batch).gather(index, batch)
    share = g.gather(index, batch).alu(Ops.FDIV, count.alu(Ops.MAX, number(g, 1)))
    return is_max * share, None


RULES: dict[Ops, GradientRule] = {
    **ELEMENTWISE_RULES,
    **MOVEMENT_RULES,
    Ops.REDUCE_AXIS: _reduce,
    Ops.GATHER: _gather,
    Ops.SCATTER_ADD: _scatter_add,
    Ops.SCATTER_MUL: _scatter_mul,
    Ops.SCATTER_MAX: _scatter_max,
}
