"""Chains whose products a matrix instruction, or multiply-adds described as one, computes.

In: a `Chain`. Out: a `MatrixChain`, or None if the operands have other dtypes or depend on other
loops.
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
    """The narrow floats whose sum is a weight, which are multiplied one after the other."""

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
    """What can compute chains: matrix instructions, and multiply-adds."""
    usable = [
        x for x in target.matrix if not x.reads_shared and (ALLOW_TF32 or not x.rounds_operands)
    ]
    own = [multiply_adds(x, target.warp, pairs=True) for x in (dtypes.float32, dtypes.float64)]
    return (*(min(x, x.transposed(), key=_exchanges) for x in usable), *own)


def _exchanges(x: MatrixInstruction) -> tuple[bool, int]:
    """Whether weights pass through shared memory, and among how many lanes those of a row are."""
    return not x.reads_sums, sum(step[1] > 0 for step in x.c.lanes)


def find_matrix_chain(chain: Chain, x: MatrixInstruction) -> MatrixChain | None:
    """The chain, if an instruction can compute it."""
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
    """The number of narrow floats whose sum is a weight exactly; 0 if none is.

    A float32 is three of bfloat16, which has the same exponents and a third of the bits.
    """
    if narrow_operand(weight, x).dtype is x.operand:
        return 1
    is_split = weight.dtype is dtypes.float32 and x.operand is dtypes.bfloat16
    return BFLOAT16_TERMS if is_split else 0


def narrow_operand(operand: UOp, x: MatrixInstruction) -> UOp:
    """The operand before a conversion from a narrow float, which matrix instructions do."""
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
