"""The canonical form of a graph, which is the key of the plan cache.

Input: a SINK of the tensor graph. Output: the same graph with BUFFERs numbered in the order of
first use, unbound Variables, chains of movement merged where nothing is sharded, and without ops
that concern gradients alone; and apart from it, the real BUFFERs and the values of the Variables.
Invariant: graphs that differ only in their buffers and bound values have the same canonical SINK,
as one object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinygrad.caches import cached_function
from tinygrad.errors import ArgumentError
from tinygrad.schedule.movement_chains import is_chain, merged_chain
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.float_variables import argument_of, value_of
from tinygrad.uop.ops import BufferArg, UOp
from tinygrad.uop.sint import check_bound
from tinygrad.uop.user_line import UserLine

_HAS_SIZES = GroupOp.Movement | GroupOp.Scatter | {Ops.ARANGE}
_FOR_GRADIENTS = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD})
_WRITES = frozenset({Ops.ASSIGN, Ops.CUSTOM_KERNEL})


class Canonical(NamedTuple):
    """A canonical graph, and what it leaves out: the real `buffers`, the `values` of Variables, the
    real ASSIGNs and CUSTOM_KERNELs, and the user's `lines` that caused communication.
    """

    sink: UOp
    buffers: tuple[UOp, ...]
    values: dict[str, int]
    assignments: tuple[UOp, ...]
    lines: tuple[UserLine, ...]

    def line(self, number: int) -> UserLine:
        """The user's line with this number.

        It is not known for a node that reads no buffer: the node is shared with another graph, and
        has its line's number there.
        """
        return self.lines[number] if number < len(self.lines) else UserLine()


class BindingConflict(ArgumentError):
    """One Variable has two values in a graph."""


@dataclass
class _Variables:
    """The Variables of a graph: the values of those that are bound, and all that are used."""

    values: dict[str, int] = field(default_factory=dict)
    used: list[UOp] = field(default_factory=list)

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
    order = sink.toposort()
    writes = [node for node in order if node.op in _WRITES]
    ranks = _ranks(writes) if writes else {}
    for node in order:
        op, arg, src = node.op, node.arg, node.src
        if op in _FOR_GRADIENTS:
            # gradients were computed before scheduling
            done[node] = done[src[0]]
            continue
        if not src or op is Ops.BIND:
            done[node] = node if op is Ops.CONST else _canonical_leaf(node, found, variables)
            continue
        src = tuple([done[x] for x in src])
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
        if op in GroupOp.Communication:
            new.user_line = len(lines)
            lines.append(node.user_line if isinstance(node.user_line, UserLine) else UserLine())
    check_bound(variables.used, variables.values)
    return Canonical(done[sink], tuple(found), variables.values, tuple(writes), tuple(lines))


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
    numbers: dict[UOp, set[int]] = {}
    assignments = [node for node in writes if node.op is Ops.ASSIGN]
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
