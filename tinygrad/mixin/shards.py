"""A sharded tensor and its shards, each a tensor on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tinygrad.mixin.core import TensorCore
from tinygrad.sharding import Sharding, ShardingError
from tinygrad.storage.placement import canonical_layout
from tinygrad.uop.ops import UOp


class ShardsMixin(TensorCore):
    """`from_shards` and `shards`."""

    __slots__ = ()

    @classmethod
    def from_shards(cls, parts: Sequence[Self], sharding: Sharding) -> Self:
        """The tensor in the layout `sharding` whose shards are `parts`, one on each device.

        Part number i is on `sharding.devices[i]`; parts of constants may be on no device. Nothing
        moves between devices. Along a sharded axis all shards have the size of the first, but the
        last ones may be shorter, or empty. Shards of one region, as of a replicated layout, must be
        equal; that is not checked. The tensor is a new value: later writes to a part do not change
        it, and writes to it change no part. The gradient of a part is the shard of the tensor's
        gradient, and for each of n replicas an n-th of it, so that they add up to the whole.
        Raises ShardingError for parts that do not fit, and for a layout of partial sums.

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

    @property
    def shards(self) -> list[Self]:
        """What each device holds of this tensor, in the order of its devices: tensors on one device
        each, of the size that exists there. Of a tensor on one device, the tensor itself.

        Shards are views: they see writes to the tensor, and it sees writes to them, once it is in
        memory. Nothing moves. The gradient of the tensor is put together from those of its shards.
        Raises ShardingError for a symbolic size along a sharded axis.

        >>> x = Tensor([1, 2, 3]).shard(("CPU", "CPU:1"), axis=0)
        >>> [(part.device, part.tolist()) for part in x.shards]
        [('CPU', [1, 2]), ('CPU:1', [3])]
        """
        if not isinstance(self.uop.device, Sharding):
            return [self]
        return [self._derive(self.uop.mselect(i)) for i in range(len(self.uop.device))]
