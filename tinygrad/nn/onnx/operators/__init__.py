"""The operators, one family in each file. Importing this package registers them.

`tensor/` has shapes, indices and control flow, which the others use; then `math/`, `layers/`,
`image/`, and `microsoft/` for operators of ONNX Runtime.
"""

from tinygrad.nn.onnx.operators.image import boxes, deform_conv, fold, resize, sampling
from tinygrad.nn.onnx.operators.layers import (
    activation,
    attention,
    conv,
    loss,
    normalization,
    pool,
    quantization,
    recurrent,
)
from tinygrad.nn.onnx.operators.math import elementwise, matmul, reduction, signal
from tinygrad.nn.onnx.operators.microsoft import attention as fused_attention
from tinygrad.nn.onnx.operators.microsoft import transformer
from tinygrad.nn.onnx.operators.tensor import (
    control,
    creation,
    host,
    indexing,
    movement,
    scatter,
    sequences,
)
from tinygrad.nn.onnx.registry import HOST_OPERATORS, OPERATORS

__all__ = [
    "HOST_OPERATORS",
    "OPERATORS",
    "activation",
    "attention",
    "boxes",
    "control",
    "conv",
    "creation",
    "deform_conv",
    "elementwise",
    "fold",
    "fused_attention",
    "host",
    "indexing",
    "loss",
    "matmul",
    "movement",
    "normalization",
    "pool",
    "quantization",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "scatter",
    "sequences",
    "signal",
    "transformer",
]
