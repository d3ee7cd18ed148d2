"""DLPack: exchange of arrays between libraries in capsules, without a copy.

Converts numpy arrays to capsules and back. numpy creates and consumes the capsules, so the memory
lives as long as either side uses it. This module adds the dtypes that numpy lacks, bfloat16 and
8-bit floats: numpy sees them as unsigned integers of the same width. Source: `dlpack.h`, version
1.1.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes, from_numpy_dtype

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# DLPack's device of CPU memory: type and number.
CPU = (1, 0)
VERSION = (1, 1)
UNSIGNED = 1
# DLPack's type code and bits of the dtypes that numpy lacks.
CODES = {
    dtypes.bfloat16: (4, 16),
    dtypes.fp8e4m3: (10, 8),
    dtypes.fp8e4m3fnuz: (11, 8),
    dtypes.fp8e5m2: (12, 8),
    dtypes.fp8e5m2fnuz: (13, 8),
}
_DTYPES = {code: dtype for dtype, code in CODES.items()}


class _DLTensor(ctypes.Structure):
    """The head of a `DLTensor`, up to its dtype."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


# The byte offset of the DLTensor in a capsule. Since version 1.0, a header precedes it.
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}

_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _read_head(capsule: Any) -> tuple[_DLTensor, bool]:
    """The DLTensor of a capsule, which may be modified, and whether the capsule is versioned."""
    for name, offset in _OFFSETS.items():
        if _is_capsule(capsule, name):
            return _DLTensor.from_address(_pointer_of(capsule, name) + offset), offset > 0
    raise BufferError(f"{capsule!r} is not a DLPack capsule, or was consumed before")


class _CapsuleExporter:
    """A capsule as an object with the DLPack protocol, which numpy expects."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


class _Writable:
    """The memory of an array that numpy assumes to be read-only for lack of a version."""

    def __init__(self, array: Array) -> None:
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def to_capsule(stored: Array, dtype: DType, max_version: tuple[int, int] | None) -> Any:
    """Exports an array of the bits of `dtype`. Versioned if the consumer supports versions.

    Raises BufferError for read-only memory otherwise: only versioned capsules can mark it.
    """
    capsule = stored.__dlpack__(max_version=max_version)
    if dtype in CODES:
        head, _ = _read_head(capsule)
        head.code, head.bits = CODES[dtype]
    return capsule


def from_capsule(capsule: Any) -> tuple[Array, DType]:
    """Imports a capsule: an array over its memory, and the dtype whose bits the elements are.

    Raises BufferError for a consumed capsule or another object, for memory that is not CPU memory,
    and for unsupported dtypes.
    """
    import numpy as np

    head, has_version = _read_head(capsule)
    device, kind = head.device_type, (head.code, head.bits)
    if device != CPU[0]:
        raise BufferError(
            f"the array is on DLPack device {device}, not on the CPU (device {CPU[0]}); "
            "copy it to the CPU first"
        )
    if kind in _DTYPES:
        head.code = UNSIGNED
    try:
        stored = np.from_dlpack(_CapsuleExporter(capsule))
        dtype = _DTYPES[kind] if kind in _DTYPES else from_numpy_dtype(stored.dtype)
    except (RuntimeError, TypeError, BufferError) as error:
        raise BufferError(
            f"unsupported DLPack type {kind[0]} of {kind[1]} bits ({error}); "
            "convert the array first"
        ) from error
    return (stored if has_version else np.asarray(_Writable(stored))), dtype
