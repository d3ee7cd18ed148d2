"""Vectors on GPUs: one access in memory, and scalar arithmetic for each lane.

A vector is a struct of an array of lanes. Each lane of a vector value is a scalar node, which the
scalar writers write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tinygrad.dtype import DType, PtrDType, dtypes
from tinygrad.renderer.base import memory_dtype, pointer_of
from tinygrad.renderer.cstyle.dialect import GPUDialect
from tinygrad.renderer.cstyle.helpers import HelperLibrary
from tinygrad.renderer.cstyle.types import type_suffix
from tinygrad.renderer.cstyle.values import element, pointee
from tinygrad.renderer.cstyle.writer import CWriter
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

MAX_ALIGNMENT = 16
"""Bytes of the widest access of a GPU."""
ScalarWriter: TypeAlias = Callable[["LaneWriter", UOp], None]


class StructLibrary(HelperLibrary):
    """Vectors as structs."""

    dialect: GPUDialect

    def vector_type(self, dtype: DType) -> str:
        name = type_suffix(dtype)
        alignment = min(dtype.itemsize & -dtype.itemsize, MAX_ALIGNMENT)
        self.types[name] = self.dialect.struct.format(
            name=name,
            type=self.dialect.type(memory_dtype(dtype.scalar())),
            count=dtype.count,
            alignment=alignment,
        )
        return name


class LaneWriter(CWriter):
    """Collects statements of a GPU kernel."""

    library: StructLibrary
    dialect: GPUDialect

    def __init__(
        self, linear: list[UOp], library: StructLibrary, write_scalar: ScalarWriter
    ) -> None:
        super().__init__(linear, library)
        self._write_scalar = write_scalar
        self._lanes: dict[UOp, Sequence[UOp]] = {}

    def lane(self, node: UOp, number: int) -> UOp:
        """The scalar node that is a lane of `node`; `node` itself if it is a scalar."""
        return node if node.dtype.count == 1 else self._lanes[node][number]

    def set_lanes(self, node: UOp, lanes: Sequence[UOp]) -> None:
        """Let the value of a vector be `lanes`."""
        self._lanes[node] = lanes

    def compute(self, op: Ops, dtype: DType, src: tuple[UOp, ...], tag: object) -> UOp:
        """A new scalar node, written; `tag` tells it from an equal one in another block."""
        node = UOp(op, dtype, src, None, tag)
        self._write_scalar(self, node)
        return node

    def declare_struct(self, node: UOp, text: str) -> None:
        """Name a vector with a new variable, whose value is `text`, and its lanes."""
        self.declare(node, self.library.type(memory_dtype(node.dtype)), text)
        name, scalar = self.names[node], node.dtype.scalar()
        lanes = [UOp(Ops.GEP, scalar, (node,), i) for i in range(node.dtype.count)]
        for i, lane in enumerate(lanes):
            text = f"{name}.lane[{i}]"
            self.names[lane] = f"({text} != 0)" if dtypes.is_bool(scalar) else text
        self.set_lanes(node, lanes)

    def struct(self, node: UOp) -> str:
        """A variable that holds a vector."""
        if node in self.names:
            return self.names[node]
        self.declare(node, self.library.type(memory_dtype(node.dtype)), self.initializer(node))
        # the next use may be in another block
        return self.names.pop(node)

    def initializer(self, node: UOp) -> str:
        """What a variable of a vector type is initialized with, to be equal to `node`."""
        if node in self.names:
            return self.names[node]
        return f"{{{{{', '.join(self.names[lane] for lane in self._lanes[node])}}}}}"


def write_lanes(w: LaneWriter, u: UOp) -> None:
    """Write a node with a vector as its value or a source."""
    if u.op in _WRITERS:
        _WRITERS[u.op](w, u)
        return
    lanes = []
    for i in range(u.dtype.count):
        src = tuple(w.lane(x, i) for x in u.src)
        lanes.append(w.compute(u.op, u.dtype.scalar(), src, (u, i)))
    w.set_lanes(u, lanes)


def _write_constant(w: LaneWriter, u: UOp) -> None:
    values = u.arg if isinstance(u.arg, tuple) else (u.arg,) * u.dtype.count
    lanes = [UOp(Ops.CONST, u.dtype.scalar(), (), value) for value in values]
    for lane in lanes:
        w.names[lane] = w.dialect.literal(lane.dtype, lane.arg)
    w.set_lanes(u, lanes)


def _write_vectorize(w: LaneWriter, u: UOp) -> None:
    w.set_lanes(u, u.src if len(u.src) > 1 else u.src * u.dtype.count)


def _write_lane(w: LaneWriter, u: UOp) -> None:
    """The extraction of a lane, or a shuffle of several."""
    source = u.src[0]
    if u.dtype.count > 1:
        w.set_lanes(u, [w.lane(source, i) for i in u.arg])
    else:
        w.names[u] = w.names[w.lane(source, u.arg)]


def _write_reduce(w: LaneWriter, u: UOp) -> None:
    """A reduction of all lanes, as a tree."""
    source = u.src[0]
    lanes = [w.lane(source, i) for i in range(source.dtype.count)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [_combine(w, u, a, b) for a, b in zip(lanes[:half], lanes[half:])]
    w.names[u] = w.names[lanes[0]]


def _combine(w: LaneWriter, u: UOp, a: UOp, b: UOp) -> UOp:
    """Two lanes of a reduction as one."""
    op = u.arg
    if dtypes.is_bool(a.dtype):
        op = Ops.AND if op is Ops.MUL else Ops.OR
    if op is not Ops.MAX:
        return w.compute(op, a.dtype, (a, b), u)
    is_less = w.compute(Ops.CMPLT, dtypes.bool, (a, b), u)
    if dtypes.is_float(a.dtype):
        is_nan = w.compute(Ops.CMPNE, dtypes.bool, (b, b), u)
        is_less = w.compute(Ops.OR, dtypes.bool, (is_less, is_nan), u)
    return w.compute(Ops.WHERE, a.dtype, (is_less, b, a), u)


# ---- memory ----


def _write_load(w: LaneWriter, u: UOp) -> None:
    """One access, or one for each lane if it is a gather or each lane has a condition."""
    address = u.src[0]
    if not _is_one_access(address):
        alternative = u.src[1:]
        src = (
            (_lane_address(w, address, u, i), *(w.lane(x, i) for x in alternative))
            for i in range(u.dtype.count)
        )
        lanes = [w.compute(Ops.LOAD, u.dtype.scalar(), x, (u, i)) for i, x in enumerate(src)]
        w.set_lanes(u, lanes)
        return
    access = _access(w, u.dtype, address, "const ")
    if len(address.src) > 2:
        other = w.initializer(u.src[1]) if len(u.src) > 1 else "{{0}}"
        w.declare_struct(u, other)
        w.emit(f"if ({w.names[address.src[2]]}) {w.names[u]} = {access};")
    else:
        w.declare_struct(u, access)


def _write_store(w: LaneWriter, u: UOp) -> None:
    address, value = u.src[:2]
    if not _is_one_access(address):
        for i in range(value.dtype.count):
            src = (_lane_address(w, address, u, i), w.lane(value, i))
            w.compute(Ops.STORE, dtypes.void, src, (u, i))
        return
    stored = f"{_access(w, value.dtype, address)} = {w.struct(value)};"
    if len(address.src) > 2:
        stored = f"if ({w.names[address.src[2]]}) {stored}"
    w.emit(stored)


def _is_one_access(address: UOp) -> bool:
    return all(x.dtype.count == 1 for x in address.src[1:])


def _access(w: LaneWriter, dtype: DType, address: UOp, qualifier: str = "") -> str:
    """The lvalue of the vector at an address."""
    kind = memory_dtype(dtype)
    if pointee(address) is kind:
        return element(w, address)
    root = pointer_of(address).dtype
    assert isinstance(root, PtrDType)
    space = w.dialect.spaces.get(root.addrspace, "")
    return f"*({space}{qualifier}{w.library.type(kind)} *)({w.names[address]})"


def _lane_address(w: LaneWriter, address: UOp, tag: UOp, number: int) -> UOp:
    """The address of one lane of an access."""
    pointer, position, *valid = address.src
    if position.dtype.count > 1:
        position = w.lane(position, number)
    elif number:
        offset = UOp.const(position.dtype, number)
        w.names[offset] = str(number)
        position = w.compute(Ops.ADD, position.dtype, (position, offset), (tag, number))
    src = (pointer, position, *(w.lane(x, number) for x in valid))
    return w.compute(Ops.INDEX, address.dtype, src, (tag, number))


_WRITERS: dict[Ops, Callable[[LaneWriter, UOp], None]] = {
    Ops.CONST: _write_constant,
    Ops.VECTORIZE: _write_vectorize,
    Ops.GEP: _write_lane,
    Ops.REDUCE: _write_reduce,
    Ops.LOAD: _write_load,
    Ops.STORE: _write_store,
}
