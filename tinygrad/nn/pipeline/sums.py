"""Gradients of microbatches, added up over the microbatches first and over the devices last.

In: the gradients by the parameters of a stage, one microbatch after the other. Out: their sums.
Always true: where a gradient is a sum over devices that each of them gets in full, what is kept of
it is each device's own term, which takes as much memory; so the devices add up what they found once
for each batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.schedule.simplify import simplify
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Sums:
    """The terms of the gradients of a batch so far, by parameter."""

    def __init__(self) -> None:
        self._terms: dict[Tensor, Terms] = {}

    def backward(
        self, output: Tensor, gradient: Tensor | None, parameters: Sequence[Tensor]
    ) -> list[Tensor]:
        """`output.backward(gradient)`, but terms of gradients by the parameters are added up here,
        and not in `grad`. Returns what is to be realized.
        """
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            output.backward(gradient)
            found = {x: x.grad for x in parameters if x.grad is not None}
        finally:
            for parameter, grad in zip(parameters, before, strict=True):
                parameter.grad = grad
        kept = _as_kept(list(found.values()))
        return [self._add(parameter, new) for parameter, new in zip(found, kept, strict=True)]

    def _add(self, parameter: Tensor, new: Tensor | Terms) -> Tensor:
        """The sum of what there is and what is new."""
        if isinstance(new, Tensor):
            return added(parameter, new)
        old = self._terms.get(parameter)
        if old is not None:
            new = Terms(old.value + new.value, new.target)
        self._terms[parameter] = new
        return new.value

    def reduce(self) -> list[Tensor]:
        """Adds up over devices, to `grad` of the parameters, and returns these."""
        return [added(parameter, found.reduced()) for parameter, found in self._terms.items()]


@dataclass(frozen=True)
class Terms:
    """What each device has of a sum that goes to `target`."""

    value: Tensor
    target: Sharding

    def reduced(self) -> Tensor:
        """The sum."""
        return Tensor.from_uop(self.value.uop.allreduce(self.target))


def added(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Adds to `grad` of a parameter, and returns that."""
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return parameter.grad


def _as_kept(gradients: list[Tensor]) -> list[Tensor | Terms]:
    """Each gradient as it is kept."""
    if not any(isinstance(gradient.device, Sharding) for gradient in gradients):
        return list(gradients)
    # what is added up over devices comes to the top
    nodes = simplify(UOp.sink(*(gradient.uop for gradient in gradients))).src
    return [
        Terms(Tensor.from_uop(node.src[0]), node.arg) if _is_kept_as_terms(node) else gradient
        for gradient, node in zip(gradients, nodes, strict=True)
    ]


def _is_kept_as_terms(node: UOp) -> bool:
    """Whether this is a sum over devices of which a term is no larger than the result on each."""
    if node.op is not Ops.ALLREDUCE or not isinstance(node.arg, Sharding):
        return False
    terms = node.src[0]
    assert isinstance(terms.device, Sharding)
    return terms.device.local_shape(terms.shape) == node.arg.local_shape(terms.shape)
