"""Live tensors: the base class of `Tensor`, and the registry of all tensors that exist.

Input: nodes of the tensor graph. Output: tensors that refer to them. Invariant: every tensor is in
`live_tensors`, which keeps none alive; a view has the `origin` of the tensor that it is a view of.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Self, cast

from tinygrad.storage.views import VIEW_OPS, unmoved_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class _NumberedRef(weakref.ref["TensorBase"]):
    __slots__ = ("number",)
    number: int


class LiveTensors:
    """Weak references to all tensors, in the order of their creation."""

    def __init__(self) -> None:
        self._refs: dict[int, _NumberedRef] = {}
        self._numbers = itertools.count()

    def add(self, tensor: TensorBase) -> None:
        """Register a new tensor, and make it its own origin."""
        ref = _NumberedRef(tensor, self._forget)
        tensor.origin = ref.number = next(self._numbers)
        self._refs[ref.number] = ref

    def _forget(self, ref: weakref.ref[TensorBase]) -> None:
        del self._refs[cast(_NumberedRef, ref).number]

    def __iter__(self) -> Iterator[TensorBase]:
        found = (ref() for ref in list(self._refs.values()))
        return iter([tensor for tensor in found if tensor is not None])

    def __len__(self) -> int:
        return len(self._refs)

    def lazy(self) -> list[TensorBase]:
        """The tensors that are not a BUFFER: views, and values that are not computed yet."""
        stored = Ops.BUFFER
        refs = list(self._refs.values())
        return [x for ref in refs if (x := ref()) is not None and x.uop.op is not stored]


live_tensors = LiveTensors()
_register = live_tensors.add


class TensorBase:
    """A reference to a node of the graph, with a gradient and an origin.

    `_requires_grad` is True, False, or None, which an optimizer makes True.
    """

    __slots__ = ("__weakref__", "_requires_grad", "grad", "origin", "uop")

    uop: UOp
    """The node of the tensor graph that this tensor refers to."""
    grad: Self | None
    """The gradient, once `backward` was called on a tensor that depends on this one."""
    origin: int
    """The number of the tensor that this one is a view of; its own number if it is not a view."""
    _requires_grad: bool | None

    # `==` is elementwise, so identity tells tensors apart
    __hash__ = object.__hash__

    @classmethod
    def _new(cls, uop: UOp, requires_grad: bool | None = None) -> Self:
        self = object.__new__(cls)
        self.uop = uop
        self._requires_grad = requires_grad
        self.grad = None
        _register(self)
        return self

    @classmethod
    def _view_of(cls, source: Self, uop: UOp, requires_grad: bool | None) -> Self:
        """A tensor of `uop`, with the origin of `source` if it is a view of `source`."""
        new = cls._new(uop, requires_grad)
        if uop is source.uop or (
            uop.op in VIEW_OPS and unmoved_base(uop) is unmoved_base(source.uop)
        ):
            new.origin = source.origin
        return new
