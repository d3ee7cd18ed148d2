"""C and its dialects: linear programs in, source text out."""

from __future__ import annotations

from tinygrad.renderer.cstyle.cuda import CUDARenderer
from tinygrad.renderer.cstyle.gnu_c import CRenderer
from tinygrad.renderer.cstyle.hip import HIPRenderer
from tinygrad.renderer.cstyle.metal import MetalRenderer
from tinygrad.renderer.cstyle.opencl import OpenCLRenderer

__all__ = ["CRenderer", "CUDARenderer", "HIPRenderer", "MetalRenderer", "OpenCLRenderer"]
