"""GGML's types: the elements and bytes of a block of each, and its dequantisation.

`FORMATS` is the one table. A consumer of the quantised bytes of a weight finds the block sizes
there, and the function that dequantises blocks inside its own kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad.dtype import DType, dtypes
from tinygrad.nn.state import dequantize
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class BlockFormat:
    """A type of GGML: `dequantize` maps (..., nbytes) of uint8 to (..., elements)."""

    name: str
    elements: int
    nbytes: int
    dequantize: Callable[[Tensor], Tensor]
    dtype: DType = dtypes.float32


def _plain(name: str, dtype: DType) -> BlockFormat:
    """An unquantised type: its block is one number."""
    return BlockFormat(name, 1, dtype.itemsize, lambda blocks: blocks.bitcast(dtype), dtype)


# by the type number in files
FORMATS = {
    0: _plain("F32", dtypes.float32),
    1: _plain("F16", dtypes.float16),
    2: BlockFormat("Q4_0", 32, 18, dequantize.q4_0),
    3: BlockFormat("Q4_1", 32, 20, dequantize.q4_1),
    6: BlockFormat("Q5_0", 32, 22, dequantize.q5_0),
    7: BlockFormat("Q5_1", 32, 24, dequantize.q5_1),
    8: BlockFormat("Q8_0", 32, 34, dequantize.q8_0),
    10: BlockFormat("Q2_K", 256, 84, dequantize.q2_k),
    11: BlockFormat("Q3_K", 256, 110, dequantize.q3_k),
    12: BlockFormat("Q4_K", 256, 144, dequantize.q4_k),
    13: BlockFormat("Q5_K", 256, 176, dequantize.q5_k),
    14: BlockFormat("Q6_K", 256, 210, dequantize.q6_k),
    20: BlockFormat("IQ4_NL", 32, 18, dequantize.iq4_nl),
    23: BlockFormat("IQ4_XS", 256, 136, dequantize.iq4_xs),
    24: _plain("I8", dtypes.int8),
    25: _plain("I16", dtypes.int16),
    26: _plain("I32", dtypes.int32),
    27: _plain("I64", dtypes.int64),
    28: _plain("F64", dtypes.float64),
    30: _plain("BF16", dtypes.bfloat16),
    39: BlockFormat("MXFP4", 32, 17, dequantize.mxfp4),
}
# the names of others, for messages
UNSUPPORTED = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 29: "IQ1_M", 31: "Q4_0_4_4", 32: "Q4_0_4_8",
    33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8", 40: "NVFP4",
}  # fmt: skip


def block_format(ggml_type: int) -> BlockFormat:
    """The format of a type by its number. Raises ValueError for one that is not in the table.

    >>> from tinygrad.nn.state.ggml import block_format
    >>> q4_0 = block_format(2)
    >>> q4_0.name, q4_0.elements, q4_0.nbytes
    ('Q4_0', 32, 18)
    """
    if ggml_type not in FORMATS:
        known = ", ".join(format.name for format in FORMATS.values())
        name = UNSUPPORTED.get(ggml_type, f"number {ggml_type}")
        raise ValueError(f"the GGML type {name} is not supported; these are: {known}")
    return FORMATS[ggml_type]


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
    """Dequantise the first `n` elements of the bytes `t`, (n,), lazily, fused into consumers.

    Quantised types give float32, the others their own dtype. `t` is of uint8 on a device that runs
    kernels; bytes past the last block are ignored. Raises ValueError if the type is unknown, `n` is
    not a multiple of the block size, or `t` is too short or not of bytes.

    >>> one_and_four_bits = bytes([0x00, 0x3C]) + bytes(range(16))
    >>> nn.state.ggml_data_to_tensor(Tensor(one_and_four_bits), 32, 2)[:4].tolist()
    [-8.0, -7.0, -6.0, -5.0]
    """
    format = block_format(ggml_type)
    if t.dtype != dtypes.uint8:
        raise ValueError(f"the data of {format.name} is a tensor of uint8, not of {t.dtype}")
    count, rest = divmod(n, format.elements)
    if n < 0 or rest:
        raise ValueError(f"{n} elements are no blocks of {format.elements}, as {format.name} is in")
    needed = count * format.nbytes
    if t.numel() < needed:
        raise ValueError(f"{n} elements of {format.name} take {needed} bytes, not {t.numel()}")
    if n == 0:
        return Tensor.empty(0, dtype=format.dtype)
    blocks = t.flatten()[:needed].reshape(count, format.nbytes)
    return format.dequantize(blocks).reshape(n)
