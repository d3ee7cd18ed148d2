"""Indexing sharded tensors by tensors: each device gathers from and scatters to its own shard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from test.devices import nth
from test.sharding.common import (
    DEVICES,
    GRID,
    Array,
    array,
    assert_same_as_on_one_device,
    moved,
    on,
    placed,
)
from test.together import CommTrace
from tinygrad import Tensor
from tinygrad.device import Sharding
from tinygrad.mixin.indexing.index_axes import enumerated_axis

THREE = DEVICES[:3]
ROWS = [on(0), on(0, devices=THREE), on((0, None), GRID)]


def numbers(most: int, *shape: int) -> Array:
    return np.random.default_rng(1).integers(0, most, shape).astype(np.int32)


GATHERS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "one of each row": (lambda x, i: x[Tensor.arange(8), i[:, 0, 0]], (8, 6)),
    "counted where x is": (lambda x, i: x[Tensor.arange(8, device=x.device), i[:, 0, 0]], (8, 6)),
    "an axis between": (lambda x, i: x[Tensor.arange(8), :, i[:, 0, 0]], (8, 2, 6)),
    "of two axes": (lambda x, i: x[Tensor.arange(8), i[:, 0, 0], i[:, 1, 0]], (8, 6, 6, 2)),
    "two counted": (
        lambda x, i: x[Tensor.arange(8).unsqueeze(1), Tensor.arange(3), i[:, :, 0]],
        (8, 3, 6),
    ),
    "counted last": (lambda x, i: x[i[:, 0, 0], Tensor.arange(8)], (6, 8)),
    "a diagonal": (lambda x, i: x[Tensor.arange(8), Tensor.arange(8)], (8, 8)),
    "gather": (lambda x, i: x.gather(1, i[:, :, 0]), (8, 6)),
    "gather last axis": (lambda x, i: x.gather(0, i[:, :, 0].T), (6, 8)),
    "cross-entropy": (
        lambda x, i: x.sparse_categorical_crossentropy(i[:, 0, 0], reduction="none"),
        (8, 6),
    ),
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", GATHERS)
def test_gather_within_sharded_rows_moves_nothing(name: str) -> None:
    program, shape = GATHERS[name]
    where = shape.index(8)
    for layout in (on(where), on(where, devices=THREE), on((where, None), GRID)):
        index = placed(
            numbers(6, 8, 3, 1), layout.with_axes([0 if p is not None else p for p in layout.axes])
        )
        for places in (index, placed(index.numpy(), layout.replicated())):
            x = placed(array(*shape), layout)
            out = program(x, places)
            weight = placed(array(*out.shape, seed=2), layout.replicated())
            gradients = (out * weight).sum().gradient(x)
            assert moved(out, *gradients) == {}
            assert gradients[0].device is layout
    assert_same_as_on_one_device(
        program,
        [array(*shape), numbers(6, 8, 3, 1)],
        [on(where, devices=THREE), on(0, devices=THREE)],
    )


def test_an_arange_of_any_length_is_recognised_as_an_enumeration() -> None:
    for count in ("8", "1000"):
        # large numbers that are equal may be two objects
        assert enumerated_axis(Tensor.arange(int(count)).reshape(1, int(count), 1).uop) == 1
    assert enumerated_axis((Tensor.arange(8) + 1).uop) is None


@pytest.mark.parametrize("layout", ROWS, ids=str)
def test_scatter_within_sharded_rows_moves_nothing(layout: Sharding) -> None:
    value, places, new = array(8, 4, 6), numbers(6, 8), array(8, 4, seed=1)
    expected = value.copy()
    expected[np.arange(8), :, places] = new
    x, index, v = (placed(a, layout).requires_grad_(False) for a in (value, places, new))

    with CommTrace() as trace:
        x[Tensor.arange(8), :, index] = v
    assert trace.kinds() == {}
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", [*ROWS, on((0, 1), GRID)], ids=str)
@pytest.mark.parametrize("stride", [2, 1])
def test_unpooling_in_a_sharded_batch_or_channel_moves_nothing(
    stride: int, layout: Sharding
) -> None:
    pooled = Tensor(array(8, 4, 4, 4)).max_pool2d(2, stride, return_indices=True)
    values, places = (x.numpy() for x in pooled)
    x, index = placed(values, layout), placed(places, layout)
    out = x.max_unpool2d(index, 2, stride)
    weight = placed(array(*out.shape, seed=1), layout)
    assert moved(out, *(out * weight).sum().gradient(x)) == {}
    assert out.device is layout
    assert_same_as_on_one_device(
        lambda x, i: x.max_unpool2d(i, 2, stride), [values, places], [layout, layout]
    )


def test_gather_in_a_layout_of_one_device() -> None:
    x, index = array(8, 6), numbers(6, 8)
    alone = Sharding((nth(1),))
    found = placed(x, alone)[:, placed(index, alone)]
    np.testing.assert_array_equal(found.numpy(), x[:, index])


@pytest.mark.slow
def test_gather_along_a_sharded_axis_moves_partial_sums_or_the_table() -> None:
    """Small partial sums are reduced; otherwise the table is unsharded."""
    # two rows from each device to the three others, or quarters of the eight of the table
    few, many = {"all_reduce": 4 * 3 * 2 * 12 * 4}, {"all_to_all": 8 * 12 * 4 * 3 // 4}
    for rows, kinds in ((2, few), (8, many)):
        x, index = placed(array(8, 12), on(0)), placed(numbers(8, rows, 12), on(None))
        assert moved(x.gather(0, index)) == kinds
    for layout in (on(0), on((0, 1), GRID), on((0, None), GRID), on(0, devices=THREE)):
        for places in (layout, layout.replicated()):
            arrays = [array(8, 12), numbers(8, 8, 12)]
            assert_same_as_on_one_device(lambda x, i: x.gather(0, i), arrays, [layout, places])


def test_a_scatter_of_values_on_all_devices_moves_the_index_if_it_is_smaller() -> None:
    """The index of a few rows is all-gathered; of many, the partial results are all-reduced."""
    # int32 numbers, or the last writer of each row on a device, to the three others
    few, many = {"all_gather": 4 * 4 * 3}, {"all_reduce": 4 * 3 * 96 * 4}
    for count, kinds in ((4, few), (400, many)):
        arrays = [array(96, 2), numbers(96, count)]

        def written(x: Tensor, rows: Tensor) -> Tensor:
            x = x.clone()
            x[rows] = -3
            return x

        layouts = [on(None), on(0)]
        assert moved(written(placed(arrays[0], on(None)), placed(arrays[1], on(0)))) == kinds
        assert_same_as_on_one_device(written, arrays, layouts)
    # the partial results of both dimensions of a mesh are one layout
    index, weight = placed(numbers(9, 4, 4), on((1, 0), GRID)), placed(array(9, 2), on(None))
    (gradient,) = weight[index].sum().gradient(weight)
    assert moved(gradient) == {"all_gather": 16 * 4 * 3}
    np.testing.assert_array_equal(
        gradient.numpy()[:, 0], np.bincount(index.numpy().ravel(), minlength=9)
    )


def test_the_gradient_of_few_rows_of_a_table_moves_these_rows_and_not_the_table() -> None:
    """The rows of 8 positions and their numbers, from each of four devices to the others."""
    value, places, weight = array(96, 8), numbers(96, 8), array(8, 8, seed=1)
    expected = np.zeros_like(value)
    np.add.at(expected, places, weight)
    rows, ids = 3 * weight.nbytes, 3 * places.nbytes
    for layout, kinds in (
        (on(None), {"all_gather": rows + ids}),
        # each device needs the gradients of all rows of its shard, or its columns of all rows
        (on(0), {"all_gather": rows + ids}),
        (on(1), {"all_to_all": rows // 4, "all_gather": ids}),
    ):
        table, index = placed(value, layout), placed(places, on(0))
        looked_up = table.to(on(None))[index]
        (gradient,) = (looked_up * placed(weight, on(0))).sum().gradient(table)
        assert gradient.device is layout
        assert moved(gradient) == kinds
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6)
    # a table that is an operand of a product too has one gradient, which is all-reduced
    table, x = placed(value, on(None)), placed(array(8, 8, seed=2), on(0))
    loss = (table[placed(places, on(0))] * placed(weight, on(0))).sum() + (x @ table.T).sum()
    (gradient,) = loss.gradient(table)
    assert moved(gradient) == {"all_reduce": 4 * 3 * value.nbytes}
    expected = expected + array(8, 8, seed=2).sum(0)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_a_padded_mask_of_what_a_sharded_index_writes_is_gathered_with_its_padding() -> None:
    devices = THREE[:2]
    layouts = [on(None, devices=devices), on(0, devices=devices), on(None, devices=devices)]
    arrays = [array(8, 2), numbers(2, 6, 2), array(6, 2, seed=1)]
    assert_same_as_on_one_device(lambda x, i, v: x.scatter(1, i, v), arrays, layouts)
