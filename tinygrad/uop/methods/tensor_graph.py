"""Constructors of the tensor graph: elementwise ops, reductions, indexing, copies and assignment.

Invariant: a node is never built from sources whose layouts disagree. Each method inserts the COPY
or ALLREDUCE that it needs (`reshard/`, `gather_scatter.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

from tinygrad.dtype import DType, dtypes
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops, gather_scatter, reshard, shards
from tinygrad.uop.args import BufferArg, ReduceArg
from tinygrad.uop.device_value import DeviceValue, Spmd, TensorDevice, is_file
from tinygrad.uop.methods.movement import NodeMovementMixin
from tinygrad.uop.node import UNSET, Node
from tinygrad.uop.sint import index_dtype

_COMPARISON = GroupOp.Comparison
_buffer_slots = itertools.count()


class TensorGraphMixin(NodeMovementMixin):
    """One method for each op of the tensor graph."""

    __slots__ = ()

    def const_like(self, value: Any) -> Self:
        """A constant of this node's dtype and, in a tensor graph, of its shape."""
        node = self.const(self.dtype, value)
        shape = self.shape_or_none
        return node.broadcast_to(shape) if shape else node

    @classmethod
    def new_buffer(cls, device: DeviceValue, shape: tuple[int, ...], dtype: DType) -> Self:
        """A new stored array; its memory is allocated when it is first written."""
        new = cls(Ops.BUFFER, dtype, (), BufferArg(next(_buffer_slots), shape, device))
        new._shape, new._device = shape, device
        return new

    @classmethod
    def arange(cls, size: int | Node, dtype: DType | None = None) -> Self:
        """`0, 1, ..., size - 1`, by default in the dtype of index arithmetic. It is never stored
        unless asked for.
        """
        return cls(Ops.ARANGE, dtype or index_dtype(size), (), size)

    def alu(self, op: Ops, *src: Self) -> Self:
        """`op(self, *src)`, elementwise. Sources in different layouts are resharded to one."""
        srcs = (self, *src)
        if op in _COMPARISON:
            dtype = dtypes.bool.vec(self.dtype.count) if self.dtype.count > 1 else dtypes.bool
        else:
            dtype = srcs[-1].dtype
        device = _common_device(srcs)
        if device is UNSET:
            srcs = reshard.reshard_to_common_layout(reshard.off_files(*srcs))
        new = type(self)(op, dtype, srcs)
        if new._shape is UNSET:
            new._device = device
            for x in srcs:
                new._shape = x._shape
                if x._shape != ():
                    break
        return new

    def cast(self, dtype: DType) -> Self:
        """The value converted to `dtype`."""
        if self.dtype.count > 1 and dtype.count == 1:
            dtype = dtype.vec(self.dtype.count)
        if self.dtype == dtype:
            return self
        source = reshard.off_file(self)
        return type(self)(Ops.CAST, dtype, (source,)).placed_as(source)

    def bitcast(self, dtype: DType) -> Self:
        """The same bits read as `dtype`; if its size differs, so does that of the last axis."""
        if self.dtype == dtype:
            return self
        return type(self)(Ops.BITCAST, dtype, (reshard.reshard_for_bitcast(self, dtype),))

    def r(self, op: Ops, axes: tuple[int, ...]) -> Self:
        """Reduce `axes`, which keep size 1, by `op`. Over a sharded axis, an ALLREDUCE follows."""
        shape = self.shape
        axes = tuple(sorted([a for a in axes if not (isinstance(shape[a], int) and shape[a] == 1)]))
        if not axes:
            return self
        source = reshard.off_file(self)
        node = type(self)(Ops.REDUCE_AXIS, self.dtype, (source,), ReduceArg(op, axes))
        if node._shape is UNSET:
            node._shape = tuple([1 if i in axes else size for i, size in enumerate(shape)])
        layout = node.device
        if isinstance(layout, Sharding) and layout.is_partial:
            return node.allreduce(layout.without_partial())
        return node

    def allreduce(self, device: TensorDevice) -> Self:
        """The reduction of a partial value, delivered to `device`."""
        node = type(self)(Ops.ALLREDUCE, self.dtype, (self,), device)
        reshard.record_user_line(node)
        return node

    def copy_to_device(self, device: DeviceValue | Sequence[str]) -> Self:
        """The same value on another device or in another layout."""
        if not isinstance(device, str | Sharding | Spmd | None):
            device = Sharding(tuple(device))
        if self.device == device:
            return self
        assert not is_file(device), f"{device} is written by storage, not by the graph"
        if isinstance(device, Sharding):
            device.check(self.shape)
        if is_file(self.device):
            return reshard.read_file(self, device)
        return reshard.copy(self, device)

    def shard(self, devices: tuple[str, ...] | Sharding, axis: Any = None) -> Self:
        """Shard `axis` over `devices`; None replicates."""
        layout = devices if isinstance(devices, Sharding) else Sharding(tuple(devices), axis)
        return self.copy_to_device(layout)

    def mselect(self, index: int) -> Self:
        """Shard number `index` of a sharded value, on its device."""
        shards.check_selection(self, index)
        return type(self)(Ops.MSELECT, self.dtype, (self,), index)

    @classmethod
    def mstack(cls, *parts: Self, sharding: Sharding) -> Self:
        """The sharded value whose shards are `parts`, each on its device."""
        shards.check_parts(parts, sharding)
        placed = zip(parts, sharding.devices, strict=True)
        src = tuple(x.copy_to_device(device) for x, device in placed)
        return cls(Ops.MSTACK, src[0].dtype, src, sharding)

    def contiguous(self) -> Self:
        """The value, stored."""
        source = reshard.off_file(self)
        if source.op in {Ops.CONTIGUOUS, Ops.BUFFER, Ops.ASSIGN}:
            return source
        return type(self)(Ops.CONTIGUOUS, self.dtype, (source,))

    def contiguous_backward(self) -> Self:
        """The value; its gradient is stored."""
        return type(self)(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

    def detach(self) -> Self:
        """The value; no gradient flows through."""
        if self.op is Ops.DETACH:
            return self
        return type(self)(Ops.DETACH, self.dtype, (self,)).placed_as(self)

    def assign(self, value: Self) -> Self:
        """Store `value` into the buffer that this node is a view of.

        `arg` counts the earlier assignments that have not run yet, as unrealized values may still
        read the memory between them.
        """
        value = reshard.reshard_for_assign(value, self.device)
        target, before = (self.src[0], self.arg + 1) if self.op is Ops.ASSIGN else (self, 0)
        return type(self)(Ops.ASSIGN, self.dtype, (target, value), before)

    def gather(self, index: Self, batch: int = 0) -> Self:
        """Rows of axis `batch`, by index: shape `(*index.shape, *self.shape[batch + 1:])`; rows out
        of range are 0. The axes before `batch` are batch axes, which the index has too.
        """
        table, index = reshard.off_files(self, index)
        return gather_scatter.gather(table, index, batch)

    def scatter_add(self, index: Self, count: int | Node, batch: int = 0) -> Self:
        """Add `self` (`(*index.shape, *rest)`) into zeros of `(*index.shape[:batch], count,
        *rest)`; out of range is dropped.
        """
        return self.scatter(Ops.SCATTER_ADD, index, count, batch)

    def scatter(self, op: Ops, index: Self, count: int | Node, batch: int = 0) -> Self:
        """As `scatter_add`, by any `op` of `GroupOp.Scatter`: rows of equal index are reduced; rows
        without an index are the identity element.
        """
        values, index = reshard.off_files(self, index)
        return gather_scatter.scatter(op, values, index, count, batch)


def _common_device(srcs: tuple[Node, ...]) -> Any:
    """The device of the sources that have one; `UNSET` if they are on different devices, in
    different layouts, or in files.
    """
    found: DeviceValue = None
    for x in srcs:
        device = x._device
        if device is UNSET:
            device = x.device
        if device is not found and device is not None:
            if found is not None and device != found:
                return UNSET
            found = device
    return UNSET if is_file(found) else found
