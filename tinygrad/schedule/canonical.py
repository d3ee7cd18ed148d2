"""The canonical form of a graph, which is the key of the plan cache.

Input: a SINK of the tensor graph. Output: the same graph with BUFFERs numbered in the order of
first use, unbound Variables, chains of movement merged where nothing is sharded, and without ops
that concern gradients alone; and apart from it, the real BUFFERs and the values of the Variables.
Invariant: graphs that differ only in their buffers and bound values have the same canonical SINK,
as one object.

Python numbers are constants of a canonical graph, since values and loops simplify by them.
`lift_numbers` makes Variables of those whose value changes the results of kernels alone, so graphs
that differ in a learning rate or the number of a column can share one plan.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

from tinygrad.caches import cached_function
from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentError
from tinygrad.schedule.movement_chains import is_chain, merged_chain
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.float_variables import argument_of, value_of
from tinygrad.uop.ops import BufferArg, UOp
from tinygrad.uop.simplify.fold import constant_value
from tinygrad.uop.simplify.identities import exact_inverse
from tinygrad.uop.sint import check_bound
from tinygrad.uop.user_line import UserLine

_HAS_SIZES = GroupOp.Movement | GroupOp.Scatter | {Ops.ARANGE}
_FOR_GRADIENTS = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD})
_WRITES = frozenset({Ops.ASSIGN, Ops.CUSTOM_KERNEL})
# ops whose values plans store, unless another order of operations needs none
_STORED = GroupOp.Communication | {Ops.CONTIGUOUS}


class Canonical(NamedTuple):
    """A canonical graph, and what it leaves out: the real `buffers`, the `values` of Variables, the
    real ASSIGNs and CUSTOM_KERNELs, and the user's `lines` that caused communication. `stored` are
    the CONTIGUOUS, COPY and ALLREDUCE nodes, sources first, with their canonical nodes.
    """

    sink: UOp
    buffers: tuple[UOp, ...]
    values: dict[str, int]
    assignments: tuple[UOp, ...]
    lines: tuple[UserLine, ...]
    stored: dict[UOp, UOp]

    def line(self, number: int) -> UserLine:
        """The user's line with this number.

        It is not known for a node that reads no buffer: the node is shared with another graph, and
        has its line's number there.
        """
        return self.lines[number] if number < len(self.lines) else UserLine()


class BindingConflict(ArgumentError):
    """One Variable has two values in a graph."""


class _Variables:
    """The Variables of a graph: the values of those that are bound, and all that are used."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.used: list[UOp] = []

    def unbind(self, node: UOp) -> UOp:
        """The Variable of a binding, whose value is kept."""
        variable, value = node.unbind()
        name, argument = variable.arg[0], argument_of(variable, value)
        if self.values.setdefault(name, argument) != argument:
            other = value_of(variable, self.values[name])
            raise BindingConflict(
                f"Variable {name} is bound to {other} and to {value} in one graph"
            )
        return variable


def canonicalize(sink: UOp) -> Canonical:
    """Number the buffers of a graph, of a SINK or any other node, and remove its bindings.

    Raises:
        BindingConflict: one Variable is bound to two values.
        ArgumentError: a Variable has no value.
    """
    done: dict[UOp, UOp] = {}
    found: list[UOp] = []
    variables = _Variables()
    lines: list[UserLine] = []
    stored: dict[UOp, UOp] = {}
    order = sink.toposort()
    writes = [node for node in order if node.op in _WRITES]
    ranks = _ranks(writes) if writes else {}
    for node in order:
        op, arg, src = node.op, node.arg, node.src
        if not src or op is Ops.BIND:
            done[node] = node if op is Ops.CONST else _canonical_leaf(node, found, variables)
            continue
        if op in _FOR_GRADIENTS:
            # gradients were computed before scheduling
            done[node] = done[src[0]]
            continue
        src = tuple(map(done.__getitem__, src))
        if op in _HAS_SIZES and not _is_known(arg):
            arg = _without_bindings(arg, variables)
        elif op is Ops.ASSIGN:
            arg = ranks[node]
        if src == node.src and arg is node.arg:
            done[node] = node
            continue
        if is_chain(op, src[0]) and not isinstance(src[0].device, Sharding):
            done[node] = merged_chain(op, src[0], arg)
            continue
        new = done[node] = UOp(op, node.dtype, src, arg)
        new.take_device(node)
        if not variables.values:
            # nothing below was bound, so the shape is the same one
            new.take_shape(node)
        if op not in _STORED:
            continue
        stored[node] = new
        if op is not Ops.CONTIGUOUS:
            new.user_line = len(lines)
            lines.append(node.user_line if isinstance(node.user_line, UserLine) else UserLine())
    if variables.used:
        check_bound(variables.used, variables.values)
    return Canonical(
        done[sink], tuple(found), variables.values, tuple(writes), tuple(lines), stored
    )


def _canonical_leaf(node: UOp, buffers: list[UOp], variables: _Variables) -> UOp:
    """A node without sources, or a binding. Buffers are added to `buffers`."""
    op, arg = node.op, node.arg
    if op is Ops.BUFFER:
        shape = arg.shape
        if not _is_known(shape):
            shape = _without_bindings(shape, variables)
        buffers.append(node)
        return UOp(op, node.dtype, (), BufferArg(-len(buffers), shape, arg.device))
    if op is Ops.BIND:
        return variables.unbind(node)
    if op in _HAS_SIZES and not _is_known(arg):
        return UOp(op, node.dtype, (), _without_bindings(arg, variables))
    if op is Ops.DEFINE_VAR:
        variables.used.append(node)
    return node


def _ranks(writes: list[UOp]) -> dict[UOp, int]:
    """The number of each assignment among those to its buffer in this graph, from 0."""
    assignments = [node for node in writes if node.op is Ops.ASSIGN]
    if len(assignments) == 1:
        return {assignments[0]: 0}
    numbers: dict[UOp, set[int]] = {}
    for node in assignments:
        numbers.setdefault(node.src[0].base, set()).add(node.arg)
    return {node: sorted(numbers[node.src[0].base]).index(node.arg) for node in assignments}


@cached_function(4096)
def _is_known(arg: Any) -> bool:
    """Whether the argument of a movement op has no symbolic size."""
    return all(map(_is_known, arg)) if isinstance(arg, tuple) else not isinstance(arg, UOp)


def _without_bindings(arg: Any, variables: _Variables) -> Any:
    if isinstance(arg, tuple):
        new = tuple([_without_bindings(x, variables) for x in arg])
        return arg if all(a is b for a, b in zip(arg, new, strict=True)) else new
    if isinstance(arg, UOp):
        nodes = arg.toposort()
        variables.used += [node for node in nodes if node.op is Ops.DEFINE_VAR]
        return arg.substitute({b: variables.unbind(b) for b in nodes if b.op is Ops.BIND})
    return arg


# ---- numbers ----

_EXACT = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.WHERE),
        *(Ops.IDIV, Ops.MOD, Ops.AND, Ops.OR, Ops.XOR, Ops.ASSIGN, Ops.COPY),
    }
)
"""Ops that compute the same bits from a Variable as from a constant of its value. Elementary
functions and powers of constants are folded or decomposed by their value."""
_LITERAL = frozenset({-2, -1, 0, 1, 2})
"""Numbers by which ops simplify, here or in LLVM, where `2 * x` is `x + x`: they stay constants."""


class Lifted(NamedTuple):
    """A canonical graph with Variables for its numbers, and `places`: the Variable and the CONST of
    each, in the order of first use.
    """

    sink: UOp
    places: tuple[tuple[UOp, UOp], ...]

    def fixed(self, varying: Collection[int]) -> tuple[UOp | None, ...]:
        """The numbers, with None for those at the places `varying`."""
        return tuple([None if i in varying else x for i, (_, x) in enumerate(self.places)])

    def values(self, varying: Collection[int]) -> dict[str, int]:
        """The arguments for the Variables at the places `varying`, by name."""
        places = [self.places[i] for i in varying]
        return {v.arg[0]: argument_of(v, constant_value(number)) for v, number in places}


def lift_numbers(sink: UOp, varying: Collection[int] | None = None) -> Lifted:
    """Make Variables of the numbers of a canonical graph that may change without changing shapes,
    conditions on loop counters, communication or what simplifies; only of those at the places
    `varying`, if that is given.

    Equal constants are one Variable, so kernels that were equal stay so. Each offset of a slice has
    one of its own.
    """
    numbers = _Numbers(varying)
    order = sink.toposort()
    targets: set[UOp] = set()
    for node in reversed(order):
        if node.src and (node.op in _WRITES or node in targets):
            targets.add(node.src[0])
    done: dict[UOp, UOp] = {}
    # what counts without reading memory, which becomes conditions on loops
    counters: set[UOp] = set()
    reading: set[UOp] = set()
    for node in order:
        op, src = node.op, node.src
        if op is Ops.BUFFER or not reading.isdisjoint(src):
            reading.add(node)
        elif op is Ops.ARANGE or not counters.isdisjoint(src):
            counters.add(node)
        new, arg = tuple([done[x] for x in src]), node.arg
        if op in _EXACT and counters.isdisjoint(src):
            lifted = tuple([numbers.lift(x, y) for x, y in zip(src, new, strict=True)])
            # a quotient by a power of two is a product, which may be rounded with a sum
            new = (lifted[0], new[1]) if _is_exact_quotient(node) else lifted
        elif op is Ops.SHRINK and node not in targets and _may_slide(node):
            arg = numbers.lift_offsets(node)
        if new == src and arg is node.arg:
            done[node] = node
            continue
        done[node] = UOp(op, node.dtype, new, arg, node.tag)
        done[node].take_device(node)
        done[node].take_shape(node)
        done[node].user_line = node.user_line
    return Lifted(done[sink], tuple(numbers.places))


class _Numbers:
    """The numbers of a graph in the order of first use; those at `varying` become Variables."""

    def __init__(self, varying: Collection[int] | None) -> None:
        self.varying = varying
        self.places: list[tuple[UOp, UOp]] = []
        self._lifted: dict[UOp, UOp] = {}

    def _add(self, number: UOp, low: Any, high: Any) -> UOp:
        place = len(self.places)
        variable = UOp(Ops.DEFINE_VAR, number.dtype, (), (f"_number{place}", low, high))
        self.places.append((variable, number))
        return variable if self.varying is None or place in self.varying else number

    def lift(self, node: UOp, other: UOp) -> UOp:
        """What a constant, which may be broadcast, becomes; `other` if this is none."""
        number = _below_broadcast(node)
        if number not in self._lifted:
            if not _may_vary(number):
                return other
            limits = dtypes.min(number.dtype), dtypes.max(number.dtype)
            self._lifted[number] = self._add(number, *limits)
        return _broadcast_over(node, self._lifted[number])

    def lift_offsets(self, node: UOp) -> tuple[Any, ...]:
        """What the argument of a SHRINK becomes."""
        new: list[Any] = []
        for (start, end), size in zip(node.arg, node.src[0].shape, strict=True):
            number, slack = UOp.const(dtypes.index, start), size - (end - start)
            offset = self._add(number, 0, slack) if slack else number
            new.append((start, end) if offset is number else (offset, offset + (end - start)))
        return node.arg if tuple(new) == node.arg else tuple(new)


def _below_broadcast(node: UOp) -> UOp:
    while node.op is Ops.EXPAND or node.op is Ops.RESHAPE:
        node = node.src[0]
    return node


def _broadcast_over(node: UOp, base: UOp) -> UOp:
    """A broadcast constant with `base` in the place of the constant."""
    if not node.src:
        return base
    return UOp(node.op, node.dtype, (_broadcast_over(node.src[0], base),), node.arg)


def _may_vary(number: UOp) -> bool:
    """Whether kernels may take a constant as an argument."""
    dtype = number.dtype
    if number.op is not Ops.CONST or dtype.count > 1 or dtype is dtypes.index:
        return False
    value = constant_value(number)
    if dtypes.is_float(dtype):
        return dtype.itemsize > 1 and math.isfinite(value) and value not in _LITERAL
    return dtypes.is_int(dtype) and value not in _LITERAL


def _is_exact_quotient(node: UOp) -> bool:
    divisor = node.src[-1]
    if node.op is not Ops.FDIV or divisor.op is not Ops.CONST or divisor.dtype.count > 1:
        return False
    return exact_inverse(constant_value(divisor), divisor.dtype) is not None


def _may_slide(node: UOp) -> bool:
    """Whether kernels may take the offsets of a slice as arguments. Slices of rows of memory are
    views without them.
    """
    source = node.src[0]
    if not isinstance(node.device, str) or not (_is_known(node.arg) and _is_known(source.shape)):
        return False
    cut = [axis for axis, (start, end) in enumerate(node.arg) if end - start < source.shape[axis]]
    is_view = all(end - start == 1 for start, end in node.arg[: max(cut, default=0)])
    return not (is_view and _below_broadcast(source).op is Ops.BUFFER)
