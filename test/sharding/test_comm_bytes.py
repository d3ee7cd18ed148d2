"""The bytes that cross devices, by kind, in the programs that parallel training is made of.

In KiB, of float32: `x` (64, 128) is 32, `w1` (128, 512) and `w2` (512, 128) are 256. With S the
bytes of a tensor over four devices, each sends 3/4 S in an all-gather or a reduce-scatter, 3/2 S in
an all-reduce and 3/16 S in an all-to-all; a trace shows the sum over the devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.sharding.common import (
    DEVICES,
    GRID,
    KIB,
    REPLICATED,
    TWO,
    Array,
    array,
    moved,
    on,
    placed,
)
from tinygrad import Tensor
from tinygrad.device import Sharding
from tinygrad.engine import CommTrace
from tinygrad.settings import Context
from tinygrad.sharding import ShardingError, transfer_bytes

X, W1, W2 = (64, 128), (128, 512), (512, 128)


def gradients(out: Tensor, *targets: Tensor) -> list[Tensor]:
    """The gradients of a sum whose terms differ."""
    return (out * out).sum().gradient(*targets)


def assert_close(found: Tensor, expected: Array) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-3)


# ---- data parallel ----


def test_data_parallel() -> None:
    x, w = placed(array(*X), on(0)), placed(array(*W1), REPLICATED)
    out = x @ w
    assert moved(out) == {}
    (gradient,) = (x @ w).sum().gradient(w)
    assert gradient.device is REPLICATED
    assert moved(gradient) == {"all_reduce": 4 * 384 * KIB}
    assert_close(gradient, array(*X).T @ np.ones((64, 512), np.float32))


def test_gradients_that_are_accumulated_are_reduced_once() -> None:
    w = placed(array(*W1), REPLICATED)
    batches = [placed(array(*X, seed=i), on(0)) for i in range(4)]
    loss = sum(((x @ w).sum() for x in batches), start=Tensor(0.0))
    (gradient,) = loss.gradient(w)
    assert moved(gradient) == {"all_reduce": 4 * 384 * KIB}


def test_a_weight_used_twice_is_reduced_once() -> None:
    x, w = placed(array(64, 128), on(0)), placed(array(128, 128), REPLICATED)
    (gradient,) = gradients((x @ w).relu() @ w, w)
    assert moved(gradient) == {"all_reduce": 4 * 96 * KIB}


@pytest.mark.parametrize("layout", [REPLICATED, on((None, 0), GRID)], ids=str)
@pytest.mark.parametrize(
    "uses",
    [
        lambda g: [g, g * g],
        lambda g: [g.T * 2, g.reshape(-1) + 1, g],
        lambda g: [g.reshape(64, 2, 128).permute(1, 0, 2) * 3, g.T],
    ],
    ids=["itself", "views", "views of views"],
)
def test_a_gradient_is_reduced_once_for_all_that_use_it(layout: Sharding, uses: Any) -> None:
    rows = on(0) if layout is REPLICATED else on((0, None), GRID)
    x, w = placed(array(64, 128), rows), placed(array(128, 128), layout)
    (gradient,) = gradients(x @ w.T, w)
    results = uses(gradient)
    # of 64 KiB in four devices, or 32 in each pair of them
    nbytes = 4 * 96 * KIB if layout is REPLICATED else 4 * 32 * KIB
    assert moved(*results) == {"all_reduce": nbytes}
    expected = 2 * (array(64, 128) @ array(128, 128).T).T @ array(64, 128)
    for found, wanted in zip(results, uses(Tensor(expected)), strict=True):
        # the squares are of some hundreds, of which float32 has five digits
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-3, atol=0.2)


def test_zero_scatters_gradients_and_gathers_weights() -> None:
    # the weight that is trained is split, the one that is used is its full copy
    x, master = placed(array(*X), on(0)), placed(array(*W1), on(0))
    w = master.to(REPLICATED)
    out = x @ w
    assert moved(out) == {"all_gather": 4 * 192 * KIB}
    (gradient,) = (x @ w).sum().gradient(master)
    assert gradient.device is on(0)
    assert moved(gradient) == {"reduce_scatter": 4 * 192 * KIB}
    assert_close(gradient, array(*X).T @ np.ones((64, 512), np.float32))


# ---- tensor parallel ----


def test_column_parallel() -> None:
    x, w = placed(array(*X), REPLICATED), placed(array(*W1), on(1))
    out = x @ w
    assert out.device is on(1)
    assert moved(out) == {}
    assert moved(*(x @ w).sum().gradient(x)) == {"all_reduce": 4 * 48 * KIB}
    assert moved(*(x @ w).sum().gradient(w)) == {}


def test_row_parallel_reduces_before_the_activation() -> None:
    hidden, w = placed(array(64, 512), on(1)), placed(array(*W2), on(0))
    out = (hidden @ w).relu()
    assert moved(out) == {"all_reduce": 4 * 48 * KIB}
    assert_close(out, np.maximum(array(64, 512) @ array(*W2), 0))


def test_a_megatron_block_is_one_all_reduce_each_way() -> None:
    x = placed(array(*X), REPLICATED)
    w1, w2 = placed(array(*W1) * 0.1, on(1)), placed(array(*W2) * 0.1, on(0))
    out = (x @ w1).gelu() @ w2
    assert moved(out) == {"all_reduce": 4 * 48 * KIB}
    out = ((x @ w1).gelu() @ w2).sum()
    assert moved(*out.gradient(x, w1, w2)) == {"all_reduce": 4 * 48 * KIB}


def test_a_bias_after_row_parallel_counts_once() -> None:
    hidden, w = placed(array(64, 512), on(1)), placed(array(*W2), on(0))
    bias = placed(array(128), REPLICATED)
    out = hidden @ w + bias + 1
    assert moved(out) == {"all_reduce": 4 * 48 * KIB}
    assert_close(out, array(64, 512) @ array(*W2) + array(128) + 1)


def test_a_maximum_over_the_split_axis_is_an_all_reduce() -> None:
    value = -np.abs(array(64, 128))
    out = placed(value, on(0)).max(0)
    assert set(moved(out)) == {"all_reduce"}
    np.testing.assert_array_equal(out.numpy(), value.max(0))


def test_sequence_parallel() -> None:
    x = placed(array(*X), on(0))
    w1, w2 = placed(array(*W1) * 0.1, on(1)), placed(array(*W2) * 0.1, on(0))
    inner = x.layernorm().to(REPLICATED)
    out = ((inner @ w1).gelu() @ w2).to(on(0)) + x
    assert out.device is on(0)
    assert moved(out) == {"all_gather": 4 * 24 * KIB, "reduce_scatter": 4 * 24 * KIB}


def test_what_is_scattered_forward_is_gathered_on_the_way_back() -> None:
    x, w1, w2 = (
        placed(array(*X), on(0)),
        placed(array(128, 32), on(1)),
        placed(array(32, 128), on(0)),
    )
    out = (x.to(REPLICATED) @ w1 @ w2).to(on(0))
    # the gradient of the result, though the second weight is smaller, as its own gradient needs it
    found = gradients(out, x, w1, w2)
    each_way = 4 * 24 * KIB
    assert moved(out, *found) == {"all_gather": 2 * each_way, "reduce_scatter": 2 * each_way}
    hidden = array(*X) @ array(128, 32)
    expected = 2 * hidden.T @ hidden @ array(32, 128)
    np.testing.assert_allclose(found[2].numpy(), expected, rtol=1e-3, atol=1e-4 * expected.max())


# ---- a mesh ----


def test_only_the_group_of_a_mesh_talks() -> None:
    x = placed(array(*X), on((0, None), GRID))
    w1 = placed(array(*W1) * 0.1, on((None, 1), GRID))
    w2 = placed(array(*W2) * 0.1, on((None, 0), GRID))
    hidden = x @ w1
    assert hidden.device is on((0, 1), GRID)
    assert moved(hidden @ w2) == {"all_reduce": 4 * 16 * KIB}
    out = (x @ w1) @ w2
    assert moved(*out.sum().gradient(w1)) == {"all_reduce": 4 * 128 * KIB}


def test_data_and_tensor_parallel_have_the_gradients_of_one_device() -> None:
    def run(*layouts: Any) -> list[Array]:
        arrays = (array(*X), array(*W1) * 0.1, array(*W2) * 0.1)
        x, w1, w2 = (placed(a, layout) for a, layout in zip(arrays, layouts, strict=True))
        return [t.numpy() for t in gradients((x @ w1).gelu() @ w2, x, w1, w2)]

    found = run(on((0, None), GRID), on((None, 1), GRID), on((None, 0), GRID))
    for one, other in zip(found, run(None, None, None), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


# ---- changes of layout ----


def test_another_split_axis_is_an_all_to_all() -> None:
    x = placed(array(*X), on(0))
    assert moved(x.to(on(1))) == {"all_to_all": 4 * 6 * KIB}


LAYOUTS = [on(0), on(1), REPLICATED, on((0, 1), GRID), on((1, 0), GRID), on((None, 0), GRID)]


@pytest.mark.parametrize("target", [*LAYOUTS, "CPU:1"], ids=str)
@pytest.mark.parametrize("source", [*LAYOUTS, "CPU:2"], ids=str)
def test_every_change_of_layout_moves_the_fewest_bytes(source: Any, target: Any) -> None:
    value = array(16, 24)
    there = placed(value, source).to(target)
    assert sum(moved(there).values()) == transfer_bytes(source, target, value.shape, 4)
    np.testing.assert_array_equal(there.numpy(), value)


def test_across_meshes_blocks_go_straight_to_their_place() -> None:
    x = placed(array(*X), Sharding(TWO, 0))
    assert moved(x.to(Sharding(DEVICES[2:], 1))) == {"send": 32 * KIB}
    x = placed(array(*X), Sharding(TWO, 1))
    assert moved(x.to(Sharding(DEVICES[2:], 1))) == {"send": 32 * KIB}


def test_experts_are_reached_by_two_all_to_alls() -> None:
    # (group, expert, capacity, dim): 128 KiB
    x, w = placed(array(4, 4, 16, 128), on(0)), placed(array(4, 128, 128) * 0.1, on(0))
    there = x.to(on(1)).transpose(0, 1).reshape(4, 64, 128)
    assert there.device is on(0)
    out = (there @ w).reshape(4, 4, 16, 128).transpose(0, 1).to(on(0))
    assert moved(out) == {"all_to_all": 2 * 4 * 24 * KIB}
    assert_close(out, np.einsum("gecd,edf->gecf", array(4, 4, 16, 128), array(4, 128, 128) * 0.1))


def test_ulysses_attention() -> None:
    shape = (1, 16, 4, 8)
    by_sequence, by_head = on(1), on(2)
    q, k, v = (placed(array(*shape, seed=i), by_sequence) for i in range(3))
    heads = [x.to(by_head).transpose(1, 2) for x in (q, k, v)]
    out = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True)
    out = out.transpose(1, 2).to(by_sequence)
    assert moved(out) == {"all_to_all": 4 * 4 * q.nbytes() * 3 // 16}


# ---- reshapes ----


def test_a_reshape_that_keeps_blocks_whole_moves_nothing() -> None:
    rows = placed(array(8, 6), on(0))
    assert rows.reshape(48).device is on(0)
    assert moved(rows.reshape(48) + 0.5) == {}
    line = placed(array(8), on(0)).reshape(2, 4)
    assert line.device is on((0, 1), GRID)
    assert moved(line + 0.5) == {}


def test_a_reshape_that_interleaves_blocks_is_resharded() -> None:
    value = array(8, 6)
    columns = placed(value, on(1, devices=TWO))
    out = columns.reshape(48) + 0.5
    assert moved(out)
    np.testing.assert_array_equal(out.numpy(), value.reshape(48) + 0.5)


def test_heads_are_split_off_without_a_byte() -> None:
    x = placed(array(2, 5, 32), on(2))
    assert moved(x.reshape(2, 5, 8, 4).transpose(1, 2) * 2) == {}


# ---- pipelines ----


def test_a_pipeline_has_one_transfer_a_stage_and_microbatch() -> None:
    stages, microbatches = 4, 8
    weights = [placed(array(128, 128, seed=i) * 0.1, DEVICES[i]) for i in range(stages)]
    batches = [placed(array(8, 128, seed=i), DEVICES[0]) for i in range(microbatches)]

    def forward(x: Tensor) -> Tensor:
        for device, w in zip(DEVICES, weights, strict=True):
            x = (x.to(device) @ w).tanh()
        return x.sum()

    with CommTrace() as trace:
        Tensor.realize(*(forward(x) for x in batches))
    assert [(r.kind, r.nbytes) for r in trace.records] == [("copy", 4 * KIB)] * 24
    with CommTrace() as trace:
        loss = sum((forward(x) for x in batches), start=Tensor(0.0))
        found = loss.gradient(*weights)
        Tensor.realize(*found)
    assert [r.nbytes for r in trace.records].count(4 * KIB) == 48

    whole = Tensor(np.concatenate([array(8, 128, seed=i) for i in range(microbatches)]))
    plain = [placed(array(128, 128, seed=i) * 0.1, None) for i in range(stages)]
    out = whole
    for w in plain:
        out = (out @ w).tanh()
    for one, other in zip(found, out.sum().gradient(*plain), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-3)


# ---- what a user sees ----


def test_a_trace_names_layouts_and_the_line_that_caused_a_transfer() -> None:
    x, y = placed(array(8, 12), on(0)), placed(array(8, 12), on(1))
    out = x + y
    with CommTrace() as trace:
        out.realize()
    (record,) = trace.records
    assert record.kind == "all_to_all"
    assert "axis=1" in record.source
    assert "axis=0" in record.destination
    assert "test_comm_bytes.py" in record.line
    assert trace.nbytes == record.nbytes == 4 * 3 * 2 * 3 * 4


def test_equal_programs_on_two_lines_are_told_apart() -> None:
    x = placed(array(8, 12), on(0))
    first = (x * 2).sum(0)
    with CommTrace() as trace:
        first.realize()
        # planned once, run twice, and this time of a value that was lazy when it was moved
        y = x * 2
        moved_y = y.to(on(1)) + 1
        y.realize()
        moved_y.realize()
        (x * 2).sum(0).realize()
    lines = [int(r.line.rpartition(":")[2]) for r in trace.records]
    assert [r.kind for r in trace.records] == ["all_reduce", "all_to_all", "all_reduce"]
    assert lines == sorted(lines)
    assert len(set(lines)) == 3


def test_strict_sharding_refuses_transfers_that_nobody_asked_for() -> None:
    x, y = placed(array(8, 12), on(0)), placed(array(8, 12), on(1))
    with Context(SHARDING="strict"):
        with pytest.raises(ShardingError, match=r"axis=1.*axis=0.*\.to\("):
            x + y
        np.testing.assert_array_equal((x + y.to(on(0))).numpy(), array(8, 12) * 2)
        assert (x + placed(array(8, 12), REPLICATED)).device is on(0)
