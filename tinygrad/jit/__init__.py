"""`TinyJit`: capture the kernels of a function once, replay them as one native call."""

from tinygrad.jit.inputs import JitError
from tinygrad.jit.tiny_jit import TinyJit

__all__ = ["JitError", "TinyJit"]
