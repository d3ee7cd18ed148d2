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
    tensor_maps,
)
from tinygrad.renderer.target import LaunchShape, Target

__all__ = [
    "DIALECTS",
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
    "tensor_maps",
]

DIALECTS = ("llvm", "c", "cuda", "hip", "opencl", "metal")
"""The names of the renderers."""


@functools.cache
def find_renderer(target: Target) -> Renderer:
    """The renderer of a target's dialect.

    Equal targets give the same object, so a cache of kernels may use the renderer as a key.
    Raises ValueError for an unknown dialect.
    """
    if target.dialect not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise ValueError(f"there is no renderer called {target.dialect!r}; known are {known}")
    return _load(target.dialect)(target)


def _load(dialect: str) -> type[Renderer]:
    """The class of a renderer, which is imported here: programs use one or two of them."""
    if dialect == "llvm":
        from tinygrad.renderer.llvm import LLVMRenderer

        return LLVMRenderer
    from tinygrad.renderer import cstyle

    return {
        "c": cstyle.CRenderer,
        "cuda": cstyle.CUDARenderer,
        "hip": cstyle.HIPRenderer,
        "opencl": cstyle.OpenCLRenderer,
        "metal": cstyle.MetalRenderer,
    }[dialect]
