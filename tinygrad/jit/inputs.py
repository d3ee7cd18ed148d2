"""The arguments of a captured call: its tensors and Variables, and the Python values beside them.

In: arguments, with tensors in lists, tuples and dicts. Out: `Inputs`. Always true: the Python code
of a function does the same for two calls whose `signature` and `fixed` are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinygrad.device import Buffer, Device
from tinygrad.schedule.canonical import canonicalize
from tinygrad.storage.buffers import device_buffers
from tinygrad.storage.realization import realize_all
from tinygrad.storage.views import is_constant
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class JitError(RuntimeError):
    """A call that a captured function cannot serve."""


@dataclass
class Inputs:
    """The arguments of a call: BUFFER nodes and their buffers in order, values of Variables, what
    must not change about them (`signature`), and the Python values that Python code saw (`fixed`).
    """

    nodes: list[UOp]
    buffers: list[Buffer]
    values: dict[str, int]
    signature: tuple[Any, ...]
    fixed: tuple[tuple[str, Any], ...]


def find_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Collect the tensors, Variables and Python values of a call; tensors are realized.

    Raises:
        JitError: one tensor is passed twice, so that a replay could not tell the two apart.
    """
    named = [(str(i), x) for i, x in enumerate(args)] + sorted(kwargs.items())
    nodes: list[UOp] = []
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
            # it gets memory, so that a call may have another value in its place
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
            fixed.append((name, _identity(leaf)))
    roots = [b.base or b for b in buffers]
    if len(set(roots)) < len(roots):
        raise JitError("two arguments share one buffer; pass a .clone() of one of them")
    return Inputs(nodes, buffers, values, tuple(signature), tuple(fixed))


def leaves(x: Any) -> list[Any]:
    """What nested lists, tuples and dicts hold."""
    if isinstance(x, (list, tuple)):
        return [leaf for y in x for leaf in leaves(y)]
    if isinstance(x, dict):
        # the names are seen by Python code too
        return [leaf for name, y in x.items() for leaf in (name, *leaves(y))]
    return [x]


def tensors_of(x: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in leaves(x) if isinstance(leaf, Tensor)]


def _is_bound(x: Any) -> bool:
    return isinstance(x, UOp) and x.op is Ops.BIND


@dataclass(frozen=True, eq=False)
class _Same:
    """An object that is compared by identity, and kept so that no other one takes its place."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _identity(x: Any) -> Any:
    """What two values share if a function cannot tell them apart: type and text of a number, the
    content of an array, for anything else the object itself.
    """
    if x is None or isinstance(x, (int, float, complex, str, bytes, range)):
        # 1, True and 1.0 are equal, as are 0.0 and -0.0; not a number is not
        return type(x), repr(x)
    try:
        content = memoryview(x)
    except (TypeError, ValueError, BufferError):
        return _Same(x)
    return type(x), content.format, content.shape, content.tobytes()


def difference(old: tuple[Any, ...], new: tuple[Any, ...]) -> str:
    """How two signatures that are not equal differ, in words."""
    if len(old) != len(new):
        return f"captured with {len(old)} tensors and Variables, called with {len(new)}"
    name, a, b = next((x[0], x[1], y[1]) for x, y in zip(old, new, strict=True) if x != y)
    if _describe(a) == _describe(b):
        return (
            f"argument {name} is {_describe(a)}, but another view of its memory than was captured; "
            "pass .contiguous() of it"
        )
    return f"argument {name} was captured as {_describe(a)}, and is now {_describe(b)}"


def _describe(node: UOp) -> str:
    return (
        f"{node.dtype} {node.shape} on {node.device}"
        if node.op is not Ops.DEFINE_VAR
        else node.expr
    )
