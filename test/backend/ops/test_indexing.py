"""Indexing: reading and writing by every kind of index against numpy, and memory traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.backend.schedule.kernel_counts import Array, array, tensor
from test.devices import DEVICE, device_names
from tinygrad import GlobalCounters, Sharding, Tensor, TinyJit, dtypes

SHAPE = (4, 1, 5, 3)
INDEX_SHAPES = ((), (2,), (3, 1), (1, 2), (3, 2), (0, 1))


# ---- any index ----


def is_array(item: Any) -> bool:
    return isinstance(item, np.ndarray)


@st.composite
def slices(draw: st.DrawFn, size: int) -> slice:
    bound = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


@st.composite
def arrays_of_positions(draw: st.DrawFn, size: int) -> Array:
    shape = draw(st.sampled_from(INDEX_SHAPES[:5]))
    values = draw(st.lists(st.integers(-size, size - 1), min_size=6, max_size=6))
    found = np.resize(np.array(values), shape).astype(draw(st.sampled_from([np.int32, np.int64])))
    is_small = draw(st.booleans()) and bool(np.all(found >= 0))
    return found.astype(np.uint8) if is_small else found


@st.composite
def indices(draw: st.DrawFn) -> tuple[Any, ...]:
    count = draw(st.integers(0, len(SHAPE)))
    behind = draw(st.booleans())
    sizes = SHAPE[len(SHAPE) - count :] if behind else SHAPE[:count]
    items: list[Any] = [Ellipsis] if behind else []
    for size in sizes:
        if draw(st.integers(0, 5)) == 0:
            items.append(None)
        whole = st.integers(-size, size - 1)
        items.append(draw(whole | slices(size) | arrays_of_positions(size)))
    return tuple(items)


def read(x: Array, index: tuple[Any, ...]) -> Array:
    """Reads like numpy, except that integers drop their axis before arrays broadcast."""
    view = x[tuple(slice(None) if is_array(item) else item for item in index)]
    found: Array = view[rest(index, x.ndim)]
    return found


def rest(index: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    """The remaining index after integers and slices are applied."""
    used = sum(item is not None and item is not Ellipsis for item in index)
    found: list[Any] = []
    for item in index:
        if item is Ellipsis:
            found += [slice(None)] * (rank - used)
        elif is_array(item):
            found.append(item)
        elif not isinstance(item, int):
            found.append(slice(None))
    return tuple(found)


def as_tensors(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(Tensor(item) if is_array(item) else item for item in index)


@settings(max_examples=40, deadline=None)
@given(indices())
def test_reading_by_any_index(index: tuple[Any, ...]) -> None:
    x = np.arange(60, dtype=np.float32).reshape(SHAPE)
    expected = read(x, index)
    source = Tensor(x, requires_grad=True)
    found = source[as_tensors(index)]
    if expected.size:
        weights = np.arange(1, expected.size + 1, dtype=np.float32).reshape(expected.shape)
        (found * Tensor(weights)).sum().backward()
        target = np.zeros(60, np.float32)
        positions = read(np.arange(60).reshape(SHAPE), index)
        np.add.at(target, positions.reshape(-1), weights.reshape(-1))
        assert source.grad is not None
        np.testing.assert_array_equal(source.grad.numpy(), target.reshape(SHAPE))
    np.testing.assert_array_equal(found.numpy(), expected)


@settings(max_examples=30, deadline=None)
@given(indices(), st.sampled_from(["memory", "lazy", "view", "constant"]), st.booleans())
def test_writing_by_any_index(index: tuple[Any, ...], kind: str, is_number: bool) -> None:
    expected = np.arange(60, dtype=np.float32).reshape(SHAPE)
    if kind == "constant":
        expected = np.full(SHAPE, 3, np.float32)
        x = Tensor.full(SHAPE, 3.0)
    elif kind == "view":
        whole = Tensor(np.stack([expected.T, expected.T])).realize()
        x = whole[1].permute(3, 2, 1, 0)
    else:
        x = Tensor(expected.copy()).realize()
        x = x if kind == "memory" else x + 0.5 - 0.5
    positions = read(np.arange(60).reshape(SHAPE), index)
    value = np.arange(100, 100 + positions.size, dtype=np.float32).reshape(positions.shape)
    value = np.full_like(value, 7) if is_number else value
    x[as_tensors(index)] = 7 if is_number else Tensor(value)
    # in order, so that of equal positions the last one wins
    flat = expected.reshape(-1).copy()
    for position, number in zip(positions.reshape(-1), value.reshape(-1), strict=True):
        flat[position] = number
    np.testing.assert_array_equal(x.numpy(), flat.reshape(SHAPE))
    if kind == "view":
        np.testing.assert_array_equal(whole[1].numpy(), flat.reshape(SHAPE).T)
        np.testing.assert_array_equal(whole[0].numpy(), expected.T)


# ---- dtypes of index tensors ----


@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
def test_indices_of_every_integer_dtype(dtype: Any) -> None:
    x = tensor(4, 3)
    found = x[Tensor([3, 0, 3], dtype=dtype)]
    np.testing.assert_array_equal(found.numpy(), array(4, 3)[[3, 0, 3]])


def test_indices_beyond_32_bits_are_out_of_range() -> None:
    x = Tensor([1, 2, 3])
    assert x[Tensor([2**32, -(2**32), 1], dtype=dtypes.int64)].tolist() == [0, 0, 2]
    assert x[Tensor([2**32 - 1, 1], dtype=dtypes.uint32)].tolist() == [0, 2]
    assert x[Tensor([2**64 - 1, 1], dtype=dtypes.uint64)].tolist() == [0, 2]


def test_indices_as_numpy_integers_lists_and_tuples() -> None:
    x, expected = tensor(4, 3), array(4, 3)
    np.testing.assert_array_equal(x[np.int64(-1)].numpy(), expected[-1])
    np.testing.assert_array_equal(x[np.array([1, 0])].numpy(), expected[[1, 0]])
    np.testing.assert_array_equal(x[[[0, 1], [2, 3]]].numpy(), expected[[[0, 1], [2, 3]]])
    np.testing.assert_array_equal(x[(1, 0), (2, 1)].numpy(), expected[(1, 0), (2, 1)])
    np.testing.assert_array_equal(x[Tensor(2)].numpy(), expected[2])
    assert x[[]].shape == (0, 3)


def test_indices_out_of_range_are_not_written() -> None:
    x = Tensor([1, 2, 3]).realize()
    x[Tensor([3, -4, 1])] = 9
    assert x.tolist() == [1, 9, 3]
    x[Tensor([3, 5])] = 9
    assert x.tolist() == [1, 9, 3]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (True, "bool"),
        (Tensor(True), "a bool without axes"),
        ([True, False, True], "does not fit axis 0"),
        ((slice(None), np.ones((3, 2), bool)), "too many"),
    ],
)
def test_bools_that_are_no_mask_of_an_axis_are_refused(index: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        tensor(2, 3)[index]
    with pytest.raises(IndexError, match=message):
        tensor(2, 3)[index] = 1


# ---- masks ----

ROWS, PAIRS = np.array([True, False, True]), np.arange(12).reshape(3, 4) % 5 < 2
MASKS = [
    (ROWS,),
    (ROWS.tolist(),),
    (slice(None), PAIRS[0]),
    (Ellipsis, PAIRS[1], slice(1, 3)),
    (PAIRS,),
    (None, PAIRS, 1),
    (0, PAIRS[2]),
    (ROWS, [1, 2]),
    (slice(None), PAIRS[0], 0),
    (~PAIRS & PAIRS,),
]


@pytest.mark.sample(5, values=False)
@pytest.mark.parametrize("index", MASKS)
@pytest.mark.parametrize("device", [None, Sharding(device_names(2, 1), 0)])
def test_masks_select_and_write_as_in_numpy(index: tuple[Any, ...], device: Any) -> None:
    data = np.arange(36, dtype=np.int32).reshape(3, 4, 3)
    mine = tuple(Tensor(x) if device is None and is_array(x) else x for x in index)
    found = data[index]
    np.testing.assert_array_equal(Tensor(data).to(device).realize()[mine].numpy(), found)
    values = [-1, -found]
    if found.shape[-1] == 3:
        values.append(np.arange(3, dtype=np.int32))
    for value in values:
        x, expected = Tensor(data).to(device).realize(), data.copy()
        x[mine] = value
        expected[index] = value
        np.testing.assert_array_equal(x.numpy(), expected)


def test_a_mask_of_the_tensor_itself() -> None:
    x = Tensor([1.0, -2.0, 3.0, -4.0]).realize()
    view = x[1:]
    x[x < 0] *= 10
    assert view.tolist() == [-20, 3, -40]
    x[x < 0] = 0
    assert (x.tolist(), view.tolist(), x[x > 5].tolist()) == ([1, 0, 3, 0], [0, 3, 0], [])
    with pytest.raises(ValueError, match=r"\(3,\) to \(2,\)"):
        x[x > 0] = Tensor([1.0, 2.0, 3.0])


def test_gradients_of_what_a_mask_selects_and_writes() -> None:
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    mask = Tensor([True, False, True])
    assert (w * w)[mask].sum().gradient(w)[0].tolist() == [2, 0, 6]
    x = Tensor([5.0, 6.0, 7.0])
    x[mask] = w[:2]
    assert (x * x).sum().gradient(w)[0].tolist() == [2, 4, 0]
    y = w * 2
    y[mask] = 0
    assert y.sum().gradient(w)[0].tolist() == [0, 2, 0]


def test_a_number_is_written_by_a_mask_in_one_kernel_that_a_capture_replays() -> None:
    @TinyJit
    def clip(x: Tensor) -> Tensor:
        y = (x * 2).contiguous()
        y[y > 4] = 4
        return y.realize()

    for start in range(4):
        assert clip(Tensor([start, start + 1])).tolist() == [
            min(2 * start, 4),
            min(2 * start + 2, 4),
        ]
    x = Tensor.arange(8).contiguous().realize()
    GlobalCounters.reset()
    x[x > 3] = 0
    assert GlobalCounters.kernel_count == 1


def test_a_list_that_holds_tensors_or_slices_is_an_index_of_several_axes() -> None:
    data = np.arange(12).reshape(3, 4)
    x = Tensor(data)
    assert x[[Tensor([2]), Tensor([1])]].tolist() == [9]
    assert x[[Tensor([2, 0]), 1]].tolist() == [9, 1]
    assert x[[slice(1, None), 0]].tolist() == [4, 8]
    np.testing.assert_array_equal(x[[[0, 1], [1, 2]]].numpy(), data[[[0, 1], [1, 2]]])


# ---- written values ----


@pytest.mark.parametrize("index", [0, [1, 0], slice(None, None, 2)])
def test_written_values_are_cast_to_the_dtype_of_the_tensor(index: Any) -> None:
    for start, value in (
        (np.array([1, 2], np.int8), 300),
        (np.array([False, True]), 1),
        (np.array([5], np.int32), 1.7),
    ):
        expected, x = np.resize(start, (2, 3)), Tensor(np.resize(start, (2, 3))).realize()
        expected[index] = np.asarray(value).astype(start.dtype)
        x[index] = value
        np.testing.assert_array_equal(x.numpy(), expected)
        assert x.numpy().dtype == start.dtype


def test_infinities_and_nan_are_written_and_overwritten() -> None:
    x = Tensor([np.nan, 1.0, np.inf]).realize()
    x[[0, 1, 1]] = Tensor([2.0, np.nan, np.inf])
    assert x.tolist() == [2.0, np.inf, np.inf]


def test_a_value_that_does_not_broadcast_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"cannot expand \(2,\) to \(3,\)"):
        tensor(2, 3)[0] = Tensor([1.0, 2.0])


def test_rows_are_moved_within_one_tensor() -> None:
    x, expected = tensor(4, 3), array(4, 3)
    x[[0, 1, 2, 3]] = x[[3, 2, 1, 0]]
    np.testing.assert_array_equal(x.numpy(), expected[::-1])
    x[1:] = x[:-1]
    np.testing.assert_array_equal(x.numpy(), expected[::-1][[0, 0, 1, 2]])


# ---- memory traffic ----

ROWS, WIDTH, SELECTED = 50_000, 64, 1000


def moved(*results: Tensor) -> int:
    """The bytes read and written to realize the results."""
    GlobalCounters.reset()
    Tensor.realize(*results)
    return GlobalCounters.global_mem


@pytest.fixture(scope="module")
def table() -> Tensor:
    return tensor(ROWS, WIDTH)


@pytest.fixture(scope="module")
def rows() -> Tensor:
    return Tensor(np.random.default_rng(0).integers(0, ROWS, SELECTED).astype(np.int32)).realize()


def test_gathering_rows_costs_the_selected_rows(table: Tensor, rows: Tensor) -> None:
    assert moved(table[rows]) == SELECTED * (2 * WIDTH + 1) * 4
    assert GlobalCounters.global_ops <= 8 * SELECTED * WIDTH


def test_the_gradient_of_gathered_rows_costs_the_table_once_and_the_selected_rows(
    rows: Tensor,
) -> None:
    weight = tensor(ROWS, WIDTH)
    weight.requires_grad = True
    (gradient,) = weight[rows].square().sum().gradient(weight)
    assert moved(gradient) <= (ROWS + 8 * SELECTED) * WIDTH * 4
    assert GlobalCounters.global_ops <= 16 * SELECTED * WIDTH


@pytest.mark.parametrize("dim", [0, 1])
def test_a_million_elements_are_gathered_and_their_gradient_scattered(dim: int) -> None:
    count = 1000
    x = tensor(count, count)
    x.requires_grad = True
    index = Tensor(np.random.default_rng(0).integers(0, count, (count, count))).realize()
    found = x.gather(dim, index)
    (gradient,) = found.sum().gradient(x)
    assert moved(found) <= 4 * count**2 * 4
    assert moved(gradient) <= 8 * count**2 * 4
    assert GlobalCounters.global_ops <= 16 * count**2


def test_writing_rows_costs_the_table_and_the_written_rows(rows: Tensor) -> None:
    x, value = tensor(ROWS, WIDTH), tensor(SELECTED, WIDTH)
    GlobalCounters.reset()
    x[rows] = value
    assert GlobalCounters.global_mem <= (2 * ROWS + 4 * SELECTED) * WIDTH * 4
    assert GlobalCounters.global_ops <= 4 * ROWS * WIDTH


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin", None])
def test_scattering_costs_the_result_and_the_scattered_elements(reduce: str | None) -> None:
    size = 300
    x, source = tensor(size, size), tensor(size, size, seed=1)
    index = Tensor(np.random.default_rng(0).integers(0, size, (size, size))).realize()
    found = x.scatter_reduce(1, index, source, reduce) if reduce else x.scatter(1, index, source)
    assert moved(found) <= 16 * size**2 * 4
    assert GlobalCounters.global_ops <= 32 * size**2


def test_writing_to_repeated_elements_is_an_error() -> None:
    x = Tensor([1, 2]).realize()
    wide = x.reshape(2, 1).expand(2, 3)
    with pytest.raises(RuntimeError, match="one element of memory"):
        wide[0, 1:] = 5
    assert x.tolist() == [1, 2]


def test_slice_assignment_costs_the_slice(table: Tensor) -> None:
    GlobalCounters.reset()
    table[100:110] = 0
    assert GlobalCounters.global_mem <= 10 * WIDTH * 4


# ---- writing to slices with steps ----

STEPPED = [
    slice(None, -3, -2),
    slice(None, None, -1),
    slice(6, 1, -2),
    slice(1, 7, 3),
    slice(None, None, 2),
    slice(-1, None, 3),
    slice(5, 5, -1),
]


@pytest.mark.sample(7, values=False)
@pytest.mark.parametrize("index", STEPPED, ids=str)
@pytest.mark.parametrize(
    "place", [DEVICE, Sharding(device_names(2)), Sharding(device_names(2), 0)], ids=str
)
def test_slices_with_any_step_are_written(index: slice, place: Any) -> None:
    for is_realized in (False, True):
        x, expected = Tensor(list(range(8)), device=place), np.arange(8)
        x = x.realize() if is_realized else x.neg().neg()
        x[index] += 3
        expected[index] += 3
        view, numpy_view = x[index], expected[index]
        view *= 2
        numpy_view *= 2
        assert x.tolist() == expected.tolist()
        x[index] = 50
        expected[index] = 50
        assert x.tolist() == expected.tolist()
        assert view.tolist() == numpy_view.tolist()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((3,), "index 3 is out of range for axis 0"),
        ((0, 0, 0), "3 indices are too many"),
        ((Ellipsis, Ellipsis), "only one ..."),
        ((1.5,), "1.5 of type float is not an index"),
        (([0.5],), "index tensors must be of integers"),
        (([0, 3],), "index 3 is out of range for axis 0"),
        ((..., np.array([[0], [-5]])), "index -5 is out of range for axis 1"),
        (([0, 1], [0, 1, 2]), r"axes 0, 1: shapes \(2,\) and \(3,\) do not broadcast"),
        ((Tensor([0, 1, 2]), Tensor([[0, 1]])), r"\(3,\) and \(1, 2\) do not broadcast"),
    ],
)
def test_an_index_that_does_not_fit_is_an_error(index: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        Tensor.zeros(3, 4)[index]
    with pytest.raises(IndexError, match=message):
        Tensor.zeros(3, 4).contiguous()[index] = 1


# ---- tensors as integers of Python ----


def test_an_integer_tensor_without_axes_is_an_integer_of_python() -> None:
    three = Tensor(3, dtype=dtypes.uint8)
    assert list(range(three)) == [0, 1, 2]
    assert "abcde"[three] == "d" and [0] * 5 == [0] * (three + 2).item()
    assert np.arange(9)[: Tensor([4, 5])[0]].tolist() == [0, 1, 2, 3]
    assert Tensor.arange(9)[: three * 2].tolist() == [0, 1, 2, 3, 4, 5]
    for other in (Tensor([3]), Tensor(3.0), Tensor(True)):
        with pytest.raises(TypeError, match="is not an integer"):
            range(other)


# ---- positions of elements that a mask selects ----

MASKS = {
    "matrix": np.array([[0, 1, 2], [3, 0, 4]]),
    "floats": np.array([0.0, -0.0, 0.5, np.nan, -1]),
    "bools": np.array([[True], [False]]),
    "nothing": np.zeros((2, 3), np.int32),
    "empty": np.zeros((0, 3), np.int32),
    "scalar": np.array(7),
    "zero": np.array(0),
}


@pytest.mark.parametrize("name", MASKS)
def test_nonzero_has_a_row_of_positions_for_each_element_that_is_not_zero(name: str) -> None:
    x = MASKS[name]
    expected = np.array(np.nonzero(np.atleast_1d(x))).T[:, : x.ndim]
    found = Tensor(x).nonzero()
    assert found.dtype == dtypes.int32 and found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)
    for size in (0, 1, 3, 9):
        filled = np.full((size, x.ndim), -7)
        filled[: len(expected)] = expected[:size]
        np.testing.assert_array_equal(Tensor(x).nonzero(size, -7).numpy(), filled)


@pytest.mark.parametrize("size", [0, 2, 3, 8])
def test_a_mask_selects_a_given_number_of_elements(size: int) -> None:
    x = array(4, 3)
    mask = np.array([True, False, True])
    chosen = x[:, mask].reshape(-1)
    expected = np.full(size, 5.5, np.float32)
    expected[: len(chosen)] = chosen[:size]
    found = Tensor(x).masked_select(Tensor(mask), size=size, fill_value=5.5)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_a_given_number_of_elements_is_selected_in_a_capture() -> None:
    step = TinyJit(lambda x: (x.masked_select(x > 0, size=3), x.nonzero(2)))
    for row in ([1, -1, 2, -2], [-1, -1, -1, 4], [5, 6, 7, 8], [0, 0, 0, 0]):
        selected, positions = step(Tensor(row).realize())
        assert selected.tolist() == ([x for x in row if x > 0] + [0] * 3)[:3]
        found = [i for i, x in enumerate(row) if x]
        assert positions.flatten().tolist() == (found + [0] * 2)[:2]


def test_the_gradient_of_selected_elements_goes_to_where_they_were() -> None:
    x = Tensor([1.0, -2.0, 3.0, 4.0], requires_grad=True)
    (gradient,) = x.masked_select(x > 0, size=2).mul(Tensor([5.0, 7.0])).sum().gradient(x)
    assert gradient.tolist() == [5, 0, 7, 0]


def test_a_number_of_elements_is_not_negative() -> None:
    for select in (lambda x: x.nonzero(size=-1), lambda x: x.masked_select(x > 0, size=-1)):
        with pytest.raises(ValueError, match="size=-1 must not be negative"):
            select(Tensor([1, 2]))
