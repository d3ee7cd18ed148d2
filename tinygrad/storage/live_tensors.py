"""Live tensors: the base class of `Tensor`, cells, and the registry of all tensors that exist.

Input: nodes of the tensor graph. Output: tensors that refer to them. Invariant: every tensor is in
`live_tensors`, which keeps none alive; a tensor and its views are in one `Cell`. A tensor or a cell
of which nothing is lazy is looked up by its BUFFER, and costs a realization nothing.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Self, cast

from tinygrad.execution.buffers import memory_of, storage_of, tokens_of
from tinygrad.execution.versions import owner_of, set_owner, versions_in
from tinygrad.storage.content import Content
from tinygrad.storage.gradients.grad_mode import GradState, gradients_disabled, open_blocks
from tinygrad.storage.lock import changes
from tinygrad.storage.views import WHOLE_VIEWS, view_base
from tinygrad.uop import Ops
from tinygrad.uop.node_table import NodeTable
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep, apply_steps

# lists of tensors are cleared of dead ones at this length, twice this length, ...
_FIRST_CLEARED = 16


class _NumberedRef(weakref.ref["TensorBase"]):
    __slots__ = ("number",)
    number: int


class LiveTensors:
    """Weak references to all tensors, in the order of their creation."""

    def __init__(self) -> None:
        self.refs: dict[int, _NumberedRef] = {}
        # those among them that may be lazy, or whose cell may be
        self._unsettled: dict[int, _NumberedRef] = {}
        # the others, by their BUFFER; some may be unsettled again
        self._settled = NodeTable[dict[int, _NumberedRef]]()
        self._numbers = itertools.count()

    def add(self, tensor: TensorBase) -> None:
        """Register a new tensor, which is no view."""
        ref = _NumberedRef(tensor, self._forget)
        number = tensor._number = ref.number = next(self._numbers)
        tensor._cell = None
        tensor._steps = ()
        self.refs[number] = self._unsettled[number] = ref

    def _forget(self, ref: Any) -> None:
        number = ref.number
        del self.refs[number]
        self._unsettled.pop(number, None)

    def changed(self, tensor: TensorBase) -> None:
        """Note that a tensor, or its cell, refers to another node."""
        number = tensor._number
        self._unsettled[number] = self.refs[number]

    def _settle(self, tensor: TensorBase) -> None:
        """Look a tensor up by its BUFFER from now on."""
        number, node = tensor._number, tensor._node
        ref = self._unsettled.pop(number)
        if node is None:
            return
        found = self._settled.get(node)
        if found is None:
            self._settled[node] = {number: ref}
        elif number not in found:
            found[number] = ref
            count = len(found)
            if count >= _FIRST_CLEARED and count & (count - 1) == 0:
                live = [
                    (n, r) for n, r in found.items() if (x := r()) is not None and x._node is node
                ]
                self._settled[node] = dict(live)
        if tensor._node is not node:
            # another thread has changed it meanwhile
            self._unsettled[number] = ref

    def settled_at(self, node: UOp) -> list[TensorBase]:
        """The tensors that refer to a BUFFER, without those that `lazy_holders` may have."""
        found = self._settled.get(node)
        if found is None:
            return []
        refs = [*found.values()]
        return [x for ref in refs if (x := ref()) is not None and x._node is node]

    def unsettled(self) -> list[TensorBase]:
        """The tensors that are in no `settled_at`, and whose node is known."""
        refs = list(self._unsettled.values())
        return [x for ref in refs if (x := ref()) is not None and x._node is not None]

    def changed_since_settled(self) -> list[TensorBase]:
        """The tensors that are in no `settled_at`, but for those whose cell has no node, in the
        order of their creation.
        """
        refs = sorted(self._unsettled.values(), key=lambda ref: ref.number)
        return [x for ref in refs if (x := ref()) is not None and x._has_node()]

    def in_memory(self, memory: AbstractSet[Any]) -> list[TensorBase]:
        """The tensors in some of this memory, bases of buffers and tokens: those of the cell that
        owns it, and others that refer to its content.
        """
        found: dict[TensorBase, None] = {}
        for base in memory:
            owner = None if base.owner is None else base.owner()
            if owner is not None:
                found.update(dict.fromkeys(owner.live()))
            for node in versions_in([base]):
                found.update(dict.fromkeys(self.settled_at(node)))
        for x in self.unsettled():
            below = view_base(x.uop)
            if below.memory is not None and not memory.isdisjoint(memory_of(below)):
                found[x] = None
        return list(found)

    def requiring_grad(self) -> list[TensorBase]:
        """The tensors that require a gradient."""
        refs = list(self.refs.values())
        return [x for ref in refs if (x := ref()) is not None and x._requires_grad]

    def find(self, number: int) -> TensorBase | None:
        """The tensor with a number, if it exists."""
        ref = self.refs.get(number)
        return None if ref is None else ref()

    def now(self) -> int:
        """A number above those of all tensors so far, and below those of later ones."""
        return next(self._numbers)

    def __iter__(self) -> Iterator[TensorBase]:
        found = (ref() for ref in list(self.refs.values()))
        return iter([tensor for tensor in found if tensor is not None])

    def one_by_one(self) -> Iterator[TensorBase]:
        """The tensors, for a search that may end early."""
        for ref in list(self.refs.values()):
            tensor = ref()
            if tensor is not None:
                yield tensor

    def __len__(self) -> int:
        return len(self.refs)

    def mark(self) -> int:
        """A number that is less than those of all tensors created from now on."""
        return next(self._numbers)

    def since(self, mark: int) -> list[TensorBase]:
        """The live tensors that were created after `mark` was taken."""
        refs = [ref for ref in list(self.refs.values()) if ref.number > mark]
        return [tensor for ref in refs if (tensor := ref()) is not None]

    def lazy(self) -> list[TensorBase]:
        """The tensors that are not a BUFFER: views, and values that are not computed yet."""
        return [x for x in self.unsettled() if x.uop.op is not Ops.BUFFER]

    def whole_values_in(self, nodes: AbstractSet[UOp]) -> list[tuple[TensorBase | Cell, UOp]]:
        """The tensors and cells of which one of these lazy nodes is the whole value, with it."""
        views = WHOLE_VIEWS
        found: list[tuple[TensorBase | Cell, UOp]] = []
        for ref in list(self._unsettled.values()):
            x = ref()
            if x is None:
                continue
            cell, node = x._cell, x._node
            while node is not None and node.op in views:
                node = node.src[0]
            if node is not None and node in nodes:
                found.append((x, node))
            if cell is None:
                continue
            node = cell._node
            while node is not None and node.op in views:
                node = node.src[0]
            if node is not None and node in nodes:
                found.append((cell, node))
        return found

    def lazy_holders(self) -> list[tuple[TensorBase | Cell, UOp]]:
        """The lazy tensors, and the cells whose whole value is not a BUFFER, with their nodes."""
        stored = Ops.BUFFER
        found: list[tuple[TensorBase | Cell, UOp]] = []
        cells: dict[Cell, UOp] = {}
        for ref in list(self._unsettled.values()):
            x = ref()
            if x is None:
                continue
            cell, node = x._cell, x._node
            whole = None if cell is None else cell._node
            if whole is None or whole.op is stored:
                cell = whole = None
            if node is None:
                # it follows its cell
                if cell is None:
                    self._settle(x)
            elif node.op is not stored:
                found.append((x, node))
            elif cell is None:
                self._settle(x)
            elif cell.leave(x):
                cell = None
            if cell is not None and whole is not None:
                cells[cell] = whole
        found.extend(cells.items())
        return found


live_tensors = LiveTensors()
_register = live_tensors.add
cells_lock = threading.RLock()
"""Held while a cell gains or loses a member. Reentrant: a finalizer may make a view."""


class Cell:
    """What a tensor and its views share. `uop` is the whole value, `members` their numbers.

    The tensor itself need not exist any more. While nobody has asked for the value of memory that
    a captured function writes, the cell has no node, but a `content`.
    """

    __slots__ = ("__weakref__", "_node", "content", "members")

    content: Content | None
    _node: UOp | None
    """The node of the whole value, if somebody has asked for it."""

    def __init__(self, uop: UOp, first: int) -> None:
        self._node = uop
        self.content = None
        self.members = [first]

    @classmethod
    def over(cls, content: Content) -> Cell:
        """A cell without members, of what is in some memory."""
        self = object.__new__(cls)
        self.content, self.members, self._node = content, [], None
        return self

    @property
    def uop(self) -> UOp:
        """The node of the whole value."""
        if self._node is None:
            with changes:
                if self._node is None:
                    assert self.content is not None, "a cell has a node, or is in memory"
                    self._node = self.content.node()
        return self._node

    @uop.setter
    def uop(self, node: UOp) -> None:
        self._node = node

    def add(self, number: int) -> None:
        """Add a member; dead ones are dropped each time the list has doubled. The caller holds
        `cells_lock`.
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
        with cells_lock:
            if self.live() != [view]:
                return False
            _ = view.uop
            view._cell, view._steps = None, ()
        return True

    def live(self) -> list[TensorBase]:
        """The members that exist and have not left the cell."""
        refs = live_tensors.refs
        found = [ref() for number in self.members if (ref := refs.get(number)) is not None]
        return [x for x in found if x is not None and x._cell is self]

    def set(self, uop: UOp) -> None:
        """Refer to another whole value, of which all members are views."""
        self.uop = uop
        for member in self.live():
            member._forget_node()
            live_tensors.changed(member)

    def refer_to(self, content: Content) -> None:
        """Be what is in some memory, whatever it is."""
        self.content = content
        if self._node is not None:
            self._node = None
            for member in self.live():
                member._forget_node()

    def leave_memory(self) -> None:
        """Keep the content of memory, which another cell is about to write."""
        for node in self.uop.toposort():
            if node.op is not Ops.BUFFER or node.memory is None:
                continue
            if owner_of(node.memory) is self:
                set_owner(node.memory, tokens_of(node), None)

    def let_go(self) -> None:
        """Refer to the content of the memory instead of a node, which may die."""
        if self._node is not None:
            self.note_content(self._node)
            self._node = None
        for member in self.live():
            member._forget_node()

    def note_content(self, node: UOp) -> Content:
        """The content of the memory that a node of this cell is in; the same object if the memory
        is.
        """
        if self.content is None or not self.content.is_of(node):
            self.content = Content(node)
        return self.content

    def owns(self, node: UOp) -> bool:
        """Whether members write the memory of a BUFFER in place: the first to write it do, while
        one of them lives.
        """
        owner = owner_of(storage_of(node))
        if owner is None:
            set_owner(node.memory, tokens_of(node), self)
            return True
        return bool(owner is self)


class TensorBase:
    """A reference to a node of the graph, with a gradient and the tensors that it aliases.

    `_requires_grad` is the state of `grad_mode`: None, which an optimizer makes a leaf, False, or
    one of those that require a gradient.
    """

    __slots__ = ("__weakref__", "_cell", "_node", "_number", "_requires_grad", "_steps", "grad")

    _node: UOp | None
    """The node, if somebody has asked for it since the cell got another."""
    grad: Self | None
    """The gradient, once `backward` was called on a tensor that depends on this one."""
    _number: int
    """The number of this tensor, in the order of creation."""
    _cell: Cell | None
    """The tensors that share memory with this one; None if it has no views and is none."""
    _steps: tuple[ViewStep, ...]
    """The steps from the value of the cell to this view of it."""
    _requires_grad: GradState

    # `==` is elementwise, so identity tells tensors apart
    __hash__ = object.__hash__

    @property
    def uop(self) -> UOp:
        """The node of the tensor graph that this tensor refers to."""
        node = self._node
        return self._derived_node() if node is None else node

    @uop.setter
    def uop(self, node: UOp) -> None:
        self._node = node

    def _derived_node(self) -> UOp:
        with changes:
            if self._node is None:
                assert self._cell is not None, "a tensor has a node or a cell"
                self._node = apply_steps(self._cell.uop, self._steps)
                live_tensors.changed(self)
        return self._node

    def _has_node(self) -> bool:
        """Whether there is a node, which is derived from that of the cell if necessary."""
        if self._node is None and self._cell is not None and self._cell._node is not None:
            self._derived_node()
        return self._node is not None

    def _forget_node(self) -> None:
        """Derive the node from the cell when somebody asks for it."""
        self._node = None

    @classmethod
    def _member(cls, cell: Cell, steps: tuple[ViewStep, ...], requires_grad: GradState) -> Self:
        """The view of a cell by some steps."""
        self = object.__new__(cls)
        self._node = None
        self._requires_grad = requires_grad
        self.grad = None
        _register(self)
        self._join(cell, steps)
        return self

    def _join(self, cell: Cell, steps: tuple[ViewStep, ...]) -> None:
        """Become the view of a cell by some steps."""
        with cells_lock:
            if self._cell is not cell:
                cell.add(self._number)
            self._cell, self._steps = cell, steps
        self._forget_node()

    @classmethod
    def _new(cls, uop: UOp, requires_grad: GradState = None) -> Self:
        self = object.__new__(cls)
        self._node = uop
        self._requires_grad = requires_grad
        self.grad = None
        _register(self)
        return self

    def _view(self, uop: UOp, *step: Any) -> Self:
        """A view with the value `uop`, by one step, an op and its argument, or by none."""
        state = self._requires_grad
        new = self._new(uop, state and True)
        with cells_lock:
            cell = self._cell
            if cell is None:
                cell = self._cell = Cell(self.uop, self._number)
            cell.add(new._number)
            new._cell = cell
            new._steps = (*self._steps, cast(ViewStep, step)) if step else self._steps
        if open_blocks.count and state is not False and gradients_disabled():
            new.uop, new._requires_grad = uop.detach(), False
            new._steps = (*new._steps, (Ops.DETACH, None))
        return new

    def _own_cell(self) -> Cell:
        """The cell of this tensor; a new one if it has none."""
        with cells_lock:
            if self._cell is None:
                self._cell = Cell(self.uop, self._number)
            return self._cell

    def _alias(self, other: TensorBase) -> None:
        """Become the same view as `other`, of the same tensor."""
        node = other.uop
        self._join(other._own_cell(), other._steps)
        self.uop = node
        live_tensors.changed(self)

    def _refer_to(self, uop: UOp) -> None:
        """Refer to another value from now on, as no view of any tensor."""
        self._cell, self._steps = None, ()
        self._set_node(uop)

    def _own_memory(self) -> None:
        """Own the memory that this tensor is in, if no other one does."""
        base = view_base(self.uop)
        if base.op is Ops.BUFFER and base.memory is not None:
            self._own_cell().owns(base)

    def _set_node(self, uop: UOp) -> None:
        """Refer to another node; the only way to do so once a tensor exists."""
        if self._cell is not None and not self._steps:
            self._cell.set(uop)
        self.uop = uop
        live_tensors.changed(self)
