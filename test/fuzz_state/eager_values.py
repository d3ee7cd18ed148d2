"""New values computed from eager tensors, with their gradients.

Input: eager tensors. Output: tensors with memory of their own, whose history leads to the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from test.fuzz_state.eager_views import Invalid, Views
from test.fuzz_state.tape import Array, Node, Product


def sum_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The adjoint of broadcasting `shape` to the shape of `gradient`."""
    extra = gradient.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, size in enumerate(shape) if size == 1 and gradient.shape[i + extra] != 1
    )
    return gradient.sum(axis=axes, keepdims=True).reshape(shape) if axes else gradient


def _part(cuts: Array, dim: int, number: int) -> Product:
    return lambda g: np.split(g, cuts, dim)[number]


class Mask:
    """A condition."""

    def __init__(self, value: Array) -> None:
        self.value = value

    def where(self, chosen: Values, otherwise: float) -> Values:
        return chosen._elementwise(
            lambda x: np.where(self.value, x, np.asarray(otherwise, x.dtype)),
            lambda g: g * self.value,
        )


class Values(Views):
    """Arithmetic, reductions, joining and copies."""

    # ---- new values ----

    def _taken(self, index: Array) -> Self:
        """The elements of the memory at `index`, as a new value."""
        view = self._view(index)
        return view._elementwise(lambda x: x.copy(), lambda g: g)

    def _elementwise(self, op: Callable[[Array], Array], product: Product) -> Self:
        node = self.node()
        value = op(node.value)
        return self.of(value, (node, lambda g: product(g).astype(node.value.dtype)))

    def clone(self) -> Self:
        return self._elementwise(lambda x: x.copy(), lambda g: g)

    # new values, which are never the same tensor
    contiguous = clone
    contiguous_backward = clone

    def cast(self, dtype: Any) -> Self:
        if dtype == self.dtype:
            raise Invalid("a cast to the same dtype may be a view or a copy")
        if np.dtype(dtype).kind == "i":
            return self.of(self.value().astype(dtype))
        return self._elementwise(lambda x: x.astype(dtype), lambda g: g)

    def _binary(
        self, other: Any, op: Any, left: Callable[..., Array], right: Callable[..., Array]
    ) -> Self:
        a = self.node()
        if isinstance(other, Values):
            if other.dtype != self.dtype:
                raise Invalid("operands of two dtypes")
            b = other.node()
        else:
            b = Node(np.asarray(other, self.dtype))
        x, y = a.value, b.value
        return self.of(
            np.asarray(op(x, y)),
            (a, lambda g: sum_to(left(g, x, y), x.shape).astype(x.dtype)),
            (b, lambda g: sum_to(right(g, x, y), y.shape).astype(y.dtype)),
        )

    def __add__(self, other: Any) -> Self:
        return self._binary(other, np.add, lambda g, x, y: g, lambda g, x, y: g)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._binary(other, np.subtract, lambda g, x, y: g, lambda g, x, y: -g)

    def __rsub__(self, other: Any) -> Self:
        return -self + other

    def __mul__(self, other: Any) -> Self:
        return self._binary(other, np.multiply, lambda g, x, y: g * y, lambda g, x, y: g * x)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        if isinstance(other, Values) or self.dtype == np.int32:
            raise Invalid("an inexact quotient")
        return self * (1 / other)

    def __neg__(self) -> Self:
        return self._elementwise(np.negative, np.negative)

    def square(self) -> Self:
        return self * self

    def relu(self) -> Self:
        return self._elementwise(lambda x: np.maximum(x, 0), self._where_positive(self.value()))

    @staticmethod
    def _where_positive(value: Array) -> Product:
        return lambda g: g * (value > 0)

    def sum(self, axis: int | None = None, keepdim: bool = False) -> Self:
        node = self.node()
        value = node.value
        total = np.asarray(value.sum(axis=axis, keepdims=keepdim, dtype=value.dtype))

        def product(gradient: Array) -> Array:
            if axis is not None and not keepdim:
                gradient = np.expand_dims(gradient, axis)
            return np.broadcast_to(gradient, value.shape)

        return self.of(total, (node, product))

    def cumsum(self, axis: int) -> Self:
        return self._elementwise(
            lambda x: x.cumsum(axis, dtype=x.dtype),
            lambda g: np.flip(np.flip(g, axis).cumsum(axis), axis),
        )

    def cummax(self, axis: int) -> tuple[Self]:
        """The values alone. The gradient of each goes to the last occurrence of its maximum."""
        value = np.moveaxis(self.value(), axis, 0)
        is_largest = value == np.maximum.accumulate(value)
        numbers = np.arange(len(value)).reshape(-1, *[1] * (value.ndim - 1))
        last = np.maximum.accumulate(np.where(is_largest, numbers, 0))

        def product(gradient: Array) -> Array:
            found = np.zeros_like(gradient)
            others = tuple(np.indices(value.shape[1:]))
            for rows, g in zip(last, np.moveaxis(gradient, axis, 0), strict=True):
                np.moveaxis(found, axis, 0)[rows, *others] += g
            return found

        return (self._elementwise(lambda x: np.maximum.accumulate(x, axis), product),)

    def max(self, axis: int) -> Self:
        value = self.value()
        mask = value == value.max(axis, keepdims=True)
        if (mask.sum(axis) != 1).any():
            raise Invalid("several maxima share the gradient")
        return self._elementwise(lambda x: x.max(axis), lambda g: np.expand_dims(g, axis) * mask)

    def __matmul__(self, other: Self) -> Self:
        a, b = self.node(), other.node()
        x, y = a.value, b.value
        if self.ndim != 2 or other.ndim != 2:
            raise Invalid("products of matrices only")
        return self.of(x @ y, (a, lambda g: g @ y.T), (b, lambda g: x.T @ g))

    def __gt__(self, other: float) -> Mask:
        return Mask(self.value() > other)

    def cat(self, *others: Self, dim: int = 0) -> Self:
        parts = (self, *others)
        if any(x.dtype != self.dtype for x in parts):
            raise Invalid("operands of two dtypes")
        nodes = [x.node() for x in parts]
        cuts = np.cumsum([x.shape[dim] for x in parts])[:-1]
        return self.of(
            np.concatenate([node.value for node in nodes], dim),
            *((node, _part(cuts, dim, i)) for i, node in enumerate(nodes)),
        )

    def stack(self, *others: Self, dim: int = 0) -> Self:
        first, *rest = (x.unsqueeze(dim) for x in (self, *others))
        return first.cat(*rest, dim=dim)

    def pad(self, padding: Sequence[tuple[int, int]]) -> Self:
        inner = tuple(
            slice(before, before + size) for (before, _), size in zip(padding, self.shape)
        )
        return self._elementwise(lambda x: np.pad(x, padding), lambda g: g[inner])

    def roll(self, by: int, axis: int) -> Self:
        return self._elementwise(lambda x: np.roll(x, by, axis), lambda g: np.roll(g, -by, axis))
