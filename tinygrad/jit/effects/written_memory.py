"""Written memory: before a replay overwrites memory, the lazy values that read it are computed.

So a lazy value keeps the content that it was built on. No lazy value has to be searched for if
nothing but known tensors refers to the memory.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from tinygrad.device import Buffer, RemoteBuffer
from tinygrad.jit.effects.known_references import KnownReferences
from tinygrad.jit.effects.recording import is_within
from tinygrad.jit.effects.stored_tensor import StoredTensor
from tinygrad.jit.inputs import Inputs
from tinygrad.storage.aliases import cached_views, has_cached_views
from tinygrad.storage.gradients.history import histories
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
    """The memory that captured items write, the buffers `written`.

    `stored` are the tensors that were in memory before the capture, `results` those that the
    function returned. `inputs` are those of the captured call.
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
        """The tokens of that memory, equal in all processes."""
        self._kind = inputs.signature, inputs.shared
        self._written = written
        results = list(results)
        bases = [view_base(node) for x in stored if (node := x.base()) is not None]
        bases += [base for x in results for base in buffers_read_by(x.uop)]
        self._bases = [base for base in dict.fromkeys(bases) if is_within(base, written)]
        tensors = [x.ref for x in stored] + [weakref.ref(x) for x in results]
        self._tensors = [
            ref
            for ref in tensors
            if (x := ref()) is not None and any(b in self._bases for b in buffers_read_by(x.uop))
        ]
        self._known: KnownReferences | None = None

    def holds(self, memory: UOp, inputs: Inputs) -> bool:
        """Whether items write a BUFFER, when they run with these inputs."""
        return memory in self._bases or any(inputs.nodes[i] is memory for i in self.inputs)

    def watch(self, tensors: Iterable[Tensor], holders: Iterable[Holder]) -> None:
        """From now on, search for readers only if anything but `tensors` and `holders` refers to
        the memory.
        """
        bases = self._bases

        # `self` in it would be a reference cycle, which keeps memory until garbage is collected
        def count() -> Counter[UOp]:
            return sum((x.references() for x in holders), Counter(bases))

        self._known = KnownReferences(tensors, bases, count)

    def realize_readers(self, inputs: Inputs, results: Sequence[UOp] = ()) -> None:
        """Realize the lazy values that read what a replay with `inputs` writes.

        `results` are results of the last call that the replay overwrites.
        """
        known = self._known
        writes_inputs = self.inputs and (inputs.signature, inputs.shared) == self._kind
        is_alone = known is not None and known.are_all()
        is_alone = is_alone and not (has_cached_views() and cached_views(self._bases))
        if is_alone and not writes_inputs and not results:
            for base in self._bases:
                if base.facts is not None and base in histories.definitions:
                    histories.overwritten(self._bases)
                    break
            return
        memory = [*self._bases]
        below = (base for node in results for base in buffers_read_by(node))
        memory += [base for base in below if is_within(base, self._written)]
        if writes_inputs:
            memory += [inputs.nodes[i] for i in self.inputs]
        owners = [x for ref in self._tensors if (x := ref()) is not None]
        owners += [x for x in inputs.tensors if view_base(x.uop) in memory]
        realize_readers(frozenset(memory), owners)
        if known is not None:
            known.count()


def buffers_read_by(node: UOp) -> list[UOp]:
    """The BUFFERs that a value reads: that of a view, or all below copies between shards."""
    base = view_base(node)
    return [base] if base.op is Ops.BUFFER else [x for x in base.toposort() if x.op is Ops.BUFFER]
