"""Written memory: lazy values that read what a replay overwrites are computed before it.

Input: the tensors in the memory that captured items write. Output: `realize_readers`, before each
replay. Invariant: a lazy value keeps the content that it was built on. If nothing but known tensors
refers to that memory, which counts of references show, no search is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, is_
from sys import getrefcount

from tinygrad.device import Buffer
from tinygrad.jit.inputs import Inputs
from tinygrad.jit.recording import StoredTensor, is_within
from tinygrad.storage.aliases import count_references
from tinygrad.storage.realization import realize_readers
from tinygrad.storage.views import is_in_memory, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

_node_of = attrgetter("uop")


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
        self._inputs = [i for i, node in enumerate(inputs.nodes) if is_within(node, written)]
        self._signature = inputs.signature
        nodes = [node for _, before, _ in stored if (node := before()) is not None]
        nodes += [x.uop for x in results if is_in_memory(x.uop)]
        bases = dict.fromkeys(view_base(node) for node in nodes)
        self._bases = [base for base in bases if is_within(base, written)]
        self._tensors: list[Tensor] = []
        self._nodes: list[UOp] = []
        self._holders: Callable[[], Counter[UOp]] = Counter
        self._views: list[UOp] = []
        # how often each of `_bases` and `_views` is referred to, if nothing but what is known does
        self._counts: list[int] | None = None

    def watch(self, tensors: Iterable[Tensor], holders: Callable[[], Counter[UOp]]) -> None:
        """Search for readers only when something else than these tensors, and `holders`, which it
        counts, refers to the memory.
        """
        self._tensors = list({id(x): x for x in tensors}.values())
        self._nodes = list(map(_node_of, self._tensors))
        self._holders = holders
        views = dict.fromkeys(node for root in self._nodes for node in _views_below(root))
        self._views = list(views)

    def realize_readers(self, inputs: Inputs, results: Sequence[UOp] = ()) -> None:
        """Realize the lazy values that read the memory that the next call writes; `results` are the
        results of the last call that were made for it.
        """
        writes_inputs = self._inputs and inputs.signature == self._signature
        if not writes_inputs and not results and self._has_no_readers():
            return
        memory = [*self._bases]
        memory += [base for node in results if (base := view_base(node)).op is Ops.BUFFER]
        if writes_inputs:
            memory += [inputs.nodes[i] for i in self._inputs]
        realize_readers(frozenset(memory))
        del memory
        self._counts = self._known_counts()

    def _has_no_readers(self) -> bool:
        return (
            all(map(is_, map(_node_of, self._tensors), self._nodes))
            and list(map(getrefcount, self._bases + self._views)) == self._counts
        )

    def _known_counts(self) -> list[int]:
        """The number of references to `_bases` and `_views` that are known."""
        known = self._holders()
        known.update(self._nodes)
        known.update(count_references(self._tensors))
        known.update(node.src[0] for node in self._views)
        # two lists, of which one is made to count
        return [_FROM_A_LIST + 1 + known[node] for node in self._bases + self._views]


def _views_below(node: UOp) -> Iterator[UOp]:
    """The views from a node down to the BUFFER that it reads."""
    while node.op is not Ops.BUFFER and node.src:
        yield node
        node = node.src[0]


# what `getrefcount` gives for an object that is in one list
_FROM_A_LIST = next(map(getrefcount, [object()]))
