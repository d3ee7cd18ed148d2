"""Index tensors of `x[...]`, told apart: those that pick, and those that count.

In `x[Tensor.arange(8), labels]` the first index counts: row i of the result is of row i of `x`, as
in `gather`. So the rows are a batch, each picked from by itself, and nothing has to be found in
another row, which may be on another device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad.helpers import argsort
from tinygrad.mixin.core import TensorCore
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import broadcast_shape
from tinygrad.uop.device_rules import is_placement
from tinygrad.uop.ops import UOp, sint


@dataclass(frozen=True)
class IndexAxes:
    """The axes of a tensor of `shape` that index tensors of a `common` shape name.

    `counted` are pairs of an axis of the index and the axis of the tensor that it counts along; the
    axes `picked` and the others, `rest`, are in order.
    """

    shape: tuple[sint, ...]
    common: tuple[sint, ...]
    counted: tuple[tuple[int, int], ...]
    picked: tuple[int, ...]
    rest: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[sint, ...], tensors: Mapping[int, TensorCore]) -> IndexAxes:
        """What index tensors, by axis, say of a tensor of `shape`."""
        common = broadcast_shape(*(x.shape for x in tensors.values()))
        counted: dict[int, int] = {}
        for dim in sorted(tensors):
            x = tensors[dim]
            axis = counted_axis(x.uop)
            if axis is None or not _is_up_to(x.shape[axis], shape[dim]):
                continue
            counted.setdefault(axis + len(common) - x.ndim, dim)
        picked = tuple(dim for dim in sorted(tensors) if dim not in counted.values())
        if not picked:
            # rows that are named one after the other, as positions are: the layout is the index's
            counted, picked = {}, tuple(sorted(tensors))
        rest = tuple(i for i in range(len(shape)) if i not in tensors)
        return cls(shape, common, tuple(sorted(counted.items())), picked, rest)

    @property
    def batch(self) -> int:
        """How many axes are counted along."""
        return len(self.counted)

    @property
    def order(self) -> tuple[int, ...]:
        """The tensor's axes: those counted along, those picked from, the rest."""
        return (*(dim for _, dim in self.counted), *self.picked, *self.rest)

    @property
    def index_order(self) -> tuple[int, ...]:
        """The axes of the index, those that count first."""
        first = tuple(axis for axis, _ in self.counted)
        return (*first, *(i for i in range(len(self.common)) if i not in first))

    @property
    def index_back(self) -> tuple[int, ...]:
        """The inverse of `index_order`."""
        return tuple(argsort(self.index_order))

    @property
    def counts(self) -> dict[int, sint]:
        """How many elements are counted along each axis of the tensor."""
        return {dim: self.common[axis] for axis, dim in self.counted}

    def sizes(self, dims: tuple[int, ...]) -> tuple[sint, ...]:
        """The sizes of some of the tensor's axes."""
        return tuple(self.shape[dim] for dim in dims)


def counted_axis(node: UOp) -> int | None:
    """The axis along which a value is 0, 1, 2, ..., and equal along all others, if there is one."""
    if node.op is Ops.ARANGE:
        return 0 if isinstance(node.arg, int) and node.arg > 1 else None
    if not is_placement(node) and node.op not in {Ops.CAST, Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE}:
        return None
    axis = counted_axis(node.src[0])
    if axis is None or node.op is not Ops.RESHAPE:
        return node.arg.index(axis) if axis is not None and node.op is Ops.PERMUTE else axis
    size = node.src[0].shape[axis]
    long = [i for i, new in enumerate(node.shape) if not (isinstance(new, int) and new == 1)]
    alone = all(i == axis or old == 1 for i, old in enumerate(node.src[0].shape))
    return long[0] if alone and len(long) == 1 and node.shape[long[0]] == size else None


def _is_up_to(count: Any, size: Any) -> bool:
    return isinstance(count, int) and isinstance(size, int) and count <= size
