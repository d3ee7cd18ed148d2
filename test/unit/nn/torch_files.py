"""Writes files like `torch.save` without PyTorch: its globals are written by name."""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

STREAM_MAGIC = 0x1950A86A20F9469CFC6C
STORAGE_NAMES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}


@dataclass(frozen=True)
class Global:
    """A global that the pickle names."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A call of a global; BUILD sets `state` on its result."""

    function: Any
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class Stored:
    """A storage: its elements, under a key; `view` is the slice that a stream format names.

    `count` and `name` are the number of elements and the type name that the file claims.
    """

    key: str
    elements: np.ndarray
    count: int | None = None
    name: str | None = None
    view: Any = None

    def identity(self) -> tuple[Any, ...]:
        name = self.name or STORAGE_NAMES[self.elements.dtype.name]
        count = self.elements.size if self.count is None else self.count
        return ("storage", Global("torch", name), self.key, "cpu", count)


class Writer(pickle._Pickler):
    """A pickler for `Global`, `Call` and `Stored`."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def __init__(self, file: Any, protocol: int = 2, in_stream: bool = False) -> None:
        super().__init__(file, protocol)
        self.in_stream = in_stream
        self.storages: dict[str, Stored] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Stored):
            return None
        self.storages[obj.key] = obj
        return (*obj.identity(), obj.view) if self.in_stream else obj.identity()

    def save_global_name(self, obj: Global) -> None:
        self.write(b"c" + f"{obj.module}\n{obj.name}\n".encode())

    def save_call(self, obj: Call) -> None:
        self.save(obj.function)
        self.save(obj.arguments)
        self.write(pickle.REDUCE)
        if obj.state is not None:
            self.save(obj.state)
            self.write(pickle.BUILD)

    dispatch[Global] = save_global_name
    dispatch[Call] = save_call


def tensor(
    storage: Stored, shape: tuple[Any, ...], strides: tuple[Any, ...], offset: Any = 0
) -> Call:
    """A tensor in a storage."""
    hooks = Call(Global("collections", "OrderedDict"), ())
    function = Global("torch._utils", "_rebuild_tensor_v2")
    return Call(function, (storage, offset, shape, strides, False, hooks))


def typed_tensor(storage: Stored, dtype: str, shape: tuple[int, ...]) -> Call:
    """A 1-d tensor of a type without a storage class."""
    hooks = Call(Global("collections", "OrderedDict"), ())
    function = Global("torch._utils", "_rebuild_tensor_v3")
    return Call(function, (storage, 0, shape, (1,), False, hooks, Global("torch", dtype)))


def parameter(data: Call) -> Call:
    hooks = Call(Global("collections", "OrderedDict"), ())
    return Call(Global("torch._utils", "_rebuild_parameter"), (data, True, hooks))


def array_tensor(key: str, array: np.ndarray) -> Call:
    """A tensor with its own storage."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return tensor(Stored(key, array.reshape(-1)), array.shape, strides)


def zip_checkpoint(obj: Any, extra: dict[str, bytes] | None = None, protocol: int = 2) -> bytes:
    """The file of `torch.save(obj)`."""
    data = io.BytesIO()
    writer = Writer(data, protocol)
    writer.dump(obj)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data.getvalue())
        for key, storage in writer.storages.items():
            archive.writestr(f"archive/data/{key}", storage.elements.tobytes())
        archive.writestr("archive/version", b"3\n")
        for name, content in (extra or {}).items():
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


def stream_checkpoint(obj: Any, system: Any = None) -> bytes:
    """The file of `torch.save(obj, _use_new_zipfile_serialization=False)`."""
    file = io.BytesIO()
    pickle.dump(STREAM_MAGIC, file, 2)
    pickle.dump(1001, file, 2)
    pickle.dump({"protocol_version": 1001, "little_endian": True} | (system or {}), file, 2)
    writer = Writer(file, in_stream=True)
    writer.dump(obj)
    pickle.dump(sorted(writer.storages), file, 2)
    for _, storage in sorted(writer.storages.items()):
        file.write(storage.elements.size.to_bytes(8, "little", signed=True))
        file.write(storage.elements.tobytes())
    return file.getvalue()


def zip_of_pickle(data: bytes) -> bytes:
    """A file like that of `torch.save`, whose pickle is these bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data)
    return file.getvalue()
