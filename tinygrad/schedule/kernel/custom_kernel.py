"""From a hand-written kernel to its kernel graph, with the checks that name a user's mistake.

Input: the SINK that a user's function returned, over PARAMs: arrays under movement and AFTER,
elements `INDEX(array, i, j)`, `STORE(element, value)`, `END(effect, *ranges)`. Output: a kernel
graph as `rangeify.py` makes it, `SINK(STORE(INDEX(pointer, index), value, *ranges))`, where
`AFTER(pointer, *stores and ranges)` keeps an explicit order of stores. Invariant: every loop is
closed, and no access is provably out of range.
"""

from __future__ import annotations

from dataclasses import replace

from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.helpers import dedup
from tinygrad.renderer import pointer_of
from tinygrad.schedule.kernel.movement_index import both, flat_index, movement_index
from tinygrad.schedule.kernel.rangeify import load_address
from tinygrad.schedule.kernel.simplify_kernel import simplify_indices
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.float_variables import read_argument
from tinygrad.uop.ops import AxisType, KernelInfo, RangeArg, UOp, sint, symbolic_args
from tinygrad.uop.rewrite import graph_rewrite
from tinygrad.uop.simplify.affine import split_sum
from tinygrad.uop.spec.checks import elementwise_dtypes

DEFINE = {
    AddrSpace.GLOBAL: Ops.DEFINE_GLOBAL,
    AddrSpace.LOCAL: Ops.DEFINE_LOCAL,
    AddrSpace.REG: Ops.DEFINE_REG,
}


class CustomKernelError(ValueError):
    """A mistake in a hand-written kernel. The message names the kernel and the fix."""


def lower_custom_kernel(sink: UOp, name: str, placeholders: tuple[UOp, ...]) -> UOp:
    """The kernel graph of the SINK that a user's function returned for `placeholders`.

    Raises:
        CustomKernelError: a loop is not closed, an index is out of range, a value is stored in
            another dtype, or an op cannot be part of a kernel.
    """
    info = KernelInfo(name) if sink.arg is None else sink.arg
    if not isinstance(info, KernelInfo) or info.opts_to_apply:
        raise CustomKernelError(
            f"custom kernel {name}: sink(arg={info!r}); it takes KernelInfo(name), with "
            "opts_to_apply=() where loops keep their order"
        )
    lowering = _CustomKernelLowering(info.name, placeholders)
    for node in sink.toposort():
        lowering.lower(node)
    stores = lowering.effects[sink]
    lowering.check_closed(stores)
    lowering.check_bound(sink, stores)
    kernel = graph_rewrite(UOp.sink(*stores), simplify_indices, name="simplify indices")
    if any(u.op is Ops.AFTER for u in kernel.toposort()):
        # loops with an explicit order are not optimized
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
    from tinygrad.codegen.analysis.accesses import accessed_slots

    return accessed_slots(kernel.toposort(), Ops.STORE)


def is_array(node: UOp) -> bool:
    """Whether a node is a placeholder, or a view of one."""
    while node.op in GroupOp.Movement or node.op is Ops.AFTER:
        node = node.src[0]
    return node.op is Ops.PARAM


class _CustomKernelLowering:
    """The lowering of one kernel: the value of each node, the address of each element, and the
    stores that each node with an effect performs.
    """

    def __init__(self, name: str, placeholders: tuple[UOp, ...]) -> None:
        self.name = name
        self.placeholders = placeholders
        self.values: dict[UOp, UOp] = {}
        self.addresses: dict[UOp, UOp] = {}
        self.effects: dict[UOp, list[UOp]] = {}

    def error(self, text: str) -> CustomKernelError:
        return CustomKernelError(f"custom kernel {self.name}: {text}")

    def lower(self, node: UOp) -> None:
        """Lower one node, whose sources are lowered."""
        op = node.op
        if op is Ops.PARAM:
            self.check_placeholder(node)
        elif is_array(node):
            if op is Ops.AFTER:
                self.effects[node] = self.stores_of_all(node.src)
        elif op is Ops.INDEX:
            self.addresses[node] = self.address(node)
        elif op is Ops.STORE:
            self.effects[node] = [self.store(node)]
        elif op is Ops.END:
            self.effects[node] = [self.close(x, node.src[1:]) for x in self.stores_of(node.src[0])]
        elif op is Ops.SINK or (op is Ops.NOOP and node.src):
            self.effects[node] = self.stores_of_all(node.src)
        elif op is Ops.RANGE:
            # the optimizer chooses all kinds but REDUCE, whose steps depend on each other
            kind = AxisType.REDUCE if node.arg.kind is AxisType.REDUCE else AxisType.LOOP
            size = self.value(node.src[0])
            self.values[node] = node.replace(src=(size,), arg=RangeArg(node.arg.index, kind))
        elif op in {Ops.DEFINE_VAR, Ops.BIND}:
            self.values[node] = read_argument(node.src[0] if node.src else node)
        elif op is Ops.CONST or (op is Ops.NOOP and not node.src):
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
                f"{op.name} is not part of a kernel; it takes elements, arithmetic, reduce(), "
                "store() and end()"
            )

    # ---- values ----

    def value(self, node: UOp) -> UOp:
        """The value of a node; an element is loaded."""
        if node in self.addresses:
            return load_address(self.addresses[node])
        if is_array(node):
            raise self.error(
                f"an array of shape {node.shape} is used as a number; index it, as in A[i]"
            )
        if node not in self.values:
            raise self.error(f"{node.op.name} is used as a number, but it has no value")
        return self.values[node]

    def computed(self, node: UOp) -> UOp:
        new = node.replace(src=tuple(self.value(x) for x in node.src))
        if node.op is Ops.REDUCE:
            self.check_ranges(new.src[1:])
            if new.arg not in GroupOp.Reduce:
                raise self.error(f"reduce() takes Ops.ADD, Ops.MUL or Ops.MAX, not {new.arg}")
        elif node.op in GroupOp.ALU and not _is_conditional_index(node):
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
            if _is_conditional_index(x):
                valid = both(valid, self.value(x.src[0]))
                x = x.src[1]
            value = self.value(x)
            if not dtypes.is_int(value.dtype):
                raise self.error(f"an index must be an integer, not {value.dtype}; use cast()")
            index.append(value.cast(dtypes.index))
            if valid is None:
                self.check_range(index[-1], size, axis, array)
        return self.address_in_view(array, tuple(index), valid)

    def address_in_view(self, array: UOp, index: tuple[UOp, ...], valid: UOp | None) -> UOp:
        """The address of an element of a view."""
        before: list[UOp] = []
        while array.op is not Ops.PARAM:
            if array.op is Ops.AFTER:
                before += [y for x in array.src[1:] for y in self.dependencies(x)]
            else:
                if array.op is Ops.SHRINK:
                    array = array.replace(arg=self.lowered_bounds(array))
                index, condition = movement_index(array, index)
                valid = both(valid, condition)
            array = array.src[0]
        pointer = self.pointer(array)
        if before:
            pointer = UOp(Ops.AFTER, pointer.dtype, (pointer, *dedup(before)))
        return pointer.index(flat_index(array.shape, index).simplify(), valid)

    def lowered_bounds(self, array: UOp) -> tuple[tuple[sint, sint], ...]:
        """The bounds of a SHRINK, which may depend on loops and on loaded values."""
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

    def dependencies(self, node: UOp) -> list[UOp]:
        """What AFTER waits for: a loop, or the stores of a node."""
        return [self.values[node]] if node.op is Ops.RANGE else self.stores_of(node)

    # ---- effects ----

    def stores_of(self, node: UOp) -> list[UOp]:
        """The stores that a node performs."""
        if node in self.effects:
            return self.effects[node]
        if node.op is Ops.RANGE or is_array(node):
            return []
        raise self.error(
            f"{node.op.name} has no effect that end() or after() could name; store() its value"
        )

    def stores_of_all(self, nodes: tuple[UOp, ...]) -> list[UOp]:
        """The stores of several nodes, without those that others of them depend on."""
        stores = list(dict.fromkeys(s for x in nodes for s in self.stores_of(x)))
        if len(stores) < 2:
            return stores
        inside = {u for s in stores for x in s.src for u in x.toposort()}
        return [s for s in stores if s not in inside]

    def store(self, node: UOp) -> UOp:
        target, value = node.src[0], self.value(node.src[1])
        if target not in self.addresses:
            raise self.error(f"store() writes one element, not {target.op.name}; index it")
        if value.dtype is not target.dtype:
            raise self.error(
                f"a value of {value.dtype} is stored to an array of {target.dtype}; "
                f"use cast({target.dtype})"
            )
        return self.close(self.addresses[target].store(value), node.src[2:])

    def close(self, store: UOp, ranges: tuple[UOp, ...]) -> UOp:
        """A store inside further loops, outside those that it has."""
        own = tuple(self.values[r] for r in ranges if r.op is Ops.RANGE)
        if len(own) < len(ranges):
            raise self.error("end() closes loops made by UOp.range()")
        self.check_ranges((*own, *store.src[2:]))
        return store.replace(src=(*store.src[:2], *own, *store.src[2:]))

    # ---- checks ----

    def check_placeholder(self, node: UOp) -> None:
        if node.arg.addrspace is AddrSpace.GLOBAL and node not in self.placeholders:
            raise self.error(
                f"placeholder {node.arg.slot} of shape {node.shape} is not an argument of the "
                "function; arrays of its own have addrspace=AddrSpace.REG"
            )

    def check_ranges(self, ranges: tuple[UOp, ...]) -> None:
        if any(r.op is not Ops.RANGE for r in ranges):
            raise self.error("reduce() and end() take loops made by UOp.range()")
        if len(set(ranges)) < len(ranges):
            numbers = ", ".join(str(r.arg.index) for r in ranges)
            raise self.error(
                f"a loop is closed twice, of the loops {numbers}; give each loop a number of its "
                "own"
            )

    def check_range(self, index: UOp, size: sint, axis: int, array: UOp) -> None:
        """Raise for an index that is provably out of range, not for one that may be."""
        simple = index.simplify()
        low, high = simple.vmin, simple.vmax
        max_size = size if isinstance(size, int) else int(size.vmax)
        terms, _ = split_sum(simple)
        is_exact = all(x.op is Ops.RANGE for x in terms)
        outside = (low < 0 or high >= max_size) if is_exact else (high < 0 or low >= max_size)
        # a kernel over no elements does not run
        if outside and 0 not in array.shape:
            raise self.error(
                f"index {simple.render()} of axis {axis} goes from {low} to {high}, but that axis "
                f"of {array.shape} has {max_size} elements; shorten the loop, or make the "
                "access conditional: index.valid(condition)"
            )

    def check_closed(self, stores: list[UOp]) -> None:
        if not any(pointer_of(s.src[0]).op is Ops.DEFINE_GLOBAL for s in stores):
            raise self.error("it stores to no placeholder; use C[i].store(value)")
        from tinygrad.codegen.analysis.ranges import FreeRanges

        free = FreeRanges()
        for store in stores:
            still_open = sorted(free[store], key=lambda r: int(r.arg.index))
            if still_open:
                numbers = ", ".join(str(r.arg.index) for r in still_open)
                raise self.error(
                    f"the loop {numbers} around a store is not closed; use .end() or .reduce()"
                )

    def check_bound(self, sink: UOp, stores: list[UOp]) -> None:
        bound = {x.expr for x in bindings(sink)}
        for variable in UOp.sink(*stores).variables():
            if variable.expr not in bound:
                raise self.error(
                    f"the Variable {variable.expr} is not bound; use {variable.expr}.bind(value)"
                )

    def check_order(self, kernel: UOp) -> None:
        """Raise if no order of loops satisfies every AFTER."""
        from tinygrad.codegen.lower.linearize import LoopOrderError, linearize
        from tinygrad.codegen.lower.reductions import lower_reductions

        try:
            linearize(lower_reductions(kernel))
        except LoopOrderError as error:
            raise self.error(
                f"its loops cannot be ordered: {error}; give each of them a UOp.range() of its own"
            ) from error


def _is_conditional_index(node: UOp) -> bool:
    """Whether a node is an index under a condition, as `UOp.valid` makes it."""
    return node.op is Ops.WHERE and node.src[2].op is Ops.NOOP
