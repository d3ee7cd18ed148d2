"""Random numbers: distributions, and that the values depend on the seed alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Sharding, Tensor, TinyJit, dtypes
from tinygrad.mixin.random import random_sequence

COUNT = 20_000


@pytest.fixture(autouse=True)
def seeded() -> None:
    Tensor.manual_seed(1)


def test_equal_seeds_give_equal_numbers_and_others_do_not() -> None:
    Tensor.manual_seed(7)
    first, second = Tensor.rand(10).tolist(), Tensor.rand(10).tolist()
    Tensor.manual_seed(7)
    assert Tensor.rand(10).tolist() == first
    assert first != second
    Tensor.manual_seed(8)
    assert Tensor.rand(10).tolist() != first


def test_the_order_of_asking_counts_and_not_the_order_of_computing() -> None:
    Tensor.manual_seed(3)
    first, second = Tensor.rand(5).tolist(), Tensor.rand(5).tolist()
    Tensor.manual_seed(3)
    a, b = Tensor.rand(5), Tensor.rand(5)
    assert b.tolist() == second
    assert a.tolist() == first


PLACES: list[Any] = [
    "CPU",
    "CPU:1",
    ("CPU", "CPU:1"),
    Sharding(("CPU", "CPU:1"), 0),
    Sharding(("CPU:2", "CPU:1"), 1),
]
DRAWS: dict[str, Callable[..., Tensor]] = {
    "rand": lambda **k: Tensor.rand(4, 6, **k),
    "randn": lambda **k: Tensor.randn(4, 6, **k),
    "randint": lambda **k: Tensor.randint(4, 6, low=-100, high=100, **k),
}


@pytest.mark.parametrize("name", DRAWS)
def test_values_are_the_same_on_every_device_and_in_every_layout(name: str) -> None:
    expected = None
    for place in PLACES:
        Tensor.manual_seed(5)
        Tensor.rand(3)
        x = DRAWS[name](device=place)
        found = x.tolist()
        expected = expected or found
        assert found == expected, place


def test_devices_take_turns_in_one_sequence() -> None:
    Tensor.manual_seed(5)
    expected = [Tensor.rand(3).tolist() for _ in range(4)]
    Tensor.manual_seed(5)
    found = [Tensor.rand(3, device=d).tolist() for d in ("CPU", "CPU:1", "CPU:1", "CPU")]
    assert found == expected


def test_no_number_comes_twice() -> None:
    values = np.concatenate([Tensor.rand(1000).numpy() for _ in range(5)])
    assert len(np.unique(values)) > 4990


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64])
def test_uniform_in_zero_to_one(dtype: Any) -> None:
    x = Tensor.rand(COUNT, dtype=dtype)
    assert x.dtype == dtype
    values = x.numpy().astype(np.float64)
    assert 0 <= values.min() < 0.01
    assert 0.99 < values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01
    assert abs(values.var() - 1 / 12) < 0.005


def test_normal_has_the_moments_of_the_distribution() -> None:
    values = Tensor.randn(COUNT).numpy().astype(np.float64)
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert abs((values**3).mean()) < 0.1
    assert abs((values**4).mean() - 3) < 0.3
    assert np.isfinite(values).all()


def test_integers_are_even_over_their_range() -> None:
    values = Tensor.randint(COUNT, low=-3, high=4).numpy()
    assert values.dtype == np.int32
    counts = np.bincount(values + 3, minlength=7)
    assert len(counts) == 7
    assert (abs(counts - COUNT / 7) < 300).all()


def test_scaled_distributions() -> None:
    uniform = Tensor.uniform(COUNT, low=2, high=5).numpy()
    assert 2 <= uniform.min() < 2.01
    assert 4.99 < uniform.max() <= 5
    normal = Tensor.normal(COUNT, mean=10, std=2).numpy()
    assert abs(normal.mean() - 10) < 0.1
    assert abs(normal.std() - 2) < 0.1
    kaiming = Tensor.kaiming_uniform(100, 200).numpy()
    assert abs(kaiming.std() - np.sqrt(2 / 200)) < 0.005
    assert abs(Tensor.kaiming_normal(100, 200).numpy().std() - np.sqrt(2 / 200)) < 0.005
    assert abs(Tensor.glorot_uniform(100, 200).numpy().std() - np.sqrt(2 / 300)) < 0.005
    assert abs(Tensor.scaled_uniform(100, 200).numpy()).max() <= 20000**-0.5


@pytest.mark.parametrize("count", [1, 10, 300])
def test_permutation_has_every_number_once(count: int) -> None:
    found = Tensor.randperm(count).tolist()
    assert sorted(found) == list(range(count))
    assert count < 10 or found != list(range(count))


def test_choices_follow_the_weights() -> None:
    weights = Tensor([1.0, 0.0, 3.0])
    counts = np.bincount(weights.multinomial(COUNT, replacement=True).numpy(), minlength=3)
    assert counts[1] == 0
    assert abs(counts[2] / COUNT - 0.75) < 0.02
    rows = Tensor([[1.0, 0.0], [0.0, 1.0]]).multinomial(3, replacement=True)
    assert rows.tolist() == [[0, 0, 0], [1, 1, 1]]
    apart = Tensor.ones(20).multinomial(20)
    assert sorted(apart.tolist()) == list(range(20))


def test_dropout_scales_what_stays() -> None:
    x = Tensor.ones(COUNT)
    assert x.dropout(0.3) is x
    with Tensor.train():
        found = x.dropout(0.25).numpy()
        assert x.dropout(1.0).numpy().max() == 0
        with pytest.raises(ValueError, match="p=2 is not within"):
            x.dropout(2)
    assert abs((found == 0).mean() - 0.25) < 0.02
    np.testing.assert_allclose(found[found != 0], 1 / 0.75, rtol=1e-6)


def test_the_gradient_of_dropout_uses_the_same_mask() -> None:
    x = Tensor.ones(100, requires_grad=True)
    with Tensor.train():
        y = x.dropout(0.5)
        y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())


def test_a_captured_function_draws_new_numbers_each_time() -> None:
    @TinyJit
    def draw() -> Tensor:
        return Tensor.rand(4).realize()

    found = [tuple(draw().tolist()) for _ in range(6)]
    assert len(set(found)) == 6


def test_the_sequence_knows_what_replays_drew() -> None:
    before = random_sequence.positions()
    Tensor.rand(4, device="CPU").realize()
    Tensor.rand(4, device="CPU:1").realize()
    random_sequence.catch_up(before)
    after = random_sequence.positions()
    assert set(after.values()) == {8}
    random_sequence.replayed(before, after)
    assert set(random_sequence.positions().values()) == {16}


def test_unfit_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="use randint"):
        Tensor.rand(3, dtype=dtypes.int32)
    with pytest.raises(TypeError, match="randint is of integers"):
        Tensor.randint(3, low=0.5, high=3)
    with pytest.raises(ValueError, match="no integer from 3"):
        Tensor.randint(3, low=3, high=3)
