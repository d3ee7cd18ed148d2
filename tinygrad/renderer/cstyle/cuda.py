"""CUDA C++ for NVIDIA GPUs, as NVRTC compiles it without any header."""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.renderer.cstyle.dialect import GPUDialect
from tinygrad.renderer.cstyle.gpu import GPURenderer
from tinygrad.uop import Ops

TYPES = {
    dtypes.bool: "bool",
    dtypes.int8: "signed char",
    dtypes.uint8: "unsigned char",
    dtypes.int16: "short",
    dtypes.uint16: "unsigned short",
    dtypes.int32: "int",
    dtypes.uint32: "unsigned int",
    dtypes.int64: "long long",
    dtypes.uint64: "unsigned long long",
    dtypes.index: "long long",
    dtypes.float16: "half",
    dtypes.bfloat16: "bfloat16",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
SUFFIXES = {dtypes.uint32: "u", dtypes.int64: "ll", dtypes.uint64: "ull", dtypes.float32: "f"}
INFINITY = {dtypes.float32: "INFINITY", dtypes.float64: "(double)INFINITY"}
NAN = {dtypes.float32: "NAN", dtypes.float64: "(double)NAN"}
STRUCT = "struct alignas({alignment}) {name} {{ {type} lane[{count}]; }};\n"

CUDA = GPUDialect(
    name="CUDA",
    types=TYPES,
    suffixes=SUFFIXES,
    functions={
        Ops.SQRT: "sqrt",
        Ops.EXP2: "exp2",
        Ops.EXP: "exp",
        Ops.EXPM1: "expm1",
        Ops.LOG2: "log2",
        Ops.LOG: "log",
        Ops.LOG1P: "log1p",
        Ops.SIN: "sin",
        Ops.COS: "cos",
        Ops.TRUNC: "trunc",
        Ops.MOD: "fmod",
    },
    infinity=INFINITY,
    nan=NAN,
    helper="__device__ inline",
    prelude="cuda.cu",
    kernel='extern "C" __global__ void {cluster}__launch_bounds__({threads}) {name}({parameters})',
    cluster="__cluster_dims__({blocks}, 1, 1) ",
    few_blocks=", 1",
    pointer="{type} *__restrict__ {name}",
    value="{type} {name}",
    tensor_map="const __grid_constant__ TensorMap {name}",
    struct=STRUCT,
    shared="__shared__ __align__({alignment}) ",
    static_shared_bytes=48 << 10,
)


class CUDARenderer(GPURenderer):
    """CUDA C++."""

    dialect = CUDA
