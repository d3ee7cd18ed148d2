"""Results of a captured function: which of them depend on the inputs of a call.

Input: the result of the captured call, and its inputs. Output: the result for the inputs of another
call. Invariant: a tensor that is a view of an input, or has a size that depends on a bound
Variable, is a new tensor in each call; all others are the same objects, overwritten by each call.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from tinygrad.jit.inputs import Inputs, leaves, map_leaves
from tinygrad.jit.substitution import Substitution
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

R = TypeVar("R")


class Results(Generic[R]):
    """The `result` of the captured call, and those of later calls."""

    def __init__(self, result: R, captured: Inputs) -> None:
        self.result = result
        self._captured = captured
        substitution = Substitution(captured, captured)
        found = [leaf for leaf in leaves(result) if isinstance(leaf, (Tensor, UOp))]
        nodes = {id(leaf): _node_of(leaf) for leaf in found}
        self._nodes = {key: node for key, node in nodes.items() if substitution.changes(node)}
        self._latest: list[UOp] = []

    @property
    def latest(self) -> list[UOp]:
        """The nodes of the last call's tensors that were made for that call."""
        return self._latest

    def of(self, inputs: Inputs) -> R:
        """The result of a call."""
        if not self._nodes:
            return self.result
        substitution = Substitution(self._captured, inputs)
        nodes = {key: substitution.node(node) for key, node in self._nodes.items()}
        self._latest = list(nodes.values())
        return cast(R, _replaced(self.result, nodes))


def _node_of(leaf: Tensor | UOp) -> UOp:
    return leaf.uop if isinstance(leaf, Tensor) else leaf


def _replaced(result: Any, nodes: dict[int, UOp]) -> Any:
    """A result in which the tensors and Variables with these ids are new ones of these nodes."""
    if isinstance(result, (Tensor, UOp)):
        node = nodes.get(id(result))
        if node is None:
            return result
        return Tensor(node) if isinstance(result, Tensor) else node
    return map_leaves(lambda x: _replaced(x, nodes), result)
