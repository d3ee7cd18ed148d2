"""The Metal Shading Language for Apple's GPUs."""

from __future__ import annotations

from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.renderer.cstyle.dialect import GPUDialect
from tinygrad.renderer.cstyle.gpu import GPURenderer
from tinygrad.uop import Ops

METAL = GPUDialect(
    name="Metal",
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
        dtypes.float16: "half",
        dtypes.bfloat16: "bfloat",
        dtypes.float32: "float",
    },
    suffixes={dtypes.uint32: "u", dtypes.int64: "L", dtypes.uint64: "UL", dtypes.float32: "f"},
    functions={Ops.SQRT: "precise::sqrt", Ops.TRUNC: "trunc"},
    float32_suffix="",
    infinity={dtypes.float32: "INFINITY"},
    nan={dtypes.float32: "NAN"},
    prelude="metal.metal",
    header="#include <metal_stdlib>\nusing namespace metal;\n",
    # else the pipeline of a kernel with many registers allows fewer threads than its block has
    kernel=("[[max_total_threads_per_threadgroup({threads})]] kernel void {name}({parameters})"),
    pointer="device {type} *{name} [[buffer({number})]]",
    value="constant {type} &{name} [[buffer({number})]]",
    own_parameters=(
        "uint block_number [[threadgroup_position_in_grid]]",
        "uint thread_number [[thread_position_in_threadgroup]]",
    ),
    block_number="block_number",
    thread_number="thread_number",
    struct="struct alignas({alignment}) {name} {{ {type} lane[{count}]; }};\n",
    shared="alignas({alignment}) threadgroup ",
    spaces={
        AddrSpace.GLOBAL: "device ",
        AddrSpace.LOCAL: "threadgroup ",
        AddrSpace.REG: "thread ",
    },
)


class MetalRenderer(GPURenderer):
    """The Metal Shading Language."""

    dialect = METAL
