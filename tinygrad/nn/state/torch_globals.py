"""The globals that the pickle of a PyTorch checkpoint may name, and their replacements.

Input: the arguments that a pickle passes to PyTorch's functions. Output: tensors, dictionaries,
tuples and strings. Invariant: the arguments are not trusted; invalid ones raise FileFormatError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.nn.state.file_bytes import FileFormatError, shown
from tinygrad.nn.state.plain_pickle import Constructor, Globals, checked_key
from tinygrad.nn.state.strided import strided_view
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class StorageType:
    """The dtype of the elements of a storage."""

    dtype: DType


@dataclass(frozen=True)
class Storage:
    """A storage: its bytes, and the default dtype of tensors in it."""

    data: Tensor
    dtype: DType


STORAGE_TYPES = {
    "FloatStorage": dtypes.float32,
    "DoubleStorage": dtypes.float64,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "LongStorage": dtypes.int64,
    "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16,
    "CharStorage": dtypes.int8,
    "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
    "UntypedStorage": dtypes.uint8,
}
DTYPES = {
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
    "float8_e4m3fnuz": dtypes.fp8e4m3fnuz,
    "float8_e5m2fnuz": dtypes.fp8e5m2fnuz,
    **{name: getattr(dtypes, name) for name in ("float16", "bfloat16", "float32", "float64")},
    **{name: getattr(dtypes, name) for name in ("uint8", "uint16", "uint32", "uint64")},
    **{name: getattr(dtypes, name) for name in ("int8", "int16", "int32", "int64", "bool")},
}


def rebuild_tensor(arguments: tuple[Any, ...]) -> Tensor:
    """`(storage, offset, shape, strides, ...)`"""
    match arguments:
        case (Storage() as storage, int() as offset, tuple() as shape, tuple() as strides, *_):
            return strided_view(storage.data, storage.dtype, offset, shape, strides)
    raise FileFormatError(f"{shown(arguments)} do not describe a tensor")


def _with_dtype(rebuild: Callable[[tuple[Any, ...]], Tensor]) -> Constructor:
    """`(storage, offset, shape, strides, requires_grad, hooks, dtype, ...)`"""

    def typed(arguments: tuple[Any, ...]) -> Tensor:
        match arguments:
            case (Storage() as storage, offset, shape, strides, _, _, DType() as dtype, *_):
                return rebuild((Storage(storage.data, dtype), offset, shape, strides))
            case (None, *_):
                return rebuild(arguments)
        raise FileFormatError(f"{shown(arguments)} do not describe a tensor")

    return Constructor(typed)


def _first_tensor(arguments: tuple[Any, ...]) -> Tensor:
    """`(tensor, requires_grad, hooks)`"""
    match arguments:
        case (Tensor() as tensor, *_):
            return tensor
    raise FileFormatError(f"{shown(arguments)} do not describe a parameter")


def _from_type(arguments: tuple[Any, ...]) -> Any:
    """`(function, type, arguments, attributes)`, whose attributes are dropped."""
    match arguments:
        case (Constructor() as function, _, tuple() as inner, _):
            return function.function(inner)
    raise FileFormatError(f"{shown(arguments)} do not describe a tensor")


# ---- plain data ----


def _as_dict(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """`()` or `(pairs,)`"""
    pairs = arguments[0] if arguments else []
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
    ):
        raise FileFormatError(f"{shown(arguments)} are not items of a dictionary")
    return {checked_key(key): value for key, value in pairs}


def _as_default_dict(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """`()` or `(factory,)`"""
    return {}


def _as_set(kind: type[set[Any]] | type[frozenset[Any]]) -> Constructor:
    def make(arguments: tuple[Any, ...]) -> Any:
        match arguments:
            case () | (list(),):
                return kind(map(checked_key, *arguments)) if arguments else kind()
        raise FileFormatError(f"{shown(arguments)} are no elements of a set")

    return Constructor(make)


def _as_size(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """`(sizes,)`"""
    match arguments:
        case (tuple() | list() as sizes,):
            return tuple(sizes)
    raise FileFormatError(f"{shown(arguments)} are no sizes")


def _as_device(arguments: tuple[Any, ...]) -> str:
    """`(kind,)` or `(kind, number)`"""
    match arguments:
        case (str() as kind,):
            return kind
        case (str() as kind, int() as number):
            return f"{kind}:{number}"
    raise FileFormatError(f"{shown(arguments)} are not a device")


def _as_bytes(arguments: tuple[Any, ...]) -> bytes:
    """`(text, "latin1")`, which is how pickles of Python 2 write bytes."""
    match arguments:
        case (str() as text, "latin1" | "latin-1"):
            try:
                return text.encode("latin1")
            except UnicodeEncodeError as error:
                raise FileFormatError(f"{shown(text)} are not bytes") from error
    raise FileFormatError(f"{shown(arguments)} are not bytes")


def _as_complex(arguments: tuple[Any, ...]) -> complex:
    """`(real, imaginary)`"""
    match arguments:
        case (float() as real, float() as imaginary):
            return complex(real, imaginary)
    raise FileFormatError(f"{shown(arguments)} are no complex number")


def torch_globals(rebuild: Callable[[tuple[Any, ...]], Tensor]) -> Globals:
    """The globals of a checkpoint; `rebuild` creates a tensor from a storage."""
    names: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): Constructor(_as_dict),
        ("collections", "defaultdict"): Constructor(_as_default_dict),
        ("_codecs", "encode"): Constructor(_as_bytes),
        ("torch", "Size"): Constructor(_as_size),
        ("torch", "device"): Constructor(_as_device),
        ("torch._utils", "_rebuild_tensor"): Constructor(rebuild),
        ("torch._utils", "_rebuild_tensor_v2"): Constructor(rebuild),
        ("torch._utils", "_rebuild_tensor_v3"): _with_dtype(rebuild),
        ("torch._utils", "_rebuild_parameter"): Constructor(_first_tensor),
        ("torch._utils", "_rebuild_parameter_with_state"): Constructor(_first_tensor),
        ("torch._tensor", "_rebuild_from_type_v2"): Constructor(_from_type),
        ("torch", "Tensor"): None,
        ("torch.nn.parameter", "Parameter"): None,
        ("torch.storage", "UntypedStorage"): StorageType(dtypes.uint8),
    }
    for module in ("builtins", "__builtin__"):
        names[module, "set"] = _as_set(set)
        names[module, "frozenset"] = _as_set(frozenset)
        names[module, "dict"] = Constructor(_as_dict)
        names[module, "list"] = None
        names[module, "int"] = None
        names[module, "float"] = None
        names[module, "complex"] = Constructor(_as_complex)
    names |= {("torch", name): dtype for name, dtype in DTYPES.items()}
    names |= {("torch", name): StorageType(dtype) for name, dtype in STORAGE_TYPES.items()}
    return names
