"""CUDA C++ for NVIDIA GPUs."""

from __future__ import annotations

from typing import ClassVar

from tinygrad.renderer.cstyle.renderer import OPERATORS, CStyleRenderer, Parameters
from tinygrad.renderer.cstyle.writer import CWriter
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# the headers that declare these do not come with nvrtc
CUDA_PRELUDE = """\
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_fmod(x, y) fmod(x, y)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)
"""


class CUDARenderer(CStyleRenderer):
    """CUDA C++. A thread runs one work item; there are no vectors."""

    name = "cuda"
    functions: ClassVar[dict[Ops, str]] = {
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
    }
    operations = OPERATORS.union(functions)

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        size, first = w.names[u.src[0]], ""
        if w.grid_loops > 1:
            first = f" - {w.names[u.src[1]]}"
        w.emit(f"long long {name} = (long long)blockIdx.x * blockDim.x + threadIdx.x{first};")
        w.open_block(f"if (0 <= {name} && {name} < {size})")

    def render_kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        takes = [f"{kind} *__restrict__ {x}" for kind, x in declared.pointers]
        takes += [f"{kind} {x}" for kind, x in declared.values]
        library = w.vectors.text.replace("static inline", "static __device__ inline")
        head = f'extern "C" __global__ void {name}({", ".join(takes)})'
        text = f"{CUDA_PRELUDE}{library}{head} {{\n{w.body}}}\n"
        return text.replace("_Bool", "bool").replace("#pragma GCC unroll", "#pragma unroll")
