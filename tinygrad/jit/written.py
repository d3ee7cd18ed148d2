"""Written memory: lazy values that read what a replay overwrites are computed before it.

Input: the tensors in the memory that captured items write. Output: `realize_readers`, before each
replay. Invariant: a lazy value keeps the content that it was built on. If nothing but known tensors
refers to that memory, no search is needed.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from tinygrad.device import Buffer
from tinygrad.jit.inputs import Inputs
from tinygrad.jit.recording import is_within
from tinygrad.jit.references import KnownReferences
from tinygrad.jit.stored import StoredTensor
from tinygrad.storage.aliases import views_apart
from tinygrad.storage.history import histories
from tinygrad.storage.realization import realize_readers
from tinygrad.storage.views import is_in_memory, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Holder(Protocol):
    """An object that refers to BUFFERs."""

    def references(self) -> Counter[UOp]:
        """How often it refers to each of them."""


class WrittenMemory:
    """The memory that items write.

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
        self.inputs = [i for i, node in enumerate(inputs.nodes) if is_within(node, written)]
        """The numbers of the inputs that items write."""
        self._kind = inputs.signature, inputs.shared
        results = [x for x in results if is_in_memory(x.uop)]
        nodes = [node for x in stored if (node := x.base()) is not None]
        nodes += [x.uop for x in results]
        tensors = [x.ref for x in stored] + [weakref.ref(x) for x in results]
        bases = dict.fromkeys(view_base(node) for node in nodes)
        self._bases = [base for base in bases if is_within(base, written)]
        self._tensors = [
            ref for ref in tensors if (x := ref()) is not None and view_base(x.uop) in self._bases
        ]
        self._known: KnownReferences | None = None

    def holds(self, memory: UOp, inputs: Inputs) -> bool:
        """Whether items write a BUFFER, when they run with these inputs."""
        return memory in self._bases or any(inputs.nodes[i] is memory for i in self.inputs)

    def watch(self, tensors: Iterable[Tensor], holders: Iterable[Holder]) -> None:
        """Search for readers only when something else than these tensors, and `holders`, refers to
        the memory.
        """
        bases = self._bases

        # not a reference to this object, which a cycle would keep until it is searched for
        def count() -> Counter[UOp]:
            return sum((x.references() for x in holders), Counter(bases))

        self._known = KnownReferences(tensors, bases, count)

    def realize_readers(self, inputs: Inputs, results: Sequence[UOp] = ()) -> None:
        """Realize the lazy values that read the memory that the next call writes; `results` are the
        results of the last call that were made for it.
        """
        known = self._known
        writes_inputs = self.inputs and (inputs.signature, inputs.shared) == self._kind
        is_alone = known is not None and known.are_all() and not views_apart(self._bases)
        if is_alone and not writes_inputs and not results:
            if any(x in histories.definitions for x in self._bases):
                histories.overwritten(self._bases)
            return
        memory = [*self._bases]
        memory += [base for node in results if (base := view_base(node)).op is Ops.BUFFER]
        if writes_inputs:
            memory += [inputs.nodes[i] for i in self.inputs]
        owners = [x for ref in self._tensors if (x := ref()) is not None]
        owners += [x for x in inputs.tensors if view_base(x.uop) in memory]
        realize_readers(frozenset(memory), owners)
        if known is not None:
            known.count()
