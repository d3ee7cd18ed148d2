"""Matrix products and einsum.

Input: tensors with matching axes, contracted over one or several. Output: tensors of the common
dtype. Sums of products are accumulated in float32 or wider. A contraction is a broadcast product
and a sum; code generation tiles it.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.dtype import DTypeLike, least_upper_dtype, sum_acc_dtype, to_dtype
from tinygrad.errors import ArgumentError
from tinygrad.helpers import argfix
from tinygrad.mixin.core import TensorCore, check_tensors
from tinygrad.mixin.elementwise.arithmetic import product_to_sum
from tinygrad.mixin.precision import in_float32
from tinygrad.mixin.reduction.reduce import ReduceMixin
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import SymbolicShape
from tinygrad.uop.ops import sint
from tinygrad.uop.reshard import off_files
from tinygrad.uop.sint import is_one, same_size

_FIRST_SPARE = ord("\u0100")


class MatmulMixin(ReduceMixin):
    """`matmul`, `dot`, `linear`, `einsum`."""

    __slots__ = ()

    def dot(self, w: Self, dtype: DTypeLike | None = None) -> Self:
        """Matrix product over the last axis of `self` and the second to last (or only) of `w`.

        (..., n, k) and (..., k, m) to (..., n, m), with broadcast batch axes; a vector loses its
        axis. `dtype` is that of the accumulator and of the result. Raises RuntimeError for tensors
        without axes and for sizes that differ, TypeError unless `w` is a tensor.

        >>> Tensor([[1, 2], [3, 4]]).dot(Tensor([1, 10])).tolist()
        [21, 43]
        """
        if not isinstance(w, MatmulMixin):
            raise TypeError(
                f"dot takes a tensor, not {w!r} of type {type(w).__name__}; wrap it in Tensor()"
            )
        a, b = self.uop, w.uop
        shape, other = a.shape, b.shape
        if not (shape and other):
            raise ArgumentError(f"dot of shapes {shape} and {other}: both need an axis; use *")
        axis = -min(len(other), 2)
        if not same_size(shape[-1], other[axis]):
            raise ArgumentError(
                f"dot of shapes {shape} and {other}: axis -1 of the first has size "
                f"{shape[-1]}, axis {axis} of the second {other[axis]}; they must agree"
            )
        if len(other) > 1:
            last = len(other) - 1
            b = b.permute((*range(last - 1), last, last - 1))
            if len(shape) > 1:
                a = a.reshape((*shape[:-1], 1, shape[-1]))
                b = b.reshape((*other[:-2], 1, other[-1], other[-2]))
        common = least_upper_dtype(a.dtype, b.dtype)
        wide = sum_acc_dtype(common) if dtype is None else to_dtype(dtype)
        a, b = off_files(a, b)
        product = product_to_sum(a.cast(wide), b.cast(wide), (-1,))
        result = product.r(Ops.ADD, (len(product.shape) - 1,)).reshape(product.shape[:-1])
        return self._derive(result if dtype is not None else result.cast(common), w)

    def matmul(self, x: Self, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Matrix product: `self @ x`, as `dot`; with `reverse`, `x @ self`.

        >>> Tensor([[1, 2], [3, 4]]).matmul(Tensor([[1, 0], [0, 1]])).tolist()
        [[1, 2], [3, 4]]
        """
        if x is None:
            raise TypeError("@ takes a tensor, not None")
        other = x if isinstance(x, TensorCore) else self._from_host(x)
        return other.dot(self, dtype=dtype) if reverse else self.dot(other, dtype=dtype)

    def __matmul__(self, x: Self) -> Self:
        return self.matmul(x)

    def __rmatmul__(self, x: Self) -> Self:
        return self.matmul(x, True)

    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DTypeLike | None = None
    ) -> Self:
        """Linear layer: `self @ weight + bias`; a `weight` with one axis multiplies elementwise.

        (..., k) with weight (k, m) and bias (m,) to (..., m), computed in `dtype` if given.

        >>> Tensor([1, 2]).linear(Tensor([[1, 0], [0, 1]]), Tensor([10, 20])).tolist()
        [11, 22]
        """
        check_tensors("linear", weight=weight, bias=self if bias is None else bias)
        if dtype is not None:
            cast_bias = None if bias is None else bias.cast(dtype)
            return self.cast(dtype).linear(weight.cast(dtype), cast_bias)
        if bias is None:
            return self.mul(weight) if weight.ndim == 1 else self.dot(weight)
        return self._affine(weight, bias)

    @in_float32
    def _affine(self, weight: Self, bias: Self) -> Self:
        return self.linear(weight).add(bias)

    @classmethod
    def einsum(cls, formula: str, *operands: Any, dtype: DTypeLike | None = None) -> Self:
        """Einstein summation: letters name axes, and axes not in the result are summed over.

        Without "->", the result has the letters that occur once, in alphabetic order. "..." stands
        for all other axes; a letter that occurs twice in an operand takes its diagonal. Sizes of 1
        broadcast. Raises ValueError for a formula that does not fit the operands.

        >>> Tensor.einsum("ij,j->i", Tensor([[1, 2], [3, 4]]), Tensor([1, 10])).tolist()
        [21, 43]
        """
        tensors: tuple[Self, ...] = argfix(*operands)
        for x in tensors:
            check_tensors("einsum", operand=x)
        inputs, output = _parse_einsum(formula, [x.ndim for x in tensors])
        order = sorted(_einsum_sizes(formula, inputs, [x.shape for x in tensors]))
        aligned = [x._align_axes(letters, order) for letters, x in zip(inputs, tensors)]
        summed = [letter for letter in order if letter not in output]
        order_out = [letter for letter in order if letter in output]
        result = aligned[0]._product_sum(
            aligned[1:], tuple(order.index(letter) for letter in summed), dtype
        )
        return result.permute(tuple(order_out.index(letter) for letter in output))

    def _align_axes(self, letters: str, order: list[str]) -> Self:
        """Axes permuted to `order`, size 1 for missing letters; the diagonal for repeated ones."""
        x = self
        while len(set(letters)) < len(letters):
            first = next(i for i, letter in enumerate(letters) if letter in letters[i + 1 :])
            second = letters.index(letters[first], first + 1)
            x = x._take_diagonal(first, second)
            letters = letters[:second] + letters[second + 1 :]
        by_name = sorted(letters)
        x = x.permute(tuple(letters.index(letter) for letter in by_name))
        sizes = dict(zip(by_name, x.shape))
        return x.reshape(tuple(sizes.get(letter, 1) for letter in order))

    def _take_diagonal(self, first: int, second: int) -> Self:
        """The diagonal of two axes, along the first; the second is removed."""
        size = self.shape[first]
        positions = self._positions_along(size)
        rows = positions.reshape(tuple(size if i == first else 1 for i in range(self.ndim)))
        columns = positions.reshape(tuple(size if i == second else 1 for i in range(self.ndim)))
        return rows.eq(columns).where(self, 0).sum(second, dtype=self.dtype)

    def _product_sum(
        self, others: list[Self], axes: tuple[int, ...], dtype: DTypeLike | None
    ) -> Self:
        """The sum over `axes` of the product of this tensor and `others`."""
        common = least_upper_dtype(self.dtype, *(x.dtype for x in others))
        wide = to_dtype(dtype) if dtype is not None else common
        if dtype is None and axes:
            wide = sum_acc_dtype(common)
        first, *others = self._beside(*others)
        product = first.cast(wide)
        for other in others:
            product = product._product_to_sum(other.cast(wide), axes)
        result = product.sum(axes, dtype=wide) if axes else product
        return result if dtype is not None else result.cast(common)


def _einsum_sizes(formula: str, inputs: list[str], shapes: list[SymbolicShape]) -> dict[str, sint]:
    """The size of each letter. Raises ValueError for a letter of two sizes."""
    sizes: dict[str, sint] = {}
    for letters, shape in zip(inputs, shapes):
        for letter, size in zip(letters, shape):
            known = sizes.setdefault(letter, size)
            # size 1 broadcasts between operands, but not within a diagonal
            differs_within = not same_size(size, shape[letters.index(letter)])
            if differs_within or not (same_size(size, known) or is_one(size) or is_one(known)):
                raise ArgumentError(
                    f"einsum {formula!r}: axis {letter} has sizes {known} and {size}"
                )
            sizes[letter] = size if known == 1 else known
    return sizes


def _parse_einsum(formula: str, counts: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; `...` becomes unused letters."""
    if not isinstance(formula, str):
        raise TypeError(f"einsum takes a formula such as 'ij,jk->ik', not {formula!r}")
    text = formula.replace(" ", "")
    names = text.replace("...", "").replace(",", "").replace("->", "", 1)
    if names and not (names.isascii() and names.isalpha()):
        raise ArgumentError(f"einsum {formula!r}: axes are named by letters and '...' only")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if any(x.count("...") > 1 for x in (*inputs, output)):
        raise ArgumentError(
            f"einsum {formula!r}: '...' may occur once in each operand and the result"
        )
    if len(inputs) != len(counts):
        raise ArgumentError(f"einsum {formula!r} takes {len(inputs)} operands, not {len(counts)}")
    # the axes of "..." get unused letters, aligned at the last axis
    named = [len(letters.replace("...", "")) for letters in inputs]
    widths = [count - n if "..." in x else 0 for x, n, count in zip(inputs, named, counts)]
    spare = "".join(chr(_FIRST_SPARE + i) for i in range(max(widths)))
    full = [x.replace("...", spare[len(spare) - w :]) for x, w in zip(inputs, widths)]
    if not arrow:
        joined = "".join(letters for letters in full)
        once = sorted(c for c in set(joined) - set(spare) if joined.count(c) == 1)
        output = "..." + "".join(once)
    output = output.replace("...", spare)
    for letters, count in zip(full, counts):
        if len(letters) != count:
            raise ArgumentError(f"einsum {formula!r}: {letters!r} does not name {count} axes")
    if len(set(output)) != len(output) or not set(output) <= set("".join(full)):
        raise ArgumentError(f"einsum {formula!r}: the result must name axes of operands, each once")
    return full, output
