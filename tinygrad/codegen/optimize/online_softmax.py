"""Compute chains in blocks, those with a softmax with a running maximum (arXiv:2205.14135).

Before: a nest that is one `Chain`. After: blocks of rows in a grid, see `chain_blocks.py`. With a
softmax, the weights are exponentials of scores minus the maximum of the keys so far; where that
grows, what was accumulated is scaled by the exponential of the difference:

    for block of keys:
        score[key, row] = ...
        largest[row] = max(before[row], max over key of score[key, row])
        scale[row] = exp(before[row] - largest[row]); before[row] = largest[row]
        weight[key, row] = exp(score[key, row] - largest[row])
        total[row] = total[row] * scale[row] + sum over key of weight[key, row]
        acc[row, column] = acc[row, column] * scale[row] + sum over key of weight * value
    out[row, column] = acc[row, column] / total[row]
"""

from __future__ import annotations

from tinygrad.codegen.optimize.chain import find_chain
from tinygrad.codegen.optimize.chain_softmax import without_division
from tinygrad.codegen.optimize.chain_blocks import Array, Blocks, blocked_reduction
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.chain_product import tile_chain_product
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp
from tinygrad.uop.reduction import lowest


def tile_chain(nest: Nest) -> bool:
    """Compute the nest in blocks if it is a chain; returns whether it is."""
    chain = find_chain(nest)
    if chain is None:
        return False
    if tile_chain_product(nest, chain):
        return True
    work = nest.work()
    target = nest.renderer.target
    # threads read the operands of the products from shared memory, if it has room for them
    for stages_operands in (True, False) if target.has_threads else (False,):
        blocks = Blocks(nest, chain, stages_operands)
        stores = blocked_reduction(blocks) if chain.softmax is None else online_softmax(blocks)
        if not target.has_threads or blocks.shared_bytes() <= target.shared_bytes:
            break
    else:
        return False
    nest.note(f"blocks of {blocks.rows} rows by {blocks.keys} keys")
    nest.root = UOp.sink(*stores)
    if work >= target.parallel_work:
        blocks.make_grid()
    return True


def online_softmax(blocks: Blocks) -> list[UOp]:
    """The stores of a chain with a softmax, and of its statistics."""
    chain, softmax = blocks.chain, blocks.chain.softmax
    assert softmax is not None, "the chain has a softmax"
    dtype = softmax.scores.dtype
    # the least finite number: the difference of two infinite maxima would be NaN
    before = blocks.filled(blocks.rows, UOp.const(dtype, lowest(dtype)))
    total = blocks.filled(blocks.rows, UOp.const(softmax.exponential.dtype, 0))
    scores = blocks.weights(softmax.scores, UOp.const(dtype, float("-inf")))

    def exponential(score: UOp, maximum: UOp) -> UOp:
        holes = [UOp(Ops.NOOP, dtype, (), i) for i in range(2)]
        table = {softmax.scores: holes[0], softmax.maximum: holes[1]}
        template = softmax.exponential.substitute(table)
        return template.substitute(dict(zip(holes, (score, maximum), strict=True)))

    def over_keys(array: Array, op: Ops, row: UOp) -> UOp:
        key = blocks.factory.new(blocks.keys, AxisType.REDUCE)
        return array.load(key * blocks.rows + row).reduce(key, arg=op)

    largest = blocks.array(dtype, blocks.rows)
    (row,) = blocks.loops(blocks.rows)
    found = UOp(Ops.MAX, dtype, (before.load(row), over_keys(scores, Ops.MAX, row)))
    largest.after = (blocks.store(largest.at(row), found, row),)

    scale = blocks.array(dtype, blocks.rows)
    (row,) = blocks.loops(blocks.rows)
    found = exponential(before.load(row), largest.load(row))
    scale.after = (blocks.store(scale.at(row), found, row),)

    key, row = blocks.loops(blocks.keys, blocks.rows)
    place = key * blocks.rows + row
    found = exponential(scores.load(place), largest.load(row))
    scores.after = (blocks.store(scores.at(place), found, key, row, lanes=row),)

    (row,) = blocks.loops(blocks.rows)
    found = total.load(row) * scale.load(row) + over_keys(scores, Ops.ADD, row)
    summed = blocks.update(total, row, found, row)

    weight = without_division(chain.weight, softmax)
    block = scores
    if weight is not softmax.exponential:
        block = blocks.block_of(weight, {softmax.exponential: scores})
    sums, accumulated = blocks.accumulate(weight, block, scale)

    before.after = (*before.after, *scale.after)
    (row,) = blocks.loops(blocks.rows)
    moved = blocks.update(before, row, largest.load(row), row)

    total.after = (summed, moved)
    sums.after = (accumulated,)
    before.after = (moved,)
    stored = {softmax.maximum: before, softmax.total: total}
    return [
        blocks.result(sums, total if softmax.divides else None),
        *(blocks.statistic(x, stored[x.src[1]]) for x in blocks.nest.stores[1:]),
    ]
