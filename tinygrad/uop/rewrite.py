"""Graph rewriting: rules as patterns and functions, and the walk that applies them.

Input: a graph and a `PatternMatcher`, a list of rules `(UPat, function)`. Output: the graph after
all replacements, in which no rule matches. Rules are dispatched by the op of the root, so a node
without rules costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from tinygrad.settings import SPEC
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.node import N, Node
from tinygrad.uop.spec import check_replacement
from tinygrad.uop.upat import Match, UPat, compile_rule

Rule = tuple[UPat, Callable[..., Any]]


class _RuleTable(dict[Ops, list[Match]]):
    """The rules that may match a root of each op, in order, compiled on first use."""

    def __init__(self, rules: list[Rule]) -> None:
        super().__init__()
        self.rules = rules

    def __missing__(self, op: Ops) -> list[Match]:
        matches = [compile_rule(*r) for r in self.rules if r[0].ops is None or op in r[0].ops]
        self[op] = matches
        return matches


class PatternMatcher:
    """An ordered list of rewrite rules. `a + b` has the rules of `a`, then those of `b`.

    Args:
        rules: the rules. The first that returns a replacement is applied.
        pure: whether replacements depend on the node alone. Then nodes at a fixpoint of the rules
            are marked, and later walks do not descend into them.
    """

    def __init__(self, rules: Sequence[Rule], pure: bool = False) -> None:
        self.rules: list[Rule] = list(rules)
        self.by_op = _RuleTable(self.rules)
        self.pure = pure
        # marks the nodes at a fixpoint of these rules
        self.mark = object()

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules, self.pure and other.pure)

    def can_match(self, ops: set[Ops]) -> bool:
        """Whether a rule may match a node of a graph whose nodes have these ops."""
        return any(_can_match(pattern, ops) for pattern, _ in self.rules)

    def rewrite(self, node: N, ctx: Any = None) -> N | None:
        """The replacement by the first rule that returns one, or None."""
        for match in self.by_op[node.op]:
            found: N | None = match(node, ctx)
            if found is not None:
                return found
        return None


def _can_match(pattern: UPat, ops: set[Ops]) -> bool:
    if pattern.either:
        return any(_can_match(x, ops) for x in pattern.either)
    if pattern.ops is not None and pattern.ops.isdisjoint(ops):
        return False
    # a pattern of every source also matches a node without sources
    needed = () if pattern.repeat else pattern.src or ()
    return all(_can_match(x, ops) for x in needed)


MAX_REPLACEMENTS = 1_000_000


class RewriteLoopError(RuntimeError):
    """Rewrite rules that do not terminate."""


def graph_rewrite(
    sink: N,
    matcher: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    name: str | None = None,
) -> N:
    """Apply `matcher` to every node until nothing changes, and return the new root.

    Each node is rewritten after its sources (`bottom_up=True`: before them). Replacements are
    rewritten in turn. Every distinct node is visited once. `name` is the name of the pass, for
    errors; under `SPEC=2`, `spec.check_replacement` checks every replacement by what the pass may
    change. If sources are rewritten first, communication that a rule inserts inherits the
    `user_line` of the communication that it replaces.

    Raises:
        RewriteLoopError: the rules undo each other, or make over `MAX_REPLACEMENTS` replacements.
    """
    check = check_replacement if SPEC >= 2 else None
    if bottom_up:
        return _rewrite_roots_first(sink, matcher, ctx, name or "rewrite", check)
    return _rewrite_sources_first(sink, matcher, ctx, name or "rewrite", check)


ReplacementCheck = Callable[[Node, Node, str], None]


def _with_sources(node: N, src: tuple[N, ...]) -> N:
    new = type(node)(node.op, node.dtype, src, node.arg, node.tag)
    # replacements keep the shape
    new.take_shape(node)
    return new


def _rewrite_sources_first(
    sink: N, matcher: PatternMatcher, ctx: Any, name: str, check: ReplacementCheck | None
) -> N:
    """The walk of `graph_rewrite` with sources first.

    It is iterative and inlines `matcher.rewrite`: most of the time of the compiler is spent here.
    A node stays on the stack until it is in `done`. It comes to the top once to push its sources,
    once to be rewritten, and once more after its replacement was rewritten in turn.

    Example: the rule `x + 0 -> x` on `(a + 0) * 2`. The walk finds `a`, then `a + 0`, which waits
    for its replacement `a`, which is done; then `a * 2` is built, to which no rule applies.
    """
    done: dict[N, N] = {}
    # nodes whose replacements are being rewritten
    waiting: dict[N, N] = {}
    rules = matcher.by_op
    mark = matcher.mark
    stack = _first_stack(sink, matcher)
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node._settled is mark:
            done[node] = node
            continue
        # the replacement of the node was rewritten
        if node in waiting:
            result = done.get(waiting[node])
            if result is None:
                raise RewriteLoopError(f"{name}: rules undo each other:\n{node}")
            done[node] = result
            continue
        # push the sources that are not done
        ready = True
        for x in reversed(node.src):
            if x in done:
                continue
            if x._settled is mark:
                done[x] = x
            else:
                stack.append(x)
                ready = False
        if not ready:
            continue
        # rebuild the node on its rewritten sources, and apply the first rule that matches
        src = tuple([done[x] for x in node.src])
        new = node if src == node.src else _with_sources(node, src)
        if node.user_line is not None:
            new.user_line = node.user_line
        replacement = None
        for match in rules[new.op]:
            replacement = match(new, ctx)
            if replacement is not None:
                break
        if replacement is None:
            done[node] = done[new] = new
            if matcher.pure:
                new._settled = mark
            continue
        if check is not None:
            check(new, replacement, name)
        if replacement not in done:
            _carry_user_line(new, replacement, done)
        waiting[node] = replacement
        if len(waiting) > MAX_REPLACEMENTS:
            raise RewriteLoopError(f"{name}: rules do not terminate, at {node.op.name}")
        stack.append(replacement)
    return done.get(sink, sink)


def _first_stack(sink: N, matcher: PatternMatcher) -> list[N]:
    """The nodes to visit, the first one last; none if no rule may match. A whole graph is visited
    in its order, so that the sources of each node come before it.
    """
    if sink.op is not Ops.SINK:
        return [sink]
    order = sink.toposort()
    return [*reversed(order)] if matcher.can_match({node.op for node in order}) else []


def _carry_user_line(old: N, new: N, known: Container[N]) -> None:
    """Set the user's line of the communication that a rule inserted, of nodes not `known` before:
    the line of `old`, or of the communication below `old` that it replaces.
    """
    line = old.user_line
    if line is None:
        for x in old.src:
            if x.user_line is not None:
                line = x.user_line
                break
        else:
            return
    stack, seen = [new], set[N]()
    while stack:
        node = stack.pop()
        if node in known or node in seen:
            continue
        seen.add(node)
        if node.op in GroupOp.Communication:
            node.user_line = line
        stack.extend(node.src)


def _rewrite_roots_first(
    sink: N, matcher: PatternMatcher, ctx: Any, name: str, check: ReplacementCheck | None
) -> N:
    done: dict[N, N] = {}
    # (original node, its replacement, whether the sources of the replacement are done)
    stack = [(sink, sink, False)]
    while stack:
        found, node, ready = stack.pop()
        if found in done:
            continue
        if not ready:
            node = _rewrite_fully(node, matcher, ctx, name, check)
            stack.append((found, node, True))
            stack.extend((x, x, False) for x in reversed(node.src) if x not in done)
            continue
        src = tuple([done[x] for x in node.src])
        if src == node.src:
            done[found] = node
        else:
            # the rules may match the node with its new sources
            stack.append((found, node.with_sources(src), False))
    return done[sink]


def _rewrite_fully(
    node: N, matcher: PatternMatcher, ctx: Any, name: str, check: ReplacementCheck | None
) -> N:
    for _ in range(MAX_REPLACEMENTS):
        replacement = matcher.rewrite(node, ctx)
        if replacement is None:
            return node
        if check is not None:
            check(node, replacement, name)
        node = replacement
    raise RewriteLoopError(f"{name}: rules do not terminate, at {node.op.name}")
