"""Random numbers: distributions, and values that depend on the seed alone."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth
from tinygrad import Device, GlobalCounters, Sharding, Tensor, TinyJit, dtypes, nn
from tinygrad.device import Buffer, OutOfMemoryError
from tinygrad.execution.realize import compiled_kernels
from tinygrad.jit import JitError
from tinygrad.mixin.random import _largest_below
from tinygrad.runtime.disk import FileError

COUNT = 20_000


@pytest.fixture(autouse=True)
def seeded() -> None:
    Tensor.manual_seed(1)


def test_only_equal_seeds_give_equal_numbers() -> None:
    Tensor.manual_seed(7)
    first, second = Tensor.rand(10).tolist(), Tensor.rand(10).tolist()
    Tensor.manual_seed(7)
    assert Tensor.rand(10).tolist() == first
    assert first != second
    Tensor.manual_seed(8)
    assert Tensor.rand(10).tolist() != first


def test_numbers_depend_on_call_order_and_not_on_realization_order() -> None:
    Tensor.manual_seed(3)
    first, second = Tensor.rand(5).tolist(), Tensor.rand(5).tolist()
    Tensor.manual_seed(3)
    a, b = Tensor.rand(5), Tensor.rand(5)
    assert b.tolist() == second
    assert a.tolist() == first


PLACES: list[Any] = [
    DEVICE,
    nth(1),
    device_names(2),
    Sharding(device_names(2), 0),
    Sharding((nth(2), nth(1)), 1),
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


def test_devices_share_one_sequence() -> None:
    Tensor.manual_seed(5)
    expected = [Tensor.rand(3).tolist() for _ in range(4)]
    Tensor.manual_seed(5)
    found = [Tensor.rand(3, device=d).tolist() for d in (DEVICE, nth(1), nth(1), DEVICE)]
    assert found == expected


def test_number_i_is_the_hash_of_counter_i() -> None:
    key = int.from_bytes(hashlib.sha256(b"7").digest()[:8], "little")
    counters = Tensor(np.arange(3, 8, dtype=np.uint64))
    bits = counters.threefry(Tensor([key], dtype=dtypes.uint64)).numpy()
    Tensor.manual_seed(7)
    Tensor.rand(3)
    expected = (bits.astype(np.uint32) >> 8).astype(np.float32) * np.float32(2**-24)
    np.testing.assert_array_equal(Tensor.rand(5).numpy(), expected)


def test_no_number_repeats() -> None:
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


UNITS = {dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7, dtypes.float32: 2.0**-23}


@pytest.mark.parametrize("dtype", [*UNITS, dtypes.fp8e4m3, dtypes.fp8e5m2])
@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (1, 2), (-1, 0), (-3, -2), (0.5, 0.75), (0, 1e-3), (-2, 1.7), (1, 1.1)],
)
def test_uniform_numbers_are_below_the_upper_bound(low: float, high: float, dtype: Any) -> None:
    values = Tensor.uniform(1 << 14, low=low, high=high, dtype=dtype).float().numpy()
    assert Tensor(low, dtype=dtype).float().item() <= values.min()
    assert values.max() < high
    if dtype in UNITS:
        # no gap below it: 2 units in the last place, and the mean gap of the draws
        gap = 2 * UNITS[dtype] * max(abs(low), abs(high)) + 10 * (high - low) / len(values)
        assert high - gap < values.max()


def test_rounding_up_is_kept_from_the_bound_of_every_dtype() -> None:
    for dtype in (*UNITS, dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.float64):
        for high in (0.0, 1.0, -1.0, 1.1, 0.3, -0.3, 2.0**-16, 96.0, -(2.0**-9)):
            below = _largest_below(high, dtype)
            stored = Tensor([below], dtype=dtype).double().item()
            assert stored == below < high
            # every number between rounds to one of both neighbours
            for part in (0.25, 0.75):
                x = below + (high - below) * part
                rounded = Tensor([x], dtype=dtypes.double).cast(dtype).double().item()
                assert rounded == below or rounded >= high


def test_uniform_integers_are_below_the_upper_bound() -> None:
    assert Tensor.uniform(1 << 20, low=5, high=9, dtype=dtypes.int).max().item() == 8


def test_a_uniform_logarithm_of_narrow_floats_is_finite() -> None:
    for dtype in (dtypes.float16, dtypes.bfloat16):
        u = Tensor.uniform(1 << 16, dtype=dtype)
        assert np.isfinite((1 - u).log().float().numpy()).all()


def test_normal_has_the_moments_of_the_distribution() -> None:
    values = Tensor.randn(COUNT).numpy().astype(np.float64)
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert abs((values**3).mean()) < 0.1
    assert abs((values**4).mean() - 3) < 0.3
    assert np.isfinite(values).all()


def test_integers_are_uniform_over_their_range() -> None:
    values = Tensor.randint(COUNT, low=-3, high=4).numpy()
    assert values.dtype == np.int32
    counts = np.bincount(values + 3, minlength=7)
    assert len(counts) == 7
    assert (abs(counts - COUNT / 7) < 300).all()


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 256, dtypes.uint8),
        (-128, 128, dtypes.int8),
        (-(2**31), 2**31, dtypes.int32),
        (-(2**40), 2**41, dtypes.int64),
        (5, 6, dtypes.int32),
    ],
)
def test_integers_reach_both_ends_of_their_range(low: int, high: int, dtype: Any) -> None:
    found = Tensor.randint(COUNT, low=low, high=high, dtype=dtype)
    assert found.dtype == dtype
    values = found.numpy().astype(np.float64)
    span = high - low
    assert low <= values.min() <= low + span / 100
    assert high - 1 - span / 100 <= values.max() <= high - 1
    # the mean of uniform numbers has a standard error of span / sqrt(12 n)
    assert abs(values.mean() - (low + high - 1) / 2) < 5 * span / np.sqrt(12 * COUNT) + 1e-9


def test_neighbours_are_independent() -> None:
    x = Tensor.rand(COUNT).numpy().astype(np.float64) - 0.5
    for distance in (1, 2, 32, 1000):
        correlation = (x[:-distance] * x[distance:]).mean() * 12
        assert abs(correlation) < 5 / np.sqrt(COUNT)


def test_uniform_numbers_pass_a_chi_squared_test() -> None:
    counts = np.histogram(Tensor.rand(COUNT).numpy(), 20, (0, 1))[0]
    # chi squared of 19 degrees of freedom exceeds 50 once in 7000 seeds
    assert ((counts - COUNT / 20) ** 2 / (COUNT / 20)).sum() < 50


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64])
def test_normal_numbers_of_other_types(dtype: Any) -> None:
    x = Tensor.randn(COUNT, dtype=dtype)
    assert x.dtype == dtype
    values = x.numpy().astype(np.float64)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.04
    assert abs(values.std() - 1) < 0.03


def test_uniform_float64_has_more_bits_than_float32() -> None:
    values = Tensor.uniform(1000, low=1, high=2, dtype=dtypes.float64).numpy()
    assert (values != values.astype(np.float32)).mean() > 0.99


def test_shapes_and_types_of_random_tensors() -> None:
    like = Tensor.ones(2, 0, 3, dtype=dtypes.float16)
    assert like.rand_like().shape == like.randn_like().shape == (2, 0, 3)
    assert like.rand_like().dtype == like.randn_like().dtype == dtypes.float16
    assert Tensor.rand().shape == Tensor.randn(()).shape == Tensor.randint(()).shape == ()
    assert Tensor.rand((2, 3)).shape == Tensor.uniform(2, 3).shape == (2, 3)
    assert Tensor.normal(2, dtype=dtypes.half).dtype == dtypes.half
    assert Tensor.uniform(9, low=5, high=9, dtype=dtypes.int).dtype == dtypes.int
    assert Tensor.rand(2, requires_grad=True).requires_grad
    for name in ("scaled_uniform", "glorot_uniform", "kaiming_uniform", "kaiming_normal"):
        assert getattr(Tensor, name)(0, 3).shape == (0, 3)
        assert getattr(Tensor, name)(3, 0).shape == (3, 0)


def test_scaled_distributions() -> None:
    uniform = Tensor.uniform(COUNT, low=2, high=5).numpy()
    assert 2 <= uniform.min() < 2.01
    assert 4.99 < uniform.max() < 5
    normal = Tensor.normal(COUNT, mean=10, std=2).numpy()
    assert abs(normal.mean() - 10) < 0.1
    assert abs(normal.std() - 2) < 0.1
    kaiming = Tensor.kaiming_uniform(100, 200).numpy()
    assert abs(kaiming.std() - np.sqrt(2 / 200)) < 0.005
    assert abs(Tensor.kaiming_normal(100, 200).numpy().std() - np.sqrt(2 / 200)) < 0.005
    assert abs(Tensor.glorot_uniform(100, 200).numpy().std() - np.sqrt(2 / 300)) < 0.005
    assert abs(Tensor.scaled_uniform(100, 200).numpy()).max() <= 20000**-0.5


def test_all_permutations_are_equally_likely() -> None:
    # six orders of three: the first of each of 600 permutations, side by side
    first = [tuple(Tensor.randperm(3).tolist()) for _ in range(120)]
    counts = [first.count(order) for order in set(first)]
    assert len(counts) == 6
    assert min(counts) > 5


@pytest.mark.parametrize("count", [0, 1, 10, pytest.param(300, marks=pytest.mark.slow)])
def test_a_permutation_has_every_number_once(count: int) -> None:
    found = Tensor.randperm(count).tolist()
    assert sorted(found) == list(range(count))
    assert Tensor.randperm(count, dtype=dtypes.int64).dtype == dtypes.int64
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
    assert apart.dtype == dtypes.int32


@pytest.mark.slow
def test_choices_are_in_range_whatever_the_weights() -> None:
    Tensor.manual_seed(3)
    inf, has_subnormals = math.inf, Device[Device.DEFAULT].target.has_subnormals
    for weights, possible in (
        ([0.0, 0.0, 0.0], {0, 1, 2}),
        ([3e38] * 4 + [0.0], {0, 1, 2, 3}),
        # zeros, where the target has no subnormals
        ([1e-45, 0.0, 1e-45], {0, 2} if has_subnormals else {0, 1, 2}),
        ([0.0, inf, 1.0, inf], {1, 3}),
    ):
        for shape in ((len(weights),), (2, len(weights))):
            table = Tensor([weights] * (len(shape) == 2 and 2) or weights)
            assert set(table.multinomial(60, replacement=True).flatten().tolist()) <= possible
            assert set(table.multinomial().flatten().tolist()) <= possible
    found = Tensor([3e38, 0.0, 3e38]).multinomial(200, replacement=True).tolist()
    assert 50 < found.count(0) < 150
    assert found.count(1) == 0


def test_choices_without_replacement_follow_the_weights() -> None:
    weights = Tensor([[1.0, 2.0, 5.0, 0.0]]).expand(4000, 4)
    found = weights.multinomial(2).numpy()
    assert (found[:, 0] != found[:, 1]).all()
    assert (found != 3).all()
    # the first choice has the odds of one draw, the second those of the remaining ones
    shares = np.bincount(found[:, 0], minlength=4) / 4000
    np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 5 / 8, 0], atol=0.04)
    after_last = found[found[:, 0] == 2, 1]
    assert abs((after_last == 1).mean() - 2 / 3) < 0.05


def test_choices_of_one_of_integer_weights_and_of_halves() -> None:
    assert Tensor([0, 0, 3]).multinomial().tolist() == [2]
    assert Tensor([0.0, 2.0], dtype=dtypes.float16).multinomial().tolist() == [1]
    assert Tensor([[0.0, 2.0]]).multinomial().tolist() == [[1]]


def test_dropout_scales_the_kept_elements() -> None:
    x = Tensor.ones(COUNT)
    assert x.dropout(0.3) is x
    with Tensor.train():
        found = x.dropout(0.25).numpy()
        assert x.dropout(1.0).numpy().max() == 0
        with pytest.raises(ValueError, match="p=2 is not within"):
            x.dropout(2)
    assert abs((found == 0).mean() - 0.25) < 0.02
    np.testing.assert_allclose(found[found != 0], 1 / 0.75, rtol=1e-6)


@pytest.mark.parametrize("device", [nth(0), nth(1), device_names(2)])
def test_a_dropout_of_everything_is_zero_with_a_gradient_of_zero(device: Any) -> None:
    x = Tensor([[1.0, np.inf, np.nan]] * 2).to(device).requires_grad_()
    with Tensor.train():
        y = x.dropout(1.0)
        (gradient,) = y.sum().gradient(x)
    np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3)))
    np.testing.assert_array_equal(gradient.numpy(), np.zeros((2, 3)))
    assert y.device == gradient.device == x.device


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


def test_lazy_numbers_keep_their_values_and_gradient_when_the_sequence_restarts() -> None:
    draw = TinyJit(lambda: Tensor.rand(4).realize())
    for _ in range(3):
        draw()
    Tensor.manual_seed(3)
    expected = [Tensor.rand(100).numpy() for _ in range(2)][1] >= 0.5
    Tensor.manual_seed(3)
    Tensor.rand(100)
    x = Tensor.ones(100, requires_grad=True)
    with Tensor.train():
        y = x.dropout(0.5)
    Tensor.manual_seed(4)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), expected * 2)
    np.testing.assert_array_equal(y.numpy(), expected * 2)


# ---- a draw is pure ----


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_realizing_a_random_tensor_computes_that_tensor_alone(place: Any) -> None:
    x, w = Tensor.rand(4, 6, device=place), Tensor.randn(4, 6, device=place)
    y = (x + w) * 2
    before = GlobalCounters.kernel_count
    x.realize()
    assert GlobalCounters.kernel_count - before == (1 if isinstance(place, str) else 2)
    assert not w.uop.is_realized
    assert not y.uop.is_realized
    np.testing.assert_allclose(y.numpy(), (x.numpy() + w.numpy()) * 2, rtol=1e-6)


def test_an_optimizer_computes_its_own_tensors_alone() -> None:
    weight, other = Tensor.rand(4, 6), Tensor.rand(4, 6)
    total = weight.sum() + other.sum()
    before = GlobalCounters.kernel_count
    nn.optim.Adam([weight])
    assert GlobalCounters.kernel_count - before == 3  # the weight, and both means
    assert not other.uop.is_realized
    assert not total.uop.is_realized


def test_draws_of_one_shape_share_their_kernel() -> None:
    Tensor.rand(3, 5).realize()
    before = len(compiled_kernels)
    for _ in range(3):
        Tensor.rand(3, 5).realize()
    Tensor.manual_seed(4)
    Tensor.rand(3, 5).realize()
    assert len(compiled_kernels) == before


def test_numbers_are_the_same_whenever_they_are_computed() -> None:
    Tensor.manual_seed(2)
    expected = [Tensor.rand(4).tolist() for _ in range(3)]
    Tensor.manual_seed(2)
    first, second, third = (Tensor.rand(4) for _ in range(3))
    both = (first + third).numpy()
    Tensor.manual_seed(9)
    assert [x.tolist() for x in (third, second, first)] == expected[::-1]
    np.testing.assert_allclose(both, np.float32(expected[0]) + np.float32(expected[2]), rtol=1e-6)


def test_a_mask_recomputed_in_the_backward_pass_is_the_same() -> None:
    x = Tensor.ones(64, requires_grad=True)
    with Tensor.train():
        y = x.dropout(0.5)
        (y * y).sum().backward()
    y.realize()
    Tensor.manual_seed(8)
    Tensor.rand(64).realize()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * 2 * y.numpy())


# ---- realizations that fail ----


def too_large() -> Tensor:
    """A random tensor that is larger than any memory."""
    return (Tensor.rand(4).expand(1 << 50, 4) + 1).contiguous()


@pytest.mark.slow
def test_a_random_tensor_that_cannot_be_computed_makes_no_other_fail(tmp_path: Path) -> None:
    Tensor.manual_seed(6)
    expected = [Tensor.rand(4).tolist() for _ in range(3)]
    Tensor.manual_seed(6)
    before, failing, after = Tensor.rand(4), too_large(), Tensor.rand(4)
    for _ in range(2):
        with pytest.raises(OutOfMemoryError):
            failing.realize()
    assert not before.uop.is_realized
    assert [x.tolist() for x in (after, before)] == [expected[2], expected[0]]
    Tensor.manual_seed(6)
    with pytest.raises(OutOfMemoryError):
        failing.realize()
    with pytest.raises(FileError):
        Tensor.rand(4).to(f"disk:{tmp_path}/no folder/file")
    assert Tensor.rand(4).tolist() == expected[1]
    assert Tensor.rand(4).to(f"disk:{tmp_path}/file").to(None).tolist() == expected[2]


# ---- captured functions ----


def test_values_drawn_in_the_captured_call_outlive_its_replays() -> None:
    kept = []

    def draw() -> Tensor:
        noise = Tensor.rand(4)
        kept.append(noise * 2)
        return (noise + 1).realize()

    step = TinyJit(draw)
    step()
    expected = (step().numpy() - 1) * 2
    for _ in range(3):
        step()
    np.testing.assert_allclose(kept[1].numpy(), expected, atol=1e-6)


def draws_between(step: Callable[[], list[Tensor]], place: Any) -> list[Tensor]:
    found = []
    for i in range(6):
        found += [Tensor.rand(i + 1), *step(), Tensor.randn(2, device=place)]
        found = [Tensor(x.numpy()) for x in found]
    return found


def lazy_draws_between(step: Callable[[], list[Tensor]], place: Any) -> list[Tensor]:
    found = []
    for i in range(6):
        found.append(Tensor.rand(i + 1, device=place))
        found += [Tensor(x.numpy()) for x in step()]
    return found


def seeds_between(step: Callable[[], list[Tensor]], place: Any) -> list[Tensor]:
    found = []
    for i in range(8):
        if i % 3 == 2:
            Tensor.manual_seed(i % 2)
        found += [Tensor(x.numpy()) for x in step()]
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("program", [draws_between, lazy_draws_between, seeds_between])
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_replays_draw_the_numbers_of_the_function(
    program: Callable[[Callable[[], list[Tensor]], Any], list[Tensor]], place: Any
) -> None:
    offset = Tensor.ones(4, 6).to(place).realize()

    def draw() -> list[Tensor]:
        Tensor.rand(7)
        noise = offset + Tensor.randn(4, 6, device=place)
        return [(noise * inner(2)).realize(), Tensor.rand(3, device=nth(1)).add(0).realize()]

    @TinyJit
    def inner(factor: int) -> Tensor:
        return (Tensor.rand(4, 6, device=place) * factor).realize()

    runs = []
    for step in (draw, TinyJit(draw)):
        inner.reset()
        Tensor.manual_seed(5)
        runs.append([x.numpy() for x in program(step, place)])
    for expected, found in zip(*runs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_replays_of_two_functions_share_the_sequence() -> None:
    def draw() -> Tensor:
        return Tensor.rand(4).add(1).realize()

    def draw_twice() -> Tensor:
        return (Tensor.randn(2, 3) + Tensor.rand(2, 3)).realize()

    runs = []
    for wrap in (lambda function: function, TinyJit):
        Tensor.manual_seed(5)
        one, other = wrap(draw), wrap(draw_twice)
        runs.append([x().numpy() for _ in range(5) for x in (one, other, one)])
    for expected, found in zip(*runs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_replay_fills_the_memory_of_its_draws_by_one_copy_a_device() -> None:
    @TinyJit
    def draw() -> Tensor:
        return (Tensor.rand(4) + Tensor.randn(4) + Tensor.rand(4)).realize()

    for _ in range(3):
        draw()
    with mock.patch.object(Buffer, "copyin", autospec=True) as copyin:
        draw()
    assert copyin.call_count == 1


def test_draws_of_other_threads_are_no_part_of_a_capture() -> None:
    is_disturbed = [False]

    def draw() -> Tensor:
        first = Tensor.rand(4)
        if is_disturbed[0]:
            other = threading.Thread(target=lambda: Tensor.rand(100).realize())
            other.start()
            other.join()
        return (first + Tensor.rand(4)).realize()

    step = TinyJit(draw)
    step()
    is_disturbed[0] = True
    step()
    is_disturbed[0] = False
    runs = []
    for function in (draw, step):
        Tensor.manual_seed(5)
        runs.append([function().numpy() for _ in range(3)])
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-6)


def test_a_failing_replay_draws_nothing() -> None:
    step = TinyJit(lambda x: (x + Tensor.rand(4)).realize())
    for _ in range(3):
        step(Tensor.ones(4))
    Tensor.manual_seed(5)
    expected = Tensor.rand(4).tolist()
    Tensor.manual_seed(5)
    with pytest.raises(JitError):
        step(Tensor.ones(2, 4))
    assert Tensor.rand(4).tolist() == expected


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "range": (lambda: Tensor.randint(3, high=300, dtype=dtypes.uint8), "0 to 299 is not within"),
    "rank": (lambda: Tensor.ones(1, 1, 1).multinomial(), r"1 samples of shape \(1, 1, 1\)"),
    "no samples": (lambda: Tensor.ones(3).multinomial(0), "0 samples.*one sample or more"),
    "too many": (lambda: Tensor.ones(3).multinomial(4), "4 samples of 3.*replacement=True"),
    "negative": (lambda: Tensor.randperm(-1), "-1 is not a size"),
    "no axis": (Tensor.glorot_uniform, r"with axes.*\(\)"),
    "chance": (lambda: Tensor.ones(3).dropout(-0.1), "p=-0.1 is not within 0 to 1"),
    "deviation": (lambda: Tensor.normal(3, std=-1.0), "std=-1.0 must be nonnegative"),
    "deviation of nan": (lambda: Tensor.normal(3, std=math.nan), "std=nan must be nonnegative"),
    "normal": (lambda: Tensor.rand(2, dtype=dtypes.bool), "rand returns floats, not dtypes.bool"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_errors_name_distributions_that_cannot_be_drawn(name: str) -> None:
    function, text = UNFIT[name]
    with pytest.raises(ValueError, match=text):
        function()


def test_errors_name_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="use randint"):
        Tensor.rand(3, dtype=dtypes.int32)
    with pytest.raises(TypeError, match="randint takes integers"):
        Tensor.randint(3, low=0.5, high=3)
    with pytest.raises(ValueError, match="no integer from 3"):
        Tensor.randint(3, low=3, high=3)
