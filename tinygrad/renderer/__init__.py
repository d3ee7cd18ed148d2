"""Kernels as source text: the renderers, found by the name that a device gives.

What a renderer is given and what it must say of itself is in `tinygrad.renderer.base`.
"""

from __future__ import annotations

import functools

from tinygrad.renderer.base import Estimates, Program, Renderer, parameters
from tinygrad.renderer.cstyle import CRenderer, CUDARenderer
from tinygrad.renderer.llvm import LLVMRenderer

__all__ = ["RENDERERS", "Estimates", "Program", "Renderer", "find_renderer", "parameters"]

RENDERERS: dict[str, type[Renderer]] = {
    "llvm": LLVMRenderer,
    "c": CRenderer,
    "cuda": CUDARenderer,
}


@functools.cache
def find_renderer(name: str) -> Renderer:
    """The renderer that a device calls by `name`. Raises ValueError for a name nothing answers
    to."""
    if name not in RENDERERS:
        raise ValueError(f"there is no renderer called {name!r}; there are {', '.join(RENDERERS)}")
    return RENDERERS[name]()
