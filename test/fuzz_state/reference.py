"""An eager tensor with the library's names: the reference for programs with state.

Input: the same calls as the library's `Tensor`. Output: numpy arrays and their gradients.

A tensor is a map of indices into flat memory. Movement ops and `detach()` move the map, so their
results are views whatever their strides: each sees all writes to the memory. All other ops read
values and make new memory. A write through a tensor that is detached, or a leaf, changes the value
and leaves its history as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any
from weakref import WeakSet

import numpy as np

import tinygrad
from test.fuzz_state.tape import Array, Node, Product, adjoints, check_exact

DTYPES = SimpleNamespace(double=np.float64, float=np.float32, int=np.int32)


class Invalid(Exception):
    """A statement that has no one meaning, so that programs must not contain it."""


class Refusal(Exception):
    """A statement that must raise."""


class Refused:
    """A `with` block that the library must refuse, and that changes nothing here."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if kind is None:
            raise Invalid("the block is valid")
        return issubclass(kind, (Refusal, IndexError))


class Memory:
    """Flat memory: its present node, and the node that gradients by a leaf are of."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.leaf: Node | None = None


def sum_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The adjoint of broadcasting `shape` to the shape of `gradient`."""
    extra = gradient.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, size in enumerate(shape) if size == 1 and gradient.shape[i + extra] != 1
    )
    return gradient.sum(axis=axes, keepdims=True).reshape(shape) if axes else gradient


def put_to(size: int, index: Array) -> Product:
    """The adjoint of reading `index` from flat memory."""

    def product(gradient: Array) -> Array:
        total = np.zeros(size, gradient.dtype)
        np.add.at(total, index, gradient)
        return total

    return product


class Mask:
    """A condition."""

    def __init__(self, value: Array) -> None:
        self.value = value

    def where(self, chosen: Tensor, otherwise: float) -> Tensor:
        return chosen._elementwise(
            lambda x: np.where(self.value, x, np.asarray(otherwise, x.dtype)),
            lambda g: g * self.value,
        )


class Tensor:
    """The eager tensor."""

    __array_ufunc__ = None

    def __init__(
        self, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> None:
        array = np.array(data)
        if dtype is None:
            dtype = array.dtype if isinstance(data, np.ndarray) else self._default(array)
        self._fill(Node(array.astype(dtype).ravel()), array.shape)
        if requires_grad:
            self.requires_grad_()

    @staticmethod
    def _default(array: Array) -> Any:
        return np.float32 if array.dtype.kind == "f" else np.int32

    def _fill(self, node: Node, shape: tuple[int, ...]) -> None:
        self.memory = Memory(node)
        self.index = np.arange(node.value.size).reshape(shape)
        self.is_detached = False
        self.is_leaf = False
        self.grad: Tensor | None = None

    @classmethod
    def of(cls, value: Array, *parents: tuple[Node, Product]) -> Tensor:
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
        return self.memory.node.value.dtype

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

    def realize(self, *others: Tensor) -> Tensor:
        return self

    def __len__(self) -> int:
        return len(self.index)

    # ---- views ----

    def _view(self, index: Array) -> Tensor:
        view = type(self).__new__(type(self))
        view.memory, view.index = self.memory, index
        view.is_detached, view.is_leaf, view.grad = self.is_detached, False, None
        return view

    def __getitem__(self, index: Any) -> Tensor:
        items = index if isinstance(index, tuple) else (index,)
        if any(isinstance(item, list) for item in items):
            return self._taken(self.index[index])
        return self._view(np.asarray(self.index[index]))

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: int) -> Tensor:
        return self._view(self.index.reshape(shape))

    view = reshape

    def flatten(self) -> Tensor:
        return self.reshape(-1)

    def unflatten(self, axis: int, sizes: tuple[int, ...]) -> Tensor:
        shape = self.shape
        return self.reshape(*shape[:axis], *sizes, *shape[axis + 1 :])

    def permute(self, *order: int) -> Tensor:
        return self._view(self.index.transpose(order))

    def transpose(self, a: int, b: int) -> Tensor:
        return self._view(self.index.swapaxes(a, b))

    @property
    def T(self) -> Tensor:
        return self._view(self.index.T)

    def flip(self, *axes: int) -> Tensor:
        return self._view(np.flip(self.index, axes))

    def expand(self, *shape: int) -> Tensor:
        return self._view(np.broadcast_to(self.index, shape))

    def squeeze(self, axis: int) -> Tensor:
        return self._view(self.index.squeeze(axis))

    def unsqueeze(self, axis: int) -> Tensor:
        return self._view(np.expand_dims(self.index, axis))

    def shrink(self, arg: Sequence[tuple[int, int]]) -> Tensor:
        return self[tuple(slice(*pair) for pair in arg)]

    def split(self, sizes: list[int], dim: int = 0) -> list[Tensor]:
        return [self._view(x) for x in np.split(self.index, np.cumsum(sizes)[:-1], dim)]

    def chunk(self, count: int, dim: int = 0) -> list[Tensor]:
        size = -(-self.shape[dim] // count)
        starts = range(size, self.shape[dim], size)
        return [self._view(x) for x in np.split(self.index, starts, dim)]

    def diagonal(self) -> Tensor:
        return self._view(self.index.diagonal())

    def detach(self) -> Tensor:
        view = self._view(self.index)
        view.is_detached = True
        return view

    # ---- writes ----

    def assign(self, other: Any) -> Tensor:
        if not isinstance(other, Tensor):
            other = Tensor(other, dtype=self.dtype)
        if other.shape != self.shape or other.dtype != self.dtype:
            raise Refusal(f"{other.shape} and {other.dtype} do not fit {self.shape}, {self.dtype}")
        if self.repeats:
            raise Refusal("the view repeats elements")
        node, old, index = other.node(), self.memory.node, self.index
        value = old.value.copy()
        value[index] = node.value
        check_exact(value)
        self.memory.node = Node(value, self._history(old, node, index))
        return self

    def _history(self, old: Node, new: Node, index: Array) -> tuple[tuple[Node, Product], ...]:
        """How gradients flow from memory in which `new` was written at `index`."""
        leaf = self.memory.leaf
        if self.is_detached or leaf is not None:
            if new.has_history:
                raise Invalid("a write with a history to a leaf or a detached tensor")
            return ((old, lambda g: g),) if old.has_history else ()

        def kept(gradient: Array) -> Array:
            gradient = gradient.copy()
            gradient[index] = 0
            return gradient

        parents: list[tuple[Node, Product]] = [(old, kept)] if old.has_history else []
        if new.has_history:
            parents.append((new, lambda g: g[index]))
        return tuple(parents)

    def __setitem__(self, index: Any, value: Any) -> None:
        items = index if isinstance(index, tuple) else (index,)
        has_lists = any(isinstance(item, list) for item in items)
        target = self._view(np.asarray(self.index[index]))
        if target.repeats and (not has_lists or self.repeats):
            raise Refusal("the view repeats elements")
        if not isinstance(value, Tensor):
            value = Tensor(np.asarray(value, self.dtype))
        if value.dtype != self.dtype:
            raise Refusal("another dtype")
        if not fits(value.shape, target.shape):
            raise Refusal(f"{value.shape} does not fit {target.shape}")
        value = value.expand(*target.shape)
        if not target.repeats:
            target.assign(value)
            return
        # the last of equal positions wins
        flat = {int(i): n for n, i in enumerate(target.index.ravel())}
        picked = value._taken(value.index.ravel()[list(flat.values())])
        self._view(np.array(list(flat))).assign(picked)

    def replace(self, other: Tensor) -> Tensor:
        if self.memory.node.has_history or other.memory.node.has_history:
            raise Invalid("a tensor with a history is replaced")
        self.memory, self.index = other.memory, other.index
        self.is_detached = other.is_detached
        return self

    def _update(self, op: Callable[[Tensor, Any], Tensor], other: Any) -> Tensor:
        result = op(self, other)
        return self.assign(result)

    def __iadd__(self, other: Any) -> Tensor:
        return self._update(Tensor.__add__, other)

    def __isub__(self, other: Any) -> Tensor:
        return self._update(Tensor.__sub__, other)

    def __imul__(self, other: Any) -> Tensor:
        return self._update(Tensor.__mul__, other)

    def __itruediv__(self, other: Any) -> Tensor:
        return self._update(Tensor.__truediv__, other)

    # ---- new values ----

    def _taken(self, index: Array) -> Tensor:
        """The elements of the memory at `index`, as a new value."""
        view = self._view(index)
        return view._elementwise(lambda x: x.copy(), lambda g: g)

    def _elementwise(self, op: Callable[[Array], Array], product: Product) -> Tensor:
        node = self.node()
        value = op(node.value)
        return Tensor.of(value, (node, lambda g: product(g).astype(node.value.dtype)))

    def clone(self) -> Tensor:
        return self._elementwise(lambda x: x.copy(), lambda g: g)

    def contiguous(self) -> Tensor:
        if self.is_contiguous():
            raise Invalid("contiguous() of a contiguous tensor may be a view or a copy")
        return self.clone()

    def cast(self, dtype: Any) -> Tensor:
        if dtype == self.dtype:
            raise Invalid("a cast to the same dtype may be a view or a copy")
        if np.dtype(dtype).kind == "i":
            return Tensor.of(self.value().astype(dtype))
        return self._elementwise(lambda x: x.astype(dtype), lambda g: g)

    def _binary(
        self, other: Any, op: Any, left: Callable[..., Array], right: Callable[..., Array]
    ) -> Tensor:
        a = self.node()
        if isinstance(other, Tensor):
            if other.dtype != self.dtype:
                raise Invalid("operands of two dtypes")
            b = other.node()
        else:
            b = Node(np.asarray(other, self.dtype))
        x, y = a.value, b.value
        return Tensor.of(
            np.asarray(op(x, y)),
            (a, lambda g: sum_to(left(g, x, y), x.shape).astype(x.dtype)),
            (b, lambda g: sum_to(right(g, x, y), y.shape).astype(y.dtype)),
        )

    def __add__(self, other: Any) -> Tensor:
        return self._binary(other, np.add, lambda g, x, y: g, lambda g, x, y: g)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tensor:
        return self._binary(other, np.subtract, lambda g, x, y: g, lambda g, x, y: -g)

    def __rsub__(self, other: Any) -> Tensor:
        return -self + other

    def __mul__(self, other: Any) -> Tensor:
        return self._binary(other, np.multiply, lambda g, x, y: g * y, lambda g, x, y: g * x)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        if isinstance(other, Tensor) or self.dtype == np.int32:
            raise Invalid("an inexact quotient")
        return self * (1 / other)

    def __neg__(self) -> Tensor:
        return self._elementwise(np.negative, np.negative)

    def square(self) -> Tensor:
        return self * self

    def relu(self) -> Tensor:
        return self._elementwise(lambda x: np.maximum(x, 0), self._where_positive(self.value()))

    @staticmethod
    def _where_positive(value: Array) -> Product:
        return lambda g: g * (value > 0)

    def sum(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        node = self.node()
        value = node.value
        total = np.asarray(value.sum(axis=axis, keepdims=keepdim, dtype=value.dtype))

        def product(gradient: Array) -> Array:
            if axis is not None and not keepdim:
                gradient = np.expand_dims(gradient, axis)
            return np.broadcast_to(gradient, value.shape)

        return Tensor.of(total, (node, product))

    def cumsum(self, axis: int) -> Tensor:
        return self._elementwise(
            lambda x: x.cumsum(axis, dtype=x.dtype),
            lambda g: np.flip(np.flip(g, axis).cumsum(axis), axis),
        )

    def max(self, axis: int) -> Tensor:
        value = self.value()
        mask = value == value.max(axis, keepdims=True)
        if (mask.sum(axis) != 1).any():
            raise Invalid("several maxima share the gradient")
        return self._elementwise(lambda x: x.max(axis), lambda g: np.expand_dims(g, axis) * mask)

    def __matmul__(self, other: Tensor) -> Tensor:
        a, b = self.node(), other.node()
        x, y = a.value, b.value
        if self.ndim != 2 or other.ndim != 2:
            raise Invalid("products of matrices only")
        return Tensor.of(x @ y, (a, lambda g: g @ y.T), (b, lambda g: x.T @ g))

    def __gt__(self, other: float) -> Mask:
        return Mask(self.value() > other)

    def cat(self, *others: Tensor, dim: int = 0) -> Tensor:
        parts = (self, *others)
        if any(x.dtype != self.dtype for x in parts):
            raise Invalid("operands of two dtypes")
        nodes = [x.node() for x in parts]
        cuts = np.cumsum([x.shape[dim] for x in parts])[:-1]
        return Tensor.of(
            np.concatenate([node.value for node in nodes], dim),
            *((node, _part(cuts, dim, i)) for i, node in enumerate(nodes)),
        )

    def stack(self, *others: Tensor, dim: int = 0) -> Tensor:
        first, *rest = (x.unsqueeze(dim) for x in (self, *others))
        return first.cat(*rest, dim=dim)

    def pad(self, padding: Sequence[tuple[int, int]]) -> Tensor:
        inner = tuple(
            slice(before, before + size) for (before, _), size in zip(padding, self.shape)
        )
        return self._elementwise(lambda x: np.pad(x, padding), lambda g: g[inner])

    def roll(self, by: int, axis: int) -> Tensor:
        return self._elementwise(lambda x: np.roll(x, by, axis), lambda g: np.roll(g, -by, axis))

    # ---- creation ----

    @classmethod
    def full(cls, shape: tuple[int, ...], number: float, **kwargs: Any) -> Tensor:
        dtype = kwargs.get("dtype") or (np.float32 if isinstance(number, float) else np.int32)
        return cls.of(np.full(shape, number, dtype))

    @classmethod
    def zeros(cls, *shape: int, dtype: Any = np.float32, **kwargs: Any) -> Tensor:
        return cls.of(np.zeros(shape, dtype))

    @classmethod
    def ones(cls, *shape: int, dtype: Any = np.float32, **kwargs: Any) -> Tensor:
        return cls.of(np.ones(shape, dtype))

    # memory whose content does not matter
    empty = zeros

    @classmethod
    def arange(cls, *span: int, dtype: Any = np.int32, **kwargs: Any) -> Tensor:
        return cls.of(np.arange(*span, dtype=dtype))

    @classmethod
    def randint(cls, *shape: int, **kwargs: Any) -> Tensor:
        return cls.of(tinygrad.Tensor.randint(*shape, **kwargs).numpy())

    @staticmethod
    def manual_seed(seed: int) -> None:
        tinygrad.Tensor.manual_seed(seed)

    def zeros_like(self) -> Tensor:
        return Tensor.of(np.zeros_like(self.value()))

    def ones_like(self) -> Tensor:
        return Tensor.of(np.ones_like(self.value()))

    def full_like(self, number: float) -> Tensor:
        return Tensor.of(np.full_like(self.value(), number))

    def to(self, layout: Any) -> Tensor:
        raise Invalid("a move to the same layout may be a view or a copy")

    # ---- gradients ----

    def requires_grad_(self) -> Tensor:
        if self.memory.node.has_history or not self.is_whole():
            raise Invalid("only new tensors are leaves")
        if not self.is_leaf:
            # a parent makes it a part of histories; nothing reads that
            root = (Node(np.zeros(())), lambda g: np.zeros(()))
            self.memory.node = self.memory.leaf = Node(self.memory.node.value, (root,))
            self.is_leaf = True
            LEAVES.add(self)
        return self

    def is_whole(self) -> bool:
        """Whether this is all of its memory, in order."""
        return self.index.size == self.memory.node.value.size and self.is_contiguous()

    def backward(self, gradient: Tensor | None = None) -> Tensor:
        """Accumulates into the gradients of all leaves."""
        if not self.node().has_history:
            raise Refusal("nothing requires a gradient")
        for leaf, found in self._gradients(list(LEAVES), gradient):
            if found is not None:
                leaf.grad = found if leaf.grad is None else leaf.grad + found
        return self

    def gradient(self, *targets: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
        results = [found for _, found in self._gradients(targets, gradient)]
        if any(found is None for found in results):
            raise Invalid("the tensor does not depend on a target")
        return [found for found in results if found is not None]

    def _gradients(
        self, targets: Sequence[Tensor], gradient: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        if self.shape != () and gradient is None:
            raise Refusal("no upstream gradient")
        seed = np.ones((), self.dtype) if gradient is None else gradient.value()
        found = adjoints(self.node(), seed)
        for x in targets:
            if x.memory.leaf is None:
                raise Invalid("gradients by leaves only")
            adjoint = found.get(x.memory.leaf)
            yield x, None if adjoint is None else Tensor.of(adjoint[x.index])


LEAVES: WeakSet[Tensor] = WeakSet()


def fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `target`."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def _part(cuts: Array, dim: int, number: int) -> Product:
    return lambda g: np.split(g, cuts, dim)[number]


class Variable:
    """A Variable whose bound values are ints."""

    def __init__(self, name: str, low: int, high: int) -> None:
        self.low, self.high = low, high

    def bind(self, value: int) -> int:
        if not self.low <= value <= self.high:
            raise Refusal(f"{value} is out of range")
        return value


class TinyJit:
    """The function itself."""

    def __init__(self, function: Callable[..., Any], **kwargs: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def reset(self) -> None:
        pass
