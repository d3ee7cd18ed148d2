"""Python values that a captured function changes: every call changes them, and a warning says why
it is captured each time.
"""

from __future__ import annotations

import array
import collections
import contextvars
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, Box, Wrap, numbers
from tinygrad import Tensor, TinyJit
from tinygrad.jit import RecaptureWarning

COUNT: int = 0
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)


class Slots:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Counter:
    total = 0

    def __init__(self) -> None:
        self.n = 0

    @property
    def next(self) -> int:
        self.n += 1
        return self.n


class Inherited(Counter):
    pass


def of_list() -> tuple[Any, Callable[[Tensor], Any]]:
    log: list[float] = []
    return log, lambda x: log.append(1.0)


def of_dict() -> tuple[Any, Callable[[Tensor], Any]]:
    seen: dict[int, Any] = {}
    return seen, lambda x: seen.__setitem__(len(seen), x * 2)


def of_counts() -> tuple[Any, Callable[[Tensor], Any]]:
    counts: collections.Counter[str] = collections.Counter()
    return counts, lambda x: counts.update(["a"])


def of_nested() -> tuple[Any, Callable[[Tensor], Any]]:
    held = Box(stats={"n": [0]})
    return held.stats, lambda x: held.stats["n"].__setitem__(0, held.stats["n"][0] + 1)


def of_set() -> tuple[Any, Callable[[Tensor], Any]]:
    seen: set[int] = set()
    return seen, lambda x: seen.add(len(seen))


def of_deque() -> tuple[Any, Callable[[Tensor], Any]]:
    recent: collections.deque[int] = collections.deque([0], maxlen=3)
    return recent, lambda x: recent.append(recent[-1] + 1)


def of_bytes() -> tuple[Any, Callable[[Tensor], Any]]:
    data = bytearray(4)
    return data, lambda x: data.__setitem__(0, data[0] + 1)


def of_numbers() -> tuple[Any, Callable[[Tensor], Any]]:
    data = array.array("d", [0.0])
    return data, lambda x: data.__setitem__(0, data[0] + 1)


def of_host_array() -> tuple[Any, Callable[[Tensor], Any]]:
    data = np.zeros(3)
    return data, lambda x: data.__iadd__(1)


def of_attribute() -> tuple[Any, Callable[[Tensor], Any]]:
    held = Inherited()
    return held, lambda x: held.next


def of_computed_attribute() -> tuple[Any, Callable[[Tensor], Any]]:
    held = Box()
    return held, lambda x: setattr(held, f"n{len(vars(held))}", 1)


def of_class() -> tuple[Any, Callable[[Tensor], Any]]:
    class Model:
        n = 0

    def count(x: Tensor) -> None:
        Model.n += 1

    return types.SimpleNamespace(get=lambda: Model.n), count


def of_slots() -> tuple[Any, Callable[[Tensor], Any]]:
    held = Slots()
    return held, lambda x: setattr(held, "n", held.n + 1)


def of_namespace() -> tuple[Any, Callable[[Tensor], Any]]:
    held = types.SimpleNamespace(n=0)
    return held, lambda x: setattr(held, "n", held.n + 1)


def of_function() -> tuple[Any, Callable[[Tensor], Any]]:
    def count(x: Tensor) -> None:
        count.n += 1  # type: ignore[attr-defined]

    count.n = 0  # type: ignore[attr-defined]
    return types.SimpleNamespace(get=lambda: count.n), count  # type: ignore[attr-defined]


def of_context() -> tuple[Any, Callable[[Tensor], Any]]:
    VARIABLE.set(0)
    return types.SimpleNamespace(get=VARIABLE.get), lambda x: VARIABLE.set(VARIABLE.get() + 1)


def of_global() -> tuple[Any, Callable[[Tensor], Any]]:
    global COUNT  # noqa: PLW0603
    COUNT = 0

    def count(x: Tensor) -> None:
        global COUNT  # noqa: PLW0603
        COUNT += 1

    return types.SimpleNamespace(get=lambda: COUNT), count


def of_pop() -> tuple[Any, Callable[[Tensor], Any]]:
    waiting = list(range(9))
    return waiting, lambda x: waiting.pop()


def of_swap() -> tuple[Any, Callable[[Tensor], Any]]:
    held = Box(a=numbers(1), b=numbers(2))

    def swap(x: Tensor) -> None:
        held.a, held.b = held.b, held.a

    return held, swap


EFFECTS = [
    of_list,
    of_dict,
    of_counts,
    of_nested,
    of_set,
    of_deque,
    of_bytes,
    of_numbers,
    of_host_array,
    of_attribute,
    of_computed_attribute,
    of_class,
    of_slots,
    of_namespace,
    of_function,
    of_context,
    of_global,
    of_pop,
    of_swap,
]


def shown(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.tolist()
    if isinstance(x, dict):
        return {k: shown(v) for k, v in x.items()}
    if isinstance(x, types.SimpleNamespace) and hasattr(x, "get"):
        return x.get()
    if isinstance(x, Slots):
        return x.n
    return shown(vars(x)) if hasattr(x, "__dict__") else repr(x)


@pytest.mark.filterwarnings("ignore::tinygrad.jit.RecaptureWarning")
@pytest.mark.parametrize("make", EFFECTS)
def test_each_call_changes_what_the_function_changes(make: Any) -> None:
    def states(wrap: Wrap) -> list[Any]:
        held, change = make()

        def step(x: Tensor) -> Tensor:
            change(x)
            return x * 2

        call = wrap(step)
        return [(call(numbers(i)).item(), shown(held)) for i in range(CALLS)]

    expected = states(lambda function: function)
    assert expected[-1] != expected[-2]
    assert states(TinyJit) == expected


def test_a_value_that_the_caller_resets_is_changed_at_each_call() -> None:
    held, log = Box(is_done=False), []

    def step(x: Tensor) -> Tensor:
        held.is_done = True
        log.append(2)
        return x + 1

    jitted = TinyJit(step)
    with pytest.warns(RecaptureWarning, match="log is another|held.is_done is another"):
        for i in range(CALLS):
            held.is_done = False
            log.clear()
            assert jitted(numbers(i)).item() == i + 1
            assert held.is_done
            assert log == [2]


def test_setting_equal_values_does_not_prevent_replays() -> None:
    held = Box(mode="", rates=[], sizes=(), flags={})

    def step(x: Tensor) -> Tensor:
        held.mode = "".join(["tr", "ain"])
        held.rates, held.sizes, held.flags = [0.5, 2.0], (x.shape[0], 3), {"a": [1]}
        return x * held.rates[0]

    jitted = TinyJit(step)
    for i in range(CALLS):
        assert jitted(numbers(i)).item() == i / 2
    captured = jitted.captured
    jitted(numbers(1))
    assert jitted.captured is captured is not None
    # a list that took the place of an equal one is followed like that
    held.flags = {"a": [2]}
    jitted(numbers(1))
    assert held.flags == {"a": [1]}


def test_a_list_that_took_the_place_of_an_equal_one_is_followed() -> None:
    held = {"rates": [1, [2]]}
    step = TinyJit(lambda x: x * held["rates"][0] * held["rates"][1][0])
    for _ in range(3):
        step(numbers(1))
    captured = step.captured
    held["rates"] = [1, [2]]
    assert step(numbers(1)).item() == 2
    assert step.captured is captured
    held["rates"][1][0] = 5
    assert step(numbers(1)).item() == 5


def test_a_value_that_is_set_once_is_captured_once_more() -> None:
    held = Box(scale=None)

    def step(x: Tensor) -> Tensor:
        if held.scale is None or held.scale == 1:
            held.scale = 1 if held.scale is None else 2
        return x * held.scale

    jitted = TinyJit(step)
    assert [jitted(numbers(1)).item() for _ in range(CALLS)] == [1, 2, 2, 2, 2]
    captured = jitted.captured
    jitted(numbers(1))
    assert jitted.captured is captured is not None


# ---- warnings ----


class Model:
    def __init__(self) -> None:
        self.n = 0
        self.rates = {"lr": [0.5]}

    @TinyJit
    def count(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n

    @TinyJit
    def scale(self, x: Tensor) -> Tensor:
        return x * self.rates["lr"][0]


def test_the_second_capture_in_a_row_for_one_value_warns_of_it() -> None:
    model = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            model.count(numbers(1))
    message = r"test_python_effects.py:\d+: self\.n is another Python value at each call"
    with pytest.warns(RecaptureWarning, match=message) as found:
        for _ in range(4):
            model.count(numbers(1))
    assert len(found) == 1
    assert model.n == 7


def test_a_value_that_the_caller_changes_at_each_call_is_warned_of() -> None:
    model = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(3):
            # one change, and replays between two changes, are no reason
            for _ in range(3):
                assert model.scale(numbers(2)).item() == 2 * model.rates["lr"][0]
            model.rates["lr"][0] = float(i)
    with pytest.warns(RecaptureWarning, match=r"self\.rates\['lr'\]\[0\] is another"):
        for i in range(3):
            model.rates["lr"][0] = 5.0 + i
            assert model.scale(numbers(2)).item() == 10 + 2 * i


def test_a_warning_that_is_an_error_leaves_the_state_of_before() -> None:
    model = Model()
    for _ in range(3):
        model.count(numbers(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RecaptureWarning):
            model.count(numbers(1))
        assert model.n == 3
        assert model.count(numbers(1)).item() == 4


def test_a_value_in_an_argument_is_named() -> None:
    def count(x: Tensor, state: dict[str, int]) -> Tensor:
        state["n"] += 1
        return x + 1

    step, state = TinyJit(count), {"n": 0}
    with pytest.warns(RecaptureWarning, match=r"an argument\['n'\] is another"):
        for _ in range(CALLS):
            step(numbers(1), state)
    assert state == {"n": CALLS}
