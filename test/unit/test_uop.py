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
from tinygrad.uop.ops import AxisType, UOp, resolve, smax, smin, sym_infer
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


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: UOp.variable("n", 3, 2), ValueError, r"n: empty interval \[3, 2\]"),
        (lambda: UOp.variable("n", 0.0, 2), TypeError, "n: bounds must be ints, got 0.0, 2"),  # type: ignore[arg-type]
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
    assert node.render() == expected


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
