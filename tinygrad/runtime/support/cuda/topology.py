"""The links between GPUs and their speed, by the attributes that the driver has of them.

The driver says which GPUs are peers, and which of them may use atomic operations on each other's
memory, as GPUs that NVLink connects do. Bandwidths are those of the data sheets, in one direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from cuda.bindings import driver

from tinygrad.runtime.support.cuda import nccl
from tinygrad.runtime.support.cuda.driver import Gpu
from tinygrad.sharding.topology import Link, Processor, Topology

# by major compute capability: bytes a second of all NVLinks of a GPU, and operations a clock of a
# multiprocessor on matrices of half floats; those of later GPUs are the last that are known
NVLINK_BANDWIDTH = {6: 80e9, 7: 150e9, 8: 300e9, 9: 450e9, 10: 900e9}
MATRIX_OPERATIONS = {6: 256, 7: 1024, 8: 2048, 9: 4096, 10: 8192}
LATENCY_S = 5e-6
PCIE = Link("peer", LATENCY_S, 25e9, is_readable=True)
THROUGH_HOST = Link("host", 2 * LATENCY_S, 12e9)
ACCESS = driver.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
ATOMICS = driver.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED


def read_topology(gpus: Sequence[Gpu]) -> Topology:
    """The topology of some GPUs. The slowest link between two of them counts for all."""
    found = replace(Topology(), host=THROUGH_HOST, accelerator=min(map(processor, gpus)))
    links = [link(a, b) for a, b in itertools.combinations(gpus, 2)]
    if not links:
        return found
    # NCCL wants each GPU once
    has_nccl = len({gpu.ordinal for gpu in gpus}) == len(gpus) and nccl.is_installed()
    found = replace(found, nccl=has_nccl)
    slowest = min(links, key=lambda x: x.bandwidth)
    return replace(found, peer=slowest._replace(is_readable=all(x.is_readable for x in links)))


def link(a: Gpu, b: Gpu) -> Link:
    """The link between two logical devices."""
    if a.ordinal == b.ordinal:
        # a copy reads and writes the memory of one GPU
        return Link("same memory", LATENCY_S, processor(a).bandwidth / 2, is_readable=True)
    if not a.check(driver.cuDeviceGetP2PAttribute(ACCESS, a.device, b.device)):
        return THROUGH_HOST
    if not a.check(driver.cuDeviceGetP2PAttribute(ATOMICS, a.device, b.device)):
        return PCIE
    majors = (gpu.attribute("COMPUTE_CAPABILITY_MAJOR") for gpu in (a, b))
    bandwidth = min(_known(NVLINK_BANDWIDTH, major) for major in majors)
    return Link("peer", LATENCY_S, bandwidth, is_readable=True)


def processor(gpu: Gpu) -> Processor:
    """The speed of a GPU: products of half floats, and its memory."""
    clock_hz = gpu.attribute("CLOCK_RATE") * 1e3
    operations = _known(MATRIX_OPERATIONS, gpu.attribute("COMPUTE_CAPABILITY_MAJOR"))
    bus_bytes = gpu.attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
    # memory transfers twice a clock
    bandwidth = 2 * gpu.attribute("MEMORY_CLOCK_RATE") * 1e3 * bus_bytes
    default = Topology().accelerator
    return Processor(
        gpu.attribute("MULTIPROCESSOR_COUNT") * clock_hz * operations or default.flops,
        bandwidth or default.bandwidth,
    )


def _known(table: dict[int, float] | dict[int, int], major: int) -> float:
    """The entry of a generation, or of the nearest one before it."""
    return table[max((x for x in table if x <= major), default=min(table))]
