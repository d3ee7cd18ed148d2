"""Reverse-mode differentiation of the tensor graph: a rule per op, and a walk to the targets.

Input: a node, its upstream gradient, and target nodes. Output: the gradient by each target that the
node depends on, in the target's own layout. Invariant: the gradient of a layout change is the same
value. Layouts are brought together where gradients meet other values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from tinygrad.dtype import dtypes, sum_acc_dtype
from tinygrad.gradient.custom import CustomRule, custom_gradient, with_gradient
from tinygrad.helpers import all_int
from tinygrad.sharding import Partial, replica_count, shard_shapes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_rules import is_placement
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import (
    fully_reduced,
    gradient_like,
    gradient_of_allreduce,
    gradient_of_copy,
)
from tinygrad.uop.sint import same_size

Gradients = tuple[UOp | None, ...]
GradientRule = Callable[[UOp, UOp], Gradients]


# ---- the walk ----


@dataclass(frozen=True)
class Paths:
    """The way from a root to targets: `order` are the nodes on some path, sources first. A BUFFER
    among `definitions` has its definition as its source, and `leaves` have no sources.
    """

    targets: set[UOp]
    order: dict[UOp, None]
    definitions: dict[UOp, UOp]
    leaves: Collection[UOp]

    def sources(self, node: UOp) -> tuple[UOp, ...]:
        """The nodes that the gradient of `node` may go to."""
        return () if node in self.leaves else _sources(node, self.definitions)


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
    """The paths from `root` to `targets`, none of which goes on below `leaves`. `definition_of` is
    asked for the node that was stored in each BUFFER below `root`.
    """
    paths = Paths(set(targets), {}, {}, leaves)
    leads: dict[UOp, bool] = {}
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            leads[node] = node in paths.targets or any(leads[x] for x in paths.sources(node))
        elif node not in leads:
            if node.op is Ops.BUFFER and definition_of is not None:
                definition = definition_of(node)
                if definition is not None:
                    paths.definitions[node] = definition
            # graphs are acyclic: a node on the stack cannot be reached again below itself
            stack.append((node, True))
            stack.extend((x, False) for x in paths.sources(node) if x not in leads)
    paths.order.update((node, None) for node, does in leads.items() if does)
    return paths


def gradient_along(paths: Paths, root: UOp, root_gradient: UOp) -> dict[UOp, UOp]:
    """The gradient by each target of `paths` that `root` depends on."""
    order, definitions = paths.order, paths.definitions
    gradients: dict[UOp, UOp] = {root: root_gradient}
    for node in reversed(order):
        gradient = gradients.get(node)
        sources = paths.sources(node)
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
    if op in _STOPS or (op in _STOPS_OF_INTEGERS and not dtypes.is_float(node.dtype)):
        return ()
    return node.src


def _gradients_by_sources(node: UOp, gradient: UOp) -> Sequence[UOp | None]:
    custom = custom_gradient(node)
    if custom is not None:
        return custom.rule(gradient, node, *custom.sources)
    rule = RULES.get(node.op)
    if rule is None:
        raise RuntimeError(f"{node.op.name} has no gradient; use detach() to stop it")
    return tuple(
        None if part is None else _without_broadcast(part, source)
        for part, source in zip(rule(gradient, node), node.src)
    )


def _without_broadcast(gradient: UOp, source: UOp) -> UOp:
    """The gradient by a scalar operand, which an elementwise op broadcasts implicitly."""
    if source.shape or not gradient.shape:
        return gradient
    return _sum(gradient, tuple(range(gradient.ndim))).reshape(())


# ---- rules: from the gradient of the result to the gradients by the sources ----


def _number(like: UOp, value: float) -> UOp:
    return UOp.const(like.dtype, value)


def _sum(x: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum over axes, in the accumulation dtype."""
    return x.cast(sum_acc_dtype(x.dtype)).r(Ops.ADD, axes).cast(x.dtype)


def _none(g: UOp, y: UOp) -> Gradients:
    return (None,) * len(y.src)


def _pass(g: UOp, y: UOp) -> Gradients:
    return (g,)


def _cast(g: UOp, y: UOp) -> Gradients:
    source = y.src[0].dtype
    return (g.cast(source) if dtypes.is_float(source) and dtypes.is_float(y.dtype) else None,)


def _reciprocal(g: UOp, y: UOp) -> Gradients:
    return (g * y * y * _number(y, -1),)


def _trunc(g: UOp, y: UOp) -> Gradients:
    return (y.src[0].const_like(0),)


def _log2(g: UOp, y: UOp) -> Gradients:
    x = y.src[0]
    return (g.alu(Ops.FDIV, x * _number(x, math.log(2))),)


def _exp2(g: UOp, y: UOp) -> Gradients:
    return (g * y * _number(y, math.log(2)),)


def _by_quotient(denominator: Callable[[UOp], UOp], sign: int = 1) -> GradientRule:
    """The rule of a function of x with the derivative `sign / denominator(x)`."""

    def rule(g: UOp, y: UOp) -> Gradients:
        quotient = g.alu(Ops.FDIV, denominator(y.src[0]))
        return (quotient if sign == 1 else quotient * _number(g, sign),)

    return rule


def _one_minus_square(x: UOp) -> UOp:
    # not 1 - x * x, which is inaccurate near 1
    one = _number(x, 1)
    return (one - x) * (one + x)


def _root_of_square_minus_one(x: UOp) -> UOp:
    # two roots are NaN below -1 too
    one = _number(x, 1)
    return (x - one).alu(Ops.SQRT) * (x + one).alu(Ops.SQRT)


def _erf(g: UOp, y: UOp) -> Gradients:
    x = y.src[0]
    bell = (x * x * _number(x, -1)).alu(Ops.EXP)
    return (g * (bell * _number(x, 2 / math.sqrt(math.pi))),)


def _sqrt(g: UOp, y: UOp) -> Gradients:
    return (g.alu(Ops.FDIV, y * _number(y, 2)),)


def _mul(g: UOp, y: UOp) -> Gradients:
    a, b = y.src
    return b * g, a * g


def _fdiv(g: UOp, y: UOp) -> Gradients:
    b = y.src[1]
    by_a = g.alu(Ops.FDIV, b)
    return by_a, by_a * y * _number(y, -1)


def _mod(g: UOp, y: UOp) -> Gradients:
    a, b = y.src
    return g, g * a.alu(Ops.FDIV, b).alu(Ops.TRUNC) * _number(y, -1)


def _pow(g: UOp, y: UOp) -> Gradients:
    base, exponent = y.src
    zero, one = _number(y, 0), _number(y, 1)
    # x ** 0 is 1 for all x, so its derivative is 0, even at 0
    slope = exponent * base.alu(Ops.POW, exponent - one)
    by_base = exponent.eq(zero).where(zero, slope) * g
    if exponent.op is Ops.CONST:
        return by_base, None
    at_zero = (exponent < zero).where(_number(y, -math.inf), zero)
    growth = y * base.alu(Ops.LOG)
    return by_base, base.eq(zero).where(at_zero, growth) * g


def _max(g: UOp, y: UOp) -> Gradients:
    a, b = y.src
    zero = _number(g, 0)
    shared = a.eq(b).where(g * _number(g, 0.5), zero)
    return (b < a).where(g, shared), (a < b).where(g, shared)


def _where(g: UOp, y: UOp) -> Gradients:
    condition, zero = y.src[0], _number(g, 0)
    return None, condition.where(g, zero), condition.where(zero, g)


def _mulacc(g: UOp, y: UOp) -> Gradients:
    a, b, _ = y.src
    return b * g, a * g, g


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
    count = _sum(is_max, y.arg.axes)
    return (is_max * g.alu(Ops.FDIV, count).expand(x.shape),)


def _product_of_others(x: UOp, combined: Callable[[Ops, UOp], UOp]) -> UOp:
    """For each element, the product of all other elements of its reduction; exact for zeros.

    `combined(op, z)` reduces `z` by `op` and broadcasts the result to the shape of `x`.
    """
    zero, one = _number(x, 0), _number(x, 1)
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


def _contiguous_backward(g: UOp, y: UOp) -> Gradients:
    return (g.contiguous(),)


def _copy(g: UOp, y: UOp) -> Gradients:
    return (None if y.src[0].device is None else gradient_of_copy(g, y),)


def _allreduce(g: UOp, y: UOp) -> Gradients:
    return (gradient_of_allreduce(g, y),)


def _mstack(g: UOp, y: UOp) -> Gradients:
    layout = y.arg
    replicas = replica_count(layout)
    if replicas > 1:
        # equal replicas get equal gradients, which add up to that of the value
        g = g.alu(Ops.MUL, _number(g, 1 / replicas))
    if g.device != layout:
        g = g.copy_to_device(layout)
    return tuple(g.mselect(number) for number in range(len(layout)))


def _mselect(g: UOp, y: UOp) -> Gradients:
    x = y.src[0]
    layout = x.layout
    shapes = shard_shapes(layout, x.shape)
    # the gradients of replicas add up
    summed = layout.with_axes([Partial("ADD") if p is None else p for p in layout.axes])
    parts = [
        (g if i == y.arg else _number(g, 0).broadcast_to(shape)).copy_to_device(device)
        for i, (device, shape) in enumerate(zip(layout.devices, shapes, strict=True))
    ]
    stack = UOp(Ops.MSTACK, g.dtype, tuple(parts), summed)
    return (stack.allreduce(layout) if summed.is_partial else stack,)


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


def _assign(g: UOp, y: UOp) -> Gradients:
    return None, g


def _custom_kernel(g: UOp, y: UOp) -> Gradients:
    raise RuntimeError(
        f"custom kernel {y.arg.kernel.arg.name} has no gradient; pass custom_kernel(grad_fxn=...), "
        "or detach() its inputs"
    )


def _reshape(g: UOp, y: UOp) -> Gradients:
    return (g.reshape(y.src[0].shape),)


def _expand(g: UOp, y: UOp) -> Gradients:
    pairs = enumerate(zip(y.src[0].shape, y.shape, strict=True))
    return (_sum(g, tuple(i for i, (old, new) in pairs if not same_size(old, new))),)


def _permute(g: UOp, y: UOp) -> Gradients:
    return (g.permute(y.inverse_permute()),)


def _pad(g: UOp, y: UOp) -> Gradients:
    sizes = zip(y.src[0].shape, y.arg, strict=True)
    return (g.shrink(tuple((before, before + size) for size, (before, _) in sizes)),)


def _shrink(g: UOp, y: UOp) -> Gradients:
    sizes = zip(y.src[0].shape, y.arg, strict=True)
    return (g.pad(tuple((start, size - end) for size, (start, end) in sizes)),)


def _flip(g: UOp, y: UOp) -> Gradients:
    return (g.flip(y.arg),)


def _window(g: UOp, y: UOp) -> Gradients:
    return (g.unwindow(y.arg.resized(y.src[0].shape)),)


def _unwindow(g: UOp, y: UOp) -> Gradients:
    return (g.window(y.arg.resized(y.src[0].shape)),)


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
    share = g.gather(index, batch).alu(Ops.FDIV, count.alu(Ops.MAX, _number(g, 1)))
    return is_max * share, None


# ops that no gradient passes
_STOPS = GroupOp.Comparison | {
    *(Ops.IDIV, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
    *(Ops.THREEFRY, Ops.BITCAST, Ops.DETACH),
}
_STOPS_OF_INTEGERS = {Ops.CAST, Ops.MOD}

RULES: dict[Ops, GradientRule] = {
    **dict.fromkeys(_STOPS, _none),
    Ops.CAST: _cast,
    Ops.RECIPROCAL: _reciprocal,
    Ops.TRUNC: _trunc,
    Ops.EXP2: _exp2,
    Ops.EXP: lambda g, y: (g * y,),
    Ops.EXPM1: lambda g, y: (g * y.src[0].alu(Ops.EXP),),
    Ops.LOG2: _log2,
    Ops.LOG: _by_quotient(lambda x: x),
    Ops.LOG1P: _by_quotient(lambda x: x + _number(x, 1)),
    Ops.SIN: lambda g, y: (g * y.src[0].alu(Ops.COS),),
    Ops.COS: lambda g, y: (g * (y.src[0].alu(Ops.SIN) * _number(y, -1)),),
    Ops.TAN: lambda g, y: (g * (y * y + _number(y, 1)),),
    Ops.ASIN: _by_quotient(lambda x: _one_minus_square(x).alu(Ops.SQRT)),
    Ops.ACOS: _by_quotient(lambda x: _one_minus_square(x).alu(Ops.SQRT), -1),
    Ops.ATAN: _by_quotient(lambda x: x * x + _number(x, 1)),
    Ops.SINH: lambda g, y: (g * y.src[0].alu(Ops.COSH),),
    Ops.COSH: lambda g, y: (g * y.src[0].alu(Ops.SINH),),
    Ops.TANH: lambda g, y: (g * _one_minus_square(y),),
    Ops.ASINH: _by_quotient(lambda x: (x * x + _number(x, 1)).alu(Ops.SQRT)),
    Ops.ACOSH: _by_quotient(_root_of_square_minus_one),
    Ops.ATANH: _by_quotient(_one_minus_square),
    Ops.ERF: _erf,
    Ops.LOGISTIC: lambda g, y: (g * y * (_number(y, 1) - y),),
    Ops.SOFTPLUS: lambda g, y: (g * y.src[0].alu(Ops.LOGISTIC),),
    Ops.SQRT: _sqrt,
    Ops.NEG: lambda g, y: (g * _number(g, -1),),
    Ops.ADD: lambda g, y: (g, g),
    Ops.SUB: lambda g, y: (g, g * _number(g, -1)),
    Ops.MUL: _mul,
    Ops.FDIV: _fdiv,
    Ops.MOD: _mod,
    Ops.POW: _pow,
    Ops.MAX: _max,
    Ops.WHERE: _where,
    Ops.MULACC: _mulacc,
    Ops.REDUCE_AXIS: _reduce,
    Ops.CONTIGUOUS: _pass,
    Ops.CONTIGUOUS_BACKWARD: _contiguous_backward,
    Ops.COPY: _copy,
    Ops.ALLREDUCE: _allreduce,
    Ops.MSTACK: _mstack,
    Ops.MSELECT: _mselect,
    Ops.ASSIGN: _assign,
    Ops.CUSTOM_KERNEL: _custom_kernel,
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.WINDOW: _window,
    Ops.UNWINDOW: _unwindow,
    Ops.GATHER: _gather,
    Ops.SCATTER_ADD: _scatter_add,
    Ops.SCATTER_MUL: _scatter_mul,
    Ops.SCATTER_MAX: _scatter_max,
}
