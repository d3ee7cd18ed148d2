"""Functions that cannot be captured: an error names the place and the reason."""

from __future__ import annotations

import contextvars
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, Box, numbers
from test.devices import only_cpu, only_one_process
from tinygrad import Tensor, TinyJit
from tinygrad.jit import JitError


def by_item(x: Tensor) -> Tensor:
    return x * x.sum().item()


def by_branch(x: Tensor) -> Tensor:
    return x + 1 if (x > 1).all().item() else x - 1


READS: list[Any] = [
    by_item,
    by_branch,
    lambda x: x + Tensor(x.numpy()),
    lambda x: x + x.tolist()[0],
    lambda x: x + x.data()[0],
    lambda x: x + Tensor(np.asarray(x)),
    lambda x: x + 1 if x.allclose(x) else x,
    pytest.param(
        lambda x: x + float(np.from_dlpack(x)[0]),
        marks=[only_cpu, only_one_process("DLPack shares memory of one process")],
    ),
]


@pytest.mark.parametrize("function", READS)
def test_reading_a_value_inside_a_capture_is_an_error(function: Callable[[Tensor], Any]) -> None:
    step = TinyJit(function)
    step(numbers(1, 2))
    with pytest.raises(JitError, match=r"test_refusals.py:\d+: the value of a tensor.*is read"):
        step(numbers(1, 2))


def test_values_of_iterators_and_generators_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # other threads might draw numbers meanwhile
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    # several processes draw the same ones
    random.seed(3)
    np.random.seed(3)
    numbers_of, counted = random.Random(3), itertools.count()
    array_of = np.random.default_rng(3)
    items, made = iter(range(9)), (i for i in range(9))
    sources: dict[str, Callable[[], float]] = {
        "count": lambda: next(counted),
        "range_iterator": lambda: next(items),
        "generator": lambda: next(made),
        "Random": numbers_of.random,
        "Generator": array_of.random,
        "random generator of Python": lambda: 1 + random.random(),
        "random generator of numpy": lambda: 1 + np.random.rand(),
    }
    for name, source in sources.items():
        step = TinyJit(lambda x, source=source: (x + source()).realize())
        step(numbers(1))
        with pytest.raises(JitError, match=rf"test_refusals.py:\d+: .* values from .*{name}"):
            step(numbers(2))
    # a source that was not used does not count
    step = TinyJit(lambda x: (x + (1 if numbers_of and array_of and counted else 0)).realize())
    assert [step(numbers(i)).item() for i in range(CALLS)] == [i + 1 for i in range(CALLS)]


def test_constants_may_be_read_inside() -> None:
    step = TinyJit(lambda x: x * Tensor.full((2,), 3.0).sum().item())
    for i in range(CALLS):
        assert step(numbers(i)).tolist() == [6 * i]


def test_a_gradient_of_what_no_name_leads_to_is_an_error() -> None:
    table = numbers(1, 2, 3, 4).requires_grad_()
    step = TinyJit(lambda x: (x * 2).sum().backward())
    for i in range(CALLS):
        step(table[1:3])
        assert table.grad.tolist() == [0, 2 * i + 2, 2 * i + 2, 0]
    table.grad = None
    step.reset()
    step(table[1:3])
    table.grad = None
    with pytest.raises(JitError, match="leaves a gradient in .* pass the tensor as an argument"):
        step(table[1:3])


CONTEXT: contextvars.ContextVar[Tensor] = contextvars.ContextVar("CONTEXT")
THREAD = threading.local()


def test_a_tensor_in_an_object_that_hides_it_cannot_be_followed() -> None:
    weights, chosen = iter([numbers(i) for i in range(4)]), {numbers(2)}
    CONTEXT.set(numbers(3))
    THREAD.w = numbers(4)
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "list_iterator": lambda x: x * next(weights),
        "ContextVar": lambda x: x * CONTEXT.get(),
        "_local": lambda x: x * THREAD.w,
        "set": lambda x: x * next(iter(chosen)),
    }
    for name, function in functions.items():
        step = TinyJit(function)
        step(numbers(1))
        message = rf"test_refusals.py:\d+: .* {name}; .*not be noticed"
        with pytest.raises(JitError, match=message):
            step(numbers(1))


def test_items_that_move_in_a_list_cannot_be_repeated() -> None:
    kept = [numbers(0), numbers(1)]

    def shift(x: Tensor) -> Tensor:
        del kept[0]
        kept.append(x * 2)
        return x + 1

    step = TinyJit(shift)
    step(numbers(1))
    with pytest.raises(JitError, match="moves or removes items"):
        step(numbers(1))


def test_new_objects_that_hold_tensors_cannot_be_repeated() -> None:
    kept = Box(state=None)

    def keep(x: Tensor) -> Tensor:
        kept.state = Box(h=x * 2)
        return x + 1

    step = TinyJit(keep)
    step(numbers(1))
    with pytest.raises(JitError, match="new object of type Box"):
        step(numbers(1))
