"""Bytes of communication of single operations, and how a trace shows them.

With S the bytes of a tensor over four devices, each sends 3/4 S in an all-gather or a
reduce-scatter, 3/2 S in an all-reduce and 3/16 S in an all-to-all; a trace shows the sum over the
devices.
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
    array,
    integers,
    moved,
    on,
    placed,
)
from test.together import CommTrace
from tinygrad import Context, GlobalCounters, Tensor, dtypes
from tinygrad.device import Sharding


def gradients(out: Tensor, *targets: Tensor) -> list[Tensor]:
    """The gradients of a sum with different weights."""
    return (out * out).sum().gradient(*targets)


# ---- collectives ----


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
def test_a_gradient_is_reduced_once_for_all_its_uses(layout: Sharding, uses: Any) -> None:
    rows = on(0) if layout is REPLICATED else on((0, None), GRID)
    x, w = placed(array(64, 128), rows), placed(array(128, 128), layout)
    (gradient,) = gradients(x @ w.T, w)
    results = uses(gradient)
    # an all-reduce of 64 KiB over four devices, or of 32 over each pair
    nbytes = 4 * 96 * KIB if layout is REPLICATED else 4 * 32 * KIB
    assert moved(*results) == {"all_reduce": nbytes}
    expected = 2 * (array(64, 128) @ array(128, 128).T).T @ array(64, 128)
    for found, wanted in zip(results, uses(Tensor(expected)), strict=True):
        # squares are in the hundreds, where float32 has five digits after the point
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-3, atol=0.2)


def test_weights_are_all_gathered_in_their_narrow_dtype() -> None:
    """An int8 weight with a scale for each row, one of packed 4-bit numbers, one cast to half."""
    rows, n = 512, 64
    x, values = placed(integers(rows, n), on(0)), integers(n, n, seed=1)
    scales = np.float32(2) ** np.arange(n, dtype=np.float32).reshape(n, 1) % 7
    narrow, scale = placed(values.astype(np.int8), on(0)), placed(scales, on(0))
    pairs = (values.astype(np.int8) + 4).reshape(n, n // 2, 2)
    packed = placed((pairs[..., 0] + 16 * pairs[..., 1]).astype(np.uint8), on(0))
    unpacked = Tensor.stack(packed & 15, packed >> 4, dim=-1).flatten(1).float() - 4
    for weight, expected, nbytes in (
        (narrow.float() * scale, values * scales, n * n + n * 4),
        (unpacked, values, n * n // 2),
        (placed(values, on(0)).half().float(), values, 2 * n * n),
    ):
        product = x @ weight
        assert moved(product) == {"all_gather": 3 * nbytes}
        np.testing.assert_array_equal(product.numpy(), integers(rows, n) @ expected)
    # also where the inputs are smaller than the weight in float32, and larger than in int8
    few = placed(integers(n // 2, n), on(0))
    assert moved(few @ narrow.float()) == {"all_gather": 3 * n * n}


def test_partial_sums_that_are_wanted_in_two_layouts_are_reduced_once() -> None:
    x, nbytes = placed(integers(512, 256), on(0)), 256 * 256 * 4
    expected = integers(512, 256).T @ integers(512, 256)
    for layouts, kinds in (
        # the second is a slice of the first
        ((REPLICATED, on(0)), {"all_reduce": 4 * 3 * nbytes // 2}),
        # resharded from the reduce-scattered one
        ((on(0), on(1)), {"reduce_scatter": 3 * nbytes, "all_to_all": 3 * nbytes // 4}),
    ):
        total = x.T @ x
        results = [total.to(layout) * 2 for layout in layouts]
        assert moved(*results) == kinds
        for result in results:
            np.testing.assert_array_equal(result.numpy(), expected * 2)


@pytest.mark.parametrize(
    ("layout", "kind", "share"),
    [(REPLICATED, "all_reduce", 6), (on(0), "reduce_scatter", 3), (on(1), "reduce_scatter", 3)],
    ids=str,
)
@pytest.mark.parametrize("casts", [0, 1])
def test_gradients_in_bfloat16_are_sent_so_if_the_setting_says_it(
    casts: int, layout: Sharding, kind: str, share: int
) -> None:
    x = placed(array(64, 128), on(0)).cast("bfloat16").realize()
    w = placed(array(128, 64, seed=1), layout).cast("bfloat16").realize()
    y = placed(array(64, 64, seed=2), on(0)).cast("bfloat16").realize()
    with Context(ALLREDUCE_CAST=casts):
        (gradient,) = (x @ w * y).sum().gradient(w)
        assert moved(gradient) == {kind: share * 128 * 64 * (2 if casts else 4)}
    factors = [z.float().numpy().reshape(4, 16, -1) for z in (x, y)]
    partial = [a.T @ b for a, b in zip(*factors, strict=True)]
    # each partial sum and the result are rounded to 8 bits
    bound = 2.0**-8 * (sum(np.abs(p) for p in partial) + np.abs(sum(partial)))
    assert gradient.dtype is dtypes.bfloat16
    assert (np.abs(gradient.float().numpy() - sum(partial)) <= bound + 1e-6).all()


def test_a_sum_that_is_used_in_both_dtypes_is_sent_once_in_the_wide_one() -> None:
    x = placed(integers(64, 128), on(0))
    total = x.sum(0)
    with Context(ALLREDUCE_CAST=1):
        assert moved(total * 2, total.half() * 2) == {"all_reduce": 4 * 3 * 128 * 4}


def test_hybrid_sharded_gradients_are_scattered_before_they_are_all_reduced() -> None:
    x, w = placed(array(512, 1024), on(0)), placed(array(1024, 128), on((None, 0), GRID))
    (gradient,) = gradients(x @ w, w)
    kinds = moved(gradient)
    # within pairs, then each half between them: at once, each would send 3/2 of the array
    assert kinds["reduce_scatter"] == kinds["all_reduce"] == 4 * 256 * KIB
    expected = 2 * array(512, 1024).T @ (array(512, 1024) @ array(1024, 128))
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-3, atol=1e-4 * expected.max())


@pytest.mark.parametrize(
    ("axes", "kinds"),
    [
        # of 4 devices that each hold half of the columns of a partial sum of 1 MiB, pairs
        # reduce-scatter their half
        ((0, 1), {"reduce_scatter": 1}),
        # before all devices, or pairs, gather the rest; not 6 and 3 MiB of partial sums
        ((None, None), {"reduce_scatter": 1, "all_gather": 3}),
        ((0, None), {"reduce_scatter": 1, "all_gather": 1}),
        ((1, None), {"reduce_scatter": 1.5, "all_gather": 1}),
        ((None, 1), {"all_reduce": 2}),
    ],
)
def test_partial_sums_are_reduced_in_their_group_before_others_get_them(
    axes: tuple[int | None, ...], kinds: dict[str, float]
) -> None:
    x, y = (
        placed(integers(64, 512), on((0, None), GRID)),
        placed(integers(64, 512), on((0, 1), GRID)),
    )
    product = (x.T @ y).to(on(axes, GRID))
    assert moved(product) == {kind: size * KIB * KIB for kind, size in kinds.items()}
    np.testing.assert_array_equal(product.numpy(), integers(64, 512).T @ integers(64, 512))


def test_the_gradient_of_a_table_on_a_mesh_is_scattered_shard_by_shard() -> None:
    table = placed(array(4096, 16), on((None, 0), GRID))
    index = placed(np.arange(32, dtype=np.int32) * 100, on((0, None), GRID))
    (gradient,) = gradients(table[index], table)
    GlobalCounters.reset()
    kept = GlobalCounters.mem_used_per_device["CPU"]
    # the looked up rows are reduced by pairs, then their gradients are gathered by pairs
    rows, numbers = 32 * 16 * 4, 32 * 4
    assert moved(gradient) == {"all_reduce": 2 * rows, "all_gather": 2 * (rows + numbers)}
    assert GlobalCounters.mem_peak_per_device["CPU"] - kept <= 2.1 * 128 * KIB
    expected = np.zeros((4096, 16), np.float32)
    expected[index.numpy()] = 2 * array(4096, 16)[index.numpy()]
    np.testing.assert_allclose(gradient.numpy(), expected)


def test_a_forward_scatter_is_a_backward_gather() -> None:
    x, w1, w2 = (
        placed(array(64, 128), on(0)),
        placed(array(128, 32), on(1)),
        placed(array(32, 128), on(0)),
    )
    out = (x.to(REPLICATED) @ w1 @ w2).to(on(0))
    # the gradient of the result, though the second weight is smaller, as its own gradient needs it
    found = gradients(out, x, w1, w2)
    each_way = 4 * 24 * KIB
    assert moved(out, *found) == {"all_gather": 2 * each_way, "reduce_scatter": 2 * each_way}
    hidden = array(64, 128) @ array(128, 32)
    expected = 2 * hidden.T @ hidden @ array(32, 128)
    np.testing.assert_allclose(found[2].numpy(), expected, rtol=1e-3, atol=1e-4 * expected.max())


def test_expert_weights_stay_even_if_smaller_than_their_inputs() -> None:
    # (group, expert, slot, dim) of 16, and (expert, dim, hidden) of 8, which all groups need
    x, w = placed(array(4, 4, 16, 16), on(0)), placed(array(4, 16, 32), on(0))
    out = Tensor.einsum("gesd,edh->gesh", x, w)
    assert out.device is on(1)
    assert moved(out) == {"all_to_all": 12 * KIB}
    expected = np.einsum("gesd,edh->gesh", array(4, 4, 16, 16), array(4, 16, 32))
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_the_gradient_of_an_all_to_all_is_an_all_to_all() -> None:
    # the factors, which are bools, would take less, but then the products would have to move
    x, y = placed(array(64, 128), on(0)), placed(array(64, 128, seed=2), on(1))
    factors = placed(array(64, 128, seed=1) > 0, on(0))
    (gradient,) = ((x * factors).to(on(1)) * y).sum().gradient(x)
    assert gradient.device is on(0)
    assert moved(gradient) == {"all_to_all": 4 * 6 * KIB}
    np.testing.assert_array_equal(gradient.numpy(), factors.numpy() * y.numpy())


@pytest.mark.slow
def test_a_manual_pipeline_has_one_transfer_per_stage_and_microbatch() -> None:
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


# ---- traces ----


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


def test_equal_programs_on_two_lines_have_separate_records() -> None:
    x = placed(array(8, 12), on(0))
    first = (x * 2).sum(0)
    with CommTrace() as trace:
        first.realize()
        # planned once, run twice; here the value was lazy when it was resharded
        y = x * 2
        moved_y = y.to(on(1)) + 1
        y.realize()
        moved_y.realize()
        (x * 2).sum(0).realize()
    lines = [int(r.line.rpartition(":")[2]) for r in trace.records]
    assert [r.kind for r in trace.records] == ["all_reduce", "all_to_all", "all_reduce"]
    assert lines == sorted(lines)
    assert len(set(lines)) == 3
