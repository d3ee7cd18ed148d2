"""Softmaxes between products by blocks of threads: the scores are in registers.

Before: a nest that is one `Chain`. After: blocks of rows, each computed by the warps of a block.

    matrix_chain.py        matches those that instructions compute in registers
    chain_product.py       maps them
    chain_tile.py              chooses the tile
    chain_block.py             computes a block of rows
    chain_registers.py         its sums in registers
    running_softmax.py         its running maximum
"""
