"""Placement of tensors: copied to a device, sharded over several.

Input: tensors, and devices, layouts or meshes. Output: the same values in the layout asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from tinygrad.device import Device
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.creation import CreationMixin
from tinygrad.sharding import Mesh, P, Sharding, ShardingError
from tinygrad.storage.files import replace
from tinygrad.storage.placement import (
    canonical_device,
    canonical_layout,
    moved_to,
    recreated_on,
    without_unit_axes,
)
from tinygrad.uop.device_value import DeviceLike, is_file
from tinygrad.uop.reshard import computing_device


class PlacementMixin(CreationMixin):
    """`to`, `shard`, `shard_like`."""

    __slots__ = ()

    def to(self, device: DeviceLike) -> Self:
        """Copy to a device: a name, several names (replicated), a `Sharding`, or None for the
        default device. An axis of size 1 is replicated, as by `shard`.

        `"disk:/path"` writes the value to that file at once, in place of one that is there, and
        gives a tensor in it, which has no gradient. Raises FileError, an OSError, if that is
        impossible.

        >>> Tensor([1, 2]).to("CPU:1").device
        'CPU:1'
        """
        target = Device.DEFAULT if device is None else canonical_device(device)
        assert target is not None, "only None has no canonical form"
        target = without_unit_axes(target, self.shape)
        if self.uop.device == target:
            return self
        if is_file(target):
            return self._new(replace(self, target), False)
        moved = self._derive(moved_to(self.uop, target))
        if self.grad is not None:
            moved.grad = self.grad.to(target)
        return moved

    def to_(self, device: DeviceLike) -> Self:
        """Move this tensor and its gradient in place, as `to`; returns this tensor.

        >>> Tensor([1, 2]).to_("CPU:1").device
        'CPU:1'
        """
        return self._become(self.to(device))

    def _become(self, moved: Self) -> Self:
        if self.grad is not None and moved.grad is not None:
            self.grad._set_node(moved.grad.uop)
        moves = moved.device != self.device and not is_file(moved.device)
        created = recreated_on(self.uop, moved.device) if moves else None
        if moved.uop is self.uop:
            return self
        self._refer_to(moved.uop if created is None else created)
        return self

    def shard(self, devices: Mesh | Sharding | Sequence[str], axis: Any = None) -> Self:
        """Shard along `axis` over `devices`; None replicates.

        Also takes a `Sharding`, or a `Mesh` with a spec `P(...)` in place of the axis. An axis of
        size 1 is not sharded but replicated, as are tensors without axes. Raises ShardingError for
        repeated devices, and for an axis that is out of range.

        >>> Tensor([[1, 2], [3, 4]]).shard(("CPU", "CPU:1"), axis=0).device.axis
        0
        """
        layout = without_unit_axes(self._layout(devices, axis), self.shape)
        moved = self._derive(moved_to(self.uop, layout))
        if self.grad is not None:
            moved.grad = self.grad.shard(layout)
        return moved

    def shard_(self, devices: Mesh | Sharding | Sequence[str], axis: Any = None) -> Self:
        """Shard this tensor and its gradient in place, as `shard`; returns this tensor.

        >>> Tensor([1, 2]).shard_(("CPU", "CPU:1")).device.axis is None
        True
        """
        return self._become(self.shard(devices, axis))

    def shard_like(self, y: Self) -> Self:
        """Copy to the device or layout of `y`; of one in a file, to the default device.

        >>> x = Tensor([1, 2]).shard(("CPU", "CPU:1"), axis=0)
        >>> Tensor([3, 4]).shard_like(x).device == x.device
        True
        """
        check_tensors("shard_like", y=y)
        return self.to(computing_device(y.device))

    def _layout(self, devices: Mesh | Sharding | Sequence[str], axis: Any) -> Sharding:
        if isinstance(devices, Mesh):
            if not isinstance(axis, P):
                raise ShardingError(f"shard over a mesh takes a spec like P('dp'), not {axis!r}")
            # a scalar counts as one axis of size 1
            return canonical_layout(devices.sharding(axis, max(self.ndim, 1)))
        if isinstance(devices, Sharding):
            if axis is not None:
                raise ShardingError(f"shard: {devices} has its axes already; leave out {axis!r}")
            return canonical_layout(devices)
        if isinstance(devices, str):
            raise ShardingError(
                f"shard takes a tuple of devices, not {devices!r}; use .to({devices!r})"
            )
        if not isinstance(devices, Iterable):
            raise ShardingError(
                f"shard takes a tuple of devices, a Sharding or a Mesh, not {devices!r} of type "
                f"{type(devices).__name__}"
            )
        names = [Device.canonicalize(x) if isinstance(x, str) else x for x in devices]
        return canonical_layout(Sharding(names, self._split_axis(axis)))

    def _split_axis(self, axis: Any) -> Any:
        if not isinstance(axis, int):
            return axis
        if self.ndim == 0 and axis in {0, -1}:
            return None
        if not -self.ndim <= axis < self.ndim:
            raise ShardingError(
                f"shard: there is no axis {axis} in shape {self.shape}; use axis=None to replicate"
            )
        return axis % self.ndim
