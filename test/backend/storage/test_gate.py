"""No program that trains or generates copies what it overwrites: readers are computed before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, nn
from tinygrad.nn.state import get_parameters

BATCH, WIDTH = 4, 3
# a function is captured at the second call, and again if that computed lazy values of others
STEPS, CAPTURED = 6, 3

Step = Callable[[Tensor], Any]
Place = Callable[[Tensor], Tensor]


def eager(function: Step) -> Step:
    return function


def on_one(x: Tensor) -> Tensor:
    return x


def split(x: Tensor) -> Tensor:
    return x.shard_(device_names(2), axis=0)


def copied(x: Tensor) -> Tensor:
    return x.shard_(device_names(2))


kinds = pytest.mark.parametrize("captured", [eager, TinyJit], ids=["eager", "captured"])
places = pytest.mark.parametrize(
    "data, weights", [(on_one, on_one), (split, copied)], ids=["one", "sharded"]
)
reads = pytest.mark.parametrize("is_read", [True, False], ids=["read", "lazy"])


def steps_without_copies(captured: Any) -> Iterator[int]:
    """The numbers of steps, after which nothing may have moved out of what they overwrite."""
    GlobalCounters.reset()
    for number in range(STEPS):
        yield number
        if captured is TinyJit and number < CAPTURED:
            GlobalCounters.reset()
    assert GlobalCounters.moved_out == 0


def batch(number: int, place: Place) -> Tensor:
    values = np.random.default_rng(number).standard_normal((BATCH, WIDTH))
    return place(Tensor(values.astype(np.float32)))


class Network:
    """A perceptron with dropout and running statistics."""

    def __init__(self, place: Place) -> None:
        self.inner, self.outer = nn.Linear(WIDTH, 8), nn.Linear(8, 1)
        self.norm = nn.BatchNorm(8)
        for x in nn.state.get_state_dict(self).values():
            place(x)

    def loss(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.inner(x)).relu().dropout(0.5)
        return self.outer(hidden).square().mean()


@pytest.mark.sample(5)
@kinds
@places
@reads
def test_training_moves_nothing_out(
    captured: Any, data: Place, weights: Place, is_read: bool
) -> None:
    network = Network(weights)
    optimizer = nn.optim.Adam(get_parameters(network))

    @captured
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = network.loss(x)
        loss.backward()
        optimizer.step()
        return loss

    losses: list[Any] = []
    with Tensor.train():
        for i in steps_without_copies(captured):
            loss = step(batch(i, data))
            losses.append(loss.item() if is_read else loss + 1)
            if not is_read:
                losses.append(losses[-1] + network.norm.running_mean.sum())
        if not is_read:
            losses = Tensor.stack(*losses).tolist()
    assert np.isfinite(losses).all()


@pytest.mark.sample(5)
@kinds
@places
@reads
def test_averages_of_weights_move_nothing_out(
    captured: Any, data: Place, weights: Place, is_read: bool
) -> None:
    network = Network(weights)
    optimizer = nn.optim.SGD(get_parameters(network), lr=0.1)
    averages = [x.detach().clone().realize() for x in optimizer.params]

    @captured
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = network.loss(x)
        loss.backward()
        optimizer.step()
        for average, x in zip(averages, optimizer.params, strict=True):
            average.assign(average * 0.9 + x.detach() * 0.1)
        return loss

    kept = []
    with Tensor.train():
        for i in steps_without_copies(captured):
            loss = step(batch(i, data))
            difference = (averages[0] - optimizer.params[0].detach()).abs().sum()
            kept.append(difference)
            if is_read:
                assert np.isfinite([loss.item(), difference.item()]).all()
    # the difference is that of its own step
    assert len({x.item() for x in kept}) == STEPS


@pytest.mark.sample(5)
@kinds
@places
@reads
def test_accumulated_gradients_move_nothing_out(
    captured: Any, data: Place, weights: Place, is_read: bool
) -> None:
    network = Network(weights)
    optimizer = nn.optim.AdamW(get_parameters(network))
    optimizer.zero_grad()

    @captured
    def accumulate(x: Tensor) -> Tensor:
        loss = network.loss(x)
        loss.backward()
        return loss

    @captured
    def update(x: Tensor) -> None:
        optimizer.step()
        for x in optimizer.params:
            x.grad.assign(x.grad.zeros_like())

    kept = []
    with Tensor.train():
        for i in steps_without_copies(captured):
            for half in range(2):
                loss = accumulate(batch(2 * i + half, data))
                kept.append(loss * 2 + optimizer.params[0].grad.sum())
                if is_read:
                    loss.item()
                    kept[-1].item()
            update(batch(i, data))
    assert np.isfinite([x.item() for x in kept]).all()


@pytest.mark.sample(5)
@kinds
@places
@reads
def test_caches_written_by_slices_move_nothing_out(
    captured: Any, data: Place, weights: Place, is_read: bool
) -> None:
    cache = data(Tensor.zeros(BATCH, STEPS, WIDTH).contiguous().realize())
    row = weights(Tensor.ones(1, 1, WIDTH).contiguous().realize())
    at = Variable("at", 0, STEPS - 1)

    @captured
    def step(x: Tensor, position: Any) -> Tensor:
        cache[:, position : position + 1].assign(x.reshape(BATCH, 1, WIDTH)).realize()
        return (cache * row).sum(1)

    expected, kept = np.zeros((BATCH, WIDTH)), []
    for i in steps_without_copies(captured):
        x = batch(i, data)
        expected = expected + x.numpy()
        kept.append((step(x, at.bind(i)) + cache[:, 0] * 0, expected))
        cache[:, i] += 0
        if is_read:
            kept[-1][0].tolist()
    for found, sums in kept:
        # sums of six values in another order
        np.testing.assert_allclose(found.numpy(), sums, rtol=1e-5, atol=1e-6)
