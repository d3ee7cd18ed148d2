"""LLVM IR for the host CPU: linear programs in, the text of LLVM modules out."""

from __future__ import annotations

from tinygrad.renderer.llvm.renderer import LLVMRenderer

__all__ = ["LLVMRenderer"]
