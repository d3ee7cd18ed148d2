"""Linearize a graph of nested loops into a program.

Before: a graph without REDUCEs over ranges; STOREs name the loops they run, AFTER orders effects.
After: a list of nodes, sources first, in which RANGE opens a loop and END closes it. Every node is
hoisted to the outermost loop possible, so no later pass moves loop-invariant code.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygrad.codegen.analysis.ranges import FreeRanges, loops_of
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Path = tuple[UOp, ...]


class LoopOrderError(RuntimeError):
    """The loops of a graph cannot be nested or ordered."""


class _Placement:
    """The enclosing loops of every node."""

    def __init__(self, nodes: list[UOp]) -> None:
        self.free = FreeRanges()
        self.owners: dict[UOp, list[UOp]] = {}
        self.paths: dict[UOp, Path] = {}
        self.contexts: dict[UOp, Path] = {}
        self.visiting: set[UOp] = set()
        for u in nodes:
            for r in loops_of(u):
                self.owners.setdefault(r, []).append(u)

    def deepest(self, ranges: frozenset[UOp]) -> Path:
        """The shortest path of loops that contains all of `ranges`."""
        best: Path = ()
        for r in ranges:
            path = self.path(r)
            if len(path) > len(best):
                best = path
        if not ranges.issubset(best):
            names = ", ".join(str(r.arg) for r in sorted(ranges, key=lambda r: int(r.arg.index)))
            raise LoopOrderError(f"loops {names} are needed together and do not nest")
        return best

    def context(self, store: UOp) -> Path:
        """The loops that enclose a nest."""
        found = self.contexts.get(store)
        if found is None:
            if store in self.visiting:
                raise LoopOrderError("a loop nest would have to be inside of itself")
            self.visiting.add(store)
            found = self.contexts[store] = self.deepest(self.free[store])
        return found

    def path(self, axis: UOp) -> Path:
        """The loops that enclose `axis`, and `axis` itself."""
        found = self.paths.get(axis)
        if found is None:
            found = ()
            for store in self.owners.get(axis, ()):
                loops = loops_of(store)
                path = (*self.context(store), *loops[: loops.index(axis) + 1])
                if len(path) > len(found):
                    found = path
            assert found, f"no nest runs the loop {axis.arg}"
            self.paths[axis] = found
        return found

    def scope(self, node: UOp) -> Path:
        """The loops that enclose `node`; for a store, including those that it runs."""
        if node.op is Ops.RANGE:
            return self.path(node)
        if loops_of(node):
            context, own = self.context(node), self.path(node.src[-1])
            return own if len(own) >= len(context) else context
        free = self.free[node]
        return self.deepest(free) if free else ()


def linearize(sink: UOp) -> list[UOp]:
    """The nodes of `sink` in order of execution, without the SINK."""
    nodes = [u for u in sink.toposort() if u.op is not Ops.SINK]
    placement = _Placement(nodes)
    scopes = {u: placement.scope(u) for u in nodes}
    members: dict[UOp | None, dict[UOp, int]] = {None: {}}
    before: dict[UOp, dict[UOp, None]] = {}
    for position, u in enumerate(nodes):
        scope = scopes[u]
        parent: UOp | None = None
        for r in scope:
            # a loop takes the position of its last node, after most of its dependencies
            found = members.setdefault(parent, {})
            found.pop(r, None)
            found[r] = position
            parent = r
        if u.op is not Ops.RANGE:
            members.setdefault(parent, {})[u] = position
        for x in u.src:
            _add_edge(before, u, scope, x, scopes[x])
    result: list[UOp] = []
    _emit(None, members, before, result)
    return result


def _add_edge(
    before: dict[UOp, dict[UOp, None]], node: UOp, scope: Path, source: UOp, other: Path
) -> None:
    """Record the order of the two entities, nodes or loops, of the innermost common scope."""
    depth = 0
    for a, b in zip(scope, other, strict=False):
        if a is not b:
            break
        depth += 1
    later = scope[depth] if depth < len(scope) else node
    earlier = other[depth] if depth < len(other) else source
    if later is not earlier and earlier.op is not Ops.SINK:
        before.setdefault(later, {})[earlier] = None


def _emit(
    axis: UOp | None,
    members: dict[UOp | None, dict[UOp, int]],
    before: dict[UOp, dict[UOp, None]],
    result: list[UOp],
) -> None:
    """Append the contents of one loop."""
    for entity in _in_order(members.get(axis, {}), before):
        result.append(entity)
        if entity.op is Ops.RANGE:
            _emit(entity, members, before, result)
            result.append(UOp(Ops.END, dtypes.void, (entity,)))


def _in_order(inside: dict[UOp, int], before: dict[UOp, dict[UOp, None]]) -> Iterator[UOp]:
    """The contents of a loop, each after those that come before it."""
    done: set[UOp] = set()
    opened: set[UOp] = set()
    stack = list(reversed(inside))
    while stack:
        entity = stack[-1]
        if entity in done:
            stack.pop()
            continue
        waiting = [x for x in before.get(entity, ()) if x not in done and x in inside]
        if not waiting:
            stack.pop()
            done.add(entity)
            yield entity
            continue
        if entity in opened:
            raise LoopOrderError(f"{entity.op.name} would have to come before itself")
        opened.add(entity)
        stack += waiting
