"""Kernels read and write nothing before or after their arguments: the pages there are no memory.

An access to them ends the process, which names the test.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from test.devices import only_cpu
from test.guarded_memory import guarded_bytes
from tinygrad import Tensor, dtypes

pytestmark = only_cpu
CASES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "rows of 2": ((64, 96, 2), lambda x: x.sum(2)),
    "rows of 3": ((64, 96, 3), lambda x: x.sum(2)),
    "rows of 4": ((64, 96, 4), lambda x: x.sum(2)),
    "rows of 7": ((5, 33, 7), lambda x: x.sum(2)),
    "columns": ((96, 33), lambda x: x.sum(0)),
    "every second": ((48, 96), lambda x: x[:, 1::2] + 1),
    "every third, backwards": ((48, 96), lambda x: x[:, ::-3] * 2),
    "flip": ((48, 97), lambda x: (x.flip(1) * x).sum(1)),
    "pairs": ((48, 10), lambda x: x.repeat_interleave(2, 1) + 1),
    "columns of pairs": ((3, 9, 10), lambda x: x.repeat_interleave(2, 2).sum(1)),
    "triples": ((48, 7), lambda x: (x.repeat_interleave(3, 1) + 1).sum(1)),
    "transpose": ((61, 67), lambda x: x.T + 1),
    "average pool": ((2, 3, 32, 32), lambda x: x.avg_pool2d(2)),
    "max pool of 3, stride 2": ((2, 3, 33, 33), lambda x: x.max_pool2d(3, 2)),
    "convolution of stride 2": (
        (2, 4, 17, 17),
        lambda x: x.conv2d(Tensor.ones(8, 4, 3, 3), stride=2),
    ),
    "product": ((37, 53), lambda x: x @ x.T),
    "softmax": ((37, 53), lambda x: x.softmax(1)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [np.float32, np.int8], ids=["float32", "int8"])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_stays_within_its_arguments(name: str, dtype: type) -> None:
    shape, compute = CASES[name]
    values = (np.arange(prod(shape)) % 11 - 5).reshape(shape).astype(dtype)
    kind = dtypes.float32 if dtype is np.float32 else dtypes.int8
    wanted = compute(Tensor(values)).numpy()
    for is_last in (True, False):
        memory = guarded_bytes(values.nbytes, is_last)
        memory[:] = values.reshape(-1).view(np.uint8)
        x = Tensor.from_blob(memory.ctypes.data, shape, dtype=kind)
        np.testing.assert_array_equal(compute(x).numpy(), wanted)
