"""Stage 4, for each kernel: from its tensor form to its kernel graph.

    movement_index.py      the index arithmetic of each movement op
    rangeify.py            lowers the tensor form: movement becomes indices, axes become loops
    simplify_kernel.py     rules for kernel graphs: nested reductions, conditions of loads
    custom_kernel.py       checks hand-written kernels and makes their kernel graphs

Input: `SINK(STORE(target, value), ...)` over PARAMs. Output: a kernel graph, which code generation
takes on from there (`tinygrad/codegen`).
"""
