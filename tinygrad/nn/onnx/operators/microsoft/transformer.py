"""Fused transformer operators of ONNX Runtime, in the domain com.microsoft.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.nn.onnx.errors import OnnxUnsupportedError
from tinygrad.nn.onnx.operators.layers.activation import gelu, swish
from tinygrad.nn.onnx.operators.layers.normalization import (
    layer_normalization,
    root_mean_square_normalized,
)
from tinygrad.nn.onnx.registry import MICROSOFT, operator
from tinygrad.tensor import Tensor

operator("Gelu", domain=MICROSOFT)(gelu)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(a: Tensor, b: Tensor) -> Tensor:
    return (a + b).gelu("none")


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return (x if bias is None else x + bias).gelu()


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return swish(x, alpha=alpha)


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """A product of matrices, transposed first; `transBatch` puts the first axis before the last."""
    if transBatchA:
        a = a.permute((*range(1, a.ndim - 1), 0, a.ndim - 1))
    if transBatchB:
        b = b.permute((*range(1, b.ndim - 1), 0, b.ndim - 1))
    a = a.transpose(-2, -1) if transA and a.ndim > 1 else a
    b = b.transpose(-2, -1) if transB and b.ndim > 1 else b
    return (a @ b) * alpha


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum of both and the bias, normalized; its statistics, and the sum."""
    total = x + skip if bias is None else x + skip + bias
    return (*layer_normalization(total, gamma, beta, epsilon=epsilon), total)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum of both and the bias, over its root mean square; and the sum."""
    total = x + skip if bias is None else x + skip + bias
    result, inverse = root_mean_square_normalized(total, gamma, -1, epsilon, 1)
    return result, inverse, inverse, total


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word_embedding: Tensor,
    position_embedding: Tensor,
    segment_embedding: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized sum of word, position and segment embeddings; the length of each sequence by
    its mask; and the sum.
    """
    batch, length = input_ids.shape
    places = Tensor.arange(length).reshape((1, length)) if position_ids is None else position_ids
    total = word_embedding[input_ids] + position_embedding[places]
    if segment_ids is not None and segment_embedding is not None:
        total = total + segment_embedding[segment_ids]
    counts = Tensor.zeros(batch, dtype=dtypes.int32)
    if mask is not None:
        counts = mask.cast(dtypes.int32).sum(1).cast(dtypes.int32)
    return layer_normalization(total, gamma, beta, epsilon=epsilon)[0], counts, total


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    weight_prepacked: int = 0,
) -> Tensor:
    """The product with the transpose of a matrix (N, K) whose rows are blocks of 4-bit or 8-bit
    integers, each block with its scale and zero point.
    """
    if bits not in (4, 8) or weight_prepacked or g_idx is not None:
        raise OnnxUnsupportedError("bits must be 4 or 8, without g_idx and weight_prepacked")
    blocks = -(-K // block_size)
    quantized = unpack_bits(b.reshape((N, -1)), bits).shrink_to((N, blocks * block_size))
    if zero_points is None:
        zero: Tensor | int = 1 << (bits - 1)
    elif zero_points.is_floating_point():
        zero = zero_points.reshape((N, blocks, 1))
    else:
        unpacked = unpack_bits(zero_points.reshape((N, -1)), bits).shrink_to((N, blocks))
        zero = unpacked.cast(a.dtype).reshape((N, blocks, 1))
    centered = quantized.cast(a.dtype).reshape((N, blocks, block_size)) - zero
    weight = (centered * scales.reshape((N, blocks, 1))).reshape((N, -1)).shrink_to((N, K))
    return a.linear(weight.transpose(), bias)


def unpack_bits(x: Tensor, bits: int) -> Tensor:
    """Bytes (rows, columns) as 4-bit integers, low nibble first, or unchanged."""
    if bits == 8:
        return x
    return (x & 15).stack(x >> 4, dim=-1).flatten(1)
