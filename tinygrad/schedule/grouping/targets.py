"""The machine that computes a node of a per-device graph, where grouping depends on it."""

from __future__ import annotations

from tinygrad.device import Device, DeviceError
from tinygrad.renderer.target import Target
from tinygrad.uop.device_value import device_names
from tinygrad.uop.ops import UOp


def find_target(node: UOp, default_device: str | None = None) -> Target | None:
    """The target of the device of a node; None if it cannot be opened here, or runs no kernels."""
    names = device_names(node.device) or (default_device or Device.DEFAULT,)
    try:
        opened = Device[names[0]]
    except DeviceError:
        # planned, but not run on this machine
        return None
    return opened.target if opened.runs_kernels else None
