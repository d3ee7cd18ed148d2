"""Elementwise functions: operators, arithmetic, comparison, functions of one tensor, casts."""
