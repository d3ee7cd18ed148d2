"""Online softmax in registers: one step, for a block of rows and a block of keys.

In: register arrays with the products of the step. Out: the same registers hold `exp(score - max)`,
where `max` is the maximum of each row so far. If it grew from `old` to `new`, the sum of the row
and its accumulators are multiplied by `exp(old - new)`. `optimize/blocked_chain/online_softmax.py`
does the same in scratch memory, and has an example.
"""

from __future__ import annotations

from tinygrad.codegen.optimize.chain.softmax import Softmax
from tinygrad.codegen.optimize.threads.chain.chain_registers import ChainRegisters
from tinygrad.codegen.optimize.threads.product.register_array import RegisterArray
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reduction import lowest


def update_softmax(
    block: ChainRegisters, products: list[RegisterArray], softmax: Softmax, sums: RegisterArray
) -> dict[UOp, RegisterArray]:
    """Replace the first array of `products` by the exponentials of the scores, and rescale `sums`
    to the new maxima. Returns the arrays with the maximum and the sum of exponentials of each row.
    """
    scores, rows = products[0], block.tiles[0] * block.lane_rows
    _make_scores(block, products, softmax)
    before = block.cleared(rows, block.thread, lowest(block.instruction.accumulator))
    total = block.cleared(rows, block.thread)
    largest = _largest(block, scores, before)
    scale = block.registers(before.dtype, rows, block.step)
    (row,) = block.loops(rows)
    grown = _exponential(softmax, before.load(row, block.step), largest.load(row))
    scale.store(row, grown, row)
    own, place, row = block.elements(1)
    value = _exponential(softmax, scores.load(place, *own), largest.load(row))
    scores.store(place, value, *own, after=own)
    (row,) = block.loops(rows)
    scaled = total.load(row, block.step) * scale.load(row)
    total.store(row, scaled, row, after=[block.step])
    own, place, row = block.elements(1)
    value = total.load(row, *own) + scores.load(place)
    total.store(row, value, block.step, *own, after=own)
    own, place, row = block.elements(2)
    value = sums.load(place, block.step) * scale.load(row)
    sums.store(place, value, *own, after=[block.step])
    (row,) = block.loops(rows)
    before.store(row, largest.load(row), block.step, row, after=[*scale.before, block.step])
    (row,) = block.loops(rows)
    # the maxima are what the next step begins with, though nothing else reads them
    summed = block.over_lanes(total.load(row), Ops.ADD)
    total.store(row, summed, row, after=before.before)
    stored = {softmax.maximum: before}
    return stored if softmax.total is None else {**stored, softmax.total: total}


def _make_scores(block: ChainRegisters, products: list[RegisterArray], softmax: Softmax) -> None:
    """Replace the first array of `products` by the scores, -inf for keys past the end."""
    parts = [p.reduce for p in block.found.products]
    own, place, _ = block.elements(1)
    row_tile, row, tile, neighbour = own
    key = block.key_number(tile, neighbour)
    held = {part: array.load(place, *own) for part, array in zip(parts, products, strict=True)}
    value = block.at(softmax.scores, held, block.row_number(row_tile, row), key)
    exists = block.key_exists(key)
    if exists is not None:
        value = exists.where(value, UOp.const(value.dtype, float("-inf")))
    products[0].store(place, value, *own, after=own)


def _largest(block: ChainRegisters, scores: RegisterArray, before: RegisterArray) -> RegisterArray:
    """The maximum of each row so far: of `before` and of the scores of this step, in all lanes that
    share the row.
    """
    rows = block.tiles[0] * block.lane_rows
    largest = block.registers(before.dtype, rows, block.step)
    (row,) = block.loops(rows)
    largest.store(row, before.load(row, block.step), row)
    own, place, row = block.elements(1)
    value = UOp(Ops.MAX, before.dtype, (largest.load(row, *own), scores.load(place)))
    largest.store(row, value, *own, after=own)
    (row,) = block.loops(rows)
    largest.store(row, block.over_lanes(largest.load(row, row), Ops.MAX), row, after=[row])
    return largest


def _exponential(softmax: Softmax, score: UOp, maximum: UOp) -> UOp:
    """The exponential of a score minus a maximum, which are values that may contain the scores and
    the maximum of `softmax`: so both pass through placeholders.
    """
    holes = [UOp(Ops.NOOP, score.dtype, (), i) for i in range(2)]
    table = {softmax.scores: holes[0], softmax.subtracted: holes[1]}
    template = softmax.exponential.substitute(table)
    return template.substitute(dict(zip(holes, (score, maximum), strict=True)))
