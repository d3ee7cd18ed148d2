"""Renderers: linear programs in, source text out, one renderer for each target language.

The interface of a renderer and the form of a linear program are in `tinygrad.renderer.base`.
"""

from __future__ import annotations

import functools

from tinygrad.renderer.base import (
    Estimates,
    ProgramSpec,
    Renderer,
    is_vectorized,
    memory_dtype,
    parameters,
    pointer_of,
)
from tinygrad.renderer.cstyle import (
    CRenderer,
    CUDARenderer,
    HIPRenderer,
    MetalRenderer,
    OpenCLRenderer,
)
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.renderer.target import LaunchShape, Target

__all__ = [
    "RENDERERS",
    "Estimates",
    "LaunchShape",
    "ProgramSpec",
    "Renderer",
    "Target",
    "find_renderer",
    "is_vectorized",
    "memory_dtype",
    "parameters",
    "pointer_of",
]

RENDERERS: dict[str, type[Renderer]] = {
    "llvm": LLVMRenderer,
    "c": CRenderer,
    "cuda": CUDARenderer,
    "hip": HIPRenderer,
    "opencl": OpenCLRenderer,
    "metal": MetalRenderer,
}


@functools.cache
def find_renderer(target: Target) -> Renderer:
    """The renderer of a target's dialect.

    Equal targets give the same object, so a cache of kernels may use the renderer as a key.
    Raises ValueError for an unknown dialect.
    """
    if target.dialect not in RENDERERS:
        known = ", ".join(RENDERERS)
        raise ValueError(f"there is no renderer called {target.dialect!r}; known are {known}")
    return RENDERERS[target.dialect](target)
