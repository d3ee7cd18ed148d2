"""Flat memory, and tensors that are maps of indices into it.

Input: the calls of the library's movement ops. Output: views of the same memory. Invariant: a
movement op moves the map and nothing else, whatever the strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from test.fuzz_state.tape import Array, Node, Product, check_exact


class Invalid(Exception):
    """A statement that has no one meaning, so that programs must not contain it."""


class Refusal(Exception):
    """A statement that must raise."""


class Memory:
    """Flat memory: its present node, and the node that gradients by a leaf are of.

    `array` is the memory itself, if code outside of the tensors reads and writes it. Memory that is
    `overwritten` has no content that a program may read.
    """

    # what was made during the outermost call of a captured function, if one runs
    made: list[Memory] | None = None

    def __init__(self, node: Node, array: Array | None = None) -> None:
        self._node = node
        self.array = array
        self.leaf: Node | None = None
        self.overwritten = False
        # whether it belongs to a captured function, whose next call overwrites it
        self.is_result = False
        if Memory.made is not None:
            Memory.made.append(self)

    @property
    def node(self) -> Node:
        """The present content. Raises Invalid if a captured function has overwritten it."""
        if self.overwritten:
            raise Invalid("a later call of the function may have overwritten its result")
        if self.array is not None and not np.array_equal(self.array, self._node.value):
            self._node = Node(self.array.copy())
        return self._node

    @node.setter
    def node(self, node: Node) -> None:
        self._node = node
        if self.array is not None:
            self.array[...] = node.value

    @property
    def dtype(self) -> Any:
        return self._node.value.dtype

    def exported(self, index: Array) -> Array:
        """The elements at `index` as an array in the same memory.

        Raises Invalid if they have no positive strides.
        """
        if self.array is None:
            self.array = self.node.value.copy()
        strides = [
            int(np.diff(index, axis=i).flat[0]) if n > 1 else 1 for i, n in enumerate(index.shape)
        ]
        size = self.array.itemsize
        view = np.lib.stride_tricks.as_strided(
            self.array[index.flat[0] :], index.shape, [x * size for x in strides]
        )
        numbers = np.arange(self.array.size)[index.flat[0] :]
        expected = np.lib.stride_tricks.as_strided(
            numbers, index.shape, [x * numbers.itemsize for x in strides]
        )
        if min(strides, default=1) < 1 or not np.array_equal(expected, index):
            raise Invalid("an array with other strides may be a copy")
        return view


def put_to(size: int, index: Array) -> Product:
    """The adjoint of reading `index` from flat memory."""

    def product(gradient: Array) -> Array:
        total = np.zeros(size, gradient.dtype)
        np.add.at(total, index, gradient)
        return total

    return product


class Views:
    """The value of a tensor, and the views of it."""

    __array_ufunc__ = None

    def __init__(self, data: Any, dtype: Any = None, device: Any = None) -> None:
        array = np.array(data)
        if dtype is None:
            dtype = array.dtype if isinstance(data, np.ndarray) else self._default(array)
        self._fill(Node(array.astype(dtype).ravel()), array.shape)

    @staticmethod
    def _default(array: Array) -> Any:
        return np.float32 if array.dtype.kind == "f" else np.int32

    def _fill(self, node: Node, shape: tuple[int, ...]) -> None:
        self.memory = Memory(node)
        self.index = np.arange(node.value.size).reshape(shape)
        self.is_detached = False
        self.is_leaf = False
        self.grad: Self | None = None

    @classmethod
    def of(cls, value: Array, *parents: tuple[Node, Product]) -> Self:
        """A new tensor with this value and history."""
        check_exact(value)
        self = cls.__new__(cls)
        shape = value.shape
        history = tuple(
            (parent, lambda g, product=product: product(g.reshape(shape)))
            for parent, product in parents
            if parent.has_history
        )
        self._fill(Node(value.ravel(), history), shape)
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def ndim(self) -> int:
        return self.index.ndim

    @property
    def dtype(self) -> Any:
        return self.memory.dtype

    @property
    def repeats(self) -> bool:
        """Whether two elements share memory."""
        return np.unique(self.index).size != self.index.size

    def is_contiguous(self) -> bool:
        flat = self.index.ravel()
        return bool((np.diff(flat) == 1).all())

    def numel(self) -> int:
        return self.index.size

    # ---- values and history ----

    def value(self) -> Array:
        return self.memory.node.value[self.index]

    def node(self) -> Node:
        """The present value, with its history."""
        memory = self.memory.node
        if self.is_detached or not memory.has_history:
            return Node(self.value())
        return Node(self.value(), ((memory, put_to(memory.value.size, self.index)),))

    def numpy(self) -> Array:
        return self.value().copy()

    def tolist(self) -> Any:
        return self.value().tolist()

    def item(self) -> Any:
        return self.value().item()

    def realize(self, *others: Self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self.index)

    # ---- views ----

    def _view(self, index: Array) -> Self:
        view = type(self).__new__(type(self))
        view.memory, view.index = self.memory, index
        view.is_detached, view.is_leaf, view.grad = self.is_detached, False, None
        return view

    def __getitem__(self, index: Any) -> Self:
        items = index if isinstance(index, tuple) else (index,)
        if any(isinstance(item, list) for item in items):
            return self._taken(self.index[index])
        return self._view(np.asarray(self.index[index]))

    def _taken(self, index: Array) -> Self:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: int) -> Self:
        return self._view(self.index.reshape(shape))

    view = reshape

    def flatten(self) -> Self:
        return self.reshape(-1)

    def permute(self, *order: int) -> Self:
        return self._view(self.index.transpose(order))

    def transpose(self, a: int, b: int) -> Self:
        return self._view(self.index.swapaxes(a, b))

    @property
    def T(self) -> Self:
        return self._view(self.index.T)

    def flip(self, *axes: int) -> Self:
        return self._view(np.flip(self.index, axes))

    def expand(self, *shape: int) -> Self:
        return self._view(np.broadcast_to(self.index, shape))

    def squeeze(self, axis: int) -> Self:
        return self._view(self.index.squeeze(axis))

    def unsqueeze(self, axis: int) -> Self:
        return self._view(np.expand_dims(self.index, axis))

    def shrink(self, arg: Sequence[tuple[int, int]]) -> Self:
        return self[tuple(slice(*pair) for pair in arg)]

    def split(self, sizes: list[int], dim: int = 0) -> list[Self]:
        return [self._view(x) for x in np.split(self.index, np.cumsum(sizes)[:-1], dim)]

    def chunk(self, count: int, dim: int = 0) -> list[Self]:
        size = -(-self.shape[dim] // count)
        starts = range(size, self.shape[dim], size)
        return [self._view(x) for x in np.split(self.index, starts, dim)]

    def diagonal(self, offset: int = 0) -> Self:
        return self._view(self.index.diagonal(offset))

    def detach(self) -> Self:
        view = self._view(self.index)
        view.is_detached = True
        return view
