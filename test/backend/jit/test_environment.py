"""What a captured function finds outside of its arguments: weights, numbers, functions, objects."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, Box, Program, Wrap, assert_replays_equal_calls, numbers
from tinygrad import Tensor, TinyJit, nn

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


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", FOUND)
def test_replays_find_what_a_call_would(program: Program) -> None:
    assert_replays_equal_calls(program)


def test_what_the_function_does_not_name_may_change() -> None:
    held = Box(w=numbers(2), count=0, history=[])
    runs = []

    def scale(x: Tensor) -> Tensor:
        runs.append(1)
        return x * held.w

    step = TinyJit(scale)
    for i in range(CALLS):
        held.count += 1
        held.history.append(step(numbers(i)).clone())
    assert [x.item() for x in held.history] == [2 * i for i in range(CALLS)]
    assert len(runs) == 2


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
