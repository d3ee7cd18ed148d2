"""Attention with the scores in registers, by matrix instructions or multiply-adds.

Follows FlashAttention-2 (arXiv:2307.08691). Before: a nest that is one `Chain`, such as attention
or one of its gradients. After: a grid of blocks of rows. Each warp has rows of its own and runs

    for block of keys:
        score[...] = 0; score[...] += rows @ keys         matrix instructions
        weight[...] = f(score[...])                       in place, with a running softmax
        sums[...] += narrow(weight[...]) @ values         matrix instructions
    out[...] = sums[...] / total

- The second product reads the weights from the registers that hold the scores, if the lane maps of
  the instruction agree, and else through shared memory.
- Gradients multiply float32 weights by bfloat16 values. A weight is split into three bfloat16 terms
  that add up to it, one product each, so that nothing is rounded.
- The operands of the keys pass through several stages of shared memory, filled ahead.
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
    """Replace the nest of a chain, if the target has lanes that exchange values and a tile fits.
    Returns whether it did.
    """
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
    """For each instruction that can compute the chain, the operands that it reads."""
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
