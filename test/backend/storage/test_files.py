"""Tensors in files: read, written, created, replaced; what survives, and what is an error."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.devices import DEVICE, device_names, nth, only_cpu
from tinygrad import Sharding, Tensor, TinyJit, UOp, Variable, dtypes
from tinygrad.device import Buffer, DeviceError
from tinygrad.execution.capture import JitError
from tinygrad.nn.optim import SGD
from tinygrad.nn.state import async_save, load_state_dict, safe_load, safe_save
from tinygrad.runtime.disk import DiskFile, FileError
from tinygrad.schedule.kernel.custom_kernel import CustomKernelError
from tinygrad.settings import Context
from tinygrad.sharding import ShardingError

TWO = device_names(2)
TEN = np.arange(10, dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of the bytes 0 to 9."""
    file = tmp_path / "ten.bin"
    file.write_bytes(TEN.tobytes())
    return file


def on(path: Path) -> str:
    return f"disk:{path}"


def opened(path: Path, *shape: int, dtype: Any = dtypes.uint8) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device=on(path))


def content(path: Path, dtype: Any = np.uint8) -> list[Any]:
    return np.frombuffer(path.read_bytes(), dtype).tolist()


# ---- reading ----


def test_an_existing_file_is_read(path: Path) -> None:
    x = opened(path, 10)
    assert str(x.device) == f"DISK:{path}"
    assert x.to(DEVICE).tolist() == x.tolist() == list(range(10))
    assert opened(path, 4).tolist() == [0, 1, 2, 3]


def test_a_missing_or_empty_file_is_created_with_zeros(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for file in (empty, tmp_path / "new"):
        x = opened(file, 2, 3, dtype=dtypes.int)
        assert file.read_bytes() == bytes(24)
        assert x.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_views_of_a_file_are_in_the_file_and_read_only_what_they_show(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    read = DiskFile.read

    def counted(self: DiskFile, file: Any, offset: int, destination: memoryview) -> None:
        counts.append(destination.nbytes)
        read(self, file, offset, destination)

    monkeypatch.setattr(DiskFile, "read", counted)
    x = opened(path, 10)
    views: list[tuple[Tensor, Any, int]] = [
        (x[2:6], TEN[2:6], 4),
        (x[2:6].bitcast(dtypes.int16), TEN[2:6].view(np.int16), 4),
        (x[2:8].reshape(2, 3).T, TEN[2:8].reshape(2, 3).T, 6),
        (x[4:8].flip(0), TEN[4:8][::-1], 4),
        (x[:3].reshape(3, 1).expand(3, 2), np.broadcast_to(TEN[:3, None], (3, 2)), 3),
        (x.reshape(5, 2)[1:3], TEN.reshape(5, 2)[1:3], 4),
        (x[1:8][::3], TEN[1:8:3], 7),
    ]
    for view, expected, nbytes in views:
        counts.clear()
        assert view.device == x.device
        assert view.realize().device == x.device
        np.testing.assert_array_equal(view.numpy(), expected)
        assert sum(counts) == nbytes


# ---- computing ----


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.cast(dtypes.float),
        lambda x: x + 1,
        lambda x: 1 - x,
        lambda x: x * x[::-1],
        lambda x: x.sum(),
        lambda x: x.reshape(2, 5).max(1),
        lambda x: x.reshape(2, 5).permute(1, 0).contiguous(),
        lambda x: x.contiguous(),
        lambda x: x.clone(),
        lambda x: x.int() @ x.int(),
        lambda x: x.pad((1, 2)) + 0,
        lambda x: x[[1, 3, 3]],
        lambda x: x[Tensor([4, 0])],
        lambda x: x.float().softmax(),
        lambda x: x.cat(x + 3),
        lambda x: Tensor.stack(x, x),
        lambda x: (x > 3).where(x, 0),
        lambda x: x.cumsum(),
        lambda x: x.sort()[0],
        lambda x: x.one_hot(11),
        lambda x: x.zeros_like() + x.full_like(3),
        lambda x: x.gather(0, x[:3].int()),
    ],
)
def test_values_that_are_computed_from_a_file_are_on_the_default_device(
    path: Path, compute: Callable[[Tensor], Tensor]
) -> None:
    expected = compute(Tensor(TEN))
    with Context(SPEC=2):
        found = compute(opened(path, 10)).realize()
    assert found.device == DEVICE
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()
    assert content(path) == list(range(10))


@pytest.mark.parametrize("place", [nth(1), Sharding(TWO), Sharding(TWO, 0)], ids=str)
def test_an_operand_in_a_file_goes_to_the_other_operand(path: Path, place: Any) -> None:
    x, y = opened(path, 10).reshape(2, 5), Tensor(TEN.reshape(2, 5)).to(place).realize()
    for found in (x + y, y + x, y + x[:, :1].expand(2, 5)):
        assert found.device == place
    assert (x + y).tolist() == (TEN * 2).reshape(2, 5).tolist()
    assert (y * x[0]).tolist() == (TEN.reshape(2, 5) * TEN[:5]).tolist()
    assert (x[1] + y).tolist() == (TEN.reshape(2, 5) + TEN[5:]).tolist()
    y.assign(x.flip(0))
    assert y.tolist() == TEN.reshape(2, 5)[::-1].tolist()


@pytest.mark.parametrize("place", [nth(1), Sharding(TWO), Sharding(TWO, 0)], ids=str)
def test_an_operand_in_a_file_is_cast_where_the_other_operand_is(path: Path, place: Any) -> None:
    array = TEN.reshape(2, 5).astype(np.float32)
    x, y = opened(path, 10).reshape(2, 5), Tensor(array).to(place).realize()
    cases: list[tuple[Tensor, Any]] = [
        (x + y, array * 2),
        (y / x[1], array / array[1]),
        (y.cat(x), np.concatenate([array, array])),
        (y @ x.T, array @ array.T),
        (x.T @ y, array.T @ array),
        (Tensor.einsum("ij,ij->i", y, x), (array * array).sum(1)),
        ((y > 3).where(y, x[0]), np.where(array > 3, array, array[0])),
    ]
    for found, expected in cases:
        assert (found.device == place) or isinstance(found.device, Sharding)
        np.testing.assert_allclose(found.numpy(), expected)
    image = y.reshape(1, 2, 5, 1)
    kernel = x[:, :4].reshape(2, 2, 2, 1)
    expected = Tensor(image.numpy()).conv2d(Tensor(kernel.numpy()))
    np.testing.assert_allclose(image.conv2d(kernel).numpy(), expected.numpy())


def test_loaded_tensors_are_computed_with(tmp_path: Path) -> None:
    safe_save({"a": Tensor([1.5, -2.0]), "b": Tensor([[1, 2], [3, 4]])}, tmp_path / "x")
    loaded = safe_load(tmp_path / "x")
    half = loaded["a"].half()
    assert (half.device, half.dtype, half.tolist()) == (DEVICE, dtypes.half, [1.5, -2.0])
    assert (loaded["b"] @ loaded["b"]).tolist() == [[7, 10], [15, 22]]
    assert copy.deepcopy(loaded["b"]).device == DEVICE
    assert pickle.loads(pickle.dumps(loaded["b"])).tolist() == [[1, 2], [3, 4]]


def test_the_gradient_of_a_value_in_a_file_is_on_the_default_device(tmp_path: Path) -> None:
    x = Tensor([1.0, 2.0]).to(on(tmp_path / "x"))
    x.requires_grad = True
    (x.flip(0) * Tensor([3.0, 4.0])).sum().backward()
    assert x.grad is not None
    assert (x.grad.device, x.grad.tolist()) == (DEVICE, [4.0, 3.0])
    assert content(tmp_path / "x", np.float32) == [1.0, 2.0]


@pytest.mark.parametrize("is_read", [False, True])
def test_a_gradient_that_needs_overwritten_bytes_is_an_error(tmp_path: Path, is_read: bool) -> None:
    x = Tensor([1.0, 2.0]).to(on(tmp_path / "x"))
    weight = Tensor([3.0, 4.0], requires_grad=True)
    for needs_old in (False, True):
        loss = ((weight + x) if not needs_old else (weight * x)).sum()
        if is_read:
            assert loss.item() > 0
        x.assign(x + 1)
        if needs_old:
            with pytest.raises(RuntimeError, match="was modified in place after it was used"):
                loss.backward()
        else:
            loss.backward()
            assert weight.grad is not None
            assert weight.grad.tolist() == [1.0, 1.0]


# ---- writing to a part of a file ----


WRITES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "all": (lambda x: x, lambda a: a),
    "slice": (lambda x: x[1:3], lambda a: a[1:3]),
    "bitcast": (lambda x: x.bitcast(dtypes.int16), lambda a: a.view(np.int16)),
    "bitcast slice": (lambda x: x[3:7].bitcast(dtypes.int32), lambda a: a[3:7].view(np.int32)),
    "slice of bitcast": (lambda x: x.bitcast(dtypes.int16)[1:3], lambda a: a.view(np.int16)[1:3]),
    "reversed": (lambda x: x[2:7].flip(0), lambda a: a[2:7][::-1]),
    "transposed": (lambda x: x.reshape(2, 5).T, lambda a: a.reshape(2, 5).T),
    "column": (lambda x: x.reshape(5, 2)[:, 1], lambda a: a.reshape(5, 2)[:, 1]),
    "steps": (lambda x: x[::3], lambda a: a[::3]),
    "steps back": (lambda x: x[-2:2:-2], lambda a: a[-2:2:-2]),
    "bitcast of rows": (
        lambda x: x.reshape(2, 5)[:, 1:3].bitcast(dtypes.int16),
        lambda a: a.reshape(2, 5)[:, 1:3].view(np.int16),
    ),
    "transposed slice flattened": (
        lambda x: x[:6].reshape(2, 3).T.flatten()[1:4],
        lambda a: a,
    ),
    "nothing": (lambda x: x[3:3], lambda a: a[3:3]),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [name for name in WRITES if "flattened" not in name])
@pytest.mark.parametrize("place", [DEVICE, nth(1), Sharding(TWO), None], ids=str)
def test_a_write_to_a_view_is_in_the_file(path: Path, name: str, place: Any) -> None:
    view, numpy_view = WRITES[name]
    x, expected = opened(path, 10), TEN.copy()
    target = view(x)
    part = numpy_view(expected)
    new = np.arange(100, 100 + part.size, dtype=part.dtype).reshape(part.shape)
    part[...] = new
    value = Tensor(new + 1) - 1 if place is None else Tensor(new).to(place)
    assert target.assign(value.cast(target.dtype)) is target
    assert content(path) == expected.tolist() == x.tolist() == opened(path, 10).tolist()
    assert target.tolist() == new.tolist()


def test_a_write_to_reordered_elements_is_in_the_file(path: Path) -> None:
    x = opened(path, 10)
    x[:6].reshape(2, 3).T.flatten()[1:4].assign(Tensor([20, 21, 22], dtype=dtypes.uint8))
    # 0 3 1 4 2 5: of these 3, 1 and 4 are written
    assert content(path) == [0, 21, 2, 20, 22, 5, 6, 7, 8, 9]


@st.composite
def moves(draw: st.DrawFn) -> list[Callable[[Any], Any]]:
    """Functions of a tensor or an array that give views, one after the other."""
    found: list[Callable[[Any], Any]] = []
    shape: tuple[int, ...] = (2, 3, 4)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["slice", "permute", "reshape"]))
        if kind == "slice":
            bound = st.none() | st.integers(-4, 4)
            steps = st.sampled_from([1, 2, 3, -1, -2])
            index = tuple(slice(draw(bound), draw(bound), draw(steps)) for _ in shape)
            found.append(lambda x, index=index: x[index])
        elif kind == "permute":
            order = tuple(draw(st.permutations(range(len(shape)))))
            found.append(
                lambda x, order=order: (
                    x.permute(order) if isinstance(x, Tensor) else x.transpose(order)
                )
            )
        else:
            new = draw(st.sampled_from([(-1,), (shape[0], -1), (1, -1, shape[-1])]))
            if 0 not in shape:
                found.append(lambda x, new=new: x.reshape(new))
        shape = found[-1](np.empty(shape)).shape if found else shape
    return found


@settings(deadline=None)
@given(moves=moves())
def test_any_view_is_written_where_it_is_read(moves: list[Callable[[Any], Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = np.arange(24, dtype=np.int32)
        view = Tensor(stored.reshape(2, 3, 4)).to(f"disk:{folder}/x")
        # the positions of the elements, which numpy may copy
        positions = np.arange(24).reshape(2, 3, 4)
        for move in moves:
            view, positions = move(view), move(positions)
        np.testing.assert_array_equal(view.numpy(), stored[positions])
        view.assign(Tensor(positions.astype(np.int32)) + 100)
        stored[positions.reshape(-1)] = positions.reshape(-1) + 100
        assert content(Path(folder) / "x", np.int32) == stored.tolist()


def test_items_and_operators_write_to_the_file(path: Path) -> None:
    x, expected = opened(path, 10), TEN.copy()
    for array in (x, expected):
        array[2] = 50
        array[4:6] = 60
        array[::-4] += 3
        array[[0, 7]] = 70
        array += 1
        array *= 2
    assert content(path) == x.tolist() == expected.tolist()
    x[1:3] = Tensor([1, 2]).to(nth(1))
    assert content(path)[1:3] == [1, 2]
    x.reshape(2, 5)[1] = [5, 4, 3, 2, 1]
    assert content(path)[5:] == [5, 4, 3, 2, 1]


def test_tensors_of_one_path_see_one_file(path: Path) -> None:
    x, y, z = opened(path, 10), opened(path, 5, dtype=dtypes.int16), Tensor(path)
    view = y[1:2]
    x[2:4].assign(Tensor([1, 1], dtype=dtypes.uint8))
    assert y.tolist()[1] == view.item() == 257
    view.assign(Tensor([514], dtype=dtypes.int16))
    assert x.tolist()[2:4] == z.tolist()[2:4] == [2, 2]


def test_lazy_values_keep_what_was_in_the_file_when_they_were_built(path: Path) -> None:
    x, other = opened(path, 10), Tensor(path)
    before = [
        x.to(DEVICE) + 1,
        x[:3].int().sum(),
        other.to(nth(1)),
        other[2:4].bitcast("int16") * 1,
    ]
    x.assign(Tensor.full((10,), 9, dtype=dtypes.uint8))
    after = [x.to(DEVICE) + 1, x[:3].int().sum(), other.to(nth(1))]
    assert before[0].tolist() == list(range(1, 11))
    assert before[1].item() == 3
    assert before[2].tolist() == list(range(10))
    assert before[3].item() == 3 * 256 + 2
    assert after[0].tolist() == [10] * 10
    assert after[1].item() == 27
    assert after[2].tolist() == [9] * 10


def test_a_realized_value_is_not_taken_for_new_content(path: Path) -> None:
    x = opened(path, 10)
    first = x.to(DEVICE).realize()
    x[0] = 5
    second = x.to(DEVICE).realize()
    assert (first[0].item(), second[0].item()) == (0, 5)


def test_a_file_is_copied_to_itself_at_another_place(path: Path) -> None:
    x = opened(path, 10)
    x[1:].assign(x[:-1])
    assert content(path) == [0, *range(9)]
    x.assign(x.flip(0))
    assert content(path) == [*range(8, -1, -1), 0]


def test_a_custom_kernel_reads_files_and_does_not_write_them(path: Path) -> None:
    def double(result: UOp, x: UOp) -> UOp:
        i = UOp.range(x.numel(), 0)
        return result[i].store(x[i] * 2).end(i).sink()

    x = opened(path, 10)
    found = Tensor.empty(10, dtype=dtypes.uint8).custom_kernel(x, fxn=double)[0]
    assert (found.device, found.tolist()) == (DEVICE, (TEN * 2).tolist())
    with pytest.raises(CustomKernelError, match="it writes tensor 0, which is in the file DISK:"):
        x.custom_kernel(Tensor(TEN), fxn=double)


# ---- files that are created and replaced ----


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tensor.arange(4),
        lambda: Tensor([[1.0, 2.0], [3.0, 4.0]]).T,
        lambda: Tensor([1.5, 2.5], dtype=dtypes.bfloat16),
        lambda: Tensor([True, False, True]),
        lambda: Tensor.ones(3) * 2,
        lambda: Tensor.arange(8).reshape(4, 2).shard(TWO, axis=0) + 1,
        lambda: Tensor.empty(0, 3),
        lambda: Tensor(7),
    ],
)
def test_a_value_is_written_to_a_new_file(tmp_path: Path, make: Callable[[], Tensor]) -> None:
    value = make()
    found = value.to(on(tmp_path / "new"))
    assert str(found.device) == f"DISK:{tmp_path / 'new'}"
    assert (found.shape, found.dtype) == (value.shape, value.dtype)
    assert (tmp_path / "new").stat().st_size == value.nbytes()
    assert found.tolist() == value.tolist()
    again = Tensor.empty(*value.shape, dtype=value.dtype, device=found.device)
    assert again.tolist() == value.tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


def test_random_values_are_written_to_a_file_and_others_follow(tmp_path: Path) -> None:
    Tensor.manual_seed(3)
    expected = [Tensor.rand(3).tolist(), Tensor.rand(3).tolist()]
    Tensor.manual_seed(3)
    assert Tensor.rand(3).to(on(tmp_path / "x")).tolist() == expected[0]
    assert Tensor.rand(3).tolist() == expected[1]


def test_a_file_that_is_replaced_stays_for_the_tensors_in_it(path: Path) -> None:
    path.chmod(0o640)
    old = opened(path, 10)
    view, lazy = old[2:4], old.int() + 1
    new = Tensor([7, 8, 9], dtype=dtypes.uint8).to(on(path))
    assert content(path) == new.tolist() == [7, 8, 9]
    assert path.stat().st_mode & 0o777 == 0o640
    assert old.tolist() == list(range(10))
    assert view.tolist() == [2, 3]
    assert lazy.tolist() == list(range(1, 11))
    with pytest.raises(FileError, match=r"ten\.bin was removed or replaced .* open it again"):
        view.assign(Tensor([0, 0], dtype=dtypes.uint8))
    assert content(path) == [7, 8, 9]


def test_links_and_empty_files(path: Path, tmp_path: Path) -> None:
    link, empty = tmp_path / "link", tmp_path / "empty"
    link.symlink_to(path)
    assert Tensor([5, 6]).to(on(link)).tolist() == [5, 6]
    assert link.is_symlink()
    assert content(path, np.int32) == [5, 6]
    empty.touch()
    x = Tensor(empty)
    for found in (x, x.to(DEVICE), x + 1, x.assign(x + 1)):
        assert found.tolist() == []
    assert x.sum().item() == 0


def test_a_truncated_file_is_replaced(path: Path) -> None:
    old = opened(path, 10)
    os.truncate(path, 3)
    assert Tensor([5, 6]).to(on(path)).tolist() == [5, 6]
    with pytest.raises(FileError, match="removed or replaced"):
        old.tolist()


def test_a_value_that_waits_to_be_written_is_written(path: Path) -> None:
    x, value = opened(path, 10), Tensor(TEN).realize()
    value[2:4] = 0
    value.assign(value + 1)
    x.assign(value)
    assert content(path) == [1, 2, 1, 1, 5, 6, 7, 8, 9, 10]
    value.assign(value + 1)
    assert value.to(on(path)).tolist() == [2, 3, 2, 2, 6, 7, 8, 9, 10, 11]


def test_a_moved_tensor_is_in_the_file_without_its_gradient(tmp_path: Path) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    x.to_(on(tmp_path / "x"))
    assert str(x.device).startswith("DISK:")
    assert x.tolist() == [1.0, 2.0]
    assert x.grad is not None
    assert (x.grad.device, x.grad.tolist()) == (DEVICE, [3.0, 3.0])


def test_an_open_safe_load_does_not_change_when_its_file_is_saved_again(tmp_path: Path) -> None:
    file = tmp_path / "model"
    safe_save({"a": Tensor([1.0, 2.0]), "b": Tensor([[1, 2], [3, 4]])}, file)
    old, unread = safe_load(file), Tensor(file)
    expected = file.read_bytes()
    lazy = old["a"] + 1
    # the new file has the tensors at other places
    safe_save({"b": Tensor([[5, 6], [7, 8]]), "c": Tensor.zeros(9), "a": Tensor([9.0, 9.0])}, file)
    new = safe_load(file)
    assert bytes(unread.data()) == expected
    for found in (old["a"], old["a"].to(DEVICE), old["a"].to(nth(1)), lazy - 1):
        assert found.tolist() == [1.0, 2.0]
    for axis in (None, 0, 1):
        assert old["b"].shard(TWO, axis=axis).tolist() == [[1, 2], [3, 4]]
    model = {"b": Tensor.zeros(2, 2, dtype=dtypes.int).contiguous().shard(TWO, axis=1).realize()}
    load_state_dict(model, {"b": old["b"]}, verbose=False)
    assert model["b"].tolist() == [[1, 2], [3, 4]]
    assert new["b"].tolist() == [[5, 6], [7, 8]]


def test_what_is_loaded_from_a_file_is_saved_over_it(tmp_path: Path) -> None:
    file = tmp_path / "model"
    safe_save({"a": Tensor([1.0, 2.0]), "b": Tensor([3, 4])}, file)
    loaded = safe_load(file)
    safe_save({"b": loaded["b"], "a": loaded["a"] * 2, "c": loaded["a"]}, file)
    found = {name: x.tolist() for name, x in safe_load(file).items()}
    assert found == {"b": [3, 4], "a": [2.0, 4.0], "c": [1.0, 2.0]}


def test_a_state_is_loaded_into_tensors_in_a_file(tmp_path: Path) -> None:
    safe_save({"a": Tensor([1.0, 2.0]), "b": Tensor([3, 4])}, tmp_path / "model")
    model = safe_load(tmp_path / "model")
    load_state_dict(model, {"a": Tensor([5.0, 6.0]), "b": Tensor([7, 8])}, verbose=False)
    found = {name: x.tolist() for name, x in safe_load(tmp_path / "model").items()}
    assert found == {"a": [5.0, 6.0], "b": [7, 8]}


def test_a_pickled_buffer_is_opened_again(path: Path) -> None:
    buffer = Buffer(f"DISK:{path}", 10, dtypes.uint8).allocate().view(2, dtypes.int16, 3)
    data = pickle.dumps(buffer)
    path.write_bytes(bytes(range(10, 20)))
    assert bytes(pickle.loads(data).as_memoryview()) == bytes([13, 14, 15, 16])
    assert content(path) == list(range(10, 20))


# ---- crashes ----

WRITER = """
import os, sys
from tinygrad import Tensor, dtypes
path = sys.argv[1]
x = Tensor.empty(1000, dtype=dtypes.int, device=f"disk:{path}")
x[:500].assign(Tensor.arange(500) * 2)
Tensor.arange(3).to(f"disk:{path}.new")
x.bitcast(dtypes.uint8)[2000:2004].assign(Tensor([1, 0, 0, 0], dtype=dtypes.uint8))
os.write(1, b"written")
while True:
    Tensor.full((200_000,), 1, dtype=dtypes.int).to(f"disk:{path}.big")
    Tensor.full((200_000,), 2, dtype=dtypes.int).to(f"disk:{path}.big")
"""


@pytest.mark.slow
def test_what_was_written_survives_a_killed_process(tmp_path: Path) -> None:
    file = tmp_path / "x"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(7) == b"written"
    big = tmp_path / "x.big"
    while not big.exists():
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert content(file, np.int32) == [*range(0, 1000, 2), 1, *[0] * 499]
    assert content(tmp_path / "x.new", np.int32) == [0, 1, 2]
    # a file that is replaced is the old one or the new one
    found = content(big, np.int32)
    assert len(found) == 200_000
    assert len(set(found)) == 1


# ---- errors ----


def test_sizes_are_checked_against_the_file(path: Path) -> None:
    with pytest.raises(FileError, match=r"ten\.bin has 10 bytes, fewer than the 12 of the tensor"):
        opened(path, 3, dtype=dtypes.float)
    x = opened(path, 10)
    lazy = x + 1
    os.truncate(path, 6)
    for use in (x.tolist, lazy.tolist, lambda: x.assign(x * 1), x[:2].tolist):
        with pytest.raises(OSError, match=r"ten\.bin has 6 bytes, fewer than the 10 .* truncated"):
            use()
    assert path.stat().st_size == 6


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    for make in (
        lambda: opened(tmp_path, 4),
        lambda: Tensor([1]).to(on(tmp_path)),
        lambda: Tensor(tmp_path),
    ):
        with pytest.raises(FileError, match="is a directory; a tensor needs the path of a file"):
            make()
    with pytest.raises(FileError, match="/dev/null is no regular file"):
        Tensor([1]).to("disk:/dev/null")
    for make in (lambda: Tensor([1]).to("disk:"), lambda: Tensor.empty(1, device="disk:")):
        with pytest.raises(DeviceError, match="DISK needs a path"):
            make()
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FileError, match="file/below: cannot open it: Not a directory"):
        opened(tmp_path / "file" / "below", 4)


def test_folders_are_not_created(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "new"
    for make in (lambda: opened(file, 4), lambda: Tensor([1]).to(on(file))):
        with pytest.raises(FileError, match="folder/new: cannot .*; create the folder first"):
            make()
    assert not list(tmp_path.iterdir())


def test_only_to_replaces_a_file(path: Path) -> None:
    makes: list[Callable[[], Tensor]] = [
        lambda: Tensor([1, 2], device=on(path)),
        lambda: Tensor.zeros(2, device=on(path)),
        lambda: Tensor.rand(2, device=on(path)),
    ]
    for make in makes:
        with pytest.raises(FileError, match=r"ten\.bin is there already, with 10 bytes; replace"):
            make()
    x = opened(path, 10)
    assert Tensor([1, 2]).shard_like(x).device == x.rand_like(dtype="float").device == DEVICE
    assert content(path) == list(range(10))
    path.unlink()
    assert Tensor([1, 2], device=on(path)).tolist() == content(path, np.int32) == [1, 2]


def test_files_are_not_sharded(tmp_path: Path) -> None:
    names = (on(tmp_path / "a"), on(tmp_path / "b"))
    for make in (
        lambda: Tensor([1, 2]).shard(names, axis=0),
        lambda: Tensor([1, 2]).to(names),
        lambda: Tensor.empty(2, device=Sharding(names, 0)),
    ):
        with pytest.raises(ShardingError, match="not sharded over files, as DISK:.*/a, DISK:"):
            make()
    assert not list(tmp_path.iterdir())


def test_values_are_broadcast_and_cast_to_a_file(path: Path) -> None:
    x = opened(path, 10)
    x[1:3].assign(Tensor([7], dtype=dtypes.uint8))
    x[4:].assign(Tensor.arange(6) * 2.5)
    assert content(path) == [0, 7, 7, 3, 0, 2, 5, 7, 10, 12]


def test_values_that_do_not_fit_and_views_without_bytes_are_not_written(path: Path) -> None:
    x = opened(path, 10)
    with pytest.raises(ValueError, match="does not broadcast"):
        x[1:3].assign(Tensor([1, 2, 3], dtype=dtypes.uint8))
    with pytest.raises(RuntimeError, match="pads or repeats the bytes of a file"):
        x.reshape(10, 1).expand(10, 2).assign(Tensor.zeros(10, 2, dtype=dtypes.uint8))
    with pytest.raises(RuntimeError, match="pads or repeats the bytes of a file"):
        x.pad((1, 0)).assign(Tensor.zeros(11, dtype=dtypes.uint8))
    assert content(path) == list(range(10))


def test_values_of_symbolic_shape_are_not_written(path: Path) -> None:
    x, n = opened(path, 10), Variable("n", 1, 8).bind(2)
    assert x[:n].sum().item() == 1
    for write in (lambda: x[:n].assign(x[:n] + 1), lambda: x[:n].to(on(path.with_name("new")))):
        with pytest.raises(ValueError, match=r"symbolic shape \(n\[2\],\) has no known size in"):
            write()
    x[n : n + 2].assign(Tensor([8, 9], dtype=dtypes.uint8))
    assert content(path) == [0, 1, 8, 9, *range(4, 10)]


def test_parameters_in_files_are_not_trained(path: Path) -> None:
    x = opened(path, 2, dtype=dtypes.float)
    with pytest.raises(ValueError, match="parameter number 0, .* on DISK:.* is in a file"):
        SGD([x])
    moved = x.to(None)
    optimizer = SGD([moved])
    moved.to_(on(path))
    moved.grad = Tensor.ones(2)
    with Tensor.train(), pytest.raises(ValueError, match="is in a file"):
        optimizer.step()


def test_a_captured_function_does_not_write_to_files(path: Path) -> None:
    x = opened(path, 10)

    @TinyJit
    def write(y: Tensor) -> Tensor:
        x.assign(y)
        return (y + 1).realize()

    @TinyJit
    def read(y: Tensor) -> Tensor:
        return (x[:3] + y).realize()

    values = [Tensor([i] * 3, dtype=dtypes.uint8).realize() for i in range(4)]
    assert [read(y).tolist() for y in values] == [[i, i + 1, i + 2] for i in range(4)]
    with pytest.raises(
        JitError, match="test_files.py:.* writes to DISK:.* outside of the function"
    ):
        for i in range(3):
            write(Tensor([i] * 10, dtype=dtypes.uint8).realize())


@contextlib.contextmanager
def maximum_file_size(nbytes: int) -> Iterator[None]:
    """As on a full disk, writes past `nbytes` fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@only_cpu
def test_a_full_disk_is_an_error_and_keeps_the_old_file(path: Path) -> None:
    value = Tensor.ones(1000).contiguous().realize()
    old = Tensor.empty(2000, dtype=dtypes.uint8, device=on(path.with_name("old")))
    with maximum_file_size(1024):
        with pytest.raises(FileError, match=r"ten\.bin: cannot write 4000 bytes: .*; free some"):
            value.to(on(path))
        with pytest.raises(FileError, match=r"new: cannot create it with 4000 bytes"):
            Tensor.empty(1000, device=on(path.with_name("new")))
        with pytest.raises(FileError, match=r"old: cannot write 1000 bytes at 1000"):
            old[1000:].assign(Tensor.ones(1000, dtype=dtypes.uint8))
        for save in (safe_save, lambda *x: async_save(*x).wait()):
            with pytest.raises(
                FileError, match=r"ten\.bin: cannot write it: .*; free some"
            ) as full:
                save({"x": value}, path)
            assert full.value.errno == errno.EFBIG
    assert content(path) == list(range(10))
    assert {file.name for file in path.parent.iterdir()} == {path.name, "old"}


def test_a_path_with_a_nul_byte_is_an_error() -> None:
    x = Tensor([1.0])
    for use in (
        lambda: Tensor(Path("a\0b")),
        lambda: safe_load("a\0b"),
        lambda: safe_save({"x": x}, "a\0b"),
        lambda: async_save({"x": x}, "a\0b"),
        lambda: x.to(on(Path("a\0b"))),
        lambda: opened(Path("a\0b"), 4),
    ):
        with pytest.raises(FileError, match=r"a\\x00b.*no NUL byte"):
            use()


@contextlib.contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder for files, as a user whom the mode of a file stops."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(user)


def test_a_read_only_file_is_read_and_not_written() -> None:
    with unprivileged() as folder:
        file = folder / "protected"
        file.write_bytes(b"\x01\x02")
        file.chmod(0o444)
        x = opened(file, 2)
        assert x.tolist() == [1, 2]
        for write in (lambda: x.assign(x + 1), lambda: Tensor([1]).to(on(file))):
            with pytest.raises(FileError, match=r"protected: cannot write .*; change its mode"):
                write()
        assert content(file) == [1, 2]
