"""Closure: the tensors that a captured function uses without taking them as arguments.

Such are weights, caches and running statistics. Input: the tensors in memory before a capture, and
the memory that its items read and write. Output: whether a later call may replay it. Invariant: a
tensor that was moved, resharded or replaced is noticed. Pending writes to a tensor, and lazy values
that read content about to be overwritten, are realized before the items run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TypeAlias

from tinygrad.device import Buffer
from tinygrad.execution.buffers import device_buffers
from tinygrad.jit.inputs import Inputs
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.storage.realization import realize_readers
from tinygrad.storage.views import is_in_memory, movement_base, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# a tensor in memory, its node and its buffers; none kept alive
StoredTensor: TypeAlias = tuple[weakref.ref[Tensor], weakref.ref[UOp], list[weakref.ref[Buffer]]]


class Snapshot:
    """All live tensors at the start of a capture, none kept alive: the stored and the lazy ones."""

    def __init__(self) -> None:
        self.stored: list[StoredTensor] = []
        self._lazy: list[weakref.ref[Tensor]] = []
        for x in live_tensors:
            if isinstance(x, Tensor):
                if is_in_memory(x.uop):
                    buffers = [weakref.ref(b) for b in _roots_of(view_base(x.uop))]
                    self.stored.append((weakref.ref(x), weakref.ref(x.uop), buffers))
                else:
                    self._lazy.append(weakref.ref(x))

    def lazy_was_realized(self) -> bool:
        """Whether one of the lazy tensors is in memory by now.

        A replay would compute it again: initialize weights anew, or run a pending write twice.
        """
        return any((x := ref()) is not None and is_in_memory(x.uop) for ref in self._lazy)


class WrittenMemory:
    """The memory that items write. Lazy values that read it must be realized before the items run.

    `stored` are the tensors in memory before the capture, `written` are the buffers that its items
    write, `results` the tensors that the function returned.
    """

    def __init__(
        self,
        stored: Iterable[StoredTensor],
        written: set[Buffer],
        inputs: Inputs,
        results: Iterable[Tensor],
    ) -> None:
        nodes = [node for _, before, _ in stored if (node := before()) is not None]
        nodes += [x.uop for x in results if is_in_memory(x.uop)]
        bases = dict.fromkeys(view_base(node) for node in nodes)
        self._memory = [base for base in bases if _is_in(base, written)]
        self._inputs = [i for i, node in enumerate(inputs.nodes) if _is_in(node, written)]
        self._signature = inputs.signature

    def realize_readers(self, inputs: Inputs, results: Iterable[UOp] = ()) -> None:
        """Realize the lazy values that read the memory that the next call writes; `results` are the
        results of the last call that were made for it.
        """
        memory = [*self._memory]
        memory += [base for node in results if (base := view_base(node)).op is Ops.BUFFER]
        if inputs.signature == self._signature:
            memory += [inputs.nodes[i] for i in self._inputs]
        realize_readers(frozenset(memory))


class Closure:
    """The tensors that a capture read or wrote and that are not among its inputs.

    `stored` are the tensors in memory before the capture, `touched` is the memory of its items, and
    `inputs` that of its inputs.
    """

    def __init__(
        self, stored: Iterable[StoredTensor], touched: set[Buffer], inputs: Iterable[Buffer]
    ) -> None:
        used = touched.difference(inputs)
        self.buffers: set[Buffer] = set()
        self._tensors: list[tuple[weakref.ref[Tensor], UOp]] = []
        # the function dropped a tensor that it used: the next call uses another in its place
        self._is_rebound = False
        for ref, before, buffers in stored:
            x, node = ref(), before()
            if x is None or node is None:
                self._is_rebound |= any(b() in used for b in buffers)
                continue
            base = view_base(node)
            if _is_in(base, used):
                self.buffers.update(_roots_of(base))
                # realizing an assignment leaves another view of the same memory
                self._tensors.append((ref, x.uop if view_base(x.uop) is base else node))

    def is_unchanged(self) -> bool:
        """Whether the function would use the same memory. Pending writes to it are realized."""
        if self._is_rebound:
            return False
        for ref, node in self._tensors:
            x = ref()
            if x is None or x.uop is not node:
                return self._is_in_place()
        return True

    def _is_in_place(self) -> bool:
        """Whether all live tensors are where they were, and each memory has a live tensor."""
        alive = [(x, ref, node) for ref, node in self._tensors if (x := ref()) is not None]
        for x, _, node in alive:
            if x.uop is not node and _has_pending_write(x.uop):
                x.realize()
            if x.uop is not node:
                return False
        kept = [(ref, node) for _, ref, node in alive]
        if {view_base(node) for _, node in kept} != {view_base(n) for _, n in self._tensors}:
            return False
        self._tensors = kept
        return True


def _has_pending_write(node: UOp) -> bool:
    """Whether a value is a view of a buffer with a pending write."""
    written = view_base(node)
    return written.op is Ops.ASSIGN and movement_base(written.src[0]).op is Ops.BUFFER


def _is_in(base: UOp, buffers: set[Buffer]) -> bool:
    return not buffers.isdisjoint(_roots_of(base))


def _roots_of(base: UOp) -> list[Buffer]:
    return [b.base or b for b in device_buffers(base)]
