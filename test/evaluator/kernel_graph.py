"""A kernel graph, executed with numpy.

Every RANGE is an axis of its own, and the value of every node is an array over these axes.
"""

from __future__ import annotations

from typing import Any

import numpy

from test.evaluator.arithmetic import elementwise, reduction
from tinygrad.dtype import to_numpy_dtype
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sym_infer


def interpret(
    sink: UOp, arrays: dict[int, numpy.ndarray], values: dict[str, int] | None = None
) -> None:
    """Run the stores of `sink` on `arrays`, which are flat or are read as flat."""
    for store in sink.src:
        _Interpreter(store, arrays, values or {}).store()


class _Interpreter:
    """The values of one store's nodes."""

    def __init__(
        self, store: UOp, arrays: dict[int, numpy.ndarray], values: dict[str, int]
    ) -> None:
        self.statement = store
        self.arrays = {slot: array.reshape(-1) for slot, array in arrays.items()}
        self.values = values
        nodes = store.toposort()
        ranges = [u for u in nodes if u.op is Ops.RANGE]
        self.axis = {r: i for i, r in enumerate(ranges)}
        self.sizes = [sym_infer(r.src[0], values) for r in ranges]
        self.done: dict[UOp, Any] = {}
        for u in nodes:
            if u.op not in {Ops.STORE, Ops.INDEX, Ops.DEFINE_GLOBAL}:
                self.done[u] = self.value(u)

    def value(self, u: UOp) -> Any:
        if u.op is Ops.RANGE:
            shape = [1] * len(self.sizes)
            shape[self.axis[u]] = -1
            return numpy.arange(self.sizes[self.axis[u]], dtype=to_numpy_dtype(u.dtype)).reshape(
                shape
            )
        if u.op is Ops.DEFINE_VAR:
            return numpy.array(self.values[u.arg[0]], to_numpy_dtype(u.dtype))
        src = [self.done.get(x) for x in u.src]
        if u.op is Ops.LOAD:
            return self.load(u)
        if u.op is Ops.REDUCE:
            return self.reduce(u, src[0])
        return elementwise(u, src)

    def load(self, u: UOp) -> Any:
        address = u.src[0]
        array = self.arrays[address.src[0].arg]
        position = numpy.asarray(self.done[address.src[1]])
        if 0 in self.sizes:
            return array[numpy.minimum(position, array.size - 1)]
        if len(address.src) == 2:
            assert position.min() >= 0 and position.max() < array.size
            return array[position]
        position, valid = numpy.broadcast_arrays(position, self.done[address.src[2]])
        inside = numpy.where(valid, position, 0)
        assert inside.min() >= 0 and inside.max() < array.size
        other = self.done[u.src[1]] if len(u.src) > 1 else numpy.zeros((), array.dtype)
        return numpy.where(valid, array[inside], other)

    def reduce(self, u: UOp, value: Any) -> Any:
        axes = tuple(self.axis[r] for r in u.src[1:])
        shape = [self.sizes[i] if i in axes else 1 for i in range(len(self.sizes))]
        full = numpy.broadcast_to(value, numpy.broadcast_shapes(numpy.shape(value), tuple(shape)))
        return reduction(u.arg, full, axes, u.dtype)

    def store(self) -> None:
        address, value = self.statement.src[:2]
        position = self.done[address.src[1]]
        valid = self.done[address.src[2]] if len(address.src) > 2 else numpy.array(True)
        position, valid, result = numpy.broadcast_arrays(position, valid, self.done[value])
        self.arrays[address.src[0].arg][position[valid]] = result[valid]
