"""From the tensor graph to kernels: layouts are lowered, work is grouped into kernels, movement
becomes indices.
"""
