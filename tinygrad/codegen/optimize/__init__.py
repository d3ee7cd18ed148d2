"""Loop optimizations: each nest of loops gets a grid, register tiles and vector lanes.

`loops.py` chooses among the others. Before any choice:

    index_set_splitting.py splits loops where a condition changes, on CPUs
    normalize.py           a range for each loop; merges loops that are contiguous in memory
    nest.py                a loop nest, and the transformations of its loops
    split.py               splits a loop into two, for any size

What several of the others need:

    contraction.py         matches sums of products
    staging.py             packs an operand into scratch memory
    phases.py              splits loops of which operands take quotients

What a nest may be:

    product/               a product or convolution
    chain/                 a softmax between products, as in attention: how it is found
    lanes/                 any other nest
    threads/               the same for GPUs: blocks, warps, shared memory
    blocked_chain/         a chain in blocks, with its scores in scratch memory
"""
