"""CUDA: kernels compiled by NVRTC for the architecture of the GPU, launched by NVIDIA's driver.

`CUDA` is the first GPU, `CUDA:1` the second; DEVICES_PER_GPU maps several devices to each. Nothing
waits for a kernel but the reader of its result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cuda.bindings import driver

from tinygrad.device import Compiled, DeviceError
from tinygrad.dtype import dtypes
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.target import Target
from tinygrad.runtime.support.cuda import nvrtc
from tinygrad.runtime.support.cuda.driver import Gpu, check, start_driver
from tinygrad.runtime.support.cuda.graph import CudaReplay, all_reduce
from tinygrad.runtime.support.cuda.memory import CudaAllocator, read_peers
from tinygrad.runtime.support.cuda.program import CudaProgram
from tinygrad.runtime.support.cuda.topology import read_topology
from tinygrad.settings import DEVICES_PER_GPU
from tinygrad.sharding import Topology
from tinygrad.uop.args import Reduction

ARCHITECTURE_SPECIFIC_FROM = 9
"""The major compute capability from which "sm_90a" has instructions that "sm_90" lacks."""


class CudaDevice(Compiled):
    """An open GPU."""

    def __init__(self, name: str, gpu: Gpu, target: Target) -> None:
        super().__init__(
            name,
            CudaAllocator(gpu, max(DEVICES_PER_GPU.value, 1)),
            target=target,
            compiler=lambda source, _: nvrtc.compile_cuda(source, target.architecture),
            runtime=lambda function, code: CudaProgram(gpu, function, code),
            replay=CudaReplay,
            dtypes=frozenset(dtypes.all),
        )
        self.gpu = gpu

    def describe(self) -> str:
        target, (free, total) = self.target, self.gpu.memory()
        return (
            f"{self.gpu.model()}, {target.architecture}, {target.units} multiprocessors, "
            f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        )

    @contextlib.contextmanager
    def reading_memory_of(self, others: Sequence[Compiled]) -> Iterator[None]:
        gpus = [other.gpu for other in others if isinstance(other, CudaDevice)]
        with read_peers(self.gpu, gpus):
            yield

    def all_reduce(self, pairs: Sequence[tuple[Any, Any]], reduction: Reduction) -> None:
        places = [(x.address, y.address) for x, y in pairs]
        all_reduce(pairs, places, reduction)

    def synchronize(self) -> None:
        self.gpu.synchronize()


def device_count() -> int:
    """The number of logical devices. Raises DeviceError without NVIDIA's driver."""
    start_driver("CUDA")
    return int(check(driver.cuDeviceGetCount())) * max(DEVICES_PER_GPU.value, 1)


def topology(devices: Sequence[CudaDevice]) -> Topology:
    """The links between open GPUs."""
    return read_topology([device.gpu for device in devices])


def open_device(name: str) -> Compiled:
    """Opens a GPU. Raises DeviceError if there is none of this number."""
    start_driver(name)
    number, count = int(name.partition(":")[2] or 0), device_count()
    per_gpu = max(DEVICES_PER_GPU.value, 1)
    if number >= count:
        each = f" of {per_gpu} devices each" if per_gpu > 1 else ""
        raise DeviceError(
            f"there is no {name}: this machine has {count // per_gpu} NVIDIA GPUs{each}; "
            "DEVICES_PER_GPU maps several devices to each"
        )
    gpu = Gpu(name, number // per_gpu)
    return CudaDevice(name, gpu, _target(gpu))


def _target(gpu: Gpu) -> Target:
    major = gpu.attribute("COMPUTE_CAPABILITY_MAJOR")
    minor = gpu.attribute("COMPUTE_CAPABILITY_MINOR")
    suffix = "a" if major >= ARCHITECTURE_SPECIFIC_FROM else ""
    return replace(
        nvidia_target(f"sm_{major}{minor}{suffix}"),
        units=gpu.attribute("MULTIPROCESSOR_COUNT"),
        warp=gpu.attribute("WARP_SIZE"),
        block_threads=gpu.attribute("MAX_THREADS_PER_BLOCK"),
        grid_items=gpu.attribute("MAX_GRID_DIM_X"),
        shared_bytes=gpu.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )
