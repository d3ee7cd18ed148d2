"""Layouts under TinyJit: a changed layout is captured again or refused; results are never stale.

Arguments must keep layout, shape and dtype, else an error says what changed. Other tensors that
the function reads, such as weights, may change between calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest

from test.devices import DEVICE, nth
from test.sharding.common import DEVICES, TWO, Array, array, on, placed
from test.together import CommTrace
from tinygrad import Device, Sharding, Tensor, TinyJit, dtypes, nn
from tinygrad.jit import JitError
from tinygrad.nn.state import get_parameters, load_state_dict

ROWS, COLUMNS, REPLICATED = on(0), on(1), on(None)
LAYOUTS = {
    "rows": ROWS,
    "columns": COLUMNS,
    "replicated": REPLICATED,
    "both": on((0, 1), (2, 2)),
    "two devices": Sharding(TWO, 0),
    "one device": DEVICE,
}


CALLS = 5


def close(found: Tensor, expected: Array) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


# ---- replays ----


@pytest.mark.parametrize("layout", [*LAYOUTS.values()], ids=[*LAYOUTS])
def test_a_weight_that_becomes_another_argument_is_seen_by_all_ranks(layout: Any) -> None:
    weight, other = (Tensor(array(4, 4) + number).to(layout).realize() for number in range(2))

    @TinyJit
    def double(x: Tensor, _: Tensor) -> Tensor:
        assert weight + x is not None
        return (x * 2).sum(1)

    for x, y in [(other, other + 1), (other, weight), (weight, other), (other, weight)]:
        close(double(x, y), 2 * x.numpy().sum(1))


@pytest.mark.parametrize("layout", [*LAYOUTS.values()], ids=[*LAYOUTS])
def test_a_gradient_through_a_realized_value_is_replayed_by_all_ranks(layout: Any) -> None:
    weight = Tensor(array(4, 4)).to(layout).requires_grad_()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        loss = (weight + x).sum().realize()
        weight.grad = None
        loss.backward()
        assert weight.grad is not None
        weight.assign(weight.detach() - weight.grad).realize()
        return loss

    for number in range(CALLS):
        x = Tensor(array(4, 4) + number).to(layout).realize()
        close(step(x), (2 * array(4, 4)).sum())
    assert step.captured is not None


@pytest.mark.parametrize("name", ["one device of a layout", "replicated"])
def test_results_that_planning_finds_equal_follow_the_argument(name: str) -> None:
    layout = Sharding((DEVICE,), None) if name == "one device of a layout" else REPLICATED

    @TinyJit
    def double(x: Tensor) -> tuple[Tensor, Tensor]:
        doubled = x * 2
        back = doubled.to(DEVICE).to(layout)
        Tensor.realize(doubled, back)
        return doubled, back

    for number in range(CALLS):
        x = Tensor(array(4) + number).to(layout).realize()
        for result in double(x):
            close(result, 2 * (array(4) + number))


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_accumulate_in_one_object(name: str) -> None:
    weight = placed(array(8, 8), LAYOUTS[name]).realize()
    weight.requires_grad = True
    step = TinyJit(lambda x: (x * weight).sum().backward())
    captures, expected, grads = set(), np.zeros((8, 8), np.float32), []
    for seed in range(CALLS):
        x = array(8, 8, seed=seed)
        step(placed(x, LAYOUTS[name]))
        captures.add(step.captured)
        grads.append(weight.grad)
        expected += x
    close(weight.grad, expected)
    assert all(x is weight.grad for x in grads)
    assert len(captures - {None}) == 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_rows_of_a_minibatch_are_replayed(name: str) -> None:
    values, labels = array(16, 8), array(16, seed=1)
    inputs, targets = placed(values, LAYOUTS[name]), Tensor(labels).realize()
    if isinstance(inputs.device, Sharding):
        targets = targets.shard(inputs.device.devices).realize()
    step = TinyJit(lambda x, y: x.sum(1) * y)
    captures = set()
    for i in (*range(0, 16, 4), 3, 11):
        close(
            step(inputs[i : i + 4], targets[i : i + 4]),
            values[i : i + 4].sum(1) * labels[i : i + 4],
        )
        captures.add(step.captured)
    assert len(captures - {None}) == 1


# ---- arguments ----


def captured_with(*arguments: Tensor) -> Any:
    step = TinyJit(lambda *xs: sum(xs[1:], start=xs[0] * 2).realize())
    for _ in range(3):
        step(*arguments)
    return step


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_layout_is_captured_once_and_replayed(layout: Any) -> None:
    runs = Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        runs(x.device)
        return (x @ x.T).relu().realize()

    for seed in range(5):
        x = array(8, 8, seed=seed)
        found = step(placed(x, layout))
        close(found, np.maximum(x @ x.T, 0))
    assert runs.call_args_list == [call(layout)] * 2


@pytest.mark.parametrize("layout", [x for x in LAYOUTS.values() if x is not ROWS], ids=str)
def test_another_layout_of_an_argument_is_an_error_that_names_both(layout: Any) -> None:
    x = array(8, 8)
    step = captured_with(placed(x, ROWS))
    message = f"argument 0 was captured as dtypes.float (8, 8) on {ROWS}, and is now "
    with pytest.raises(
        JitError, match=re.escape(f"{message}dtypes.float (8, 8) on {layout}; make another TinyJit")
    ):
        step(placed(x, layout))
    # the capture still works
    close(step(placed(x + 1, ROWS)), (x + 1) * 2)


def test_another_shape_or_dtype_of_a_sharded_argument_is_an_error_that_names_both() -> None:
    step = captured_with(placed(array(8, 8), ROWS), placed(array(8, 8), ROWS))
    with pytest.raises(JitError, match=r"argument 1 .* \(8, 8\) .* now .* \(12, 8\)"):
        step(placed(array(8, 8), ROWS), placed(array(12, 8), ROWS))
    with pytest.raises(JitError, match=r"argument 0 .*float.* now .*int"):
        step(placed(array(8, 8), ROWS).cast(dtypes.int).realize(), placed(array(8, 8), ROWS))


def test_equal_layouts_in_two_spellings_share_a_capture() -> None:
    step = captured_with(placed(array(8, 8), ROWS))
    split_twice = Sharding((f"{DEVICE}:0", nth(1), nth(2), nth(3)), (0, 0), (2, 2))
    close(step(placed(array(8, 8, seed=5), split_twice)), array(8, 8, seed=5) * 2)


def test_uneven_sizes_are_replayed() -> None:
    step = TinyJit(lambda x: (x.sum(0) + x[1:].sum(0)).realize())
    for seed in range(4):
        x = array(5, 6, seed=seed)
        close(step(placed(x, ROWS)), x.sum(0) + x[1:].sum(0))


# ---- weights ----

Change = Callable[[nn.Linear], None]


def shard(layout: Any) -> Change:
    def change(model: nn.Linear) -> None:
        model.weight.to_(layout).realize()

    return change


def exchange(model: nn.Linear) -> None:
    model.weight = placed(array(8, 8, seed=7), model.weight.device)


def replace(model: nn.Linear) -> None:
    model.weight.replace(placed(array(8, 8, seed=7), COLUMNS))


def narrow(model: nn.Linear) -> None:
    model.weight = model.weight.half().realize()


def load(model: nn.Linear) -> None:
    load_state_dict(model, {"weight": Tensor(array(8, 8, seed=7))}, strict=False, verbose=False)


def write(model: nn.Linear) -> None:
    model.weight.assign(placed(array(8, 8, seed=7), model.weight.device)).realize()


def write_later(model: nn.Linear) -> None:
    model.weight.assign(placed(array(8, 8, seed=7), model.weight.device))


def write_slice(model: nn.Linear) -> None:
    model.weight[2:4] = 5.0


CHANGES: dict[str, Change] = {
    **{
        f"to {name}": shard(layout)
        for name, layout in LAYOUTS.items()
        if set(layout) == set(DEVICES)
    },
    "exchanged": exchange,
    "replaced": replace,
    "of another dtype": narrow,
    "loaded": load,
    "written": write,
    "written later": write_later,
    "in a slice": write_slice,
}
# in place: the capture stays valid
IN_PLACE = {"loaded", "written", "written later", "in a slice"}


def linear(layout: Any) -> nn.Linear:
    model = nn.Linear(8, 8, bias=False)
    model.weight = placed(array(8, 8, seed=3), layout)
    model.weight.requires_grad = False
    return model


@pytest.mark.parametrize("name", CHANGES)
def test_changed_weights_are_seen(name: str) -> None:
    model, x = linear(ROWS), placed(array(4, 8), REPLICATED)
    runs = Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        runs(model.weight.device)
        return model(x).relu().realize()

    for _ in range(3):
        step(x)
    CHANGES[name](model)
    weight = model.weight.numpy().astype(np.float32) if name != "written later" else None
    for seed in range(3):
        other = array(4, 8, seed=seed)
        found = step(placed(other, REPLICATED))
        weight = model.weight.numpy().astype(np.float32) if weight is None else weight
        np.testing.assert_allclose(
            found.numpy(), np.maximum(other @ weight.T, 0), rtol=2e-3, atol=2e-3
        )
    if name == "to rows" or name in IN_PLACE:
        assert runs.call_args_list == [call(ROWS)] * 2
    else:
        layouts = [ROWS, ROWS, model.weight.device]
        assert runs.call_args_list == list(map(call, layouts))


def test_a_weight_moved_to_other_devices_is_an_error_at_the_call() -> None:
    model, x = linear(ROWS), placed(array(4, 8), REPLICATED)
    step = TinyJit(lambda x: model(x).realize())
    for _ in range(3):
        step(x)
    model.weight.to_(DEVICE).realize()
    with pytest.raises(ValueError, match="the operands live on .* bring them together"):
        step(x)
    model.weight.to_(COLUMNS).realize()
    for _ in range(2):
        close(step(x), array(4, 8) @ array(8, 8, seed=3).T)


def test_training_continues_in_another_layout() -> None:
    """The losses equal those without a capture, also after weights were resharded."""

    def losses(capture: bool) -> list[float]:
        model = linear(ROWS)
        found = []

        def step(x: Tensor) -> Tensor:
            loss = (model(x) - 1).square().mean()
            (gradient,) = loss.gradient(model.weight)
            model.weight.assign(model.weight - 0.1 * gradient)
            return loss.realize(model.weight)

        run = TinyJit(step) if capture else step
        for number in range(9):
            if number and number % 3 == 0:
                for parameter in get_parameters(model):
                    parameter.shard_(on((0, 1), (2, 2)) if number == 3 else COLUMNS)
            found.append(run(placed(array(4, 8, seed=number), REPLICATED)).item())
        return found

    np.testing.assert_allclose(losses(capture=True), losses(capture=False), rtol=1e-5)


def test_a_change_of_a_weight_that_the_function_does_not_read_keeps_the_capture() -> None:
    used, unused = linear(ROWS), linear(ROWS)
    runs = Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        runs()
        return used(x).realize()

    for _ in range(3):
        step(placed(array(4, 8), REPLICATED))
    unused.weight.to_(COLUMNS).realize()
    step(placed(array(4, 8), REPLICATED))
    assert runs.call_count == 2


def test_a_deleted_view_of_a_weight_keeps_the_capture() -> None:
    model = linear(ROWS)
    view = model.weight.reshape(64)
    runs = Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        runs()
        return model(x).realize()

    for _ in range(3):
        step(placed(array(4, 8), REPLICATED))
    assert view.shape == (64,)
    del view
    step(placed(array(4, 8), REPLICATED))
    assert runs.call_count == 2


def test_a_pending_write_to_a_weight_is_written_once() -> None:
    model = linear(ROWS)
    step = TinyJit(lambda x: model(x).realize())
    x = placed(array(4, 8), REPLICATED)
    step(x)
    model.weight.assign(model.weight + 1)
    for _ in range(4):
        close(step(x), array(4, 8) @ (array(8, 8, seed=3) + 1).T)


def test_lazy_random_weights_are_drawn_once() -> None:
    models = [nn.Linear(8, 8, bias=False) for _ in range(2)]
    for model in models:
        model.weight.shard_(ROWS)
    step = TinyJit(lambda model, x: model(x).realize())
    for model in (*models, *models):
        for seed in range(4):
            x = array(4, 8, seed=seed)
            found = step(model, placed(x, REPLICATED))
            close(found, x @ model.weight.numpy().T)


def test_another_default_device_is_captured_again() -> None:
    @TinyJit
    def step() -> Tensor:
        return (Tensor([1.0, 2.0]) * 3).realize()

    before = Device.DEFAULT
    for _ in range(3):
        assert step().device == before
    try:
        Device.DEFAULT = nth(1)
        for _ in range(2):
            found = step()
            assert found.device == nth(1)
            close(found, np.array([3.0, 6.0], np.float32))
    finally:
        Device.DEFAULT = before


def test_a_replay_moves_the_bytes_of_its_capture() -> None:
    model, x = linear(ROWS), placed(array(4, 8), REPLICATED)
    step = TinyJit(lambda x: (model(x).to(DEVICE) + 1).realize())
    traces = []
    for _ in range(4):
        with CommTrace() as trace:
            step(x)
        traces.append([(record.kind, record.nbytes) for record in trace.records])
    assert traces[0]
    assert all(trace == traces[0] for trace in traces)
    assert set(model.weight.device) == set(DEVICES)


def test_what_reads_a_result_that_is_a_view_over_shards_keeps_its_values() -> None:
    @TinyJit
    def flipped(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x * 3).flip(0)
        return y, y[:1]

    for factor in range(5):
        values = array(5, 4) * factor
        # rows that do not divide over the devices, so that a slice of them needs a copy
        _, first = flipped(placed(values, on(0)).realize())
        read = first[[-1, -1]] + 1
        flipped(placed(values + 7, on(0)).realize())
        assert (read.numpy() == values[[-1, -1]] * 3 + 1).all()


@pytest.mark.parametrize("shape", [(4, 2), (3, 2)], ids=["even shards", "uneven shards"])
def test_a_reshaped_view_sees_replays_after_it_was_written_itself(shape: tuple[int, int]) -> None:
    state = Tensor.arange(prod(shape)).reshape(shape).contiguous().shard(TWO, 0).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        nonlocal state
        state += 1
        return x * 2

    for i in range(2):
        step(Tensor([i]).realize())
    view = state.reshape(-1)
    view.assign(Tensor.zeros_like(view))
    step(Tensor([2]).realize())
    assert view.tolist() == state.flatten().tolist() == [1] * prod(shape)
