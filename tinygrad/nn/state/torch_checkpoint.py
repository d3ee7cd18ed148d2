"""PyTorch checkpoints: the zip format, and the stream of pickles from before PyTorch 1.6.

Input: a tensor of the bytes of a file written by `torch.save`. Output: the saved objects, with
views of the file for tensors, and plain dictionaries and tuples for containers. No code of the file
is run: its pickles may name only the globals in `torch_globals`. Every tensor is checked to be
within its storage, and every storage within the file.

Each storage is a persistent id of the pickle that has the object: `("storage", type, key, device,
elements)`. In a zip file its bytes are the file `data/<key>`. In a stream they follow the pickle
of the keys, each after its number of elements. Files of PyTorch before 0.1.10,
which are tar archives, are refused.
"""

from __future__ import annotations

import io
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.nn.state.file_bytes import (
    FileFormatError,
    accept_filename,
    name_of_file,
    read_bytes,
    shown,
    view_bytes,
)
from tinygrad.nn.state.plain_pickle import checked_key, load_plain
from tinygrad.nn.state.tensor_io import TensorIO
from tinygrad.nn.state.torch_globals import Storage, StorageType, rebuild_tensor, torch_globals
from tinygrad.nn.state.zip_archive import LOCAL_HEADER_MAGIC, zip_extract
from tinygrad.tensor import Tensor

STREAM_MAGIC = 0x1950A86A20F9469CFC6C
STREAM_START = b"\x80\x02\x8a\n" + STREAM_MAGIC.to_bytes(10, "little")
STREAM_VERSION = 1001
COUNT_BYTES = 8


@accept_filename
def torch_load(t: Tensor) -> Any:
    """Load a file written by `torch.save`: usually a dictionary of tensors by name.

    Takes a file's name or a tensor of its bytes. Tensors stay in the file until they are used or
    moved. Parameters become tensors, `OrderedDict` a dictionary, `torch.Size` a tuple,
    `torch.dtype` a dtype and `torch.device` its name. Raises FileFormatError, a ValueError, if the
    file is invalid, or has objects of other classes, which the message names; and where a tensor is
    first read, if the checksum of a zip file is wrong.

    >>> import io, pickle, zipfile
    >>> with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
    ...     archive.writestr("archive/data.pkl", pickle.dumps({"epoch": 3}))
    >>> nn.state.torch_load(Tensor(file.getvalue()))
    {'epoch': 3}
    """
    start = read_bytes(t, 0, min(len(STREAM_START), int(t.numel())))
    try:
        if start.startswith(LOCAL_HEADER_MAGIC):
            return _load_zip(t)
        if start == STREAM_START:
            return _load_stream(t)
    except FileFormatError as error:
        if name_of_file(t) in str(error):
            raise
        raise FileFormatError(f"{name_of_file(t)}: {error}") from error
    raise FileFormatError(
        f"{name_of_file(t)}: this is not a file of torch.save: it begins with {start!r}"
    )


# ---- the zip format ----


def _load_zip(t: Tensor) -> Any:
    files = zip_extract(t)
    pickles = [name for name in files if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise FileFormatError(f"there is one data.pkl in a file of torch.save, not {len(pickles)}")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in files:
        raise FileFormatError("this is a TorchScript program; save its state_dict() instead")
    order = files.get(f"{folder}byteorder")
    if order is not None and bytes(order.data()) != b"little":
        raise FileFormatError(f"its byte order is {shown(bytes(order.data()))}, not little")

    def storage(identity: Any) -> Storage:
        kind, key, count, _ = _checked_identity(identity)
        name = f"{folder}data/{key}"
        if name not in files:
            raise FileFormatError(f"there is no file {shown(name)} with the storage of a tensor")
        return _part(files[name], kind.dtype, 0, count)

    file = io.BytesIO(bytes(files[pickles[0]].data()))
    return load_plain(file, torch_globals(rebuild_tensor), storage)


# ---- the stream of pickles ----


class _Reader(io.BufferedReader):
    """A buffered file that never allocates more bytes than the file has."""

    def __init__(self, t: Tensor) -> None:
        super().__init__(TensorIO(t))
        self.nbytes = int(t.numel())

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(self.nbytes - self.tell(), 0)
        return super().read(left if size is None or size < 0 else min(size, left))


def _load_stream(t: Tensor) -> Any:
    file = _Reader(t)
    for expected in (STREAM_MAGIC, STREAM_VERSION):
        found = load_plain(file, {}, _refuse_identity)
        if found != expected:
            raise FileFormatError(f"{shown(found)} stands where {expected} should")
    system = load_plain(file, {}, _refuse_identity)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise FileFormatError(f"its byte order is not little: {shown(system)}")
    start = file.tell()
    types = _storage_types(file)
    places = _storage_places(file, types)

    def storage(identity: Any) -> Storage:
        kind, key, count, view = _checked_identity(identity)
        if key not in places:
            raise FileFormatError(f"the storage {shown(key)} of a tensor is not in the file")
        place, nbytes = places[key]
        found = _part(view_bytes(t, place, dtypes.uint8, (nbytes,)), kind.dtype, 0, count)
        return found if view is None else _part(found.data, kind.dtype, *view)

    file.seek(start)
    return load_plain(file, torch_globals(rebuild_tensor), storage)


def _storage_types(file: io.BufferedReader) -> dict[str, StorageType]:
    """The type of each storage of the next pickle, by key."""
    types: dict[str, StorageType] = {}
    nothing = Tensor.empty(0)

    def note(identity: Any) -> None:
        kind, key, _, _ = _checked_identity(identity)
        if types.setdefault(key, kind) != kind:
            raise FileFormatError(f"the storage {shown(key)} has two types")

    load_plain(file, torch_globals(lambda arguments: nothing), note)
    return types


def _storage_places(file: _Reader, types: dict[str, StorageType]) -> dict[str, tuple[int, int]]:
    """The start of each storage, and its bytes, by key."""
    keys = load_plain(file, {}, _refuse_identity)
    if not isinstance(keys, list):
        raise FileFormatError(f"{shown(keys)} stands where the keys of the storages should")
    position = file.tell()
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        if checked_key(key) not in types or key in places:
            raise FileFormatError(
                f"the storage {shown(key)} belongs to no tensor, or is listed twice"
            )
        file.seek(position)
        count = int.from_bytes(file.read(COUNT_BYTES), "little", signed=True)
        start, nbytes = position + COUNT_BYTES, count * types[key].dtype.itemsize
        if nbytes < 0 or start + nbytes > file.nbytes:
            raise FileFormatError(
                f"the storage {shown(key)} has {count} elements from byte {start} on, but the file "
                f"has {file.nbytes} bytes; it was cut off or is damaged"
            )
        places[key] = (start, nbytes)
        position = start + nbytes
    return places


# ---- storages ----


def _checked_identity(identity: Any) -> tuple[StorageType, str, int, tuple[int, int] | None]:
    """The type, key and number of elements of a storage, and the requested range of it."""
    match identity:
        case ("storage", StorageType() as kind, str() as key, str(), int() as count, *view):
            match view:
                case [] | [None]:
                    return kind, key, count, None
                case [(str(), int() as start, int() as size)]:
                    return kind, key, count, (start, size)
    raise FileFormatError(f"{shown(identity)} is not the persistent id of a storage")


def _refuse_identity(identity: Any) -> None:
    raise FileFormatError(f"there is a persistent id {shown(identity)} where nothing can have one")


def _part(data: Tensor, dtype: DType, start: int, count: int) -> Storage:
    """A range of elements of a storage. Raises FileFormatError if it is out of bounds."""
    nbytes, first = count * dtype.itemsize, start * dtype.itemsize
    if count < 0 or start < 0 or first + nbytes > data.numel():
        raise FileFormatError(
            f"a storage should have {count} elements of {dtype} from {start} on, but has "
            f"{data.numel()} bytes"
        )
    return Storage(view_bytes(data, first, dtypes.uint8, (nbytes,)), dtype)
