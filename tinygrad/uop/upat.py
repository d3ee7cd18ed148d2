"""Patterns over graphs, and the walk that applies them.

A `UPat` describes a shape of graph. A `PatternMatcher` is a list of `(UPat, function)`; the
function gets what the pattern named, as keyword arguments (and `ctx`, if it takes one), and returns
the replacement or None. Each pattern is compiled once to a Python function of plain comparisons,
and rules are dispatched by the root's op, so that a node no rule is about costs one dictionary
lookup.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, cast

from tinygrad.dtype import DType
from tinygrad.settings import SPEC
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.math import MathMixin
from tinygrad.uop.node import N, Node
from tinygrad.uop.spec import check_replacement

_ANY = object()
_names = itertools.count()


class UPat(MathMixin):
    """A pattern.

    Args:
        op: an op, a set of them, or None for any. dtype: a dtype or a tuple of them (a vector
        matches as its scalar), or None for any. src: a tuple of patterns, one a source; a list of
        patterns, matched in any order; one pattern that
            every source must match; or None for any sources.
        arg: the exact argument; left out, any. name: what the matched node is called in the rule's
        function. A name used twice must be the same node. allow_any_len: `src` may be followed by
        further sources.
    """

    __slots__ = ("allow_any_len", "arg", "dtypes", "name", "ops", "order_free", "repeat", "src")

    def __init__(
        self,
        op: Ops | Iterable[Ops] | None = None,
        dtype: DType | tuple[DType, ...] | None = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        arg: Any = _ANY,
        name: str | None = None,
        allow_any_len: bool = False,
    ) -> None:
        self.ops = None if op is None else frozenset({op} if isinstance(op, Ops) else op)
        self.dtypes = (dtype,) if isinstance(dtype, DType) else dtype
        self.arg = arg
        self.name = name
        self.allow_any_len = allow_any_len
        self.order_free = isinstance(src, list)
        self.repeat = isinstance(src, UPat)
        self.src: tuple[UPat, ...] | None
        if src is None:
            self.src = None
        else:
            self.src = (src,) if isinstance(src, UPat) else tuple(src)

    @staticmethod
    def var(name: str | None = None, dtype: DType | tuple[DType, ...] | None = None) -> UPat:
        """Any node."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DType | tuple[DType, ...] | None = None) -> UPat:
        """Any constant."""
        return UPat(Ops.CONST, dtype=dtype, name=name)

    @staticmethod
    def const(dtype: DType | tuple[DType, ...] | None, value: Any) -> UPat:
        """The constant `value`."""
        return UPat(Ops.CONST, dtype=dtype, arg=value)

    def named(self, name: str) -> UPat:
        """This pattern under a name."""
        new = UPat.__new__(UPat)
        for slot in UPat.__slots__:
            setattr(new, slot, getattr(self, slot))
        new.name = name
        return new

    def alu(self, op: Ops, *src: UPat) -> UPat:
        """The pattern of `op(self, *src)`; a commutative op matches either order."""
        srcs: tuple[UPat, ...] | list[UPat] = (self, *src)
        return UPat(op, src=list(srcs) if op in GroupOp.Commutative else srcs)

    def const_like(self, value: Any) -> UPat:
        """The constant `value`, of any dtype."""
        return UPat.const(None, value)

    def cast(self, dtype: DType | None = None) -> UPat:
        """The pattern of a cast of this."""
        return UPat(Ops.CAST, dtype=dtype, src=(self,))

    def f(self, op: Ops, **kwargs: Any) -> UPat:
        """The pattern of `op` with this as its only source."""
        return UPat(op, src=(self,), **kwargs)


class _Compiler:
    """Writes the source of a function that tests one pattern and calls its rule."""

    def __init__(self, dispatched: UPat | None = None) -> None:
        # a rule's own pattern: the table of rules has tested its op
        self.dispatched = dispatched
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self.bound: dict[str, str] = {}

    def constant(self, value: Any) -> str:
        name = f"k{len(self.scope)}"
        self.scope[name] = value
        return name

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def test(self, pattern: UPat, node: str, depth: int, rest: Callable[[int], None]) -> None:
        """Emit the tests of `pattern` on the variable `node`, then what `rest` emits inside
        them."""
        conditions = self._own_conditions(pattern, node)
        newly_bound = False
        if pattern.name is not None:
            if pattern.name in self.bound:
                conditions.append(f"{node} is {self.bound[pattern.name]}")
            else:
                self.bound[pattern.name] = node
                newly_bound = True
        if conditions:
            self.emit(depth, f"if {' and '.join(conditions)}:")
            depth += 1
        if not pattern.src or pattern.src is None:
            rest(depth)
        elif pattern.repeat:
            self._test_repeat(pattern, node, depth, rest)
        elif pattern.order_free:
            for order in itertools.permutations(range(len(pattern.src))):
                self._test_sources([pattern.src[i] for i in order], node, depth, rest)
        else:
            self._test_sources(list(pattern.src), node, depth, rest)
        if newly_bound:
            del self.bound[cast(str, pattern.name)]

    def _own_conditions(self, pattern: UPat, node: str) -> list[str]:
        conditions = []
        if pattern.ops is not None and pattern is not self.dispatched:
            if len(pattern.ops) == 1:
                conditions.append(f"{node}.op is {self.constant(next(iter(pattern.ops)))}")
            else:
                conditions.append(f"{node}.op in {self.constant(pattern.ops)}")
        if pattern.dtypes is not None:
            allowed = self.constant(frozenset(pattern.dtypes))
            conditions.append(f"({node}.dtype in {allowed} or {node}.dtype.scalar() in {allowed})")
        if pattern.arg is not _ANY:
            conditions.append(f"{node}.arg == {self.constant(pattern.arg)}")
        if pattern.src is not None and not pattern.repeat:
            relation = ">=" if pattern.allow_any_len else "=="
            conditions.append(f"len({node}.src) {relation} {len(pattern.src)}")
        return conditions

    def _test_sources(
        self, patterns: list[UPat], node: str, depth: int, rest: Callable[[int], None]
    ) -> None:
        names = [f"n{next(_names)}" for _ in patterns]
        for i, name in enumerate(names):
            self.emit(depth, f"{name} = {node}.src[{i}]")
        # the most specific source first: it fails soonest
        todo = sorted(zip(patterns, names, strict=True), key=lambda t: t[0].ops is None)

        def step(index: int, depth: int) -> None:
            if index == len(todo):
                rest(depth)
            else:
                pattern, name = todo[index]
                self.test(pattern, name, depth, lambda d: step(index + 1, d))

        step(0, depth)

    def _test_repeat(
        self, pattern: UPat, node: str, depth: int, rest: Callable[[int], None]
    ) -> None:
        assert pattern.src is not None
        item = _compile_test(pattern.src[0])
        self.emit(depth, f"if all(map({self.constant(item)}, {node}.src)):")
        rest(depth + 1)


def _compile_test(pattern: UPat) -> Callable[[Node], bool]:
    compiler = _Compiler()
    compiler.emit(0, "def test(u):")
    compiler.test(pattern, "u", 1, lambda depth: compiler.emit(depth, "return True"))
    compiler.emit(1, "return False")
    exec("\n".join(compiler.lines), compiler.scope)
    return cast("Callable[[Node], bool]", compiler.scope["test"])


def _takes_ctx(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    if code is None:
        return "ctx" in inspect.signature(function).parameters
    # the same for plain functions, at a fiftieth of the time
    return "ctx" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


# compiled from text; a replacement is of the class of the node
Match = Callable[[Any, Any], Any]


@functools.cache
def _compile_rule(pattern: UPat, function: Callable[..., Any]) -> Match:
    """The rule as a function of a node whose op the pattern allows. Shared by all matchers that
    have it."""
    compiler = _Compiler(pattern)
    rule = compiler.constant(function)
    compiler.emit(0, "def match(u, ctx):")

    def call(depth: int) -> None:
        arguments = [f"{name}={node}" for name, node in compiler.bound.items()]
        if _takes_ctx(function):
            arguments.append("ctx=ctx")
        compiler.emit(depth, f"r = {rule}({', '.join(arguments)})")
        compiler.emit(depth, "if r is not None and r is not u: return r")

    compiler.test(pattern, "u", 1, call)
    compiler.emit(1, "return None")
    exec("\n".join(compiler.lines), compiler.scope)
    return cast(Match, compiler.scope["match"])


Rule = tuple[UPat, Callable[..., Any]]


class _RuleTable(dict[Ops, list[Match]]):
    """The compiled rules that may match a root of each op, in order; compiled when first asked
    for."""

    def __init__(self, rules: list[Rule]) -> None:
        super().__init__()
        self.rules = rules

    def __missing__(self, op: Ops) -> list[Match]:
        matches = [_compile_rule(*r) for r in self.rules if r[0].ops is None or op in r[0].ops]
        self[op] = matches
        return matches


class PatternMatcher:
    """An ordered list of rewrite rules. `a + b` is the rules of `a`, then those of `b`.

    Args:
        rules: the rules; of those that match, the first that gives a replacement counts. pure:
        replacements depend on nothing but the node, for ever. Then a node that came out of these
        rules
            unchanged is remembered, and the next walk does not descend into it.
    """

    def __init__(self, rules: Sequence[Rule], pure: bool = False) -> None:
        self.rules: list[Rule] = list(rules)
        self.by_op = _RuleTable(self.rules)
        self.pure = pure
        # what a node that these rules leave alone is marked with
        self.mark = object()

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules, self.pure and other.pure)

    def rewrite(self, node: N, ctx: Any = None) -> N | None:
        """The replacement by the first rule that gives one, or None."""
        for match in self.by_op[node.op]:
            found: N | None = match(node, ctx)
            if found is not None:
                return found
        return None


REWRITE_LIMIT = 1_000_000


class RewriteLoopError(RuntimeError):
    """Rules that undo each other."""


def graph_rewrite(
    sink: N,
    matcher: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    name: str | None = None,
) -> N:
    """Apply `matcher` to every node until nothing changes, and return the new root.

    Each node is rewritten after its sources (`bottom_up=True`: before them). A replacement is
    rewritten in turn. Every distinct node is visited once. `name` says which pass this is, in
    errors; under `SPEC=2` every replacement is checked against what the pass of that name may
    change (`spec.check_replacement`). Communication that a rule makes has the `user_line` of the
    communication that it replaces, where sources come first.

    Raises:
        RewriteLoopError: the rules undo each other, or made over `REWRITE_LIMIT` replacements.
    """
    check = check_replacement if SPEC >= 2 else None
    if bottom_up:
        return _rewrite_roots_first(sink, matcher, ctx, name or "rewrite", check)
    return _rewrite_sources_first(sink, matcher, ctx, name or "rewrite", check)


ReplacementCheck = Callable[[Node, Node, str], None]


def _rewrite_sources_first(
    sink: N, matcher: PatternMatcher, ctx: Any, name: str, check: ReplacementCheck | None
) -> N:
    done: dict[N, N] = {}
    # a node whose replacement is being rewritten
    waiting: dict[N, N] = {}
    rules = matcher.by_op
    mark = matcher.mark
    stack = [sink]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node._settled is mark:
            done[node] = node
            continue
        if node in waiting:
            result = done.get(waiting[node])
            if result is None:
                raise RewriteLoopError(f"{name}: rules come back to what they replaced:\n{node}")
            done[node] = result
            continue
        ready = True
        for x in reversed(node.src):
            if x not in done:
                if x._settled is mark:
                    done[x] = x
                else:
                    stack.append(x)
                    ready = False
        if not ready:
            continue
        src = tuple([done[x] for x in node.src])
        new = node if src == node.src else type(node)(node.op, node.dtype, src, node.arg)
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
        if len(waiting) > REWRITE_LIMIT:
            raise RewriteLoopError(f"{name}: rules never end, at {node.op.name}")
        stack.append(replacement)
    return done[sink]


def _carry_user_line(old: N, new: N, known: Container[N]) -> None:
    """Mark the communication that a rule made, nodes not `known` before, with the user's line of
    `old`, or of the source of `old` that it replaces too.
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
    # (node as it was found, the node it became, whether the sources of that are done)
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
            # the rules may match what the sources have become
            stack.append((found, node.with_sources(src), False))
    return done[sink]


def _rewrite_fully(
    node: N, matcher: PatternMatcher, ctx: Any, name: str, check: ReplacementCheck | None
) -> N:
    for _ in range(REWRITE_LIMIT):
        replacement = matcher.rewrite(node, ctx)
        if replacement is None:
            return node
        if check is not None:
            check(node, replacement, name)
        node = replacement
    raise RewriteLoopError(f"{name}: rules never end, at {node.op.name}")
