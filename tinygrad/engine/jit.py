"""The public path of `TinyJit`, as programs for tinygrad 0.12 import it."""

from tinygrad.jit import JitError, TinyJit
from tinygrad.jit.captured import CapturedJit

__all__ = ["CapturedJit", "JitError", "TinyJit"]
