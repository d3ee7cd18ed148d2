"""The element types of ONNX and their dtypes.

The codes are those of `TensorProto.DataType` (https://onnx.ai/onnx/api/classes.html). 4-bit
integers are stored in 8 bits: a file packs two into a byte.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes
from tinygrad.nn.onnx.errors import OnnxUnsupportedError

DTYPES: dict[int, DType] = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    4: dtypes.uint16,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    9: dtypes.bool,
    10: dtypes.float16,
    11: dtypes.float64,
    12: dtypes.uint32,
    13: dtypes.uint64,
    16: dtypes.bfloat16,
    17: dtypes.fp8e4m3,
    18: dtypes.fp8e4m3fnuz,
    19: dtypes.fp8e5m2,
    20: dtypes.fp8e5m2fnuz,
}
PACKED: dict[int, DType] = {21: dtypes.uint8, 22: dtypes.int8}
OTHERS = {
    8: "STRING",
    14: "COMPLEX64",
    15: "COMPLEX128",
    21: "UINT4",
    22: "INT4",
    23: "FLOAT4E2M1",
    24: "FLOAT8E8M0",
    25: "UINT2",
    26: "INT2",
}


def dtype_of(code: int, where: str) -> DType:
    """The dtype of an element type's code. Raises OnnxUnsupportedError if there is none."""
    if code not in DTYPES:
        name = OTHERS.get(code, f"number {code}")
        there = ", ".join(str(dtype).removeprefix("dtypes.") for dtype in DTYPES.values())
        raise OnnxUnsupportedError(
            f"{where}: there is no dtype for elements of type {name}; there are {there}"
        )
    return DTYPES[code]
