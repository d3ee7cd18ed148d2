"""The tensors that a captured function reads without being given them: weights, caches, statistics.

In: which tensors are in memory before a capture, and the memory that its items touch. Out: whether
a later call may replay it. Always true: a tensor that was moved, laid out anew or exchanged since
is noticed; one that was written to in place is up to date before the items run, and so is what
reads a content that they overwrite.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TypeAlias

from tinygrad.device import Buffer
from tinygrad.jit.inputs import Inputs
from tinygrad.storage.buffers import device_buffers
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.storage.random_generator import random_generator
from tinygrad.storage.realization import realize_readers
from tinygrad.storage.views import is_in_memory, movement_base, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Held: TypeAlias = tuple[weakref.ref[Tensor], weakref.ref[UOp], list[weakref.ref[Buffer]]]


class Surroundings:
    """All tensors there are before a capture, none kept alive: those in memory, with the nodes and
    the buffers they are then, and the others.
    """

    def __init__(self) -> None:
        self.stored: list[Held] = []
        self.lazy: list[weakref.ref[Tensor]] = []
        for x in live_tensors:
            if isinstance(x, Tensor):
                if is_in_memory(x.uop):
                    buffers = [weakref.ref(b) for b in _buffers_of(view_base(x.uop))]
                    self.stored.append((weakref.ref(x), weakref.ref(x.uop), buffers))
                else:
                    self.lazy.append(weakref.ref(x))

    def were_computed(self) -> bool:
        """Whether one of the others is in memory by now. Then a replay would compute it again: draw
        weights anew, or write a second time what was to be written once.
        """
        return any((x := ref()) is not None and is_in_memory(x.uop) for ref in self.lazy)


def _waits_for_writing(node: UOp) -> bool:
    """Whether a value is a part of memory that something is yet to be written to."""
    written = view_base(node)
    return written.op is Ops.ASSIGN and movement_base(written.src[0]).op is Ops.BUFFER


class Overwritten:
    """The memory of tensors that items write: what is computed of its content, but not yet, must be
    computed before they run again.

    `held` are the tensors in memory before a capture, `results` what it gave.
    """

    def __init__(
        self,
        held: Iterable[Held],
        written: set[Buffer],
        inputs: Inputs,
        results: Iterable[Tensor],
    ) -> None:
        nodes = [node for _, before, _ in held if (node := before()) is not None]
        nodes += [x.uop for x in results if is_in_memory(x.uop)]
        self.memory = [x for x in _memories(nodes) if _is_any_of(x, written)]
        self.inputs = [i for i, node in enumerate(inputs.nodes) if _is_any_of(node, written)]
        self.signature = inputs.signature

    def realize_readers(self, inputs: Inputs) -> None:
        """Compute what reads the memory that the next call writes."""
        memory = [*self.memory, *random_generator.memory()]
        if inputs.signature == self.signature:
            memory += [inputs.nodes[i] for i in self.inputs]
        realize_readers(frozenset(memory))


def _memories(nodes: Iterable[UOp]) -> list[UOp]:
    return list(dict.fromkeys(view_base(node) for node in nodes))


def _is_any_of(memory: UOp, buffers: set[Buffer]) -> bool:
    return not buffers.isdisjoint(_buffers_of(memory))


def _buffers_of(memory: UOp) -> list[Buffer]:
    return [b.base or b for b in device_buffers(memory)]


class Closure:
    """The tensors in memory that a capture touched and that were not among its inputs.

    `held` are those in memory before the capture, `touched` is the memory of its items, and
    `inputs` that of its inputs.
    """

    def __init__(
        self, held: Iterable[Held], touched: set[Buffer], inputs: Iterable[Buffer]
    ) -> None:
        read = touched.difference(inputs)
        self.held: list[tuple[weakref.ref[Tensor], UOp]] = []
        self.buffers: set[Buffer] = set()
        # the function put another tensor in the place of one that it read: the next call reads that
        self.is_exchanged = False
        for ref, before, buffers in held:
            x, node = ref(), before()
            if x is None or node is None:
                self.is_exchanged |= any(b() in read for b in buffers)
                continue
            memory = view_base(node)
            if _is_any_of(memory, read):
                self.buffers.update(_buffers_of(memory))
                # realizing an assignment leaves another view of the same memory
                self.held.append((ref, x.uop if view_base(x.uop) is memory else node))

    def is_unchanged(self) -> bool:
        """Whether the function would still read the same memory. What waits to be written there is
        written.
        """
        if self.is_exchanged:
            return False
        for ref, node in self.held:
            x = ref()
            if x is None or x.uop is not node:
                return self._is_held()
        return True

    def _is_held(self) -> bool:
        """Whether all tensors that are left hold what they held, and some of them each memory."""
        alive = [(x, ref, node) for ref, node in self.held if (x := ref()) is not None]
        for x, _, node in alive:
            if x.uop is not node and _waits_for_writing(x.uop):
                x.realize()
            if x.uop is not node:
                return False
        kept = [(ref, node) for _, ref, node in alive]
        if {view_base(node) for _, node in kept} != {view_base(n) for _, n in self.held}:
            return False
        self.held = kept
        return True
