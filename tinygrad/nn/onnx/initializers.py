"""The tensors that are stored in a model or in external files.

Input: a `TensorProto`, which is not trusted: sizes, offsets and paths are checked. Output: tensors
on a device, and small host arrays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tinygrad.dtype import DType, dtypes, is_stored_as_bits, to_numpy_dtype
from tinygrad.helpers import prod
from tinygrad.nn.onnx.element_types import PACKED, dtype_of
from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.values import MAX_HOST_ELEMENTS, Array, HostValue, Value
from tinygrad.storage.host.arrays import memory_node
from tinygrad.tensor import Tensor

EXTERNAL = 1

# the field of elements that are not raw bytes; other types are in `int32_data`
FIELDS = {
    dtypes.float32: "float_data",
    dtypes.float64: "double_data",
    dtypes.int64: "int64_data",
    dtypes.uint32: "uint64_data",
    dtypes.uint64: "uint64_data",
}


def load_tensor(proto: Any, folder: Path | None) -> Value:
    """The value of a `TensorProto`; external data is looked for in `folder`.

    Raises OnnxError if its data is missing or does not match its shape.
    """
    dtype, stored = stored_elements(proto, folder)
    if stored.size <= MAX_HOST_ELEMENTS and not is_stored_as_bits(dtype):
        # the mapping must stay as it was when it was checked
        array = np.array(stored)
        keeps_tensor = dtypes.is_float(dtype) and array.size > 1
        return HostValue(array, on_device(array, dtype) if keeps_tensor else None)
    return on_device(stored, dtype)


def on_device(stored: Array, dtype: DType) -> Tensor:
    """A tensor on the default device, of elements in their storage type."""
    if stored.size == 0:
        return Tensor.full(stored.shape, 0, dtype=dtype)
    data = np.ascontiguousarray(stored).reshape(-1).view(np.uint8).data
    return Tensor(memory_node(data, stored.shape, dtype)).realize()


def stored_elements(proto: Any, folder: Path | None) -> tuple[DType, Array]:
    """The dtype and the elements, in the numpy type that stores them, of a `TensorProto`."""
    where = f"tensor {proto.name!r}"
    shape = tuple(int(size) for size in proto.dims)
    if any(size < 0 for size in shape):
        raise OnnxError(f"{where} has the shape {shape}; sizes are at least 0")
    packed = proto.data_type in PACKED
    dtype = PACKED[proto.data_type] if packed else dtype_of(proto.data_type, where)
    if proto.HasField("segment"):
        raise OnnxUnsupportedError(f"{where} is stored in segments; save the model without them")
    if proto.data_location == EXTERNAL:
        data = external_bytes(proto, folder, where)
    elif proto.HasField("raw_data"):
        data = np.frombuffer(proto.raw_data, np.uint8)
    elif packed:
        data = np.array(proto.int32_data, np.int32).astype(np.uint8)
    else:
        return dtype, typed_elements(proto, dtype, shape, where)
    count = prod(shape)
    wanted = (count + 1) // 2 if packed else count * dtype.itemsize
    if data.size != wanted:
        raise OnnxError(
            f"{where} of {dtype} {shape} takes {wanted} bytes, but {data.size} are stored; "
            "the file is damaged or was cut off"
        )
    if packed:
        return dtype, unpacked(data, dtype, count).reshape(shape)
    return dtype, data.view(to_numpy_dtype(dtype).newbyteorder("<")).reshape(shape)


def unpacked(data: Array, dtype: DType, count: int) -> Array:
    """Unpack 4-bit integers, low nibble first, to one byte each."""
    halves = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)[:count]
    if dtype is dtypes.uint8:
        return halves
    return ((halves.astype(np.int8) ^ 8) - 8).astype(np.int8)


def typed_elements(proto: Any, dtype: DType, shape: tuple[int, ...], where: str) -> Array:
    """Elements from a field of numbers, some of them as bits."""
    field = FIELDS.get(dtype, "int32_data")
    given = np.array(getattr(proto, field))
    if given.size != prod(shape):
        raise OnnxError(
            f"{where} of {dtype} {shape} has {given.size} elements in {field}, not {prod(shape)}; "
            "the file is damaged or was cut off"
        )
    stored = to_numpy_dtype(dtype)
    if field != "int32_data":
        return given.astype(stored).reshape(shape)
    bits = np.dtype(f"u{dtype.itemsize}") if dtypes.is_float(dtype) else stored
    limits = (0, 1) if dtype is dtypes.bool else (np.iinfo(bits).min, np.iinfo(bits).max)
    if given.size and not (limits[0] <= given.min() and given.max() <= limits[1]):
        raise OnnxError(f"{where} of {dtype} has elements outside {limits}, which it cannot hold")
    return given.astype(bits).view(stored).reshape(shape)


def external_bytes(proto: Any, folder: Path | None, where: str) -> Array:
    """The bytes in another file, mapped, not read. It must be in the folder of the model."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise OnnxError(
            f"{where} is stored in the file {location!r}, but the model was given without a "
            "folder; pass OnnxRunner the path of the model"
        )
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        is_file = path.is_file()
    except (OSError, ValueError) as error:
        raise OnnxError(
            f"{where} is stored in {location[:80]!r}, which is no path: {error}; save the model "
            "again"
        ) from error
    if not location or not path.is_relative_to(root):
        raise OnnxError(
            f"{where} is stored in {location!r}, which is not inside the model's folder"
        )
    if not is_file:
        raise OnnxError(
            f"{where} is stored in {location!r}, which is not there; put it into {root}"
        )
    size = path.stat().st_size
    offset = whole_number(entries.get("offset", "0"), f"{where}: offset")
    length = whole_number(entries.get("length", str(max(size - offset, 0))), f"{where}: length")
    if offset + length > size:
        raise OnnxError(
            f"{where} takes bytes {offset} to {offset + length} of {location!r}, "
            f"which has {size}; the file was cut off"
        )
    if length == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (length,))


def whole_number(text: str, what: str) -> int:
    """A non-negative number from text. Raises OnnxError for anything else."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise OnnxError(f"{what} is {text[:40]!r}, not a whole number of bytes")
    return int(text)
