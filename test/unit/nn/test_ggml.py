"""GGML block formats: dequantised values of hand-packed blocks, and against the `gguf` package.

Hand-packed blocks follow a description of the position of each number's bits, so these tests need
no other package.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.nn.state import ggml_data_to_tensor
from tinygrad.nn.state.dequantize import IQ4_VALUES
from tinygrad.nn.state.ggml import FORMATS, block_format

NUMBERS = {format.name: number for number, format in FORMATS.items()}
QUANTISED = [format.name for format in FORMATS.values() if format.elements > 1]
PLAIN = {
    "F32": np.float32,
    "F16": np.float16,
    "F64": np.float64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
}
DEVICES = ("CPU", "CPU:1")


# ---- hand-packed blocks ----

SCALE, MINIMUM = 0.5, -0.25


def f16(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def packed(nbytes: int, values: list[int], place: Callable[[int], tuple[int, int]]) -> bytes:
    """Bytes with value `i` at `place(i)`: the byte, and the bit offset in it."""
    content = bytearray(nbytes)
    for i, value in enumerate(values):
        byte, shift = place(i)
        content[byte] |= value << shift
    return bytes(content)


def joined(*parts: bytes) -> bytes:
    """The bitwise OR of all parts."""
    return bytes(np.bitwise_or.reduce([list(part) for part in parts]).tolist())


def bits_of(values: list[int], low: int, count: int) -> list[int]:
    return [(value >> low) % (1 << count) for value in values]


def codes(count: int, bits: int) -> list[int]:
    """Numbers of this many bits, in an order that a wrong position would change."""
    return [(i * 7 + i // 16 * 3 + i // 64) % (1 << bits) for i in range(count)]


def in_halves(q: list[int]) -> bytes:
    """4 bits of 32 numbers: the first 16 in the low halves of bytes, the rest in the high ones."""
    return packed(16, q, lambda i: (i % 16, i // 16 * 4))


def q4_0() -> tuple[bytes, list[float]]:
    q = codes(32, 4)
    return f16(SCALE) + in_halves(q), [(x - 8) * SCALE for x in q]


def q4_1() -> tuple[bytes, list[float]]:
    q = codes(32, 4)
    return f16(SCALE, MINIMUM) + in_halves(q), [x * SCALE + MINIMUM for x in q]


def q5_halves(q: list[int]) -> bytes:
    top = sum((x >> 4) << i for i, x in enumerate(q))
    return top.to_bytes(4, "little") + in_halves(bits_of(q, 0, 4))


def q5_0() -> tuple[bytes, list[float]]:
    q = codes(32, 5)
    return f16(SCALE) + q5_halves(q), [(x - 16) * SCALE for x in q]


def q5_1() -> tuple[bytes, list[float]]:
    q = codes(32, 5)
    return f16(SCALE, MINIMUM) + q5_halves(q), [x * SCALE + MINIMUM for x in q]


def q8_0() -> tuple[bytes, list[float]]:
    q = [x - 128 for x in codes(32, 8)]
    return f16(SCALE) + struct.pack("<32b", *q), [x * SCALE for x in q]


def in_quarters(q: list[int]) -> bytes:
    """2 bits of 256 numbers: of each 128, 32 in bits 0-1 of bytes, 32 in bits 2-3, and so on."""
    return packed(64, q, lambda i: (i // 128 * 32 + i % 32, i % 128 // 32 * 2))


def q2_k() -> tuple[bytes, list[float]]:
    q, scales, minima = codes(256, 2), codes(16, 4), codes(16, 4)[::-1]
    parts = bytes(s | m << 4 for s, m in zip(scales, minima, strict=True))
    block = parts + in_quarters(q) + f16(SCALE, MINIMUM)
    return block, [x * scales[i // 16] * SCALE - minima[i // 16] * MINIMUM for i, x in enumerate(q)]


def q3_k() -> tuple[bytes, list[float]]:
    q, scales = codes(256, 3), codes(16, 6)
    top = packed(32, bits_of(q, 2, 1), lambda i: (i % 32, i // 32))
    parts = joined(
        packed(12, bits_of(scales, 0, 4), lambda j: (j % 8, j // 8 * 4)),
        packed(12, bits_of(scales, 4, 2), lambda j: (8 + j % 4, j // 4 * 2)),
    )
    block = top + in_quarters(bits_of(q, 0, 2)) + parts + f16(SCALE)
    return block, [(x - 4) * (scales[i // 16] - 32) * SCALE for i, x in enumerate(q)]


def scales_and_minima(scales: list[int], minima: list[int]) -> bytes:
    """8 scales and 8 minima of 6 bits each in 12 bytes."""
    return joined(
        packed(12, scales[:4], lambda j: (j, 0)),
        packed(12, minima[:4], lambda j: (4 + j, 0)),
        packed(12, bits_of(scales[4:], 0, 4), lambda j: (8 + j, 0)),
        packed(12, bits_of(minima[4:], 0, 4), lambda j: (8 + j, 4)),
        packed(12, bits_of(scales[4:], 4, 2), lambda j: (j, 6)),
        packed(12, bits_of(minima[4:], 4, 2), lambda j: (4 + j, 6)),
    )


def in_pairs(q: list[int]) -> bytes:
    """4 bits of 256 numbers: of each 64, 32 in the low halves of bytes, 32 in the high ones."""
    return packed(128, q, lambda i: (i // 64 * 32 + i % 32, i % 64 // 32 * 4))


def q4_k() -> tuple[bytes, list[float]]:
    q, scales, minima = codes(256, 4), codes(8, 6), codes(8, 6)[::-1]
    block = f16(SCALE, MINIMUM) + scales_and_minima(scales, minima) + in_pairs(q)
    return block, [x * scales[i // 32] * SCALE - minima[i // 32] * MINIMUM for i, x in enumerate(q)]


def q5_k() -> tuple[bytes, list[float]]:
    q, scales, minima = codes(256, 5), codes(8, 6), codes(8, 6)[::-1]
    top = packed(32, bits_of(q, 4, 1), lambda i: (i % 32, i // 32))
    block = f16(SCALE, MINIMUM) + scales_and_minima(scales, minima) + top
    numbers = [x * scales[i // 32] * SCALE - minima[i // 32] * MINIMUM for i, x in enumerate(q)]
    return block + in_pairs(bits_of(q, 0, 4)), numbers


def q6_k() -> tuple[bytes, list[float]]:
    q, scales = codes(256, 6), [7 * j - 50 for j in range(16)]
    low = packed(128, bits_of(q, 0, 4), lambda i: (i // 128 * 64 + i % 64, i % 128 // 64 * 4))
    block = low + in_quarters(bits_of(q, 4, 2)) + struct.pack("<16b", *scales) + f16(SCALE)
    return block, [(x - 32) * scales[i // 16] * SCALE for i, x in enumerate(q)]


def iq4_nl() -> tuple[bytes, list[float]]:
    q = codes(32, 4)
    return f16(SCALE) + in_halves(q), [IQ4_VALUES[x] * SCALE for x in q]


def iq4_xs() -> tuple[bytes, list[float]]:
    q, scales = codes(256, 4), codes(8, 6)
    top = packed(2, bits_of(scales, 4, 2), lambda j: (j // 4, j % 4 * 2))
    low = packed(4, bits_of(scales, 0, 4), lambda j: (j // 2, j % 2 * 4))
    content = packed(128, q, lambda i: (i // 32 * 16 + i % 16, i % 32 // 16 * 4))
    numbers = [IQ4_VALUES[x] * (scales[i // 32] - 32) * SCALE for i, x in enumerate(q)]
    return f16(SCALE) + top + low + content, numbers


def mxfp4() -> tuple[bytes, list[float]]:
    e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    q = codes(32, 4)
    numbers = [(e2m1[x % 8] if x < 8 else -e2m1[x % 8]) * 2.0**3 for x in q]
    return bytes([127 + 3]) + in_halves(q), numbers


BY_HAND = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": iq4_nl,
    "IQ4_XS": iq4_xs,
    "MXFP4": mxfp4,
}


def test_each_quantised_type_has_a_hand_packed_block():
    assert sorted(BY_HAND) == sorted(QUANTISED)


@pytest.mark.parametrize("name", QUANTISED)
def test_a_hand_packed_block_has_its_numbers(name: str):
    block, numbers = BY_HAND[name]()
    result = ggml_data_to_tensor(Tensor(block), len(numbers), NUMBERS[name])
    assert result.dtype == dtypes.float32
    assert result.tolist() == numbers


# ---- against the `gguf` package ----


def random_blocks(name: str, count: int) -> np.ndarray:
    """Random bytes, with scales of every magnitude, infinities and NaN included."""
    random = np.random.default_rng(NUMBERS[name])
    return random.integers(0, 256, (count, FORMATS[NUMBERS[name]].nbytes), dtype=np.uint8)


@pytest.mark.parametrize("name", QUANTISED)
def test_random_blocks_have_the_numbers_of_the_gguf_package(name: str):
    gguf = pytest.importorskip("gguf")
    blocks = random_blocks(name, 700)
    with warnings.catch_warnings():
        # zero times infinity
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    result = ggml_data_to_tensor(Tensor(blocks), expected.size, NUMBERS[name]).numpy()
    # a scale times few bits is exact in float32, so at most the sum rounds
    np.testing.assert_array_equal(result, expected.reshape(-1))


def test_every_scale_of_mxfp4_is_that_of_the_gguf_package():
    gguf = pytest.importorskip("gguf")
    blocks = random_blocks("MXFP4", 256)
    blocks[:, 0] = np.arange(256)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.MXFP4)
    result = ggml_data_to_tensor(Tensor(blocks), expected.size, NUMBERS["MXFP4"]).numpy()
    np.testing.assert_array_equal(result, expected.reshape(-1))


def test_sizes_of_blocks_are_those_of_the_gguf_package():
    gguf = pytest.importorskip("gguf")
    ours = {format.name: (format.elements, format.nbytes) for format in FORMATS.values()}
    theirs = {kind.name: sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert ours == {name: theirs[name] for name in ours}
    assert {gguf.GGMLQuantizationType[name].value: name for name in ours} == {
        number: format.name for number, format in FORMATS.items()
    }


# ---- types that are not quantised ----


@pytest.mark.parametrize("name", PLAIN)
def test_plain_types_keep_their_dtype(name: str):
    array = np.array([-1, 0, 3, 100], PLAIN[name])
    result = ggml_data_to_tensor(Tensor(array.tobytes()), 4, NUMBERS[name]).numpy()
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)


def test_bfloat16_is_the_upper_half_of_float32():
    result = ggml_data_to_tensor(Tensor(bytes([0xC0, 0x3F, 0, 0x80])), 2, NUMBERS["BF16"])
    assert result.dtype == dtypes.bfloat16
    assert result.tolist() == [1.5, -0.0]


# ---- use of quantised tensors ----


@pytest.mark.parametrize("name", QUANTISED)
def test_a_product_with_a_quantised_matrix_is_one_kernel(name: str):
    data = Tensor(BY_HAND[name]()[0] * (1024 // FORMATS[NUMBERS[name]].elements)).realize()
    vector = Tensor.arange(256).float().contiguous().realize()
    matrix = ggml_data_to_tensor(data, 1024, NUMBERS[name]).reshape(4, 256)
    GlobalCounters.reset()
    product = (matrix @ vector).realize()
    assert GlobalCounters.kernel_count == 1
    exact, numbers = matrix.numpy().astype(np.float64), np.arange(256)
    # a sum of 256 float32 rounds that often
    bound = 256 * np.finfo(np.float32).eps * (np.abs(exact) @ numbers)
    assert np.all(np.abs(product.numpy() - exact @ numbers) <= bound)


@pytest.mark.parametrize("name", QUANTISED)
def test_dequantising_sharded_blocks_moves_nothing(name: str):
    blocks, format = random_blocks(name, 4), FORMATS[NUMBERS[name]]
    whole = ggml_data_to_tensor(Tensor(blocks), 4 * format.elements, NUMBERS[name])
    split = Tensor(blocks.reshape(-1)).shard(DEVICES, axis=0).realize()
    GlobalCounters.reset()
    result = ggml_data_to_tensor(split, 4 * format.elements, NUMBERS[name]).realize()
    assert result.device == split.device
    assert GlobalCounters.kernel_count == len(DEVICES)
    np.testing.assert_array_equal(result.numpy(), whole.numpy())


def test_bytes_past_the_last_block_are_ignored():
    block, numbers = q4_1()
    assert ggml_data_to_tensor(Tensor(block + b"more"), 32, 3).tolist() == numbers


def test_zero_elements_are_an_empty_tensor():
    result = ggml_data_to_tensor(Tensor(b"anything"), 0, NUMBERS["Q4_K"])
    assert result.shape == (0,)
    assert result.dtype == dtypes.float32


@pytest.mark.parametrize(
    ("data", "n", "ggml_type", "message"),
    [
        (
            Tensor(b"\0" * 18),
            32,
            16,
            "type IQ2_XXS is not supported; these are: F32, F16, ",
        ),
        (Tensor(b"\0" * 18), 32, 999, "the GGML type number 999 is not supported"),
        (Tensor(b"\0" * 18), 31, 2, "31 elements are no blocks of 32, as Q4_0 is in"),
        (Tensor(b"\0" * 18), -32, 2, "-32 elements are no blocks"),
        (Tensor(b"\0" * 18), 64, 2, "64 elements of Q4_0 take 36 bytes, not 18"),
        (Tensor([0.0] * 18), 32, 2, "data of Q4_0 is a tensor of uint8, not of dtypes.float"),
    ],
)
def test_data_that_does_not_fit_is_an_error(data, n, ggml_type, message):
    with pytest.raises(ValueError, match=message):
        ggml_data_to_tensor(data, n, ggml_type)


def test_a_block_format_knows_its_sizes():
    format = block_format(NUMBERS["Q6_K"])
    assert (format.name, format.elements, format.nbytes) == ("Q6_K", 256, 210)
