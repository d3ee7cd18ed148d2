"""What a captured function depends on and changes: sizes, values it reads, and state it writes."""

from __future__ import annotations

import argparse
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import itertools
import logging
import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from test.devices import device_names, only_cpu
from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, nn
from tinygrad.jit import JitError, written
from tinygrad.settings import Context

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


# ---- values that are read inside ----


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
    pytest.param(lambda x: x + float(np.from_dlpack(x)[0]), marks=only_cpu),
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


# ---- what the function finds outside its arguments ----


class Box:
    """Attributes."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


SCALE: Any = None
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


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


FOUND: list[Callable[[Wrap], list[Any]]] = [
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

# ---- what the function changes ----


def writes(make: Callable[[], Tensor]) -> Callable[[Wrap], list[Any]]:
    def program(wrap: Wrap) -> list[Any]:
        count = make()

        def advance(x: Tensor) -> Tensor:
            count.assign(count + 1)
            return x + 1

        step = wrap(advance)
        found = []
        for i in range(6):
            step(numbers(i))
            found.append(count.tolist())
        return found

    return program


def writes_read_at_the_end(wrap: Wrap) -> list[Any]:
    count, average = numbers(0), numbers(0)

    def advance(x: Tensor) -> Tensor:
        count.assign(count + 1)
        average.assign(average * 0.5 + x * 0.5)
        return x + 1

    step = wrap(advance)
    for i in range(6):
        step(numbers(i))
    return [count.tolist(), average.tolist()]


def statistics_of_a_norm(wrap: Wrap) -> list[Any]:
    norm = nn.BatchNorm(2)
    step = wrap(Tensor.train()(lambda x: norm(x) * 2))
    for i in range(CALLS):
        step(numbers(*range(i, i + 8)).reshape(2, 2, 2, 1))
    return [norm.running_mean.numpy().round(3).tolist(), norm.num_batches_tracked.item()]


def gradients(is_kept: bool) -> Callable[[Wrap], list[Any]]:
    def program(wrap: Wrap) -> list[Any]:
        w = Tensor([1.0, 2.0], requires_grad=True).realize()

        def backward(x: Tensor) -> Tensor:
            if not is_kept:
                w.grad = None
            return (w * x).sum().backward()

        step = wrap(backward)
        found = []
        for i in range(6):
            step(numbers(i, 1))
            found.append(w.grad.tolist())
        return found

    return program


CHANGED: dict[str, Callable[[Wrap], list[Any]]] = {
    "write to a stored tensor": writes(lambda: numbers(0)),
    "write to a lazy tensor": writes(lambda: Tensor.zeros(1)),
    "write to a lazy array": writes(lambda: Tensor([0.0])),
    "writes read at the end": writes_read_at_the_end,
    "statistics": statistics_of_a_norm,
    "gradients that accumulate": gradients(True),
    "gradients that are reset": gradients(False),
}


# ---- what the function keeps ----


def reads_later(wrap: Wrap) -> list[Any]:
    kept: dict[str, Tensor] = {}

    def keep(x: Tensor) -> Tensor:
        kept["h"] = x * 10
        return x + 1

    step, found = wrap(keep), []
    for i in range(CALLS):
        step(numbers(i))
        found.append(kept["h"] + 0)
    return [x.tolist() for x in found]


def holds_each(wrap: Wrap) -> list[Any]:
    kept = Box(h=None)

    def keep(x: Tensor) -> Tensor:
        kept.h = x * 10
        return x + 1

    step, found = wrap(keep), []
    for i in range(CALLS):
        step(numbers(i))
        found += [kept.h] if i != 3 else []
    return [x.tolist() for x in [*found, kept.h]]


def appends(wrap: Wrap) -> list[Any]:
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x * 10)
        return x + 1

    step = wrap(keep)
    for i in range(CALLS):
        step(numbers(i))
    return [x.tolist() for x in kept]


def makes_containers(wrap: Wrap) -> list[Any]:
    kept = Box(last=None, view=None)

    def keep(x: Tensor) -> Tensor:
        kept.last = {"pair": (x * 10, [x + 2, 3])}
        kept.view = x[1:]
        return x + 1

    step, found = wrap(keep), []
    for i in range(CALLS):
        step(numbers(i, i + 1))
        found.append((kept.last["pair"], kept.view))
    return [[a.tolist(), b.tolist(), n, v.tolist()] for (a, (b, n)), v in found]


def shares_its_result(wrap: Wrap) -> list[Any]:
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        y = x * 10
        kept.append(y[:1])
        return y

    step = wrap(keep)
    found = [step(numbers(i, 1)).tolist() for i in range(CALLS)]
    return found + [x.tolist() for x in kept]


def passes_back(wrap: Wrap) -> list[Any]:
    kept = Box(h=numbers(0))

    def keep(x: Tensor, h: Tensor) -> Tensor:
        kept.h = h * 2 + x
        return kept.h + x

    step = wrap(keep)
    return [step(numbers(i), kept.h).tolist() for i in range(CALLS)] + [kept.h.tolist()]


def holds_gradients(wrap: Wrap) -> list[Any]:
    layer = nn.Linear(2, 1, bias=False)
    layer.weight = Tensor([[1.0, 2.0]], requires_grad=True).realize()
    optimizer = nn.optim.SGD([layer.weight], lr=0.5)

    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = layer(x).sum().backward()
        optimizer.step()
        return loss

    step, found = wrap(Tensor.train()(train)), []
    for i in range(CALLS):
        step(numbers(i, 1))
        found += [layer.weight.grad] if i % 2 else []
        found.append(layer.weight.clone().realize())
    return [x.tolist() for x in found]


def keeps_old_and_new(wrap: Wrap) -> list[Any]:
    kept = Box(old=numbers(0), new=numbers(0))

    def keep(x: Tensor) -> Tensor:
        kept.old = kept.new
        kept.new = x * 10
        return x + 1

    step, found = wrap(keep), []
    for i in range(CALLS):
        step(numbers(i))
        found.append((kept.old.tolist(), kept.new.tolist()))
    return found


def refers_to_another_value(wrap: Wrap) -> list[Any]:
    found = []
    for make in (lambda: numbers(1, 2), lambda: Tensor.ones(2), lambda: Tensor([1.0, 2.0]) * 2):
        for change in (lambda w: w.flip(0), lambda w: w + 1):
            kept = Box(w=make())

            def step(x: Tensor, kept: Box = kept, change: Any = change) -> Tensor:
                kept.w.replace(change(kept.w))
                return x * kept.w

            run = wrap(step)
            found += [(run(numbers(1, 3)).tolist(), kept.w.tolist()) for _ in range(CALLS)]
    return found


def keeps_a_tuple(wrap: Wrap) -> list[Any]:
    """As the state of a recurrent network."""
    kept = {"state": (numbers(0, 0), numbers(1, 1))}

    def advance(x: Tensor) -> Tensor:
        hidden, cell = kept["state"]
        cell = cell * 0.5 + x
        kept["state"] = (hidden + cell, cell)
        return hidden * 2

    step = wrap(advance)
    found = [step(numbers(1, i)).tolist() for i in range(CALLS)]
    kept["state"] = (numbers(3, 4), kept["state"][1])
    return [*found, step(numbers(1, 2)).tolist(), *(x.tolist() for x in kept["state"])]


KEPT: list[Callable[[Wrap], list[Any]]] = [
    keeps_a_tuple,
    reads_later,
    holds_each,
    appends,
    makes_containers,
    shares_its_result,
    passes_back,
    holds_gradients,
    keeps_old_and_new,
    refers_to_another_value,
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "program",
    [pytest.param(p, id=p.__name__) for p in [*FOUND, *KEPT]]
    + [pytest.param(p, id=name) for name, p in CHANGED.items()],
)
def test_captured_programs_equal_plain_ones(program: Callable[[Wrap], list[Any]]) -> None:
    expected = program(lambda function: function)
    assert program(TinyJit) == expected
    with Context(JIT_VERIFY=1):
        assert program(TinyJit) == expected


# ---- results and kept tensors that are views of one value, or of an argument ----


def of_one_value(returned: Callable[[Tensor], Any], is_stored: bool) -> Callable[[Wrap], list[Any]]:
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


@pytest.mark.sample(2)
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
def test_aliases_are_those_of_the_function(program: Callable[[Wrap], list[Any]]) -> None:
    test_captured_programs_equal_plain_ones(program)


def gradients_of_arguments(two: bool) -> Callable[[Wrap], list[Any]]:
    def program(wrap: Wrap) -> list[Any]:
        weight, other, found = numbers(1, 2, 3, 4), numbers(3, 1, 2, 4), []
        if two:
            weight, other = (x.shard(("CPU", "CPU:1"), 0).realize() for x in (weight, other))
        other.requires_grad = True

        def steps() -> list[Any]:
            return [
                lambda x: (x * weight).sum().backward(),
                lambda x: (x * x * other).sum().backward(),
                lambda x: ((x * other).sum().backward(), x.grad * 2)[1],
                lambda x: setattr(x, "grad", x.detach() + 1),
            ]

        def new(i: int) -> Tensor:
            x = numbers(1, 2, i, 3)
            x = x.shard(("CPU", "CPU:1"), 0).realize() if two else x
            return x.requires_grad_()

        for loop in ("new", "one", "without", "two"):
            for run in map(wrap, steps()):
                known = [new(7), new(8)]
                for i in range(CALLS):
                    x = new(i) if loop == "new" else known[i % 2 if loop == "two" else 0]
                    if loop == "without":
                        x.grad = None
                    result = run(x)
                    found.append(x.grad)
                    if i % 2:
                        found[-1] = x.grad.tolist()
                        x.grad += 1
                    found.append(result if result is None else result.tolist())
        return [x.tolist() if isinstance(x, Tensor) else x for x in (*found, weight, other.grad)]

    return program


@pytest.mark.parametrize("two", [False, True])
def test_gradients_are_left_in_the_arguments_of_each_call(two: bool) -> None:
    test_captured_programs_equal_plain_ones(gradients_of_arguments(two))
    weight, captures = numbers(1, 2), set()
    step = TinyJit(lambda x: (x * x * weight).sum().backward())
    for i in range(CALLS):
        step(x := numbers(i, 3).requires_grad_())
        assert x.grad.tolist() == [2 * i, 12]
        captures.add(step.captured)
    assert len(captures - {None}) == 1


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
        with pytest.raises(JitError, match=rf"test_jit_state.py:\d+: .* {name}; .*not be noticed"):
            step(numbers(1))


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


def test_kept_gradients_are_overwritten_without_a_copy() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    b = Tensor([1.0, 2.0], requires_grad=True).realize()  # with a constant as gradient

    @TinyJit
    def backward(x: Tensor) -> Tensor:
        w.grad = b.grad = None
        return (w * x + b).sum().backward()

    for i in range(CALLS):
        backward(numbers(i, 1))
    first = id(w.grad), id(b.grad)
    backward(numbers(7, 1))
    assert (id(w.grad), id(b.grad)) == first
    assert (w.grad.tolist(), b.grad.tolist()) == ([7, 1], [1, 1])


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
def test_arguments_may_share_memory(program: Callable[[Wrap], list[Any]]) -> None:
    expected = program(lambda function: function)
    assert program(TinyJit) == expected
    with Context(JIT_VERIFY=1):
        assert program(TinyJit) == expected


def test_one_variable_with_two_values_is_an_error() -> None:
    size = Variable("size", 1, 4)
    whole = numbers(1, 2, 3, 4)
    step = TinyJit(lambda x, y: x.sum() + y.sum())
    with pytest.raises(JitError, match="size is bound to two values"):
        step(whole[: size.bind(2)], whole[: size.bind(3)])


def test_replays_search_for_lazy_values_only_when_something_reads_what_they_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[Any] = []
    search = written.realize_readers
    monkeypatch.setattr(
        written, "realize_readers", lambda x, owners: (searches.append(x), search(x, owners))
    )
    layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimizer = nn.optim.Adam(nn.state.get_parameters(layers))

    @TinyJit
    @Tensor.train()
    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = layers[1](layers[0](x).relu()).sum().backward()
        optimizer.step()
        return loss

    for _ in range(4):
        train(numbers(1, 2))
    searches.clear()
    train(numbers(1, 2))
    assert not searches
    weight, loss = layers[0].weight, train(numbers(3, 4))
    expected = weight.numpy() * 2, loss.numpy() + 1, weight.numpy().T + 3
    waiting = weight * 2, loss + 1, weight.T + 3
    train(numbers(5, 6))
    assert searches
    for found, values in zip(waiting, expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), values)


# ---- verification ----


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
    step = TinyJit(make(functools.partial(next, itertools.count(1))))
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


# ---- pruning, memory and pickles ----


def test_pruning_runs_what_depends_on_no_argument_once() -> None:
    w, count = numbers(1, 2), numbers(0)

    def scaled(x: Tensor) -> Tensor:
        count.assign(count + 1)
        prepared = (w * 2).softmax().contiguous()
        return (x * prepared).contiguous().softmax() + count + Tensor.rand(2) * 0

    plain, step = TinyJit(scaled), TinyJit(scaled, prune=True, optimize=True)
    for i in range(CALLS):
        count.assign(numbers(i)).realize()
        expected = plain(numbers(i, 1)).numpy()
        count.assign(numbers(i)).realize()
        np.testing.assert_allclose(step(numbers(i, 1)).numpy(), expected, rtol=1e-6)
    assert len(step.jit_cache) < len(plain.jit_cache)


@pytest.mark.parametrize("prune", [False, True])
def test_intermediates_are_allocated_again_after_they_were_freed(prune: bool) -> None:
    w = numbers(1, 2)
    step = TinyJit(lambda x: ((x + w.sum()).contiguous().sum() * x).contiguous(), prune=prune)
    for i in range(CALLS):
        assert step(numbers(i, 1)).tolist() == [(i + 7) * i, i + 7]
        if step.captured is not None:
            before = GlobalCounters.mem_used
            step.captured.free_intermediates()
            assert GlobalCounters.mem_used < before


def test_a_pickle_replays_with_weights_and_state_of_its_own() -> None:
    w, total, size = numbers(2, 3, 4), numbers(0), Variable("size", 1, 3)
    runs: list[int] = []

    def add(x: Tensor, scale: int) -> tuple[Tensor, Tensor]:
        runs.append(scale)
        total.assign(total + x.sum() * scale)
        return x * 2, (w * scale).contiguous().sum() + total

    step = TinyJit(add)
    for i in range(3):
        step(w[: size.bind(i + 1)], 2)
    loaded = pickle.loads(pickle.dumps(step))
    assert runs == [2, 2]
    for i in (2, 1):
        expected = [x.tolist() for x in step(w[: size.bind(i)], 2)]
        assert [x.tolist() for x in loaded(w[: size.bind(i)], 2)] == expected
    assert runs == [2, 2]
    with pytest.raises(JitError, match="without its function"):
        loaded(w[: size.bind(1)], 3)


def test_a_deep_copy_captures_its_own_tensors() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = numbers(2)
            self.step = TinyJit(self.forward)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.w

    model = Model()
    for _ in range(3):
        model.step(numbers(1))
    other = copy.deepcopy(model)
    other.w.assign(numbers(5)).realize()
    for _ in range(3):
        assert (model.step(numbers(1)).item(), other.step(numbers(1)).item()) == (2, 5)


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
