"""All-reduces by NCCL, NVIDIA's library of collectives, by ctypes.

Input: for each GPU, the addresses of its partial values and of its result. Output: calls on the
GPUs' streams of kernels, which wait for what wrote the partial values; readers of a result wait as
for a kernel. NCCL is the wheel `nvidia-nccl-cu13` or `-cu12`, or the system's library. One
communicator is made for each group of GPUs, and kept until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tinygrad.device.compiled import DeviceError
from tinygrad.dtype import DType, dtypes

LIBRARY = "libnccl.so.2"
SUCCESS = 0
# the numbers of `ncclDataType_t` and `ncclRedOp_t` in nccl.h
DTYPES: dict[DType, int] = {
    dtypes.int8: 0,
    dtypes.uint8: 1,
    dtypes.int32: 2,
    dtypes.uint32: 3,
    dtypes.int64: 4,
    dtypes.uint64: 5,
    dtypes.float16: 6,
    dtypes.float32: 7,
    dtypes.float64: 8,
    dtypes.bfloat16: 9,
}
OPS = {"ADD": 0, "MUL": 1, "MAX": 2}


class Stream(Protocol):
    """A GPU with a stream of kernels."""

    ordinal: int
    kernels: Any

    def begin_kernels(self) -> None:
        """Lets the kernels that follow wait for copies, and activates the context."""

    def end_kernels(self, name: str) -> None:
        """Notes what was launched."""


class Part(NamedTuple):
    """A GPU with the addresses of its partial values and of its result."""

    gpu: Stream
    source: int
    destination: int


class NcclError(DeviceError):
    """A call of NCCL failed."""


def can_reduce(op: str, dtype: DType) -> bool:
    """Whether NCCL has an operation for a dtype."""
    return op in OPS and dtype in DTYPES


@functools.cache
def load_nccl() -> Any:
    """The library. Raises DeviceError, which says what to install."""
    found = importlib.util.find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found else []
    paths = [Path(folder, "nccl", "lib", LIBRARY) for folder in folders]
    for path in (*(str(path) for path in paths if path.exists()), LIBRARY):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.ncclGetErrorString.restype = library.ncclGetLastError.restype = ctypes.c_char_p
        return library
    raise DeviceError("NCCL is not installed: pip install 'tinygrad-sharding[nccl]'")


def is_installed() -> bool:
    """Whether there is a library."""
    try:
        load_nccl()
    except DeviceError:
        return False
    return True


def version() -> tuple[int, int, int]:
    """The version of the library."""
    number = ctypes.c_int()
    _call("ncclGetVersion", ctypes.byref(number))
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def all_reduce(groups: Sequence[Sequence[Part]], op: str, dtype: DType, count: int) -> None:
    """Reduces `count` elements of all GPUs of each group. No GPU may be in a group twice."""
    for part in (part for group in groups for part in group):
        part.gpu.begin_kernels()
    handles = [_communicators(tuple(part.gpu.ordinal for part in group)) for group in groups]
    _call("ncclGroupStart")
    try:
        for group, communicators in zip(groups, handles, strict=True):
            for part, communicator in zip(group, communicators, strict=True):
                _call(
                    "ncclAllReduce",
                    ctypes.c_void_p(part.source),
                    ctypes.c_void_p(part.destination),
                    ctypes.c_size_t(count),
                    DTYPES[dtype],
                    OPS[op],
                    ctypes.c_void_p(communicator),
                    ctypes.c_void_p(int(part.gpu.kernels)),
                )
    finally:
        _call("ncclGroupEnd")
    for part in (part for group in groups for part in group):
        part.gpu.end_kernels("an all-reduce of NCCL")


@functools.cache
def _communicators(ordinals: tuple[int, ...]) -> tuple[int, ...]:
    """The communicator of each GPU of a group."""
    count = len(ordinals)
    handles = (ctypes.c_void_p * count)()
    _call("ncclCommInitAll", handles, count, (ctypes.c_int * count)(*ordinals))
    return tuple(handle or 0 for handle in handles)


def _call(name: str, *arguments: Any) -> None:
    """Calls the library. Raises NcclError."""
    library = load_nccl()
    code = getattr(library, name)(*arguments)
    if code != SUCCESS:
        kind, detail = library.ncclGetErrorString(code), library.ncclGetLastError(None)
        text = ": ".join(x.decode() for x in (kind, detail) if x)
        raise NcclError(f"NCCL: {name}: {text}")
