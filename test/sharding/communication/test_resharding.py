"""Resharding, expert parallelism and reshapes: every change of layout sends the fewest bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.devices import nth
from test.sharding.common import (
    DEVICES,
    GRID,
    REPLICATED,
    TWO,
    array,
    assert_same_as_on_one_device,
    moved,
    on,
    placed,
    resharded,
    traffic,
)
from tinygrad import Tensor
from tinygrad.device import Sharding
from tinygrad.sharding import transfer_bytes

X = (64, 128)
ROWS, COLUMNS = on(0), on(1)


def test_another_sharded_axis_is_an_all_to_all() -> None:
    forward, training, out = traffic(lambda x: resharded(x, COLUMNS) * 2, [array(*X)], [ROWS])
    assert out.device is COLUMNS
    assert forward == {"all_to_all": 6}
    assert training == {"all_to_all": 2 * 6}


LAYOUTS = [ROWS, COLUMNS, REPLICATED, on((0, 1), GRID), on((1, 0), GRID), on((None, 0), GRID)]
LAYOUTS += [Sharding(DEVICES[::-1], 0)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", [*LAYOUTS, nth(1)], ids=str)
@pytest.mark.parametrize("source", [*LAYOUTS, nth(2)], ids=str)
def test_every_change_of_layout_moves_the_fewest_bytes(source: Any, target: Any) -> None:
    value = array(16, 24)
    there = placed(value, source).to(target)
    assert sum(moved(there).values()) == transfer_bytes(source, target, value.shape, 4)
    np.testing.assert_array_equal(there.numpy(), value)


def test_expert_parallelism_is_two_all_to_alls() -> None:
    # (group, expert, capacity, dim): 128 KiB
    tokens = (4, 4, 16, 128)

    def experts(x: Tensor, w: Tensor) -> Tensor:
        there = resharded(x, COLUMNS).transpose(0, 1).reshape(4, 64, 128)
        out = (there @ w).reshape(tokens).transpose(0, 1)
        return resharded(out, ROWS)

    forward, training, out = traffic(experts, [array(*tokens), array(4, 128, 128)], [ROWS, ROWS])
    assert out.device is ROWS
    assert forward == {"all_to_all": 2 * 24}
    # the gradient of the result goes to the experts, and that of the tokens comes back
    assert training == {"all_to_all": 4 * 24}


# ---- reshapes ----


def test_a_reshape_that_keeps_blocks_whole_moves_nothing() -> None:
    forward, training, out = traffic(lambda x: x.reshape(48) * 2, [array(8, 6)], [ROWS])
    assert out.device is on(0)
    assert forward == training == {}


def test_a_reshape_may_refine_the_mesh() -> None:
    forward, training, out = traffic(lambda x: x.reshape(2, 4) * 2, [array(8)], [ROWS])
    assert out.device is on((0, 1), GRID)
    assert forward == training == {}
    forward, training, back = traffic(lambda x: x.reshape(8) * 2, [array(2, 4)], [out.device])
    assert back.device is ROWS
    assert forward == training == {}


@pytest.mark.parametrize("devices", [TWO, DEVICES])
def test_a_reshape_that_interleaves_blocks_is_resharded(devices: tuple[str, ...]) -> None:
    layout = Sharding(devices, 1)
    out = placed(array(8, 6), layout).reshape(48) * 2
    # at most an all-to-all, from columns to rows
    assert sum(moved(out).values()) <= transfer_bytes(layout, Sharding(devices, 0), (8, 6), 4)
    assert_same_as_on_one_device(lambda x: x.reshape(48) * 2, [array(8, 6)], [layout])
