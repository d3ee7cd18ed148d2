"""Shards: a sharded tensor from its parts, and the parts of a sharded tensor.

Input: tensors on one device each, or the array that a process has of a tensor, with the layout of
the whole. Output: the whole, or its shards without padding. Invariant: no byte crosses devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinygrad.mixin.core import TensorCore
from tinygrad.sharding import Sharding, ShardingError
from tinygrad.storage.host.arrays import array_node, host_array
from tinygrad.storage.host.shards import shards_of_local_array
from tinygrad.storage.placement import canonical_layout
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class ShardsMixin(TensorCore):
    """`from_shards`, `from_local` and `shards`."""

    __slots__ = ()

    @classmethod
    def from_shards(cls, parts: Sequence[Self], sharding: Sharding) -> Self:
        """Build a sharded tensor from its shards, one on each device of `sharding`.

        Part number i is on `sharding.devices[i]`; constants may be on no device. No byte moves
        between devices. Along a sharded axis, all shards have the size of the first; the last ones
        may be smaller, or empty. Replicas of a shard must be equal, which is not checked. The
        tensor is a new value: later writes to a part do not change it, and writes to it change no
        part. The gradient of a part is the shard of the tensor's gradient, divided by the number of
        replicas. Raises ShardingError for parts that do not fit, and for a partial layout.

        >>> from tinygrad import Sharding
        >>> parts = [Tensor([1, 2]), Tensor([3], device="CPU:1")]
        >>> x = Tensor.from_shards(parts, Sharding(("CPU", "CPU:1"), axis=0))
        >>> x.tolist()
        [1, 2, 3]
        """
        if not isinstance(sharding, Sharding):
            raise ShardingError(
                f"from_shards takes a Sharding, not {sharding!r}; write for example "
                "Sharding(devices, axis=0)"
            )
        for part in parts:
            if not isinstance(part, TensorCore):
                raise TypeError(
                    f"from_shards takes tensors, not {part!r} of type {type(part).__name__}"
                )
        node = UOp.mstack(*(x.uop for x in parts), sharding=canonical_layout(sharding))
        return parts[0]._derive(node, *parts[1:])

    @classmethod
    def from_local(cls, array: Any, sharding: Sharding, shape: Sequence[int] | None = None) -> Self:
        """Build a sharded tensor from the part of it that this process has: its rows, where rows
        are sharded. No process needs the rest, and no message is sent.

        `array` is all that the local devices hold of the value, in one box. `shape` is that of the
        value; by default, each process gives an array of the same shape. What several processes
        hold must be equal, which is not checked. In a single process, the array is the value.
        Raises ShardingError for an array that is not this process's part.

        >>> from tinygrad import Sharding
        >>> x = Tensor.from_local([[1, 2], [3, 4]], Sharding(("CPU", "CPU:1"), axis=0))
        >>> x.shape, x.shards[1].tolist()
        ((2, 2), [[3, 4]])
        """
        if not isinstance(sharding, Sharding):
            raise ShardingError(
                f"from_local takes a Sharding, not {sharding!r}; write for example "
                "Sharding(devices, axis=0)"
            )
        if sharding.is_partial or sharding.has_intervals:
            raise ShardingError(
                f"from_local: {sharding} has placements that are not axes; use ints and None"
            )
        node = array_node(host_array(array), None)
        if 0 in node.shape:
            raise ShardingError(f"from_local: the array of shape {node.shape} is empty")
        wanted = None if shape is None else tuple(shape)
        return cls._new(shards_of_local_array(node, canonical_layout(sharding), wanted), False)

    @property
    def shards(self) -> list[Self]:
        """The shards of this tensor, each on its device, without padding, in the order of devices.

        A tensor on one device is its own shard. Shards are views: once the tensor is in memory,
        shards and tensor see writes to each other. No byte moves. The gradient of the tensor is
        assembled from those of its shards. Raises ShardingError for a symbolic size along a sharded
        axis.

        >>> x = Tensor([1, 2, 3]).shard(("CPU", "CPU:1"), axis=0)
        >>> [(part.device, part.tolist()) for part in x.shards]
        [('CPU', [1, 2]), ('CPU:1', [3])]
        """
        if not isinstance(self.uop.device, Sharding):
            return [self]
        return [
            self._view(self.uop.mselect(i), Ops.MSELECT, i) for i in range(len(self.uop.device))
        ]
