"""All-reduces in which a kernel reads the memory of other devices: values, traffic, order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from test.devices import device_names, only_one_process
from test.sharding.common import Array, integers, parts, value_and_gradients
from tinygrad import CommTrace, GlobalCounters, Tensor, TinyJit
from tinygrad.planner.communication import communication_costs
from tinygrad.schedule.spmd.collectives import choose_algorithm
from tinygrad.sharding import LocalDevices, Partial, Sharding, Topology
from tinygrad.sharding.topology import HOST, SAME_MEMORY

pytestmark = only_one_process("no process reads memory of another one")
READABLE = SAME_MEMORY._replace(is_readable=True)
PEERS = Topology(same_memory=READABLE, peer=READABLE)


@pytest.fixture(autouse=True)
def readable_links(links_of_the_cpu: None) -> Iterator[None]:
    with PEERS:
        yield


def sharded(value: Array, count: int, axis: int = 1) -> Tensor:
    return Tensor(value).shard(device_names(count), axis).realize()


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow), 8])
def test_each_device_reads_the_partial_sums_of_all_in_one_kernel(count: int) -> None:
    x = integers(6, 3 * count)
    for reduced, dtype in (("sum", np.float32), ("max", np.float32), ("sum", np.float16)):
        value = sharded(x.astype(dtype), count)
        GlobalCounters.reset()
        with CommTrace() as trace:
            found = (getattr(value, reduced)(1) * 2 + 1).realize()
        nbytes = 6 * 4 * count * (count - 1)
        (record,) = trace.records
        assert (record.kind, record.algorithm, record.nbytes) == ("all_reduce", "peer", nbytes)
        assert GlobalCounters.bytes_moved == nbytes
        # a partial sum, and the reduction with what is computed from it
        assert GlobalCounters.kernel_count == 2 * count
        for part in parts(found):
            np.testing.assert_array_equal(part, getattr(x, reduced)(1).astype(dtype) * 2 + 1)


def test_equal_bits_on_all_devices_and_one_rounding_of_halves() -> None:
    x = np.random.default_rng(3).standard_normal((64, 8)).astype(np.float16)
    exact = x.astype(np.float64).sum(1)
    found = parts(sharded(x, 8).sum(1, dtype="half").realize())
    assert all(np.array_equal(part, found[0]) for part in found)
    bound = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64) / 2
    assert (np.abs(found[0] - exact) <= bound + 1e-6).all()


def test_groups_of_a_mesh_and_blocks_past_the_end() -> None:
    x, w = integers(6, 10), integers(10, 5, seed=1)
    names = device_names(4)
    rows, columns = Sharding(names, (0, 1), (2, 2)), Sharding(names, (None, 0), (2, 2))

    def program(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).relu()

    expected = value_and_gradients(program, [Tensor(x), Tensor(w)])
    with CommTrace() as trace:
        arguments = [Tensor(x).to(rows), Tensor(w).to(columns)]
        found = value_and_gradients(program, arguments)
    assert {r.algorithm for r in trace.records if r.kind == "all_reduce"} == {"peer"}
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow), 8])
def test_replays_read_what_peers_wrote_and_before_they_write_again(count: int) -> None:
    state = sharded(np.ones((4, count), np.float32), count)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        total = (state * x).sum(1).realize()
        # overwrites what the others read
        state.assign(state + 1).realize()
        return (total + state.sum(1)).realize()

    expected = np.ones((4, count), np.float32)
    for number in range(6):
        x = integers(4, count, seed=number)
        with CommTrace() as trace:
            found = step(sharded(x, count))
        assert [r.algorithm for r in trace.records] == ["peer"] * 2
        assert trace.nbytes == 2 * 16 * count * (count - 1)
        total, expected = (expected * x).sum(1), expected + 1
        for part in parts(found):
            np.testing.assert_array_equal(part, total + expected.sum(1))


def test_a_softmax_over_a_sharded_axis_exchanges_maxima_and_sums_by_peers() -> None:
    scores = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    with CommTrace() as trace:
        found = sharded(scores, 4).softmax(1).numpy()
    expected = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(found, expected / expected.sum(1, keepdims=True), rtol=1e-5)
    assert {r.algorithm for r in trace.records if r.kind == "all_reduce"} == {"peer"}


def test_the_topology_and_the_size_choose() -> None:
    names = device_names(4)
    partial = Sharding(names, Partial("ADD"))
    assert choose_algorithm(partial, 1 << 10) == "peer"
    assert choose_algorithm(partial, 1 << 24) == "all2all"
    with Topology(same_memory=SAME_MEMORY, peer=HOST):
        assert choose_algorithm(partial, 1 << 10) == "direct"
    with LocalDevices(names[:2]):
        assert choose_algorithm(partial, 1 << 10) == "direct"


@pytest.mark.parametrize("columns", [8, 5, 2])
def test_the_planner_knows_the_bytes(columns: int) -> None:
    reduced = sharded(integers(6, columns), 4).sum(1)
    (cost,) = (c for node in reduced.uop.toposort() for c in _costs(node))
    with CommTrace() as trace:
        reduced.realize()
    assert cost.nbytes == trace.nbytes and cost.seconds > 0


def _costs(node: object) -> tuple[object, ...]:
    return communication_costs(node) if node.op.name == "ALLREDUCE" else ()
