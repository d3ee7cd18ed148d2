"""Transfers between meshes: to other devices, another device order, fewer and more devices.

In KiB, of float32: `x` (64, 128) is 32, `w` (128, 512) is 256.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.devices import DEVICE, device_names, nth
from test.sharding.common import DEVICES, GRID, KIB, TWO, Array, array, moved, on, placed
from tinygrad import Mesh, P, Tensor, ranks
from tinygrad.device import Sharding
from tinygrad.execution.realize import BufferCopy

OTHERS = DEVICES[2:]
BATCH = (64, 128)
SIX = (*DEVICES, nth(4), nth(5))


def messages(x: Tensor) -> list[tuple[str, str, int]]:
    """(source, destination, bytes) of each message that computing `x` sends."""
    copies = [item for item in x.schedule() if isinstance(item, BufferCopy)]
    found = [(s.device, d.device, d.nbytes) for item in copies for d, s in item.pairs]
    found += [
        (m.source, m.destination, m.nbytes) for item in copies for m in item.remote if m.is_sent
    ]
    return [*itertools.chain(*ranks.gather(found))]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # same axis: each block goes to one device
        (Sharding(TWO, 1), Sharding(OTHERS, 1), [(DEVICE, nth(2)), (nth(1), nth(3))]),
        # different axes: each pair of devices exchanges a quarter
        (
            Sharding(TWO, 0),
            Sharding(OTHERS, 1),
            [(DEVICE, nth(2)), device_names(2, 1), (DEVICE, nth(3)), (nth(1), nth(3))],
        ),
        # to fewer and to more devices
        (Sharding(TWO, 0), nth(2), [(DEVICE, nth(2)), device_names(2, 1)]),
        (nth(3), Sharding(TWO, 0), [(nth(3), DEVICE), (nth(3), nth(1))]),
    ],
    ids=["same axis", "other axis", "to one", "from one"],
)
def test_between_meshes_each_block_is_sent_once(
    source: Any, target: Any, expected: list[tuple[str, str]]
) -> None:
    x = placed(array(*BATCH), source)
    nbytes = 32 * KIB // len(expected)
    assert sorted(messages(x.to(target))) == sorted((a, b, nbytes) for a, b in expected)
    assert sum(moved(x.to(target)).values()) == 32 * KIB
    np.testing.assert_array_equal(x.to(target).numpy(), array(*BATCH))


def test_gradients_flow_back_to_the_first_mesh() -> None:
    x, factor = placed(array(*BATCH), Sharding(TWO, 0)), array(*BATCH, seed=1)
    there = Sharding(OTHERS, 1)
    (gradient,) = (x.to(there) * placed(factor, there)).sum().gradient(x)
    assert gradient.device is x.device
    assert moved(gradient) == {"send": 32 * KIB}
    np.testing.assert_array_equal(gradient.numpy(), factor)


def test_gradients_flow_back_to_the_first_device_order() -> None:
    there, back = Sharding(TWO, 0), Sharding(TWO[::-1], 0)
    x, factor = placed(array(*BATCH), there), placed(array(*BATCH, seed=1), back)
    gradients = (x.exp().to(back) * factor).sum().gradient(x, factor)
    assert [gradient.device for gradient in gradients] == [there, back]
    expected = np.exp(array(*BATCH))
    np.testing.assert_allclose(gradients[0].numpy(), expected * array(*BATCH, seed=1), rtol=1e-5)
    np.testing.assert_allclose(gradients[1].numpy(), expected, rtol=1e-5)


def test_from_the_training_layout_to_the_inference_layout() -> None:
    mesh = Mesh(GRID, ("dp", "tp"), DEVICES)
    w = placed(array(128, 512), mesh.sharding(P("dp", "tp")))
    # columns in an order that keeps them on their devices: each device sends half of its block
    columns = mesh.permute("tp", "dp").sharding(P(None, ("tp", "dp")))
    assert moved(w.to(columns)) == {"all_to_all": 4 * 32 * KIB}
    # columns in device order: devices 1 and 2 hold none of theirs
    assert moved(w.to(on(1))) == {"all_to_all": (32 + 64 + 64 + 32) * KIB}
    for layout in (columns, on(1)):
        np.testing.assert_array_equal(w.to(layout).numpy(), array(128, 512))


def test_partial_sums_sent_to_other_devices_are_reduce_scattered_first() -> None:
    x, w = placed(array(*BATCH), Sharding(TWO, 1)), placed(array(128, 64) * 0.1, Sharding(TWO, 0))
    out = (x @ w).to(Sharding(OTHERS, 1))
    # (64, 64) is 16: each device sends half to its neighbour, then half to a target
    assert moved(out) == {"reduce_scatter": 16 * KIB, "send": 16 * KIB}
    np.testing.assert_allclose(out.numpy(), array(*BATCH) @ array(128, 64) * 0.1, atol=1e-4)


@pytest.mark.parametrize(
    ("source", "target", "nbytes"),
    [
        # from a 2-d mesh to 1-d: each device has half of its block; in reverse order, none of it
        (on((0, 1), GRID), on(0), 16 * KIB),
        (on((0, 1), GRID), on(0, devices=DEVICES[::-1]), 32 * KIB),
        # to one device of the mesh, which has a quarter, and to a device outside it
        (on((0, 1), GRID), nth(2), 24 * KIB),
        (on((0, 1), GRID), nth(5), 32 * KIB),
        # halves to the devices that hold replicas of them: nothing
        (on((0, None), GRID), Sharding((DEVICE, nth(2)), 0), 0),
        (on((0, None), GRID), Sharding((nth(1), nth(3)), 0), 0),
        # from a replicated layout, each of two devices gets its half
        (on(None, devices=TWO), Sharding(OTHERS, 1), 32 * KIB),
    ],
    ids=str,
)
def test_devices_receive_missing_elements_only(source: Any, target: Any, nbytes: int) -> None:
    x = placed(array(*BATCH), source)
    assert sum(moved(x.to(target)).values()) == nbytes
    np.testing.assert_array_equal(x.to(target).numpy(), array(*BATCH))


def test_the_last_message_holds_no_padding() -> None:
    x = placed(array(5, 4), Sharding(TWO, 0))
    assert moved(x.to(Sharding(OTHERS, 0))) == {"send": 5 * 4 * 4}


@pytest.mark.parametrize(
    ("target", "nbytes"),
    # rows 4 and 3, columns 3 and 2: to the same devices, 3 x 3 and 4 x 2 elements; to others, all
    [(Sharding(TWO, 1), 17 * 4), (Sharding(OTHERS, 1), 35 * 4)],
    ids=str,
)
def test_pieces_hold_no_padding(target: Sharding, nbytes: int) -> None:
    x = placed(array(7, 5), Sharding(TWO, 0))
    assert sum(moved(x.to(target)).values()) == nbytes
    np.testing.assert_array_equal(x.to(target).numpy(), array(7, 5))


def test_a_large_uneven_block_is_sent_in_few_messages() -> None:
    x = placed(array(101, 67), Sharding(TWO, 0))
    assert len(messages(x.to(Sharding(OTHERS, 1)))) == 4
    np.testing.assert_array_equal(x.to(Sharding(OTHERS, 1)).numpy(), array(101, 67))


def test_axes_are_resharded_one_at_a_time_if_blocks_are_not_nested() -> None:
    x = placed(array(7, 5), on((0, 1), GRID))
    # rows are unsharded, 35 elements; then columns 3 and 4 of 0:3 and 3:5 are exchanged
    assert moved(x.to(on(1))) == {"all_to_all": (35 + 3 * 7) * 4}
    np.testing.assert_array_equal(x.to(on(1)).numpy(), array(7, 5))


@st.composite
def layouts(draw: st.DrawFn) -> str | Sharding:
    """One device, or several of six in any order, as a 1-d or 2-d mesh."""
    mesh = draw(st.sampled_from([(1,), (2,), (4,), (6,), (2, 2), (2, 3), (3, 2)]))
    devices = draw(st.permutations(SIX))[: int(np.prod(mesh))]
    if len(devices) == 1:
        return devices[0]
    return Sharding(devices, [draw(st.sampled_from([0, 1, None])) for _ in mesh], mesh)


def held(layout: str | Sharding, shape: tuple[int, int]) -> dict[str, Array]:
    """The elements that each device holds."""
    if isinstance(layout, str):
        return {layout: np.ones(shape, bool)}
    found = {}
    for device, (rows, columns) in zip(layout.devices, layout.regions(shape), strict=True):
        found[device] = np.zeros(shape, bool)
        found[device][slice(*rows), slice(*columns)] = True
    return found


@settings(max_examples=60, deadline=None)
@given(source=layouts(), target=layouts(), shape=st.sampled_from([(12, 24), (7, 5)]))
def test_between_any_layouts_devices_receive_missing_elements_only(
    source: Any, target: Any, shape: tuple[int, int]
) -> None:
    value = array(*shape)
    x = placed(value, source)
    np.testing.assert_array_equal(x.to(target).numpy(), value)
    nbytes = sum(moved(x.to(target)).values())
    before, nothing = held(source, shape), np.zeros(shape, bool)
    lacking = [mine & ~before.get(device, nothing) for device, mine in held(target, shape).items()]
    least = 4 * sum(int(elements.sum()) for elements in lacking)
    # if blocks are not nested, axes are resharded one at a time
    assert nbytes == least if shape == (12, 24) else nbytes >= least
