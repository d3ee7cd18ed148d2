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
    parameters,
    pointer_of,
)
from tinygrad.renderer.cstyle import CRenderer, CUDARenderer
from tinygrad.renderer.llvm import LLVMRenderer

__all__ = [
    "RENDERERS",
    "Estimates",
    "ProgramSpec",
    "Renderer",
    "find_renderer",
    "is_vectorized",
    "parameters",
    "pointer_of",
]

RENDERERS: dict[str, type[Renderer]] = {
    "llvm": LLVMRenderer,
    "c": CRenderer,
    "cuda": CUDARenderer,
}


@functools.cache
def find_renderer(name: str, threads: int) -> Renderer:
    """The renderer called `name`, for a device whose `threads` share the grid of a kernel.

    Equal arguments give the same object, so a cache of kernels may use the renderer as a key.
    Raises ValueError for an unknown name.
    """
    if name not in RENDERERS:
        raise ValueError(f"there is no renderer called {name!r}; known are {', '.join(RENDERERS)}")
    return RENDERERS[name](threads=threads)
