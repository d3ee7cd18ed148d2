"""Verification: every node of a graph against its form, and every rewrite against what it replaces.

Input: a graph and a `Spec`, or a node and its replacement. Output: nothing, or SpecError with the
node and its mistake. An op without an entry in a form is invalid in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tinygrad.errors import ArgumentError
from tinygrad.uop import Ops
from tinygrad.uop.node import Node
from tinygrad.uop.render import listing, tree
from tinygrad.uop.sint import same_shape
from tinygrad.uop.spec.checks import Check

MAX_ERROR_NODES = 60
"""Maximum number of nodes that an error prints."""


class SpecError(RuntimeError):
    """A node that is invalid in its form of the graph: a bug of the library, not of its user."""


@dataclass(frozen=True)
class Spec:
    """A form of the graph: the checks of each op it may contain, and `common` checks of all."""

    name: str
    checks: dict[Ops, tuple[Check, ...]]
    common: tuple[Check, ...] = ()
    whole: Callable[[Sequence[Node]], tuple[Node, str] | None] | None = None
    """A check of a whole list of nodes: the first that is wrong, and why."""

    def verify(self, program: Node | Sequence[Node]) -> None:
        """Check a graph, by its root, or a list of nodes. Raises SpecError."""
        if isinstance(program, Sequence):
            type_verify(program, self)
            wrong = self.whole(program) if self.whole is not None else None
            if wrong is not None:
                _fail(self.name, *wrong)
        else:
            verify(program, self)

    def size(self, program: Node | Sequence[Node]) -> str:
        """The number of nodes."""
        return f"{len(_nodes(program))} nodes"

    def text(self, program: Node | Sequence[Node]) -> str:
        """A graph as a tree; a list of nodes in its order."""
        if isinstance(program, Sequence):
            return listing(program)
        return tree(program, limit=sys.maxsize)


def _nodes(program: Node | Sequence[Node]) -> Collection[Node]:
    return program if isinstance(program, Sequence) else program.toposort()


def verify(sink: Node, spec: Spec) -> None:
    """Check every node below `sink`. Raises SpecError with the node and its error.

    A check depends on the node and its sources alone, so no node is checked twice in one form.
    """
    name = spec.name
    nodes = [x for x in sink.toposort(lambda x: name not in _forms(x)) if name not in _forms(x)]
    type_verify(nodes, spec)
    for node in nodes:
        node._verified = (*_forms(node), name)


def _forms(node: Node) -> tuple[str, ...]:
    """The names of the forms in which a node, and all below it, were found valid."""
    return getattr(node, "_verified", ())


def type_verify(nodes: Iterable[Node], spec: Spec) -> None:
    """Check each of `nodes`, which are sorted with sources first. Raises SpecError."""
    for node in nodes:
        checks = spec.checks.get(node.op)
        if checks is None:
            _fail(spec.name, node, f"is no op of the {spec.name}")
        for check in (*checks, *spec.common):
            wrong = check(node)
            if wrong is not None:
                _fail(spec.name, node, wrong)


def _fail(where: str, node: Node, wrong: str) -> NoReturn:
    text = tree(node, MAX_ERROR_NODES)
    raise SpecError(f"in the {where}, {node.op.name} {wrong}:\n{text}")


MAY_CHANGE: dict[str, frozenset[str]] = {
    # floats that a device lacks are stored as integers
    "narrow floats": frozenset({"dtype"}),
}
"""By name of a pass, the properties that replacements may change: "dtype", "shape", "device"."""


def may_change(name: str, *properties: str) -> None:
    """Let the pass `name` change these properties of nodes."""
    unknown = set(properties) - {"dtype", "shape", "device"}
    if unknown:
        raise ArgumentError(
            f"{name}: {unknown} are no properties; there are dtype, shape and device"
        )
    MAY_CHANGE[name] = frozenset(properties)


def check_replacement(old: Node, new: Node, name: str) -> None:
    """Check that a rewrite keeps the dtype and, in the tensor graph, the shape and the device.

    A value that becomes an expression of constants may lose its device. Raises SpecError.
    """
    free = MAY_CHANGE.get(name, frozenset())
    if "dtype" not in free and old.dtype is not new.dtype:
        _fail_rewrite(name, old, new, f"dtype {old.dtype!r} to {new.dtype!r}")
    before, after = old.shape_or_none, new.shape_or_none
    if before is None or after is None:
        return
    if "shape" not in free and not same_shape(before, after):
        _fail_rewrite(name, old, new, f"shape {before} to {after}")
    if "device" not in free and new.device is not None and new.device != old.device:
        _fail_rewrite(name, old, new, f"device {old.device} to {new.device}")


def _fail_rewrite(name: str, old: Node, new: Node, change: str) -> NoReturn:
    raise SpecError(
        f"the pass {name!r} changed the {change} of {old.op.name}:\n"
        f"{tree(old, MAX_ERROR_NODES)}\nbecame\n{tree(new, MAX_ERROR_NODES)}"
    )
