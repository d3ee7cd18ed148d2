"""Weights that several stages share, such as tied input and output embeddings.

Input: the parameters of each stage, and the devices of the stages. Output: for each stage, a local
copy of the weights that it shares with stages on other devices. Invariants: such a weight is
replicated on the devices of all its stages, so that a stage reads it without communication. The
gradients of the copies are accumulated on their devices, and all-reduced once for each batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from tinygrad.storage.placement import canonical_device
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import TensorDevice, device_names

Copies: TypeAlias = dict[Tensor, Tensor]


def replicated_over(*places: TensorDevice) -> TensorDevice:
    """The replicated layout on the devices of several places."""
    found = canonical_device(tuple(dict.fromkeys(name for p in places for name in device_names(p))))
    assert found is not None
    return found


def replicate_shared(
    parameters: Sequence[Sequence[Tensor]], places: Sequence[TensorDevice]
) -> None:
    """Move the parameters of each stage to the devices of all stages that use them, except those
    that are already there, in any layout.
    """
    places_of: dict[Tensor, list[TensorDevice]] = {}
    for owned, place in zip(parameters, places, strict=True):
        for parameter in owned:
            places_of.setdefault(parameter, []).append(place)
    for parameter, stages in places_of.items():
        layout = replicated_over(*stages)
        if device_names(parameter.device) != device_names(layout):
            parameter.to_(layout)
    if places_of:
        Tensor.realize(*places_of)


def copies_for(place: TensorDevice, parameters: Sequence[Tensor], detached: bool = False) -> Copies:
    """A copy on the devices of `place` of each parameter that is on other devices too."""
    found = {}
    for parameter in parameters:
        if device_names(parameter.device) != device_names(place):
            source = parameter.detach() if detached else parameter
            found[parameter] = source.to(replicated_over(place))
            found[parameter].requires_grad = parameter.requires_grad
    return found


@contextmanager
def substituted(copies: Mapping[Tensor, Tensor]) -> Iterator[None]:
    """In this block, each key refers to the value of its copy, so that a stage reads the copy.

    Raises ValueError if the stage writes to one.
    """
    before = {original: original.uop for original in copies}
    for original, copy in copies.items():
        original._refer_to(copy.uop)
    try:
        yield
        for original, copy in copies.items():
            if original.uop is not copy.uop:
                raise ValueError(
                    f"a stage of a pipeline writes to {original!r}, which it shares with a stage "
                    "on other devices; give each stage its own"
                )
    finally:
        for original, node in before.items():
            original._refer_to(node)


def add_gradients(stages: Sequence[Copies]) -> None:
    """Add the gradients of all copies to the gradients of the original parameters."""
    for copies in stages:
        for original, copy in copies.items():
            if copy.grad is not None:
                original._add_gradient(copy.grad.to(original.device))
