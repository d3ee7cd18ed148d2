"""Memory of tensors: realized, contiguous, cloned, replaced and assigned.

Input: tensors. Output: the same tensors in memory, or with new content. The rules of ownership,
views and writes are in `tinygrad.storage`.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.device import Device
from tinygrad.errors import ArgumentError
from tinygrad.helpers import GlobalCounters
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.sharding.placement import PlacementMixin
from tinygrad.sharding import Sharding, ShardingError
from tinygrad.sharding.local_devices import current_local_devices
from tinygrad.storage.assignment import assign, value_to_write
from tinygrad.storage.files import write
from tinygrad.storage.gradients.leaves import assigned_value
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.storage.lock import exclusive
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.realization import realize_all, schedule_all
from tinygrad.storage.views import is_constant
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import broadcast_node
from tinygrad.uop.device_value import DeviceLike, device_names, is_file
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import computing_device, off_file
from tinygrad.uop.sint import same_size

_COUNTED = ("kernel_count", "global_ops", "global_mem", "time_sum_s", "bytes_moved")


class StorageMixin(PlacementMixin):
    """`realize`, `contiguous`, `clone`, `replace`, `assign`."""

    __slots__ = ()

    # ---- realization ----

    def realize(self, *lst: Any, do_update_stats: bool = True) -> Self:
        """Compute this tensor, and others given, into memory now; returns this tensor.

        With `do_update_stats=False`, `GlobalCounters` do not count it. Raises DeviceError if a
        device cannot be opened, also for a constant, which takes no memory.

        >>> (Tensor([1, 2]) + 1).realize().uop.is_realized
        True
        """
        for x in lst:
            check_tensors("realize", tensor=x)
        for x in (self, *lst):
            if x.uop.op is not Ops.BUFFER and is_constant(x.uop):
                _open_devices(x.uop)
        if do_update_stats:
            realize_all((self, *lst))
            return self
        counted = {name: getattr(GlobalCounters, name) for name in _COUNTED}
        realize_all((self, *lst))
        for name, value in counted.items():
            setattr(GlobalCounters, name, value)
        return self

    def schedule(self, *lst: Self) -> list[Any]:
        """The schedule to compute this tensor, and others: items with `ast`, `bufs`, `run()`.

        >>> len((Tensor([1, 2]).realize() + 1).schedule())
        1
        """
        return self.schedule_with_vars(*lst)[0]

    @exclusive
    def schedule_with_vars(self, *lst: Self) -> tuple[list[Any], dict[str, int]]:
        """`schedule()`, and the values of the bound Variables.

        >>> (Tensor([1, 2]).realize() + 1).schedule_with_vars()[1]
        {}
        """
        for x in lst:
            check_tensors("schedule", tensor=x)
        return schedule_all((self, *lst))

    def contiguous(self, *args: Any, **kwargs: Any) -> Self:
        """The same value, contiguous: to be stored in row-major order.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        if is_constant(self.uop):
            return self._derive(in_own_memory(self.uop))
        base = self.uop
        while base.op is Ops.RESHAPE:
            base = base.src[0]
        stored = base.op in {Ops.BUFFER, Ops.CONTIGUOUS, Ops.ASSIGN} and not is_file(base.device)
        return self._derive(self.uop if stored else self.uop.contiguous())

    def contiguous_backward(self) -> Self:
        """The same value, with a contiguous gradient.

        >>> Tensor([1, 2]).contiguous_backward().tolist()
        [1, 2]
        """
        return self._derive(self.uop.contiguous_backward())

    def clone(self, device: DeviceLike = None) -> Self:
        """A copy in memory of its own, on the same device or another one.

        >>> Tensor([1, 2]).clone().tolist()
        [1, 2]
        >>> Tensor([1, 2]).clone(device="CPU:1").device
        'CPU:1'
        """
        moved = self if device is None else self.to(device)
        is_written = moved is not self and is_file(moved.device)
        copy = moved if is_written else moved._derive(in_own_memory(moved.uop))
        if self.grad is not None:
            copy.grad = self.grad.clone(device)
        return copy

    # ---- assignment ----

    def replace(self, x: Self, allow_shape_mismatch: bool = False) -> Self:
        """Make this tensor refer to the value of `x`. Raises ValueError if the shapes differ.

        >>> Tensor([1, 2]).replace(Tensor([3, 4])).tolist()
        [3, 4]
        """
        check_tensors("replace", x=x)
        if self.shape != x.shape and not allow_shape_mismatch:
            raise ArgumentError(f"replace: shape {x.shape} is not {self.shape}")
        self._alias(x)
        return self

    @exclusive
    def assign(self, x: Any) -> Self:
        """Write `x`, broadcast and cast, in place; returns this tensor.

        This tensor, its views, the tensor that it is a view of, and the views of that see the new
        content, and no other tensors do. Memory is written when one of them is realized; a file at
        once, with a value on any device. The gradient of `x` is kept, unless this tensor is a leaf
        or never requires one: `requires_grad` was set to True, or is False. Raises ValueError if
        it does not broadcast to the shape of this tensor, ShardingError if the devices differ,
        RuntimeError for an expanded view.

        >>> Tensor([1, 2]).realize().assign(Tensor([3, 4])).tolist()
        [3, 4]
        """
        if not isinstance(x, TensorBase):
            device = computing_device(self.device)
            x = type(self)(x, device=device, dtype=self.dtype)  # type: ignore[call-arg]
        value = value_to_write(self, x)
        node = self.uop
        if value is node:
            return self
        if value.shape != node.shape or value.dtype != node.dtype:
            value = self._fitted(value)
        device = self.device
        if is_file(device):
            write(self, value)
            return self
        value = off_file(value, device)
        if value.device is not device:
            self._check_same_devices(value)
        if self._requires_grad is not None or x._requires_grad:
            value = assigned_value(self, value, x._requires_grad)
        assign(self, value, device)
        return self

    def _fitted(self, value: UOp) -> UOp:
        """`value` with the shape and dtype of this tensor."""
        own, given = self.shape, value.shape
        leading = len(own) - len(given)
        if leading < 0 or not all(
            (isinstance(b, int) and b == 1) or same_size(a, b) for a, b in zip(own[leading:], given)
        ):
            raise ArgumentError(
                f"assign: a value of shape {given} does not broadcast to {own}; reshape it first"
            )
        if value.dtype != self.dtype:
            value = off_file(value, computing_device(self.device)).cast(self.dtype)
        return broadcast_node(value, own)

    def _check_same_devices(self, value: UOp) -> None:
        mine, theirs = self.device, value.device
        if theirs is None or theirs == mine:
            return
        both = isinstance(mine, Sharding) and isinstance(theirs, Sharding)
        if not both or set(device_names(mine)) != set(device_names(theirs)):
            raise ShardingError(
                f"assign: the value is on {theirs}, the tensor on {mine}; move it with .to()"
            )


def _open_devices(node: UOp) -> None:
    """Open the devices of a value of this process. Raises DeviceError if one cannot be opened."""
    local = current_local_devices()
    for name in device_names(node.device):
        if local.is_local(name) and not is_file(name):
            Device[name]
