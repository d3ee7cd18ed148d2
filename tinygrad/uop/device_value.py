"""Where the value of a node lives: a device, a layout over several, or nowhere yet.

A device value is a name, a `Sharding` (tensor graph), an `Spmd` (per-device graph), or None for an
expression of constants, which lives nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from tinygrad.sharding import Sharding


@dataclass(frozen=True)
class Spmd:
    """The device of a node of the per-device graph: the same program on each of `devices`.

    A separate type, so that no rule can mistake a lowered node for one of the tensor graph.
    """

    devices: tuple[str, ...]

    def __str__(self) -> str:
        return f"each of {', '.join(self.devices)}"


DeviceValue: TypeAlias = str | Sharding | Spmd | None
"""The device of a node: a name, a layout (tensor graph), an `Spmd` (per-device graph), or None for
an expression of constants. `Device` is the public registry of devices, and no value.
"""

TensorDevice: TypeAlias = str | Sharding
"""The device of a value of the tensor graph that is no expression of constants."""

DeviceLike: TypeAlias = str | Sequence[str] | Sharding | None
"""A device or layout as users write it; a sequence of names means replicated over them."""


def device_names(device: DeviceValue) -> tuple[str, ...]:
    """The names of the devices that a value lives on; none for an expression of constants."""
    if device is None:
        return ()
    return (device,) if isinstance(device, str) else device.devices


def is_file(device: object) -> TypeGuard[str]:
    """Whether a device is a file, "DISK:path". No op computes there."""
    return isinstance(device, str) and device[:5] == "DISK:"


class _Default:
    device: Callable[[], str]


def use_default_device(name: Callable[[], str]) -> None:
    """Let `name()` be the default device. Called once, by the registry of devices."""
    _Default.device = name


def default_device() -> str:
    """The device that computes values that are on no other device, or in files."""
    return _Default.device()


def replicated(device: DeviceValue) -> TensorDevice | None:
    """`device`; for a layout, the replicated one over the same devices; for a file, None."""
    if device is None or is_file(device):
        return None
    device = tensor_device(device)
    return device.replicated() if isinstance(device, Sharding) else device


def tensor_device(device: DeviceValue) -> TensorDevice:
    """`device` of a value in the tensor graph that is known to live somewhere."""
    assert isinstance(device, str | Sharding), f"{device!r} is no device of the tensor graph"
    return device
