"""Live tensors: the base class of `Tensor`, and the registry of all tensors that exist.

Input: nodes of the tensor graph. Output: tensors that refer to them. Invariant: every tensor is in
`live_tensors`, which keeps none alive; a tensor and its views are in one `AliasGroup`. A tensor or
a group of which nothing is lazy is looked up by its BUFFER, and costs a realization nothing.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Self, cast

from tinygrad.storage.gradients.grad_mode import GradState, gradients_disabled, open_blocks
from tinygrad.uop import Ops
from tinygrad.uop.node_table import NodeTable
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep

# lists of tensors are cleared of dead ones at this length, twice this length, ...
_FIRST_CLEARED = 16


class _NumberedRef(weakref.ref["TensorBase"]):
    __slots__ = ("number",)
    number: int


class LiveTensors:
    """Weak references to all tensors, in the order of their creation."""

    def __init__(self) -> None:
        self._refs: dict[int, _NumberedRef] = {}
        # those among them that may be lazy, or whose alias group may be
        self._unsettled: dict[int, _NumberedRef] = {}
        # the others, by their BUFFER; some may be unsettled again
        self._settled = NodeTable[dict[int, _NumberedRef]]()
        self._numbers = itertools.count()

    def add(self, tensor: TensorBase) -> None:
        """Register a new tensor, which is no view."""
        ref = _NumberedRef(tensor, self._forget)
        number = tensor._number = ref.number = next(self._numbers)
        tensor._aliases = None
        tensor._steps = ()
        self._refs[number] = self._unsettled[number] = ref

    def _forget(self, ref: Any) -> None:
        number = ref.number
        del self._refs[number]
        self._unsettled.pop(number, None)

    def changed(self, tensor: TensorBase) -> None:
        """Note that a tensor, or its alias group, refers to another node."""
        number = tensor._number
        self._unsettled[number] = self._refs[number]

    def _settle(self, tensor: TensorBase) -> None:
        """Look a tensor up by its BUFFER from now on."""
        number, node = tensor._number, tensor.uop
        ref = self._unsettled.pop(number)
        found = self._settled.get(node)
        if found is None:
            self._settled[node] = {number: ref}
        elif number not in found:
            found[number] = ref
            count = len(found)
            if count >= _FIRST_CLEARED and count & (count - 1) == 0:
                live = [
                    (n, r) for n, r in found.items() if (x := r()) is not None and x.uop is node
                ]
                self._settled[node] = dict(live)
        if tensor.uop is not node:
            # another thread has changed it meanwhile
            self._unsettled[number] = ref

    def settled_at(self, node: UOp) -> list[TensorBase]:
        """The tensors that refer to a BUFFER, without those that `lazy_holders` may have."""
        found = self._settled.get(node)
        if found is None:
            return []
        return [x for ref in [*found.values()] if (x := ref()) is not None and x.uop is node]

    def unsettled(self) -> list[TensorBase]:
        """The tensors that are in no `settled_at`."""
        refs = list(self._unsettled.values())
        return [x for ref in refs if (x := ref()) is not None]

    def find(self, number: int) -> TensorBase | None:
        """The tensor with a number, if it exists."""
        ref = self._refs.get(number)
        return None if ref is None else ref()

    def now(self) -> int:
        """A number above those of all tensors so far, and below those of later ones."""
        return next(self._numbers)

    def __iter__(self) -> Iterator[TensorBase]:
        found = (ref() for ref in list(self._refs.values()))
        return iter([tensor for tensor in found if tensor is not None])

    def one_by_one(self) -> Iterator[TensorBase]:
        """The tensors, for a search that may end early."""
        for ref in list(self._refs.values()):
            tensor = ref()
            if tensor is not None:
                yield tensor

    def __len__(self) -> int:
        return len(self._refs)

    def mark(self) -> int:
        """A number that is less than those of all tensors created from now on."""
        return next(self._numbers)

    def since(self, mark: int) -> list[TensorBase]:
        """The live tensors that were created after `mark` was taken."""
        refs = [ref for ref in list(self._refs.values()) if ref.number > mark]
        return [tensor for ref in refs if (tensor := ref()) is not None]

    def lazy(self) -> list[TensorBase]:
        """The tensors that are not a BUFFER: views, and values that are not computed yet."""
        return [x for x in self.unsettled() if x.uop.op is not Ops.BUFFER]

    def lazy_holders(self) -> list[TensorBase | AliasGroup]:
        """The lazy tensors, and the alias groups of tensors whose whole value is not a BUFFER."""
        stored = Ops.BUFFER
        found: list[TensorBase | AliasGroup] = []
        groups: dict[AliasGroup, None] = {}
        for ref in list(self._unsettled.values()):
            x = ref()
            if x is None:
                continue
            group = x._aliases
            if group is not None and group.uop.op is stored:
                group = None
            if x.uop.op is not stored:
                found.append(x)
                if group is not None:
                    groups[group] = None
            elif group is None:
                self._settle(x)
            elif not group.leave(x):
                groups[group] = None
        found.extend(groups)
        return found


live_tensors = LiveTensors()
_register = live_tensors.add
groups_lock = threading.RLock()
"""Held while an alias group gains or loses a member. Reentrant: a finalizer may make a view."""


class AliasGroup:
    """A tensor and its views. `uop` is the value of the tensor, `members` their numbers.

    The tensor itself need not exist any more.
    """

    __slots__ = ("members", "uop")

    def __init__(self, uop: UOp, first: int) -> None:
        self.uop = uop
        self.members = [first]

    def add(self, number: int) -> None:
        """Add a member; dead ones are dropped each time the list has doubled. The caller holds
        `groups_lock`.
        """
        members = self.members
        members.append(number)
        count = len(members)
        if count >= _FIRST_CLEARED and count & (count - 1) == 0:
            members[:] = [n for n in members if live_tensors.find(n) is not None]

    def leave(self, view: TensorBase) -> bool:
        """Let the only member, if it is a view of distinct elements, be a tensor of its own.

        Nothing else needs the value that it was a view of.
        """
        if not view._steps or any(op is Ops.EXPAND for op, _ in view._steps):
            return False
        with groups_lock:
            if self.live() != [view]:
                return False
            view._aliases, view._steps = None, ()
        return True

    def live(self) -> list[TensorBase]:
        """The members that exist and have not left the group."""
        found = (live_tensors.find(number) for number in self.members)
        return [x for x in found if x is not None and x._aliases is self]


class TensorBase:
    """A reference to a node of the graph, with a gradient and the tensors that it aliases.

    `_requires_grad` is the state of `grad_mode`: None, which an optimizer makes a leaf, False, or
    one of those that require a gradient.
    """

    __slots__ = ("__weakref__", "_aliases", "_number", "_requires_grad", "_steps", "grad", "uop")

    uop: UOp
    """The node of the tensor graph that this tensor refers to."""
    grad: Self | None
    """The gradient, once `backward` was called on a tensor that depends on this one."""
    _number: int
    """The number of this tensor, in the order of creation."""
    _aliases: AliasGroup | None
    """The tensors that share memory with this one; None if it has no views and is none."""
    _steps: tuple[ViewStep, ...]
    """The steps from the value of `aliases` to this view of it."""
    _requires_grad: GradState

    # `==` is elementwise, so identity tells tensors apart
    __hash__ = object.__hash__

    @classmethod
    def _new(cls, uop: UOp, requires_grad: GradState = None) -> Self:
        self = object.__new__(cls)
        self.uop = uop
        self._requires_grad = requires_grad
        self.grad = None
        _register(self)
        return self

    def _view(self, uop: UOp, *step: Any) -> Self:
        """A view with the value `uop`, by one step, an op and its argument, or by none."""
        state = self._requires_grad
        new = self._new(uop, state and True)
        with groups_lock:
            group = self._aliases
            if group is None:
                group = self._aliases = AliasGroup(self.uop, self._number)
            group.add(new._number)
            new._aliases = group
            new._steps = (*self._steps, cast(ViewStep, step)) if step else self._steps
        if open_blocks.count and state is not False and gradients_disabled():
            new.uop, new._requires_grad = uop.detach(), False
            new._steps = (*new._steps, (Ops.DETACH, None))
        return new

    def _alias_group(self) -> AliasGroup:
        """The alias group of this tensor; a new one if it has none."""
        with groups_lock:
            if self._aliases is None:
                self._aliases = AliasGroup(self.uop, self._number)
            return self._aliases

    def _alias(self, other: TensorBase) -> None:
        """Become the same view as `other`, of the same tensor."""
        with groups_lock:
            self._aliases, self._steps = other._alias_group(), other._steps
            self._aliases.add(self._number)
        self._set_node(other.uop)

    def _refer_to(self, uop: UOp) -> None:
        """Refer to another value from now on, as no view of any tensor."""
        self._aliases, self._steps = None, ()
        self._set_node(uop)

    def _set_node(self, uop: UOp) -> None:
        """Refer to another node; the only way to do so once a tensor exists."""
        self.uop = uop
        live_tensors.changed(self)
