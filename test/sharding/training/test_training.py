"""Training on several devices: the losses equal those on one device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from test.devices import DEVICE
from test.models.resnet import ResNet18
from test.sharding.common import (
    DEVICES,
    REPLICATED,
    TWO,
    Array,
    array,
    integers,
    moved,
    on,
    parts,
    placed,
)
from test.together import CommTrace, GlobalCounters
from tinygrad import Tensor, TinyJit, nn
from tinygrad.device import Sharding
from tinygrad.nn.optim import LAMB, SGD, Adam, AdamW
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save


class SmallCnn:
    """A smaller version of the digits example: images (batch, 1, 12, 12) to scores (batch, 10)."""

    def __init__(self) -> None:
        self.layers: list[Callable[[Tensor], Tensor]] = [
            *(nn.Conv2d(1, 4, 3), Tensor.relu, nn.BatchNorm(4), Tensor.max_pool2d),
            *(nn.Conv2d(4, 8, 3), Tensor.relu, nn.BatchNorm(8)),
            *(lambda x: x.flatten(1), nn.Linear(72, 10)),
        ]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def losses(
    devices: tuple[str, ...],
    make: Callable[[list[Tensor]], Any],
    steps: int = 3,
    jit: bool = False,
) -> list[float]:
    """The losses of the first steps, the batch sharded over `devices`."""
    Tensor.manual_seed(1)
    model = SmallCnn()
    if len(devices) > 1:
        for parameter in get_parameters(model):
            parameter.shard_(devices)
    optimizer = make(get_parameters(model))
    labels = np.arange(8, dtype=np.int32)

    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    run = TinyJit(step) if jit else step
    found = []
    for seed in range(steps):
        x, y = Tensor(array(8, 1, 12, 12, seed=seed)), Tensor(labels)
        if len(devices) > 1:
            x, y = x.shard(devices, 0), y.shard(devices, 0)
        found.append(run(x.realize(), y.realize()).item())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("make", [SGD, Adam], ids=["SGD", "Adam"])
def test_data_parallel_training_has_the_losses_of_one_device(make: Any) -> None:
    alone = losses((DEVICE,), lambda params: make(params, lr=0.01))
    assert alone[0] != alone[1]
    for devices in (TWO, DEVICES):
        found = losses(devices, lambda params: make(params, lr=0.01))
        np.testing.assert_allclose(found, alone, rtol=2e-4)


def test_training_under_the_jit_equals_training_without() -> None:
    def make(params: list[Tensor]) -> Any:
        return SGD(params, lr=0.01, momentum=0.9)

    expected = losses(TWO, make, steps=4)
    np.testing.assert_allclose(losses(TWO, make, steps=4, jit=True), expected, rtol=1e-4)


# ---- gradient accumulation ----


class MixedLinear:
    """A product in bfloat16 by a weight in float32: (batch, 64) to (batch, 64)."""

    def __init__(self) -> None:
        self.weight = Tensor(array(64, 64) * 0.1)

    def __call__(self, x: Tensor) -> Tensor:
        return (x.cast("bfloat16") @ self.weight.cast("bfloat16").T).cast("float32")


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
def test_accumulated_gradients_are_all_reduced_once(jit: bool) -> None:
    def trained(layout: Any, keep: bool) -> tuple[list[Array], dict[str, int]]:
        model = [nn.Linear(64, 64), Tensor.relu, nn.LayerNorm(64), MixedLinear()]
        parameters = get_parameters(model)
        for number, x in enumerate(parameters):
            # one of them has a gradient from before
            x.replace(placed(array(*x.shape, seed=number) * 0.1, layout))
        optimizer = SGD(parameters, lr=0.1, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            parameters[0].grad = parameters[0] * 2
            for i in range(4):
                x[:, i].sequential(model).square().mean().backward()
                with Tensor.accumulate_gradients() if keep else nullcontext():
                    Tensor.realize(*(p.grad for p in parameters if p.grad is not None))
            return x.sum().realize(*optimizer.schedule_step())

        run = TinyJit(step) if jit else step
        with Tensor.train():
            for seed in range(3):
                with CommTrace() as trace:
                    run(placed(array(8, 4, 64, seed=seed), layout and on(0)))
        return [x.numpy() for x in parameters], trace.kinds()

    expected, _ = trained(None, False)
    found, once = trained(REPLICATED, True)
    plain, each = trained(REPLICATED, False)
    for a, b, c in zip(found, plain, expected, strict=True):
        # products are in bfloat16
        np.testing.assert_allclose(a, c, rtol=0, atol=2e-2 * np.abs(c).max())
        np.testing.assert_allclose(b, c, rtol=0, atol=2e-2 * np.abs(c).max())
    of_sum = 4 * 3 * 4
    assert (each["all_reduce"] - of_sum) == 4 * (once["all_reduce"] - of_sum)
    assert once.keys() == {"all_reduce"}


def test_a_gradient_stored_as_partial_sums_is_read_like_any_other() -> None:
    x, w = placed(integers(8, 4), on(0)), placed(integers(4, 4, seed=1), REPLICATED)
    (x @ w).square().sum().backward()
    assert w.grad is not None
    with Tensor.accumulate_gradients():
        assert moved(w.grad) == {}
        expected = x.numpy().T @ (x.numpy() @ w.numpy()) * 2
        # several users in one realize share the sum; another realized tensor holds the sum
        assert (w.grad * 2 + w.grad.sum()).numpy().tolist() == (
            expected * 2 + expected.sum()
        ).tolist()
        assert moved(w.grad * 2) == {"all_reduce": 4 * 3 * 64}
    assert w.grad.device == REPLICATED
    assert moved(w.grad) == {"all_reduce": 4 * 3 * 64}
    assert moved(w.grad * 2) == {}
    assert w.grad.numpy().tolist() == expected.tolist()


@pytest.mark.parametrize("layout", [None, REPLICATED], ids=["one", "several"])
@pytest.mark.parametrize("is_inside", [False, True])
def test_captured_functions_accumulate_gradients_as_the_function_does(
    layout: Any, is_inside: bool
) -> None:
    weight = placed(integers(4, 4), layout).requires_grad_()
    calls = Mock()

    @TinyJit
    def accumulate(x: Tensor) -> None:
        (x @ weight).sum().backward()
        with Tensor.accumulate_gradients():
            Tensor.realize(*[x.grad for x in [weight] if x.grad is not None])

    @TinyJit
    def step(x: Tensor) -> Tensor:
        calls()
        with Tensor.accumulate_gradients() if is_inside else nullcontext():
            accumulate(x)
        return (x + 1).realize()

    expected: Any = 0
    for number in range(5):
        value = integers(8, 4, seed=number)
        step(placed(value, layout and on(0)))
        expected = expected + np.repeat(value.sum(0)[:, None], 4, 1)
        assert weight.grad is not None
        np.testing.assert_array_equal(weight.grad.numpy(), expected)
    # partial sums are in new memory after each call, so those are captured anew
    assert calls.call_count == (2 if layout is None else 5)
    # a lazy value of the gradient is that of the time at which it was built
    double = weight.grad * 2
    step(placed(integers(8, 4), layout and on(0)))
    np.testing.assert_array_equal(double.numpy(), expected * 2)


def test_captured_functions_do_not_reduce_the_partial_sums_that_they_drop() -> None:
    weight, bias = (placed(integers(4, 4, seed=i), REPLICATED).requires_grad_() for i in (0, 1))
    calls = Mock()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        calls()
        # the gradient from before, of one of them, is a value that requires a gradient
        weight.grad, bias.grad = weight * 2, None
        with Tensor.accumulate_gradients():
            (x @ weight + x @ bias).sum().backward()
            Tensor.realize(*[x.grad for x in (weight, bias) if x.grad is not None])
        return (x + 1).realize()

    for number in range(5):
        value = integers(8, 4, seed=number)
        with CommTrace() as trace:
            step(placed(value, on(0)))
        assert "all_reduce" not in trace.kinds()
    assert calls.call_count == 2
    assert weight.grad is not None
    expected = np.repeat(value.sum(0)[:, None], 4, 1) + weight.numpy() * 2
    np.testing.assert_array_equal(weight.grad.numpy(), expected)


def test_captured_functions_see_the_partial_sums_that_they_read_and_drop() -> None:
    weight = placed(integers(4, 4), REPLICATED).requires_grad_()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        old = x.sum() * 0 if weight.grad is None else weight.grad.sum()
        old.realize()
        weight.grad = None
        with Tensor.accumulate_gradients():
            (x @ weight).sum().backward()
            assert weight.grad is not None
            weight.grad.realize()
        return old

    expected = 0
    for number in range(5):
        value = integers(8, 4, seed=number)
        assert step(placed(value, on(0))).item() == expected
        expected = value.sum() * 4


# ---- optimizers on sharded parameters ----


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("make", [SGD, AdamW, LAMB])
def test_steps_on_sharded_parameters_equal_those_on_one_device(make: Any, axis: int | None) -> None:
    def trained(layout: Any) -> Array:
        w, x = placed(array(8, 12), layout), placed(array(4, 8), layout and REPLICATED)
        optimizer = make([w], lr=0.1)
        with Tensor.train():
            for _ in range(2):
                optimizer.zero_grad()
                (x @ w).tanh().square().mean().backward()
                optimizer.step()
        assert layout is None or w.device is layout
        return w.numpy()

    np.testing.assert_allclose(trained(on(axis)), trained(None), rtol=1e-4, atol=1e-5)


def test_a_gradient_has_the_layout_of_its_tensor() -> None:
    for layout in (on(0), on(1), REPLICATED):
        w = placed(array(8, 12), layout)
        (gradient,) = (placed(array(4, 8), on(0)) @ w).sum().gradient(w)
        assert gradient.device is layout


# ---- state dictionaries on several devices ----


def test_loading_a_state_keeps_the_layout_of_the_model(tmp_path: Path) -> None:
    def model(layout: Any) -> dict[str, Tensor]:
        return {"w": placed(array(8, 12), layout), "b": placed(array(12, seed=1), REPLICATED)}

    saved = model(on(1))
    path = tmp_path / "model.safetensors"
    safe_save(get_state_dict(saved), str(path))
    loaded = {"w": placed(np.zeros((8, 12), np.float32), on(0)), "b": placed(array(12), REPLICATED)}
    load_state_dict(loaded, safe_load(str(path)), verbose=False)
    assert loaded["w"].device is on(0)
    np.testing.assert_array_equal(loaded["w"].numpy(), array(8, 12))
    np.testing.assert_array_equal(parts(loaded["w"])[1], array(8, 12)[2:4])
    np.testing.assert_array_equal(loaded["b"].numpy(), array(12, seed=1))


def test_loading_onto_a_layout_moves_nothing_between_devices(tmp_path: Path) -> None:
    path = str(tmp_path / "model.safetensors")
    safe_save({"w": Tensor(array(8, 12))}, path)
    GlobalCounters.reset()
    load_state_dict({"w": placed(array(8, 12), on(0))}, safe_load(path), verbose=False)
    assert GlobalCounters.bytes_moved == 0


# ---- ResNet-18 ----


def resnet_step(devices: tuple[str, ...]) -> tuple[list[Tensor], Tensor]:
    """The lazy new parameters and loss of one training step."""
    Tensor.manual_seed(2)
    model = ResNet18(width=8)
    x, y = Tensor(array(8, 3, 16, 16)), Tensor(np.arange(8, dtype=np.int32))
    if len(devices) > 1:
        for parameter in get_parameters(model):
            parameter.shard_(devices)
        x, y = x.shard(devices, 0), y.shard(devices, 0)
    optimizer = SGD(get_parameters(model), lr=0.01)
    Tensor.realize(x, y, *get_parameters(model), *get_parameters(optimizer))
    with Tensor.train():
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        return optimizer.schedule_step(), loss


@pytest.mark.slow
def test_a_data_parallel_step_of_resnet_18() -> None:
    steps, loss = resnet_step(DEVICES)
    kinds = moved(loss, *steps)
    assert set(kinds) == {"all_reduce"}
    _, alone = resnet_step(DEVICES[:1])
    assert loss.item() == pytest.approx(alone.item(), rel=1e-4)


def test_layouts_of_unused_devices_do_not_matter() -> None:
    x = placed(array(8, 12), Sharding(DEVICES[2:], 0))
    assert moved((x * 2).sum(1)) == {}
