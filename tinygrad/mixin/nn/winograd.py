"""Winograd convolution: 3x3 kernels on 4x4 output tiles, with a quarter of the multiplications.

Input: an image and weights, stride 1, dilation 1. Output: their convolution, up to rounding (about
1e-5 of the largest product in float32). Source: Lavin and Gray, Fast Algorithms for Convolutional
Neural Networks (2015), F(4x4, 3x3).

A 6x6 tile of the image becomes `B d B^T`, the weights `G g G^T`. These are multiplied elementwise
and summed over channels; `A^T m A` is the 4x4 output tile. Each transform is a sum of products with
a constant matrix for both axes at once, so its gradient is a sum of products too.
"""

from __future__ import annotations

from typing import Self

from tinygrad.dtype import DType
from tinygrad.helpers import ceildiv
from tinygrad.mixin.movement.windows import WindowMixin
from tinygrad.mixin.reduction.reduce import ReduceMixin
from tinygrad.storage.placement import placed
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.device_value import replicated
from tinygrad.uop.ops import UOp

OUTPUTS = 4
TAPS = 3
TILE = OUTPUTS + TAPS - 1

Matrix = tuple[tuple[float, ...], ...]


def _matrix(text: str) -> Matrix:
    """The rows of a text of fractions, rounded once."""
    return tuple(tuple(map(_fraction, row.split())) for row in text.split(";"))


def _fraction(text: str) -> float:
    numerator, _, denominator = text.partition("/")
    return int(numerator) / int(denominator or 1)


# columns: positions of the input tile (image, weights, products); rows: of the transformed tile
IMAGE = _matrix(
    "4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1"
)
WEIGHT = _matrix("1/4 0 0; -1/6 -1/6 -1/6; -1/6 1/6 -1/6; 1/24 1/12 1/6; 1/24 -1/12 1/6; 0 0 1")
RESULT = _matrix("1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1")


def _constant_matrix(matrix: Matrix, dtype: DType) -> UOp:
    """The matrix as an expression of constants."""
    rows, columns = len(matrix), len(matrix[0])
    position = UOp.arange(rows * columns)
    node = const_node(0, dtype)
    for i, value in enumerate(x for row in matrix for x in row):
        if value:
            here = position.eq(const_node(i, position.dtype))
            node = here.where(const_node(value, dtype), node)
    return node.reshape((rows, columns))


class WinogradMixin(ReduceMixin, WindowMixin):
    """`_winograd_conv2d`, which `conv2d` calls where the setting WINO is 1."""

    __slots__ = ()

    def _both_axes(self, matrix: Matrix) -> Self:
        """(columns, columns, *rest) to (rows * rows, *rest): the matrix applied to both axes."""
        rows, columns = len(matrix), len(matrix[0])
        one = _constant_matrix(matrix, self.dtype)
        wide = (rows, rows, columns, columns)
        first = one.reshape((rows, 1, columns, 1)).expand(wide)
        second = one.reshape((1, rows, 1, columns)).expand(wide)
        layout = replicated(self.uop.device)
        # contiguous: stored once, not recomputed in every product
        product = placed((first * second).reshape((rows * rows, columns * columns)), layout)
        rest = self.shape[2:]
        ones = (1,) * len(rest)
        factors = self._new(product.contiguous().reshape((*product.shape, *ones)), False)
        return (self.reshape((1, columns * columns, *rest)) * factors).sum(1, dtype=self.dtype)

    def _winograd_conv2d(self, weight: Self) -> Self:
        """(batch, groups, channels, height, width) and (groups, out, channels, 3, 3) to
        (batch, groups, out, height - 2, width - 2), all in the accumulation dtype.
        """
        batch, groups, channels, *sizes = self.shape
        counts = [int(size) - TAPS + 1 for size in sizes]
        tiles = tuple(ceildiv(count, OUTPUTS) for count in counts)
        border = tuple((0, t * OUTPUTS - count) for t, count in zip(tiles, counts, strict=True))
        padded = self._padded(((0, 0),) * 3 + border)
        windows = padded._windows((3, 4), (TILE, TILE), (OUTPUTS, OUTPUTS), (1, 1))
        # (tile, groups, 1, channels, batch, *tiles)
        image = windows.permute((5, 6, 1, 2, 0, 3, 4))._both_axes(IMAGE).unsqueeze(2)
        out = weight.shape[1]
        kernel = weight.permute((3, 4, 0, 1, 2))._both_axes(WEIGHT)
        kernel = kernel.reshape((TILE * TILE, groups, out, channels, 1, 1, 1))
        products = image._product_to_sum(kernel, (3,)).sum(3, dtype=self.dtype)
        result = products.reshape((TILE, TILE, groups, out, batch, *tiles))._both_axes(RESULT)
        result = result.reshape((OUTPUTS, OUTPUTS, groups, out, batch, *tiles))
        # (batch, groups, out, tile row, row, tile column, column)
        joined = result.permute((4, 2, 3, 5, 0, 6, 1))
        whole = joined.reshape((batch, groups, out, *(t * OUTPUTS for t in tiles)))
        return whole.shrink_to(None, None, None, *counts)
