"""GPUs as targets, by architecture.

Input: the name of an architecture, such as "sm_90a", and the number of multiprocessors.
Output: a `Target` with its limits, dtypes and matrix instructions. A runtime replaces what its
driver knows better.
"""

from __future__ import annotations

import re

from tinygrad.dtype import dtypes
from tinygrad.renderer.matrix_instruction import matrix_instructions
from tinygrad.renderer.target import Target

# shared memory that a block may ask for, in KiB, by compute capability (CUDA C++ Programming
# Guide, technical specifications); those of later ones are the last that is known
SHARED_KIB = {70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 120: 99}
ASYNC_COPY_CAPABILITY = 80
BULK_COPY_CAPABILITY = 90
# threads and blocks of a multiprocessor, and KiB of its shared memory; likewise
UNIT_THREADS = {70: 2048, 75: 1024, 80: 2048, 86: 1536, 90: 2048, 120: 1536}
UNIT_BLOCKS = {70: 32, 75: 16, 80: 32, 86: 16, 89: 24, 90: 32}
UNIT_SHARED_KIB = {70: 96, 75: 64, 80: 164, 86: 100, 87: 164, 89: 100, 90: 228, 120: 100}
UNIT_REGISTERS = 1 << 16
# CUDA reserves shared memory for each block from this compute capability on
RESERVED_BYTES, RESERVED_CAPABILITY = 1 << 10, 80
METAL_BUFFERS = 31
"""Entries of the table of buffer arguments (Metal feature set tables, GPU limits)."""
MAX_BLOCK_THREADS = 1024
"""Threads of a block beyond which there are no more to gain."""


def nvidia_target(architecture: str, units: int = 108) -> Target:
    """An NVIDIA GPU of an architecture, as "sm_80" or "sm_90a", with `units` multiprocessors."""
    number = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    if number is None:
        raise ValueError(f"{architecture!r} is not an architecture as sm_80 or sm_90a")
    capability = int(number[1])

    def known(table: dict[int, int]) -> int:
        return table[max((x for x in table if x <= capability), default=min(table))]

    return Target(
        "cuda",
        architecture,
        vector_bytes=16,
        vector_registers=0,
        warp=32,
        block_threads=1024,
        grid_items=(1 << 31) - 1,
        shared_bytes=known(SHARED_KIB) << 10,
        registers=255,
        unit_threads=known(UNIT_THREADS),
        unit_blocks=known(UNIT_BLOCKS),
        unit_registers=UNIT_REGISTERS,
        unit_shared_bytes=known(UNIT_SHARED_KIB) << 10,
        block_reserved_bytes=RESERVED_BYTES if capability >= RESERVED_CAPABILITY else 0,
        units=units,
        # threads are cheap to start, and hide each other's memory latency
        enough_items=1 << 20,
        parallel_work=1,
        has_async_copy=capability >= ASYNC_COPY_CAPABILITY,
        has_bulk_copy=capability >= BULK_COPY_CAPABILITY,
        matrix=matrix_instructions("cuda", architecture),
    )


def amd_target(architecture: str, units: int = 60) -> Target:
    """An AMD GPU of an architecture, as "gfx942" or "gfx1100", with `units` compute units.

    Those of the CDNA and GCN families, gfx9, have warps of 64 lanes, later ones of 32.
    """
    if re.fullmatch(r"gfx\d+[0-9a-f]{2}", architecture) is None:
        raise ValueError(f"{architecture!r} is not an architecture as gfx942 or gfx1100")
    is_gfx9 = re.fullmatch(r"gfx9[0-9a-f]{2}", architecture) is not None
    return Target(
        "hip",
        architecture,
        vector_registers=0,
        warp=64 if is_gfx9 else 32,
        block_threads=MAX_BLOCK_THREADS,
        grid_items=(1 << 31) // MAX_BLOCK_THREADS,
        shared_bytes=64 << 10,
        registers=256,
        units=units,
        enough_items=1 << 20,
        parallel_work=1,
        matrix=matrix_instructions("hip", architecture),
    )


def apple_target(family: str = "apple7", units: int = 8) -> Target:
    """An Apple GPU. It has no float64."""
    return Target(
        "metal",
        family,
        dtypes=frozenset(dtypes.all) - {dtypes.float64},
        has_subnormals=False,
        vector_registers=0,
        warp=32,
        block_threads=MAX_BLOCK_THREADS,
        grid_items=(1 << 32) // MAX_BLOCK_THREADS,
        max_arguments=METAL_BUFFERS,
        shared_bytes=32 << 10,
        registers=128,
        units=units,
        enough_items=1 << 20,
        parallel_work=1,
        matrix=matrix_instructions("metal", family),
    )


def opencl_target(
    card: str,
    *,
    units: int = 1,
    block_threads: int = 256,
    shared_bytes: int = 32 << 10,
    max_arguments: int = 1024 // 8,
    has_float64: bool = True,
    has_subnormals: bool = True,
) -> Target:
    """An OpenCL device; `card` names it and its driver. Its lanes do not shuffle."""
    lacks = frozenset() if has_float64 else frozenset({dtypes.float64})
    return Target(
        "opencl",
        card,
        dtypes=frozenset(dtypes.all) - lacks,
        has_subnormals=has_subnormals,
        vector_registers=0,
        block_threads=min(block_threads, MAX_BLOCK_THREADS),
        grid_items=(1 << 31) - 1,
        shared_bytes=shared_bytes,
        max_arguments=max_arguments,
        registers=255,
        units=units,
        enough_items=1 << 20,
        parallel_work=1,
    )
