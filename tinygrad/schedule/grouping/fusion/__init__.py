"""The choice of the values to materialise; all others are fused into the kernels that use them.

Input: the nodes of a per-device graph, sources first. Output: the nodes that get a buffer.

    fuse.py                the choice
    segments.py                parts of limited size
    kernel_budget.py           bounds of the work and size of a kernel
    product_loops.py           products that one register tile adds
    row_chains.py              reductions of rows that one kernel computes
    hazards.py             adds assigned expressions that would overwrite their own operands
"""
