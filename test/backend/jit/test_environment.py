"""What a captured function finds outside of its arguments: weights, numbers, functions, objects."""

from __future__ import annotations

import argparse
import collections
import contextvars
import dataclasses
import enum
import functools
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, Box, Program, Wrap, assert_replays_equal_calls, numbers
from tinygrad import Tensor, TinyJit, nn
from tinygrad.jit.environment.code_names import names_of

SCALE: Any = None


def item_of_a_dict(wrap: Wrap) -> list[Any]:
    held = {"w": numbers(2)}
    step = wrap(lambda x: x * held["w"])
    one, other = held["w"], numbers(5)
    found = []
    for w in (one, one, one, other, other, one):
        held["w"] = w
        found.append(step(numbers(3)).tolist())
    return found


def item_of_a_list(wrap: Wrap) -> list[Any]:
    held = [numbers(2)]
    step = wrap(lambda x: sum(held, x))
    found = []
    for i in range(8):
        if i == 4:
            held.append(numbers(10))
        if i == 6:
            held[0] = held[1]
        found.append(step(numbers(3)).tolist())
    return found


def lazy_constants(wrap: Wrap) -> list[Any]:
    held: dict[str, Tensor] = {}
    step = wrap(lambda x: x * held["w"])
    found = []
    for v in range(CALLS):
        held["w"] = Tensor([v, v + 1])
        found.append(step(numbers(1, 1)).tolist())
        held["w"] = Tensor(float(v))
        found.append(step(numbers(1, 1)).tolist())
    return found


def weights_of_a_module(wrap: Wrap) -> list[Any]:
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = trained = numbers(1, 2, 3, 4).reshape(2, 2)
    averaged = (trained * 0.5).realize()
    step = wrap(layer)
    found = []
    for weight in (trained, trained, trained, averaged, averaged, trained):
        layer.weight = weight
        found.append(step(numbers(1, 1)).tolist())
    return found


def attributes_by_computed_name(wrap: Wrap) -> list[Any]:
    held = Box(w0=numbers(1), w1=numbers(2))
    one, other = held.w0, numbers(9)
    step = wrap(lambda x: sum((getattr(held, "w" + str(i)) for i in range(2)), x))
    found = []
    for w in (one, one, one, other, one):
        held.w0 = w
        found.append(step(numbers(1)).tolist())
    return found


def only_returned(wrap: Wrap) -> list[Any]:
    held = Box(w=numbers(1))
    step = wrap(lambda x: (held.w, x + 1))
    one, other, found = held.w, numbers(2), []
    for w in (one, one, one, other, one):
        held.w = w
        found.append(step(numbers(1))[0].tolist())
    return found


def as_argument(wrap: Wrap) -> list[Any]:
    w = numbers(2, 2)
    step = wrap(lambda x: x * w)
    arguments = (numbers(1, 1), w, numbers(3, 3), w, numbers(4, 4), numbers(5, 5))
    return [step(x).tolist() for x in arguments]


def as_written_argument(wrap: Wrap) -> list[Any]:
    w = numbers(2, 2)

    def scale(x: Tensor) -> Tensor:
        w.assign(w + 1)
        return x * 2

    step = wrap(scale)
    return [
        (step(x).tolist(), w.tolist())
        for x in (numbers(1, 1), numbers(1, 2), w, numbers(3, 3), w, w, numbers(4, 4))
    ]


def numbers_in_places(wrap: Wrap) -> list[Any]:
    global SCALE  # noqa: PLW0603
    SCALE = 1
    cell, held, options, values = 1, Box(scale=1), {"scale": 1}, [1]

    def scale(x: Tensor) -> Tensor:
        for v in values:
            x = x * v
        return x * cell * held.scale * options["scale"] * SCALE

    step = wrap(scale)
    found = [step(numbers(1)).tolist() for _ in range(3)]
    for _ in range(2):
        cell += 1
        found.append(step(numbers(1)).tolist())
        held.scale += 0.5
        found.append(step(numbers(1)).tolist())
        options["scale"] += 2
        found.append(step(numbers(1)).tolist())
        SCALE += 3
        found.append(step(numbers(1)).tolist())
        values[0] += 1
        found.append(step(numbers(1)).tolist())
        values.append(7)
        found.append(step(numbers(1)).tolist())
    return found


def arrays_written_in_place(wrap: Wrap) -> list[Any]:
    factors = np.ones(2, np.float32)
    step = wrap(lambda x: x * Tensor(factors))
    found = []
    for i in range(CALLS):
        factors[0] = i // 2
        found.append(step(numbers(1, 1)).tolist())
    return found


def functions_in_places(wrap: Wrap) -> list[Any]:
    held = Box(act=lambda x: x + 1)
    step = wrap(lambda x: held.act(x) * 2)
    found = [step(numbers(1)).tolist() for _ in range(3)]
    held.act = lambda x: x - 1
    return found + [step(numbers(1)).tolist() for _ in range(3)]


def a_shape_alone(wrap: Wrap) -> list[Any]:
    held = Box(w=numbers(1, 2))
    step = wrap(lambda x: x * held.w.shape[0])
    one, other, found = held.w, numbers(1, 2, 3), []
    for w in (one, one, one, other, one):
        held.w = w
        found.append(step(numbers(1)).tolist())
    return found


def a_rebound_state(wrap: Wrap) -> list[Any]:
    held = Box(h=numbers(0))

    def advance(x: Tensor) -> Tensor:
        held.h = held.h * 0.5 + x
        return held.h + 0

    step = wrap(advance)
    return [step(numbers(i)).tolist() for i in range(CALLS)] + [held.h.tolist()]


def a_python_counter(wrap: Wrap) -> list[Any]:
    held = Box(count=0)

    def advance(x: Tensor) -> Tensor:
        held.count += 1
        return x * held.count

    step = wrap(advance)
    return [step(numbers(1)).tolist() for _ in range(CALLS)]


def arguments_of_a_partial(wrap: Wrap) -> list[Any]:
    held = Box(w=numbers(1))
    step = wrap(functools.partial(lambda box, x: box.w * x, held))
    one, other, found = held.w, numbers(2), []
    for w in (one, one, one, other, one):
        held.w = w
        found.append(step(numbers(3)).tolist())
    return found


def an_object_as_argument(wrap: Wrap) -> list[Any]:
    held = Box(w=numbers(1), scale=1)
    step = wrap(lambda box, x: box.w * x * box.scale)
    one, other, found = held.w, numbers(2), []
    for i, w in enumerate((one, one, one, other, one, one)):
        held.w, held.scale = w, 1 + i // 5
        found.append(step(held, numbers(3)).tolist())
    return found


def a_method(wrap: Wrap) -> list[Any]:
    class Model:
        scale = 2

        def __init__(self) -> None:
            self.w, self.calls = numbers(1), 0

        def _scaled(self) -> Tensor:
            return self.w * self.scale

        @wrap
        def step(self, x: Tensor) -> Tensor:
            return self._scaled() * x

    model, found = Model(), []
    one, other = model.w, numbers(2)
    for w, scale in ((one, 2), (one, 2), (one, 2), (other, 2), (one, 2), (one, 3), (one, 3)):
        model.w, Model.scale, model.calls = w, scale, model.calls + 1
        found.append(model.step(numbers(3)).tolist())
    return found


FOUND: list[Program] = [
    item_of_a_dict,
    item_of_a_list,
    lazy_constants,
    weights_of_a_module,
    attributes_by_computed_name,
    only_returned,
    as_argument,
    as_written_argument,
    numbers_in_places,
    arrays_written_in_place,
    functions_in_places,
    a_shape_alone,
    a_rebound_state,
    a_python_counter,
    arguments_of_a_partial,
    an_object_as_argument,
    a_method,
]


@pytest.mark.filterwarnings("ignore::tinygrad.jit.RecaptureWarning")
@pytest.mark.sample(2)
@pytest.mark.parametrize("program", FOUND)
def test_replays_find_what_a_call_would(program: Program) -> None:
    assert_replays_equal_calls(program)


def test_what_the_function_does_not_name_may_change() -> None:
    held = Box(w=numbers(2), count=0, history=[])
    runs = Mock()

    def scale(x: Tensor) -> Tensor:
        runs()
        return x * held.w

    step = TinyJit(scale)
    for i in range(CALLS):
        held.count += 1
        held.history.append(step(numbers(i)).clone())
    assert [x.item() for x in held.history] == [2 * i for i in range(CALLS)]
    assert runs.call_count == 2


# ---- objects of every kind ----


class Slotted:
    __slots__ = ("unset", "w")

    def __init__(self, w: Tensor) -> None:
        self.w = w

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} has no value")


class Mode(enum.Enum):
    ONE = 1
    TWO = 2


@dataclasses.dataclass
class Config:
    rate: float = 2.0
    mode: Mode = Mode.ONE

    @property
    def never_read(self) -> float:
        raise RuntimeError("a property is not called to find what it reads")


class Pair(NamedTuple):
    w: Tensor
    n: int


class NamedTensors(dict[str, Tensor]):
    scale = 1


def test_tensors_and_numbers_are_found_in_objects_of_every_kind() -> None:
    slotted, config, named = Slotted(numbers(2)), Config(), NamedTensors(w=numbers(3))
    options, recent = argparse.Namespace(depth=2), collections.deque([numbers(4)], maxlen=2)
    hits = collections.defaultdict(int, inside=1)
    pairs = {"one": (numbers(2), 1), "two": Pair(numbers(3), 1)}
    layers = collections.UserDict(w=numbers(2))
    globals()["GLOBAL_WEIGHT"] = numbers(2)

    def multiply(x: Tensor) -> Tensor:
        logging.debug("multiply")
        x = x * slotted.w * named["w"] * recent[-1] * named.scale
        x = x * pairs["one"][0] * pairs["two"].w * layers["w"] * globals()["GLOBAL_WEIGHT"]
        return x * (config.rate * config.mode.value * options.depth * hits["inside"])

    step = TinyJit(multiply)
    for _ in range(3):
        assert step(numbers(1)).tolist() == multiply(numbers(1)).tolist()
    captured = step.captured
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(slotted, "w", numbers(5)),
        lambda: setattr(config, "rate", 3.0),
        lambda: setattr(config, "mode", Mode.TWO),
        lambda: named.update(w=numbers(6)),
        lambda: setattr(named, "scale", 7),
        lambda: setattr(options, "depth", 3),
        lambda: recent.append(numbers(8)),
        lambda: hits.update(inside=2),
        lambda: pairs.update(one=(numbers(5), 1)),
        lambda: pairs.update(two=Pair(numbers(4), 1)),
        lambda: layers.update(w=numbers(2) * 3),
        lambda: layers.update(w=numbers(3)),
        lambda: globals().update(GLOBAL_WEIGHT=numbers(4)),
    ]
    for change in changes:
        change()
        assert step(numbers(1)).tolist() == multiply(numbers(1)).tolist()
        assert (step.captured is captured) == (change is changes[0])


def test_a_replay_puts_its_result_where_the_function_does() -> None:
    places = {"latest": Tensor([0.0])}

    @TinyJit
    def square(x: Tensor) -> Tensor:
        places["latest"] = x * x
        return places["latest"]

    for i in range(6):
        result = square(Tensor([float(i)]))
        assert places["latest"].item() == result.item() == i * i
        places["latest"] = Tensor([100.0])


def test_lazy_tensors_that_no_name_leads_to_are_noticed() -> None:
    def program(wrap: Wrap) -> list[Any]:
        found = []
        changes: list[Callable[[Box, int], Tensor]] = [
            lambda box, i: box.first * 0.5,
            lambda box, i: box.second * i,
            lambda box, i: Tensor([i, 2.0]),
            lambda box, i: Tensor.full((2,), float(i)),
        ]
        for change in changes:
            box = Box(first=numbers(1, 2), second=numbers(3, 4))
            step = wrap(lambda x, box=box: x * sum(nn.state.get_parameters(box)))
            for i in range(CALLS):
                found.append(step(numbers(i + 1)).tolist())
                if i > 0:
                    box.first = change(box, i)
        return found

    assert_replays_equal_calls(program)


# ---- gradients ----


def a_weight_that_is_frozen(wrap: Wrap) -> list[Any]:
    w, b = Tensor([1.0], requires_grad=True), Tensor([3.0], requires_grad=True)

    @wrap
    def step(x: Tensor) -> Tensor:
        ((w * x + b) ** 2).sum().backward()
        for p in (w, b):
            if p.requires_grad:
                p.assign(p.detach() - 0.125 * p.grad)
                p.grad = None
        return (w + b).realize()

    found = []
    for wanted in (True, False, True):
        w.requires_grad = wanted
        found += [(step(numbers(1)).item(), w.item(), b.item()) for _ in range(4)]
    return found


def a_weight_that_is_frozen_and_not_used(wrap: Wrap) -> list[Any]:
    held = Box(weights=[numbers(1).requires_grad_(False), numbers(2).requires_grad_(False)])

    @wrap
    def step(x: Tensor) -> Tensor:
        return sum((w for w in held.weights if w.requires_grad), x * 2)

    found = []
    for i in range(8):
        if i in {3, 6}:
            held.weights[i // 6].requires_grad = True
        if i == 5:
            held.weights[0] = numbers(7).requires_grad_()
        found.append(step(numbers(1)).item())
    return found


@pytest.mark.parametrize("program", [a_weight_that_is_frozen, a_weight_that_is_frozen_and_not_used])
def test_requires_grad_may_be_set_between_calls(program: Program) -> None:
    assert_replays_equal_calls(program)


# ---- values of other kinds ----

CHOSEN: contextvars.ContextVar[float] = contextvars.ContextVar("CHOSEN", default=1.0)
LOCAL = threading.local()
LOCAL.scale = 1.0


def large() -> np.ndarray[Any, Any]:
    return np.ones(1 << 17, np.float32)


@functools.lru_cache
def cached_scale() -> float:
    return float(GLOBALS["scale"])


GLOBALS = {"scale": 1.0}


def reset_cached(value: float) -> None:
    GLOBALS["scale"] = value
    cached_scale.cache_clear()


def scaled(x: Tensor, by: float = 1.0) -> Tensor:
    return x * by


def counted(x: Tensor) -> Tensor:
    return x * counted.by  # type: ignore[attr-defined]


counted.by = 1.0  # type: ignore[attr-defined]


def test_values_of_every_kind_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    factors, data, array = {2.0}, bytearray(b"abc"), large()
    held, order = Box(n0=1.0, n1=2.0), {"a": 2.0, "b": 3.0}
    frozen = Box(options=frozenset({1.0}))
    monkeypatch.setenv("SCALE_OF_A_TEST", "2")

    def in_order(x: Tensor) -> Tensor:
        for value in order.values():
            x = x * value + 1
        return x

    programs: dict[str, tuple[Callable[[Tensor], Tensor], list[Callable[[], Any]]]] = {
        "set": (
            lambda x: x * sum(factors),
            [lambda: factors.add(3.0), lambda: factors.discard(2.0)],
        ),
        "equal elements": (
            lambda x: x * len(str(factors)),
            [lambda: (factors.clear(), factors.add(3))],
        ),
        "frozenset": (
            lambda x: x * sum(frozen.options),
            [lambda: setattr(frozen, "options", frozenset({5.0}))],
        ),
        "bytes": (lambda x: x * data[0], [lambda: data.__setitem__(0, 5), lambda: data.append(1)]),
        "host array": (lambda x: x * float(array[-1]), [lambda: array.__setitem__(-1, 5)]),
        "computed name": (
            lambda x: x * getattr(held, "n" + str(len(x.shape))),
            [lambda: setattr(held, "n1", 7.0)],
        ),
        "vars": (lambda x: x * sum(vars(held).values()), [lambda: setattr(held, "n0", 3.0)]),
        "order": (in_order, [lambda: order.update(a=order.pop("a"))]),
        "context": (lambda x: x * CHOSEN.get(), [lambda: CHOSEN.set(4.0)]),
        "thread": (lambda x: x * LOCAL.scale, [lambda: setattr(LOCAL, "scale", 4.0)]),
        "environ": (
            lambda x: x * float(os.environ["SCALE_OF_A_TEST"]),
            [lambda: monkeypatch.setenv("SCALE_OF_A_TEST", "5")],
        ),
        "getenv": (
            lambda x: x * float(os.getenv("OTHER_OF_A_TEST", "1")),
            [lambda: monkeypatch.setenv("OTHER_OF_A_TEST", "5")],
        ),
        "cached function": (lambda x: x * cached_scale(), [lambda: reset_cached(3.0)]),
        "code": (
            lambda x: scaled(x) * 1,
            [
                lambda: setattr(scaled, "__code__", (lambda x, by=1.0: x * by + 1).__code__),
                lambda: setattr(scaled, "__defaults__", (3.0,)),
            ],
        ),
        "function attribute": (counted, [lambda: setattr(counted, "by", 3.0)]),
    }
    for name, (function, changes) in programs.items():
        step = TinyJit(function)
        for change in changes:
            for _ in range(4):
                assert step(numbers(2)).item() == function(numbers(2)).item(), name
            captured = step.captured
            assert captured is not None, name
            change()
            for _ in range(2):
                assert step(numbers(2)).item() == function(numbers(2)).item(), name
            assert step.captured is not captured, name


@pytest.mark.filterwarnings("ignore::tinygrad.jit.RecaptureWarning")
def test_a_value_of_another_thread_is_that_of_its_call() -> None:
    step = TinyJit(lambda x: x * LOCAL.scale)
    LOCAL.scale = 2.0
    for _ in range(3):
        assert step(numbers(1)).item() == 2
    found: list[float] = []

    def elsewhere() -> None:
        LOCAL.scale = 5.0
        found.append(step(numbers(1)).item())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [5]
    assert step(numbers(1)).item() == 2


def test_attributes_of_constant_names_do_not_widen_what_is_followed() -> None:
    held = Box(scale=2.0, calls=0)
    step = TinyJit(lambda x: x * getattr(held, "scale", 1.0) * getattr(held, "other", 1.0))
    for i in range(CALLS):
        held.calls += 1
        assert step(numbers(i)).item() == 2 * i
        if i == 1:
            captured = step.captured
    assert step.captured is captured is not None


# ---- tools ----


def test_objects_of_tools_are_not_followed() -> None:
    kinds = [type("Hook", (), {"__module__": name}) for name in ("pluggy._hooks", "_pytest.main")]
    hooks = [kind() for kind in kinds]
    for hook in hooks:
        hook.items = (i for i in range(3))
    step = TinyJit(lambda x: x * len([hook for hook in hooks if hook.items is not None]))
    assert [step(numbers(i)).item() for i in range(CALLS)] == [2 * i for i in range(CALLS)]
    assert step.captured is not None


def test_a_global_that_a_tool_adds_is_not_followed() -> None:
    def check(x: Tensor) -> Tensor:
        assert x.shape == (1,), "rewritten by pytest"
        return x + 1

    names = check.__code__.replace(co_names=("@py_rewriter", *check.__code__.co_names[1:]))
    assert "@py_rewriter" not in names_of(names).globals
    step = TinyJit(check)
    assert [step(numbers(i)).item() for i in range(CALLS)] == [i + 1 for i in range(CALLS)]
