"""Movement, joining and indexing against torch and numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.ops.oracle import arrays
from test.backend.ops.oracle import compare_with_torch as compare
from test.devices import only_cpu
from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType

torch = pytest.importorskip("torch")

SAME: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "reshape": ((3, 4, 5), lambda x: x.reshape(12, -1)),
    "view of a tuple": ((3, 4), lambda x: x.view((2, 6))),
    "flatten": ((2, 3, 4, 5), lambda x: x.flatten(1, 2)),
    "unflatten": ((3, 8), lambda x: x.unflatten(1, (2, 4))),
    "squeeze all": ((1, 3, 1), lambda x: x.squeeze()),
    "squeeze one": ((1, 3, 1), lambda x: x.squeeze(-1)),
    "squeeze none": ((1, 3, 1), lambda x: x.squeeze(1)),
    "unsqueeze": ((3, 4), lambda x: x.unsqueeze(-1)),
    "permute": ((2, 3, 4), lambda x: x.permute(2, 0, 1)),
    "transpose": ((2, 3, 4), lambda x: x.transpose(-1, 0)),
    "T": ((2, 3), lambda x: x.T),
    "expand": ((3, 1), lambda x: x.expand(2, -1, 4)),
    "repeat": ((2, 3), lambda x: x.repeat(2, 1, 3)),
    "repeat_interleave": ((2, 3), lambda x: x.repeat_interleave(2, dim=1)),
    "repeat_interleave flat": ((2, 3), lambda x: x.repeat_interleave(3)),
    "unfold": ((2, 9), lambda x: x.unfold(1, 4, 2)),
    "unfold with gaps": ((9, 2), lambda x: x.unfold(0, 2, 3)),
    "unfold first of three": ((9, 2, 3), lambda x: x.unfold(0, 4, 3)),
    "roll": ((3, 4), lambda x: x.roll(1, 0)),
    "roll several": ((3, 4), lambda x: x.roll((2, -1), (0, 1))),
    "roll flat": ((3, 4), lambda x: x.roll(5)),
    "triu": ((4, 5), lambda x: x.triu(1)),
    "tril": ((2, 4, 5), lambda x: x.tril(-1)),
    "diag": ((4,), lambda x: x.diag()),
    "diagonal": ((4, 4), lambda x: x.diagonal()),
    "int": ((3, 4, 5), lambda x: x[1]),
    "negative int": ((3, 4, 5), lambda x: x[:, -2]),
    "ints": ((3, 4, 5), lambda x: x[2, 0, 3]),
    "slice": ((5, 6), lambda x: x[1:4, :-2]),
    "step": ((7, 9), lambda x: x[::2, 1:8:3]),
    "none": ((3, 4), lambda x: x[None, :, None]),
    "dots": ((3, 4, 5), lambda x: x[..., 1, None]),
    "empty slice": ((3, 4), lambda x: x[2:2]),
    "list": ((5, 4), lambda x: x[[0, 3, 3, -1]]),
    "list last": ((5, 4), lambda x: x[:, [1, 0]]),
    "two lists": ((5, 4), lambda x: x[[0, 2], [1, 3]]),
    "separated lists": ((5, 4, 3), lambda x: x[[0, 2], :, [1, 2]]),
    "lists that broadcast": ((5, 4), lambda x: x[[[0], [2]], [1, 3]]),
    "list and slice": ((5, 4, 3), lambda x: x[1:, [1, 0], ::2]),
    "list, int, list": ((5, 4, 3), lambda x: x[[1, 0], 2, [0, 1]]),
    "list and none": ((5, 4), lambda x: x[None, [1, 0]]),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SAME)
def test_movement_and_indexing(name: str) -> None:
    shape, function = SAME[name]
    compare(arrays([shape]), function, function)


@pytest.mark.parametrize("step", [-1, -2, -5])
def test_negative_steps(step: int) -> None:
    x = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(Tensor(x)[:, ::step].numpy(), x[:, ::step])
    np.testing.assert_array_equal(Tensor(x)[3:0:step, 4::step].numpy(), x[3:0:step, 4::step])


def test_triangles_keep_the_dtype_and_drop_infinities() -> None:
    x = Tensor([[True, True], [True, True]])
    assert x.tril().dtype == dtypes.bool
    assert x.triu().tolist() == [[True, True], [False, True]]
    assert Tensor([[1.0, np.inf], [np.nan, 2.0]]).tril().triu().tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: x.reshape(-2, -3), ValueError, "reshape: .* must not be negative"),
        (lambda x: x.reshape(2.0, 3), TypeError, "reshape: .* are not sizes; use integers"),
        (lambda x: x.reshape(2, 3, None), ValueError, "no axis 2 whose size None keeps"),
        (lambda x: x.expand(-2, 3), ValueError, "expand: .* must not be negative"),
        (lambda x: x.repeat(-1, 1), ValueError, "repeat: .* must not be negative"),
        (lambda x: x.repeat_interleave(-1), ValueError, "repeat_interleave: .* negative"),
        (lambda x: x.flatten(1, 0), ValueError, "flatten"),
        (lambda x: x.split(0), ValueError, "split: parts of 0 elements do not add up to 2"),
        (lambda x: x.split([3, -1]), ValueError, "split: .* must not be negative"),
        (lambda x: x.pad((-2, -2)), ValueError, r"pad: \(-2, -2\) crops more than 3"),
        (lambda x: x.sum().cat(x.sum()), ValueError, "cat needs a tensor with axes"),
        (lambda x: x.sum().chunk(2), ValueError, "chunk needs a tensor with axes"),
        (lambda x: x[:0].pad((0, 0, 1, 0), mode="replicate"), ValueError, "pad: 1 is too large"),
        (lambda x: x.cast(dtypes.int).one_hot(-2), ValueError, "give num_classes"),
        (lambda x: x.rearrange("a b -> b a", c=2), RuntimeError, "there is no axis c"),
    ],
)
def test_movement_that_does_not_fit_is_an_error(
    function: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        function(Tensor.arange(6).reshape(2, 3))


def test_numpy_integers_are_sizes() -> None:
    x = Tensor.arange(6).reshape(np.int64(2), np.int32(-1))
    assert x.shape == (2, 3)
    assert all(type(size) is int for size in x.shape)
    bounds: Any = ((np.int64(0), np.int64(1)), None)
    assert x.shrink(bounds).tolist() == [[0, 1, 2]]


def test_flip() -> None:
    compare(arrays([(3, 4)]), lambda x: x.flip(0, 1), lambda x: x.flip(0, 1))
    compare(arrays([(3, 4)]), lambda x: x.flip(-1), lambda x: x.flip(-1))


def test_shrink_pad_to_and_shrink_to() -> None:
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(Tensor(x).shrink(((1, 3), None)).numpy(), x[1:3])
    np.testing.assert_array_equal(Tensor(x).shrink_to(2, None).numpy(), x[:2])
    np.testing.assert_array_equal(Tensor(x).pad_to(None, 6).numpy(), np.pad(x, ((0, 0), (0, 2))))


# ---- joining ----


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_and_stack(dim: int) -> None:
    inputs = arrays([(2, 3), (2, 3), (2, 3)])
    compare(inputs, lambda *x: torch.cat(x, dim), lambda x, *rest: x.cat(*rest, dim=dim))
    compare(inputs, lambda *x: torch.stack(x, dim), lambda x, *rest: x.stack(*rest, dim=dim))


def test_cat_of_infinities_and_of_bools() -> None:
    x = np.array([np.inf, np.nan, -np.inf], np.float32)
    compare([x, x], lambda *x: torch.cat(x), Tensor.cat, gradient=False)
    compare([x > 0, x < 0], lambda *x: torch.cat(x), Tensor.cat)


def test_tensors_are_joined_one_by_one_or_in_a_sequence() -> None:
    x, y = Tensor([1, 2]), Tensor([3, 4])
    for found in (Tensor.stack([x, y], dim=1), Tensor.stack(x, y, dim=1), x.stack((y,), dim=1)):
        assert found.tolist() == [[1, 3], [2, 4]]
    for found in (Tensor.cat((x, y)), Tensor.cat(x, y), x.cat([y])):
        assert found.tolist() == [1, 2, 3, 4]
    assert [grid.shape for grid in Tensor.meshgrid([x, y])] == [(2, 2)] * 2
    for wrong in ([], [x, 3], [[x], [y]]):
        with pytest.raises(TypeError, match="cat"):
            Tensor.cat(wrong)


def test_cat_of_shapes_that_differ_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(3, 2\) differ elsewhere"):
        Tensor.ones(2, 3).cat(Tensor.ones(3, 2))


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_chunk_and_split(count: int) -> None:
    x = arrays([(8, 3)])
    compare(x, lambda x: torch.chunk(x, count), lambda x: x.chunk(count))
    compare(x, lambda x: torch.split(x, count), lambda x: x.split(count))


def test_split_into_sizes() -> None:
    compare(arrays([(3, 8)]), lambda x: x.split([1, 2, 5], 1), lambda x: x.split([1, 2, 5], 1))
    with pytest.raises(ValueError, match="add up to 7, not to 8"):
        Tensor.ones(8).split([3, 4])


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(indexing: str) -> None:
    compare(
        arrays([(2,), (3,), (4,)]),
        lambda *x: torch.meshgrid(*x, indexing=indexing),
        lambda x, *rest: x.meshgrid(*rest, indexing=indexing),
    )


@pytest.mark.parametrize("value", [0.0, 1.5, -np.inf])
@pytest.mark.parametrize("padding", [(1, 2), (1, 0, 2, 3), (-1, 2, 0, -2)])
def test_pad(padding: tuple[int, ...], value: float) -> None:
    compare(
        arrays([(3, 4)]),
        lambda x: torch.nn.functional.pad(x, padding, value=value),
        lambda x: x.pad(padding, value=value),
        gradient=value != -np.inf,
    )


@pytest.mark.parametrize("padding", [(1, 2), (1, 0, 2, 1), (-1, 2, 0, 1)])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_pad_with_existing_elements(mode: str, padding: tuple[int, ...]) -> None:
    compare(
        arrays([(2, 2, 5, 6)]),
        lambda x: torch.nn.functional.pad(x, (*padding, 0, 0)[:4], mode=mode),
        lambda x: x.pad((*padding, 0, 0)[:4], mode=mode),
    )


LARGE: dict[str, Callable[[Any], Any]] = {
    "pad": lambda x: torch.nn.functional.pad(x, (3, 70, 1, 0)),
    "pad reflect": lambda x: torch.nn.functional.pad(x, (3, 2, 0, 4), mode="reflect"),
    "pad replicate": lambda x: torch.nn.functional.pad(x, (1, 0, 9, 9), mode="replicate"),
    "pad circular": lambda x: torch.nn.functional.pad(x, (30, 40, 2, 1), mode="circular"),
    "cat columns": lambda x: torch.cat([x, x[..., :7], x[..., 1:] * 2], -1),
    "cat rows": lambda x: torch.cat([x[:, :3], x.flip(1), x], 1),
    "roll": lambda x: x.roll((5, -1), (2, 1)),
    "stack last": lambda x: torch.stack([x, x + x], -1),
}
OURS: dict[str, Callable[[Tensor], Tensor]] = {
    "pad": lambda x: x.pad((3, 70, 1, 0)),
    "pad reflect": lambda x: x.pad((3, 2, 0, 4), mode="reflect"),
    "pad replicate": lambda x: x.pad((1, 0, 9, 9), mode="replicate"),
    "pad circular": lambda x: x.pad((30, 40, 2, 1), mode="circular"),
    "cat columns": lambda x: Tensor.cat(x, x[..., :7], x[..., 1:] * 2, dim=-1),
    "cat rows": lambda x: Tensor.cat(x[:, :3], x.flip(1), x, dim=1),
    "roll": lambda x: x.roll((5, -1), (2, 1)),
    "stack last": lambda x: x.stack(x + x, dim=-1),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("columns", [41, 300])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.uint8])
@pytest.mark.parametrize("name", LARGE)
def test_arrays_whose_loops_are_split_at_their_parts(name: str, dtype: DType, columns: int) -> None:
    x = np.random.default_rng(0).integers(0, 50, (11, 37, columns))
    expected = LARGE[name](torch.tensor(x)).numpy()
    found = OURS[name](Tensor(x).cast(dtype).realize()).cast(dtypes.int64).numpy()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", LARGE)
def test_gradients_of_arrays_whose_loops_are_split(name: str) -> None:
    compare(arrays([(5, 37, 61)]), LARGE[name], OURS[name])


@only_cpu
def test_parts_of_large_arrays_keep_negative_zeros() -> None:
    x = Tensor.full((64, 128), -0.0).contiguous().realize()
    assert np.signbit(x.cat(x, dim=1).numpy()).all()


def test_a_reflection_shows_what_is_cropped_on_the_other_side() -> None:
    x = np.arange(5)
    for before, after in ((-3, 4), (-1, 4), (4, -3), (3, -3), (-2, 3)):
        padded = np.pad(x, (max(before, 0), max(after, 0)), mode="reflect")
        expected = padded[max(-before, 0) : len(padded) - max(-after, 0)]
        assert Tensor(x).pad((before, after), mode="reflect").tolist() == expected.tolist()


# ---- gather and scatter ----

INDEX = np.array([[0, 2, 1, 0], [3, 1, 1, 2]], np.int64)


@pytest.mark.parametrize("dim", [0, 1])
def test_gather(dim: int) -> None:
    x = arrays([(4, 4)])
    compare([*x, INDEX], lambda x, i: x.gather(dim, i), lambda x, i: x.gather(dim, i))


@pytest.mark.parametrize("dim", [0, 1])
def test_scatter(dim: int) -> None:
    index = np.array([[0, 2, 1, 3], [3, 1, 0, 2]], np.int64)
    inputs = [*arrays([(4, 4), (2, 4)]), index]
    compare(inputs, lambda x, s, i: x.scatter(dim, i, s), lambda x, s, i: x.scatter(dim, i, s))
    compare(inputs, lambda x, s, i: x.scatter(dim, i, 2.0), lambda x, s, i: x.scatter(dim, i, 2.0))


def test_the_last_write_to_a_position_wins() -> None:
    found = Tensor([0, 0, 0]).scatter(0, Tensor([1, 1, 1]), Tensor([5, 6, 7]))
    assert found.tolist() == [0, 7, 0]


@pytest.mark.sample(2)
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_reduce(dim: int, reduce: str, include_self: bool) -> None:
    compare(
        [*arrays([(4, 4), (2, 4)]), INDEX],
        lambda x, s, i: x.scatter_reduce(dim, i, s, reduce, include_self=include_self),
        lambda x, s, i: x.scatter_reduce(dim, i, s, reduce, include_self),
    )


def test_a_source_of_another_dtype_is_not_scattered() -> None:
    with pytest.raises(RuntimeError, match="src is of dtypes.int, not of dtypes.float"):
        Tensor([1.0, 2.0]).scatter_reduce(0, Tensor([0, 0]), Tensor([1, 2]), "sum")


def test_positions_out_of_range_read_as_zero() -> None:
    table = Tensor([[1, 2], [3, 4]])
    assert table[Tensor([0, 2, -1, -3])].tolist() == [[1, 2], [0, 0], [3, 4], [0, 0]]
    assert table[Tensor([0, 5]), Tensor([1, 0])].tolist() == [2, 0]


def test_one_hot() -> None:
    labels = np.array([[0, 2], [1, 3]], np.int64)
    hot = torch.nn.functional.one_hot
    compare([labels], lambda x: hot(x, 5).int(), lambda x: x.one_hot(5))
    compare([labels], lambda x: hot(x).int(), lambda x: x.one_hot())


def test_masked_select() -> None:
    x = arrays([(3, 5)])[0]
    compare([x, x > 0], lambda x, m: x.masked_select(m), lambda x, m: x.masked_select(m))
    assert Tensor([1, 2]).masked_select(Tensor([False, False])).tolist() == []


# ---- indexed assignment ----

WRITES: dict[str, Any] = {
    "int": 1,
    "slice": slice(1, 3),
    "step": slice(0, None, 2),
    "backwards": slice(None, None, -1),
    "column": (slice(None), 2),
    "block": (slice(1, 3), slice(0, 2)),
    "list": [0, 2],
    "column list": (slice(None), [3, 0]),
    "pairs": ([0, 2], [1, 3]),
    "separated pairs": ([0, 2], None, [1, 3]),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("realized", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_indexed_assignment(name: str, realized: bool) -> None:
    index = WRITES[name]
    expected = np.arange(16, dtype=np.float32).reshape(4, 4)
    x = Tensor(expected.copy()).realize() if realized else Tensor(expected.copy()) * 1
    value = np.arange(100, 100 + expected[index].size, dtype=np.float32)
    value = value.reshape(expected[index].shape)
    expected[index] = value
    x[index] = Tensor(value)
    np.testing.assert_array_equal(x.numpy(), expected)
    expected[index] = -1
    x[index] = -1
    np.testing.assert_array_equal(x.numpy(), expected)


def test_assignment_of_a_tensor_to_itself() -> None:
    x = Tensor([1, 2, 3, 4]).realize()
    x[1:] = x[:-1]
    assert x.tolist() == [1, 1, 2, 3]


def test_indexed_assignment_is_seen_by_views() -> None:
    x = Tensor([1, 2, 3, 4]).realize()
    view = x.reshape(2, 2)
    x[0] = 9
    assert view.tolist() == [[9, 2], [3, 4]]


def test_indexed_assignment_to_constants() -> None:
    x, y = Tensor.zeros(3), Tensor.zeros(3)
    x[1] = 5
    assert (x.tolist(), y.tolist()) == ([0, 5, 0], [0, 0, 0])


def test_indexed_assignment_to_a_tensor_that_requires_a_gradient_writes_data() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    x[0] = 5
    (x * x).sum().backward()
    assert x.grad is not None and (x.tolist(), x.grad.tolist()) == ([5, 2], [10, 4])


# ---- creation ----


@pytest.mark.parametrize(
    "bounds", [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (3, 3), (0.5, 3), (0, 1, 0.1)]
)
def test_arange(bounds: tuple[float, ...]) -> None:
    expected = np.arange(*bounds)
    found = Tensor.arange(*bounds)
    np.testing.assert_allclose(found.numpy(), expected.astype(found.numpy().dtype), rtol=1e-6)


def test_linspace_and_eye() -> None:
    for steps in (0, 1, 2, 5, 100):
        found = Tensor.linspace(-3, 7, steps).numpy()
        np.testing.assert_allclose(found, np.linspace(-3, 7, steps), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(Tensor.eye(3, 4).numpy(), np.eye(3, 4))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int64, dtypes.bool])
def test_full_and_like_functions(dtype: Any) -> None:
    x = Tensor.full((2, 3), 1, dtype=dtype)
    assert (x.dtype, x.shape) == (dtype, (2, 3))
    assert x.zeros_like().dtype == dtype
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_tensors_from_many_types_of_data() -> None:
    assert Tensor([[1, 2], [3, 4]]).dtype == dtypes.int32
    assert Tensor([1, 2.5]).tolist() == [1.0, 2.5]
    assert Tensor([True, False]).dtype == dtypes.bool
    assert Tensor(b"ab").tolist() == [97, 98]
    assert Tensor(None).shape == (0,)
    assert Tensor([]).dtype == dtypes.float32
    assert Tensor(np.float16(2.5)).dtype == dtypes.float16
    assert Tensor([1.5, 2.5], dtype=dtypes.bfloat16).tolist() == [1.5, 2.5]
    with pytest.raises(ValueError, match="no tensor"):
        Tensor([[1, 2], [3]])
    with pytest.raises(TypeError, match="no tensor can be built from"):
        Tensor(object())


def test_an_array_that_changes_later_changes_no_tensor() -> None:
    array = np.arange(3)
    x = Tensor(array)
    array[0] = 99
    assert x.tolist() == [0, 1, 2]


def test_arrays_from_numpy_are_writable() -> None:
    x = Tensor([1, 2, 3]).realize()
    x.numpy()[0] = 99
    assert x.tolist() == [1, 2, 3]
