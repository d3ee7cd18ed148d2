"""Axes of 2**31 elements or more: index arithmetic is as wide as its bounds, on one device too.

The arrays are expressions of `arange`, which take no memory; the quick tests read a few elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from test.devices import device_names
from tinygrad import Tensor, Variable, dtypes
from tinygrad.sharding import Sharding
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import fits_int32, index_dtype

DEVICES = device_names(3)
N = 2**31 + 1
EVEN = 2**31 + 102
LAYOUTS: list[Any] = [DEVICES[0], Sharding(DEVICES[:2], 0), Sharding(DEVICES, 0)]
IDS = ["one device", "two", "three"]


def counted(size: int = N, layout: Any = None) -> Tensor:
    """`0, 1, ..., size - 1` in a layout."""
    return Tensor.arange(size, dtype=dtypes.int64).to(layout)


def along(x: Tensor, numbers: list[int]) -> Tensor:
    """An index beside `x`."""
    return Tensor(numbers, dtype=dtypes.int64).to(
        x.device if isinstance(x.device, str) else x.device.replicated()
    )


LAST = Variable("last", 0, N - 1).bind(N - 3)
MOVEMENT: dict[str, tuple[Callable[[Tensor], Tensor], list[int]]] = {
    "slice": (lambda x: x[N - 3 :], [N - 3, N - 2, N - 1]),
    "slice that moves": (lambda x: x[1:][N - 3 :], [N - 2, N - 1]),
    "step": (lambda x: x[:: 2**29], [i * 2**29 for i in range(5)]),
    "flip": (lambda x: x.flip(0)[:3], [N - 1, N - 2, N - 3]),
    "roll": (lambda x: x.roll(-2, 0)[N - 4 :], [N - 2, N - 1, 0, 1]),
    "pad": (lambda x: x.pad(((2, 2),))[N:], [N - 2, N - 1, 0, 0]),
    "circular pad": (lambda x: x.pad((2, 2), mode="circular")[N:], [N - 2, N - 1, 0, 1]),
    "reflect pad": (lambda x: x.pad((2, 2), mode="reflect")[N:], [N - 2, N - 1, N - 2, N - 3]),
    "replicate pad": (lambda x: x.pad((2, 2), mode="replicate")[N:], [N - 2, N - 1, N - 1, N - 1]),
    "cat": (lambda x: x.cat(x)[N - 1 : N + 1], [N - 1, 0]),
    "end of cat": (lambda x: x.cat(x)[2 * N - 2 :], [N - 2, N - 1]),
    "repeat": (lambda x: x.repeat(2)[N - 1 : N + 1], [N - 1, 0]),
    "split": (lambda x: x.split(2**30)[-1], [N - 1]),
    "windows": (lambda x: x.unfold(0, 2, 1)[N - 3 :].flatten(), [N - 3, N - 2, N - 2, N - 1]),
    "pool": (
        lambda x: x.reshape(1, 1, 1, N).max_pool2d((1, 2), 1)[0, 0, 0, N - 3 :],
        [N - 2, N - 1],
    ),
    "symbolic row": (lambda x: x[LAST].reshape(1), [N - 3]),
    "symbolic slice": (lambda x: x[LAST : LAST + 2], [N - 3, N - 2]),
    "index": (lambda x: x[along(x, [0, 5, N - 1, -1, -N])], [0, 5, N - 1, N - 1, 0]),
    "narrow index": (lambda x: x[along(x, [5, 2**31 - 1, -1]).int()], [5, 2**31 - 1, N - 1]),
    "gather": (lambda x: x.gather(0, along(x, [0, 5, N - 1])), [0, 5, N - 1]),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
@pytest.mark.parametrize("name", MOVEMENT)
def test_elements_past_32_bits_are_read_where_they_are(name: str, layout: Any) -> None:
    program, expected = MOVEMENT[name]
    assert program(counted(layout=layout)).tolist() == expected


POSITIONS: dict[str, tuple[Callable[[], Tensor], list[Any]]] = {
    "one_hot": (lambda: along(counted(1), [N - 2]).one_hot(N)[0, N - 3 :], [0, 1, 0]),
    "eye": (lambda: Tensor.eye(2, N)[1, :2], [0.0, 1.0]),
    "tril": (lambda: Tensor.ones(2, 2).tril(2**40).flatten(), [1.0] * 4),
    "rows of triu": (Tensor.ones(N, 2).triu(1 - 2**31)[N - 2 :].flatten, [1, 1, 0, 1]),
    "linspace": (
        lambda: Tensor.linspace(0, N - 1, N, dtype=dtypes.float64)[N - 2 :],
        [N - 2.0, N - 1.0],
    ),
    "operand": (lambda: along(counted(1), [1]) + LAST, [N - 2]),
    "full": (lambda: Tensor.full((1,), LAST, dtype=dtypes.int64), [N - 3]),
    "arange": (lambda: Tensor.arange(LAST, N, dtype=dtypes.int64)[:2], [N - 3, N - 2]),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_past_32_bits_are_numbers_of_64(name: str) -> None:
    program, expected = POSITIONS[name]
    assert program().tolist() == expected


INDICES: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda x: x.argmax(),
    "cummax": lambda x: x.cummax()[1],
    "topk": lambda x: x.int().topk(1)[1],
    "multinomial": lambda x: x.multinomial(replacement=True),
    "max_pool2d": lambda x: x.reshape(1, 1, 1, -1).max_pool2d((1, 2), return_indices=True)[1],
}


@pytest.mark.parametrize("name", INDICES)
def test_indices_along_an_axis_past_32_bits_are_int64(name: str) -> None:
    assert INDICES[name](counted()).dtype is dtypes.int64
    assert INDICES[name](counted(1000)).dtype is dtypes.int32


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
def test_rows_and_columns_merge_into_positions_past_32_bits(layout: Any) -> None:
    side = 70000
    x = counted(side * side).reshape(side, side).to(layout)
    rows, columns = along(x, [side - 1, 3]).int(), along(x, [side - 1, 4]).int()
    assert x[rows, columns].tolist() == [side * side - 1, 3 * side + 4]
    assert x.gather(1, rows.reshape(2, 1)).tolist() == [[side - 1], [side + 3]]


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
def test_an_index_that_32_bits_do_not_hold_is_out_of_range_of_a_short_axis(layout: Any) -> None:
    x = (Tensor.arange(7) + 1).to(layout).contiguous().realize()
    assert x.gather(0, along(x, [2**32 + 1, 2**32, -(2**32) + 3, 6])).tolist() == [0, 0, 0, 7]
    index = along(x, [2**32 + 1, 6])
    assert x.scatter(0, index, Tensor([8, 9]).to(index.device)).tolist() == [1, 2, 3, 4, 5, 6, 9]


def test_the_dtype_of_index_arithmetic_holds_every_bound() -> None:
    assert index_dtype(2**31 - 1, -(2**31)) is dtypes.int32
    assert index_dtype(2**31) is index_dtype(3, -(2**31) - 1) is dtypes.int64
    long = UOp.variable("long", 0, 2**30)
    assert fits_int32(long, long + 7)
    assert index_dtype(long, long * 4) is dtypes.int64


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=IDS[1:])
def test_reductions_of_axes_past_32_bits_ignore_what_is_past_the_end(layout: Any) -> None:
    x = counted(layout=layout)
    assert ((x < 5).sum() + (x >= N - 3).sum()).item() == 8
    y = counted(EVEN, layout)
    assert (y[1:] < 5).sum().item() == 4
    assert (y.roll(1, 0) < 5).sum().item() == 5
    assert (y.pad(((2, 3),)) < 5).sum().item() == 10
    assert (x - 2**33).max().item() == N - 1 - 2**33
    assert (x < -1).any().item() is False
    assert (x < N).all().item() is True


@pytest.mark.slow
def test_a_stored_axis_past_32_bits_is_written_and_searched() -> None:
    x = Tensor.zeros(N, dtype=dtypes.uint8).contiguous().to(LAYOUTS[1]).realize()
    x[5] = 3
    x[N - 1 :] = 2
    assert x[along(x, [5, 6, N - 1, -1])].tolist() == [3, 0, 2, 2]
    assert x.max().item() == 3
    assert x.eq(2).argmax().item() == N - 1


@pytest.mark.slow
def test_lanes_that_are_far_apart_have_offsets_of_64_bits() -> None:
    # of untouched memory, only the pages that are written are allocated
    x = Tensor.empty(16, 2**28, dtype=dtypes.uint8).realize()
    column = Tensor.arange(16, dtype=dtypes.uint8).reshape(16, 1)
    x[:, 5:6] = column
    x[:, 6:7] = column.contiguous()
    assert x[:, 5:7].T.tolist() == [list(range(16))] * 2
    assert (x[:, 5:6] + 1).flatten().tolist() == list(range(1, 17))
