"""Lowering of optimized loops: vectors, accumulators, and the order of the program."""
