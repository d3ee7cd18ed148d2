"""Runtimes, one module per device kind. `tinygrad.device` imports a module on first use."""
