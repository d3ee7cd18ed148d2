"""Compute a chain of products with matrix instructions or multiply-adds, its weights in registers.

Before: a nest that is one `Chain`, as attention or its gradients. After, for blocks of rows in a
grid, each warp with rows of its own:

    for block of keys:
        score[...] = 0; score[...] += rows @ keys         instructions
        weight[...] = f(score[...])                       in place, with a running softmax
        sums[...] += narrow(weight[...]) @ values         instructions
    out[...] = sums[...] / total

The weights are read from the registers where the instruction summed the scores, if its operand is
there too, and else from shared memory. A float32 weight of bfloat16 values, as in the gradients of
scores, is three bfloat16 numbers that are multiplied one after the other, so nothing is rounded.
Operands of the keys pass through stages of shared memory. As FlashAttention-2 (arXiv:2307.08691).
"""

from __future__ import annotations

from tinygrad.codegen.analysis.ranges import extent, is_static
from tinygrad.codegen.optimize.chain.match import Chain
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.chain.chain_block import ChainBlock
from tinygrad.codegen.optimize.threads.chain.chain_tile import ChainTile, rank_chain_tiles
from tinygrad.codegen.optimize.threads.chain.matrix_chain import (
    MatrixChain,
    chain_instructions,
    find_matrix_chain,
)
from tinygrad.renderer.matrix_instruction import MatrixInstruction


def tile_chain_product(nest: Nest, chain: Chain) -> bool:
    """Compute the chain in registers if the target can; returns whether it does."""
    found = _matrix_chains(nest, chain)
    tile = nest.choose(_tiles(nest, found))
    if tile is None:
        return False
    ChainBlock(nest, found[tile.instruction], tile).build()
    return True


def chain_options(nest: Nest, chain: Chain) -> tuple[ChainTile, ...]:
    """The tiles of the chain that fit the target, that of least predicted time first."""
    return _tiles(nest, _matrix_chains(nest, chain))


def _matrix_chains(nest: Nest, chain: Chain) -> dict[MatrixInstruction, MatrixChain]:
    """The chain by the instructions that can compute it."""
    target = nest.renderer.target
    # lanes exchange the maxima and the sums of rows
    if target.warp == 1 or not all(map(is_static, (*chain.store.src[2:], chain.key))):
        return {}
    # fewer rows leave most of an instruction's rows empty
    usable = [x for x in chain_instructions(target) if 2 * extent(chain.row) >= x.m]
    return {x: m for x in usable if (m := find_matrix_chain(chain, x)) is not None}


def _tiles(nest: Nest, found: dict[MatrixInstruction, MatrixChain]) -> tuple[ChainTile, ...]:
    sizes = tuple([(x, m.size) for x, m in found.items()])
    return rank_chain_tiles(sizes, nest.renderer.target, nest.threads)
