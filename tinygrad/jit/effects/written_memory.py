"""Written memory: what a replay overwrites, which it may do once nobody reads the older content.

As before each write, those that can let go of the content do, and then there is one look (see
`storage.gate`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tinygrad.device import Buffer, RemoteBuffer
from tinygrad.execution.versions import Base, bases_of, named_among, versions_in
from tinygrad.jit.inputs import Inputs
from tinygrad.settings import STATE_POLICY
from tinygrad.storage.gate import make_writable
from tinygrad.storage.realization import overwrite, realize_all
from tinygrad.storage.views import is_in_memory


class WrittenMemory:
    """The memory that captured items write: the buffers `written`, of which `temporaries` have a
    content that does not outlive a replay. `inputs` are those of the captured call.
    """

    def __init__(self, written: set[Buffer], temporaries: set[Buffer], inputs: Inputs) -> None:
        self.inputs = [
            i for i, memory in enumerate(inputs.memories) if any(b in written for b in memory.known)
        ]
        """The numbers of the inputs that items write."""
        self.tokens = frozenset(b for b in written if isinstance(b, RemoteBuffer))
        """The tokens of that memory, equal in all processes."""
        self._bases: list[Base] = list(written - temporaries - inputs.memory)
        self._kind = inputs.signature, inputs.shared

    def holds(self, memory: Iterable[Base]) -> bool:
        """Whether items write some memory that is no input."""
        return any(base in self._bases for base in memory)

    def make_writable(self, inputs: Inputs) -> None:
        """Let nobody read the content of what a replay with `inputs` writes."""
        if self._look(inputs):
            # arguments that moved own their new memory, which others may read too
            inputs.find_memory()
            self._look(inputs)

    def _look(self, inputs: Inputs) -> bool:
        """Let all readers go, or move out. Returns whether one moved."""
        bases = named_among(self._bases)
        if self.inputs and (inputs.signature, inputs.shared) == self._kind:
            bases += [x for i in self.inputs for x in bases_of(inputs.memories[i].memory)]
        if not bases:
            return False
        inputs.let_go()
        _let_go(bases)
        if STATE_POLICY and versions_in(bases):
            overwrite(versions_in(bases))
        return make_writable(bases)


def _let_go(bases: Iterable[Base]) -> None:
    """Let the cells that own this memory refer to it, whatever its content is."""
    for base in bases:
        owner = None if base.owner is None else base.owner()
        if owner is None:
            continue
        if owner._node is not None and not is_in_memory(owner._node):
            realize_all(owner.live()[:1])
        if owner._node is None or is_in_memory(owner._node):
            owner.let_go()
