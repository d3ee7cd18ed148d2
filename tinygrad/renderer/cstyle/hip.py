"""HIP C++ for AMD GPUs, as clang compiles it without any header or library."""

from __future__ import annotations

from tinygrad.renderer.cstyle.cuda import INFINITY, NAN, STRUCT, SUFFIXES, TYPES
from tinygrad.renderer.cstyle.dialect import GPUDialect
from tinygrad.renderer.cstyle.gpu import GPURenderer
from tinygrad.uop import Ops

HIP = GPUDialect(
    name="HIP",
    types=TYPES,
    suffixes=SUFFIXES,
    # instructions; other functions would need AMD's device library
    functions={Ops.SQRT: "__builtin_sqrt", Ops.TRUNC: "__builtin_trunc", Ops.MOD: "remainder_of"},
    infinity=INFINITY,
    nan=NAN,
    helper="__device__ inline",
    prelude="hip.hip",
    kernel='extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters})',
    pointer="{type} *__restrict__ {name}",
    value="{type} {name}",
    struct=STRUCT,
    shared="__shared__ __attribute__((aligned({alignment}))) ",
)


class HIPRenderer(GPURenderer):
    """HIP C++."""

    dialect = HIP
