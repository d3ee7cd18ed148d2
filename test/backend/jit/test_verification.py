"""`JIT_VERIFY=1` runs the function beside each replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, numbers
from test.devices import device_names
from tinygrad import GlobalCounters, Tensor, TinyJit
from tinygrad.jit import JitError
from tinygrad.settings import Context


def hidden_in_the_result(count: Callable[[], int]) -> Callable[[Tensor], Any]:
    return lambda x: [x + 1, x * count()]


def hidden_in_a_write(count: Callable[[], int]) -> Callable[[Tensor], Any]:
    total = numbers(0)

    def add(x: Tensor) -> Tensor:
        total.assign(total + x * count())
        return x + 1

    return add


def hidden_in_an_argument(count: Callable[[], int]) -> Callable[[Tensor], Any]:
    return lambda x: x.assign(x * count()) * 0


def hidden_in_what_is_kept(count: Callable[[], int]) -> Callable[[Tensor], Any]:
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x * count())
        return x + 1

    return keep


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (hidden_in_the_result, "leaf 1 of the result is .3.* and .2.* in a replay"),
        (hidden_in_a_write, "tensor 0 of those that the function writes, <Tensor"),
        (hidden_in_an_argument, "tensor 0 of the arguments that the function writes"),
        (hidden_in_what_is_kept, "0 of 'kept'.*|of a list, which the function keeps"),
    ],
)
def test_verification_finds_what_was_not_noticed(
    make: Callable[[Callable[[], int]], Any], message: str
) -> None:
    calls = np.zeros(1 << 18, np.int64)  # too large for its content to be compared

    def count() -> int:
        calls[0] += 1
        return int(calls[0])

    step = TinyJit(make(count))
    with Context(JIT_VERIFY=1):
        for _ in range(2):
            step(numbers(1))
        with pytest.raises(JitError, match=message):
            step(numbers(1))


def test_verification_takes_the_last_result_as_an_argument_that_is_written() -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        found = x * 2
        x += 1
        return found.flip(0) + 5

    with Context(JIT_VERIFY=1):
        x = Tensor([1, 2, 3])
        for _ in range(4):
            wanted = [2 * value + 5 for value in reversed(x.tolist())]
            x = step(x)
            assert x.tolist() == wanted


def test_verification_takes_results_that_are_views_over_shards() -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        x *= 2
        return x[::2]

    with Context(JIT_VERIFY=1):
        for i in range(4):
            x = Tensor([1, 2, 3, 4, i]).shard(device_names(4), axis=0).clone().realize()
            assert step(x).tolist() == [2, 6, 2 * i]
            assert x.tolist() == [2, 4, 6, 8, 2 * i]


def test_verification_leaves_no_trace() -> None:
    def draws(verify: int) -> list[Any]:
        Tensor.manual_seed(7)
        total, step, found = numbers(0), None, []

        def add(x: Tensor) -> Tensor:
            noise = Tensor.rand(1)
            total.assign(total + x * noise)
            return noise + x

        step = TinyJit(add)
        with Context(JIT_VERIFY=verify):
            for i in range(CALLS):
                GlobalCounters.reset()
                found += [step(numbers(i)).tolist(), GlobalCounters.kernel_count]
        return [*found, total.tolist(), Tensor.rand(2).tolist()]

    assert draws(1) == draws(0)


def test_an_argument_that_is_an_equal_value_of_what_the_function_writes() -> None:
    total, many = (Tensor(x).realize() for x in ([5.0, 6.0], [[1.0, 2.0], [3.0, 4.0]]))

    @TinyJit
    def add(x: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal total
        result = x + 3
        total += 1
        return total, result

    with Context(JIT_VERIFY=1):
        for row in (0, 1):
            add(many[row])
        expected = total.numpy() + 3
        np.testing.assert_array_equal(add(total.contiguous())[1].numpy(), expected)
