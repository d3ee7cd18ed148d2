"""Tensor parallelism: weights, sequences, heads and vocabularies are sharded.

Bytes are in KiB that each of four devices sends, in float32: `x` (64, 128) is 32, `w1` (128, 512)
and `w2` (512, 128) are 256. An all-gather or a reduce-scatter of S sends 3/4 S, an all-reduce 3/2 S
and an all-to-all 3/16 S; small values are sent to the three others directly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.sharding.common import (
    GRID,
    REPLICATED,
    Program,
    array,
    moved,
    on,
    placed,
    resharded,
    sent,
    traffic,
)
from tinygrad import Tensor, nn
from tinygrad.uop import Ops

X, W1, W2 = (64, 128), (128, 512), (512, 128)
ROWS, COLUMNS = on(0), on(1)
ROW = 64 * 4 / 1024
"""KiB of one number for each of 64 rows."""


def test_column_parallel_reduces_the_gradient_of_its_input() -> None:
    forward, training, out = traffic(Tensor.matmul, [array(*X), array(*W1)], [REPLICATED, COLUMNS])
    assert out.device is COLUMNS
    assert forward == {}
    assert training == {"all_reduce": 48}


def test_row_parallel_reduces_before_the_activation() -> None:
    arrays, layouts = [array(64, 512), array(*W2)], [COLUMNS, ROWS]
    forward, training, out = traffic(lambda h, w: (h @ w).relu(), arrays, layouts)
    assert out.device is REPLICATED
    assert forward == training == {"all_reduce": 48}


def megatron(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    return (x @ w1).gelu() @ w2


WEIGHTS = [array(*W1, seed=1) * 0.1, array(*W2, seed=2) * 0.1]


def test_a_megatron_block_is_one_all_reduce_each_way() -> None:
    forward, training, _ = traffic(megatron, [array(*X), *WEIGHTS], [REPLICATED, COLUMNS, ROWS])
    assert forward == {"all_reduce": 48}
    assert training == {"all_reduce": 2 * 48}
    # one collective, not several smaller ones
    x, w1, w2 = (placed(a, b) for a, b in zip([array(*X), *WEIGHTS], [REPLICATED, COLUMNS, ROWS]))
    nodes = megatron(x, w1, w2).uop.toposort()
    assert [node.op for node in nodes].count(Ops.ALLREDUCE) == 1


def test_a_megatron_block_with_biases_moves_no_more() -> None:
    def block(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        return x.linear(w1, b1).gelu().linear(w2, b2)

    arrays = [array(*X), WEIGHTS[0], array(512), WEIGHTS[1], array(128)]
    layouts = [REPLICATED, COLUMNS, on(0), ROWS, REPLICATED]
    forward, training, _ = traffic(block, arrays, layouts)
    assert forward == {"all_reduce": 48}
    assert training == {"all_reduce": 2 * 48}


# ---- partial sums count once ----


def test_bias_and_scalar_count_once() -> None:
    def biased(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return (h @ w + b) + 1

    arrays = [array(64, 512), array(*W2), array(128)]
    forward, training, _ = traffic(biased, arrays, [COLUMNS, ROWS, REPLICATED])
    assert forward == training == {"all_reduce": 48}


REDUCTIONS: dict[str, tuple[Program, int]] = {
    "sum plus one": (lambda x: x.sum(0) + 1, 1),
    "one minus twice the sum": (lambda x: 1 - 2 * x.sum(0), 1),
    "max of negatives": (lambda x: (-x.abs() - 1).max(0), 1),
    "min of positives": (lambda x: (x.abs() + 1).min(0), 1),
    "prod": (lambda x: (x * 0.01 + 1).prod(0), 1),
    "mean": (lambda x: x.mean(0), 1),
    "any": (lambda x: (x > 2).any(0), 1),
    "two of one kind": (lambda x: x.sum(0) + (x * x).sum(0), 1),
    "two kinds": (lambda x: x.max(0) + x.sum(0), 2),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_the_sharded_axis_is_an_all_reduce(name: str) -> None:
    program, count = REDUCTIONS[name]
    out = program(placed(array(64, 8192), ROWS))
    itemsize = 4 if out.is_floating_point() else 1
    assert sent(moved(out)) == {"all_reduce": count * 1.5 * 8192 * itemsize / 1024}
    expected = program(Tensor(array(64, 8192))).numpy()
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)
    if out.is_floating_point():
        traffic(program, [array(64, 8)], [ROWS])


# ---- sequences and meshes ----


@pytest.mark.slow
def test_sequence_parallel_has_no_all_reduce_forward() -> None:
    def block(x: Tensor, scale: Tensor, shift: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        inner = resharded(x.layernorm() * scale + shift, REPLICATED)
        return resharded(megatron(inner, w1, w2), ROWS) + x

    arrays = [array(*X), array(128, seed=3), array(128, seed=4), *WEIGHTS]
    layouts = [ROWS, REPLICATED, REPLICATED, COLUMNS, ROWS]
    forward, training, out = traffic(block, arrays, layouts)
    assert out.device is ROWS
    assert forward == {"all_gather": 24, "reduce_scatter": 24}
    # the same backward; and the gradients of scale and shift, 128 numbers each
    small = training.pop("all_reduce")
    assert small == 2 * 3 * 128 * 4 / 1024
    assert training == {"all_gather": 48, "reduce_scatter": 48}


def test_sequence_parallel_follows_from_the_layouts_alone() -> None:
    def block(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        return x + megatron(x.layernorm(), w1, w2)

    forward, _, out = traffic(block, [array(*X), *WEIGHTS], [ROWS, COLUMNS, ROWS])
    assert out.device is ROWS
    assert forward == {"all_gather": 24, "reduce_scatter": 24}


MESH = [on((0, None), GRID), on((None, 1), GRID), on((None, 0), GRID)]


@pytest.mark.slow
def test_only_the_group_of_a_mesh_communicates() -> None:
    forward, training, out = traffic(megatron, [array(*X), *WEIGHTS], MESH)
    assert out.device is MESH[0]
    # two devices of a group reduce 16 KiB of rows, forward and backward
    assert forward == {"all_reduce": 16}
    # and two of the other groups 128 KiB of each weight
    assert training == {"all_reduce": 2 * 16 + 2 * 128}
    x, w1, w2 = (placed(a, b) for a, b in zip([array(*X), *WEIGHTS], MESH))
    assert sent(moved(*megatron(x, w1, w2).sum().gradient(w1))) == {"all_reduce": 128}


# ---- vocabularies ----


def embedded(index: Tensor, table: Tensor) -> Tensor:
    layer = nn.Embedding(1004, 128)
    layer.weight = table
    return layer(index)


@pytest.mark.parametrize("program", [embedded, lambda index, table: table[index]])
def test_a_vocabulary_parallel_embedding_gathers_no_table(program: Program) -> None:
    index = np.random.default_rng(0).integers(0, 1004, 64).astype(np.int32)
    arrays, layouts = [index, array(1004, 128)], [REPLICATED, ROWS]
    forward, training, out = traffic(program, arrays, layouts)
    assert out.device is REPLICATED
    # the looked-up rows, (64, 128); the gradient stays on the devices of the rows
    assert forward == training == {"all_reduce": 48}


LABELS = np.random.default_rng(0).integers(0, 1004, 64).astype(np.int32)


@pytest.mark.parametrize("vocabulary", [1024, 1004])
def test_vocabulary_parallel_cross_entropy_gathers_no_logits(vocabulary: int) -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return logits.sparse_categorical_crossentropy(labels)

    arrays, layouts = [array(64, vocabulary), LABELS], [COLUMNS, REPLICATED]
    forward, training, _ = traffic(loss, arrays, layouts)
    # the maximum, the sum and the target of each row
    assert forward == {"all_reduce": 3 * 3 * ROW}
    assert set(training) == {"all_reduce"}
    # and backward, the sum of each row of the gradient
    assert training["all_reduce"] <= 4 * 3 * ROW


def test_cross_entropy_of_sharded_probabilities_gathers_no_logits() -> None:
    target = np.eye(1024, dtype=np.float32)[LABELS]
    arrays, layouts = [array(64, 1024), target], [COLUMNS, COLUMNS]
    forward, training, _ = traffic(Tensor.cross_entropy, arrays, layouts)
    assert forward == {"all_reduce": 3 * 3 * ROW}
    assert training["all_reduce"] <= 4 * 3 * ROW


def test_a_table_tied_to_the_output_layer_is_not_moved() -> None:
    def model(index: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        scores = table[index].layernorm() @ table.T
        return scores.sparse_categorical_crossentropy(labels)

    index = np.random.default_rng(1).integers(0, 1004, 64).astype(np.int32)
    arrays, layouts = [index, array(1004, 128), LABELS], [REPLICATED, ROWS, REPLICATED]
    forward, training, _ = traffic(model, arrays, layouts)
    # the looked-up rows, and the loss as above; backward, the gradient of those rows
    assert forward == {"all_reduce": 48 + 3 * 3 * ROW}
    assert set(training) == {"all_reduce"}
    assert training["all_reduce"] <= 2 * 48 + 4 * 3 * ROW


def test_a_table_used_twice_on_a_mesh_is_reduced_once() -> None:
    def model(index: Tensor, table: Tensor) -> Tensor:
        return table[index] @ table.T

    rows, vocabulary = on((0, None), GRID), on((None, 0), GRID)
    index = np.random.default_rng(1).integers(0, 1004, 64).astype(np.int32)
    _, training, _ = traffic(model, [index, array(1004, 128)], [rows, vocabulary])
    # lookups of half of the batch, (32, 128), forward and backward; two devices reduce (502, 128)
    assert training == {"all_reduce": 2 * 16 + 251}


# ---- attention ----


def attention(heads: int) -> Program:
    def attend(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
        batch, length, dim = x.shape
        shape = (batch, length, heads, dim // heads)
        q, k, v = ((x @ w).reshape(shape).transpose(1, 2) for w in (wq, wk, wv))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, length, dim) @ wo

    return attend


def attention_arrays(dim: int) -> list[Any]:
    return [array(4, 16, dim), *(array(dim, dim, seed=i) * 0.3 for i in range(1, 5))]


SHARDED_HEADS = [REPLICATED, COLUMNS, COLUMNS, COLUMNS, ROWS]


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("heads", [4, 8])
def test_head_parallel_attention_is_one_all_reduce(heads: int) -> None:
    forward, training, _ = traffic(attention(heads), attention_arrays(heads * 8), SHARDED_HEADS)
    out = 1.5 * 4 * 16 * heads * 8 * 4 / 1024
    assert forward == {"all_reduce": out}
    # backward, the all-reduce of the gradient of x
    assert training == {"all_reduce": 2 * out}
    assert sent(moved(placed(array(2, 5, 32), on(2)).reshape(2, 5, 8, 4).transpose(1, 2) * 2)) == {}


@pytest.mark.slow
def test_six_heads_on_four_devices_are_resharded_by_all_to_alls() -> None:
    forward, _, _ = traffic(attention(6), attention_arrays(48), SHARDED_HEADS)
    # 12 columns are one and a half heads: q, k and v are resharded by all-to-alls
    assert forward["all_to_all"] == 3 * 3 / 16 * 12
    assert sum(forward.values()) <= 3 * 3 / 16 * 12 + 3 / 16 * 12 + 1.5 * 12


@pytest.mark.slow
def test_ulysses_is_an_all_to_all_for_each_of_q_k_v_and_o() -> None:
    by_sequence, by_head = on(1), on(2)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = [resharded(x, by_head).transpose(1, 2) for x in (q, k, v)]
        out = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True)
        return resharded(out.transpose(1, 2), by_sequence)

    arrays = [array(1, 64, 4, 32, seed=i) for i in range(3)]
    forward, training, out = traffic(attend, arrays, [by_sequence] * 3)
    assert out.device is by_sequence
    assert forward == {"all_to_all": 4 * 6}
    assert training == {"all_to_all": 8 * 6}
