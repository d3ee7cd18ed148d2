"""Loop optimizations: each nest of loops gets a grid, register tiles and vector lanes.

`loops.py` chooses among the others. Before any choice:

    normalize.py           a range for each loop; merges loops that are contiguous in memory
    nest.py                a loop nest, and the transformations of its loops
    split.py               splits a loop into two, for any size

Products and convolutions:

    contraction.py         matches sums of products
    micro_kernel.py        tiles them: packed panels, register tiles, lanes
    tiling.py                  chooses the tile by a cost model
    blocking.py                blocks a long reduction
    staging.py                 packs an operand into scratch memory
    footprint.py               stages sliding windows, padding included
    skinny_matmul.py       products of few rows, as in decoding

Softmaxes between products, as in attention:

    chain.py               matches them
    chain_softmax.py           the softmax in its weights
    chain_blocks.py        computes them in blocks
    chain_bounds.py            skips blocks that a mask excludes
    online_softmax.py          with a running maximum

All other nests:

    vectorize.py           chooses the loops that become lanes
    row_values.py              keeps exponentials of a row that a sum and the outputs need
    streaming.py           column reductions over long rows
    transpose.py           transposes in square blocks

`threads/` does the same for GPUs.
"""
