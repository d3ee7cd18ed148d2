"""File I/O of sharded tensors: each device reads its own bytes, and saving gathers nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from test.unit.nn.test_gguf import F32_DATA, Part, gguf_file
from tinygrad import Mesh, P, Sharding, Tensor
from tinygrad.execution import CommTrace
from tinygrad.nn.state import gguf_load, load_state_dict, safe_load, safe_save
from tinygrad.nn.state.ggml import block_format
from tinygrad.nn.state.shard_io import range_starts
from tinygrad.runtime.disk import DiskFile
from tinygrad.runtime.support.host_memory import get_host_address
from tinygrad.sharding import Region

FOUR = ("CPU", "CPU:1", "CPU:2", "CPU:3")
SIX = (*FOUR, "CPU:4", "CPU:5")
MESH = Mesh((2, 2), ("a", "b"), FOUR)
VALUE = np.arange(4 * 8 * 6, dtype=np.float32).reshape(4, 8, 6)
LAYOUTS = {
    "rows": Sharding(FOUR, 0),
    "columns": Sharding(FOUR, 1),
    "halves of the last axis": MESH.sharding(P(None, None, "b")),
    "rows and columns": MESH.sharding(P("a", "b")),
    "columns and the last axis": MESH.sharding(P(None, "a", "b")),
    "copies": Sharding(FOUR),
    "rows over three": Sharding(FOUR[:3], 0),
    "columns over three": Sharding(FOUR[:3], 1),
    "the last axis and columns over three": Sharding(SIX, (2, 1), (2, 3)),
}


@contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Collects the destination address and size of each read from a file.

    Reading through a memory mapping, which cannot be counted, is an error.
    """
    found: list[tuple[int, int]] = []
    read = DiskFile.read

    def counted(self: DiskFile, file: Any, offset: int, destination: memoryview) -> None:
        found.append((get_host_address(destination), destination.nbytes))
        read(self, file, offset, destination)

    def refuse(self: DiskFile) -> None:
        raise AssertionError(f"{self.path} is mapped")

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "read", counted)
        patch.setattr(DiskFile, "mapped", refuse)
        yield found


def nbytes_of(region: Region) -> int:
    return math.prod(stop - start for start, stop in region) * VALUE.itemsize


def shards_of(tensor: Tensor) -> Any:
    return tensor.uop.base.buffer


@pytest.fixture
def path(tmp_path):
    before = np.arange(7, dtype=np.uint8)
    safetensors.numpy.save_file({"before": before, "x": VALUE}, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_each_device_reads_only_its_shard_of_the_file(monkeypatch, path, layout):
    model = {"x": Tensor.zeros(4, 8, 6, device=layout)}
    state = {"x": safe_load(path)["x"]}
    with reads(monkeypatch) as found, CommTrace() as trace:
        load_state_dict(model, state, verbose=False)
    assert model["x"].device == layout
    np.testing.assert_array_equal(model["x"].numpy(), VALUE)
    regions = layout.regions(VALUE.shape)
    for part, region in zip(shards_of(model["x"]), regions, strict=True):
        into = range(part.address, part.address + part.nbytes)
        own = sum(nbytes for address, nbytes in found if address in into)
        # an uneven shard along an inner axis is read into a staging buffer
        if layout.is_even(VALUE.shape) or layout.split_axes == (0,):
            # of devices with the same shard, one reads it
            assert own == nbytes_of(region) or (own == 0 and regions.count(region) > 1)
    assert sum(nbytes for _, nbytes in found) == VALUE.nbytes
    assert trace.nbytes == 0


def test_a_model_in_memory_is_loaded_in_place_and_keeps_its_dtype(monkeypatch, path):
    model = {"x": Tensor.zeros(4, 8, 6).half().contiguous().shard(FOUR, axis=1).realize()}
    parts = list(shards_of(model["x"]))
    state = safe_load(path)
    with reads(monkeypatch) as found:
        load_state_dict(model, state, strict=False, verbose=False)
    assert list(shards_of(model["x"])) == parts
    np.testing.assert_array_equal(model["x"].numpy(), VALUE.astype(np.float16))
    assert sum(nbytes for _, nbytes in found) == VALUE.nbytes


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_sharded_tensor_is_saved_shard_by_shard_without_gathering(tmp_path, layout):
    tensors = {"x": Tensor(VALUE).to(layout).realize(), "after": Tensor([5.0])}
    with CommTrace() as trace:
        safe_save(tensors, tmp_path / "saved.safetensors")
    assert trace.records == []
    loaded = safetensors.numpy.load_file(tmp_path / "saved.safetensors")
    np.testing.assert_array_equal(loaded["x"], VALUE)
    assert loaded["after"].tolist() == [5.0]


def test_views_of_sharded_tensors_are_saved_row_major(tmp_path):
    x = Tensor(VALUE).shard(FOUR, axis=1).realize()
    tensors = {
        "turned": x.permute(2, 1, 0),
        "part": x[1:3],
        "reshaped": x.reshape(4, 4, 2, 6).realize(),
        "computed": x + 1,
        "constant": Tensor.ones(2, 8, device=Sharding(FOUR, 1)),
    }
    safe_save(tensors, tmp_path / "saved.safetensors")
    loaded = safetensors.numpy.load_file(tmp_path / "saved.safetensors")
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(loaded[name], tensor.numpy(), err_msg=name)


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        (((0, 4), (0, 8)), [0]),
        (((2, 3), (0, 8)), [64]),
        (((1, 3), (2, 4)), [40, 72]),
    ],
)
def test_the_contiguous_ranges_of_a_box(region, expected):
    assert range_starts((4, 8), region, 4) == expected


# ---- values computed from a file ----

ROWS, COLUMNS = 16, 256
Q8_0, Q8_0_BYTES, Q8_0_ELEMENTS = 8, 34, 32


def quantised(path: Path) -> Tensor:
    """A lazy matrix dequantised from a file."""
    blocks = np.random.default_rng(0).integers(0, 50, (ROWS, COLUMNS // Q8_0_ELEMENTS, Q8_0_BYTES))
    path.write_bytes(blocks.astype(np.uint8).tobytes())
    in_file = Tensor(path).reshape(*blocks.shape).to("CPU")
    return block_format(Q8_0).dequantize(in_file).reshape(ROWS, COLUMNS)


@pytest.mark.parametrize(
    "layout",
    [
        *(Sharding(FOUR, 0), Sharding(FOUR, 1), MESH.sharding(P("a", "b"))),
        *(MESH.sharding(P(None, "b")), MESH.sharding(P(("a", "b"))), Sharding(FOUR[:3], 0)),
    ],
    ids=str,
)
def test_each_device_reads_the_quantised_blocks_of_its_shard(monkeypatch, tmp_path, layout):
    value, expected = quantised(tmp_path / "blocks"), quantised(tmp_path / "blocks").numpy()
    model = {"x": Tensor.zeros(ROWS, COLUMNS, device=layout).half()}
    with reads(monkeypatch) as found, CommTrace() as trace:
        load_state_dict(model, {"x": value}, verbose=False)
    assert model["x"].device == layout
    np.testing.assert_array_equal(model["x"].numpy(), expected.astype(np.float16))
    assert sum(nbytes for _, nbytes in found) == ROWS * COLUMNS // Q8_0_ELEMENTS * Q8_0_BYTES
    assert trace.nbytes == 0


@pytest.mark.parametrize("layout", [Sharding(FOUR, 0), Sharding(FOUR, 1), Sharding(FOUR[:3], 0)])
def test_each_device_reads_its_shard_of_a_gguf_file(monkeypatch, tmp_path, layout):
    rng, sizes = np.random.default_rng(0), (COLUMNS, ROWS)
    blocks = rng.integers(0, 50, ROWS * COLUMNS // Q8_0_ELEMENTS * Q8_0_BYTES, np.uint8).tobytes()
    floats = rng.standard_normal(ROWS * COLUMNS).astype(np.float32).tobytes()
    parts = [Part("quantised", sizes, Q8_0, 0), Part("plain", sizes, F32_DATA, len(blocks))]
    (tmp_path / "x.gguf").write_bytes(gguf_file((), parts, blocks + floats))
    _, state = gguf_load(tmp_path / "x.gguf")
    expected = {name: x.numpy() for name, x in gguf_load(tmp_path / "x.gguf")[1].items()}
    model = {name: Tensor.zeros(ROWS, COLUMNS, device=layout) for name in state}
    with reads(monkeypatch) as found, CommTrace() as trace:
        load_state_dict(model, state, verbose=False)
    for name, x in model.items():
        assert x.device == layout
        np.testing.assert_array_equal(x.numpy(), expected[name])
    assert sum(nbytes for _, nbytes in found) == len(blocks) + len(floats)
    assert trace.nbytes == 0


def test_quantised_blocks_across_shards_are_read_in_another_layout_and_moved(tmp_path):
    layout = Sharding(tuple(f"CPU:{i}" for i in range(16)), 1)
    value = quantised(tmp_path / "blocks")
    model = {"x": Tensor.zeros(ROWS, COLUMNS, device=layout)}
    with CommTrace() as trace:
        load_state_dict(model, {"x": value}, verbose=False)
    np.testing.assert_array_equal(model["x"].numpy(), value.numpy())
    assert trace.kinds() == {"all_to_all": ROWS * COLUMNS * 4 * 15 // 16}


def test_reordered_values_are_read_shard_by_shard_too(monkeypatch, path):
    model = {"x": Tensor.zeros(6, 8, 4, device=Sharding(FOUR, 1))}
    state = {"x": safe_load(path)["x"].permute(2, 1, 0)}
    with reads(monkeypatch) as found, CommTrace() as trace:
        load_state_dict(model, state, verbose=False)
    np.testing.assert_array_equal(model["x"].numpy(), VALUE.T)
    assert sum(nbytes for _, nbytes in found) == VALUE.nbytes
    assert trace.nbytes == 0


def test_a_value_computed_from_two_tensors_is_loaded_too(path):
    x = safe_load(path)["x"].to("CPU")
    model = {"x": Tensor.zeros(4, 8, 6, device=Sharding(FOUR, 1))}
    load_state_dict(model, {"x": x + Tensor(VALUE)}, verbose=False)
    np.testing.assert_array_equal(model["x"].numpy(), VALUE * 2)
