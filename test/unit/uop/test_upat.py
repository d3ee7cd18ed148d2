"""Patterns and rewriting: matching, and application of rules to a fixed point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinygrad.dtype import dtypes
from tinygrad.settings import Context
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import PatternMatcher, RewriteLoopError, graph_rewrite
from tinygrad.uop.spec import MAY_CHANGE, SpecError, may_change
from tinygrad.uop.upat import UPat

a, b = UOp.variable("a", 0, 10), UOp.variable("b", 0, 10)
f = UOp.variable("f", 0, 1, dtypes.float32)
two = UOp.const(dtypes.index, 2)


def captured(pattern: UPat, node: UOp) -> dict[str, UOp] | None:
    """The named nodes of a match of `pattern` with `node`; None if it does not match."""
    found: list[dict[str, UOp]] = []

    def rule(x: UOp | None = None, y: UOp | None = None, z: UOp | None = None) -> None:
        names = {"x": x, "y": y, "z": z}
        found.append({name: node for name, node in names.items() if node is not None})

    PatternMatcher([(pattern, rule)]).rewrite(node)
    return found[0] if found else None


x, y = UPat.var("x"), UPat.var("y")


def recorder(seen: list[UOp]) -> Callable[[UOp], None]:
    """A rule that replaces nothing, and records the nodes it was tried on."""

    def record(x: UOp) -> None:
        seen.append(x)

    return record


@pytest.mark.parametrize(
    ("pattern", "node", "expected"),
    [
        (UPat(Ops.ADD), a + b, {}),
        (UPat(Ops.ADD), a * b, None),
        (UPat({Ops.ADD, Ops.MUL}, name="x"), a * b, {"x": a * b}),
        (UPat(name="x"), a, {"x": a}),
        (UPat(Ops.ADD, src=(x, y)), a + b, {"x": a, "y": b}),
        (UPat(Ops.ADD, src=(x, x)), a + b, None),
        (UPat(Ops.ADD, src=(x, x)), a + a, {"x": a}),
        (UPat(Ops.ADD, src=(x,)), a + b, None),
        (UPat(Ops.ADD, src=(x,), allow_any_len=True), a + b, {"x": a}),
        (UPat(Ops.ADD, src=(x, UPat.cvar("y"))), a + 2, {"x": a, "y": two}),
        (UPat(Ops.ADD, src=(x, UPat.cvar("y"))), two + a, None),
        (UPat(Ops.ADD, src=[x, UPat.cvar("y")]), two + a, {"x": a, "y": two}),
        (UPat(Ops.ADD, src=[UPat(Ops.MUL, name="x"), y]), a + a * 2, {"x": a * 2, "y": a}),
        (UPat(Ops.ADD, src=UPat(Ops.DEFINE_VAR)), a + b, {}),
        (UPat(Ops.ADD, src=UPat(Ops.DEFINE_VAR)), a + 2, None),
        (UPat(Ops.CONST, arg=2), two, {}),
        (UPat(Ops.CONST, arg=3), two, None),
        (UPat.const(None, 2), two, {}),
        (UPat(dtype=dtypes.float32, name="x"), f, {"x": f}),
        (UPat(dtype=(dtypes.int32, dtypes.index)), f, None),
        (UPat(dtype=dtypes.float32), UOp(Ops.NOOP, dtypes.float32.vec(4)), {}),
        ((x + 2) * y, (a + 2) * b, {"x": a, "y": b}),
        ((x + 2) * y, b * (2 + a), {"x": a, "y": b}),
        (x < y, a < b, {"x": a, "y": b}),
        (UPat.var("z").where(x, y), (a < b).where(a, b), {"z": a < b, "x": a, "y": b}),
        (x.cast(dtypes.int32), a.cast(dtypes.int32), {"x": a}),
        (x.cast(), a.cast(dtypes.int32), {"x": a}),
        (x.f(Ops.SQRT), f.sqrt(), {"x": f}),
        (UPat(Ops.ADD, src=(x, y)).named("z"), a + b, {"x": a, "y": b, "z": a + b}),
    ],
)
def test_a_pattern_matches(pattern: UPat, node: UOp, expected: dict[str, UOp] | None) -> None:
    assert captured(pattern, node) == expected


def test_another_order_of_sources_is_tried_if_the_rule_refuses_one() -> None:
    matcher = PatternMatcher([(UPat(Ops.ADD, src=[x, y]), lambda x, y: y if x is b else None)])
    assert matcher.rewrite(a + b) is a


def test_the_first_rule_that_returns_a_node_wins() -> None:
    nothing: list[UOp] = []
    first = PatternMatcher([(UPat(Ops.ADD, name="x"), recorder(nothing))])
    second = PatternMatcher([(UPat(Ops.ADD), lambda: a), (UPat(Ops.ADD), lambda: b)])
    assert (first + second).rewrite(a + b) is a
    assert nothing == [a + b]


def test_a_rule_that_returns_its_node_has_not_matched() -> None:
    matcher = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda x: x), (UPat(Ops.ADD), lambda: a)])
    assert matcher.rewrite(a + b) is a


def test_a_rule_receives_the_context() -> None:
    matcher = PatternMatcher([(UPat(Ops.DEFINE_VAR, name="x"), lambda ctx, x: ctx.get(x))])
    assert graph_rewrite(a + b, matcher, ctx={a: b}) is b + b


def test_a_replacement_is_rewritten_in_turn() -> None:
    rules: list[tuple[UPat, Callable[..., Any]]] = [
        (UPat(Ops.MUL, src=(x, y)), lambda x, y: x + y),
        (UPat(Ops.ADD, src=(x, x)), lambda x: x.sqrt()),
    ]
    assert graph_rewrite((f * f) * (f * f), PatternMatcher(rules)) is f.sqrt().sqrt()


def test_sources_come_first_and_each_node_is_visited_once() -> None:
    seen: list[UOp] = []
    matcher = PatternMatcher([(UPat(name="x"), recorder(seen))])
    shared = a + b
    graph_rewrite(shared * shared, matcher)
    assert seen == [a, b, shared, shared * shared]


def moved(source: UOp, device: str, line: str | None = None) -> UOp:
    copy = UOp(Ops.COPY, source.dtype, (source,), device)
    copy.user_line = line
    return copy


def test_rewriting_carries_the_line_that_caused_communication() -> None:
    other = UOp.variable("line", 0, 9)
    first, second = moved(a, "CPU:1", "first"), moved(other, "CPU:1", "second")
    rebuilt = graph_rewrite(
        first * b, PatternMatcher([(UPat(Ops.DEFINE_VAR, arg=a.arg), lambda: b)])
    )
    assert rebuilt.src[0].user_line == "first"
    assert first.replace(src=(b,), arg="CPU:3").user_line == "first"
    assert (first + 1).substitute({a: b}).src[0].user_line == "first"
    # a rule that sinks communication takes the line of its source; other nodes keep theirs
    sink = PatternMatcher(
        [
            (
                UPat(Ops.ADD, src=(UPat(Ops.COPY, name="x"), y)),
                lambda x, y: moved(x.src[0] + y, x.arg),
            )
        ]
    )
    sunk = graph_rewrite(first + second, sink)
    assert sunk.op is Ops.COPY
    assert sunk.user_line == "first"
    assert second.user_line == "second"


def test_top_down_a_replaced_node_is_not_traversed() -> None:
    seen: list[UOp] = []
    rules = PatternMatcher(
        [
            (UPat(name="x"), recorder(seen)),
            (UPat(Ops.MUL, src=(x, y)), lambda x, y: x),
        ]
    )
    assert graph_rewrite((a + b) * f.cast(dtypes.index), rules, bottom_up=True) is a + b
    assert f not in seen


def test_top_down_rules_see_rewritten_sources() -> None:
    rules = PatternMatcher(
        [
            (UPat(Ops.ADD, src=(x, x)), lambda x: x * 2),
            (UPat(Ops.DEFINE_VAR, name="x"), lambda x: b if x is a else None),
        ]
    )
    assert graph_rewrite(a + b, rules, bottom_up=True) is b * 2


def test_rules_that_undo_each_other_are_detected_at_once() -> None:
    rules = PatternMatcher(
        [
            (UPat(Ops.MUL, src=(x, y)), lambda x, y: x + y),
            (UPat(Ops.ADD, src=(x, y)), lambda x, y: x * y),
        ]
    )
    with pytest.raises(RewriteLoopError, match=r"^forth and back: rules undo each other"):
        graph_rewrite(a * b, rules, name="forth and back")


def test_a_rule_that_wraps_its_node_is_detected_at_once() -> None:
    rules = PatternMatcher([(UPat(Ops.MUL, name="x"), lambda x: x + 1)])
    with pytest.raises(RewriteLoopError, match="undo each other"):
        graph_rewrite(a * b, rules)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_rules_that_never_end_are_stopped(bottom_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinygrad.uop.rewrite.MAX_REPLACEMENTS", 1000)
    rules = PatternMatcher([(UPat(Ops.CONST, name="x"), lambda x: x.replace(arg=x.arg + 1))])
    with pytest.raises(RewriteLoopError, match="do not terminate"):
        graph_rewrite(two, rules, bottom_up=bottom_up)


def test_deep_graphs_need_no_recursion() -> None:
    node = f
    for _ in range(5000):
        node = node.sqrt()
    rules = PatternMatcher([(UPat(Ops.SQRT, src=(x,)), lambda x: x)])
    assert graph_rewrite(node, rules) is f
    assert graph_rewrite(node, rules, bottom_up=True) is f


def test_pure_rules_skip_nodes_at_their_fixed_point() -> None:
    calls: list[UOp] = []
    rule = (UPat(Ops.SIN, name="x"), recorder(calls))
    pure, other = PatternMatcher([rule], pure=True), PatternMatcher([rule])
    node = (f + 0.125).sin()
    for _ in range(3):
        graph_rewrite(node, pure)
        graph_rewrite(node.sqrt(), pure)
    assert len(calls) == 1
    graph_rewrite(node, other)
    graph_rewrite(node, pure + other)
    assert len(calls) == 4


def test_a_sum_of_matchers_is_pure_if_both_are() -> None:
    pure, other = PatternMatcher([], pure=True), PatternMatcher([])
    assert (pure + pure).pure
    assert not (pure + other).pure


def test_every_op_without_rules_is_left_alone() -> None:
    matcher = PatternMatcher([(UPat(GroupOp.Binary), lambda: None)])
    assert all(not matcher.by_op[op] for op in Ops if op not in GroupOp.Binary)


# ---- SPEC=2 ----


def replacing(old: UOp, new: UOp) -> PatternMatcher:
    return PatternMatcher([(UPat(old.op, name="x"), lambda x: new if x is old else None)])


small = UOp.new_buffer("CPU", (2,), dtypes.float32)
large = UOp.new_buffer("CPU", (3,), dtypes.float32)
elsewhere = UOp.new_buffer("CPU:1", (2,), dtypes.float32)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (large, r"the pass 'swap' changed the shape \(2,\) to \(3,\) of BUFFER"),
        (elsewhere, "changed the device CPU to CPU:1 of BUFFER"),
        (small.cast(dtypes.int32), "changed the dtype dtypes.float to dtypes.int of BUFFER"),
    ],
)
@pytest.mark.parametrize("bottom_up", [False, True])
def test_spec_2_refuses_a_replacement_that(new: UOp, message: str, bottom_up: bool) -> None:
    # the replaced node is part of the last case's replacement, so it is replaced once
    rules = PatternMatcher([(UPat(Ops.SQRT, src=(x,)), lambda x: new)])
    with Context(SPEC=2), pytest.raises(SpecError, match=message.replace("BUFFER", "SQRT")):
        graph_rewrite(small.sqrt(), rules, bottom_up=bottom_up, name="swap")
    with Context(SPEC=1):
        assert graph_rewrite(small.sqrt(), rules, name="swap") is new


def test_spec_2_lets_a_constant_lose_its_device() -> None:
    with Context(SPEC=2):
        zero = small.const_like(0.0)
        assert graph_rewrite(small, replacing(small, zero)) is zero


def test_a_pass_may_change_the_properties_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinygrad.uop.spec.MAY_CHANGE", dict(MAY_CHANGE))
    may_change("lower", "dtype")
    with Context(SPEC=2):
        lowered = graph_rewrite(a, replacing(a, two.cast(dtypes.int32)), name="lower")
    assert lowered.dtype is dtypes.int32
    with pytest.raises(ValueError, match="no properties"):
        may_change("lower", "size")


def test_any_of_several_patterns_matches() -> None:
    pattern = UPat.any(UPat.var("x") * 2, UPat.cvar("x") + UPat(Ops.DEFINE_VAR))
    rules = PatternMatcher([(UPat(Ops.SQRT, src=(pattern,)), lambda x: x)])
    assert rules.rewrite((a * b * 2).sqrt()) is a * b
    assert rules.rewrite((a + 5).sqrt()) is a.const_like(5)
    assert rules.rewrite((a * 3).sqrt()) is None
    named = PatternMatcher([(UPat.any(UPat(Ops.ADD), UPat(Ops.MUL), name="u"), lambda u: u.src[0])])
    assert [named.rewrite(x) for x in (a + b, b * a, a.sqrt())] == [a, b, None]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (UPat(Ops.ADD), True),
        (UPat(Ops.MUL), False),
        (UPat(), True),
        (UPat(Ops.ADD, src=(UPat(), UPat(Ops.CONST))), True),
        (UPat(Ops.ADD, src=[UPat(), UPat(Ops.LOAD)]), False),
        # every source of a node without sources is a LOAD
        (UPat(Ops.CONST, src=UPat(Ops.LOAD)), True),
        (UPat.any(UPat(Ops.MUL), UPat(Ops.CONST)), True),
        (UPat.any(UPat(Ops.MUL), UPat(Ops.LOAD)), False),
    ],
)
def test_rules_can_match_graphs_that_have_the_ops_of_their_patterns(
    pattern: UPat, expected: bool
) -> None:
    matcher = PatternMatcher([(pattern, lambda: None)])
    assert matcher.can_match({Ops.ADD, Ops.CONST}) is expected
