"""The host CPU as a target."""

from __future__ import annotations

import functools

from tinygrad.renderer.target import Target
from tinygrad.settings import thread_count

AVX512_BYTES, AVX2_BYTES, SSE_BYTES = 64, 32, 16
SCRATCH_BYTES = 1 << 20
SCRATCH_ALIGNMENT = 64


def host_target(
    dialect: str = "llvm", vector_bytes: int | None = None, *, threads: int | None = None
) -> Target:
    """The host CPU, or one with vectors of `vector_bytes` and as many `threads`."""
    return _cpu_target(dialect, vector_bytes or host_vector_bytes(), threads or thread_count())


@functools.cache
def _cpu_target(dialect: str, vector_bytes: int, threads: int) -> Target:
    return Target(
        dialect,
        threads=threads,
        vector_bytes=vector_bytes,
        vector_registers=vector_registers(vector_bytes),
        has_scatter=vector_bytes == AVX512_BYTES,
        shared_bytes=SCRATCH_BYTES,
    )


@functools.cache
def host_vector_bytes() -> int:
    """The width in bytes of this machine's vectors."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if all(features.get(name) for name in ("avx512f", "avx512vl", "avx512bw", "avx512dq")):
        return AVX512_BYTES
    return AVX2_BYTES if features.get("avx2") else SSE_BYTES


def vector_registers(vector_bytes: int) -> int:
    """The number of vector registers of a CPU with vectors of this width."""
    return 32 if vector_bytes == AVX512_BYTES else 16
