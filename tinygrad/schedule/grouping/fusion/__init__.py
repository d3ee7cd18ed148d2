"""The choice of the values to materialise; all others are fused into the kernels that use them.

Input: the nodes of a per-device graph, sources first. Output: the nodes that get a buffer.

    fuse.py                makes the choice, by way of
    choice.py                  what is chosen so far
    barriers.py                values that no kernel computes in the loops of their users
    product_loops.py               products that one register tile adds
    shared_values.py           values that are used several times: materialised or recomputed
    segments.py                    parts of limited size
    kernel_budget.py               bounds of the work and size of a kernel
    leaves.py                      the arrays that an expression reads
    argument_limit.py          parts of expressions that read more arrays than a kernel takes
    row_chains.py          reductions of rows that one kernel computes
    hazards.py             adds assigned expressions that would overwrite their own operands
"""
