"""Matrix products by blocks of threads.

Before: a nest that is one `Contraction`. After: tiles of operands in shared memory and registers.

    matrix_product.py      finds a product in a nest
    block_product.py       tiles it for the blocks of threads
    block_tile.py              chooses the tile
    flat_axis.py               several loops as one axis
    shared_tile.py             a tile of an operand in shared memory
    stages.py                  stages of shared memory that threads fill ahead
    bulk_stages.py             the same, filled by hardware
    producer_stages.py         the same, filled while other threads read
    bulk_source.py             an operand that hardware copies boxes of
    fragments.py               operands of matrix instructions in registers
    register_array.py          arrays of registers
    async_product.py           instructions that read shared memory while the threads continue
"""
