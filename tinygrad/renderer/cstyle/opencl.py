"""OpenCL C 1.2."""

from __future__ import annotations

from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.renderer.cstyle.cuda import INFINITY, NAN
from tinygrad.renderer.cstyle.dialect import GPUDialect
from tinygrad.renderer.cstyle.gpu import GPURenderer
from tinygrad.uop import Ops

OPENCL = GPUDialect(
    name="OpenCL",
    types={
        dtypes.bool: "bool",
        dtypes.int8: "char",
        dtypes.uint8: "uchar",
        dtypes.int16: "short",
        dtypes.uint16: "ushort",
        dtypes.int32: "int",
        dtypes.uint32: "uint",
        dtypes.int64: "long",
        dtypes.uint64: "ulong",
        dtypes.index: "long",
        # `half` has pointers only, where there is no cl_khr_fp16
        dtypes.float16: "half_bits",
        dtypes.float32: "float",
        dtypes.float64: "double",
    },
    suffixes={dtypes.uint32: "u", dtypes.int64: "L", dtypes.uint64: "UL", dtypes.float32: "f"},
    functions={Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.MOD: "fmod"},
    float32_suffix="",
    infinity=INFINITY,
    nan=NAN,
    prelude="opencl.cl",
    kernel=(
        "__kernel __attribute__((reqd_work_group_size({threads}, 1, 1))) void {name}({parameters})"
    ),
    pointer="__global {type} *restrict {name}",
    value="{type} {name}",
    struct=(
        "typedef struct {{ {type} lane[{count}]; }} __attribute__((aligned({alignment}))) {name};\n"
    ),
    shared="__local __attribute__((aligned({alignment}))) ",
    spaces={AddrSpace.GLOBAL: "__global ", AddrSpace.LOCAL: "__local "},
)


class OpenCLRenderer(GPURenderer):
    """OpenCL C."""

    dialect = OPENCL
