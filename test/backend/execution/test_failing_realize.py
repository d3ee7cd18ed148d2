"""Realizations that fail: what ran is kept, nothing runs twice, other tensors are unaffected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth
from tinygrad import Device, Sharding, Tensor, TinyJit
from tinygrad.device import DeviceError, OutOfMemoryError
from tinygrad.execution.realize import BufferCopy, ExecItem

DEVICES: list[Any] = [DEVICE, device_names(2)]


def stored(value: float, device: Any = DEVICE) -> Tensor:
    return Tensor(np.full(4, value, np.float32)).to(device).realize()


def too_large(x: Tensor) -> Tensor:
    """A tensor of `x` that is larger than any memory."""
    return (x.reshape(1, *x.shape).expand(1 << 50, *x.shape) + 1).contiguous()


@contextmanager
def interrupted_after(count: int) -> Iterator[None]:
    """In the block, `count` items run, and the next one is interrupted."""
    ran = 0

    def run(item: ExecItem | BufferCopy, *args: Any) -> Any:
        nonlocal ran
        if ran == count:
            raise KeyboardInterrupt
        ran += 1
        return runs[type(item)](item, *args)

    runs = {kind: kind.run for kind in (ExecItem, BufferCopy)}
    with mock.patch.object(ExecItem, "run", run), mock.patch.object(BufferCopy, "run", run):
        yield


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_an_assignment_runs_once_if_another_tensor_fails(device: Any) -> None:
    count = stored(0, device)
    for step in range(1, 4):
        count.assign(count + 1)
        with pytest.raises(OutOfMemoryError):
            Tensor.realize(count, too_large(stored(1)))
        assert count.tolist() == [step] * 4


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_an_assignment_runs_once_if_a_value_that_reads_it_fails(device: Any) -> None:
    count = stored(0, device)
    count.assign(count + 1)
    failing = too_large(count * 3)
    for _ in range(2):
        with pytest.raises(OutOfMemoryError):
            failing.realize()
    assert count.tolist() == [1] * 4


@pytest.mark.parametrize("ran", range(5))
def test_an_interrupted_realize_can_be_repeated(ran: int) -> None:
    count, mean = stored(0), stored(8, nth(1))
    total = (count + 1).sum()
    count.assign(count + total)
    mean.assign(mean * 0.5 + total.to(nth(1)))
    with interrupted_after(ran), pytest.raises(KeyboardInterrupt):
        Tensor.realize(count, mean, too_large(mean))
    assert count.tolist() == [4] * 4
    assert mean.tolist() == [8] * 4
    assert total.item() == 4


def test_what_was_computed_before_the_failure_is_kept() -> None:
    first, second = stored(1) + 1, stored(2).sum()
    with pytest.raises(OutOfMemoryError):
        Tensor.realize(first, second, too_large(stored(3)))
    assert first.uop.is_realized
    assert second.uop.is_realized


def test_a_value_that_cannot_be_computed_prevents_no_assignment() -> None:
    x, y = stored(1), stored(2)
    failing = too_large(x)
    built_on_it = failing.sum(0) + y
    view = y.reshape(2, 2)
    waiting = y * 10
    for _ in range(2):
        with pytest.raises(OutOfMemoryError):
            failing.realize()
        y.assign(y + 1)
        assert (y * 2 + x).tolist() == [y.tolist()[0] * 2 + 1] * 4
    assert view.tolist() == [[4, 4], [4, 4]]
    assert waiting.tolist() == [20] * 4
    assert not built_on_it.uop.is_realized


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("build", [lambda x: x.sum(), lambda x: x[1:3] * 3])
def test_a_value_that_cannot_be_computed_now_keeps_what_it_reads(
    device: Any, build: Callable[[Tensor], Tensor]
) -> None:
    x = stored(1, device)
    moved = build(x).to(nth(2))
    x.assign(x + 5)
    with mock.patch.object(BufferCopy, "run", side_effect=OSError):
        x.realize()
        assert x.uop.is_realized
        with pytest.raises(OSError):
            moved.realize()
    assert x.tolist() == [6] * 4
    np.testing.assert_array_equal(moved.numpy(), build(stored(1)).numpy())


def test_values_that_wait_for_each_other_keep_what_they_read() -> None:
    array = np.arange(14, dtype=np.float32).reshape(7, 2)
    x = Tensor(array).shard(device_names(2), axis=0).realize()
    y = x.neg().neg()
    x += 1
    # without this pass, no order of kernels is right
    with mock.patch("tinygrad.schedule.pipeline.preserve_overwritten", lambda sink: sink):
        y[1] += x[1]
    expected = array.copy()
    expected[1] += array[1] + 1
    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_array_equal(x.numpy(), array + 1)


def test_a_value_that_was_not_computed_before_its_source_was_overwritten_is_lost() -> None:
    x = stored(1)
    moved = (x + 1).to(nth(2))
    built_on_it, other = moved * 2, stored(3) * 2
    x.assign(x + 5)
    with mock.patch.object(BufferCopy, "run", side_effect=OSError), pytest.raises(OSError):
        # one kernel computes both values, and then the message fails
        x.realize()
    assert x.tolist() == [6] * 4
    for _ in range(2):
        with pytest.raises(DeviceError, match="is lost.*build it again"):
            built_on_it.tolist()
        with pytest.raises(DeviceError, match="is lost.*build it again"):
            (moved + 1).realize()
    assert other.tolist() == [6] * 4


def test_a_function_that_failed_while_it_was_captured_is_captured_later() -> None:
    count, fails = stored(0), [False]

    @TinyJit
    def step(x: Tensor) -> Tensor:
        count.assign(count + x)
        others = [too_large(x)] if fails[0] else []
        Tensor.realize(count, *others)
        return (count + Tensor.rand(4) * 0).realize()

    step(stored(1))
    fails[0] = True
    with pytest.raises(OutOfMemoryError):
        step(stored(1))
    fails[0] = False
    assert [step(stored(1)).tolist()[0] for _ in range(4)] == [3, 4, 5, 6]
    assert step.captured is not None


@pytest.mark.parametrize("device", [nth(55), device_names(2, 55), Sharding(device_names(2, 55), 0)])
@pytest.mark.parametrize(
    "make", [lambda: Tensor.ones(2), lambda: Tensor.full((2, 3), 7), lambda: Tensor.arange(2)]
)
def test_a_constant_on_a_device_that_cannot_be_opened_is_an_error(
    make: Callable[[], Tensor], device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> Any:
        raise DeviceError(f"{name} has no driver")

    monkeypatch.setattr(Device, "_open_device", fail)
    for read in (Tensor.realize, Tensor.numpy) if isinstance(device, str) else (Tensor.realize,):
        with pytest.raises(DeviceError, match="has no driver"):
            read(make().to(device))
