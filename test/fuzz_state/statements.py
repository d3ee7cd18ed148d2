"""Declares the statements of all groups."""

from test.fuzz_state import creation, gradients, jit, reads, sharing, views, writes

__all__ = ["creation", "gradients", "jit", "reads", "sharing", "views", "writes"]
