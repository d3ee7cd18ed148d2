"""Properties of the host CPU that the renderers for it share."""

from __future__ import annotations

import functools

AVX512_BYTES, AVX2_BYTES, SSE_BYTES = 64, 32, 16
SCRATCH_BYTES = 1 << 20
SCRATCH_ALIGNMENT = 64


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
