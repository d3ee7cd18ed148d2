"""C and its dialects: linear programs in, source text out.

renderer.py            what C and all dialects share
dialect.py             the names of a dialect
types.py, values.py    types; expressions of scalars
writer.py              the text of one function under construction
helpers.py             operations that C lacks, as functions of one kernel

gnu_c.py               GNU C, for the CPU
vectors.py                 its vector types
vector_values.py           expressions of these

gpu.py                 what the dialects for GPUs share
cuda.py, hip.py,           the dialects
    metal.py, opencl.py
prelude.py                 the functions that kernels are written with
lanes.py                   vectors, written lane by lane
warp.py                    matrix instructions and asynchronous copies
"""

from __future__ import annotations

from tinygrad.renderer.cstyle.cuda import CUDARenderer
from tinygrad.renderer.cstyle.gnu_c import CRenderer
from tinygrad.renderer.cstyle.hip import HIPRenderer
from tinygrad.renderer.cstyle.metal import MetalRenderer
from tinygrad.renderer.cstyle.opencl import OpenCLRenderer

__all__ = ["CRenderer", "CUDARenderer", "HIPRenderer", "MetalRenderer", "OpenCLRenderer"]
