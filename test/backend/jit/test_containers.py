"""Arguments, results and kept tensors in objects: dataclasses, namespaces, sets and others."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from test.backend.jit.programs import CALLS, Box, Program, Wrap, assert_replays_equal_calls, numbers
from tinygrad import Tensor, TinyJit
from tinygrad.jit import JitError, register_container
from tinygrad.jit.containers import leaves


@dataclasses.dataclass
class Output:
    logits: Tensor
    scale: int = 1
    aux: Any = dataclasses.field(init=False, default=None)

    @property
    def scaled(self) -> Tensor:
        return self.logits * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: Tensor
    names: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True)
class Slotted:
    logits: Tensor


@dataclasses.dataclass
class Derived(Output):
    extra: Any = None

    def __post_init__(self) -> None:
        self.aux = [self.logits + 1]


class Named(NamedTuple):
    logits: Tensor
    n: int


class Items(dict[str, Any]):
    """A dict whose items are attributes, too."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self.__dict__ = self


class Tagged(list[Any]):
    tag: Any = None


class Registered:
    def __init__(self, logits: Tensor, name: str) -> None:
        self.hidden = [logits]
        self.name = name


register_container(Registered, lambda x: [*x.hidden], lambda x, new: Registered(*new, x.name))


def tagged(x: Tensor) -> Tagged:
    found = Tagged([x])
    found.tag = x + 1
    return found


MAKERS: dict[str, Callable[[Tensor], Any]] = {
    "dataclass": lambda x: Output(x, 3),
    "frozen": lambda x: Frozen(x, ("a",)),
    "slots": Slotted,
    "inherited": lambda x: Derived(x, extra={"y": x * 3}),
    "namespace": lambda x: types.SimpleNamespace(y=x, n=4),
    "options": lambda x: argparse.Namespace(y=x),
    "named tuple": lambda x: Named(x, 3),
    "deque": lambda x: collections.deque([x, x + 1], maxlen=2),
    "set": lambda x: {x},
    "frozenset": lambda x: frozenset([x]),
    "ordered": lambda x: collections.OrderedDict(b=x, a=x + 1),
    "defaults": lambda x: collections.defaultdict(list, y=[x]),
    "items": lambda x: Items(y=x),
    "list with attributes": tagged,
    "registered": lambda x: Registered(x, "name"),
    "nested": lambda x: {"k": [Output(Frozen(x), 2), (types.SimpleNamespace(d={3: x}),)]},  # type: ignore[arg-type]
}


def shown(x: Any) -> list[Any]:
    """The types, numbers and values in an object, by its own attributes and items."""
    if isinstance(x, Tensor):
        return [x.tolist()]
    if isinstance(x, dict):
        return [type(x), [(k, shown(v)) for k, v in x.items()]]
    if isinstance(x, (list, tuple, set, frozenset, collections.deque)):
        return [
            type(x),
            getattr(x, "maxlen", 0),
            shown(vars(x) if isinstance(x, Tagged) else 0),
        ] + [shown(y) for y in x]
    if dataclasses.is_dataclass(x):
        return [type(x), [(f.name, shown(getattr(x, f.name))) for f in dataclasses.fields(x)]]
    return [type(x), shown(vars(x))] if hasattr(x, "__dict__") else [x]


@pytest.mark.parametrize("name", MAKERS)
def test_results_in_objects_are_those_of_each_call(name: str) -> None:
    make, w = MAKERS[name], numbers(0)

    def add(x: Tensor) -> Any:
        w.assign(w + x)
        return make(w * 2)

    step, total = TinyJit(add), 0.0
    for i in range(CALLS):
        total += i
        assert shown(step(numbers(i))) == shown(make(numbers(2 * total)))
    assert step.captured is not None


@pytest.mark.parametrize("name", MAKERS)
def test_tensors_of_new_objects_are_arguments(name: str) -> None:
    make = MAKERS[name]
    step = TinyJit(lambda held, y: sum(x for x in leaves(held) if isinstance(x, Tensor)) * y)
    captured = []
    for i in range(CALLS):
        held = make(numbers(i))
        expected = sum(x.item() for x in leaves(held) if isinstance(x, Tensor)) * 3
        assert step(held, numbers(3)).item() == expected
        captured.append(step.captured)
    assert captured[-1] is captured[1] is not None


def test_numbers_and_classes_of_argument_objects_are_noticed() -> None:
    step = TinyJit(lambda x: x.scaled * (2 if isinstance(x, Derived) else 1))
    found = [
        step(Output(numbers(i), scale)).item() for i, scale in [(1, 1), (2, 1), (3, 1), (3, 5)]
    ]
    assert found == [1, 2, 3, 15]
    plain = TinyJit(lambda pairs: sum(len(x) * x[0] for x in pairs))
    a, b, c = numbers(1), numbers(2), numbers(3)
    for _ in range(3):
        assert plain([[a, b], [c]]).item() == 5
        assert plain([[a], [b, c]]).item() == 5
        assert plain(([a, b], [c])).item() == 5


def test_a_list_that_was_returned_is_the_callers() -> None:
    step = TinyJit(lambda x: ([x * 2], {"y": x + 1}))
    for i in range(CALLS):
        items, by_name = step(numbers(i))
        assert (items.pop().tolist(), by_name.pop("y").tolist()) == ([2 * i], [i + 1])


def test_an_older_object_is_returned_itself() -> None:
    held, model = {"h": numbers(0)}, Output(numbers(2))

    def advance(x: Tensor) -> Any:
        held["h"] = held["h"] + x
        return held, model, [held["h"] * 2]

    step = TinyJit(advance)
    for i in range(CALLS):
        same, other, (double,) = step(numbers(1))
        assert same is held
        assert other is model
        assert (held["h"].item(), double.item()) == (i + 1, 2 * i + 2)


def test_new_dataclasses_may_be_kept() -> None:
    kept = Box(state=None)

    def keep(x: Tensor) -> Tensor:
        kept.state = Output(x * 2)
        return x + 1

    step = TinyJit(keep)
    states = []
    for i in range(CALLS):
        step(numbers(i))
        states.append(kept.state)
    assert [x.logits.item() for x in states] == [2 * i for i in range(CALLS)]


def test_an_object_that_holds_itself_may_be_an_argument_but_no_result() -> None:
    def around(x: Tensor) -> Output:
        found = Output(x)
        found.aux = [found]
        return found

    held = TinyJit(lambda held: held.aux[0].logits * 2)
    for i in range(CALLS):
        assert held(around(numbers(i))).item() == 2 * i
    step = TinyJit(lambda x: around(x * 2))
    step(numbers(1))
    with pytest.raises(JitError, match="of type Output; .*not hold itself"):
        step(numbers(1))


class Plain:
    pass


def plain(x: Tensor) -> Plain:
    found = Plain()
    found.loss = x * 2  # type: ignore[attr-defined]
    return found


class Iterated:
    def __init__(self, x: Tensor) -> None:
        self._items = iter([x * 2])


class Property:
    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x * 2


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "generator": lambda x: (y for y in [x * 2]),
    "Plain": plain,
    "list_iterator": lambda x: iter([x * 2]),
    "function": lambda x: lambda: x * 2,
    "map": lambda x: [map(abs, [x * 2])],
    "Iterated": Iterated,
    "Property": Property,
    "method": lambda x: {"k": Box(y=x * 2).__eq__},
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_in_other_objects_are_an_error_that_names_the_type(name: str) -> None:
    step = TinyJit(REFUSED[name])
    step(numbers(1))
    kind = "method-wrapper" if name == "method" else name
    with pytest.raises(JitError, match=rf"test_containers.py:\d+: .*of type {kind}; .*dataclass"):
        step(numbers(1))


def test_objects_without_tensors_of_the_call_may_be_returned() -> None:
    w = numbers(3)
    box = Box(w=w)
    step = TinyJit(lambda x: (x * 2, Plain(), lambda: 3, box, iter(())))
    for i in range(CALLS):
        y, *_, found, _ = step(numbers(i))
        assert y.item() == 2 * i
        assert found is box


def a_cache_that_is_an_argument(wrap: Wrap) -> list[Any]:
    def step(x: Tensor, cache: dict[str, Any]) -> Tensor:
        cache["k"] = cache["k"] + x if "k" in cache else x * 1
        cache["n"] = cache.get("n", 0) + 1
        return cache["k"] * 2

    advance, cache, found = wrap(step), {}, []
    for i in range(CALLS):
        found.append((advance(numbers(i), cache).item(), cache["k"].item(), cache["n"]))
    return found


def a_new_argument_that_is_written(wrap: Wrap) -> list[Any]:
    def step(batch: Output, outputs: list[Any]) -> Tensor:
        batch.aux = batch.logits * 2
        outputs.append(batch.logits + 1)
        return batch.aux + 1

    advance, found = wrap(step), []
    for i in range(CALLS):
        batch, outputs = Output(numbers(i)), []
        found.append(advance(batch, outputs).item())
        found += [batch.aux.item(), outputs[0].item(), len(outputs)]
    return found


@pytest.mark.filterwarnings("ignore::tinygrad.jit.RecaptureWarning")
@pytest.mark.parametrize("program", [a_cache_that_is_an_argument, a_new_argument_that_is_written])
def test_writes_to_containers_among_the_arguments_are_those_of_a_call(program: Program) -> None:
    assert_replays_equal_calls(program)
