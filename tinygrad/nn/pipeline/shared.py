"""Weights that several stages share, such as the table that embeds words and also scores them.

In: the parameters of each stage, and where the stages live. Out: for each stage, a copy of what it
shares with stages on other devices. Always true: such a weight lives as a full copy on the devices
of all its stages, so that a stage has its copy without a transfer; and the gradients by the copies
are added up on their own devices, and meet once for each batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from tinygrad.sharding import Sharding
from tinygrad.storage.placement import canonical_device
from tinygrad.tensor import Tensor

Place: TypeAlias = str | Sharding
Copies: TypeAlias = dict[Tensor, Tensor]


def names(place: Place) -> tuple[str, ...]:
    """The devices of a place, in their order."""
    return place.devices if isinstance(place, Sharding) else (place,)


def full_copies(*places: Place) -> Place:
    """A full copy on each device of some places."""
    found = canonical_device(tuple(dict.fromkeys(name for p in places for name in names(p))))
    assert found is not None
    return found


def bring_home(parameters: Sequence[Sequence[Tensor]], places: Sequence[Place]) -> None:
    """Moves the parameters of each stage to the devices of all stages that have them, except for
    those that live there already, in whatever layout.
    """
    homes: dict[Tensor, list[Place]] = {}
    for owned, place in zip(parameters, places, strict=True):
        for parameter in owned:
            homes.setdefault(parameter, []).append(place)
    for parameter, stages in homes.items():
        home = full_copies(*stages)
        if names(parameter.device) != names(home):
            parameter.to_(home)
    if homes:
        Tensor.realize(*homes)


def copies_on(place: Place, parameters: Sequence[Tensor], detached: bool = False) -> Copies:
    """Of each parameter that also lives elsewhere, its copy on the devices of `place`."""
    found = {}
    for parameter in parameters:
        if names(parameter.device) != names(place):
            source = parameter.detach() if detached else parameter
            found[parameter] = source.to(full_copies(place))
            found[parameter].requires_grad = parameter.requires_grad
    return found


@contextmanager
def standing_in(copies: Mapping[Tensor, Tensor]) -> Iterator[None]:
    """Inside, each key has the value of its copy, so that a stage finds that in its place.

    Raises ValueError for a stage that writes to one.
    """
    before = {original: original.uop for original in copies}
    for original, copy in copies.items():
        original.uop = copy.uop
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
            original.uop = node


def add_gradients(stages: Sequence[Copies]) -> None:
    """Adds the gradients by the copies of all stages to those by what they are copies of."""
    for copies in stages:
        for original, copy in copies.items():
            if copy.grad is not None:
                found = copy.grad.to(original.device)
                original.grad = found if original.grad is None else original.grad + found
