"""C and its dialects: linear programs in, source text out."""

from __future__ import annotations

from tinygrad.renderer.cstyle.cuda import CUDARenderer
from tinygrad.renderer.cstyle.gnu_c import CRenderer

__all__ = ["CRenderer", "CUDARenderer"]
