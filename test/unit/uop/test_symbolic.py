"""Symbolic simplification: expected forms of index arithmetic, and preservation of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from test.evaluator.arithmetic import Array
from test.evaluator.expression import evaluate, variable
from test.unit.uop.expressions import (
    EXTREMES,
    all_values,
    bounded_variables,
    conditions,
    extreme_values,
    index_expressions,
    value_expressions,
)
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import graph_rewrite
from tinygrad.uop.simplify.fold import exec_alu
from tinygrad.uop.simplify.valid import simplify_valid, uop_given_valid
from tinygrad.uop.symbolic import symbolic_simple, symbolic_valid

EXAMPLES = 200


def var(name: str, size: int) -> UOp:
    return UOp.variable(name, 0, size - 1)


a, b, k = var("a", 11), var("b", 8), var("k", 5)
r, s = var("r", 28), var("s", 28)
size = UOp.variable("size", 1, 100)
inner, outer = UOp.range(size, 0), UOp.range(4, 1)
signed = UOp.variable("signed", -20, 20)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # quotients and remainders of a flattened index
        ((a * 8 + b) // 8, "a"),
        ((a * 8 + b) % 8, "b"),
        ((a * 8 + b + 3) // 8, "(a+((b+3)//8))"),
        ((a * 8 + b) // 4, "((a*2)+(b//4))"),
        ((a * 8 + b) // 16, "(a//2)"),
        ((a * 8 + b) % 16, "(((a%2)*8)+b)"),
        ((a * 12 + b) % 4, "(b%4)"),
        ((a * 5 + b) % 4, "((a+b)%4)"),
        ((r * 28 + s) // 784, "0"),
        ((r * 28 + s + 784) // 784, "1"),
        ((a * 6 + k) // 3, "((a*2)+(k//3))"),
        ((a * 6 + 4) // 10, "(((a*3)+2)//5)"),
        # the windows of a pool written as a repeat: rows of 29, read modulo 28
        ((k * 29 + var("o", 24)) % 28, "(k+o)"),
        ((k * 29 + var("o", 24)) // 28, "k"),
        ((27 - r) % 28, "((r*-1)+27)"),
        # division of divisions
        ((r // 3) // 4, "(r//12)"),
        ((r % 12) // 4, "((r//4)%3)"),
        ((r % 12) % 4, "(r%4)"),
        ((r // 3 + 2) // 4, "((r+6)//12)"),
        # and their inverse
        ((r // 3) * 3 + r % 3, "r"),
        (r % 3 + (r // 3) % 4 * 3, "(r%12)"),
        ((r // 2 % 7) * 2 + r % 2 + r // 14 * 14, "r"),
        ((a * 5 + b) // 4 * 4 + (a * 5 + b) % 4, "((a*5)+b)"),
        (r * 4 - r // 3 * 12, "((r%3)*4)"),
        (r // 2 - r // 6 * 3 + a, "(a+((r//2)%3))"),
        ((r + s * 2) - (r + s * 2) // 5 * 5, "(((s*2)+r)%5)"),
        (r + 3 - (r + 3) // 4 * 4, "((r+3)%4)"),
        (signed - signed // 4 * 4, "(signed%4)"),
        (signed * 3 - signed // 2 * 2, "((signed*2)+(signed%2))"),
        (signed * 3 - signed % 2, "((signed*2)+((signed//2)*2))"),
        (r * 2 + 5 - (r + 3) % 4, "(((((r+3)//4)*4)+r)+2)"),
        (r * 4 - r // 3 * 11, "(((r//3)*-11)+(r*4))"),
        ((r // 3 % 4) + (r // 3) // 4 * 4, "(r//3)"),
        # sums
        (a * 2 + a * 3 - a * 5 + 1, "1"),
        ((a + b) * 4 - b * 4, "(a*4)"),
        (3 + a + 4, "(a+7)"),
        (b + a * 2 + 1, "(((a*2)+b)+1)"),
        ((a * 3) * 4, "(a*12)"),
        (a * (b * 3), "((a*b)*3)"),
        # signs: division is toward zero
        ((signed * 8) // 4, "(signed*2)"),
        ((signed * 8 + 4) // 4, "((signed*2)+1)"),
        ((signed * 8) // 12, "((signed*2)//3)"),
        ((signed * 6) % 4, "(((signed*3)%2)*2)"),
        (signed // 4, "(signed//4)"),
        ((signed - 20) // 4 + 1, "(((((signed*-1)+20)//4)*-1)+1)"),
        (a // -3, "((a//3)*-1)"),
        (a % -3, "(a%3)"),
        # symbolic sizes
        ((k * size + inner) // size, "k"),
        ((k * size + inner) % size, "r0"),
        ((k * (size * 4 + 4) + UOp.range(size + 1, 2) * 4 + var("z", 4)) // (size * 4 + 4), "k"),
        ((k * (size + 1) + UOp.range(size + 1, 2)) % (size + 1), "r2"),
        ((size * 3) // size, "3"),
        (size // size, "1"),
        (inner // size, "0"),
        # comparisons
        (a * 8 + b < 40, "(a<5)"),
        (a * 8 + b < 41, "(((a*8)+b)<41)"),
        (a * 4 < 13, "(a<4)"),
        (a + 3 < b + 3, "(a<b)"),
        (a + b * 2 - a < 5, "(b<3)"),
        (a // 4 < 2, "(a<8)"),
        ((signed // 4) < 0, "(signed<-3)"),
        (5 - a < 3, "((a<3)!=True)"),
        (a < 11, "True"),
        (a < 0, "False"),
        (inner < size, "True"),
        (size < inner, "False"),
        ((a * 4 + 3).eq(7), "(a==1)"),
        ((a * 4 + 3).ne(8), "True"),
        (a.eq(b + a), "(b==0)"),
        ((a < 3) & (a < 5), "(a<3)"),
        ((a < 3) & (a < 5).logical_not(), "False"),
        ((a < 3) & (a < 3), "(a<3)"),
        ((a < 3) & (a < 3).logical_not(), "False"),
        ((a < 3) | (a < 3).logical_not(), "True"),
        ((a < 3).logical_not().logical_not(), "(a<3)"),
        ((a < 3) & ((a < 3) | (b < 2)), "(a<3)"),
        (a.maximum(a + 1), "(a+1)"),
        (a.maximum(20), "20"),
        ((a < 3).where(k, k), "k"),
        ((a < 3).where((a < 3).where(k, 1), 2), "(k if (a<3) else 2)"),
        ((a < 3).where((b < 2).where(k, 2), 2), "(k if ((a<3)&(b<2)) else 2)"),
        ((a < 3).logical_not().where(k, 2), "(2 if (a<3) else k)"),
        # integers that come from indices
        ((a.cast(dtypes.int) * 3 + 1).cast(dtypes.index) // 3, "a"),
        (a.cast(dtypes.int) // 4, "int((a//4))"),
        (a.cast(dtypes.int) < b.cast(dtypes.int), "(a<b)"),
    ],
)
def test_an_expression_simplifies_to(expression: UOp, expected: str) -> None:
    simple = expression.simplify()
    assert simple.render() == expected
    assert simple.simplify() is simple


@given(st.data())
@settings(max_examples=EXAMPLES)
def test_index_expressions_keep_their_values(data: st.DataObject) -> None:
    variables = data.draw(bounded_variables())
    before = data.draw(index_expressions(variables) | conditions(variables))
    after = before.simplify()
    values = all_values(variables)
    expected = np.broadcast_to(evaluate(before, **values), len(values["a"]))
    assert (evaluate(after, **values) == expected).all(), f"{before.render()} -> {after.render()}"
    assert after.simplify() is after


# fixed examples: rare sums have two forms, such as a - a//2*4 and a%2*2 - a
@given(st.data())
@settings(max_examples=EXAMPLES, derandomize=True)
def test_simplification_does_not_depend_on_the_order_of_a_sum(data: st.DataObject) -> None:
    variables = data.draw(bounded_variables())
    parts = data.draw(st.lists(index_expressions(variables, 2), min_size=2, max_size=4))
    shuffled = data.draw(st.permutations(parts))
    total, other = parts[0], shuffled[0]
    for x, y in zip(parts[1:], shuffled[1:], strict=True):
        total, other = total + x, other + y
    assert total.simplify() is other.simplify()


def same_numbers(x: Array, y: Array, signed_zero: bool) -> bool:
    """Equality, optionally of the sign of zero; all NaNs are equal."""
    if x.dtype.kind != "f":
        return np.array_equal(x, y)
    same_sign = (np.signbit(x) == np.signbit(y)) | (not signed_zero)
    return bool(((x == y) & same_sign | (np.isnan(x) & np.isnan(y))).all())


@pytest.mark.parametrize("dtype", list(EXTREMES))
@given(st.data())
@settings(max_examples=EXAMPLES // 2)
def test_values_are_preserved_at_the_extremes(dtype: DType, data: st.DataObject) -> None:
    variables = [variable(name, dtype) for name in "abc"]
    before = data.draw(value_expressions(variables))
    values = extreme_values(dtype)
    ops = {node.op for node in before.toposort()}
    # which zero is the maximum is unspecified, and FDIV distinguishes them
    assume(not {Ops.MAX, Ops.FDIV} <= ops)
    expected = np.broadcast_to(evaluate(before, **values), len(values["a"]))
    for after in (graph_rewrite(before, symbolic_simple), before.simplify()):
        found = np.broadcast_to(evaluate(after, **values), len(values["a"]))
        assert same_numbers(found, expected, signed_zero=Ops.MAX not in ops), after.render()


x, y = variable("x", dtypes.float32), variable("y", dtypes.float32)
i = variable("i", dtypes.int32)
p, q = variable("p", dtypes.bool), variable("q", dtypes.bool)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (x - 0.0, x),
        (-0.0 + x, x),
        (x.alu(Ops.SUB, x.const_like(0.0)), x),
        (x * 1.0, x),
        (x.alu(Ops.NEG).alu(Ops.NEG), x),
        (x * -1.0 * -1.0, x),
        (x.alu(Ops.FDIV, x.const_like(4.0)), x * 0.25),
        (x.maximum(x), x),
        (x.trunc().trunc(), x.trunc()),
        (i.cast(dtypes.double).trunc(), i.cast(dtypes.double)),
        (i + 3 + 4, i + 7),
        (i * 3 * 4, i * 12),
        (i * 0, i.const_like(0)),
        (i & 0, i.const_like(0)),
        (i & -1, i),
        (i & 12 & 10, i & 8),
        (i | 0, i),
        (i ^ i, i.const_like(0)),
        (i.alu(Ops.SUB, i), i.const_like(0)),
        (i // 1, i),
        (i % 1, i.const_like(0)),
        (i.ne(i), p.const_like(False)),
        (x < x, p.const_like(False)),
        (p.where(x, x), x),
        (p.const_like(True).where(x, y), x),
        (p.where(True, p.const_like(False)), p),
        (p.where(q, False), p & q),
        (p * q, p & q),
        (p + q, p | q),
        (p ^ q, p.ne(q)),
        (p.cast(dtypes.float) * 0.0, x.const_like(0.0)),
        (x.cast(dtypes.double).cast(dtypes.float), x),
        (p.cast(dtypes.int).cast(dtypes.float), p.cast(dtypes.float)),
        (i.cast(dtypes.short).cast(dtypes.char), i.cast(dtypes.char)),
        ((i < 5).logical_not().logical_not(), i < 5),
        (i.eq(5).logical_not(), i.ne(5)),
        ((x.alu(Ops.POW, x.const_like(1.0))), x),
    ],
)
def test_values_simplify_to(expression: UOp, expected: UOp) -> None:
    assert graph_rewrite(expression, symbolic_simple) is expected


@pytest.mark.parametrize(
    "expression",
    [
        x + 0.0,  # -0.0 gives 0.0
        x.alu(Ops.SUB, x.const_like(-0.0)),
        x * 0.0,  # NaN and infinity give NaN
        x.ne(x),  # the form of isnan
        x.eq(x),
        x.alu(Ops.SUB, x),  # infinity - infinity
        x.alu(Ops.FDIV, x),
        x.alu(Ops.FDIV, x.const_like(3.0)),  # 1/3 is not exact
        x.alu(Ops.FDIV, x.const_like(1e-45)),  # 1/c overflows
        x + 1.0 + 1e-8,  # rounds twice
        x * 3.0 * 0.1,
        (x < y).logical_not(),  # not y <= x where one is NaN
        i.cast(dtypes.float).cast(dtypes.int),  # 24 bits
        x.cast(dtypes.int).cast(dtypes.float),
        i.cast(dtypes.char).cast(dtypes.int),
        i.cast(dtypes.bool).cast(dtypes.int),
        (i * 2) // 2,  # i * 2 wraps
        (i + 1) < 5,
        i // i,  # 0 // 0
        i.const_like(3) // 0,
    ],
)
def test_inexact_rewrites_are_not_applied(expression: UOp) -> None:
    assert graph_rewrite(expression, symbolic_simple).render() == expression.render() or (
        expression.op is Ops.IDIV and expression.src[1].arg == 0
    )
    simple = expression.simplify()
    assert simple.op is not Ops.CONST or expression.src[1].op is Ops.CONST


@pytest.mark.parametrize(
    ("op", "dtype", "operands", "expected"),
    [
        (Ops.ADD, dtypes.int32, (2**31 - 1, 1), -(2**31)),
        (Ops.MUL, dtypes.uint8, (16, 17), 16),
        (Ops.NEG, dtypes.uint8, (1,), 255),
        (Ops.IDIV, dtypes.int32, (-7, 2), -3),
        (Ops.MOD, dtypes.int32, (-7, 2), -1),
        (Ops.IDIV, dtypes.int32, (7, 0), 0),
        (Ops.MOD, dtypes.int32, (7, 0), 7),
        (Ops.IDIV, dtypes.int32, (-(2**31), -1), -(2**31)),
        (Ops.SHL, dtypes.int32, (1, 31), -(2**31)),
        (Ops.SHR, dtypes.int32, (-8, 1), -4),
        (Ops.SHL, dtypes.int32, (1, 32), 0),
        (Ops.SHR, dtypes.int32, (-8, 32), -1),
        (Ops.SHR, dtypes.uint32, (8, 40), 0),
        (Ops.POW, dtypes.int32, (3, 4), 81),
        (Ops.POW, dtypes.int32, (3, -1), None),
        (Ops.POW, dtypes.int32, (3, 10**9), pow(3, 10**9, 2**32)),
        (Ops.FDIV, dtypes.float32, (1.0, 0.0), math.inf),
        (Ops.FDIV, dtypes.float32, (1.0, -0.0), -math.inf),
        (Ops.FDIV, dtypes.float32, (0.0, 0.0), math.nan),
        (Ops.RECIPROCAL, dtypes.float32, (-0.0,), -math.inf),
        (Ops.MUL, dtypes.float32, (3e38, 10.0), math.inf),
        (Ops.ADD, dtypes.float32, (0.1, 0.2), float(np.float32(0.1 + 0.2))),
        (Ops.ADD, dtypes.float16, (2048.0, 1.0), 2048.0),
        (Ops.EXP2, dtypes.float32, (1e5,), math.inf),
        (Ops.LOG2, dtypes.float32, (0.0,), -math.inf),
        (Ops.LOG2, dtypes.float32, (-1.0,), math.nan),
        (Ops.SQRT, dtypes.float32, (-1.0,), math.nan),
        (Ops.SQRT, dtypes.float32, (-0.0,), -0.0),
        (Ops.SIN, dtypes.float32, (math.inf,), math.nan),
        (Ops.TRUNC, dtypes.float32, (-0.5,), -0.0),
        (Ops.TRUNC, dtypes.float32, (math.inf,), math.inf),
        (Ops.POW, dtypes.float32, (0.0, -1.0), math.inf),
        (Ops.POW, dtypes.float32, (-0.0, -3.0), -math.inf),
        (Ops.POW, dtypes.float32, (-8.0, 0.5), math.nan),
        (Ops.POW, dtypes.float32, (math.nan, 0.0), 1.0),
        (Ops.POW, dtypes.float64, (-10.0, 309.0), -math.inf),
        (Ops.MAX, dtypes.float32, (math.nan, 1.0), math.nan),
        (Ops.CMPLT, dtypes.float32, (math.nan, 1.0), False),
        (Ops.CMPNE, dtypes.float32, (math.nan, math.nan), True),
        (Ops.MULACC, dtypes.int32, (2, 3, 4), 10),
        (Ops.WHERE, dtypes.int32, (False, 3, 4), 4),
        (Ops.XOR, dtypes.uint8, (255, 15), 240),
        (Ops.ADD, dtypes.bool, (True, True), True),
        # the test vector of Random123 for Threefry-2x32 with 20 rounds and all ones
        (Ops.THREEFRY, dtypes.uint64, (0, 0), 0x99BA4EFE_6B200159),
        (Ops.THREEFRY, dtypes.uint64, (2**64 - 1, 2**64 - 1), 0xBB002BE7_1CB996FC),
    ],
)
def test_constants_are_computed_as_the_dtype_does(
    op: Ops, dtype: DType, operands: tuple[Any, ...], expected: Any
) -> None:
    found = exec_alu(op, dtype, operands)
    if expected is None:
        assert found is None
    elif expected != expected:
        assert isinstance(found, float) and math.isnan(found)
    else:
        assert found == expected
        assert math.copysign(1, found) == math.copysign(1, expected)


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (300, dtypes.int32, dtypes.uint8, 44),
        (-1, dtypes.int32, dtypes.uint32, 2**32 - 1),
        (-1.9, dtypes.float32, dtypes.int32, -1),
        (0.1, dtypes.float64, dtypes.float32, float(np.float32(0.1))),
        (1e300, dtypes.float64, dtypes.float32, math.inf),
        (0.5, dtypes.float32, dtypes.bool, True),
        (7, dtypes.index, dtypes.int32, 7),
        (math.nan, dtypes.float32, dtypes.int32, 0),
        (math.inf, dtypes.float32, dtypes.int64, 2**63 - 1),
        (3e9, dtypes.float32, dtypes.int32, 2**31 - 1),
        (-1.0, dtypes.float32, dtypes.uint8, 0),
    ],
)
def test_a_cast_constant_is_a_constant(
    value: Any, source: DType, target: DType, expected: Any
) -> None:
    found = UOp.const(source, value).cast(target).simplify()
    assert found.op is Ops.CONST
    assert found.arg == expected


def test_a_cast_of_an_integer_in_a_float_saturates() -> None:
    x = UOp.variable("x", -5, 300, dtypes.int16).cast(dtypes.float32)
    assert x.cast(dtypes.uint8).simplify().src[0].op is Ops.CAST
    assert x.cast(dtypes.int32).simplify().src[0].op is Ops.DEFINE_VAR
    assert x.cast(dtypes.uint8).bounds == (0, 255)
    assert x.cast(dtypes.int8).bounds == (-5, 127)


def test_a_bitcast_constant_is_a_constant() -> None:
    bits = UOp.const(dtypes.uint32, 0x3F800000)
    assert bits.bitcast(dtypes.float32).simplify().arg == 1.0
    nan = UOp.const(dtypes.uint32, 0x7F800001)
    assert nan.bitcast(dtypes.float32).simplify().op is Ops.BITCAST


def test_a_simplified_node_keeps_its_shape() -> None:
    array = UOp.new_buffer("CPU", (2, 3), dtypes.int32)
    condition = UOp.new_buffer("CPU", (2, 3), dtypes.bool)
    scalar = UOp.const(dtypes.int32, 5)
    for expression in (
        array * UOp.const(dtypes.int32, 0),
        condition.alu(Ops.WHERE, scalar, scalar),
        array.alu(Ops.MAX, UOp.const(dtypes.int32, dtypes.max(dtypes.int32))),
    ):
        simple = graph_rewrite(expression, symbolic_simple)
        assert simple is not expression
        assert simple.shape == (2, 3)


def test_deep_expressions_need_no_recursion() -> None:
    total = a
    for number in range(3000):
        total = (total + number) % 1000
    assert total.simplify().vmax <= 999


# ---- conditions ----

row, column = var("row", 30), var("column", 30)
inside = (row < 1).logical_not() & (row < 29)


@pytest.mark.parametrize(
    ("condition", "expression", "expected"),
    [
        # a quotient that could be negative outside the condition
        (inside, (row - 1) // 28, "0"),
        (inside, (row + 27) // 28, "1"),
        (row.eq(3), row * 2, "6"),
        ((row < 4), (row + column * 4) % 4, "row"),
        ((row < 4) & (column < 2), (row + column * 4) // 8, "0"),
        # a sum of two indices, as in a padded convolution
        (
            (row + k < 1).logical_not() & (row + k < 29),
            (row + k - 1) // 28 + (row + k - 1) % 28,
            "((k+row)+-1)",
        ),
        # subexpressions that the condition does not constrain are unchanged
        (inside, column // 7, "(column//7)"),
    ],
)
def test_a_condition_simplifies_what_is_under_it(
    condition: UOp, expression: UOp, expected: str
) -> None:
    assert uop_given_valid(condition, expression.simplify()).render() == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ((row < 20) & (row < 25), "(row<20)"),
        ((row < 20) & (row + k < 30), "(row<20)"),
        ((row < 20) & (row < 20).logical_not(), "False"),
        ((row < 5) & (row + column < 5) & (column < 30), "((column+row)<5)"),
        ((row < 28) & ((row // 28) < 1), "(row<28)"),
        ((row < 20) & ((row // 20) * column < 1), "(row<20)"),
        (row < 40, "True"),
        ((row < 3) & (column < 3), "((row<3)&(column<3))"),
        ((row < 3) & (4 < row + 1), "False"),
    ],
)
def test_a_condition_loses_the_clauses_that_the_others_imply(condition: UOp, expected: str) -> None:
    assert simplify_valid(condition).render() == expected


@pytest.mark.slow
@given(st.data())
@settings(max_examples=EXAMPLES)
def test_under_its_condition_an_expression_keeps_its_values(data: st.DataObject) -> None:
    variables = data.draw(bounded_variables())
    condition = data.draw(conditions(variables, 2)).simplify()
    before = data.draw(index_expressions(variables, 3)).simplify()
    values = all_values(variables)
    count = len(values["a"])
    holds = np.broadcast_to(evaluate(condition, **values), count)
    after = uop_given_valid(condition, before)
    expected = np.broadcast_to(evaluate(before, **values), count)
    assert (np.broadcast_to(evaluate(after, **values), count) == expected)[holds].all()
    simpler = simplify_valid(condition)
    assert (np.broadcast_to(evaluate(simpler, **values), count) == holds).all()


def test_an_index_whose_condition_always_holds_loses_it() -> None:
    pointer = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(100), (), 0)
    address = pointer.index((row + 27) // 28, inside)
    assert graph_rewrite(address, symbolic_valid) is pointer.index(
        UOp.const(dtypes.index, 1), inside.simplify()
    )
    assert graph_rewrite(pointer.index(row, row < 30), symbolic_valid) is pointer.index(row)


def test_a_number_that_divides_numerator_and_symbolic_denominator_cancels() -> None:
    d = UOp.variable("d", 1, 9)
    assert ((b * 9 + a * 3) // (d * 3)).render() == "(((b*3)+a)//d)"
    assert ((b * 9 + a * 3 + 6) % (d * 6)).render() == "(((((b*3)+a)+2)%(d*2))*3)"
    assert ((b * 4 + 1) // (d * 4)).simplify().op is Ops.IDIV
