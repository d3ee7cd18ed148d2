"""Arithmetic: elementwise, reductions, matrix products, signals."""
