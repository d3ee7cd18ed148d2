"""An eager tensor with the library's names: the reference for programs with state.

Input: the same calls as the library's `Tensor`. Output: numpy arrays and their gradients.

A tensor is a map of indices into flat memory. Movement ops and `detach()` move the map, so their
results are views whatever their strides: each sees all writes to the memory (`eager_views`). All
other ops read values and make new memory (`eager_values`). A write through a tensor that is
detached, or a leaf, changes the value and leaves its history as it was.

`TinyJit` calls the function. What it made and did not keep is overwritten by its next call, so that
a program may not read it any more. Arrays that share memory with a tensor are numpy's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any
from weakref import WeakSet

import numpy as np

import tinygrad
from test.fuzz_state.eager_values import Values
from test.fuzz_state.eager_views import Invalid, Memory, Refusal
from test.fuzz_state.harness import reachable
from test.fuzz_state.tape import Array, Node, Product, adjoints, check_exact

DTYPES = SimpleNamespace(double=np.float64, float=np.float32, int=np.int32)


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


class Tensor(Values):
    """The eager tensor."""

    # ---- writes ----

    def assign(self, other: Any) -> Tensor:
        if not isinstance(other, Tensor):
            other = Tensor(other, dtype=self.dtype)
        if not fits(other.shape, self.shape):
            raise Refusal(f"{other.shape} does not fit {self.shape}")
        if self.repeats:
            raise Refusal("the view repeats elements")
        if other.dtype != self.dtype:
            raise Invalid("a value of another dtype")
        other = other.expand(*self.shape)
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
        if result.shape != self.shape or result.dtype != self.dtype:
            raise Refusal(f"a result of shape {result.shape}, {result.dtype} in place")
        return self.assign(result)

    def __iadd__(self, other: Any) -> Tensor:
        return self._update(Tensor.__add__, other)

    def __isub__(self, other: Any) -> Tensor:
        return self._update(Tensor.__sub__, other)

    def __imul__(self, other: Any) -> Tensor:
        return self._update(Tensor.__mul__, other)

    def __itruediv__(self, other: Any) -> Tensor:
        return self._update(Tensor.__truediv__, other)

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
        """The tensor itself in its own layout; else a copy. Programs move only new values to a
        given layout, of which no view can tell a copy.
        """
        return self if layout is OWN_LAYOUT else self.clone()

    def shard(self, layout: Any) -> Tensor:
        return self.clone()

    @property
    def device(self) -> Any:
        return OWN_LAYOUT

    def to_(self, layout: Any) -> Tensor:
        """Moves the tensor, and not its views. Whether it moves at all is not known, so these may
        not be read any more.
        """
        if self.memory.node.has_history:
            raise Invalid("a tensor with a history is moved")
        if self.memory.is_result or self.memory.array is not None:
            raise Invalid("a result, or an exported tensor, is moved")
        if self.repeats:
            raise Invalid("a tensor that repeats elements is moved, after which it may not")
        old = self.memory
        is_detached = self.is_detached
        self._fill(Node(self.value().ravel()), self.shape)
        self.is_detached = is_detached
        old.overwritten = True
        return self

    shard_ = to_

    # ---- memory that is shared with arrays ----

    @classmethod
    def from_dlpack(cls, array: Array) -> Tensor:
        if not array.flags.c_contiguous:
            raise Invalid("memory that has gaps is copied")
        self = cls.of(array)
        self.memory.array = array.reshape(-1)
        return self

    def exported(self) -> Array:
        """An array in the same memory."""
        if self.memory.node.has_history or self.memory.is_result:
            raise Invalid("an array of a tensor that has a history, or is overwritten by a call")
        return self.memory.exported(self.index)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return Tensor.of(self.numpy())

    # ---- gradients ----

    @property
    def requires_grad(self) -> bool:
        return self.is_leaf

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted:
            self.requires_grad_()
        elif self.is_leaf:
            self.memory.node, self.memory.leaf = Node(self.memory.node.value), None
            self.is_leaf = False
            LEAVES.discard(self)

    def requires_grad_(self) -> Tensor:
        if self.dtype == np.int32 or self.memory.node.has_history or not self.is_whole():
            raise Invalid("only new tensors of floats are leaves")
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
                leaf.grad = found if leaf.grad is None else leaf.grad.assign(leaf.grad + found)
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
        if gradient is not None and gradient.dtype != self.dtype:
            raise Invalid("an upstream gradient of another dtype")
        seed = np.ones((), self.dtype) if gradient is None else gradient.value()
        found = adjoints(self.node(), seed)
        for x in targets:
            if x.memory.leaf is None:
                raise Invalid("gradients by leaves only")
            adjoint = found.get(x.memory.leaf)
            yield x, None if adjoint is None else Tensor.of(adjoint[x.index])


LEAVES: WeakSet[Tensor] = WeakSet()
OWN_LAYOUT = object()


def fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `target`."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


class Variable:
    """A Variable whose bound values are ints."""

    def __init__(self, name: str, low: int, high: int) -> None:
        self.low, self.high = low, high

    def bind(self, value: int) -> int:
        if not self.low <= value <= self.high:
            raise Refusal(f"{value} is out of range")
        return value


class TinyJit:
    """The function itself. Its next call overwrites the memory that it made, except for what it
    left where code finds it.
    """

    def __init__(self, function: Callable[..., Any], **kwargs: Any) -> None:
        self.fxn = function
        self.made: list[Memory] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.made
        if Memory.made is not None:
            # a call by another function, of which the results are
            result, self.made = self.fxn(*args, **kwargs), []
        else:
            Memory.made = []
            try:
                result = self.fxn(*args, **kwargs)
                self.made = Memory.made
            finally:
                Memory.made = None
            kept = {x.memory for x in reachable([self, args, kwargs], Tensor)}
            self.made = [x for x in self.made if x not in kept]
            for memory in self.made:
                # results have no history
                memory.node = Node(memory.node.value)
                memory.is_result = True
        for memory in made:
            memory.overwritten = True
        return result

    def reset(self) -> None:
        pass


class NumPy:
    """The module `numpy`, with arrays in the memory of tensors."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def from_dlpack(x: Any) -> Array:
        return x.exported() if isinstance(x, Tensor) else np.from_dlpack(x)

    @staticmethod
    def asarray(x: Any, copy: bool | None = None) -> Array:
        if not isinstance(x, Tensor):
            return np.asarray(x, copy=copy)
        return x.exported() if copy is False else x.numpy()


# ---- what programs use of `harness`, for tensors that are computed at once by one thread ----


def settle(names: dict[str, Any]) -> None:
    pass


def interrupted(number: int, when: str) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


def at_once(*calls: Callable[[], Any]) -> None:
    for call in calls:
        call()


def pause() -> None:
    pass


def node_of(x: Tensor) -> Array:
    return x.numpy()


def content_of(node: Array) -> Array:
    return node
