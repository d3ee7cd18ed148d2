"""Parse models: from a path, bytes, a tensor of bytes, or a `ModelProto`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    import onnx

Model: TypeAlias = "str | Path | bytes | Tensor | onnx.ModelProto"


def read_model(model: Model) -> tuple[Any, Path | None]:
    """The `ModelProto`, with its local functions inlined, and its folder, if any.

    Raises ImportError without the package `onnx`, OnnxError for an invalid model,
    FileNotFoundError.
    """
    try:
        import onnx
        from onnx import inliner
    except ImportError as error:
        raise ImportError(
            "reading ONNX models needs the package onnx: pip install 'tinygrad-sharding[onnx]'"
        ) from error
    if isinstance(model, onnx.ModelProto):
        proto, folder = model, None
    else:
        data, folder = model_bytes(model)
        proto = parsed(data, "the model" if folder is None else str(model))
    if not proto.HasField("graph"):
        raise OnnxError("the model has no graph: these bytes are no ONNX model")
    return (inliner.inline_local_functions(proto) if len(proto.functions) else proto), folder


def model_bytes(model: str | Path | bytes | Tensor) -> tuple[bytes, Path | None]:
    """The content of a model's file, and its folder, if known."""
    if isinstance(model, (str, Path)):
        path = Path(model)
        return path.read_bytes(), path.parent
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), None
    if not isinstance(model, Tensor) or model.dtype is not dtypes.uint8 or model.ndim != 1:
        raise OnnxError(
            f"a model is a path, bytes, a tensor of uint8 with one axis or a ModelProto, not "
            f"{model!r:.80}"
        )
    kind, _, place = str(model.device).partition(":")
    return model.numpy().tobytes(), Path(place).parent if kind == "DISK" else None


def parsed(data: bytes, what: str) -> Any:
    """Parse bytes as a message."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return onnx.load_model_from_string(data)
    except DecodeError as error:
        raise OnnxError(f"{what} is not an ONNX model, or it was cut off: {error}") from error
