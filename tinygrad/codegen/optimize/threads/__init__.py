"""Mappings of loop nests to the threads of a GPU: blocks, warps, shared memory, wide accesses.

    mapping.py             distributes loops over the threads of a block
    elementwise.py         outputs of a thread's own
    wide_access.py             the loop along which one access moves several elements
    reduction.py           rows that a group of threads shares
    transpose.py           transposes through shared memory
    search.py              the mappings of a kernel, for a search

Matrix products:

    block_product.py       tiles a product for the blocks of threads
    block_tile.py              chooses the tile
    flat_axis.py               several loops as one axis
    shared_tile.py             a tile of an operand in shared memory
    stages.py                  stages of shared memory that threads fill ahead
    bulk_stages.py             the same, filled by hardware
    bulk_source.py             an operand that hardware copies boxes of
    fragments.py               operands of matrix instructions in registers
    register_array.py          arrays of registers
    async_product.py           instructions that read shared memory while the threads continue

Softmaxes between products:

    matrix_chain.py        matches those that instructions compute in registers
    chain_product.py       maps them
    chain_tile.py              chooses the tile
    chain_block.py             computes a block of rows
    chain_registers.py         its sums in registers
    running_softmax.py         its running maximum
"""
