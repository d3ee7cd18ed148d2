"""Topology: links between devices, the time of transfers, and the choices that follow from it."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest

from test.sharding.common import array, moved, placed
from tinygrad import CommTrace, Tensor
from tinygrad.schedule.multi import lower_layouts
from tinygrad.schedule.pipeline import optimize_communication
from tinygrad.schedule.spmd.collectives import choose_algorithm
from tinygrad.settings import Context
from tinygrad.sharding import (
    Partial,
    Sharding,
    ShardingError,
    Topology,
    allreduce_bytes,
    allreduce_seconds,
    common_layout,
    current_topology,
    fastest_allreduce,
    node_size,
    set_topology,
    transfer_bytes,
    transfer_seconds,
)
from tinygrad.sharding.topology import SAME_MEMORY, Link
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

MIB = 1 << 20
ADD = Partial("ADD")


def devices(count: int, kind: str = "NULL") -> tuple[str, ...]:
    return tuple(f"{kind}:{i}" for i in range(count))


def in_nodes(count: int, per_node: int, kind: str = "NULL") -> Topology:
    return Topology.of_nodes(devices(count, kind), per_node)


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("CPU", "CPU:1", "same memory"),
        ("CUDA:0", "CUDA:1", "peer"),
        ("NULL:3", "NULL:1", "peer"),
        ("CPU:1", "CUDA:1", "host"),
    ],
)
def test_links_depend_on_the_kinds_of_devices(first: str, second: str, name: str) -> None:
    assert Topology().link(first, second).name == name
    assert Topology().link(second, first).name == name


def test_nodes_are_linked_by_the_network() -> None:
    topology = Topology(nodes=(("NULL:0", "NULL:1"), ("NULL:2",)))
    assert topology.link("NULL", "NULL:1") is topology.peer
    assert topology.link("NULL:1", "NULL:2") is topology.network
    assert topology.link("NULL:1", "NULL:9") is topology.network
    assert topology.link("NULL:8", "NULL:9") is topology.peer


def test_a_device_in_two_nodes_is_an_error() -> None:
    with pytest.raises(ShardingError, match="repeat NULL; name each device in one node"):
        Topology(nodes=(("NULL:0",), ("NULL", "NULL:1")))


def test_a_topology_is_valid_inside_its_block() -> None:
    before, outer, inner = current_topology(), in_nodes(4, 2), in_nodes(4, 1)
    with outer:
        with inner, inner:
            assert current_topology() is inner
        assert current_topology() is outer
    assert current_topology() is before
    assert set_topology(outer) is before
    assert set_topology(before) is outer


# ---- seconds ----


def test_a_round_is_latency_and_the_bytes_of_the_busiest_device() -> None:
    source = Sharding(devices(4, "CPU"), 0)
    per_device = transfer_bytes(source, source.replicated(), (4, MIB), 4) / 4
    expected = SAME_MEMORY.latency_s + per_device / SAME_MEMORY.bandwidth
    assert transfer_seconds(source, source.replicated(), (4, MIB), 4) == pytest.approx(expected)
    assert transfer_seconds(source.replicated(), source, (4, MIB), 4) == 0
    assert transfer_seconds(source, source, (4, MIB), 4) == 0


def test_a_device_that_sends_to_all_is_the_busiest() -> None:
    four = devices(4, "CPU")
    seconds = transfer_seconds("CPU:0", Sharding(four), (MIB,), 4)
    assert seconds == pytest.approx(SAME_MEMORY.seconds(3 * 4 * MIB))


def test_slow_links_decide_the_time() -> None:
    layout = Sharding(devices(4), 0)
    fast, slow = Topology(), in_nodes(4, 2)
    arguments = (layout, layout.replicated(), (4, MIB), 4)
    # half of the missing blocks of a device are on the other node
    assert transfer_seconds(*arguments, fast) == pytest.approx(fast.peer.seconds(3 * 4 * MIB))
    assert transfer_seconds(*arguments, slow) == pytest.approx(slow.network.seconds(2 * 4 * MIB))


# ---- all-reduce ----


def partial_sums(count: int, kind: str = "NULL") -> Sharding:
    return Sharding(devices(count, kind), ADD)


@pytest.mark.parametrize("count", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("kind", ["CPU", "NULL"])
def test_small_values_are_sent_directly_and_large_ones_in_two_rounds(kind: str, count: int) -> None:
    topology = Topology()
    assert fastest_allreduce(topology, partial_sums(count, kind), 64) == "direct"
    assert fastest_allreduce(topology, partial_sums(count, kind), 1 << 30) == "all2all"


def test_on_one_kind_of_link_more_bytes_take_longer() -> None:
    source = partial_sums(8)
    times = {name: allreduce_seconds(source, 1 << 28, name) for name in ("direct", "all2all")}
    sent = {name: allreduce_bytes(8, 1 << 28, name) for name in times}
    assert min(times, key=times.__getitem__) == min(sent, key=sent.__getitem__)
    assert allreduce_seconds(source, 1 << 28) == times["all2all"]


def test_an_unknown_algorithm_names_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="'tree'; use peer, direct, nccl, all2all, hierarchical, ring"
    ):
        allreduce_seconds(partial_sums(4), 8, "tree")


@pytest.mark.parametrize(
    ("source", "per_node", "size"),
    [
        (partial_sums(8), 4, 4),
        (partial_sums(8), 8, None),
        (partial_sums(8), 1, None),
        (Sharding(devices(8), (ADD, None), (4, 2)), 4, 2),
        (Sharding(devices(8), (None, ADD), (2, 4)), 4, None),
        # pairs across nodes, where every link is slow
        (Sharding(devices(8), (ADD, None), (2, 4)), 4, None),
    ],
)
def test_groups_that_span_nodes(source: Sharding, per_node: int, size: int | None) -> None:
    assert node_size(in_nodes(8, per_node), source) == size


def test_large_partial_sums_are_reduced_inside_nodes_first() -> None:
    topology, source = in_nodes(16, 8), partial_sums(16)
    assert fastest_allreduce(topology, source, 1 << 28) == "hierarchical"
    assert fastest_allreduce(topology, source, 64) == "direct"
    seconds = {
        name: allreduce_seconds(source, 1 << 28, name, topology)
        for name in ("all2all", "hierarchical", "ring")
    }
    # each step of a ring waits for the neighbours in different nodes
    assert seconds["hierarchical"] < seconds["all2all"] < seconds["ring"]
    with topology, Context(ALL2ALL=2):
        assert choose_algorithm(source, 1 << 28) == "all2all"
    with topology, Context(RING=1):
        assert choose_algorithm(source, 1 << 28) == "ring"
    with topology:
        assert choose_algorithm(source, 1 << 28) == "hierarchical"


EIGHT = tuple(f"CPU:{i}" for i in range(8))
FAR = Link("far", 1e-6, 1e8)


@pytest.mark.parametrize(
    ("axes", "mesh", "per_node"),
    [
        (0, (), 4),
        (0, (), 2),
        ((0, None), (4, 2), 4),
        ((1, 0), (2, 4), 2),
        ((0, 1, 0), (2, 2, 2), 2),
    ],
)
def test_a_hierarchical_all_reduce_adds_every_value(axes: Any, mesh: Any, per_node: int) -> None:
    layout = Sharding(EIGHT, axes, mesh)
    value = array(8, 2, 5001)
    count = layout.shards(0)
    nodes = Topology.of_nodes(EIGHT, per_node).nodes
    with Topology(nodes=nodes, network=FAR) as topology:
        partial = layout.with_axes([ADD if p == 0 else None for p in layout.axes])
        assert fastest_allreduce(topology, partial, 4 * 2 * 5001) == "hierarchical"
        total = placed(value, layout).sum(0)
        # as many bytes as in two rounds among all devices, up to rounding to pieces
        sent = moved(total)["all_reduce"]
    least = 8 * allreduce_bytes(count, 4 * 2 * 5001 // layout.shards(1), "all2all")
    assert least <= sent <= least + 8 * 2 * 4 * count
    np.testing.assert_allclose(total.numpy(), value.sum(0), rtol=1e-4, atol=1e-5)


def sent_to_other_nodes(result: Tensor, per_node: int) -> int:
    """The bytes that the messages of a program take to other nodes."""
    lowered = lower_layouts(optimize_communication(UOp.sink(result.uop)))
    found = 0
    for node in lowered.toposort():
        if node.op is Ops.TRANSFER:
            piece = node.arg.piece_size(prod(node.arg.shape)) * node.dtype.itemsize
            for m in node.arg.messages:
                found += m.pieces * piece * (m.source // per_node != m.target // per_node)
    return found


@pytest.mark.parametrize(
    ("axes", "mesh", "per_node", "rows"),
    [
        (0, (), 4, 1024),
        (0, (), 2, 1021),
        (1, (), 4, 1024),
        # groups of four over two nodes
        ((0, 1), (4, 2), 4, 1024),
    ],
)
def test_each_byte_crosses_to_another_node_once(
    axes: Any, mesh: Any, per_node: int, rows: int
) -> None:
    layout = Sharding(EIGHT, axes, mesh)
    moved_axis = layout.axes[0]
    kept = layout.with_axes([None if p == moved_axis else p for p in layout.axes])
    value = array(rows, 64)
    nbytes = layout.shards(moved_axis) * -(-value.nbytes // layout.shards(moved_axis) // 256) * 256
    with Topology(nodes=Topology.of_nodes(EIGHT, per_node).nodes, network=FAR):
        x = placed(value, layout)
        gathered = x.to(kept)
        # each node sends what it has to each other node, and not to each device there
        assert sent_to_other_nodes(gathered, per_node) == nbytes * (8 // per_node - 1)
        assert moved(gathered)["all_gather"] == nbytes * 7 if mesh == () else nbytes // 2 * 3 * 2
        np.testing.assert_array_equal(gathered.numpy(), value)
        # partial sums of all rows on the devices along the first dimension
        parts = array(layout.mesh_shape[0], rows, 64)
        stack = layout.with_axes([0, *(None if p is None else p + 1 for p in layout.axes[1:])])
        total = placed(parts, stack).sum(0).to(layout)
        assert sent_to_other_nodes(total, per_node) == nbytes * (8 // per_node - 1)
        assert set(moved(total)) == {"reduce_scatter"}
        np.testing.assert_allclose(total.numpy(), parts.sum(0), rtol=1e-4, atol=1e-5)


def test_a_plan_is_not_reused_under_another_topology() -> None:
    x = placed(array(8, 9000), Sharding(EIGHT, 0))
    expected = array(8, 9000).sum(0)
    for topology in (Topology(), Topology(nodes=(EIGHT[:4], EIGHT[4:]), network=FAR)):
        with topology:
            items = x.sum(0).schedule()
            np.testing.assert_allclose(x.sum(0).numpy(), expected, rtol=1e-4, atol=1e-5)
        copies = [item for item in items if item.ast is None]
        assert len(copies) == (4 if topology.nodes else 2)


def test_a_record_and_its_line_name_the_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    small, large = (placed(array(8, n), Sharding(EIGHT, 0)) for n in (2, 9000))
    with CommTrace() as trace, Context(DEBUG=2), Topology():
        small.sum(0).realize()
        large.sum(0).realize()
    names = [(record.kind, record.algorithm) for record in trace.records]
    assert names == [("all_reduce", "direct"), ("all_reduce", "all2all")]
    assert "504,000 bytes in 2 rounds (all2all)" in re.sub(" +", " ", capsys.readouterr().out)


# ---- operands ----


def test_the_choice_of_operands_avoids_slow_links() -> None:
    # sharded over all devices, or over the first mesh dimension alone, which spans nodes
    eight = devices(8)
    x = Sharding(eight, (0, None), (2, 4))
    y = Sharding(eight, (1, None), (2, 4))
    z = Sharding(eight, (None, 1), (2, 4))
    shape = (64, 64)
    nbytes = 4 * 64 * 64
    assert common_layout([x, y], [nbytes, nbytes], [shape, shape]) is x
    with in_nodes(8, 4):
        assert common_layout([x, z], [nbytes, nbytes], [shape, shape]).shards(1) == 4
        assert common_layout([x, y], [nbytes, 2 * nbytes], [shape, shape]) is y


def test_the_choice_of_operands_weighs_bytes_by_their_links() -> None:
    # three operands: move a between nodes, or b and c inside nodes, which is more bytes
    eight = devices(8)
    across = Sharding(eight, (0, None), (2, 4))
    inside = Sharding(eight, (None, 0), (2, 4))
    shape = (64, 64)
    layouts = [across, inside, across.with_axes((1, None))]
    nbytes = [100_000, 100_000, 10_000]
    slow = in_nodes(8, 4)
    with slow:
        chosen = common_layout(layouts, nbytes, [shape] * 3)
    assert chosen == Sharding(eight, chosen.axes, chosen.mesh_shape)

    def seconds(layout: Sharding) -> float:
        total = 0.0
        for own, size in zip(layouts, nbytes, strict=True):
            total += transfer_seconds(own, layout, shape, size // 4096, slow)
        return total

    assert seconds(chosen) <= min(map(seconds, layouts))


def test_common_layouts_are_computed_once_per_distinct_query() -> None:
    x = Tensor.empty(64, 64, device=Sharding(EIGHT, 0))
    with Topology():
        assert (x + x).device is x.device
