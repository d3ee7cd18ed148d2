"""Views: a view sees every write to its base, and a write to a view is seen by the base.

The same holds however the base was made, whether it was computed or not, and on any devices. The
reference is a numpy array and its views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth
from tinygrad import GlobalCounters, Sharding, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.execution.realize import compiled_kernels
from tinygrad.sharding import ShardingError

TWO = device_names(2)
FOUR = device_names(4)
PLACES: dict[str, Any] = {
    "one device": DEVICE,
    "replicated": Sharding(TWO),
    "rows": Sharding(TWO, 0),
    "columns": Sharding(TWO, 1),
    "uneven rows": Sharding(FOUR, 0),
}
VALUES = np.arange(1, 25, dtype=np.float32).reshape(6, 4)

MAKERS: dict[str, Callable[[Any], Tensor]] = {
    "numbers": lambda place: Tensor(VALUES, device=place),
    "stored": lambda place: Tensor(VALUES, device=place).realize(),
    "computed": lambda place: Tensor(VALUES - 1, device=place) + 1,
    "constants": lambda place: Tensor.arange(1, 25).reshape(6, 4).float().to(place),
    "cloned": lambda place: Tensor(VALUES, device=place).clone(),
    "computed and stored": lambda place: (Tensor(VALUES * 2, device=place) / 2).realize(),
}

# how a view is taken, of a tensor and of an array
VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x[:],
    "a row": lambda x: x[2],
    "rows": lambda x: x[1:4],
    "columns": lambda x: x[:, 1:3],
    "every other row, backwards": lambda x: x[::-2],
    "every third column": lambda x: x[:, ::3],
    "the last rows, backwards": lambda x: x[:-3:-1],
    "transposed": lambda x: x.T[1:3],
    "reshaped": lambda x: x.reshape(8, 3)[::2, 1:],
    "a row of a slice of columns": lambda x: x[:, 1:3].T[0, 2:5],
    "with a new axis": lambda x: x[3:, None, :2],
}


def array_and_tensor(maker: str, place: str) -> tuple[Any, Tensor]:
    return VALUES.copy(), MAKERS[maker](PLACES[place])


def check(x: Tensor, expected: Any) -> None:
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.sample(72)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("place", PLACES)
def test_writes_are_seen_both_ways(view: str, maker: str, place: str) -> None:
    array, x = array_and_tensor(maker, place)
    part, expected = VIEWS[view](x), VIEWS[view](array)
    other, other_expected = x[1:5], array[1:5]
    doubled = x * 2
    x += 1
    array += 1
    check(part, expected)
    part *= 3
    expected *= 3
    check(x, array)
    check(other, other_expected)
    part.assign(part + 5)
    expected += 5
    other[0] = 7
    other_expected[0] = 7
    check(part, expected)
    check(x, array)
    check(doubled, VALUES * 2)


@pytest.mark.sample(24)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("place", PLACES)
def test_elements_are_written_in_place(view: str, place: str) -> None:
    for maker in ("stored", "constants"):
        array, x = array_and_tensor(maker, place)
        before = x + 0
        VIEWS[view](x)[...] = 0
        VIEWS[view](array)[...] = 0
        x[::-2, 1:] += 2
        array[::-2, 1:] += 2
        check(x, array)
        check(before, VALUES)


@pytest.mark.parametrize("maker", MAKERS)
def test_new_values_are_no_views(maker: str) -> None:
    for make in (
        lambda x: x.clone(),
        lambda x: x.contiguous(),
        lambda x: x.repeat(1, 2),
        lambda x: x.pad((1, 1)),
        lambda x: x[[0, 2]],
        lambda x: x + 0,
        lambda x: x.cat(x),
        lambda x: x.roll(1, 0),
    ):
        x = MAKERS[maker](DEVICE)
        new, before = make(x), make(Tensor(VALUES)).numpy()
        x += 1
        check(new, before)
        new += 1
        check(x, VALUES + 1)
        check(new, before + 1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("place", PLACES)
def test_the_value_written_may_read_the_same_memory(maker: str, place: str) -> None:
    array, x = array_and_tensor(maker, place)
    x[1:5] = x[0:4]
    array[1:5] = array[0:4].copy()
    check(x, array)
    head, tail = x[:3], x[3:]
    old = head + 0
    head.assign(tail)
    tail.assign(old)
    del old
    check(x, np.concatenate([array[3:], array[:3]]))
    # a view that takes the elements of its own base
    array, flipped = x.numpy(), x.flip(0)
    flipped.assign(x)
    check(x, array[::-1])
    check(flipped, array)
    flipped[:] = x
    check(x, array)
    square = x[:4]
    square.T[:] = square
    check(x, np.concatenate([array[:4].T, array[4:]]))


@pytest.mark.parametrize("part", [1, slice(None)], ids=["a row", "all"])
@pytest.mark.parametrize("place", PLACES)
def test_a_write_may_read_other_memory_before_and_after_a_write(place: str, part: Any) -> None:
    # a lazy value that is equal to the stored one
    x = MAKERS["stored"](PLACES[place])
    y = x.neg().neg()
    x += 1
    y[part] += x[1] * 2
    expected = VALUES.copy()
    expected[part] += (VALUES[1] + 1) * 2
    check(y, expected)
    check(x, VALUES + 1)


@pytest.mark.slow
def test_elements_of_memory_are_written_without_a_new_value_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("tinygrad.storage.assignment.updated_whole")
    array, x = VALUES.copy(), Tensor(VALUES).realize()
    same = Tensor(VALUES).realize()
    memory, view, lazy = x.uop.buffer, x.T[1:3], x * 2
    flipped, twin = x[::-1, 1:], x + 0
    twin.realize()
    for target, base in ((x, array), (view, array.T[1:3]), (flipped, array[::-1, 1:])):
        target[0] = 7
        base[0] = 7
        target[-1, 1:2] = target[0, 0] * 3
        base[-1, 1:2] = base[0, 0] * 3
        target[1:, None, :1] = target[:-1, None, 1:2]
        base[1:, None, :1] = base[:-1, None, 1:2].copy()
        assert x.uop.buffer is memory
        check(target, base)
    check(x, array)
    check(view, array.T[1:3])
    for other, expected in ((lazy, VALUES * 2), (same, VALUES), (twin, VALUES)):
        check(other, expected)
    GlobalCounters.reset()
    x[2:4, 1] = 0
    assert (GlobalCounters.kernel_count, GlobalCounters.global_mem) == (1, 2 * 4)


def test_writing_other_numbers_and_places_needs_no_other_kernels() -> None:
    for dtype in (dtypes.float, dtypes.bfloat16, dtypes.uint8, dtypes.int64):
        x = Tensor.zeros(16, dtype=dtype).contiguous().realize()
        x[3], x[4:6] = 3, 6
        compiled_kernels.clear()
        for i in range(8, 14):
            x[i] = i
        x[6:8] = 5
        assert not compiled_kernels
        assert x.tolist() == [0, 0, 0, 3, 6, 6, 5, 5, 8, 9, 10, 11, 12, 13, 0, 0]


def test_a_value_may_be_read_from_before_and_after_a_write() -> None:
    x = Tensor([1.0, 2.0]).realize()
    doubled = x * 2
    x += 1
    total = doubled + x
    del doubled
    assert total.tolist() == [4, 7]
    head = x[:1] + 0
    x.assign(x + 1)
    joined = head.cat(x)
    del head
    assert joined.tolist() == [2, 3, 4]


def test_slices_of_several_writes_are_written_in_order() -> None:
    array, x = array_and_tensor("stored", "one device")
    for start in range(4):
        x[start : start + 2].assign(x[start : start + 2] * 2 + start)
        array[start : start + 2] = array[start : start + 2] * 2 + start
    x[::2] -= 1
    array[::2] -= 1
    check(x, array)


@pytest.mark.parametrize("place", ["one device", "rows", "columns"])
def test_a_pending_write_to_a_slice_costs_the_slice(place: str) -> None:
    big = Tensor.zeros(512, 64, device=PLACES[place]).contiguous().realize()
    big[10:12].assign(Tensor.ones(2, 64))
    GlobalCounters.reset()
    Tensor.realize(big)
    # on sharded rows, each device reads and writes as many elements as are written
    assert GlobalCounters.global_mem <= 2 * 2 * 2 * 64 * 4
    np.testing.assert_array_equal(big.numpy().sum(1)[9:13], [0, 64, 64, 0])


@pytest.mark.parametrize("place", ["one device", "rows", "columns"])
def test_slices_of_memory_in_another_order_are_written(place: str) -> None:
    x = Tensor.zeros(6, 4, device=PLACES[place]) + 1
    expected = np.ones((6, 4), np.float32)
    # the memory has the rows from the last to the first
    x.assign(x.flip(0))
    x.realize()
    x /= 2
    x[:-1] += 1
    x[::2] *= 3
    expected /= 2
    expected[:-1] += 1
    expected[::2] *= 3
    check(x, expected)


def test_views_at_a_symbolic_place() -> None:
    place = Variable("place", 0, 4)
    for make in (lambda: Tensor.zeros(6, 2), lambda: Tensor.zeros(6, 2).contiguous().realize()):
        x, expected = make(), np.zeros((6, 2), np.float32)
        for number in (1, 4, 0):
            at = place.bind(number)
            part = x[at : at + 2]
            part += number + 1
            expected[number : number + 2] += number + 1
        check(x, expected)


def test_a_value_at_another_place_of_the_same_variable_is_written() -> None:
    place = Variable("place", 0, 4)
    for x in (Tensor.arange(5).clone(), Tensor.arange(5).realize(), Tensor.arange(5) + 0):
        last = x[place.bind(4)]
        x[place.bind(1) : place.bind(1) + 1] = last
        x[place.bind(0)] = x[place.bind(3)]
        assert x.tolist() == [3, 4, 2, 3, 4]


def test_detached_and_copied_tensors() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    shared, copied = x.detach(), x.clone().detach()
    shared += 1
    assert x.tolist() == [2, 3]
    assert copied.tolist() == [1, 2]
    x.sum().backward()
    assert x.grad is not None


def test_the_bits_of_a_tensor_are_a_view() -> None:
    for x in (Tensor([1.0, 2.0]), Tensor([1.0, 2.0]).realize(), Tensor([0.5, 1.0]) * 2):
        bits = x.bitcast(dtypes.uint32)
        bits |= 1 << 31
        assert x.tolist() == [-1, -2]
        halves = x.bitcast(dtypes.uint16)
        halves[1::2] &= 0x7FFF
        assert x.tolist() == [1, 2]
        x *= 2
        assert bits.bitcast(dtypes.float32).tolist() == [2, 4]


@pytest.mark.parametrize("place", ["one device", "rows"])
def test_lazy_values_of_bits_keep_what_they_were_built_on(place: str) -> None:
    x = Tensor(VALUES, device=PLACES[place]).realize()
    bits = x.bitcast(dtypes.uint16).realize()
    lazy = bits * 1
    x += 1
    x.realize()
    check(lazy, VALUES.view(np.uint16))
    check(bits, (VALUES + 1).view(np.uint16))
    # a tensor, and the bits of equal ones that are no aliases, computed together
    value = (x * 3).contiguous()
    others = [(x * 3).contiguous().bitcast(dtype) for dtype in (dtypes.uint16, dtypes.uint8)]
    Tensor.realize(value, *others)
    value += 1
    others[0] += 1
    Tensor.realize(value, others[0])
    expected = (VALUES + 1) * 3
    check(value, expected + 1)
    check(others[0], expected.view(np.uint16) + 1)
    check(others[1], expected.view(np.uint8))


@pytest.mark.parametrize("place", ["one device", "rows", "columns"])
def test_views_see_what_replays_write(place: str) -> None:
    x = Tensor(VALUES, device=PLACES[place]).realize()
    step = TinyJit(lambda: x.assign(x + 1))
    for _ in range(3):
        step()
    views = [x[1:3], x[:, 1:3], x.flip(0), x.T, x.bitcast(dtypes.uint32), x.expand(2, 6, 4)]
    values = [x.repeat(2, 1), x.pad((1, 1)), x.contiguous(), x * 2]
    Tensor.realize(*views)
    before = [value.numpy() for value in values]
    for _ in range(2):
        step()
    final = Tensor(VALUES + 5)
    again = [final[1:3], final[:, 1:3], final.flip(0), final.T, final.bitcast(dtypes.uint32)]
    for view, expected in zip(views, [*again, final.expand(2, 6, 4)], strict=True):
        check(view, expected.numpy())
    for value, expected in zip(values, before, strict=True):
        check(value, expected)


@pytest.mark.parametrize("place", ["one device", "rows"])
def test_the_diagonal_is_a_view(place: str) -> None:
    x = Tensor(VALUES[:4].copy(), device=PLACES[place])
    diagonal = x.diagonal()
    diagonal *= 0
    expected = VALUES[:4] * (1 - np.eye(4, dtype=np.float32))
    check(x, expected)
    x += 1
    check(diagonal, np.ones(4))


def test_iterating_gives_views() -> None:
    x = Tensor([[1, 2], [3, 4]])
    for number, row in enumerate(x):
        row += number
    assert x.tolist() == [[1, 2], [4, 5]]


def test_an_expanded_view_sees_writes_and_cannot_be_written() -> None:
    x = Tensor([1, 2]).realize()
    wide = x.expand(3, 2)
    x += 1
    assert wide.tolist() == [[2, 3]] * 3
    with pytest.raises(RuntimeError, match=r"expanded to \(3, 2\).*clone"):
        wide += 1
    # one row of it has no repeated element
    row = wide[1]
    row += 1
    assert x.tolist() == [3, 4]
    assert wide.tolist() == [[3, 4]] * 3


def test_a_view_outlives_its_base() -> None:
    for make in (lambda: Tensor([1, 2, 3, 4]).realize(), lambda: Tensor([0, 1, 2, 3]) + 1):
        x = make()
        head, tail = x[:3], x[2:]
        del x
        head += 10
        assert tail.tolist() == [13, 4]
        tail *= 0
        assert head.tolist() == [11, 12, 0]


def test_moving_a_tensor_in_place_leaves_its_views() -> None:
    x = Tensor([1, 2, 3, 4])
    part = x[:2]
    x.to_(nth(1))
    x += 1
    assert part.tolist() == [1, 2]
    assert x.tolist() == [2, 3, 4, 5]


def test_a_replaced_tensor_is_the_other_one() -> None:
    x, y = Tensor([1, 2]).realize(), Tensor([3, 4]).realize()
    part = x[:1]
    x.replace(y)
    x += 1
    assert y.tolist() == [4, 5]
    assert part.tolist() == [1]


def test_a_write_keeps_the_layout() -> None:
    x = Tensor([1.0, 2, 3, 4]).shard(TWO)
    y = Tensor([1.0, 2, 3, 4]).shard(TWO, axis=0)
    x.assign(y * 2)
    assert x.device == Sharding(TWO)
    assert x.tolist() == [2, 4, 6, 8]


def test_shards_are_views_of_lazy_tensors_too() -> None:
    x = Tensor([1, 2, 3, 4]).shard(TWO, axis=0) + 1
    second = x.shards[1]
    second += 10
    assert x.tolist() == [2, 3, 14, 15]
    x -= 1
    assert second.tolist() == [13, 14]
    with pytest.raises(ShardingError, match="replicas"):
        Tensor([1, 2]).shard(TWO).shards[0].assign(Tensor([3, 4]))


# ---- gradients ----


def test_gradients_flow_through_writes_to_views() -> None:
    w = Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = w * 3
    head = y[:2]
    head += 1
    y.square().sum().backward()
    # d(3 w + c)^2 / dw = 6 (3 w + c)
    np.testing.assert_array_equal(w.grad.numpy(), [24, 42, 54, 72])


def test_gradients_of_a_view_scaled_by_another_part() -> None:
    w = Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = w * 3
    head = y[:2]
    head *= w[2:]
    y.square().sum().backward()
    # y = (3 w0 w2, 3 w1 w3, 3 w2, 3 w3)
    np.testing.assert_array_equal(w.grad.numpy(), [162, 576, 108, 360])


def test_a_tensor_requires_a_gradient_after_one_of_its_views_was_given_a_value_that_does() -> None:
    w, x = Tensor([1.0, 2.0, 3.0], requires_grad=True), Tensor.zeros(2, 3).contiguous()
    row, fixed = x[1], x.detach()
    x[0] = w * 2
    assert (x.requires_grad, row.requires_grad, fixed.requires_grad) == (True, True, False)
    x.sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("make", [Tensor.zeros, lambda n: Tensor.zeros(n).contiguous().realize()])
def test_gradients_flow_to_elements_that_are_written(make: Callable[[int], Tensor]) -> None:
    w = Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    x = make(4)
    for i in range(4):
        x[i] = w[i] * i
    x.square().sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * np.arange(4) ** 2 * w.numpy())


def test_a_layer_whose_parameters_are_slices_of_one_tensor() -> None:
    flat = Tensor.arange(12).float().contiguous().realize()
    layer = nn.Linear(3, 3, bias=False)
    layer.weight = flat[3:].reshape(3, 3)
    x = Tensor.eye(3)
    before = layer(x).numpy()
    flat += 1
    np.testing.assert_array_equal(layer(x).numpy(), before + 1)
