"""Gradients through stored values: they do not depend on what was stored.

Input: a node, its upstream gradient, and the tensors to differentiate by. Output: their gradients.
Invariant: a gradient does not depend on what was stored; if it cannot be had, because a history was
not kept or a value was overwritten, RuntimeError says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.execution.buffers import memory_of
from tinygrad.execution.capture import capturing
from tinygrad.gradient import Paths, carry_over, compute_gradient, find_paths, gradient_along
from tinygrad.storage.gradients.grad_mode import Leaf
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.gradients.known_histories import Lost, Reason
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.storage.lock import exclusive
from tinygrad.storage.rebuild import with_rebuilt_sources
from tinygrad.storage.views import view_base
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

_MAXIMA = frozenset({Ops.MAX, Ops.SCATTER_MAX})
_MOVED = GroupOp.Movement | GroupOp.Identity

_FIXES = {
    Reason.RELEASED: (
        "was released by an earlier backward() through it; pass retain_graph=True to that one, "
        "compute the value anew, or .detach() it"
    ),
    Reason.CUT: (
        "was not kept, as it was unknown that a gradient would be needed; set requires_grad=True "
        "before the computation, or .detach() the value"
    ),
    Reason.CAPTURED: (
        "is not known, as replays of a TinyJit overwrite it; call backward() inside of the "
        "captured function, or .detach() the value"
    ),
}


@exclusive
def gradients(
    root: UOp, root_gradient: UOp, targets: Sequence[TensorBase], release: bool = False
) -> dict[UOp, UOp]:
    """The gradient by the node of each of `targets` that `root` depends on. With `release`, the
    histories that it goes through are dropped.
    """
    known = histories.without_aside((root, *(x.uop for x in targets)))
    root, nodes = known[root], dict.fromkeys(known[x.uop] for x in targets)
    # what was computed from a leaf before a pending write has its gradient
    leaves = {
        known[x.uop]
        for x in targets
        if x.uop.op is not Ops.BUFFER and isinstance(x._requires_grad, Leaf)
    }
    older = {leaf.src[0]: leaf for leaf in leaves if leaf.op is Ops.ASSIGN}
    if not leaves and not histories:
        return compute_gradient(root, root_gradient, nodes)
    older |= histories.older_views(nodes)
    lost: list[UOp] = []

    def definition_of(buffer: UOp) -> UOp | None:
        found = histories.definition(buffer)
        if found is None and buffer in histories.lost:
            lost.append(buffer)
        return found

    paths = find_paths(root, (*nodes, *older), definition_of, leaves)
    for buffer in lost:
        _check_lost(buffer, histories.lost[buffer], targets)
    results = gradient_along(paths, root, root_gradient)
    for view, node in older.items():
        part = results.pop(view, None)
        if part is not None:
            results[node] = results[node] + part if node in results else part
    found = _with_stored_values(results, paths)
    passed = [b for b, below in paths.definitions.items() if below in paths.order]
    aside = [b for b, below in histories.aside() if below in paths.order]
    for capture in capturing()[-1:]:
        capture.differentiated.update(*(memory_of(b) for b in (*passed, *aside) if b.memory))
    if release:
        histories.release(passed)
    return {node: found[new] for node, new in known.items() if new in found}


def _check_lost(buffer: UOp, lost: Lost, targets: Sequence[TensorBase]) -> None:
    """Raise RuntimeError if one of `targets` may be below a BUFFER whose history was lost."""
    mine = [view_base(x.uop) is buffer for x in targets]
    if any(own and isinstance(x._requires_grad, Leaf) for own, x in zip(mine, targets)):
        return
    if any(not own and _may_be_below(lost, x) for own, x in zip(mine, targets)):
        raise RuntimeError(
            f"gradient: the history of a stored value of shape {buffer.shape} {_FIXES[lost.reason]}"
        )


def _may_be_below(lost: Lost, target: TensorBase) -> bool:
    """Whether a value whose history was lost may depend on a tensor, from when each was made."""
    if target._number >= lost.last:
        return False
    if not target._requires_grad:
        return True
    # until `first`, the value was made from undecided ones, so from none that required a gradient
    state = target._requires_grad
    return (state.since if isinstance(state, Leaf) else target._number) > lost.first


def _with_stored_values(results: dict[UOp, UOp], paths: Paths) -> dict[UOp, UOp]:
    """Gradients that read the memory of stored values instead of computing them again, and compute
    again what was overwritten. Raises RuntimeError if that is not possible.
    """
    placeholders = histories.placeholders
    stored = {x: node for x, node in paths.definitions.items() if x in paths.order}
    done = {
        definition: buffer
        for buffer, definition in (*stored.items(), *histories.aside())
        if definition.op is not Ops.BUFFER
        and buffer not in placeholders
        and not _is_maximum(definition)
    }
    if not done and not placeholders:
        return results
    stack = list(results.values())
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        is_old = node.op is Ops.BUFFER and node in placeholders
        sources = (_overwritten_value(node),) if is_old else node.src
        pending = [x for x in sources if x not in done]
        if pending:
            stack.extend(pending)
            continue
        stack.pop()
        done[node] = done[sources[0]] if is_old else with_rebuilt_sources(node, done)
    carry_over(done)
    return {target: done[node] for target, node in results.items()}


def _overwritten_value(placeholder: UOp) -> UOp:
    definition = histories.definitions.get(placeholder)
    if definition is None:
        raise RuntimeError(
            f"gradient: it needs a {placeholder.dtype} of shape {placeholder.shape} that was "
            "modified in place after it was used; call backward() before the write, or write to a "
            ".clone()"
        )
    return definition


def _is_maximum(node: UOp) -> bool:
    """Whether the gradient of a value compares it with its sources: computed by another kernel, it
    may be rounded differently.
    """
    while node.op in _MOVED:
        node = node.src[0]
    return node.op in _MAXIMA or (node.op is Ops.REDUCE_AXIS and node.arg.op is Ops.MAX)
