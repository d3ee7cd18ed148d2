"""Movement along a sharded axis sends the elements that a device reads and does not hold, no more.

The expected bytes are counted from positions: each device holds a block of the source, and reads
the elements that its block of the result depends on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE
from test.sharding.common import (
    DEVICES,
    GRID,
    REPLICATED,
    Array,
    array,
    integers,
    moved,
    on,
    placed,
)
from tinygrad import Tensor
from tinygrad.device import Sharding

ROW = 3 * 4
"""The bytes of a row of the arrays here."""


def blocks(size: int) -> list[range]:
    """The elements of an axis on each device."""
    block = -(-size // len(DEVICES))
    return [range(min(n * block, size), min((n + 1) * block, size)) for n in range(len(DEVICES))]


def received(size: int, read: Iterable[set[int]]) -> int:
    """The elements of an axis of `size` that devices `read` and do not hold."""
    return sum(len(wanted - set(held)) for wanted, held in zip(read, blocks(size), strict=True))


def kinds(nbytes: int, kind: str = "halo") -> dict[str, int]:
    """The expected bytes of one kind of communication."""
    return {kind: nbytes} if nbytes else {}


SLICES = [
    slice(1, None, 3),
    slice(None, None, 2),
    slice(1, None, 2),
    slice(None, None, 5),
    slice(2, -2, 3),
    slice(None, None, 7),
    slice(3, 10),
    slice(None, None, -2),
    slice(-2, 1, -3),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("size", [16, 18, 24, 29])
@pytest.mark.parametrize("index", SLICES, ids=str)
def test_a_slice_sends_only_elements_that_it_selects(size: int, index: slice) -> None:
    x, values = placed(integers(size, 3), on(0)), integers(size, 3)
    selected = np.arange(size)[index]
    read = [{int(i) for i in selected[block.start : block.stop]} for block in blocks(len(selected))]
    kind = "permute" if (index.step or 1) < 0 else "halo"
    out = x[index]
    assert moved(out) == kinds(ROW * received(size, read), kind)
    np.testing.assert_array_equal(out.numpy(), values[index])
    # the gradient takes each element back
    weights = integers(len(selected), 3, seed=1)
    (gradient,) = (x[index] * placed(weights, on(0))).sum().gradient(x)
    expected = np.zeros_like(values)
    expected[index] = weights
    np.testing.assert_array_equal(gradient.numpy(), expected)


@pytest.mark.parametrize("size", [18, 29])
@pytest.mark.parametrize("index", [slice(1, None, 3), slice(None, None, -2)], ids=str)
def test_the_gradient_of_a_slice_with_a_step_sends_only_selected_elements(
    size: int, index: slice
) -> None:
    x = placed(integers(size, 3), on(0))
    count = len(range(size)[index])
    weights = placed(integers(count, 3, seed=1), on(0))
    (gradient,) = x[index].gradient(x, gradient=weights)
    selected = [int(i) for i in np.arange(size)[index]]
    read = [{selected.index(i) for i in block if i in selected} for block in blocks(size)]
    kind = "permute" if (index.step or 1) < 0 else "halo"
    assert moved(gradient) == kinds(ROW * received(count, read), kind)
    expected = np.zeros((size, 3), np.float32)
    expected[index] = weights.numpy()
    np.testing.assert_array_equal(gradient.numpy(), expected)


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        (DEVICE, {"gather": 4}),
        (REPLICATED, {"all_gather": 3 * 5}),
        (Sharding(DEVICES[:2], 0), {"send": 4}),
    ],
    ids=str,
)
def test_selected_elements_go_to_another_layout_at_once(target: Any, sent: dict[str, int]) -> None:
    values = integers(16, 3)
    out = placed(values, on(0))[1::3].to(target)
    assert moved(out) == {kind: rows * ROW for kind, rows in sent.items()}
    np.testing.assert_array_equal(out.numpy(), values[1::3])


@pytest.mark.sample(8)
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, None)])
@pytest.mark.parametrize("index", SLICES, ids=str)
def test_slices_with_steps_on_a_mesh_equal_numpy(
    axes: tuple[int | None, ...], index: slice
) -> None:
    values = integers(18, 7)
    x = placed(values, on(axes, GRID))
    for found, expected in (
        (x[index], values[index]),
        (x[index, ::2], values[index, ::2]),
        (x[index, ::-3].to(on(1)), values[index, ::-3]),
        (x[index][:, 1:6].to("CPU"), values[index][:, 1:6]),
    ):
        np.testing.assert_array_equal(found.numpy(), expected)


# ---- windows ----

WINDOWS = [
    # kernel, stride, padding
    (3, 1, 1),
    (3, 2, 1),
    (5, 2, 2),
    (3, 3, 1),
    (2, 3, 0),
    (1, 2, 0),
    (3, 4, 1),
]


def readers(size: int, kernel: int, stride: int, padding: int) -> list[set[int]]:
    """The elements that each window reads."""
    starts = range(-padding, size + padding - kernel + 1, stride)
    return [{i for i in range(start, start + kernel) if 0 <= i < size} for start in starts]


def image(rows: int, channels: int = 2, seed: int = 0) -> Array:
    return integers(1, channels, rows, 1, seed=seed)


@pytest.mark.sample(6)
@pytest.mark.parametrize("size", [13, 16, 18])
@pytest.mark.parametrize(("kernel", "stride", "padding"), WINDOWS)
def test_the_gradient_of_a_convolution_sends_the_windows_over_each_block(
    size: int, kernel: int, stride: int, padding: int
) -> None:
    weight = placed(integers(2, 2, kernel, 1, seed=1), REPLICATED)
    x = placed(image(size), on(2))
    windows = readers(size, kernel, stride, padding)
    out = x.conv2d(weight, stride=(stride, 1), padding=(0, 0, padding, padding))
    upstream = placed(image(len(windows), seed=2), on(2))
    (gradient,) = out.gradient(x, gradient=upstream)
    read = [
        {o for o, window in enumerate(windows) if window.intersection(block)}
        for block in blocks(size)
    ]
    assert moved(gradient) == kinds(2 * 4 * received(len(windows), read))
    whole = placed(image(size), None)
    other = whole.conv2d(
        Tensor(integers(2, 2, kernel, 1, seed=1)),
        stride=(stride, 1),
        padding=(0, 0, padding, padding),
    )
    (expected,) = other.gradient(whole, gradient=Tensor(image(len(windows), seed=2)))
    np.testing.assert_array_equal(gradient.numpy(), expected.numpy())


@pytest.mark.parametrize("size", [13, 16, 18])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "extra"), [(2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0)]
)
def test_a_transposed_convolution_sends_the_windows_over_each_block(
    size: int, kernel: int, stride: int, padding: int, extra: int
) -> None:
    weight, x = integers(2, 2, kernel, 1, seed=1), placed(image(size), on(2))
    options = {"stride": (stride, 1), "padding": (padding, 0), "output_padding": (extra, 0)}
    out = x.conv_transpose2d(placed(weight, REPLICATED), **options)
    rows = int(out.shape[2])
    read = [
        {o for o in range(size) for k in range(kernel) if o * stride + k - padding in block}
        for block in blocks(rows)
    ]
    assert moved(out) == kinds(2 * 4 * received(size, read))
    expected = Tensor(image(size)).conv_transpose2d(Tensor(weight), **options)
    np.testing.assert_array_equal(out.numpy(), expected.numpy())


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 18])
def test_the_gradient_of_a_training_step_with_strided_convolutions_equals_one_device(
    size: int,
) -> None:
    """Two strided convolutions and pooling: their gradients are exchanged through each other."""
    weights = [array(4, 2, 3, 3, seed=1), array(4, 4, 3, 3, seed=2)]

    def gradients(layout: Any) -> list[Array]:
        x = placed(array(1, 2, size, 8), layout)
        first, second = (placed(w, layout and layout.replicated()) for w in weights)
        hidden = x.conv2d(first, stride=2, padding=1).relu()
        out = hidden.conv2d(second, stride=2, padding=1).max_pool2d(2, stride=1, padding=1)
        return [g.numpy() for g in (out * out).sum().gradient(x, first, second)]

    for found, expected in zip(gradients(on(2)), gradients(None), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# ---- reshapes ----


@pytest.mark.parametrize(
    ("old", "new"), [((12, 7), (21, 4)), ((10, 6), (15, 4)), ((6, 14), (12, 7)), ((24,), (6, 4))]
)
def test_a_reshape_sends_what_completes_the_rows_of_each_block(
    old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    """Rows of the new shape cross blocks, and rows of the two shapes have no common multiple."""
    values = integers(*old)
    inner = [int(np.prod(shape[1:])) for shape in (old, new)]
    held, wanted = (
        [set(range(b.start * n, b.stop * n)) for b in blocks(shape[0])]
        for shape, n in zip((old, new), inner, strict=True)
    )
    lacking = sum(len(b - a) for a, b in zip(held, wanted, strict=True))
    out = placed(values, on(0)).reshape(new)
    assert out.device == on(0)
    assert moved(out) == kinds(4 * lacking)
    np.testing.assert_array_equal(out.numpy(), values.reshape(new))
    # also after axes of size 1
    out = placed(values.reshape(1, 1, *old), on(2)).reshape((1, *new))
    assert moved(out) == kinds(4 * lacking)
    np.testing.assert_array_equal(out.numpy(), values.reshape(1, *new))


# ---- gathers by an index that is known: interpolation, and padding with elements ----


def nearest(old: int, new: int) -> list[set[int]]:
    return [{o * old // new} for o in range(new)]


def linear(old: int, new: int) -> list[set[int]]:
    found = []
    for o in range(new):
        first = min(max((2 * o + 1) * old - new, 0), (old - 1) * 2 * new) // (2 * new)
        found.append({first, min(first + 1, old - 1)})
    return found


def replicate(old: int, new: int) -> list[set[int]]:
    return [{min(max(o - (new - old) // 2, 0), old - 1)} for o in range(new)]


def reflect(old: int, new: int) -> list[set[int]]:
    last = old - 1
    return [{last - abs(last - abs(o - (new - old) // 2))} for o in range(new)]


def resampled(x: Tensor, new: int, read: Any) -> Tensor:
    """The first axis of two resampled, or padded, to `new` elements."""
    if read in (nearest, linear):
        return x.T.interpolate((new,), mode=read.__name__).T
    before = (new - int(x.shape[0])) // 2
    after = new - int(x.shape[0]) - before
    return x.pad(((before, after), (0, 0)), mode=read.__name__)


@pytest.mark.sample(12)
@pytest.mark.parametrize("layout", [on(0), on((0, 1), GRID), on((1, 0), GRID)], ids=str)
@pytest.mark.parametrize(
    ("old", "new", "read"),
    [
        *((12, new, read) for new in (5, 7, 17, 25) for read in (nearest, linear)),
        *((old, old + 4, read) for old in (10, 12) for read in (replicate, reflect)),
        (12, 17, replicate),
    ],
)
def test_resampling_sends_the_elements_around_each_block(
    old: int, new: int, read: Any, layout: Sharding
) -> None:
    values, upstream = integers(old, 4), integers(new, 4, seed=1)
    x = placed(values, layout)
    out = resampled(x, new, read)
    rows, count = read(old, new), layout.shards(0)
    held, made = (
        [range(c * b, min(c * b + b, n)) for c in range(count)]
        for n, b in ((n, -(-n // count)) for n in (old, new))
    )
    needed = [set().union(*(rows[o] for o in block)) for block in made]
    lacking = sum(len(need - set(block)) for need, block in zip(needed, held, strict=True))
    row = 4 * 4
    assert out.device == layout
    assert moved(out) == kinds(row * lacking)
    whole = placed(values, None)
    expected = resampled(whole, new, read)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-6, atol=1e-6)
    # the gradient reads the elements of the result that read a block
    (gradient,) = out.gradient(x, gradient=placed(upstream, layout))
    readers = [{o for o, read in enumerate(rows) if read & set(block)} for block in held]
    lacking = sum(len(need - set(block)) for need, block in zip(readers, made, strict=True))
    assert moved(gradient) == kinds(row * lacking)
    (wanted,) = expected.gradient(whole, gradient=Tensor(upstream))
    np.testing.assert_allclose(gradient.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
