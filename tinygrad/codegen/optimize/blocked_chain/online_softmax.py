"""Online softmax: compute a chain in blocks with a running maximum (FlashAttention,
arXiv:2205.14135). Entry point of the package; chains without a softmax are blocked too.

Before: a nest that is one `Chain`. After: a grid of blocks of rows, see `blocks.py`. With a
softmax, weights are exponentials of scores minus the maximum of the keys so far. Where the maximum
grows, earlier sums are multiplied by the exponential of the difference:

    for block of keys:
        score[key, row] = ...
        largest[row] = max(before[row], max over key of score[key, row])
        scale[row] = exp(before[row] - largest[row]); before[row] = largest[row]
        weight[key, row] = exp(score[key, row] - largest[row])
        total[row] = total[row] * scale[row] + sum over key of weight[key, row]
        acc[row, column] = acc[row, column] * scale[row] + sum over key of weight * value
    out[row, column] = acc[row, column] / total[row]

Example: a row with scores 1, 2 and then 4, in blocks of two keys. After the first block, `before`
is 2 and `total` is e^-1 + 1. The second block has the maximum 4, so `scale` is e^-2 and `total`
becomes (e^-1 + 1) * e^-2 + 1 = e^-3 + e^-2 + 1, as if 4 had been subtracted from the start.
"""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.codegen.optimize.blocked_chain.blocks import Array, Blocks, blocked_reduction
from tinygrad.codegen.optimize.chain.match import find_chain
from tinygrad.codegen.optimize.chain.softmax import Softmax, without_division
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.threads.chain.chain_product import tile_chain_product
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp
from tinygrad.uop.reduction import lowest


def tile_chain(nest: Nest) -> bool:
    """Compute a nest in blocks if it is a chain. Returns whether it was replaced."""
    chain = find_chain(nest)
    if chain is None:
        return False
    if tile_chain_product(nest, chain):
        return True
    if nest.mapping is not None:
        return False
    work = nest.work()
    target = nest.renderer.target
    # threads read the operands of products from shared memory, if they fit there
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
    """The stores of a chain with a softmax: its result, then its maximum and sum if needed."""
    chain, softmax = blocks.chain, blocks.chain.softmax
    assert softmax is not None, "the chain has a softmax"
    running = _RunningSoftmax(blocks, softmax)
    summed = running.update_total()
    weight = without_division(chain.weight, softmax)
    block = running.weights
    if weight is not softmax.exponential:
        block = blocks.block_of(weight, {softmax.exponential: running.weights})
    sums, accumulated = blocks.accumulate(weight, block, running.scale)
    moved = running.update_maximum()

    before, total = running.before, running.total
    total.after = (summed, moved)
    sums.after = (accumulated,)
    before.after = (moved,)
    stored = {softmax.maximum: before, softmax.total: total}
    return [
        blocks.result(sums, total),
        *(blocks.statistic(x, stored[x.src[1]]) for x in blocks.nest.stores[1:]),
    ]


class _RunningSoftmax:
    """The running softmax of a block of rows.

    Arrays with an element for each row: `before` is the maximum of earlier blocks of keys,
    `largest` that of all keys so far, `scale` is `exp(before - largest)`, and `total` the sum of
    exponentials. `weights`, `[key, row]`, holds the scores of the block, then their exponentials.
    """

    def __init__(self, blocks: Blocks, softmax: Softmax) -> None:
        self.blocks = blocks
        self.softmax = softmax
        dtype = softmax.scores.dtype
        # the lowest finite number, since -inf minus -inf is NaN
        self.before = blocks.filled(blocks.rows, UOp.const(dtype, lowest(dtype)))
        self.total = blocks.filled(blocks.rows, UOp.const(softmax.exponential.dtype, 0))
        self.weights = blocks.weights(softmax.scores, UOp.const(dtype, float("-inf")))
        self.largest = self._for_each_row(self._largest_score)
        self.scale = self._for_each_row(self._scale)
        self._take_exponentials()

    def _for_each_row(self, value: Callable[[UOp], UOp]) -> Array:
        """An array of a value computed from the number of its row."""
        array = self.blocks.array(self.softmax.scores.dtype, self.blocks.rows)
        (row,) = self.blocks.loops(self.blocks.rows)
        array.after = (self.blocks.store(array.at(row), value(row), row),)
        return array

    def _largest_score(self, row: UOp) -> UOp:
        return UOp(
            Ops.MAX,
            self.softmax.scores.dtype,
            (self.before.load(row), self._over_keys(Ops.MAX, row)),
        )

    def _scale(self, row: UOp) -> UOp:
        return self.softmax.exponential_of(self.before.load(row), self.largest.load(row))

    def _over_keys(self, op: Ops, row: UOp) -> UOp:
        """The reduction of the weights of a row over the keys of the block."""
        key = self.blocks.factory.new(self.blocks.keys, AxisType.REDUCE)
        return self.weights.load(key * self.blocks.rows + row).reduce(key, arg=op)

    def _take_exponentials(self) -> None:
        """Replace the scores of the block by their exponentials."""
        key, row = self.blocks.loops(self.blocks.keys, self.blocks.rows)
        place = key * self.blocks.rows + row
        value = self.softmax.exponential_of(self.weights.load(place), self.largest.load(row))
        stored = self.blocks.store(self.weights.at(place), value, key, row, lanes=row)
        self.weights.after = (stored,)

    def update_total(self) -> UOp:
        """Scale the sums of exponentials, and add those of the block. Returns the store."""
        (row,) = self.blocks.loops(self.blocks.rows)
        value = self.total.load(row) * self.scale.load(row) + self._over_keys(Ops.ADD, row)
        return self.blocks.update(self.total, row, value, row)

    def update_maximum(self) -> UOp:
        """Set `before` to `largest` for the next block, after `scale` was computed from both.
        Returns the store.
        """
        self.before.after = (*self.before.after, *self.scale.after)
        (row,) = self.blocks.loops(self.blocks.rows)
        return self.blocks.update(self.before, row, self.largest.load(row), row)
