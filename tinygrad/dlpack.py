"""DLPack: arrays handed from one library to another in a capsule, without a copy.

In: numpy arrays over memory, with the dtype that their elements are the bits of. Out: capsules; and
back. numpy makes and takes the capsules, so that the memory lives as long as either side uses it;
here is what it lacks, bfloat16 and 8-bit floats, which it is shown as integers of their width.
Source: the header `dlpack.h`, version 1.1.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes, from_numpy_dtype

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# what DLPack calls the memory of the CPU: its type of device, and a number
CPU = (1, 0)
VERSION = (1, 1)
UNSIGNED = 1
# the codes of the types that numpy lacks, by code and bits
CODES = {dtypes.bfloat16: (4, 16), dtypes.fp8e4m3: (10, 8), dtypes.fp8e5m2: (12, 8)}
_DTYPES = {code: dtype for dtype, code in CODES.items()}


class _DLTensor(ctypes.Structure):
    """`DLTensor`, up to the type of its elements."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


# a capsule points to a DLTensor, or, since version 1.0, to one that lies behind a head of 32 bytes
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}

_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _described(capsule: Any) -> tuple[_DLTensor, bool]:
    """What a capsule says of its array, to be read and changed, and whether it has a version."""
    for name, offset in _OFFSETS.items():
        if _is_capsule(capsule, name):
            return _DLTensor.from_address(_pointer_of(capsule, name) + offset), offset > 0
    raise BufferError(f"{capsule!r} is no DLPack capsule, or was taken before")


class _Handed:
    """A capsule as numpy asks for it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


class _Writable:
    """The memory of an array that numpy takes for read-only because it was not told."""

    def __init__(self, array: Array) -> None:
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def to_capsule(stored: Array, dtype: DType, max_version: tuple[int, int] | None) -> Any:
    """A capsule of elements that are the bits of `dtype`, with a version if the taker knows them.

    Raises BufferError for read-only memory if not: only a version can say so.
    """
    capsule = stored.__dlpack__(max_version=max_version)
    if dtype in CODES:
        described, _ = _described(capsule)
        described.code, described.bits = CODES[dtype]
    return capsule


def from_capsule(capsule: Any) -> tuple[Array, DType]:
    """The array over the memory of a capsule, and the dtype that its elements are the bits of.

    Raises BufferError for a capsule that was taken before or is of another kind, for memory that
    is not the CPU's, and for elements of a type that there is not.
    """
    import numpy as np

    described, has_version = _described(capsule)
    device, kind = described.device_type, (described.code, described.bits)
    if device != CPU[0]:
        raise BufferError(
            f"the array is on DLPack's device {device}, not on the CPU, which is {CPU[0]}; "
            "copy it to the CPU first"
        )
    if kind in _DTYPES:
        described.code = UNSIGNED
    try:
        stored = np.from_dlpack(_Handed(capsule))
        dtype = _DTYPES[kind] if kind in _DTYPES else from_numpy_dtype(stored.dtype)
    except (RuntimeError, TypeError, BufferError) as error:
        raise BufferError(
            f"there is no dtype for DLPack's type {kind[0]} of {kind[1]} bits ({error}); "
            "convert the array first"
        ) from error
    return (stored if has_version else np.asarray(_Writable(stored))), dtype
