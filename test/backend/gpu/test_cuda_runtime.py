"""The CUDA runtime: errors without a GPU anywhere; all else on a GPU, or an emulated one."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth, only_cuda
from test.nvrtc import why_not
from tinygrad import GlobalCounters, Tensor, TinyJit, Variable
from tinygrad.device import Buffer, CompileError, Device, DeviceError, copy_buffer
from tinygrad.device.allocator import BufferSpec, OutOfMemoryError
from tinygrad.dtype import dtypes
from tinygrad.renderer import LaunchShape
from tinygrad.settings import Context
from tinygrad.sharding import Partial, Sharding, Topology, allreduce_seconds

BAD_SOURCE = 'extern "C" __global__ void f(float *x) {\n  int i = 0;\n  x[i] = nothing;\n}\n'


@pytest.fixture
def nvrtc() -> Any:
    """The compiler, where it is installed and no emulator takes its place."""
    if reason := why_not():
        pytest.skip(reason)
    from tinygrad.runtime.support.cuda import nvrtc

    return nvrtc


def test_a_rejected_kernel_shows_the_line_and_the_message(nvrtc: Any) -> None:
    message = r"line 3:\n.*\"nothing\" is undefined(.|\n)*3 \|   x\[i"
    with pytest.raises(CompileError, match=message):
        nvrtc._compile(BAD_SOURCE, ("--gpu-architecture=sm_80",), True)


def test_an_architecture_newer_than_nvrtc_gets_ptx(nvrtc: Any) -> None:
    assert nvrtc._target_option("sm_90a") == ("--gpu-architecture=sm_90a", True)
    option, is_cubin = nvrtc._target_option("sm_999")
    assert option.startswith("--gpu-architecture=compute_") and not is_cubin
    source = BAD_SOURCE.replace("nothing", "1")
    assert nvrtc._compile(source, (option,), is_cubin).lstrip().startswith(b"//")
    assert nvrtc._compile(source, ("--gpu-architecture=sm_90a",), True).startswith(b"\x7fELF")


def test_a_missing_library_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings")
    from tinygrad.runtime.support.cuda import driver as cuda_driver
    from tinygrad.runtime.support.cuda import nvrtc

    def missing(*_: Any) -> None:
        raise RuntimeError("not found")

    monkeypatch.setattr(cuda_driver.driver, "cuInit", missing)
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libnothing.so.1")
    with pytest.raises(DeviceError, match="CUDA:1 needs NVIDIA's driver.*--gpus all"):
        cuda_driver.start_driver("CUDA:1")
    no_device = (cuda_driver.driver.CUresult.CUDA_ERROR_NO_DEVICE,)
    monkeypatch.setattr(cuda_driver.driver, "cuInit", lambda _: no_device)
    text = (cuda_driver.SUCCESS, b"no CUDA-capable device")
    monkeypatch.setattr(cuda_driver.driver, "cuGetErrorString", lambda _: text)
    with pytest.raises(DeviceError, match=r"CUDA:1: .*CUDA_ERROR_NO_DEVICE\); see .*nvidia-smi"):
        cuda_driver.start_driver("CUDA:1")
    nvrtc._nvrtc.cache_clear()
    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcVersion", missing)
    with pytest.raises(DeviceError, match="pip install cuda-bindings nvidia-cuda-nvrtc"):
        nvrtc._nvrtc()


@pytest.mark.slow
def test_a_broken_driver_is_reported_and_leaves_the_cpu_alone(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings")
    (tmp_path / "libcuda.so.1").write_text("of no kind that a loader knows\n" * 100)
    program = """
from tinygrad import Device, Tensor
try:
    Device["CUDA"]
except RuntimeError as error:
    print(type(error).__name__, error)
assert "CUDA" not in Device.get_available_devices()
assert (Tensor([1, 2], device="CPU") + 1).tolist() == [2, 3]
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert re.fullmatch("DeviceError CUDA: .* is on this .* invalid ELF .*", done.stdout.strip())


# ---- on a GPU ----


@pytest.fixture
def gpu() -> Iterator[Any]:
    """A logical device of its own on the first GPU, which errors do not take from other tests."""
    from tinygrad.runtime.support.cuda.driver import Gpu

    assert Device[nth(0)]
    return Gpu("CUDA:77", 0)


@pytest.fixture
def several_gpus() -> None:
    """Devices of the default kind that are GPUs of their own."""
    if len({Device[name].gpu.ordinal for name in device_names(2)}) == 1:
        pytest.skip("the devices are on one GPU")


@only_cuda
def test_a_target_has_the_limits_of_the_opened_gpu() -> None:
    target = Device[nth(0)].target
    if target.dialect != "cuda":
        pytest.skip("the emulator runs the kernels of another vendor")
    assert target.warp == 32
    assert target.architecture.startswith("sm_")
    assert target.units > 0 and target.block_threads >= 1024 and target.shared_bytes >= 48 << 10


@only_cuda
def test_a_late_error_names_the_kernels_and_stays(gpu: Any) -> None:
    from tinygrad.runtime.support.cuda.driver import driver

    fault = (driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,)
    gpu.begin_kernels()
    for name in ("r_4", "E_5", "E_5"):
        gpu.end_kernels(name)
    message = r"CUDA:77: .*ILLEGAL_ADDRESS\), in one of the kernels \(last first\) E_5, r_4; DEBUG"
    with pytest.raises(DeviceError, match=message):
        gpu.check(fault)
    with pytest.raises(DeviceError, match=message):
        gpu.activate()
    assert not gpu.is_usable


@only_cuda
def test_errors_after_which_a_process_must_end_are_sticky() -> None:
    from tinygrad.runtime.support.cuda import driver

    codes = {x.name for x in driver.driver.CUresult if "relaunched" in (x.__doc__ or "")}
    # of a device that is no GPU, which nothing here waits for
    codes -= {"CUDA_ERROR_EXTERNAL_DEVICE"}
    if not codes:
        pytest.skip("these bindings do not describe their codes")
    assert codes <= {x.name for x in driver.STICKY}


@only_cuda
def test_an_error_after_a_wait_names_the_only_kernel_since(gpu: Any) -> None:
    from tinygrad.runtime.support.cuda.driver import driver

    gpu.end_kernels("r_4")
    gpu.synchronize()
    gpu.end_kernels("E_5")
    with pytest.raises(DeviceError, match="in kernel E_5. The GPU cannot be used any more"):
        gpu.check((driver.CUresult.CUDA_ERROR_LAUNCH_FAILED,))


@only_cuda
@pytest.mark.parametrize("opens", [False, True])
def test_a_forked_process_is_told_to_be_spawned(opens: bool) -> None:
    from tinygrad.runtime.cuda import open_device

    x = Tensor.ones(4).contiguous().realize()
    child = os.fork()
    if not child:
        try:
            open_device(nth(0)) if opens else (x + 1).realize()
        except DeviceError as error:
            os._exit(0 if "cannot be used: this process was forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (x + 1).tolist() == [2] * 4


@only_cuda
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_process_forked_while_another_thread_uses_the_driver_does_not_hang() -> None:
    from tinygrad.runtime.support.cuda.driver import LOCK

    x = Tensor.ones(4).contiguous().realize()
    is_held = threading.Event()

    def hold() -> None:
        with LOCK:
            is_held.set()
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    child = os.fork()
    if not child:
        signal.alarm(10)  # ends the process if it hangs
        try:
            x.numpy()
        except DeviceError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert (x + 1).tolist() == [2] * 4


@only_cuda
@pytest.mark.parametrize("nbytes", [0, 1, 1 << 16, (1 << 16) + 1, (20 << 20) + 3])
def test_copies_of_any_size_leave_the_host_free(nbytes: int) -> None:
    content = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    given = content.copy()
    buffer = Buffer(nth(0), nbytes + 64, dtypes.uint8).allocate().view(nbytes, dtypes.uint8, 64)
    buffer.copyin(given.data if nbytes else memoryview(b""))
    given[:] = 0  # the copy read it
    other = Buffer(nth(1), nbytes, dtypes.uint8)
    copy_buffer(other, buffer)
    np.testing.assert_array_equal(buffer.numpy(), content)
    np.testing.assert_array_equal(other.numpy(), content)


@only_cuda
def test_copies_of_pinned_memory_leave_the_host_free(gpu: Any) -> None:
    from tinygrad.runtime.support.cuda.driver import driver

    pinned = gpu.check(driver.cuMemHostAlloc(64, 0))
    given = (ctypes.c_char * 64).from_address(int(pinned))
    given[:] = bytes(range(64))
    # two: the first may be read while the second is issued
    buffers = [Buffer(nth(0), 64, dtypes.uint8).allocate() for _ in range(2)]
    for buffer in buffers:
        buffer.copyin(memoryview(given))
    given[:] = bytes(64)
    assert all(buffer.numpy().tolist() == list(range(64)) for buffer in buffers)
    gpu.check(driver.cuMemFreeHost(pinned))


@only_cuda
def test_gpus_with_too_many_peers_copy_through_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygrad.runtime.support.cuda import memory as cuda_memory

    too_many = (cuda_memory.driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,)
    monkeypatch.setattr(cuda_memory.driver, "cuCtxEnablePeerAccess", lambda *_: too_many)
    monkeypatch.setattr(cuda_memory, "_asked", set())
    x = Tensor.arange(8, device=nth(0)).contiguous().realize()
    assert x.to(nth(1)).realize().tolist() == list(range(8))


@only_cuda
def test_a_driver_older_than_the_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygrad.runtime.support.cuda import driver as cuda_driver
    from tinygrad.runtime.support.cuda import program

    device = Device[nth(0)]
    monkeypatch.setattr(program.nvrtc, "version", lambda: (13, 0))
    with pytest.raises(DeviceError, match="INVALID_IMAGE") as shown:
        device.runtime("f", b"no machine code of any kind")
    assert "NVRTC" not in str(shown.value)
    monkeypatch.setattr(cuda_driver.driver, "cuDriverGetVersion", lambda: (0, 12040))
    message = r"NVRTC 13\.0 .* CUDA 12\.4; update .*install 'cuda-bindings\[all\]==12\.\*'"
    with pytest.raises(DeviceError, match=message):
        device.runtime("f", b"no machine code of any kind")


@only_cuda
@pytest.mark.parametrize("are_peers", [True, False])
def test_copies_between_gpus_avoid_the_host_where_they_can(
    monkeypatch: pytest.MonkeyPatch, are_peers: bool
) -> None:
    from tinygrad.runtime.support.cuda import memory as cuda_memory

    through_host: list[str] = []
    copyout = cuda_memory.CudaAllocator.copyout

    def counted(self: Any, destination: memoryview, handle: int) -> None:
        through_host.append(self.device)
        copyout(self, destination, handle)

    if not are_peers:
        monkeypatch.setattr(cuda_memory, "copy_between", lambda *_: False)
    monkeypatch.setattr(cuda_memory.CudaAllocator, "copyout", counted)
    x = (Tensor.arange(1000, device=nth(0)) * 3).contiguous().realize()
    moved = x.to(nth(1)).realize()
    x.assign(x * 0).realize()  # after the copy has read it
    back = (moved + 1).to(nth(0)).realize()
    assert through_host == ([] if are_peers else [nth(0), nth(1)])
    assert back.tolist() == [3 * i + 1 for i in range(1000)]


@only_cuda
def test_kernels_are_timed_by_events() -> None:
    item = (Tensor.arange(1000) + 1).contiguous().schedule()[-1]
    elapsed = item.run(wait=True)
    assert elapsed is not None and 0 < elapsed < 60


@only_cuda
def test_threads_share_gpus() -> None:
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        x = Tensor.full((64,), float(number), device=nth(number % 2)).contiguous()
        for _ in range(5):
            x = (x + 1).realize()
        found[number] = x.tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number + 5.0] * 64 for number in range(4)}


@only_cuda
def test_finalizers_leave_the_context_of_the_thread(several_gpus: None) -> None:
    from tinygrad.runtime.support.cuda.driver import driver

    first, second = (Device[name] for name in device_names(2))
    released = Buffer(nth(0), 64, dtypes.uint8, options=BufferSpec(nolru=True)).allocate()
    runner = (Tensor.arange(37) * 3).contiguous().schedule()[-1].lower()
    unloaded = first.runtime(runner.spec.function, runner.code)
    second.gpu.activate()
    del released, unloaded
    gc.collect()
    _, current = driver.cuCtxGetCurrent()
    assert int(current) == int(second.gpu.context) != int(first.gpu.context)


@only_cuda
def test_an_allocation_that_fails_says_what_holds_the_memory() -> None:
    kept = [Buffer(nth(0), 1234567, dtypes.uint8).allocate() for _ in range(3)]
    with pytest.raises(OutOfMemoryError, match=r"in use there \(buffers by bytes: .*3 of 1234567"):
        Buffer(nth(0), 1 << 50, dtypes.uint8).allocate()
    assert all(buffer.is_allocated() for buffer in kept)
    assert Tensor.ones(8).contiguous().tolist() == [1] * 8


@only_cuda
def test_a_missing_gpu_says_how_many_there_are() -> None:
    with pytest.raises(DeviceError, match=r"no CUDA:4000: this machine has \d+ NVIDIA GPUs"):
        Device["CUDA:4000"]


@only_cuda
def test_logical_devices_share_a_gpu() -> None:
    from tinygrad.runtime.cuda import open_device

    with Context(DEVICES_PER_GPU=4):
        devices = [open_device(f"CUDA:{number}") for number in (0, 3)]
        first, last = (device.allocator for device in devices)
        assert {device.gpu.ordinal for device in devices} == {0}
        assert first.limit() * 4 <= devices[0].gpu.memory()[1]
    a, b = (x.allocate(16) for x in (first, last))
    first.copyin(a.handle, memoryview(bytes(range(16))))
    assert last.copy_from(b.handle, first, a.handle, 16)
    found = bytearray(16)
    last.copyout(memoryview(found), b.handle)
    assert bytes(found) == bytes(range(16))


@only_cuda
def test_an_empty_grid_launches_nothing() -> None:
    runner = (Tensor.arange(1000) + 1).contiguous().schedule()[-1].lower()
    program = runner.program(nth(0))
    buffer = Buffer(nth(0), 1000, dtypes.int32).allocate().copyin(memoryview(bytes(4000)))
    assert program(buffer, launch=LaunchShape(0)) is None
    assert buffer.numpy().sum() == 0


@only_cuda
def test_launches_of_sharded_values_run_on_each_gpu() -> None:
    GlobalCounters.reset()
    x = Tensor.arange(64).shard(device_names(2), 0).contiguous().realize()
    assert ((x + 1).sum().item(), GlobalCounters.kernel_count > 2) == (64 * 65 // 2, True)


# ---- graphs ----


def replay_of(step: TinyJit[Any]) -> Any:
    """The replay that a captured function runs."""
    native = step.captured._native
    assert native is not None
    return native._native


@only_cuda
def test_a_replay_is_a_graph_that_takes_other_inputs_and_sizes() -> None:
    size = Variable("size", 0, 600)

    @TinyJit
    def step(x: Tensor, n: Any) -> tuple[Tensor, Tensor]:
        return (x + 1).sum().realize(), (x[:n] * 2).contiguous().realize()

    graphs = set()
    for i, number in enumerate([600, 5, 300, 2, 600, 1, 0, 7]):
        values = np.arange(600, dtype=np.float32) + i
        total, doubled = step(Tensor(values).realize(), size.bind(number))
        assert total.item() == (values + 1).sum()
        found = Buffer.numpy(doubled.uop.buffer)[:number]
        np.testing.assert_array_equal(found, values[:number] * 2)
        if i >= 2:
            graphs.add(id(replay_of(step)._executable))
    assert replay_of(step)._reason == ""
    assert len(graphs) == 1 and None not in graphs, "made once, then changed"


@only_cuda
def test_a_graph_spans_gpus_and_waits_for_eager_work(capsys: pytest.CaptureFixture[str]) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x.sum(0) + x.max()).contiguous().realize()

    with Context(DEBUG=1):
        for i in range(5):
            values = np.random.default_rng(i).integers(-9, 9, (8, 6)).astype(np.float32)
            x = (Tensor(values).shard(device_names(2), 0) * 2).realize()
            found = (step(x) + 1).numpy()
            np.testing.assert_array_equal(found, values.sum(0) * 2 + values.max() * 2 + 1)
    assert "one by one" not in capsys.readouterr().out


@only_cuda
def test_a_graph_waits_for_a_gpu_that_it_only_reads() -> None:
    to, origin = device_names(2)
    base = Tensor.arange(64, device=origin).realize()
    x = (base + 0).realize()
    step = TinyJit(lambda x: (x.to(to) + 1).realize())
    for i in range(5):
        x.assign(base * i).realize()
        found = step(x)
        x.assign(base * 0).realize()
        Device[origin].synchronize()
        np.testing.assert_array_equal(found.numpy(), np.arange(64) * i + 1)
    assert replay_of(step)._reason == ""


@only_cuda
@pytest.mark.parametrize(
    ("code", "reason"),
    [("NOT_SUPPORTED", "CUDA_ERROR_NOT_SUPPORTED"), ("OUT_OF_MEMORY", "out of memory")],
)
def test_without_graphs_a_replay_launches_one_by_one_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str, reason: str
) -> None:
    from tinygrad.runtime.support.cuda import graph as cuda_graph

    refused = (getattr(cuda_graph.driver.CUresult, f"CUDA_ERROR_{code}"),)
    monkeypatch.setattr(cuda_graph.driver, "cuGraphInstantiate", lambda *_: refused)
    step = TinyJit(lambda x: ((x + 1).sum(0) * 2).realize())
    with Context(DEBUG=1):
        for i in range(4):
            values = np.arange(12, dtype=np.float32).reshape(3, 4) + i
            found = step(Tensor(values).realize()).numpy()
            np.testing.assert_array_equal(found, (values + 1).sum(0) * 2)
    printed = capsys.readouterr().out
    assert printed.count("which run one by one: ") == 1
    assert reason in printed


# ---- links ----


@only_cuda
def test_links_are_those_that_the_driver_reports(
    several_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinygrad.runtime.support.cuda import topology as cuda_topology

    names = device_names(4)
    generation = Device[DEVICE].gpu.attribute("COMPUTE_CAPABILITY_MAJOR")
    reported = {cuda_topology.ACCESS: 1, cuda_topology.ATOMICS: 1}
    monkeypatch.setattr(
        cuda_topology.driver, "cuDeviceGetP2PAttribute", lambda kind, *_: (0, reported[kind])
    )
    nvlink = Device.topology(names)
    assert nvlink.link(*names[:2]).bandwidth == cuda_topology.NVLINK_BANDWIDTH[generation]
    reported[cuda_topology.ATOMICS] = 0
    assert Device.topology(names).link(*names[:2]) == cuda_topology.PCIE
    reported[cuda_topology.ACCESS] = 0
    host = Device.topology(names)
    assert host.link(*names[:2]) == cuda_topology.THROUGH_HOST
    partial = Sharding(names, Partial("ADD"))
    slow, fast = (allreduce_seconds(partial, 1 << 28, topology=x) for x in (host, nvlink))
    assert slow > 10 * fast
    assert 1e11 < nvlink.processor(DEVICE).bandwidth < 1e14
    assert Device.topology(("CPU", "CPU:1")) == Topology()
