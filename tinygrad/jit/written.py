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

from tinygrad.device import Buffer, RemoteBuffer
from tinygrad.jit.inputs import Inputs
from tinygrad.jit.recording import is_within
from tinygrad.jit.references import KnownReferences
from tinygrad.jit.stored import StoredTensor
from tinygrad.storage.aliases import views_apart
from tinygrad.storage.history import histories
from tinygrad.storage.realization import realize_readers
from tinygrad.storage.views import view_base
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
        self.tokens = frozenset(b for b in written if isinstance(b, RemoteBuffer))
        """What stands for that memory in all processes."""
        self._kind = inputs.signature, inputs.shared
        self._written = written
        results = list(results)
        bases = [view_base(node) for x in stored if (node := x.base()) is not None]
        bases += [base for x in results for base in _memory_of(x.uop)]
        self._bases = [base for base in dict.fromkeys(bases) if is_within(base, written)]
        tensors = [x.ref for x in stored] + [weakref.ref(x) for x in results]
        self._tensors = [
            ref
            for ref in tensors
            if (x := ref()) is not None and any(b in self._bases for b in _memory_of(x.uop))
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
        below = (base for node in results for base in _memory_of(node))
        memory += [base for base in below if is_within(base, self._written)]
        if writes_inputs:
            memory += [inputs.nodes[i] for i in self.inputs]
        owners = [x for ref in self._tensors if (x := ref()) is not None]
        owners += [x for x in inputs.tensors if view_base(x.uop) in memory]
        realize_readers(frozenset(memory), owners)
        if known is not None:
            known.count()


def _memory_of(node: UOp) -> list[UOp]:
    """The BUFFERs that a value reads: that of a view, or all below copies between shards."""
    base = view_base(node)
    return [base] if base.op is Ops.BUFFER else [x for x in base.toposort() if x.op is Ops.BUFFER]
