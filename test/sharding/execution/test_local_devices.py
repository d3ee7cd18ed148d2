"""Plans of chosen devices: every process plans its own part of a program, and the parts match."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from test.devices import only_cpu, only_one_process
from test.models.parallel import Mlp, data_parallel, tensor_parallel, training_step
from tinygrad import Context, Mesh, P, Tensor, nn
from tinygrad.device import Buffer, DeviceError, RemoteBuffer
from tinygrad.execution.buffers import device_buffers
from tinygrad.execution.realize import BufferCopy
from tinygrad.execution.schedule import create_schedule, plan_cache
from tinygrad.execution.temporaries import memory_layout
from tinygrad.execution.trace import CommTrace
from tinygrad.execution.wire import SimulatedWire
from tinygrad.helpers import GlobalCounters
from tinygrad.nn.pipeline import Pipeline
from tinygrad.schedule.execution_plan import ExecutionPlan, KernelItem
from tinygrad.sharding import LocalDevices, Rank, Sharding, Topology

# ranks of devices that compute nothing; the host is the CPU
pytestmark = only_cpu
Devices = tuple[str, ...]


def devices_of(count: int) -> Devices:
    return tuple(f"NULL:{number}" for number in range(count))


# ---- programs: each realizes something on all devices ----


def data_parallel_mlp(devices: Devices) -> None:
    Tensor.realize(*data_parallel(devices, text=False))


def data_parallel_text(devices: Devices) -> None:
    Tensor.realize(*data_parallel(devices, text=True))


def tensor_parallel_mlp(devices: Devices) -> None:
    Tensor.realize(*tensor_parallel(devices, text=False))


def fully_sharded(devices: Devices) -> None:
    model = Mlp(2 * len(devices))
    for parameter in nn.state.get_parameters(model):
        parameter.shard_(devices, 0)
    rows = Tensor.randn(2 * len(devices), 2 * len(devices)).shard(devices, 0)
    Tensor.realize(*training_step(model, rows))


def reshards(devices: Devices) -> None:
    n = len(devices)
    rows = Tensor.rand(n, 2 * n).shard(devices, 0).realize()
    rows.to(Sharding(devices, 1)).realize()
    rows.to(devices).realize()
    rows.to(devices[-1]).realize()
    rows.to("CPU").realize()
    rows.sum(0).realize()
    rows.to(Sharding(tuple(reversed(devices)), 1)).realize()


def uneven(devices: Devices) -> None:
    rows = Tensor.rand(2 * len(devices) - 3, 5).shard(devices, 0).realize()
    (rows.softmax(0) + rows.max()).realize()
    rows[1:].flip(0).contiguous().realize()
    rows.reshape(-1).cumsum().realize()


def halo(devices: Devices) -> None:
    image = Tensor.rand(1, 1, 4 * len(devices), 4).shard(devices, 2).realize()
    image.avg_pool2d((3, 3), stride=1, padding=1).realize()


def two_dimensional_mesh(devices: Devices) -> None:
    mesh = Mesh((2, len(devices) // 2), ("dp", "tp"), devices)
    x = Tensor.rand(len(devices), 2 * len(devices)).shard(mesh, P("dp")).realize()
    w = Tensor.rand(2 * len(devices), 6).shard(mesh, P("tp")).realize()
    (x @ w).relu().to(Sharding(devices)).realize()
    x.to(Sharding(devices, (1, 0), mesh.shape)).realize()


def between_meshes(devices: Devices) -> None:
    half = len(devices) // 2
    x = Tensor.rand(2 * half, 2 * half).shard(devices[:half], 0).realize()
    y = x.to(Sharding(devices[half:], 1)).realize()
    y.to(Sharding(devices)).realize()
    Tensor.rand(half, 4).shard(devices[:half]).realize().to(Sharding(devices, 0)).realize()


def pipeline(devices: Devices) -> None:
    stages = [[nn.Linear(8, 8), Tensor.tanh] for _ in devices]
    model = Pipeline(stages, devices, microbatches=2)
    model.step(Tensor.sparse_categorical_crossentropy, Tensor.ones(4, 8), Tensor.arange(4) % 4)


def single_shards(devices: Devices) -> None:
    x = Tensor.rand(2 * len(devices), 4).shard(devices, 0).realize()
    parts = [shard * 2 for shard in x.shards]
    Tensor.from_shards(parts, Sharding(devices, 0)).sum().realize()
    x[2:5] = 1.0
    x[Tensor([0, 3, 1]).shard(devices)].realize()


def ring(devices: Devices) -> None:
    with Context(RING=2):
        Tensor.rand(64 * len(devices), 256).shard(devices, 0).sum(0).realize()


def hierarchical(devices: Devices) -> None:
    with Topology.of_nodes(devices, max(2, len(devices) // 4)):
        x = Tensor.rand(2 * len(devices), 1 << 15).shard(devices, 0)
        x.sum(0).realize()
        Tensor.realize(x.to(Sharding(devices)), x.sum(0).to(Sharding(devices, 0)))


PROGRAMS: list[Callable[[Devices], None]] = [
    data_parallel_mlp,
    data_parallel_text,
    tensor_parallel_mlp,
    fully_sharded,
    reshards,
    uneven,
    halo,
    two_dimensional_mesh,
    between_meshes,
    pipeline,
    single_shards,
    ring,
    hierarchical,
]
QUICK = {"reshards", "uneven", "two_dimensional_mesh", "between_meshes", "single_shards", "ring"}


# ---- running the part of one process ----


def part_of(rank: int, devices: Devices, per_rank: int) -> LocalDevices:
    """The devices of one process; the first one has the host's device, on which arrays begin."""
    mine = devices[rank * per_rank : (rank + 1) * per_rank]
    return LocalDevices.of((*mine, "CPU") if rank == 0 else mine)


@contextlib.contextmanager
def one_process(local: LocalDevices) -> Iterator[SimulatedWire]:
    Tensor.manual_seed(0)
    GlobalCounters.reset()
    with local, SimulatedWire() as wire:
        yield wire


def check_all_parts(program: Callable[[Devices], None], count: int, per_rank: int) -> None:
    """Run the part of every process; each message that one sends is received by another."""
    devices = devices_of(count)
    wires: list[SimulatedWire] = []
    kernels = nbytes = 0
    for rank in range(count // per_rank):
        with one_process(part_of(rank, devices, per_rank)) as wire:
            program(devices)
        wires.append(wire)
        kernels += GlobalCounters.kernel_count
        nbytes += GlobalCounters.bytes_moved
    assert sum(len(sizes) for wire in wires for sizes in wire.sent.values()) > 0
    assert not wires[0].unmatched(wires[1:])
    # together they run what one process runs
    Tensor.manual_seed(0)
    GlobalCounters.reset()
    program(devices)
    assert (kernels, nbytes) == (GlobalCounters.kernel_count, GlobalCounters.bytes_moved)


@pytest.mark.sample(2)
@only_one_process("runs the parts of all processes")
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(x, marks=[] if x.__name__ in QUICK else pytest.mark.slow, id=x.__name__)
        for x in PROGRAMS
    ],
)
def test_every_message_of_a_process_meets_its_other_end(program: Callable[[Devices], None]) -> None:
    check_all_parts(program, 8, 1)
    check_all_parts(program, 8, 2)


@pytest.mark.slow
@only_one_process("runs the parts of all processes")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda x: x.__name__)
def test_every_message_of_64_devices_meets_its_other_end(
    program: Callable[[Devices], None],
) -> None:
    check_all_parts(program, 64, 4)


SAMPLE = (0, 511, 512, 1023)


# a pipeline of 1,024 stages takes minutes
@pytest.mark.slow
@only_one_process("runs the parts of several processes")
@pytest.mark.parametrize(
    "program", [x for x in PROGRAMS if x is not pipeline], ids=lambda x: x.__name__
)
def test_messages_between_some_of_1024_devices_meet_their_other_end(
    program: Callable[[Devices], None],
) -> None:
    devices = devices_of(1024)
    ends = {devices[rank] for rank in SAMPLE}
    parts: list[SimulatedWire] = []
    for rank in SAMPLE:
        with one_process(part_of(rank, devices, 1)) as wire:
            program(devices)
        between = [
            {pair: sizes for pair, sizes in found.items() if ends.issuperset(pair)}
            for found in (wire.sent, wire.received)
        ]
        parts.append(SimulatedWire(*between))
    assert any(part.sent for part in parts)
    assert not parts[0].unmatched(parts[1:])


def plans_of(program: Callable[[Devices], None], count: int, rank: int) -> list[ExecutionPlan]:
    """The plans that one process makes, of as many processes as there are devices."""
    plan_cache.clear()
    with one_process(part_of(rank, devices_of(count), 1)):
        program(devices_of(count))
    return [plan for key in plan_cache if (plan := plan_cache.get(key)) is not None]


def items_of(plans: Sequence[ExecutionPlan]) -> int:
    """The kernels, messages and buffers of plans."""
    items = sum(item.size for plan in plans for item in plan.items)
    return items + sum(len(plan.local_numbers(i)) for plan in plans for i in plan.temporary)


def test_a_plan_holds_only_what_is_local() -> None:
    plans = plans_of(reshards, 8, 3)
    for plan in plans:
        for item in plan.items:
            if isinstance(item, KernelItem):
                assert [item.devices[number] for number in item.local] == ["NULL:3"]
            else:
                for message in item.messages:
                    ends = [plan.entries[part.entry].devices[part.device] for part in message]
                    assert "NULL:3" in ends
    # an all-gather has twice as many messages on twice as many devices, not four times as many
    assert items_of(plans_of(reshards, 16, 3)) <= 2 * items_of(plans)


def calls_and_messages(count: int) -> tuple[int, int]:
    """The function calls of planning a step on one of `count` devices, and its messages."""
    devices, calls = devices_of(count), 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    with Topology.of_nodes(devices, 8), one_process(LocalDevices.of(devices[-1:])):
        updates = [x.uop for x in data_parallel(devices, text=False)]
        plan_cache.clear()
        sys.setprofile(called)
        try:
            schedule = create_schedule(updates)
        finally:
            sys.setprofile(None)
    return calls, sum(len(x.remote) for x in schedule.items if isinstance(x, BufferCopy))


@pytest.mark.slow
def test_planning_grows_no_faster_than_the_messages_of_a_process() -> None:
    calls_and_messages(64)  # what does not depend on the devices is cached afterwards
    calls, messages = zip(*map(calls_and_messages, (64, 128, 256)), strict=True)
    assert messages == tuple(7 * 2 * (count - 1) for count in (64, 128, 256))
    growth = (calls[2] - calls[1]) / (calls[1] - calls[0])
    # twice the devices add twice the messages; planning for all devices adds four times as much
    assert growth < 2.5


@only_one_process("runs the parts of all processes")
def test_the_trace_of_a_process_counts_what_its_devices_send() -> None:
    x = Tensor.rand(8, 4).shard(devices_of(4), 0).realize()
    with CommTrace() as whole:
        x.to(devices_of(4)).realize()
    with one_process(LocalDevices.of(("NULL:1",))), CommTrace() as own:
        y = Tensor.rand(8, 4).shard(devices_of(4), 0).realize()
        own.records.clear()
        y.to(devices_of(4)).realize()
    assert whole.kinds() == {"all_gather": 4 * 3 * 32}
    assert own.kinds() == {"all_gather": 3 * 32}


def test_shards_and_arrays_of_other_processes_are_known_and_have_no_content() -> None:
    rank = LocalDevices(rank=Rank(1, 2))
    assert rank.numbers(("NULL", "NULL:1", "NULL:2", "NULL:3", "NPY")) == (1, 3, 4)
    with rank, SimulatedWire():
        x = (Tensor.arange(4, device="NULL").shard(devices_of(2), 0) + 1).realize()
        theirs, own = (shard.uop.realized for shard in x.shards)
        whole = x.to("NULL").realize()
        assert isinstance(theirs, RemoteBuffer) and type(own) is Buffer
        assert (own.device, len(device_buffers(x.uop.base))) == ("NULL:1", 1)
        assert isinstance(whole.uop.realized, RemoteBuffer) and device_buffers(whole.uop) == ()
        # a simulated wire has no content of other processes
        assert whole.tolist() == [0, 0, 0, 0]
    with pytest.raises(DeviceError, match="memory of another process"):
        theirs.copyout(memoryview(bytearray(theirs.nbytes)))


@only_one_process("has no wire")
def test_a_message_to_another_process_needs_a_wire() -> None:
    with LocalDevices.of(("NULL:1",)), pytest.raises(DeviceError, match="use `with SimulatedWire"):
        Tensor.rand(4).shard(devices_of(2)).realize()


# ---- the digest of plans ----

DIGESTS = """
import random, sys
junk = [object() for _ in range(random.Random(int(sys.argv[1])).randrange(100000))]
from test.sharding.execution.test_local_devices import *
for program in (data_parallel_mlp, tensor_parallel_mlp, uneven, two_dimensional_mesh):
    for plan in plans_of(program, 4, 1):
        print(plan.digest.hex(), hash_of_part(plan))
"""


def hash_of_part(plan: ExecutionPlan) -> str:
    """A hash of what a process holds of a plan, and of the places of its buffers."""
    found = hashlib.sha256(repr(memory_layout(plan, True)).encode())
    for item in plan.items:
        parts = item.arguments if isinstance(item, KernelItem) else item.messages
        found.update(repr(parts).encode())
    return found.hexdigest()


@pytest.mark.slow
def test_plans_are_equal_in_processes_with_other_hash_seeds_and_heaps() -> None:
    root = Path(__file__).parents[3]
    found = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    ]
    assert found[0] == found[1]
    assert found[0].count("\n") >= 12


def test_all_processes_have_equal_digests_of_a_plan() -> None:
    digests = [[plan.digest for plan in plans_of(pipeline, 4, rank)] for rank in range(3)]
    assert digests[0] == digests[1] == digests[2]
    assert len({*digests[0]}) > 4
