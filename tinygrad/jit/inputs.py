"""Inputs of a captured call: its tensors, bound Variables and other Python values.

Input: arguments, with tensors also in lists, tuples and dicts. Output: `Inputs`. Invariant: a
function runs the same kernels for two calls with equal `signature` and `fixed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tinygrad.device import Buffer, Device
from tinygrad.execution.buffers import device_buffers
from tinygrad.execution.capture import JitError
from tinygrad.schedule.canonical import canonicalize
from tinygrad.storage.realization import realize_all
from tinygrad.storage.views import is_constant
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


@dataclass
class Inputs:
    """The arguments of a call.

    `nodes` are BUFFERs and `buffers` their memory, in order; `values` are those of the bound
    Variables. `signature` is what a replay requires of tensors and Variables; `fixed` are the
    Python values that the function depends on, and `objects` the arguments among them.
    """

    nodes: list[UOp]
    buffers: list[Buffer]
    values: dict[str, int]
    signature: tuple[Any, ...]
    fixed: tuple[tuple[str, Any], ...]
    objects: list[Any]

    @cached_property
    def numbers(self) -> dict[Buffer, int]:
        """The number of each input, by its base buffer."""
        return {b.base or b: i for i, b in enumerate(self.buffers)}


def find_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Collect the tensors, Variables and Python values of a call; tensors are realized.

    Raises:
        JitError: two tensors share a buffer, so a replay could not tell them apart.
    """
    named = [(str(i), x) for i, x in enumerate(args)] + sorted(kwargs.items())
    nodes: list[UOp] = []
    objects: list[Any] = []
    buffers: list[Buffer] = []
    values: dict[str, int] = {}
    signature: list[Any] = []
    fixed: list[tuple[str, Any]] = [
        ("Tensor.training", Tensor.training),
        ("Device.DEFAULT", Device.DEFAULT),
    ]
    found = [(name, leaf) for name, x in named for leaf in leaves(x)]
    tensors = [x for _, x in found if isinstance(x, Tensor)]
    for x in tensors:
        if is_constant(x.uop):
            # a constant is stored, so that another call may pass another value
            x.replace(x.contiguous())
    realize_all(tensors)
    for name, leaf in found:
        if isinstance(leaf, Tensor):
            canonical = canonicalize(leaf.uop)
            values |= canonical.values
            signature.append((name, canonical.sink))
            nodes.extend(canonical.buffers)
            for node in canonical.buffers:
                buffers.extend(device_buffers(node))
        elif _is_bound(leaf):
            variable, value = leaf.unbind()
            values[variable.arg[0]] = value
            signature.append((name, variable))
        else:
            fixed.append((name, comparable(leaf)))
            objects.append(leaf)
    inputs = Inputs(nodes, buffers, values, tuple(signature), tuple(fixed), objects)
    if len(inputs.numbers) < len(buffers):
        raise JitError("two arguments share one buffer; pass a .clone() of one of them")
    return inputs


def leaves(x: Any) -> list[Any]:
    """The leaves of nested lists, tuples and dicts; the keys of dicts are leaves too."""
    if isinstance(x, (list, tuple)):
        return [leaf for y in x for leaf in leaves(y)]
    if isinstance(x, dict):
        return [leaf for name, y in x.items() for leaf in (name, *leaves(y))]
    return [x]


def tensors_in(x: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in leaves(x) if isinstance(leaf, Tensor)]


def map_leaves(function: Callable[[Any], Any], x: Any) -> Any:
    """`x`, if it is a list, tuple or dict, with `function` applied to each item; else `x`."""
    if isinstance(x, (list, tuple)):
        new = [function(y) for y in x]
        return type(x)(*new) if hasattr(x, "_fields") else type(x)(new)
    if isinstance(x, dict):
        return {name: function(y) for name, y in x.items()}
    return x


def _is_bound(x: Any) -> bool:
    return isinstance(x, UOp) and x.op is Ops.BIND


@dataclass(frozen=True, eq=False)
class _ById:
    """An object compared by identity, and kept alive so that its id is not reused."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def comparable(x: Any) -> Any:
    """A key that is equal for values that a function cannot tell apart: type and text of a number,
    content of an array, identity of anything else.
    """
    if x is None or isinstance(x, (int, float, complex, str, bytes, range)):
        # Python says 1 == True == 1.0, 0.0 == -0.0, and nan != nan; a function may differ
        return type(x), repr(x)
    try:
        content = memoryview(x)
    except (TypeError, ValueError, BufferError):
        return _ById(x)
    return type(x), content.format, content.shape, content.tobytes()


def difference(old: tuple[Any, ...], new: tuple[Any, ...]) -> str:
    """An error text that says how two unequal signatures differ."""
    if len(old) != len(new):
        return f"captured with {len(old)} tensors and Variables, called with {len(new)}"
    name, a, b = next((x[0], x[1], y[1]) for x, y in zip(old, new, strict=True) if x != y)
    if _describe(a) == _describe(b):
        return (
            f"argument {name} is {_describe(a)}, but another view of its memory than the captured "
            "one; pass .contiguous() of it"
        )
    return f"argument {name} was captured as {_describe(a)}, and is now {_describe(b)}"


def _describe(node: UOp) -> str:
    return (
        f"{node.dtype} {node.shape} on {node.device}"
        if node.op is not Ops.DEFINE_VAR
        else node.expr
    )
