"""Optimizers among the inputs of a step: their state, and the parameters that it belongs to.

Input: the inputs of a function. Output: its optimizers, and the parameter of each tensor of state.
Optimizers can follow parameters to other devices, and drop some temporarily. Invariant: an
optimizer keeps each kind of state in a list as long as that of its parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tinygrad.nn.optim import Optimizer
from tinygrad.nn.state import get_state_dict
from tinygrad.tensor import Tensor


def optimizers_in(inputs: Mapping[str, Any]) -> dict[str, Optimizer]:
    """The optimizers by name, each once.

    Raises ValueError for a fused one, whose parameters cannot have different layouts.
    """
    named = get_state_dict(dict(inputs), tensor_type=Optimizer)  # type: ignore[type-abstract]
    found = {id(optimizer): (name, optimizer) for name, optimizer in reversed(named.items())}
    for name, optimizer in found.values():
        if optimizer.fused:
            raise ValueError(
                f"plan: {name} updates its parameters as one flat tensor, which has one layout; "
                "make it with fused=False"
            )
    return dict(reversed(found.values()))


def parameters_of_state(optimizer: Optimizer) -> Iterator[tuple[Tensor, Tensor]]:
    """Each tensor of state, such as a running mean, with the parameter that it belongs to."""
    for attribute in _aligned(optimizer):
        for state, parameter in zip(vars(optimizer)[attribute], optimizer.params, strict=True):
            if isinstance(state, Tensor) and state.shape == parameter.shape:
                yield state, parameter


def _aligned(optimizer: Optimizer) -> list[str]:
    """The attributes that have an entry for each parameter."""
    lists = {name: value for name, value in vars(optimizer).items() if isinstance(value, list)}
    count = len(optimizer.params)
    return [n for n, x in lists.items() if len(x) == count and n not in {"params", "buffers"}]


def follow_parameters(optimizers: Iterable[Optimizer]) -> None:
    """Set the devices of optimizers to those of their parameters, after these were moved."""
    for optimizer in optimizers:
        optimizer.devices = [parameter.device for parameter in optimizer.params]


@contextmanager
def without(optimizers: Iterable[Optimizer], removed: Collection[int]) -> Iterator[None]:
    """In the block, optimizers do not have the parameters of these ids."""
    before = [(optimizer, dict(vars(optimizer))) for optimizer in optimizers]
    try:
        for optimizer, attributes in before:
            kept = [i for i, x in enumerate(optimizer.params) if id(x) not in removed]
            for name in ("params", *_aligned(optimizer)):
                setattr(optimizer, name, [attributes[name][i] for i in kept])
            optimizer.buffers = [x for x in optimizer.buffers if id(x) not in removed]
            optimizer.groups = [[i] for i in range(len(kept))]
        yield
    finally:
        for optimizer, attributes in before:
            vars(optimizer).update(attributes)
