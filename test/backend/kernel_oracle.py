"""What a kernel graph computes, by numpy: every range is an axis of its own, and every node an
array over them."""

from __future__ import annotations

from typing import Any

import numpy

from tinygrad.dtype import dtypes, to_numpy_dtype
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, sym_infer

_BINARY = {
    Ops.ADD: numpy.add,
    Ops.MUL: numpy.multiply,
    Ops.SUB: numpy.subtract,
    Ops.MAX: numpy.maximum,
    Ops.CMPLT: numpy.less,
    Ops.CMPNE: numpy.not_equal,
    Ops.CMPEQ: numpy.equal,
    Ops.AND: numpy.bitwise_and,
    Ops.OR: numpy.bitwise_or,
    Ops.XOR: numpy.bitwise_xor,
    Ops.FDIV: numpy.divide,
}
_REDUCE = {Ops.ADD: numpy.sum, Ops.MUL: numpy.prod, Ops.MAX: numpy.max}


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
            return numpy.arange(self.sizes[self.axis[u]]).reshape(shape)
        if u.op is Ops.CONST:
            return numpy.array(u.arg, to_numpy_dtype(u.dtype))
        if u.op is Ops.DEFINE_VAR:
            return numpy.array(self.values[u.arg[0]], to_numpy_dtype(u.dtype))
        src = [self.done.get(x) for x in u.src]
        if u.op is Ops.LOAD:
            return self.load(u)
        if u.op is Ops.REDUCE:
            return self.reduce(u, src[0])
        if u.op is Ops.CAST:
            return numpy.asarray(src[0]).astype(to_numpy_dtype(u.dtype))
        return self.arithmetic(u, src)

    def arithmetic(self, u: UOp, src: list[Any]) -> Any:
        if u.op in _BINARY:
            return _BINARY[u.op](*src)
        if u.op is Ops.WHERE:
            return numpy.where(*src)
        if u.op is Ops.NEG:
            return -src[0]
        if u.op is Ops.SQRT:
            return numpy.sqrt(src[0])
        if u.op is Ops.RECIPROCAL:
            return 1 / src[0]
        if u.op is Ops.IDIV:
            return _truncated_division(*src)
        if u.op is Ops.MOD:
            return src[0] - _truncated_division(*src) * src[1]
        assert u.op not in GroupOp.ALU, f"the oracle does not know {u.op}"
        raise NotImplementedError(u.op)

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
        if dtypes.is_bool(u.dtype):
            return (numpy.all if u.arg is Ops.MUL else numpy.any)(full, axis=axes, keepdims=True)
        return (
            _REDUCE[u.arg](full, axis=axes, keepdims=True, dtype=full.dtype)
            if (u.arg is not Ops.MAX)
            else numpy.max(full, axis=axes, keepdims=True)
        )

    def store(self) -> None:
        address, value = self.statement.src[:2]
        position = self.done[address.src[1]]
        valid = self.done[address.src[2]] if len(address.src) > 2 else numpy.array(True)
        position, valid, result = numpy.broadcast_arrays(position, valid, self.done[value])
        self.arrays[address.src[0].arg][position[valid]] = result[valid]


def _truncated_division(a: Any, b: Any) -> Any:
    safe = numpy.where(b == 0, 1, b)
    quotient = numpy.abs(a) // numpy.abs(safe) * numpy.sign(a) * numpy.sign(safe)
    return numpy.where(b == 0, 0, quotient)
