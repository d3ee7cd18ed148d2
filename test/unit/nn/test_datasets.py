"""Data sets: parsing, the cache, and errors when no source answers. No network is used."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tinygrad.fetch import DownloadError
from tinygrad.nn import datasets

SIZES = (6, 4)
IMAGE = (1, 2, 3)


def small_set() -> list[np.ndarray]:
    """Arrays like those of a data set: SIZES images of shape IMAGE."""
    random = np.random.default_rng(0)
    shapes = [shape for size in SIZES for shape in ((size, *IMAGE), (size,))]
    return [random.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]


def cached(*sources):
    return datasets.load_cached("small", list(sources), SIZES, IMAGE)


def no_answer():
    raise DownloadError("no answer")


def idx(array: np.ndarray) -> bytes:
    """An IDX file of bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def same(arrays, others) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(arrays, others, strict=True))


def test_idx_files_are_parsed():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(datasets.parse_idx(idx(array)), array)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\x0d\1\0\0\0\1\0", idx(np.zeros(3, np.uint8))[:-1], b"\0\0\x08\3\0\0"]
)
def test_wrong_idx_files_are_errors(data):
    with pytest.raises(ValueError, match="IDX file"):
        datasets.parse_idx(data)


def test_pickled_arrays_are_read():
    arrays = [(np.arange(3, dtype=np.float32), np.arange(3)), [np.zeros((2, 2))]]
    read = datasets.unpickle_arrays(pickle.dumps(arrays, protocol=3))
    assert np.array_equal(read[0][0], arrays[0][0])
    assert read[1][0].shape == (2, 2)


def test_a_pickle_that_names_anything_else_is_refused():
    with pytest.raises(pickle.UnpicklingError, match="may not name"):
        datasets.unpickle_arrays(pickle.dumps(Path.unlink))


def test_the_second_load_comes_from_the_cache(empty_cache):
    arrays = small_set()
    assert same(cached(lambda: arrays), arrays)
    assert same(cached(no_answer), arrays)


@pytest.mark.parametrize("place", [0, 40, 300, -30])
def test_a_damaged_cache_entry_is_replaced(empty_cache, place):
    arrays = small_set()
    cached(lambda: arrays)
    path = Path(empty_cache) / "datasets" / "small.npz"
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    assert same(cached(lambda: arrays), arrays)
    path.write_bytes(content[:100])
    assert same(cached(lambda: arrays), arrays)
    assert same(cached(no_answer), arrays)


def test_the_first_source_that_answers_is_used(empty_cache):
    arrays = small_set()
    assert same(cached(no_answer, lambda: arrays), arrays)


def test_if_no_source_answers_the_error_says_what_to_do(empty_cache):
    with pytest.raises(DownloadError, match=r"data set small: no answer; no answer.*small\.npz"):
        cached(no_answer, no_answer)


def test_mirrors_return_the_four_files_in_order(monkeypatch):
    arrays = [np.full((2, 2), number, np.uint8) for number in range(4)]
    files = {name: gzip.compress(idx(array)) for name, array in zip(datasets.IDX_FILES, arrays)}
    monkeypatch.setattr(
        datasets, "download_verified", lambda url, md5: files[url.rpartition("/")[2]]
    )
    assert same(datasets.idx_source("http://mirror/", datasets.MNIST_MD5)(), arrays)


def test_a_download_with_a_wrong_checksum_is_refused(monkeypatch):
    monkeypatch.setattr(datasets, "fetch", lambda url, name: _written(name, b"something else"))
    with pytest.raises(DownloadError, match="not the published"):
        datasets.download_verified("http://mirror/file", "0" * 32)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_the_wheel_contains_training_then_validation_data_as_bytes(monkeypatch, tmp_path):
    images = [np.full((count, 784), count / 256, np.float32) for count in (3, 2, 1)]
    labels = [np.full(count, count, np.int64) for count in (3, 2, 1)]
    path = _written(
        tmp_path / "mnist.pkl.gz",
        gzip.compress(pickle.dumps(tuple(zip(images, labels)), protocol=3)),
    )
    monkeypatch.setattr(datasets, "fetch_wheel_member", lambda *args: path)
    x_train, y_train, x_test, y_test = datasets.mnist_from_wheel()
    assert x_train.dtype == y_train.dtype == np.uint8
    assert x_train[:, 0].tolist() == y_train.tolist() == [3, 3, 3, 2, 2]
    assert x_test[:, 0].tolist() == y_test.tolist() == [1]


def test_cifar_records_are_a_label_and_three_colours(monkeypatch):
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for label, name in enumerate(names):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = 3073
            tar.addfile(info, io.BytesIO(bytes([label]) + bytes([label + 10]) * 3072))
    monkeypatch.setattr(datasets, "download_verified", lambda url, md5: archive.getvalue())
    x_train, y_train, x_test, y_test = datasets.cifar_from_web()
    assert y_train.tolist() == [0, 1, 2, 3, 4]
    assert y_test.tolist() == [5]
    assert x_train.shape == (5, 3072)
    assert (x_train == np.arange(10, 15)[:, None]).all()
    assert (x_test == 15).all()
