"""Symbolic sizes of the arguments and results of captured functions."""

from __future__ import annotations

import pytest

from test.backend.jit.programs import numbers
from tinygrad import Tensor, TinyJit, Variable
from tinygrad.jit import JitError

SIZES = (2, 3, 5, 1, 4)


def test_results_have_the_symbolic_size_of_each_call() -> None:
    size = Variable("size", 1, 6)
    whole = numbers(*range(6))
    step = TinyJit(lambda x: (x + 1).realize())
    for n in SIZES:
        found = step(whole[: size.bind(n)])
        assert found.tolist() == [i + 1 for i in range(n)]
        assert found.shape[0].unbind()[1] == n


def test_realized_arguments_of_a_symbolic_size() -> None:
    size, whole = Variable("size", 1, 6), numbers(*range(6))
    step = TinyJit(lambda x: x + 1)
    for n in SIZES:
        argument = (whole[: size.bind(n)] * 2).realize()
        assert step(argument).tolist() == [2 * i + 1 for i in range(n)]
    layouts = ("CPU", ("CPU", "CPU:1"))
    for layout in layouts:
        table, step = Tensor([[1.0, 2.0, 3.0]] * 2).to(layout), TinyJit(lambda x: x * 2)
        for n in (2, 3, 1, 2):
            found = step(table[:, : size.bind(n)])
            assert found.tolist() == [[2.0, 4.0, 6.0][:n]] * 2


def test_every_kind_of_result_has_the_symbolic_size_of_each_call() -> None:
    size = Variable("size", 1, 6)
    whole = numbers(*range(6))
    step = TinyJit(lambda x, n: {"new": x[:n] * 2, "view": x[:n], "ones": Tensor.ones(n), "n": n})
    for n in SIZES:
        found = step(whole, size.bind(n))
        assert found["new"].tolist() == [2 * i for i in range(n)]
        assert found["view"].tolist() == list(range(n))
        assert found["ones"].tolist() == [1] * n
        assert found["n"].unbind()[1] == n


def test_lazy_values_keep_the_symbolic_result_that_they_were_built_on() -> None:
    size = Variable("size", 1, 6)
    whole = numbers(*range(6))
    step = TinyJit(lambda x, n: x[:n] * n)
    waiting = [step(whole, size.bind(n)) + 1 for n in SIZES]
    assert [x.tolist() for x in waiting] == [[i * n + 1 for i in range(n)] for n in SIZES]


def test_one_variable_with_two_values_is_an_error() -> None:
    size = Variable("size", 1, 4)
    whole = numbers(1, 2, 3, 4)
    step = TinyJit(lambda x, y: x.sum() + y.sum())
    with pytest.raises(JitError, match="size is bound to two values"):
        step(whole[: size.bind(2)], whole[: size.bind(3)])
