"""Sums of a product by instructions that read shared memory while the threads continue.

    fill the first stages
    for step of the reduction:
        wait until the oldest stage is filled
        for k in stage: for tile: begin sums[tile] += rows[tile, k] @ columns[k, tile]
        begin to fill the stage that was read two steps ago
        wait until the products of the step before are complete
    wait until all products are complete

A stage is filled by all threads or, in bulk, by copies that one of them begins. Of the former, a
barrier says that all have waited; before it, each makes what it wrote to shared memory visible to
instructions that read it asynchronously. See `bulk_stages.py` for the latter.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.affine_index import collect
from tinygrad.codegen.analysis.ranges import RangeFactory
from tinygrad.codegen.optimize.staging import row_major_index
from tinygrad.codegen.optimize.threads.product.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.product.bulk_stages import BulkStages
from tinygrad.codegen.optimize.threads.product.shared_tile import SharedTile, divided
from tinygrad.codegen.optimize.threads.product.stages import Stages
from tinygrad.dtype import dtypes
from tinygrad.renderer.matrix_instruction import AsyncProduct
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


def multiply_stages(
    stages: Stages | BulkStages,
    shared: tuple[SharedTile, ...],
    tile: BlockTile,
    warps: tuple[UOp, UOp],
    sums: UOp,
    factory: RangeFactory,
) -> UOp:
    """The wait after which `sums`, which are cleared, hold the sums of a thread; `warps` is the
    position of its group of warps in the tile of the block.
    """
    x = tile.instruction
    ready = stages.ready()
    begun = UOp(Ops.MMA_BEGIN, dtypes.void, (ready,))
    inner = factory.new(tile.steps, AxisType.TILE)
    tiles = [factory.new(n, AxisType.TILE) for n in tile.repeats]
    stage = divided(stages.step, stages.count)[1]
    addresses = [
        operand.address(
            memory.after(ready),
            stage,
            collect((warp * repeats + repeat) * side),
            collect(inner * x.k),
        )
        for operand, memory, warp, repeats, repeat, side in zip(
            shared, stages.memory, warps, tile.repeats, tiles, (x.m, x.n), strict=True
        )
    ]
    c = sums.after(begun).index(collect(row_major_index(tiles) * x.c.count))
    shapes = shared[0].shape, shared[1].shape
    loops = (inner, *tiles)
    product = UOp(Ops.MMA_ASYNC, dtypes.void, (c, *addresses, *loops), AsyncProduct(x, shapes))
    issued = UOp(Ops.MMA_COMMIT, dtypes.void, (product,))
    refilled = stages.refill(ready, issued)
    waited = sums.after(issued, *refilled)
    step = UOp(Ops.MMA_WAIT, dtypes.void, (waited, stages.step), tile.read_later)
    return UOp(Ops.MMA_WAIT, dtypes.void, (sums.after(step),), 0)
