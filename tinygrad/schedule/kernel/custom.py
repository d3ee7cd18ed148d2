"""Kernels written by hand become kernel graphs.

In: the SINK that a user's function returned, over PARAMs: arrays under movement and AFTER, elements
`INDEX(array, i, j)`, `STORE(element, value)`, `END(what, *ranges)`. Out: the same as what
`rangeify.py` makes, `SINK(STORE(INDEX(pointer, index), value, *ranges))`; where the order of stores
was said, `AFTER(pointer, *stores and ranges)` says it still. Always true: every loop is closed, and
no access is known to be out of range.
"""

from __future__ import annotations

from dataclasses import replace

from tinygrad.codegen.analysis.ranges import FreeRanges
from tinygrad.codegen.lower.linearize import LoopOrderError, linearize
from tinygrad.codegen.lower.reductions import lower_reductions
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.helpers import dedup
from tinygrad.schedule.kernel.rangeify import (
    both,
    flat_index,
    load_address,
    movement_index,
    simplify_indices,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.linear import split_sum
from tinygrad.uop.ops import AxisType, KernelInfo, RangeArg, UOp, sint, symbolic_args
from tinygrad.uop.rewrite import graph_rewrite
from tinygrad.uop.spec_checks import elementwise_dtypes

DEFINE = {
    AddrSpace.GLOBAL: Ops.DEFINE_GLOBAL,
    AddrSpace.LOCAL: Ops.DEFINE_LOCAL,
    AddrSpace.REG: Ops.DEFINE_REG,
}


class CustomKernelError(ValueError):
    """A mistake in a kernel written by hand. The message names the kernel and the fix."""


def lower_custom_kernel(sink: UOp, name: str, placeholders: tuple[UOp, ...]) -> UOp:
    """The kernel graph of what a user's function made of its placeholders.

    Raises CustomKernelError for loops that stay open, indices out of range, stores of another
    dtype, and whatever else has no place in a kernel.
    """
    info = KernelInfo(name) if sink.arg is None else sink.arg
    if not isinstance(info, KernelInfo) or info.opts_to_apply:
        raise CustomKernelError(
            f"custom kernel {name}: sink(arg={info!r}); it takes KernelInfo(name), with "
            "opts_to_apply=() where loops keep their order"
        )
    lowering = _Lowering(info.name, placeholders)
    for node in sink.toposort():
        lowering.lower(node)
    stores = lowering.effects[sink]
    lowering.check_closed(stores)
    lowering.check_bound(sink, stores)
    kernel = graph_rewrite(UOp.sink(*stores), simplify_indices, name="simplify indices")
    if any(u.op is Ops.AFTER for u in kernel.toposort()):
        # loops whose order was said stay as they are
        info = replace(info, opts_to_apply=())
        lowering.check_order(kernel)
    return kernel.replace(arg=info)


def bindings(sink: UOp) -> tuple[UOp, ...]:
    """The bound Variables that a kernel depends on, in its loops, indices and shapes."""
    found: dict[UOp, None] = {}
    for node in sink.toposort():
        below = [node] if node.op is Ops.BIND else []
        if node.op in GroupOp.Movement or node.op is Ops.PARAM:
            below = [y for x in symbolic_args(node) for y in x.toposort()]
        found.update(dict.fromkeys(x for x in below if x.op is Ops.BIND))
    return tuple(found)


def written_slots(kernel: UOp) -> tuple[int, ...]:
    """The numbers of the arguments that a kernel graph writes."""
    pointers = (pointer_of(u.src[0]) for u in kernel.toposort() if u.op is Ops.STORE)
    return tuple(sorted({int(p.arg) for p in pointers if p.op is Ops.DEFINE_GLOBAL}))


def pointer_of(address: UOp) -> UOp:
    """The memory that an address is in."""
    node = address
    while node.op in {Ops.INDEX, Ops.AFTER}:
        node = node.src[0]
    return node


def is_array(node: UOp) -> bool:
    """Whether a node is a placeholder, or a view of one."""
    while node.op in GroupOp.Movement or node.op is Ops.AFTER:
        node = node.src[0]
    return node.op is Ops.PARAM


class _Lowering:
    """One kernel: values of nodes, addresses of elements, and the stores that effects do."""

    def __init__(self, name: str, placeholders: tuple[UOp, ...]) -> None:
        self.name = name
        self.placeholders = placeholders
        self.values: dict[UOp, UOp] = {}
        self.addresses: dict[UOp, UOp] = {}
        self.effects: dict[UOp, list[UOp]] = {}

    def error(self, text: str) -> CustomKernelError:
        return CustomKernelError(f"custom kernel {self.name}: {text}")

    def lower(self, node: UOp) -> None:
        """Translate one node, whose sources are translated."""
        op = node.op
        if op is Ops.PARAM:
            self.check_placeholder(node)
        elif is_array(node):
            if op is Ops.AFTER:
                self.effects[node] = self.together(node.src)
        elif op is Ops.INDEX:
            self.addresses[node] = self.address(node)
        elif op is Ops.STORE:
            self.effects[node] = [self.store(node)]
        elif op is Ops.END:
            self.effects[node] = [self.close(x, node.src[1:]) for x in self.done_by(node.src[0])]
        elif op is Ops.SINK or (op is Ops.NOOP and node.src):
            self.effects[node] = self.together(node.src)
        elif op is Ops.RANGE:
            # whatever a loop was wished to be, its steps are independent, or they are not
            kind = AxisType.REDUCE if node.arg.kind is AxisType.REDUCE else AxisType.LOOP
            size = self.value(node.src[0])
            self.values[node] = node.replace(src=(size,), arg=RangeArg(node.arg.index, kind))
        elif op is Ops.BIND:
            self.values[node] = node.src[0]
        elif op in {Ops.CONST, Ops.DEFINE_VAR} or (op is Ops.NOOP and not node.src):
            self.values[node] = node
        elif op is Ops.LOAD and len(node.src) == 1:
            self.values[node] = self.value(node.src[0])
        elif op is Ops.REDUCE or op in GroupOp.Elementwise:
            self.values[node] = self.computed(node)
        elif op in GroupOp.Movement:
            raise self.error(
                f"arithmetic with an array of shape {node.shape}; index it first, as in A[i]"
            )
        else:
            raise self.error(
                f"{op.name} is no part of a kernel; it takes elements, arithmetic, reduce(), "
                "store() and end()"
            )

    # ---- values ----

    def value(self, node: UOp) -> UOp:
        """What a node is where a value is needed: of an element, what is in memory."""
        if node in self.addresses:
            return load_address(self.addresses[node])
        if is_array(node):
            raise self.error(
                f"an array of shape {node.shape} stands where a number is needed; index it, as in "
                "A[i]"
            )
        if node not in self.values:
            raise self.error(f"{node.op.name} stands where a number is needed; it has no value")
        return self.values[node]

    def computed(self, node: UOp) -> UOp:
        new = node.replace(src=tuple(self.value(x) for x in node.src))
        if node.op is Ops.REDUCE:
            self.check_ranges(new.src[1:])
            if new.arg not in GroupOp.Reduce:
                raise self.error(f"reduce() is by Ops.ADD, Ops.MUL or Ops.MAX, not {new.arg}")
        elif node.op in GroupOp.ALU and not _is_choice(node):
            wrong = elementwise_dtypes(new)
            if wrong is not None:
                raise self.error(f"{node.op.name} {wrong}; use cast()")
        return new

    # ---- elements ----

    def address(self, node: UOp) -> UOp:
        """The address of an element."""
        array = node.src[0]
        index: list[UOp] = []
        valid: UOp | None = None
        for axis, (x, size) in enumerate(zip(node.src[1:], array.shape, strict=True)):
            if _is_choice(x):
                valid = both(valid, self.value(x.src[0]))
                x = x.src[1]
            value = self.value(x)
            if not dtypes.is_int(value.dtype):
                raise self.error(f"an index is of integers, not of {value.dtype}; use cast()")
            index.append(value.cast(dtypes.index))
            if valid is None:
                self.check_range(index[-1], size, axis, array)
        return self.through(array, tuple(index), valid)

    def through(self, array: UOp, index: tuple[UOp, ...], valid: UOp | None) -> UOp:
        """The address of an element of a view."""
        before: list[UOp] = []
        while array.op is not Ops.PARAM:
            if array.op is Ops.AFTER:
                before += [y for x in array.src[1:] for y in self.waited_for(x)]
            else:
                if array.op is Ops.SHRINK:
                    array = array.replace(arg=self.part(array))
                index, condition = movement_index(array, index)
                valid = both(valid, condition)
            array = array.src[0]
        pointer = self.pointer(array)
        if before:
            pointer = UOp(Ops.AFTER, pointer.dtype, (pointer, *dedup(before)))
        return pointer.index(flat_index(array.shape, index).simplify(), valid)

    def part(self, array: UOp) -> tuple[tuple[sint, sint], ...]:
        """The bounds of a SHRINK, which may depend on loops and on what was loaded."""
        bounds: list[tuple[sint, sint]] = []
        source = array.src[0]
        for axis, ((start, end), size) in enumerate(zip(array.arg, source.shape, strict=True)):
            if isinstance(start, UOp):
                for node in start.toposort():
                    self.lower(node)
                start = self.value(start)
                length = array.shape[axis]
                self.check_range(start, size, axis, source)
                self.check_range(start + (length - 1), size, axis, source)
            bounds.append((start, end))
        return tuple(bounds)

    def pointer(self, param: UOp) -> UOp:
        where = param.arg.addrspace
        return UOp(DEFINE[where], param.dtype.ptr(param.size, where), (), param.arg.slot)

    def waited_for(self, node: UOp) -> list[UOp]:
        """What AFTER names: a loop, or the stores that something does."""
        return [self.values[node]] if node.op is Ops.RANGE else self.done_by(node)

    # ---- effects ----

    def done_by(self, node: UOp) -> list[UOp]:
        """The stores that a node does."""
        if node in self.effects:
            return self.effects[node]
        if node.op is Ops.RANGE or is_array(node):
            return []
        raise self.error(
            f"{node.op.name} does nothing that could end or be waited for; store() its value"
        )

    def together(self, nodes: tuple[UOp, ...]) -> list[UOp]:
        """The stores of several nodes; what another of them waits for runs where that needs it."""
        stores = list(dict.fromkeys(s for x in nodes for s in self.done_by(x)))
        if len(stores) < 2:
            return stores
        inside = {u for s in stores for x in s.src for u in x.toposort()}
        return [s for s in stores if s not in inside]

    def store(self, node: UOp) -> UOp:
        target, value = node.src[0], self.value(node.src[1])
        if target not in self.addresses:
            raise self.error(f"store() goes to one element, not to {target.op.name}; index it")
        if value.dtype is not target.dtype:
            raise self.error(
                f"a value of {value.dtype} is stored into an array of {target.dtype}; "
                f"use cast({target.dtype})"
            )
        return self.close(self.addresses[target].store(value), node.src[2:])

    def close(self, store: UOp, ranges: tuple[UOp, ...]) -> UOp:
        """A store inside of more loops, around those that it has."""
        own = tuple(self.values[r] for r in ranges if r.op is Ops.RANGE)
        if len(own) < len(ranges):
            raise self.error("end() closes loops made by UOp.range()")
        self.check_ranges((*own, *store.src[2:]))
        return store.replace(src=(*store.src[:2], *own, *store.src[2:]))

    # ---- checks ----

    def check_placeholder(self, node: UOp) -> None:
        if node.arg.addrspace is AddrSpace.GLOBAL and node not in self.placeholders:
            raise self.error(
                f"placeholder {node.arg.slot} of shape {node.shape} is none that the function was "
                "given; arrays of its own have addrspace=AddrSpace.REG"
            )

    def check_ranges(self, ranges: tuple[UOp, ...]) -> None:
        if any(r.op is not Ops.RANGE for r in ranges):
            raise self.error("reduce() and end() take loops made by UOp.range()")
        if len(set(ranges)) < len(ranges):
            numbers = ", ".join(str(r.arg.index) for r in ranges)
            raise self.error(
                f"one loop is closed twice (of the loops {numbers}); different loops need "
                "different numbers"
            )

    def check_range(self, index: UOp, size: sint, axis: int, array: UOp) -> None:
        """An index that is known to leave its axis is refused; one that only may is not."""
        simple = index.simplify()
        low, high = simple.vmin, simple.vmax
        most = size if isinstance(size, int) else int(size.vmax)
        terms, _ = split_sum(simple)
        is_exact = all(x.op is Ops.RANGE for x in terms)
        outside = (low < 0 or high >= most) if is_exact else (high < 0 or low >= most)
        # what has no elements is not computed
        if outside and 0 not in array.shape:
            raise self.error(
                f"index {simple.render()} of axis {axis} goes from {low} to {high}, but that axis "
                f"of {array.shape} has {most} elements; shorten the loop, or say where the index "
                "holds: index.valid(condition)"
            )

    def check_closed(self, stores: list[UOp]) -> None:
        if not any(pointer_of(s.src[0]).op is Ops.DEFINE_GLOBAL for s in stores):
            raise self.error("it stores nothing into its placeholders; use C[i].store(value)")
        free = FreeRanges()
        for store in stores:
            still_open = sorted(free[store], key=lambda r: int(r.arg.index))
            if still_open:
                numbers = ", ".join(str(r.arg.index) for r in still_open)
                raise self.error(
                    f"nothing closes the loop {numbers} around a store; use .end() with it, or "
                    ".reduce()"
                )

    def check_bound(self, sink: UOp, stores: list[UOp]) -> None:
        bound = {x.src[0] for x in bindings(sink)}
        for variable in UOp.sink(*stores).variables():
            if variable not in bound:
                raise self.error(
                    f"the Variable {variable.expr} has no value; use {variable.expr}.bind(value)"
                )

    def check_order(self, kernel: UOp) -> None:
        """The order that was said is possible."""
        try:
            linearize(lower_reductions(kernel))
        except LoopOrderError as error:
            raise self.error(
                f"its loops have no order: {error}; give each of them a UOp.range() of its own"
            ) from error


def _is_choice(node: UOp) -> bool:
    """Whether this is an index that is not there everywhere, see `UOp.valid`."""
    return node.op is Ops.WHERE and node.src[2].op is Ops.NOOP
