"""Regression tests: programs that `test.fuzz_sharding` found to differ from one device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth
from test.sharding.common import (
    DEVICES,
    GRID,
    REPLICATED,
    TWO,
    assert_same_as_on_one_device,
    integers,
    moved,
    on,
    placed,
)
from tinygrad import Tensor, Variable, dtypes
from tinygrad.device import Sharding


@pytest.mark.parametrize("layout", [on(1), on((0, 1), GRID), on((1, 1), GRID)], ids=str)
@pytest.mark.parametrize("size", [6, 8, 9])
def test_bitcast_to_another_size_along_a_sharded_axis(size: int, layout: Sharding) -> None:
    """Blocks of bytes and bytes of blocks differ if either do not divide evenly."""
    numbers = integers(3, size).astype(np.int32)
    assert_same_as_on_one_device(lambda x: x.bitcast(dtypes.uint8), [numbers], [layout])
    letters = np.arange(3 * 4 * size, dtype=np.uint8).reshape(3, 4 * size)
    assert_same_as_on_one_device(lambda x: x.bitcast(dtypes.int), [letters], [layout])


@pytest.mark.parametrize("layout", [on(0), on(0, devices=DEVICES[:3])], ids=str)
def test_scatter_along_another_axis_than_the_sharded_one_moves_nothing(layout: Sharding) -> None:
    """Positions in a flattened tensor would need communication."""
    x, source = placed(integers(8, 3), layout), placed(integers(8, 2, seed=1), layout)
    places = np.array([[0, 2], [2, 2], [1, 0], [0, 0], [2, 1], [1, 1], [0, 1], [2, 0]], np.int32)
    index = placed(places, layout)
    assert not moved(x.scatter(1, index, source))
    assert not moved(x.scatter(1, index, 2))
    for kind in ("sum", "prod", "mean", "amax", "amin"):
        assert not moved(x.scatter_reduce(1, index, source, kind, include_self=False))


@pytest.mark.parametrize("shape", [(0, 12), (8, 0)], ids=str)
def test_layouts_of_arrays_without_elements(shape: tuple[int, int]) -> None:
    layouts = [on(0), on(1), on((0, 1), GRID), on(0, devices=DEVICES[:3]), REPLICATED]
    for source, target in itertools.permutations(layouts, 2):
        x = placed(integers(*shape), source)
        if source.devices == target.devices:
            assert not moved(x.to(target).contiguous())
        found = (x.to(target) + 1).realize()
        assert found.device == target
        assert found.numpy().shape == shape


def test_float64_is_interpolated_in_float64() -> None:
    """Along a sharded axis, positions have another origin, and round differently."""
    assert_same_as_on_one_device(
        lambda x: x.interpolate((10,)),
        [integers(3, 6).astype(np.float64)],
        [on(1, devices=TWO)],
        rtol=1e-14,
        atol=1e-14,
    )


def test_one_axis_is_gathered_while_another_exchanges_halos() -> None:
    x, w = integers(3, 4, 3, 4), integers(3, 4, 2, 1)
    layout = Sharding(device_names(8), (2, 3), (4, 2))
    assert_same_as_on_one_device(
        lambda x, w: x.conv2d(w, stride=3, dilation=2, padding=(0, 1)),
        [x, w],
        [layout, layout.replicated()],
    )


@pytest.mark.slow
def test_every_kernel_interpolates_between_the_same_elements() -> None:
    """Float positions that another kernel rounded differently selected the previous element."""
    assert_same_as_on_one_device(
        lambda x: x.interpolate((5, 10, 7)), [integers(2, 2, 3, 3).astype(np.float64)], [on(3)]
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_halos_of_an_array_that_is_still_on_the_host(axis: int) -> None:
    """The blocks are stored, not the halo that one of two users needs."""
    numbers = integers(8, 9)
    x = Tensor(numbers).to(on(axis, devices=TWO)).roll(3, axis)
    np.testing.assert_array_equal(x.numpy(), np.roll(numbers, 3, axis))


@pytest.mark.parametrize("away", [nth(1), on(None), on(0, devices=DEVICES[:3])], ids=str)
@pytest.mark.parametrize("home", [DEVICE, on(0)], ids=str)
def test_a_round_trip_to_other_devices_has_its_own_memory(home: Any, away: Any) -> None:
    x = placed(integers(8), home)
    x.assign(10 - x)
    back, later = x.to(away).to(home).realize(), x.to(away).to(home)
    x.assign(x * 2).realize()
    stored = x.to(away).to(home).contiguous().realize()
    x.assign(x * 2).realize()
    for found in (back, later, stored * 0.5, x * 0.25):
        np.testing.assert_array_equal(found.numpy(), 10 - integers(8))


@pytest.mark.parametrize(("size", "padded"), [(8, 16), (9, 18), (5, 7)])
def test_an_axis_with_padding_is_sharded_into_more_blocks(size: int, padded: int) -> None:
    """Blocks of the same size as before, on other devices."""
    six = device_names(6)
    x = placed(integers(size), Sharding(six, (0, None), (3, 2)))
    found = x.pad(((0, padded - size),)).to(Sharding(six, 0))
    np.testing.assert_array_equal(found.numpy(), np.pad(integers(size), (0, padded - size)))


@pytest.mark.slow
def test_singular_values_of_a_matrix_on_several_devices() -> None:
    for layout in (REPLICATED, on(0), on(1)):
        x = placed(integers(4, 3).astype(np.float64), layout)
        left, values, right = x.svd(full_matrices=False)
        np.testing.assert_allclose((left * values @ right).numpy(), integers(4, 3), atol=1e-12)


def test_halos_for_the_blocks_of_another_mesh() -> None:
    six = device_names(6)
    layouts = [Sharding(six, (1, 2), (2, 3)), Sharding(six, 1)]
    numbers = [integers(2, 8, 8, seed=i).astype(np.float32) for i in range(2)]
    assert_same_as_on_one_device(lambda x, y: x.half().cat(y, x, dim=1), numbers, layouts)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("count", [2, 3])
def test_halos_of_constants_are_placed(count: int, axis: int) -> None:
    layout = on(axis, devices=DEVICES[:count])
    padding = ((1, 1), (0, 2))
    x = Tensor.arange(15, device=layout).reshape(3, 5)
    whole = np.pad(np.arange(15).reshape(3, 5), padding)
    for found, expected in (
        (x.pad(padding), whole),
        (x.pad(padding).sum(), whole.sum()),
        (x.pad(padding).flip(axis)[1:], np.flip(whole, axis)[1:]),
    ):
        device = found.device
        np.testing.assert_array_equal(found.realize().numpy(), expected)
        assert found.device == device


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_flip_that_was_realized_is_read_by_other_halo_exchanges(count: int) -> None:
    """Not from what its own exchange sent, which lacks elements."""
    x = placed(integers(5), on(0, devices=DEVICES[:count]))
    flipped = x.flip(0)
    padded, moved_on = flipped.pad(((1, 1),)), flipped[1:] + 1
    flipped.realize()
    np.testing.assert_array_equal(padded.numpy(), np.pad(integers(5)[::-1], 1))
    np.testing.assert_array_equal(moved_on.numpy(), integers(5)[::-1][1:] + 1)


@pytest.mark.parametrize(("size", "count"), [(3, 3), (4, 2), (5, 4)])
def test_a_write_to_some_rows_of_a_sharded_axis_leaves_the_others(size: int, count: int) -> None:
    """The shards of the new rows are not those of the rows that they go to."""
    layout = on(0, devices=DEVICES[:count])
    for start, end in ((0, size - 1), (1, size), (1, size - 1)):
        x, expected = placed(integers(size, 2), layout), integers(size, 2)
        x[start:end] += 1
        expected[start:end] += 1
        np.testing.assert_array_equal(x.numpy(), expected)
        x[start:end] = placed(integers(end - start, 2, seed=1), layout)
        expected[start:end] = integers(end - start, 2, seed=1)
        np.testing.assert_array_equal(x.numpy(), expected)


def test_a_row_at_a_position_of_fewer_rows_than_devices() -> None:
    """Its columns are sharded if it is gathered."""
    x = placed(integers(2, 5), on(0))
    row = Variable("row", 0, 1).bind(1)
    found = x.reshape(2, 5, 1)[row : row + 1] * 2
    np.testing.assert_array_equal(found.numpy(), integers(2, 5)[1:].reshape(1, 5, 1) * 2)


def test_indices_on_more_devices_than_there_are() -> None:
    """A device without an index of its own takes none of another's."""
    eight = device_names(8)
    x, rows, columns = integers(2, 2, 5), np.array([0, 1, 1]), np.array([4, 0, 2])
    sharded = (
        placed(rows, Sharding(eight, (None, 0), (2, 4))),
        placed(columns, Sharding(eight, 0)),
    )
    found = placed(x, Sharding(eight))[sharded[0], :, sharded[1]]
    np.testing.assert_array_equal(found.numpy(), x[rows, :, columns])


@pytest.mark.parametrize("count", [2, 4])
def test_a_second_gradient_of_a_product_along_a_sharded_axis(count: int) -> None:
    """The tree of products has other layouts than the product."""
    x, w = integers(2, 4) % 5 + 1, integers(2, seed=1)
    values = placed(x, on(1, devices=DEVICES[:count])).requires_grad_()
    weights = placed(w, on(None, devices=DEVICES[:count])).requires_grad_()
    (first,) = (values.prod(1) * weights).sum().gradient(values)
    (second,) = first.sum().gradient(weights)
    np.testing.assert_array_equal(second.numpy(), (x.prod(1, keepdims=True) / x).sum(1))


def test_one_element_of_an_axis_that_goes_to_another_sharded_axis() -> None:
    """What each device selected is not sharded along the axis, whose size is then 1."""
    x, rows = integers(5, 3, 7, 2), np.array([[6, 0], [3, 3]], np.int32).reshape(1, 1, 2, 2)
    two = DEVICES[:2]
    found = placed(x, on(1, devices=two)).gather(2, placed(rows, on(3, devices=two)))
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(x[:1, :1], rows, 2))


def test_every_third_row_of_a_sharded_constant_is_read() -> None:
    rows = Tensor.ones(4, 2, device=on(0, devices=DEVICES[:2]))[0:4:3]
    assert rows.tolist() == [[1.0, 1.0]] * 2
