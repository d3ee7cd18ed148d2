"""Movement along a sharded axis: values, gradients, and communication of the halos only.

Includes sizes that do not divide evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import device_names, nth
from test.sharding.common import (
    DEVICES,
    GRID,
    REPLICATED,
    Array,
    array,
    assert_same_as_on_one_device,
    integers,
    moved,
    on,
    placed,
)
from tinygrad import Tensor
from tinygrad.device import Sharding

IMAGE = (2, 3, 16, 16)
KERNEL = (4, 3, 3, 3)
ROW = 2 * 3 * 16 * 4
"""The bytes of one row, or column, of a batch of images."""

CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"padding": 1},
    {"padding": 1, "stride": 2},
    {"padding": 2, "dilation": 2},
]
LAYOUTS = [
    on(2),
    on(3, devices=DEVICES[:3]),
    on((2, 3), (2, 2)),
    on((0, 2), (2, 2)),
]


@pytest.mark.sample(18)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_convolution_along_a_sharded_axis(options: dict[str, Any], layout: Sharding) -> None:
    assert_same_as_on_one_device(
        lambda x, w: x.conv2d(w, **options),
        [array(*IMAGE), array(*KERNEL, seed=1)],
        [layout, layout.replicated()],
        rtol=1e-4,
        atol=1e-3,
    )


def images() -> Tensor:
    return placed(array(*IMAGE), on(2))


def test_a_convolution_exchanges_the_halo_rows_of_its_block() -> None:
    w = placed(array(*KERNEL, seed=1), REPLICATED)
    # three boundaries between four devices, a row across each in both directions
    assert moved(images().conv2d(w, padding=1)) == {"halo": 3 * 2 * ROW}


def test_images_sharded_in_both_directions_exchange_rows_then_columns() -> None:
    x, w = placed(array(*IMAGE), on((2, 3), GRID)), placed(array(*KERNEL, seed=1), REPLICATED)
    # each device sends half a row of its image, and then a column that is two rows higher
    assert moved(x.conv2d(w, padding=1)) == {"halo": 4 * (ROW // 2 + ROW * 10 // 16)}


def test_the_gradients_of_a_convolution_exchange_halo_rows() -> None:
    x, w = images(), placed(array(*KERNEL, seed=1), REPLICATED)
    weight = placed(array(2, 4, 16, 16, seed=2), on(2))
    dx, dw = (x.conv2d(w, padding=1) * weight).sum().gradient(x, w)
    # the gradient of the output has 4 channels in place of 3
    assert moved(dx) == {"halo": 3 * 2 * ROW * 4 // 3}
    # the gradient of the kernel reads the halo of x again; its partial sums are all-reduced
    kinds = moved(dw)
    assert kinds.pop("halo") == 3 * 2 * ROW
    assert set(kinds) == {"all_reduce"}
    assert dx.device is x.device
    assert dw.device is w.device


@pytest.mark.parametrize("options", [{}, {"padding": 1, "dilation": 2}], ids=str)
def test_sharded_output_channels_all_reduce_a_gradient_of_the_size_of_the_image(
    options: dict[str, int],
) -> None:
    x, w = placed(array(*IMAGE), REPLICATED), placed(array(*KERNEL), on(0))
    (dx,) = x.conv2d(w, **options).square().sum().gradient(x)
    # and not of nine images, one for each element of the kernel
    assert moved(dx) == {"all_reduce": 6 * 16 * ROW}
    assert_same_as_on_one_device(
        lambda x, w: x.conv2d(w, **options),
        [array(*IMAGE), array(*KERNEL)],
        [REPLICATED, on(0)],
        rtol=1e-4,
        atol=1e-3,
    )


def test_an_all_reduced_value_that_is_only_summed_is_summed_before() -> None:
    x, w = placed(array(64, 128), on(1)), placed(array(128, 32), on(0))
    assert moved((x @ w).sum(0)[4:12]) == {"all_reduce": 12 * 8 * 4}
    product = x @ w
    assert moved(product.sum(0), product) == moved(x @ w)
    expected = (array(64, 128) @ array(128, 32)).sum(0)
    np.testing.assert_allclose(product.sum(0).numpy(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("program", [lambda x: x.max_pool2d(2), lambda x: x[:, :, ::2]])
def test_windows_that_do_not_overlap_need_no_halo(program: Callable[..., Tensor]) -> None:
    x = images()
    y = program(x)
    assert y.device is x.device
    assert moved(y, *y.square().sum().gradient(x)) == {}


ALONG: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "one row, to the three others": (lambda x: x[:, :, 5], 3 * ROW),
    # four blocks of one row; the first stays
    "a block, over all": (lambda x: x[:, :, :4], 3 * ROW),
    # each block but the last misses its last row
    "all rows but the first": (lambda x: x[:, :, 1:], 3 * ROW),
    # all rows stay
    "all rows but the last": (lambda x: x[:, :, :-1], 0),
    "each block, to its mirror image": (lambda x: x.flip(2), 16 * ROW),
    # each device but the last sends its last row
    "a shift": (lambda x: x.pad((0, 0, 1, 0))[:, :, :16], 3 * ROW),
    # and the last row goes to the first device
    "a shift around the end": (lambda x: x.roll(1, 2), 4 * ROW),
    # rows 0, 3 | 6, 9 | 12, 15 of blocks of 4: the second lacks 8 and 9, the third its four rows
    "windows that are apart": (lambda x: x.max_pool2d(1, stride=3), 6 * ROW),
    # the total of each of four blocks, to the three others
    "a running sum": (lambda x: x.cumsum(2), 3 * 4 * ROW // 2),
    "a running log-sum-exp": (lambda x: x.logcumsumexp(2), 3 * 4 * ROW // 2),
    # an all-to-all: three quarters of each of four blocks
    "a sort": (lambda x: x.sort(2)[0], 16 * ROW * 3 // 4),
}


@pytest.mark.sample(6, values=False)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("rows", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_interpolation_along_a_sharded_axis_exchanges_the_halo_rows_of_its_block(
    mode: str, rows: int
) -> None:
    def resized(x: Tensor) -> Tensor:
        return x.interpolate((rows, 16), mode)

    x = images()
    weight = placed(array(2, 3, rows, 16, seed=1), on(2))
    out = resized(x)
    gradients = (out * weight).sum().gradient(x)
    # a smaller image has means of two rows of one block
    border = {"halo": 3 * 2 * ROW} if mode == "linear" and rows == 32 else {}
    assert moved(*gradients) == border
    assert moved(out) == border
    assert out.device is x.device
    assert_same_as_on_one_device(resized, [array(*IMAGE)], [on(2)])
    assert_same_as_on_one_device(resized, [array(*IMAGE)], [on((2, 3), (2, 2))])


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ALONG)
def test_bytes_of_movement_along_a_sharded_axis(name: str) -> None:
    program, nbytes = ALONG[name]
    y = program(images())
    assert sum(moved(y).values()) <= nbytes
    expected = program(Tensor(array(*IMAGE))).numpy()
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_gradient_of_a_running_maximum_moves_one_sum_for_each_block() -> None:
    x = images()
    (gradient,) = x.cummax(2)[0].square().sum().gradient(x)
    # two scans, the sums and their positions to where they are added, and these back, each as an
    # all-to-all of one row for each block; a reduce-scatter of the gradient would be 48 rows
    assert sum(moved(gradient).values()) <= 7 * 3 * ROW
    value = np.concatenate([-np.sort(array(5, 4), 0), integers(4, 4)])
    assert_same_as_on_one_device(lambda x: x.cummax(0)[0], [value], [on(0)])


# ---- uneven sizes ----

UNEVEN = [on(0), on(0, devices=DEVICES[:3]), on((0, 1), (2, 2)), on((0, None), (2, 2))]


def shards_of(layout: Sharding, shape: tuple[int, ...]) -> list[int]:
    return [region[0][1] - region[0][0] for region in layout.regions(shape)]


def test_blocks_have_the_size_rounded_up() -> None:
    assert shards_of(on(0), (10,)) == [3, 3, 3, 1]
    assert shards_of(on(0), (2,)) == [1, 1, 0, 0]
    assert shards_of(on(0), (9,)) == [3, 3, 3, 0]
    assert on(0).local_shape((10, 4)) == (3, 4)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(0),
    "mean of all": lambda x: x.mean(),
    "max of negatives": lambda x: (-x.abs() - 1).max(0),
    "min of positives": lambda x: (x.abs() + 1).min(),
    "prod": lambda x: (x * 0.25 + 1).prod(0),
    "softmax": lambda x: x.softmax(0),
    "var": lambda x: x.var(0),
    "argmax": lambda x: (-x.abs() - 1).argmax(0),
    "flat": lambda x: x.flatten() * 2,
    "rows of three": lambda x: x.reshape(x.shape[0], 3, 2).sum(1),
    "transposed": lambda x: x.T @ x,
    "exponentials, whose sum over nothing would show": lambda x: x.exp().sum(0),
}


@pytest.mark.sample(14, values=False)
@pytest.mark.parametrize("rows", [10, 5, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_uneven_blocks_have_the_values_of_one_device(name: str, rows: int) -> None:
    value = array(rows, 6)
    for layout in UNEVEN:
        assert_same_as_on_one_device(PROGRAMS[name], [value], [layout], 1e-4, 1e-4)


@pytest.mark.slow
def test_matmuls_of_uneven_blocks_have_the_values_of_one_device() -> None:
    arguments: list[Array] = [array(10, 6), array(6, 7, seed=1)]
    for layouts in ([on(0), REPLICATED], [REPLICATED, on(1)], [on(1), on(0)], [on(0), on(0)]):
        assert_same_as_on_one_device(lambda x, w: x @ w, arguments, layouts, 1e-4, 1e-4)


def test_an_uneven_layout_moves_no_more_than_an_even_one() -> None:
    w = placed(array(6, 7, seed=1), REPLICATED)
    x = placed(array(10, 6), on(0))
    assert moved((x @ w).relu()) == {}
    assert moved(x.sum(0)) == moved(placed(array(12, 6), on(0)).sum(0))
    # an all-gather: each row to the three others
    assert moved(x.to(REPLICATED)) == {"all_gather": 3 * 10 * 6 * 4}
    # 3, 3, 3, 1 rows: the last of each
    assert moved(x.roll(1, 0)) == {"halo": 4 * 6 * 4}


def test_devices_with_empty_shards_send_no_partial_sums() -> None:
    eight = device_names(8)
    x, w = (
        placed(array(3, 2), on(1, devices=eight)),
        placed(array(2, 8, seed=1), on(None, devices=eight)),
    )
    expected = array(3, 2) @ array(2, 8, seed=1)
    nbytes = expected.nbytes
    # two devices have partial sums: each of eight receives both for its block, except its own; or
    # all
    split, whole = on(1, devices=eight), on(None, devices=eight)
    for layout, kinds in (
        (split, {"reduce_scatter": 2 * nbytes * 7 // 8}),
        (whole, {"all_reduce": 2 * nbytes * 7}),
        (nth(5), {"reduce": 2 * nbytes}),
    ):
        assert moved((x @ w).to(layout)) == kinds
        np.testing.assert_allclose((x @ w).to(layout).numpy(), expected, rtol=1e-5)
    # in pieces: both partial sums of each piece to the device that adds them, and the sums to all
    tall, wide = array(64, 2), array(2, 128, seed=1)
    y = placed(tall, split) @ placed(wide, whole)
    assert moved(y) == {"all_reduce": (2 + 7) * 64 * 128 * 4 - 2 * 64 * 128 * 4 // 8}
    np.testing.assert_allclose(y.numpy(), tall @ wide, rtol=1e-4, atol=1e-5)


def test_an_uneven_layout_does_not_refine_the_mesh_but_keeps_its_blocks() -> None:
    x = placed(array(9, 4), on(0))
    assert x.reshape(9, 2, 2).device is x.device
    assert x.reshape(3, 3, 4).device is x.device  # one row of three per device
    assert moved(x.reshape(3, 3, 4)) == {}


@pytest.mark.slow
def test_an_uneven_number_of_heads_is_sharded_by_whole_heads() -> None:
    def attended(x: Tensor) -> Tensor:
        return (x.reshape(2, 3, 6, 4).softmax(-1) * 2).reshape(2, 3, 24)

    x = placed(array(2, 3, 24), on(2))
    heads = x.reshape(2, 3, 6, 4)
    assert heads.device is on(2)  # 2, 2, 2 and no head
    weight = placed(array(2, 3, 6, 4, seed=1), on(2))
    # of blocks of 8 elements, 2, 4 and 6 are missing from those of 6; the same backward
    for y in (heads.contiguous(), *(heads * weight).sum().gradient(x)):
        assert moved(y) == {"halo": 12 * 2 * 3 * 4}
    # an axis that divides evenly is preferred
    assert placed(array(4, 3, 24), on(2)).reshape(4, 3, 6, 4).device is on(0)
    for layout in (on(2), on((0, 2), GRID), on((2, None), GRID), on(2, devices=DEVICES[:3])):
        assert_same_as_on_one_device(attended, [array(2, 3, 24)], [layout])
        assert_same_as_on_one_device(
            lambda x: x.reshape(2, 12, 6).sum(1), [array(2, 3, 24)], [layout]
        )
