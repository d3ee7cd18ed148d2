"""Attention on GPUs, as in FlashAttention: the scores of a tile stay in registers.

Before: a nest that is one `Chain` (`optimize/chain/match.py`). After: a grid of blocks of rows. The
warps of a thread block compute the rows of one block together.

    matrix_chain.py        finds the chains whose products matrix instructions can compute
    chain_product.py       entry point: maps such a chain to thread blocks
    chain_tile.py              chooses the tile: rows, keys and stages of a thread block
    chain_block.py             builds the program of a thread block
    chain_registers.py         which element each register of each lane holds
    running_softmax.py         the running maximum and sum of each row
"""
