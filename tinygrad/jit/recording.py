"""Recording of a call: what was there before the function ran, and what it left behind.

Input: the roots of a function. Output: the tensors that it must realize before it returns: results,
pending writes, and tensors that it keeps aside. Invariant: after `settle`, every effect of the call
on memory has run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, TypeAlias

from tinygrad.device import Buffer
from tinygrad.execution.buffers import device_buffers
from tinygrad.jit.inputs import tensors_in
from tinygrad.jit.survey import Link, Survey
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.storage.realization import realize_all
from tinygrad.storage.views import is_in_memory, is_uniform, movement_base, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# a tensor in memory, its node and its buffers; none kept alive
StoredTensor: TypeAlias = tuple[weakref.ref[Tensor], weakref.ref[UOp], list[weakref.ref[Buffer]]]


class Recording:
    """All live tensors at the start of a call, none kept alive, and what `roots` reach by name."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.roots = tuple(roots)
        self.before = Survey(self.roots)
        self.lazy_links = [x for x in self.before.links if x.is_tensor and not _is_stored(x)]
        """Where tensors were that are not in memory."""
        self.stored: list[StoredTensor] = []
        self._lazy: list[tuple[weakref.ref[Tensor], weakref.ref[UOp]]] = []
        for x in live_tensors:
            if isinstance(x, Tensor):
                if is_in_memory(x.uop):
                    buffers = [weakref.ref(b) for b in memory_of(view_base(x.uop))]
                    self.stored.append((weakref.ref(x), weakref.ref(x.uop), buffers))
                else:
                    self._lazy.append((weakref.ref(x), weakref.ref(x.uop)))
        self._mark = live_tensors.mark()
        self.kept: list[Link] = []
        """Where tensors are that the function created and kept, other than its results."""

    def settle(self, result: Any) -> None:
        """Realize the results, the writes to tensors that outlive the call, and what is kept."""
        results = tensors_in(result)
        self.kept = self._find_kept(results)
        kept = [link.value for link in self.kept]
        realize_all([*results, *self._written(), *kept])

    def lazy_was_realized(self) -> bool:
        """Whether one of the lazy tensors is in memory by now.

        A replay would compute it again: initialize weights anew, or run a pending write twice.
        """
        return any((x := ref()) is not None and is_in_memory(x.uop) for ref, _ in self._lazy)

    def _find_kept(self, results: list[Tensor]) -> list[Link]:
        fresh = {id(x) for x in live_tensors.since(self._mark)} - {id(x) for x in results}
        if not fresh:
            return []
        links = Survey(self.roots).links
        return [
            link for link in links if id(link.value) in fresh and not is_uniform(link.value.uop)
        ]

    def _written(self) -> list[Tensor]:
        """The tensors that the function wrote to without realizing them."""
        named = {id(x) for x in self.before.tensors()}
        before = [(ref, node) for ref, node, _ in self.stored] + self._lazy
        found: list[Tensor] = []
        for ref, node in before:
            x = ref()
            if x is None or x.uop is node() or is_in_memory(x.uop) or is_uniform(x.uop):
                continue
            if id(x) in named or has_pending_write(x.uop):
                found.append(x)
        return found


def _is_stored(link: Link) -> bool:
    return is_in_memory(link.value.uop)


def has_pending_write(node: UOp) -> bool:
    """Whether a value is a view of a buffer with a pending write."""
    written = view_base(node)
    return written.op is Ops.ASSIGN and movement_base(written.src[0]).op is Ops.BUFFER


def memory_of(base: UOp) -> list[Buffer]:
    """The memory of a BUFFER, or of a shard of one."""
    return [b.base or b for b in device_buffers(base)]
