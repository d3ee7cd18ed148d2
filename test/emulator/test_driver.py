"""The emulated driver: late copies, streams, graphs, limits."""

from __future__ import annotations

import ctypes
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.emulator import emulated_cuda, kernels
from test.emulator.kernel_text import compile_kernel

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
CallError, EmulatedDevice, check = (
    cuda_calls.CallError,
    cuda_calls.EmulatedDevice,
    cuda_calls.check,
)
from cuda.bindings import driver  # noqa: E402

pytestmark = pytest.mark.slow

ONES = np.ones(64, np.float32)


def pinned(array: np.ndarray) -> np.ndarray:
    """A copy of an array in pinned memory."""
    address = int(check(driver.cuMemHostAlloc(array.nbytes, 0)))
    memory = (ctypes.c_char * array.nbytes).from_address(address)
    copied = np.frombuffer(memory, array.dtype).reshape(array.shape)
    copied[:] = array
    return copied


def test_copies_of_pinned_memory_are_late(gpu: EmulatedDevice) -> None:
    host, back = pinned(ONES), pinned(0 * ONES)
    address = gpu.empty(host.nbytes)
    check(driver.cuMemcpyHtoDAsync(address, host.ctypes.data, host.nbytes, gpu.stream))
    check(driver.cuMemcpyDtoHAsync(back.ctypes.data, address, back.nbytes, gpu.stream))
    assert (back == 0).all()
    host[:] = 2
    gpu.synchronize()
    assert (back == 2).all()


def test_copies_of_pageable_memory_are_staged(gpu: EmulatedDevice) -> None:
    host = ONES.copy()
    address = gpu.empty(host.nbytes)
    check(driver.cuMemcpyHtoDAsync(address, host.ctypes.data, host.nbytes, gpu.stream))
    host[:] = 2
    check(driver.cuMemcpyDtoHAsync(host.ctypes.data, address, host.nbytes, gpu.stream))
    assert (host == 1).all()


def copy_and_double(gpu: EmulatedDevice, waits: bool, overwrites: bool) -> np.ndarray:
    """A copy on one stream and a kernel on another, which `waits` for it, or is waited for."""
    host, other = pinned(ONES), pinned(5 * ONES)
    copies, event = gpu.new_stream(), check(driver.cuEventCreate(0))
    source, target = gpu.upload(0 * ONES), gpu.upload(0 * ONES)
    kernel = gpu.load(kernels.DOUBLE, "double_it")
    check(driver.cuMemcpyHtoDAsync(source, host.ctypes.data, host.nbytes, copies))
    if waits or overwrites:
        check(driver.cuEventRecord(event, copies))
        check(driver.cuStreamWaitEvent(gpu.stream, event, 0))
    gpu.launch(kernel, 1, 64, target, source, 64)
    if overwrites:
        if waits:
            check(driver.cuEventRecord(event, gpu.stream))
            check(driver.cuStreamWaitEvent(copies, event, 0))
        check(driver.cuMemcpyHtoDAsync(source, other.ctypes.data, other.nbytes, copies))
    gpu.synchronize()
    return gpu.download(target, ONES)


@pytest.mark.parametrize("overwrites", [False, True], ids=["read", "overwrite"])
def test_a_missing_wait_between_streams_shows_in_one_order(
    gpu: EmulatedDevice, overwrites: bool
) -> None:
    right = []
    for is_backwards in (False, True):
        with emulated_cuda.order(is_backwards):
            assert (copy_and_double(gpu, True, overwrites) == 2).all()
            right.append((copy_and_double(gpu, False, overwrites) == 2).all())
    assert sorted(right) == [False, True]


@pytest.mark.usefixtures("both_orders")
@pytest.mark.parametrize("count", [3, 24])
def test_streams_that_wait_for_each_other_in_turn(gpu: EmulatedDevice, count: int) -> None:
    """A stream is awaited in the middle of its work by one that a third waits for.

    Trying every order in which the streams may go on would never end for many of them.
    """
    streams = [gpu.new_stream() for _ in range(count)]
    events = [check(driver.cuEventCreate(0)) for _ in streams]
    value, others = gpu.upload(ONES), [gpu.upload(ONES) for _ in streams]
    kernel = gpu.load(kernels.DOUBLE, "double_it")
    for number in range(9):
        gpu.launch(kernel, 1, 64, value, value, 64, stream=streams[number % 3])
        for stream, event, other in zip(streams, events, others, strict=True):
            gpu.launch(kernel, 1, 64, other, other, 64, stream=stream)
            check(driver.cuEventRecord(event, stream))
        for stream in streams:
            for event in events:
                check(driver.cuStreamWaitEvent(stream, event, 0))
    check(driver.cuStreamSynchronize(streams[2]))
    for address in (value, *others):
        assert (gpu.download(address, ONES) == 512).all()


def test_events_have_times_and_can_be_polled(gpu: EmulatedDevice) -> None:
    start, end = check(driver.cuEventCreate(0)), check(driver.cuEventCreate(0))
    check(driver.cuEventRecord(start, gpu.stream))
    gpu.launch(gpu.load(kernels.DOUBLE, "double_it"), 1, 64, *2 * [gpu.upload(ONES)], 64)
    check(driver.cuEventRecord(end, gpu.stream))
    with pytest.raises(CallError, match="NOT_READY"):
        check(driver.cuEventElapsedTime(start, end))
    polls = 0
    while driver.cuEventQuery(end)[0].value:
        polls += 1
    assert 1 < polls < 10
    assert check(driver.cuEventElapsedTime(start, end)) > 0


class GraphNode:
    """The parameters of a node that launches `double_it` on 64 floats."""

    def __init__(self, kernel: Any, target: int, source: int) -> None:
        self.values = [ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_int64(64)]
        self.pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in self.values])
        self.parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        self.parameters.func = kernel
        for side in ("gridDimX", "gridDimY", "gridDimZ", "blockDimY", "blockDimZ"):
            setattr(self.parameters, side, 1)
        self.parameters.blockDimX = 64
        self.parameters.kernelParams = ctypes.addressof(self.pointers)


def test_events_are_of_one_device_and_have_the_times_asked_for(
    gpus: tuple[EmulatedDevice, EmulatedDevice],
) -> None:
    gpu, other = gpus
    event = check(driver.cuEventCreate(0))
    with pytest.raises(CallError, match="an event of device 6 is recorded on .* of device 7"):
        check(driver.cuEventRecord(event, other.stream))
    check(driver.cuEventRecord(event, gpu.stream))
    # another device may wait for it
    check(driver.cuStreamWaitEvent(other.stream, event, 0))
    gpu.synchronize()
    untimed = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    check(driver.cuEventRecord(untimed, gpu.stream))
    gpu.synchronize()
    with pytest.raises(CallError, match="INVALID_HANDLE\na time is asked for"):
        check(driver.cuEventElapsedTime(event, untimed))
    check(driver.cuEventDestroy(event))
    with pytest.raises(CallError, match="an event is used that was destroyed"):
        check(driver.cuEventRecord(event, gpu.stream))


def test_what_work_uses_is_kept_until_it_is_done(gpu: EmulatedDevice) -> None:
    host, address = pinned(ONES), gpu.empty(ONES.nbytes)
    check(driver.cuMemcpyHtoDAsync(address, host.ctypes.data, host.nbytes, gpu.stream))
    check(driver.cuMemFreeHost(host.ctypes.data))
    with pytest.raises(CallError, match="uses memory that was freed before it ran"):
        gpu.synchronize()
    gpu.reset()
    module = check(driver.cuModuleLoadData(compile_kernel(kernels.DOUBLE)))
    kernel = check(driver.cuModuleGetFunction(module, b"double_it"))
    gpu.launch(kernel, 1, 64, *2 * [gpu.upload(ONES)], 64)
    check(driver.cuModuleUnload(module))
    with pytest.raises(CallError, match="double_it .*: its module was unloaded before it ran"):
        gpu.synchronize()


def test_memory_is_freed_after_the_work_of_its_device_alone(
    gpus: tuple[EmulatedDevice, EmulatedDevice],
) -> None:
    gpu, other = gpus
    here, there = gpu.upload(ONES), other.upload(ONES)
    arguments = (here, gpu.context, there, other.context, ONES.nbytes)
    gpu.activate()
    check(driver.cuMemcpyPeerAsync(*arguments, gpu.stream))
    check(driver.cuMemFree(there))
    with pytest.raises(CallError, match="uses memory that was freed before it ran"):
        gpu.synchronize()


def test_nodes_of_a_graph_stay_on_their_devices(
    gpus: tuple[EmulatedDevice, EmulatedDevice],
) -> None:
    gpu, other = gpus
    check(driver.cuCtxEnablePeerAccess(other.context, 0))
    here, there = gpu.upload(ONES), other.upload(ONES)
    gpu.activate()
    copy = driver.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
    copy.srcDevice = copy.dstDevice = here
    copy.WidthInBytes, copy.Height, copy.Depth = ONES.nbytes, 1, 1
    graph = check(driver.cuGraphCreate(0))
    node = check(driver.cuGraphAddMemcpyNode(graph, None, 0, copy, gpu.context))
    executable = check(driver.cuGraphInstantiate(graph, 0))
    copy.srcDevice = there
    with pytest.raises(CallError, match="is changed to another device"):
        check(driver.cuGraphExecMemcpyNodeSetParams(executable, node, copy, gpu.context))
    copy.WidthInBytes = 0
    with pytest.raises(CallError, match="a node of a graph copies nothing"):
        check(driver.cuGraphAddMemcpyNode(graph, None, 0, copy, gpu.context))


def test_graphs_keep_dependencies_and_take_new_parameters(gpu: EmulatedDevice) -> None:
    kernel = gpu.load(kernels.DOUBLE, "double_it")
    source, middle, target = gpu.upload(ONES), gpu.upload(0 * ONES), gpu.upload(0 * ONES)

    def build(depends: bool) -> tuple[Any, list[Any]]:
        graph = check(driver.cuGraphCreate(0))
        first = GraphNode(kernel, middle, source)
        one = check(driver.cuGraphAddKernelNode(graph, None, 0, first.parameters))
        second = GraphNode(kernel, target, middle)
        after = ([one], 1) if depends else (None, 0)
        two = check(driver.cuGraphAddKernelNode(graph, *after, second.parameters))
        return check(driver.cuGraphInstantiate(graph, 0)), [one, two]

    found = {}
    for depends in (True, False):
        for is_backwards in (False, True):
            with emulated_cuda.order(is_backwards):
                check(driver.cuMemsetD8(middle, 0, ONES.nbytes))
                check(driver.cuGraphLaunch(build(depends)[0], gpu.stream))
                gpu.synchronize()
            found[depends, is_backwards] = gpu.download(target, ONES)[0]
    assert found == {
        (True, False): 4,
        (True, True): 4,
        (False, False): 4,
        (False, True): 0,
    }
    executable, nodes = build(True)
    third = gpu.upload(3 * ONES)
    changed = GraphNode(kernel, middle, third)
    check(driver.cuGraphLaunch(executable, gpu.stream))
    check(driver.cuGraphExecKernelNodeSetParams(executable, nodes[0], changed.parameters))
    gpu.synchronize()
    assert gpu.download(target, ONES)[0] == 4
    check(driver.cuGraphLaunch(executable, gpu.stream))
    gpu.synchronize()
    assert gpu.download(target, ONES)[0] == 12


def test_launches_are_limited_as_on_hardware(gpu: EmulatedDevice) -> None:
    kernel = gpu.load(kernels.ROW_SUM, "row_sum")
    big = gpu.load(
        'extern "C" __global__ void big(float *o) { extern __shared__ float s[]; }', "big"
    )
    address = gpu.upload(ONES)
    with pytest.raises(
        CallError, match="kernel row_sum: 512 threads are more than its launch bounds"
    ):
        gpu.launch(kernel, 1, 512, address, address, 1)
    for grid, threads, shared in (((1,), 1025, 0), ((1, 65536), 1, 0), ((1,), 1, 49153)):
        with pytest.raises(CallError, match="kernel big: no device launches"):
            gpu.launch(big, grid, threads, address, shared=shared)
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    check(driver.cuFuncSetAttribute(big, attribute, 49153))
    gpu.launch(big, 1, 1, address, shared=49153)
    gpu.synchronize()
    with pytest.raises(CallError, match="INVALID_VALUE"):
        check(driver.cuFuncSetAttribute(big, attribute, 232449))


def test_modules_that_are_not_used_take_no_mappings(gpu: EmulatedDevice) -> None:
    source, target = gpu.upload(ONES), gpu.upload(0 * ONES)
    first = gpu.load(kernels.DOUBLE, "double_it")
    image = compile_kernel(kernels.DOUBLE)

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("emulated-kernel")

    modules = [check(driver.cuModuleLoadData(image)) for _ in range(2200)]
    assert mappings() < 2100 * 5
    gpu.launch(first, 1, 64, target, source, 64)
    gpu.synchronize()
    assert (gpu.download(target, ONES) == 2).all()
    for module in modules:
        check(driver.cuModuleUnload(module))
    assert mappings() < 1000


def test_memory_is_limited_and_counted(gpu: EmulatedDevice) -> None:
    free, total = check(driver.cuMemGetInfo())
    address = gpu.empty(1000)
    assert check(driver.cuMemGetInfo()) == (free - 1000, total)
    emulated_cuda.set_memory_limit(gpu.number, total - free + 2000)
    try:
        with pytest.raises(CallError, match="OUT_OF_MEMORY"):
            gpu.empty(1001)
        check(driver.cuMemFree(address))
        gpu.empty(2000)
    finally:
        emulated_cuda.set_memory_limit(gpu.number, total)


def test_copies_stay_within_memory_and_between_peers(
    gpus: tuple[EmulatedDevice, EmulatedDevice],
) -> None:
    gpu, other = gpus
    here, there = gpu.upload(ONES), other.upload(2 * ONES)
    gpu.activate()
    with pytest.raises(CallError, match="a copy of 257 bytes is not within an allocation"):
        check(driver.cuMemcpyDtoD(here, here, 257))
    with pytest.raises(CallError, match="uses memory of device 7 without access to its peer"):
        check(driver.cuMemcpyDtoDAsync(here, there, 256, gpu.stream))
    peer = (here, gpu.context, there, other.context, 256)
    check(driver.cuMemcpyPeerAsync(*peer, gpu.stream))
    gpu.synchronize()
    assert (gpu.download(here, ONES) == 2).all()
    with emulated_cuda.no_peers():
        assert check(driver.cuDeviceCanAccessPeer(gpu.number, other.number)) == 0
        with pytest.raises(CallError, match="PEER_ACCESS_UNSUPPORTED"):
            check(driver.cuCtxEnablePeerAccess(other.context, 0))
    check(driver.cuCtxEnablePeerAccess(other.context, 0))
    check(driver.cuMemcpyDtoDAsync(here, there, 256, gpu.stream))
    gpu.synchronize()


def test_a_forked_process_cannot_use_the_driver(gpu: EmulatedDevice) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks in processes with threads
        child = os.fork()
    if not child:
        os._exit(driver.cuMemAlloc(64)[0].value)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
