"""The host CPU as a target."""

from __future__ import annotations

import ctypes
import functools
import platform
from dataclasses import dataclass

from tinygrad.device import DeviceError
from tinygrad.renderer.matrix_instruction import CPU_FEATURES, MatrixInstruction
from tinygrad.renderer.target import Target
from tinygrad.settings import CPU_ARCH, thread_count

AVX512_BYTES, AVX2_BYTES, SSE_BYTES = 64, 32, 16
LEVELS = {"x86-64-v2": SSE_BYTES, "x86-64-v3": AVX2_BYTES, "x86-64-v4": AVX512_BYTES}
"""The vectors of the levels of x86-64, in bytes."""
MASKED_ITEMSIZES = {SSE_BYTES: SSE_BYTES, AVX2_BYTES: 4, AVX512_BYTES: 1}
"""The smallest lanes that vectors of a width mask. SSE has no masks, so every lane is too small."""
# Linux for x86-64: asks that the process may use the tile registers of AMX
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
SCRATCH_BYTES = 1 << 21
SCRATCH_ALIGNMENT = 64


def host_target(
    dialect: str = "llvm", vector_bytes: int | None = None, *, threads: int | None = None
) -> Target:
    """The host CPU, or one with vectors of `vector_bytes` and as many `threads`."""
    return _cpu_target(dialect, vector_bytes or host_cpu().vector_bytes, threads or thread_count())


@functools.cache
def _cpu_target(dialect: str, vector_bytes: int, threads: int) -> Target:
    is_native = dialect == "llvm" and vector_bytes == host_cpu().vector_bytes
    return Target(
        dialect,
        matrix=host_matrix_instructions() if is_native else (),
        threads=threads,
        vector_bytes=vector_bytes,
        vector_registers=vector_registers(vector_bytes),
        has_broadcast=vector_bytes == AVX512_BYTES,
        min_masked_itemsize=MASKED_ITEMSIZES[vector_bytes],
        has_scatter=vector_bytes == AVX512_BYTES,
        shared_bytes=SCRATCH_BYTES,
    )


@dataclass(frozen=True)
class CPU:
    """A processor as LLVM names it. The name alone says what one of `LEVELS` can do."""

    name: str
    features: str
    vector_bytes: int


@functools.cache
def host_cpu() -> CPU:
    """The CPU that kernels are compiled for: this machine's, or less of it as CPU_ARCH says.

    Raises DeviceError if this machine cannot run code for CPU_ARCH.
    """
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx"):
        # its instructions have no form for wide vectors; mixed with these, each takes a hundred
        # cycles or more
        features["sse4a"] = False
    if all(features.get(name) for name in ("avx512f", "avx512vl", "avx512bw", "avx512dq")):
        vector_bytes = AVX512_BYTES
    else:
        vector_bytes = AVX2_BYTES if features.get("avx2") else SSE_BYTES
    level = CPU_ARCH.value
    if not level:
        return CPU(llvm.get_host_cpu_name(), features.flatten(), vector_bytes)
    if not llvm.get_process_triple().startswith("x86_64") or LEVELS[level] > vector_bytes:
        name = llvm.get_host_cpu_name()
        raise DeviceError(
            f"CPU_ARCH={level} is more than this machine's {name} has; leave it empty"
        )
    return CPU(level, "", LEVELS[level])


@functools.cache
def host_matrix_instructions() -> tuple[MatrixInstruction, ...]:
    """The matrix instructions of this machine that LLVM compiles for, the preferred ones first. The
    levels of CPU_ARCH have none.
    """
    features = host_cpu().features.split(",")
    known = {x[1:] for x in features if x.startswith("+")}
    found = [x for needed, x in CPU_FEATURES if needed <= known]
    if any(x.is_tile for x in found) and not _may_use_tiles():
        found = [x for x in found if not x.is_tile]
    return tuple(found)


def _may_use_tiles() -> bool:
    """Whether Linux lets this process, all of its threads, use tile registers: once asked, it
    saves their 8 KB with the state of a thread that uses them.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return not ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


def vector_registers(vector_bytes: int) -> int:
    """The number of vector registers of a CPU with vectors of this width."""
    return 32 if vector_bytes == AVX512_BYTES else 16
