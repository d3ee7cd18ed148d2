"""Lowering of sharded graphs: values, evaluated in numpy, equal the tensor graph's; and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from test.devices import DEVICE, device_names, nth
from test.evaluator.plan import plan_of, run_plan
from test.evaluator.tensor_graph import evaluate
from tinygrad.dtype import dtypes
from tinygrad.schedule.execution_plan import ExecutionPlan, KernelItem
from tinygrad.settings import Context
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

DEVICES = device_names(4)
Arrays = dict[UOp, np.ndarray[Any, Any]]


def on(axis: Any, mesh: tuple[int, ...] = ()) -> Sharding:
    return Sharding(DEVICES, axis, mesh)


REPLICATED = on(None)
GRID = (2, 2)


def buffer(arrays: Arrays, shape: tuple[int, ...], device: Any, seed: int = 0) -> UOp:
    """A stored array of small integers; their sums are exact in float32."""
    node = UOp.new_buffer(device, shape, dtypes.float)
    values = np.random.default_rng(seed + len(arrays)).integers(-4, 5, shape)
    arrays[node] = values.astype(np.float32)
    return node


def matmul(a: UOp, b: UOp) -> UOp:
    (n, k), m = a.shape, b.shape[1]
    left = a.reshape((n, 1, k)).expand((n, m, k))
    right = b.permute((1, 0)).reshape((1, m, k)).expand((n, m, k))
    return (left * right).r(Ops.ADD, (2,)).reshape((n, m))


def sent(plan: ExecutionPlan) -> dict[str, int]:
    """Bytes sent between devices, by kind of communication."""
    totals: dict[str, int] = {}
    for item in plan.items:
        if isinstance(item, KernelItem):
            continue
        for t in item.messages:
            here = plan.entries[t.source.entry].devices[t.source.device]
            there = plan.entries[t.destination.entry].devices[t.destination.device]
            if here != there:
                nbytes = t.source.size * t.source.dtype.itemsize
                kind = item.info.kind
                totals[kind] = totals.get(kind, 0) + nbytes
    return totals


def check(node: UOp, arrays: Arrays) -> dict[str, int]:
    """Checks the value; returns the bytes sent between devices."""
    if node.op is Ops.BUFFER:
        return {}
    (got,) = run_plan(node.contiguous(), inputs=arrays)
    np.testing.assert_array_equal(got, evaluate(node, arrays))
    return sent(plan_of(node.contiguous())[0])


KIB = 1024


def test_data_parallel_matmul_moves_nothing() -> None:
    arrays: Arrays = {}
    x, w = buffer(arrays, (64, 128), on(0)), buffer(arrays, (128, 512), REPLICATED)
    out = matmul(x, w)
    assert out.device is on(0)
    assert check(out, arrays) == {}


def test_data_parallel_weight_gradient_is_one_all_reduce() -> None:
    arrays: Arrays = {}
    x, g = buffer(arrays, (64, 128), on(0)), buffer(arrays, (64, 512), on(0))
    assert check(matmul(x.permute((1, 0)), g), arrays) == {"all_reduce": 4 * 384 * KIB}


def test_column_then_row_parallel_is_one_all_reduce() -> None:
    arrays: Arrays = {}
    x, w1 = buffer(arrays, (64, 128), REPLICATED), buffer(arrays, (128, 512), on(1))
    hidden = matmul(x, w1)
    assert hidden.device is on(1)
    out = matmul(hidden, buffer(arrays, (512, 128), on(0))).maximum(0)
    assert check(out, arrays) == {"all_reduce": 4 * 48 * KIB}


def test_another_sharded_axis_is_an_all_to_all() -> None:
    arrays: Arrays = {}
    x = buffer(arrays, (64, 128), on(0))
    assert check(x.copy_to_device(on(1)), arrays) == {"all_to_all": 4 * 6 * KIB}


def test_gradient_of_a_sharded_parameter_is_a_reduce_scatter() -> None:
    arrays: Arrays = {}
    x, g = buffer(arrays, (64, 128), on(0)), buffer(arrays, (64, 512), on(0))
    gradient = matmul(x.permute((1, 0)), g).copy_to_device(on(0))
    assert check(gradient, arrays) == {"reduce_scatter": 4 * 192 * KIB}


def test_sums_of_partial_values_share_one_all_reduce() -> None:
    arrays: Arrays = {}
    parts = [buffer(arrays, (64, 128), on(0)) for _ in range(4)]
    total = parts[0].r(Ops.ADD, (0,))
    for x in parts[1:]:
        total = total + x.r(Ops.ADD, (0,))
    # 8 x 512 bytes are too few for two rounds: each device sends its partial sum to 3 others
    assert check(total, arrays) == {"all_reduce": 4 * 3 * 512}


@pytest.mark.parametrize("setting", [{"RING": 1}, {"ALL2ALL": 1}, {"ALL2ALL": 0, "RING": 1}])
def test_every_all_reduce_sends_the_minimum_bytes(setting: dict[str, int]) -> None:
    arrays: Arrays = {}
    x = buffer(arrays, (4, 8192), on(0))
    with Context(**setting):
        assert check(x.r(Ops.ADD, (0,)), arrays) == {"all_reduce": 4 * 48 * KIB}


def test_only_the_group_of_a_mesh_communicates() -> None:
    arrays: Arrays = {}
    x = buffer(arrays, (64, 128), on((0, None), GRID))
    w1 = buffer(arrays, (128, 512), on((None, 1), GRID))
    w2 = buffer(arrays, (512, 128), on((None, 0), GRID))
    # x is sharded along the first mesh dimension alone, and replicated along the second
    out = matmul(matmul(x, w1), w2)
    assert check(out, arrays) == {"all_reduce": 4 * 16 * KIB}


def test_scatter_sends_each_device_its_slice() -> None:
    arrays: Arrays = {}
    x = buffer(arrays, (64, 128), DEVICE)
    assert check(x.shard(DEVICES, 0), arrays) == {"scatter": 24 * KIB}


def test_vocabulary_parallel_embedding_gathers_no_table() -> None:
    arrays: Arrays = {}
    table = buffer(arrays, (1004, 16), on(0))
    index = UOp.new_buffer(REPLICATED, (10,), dtypes.int)
    arrays[index] = np.arange(0, 1000, 100, dtype=np.int32)
    assert set(check(table.gather(index), arrays)) == {"all_reduce"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", [on(0), on(1), REPLICATED, on((0, 1), GRID), DEVICE, nth(2)])
@pytest.mark.parametrize("target", [on(0), on(1), REPLICATED, on((1, 0), GRID), DEVICE, nth(1)])
def test_any_layout_is_resharded_to_any_other(source: Any, target: Any) -> None:
    arrays: Arrays = {}
    x = buffer(arrays, (8, 12), source)
    check(x.copy_to_device(target), arrays)


def test_meshes_of_different_devices_exchange_blocks() -> None:
    arrays: Arrays = {}
    x = buffer(arrays, (8, 12), Sharding(DEVICES[:2], 0))
    moved = x.copy_to_device(Sharding(DEVICES[2:], 1))
    assert check(moved, arrays) == {"send": x.nbytes}


# ---- random programs ----

LAYOUTS = [on(0), on(1), REPLICATED, on((0, 1), GRID), on((1, None), GRID), on((None, 0), GRID)]
UNARY = ["permute", "flip", "pad", "shrink", "merge", "split", "sum0", "sum1", "max0", "constant"]


def apply(name: str, x: UOp) -> UOp:
    """One step of a random program, from a matrix to a matrix."""
    rows, columns = (int(d) for d in x.shape)
    match name:
        case "permute":
            return x.permute((1, 0))
        case "flip":
            return x.flip((True, False))
        case "pad":
            return x.pad(((4, 0), (0, 4)))
        case "shrink":
            return x.shrink(((0, rows // 2), (columns // 2, columns))) if rows > 4 < columns else x
        case "merge":
            return x.reshape((rows * columns, 1)).reshape((columns, rows))
        case "split":
            return x.reshape((rows // 4, 4, columns)).permute((1, 0, 2)).reshape((rows, columns))
        case "constant":
            ramp = UOp.arange(rows).cast(dtypes.float).reshape((rows, 1)).expand(x.shape)
            return x + ramp
    axis = int(name[-1])
    op = Ops.ADD if name.startswith("sum") else Ops.MAX
    return x.r(op, (axis,)).expand(x.shape) + x


def test_an_uneven_mesh_is_resharded_from_and_to_layouts_without_padding() -> None:
    arrays: Arrays = {}
    x = buffer(arrays, (8, 16), on((1, None), GRID))
    y = buffer(arrays, (12, 20), on(0))
    check(x.pad(((4, 0), (0, 4))) + y, arrays)


@pytest.mark.slow
@settings(max_examples=40)
@given(data=st.data())
def test_random_sharded_programs_equal_unsharded_ones(data: st.DataObject) -> None:
    arrays: Arrays = {}
    layouts = st.sampled_from(LAYOUTS)
    x = buffer(arrays, (8, 16), data.draw(layouts))
    for name in data.draw(st.lists(st.sampled_from([*UNARY, "add", "matmul"]), max_size=4)):
        assume(x.size <= 4096 and x.shape[0] % 4 == 0 and x.shape[1] % 4 == 0)
        if name == "add":
            x = x + buffer(arrays, x.shape, data.draw(layouts))
        elif name == "matmul":
            x = matmul(x, buffer(arrays, (int(x.shape[1]), 8), data.draw(layouts)))
        else:
            x = apply(name, x)
    if x.size:
        check(x, arrays)
