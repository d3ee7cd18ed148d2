"""Dequantisation of GGML's blocks, a function for each block type.

Input: blocks as bytes, (..., bytes of a block). Output: float32, (..., elements of a block), as
GGML defines them: https://github.com/ggml-org/ggml. Invariants: a result is elementwise in the
bytes with affine indices, so that it is fused into the kernel that reads it. Nothing is stored, no
kernel reads a lookup table in memory, and axes before the last are kept, so that blocks may be
sharded along any of them.
"""

from __future__ import annotations

import struct

from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

# the values of the 4-bit codes of IQ4_NL and IQ4_XS
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


# ---- fields of blocks ----


def half(blocks: Tensor, byte: int) -> Tensor:
    """The float16 at an even byte offset of each block, (..., 1), as float32."""
    # a bitcast of the whole block is a view of its memory; one of a two-byte slice is not
    index = byte // 2
    return blocks.bitcast(dtypes.float16)[..., index : index + 1].float()


def bit_fields(x: Tensor, bits: int) -> Tensor:
    """The fields of `bits` bits of each byte, lowest first: (..., n) to (..., 8 // bits, n)."""
    count = 8 // bits
    shifts = Tensor.arange(count, dtype=dtypes.uint8).reshape(count, 1) * bits
    return (x.unsqueeze(-2) >> shifts) & ((1 << bits) - 1)


def bit_fields_in_order(x: Tensor, bits: int) -> Tensor:
    """The fields of all bytes, one byte after the other: (..., n) to (..., n * 8 // bits)."""
    return bit_fields(x, bits).transpose(-1, -2).flatten(-2)


def four_bits(x: Tensor) -> Tensor:
    """The low nibbles of 16 bytes, then the high ones: (..., 16) to (..., 32)."""
    return bit_fields(x, 4).flatten(-2)


def signed(x: Tensor) -> Tensor:
    """Bytes as int8."""
    return x.bitcast(dtypes.int8)


def fifth_bits(blocks: Tensor, byte: int) -> Tensor:
    """One bit for each element, from the 4 bytes at `byte`, shifted above 4 other bits."""
    index = byte // 2
    words = blocks.bitcast(dtypes.uint16)[..., index : index + 2].unsqueeze(-1)
    bits = (words >> Tensor.arange(16, dtype=dtypes.uint16)) & 1
    return bits.cast(dtypes.uint8).flatten(-2) << 4


# ---- blocks of 32 with one scale ----


def q4_0(blocks: Tensor) -> Tensor:
    """scale, 32 x 4 bits: (q - 8) scale."""
    return (signed(four_bits(blocks[..., 2:])) - 8) * half(blocks, 0)


def q4_1(blocks: Tensor) -> Tensor:
    """scale, minimum, 32 x 4 bits: q scale + minimum."""
    return four_bits(blocks[..., 4:]) * half(blocks, 0) + half(blocks, 2)


def q5_0(blocks: Tensor) -> Tensor:
    """scale, 32 x the fifth bit, 32 x 4 bits: (q - 16) scale."""
    q = four_bits(blocks[..., 6:]) | fifth_bits(blocks, 2)
    return (signed(q) - 16) * half(blocks, 0)


def q5_1(blocks: Tensor) -> Tensor:
    """scale, minimum, 32 x the fifth bit, 32 x 4 bits: q scale + minimum."""
    q = four_bits(blocks[..., 8:]) | fifth_bits(blocks, 4)
    return q * half(blocks, 0) + half(blocks, 2)


def q8_0(blocks: Tensor) -> Tensor:
    """scale, 32 x int8: q scale."""
    return signed(blocks[..., 2:]) * half(blocks, 0)


# ---- super-blocks of 256 with low-precision scales ----


def q2_k(blocks: Tensor) -> Tensor:
    """16 x (4 bits scale, 4 bits minimum), 256 x 2 bits, scale, minimum."""
    q = bit_fields(blocks[..., 16:80].unflatten(-1, (2, 32)), 2)
    scale = half(blocks, 80) * (blocks[..., :16] & 15)
    minimum = half(blocks, 82) * (blocks[..., :16] >> 4)
    return _in_parts(q, scale, minimum)


def q3_k(blocks: Tensor) -> Tensor:
    """256 x the third bit, 256 x 2 bits, 16 x 6 bits of scale, scale."""
    low = bit_fields(blocks[..., 32:96].unflatten(-1, (2, 32)), 2).flatten(-3, -2)
    q = low | (bit_fields(blocks[..., :32], 1) << 2)
    scales = bit_fields(blocks[..., 96:104], 4) | _upper_bits_of_scales(blocks[..., 104:108])
    scale = half(blocks, 108) * (signed(scales.flatten(-2)) - 32)
    return _in_parts(signed(q) - 4, scale)


def _upper_bits_of_scales(x: Tensor) -> Tensor:
    """Bits 4 and 5 of Q3_K's scales, (..., 4) to (..., 2, 8)."""
    return (bit_fields(x, 2) << 4).flatten(-2).unflatten(-1, (2, 8))


def q4_k(blocks: Tensor) -> Tensor:
    """scale, minimum, 8 x (6 bits scale, 6 bits minimum), 256 x 4 bits."""
    q = bit_fields(blocks[..., 16:].unflatten(-1, (4, 32)), 4)
    return _in_parts(q, *_scales_and_minima(blocks))


def q5_k(blocks: Tensor) -> Tensor:
    """scale, minimum, 8 x (6 bits scale, 6 bits minimum), 256 x the fifth bit, 256 x 4 bits."""
    low = bit_fields(blocks[..., 48:].unflatten(-1, (4, 32)), 4).flatten(-3, -2)
    q = low | (bit_fields(blocks[..., 16:48], 1) << 4)
    return _in_parts(q, *_scales_and_minima(blocks))


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The 8 scales and the 8 minima of Q4_K and Q5_K, each (..., 8).

    Of 12 bytes, four hold scales 0 to 3 and four hold minima 0 to 3, in 6 bits. The low nibbles of
    the last four are the lower bits of scales 4 to 7, the high nibbles those of minima 4 to 7;
    their upper bits are the top two bits of the first eight bytes. Four bytes are one word.
    """
    shift = Tensor.arange(4, dtype=dtypes.uint32) * 8
    first, second, lower = (
        blocks.bitcast(dtypes.uint32)[..., i : i + 1].unsqueeze(-1) >> shift for i in (1, 2, 3)
    )
    is_first_four = Tensor.arange(2).reshape(2, 1) == 0
    scale = is_first_four.where(first & 63, (lower & 15) | ((first >> 2) & 48))
    minimum = is_first_four.where(second & 63, ((lower >> 4) & 15) | ((second >> 2) & 48))
    # numbers below 64, of which int32 converts faster
    scale, minimum = (x.flatten(-2).cast(dtypes.int32) for x in (scale, minimum))
    return half(blocks, 0) * scale, half(blocks, 2) * minimum


def q6_k(blocks: Tensor) -> Tensor:
    """256 x 4 bits, 256 x the upper 2 bits, 16 x int8 scale, scale."""
    low = bit_fields(blocks[..., :128].unflatten(-1, (2, 64)), 4).flatten(-3).unflatten(-1, (8, 32))
    high = bit_fields(blocks[..., 128:192].unflatten(-1, (2, 32)), 2).flatten(-3, -2)
    scale = half(blocks, 208) * signed(blocks[..., 192:208])
    return _in_parts(signed(low | (high << 4)) - 32, scale)


def _in_parts(q: Tensor, scale: Tensor, minimum: Tensor | None = None) -> Tensor:
    """q scale - minimum, with a sub-block for each column of `scale` and `minimum`."""
    q = q.flatten(scale.ndim - 1)
    value = q.unflatten(-1, (scale.shape[-1], -1)) * scale.unsqueeze(-1)
    return (value if minimum is None else value - minimum.unsqueeze(-1)).flatten(-2)


# ---- 4-bit codes of non-uniform values ----


def iq4_nl(blocks: Tensor) -> Tensor:
    """scale, 32 x 4 bits: IQ4_VALUES[q] scale."""
    return _iq4_value(four_bits(blocks[..., 2:])) * half(blocks, 0)


def iq4_xs(blocks: Tensor) -> Tensor:
    """scale, 8 x the upper 2 bits of a scale, 8 x the lower 4 bits, 256 x 4 bits."""
    lower = bit_fields_in_order(blocks[..., 4:8], 4)
    scales = lower | (bit_fields_in_order(blocks[..., 2:4], 2) << 4)
    scale = half(blocks, 0) * (signed(scales) - 32)
    return _in_parts(_iq4_value(bit_fields(blocks[..., 8:].unflatten(-1, (8, 16)), 4)), scale)


def _iq4_value(q: Tensor) -> Tensor:
    """IQ4_VALUES[q] as int8. The table is four words of four bytes, so it stays in registers."""
    words = struct.unpack("<4I", struct.pack("<16b", *IQ4_VALUES))
    a, b, c, d = (Tensor(word, dtype=dtypes.uint32) for word in words)
    word = (q < 8).where((q < 4).where(a, b), (q < 12).where(c, d))
    return signed((word >> ((q & 3) * 8).cast(dtypes.uint32)).cast(dtypes.uint8))


def mxfp4(blocks: Tensor) -> Tensor:
    """The power of two 2^(e - 127), 32 x the 4-bit float E2M1 of the OCP microscaling formats."""
    q = four_bits(blocks[..., 1:]).cast(dtypes.uint16)
    # as float16 with an exponent of the same two bits: smaller by 2^14, subnormal in the same way
    value = (((q & 8) << 12) | ((q & 7) << 9)).bitcast(dtypes.float16).float()
    e = blocks[..., :1].cast(dtypes.uint32)
    # half the power: 2^128 is none in float32, and 2^-127 and 2^-128 are subnormal
    subnormal = Tensor(1 << 21, dtype=dtypes.uint32) << e
    half_power = (e < 2).where(subnormal, (e - 1) << 23).bitcast(dtypes.float32)
    return value * (1 << 15) * half_power
