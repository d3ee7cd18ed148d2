"""What a captured function writes, keeps and leaves in its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.jit.programs import CALLS, Box, Program, Wrap, assert_replays_equal_calls, numbers
from tinygrad import GlobalCounters, Tensor, TinyJit, nn
from tinygrad.jit.effects import written_memory

# ---- what the function changes ----


def writes(make: Callable[[], Tensor]) -> Program:
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


def gradients(is_kept: bool) -> Program:
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


CHANGED: dict[str, Program] = {
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


def writes_what_it_replaces(wrap: Wrap) -> list[Any]:
    kept = {"state": numbers(1, 2)}

    def advance(x: Tensor) -> None:
        kept["state"] += 1
        kept["state"] = x * 2

    step = wrap(advance)
    for i in range(CALLS):
        step(numbers(i, 0))
    given = numbers(5, 6)
    for x in (numbers(7, 8), given):
        kept["state"] = given
        step(x)
    return [given.tolist(), kept["state"].tolist()]


KEPT: list[Program] = [
    writes_what_it_replaces,
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


@pytest.mark.filterwarnings("ignore::tinygrad.jit.RecaptureWarning")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "program", [*KEPT, *(pytest.param(p, id=name) for name, p in CHANGED.items())]
)
def test_replays_write_and_keep_what_a_call_would(program: Program) -> None:
    assert_replays_equal_calls(program)


def test_a_gradient_that_is_scaled_between_two_captured_functions_is_stepped_with() -> None:
    def trained(captured: Callable[[Any], Any]) -> list[float]:
        weight = Tensor([1.0, 2.0], requires_grad=True)
        optimizer = nn.optim.SGD([weight], lr=0.1)

        def differentiate(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (x * weight).square().sum()
            loss.backward()
            return loss

        differentiate, step = captured(differentiate), captured(optimizer.step)
        with Tensor.train():
            for i in range(CALLS):
                differentiate(numbers(i + 1, 1))
                assert weight.grad is not None
                weight.grad = weight.grad * 0.01
                step()
        return weight.tolist()

    assert trained(TinyJit) == trained(lambda function: function)


def test_kept_gradients_are_overwritten_without_a_copy() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    b = Tensor([1.0, 2.0], requires_grad=True).realize()  # with a constant as gradient

    @TinyJit
    def backward(x: Tensor) -> Tensor:
        w.grad = b.grad = None
        return (w * x + b).sum().backward()

    for i in range(CALLS):
        backward(numbers(i, 1))
    GlobalCounters.reset()
    memory = w.grad.uop.buffer
    backward(numbers(7, 1))
    assert w.grad.uop.buffer is memory
    assert GlobalCounters.moved_out == 0
    assert (w.grad.tolist(), b.grad.tolist()) == ([7, 1], [1, 1])


def test_replays_search_for_lazy_values_only_when_something_reads_what_they_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[Any] = []
    search = written_memory.overwrite
    monkeypatch.setattr(written_memory, "overwrite", lambda x: (searches.append(1), search(x)))
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


# ---- gradients of arguments ----


def gradients_of_arguments(two: bool) -> Program:
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


@pytest.mark.slow
@pytest.mark.parametrize("two", [False, True])
def test_gradients_are_left_in_the_arguments_of_each_call(two: bool) -> None:
    assert_replays_equal_calls(gradients_of_arguments(two))
    weight, captures = numbers(1, 2), set()
    step = TinyJit(lambda x: (x * x * weight).sum().backward())
    for i in range(CALLS):
        step(x := numbers(i, 3).requires_grad_())
        assert x.grad.tolist() == [2 * i, 12]
        captures.add(step.captured)
    assert len(captures - {None}) == 1
