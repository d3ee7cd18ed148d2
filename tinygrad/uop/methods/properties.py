"""The properties of a node that follow from its sources: shape, device, bounds.

Each is computed on first use by the rules of one file, without recursion, and cached in the node.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.sharding import Placement, Sharding
from tinygrad.uop.device_value import DeviceValue
from tinygrad.uop.node import UNSET, Node
from tinygrad.uop.propagation.bounds import compute_bounds
from tinygrad.uop.propagation.device_rules import compute_device
from tinygrad.uop.propagation.shape import compute_shape


class PropertiesMixin(Node):
    """The cached properties of a node."""

    __slots__ = ()

    @property
    def shape_or_none(self) -> tuple[int | Self, ...] | None:
        if self._shape is UNSET:
            for x in self.src:
                if x._shape is UNSET:
                    self._compute_shapes_below()
                    break
            else:
                self._shape = compute_shape(self)
        shape: tuple[int | Self, ...] | None = self._shape
        return shape

    def _compute_shapes_below(self) -> None:
        """Compute the shape of this node, and before it those of all nodes below."""
        for node in self.toposort(gate=lambda u: u._shape is UNSET):
            if node._shape is UNSET:
                node._shape = compute_shape(node)

    @property
    def device(self) -> DeviceValue:
        """Where the value lives: a name, a `Sharding`, an `Spmd` of the per-device graph, or None
        for an expression of constants.
        """
        if self._device is UNSET:
            for x in self.src:
                if x._device is UNSET:
                    self._compute_devices_below()
                    break
            else:
                self._device = compute_device(self)
        device: DeviceValue = self._device
        return device

    def _compute_devices_below(self) -> None:
        """Compute the device of this node, and before it those of all nodes below."""
        for node in self.toposort(gate=lambda u: u._device is UNSET):
            if node._device is UNSET:
                node._device = compute_device(node)

    @property
    def axis(self) -> Placement | tuple[Placement, ...]:
        """The sharded axis, as in `Sharding.axis`; None for a value on one device."""
        return self.device.axis if isinstance(self.device, Sharding) else None

    @property
    def bounds(self) -> tuple[Any, Any]:
        if self._bounds is UNSET:
            self._bounds = compute_bounds(self)
        bounds: tuple[Any, Any] = self._bounds
        return bounds
