"""Roles of axes in advanced indexing `x[i, j, ...]`: batch axes and gathered axes.

Input: the shape of `x`, and index tensors by axis. Output: `IndexAxes`. In `x[Tensor.arange(8),
labels]` the first index is 0, 1, 2, ...: row i of the result comes from row i of `x`, as in
`gather`. Such an axis is a batch axis. Invariant: an element is gathered within its batch only, so
a batch axis that is sharded needs no communication.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad.helpers import argsort
from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.indexing.index_view import common_shape
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.propagation.device_rules import is_placement


@dataclass(frozen=True)
class IndexAxes:
    """The axes of a tensor of `shape`, indexed by tensors of the broadcast shape `common`.

    `batched` pairs an axis of the index with the axis of the tensor that it enumerates. The axes
    `gathered`, indexed by other tensors, and the unindexed axes, `rest`, are in order.
    """

    shape: tuple[sint, ...]
    common: tuple[sint, ...]
    batched: tuple[tuple[int, int], ...]
    gathered: tuple[int, ...]
    rest: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[sint, ...], tensors: Mapping[int, TensorCore]) -> IndexAxes:
        """The roles of the axes of a tensor of `shape` with these index tensors, by axis."""
        common = common_shape(tensors)
        batched: dict[int, int] = {}
        for dim in sorted(tensors):
            x = tensors[dim]
            axis = enumerated_axis(x.uop)
            if axis is None or not _is_up_to(x.shape[axis], shape[dim]):
                continue
            batched.setdefault(axis + len(common) - x.ndim, dim)
        gathered = tuple(dim for dim in sorted(tensors) if dim not in batched.values())
        if not gathered:
            # all indices enumerate: gather, so that the result has the layout of the index
            batched, gathered = {}, tuple(sorted(tensors))
        rest = tuple(i for i in range(len(shape)) if i not in tensors)
        return cls(shape, common, tuple(sorted(batched.items())), gathered, rest)

    @property
    def batch(self) -> int:
        """The number of batch axes."""
        return len(self.batched)

    @property
    def order(self) -> tuple[int, ...]:
        """The tensor's axes in the order batch, gathered, rest."""
        return (*(dim for _, dim in self.batched), *self.gathered, *self.rest)

    @property
    def index_order(self) -> tuple[int, ...]:
        """The axes of the index, batch axes first."""
        first = tuple(axis for axis, _ in self.batched)
        return (*first, *(i for i in range(len(self.common)) if i not in first))

    @property
    def index_back(self) -> tuple[int, ...]:
        """The inverse of `index_order`."""
        return tuple(argsort(self.index_order))

    @property
    def batch_sizes(self) -> dict[int, sint]:
        """The size of each batch axis in the result, by axis of the tensor."""
        return {dim: self.common[axis] for axis, dim in self.batched}

    def sizes(self, dims: tuple[int, ...]) -> tuple[sint, ...]:
        """The sizes of these axes of the tensor."""
        return tuple(self.shape[dim] for dim in dims)


def enumerated_axis(node: UOp) -> int | None:
    """The axis along which a value is 0, 1, 2, ... and constant along all others, or None."""
    if node.op is Ops.ARANGE:
        return 0 if isinstance(node.arg, int) and node.arg > 1 else None
    if not is_placement(node) and node.op not in {Ops.CAST, Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE}:
        return None
    axis = enumerated_axis(node.src[0])
    if axis is None or node.op is not Ops.RESHAPE:
        return node.arg.index(axis) if axis is not None and node.op is Ops.PERMUTE else axis
    size = node.src[0].shape[axis]
    long = [i for i, new in enumerate(node.shape) if not (isinstance(new, int) and new == 1)]
    alone = all(i == axis or old == 1 for i, old in enumerate(node.src[0].shape))
    return long[0] if alone and len(long) == 1 and node.shape[long[0]] == size else None


def _is_up_to(count: Any, size: Any) -> bool:
    return isinstance(count, int) and isinstance(size, int) and count <= size
