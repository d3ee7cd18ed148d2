"""Quantised matrices: products, exact or of rounded factors; shards in the mapped file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from test.devices import only_cpu
from test.llm.tiny_models import write_model
from tinygrad import Context, Device, GlobalCounters, Tensor, dtypes
from tinygrad.apps.language.model.layouts import ModelLayout
from tinygrad.apps.language.model.weights import (
    COLUMNS,
    MIN_ROUNDED_ROWS,
    ROWS,
    Matrix,
    ShardedAxis,
    WeightFile,
)
from tinygrad.device import RemoteBuffer
from tinygrad.nn.state.ggml import FORMATS
from tinygrad.sharding import LocalDevices

NAMES = ["Q4_0", "Q4_K", "Q6_K", "Q8_0"]
LENGTH = 512


def matrix_of(name: str) -> Matrix:
    """A matrix of 48 rows, of bytes whose scales are finite."""
    format = next(x for x in FORMATS.values() if x.name == name)
    shape = 48, LENGTH // format.elements, format.nbytes
    content = np.random.default_rng(0).integers(0, 59, shape, dtype=np.uint8)
    return Matrix(Tensor(content).realize(), format)


def errors(matrix: Matrix, rows: int) -> tuple[float, float]:
    """The maximum error of a product, in magnitudes of products that it sums: by default, and
    exactly.
    """
    x = np.random.default_rng(1).standard_normal((1, rows, LENGTH)).astype(np.float32)
    weight = matrix.values().numpy().astype(np.float64).T
    found = []
    for exact in (0, 1):
        with Context(LLM_EXACT=exact):
            product = matrix(Tensor(x)).numpy()
        found.append(float((abs(product - x @ weight) / (abs(x) @ abs(weight))).max()))
    return found[0], found[1]


@pytest.mark.parametrize("name", NAMES)
def test_factors_of_many_rows_are_rounded_to_bfloat16(name: str) -> None:
    if not Device.default.target.has_matrix_units(dtypes.bfloat16):
        pytest.skip("this device has no matrix instructions of bfloat16")
    rounded, exact = errors(matrix_of(name), MIN_ROUNDED_ROWS)
    sums = LENGTH * 2.0**-24
    # both factors are rounded to 8 bits
    assert exact <= sums < rounded <= 2.0**-8 + 2.0**-16 + sums


@pytest.mark.parametrize("name", NAMES)
def test_one_row_is_multiplied_exactly(name: str) -> None:
    rounded, exact = errors(matrix_of(name), 1)
    assert rounded == exact <= LENGTH * 2.0**-24


def test_few_rows_are_multiplied_exactly() -> None:
    rounded, exact = errors(matrix_of("Q4_0"), MIN_ROUNDED_ROWS - 1)
    assert rounded == exact <= LENGTH * 2.0**-24


@only_cpu
@pytest.mark.parametrize(("name", "count"), [("Q4_0", 0), ("Q4_K", 2), ("Q6_K", 1)])
def test_scales_are_decoded_once_for_all_vectors_of_a_block(
    name: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Context(DEBUG=3):
        matrix_of(name)(Tensor.ones(1, 1, LENGTH).contiguous().realize()).realize()
    # that of Q4_0 is converted, which takes no longer than to store it
    assert (f"{count} values of blocks" in capsys.readouterr().out) == (count > 0)


@pytest.mark.parametrize("name", ["F16", "F32"])
def test_matrices_of_floats_are_multiplied_exactly(name: str) -> None:
    format = next(x for x in FORMATS.values() if x.name == name)
    weight = np.random.default_rng(0).standard_normal((48, LENGTH, 1))
    content = weight.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)
    rounded, exact = errors(Matrix(Tensor(content).realize(), format), MIN_ROUNDED_ROWS)
    assert rounded == exact <= LENGTH * 2.0**-24


@pytest.mark.parametrize("axis", [ROWS, COLUMNS])
def test_shards_of_cpus_are_read_in_the_mapped_file(axis: int, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", "llama")
    name = ("blk.0.attn_q.weight", "blk.0.attn_output.weight")[axis]
    whole = WeightFile(path, ModelLayout("CPU")).matrix(name)
    before = GlobalCounters.mem_used
    file = WeightFile(path, ModelLayout(("CPU:0", "CPU:1")))
    matrix = file.matrix(name, ShardedAxis(axis, 2))
    assert GlobalCounters.mem_used == before
    width = int(whole.values().shape[1])
    x = np.random.default_rng(0).standard_normal((1, 1, width)).astype(np.float32)
    layout = file.layout.sharded(2, 2) if axis == COLUMNS else file.layout.replicated
    with Context(SHARDING="strict"):
        product = matrix(Tensor(x).to(layout)).numpy()
    assert GlobalCounters.mem_used < before + whole.blocks.nbytes() // 2
    np.testing.assert_allclose(product, x @ whole.values().numpy().T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_product_counts_the_bytes_of_the_blocks(name: str) -> None:
    matrix, x = matrix_of(name), Tensor.ones(1, 1, LENGTH).contiguous().realize()
    GlobalCounters.reset()
    product = matrix(x).realize()
    counted = GlobalCounters.global_mem - x.nbytes() - product.nbytes()
    # fields that are read more than once are counted so
    assert 0.9 <= counted / matrix.blocks.nbytes() <= 1.1


@only_cpu
def test_a_matrix_of_a_device_of_another_process_has_no_content(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", "llama")
    with LocalDevices.of(("CPU:1",)):
        file = WeightFile(path, ModelLayout("CPU:2"))
        blocks = file.matrix("blk.0.attn_q.weight").blocks
        assert isinstance(blocks.uop.buffer, RemoteBuffer)
