"""Patterns over graphs, `UPat`, and their compilation to Python functions.

Input: a pattern and the function of its rule. Output: `match(node, ctx)`, which tests the pattern
by plain comparisons, calls the function with the named nodes as keyword arguments (and with `ctx`,
if it has that parameter), and returns the replacement or None.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any, cast

from tinygrad.dtype import DType
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.math import MathMixin
from tinygrad.uop.node import Node

_ANY = object()
_names = itertools.count()


class UPat(MathMixin):
    """A pattern: the conditions that a node and its sources must meet.

    Args:
        op: an op, a set of ops, or None for any.
        dtype: a dtype or a tuple of dtypes, which also match their vectors, or None for any.
        src: a tuple of patterns, one for each source; a list of patterns, matched in any order; one
            pattern that every source must match; or None for any sources.
        arg: the exact argument, by default any.
        name: the keyword argument of the matched node. A name used twice must match one node.
        allow_any_len: whether further sources may follow `src`.
    """

    __slots__ = (
        "allow_any_len",
        "arg",
        "dtypes",
        "either",
        "name",
        "ops",
        "order_free",
        "repeat",
        "src",
    )

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
        self.either: tuple[UPat, ...] = ()
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
    def any(*patterns: UPat, name: str | None = None) -> UPat:
        """Whichever of `patterns` matches first."""
        new = UPat(name=name)
        ops = [pattern.ops for pattern in patterns]
        new.ops = None if None in ops else frozenset().union(*(x for x in ops if x is not None))
        new.either = patterns
        return new

    @staticmethod
    def cvar(name: str | None = None, dtype: DType | tuple[DType, ...] | None = None) -> UPat:
        """Any constant."""
        return UPat(Ops.CONST, dtype=dtype, name=name)

    @staticmethod
    def const(dtype: DType | tuple[DType, ...] | None, value: Any) -> UPat:
        """The constant `value`."""
        return UPat(Ops.CONST, dtype=dtype, arg=value)

    def named(self, name: str) -> UPat:
        """This pattern with a name."""
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
    """Generates the source of a function that tests one pattern and calls its rule."""

    def __init__(self, dispatched: UPat | None = None) -> None:
        # the root pattern of a rule, whose op the dispatch table has tested already
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
        """Emit the tests of `pattern` on the variable `node`, and the code of `rest` inside."""
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
        if pattern.either:
            for one in pattern.either:
                self.test(one, node, depth, rest)
        elif not pattern.src or pattern.src is None:
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
        # test the most specific source first: it is the most likely to fail
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
    # for plain functions this is 50 times faster than a signature
    return "ctx" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


# a compiled rule; the replacement has the class of the node
Match = Callable[[Any, Any], Any]


@functools.cache
def compile_rule(pattern: UPat, function: Callable[..., Any]) -> Match:
    """The compiled rule, for nodes whose op the pattern allows. Matchers share compiled rules."""
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
