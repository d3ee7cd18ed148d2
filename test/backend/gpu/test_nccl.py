"""All-reduces by NCCL: a stand-in of the library records the calls and reduces on the host.

Where the library is installed, its loading and its errors are tested without a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from test.devices import device_names, nth, only_cuda
from tinygrad import CommTrace, GlobalCounters, Tensor, TinyJit
from tinygrad.device import Device, DeviceError
from tinygrad.dtype import dtypes
from tinygrad.planner.communication import communication_costs
from tinygrad.runtime.support.cuda import nccl
from tinygrad.schedule.spmd.collectives import choose_algorithm
from tinygrad.settings import Context
from tinygrad.sharding import LocalDevices, Partial, Sharding, Topology
from tinygrad.sharding.topology import Link
from tinygrad.uop import Ops

LARGE = 1 << 28
# only the latency of NCCL is small here, so that small arrays are reduced by it
SLOW_ROUNDS = Topology(peer=Link("peer", 1.0, 300e9), nccl=True)
NUMPY = {7: np.float32, 2: np.int32, 6: np.float16}
FUNCTIONS = {0: np.add, 1: np.multiply, 2: np.maximum}


class RecordedNccl:
    """A library that reduces when a group of calls ends."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.groups: list[tuple[int, ...]] = []
        self._pending: list[tuple[Any, ...]] = []
        self.fails = ""

    def _code(self, name: str) -> int:
        self.calls.append(name)
        return 5 if name == self.fails else 0

    def ncclGetErrorString(self, code: int) -> bytes:
        return b"invalid usage"

    def ncclGetLastError(self, communicator: None) -> bytes:
        return b"Duplicate GPU detected"

    def ncclCommInitAll(self, handles: Any, count: int, ordinals: Any) -> int:
        self.groups.append(tuple(ordinals))
        for number in range(count):
            handles[number] = len(self.groups)
        return self._code("ncclCommInitAll")

    def ncclGroupStart(self) -> int:
        return self._code("ncclGroupStart")

    def ncclAllReduce(self, *arguments: Any) -> int:
        self._pending.append(tuple(getattr(x, "value", x) for x in arguments))
        return self._code("ncclAllReduce")

    def ncclGroupEnd(self) -> int:
        from cuda.bindings import driver

        calls, self._pending = self._pending, []
        for *_, stream in calls:
            assert driver.cuStreamSynchronize(stream)[0] == 0

        def copy(function: Any, ordinal: int, *arguments: Any) -> None:
            Device[nth(ordinal)].gpu.activate()
            assert function(*arguments)[0] == 0

        for communicator in {call[5] for call in calls}:
            group = [call for call in calls if call[5] == communicator]
            _, _, count, dtype, op, *_ = group[0]
            arrays = [np.empty(count, NUMPY[dtype]) for _ in group]
            on_gpus = list(zip(self.groups[communicator - 1], group, arrays, strict=True))
            for gpu, call, array in on_gpus:
                copy(driver.cuMemcpyDtoH, gpu, array.ctypes.data, call[0], array.nbytes)
            result = FUNCTIONS[op].reduce(arrays)
            for gpu, call, _ in on_gpus:
                copy(driver.cuMemcpyHtoD, gpu, call[1], result.ctypes.data, result.nbytes)
        return self._code("ncclGroupEnd")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedNccl]:
    found = RecordedNccl()
    monkeypatch.setattr(nccl, "load_nccl", lambda: found)
    nccl._communicators.cache_clear()
    yield found
    nccl._communicators.cache_clear()


def test_the_topology_chooses_it_for_many_bytes_of_peers() -> None:
    names = tuple(f"NULL:{i}" for i in range(4))
    partial = Sharding(names, Partial("ADD"))
    with Topology(nccl=True):
        assert choose_algorithm(partial, 64) == "direct"
        assert choose_algorithm(partial, LARGE) == "nccl"
        with Context(RING=1):
            assert choose_algorithm(partial, LARGE) == "ring"
        with LocalDevices(names[:2]):
            assert choose_algorithm(partial, LARGE) == "all2all"
        assert choose_algorithm(Sharding(("NULL", "CUDA"), partial.axes), LARGE) != "nccl"
    with Topology():
        assert choose_algorithm(partial, LARGE) == "all2all"


def test_dtypes_that_it_lacks_are_reduced_otherwise() -> None:
    assert nccl.can_reduce("ADD", dtypes.bfloat16) and nccl.can_reduce("MAX", dtypes.int64)
    assert not nccl.can_reduce("ADD", dtypes.int16) and not nccl.can_reduce("MAX", dtypes.bool)
    names = tuple(f"NULL:{i}" for i in range(4))
    with SLOW_ROUNDS, CommTrace() as trace:
        for dtype in (dtypes.int16, dtypes.int32):
            Tensor.empty(8, 4, dtype=dtype, device=Sharding(names, 1)).max(1).realize()
    assert [record.algorithm for record in trace.records] == ["all2all", "nccl"]


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(path: str) -> None:
        raise OSError(path)

    nccl.load_nccl.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", missing)
        with pytest.raises(DeviceError, match=r"pip install 'tinygrad-sharding\[nccl\]'"):
            nccl.load_nccl()
        assert not nccl.is_installed()
    nccl.load_nccl.cache_clear()
    with pytest.raises(DeviceError, match="CPU has no library of collectives"):
        Device["CPU"].all_reduce([], None)


def test_the_installed_library_loads_and_explains_its_errors() -> None:
    if not nccl.is_installed():
        pytest.skip("NCCL is not installed")
    assert nccl.version() >= (2, 18, 0)
    with pytest.raises(nccl.NcclError, match=r"NCCL: ncclCommInitAll: .+: .+"):
        nccl._communicators((4000, 4001))


@only_cuda
@pytest.mark.parametrize("count", [2, 8])
def test_gpus_are_reduced_by_one_group_of_calls(library: RecordedNccl, count: int) -> None:
    names = device_names(count)
    topology = replace(Device.topology(names), peer=SLOW_ROUNDS.peer)
    assert topology.nccl

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return ((x * 2).sum(1) + 1).realize()

    for number in range(5):
        values = np.random.default_rng(number).integers(-9, 9, (6, count)).astype(np.float32)
        x = Tensor(values).shard(names, 1).realize()
        library.calls.clear()
        moved = GlobalCounters.bytes_moved
        with topology, CommTrace() as trace:
            found = step(x)
        for part in found.uop.buffer.bufs:
            np.testing.assert_array_equal(type(part).numpy(part), (values * 2).sum(1) + 1)
        (record,) = trace.records
        assert (record.algorithm, record.nbytes) == (
            "nccl",
            count * (2 * (count - 1) * 24 // count),
        )
        assert GlobalCounters.bytes_moved - moved == record.nbytes
        calls = library.calls[1:] if number == 0 else library.calls
        assert calls == ["ncclGroupStart", *["ncclAllReduce"] * count, "ncclGroupEnd"]
    assert library.groups == [tuple(range(count))]
    assert "NCCL are in no graph" in step.captured._native._native._reason


@only_cuda
def test_groups_of_a_mesh_have_communicators_of_their_own(library: RecordedNccl) -> None:
    names = device_names(4)
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    x = Tensor(values).to(Sharding(names, (0, 1), (2, 2))).realize()
    with replace(Device.topology(names), peer=SLOW_ROUNDS.peer):
        total = x.sum(1)
        costs = [
            cost
            for node in total.uop.toposort()
            if node.op is Ops.ALLREDUCE
            for cost in communication_costs(node)
        ]
        with CommTrace() as trace:
            total.realize()
    np.testing.assert_array_equal(total.numpy(), values.sum(1))
    assert set(library.groups) == {(0, 1), (2, 3)}
    assert [c.nbytes for c in costs] == [r.nbytes for r in trace.records if r.algorithm == "nccl"]


@only_cuda
def test_a_failed_call_is_named_and_logical_devices_of_one_gpu_do_without(
    library: RecordedNccl,
) -> None:
    names = device_names(2)
    library.fails = "ncclCommInitAll"
    x = Tensor.ones(4, 2).contiguous().shard(names, 1).realize()
    with (
        replace(Device.topology(names), peer=SLOW_ROUNDS.peer),
        pytest.raises(nccl.NcclError, match="ncclCommInitAll: invalid usage: Duplicate GPU"),
    ):
        x.sum(1).realize()
    from tinygrad.runtime.cuda import open_device, topology

    with Context(DEVICES_PER_GPU=2):
        assert not topology([open_device(name) for name in names]).nccl
