"""Sums of a product by instructions that read shared memory while the threads continue.

    fill the first stages
    for step of the reduction:
        wait until the oldest stage is filled
        load the fragments of the stage that lanes hold, if they hold one operand
        for k in stage: for tile: start sums[tile] += rows[tile, k] @ columns[k, tile]
        start to fill the stage that was read two steps ago
        wait until the products of the step before are complete; if they read registers, of this one
    wait until all products are complete

A stage is filled by all threads or, in bulk, by copies that one thread starts. If all threads fill
it, each makes its writes to shared memory visible to asynchronous instructions, and then they meet
at a barrier. For bulk copies see `bulk_stages.py`, and `producer_stages.py`, in which another role
of the threads refills stages.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.affine_index import collect
from tinygrad.codegen.analysis.ranges import RangeFactory
from tinygrad.codegen.optimize.staging import row_major_index
from tinygrad.codegen.optimize.threads.product.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.product.bulk_stages import BulkStages
from tinygrad.codegen.optimize.threads.product.fragments import FragmentSource
from tinygrad.codegen.optimize.threads.product.register_array import RegisterArray
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
    lane: UOp,
    sums: UOp,
    factory: RangeFactory,
) -> UOp:
    """The wait after which `sums`, which are cleared, hold the sums of a thread; `warps` is the
    position of its group of warps in the tile of the block, `lane` its own in the group.
    """
    x = tile.instruction
    ready = stages.ready()
    stage = divided(stages.step, stages.count)[1]
    sources = [
        FragmentSource(operand, memory.after(ready), stage, x, side, lane)
        for side, (operand, memory) in enumerate(zip(shared, stages.memory, strict=True))
    ]
    held: RegisterArray | None = None
    begun = UOp(Ops.MMA_BEGIN, dtypes.void, (ready,))
    if x.held_side is not None:
        source, side = sources[x.held_side], x.held_side
        held = _load_stage(source, warps[side], tile, stages.step, factory)
        begun = UOp(Ops.MMA_BEGIN, dtypes.void, tuple(held.before))
        held.before = (begun,)
    inner = factory.new(tile.steps, AxisType.TILE)
    tiles = [factory.new(n, AxisType.TILE) for n in tile.repeats]
    operands = [
        _operand(source, tile, warp, held if side == x.held_side else None, inner, tiles[side])
        for side, (source, warp) in enumerate(zip(sources, warps, strict=True))
    ]
    c = sums.after(begun).index(collect(row_major_index(tiles) * x.c.count))
    shapes = shared[0].shape, shared[1].shape
    loops = (inner, *tiles)
    product = UOp(Ops.MMA_ASYNC, dtypes.void, (c, *operands, *loops), AsyncProduct(x, shapes))
    issued = UOp(Ops.MMA_COMMIT, dtypes.void, (product,))
    refilled = stages.refill(ready, issued)
    waited = UOp(Ops.MMA_WAIT, dtypes.void, (sums.after(issued, *refilled),), tile.read_later)
    step = stages.close(waited)
    return UOp(Ops.MMA_WAIT, dtypes.void, (sums.after(step),), 0) if tile.read_later else step


def _operand(
    source: FragmentSource,
    tile: BlockTile,
    warp: UOp,
    held: RegisterArray | None,
    inner: UOp,
    repeat: UOp,
) -> UOp:
    """An operand of instruction number `repeat` of a group of warps, in step `inner` of a stage:
    its registers if they are `held`, else its address in shared memory.
    """
    repeats, count = tile.repeats[source.side], source.dtype.count
    if held is not None:
        return held.load((inner * repeats + repeat) * count, count=count)
    outer = collect((warp * repeats + repeat) * source.height)
    deep = collect(inner * tile.instruction.k)
    return source.tile.address(source.memory, source.stage, outer, deep)


def _load_stage(
    source: FragmentSource, warp: UOp, tile: BlockTile, step: UOp, factory: RangeFactory
) -> RegisterArray:
    """The fragments of a whole stage, which a group of warps holds in a step of the reduction."""
    repeats, count = tile.repeats[source.side], source.dtype.count
    size = tile.steps * repeats * count
    held = RegisterArray(source.dtype.scalar(), size, factory.number(), step)
    deep = factory.new(tile.steps, AxisType.TILE)
    first = warp * (repeats * source.height), deep * tile.instruction.k
    place = collect(deep * (repeats * count))
    held.before = (
        source.load(first, repeats, held.memory.after(step), factory, place, own=(deep,)),
    )
    return held
