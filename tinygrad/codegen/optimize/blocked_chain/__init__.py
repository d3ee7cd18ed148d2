"""Attention in blocks, as in FlashAttention: the scores of one block are in scratch memory.

Before: a nest that is one `Chain` (`optimize/chain/match.py`). After: a grid of blocks of rows. For
CPUs, and for GPUs where `optimize/threads/chain/` cannot keep the scores in registers.

    online_softmax.py      entry point; the running maximum and sum of each row
    blocks.py              the loops over blocks, and the products of a block
"""
