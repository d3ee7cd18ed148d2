"""A tensor with the library's names on top of PyTorch: it checks the reference.

Input: the calls of programs without captures. Output: PyTorch's results. PyTorch lacks slices of
negative step and a reshape that is always a view; programs with these are skipped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from test.fuzz_state.program import Program, execute, plain
from test.fuzz_state.reference import OWN_LAYOUT, Invalid
from test.fuzz_state.tape import Array

DTYPES = SimpleNamespace(double=torch.float64, float=torch.float32, int=torch.int32)


class Lacking(Exception):
    """PyTorch cannot run the statement."""


class Refused:
    """A `with` block that PyTorch must refuse."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        assert kind is not None, "not refused"
        return not issubclass(kind, Lacking)


def run(program: Program) -> list[tuple[int, Any]] | None:
    """What the program reads, by the number of the statement; None if PyTorch does not run it."""
    if any("randint" in x.text for x in program.statements):
        return None
    names = program.namespace(True)
    names.update(Tensor=Tensor, dtypes=DTYPES, refused=Refused)
    seen: list[tuple[int, Any]] = []
    for number, statement in enumerate(program.statements):
        names["see"] = lambda value, number=number: seen.append((number, plain(value)))
        try:
            execute(statement.text, names)
        except (Lacking, Invalid):
            return None
        except RuntimeError as error:
            # what PyTorch refuses because of gradients, and the reference does not
            if any(text in str(error) for text in ("leaf", "modified by", "multiple views")):
                return None
            raise
    return seen


def raw(value: Any) -> Any:
    return value.x if isinstance(value, Tensor) else value


class Tensor:
    """The library's names for a PyTorch tensor `x`."""

    __array_ufunc__ = None

    def __init__(self, data: Any, dtype: Any = None, device: Any = None) -> None:
        if isinstance(data, np.ndarray):
            self.x = torch.tensor(data, dtype=dtype)
        else:
            whole = torch.tensor(data)
            default = torch.float32 if whole.is_floating_point() else torch.int32
            self.x = whole.to(dtype or default)

    @classmethod
    def of(cls, x: torch.Tensor) -> Tensor:
        self = cls.__new__(cls)
        self.x = x
        return self

    @property
    def grad(self) -> Tensor | None:
        return None if self.x.grad is None else Tensor.of(self.x.grad)

    @grad.setter
    def grad(self, value: None) -> None:
        self.x.grad = None

    # ---- reads ----

    def numpy(self) -> Array:
        array: Array = self.x.detach().numpy().copy()
        return array

    def tolist(self) -> Any:
        return self.x.tolist()

    def item(self) -> Any:
        return self.x.item()

    def realize(self, *others: Tensor) -> Tensor:
        return self

    # ---- views ----

    def reshape(self, *shape: int) -> Tensor:
        try:
            return Tensor.of(self.x.view(*shape))
        except RuntimeError as error:
            raise Lacking from error

    view = reshape

    def flatten(self) -> Tensor:
        return self.reshape(-1)

    def flip(self, *axes: int) -> Tensor:
        raise Lacking

    def shrink(self, arg: Sequence[tuple[int, int]]) -> Tensor:
        return self[tuple(slice(*pair) for pair in arg)]

    def split(self, sizes: list[int], dim: int = 0) -> list[Tensor]:
        return [Tensor.of(x) for x in self.x.split(sizes, dim)]

    def chunk(self, count: int, dim: int = 0) -> list[Tensor]:
        return [Tensor.of(x) for x in self.x.chunk(count, dim)]

    @property
    def T(self) -> Tensor:
        return Tensor.of(self.x.mT if self.x.ndim == 2 else self.x)

    def __iter__(self) -> Iterator[Tensor]:
        return (Tensor.of(x) for x in self.x)

    def __getitem__(self, index: Any) -> Tensor:
        check_index(index)
        return Tensor.of(self.x[index])

    # ---- writes ----

    def _write(self, target: torch.Tensor, value: Any) -> None:
        """As an update of an optimizer if the target is a leaf, or has no gradient."""
        if self.x.is_leaf and self.x.requires_grad:
            with torch.no_grad():
                target.copy_(raw(value))
        else:
            target.copy_(raw(value))

    def __setitem__(self, index: Any, value: Any) -> None:
        check_index(index)
        if isinstance(value, Tensor):
            value = value.clone()
        if isinstance(index, list):
            if len(set(np.arange(len(self.x))[index])) < len(index):
                raise Lacking
            self.x[index] = raw(value)
            return
        self._write(self.x[index], value)

    def assign(self, value: Any) -> Tensor:
        if value.x.shape != self.x.shape:
            raise ValueError("another shape")
        self._write(self.x, value.clone())
        return self

    def replace(self, other: Tensor) -> Tensor:
        self.x = other.x
        return self

    def __iadd__(self, other: Any) -> Tensor:
        return self.assign(self + other)

    def __isub__(self, other: Any) -> Tensor:
        return self.assign(self - other)

    def __imul__(self, other: Any) -> Tensor:
        return self.assign(self * other)

    def __itruediv__(self, other: Any) -> Tensor:
        return self.assign(self / other)

    # ---- new values ----

    def contiguous(self) -> Tensor:
        """A copy, which PyTorch makes only of what is not contiguous."""
        return Tensor.of(self.x.clone())

    contiguous_backward = contiguous

    def cast(self, dtype: Any) -> Tensor:
        return Tensor.of(self.x.to(dtype))

    def max(self, axis: int) -> Tensor:
        return Tensor.of(self.x.amax(axis))

    def sum(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        return Tensor.of(self.x.sum(axis, keepdim=keepdim, dtype=self.x.dtype))

    def cumsum(self, axis: int) -> Tensor:
        return Tensor.of(self.x.cumsum(axis, dtype=self.x.dtype))

    def cummax(self, axis: int) -> tuple[Tensor]:
        return (Tensor.of(self.x.cummax(axis)[0]),)

    def cat(self, *others: Tensor, dim: int = 0) -> Tensor:
        return Tensor.of(torch.cat([self.x, *(y.x for y in others)], dim))

    def stack(self, *others: Tensor, dim: int = 0) -> Tensor:
        return Tensor.of(torch.stack([self.x, *(y.x for y in others)], dim))

    def pad(self, padding: Sequence[tuple[int, int]]) -> Tensor:
        flat = [size for pair in reversed(padding) for size in pair]
        return Tensor.of(torch.nn.functional.pad(self.x, flat))

    def where(self, a: Any, b: Any) -> Tensor:
        return Tensor.of(torch.where(self.x, raw(a), raw(b)))

    def full_like(self, number: float) -> Tensor:
        return Tensor.of(torch.full_like(self.x, number))

    def relu(self) -> Tensor:
        return Tensor.of(self.x.relu())

    def to(self, layout: Any) -> Tensor:
        return self if layout is OWN_LAYOUT else self.contiguous()

    def shard(self, layout: Any) -> Tensor:
        return self.contiguous()

    @property
    def device(self) -> Any:
        return OWN_LAYOUT

    def to_(self, layout: Any) -> Tensor:
        raise Lacking

    shard_ = to_

    def __deepcopy__(self, memo: Any) -> Tensor:
        return Tensor.of(self.x.detach().clone())

    # ---- creation ----

    @classmethod
    def zeros(cls, *shape: int, dtype: Any = None, device: Any = None) -> Tensor:
        return cls.of(torch.zeros(shape, dtype=dtype))

    empty = zeros

    @classmethod
    def ones(cls, *shape: int, dtype: Any = None, device: Any = None) -> Tensor:
        return cls.of(torch.ones(shape, dtype=dtype))

    @classmethod
    def full(cls, shape: Any, number: float, dtype: Any = None, device: Any = None) -> Tensor:
        return cls.of(torch.full(shape, number, dtype=dtype))

    @classmethod
    def arange(cls, *span: int, dtype: Any = None, device: Any = None) -> Tensor:
        return cls.of(torch.arange(*span, dtype=dtype))

    # ---- gradients ----

    def requires_grad_(self) -> Tensor:
        self.x.requires_grad_()
        return self

    def backward(self, gradient: Tensor | None = None) -> Tensor:
        self.x.backward(raw(gradient), retain_graph=True)
        return self

    def gradient(self, *targets: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(self.x, [t.x for t in targets], retain_graph=True)
        return [Tensor.of(x) for x in found]


def check_index(index: Any) -> None:
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(x, slice) and (x.step or 1) < 0 for x in items):
        raise Lacking


def _forward(name: str) -> Callable[..., Any]:
    """The method of PyTorch of this name."""

    @functools.wraps(getattr(torch.Tensor, name))
    def method(self: Tensor, *args: Any) -> Any:
        return Tensor.of(getattr(self.x, name)(*(raw(x) for x in args)))

    return method


def _like(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda self: Tensor.of(make(self.x))


for _name in (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("__neg__", "__gt__", "__matmul__", "square", "roll", "clone", "detach", "expand"),
    *("permute", "transpose", "squeeze", "unsqueeze", "diagonal"),
):
    setattr(Tensor, _name, _forward(_name))
for _name in ("zeros_like", "ones_like"):
    setattr(Tensor, _name, _like(getattr(torch, _name)))
