"""Programs that `test.fuzz_sharding` found to differ from themselves on one device."""

from __future__ import annotations

import numpy as np
import pytest

from test.sharding.common import GRID, assert_same_as_on_one_device, integers, on
from tinygrad import dtypes
from tinygrad.device import Sharding


@pytest.mark.parametrize("layout", [on(1), on((0, 1), GRID), on((1, 1), GRID)], ids=str)
@pytest.mark.parametrize("size", [6, 8, 9])
def test_bitcast_to_another_size_along_a_split_axis(size: int, layout: Sharding) -> None:
    """The blocks of the bytes are not the bytes of the blocks where either do not divide."""
    numbers = integers(3, size).astype(np.int32)
    assert_same_as_on_one_device(lambda x: x.bitcast(dtypes.uint8), [numbers], [layout])
    letters = np.arange(3 * 4 * size, dtype=np.uint8).reshape(3, 4 * size)
    assert_same_as_on_one_device(lambda x: x.bitcast(dtypes.int), [letters], [layout])
