"""The public path of `TinyJit`, as programs for tinygrad 0.12 import it."""

from tinygrad.jit import TinyJit

__all__ = ["TinyJit"]
