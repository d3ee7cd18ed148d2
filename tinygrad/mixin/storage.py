"""Where tensors live: in memory or not yet, on which devices, and what is written over.

In: tensors. Out: the same tensors in memory, elsewhere, or with new content. Always true: a tensor
means what it meant when it was written down. What reads a buffer that is about to be overwritten is
computed before that.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.device import Device
from tinygrad.execution import schedule_uops
from tinygrad.helpers import GlobalCounters
from tinygrad.mixin.core import (
    VIEWS,
    TensorCore,
    canonical_device,
    live_tensors,
    seen_through,
)
from tinygrad.mixin.creation import CreationMixin, in_own_memory, is_constant
from tinygrad.mixin.realization import (
    is_memory,
    realize_all,
    remember_assignment,
    repeats_memory,
    replace_nodes,
    roots_of,
)
from tinygrad.mixin.sharing import copy_on_write, memory_below, share
from tinygrad.sharding import Mesh, P, Sharding, ShardingError
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import written_back

_COUNTED = ("kernel_count", "global_ops", "global_mem", "time_sum_s", "bytes_moved")


class StorageMixin(CreationMixin):
    """`realize`, `contiguous`, `assign`, `to`, `shard`."""

    __slots__ = ()

    # ---- into memory ----

    def realize(self, *lst: Any, do_update_stats: bool = True) -> Self:
        """Compute this tensor, and others given, at once; returns this one.

        With `do_update_stats=False`, what runs is not counted in `GlobalCounters`.

        >>> (Tensor([1, 2]) + 1).realize().uop.is_realized
        True
        """
        counted = {name: getattr(GlobalCounters, name) for name in _COUNTED}
        realize_all((self, *lst))
        if not do_update_stats:
            for name, value in counted.items():
                setattr(GlobalCounters, name, value)
        return self

    def schedule(self, *lst: Self) -> list[Any]:
        """What has to run to compute this tensor, and others: items with `ast`, `bufs`, `run()`.

        >>> len((Tensor([1, 2]).realize() + 1).schedule())
        1
        """
        return self.schedule_with_vars(*lst)[0]

    def schedule_with_vars(self, *lst: Self) -> tuple[list[Any], dict[str, int]]:
        """`schedule()`, and the values of the bound Variables.

        >>> (Tensor([1, 2]).realize() + 1).schedule_with_vars()[1]
        {}
        """
        items, outputs, values = schedule_uops(roots_of((self, *lst)))
        replace_nodes(outputs)
        return items, values

    def contiguous(self, *args: Any, **kwargs: Any) -> Self:
        """The same value, to be stored in memory in row-major order.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        if is_constant(self.uop):
            return self._derive(in_own_memory(self.uop))
        base = self.uop
        while base.op is Ops.RESHAPE:
            base = base.src[0]
        stored = base.op in {Ops.BUFFER, Ops.CONTIGUOUS, Ops.ASSIGN}
        return self._derive(self.uop if stored else self.uop.contiguous())

    def contiguous_backward(self) -> Self:
        """The same value; its gradient is stored in memory.

        >>> Tensor([1, 2]).contiguous_backward().tolist()
        [1, 2]
        """
        return self._derive(self.uop.contiguous_backward())

    def clone(self) -> Self:
        """The same value in memory of its own.

        >>> Tensor([1, 2]).clone().tolist()
        [1, 2]
        """
        copy = self._derive(in_own_memory(self.uop))
        if self.grad is not None:
            copy.grad = self.grad.clone()
        return copy

    # ---- new content ----

    def replace(self, x: Self, allow_shape_mismatch: bool = False) -> Self:
        """Make this tensor be `x`. Raises ValueError if the shapes differ.

        >>> Tensor([1, 2]).replace(Tensor([3, 4])).tolist()
        [3, 4]
        """
        if self.shape != x.shape and not allow_shape_mismatch:
            raise ValueError(f"replace: shape {x.shape} is not {self.shape}")
        self.uop, self.origin = x.uop, x.origin
        return self

    def assign(self, x: Any) -> Self:
        """Write `x` into the memory of this tensor, when it is realized; returns this tensor.

        Views of that memory see the new content, and so do no others. A tensor that is not in
        memory yet becomes `x`. A part of an axis that is split over devices is written at once, and
        becomes `x` too.
        Raises ValueError if shape or dtype differ, ShardingError if the devices do.

        >>> Tensor([1, 2]).realize().assign(Tensor([3, 4])).tolist()
        [3, 4]
        """
        if not isinstance(x, TensorCore):
            x = type(self)(x, device=self.device, dtype=self.dtype)  # type: ignore[call-arg]
        value: UOp = x.uop
        if value is self.uop:
            return self
        if value.shape != self.shape or value.dtype != self.dtype:
            raise ValueError(
                f"assign: {value.dtype} of shape {value.shape} does not fit {self.dtype} of shape "
                f"{self.shape}; cast or reshape it first"
            )
        self._check_same_devices(value)
        target = self.uop.src[0] if self.uop.op is Ops.ASSIGN else self.uop
        if not is_memory(target) or repeats_memory(target) or _cuts_split_axis(target):
            self.uop = value if value.device is not None else value.copy_to_device(self.device)
            share(self.uop)
            memory = self._gathered_from(target)
            if memory is not None:
                whole = self._new(memory, False)
                whole.origin = self.origin
                whole.assign(whole._derive(written_back(target, memory, value))).realize()
            return self
        copy_on_write(self)
        self.uop = self.uop.assign(value)
        remember_assignment(self.uop)
        return self

    def _gathered_from(self, node: UOp) -> UOp | None:
        """The memory that `node`, a view of a split axis, was gathered from to be looked at, if
        this tensor is a view of another that is in that memory.
        """
        node = seen_through(node)
        if node.op is not Ops.BUFFER or not isinstance(node.device, Sharding):
            return None
        held = (x for x in live_tensors if x.origin == self.origin and x is not self)
        return node if any(memory_below(x.uop) is node for x in held) else None

    def _check_same_devices(self, value: UOp) -> None:
        mine, theirs = self.device, value.device
        if theirs is None or theirs == mine:
            return
        both = isinstance(mine, Sharding) and isinstance(theirs, Sharding)
        if not both or set(mine) != set(theirs):
            raise ShardingError(
                f"assign: the value lives on {theirs}, the tensor on {mine}; move it with .to()"
            )

    # ---- elsewhere ----

    def to(self, device: Any) -> Self:
        """The same value on another device: a name, several (a full copy on each), a `Sharding`,
        or None for the default device.

        >>> Tensor([1, 2]).to("CPU:1").device
        'CPU:1'
        """
        target = Device.DEFAULT if device is None else canonical_device(device)
        if self.uop.device == target:
            return self
        moved = self._derive(_moved_node(self.uop, target))
        if self.grad is not None:
            moved.grad = self.grad.to(target)
        return moved

    def to_(self, device: Any) -> Self:
        """Move this tensor, and its gradient, see `to`; returns it.

        >>> Tensor([1, 2]).to_("CPU:1").device
        'CPU:1'
        """
        return self._become(self.to(device))

    def _become(self, moved: Self) -> Self:
        if self.grad is not None and moved.grad is not None:
            self.grad.uop = moved.grad.uop
        constant = _waiting_constant(self.uop) if moved.device != self.device else None
        self.uop = moved.uop if constant is None else _stored_at(constant, moved.device)
        return self

    def shard(self, devices: Any, axis: Any = None) -> Self:
        """Split `axis` in equal parts over `devices`; None puts a full copy on each.

        Also takes a `Sharding`, or a `Mesh` with a spec `P(...)` in place of the axis.
        Raises ShardingError for devices that repeat, and an axis that there is not or that does
        not divide.

        >>> Tensor([[1, 2], [3, 4]]).shard(("CPU", "CPU:1"), axis=0).device.axis
        0
        """
        layout = self._layout(devices, axis)
        moved = self._derive(_moved_node(self.uop, layout))
        if self.grad is not None:
            moved.grad = self.grad.shard(layout)
        return moved

    def shard_(self, devices: Any, axis: Any = None) -> Self:
        """Split this tensor, and its gradient, see `shard`; returns it.

        >>> Tensor([1, 2]).shard_(("CPU", "CPU:1")).device.axis is None
        True
        """
        return self._become(self.shard(devices, axis))

    def shard_like(self, y: Self) -> Self:
        """This tensor where `y` is, and split like it.

        >>> x = Tensor([1, 2]).shard(("CPU", "CPU:1"), axis=0)
        >>> Tensor([3, 4]).shard_like(x).device == x.device
        True
        """
        return self.to(y.device)

    def _layout(self, devices: Any, axis: Any) -> Sharding:
        if isinstance(devices, Mesh):
            if not isinstance(axis, P):
                raise ShardingError(f"shard over a mesh takes a spec like P('dp'), not {axis!r}")
            return _canonical_layout(devices.sharding(axis, self.ndim))
        if isinstance(devices, Sharding):
            if axis is not None:
                raise ShardingError(f"shard: {devices} says the axis already; leave out {axis!r}")
            return _canonical_layout(devices)
        if isinstance(devices, str):
            raise ShardingError(
                f"shard takes a tuple of devices, not {devices!r}; use .to({devices!r})"
            )
        names = [Device.canonicalize(x) if isinstance(x, str) else x for x in devices]
        return Sharding(names, self._split_axis(axis))

    def _split_axis(self, axis: Any) -> Any:
        if not isinstance(axis, int):
            return axis
        if not -self.ndim <= axis < self.ndim:
            raise ShardingError(
                f"shard: there is no axis {axis} in shape {self.shape}; "
                "use axis=None for a full copy on each device"
            )
        return axis % self.ndim


def _moved_node(node: UOp, target: Any) -> UOp:
    """A value elsewhere; memory that nothing was written to is not moved, but made there."""
    if node.op is Ops.BUFFER and not node.is_realized and node.device != target:
        if isinstance(target, Sharding):
            target.check(node.shape)
        return UOp.new_buffer(target, node.arg.shape, node.dtype)
    return node.copy_to_device(target)


def _waiting_constant(node: UOp) -> UOp | None:
    """What is about to be written to new memory, if that is made of constants alone."""
    if node.op is not Ops.ASSIGN or node.src[0].op is not Ops.BUFFER or node.src[0].is_realized:
        return None
    return node.src[1] if is_constant(node.src[1]) else None


def _stored_at(constant: UOp, target: str | Sharding) -> UOp:
    while constant.op is Ops.COPY:
        constant = constant.src[0]
    return in_own_memory(constant.copy_to_device(target))


def _canonical_layout(layout: Sharding) -> Sharding:
    """The layout with the one spelling of every device's name."""
    names = tuple(Device.canonicalize(name) for name in layout.devices)
    return layout if names == layout.devices else Sharding(names, layout.axes, layout.mesh_shape)


def _cuts_split_axis(view: UOp) -> bool:
    """Whether devices hold elements behind the end of a view of a split axis, which it is not
    of.
    """
    while view.op in VIEWS:
        below = view.src[0]
        if view.op is Ops.SHRINK and isinstance(below.device, Sharding):
            axes = below.device.split_axes
            if any(view.arg[axis] != (0, below.shape[axis]) for axis in axes):
                return True
        view = below
    return False
