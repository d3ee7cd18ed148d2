"""Split the reduction of a product that has too few outputs to keep a GPU busy (split-K).

Before: `sum over k of a * b` with few outputs and a long reduction, as in the gradient of a
convolution's weight. After: partial sums over slices of the reduction, and their sum. A block of
threads computes a tile of the outputs, so that the number of outputs bounds the number of blocks.
"""

from __future__ import annotations

from typing import cast

from tinygrad.helpers import ceildiv, prod
from tinygrad.renderer.target import Target
from tinygrad.uop.ops import UOp

BLOCK_OUTPUTS = 1 << 12
"""The outputs of a block that has enough work for its threads."""
MIN_DEPTH = 1 << 10
"""The minimum steps of a slice: storing partial sums is to be little work beside computing them."""
MAX_SLICES = 128
BLOCKS_PER_UNIT = 2


def split_of_product(node: UOp, target: Target) -> tuple[int, int]:
    """The reduction axis to split and the number of slices, 1 if the product keeps all of the
    target busy. All sizes are known.
    """
    shape = cast(tuple[int, ...], node.src[0].shape)
    outputs = prod(cast(tuple[int, ...], node.shape))
    depth = prod([shape[axis] for axis in node.arg.axes])
    blocks = max(1, ceildiv(outputs, BLOCK_OUTPUTS))
    wanted = min(BLOCKS_PER_UNIT * target.units // blocks, depth // MIN_DEPTH, MAX_SLICES)
    best = node.arg.axes[0], 1
    for axis in node.arg.axes:
        count = max((d for d in range(1, wanted + 1) if shape[axis] % d == 0), default=1)
        if count > best[1]:
            best = axis, count
    return best
