"""Results, kept tensors and arguments of captured functions that share memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from test.backend.jit.programs import CALLS, Program, Wrap, assert_replays_equal_calls, numbers
from test.devices import device_names
from tinygrad import Tensor

# ---- results and kept tensors that are views of one value, or of an argument ----


def of_one_value(returned: Callable[[Tensor], Any], is_stored: bool) -> Program:
    """A function that returns views of what it keeps; both are written, and old ones are read."""

    def program(wrap: Wrap) -> list[Any]:
        kept = {"w": numbers(0)}

        @wrap
        def step(x: Tensor) -> Any:
            y = (x * x).realize() if is_stored else x * x
            kept["w"] = y
            return returned(y)

        found, old = [], []
        for i in range(CALLS):
            result = step(numbers(i, i + 1))
            kept["w"] += 10
            result *= 2
            found.append((result.tolist(), kept["w"].tolist()))
            old.append(kept["w"])
        return [*found, [x.tolist() for x in old]]

    return program


def of_an_argument(wrap: Wrap) -> list[Any]:
    """Each function returns or keeps its argument, or a view of it."""
    kept = {"w": numbers(0)}

    def keep(x: Tensor) -> Tensor:
        kept["w"] = x
        return kept["w"]

    def keep_a_view(x: Tensor) -> Tensor:
        kept["w"] = x[:1]
        (x + 1).realize()
        return kept["w"]

    found = []
    for function in (keep, keep_a_view, lambda x: x, lambda x: x[1:], lambda x: (x + 1, x[:1])[1]):
        step = wrap(function)
        for i in range(CALLS):
            x = numbers(i, i + 1)
            result = step(x[:] if i % 2 else x)
            result += 10
            found.append((x.tolist(), result.tolist(), kept["w"].tolist()))
            x += 100
            found.append((x.tolist(), result.tolist(), kept["w"].tolist()))
    return found


def slices_of_sharded_arguments(wrap: Wrap) -> list[Any]:
    kept: dict[str, Tensor] = {}

    def keep(x: Tensor) -> Tensor:
        kept["w"] = x[:1]
        return kept["w"] + x

    found, old = [], []
    for function in (keep, lambda x: x[:1]):
        step = wrap(function)
        for i in range(CALLS):
            x = numbers(i, 4, 5).shard(device_names(2), axis=0).realize()
            if i % 2:
                x[1].assign(Tensor(-1.0))
            result = step(x)
            view = kept["w"] if function is keep else result
            old += [view * 3, kept["w"]]
            x.assign(x + 1)
            found.append((result.tolist(), view.tolist(), x.tolist()))
            view += 1
            found.append((result.tolist(), view.tolist(), x.tolist()))
    return [*found, [x.tolist() for x in old]]


def several_views_as_results(wrap: Wrap) -> list[Any]:
    found = []
    for views in (
        lambda y: (y[:1],),
        lambda y: (y[:1], y[1:]),
        lambda y: (y, y[1:]),
        lambda y: (y[1:], y.flip(0), Tensor([5.0])),
        lambda y: (y[:1], Tensor.ones(2)),
        lambda y: (y.realize()[:1],),
    ):
        step = wrap(lambda x, views=views: views(x * x))
        for i in range(CALLS):
            results = step(numbers(i, i + 1))
            for x in results:
                x += 10
            found.append([x.tolist() for x in results])
    return found


def written_results(wrap: Wrap) -> list[Any]:
    """The caller writes a result, a view that it returns too, or one of its own, and makes them
    refer to other values; later results are views of each other nevertheless.
    """

    def square(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * x
        return y, y[:1]

    pair, found, other = wrap(square), [], numbers(7)
    changes: tuple[Callable[[Tensor, Tensor], Any], ...] = (
        lambda y, view: view.assign(view + 1),
        lambda y, view: view.assign(view + 1).realize(),
        lambda y, view: y[:].assign(y + 1),
        lambda y, view: view.replace(other),
        lambda y, view: y.replace(numbers(7, 8)),
    )
    for change in changes * 2:
        for i in range(3):
            y, view = pair(numbers(i, 4))
        change(y, view)
        y, view = pair(numbers(5, 4))
        view *= 2
        found.append((y.tolist(), pair(y)[0].tolist(), other.tolist()))
    return found


def equal_values_of_written_results(wrap: Wrap) -> list[Any]:
    """Values equal to a returned view, which may be in memory of its own, outlive later calls."""

    def before_and_after(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        x += 1
        return y, y[:1]

    found = []
    for names in (None, device_names(2)):
        step = wrap(before_and_after)
        for i in range(CALLS):
            x = numbers(i, 4) if names is None else numbers(i, 4).shard(names, axis=0).realize()
            y, view = step(x)
            same = view * 1
            step(y)
            y, view = step(x)
            view *= 3
            found += [y.tolist(), view.tolist(), same]
    return [x.tolist() if isinstance(x, Tensor) else x for x in found]


def results_passed_back_and_written(wrap: Wrap) -> list[Any]:
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        x += 1
        return x[:1], x * 2 + x.sum()

    grow, found = wrap(step), []
    x = numbers(1, 2)
    for _ in range(2 * CALLS):
        view, x = grow(x)
        found.append((view.tolist(), x.tolist()))
    return found


def views_of_arguments_change(wrap: Wrap) -> list[Any]:
    step, found = wrap(lambda x, y: x.assign(x + y)), []
    x, y = numbers(1, 2, 3, 4), numbers(5, 6)
    for view in (x[:2], x[:2], x[2:], x[2:], y, y, x.flip(0)[1:3]):
        found.append((step(view, numbers(7, 8)).tolist(), x.tolist(), y.tolist()))
    return found


def views_in_memory_of_their_own(wrap: Wrap) -> list[Any]:
    """A reversed shard is stored on its own device, but sees writes to its base, and its base its
    own.
    """
    found, names = [], device_names(4)

    def sharded(first: float) -> Tensor:
        return numbers(first, *range(7)).shard(names, axis=0).realize()

    for is_argument in (True, False):
        base, other = sharded(8), sharded(9)

        def function(x: Tensor, is_argument: bool = is_argument, base: Tensor = base) -> Tensor:
            y = x * 3
            written = x if is_argument else base
            written += 1
            return y + base

        step = wrap(function)
        for x in (base, sharded(1), base.flip(0), other.flip(0), sharded(2), sharded(3)):
            found.append([y.tolist() for y in (step(x), x, base, other)])
    scale = wrap(lambda x: x * x)
    result = [scale(sharded(i)) for i in range(2)][-1]
    return [*found, scale(result.flip(0)).tolist(), scale(sharded(4)).tolist()]


ALIASES = {
    "a view": lambda y: y[:1],
    "itself": lambda y: y,
    "detached": lambda y: y.detach(),
    "an equal value": lambda y: y * 1,
    "a contiguous one": lambda y: y.contiguous(),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "program",
    [of_one_value(returned, stored) for returned in ALIASES.values() for stored in (False, True)]
    + [
        of_an_argument,
        slices_of_sharded_arguments,
        several_views_as_results,
        written_results,
        equal_values_of_written_results,
        results_passed_back_and_written,
        views_of_arguments_change,
        views_in_memory_of_their_own,
    ],
    ids=[f"{name}{stored}" for name in ALIASES for stored in ("", ", stored")]
    + [
        "of an argument",
        "sharded slices",
        "several results",
        "written results",
        "equal values of written results",
        "passed back",
        "other views",
        "sharded views",
    ],
)
def test_aliases_are_those_of_the_function(program: Program) -> None:
    assert_replays_equal_calls(program)


# ---- arguments that share memory ----


def one_tensor_twice(wrap: Wrap) -> list[Any]:
    step = wrap(lambda x, y: x + y * 2)
    a, b = numbers(1), numbers(5)
    pairs = ((a, b), (a, b), (b, a), (a, a), (b, b), (a, b))
    return [step(x, y).tolist() for x, y in pairs]


def one_tensor_twice_that_is_written(wrap: Wrap) -> list[Any]:
    step = wrap(lambda x, y: (x.assign(x + 1) + y).realize())
    a, b = numbers(1), numbers(5)
    pairs = ((a, b), (b, a), (a, a), (b, b), (b, b), (a, b), (a, b), (a, a))
    return [(step(x, y).tolist(), a.tolist(), b.tolist()) for x, y in pairs]


def the_second_of_two_tensors_is_written(wrap: Wrap) -> list[Any]:
    step = wrap(lambda x, y: (y.assign(y + 1) + x).realize())
    a, b = numbers(1), numbers(5)
    pairs = ((a, b), (b, a), (a, a), (b, b), (b, b), (a, b), (a, b), (a, a))
    return [(step(x, y).tolist(), a.tolist(), b.tolist()) for x, y in pairs]


def equal_values_of_an_argument(wrap: Wrap) -> list[Any]:
    """Equal values share memory until one of them is written."""

    def copy_and_write(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x * 1
        first = z[:1]
        first += 1
        return z, first + y[:1]

    step, found = wrap(copy_and_write), []
    x = numbers(2, -1, 4)
    z, _ = step(x, x)
    for arguments in ((x, z), (z, x), (x, numbers(1, 2, 3)), (z, x)):
        z, y = step(*arguments)
        found.append((z.tolist(), y.tolist(), x.tolist()))
        z = z.clone()
    step = wrap(lambda x: x.assign(x + 1) * 2)
    equal = []
    for argument in (numbers(1, 2, 3), x, numbers(3, 4, 5), x, x):
        equal.append(x * 1)
        found.append((step(argument).tolist(), x.tolist(), *[y.tolist() for y in equal]))
    return found


def a_lazy_value_of_an_argument(wrap: Wrap) -> list[Any]:
    x = numbers(4)
    held = {"w": x}
    step = wrap(lambda x: x + held["w"])
    found = [step(x).tolist()]
    held["w"] = x * 2
    arguments = [x, x, numbers(5), x, numbers(6), numbers(7)]
    return [*found, *(step(x).tolist() for x in arguments)]


def a_leaf_and_an_argument(wrap: Wrap) -> list[Any]:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    step = wrap(lambda x: ((x * w * x).sum().backward(), x * 1)[1])
    arguments = [*(numbers(i, 2) for i in range(4)), w, w, numbers(5, 6), w.detach()]
    return [(step(x).tolist(), w.grad.tolist()) for x in arguments]


def views_of_one_tensor(wrap: Wrap) -> list[Any]:
    step = wrap(lambda x, y: x + y * 2)
    whole = numbers(1, 2, 3, 4)
    return [step(whole[:2], whole[2:]).tolist() for _ in range(CALLS)]


def shards_of_one_tensor(wrap: Wrap) -> list[Any]:
    step = wrap(lambda x, y: (x + 1, y * 2))
    found = []
    for i in range(CALLS):
        shards = numbers(i, 2, 3, 4).shard(device_names(2), axis=0).realize().shards
        found.append([x.tolist() for x in step(*shards)])
    return found


def results_in_the_memory_of_inputs(wrap: Wrap) -> list[Any]:
    step = wrap(lambda x: (x.assign(x + 1), x[:1], x * 2))
    x = numbers(1, 2)
    return [[y.tolist() for y in (*step(x), x)] for _ in range(CALLS)]


def slices_of_lazy_tensors(wrap: Wrap) -> list[Any]:
    found = []

    def add(x: Tensor) -> None:
        x += 1

    for new, *slices in itertools.product((0, 1), (False, True), (False, True), (False, True)):
        step = wrap(add)
        for is_slice in (*slices, True):
            four = Tensor.arange(4) if new else Tensor([0, 1, 2, 3])
            x = four if is_slice else Tensor([5, 6])
            step(x[2:4] if is_slice else x)
            found.append(x.tolist())
    return found


@pytest.mark.parametrize(
    "program",
    [
        slices_of_lazy_tensors,
        one_tensor_twice,
        one_tensor_twice_that_is_written,
        the_second_of_two_tensors_is_written,
        equal_values_of_an_argument,
        a_lazy_value_of_an_argument,
        a_leaf_and_an_argument,
        views_of_one_tensor,
        shards_of_one_tensor,
        results_in_the_memory_of_inputs,
    ],
)
def test_arguments_may_share_memory(program: Program) -> None:
    assert_replays_equal_calls(program)
