"""UOp: interning, constants, traversal, symbolic integers, and printing of graphs."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.math import MathMixin
from tinygrad.uop.node import Node
from tinygrad.uop.ops import (
    AxisType,
    PatternMatcher,
    UOp,
    UPat,
    graph_rewrite,
    resolve,
    smax,
    smin,
    sym_infer,
)
from tinygrad.uop.render import tree

a, b = UOp.variable("a", 0, 10), UOp.variable("b", 1, 5)


# ---- identity ----


def test_equal_nodes_are_one_object() -> None:
    assert a + b is a + b
    assert UOp.const(dtypes.int32, 3) is UOp.const(dtypes.int32, 3)
    assert (a + b).replace(op=Ops.MUL) is a * b
    assert pickle.loads(pickle.dumps(a * b + 1)) is a * b + 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (UOp.const(dtypes.float32, 0.0), UOp.const(dtypes.float32, -0.0)),
        (UOp.const(dtypes.int32, 1), UOp.const(dtypes.float32, 1.0)),
        (UOp(Ops.CONST, dtypes.float32, (), 1), UOp(Ops.CONST, dtypes.float32, (), 1.0)),
        (UOp.const(dtypes.int32, 1), UOp.const(dtypes.bool, True)),
        (a + b, b + a),
    ],
)
def test_different_nodes_are_different_objects(one: UOp, other: UOp) -> None:
    assert one is not other


def test_nan_is_one_constant() -> None:
    made = [UOp.const(dtypes.float32, float("nan")) for _ in range(2)]
    assert made[0] is made[1]
    assert math.isnan(made[0].arg)


def test_nodes_die_with_their_last_user() -> None:
    node = UOp.const(dtypes.int32, 123456789) + UOp.const(dtypes.int32, 987654321)
    nodes = [weakref.ref(x) for x in (node, *node.src)]
    assert UOp.const(dtypes.int32, 123456789) is node.src[0]
    del node
    assert [reference() for reference in nodes] == [None] * 3


def test_the_key_is_the_same_in_every_process() -> None:
    code = (
        "from tinygrad.uop.ops import UOp; "
        "a = UOp.variable('a', 0, 10); print(((a * 3 + 1) % 7 < 4).key.hex())"
    )
    run = [sys.executable, "-c", code]
    other = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    assert ((a * 3 + 1) % 7 < 4).key.hex() == other


# ---- traversal ----


def test_sources_come_before_their_users_and_each_node_once() -> None:
    shared = a + b
    order = list((shared * shared - a).toposort())
    assert len(order) == len(set(order))
    assert all(order.index(x) < order.index(node) for node in order for x in node.src)


def test_a_gate_stops_the_traversal() -> None:
    node = (a + b) * 2
    assert a not in node.toposort(gate=lambda u: u.op is not Ops.ADD)
    assert a + b in node.toposort(gate=lambda u: u.op is not Ops.ADD)


def test_replacements_are_not_traversed() -> None:
    assert (a + b).substitute({a: a * b, b: a}) is a * b + a
    assert (a + b).substitute({}) is a + b


# ---- symbolic integers ----


def test_a_variable_takes_values_between_its_bounds() -> None:
    bound = a.bind(4)
    assert bound.unbind() == (a, 4)
    assert bound.val == 4
    assert (a.expr, bound.expr) == ("a", "a")
    assert (bound * 2 + b.bind(1)).unbind_all() == (a * 2 + b, {a: 4, b: 1})


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: UOp.variable("n", 3, 2), ValueError, r"n: empty interval \[3, 2\]"),
        (lambda: UOp.variable("n", 0, 2.5, dtypes.index), TypeError, "not bounds of dtypes.index"),
        (lambda: UOp.variable("n", "0", 2), TypeError, "n: bounds must be numbers"),  # type: ignore[arg-type]
        (lambda: a.bind(11), ValueError, r"a=11 is outside \[0, 10\]"),
        (lambda: (a + b).bind(1), TypeError, "bind needs a Variable, not ADD"),
        (lambda: bool(a < b), ValueError, r"not known: \(a<b\)"),
        (lambda: int(a + b), ValueError, r"not known: \(a\+b\)"),
        (lambda: (a < b).where(1, 2), TypeError, "one of the two must be an expression"),
        (lambda: UOp(Ops.NOOP).shape, ValueError, "NOOP has no shape"),
        (lambda: UOp.new_buffer("CPU", (2,), dtypes.int32).buffer, ValueError, "not realized"),
    ],
)
def test_errors_name_the_mistake(
    build: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build()


def test_a_value_determined_by_its_bounds_is_a_python_number() -> None:
    assert bool(a < 11)
    assert not bool(a < 0)
    assert int(a * 0 + 3) == 3
    assert float(UOp.const(dtypes.float32, 2.5)) == 2.5
    assert [10, 20, 30][UOp.const(dtypes.index, 2)] == 30
    assert resolve(a < 11) is True
    assert resolve(a < 5) is True
    assert resolve(a < 5, default=False) is False


def test_sizes_are_inferred_from_values() -> None:
    assert sym_infer(a * 2 + b, {"a": 3, "b": 4}) == 10
    assert sym_infer(7, {}) == 7
    assert smax(3, 5) == 5
    assert smin(3, 5) == 3
    assert smax(a, 20) == 20
    assert smin(a, -1) == -1
    assert [v.expr for v in (b + a).variables()] == ["a", "b"]


def test_operators_build_their_ops() -> None:
    expected = {
        a + b: Ops.ADD,
        a * b: Ops.MUL,
        a // b: Ops.IDIV,
        a % b: Ops.MOD,
        a & b: Ops.AND,
        a | b: Ops.OR,
        a ^ b: Ops.XOR,
        a << b: Ops.SHL,
        a >> b: Ops.SHR,
        a < b: Ops.CMPLT,
        a.ne(b): Ops.CMPNE,
        a.eq(b): Ops.CMPEQ,
        a.maximum(b): Ops.MAX,
    }
    assert all(node.op is op and node.src == (a, b) for node, op in expected.items())
    assert (a > b) is (b < a)
    assert (a >= b) is (a < b).logical_not()
    assert (2 - a) is UOp.const(dtypes.index, 2) + a * -1


# ---- text ----


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a * 4 + b, "((a*4)+b)"),
        (a // 2 % 3, "((a//2)%3)"),
        ((a < b).where(a, 1), "(a if (a<b) else 1)"),
        (a.bind(3), "a[3]"),
        (UOp.range(4, 7), "r7"),
        (a.cast(dtypes.int32), "int(a)"),
        (a.maximum(b), "max(a, b)"),
        (a.alu(Ops.NEG), "(-a)"),
        (a.cast(dtypes.float32).sqrt(), "sqrt(float(a))"),
    ],
)
def test_an_expression_reads_like_python(node: UOp, expected: str) -> None:
    assert node.render(simplify=False) == expected


def test_a_shared_node_is_printed_once() -> None:
    shared = a + b
    text = tree(shared * shared)
    assert text.splitlines() == [
        "MUL index",
        "  #0 ADD index",
        "    DEFINE_VAR index ('a', 0, 10)",
        "    DEFINE_VAR index ('b', 1, 5)",
        "  #0 ADD",
    ]


def test_an_expression_of_sizes_is_one_line() -> None:
    assert repr((3, a * 2 + b)) == "(3, ((a*2)+b))"
    assert f"{a.bind(4)}" == "a[4]"


def test_keys_distinguish_variables_with_equal_names() -> None:
    keys = {UOp.arange(UOp.variable("n", 1, limit)).key for limit in (4, 4, 8)}
    assert len(keys) == 2


def test_a_large_graph_is_abbreviated() -> None:
    node = a
    for number in range(10_000):
        node = node * node + number
    lines = tree(node).splitlines()
    assert len(lines) < 500
    assert lines[-1].startswith("... ")
    assert "not shown" in lines[-1]


def test_a_long_expression_is_abbreviated() -> None:
    node = a
    for _ in range(200):
        node = node * node + 1
    assert len(node.render()) < 3000
    assert "..." in node.render()


def test_every_op_is_in_at_most_one_group() -> None:
    kinds = [GroupOp.Unary, GroupOp.Binary, GroupOp.Ternary, GroupOp.Movement]
    assert sum(map(len, kinds)) == len(frozenset().union(*kinds))
    assert GroupOp.Commutative <= GroupOp.Binary
    assert GroupOp.Associative <= GroupOp.Commutative
    assert sorted(Ops) == list(Ops)
    assert sorted(AxisType) == list(AxisType)


# ---- composition ----


def declared_by(kind: type) -> set[str]:
    """The names that a class declares for its subclasses to define."""
    functions = {name: x.fget if isinstance(x, property) else x for name, x in vars(kind).items()}
    return {
        name
        for name, x in functions.items()
        if "NotImplementedError" in getattr(getattr(x, "__code__", None), "co_names", ())
    }


def test_uop_defines_every_method_that_node_declares() -> None:
    names = declared_by(Node) | declared_by(MathMixin)
    assert {"device", "alu", "const_like", "simplify", "reshape"} <= names
    missing = {
        name
        for name in names
        if getattr(UOp, name) in (vars(Node).get(name), vars(MathMixin).get(name))
    }
    assert not missing


# ---- comparison, division and tags ----


def test_inequality_is_an_expression_and_equality_identity() -> None:
    for unequal in (a != 3, 3 != a, a != b):
        assert isinstance(unequal, UOp) and unequal.op is Ops.CMPNE
    assert (a == a, a == 3, a == b, a != None, a != "a") == (True, False, False, True, True)  # noqa: E711
    assert [bool(x) for x in (a.ne(a), a != 11, a * 0 != 0)] == [False, True, False]
    with pytest.raises(ValueError, match="truth of a symbolic expression"):
        bool(a != 3)


def test_divisors_of_expressions() -> None:
    product, total = a * b * 6, a * 6 + 9
    assert (product.const_factor(), total.const_factor(), (a + 1).const_factor()) == (6, 3, 1)
    assert total.divides(3) is (a * 2 + 3).simplify() and total.divides(2) is None
    assert product.divide_exact(b * 3) is (a * 2).simplify()
    assert (product + b * 3).divide_exact(b * 3) is (a * 2 + 1).simplify()
    assert product.divide_exact(product) is a.const_like(1) and total.divide_exact(a) is None
    assert product.divide_exact(UOp.const(dtypes.index, 4)) is None
    assert product.gcd(b * 9) is (b * 3).simplify()
    assert total.gcd(6).arg == 3 and UOp.gcd(a, b).arg == 1


def test_variables_with_and_without_values() -> None:
    assert (a.bind(3) * b + a).vars() == {a.bind(3), b}
    assert ((a * 2 + b * 0).render(), (a * 0).render(simplify=False)) == ("(a*2)", "(a*0)")


def test_powers_and_quotients_of_variables() -> None:
    assert (a**2).render(simplify=False) == "(a*a)" and (2**a).op is Ops.POW
    for quotient in (1 / b, a / b, a / 2):
        assert quotient.dtype is dtypes.default_float
        assert any(x.op is Ops.RECIPROCAL for x in quotient.toposort())


def test_division_by_zero_is_simplified_without_an_error() -> None:
    zero = b - b
    for node in (a // 0, a % 0, (a // zero) % 3 + 1, (a * 4 + 2) // (zero * 2), b // (a * 0) < 3):
        node.simplify()
        assert node.vmin <= node.vmax


def test_float_variables_are_expressions() -> None:
    f = UOp.variable("f", 0.0, 1.5)
    assert (f.dtype, f.vmin, f.vmax, f.bind(0.5).val) == (dtypes.float32, 0.0, 1.5, 0.5)
    assert UOp.variable("g", 0, 2, dtypes.float64).arg == ("g", 0.0, 2.0)
    assert (f * 2 * 1).render() == "(f*2.0)"


def test_a_tag_is_part_of_a_node_that_rewriting_keeps() -> None:
    marked = (a + b).rtag("mine")
    assert marked is not a + b and marked is (a + b).replace(tag="mine")
    assert (marked.tag, (a + b).tag, marked.rtag(None) is a + b) == ("mine", None, True)
    assert pickle.loads(pickle.dumps(marked)) is marked
    root = marked.cast(dtypes.int32)
    other = UOp.variable("c", 0, 3)
    rules = PatternMatcher([(UPat(Ops.DEFINE_VAR, name="x"), lambda x: other if x is a else None)])
    for found in (root.substitute({a: other}), graph_rewrite(root, rules)):
        assert found.src[0] is (other + b).rtag("mine")
