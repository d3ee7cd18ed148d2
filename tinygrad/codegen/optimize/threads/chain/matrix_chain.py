"""Find the operands of a chain for a matrix instruction, or for multiply-adds described as one.

In: a `Chain` and an instruction. Out: a `MatrixChain`, or None if an operand has another dtype than
the instruction reads, or depends on loops that the instruction does not have.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.analysis.ranges import FreeRanges, extent
from tinygrad.codegen.optimize.chain.match import Chain
from tinygrad.codegen.optimize.nest import points
from tinygrad.codegen.optimize.threads.chain.chain_tile import ChainSize
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis, flatten
from tinygrad.dtype import dtypes
from tinygrad.renderer import Target
from tinygrad.renderer.matrix_instruction import MatrixInstruction, multiply_adds
from tinygrad.settings import ALLOW_TF32
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

BFLOAT16_TERMS = 3


@dataclass(frozen=True)
class MatrixProduct:
    """A product in the weights: `sum over depth of rows[row, depth] * keys[key, depth]`."""

    reduce: UOp
    rows: UOp
    keys: UOp
    depth: FlatAxis


@dataclass(frozen=True)
class MatrixChain:
    """A chain, its products and its values, in the dtype of the operands of the instruction."""

    chain: Chain
    products: tuple[MatrixProduct, ...]
    value: UOp
    columns: FlatAxis
    terms: int
    """The number of narrow floats into which a weight is split; each is multiplied once."""

    @property
    def size(self) -> ChainSize:
        """The size of the chain."""
        chain = self.chain
        batch = frozenset(chain.store.src[2:]).difference({chain.row, *chain.columns})
        return ChainSize(
            extent(chain.row),
            extent(chain.key),
            self.columns.max_size,
            tuple([x.depth.max_size for x in self.products]),
            points(batch),
            self.terms,
        )


def chain_instructions(target: Target) -> tuple[MatrixInstruction, ...]:
    """The matrix instructions of the target that chains may use, each in the better of its two
    orientations; then multiply-adds.
    """
    usable = [
        x for x in target.matrix if not x.reads_shared and (ALLOW_TF32 or not x.rounds_operands)
    ]
    own = [multiply_adds(x, target.warp, pairs=True) for x in (dtypes.float32, dtypes.float64)]
    return (*(min(x, x.transposed(), key=_exchanges) for x in usable), *own)


def _exchanges(x: MatrixInstruction) -> tuple[bool, int]:
    """The order of preference of orientations: weights that stay in registers first, then few
    shuffles for each row, one for each bit of the lane number that selects a column.
    """
    return not x.reads_sums, sum(step[1] > 0 for step in x.c.lanes)


def find_matrix_chain(chain: Chain, x: MatrixInstruction) -> MatrixChain | None:
    """The operands of the chain for instruction `x`; None if it cannot compute the chain."""
    if chain.value is None or chain.reduce.dtype is not x.accumulator:
        return None
    outside = chain.reduce.src[1:-1]
    if chain.softmax is not None and (outside or chain.softmax.scores.dtype is not x.accumulator):
        return None
    free = FreeRanges()
    products = [_find_product(u, chain, x, free) for u in chain.products]
    found = tuple([p for p in products if p is not None])
    columns = flatten(chain.columns, chain.value, free)
    is_sum = chain.reduce.arg is Ops.ADD and chain.reduce.src[0].op is Ops.MUL
    value, terms = narrow_operand(chain.value, x), terms_of(chain.weight, x)
    if len(found) < len(products) or columns is None or not is_sum or not terms:
        return None
    if value.dtype is not x.operand or chain.row in free[value]:
        return None
    return MatrixChain(chain, found, value, columns, terms)


def terms_of(weight: UOp, x: MatrixInstruction) -> int:
    """The number of operands of the instruction whose sum is exactly a weight; 0 if there is none.

    A float32 is the sum of three bfloat16 numbers: its 24 significant bits are 3 * 8, and the
    exponents have the same range.
    """
    if narrow_operand(weight, x).dtype is x.operand:
        return 1
    is_split = weight.dtype is dtypes.float32 and x.operand is dtypes.bfloat16
    return BFLOAT16_TERMS if is_split else 0


def narrow_operand(operand: UOp, x: MatrixInstruction) -> UOp:
    """The source of a cast from the operand dtype of the instruction to that of its accumulator,
    since the instruction does this cast itself; other operands unchanged.
    """
    is_wide = operand.op is Ops.CAST and operand.dtype is x.accumulator
    return operand.src[0] if is_wide and operand.src[0].dtype is x.operand else operand


def _find_product(
    reduce: UOp, chain: Chain, x: MatrixInstruction, free: FreeRanges
) -> MatrixProduct | None:
    term = reduce.src[0]
    if term.op is not Ops.MUL or reduce.dtype is not x.accumulator:
        return None
    operands = [narrow_operand(u, x) for u in term.src]
    keys, rows = sorted(operands, key=lambda u: chain.key not in free[u])
    if {u.dtype for u in operands} != {x.operand} or chain.row in free[keys]:
        return None
    if chain.row not in free[rows] or not free[rows].isdisjoint(chain.reduce.src[1:]):
        return None
    depth = flatten(reduce.src[1:], rows, free)
    return None if depth is None else MatrixProduct(reduce, rows, keys, depth)
