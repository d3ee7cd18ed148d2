"""Compute a chain of products with matrix instructions, its weights in registers.

Before: a nest that is one `Chain`, as attention or its gradients. After, for blocks of rows in a
grid, each warp with rows of its own:

    for block of keys:
        score[...] = 0; score[...] += rows @ keys         matrix instructions
        weight[...] = f(score[...])                       in place, with a running softmax
        sums[...] += narrow(weight[...]) @ values         matrix instructions
    out[...] = sums[...] / total

A float32 weight of bfloat16 values, as in the gradients of scores, is three bfloat16 numbers that
are multiplied one after the other, so nothing is rounded. Operands of the keys pass through stages
of shared memory. As FlashAttention-2 (arXiv:2307.08691).
"""

from __future__ import annotations

from tinygrad.codegen.analysis.ranges import extent, is_static
from tinygrad.codegen.optimize.chain import Chain
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.chain_block import ChainBlock
from tinygrad.codegen.optimize.threads.chain_tile import choose_chain_tile
from tinygrad.codegen.optimize.threads.matrix_chain import find_matrix_chain

# fewer rows leave most of an instruction's rows empty
MIN_ROWS = 8


def tile_chain_product(nest: Nest, chain: Chain) -> bool:
    """Compute the chain with matrix instructions if the target can; returns whether it does."""
    if not all(map(is_static, (*chain.store.src[2:], chain.key))):
        return False
    target = nest.renderer.target
    for instruction in target.matrix:
        if instruction.reads_shared:
            continue
        found = find_matrix_chain(chain, instruction)
        if found is None or extent(chain.row) < MIN_ROWS:
            continue
        tile = choose_chain_tile(instruction, found.size, target, nest.threads)
        if tile is not None:
            ChainBlock(nest, found, tile).build()
            return True
    return False
