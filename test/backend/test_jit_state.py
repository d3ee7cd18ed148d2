"""What a captured function depends on and changes: sizes, values it reads, and state it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, Variable
from tinygrad.jit import JitError

CALLS = 5


def numbers(*values: float) -> Tensor:
    return Tensor([float(x) for x in values]).realize()


# ---- sizes ----

SIZES = (2, 3, 5, 1, 4)


def test_results_have_the_symbolic_size_of_each_call() -> None:
    size = Variable("size", 1, 6)
    whole = numbers(*range(6))
    step = TinyJit(lambda x: (x + 1).realize())
    for n in SIZES:
        found = step(whole[: size.bind(n)])
        assert found.tolist() == [i + 1 for i in range(n)]
        assert found.shape[0].unbind()[1] == n


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


# ---- values that are read inside ----


def by_item(x: Tensor) -> Tensor:
    return x * x.sum().item()


def by_branch(x: Tensor) -> Tensor:
    return x + 1 if (x > 1).all().item() else x - 1


READS: list[Callable[[Tensor], Any]] = [
    by_item,
    by_branch,
    lambda x: x + Tensor(x.numpy()),
    lambda x: x + x.tolist()[0],
    lambda x: x + x.data()[0],
    lambda x: x + Tensor(np.asarray(x)),
    lambda x: x + 1 if x.allclose(x) else x,
    lambda x: x + float(np.from_dlpack(x)[0]),
]


@pytest.mark.parametrize("function", READS)
def test_reading_a_value_inside_a_capture_is_an_error(function: Callable[[Tensor], Any]) -> None:
    step = TinyJit(function)
    step(numbers(1, 2))
    with pytest.raises(JitError, match=r"test_jit_state.py:\d+: the value of a tensor.*is read"):
        step(numbers(1, 2))


def test_constants_may_be_read_inside() -> None:
    step = TinyJit(lambda x: x * Tensor.full((2,), 3.0).sum().item())
    for i in range(CALLS):
        assert step(numbers(i)).tolist() == [6 * i]
