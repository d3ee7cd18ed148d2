"""Expressions on GNU C vectors: arithmetic, masks, conversions, lanes, memory accesses."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.base import cast_is_exact, memory_dtype
from tinygrad.renderer.cstyle.types import mask_type
from tinygrad.renderer.cstyle.values import BINARY, divides_safely, element, operation, pointee
from tinygrad.renderer.cstyle.vectors import VectorLibrary
from tinygrad.renderer.cstyle.writer import CWriter, unwrapped
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

_MASK_OPERATORS = {Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^", Ops.CMPNE: "^"}


class VectorWriter(CWriter):
    """Collects statements on GNU C vectors."""

    library: VectorLibrary

    def __init__(self, linear: list[UOp], library: VectorLibrary) -> None:
        super().__init__(linear, library)
        # bytes of a lane of each mask: those of the compared elements
        self.mask_bytes: dict[UOp, int] = {}

    def mask(self, node: UOp, itemsize: int) -> str:
        """The mask `node`, widened or narrowed to lanes of `itemsize` bytes."""
        count = node.dtype.count
        source = mask_type(count, self.mask_bytes[node])
        return self.library.convert(source, mask_type(count, itemsize), self.names[node])


def write_vector(w: VectorWriter, u: UOp) -> None:
    """Write an op with a vector as its value or a source."""
    if u.op in _WRITERS:
        _WRITERS[u.op](w, u)
    elif u.op in GroupOp.ALU:
        _write_alu(w, u)
    else:
        raise NotImplementedError(f"C cannot express {u.op.name} of {u.dtype!r}")


def _is_mask(dtype: DType) -> bool:
    """Whether a value of the type is a mask, a vector of bools."""
    return dtypes.is_bool(dtype) and dtype.count > 1


def _write_alu(w: VectorWriter, u: UOp) -> None:
    if _is_mask(u.dtype):
        _write_mask(w, u)
    else:
        w.assign(u, w.library.type(u.dtype), _arithmetic(w, u))


def _arithmetic(w: VectorWriter, u: UOp) -> str:
    src = [w.names[x] for x in u.src]
    if u.op is Ops.WHERE:
        mask = w.mask(u.src[0], u.dtype.scalar().itemsize)
        return w.library.where(u.dtype, mask, src[1], src[2])
    if u.op is Ops.MOD and dtypes.is_float(u.dtype):
        return w.library.remainder(u.dtype, *src)
    if u.op in {Ops.IDIV, Ops.MOD} and not divides_safely(u):
        return w.library.divide(u.dtype, BINARY[u.op], *src)
    if u.op in w.dialect.functions and u.op not in BINARY:
        return w.library.call(u.op, u.dtype, src[0])
    return operation(w, u)


def _write_mask(w: VectorWriter, u: UOp) -> None:
    """Write an ALU op whose result is a mask."""
    first = u.src[0]
    if u.op in GroupOp.Comparison and not dtypes.is_bool(first.dtype):
        width = first.dtype.scalar().itemsize
        text = f"({w.names[first]} {BINARY[u.op]} {w.names[u.src[1]]})"
    else:
        width = w.mask_bytes[first]
        src = [w.mask(x, width) for x in u.src]
        if u.op is Ops.WHERE:
            text = f"(({src[0]} & {src[1]}) | (~{src[0]} & {src[2]}))"
        elif u.op is Ops.CMPEQ:
            text = f"(~({src[0]} ^ {src[1]}))"
        else:
            text = f"({src[0]} {_MASK_OPERATORS[u.op]} {src[1]})"
    _set_mask(w, u, width, text)


def _set_mask(w: VectorWriter, u: UOp, width: int, text: str) -> None:
    w.mask_bytes[u] = width
    w.assign(u, w.library.type(mask_type(u.dtype.count, width)), text)


def _write_constant(w: VectorWriter, u: UOp) -> None:
    """A splat, or the lanes of a tuple."""
    if _is_mask(u.dtype):
        value = tuple(-int(x) for x in u.arg) if isinstance(u.arg, tuple) else -int(u.arg)
        w.mask_bytes[u] = 1
        w.names[u] = w.library.constant(mask_type(u.dtype.count, 1), value)
    else:
        w.names[u] = w.library.constant(u.dtype, u.arg)


# ---- conversions ----


def _write_cast(w: VectorWriter, u: UOp) -> None:
    source, target = u.src[0].dtype, u.dtype
    value = w.names[u.src[0]]
    if not _is_mask(target):
        w.assign(u, w.library.type(target), _converted(w, u.src[0], target))
    elif _is_mask(source):
        w.names[u], w.mask_bytes[u] = value, w.mask_bytes[u.src[0]]
    else:
        zero = w.library.constant(source, 0)
        _set_mask(w, u, source.scalar().itemsize, f"({value} != {zero})")


def _converted(w: VectorWriter, node: UOp, target: DType) -> str:
    value, source = w.names[node], node.dtype
    if dtypes.is_float(source) and dtypes.is_int(target) and not cast_is_exact(node, target):
        return w.library.saturate(source, target, value)
    if _is_mask(source):
        source = mask_type(source.count, w.mask_bytes[node])
        value = f"({value} & 1)"
    return w.library.convert(source, target, value)


def _write_bitcast(w: VectorWriter, u: UOp) -> None:
    source = u.src[0]
    if dtypes.is_bool(u.dtype) or dtypes.is_bool(source.dtype):
        _write_cast(w, u)
    else:
        text = w.library.bits(source.dtype, u.dtype, w.names[source])
        w.assign(u, w.library.type(u.dtype), text)


# ---- lanes ----


def _write_vectorize(w: VectorWriter, u: UOp) -> None:
    """A vector of one scalar repeated, or of several."""
    dtype = u.dtype
    values = [w.names[x] for x in u.src]
    if _is_mask(dtype):
        dtype = mask_type(dtype.count, 1)
        values = [f"-{x}" for x in values]
    text = w.library.splat(dtype, values[0]) if len(values) == 1 else w.library.lanes(dtype, values)
    if _is_mask(u.dtype):
        _set_mask(w, u, 1, text)
    else:
        w.assign(u, w.library.type(dtype), text)


def _write_lane(w: VectorWriter, u: UOp) -> None:
    """The extraction of a lane."""
    text = f"{_indexable(w.names[u.src[0]])}[{u.arg}]"
    text = f"({text} != 0)" if dtypes.is_bool(u.dtype) else text
    w.assign(u, w.library.type(u.dtype), text)


def _indexable(text: str) -> str:
    return text if text.isidentifier() or text.startswith("(") else f"({text})"


def _write_reduce(w: VectorWriter, u: UOp) -> None:
    """A reduction of all lanes."""
    source = u.src[0]
    op, dtype = u.arg, source.dtype
    if _is_mask(dtype):
        op = Ops.AND if op is Ops.MUL else Ops.OR
        dtype = mask_type(dtype.count, w.mask_bytes[source])
    text = w.library.reduce(op, dtype, w.names[source])
    text = f"({text} != 0)" if dtypes.is_bool(u.dtype) else text
    w.assign(u, w.library.type(u.dtype), text)


# ---- memory ----


def _write_load(w: VectorWriter, u: UOp) -> None:
    text = _loaded(w, u)
    kind = u.dtype
    if _is_mask(kind):
        w.mask_bytes[u] = 1
        kind = mask_type(kind.count, 1)
        text = f"{text} != {w.library.constant(memory_dtype(u.dtype), 0)}"
    w.declare(u, w.library.type(kind), text)


def _loaded(w: VectorWriter, u: UOp) -> str:
    address = u.src[0]
    kind = memory_dtype(u.dtype)
    if _is_simple(address):
        return _in_memory(w, kind, address)
    other = _other_lanes(w, u, kind)
    positions = _positions(address)
    mask = _lanes_valid(w, address, kind.count)
    where = w.names[address.src[0]] if positions else w.names[address]
    return w.library.load(kind, where, positions, w.names[address.src[1]], mask, other)


def _is_simple(address: UOp) -> bool:
    return len(address.src) == 2 and address.src[1].dtype.count == 1


def _positions(address: UOp) -> DType | None:
    """The type of the vector index of a gather or scatter, or None."""
    dtype = address.src[1].dtype
    return dtype if dtype.count > 1 else None


def _in_memory(w: VectorWriter, kind: DType, address: UOp) -> str:
    """The lvalue of the vector at an address."""
    if pointee(address) is kind:
        return element(w, address)
    return w.library.in_memory(kind, w.names[address])


def _other_lanes(w: VectorWriter, u: UOp, kind: DType) -> str:
    if len(u.src) == 1:
        return w.library.constant(kind, 0)
    if not _is_mask(u.dtype):
        return w.names[u.src[1]]
    other = f"({w.mask(u.src[1], 1)} & 1)"
    return w.library.bits(mask_type(kind.count, 1), kind, other)


def _lanes_valid(w: VectorWriter, address: UOp, count: int) -> str:
    """The byte mask of an access."""
    if len(address.src) == 2:
        return w.library.constant(mask_type(count, 1), -1)
    valid = address.src[2]
    if valid.dtype.count == count:
        return w.mask(valid, 1)
    return w.library.splat(mask_type(count, 1), f"-{w.names[valid]}")


def _write_store(w: VectorWriter, u: UOp) -> None:
    address, node = u.src[:2]
    kind = memory_dtype(node.dtype)
    value = w.names[node]
    if _is_mask(node.dtype):
        value = w.library.bits(mask_type(kind.count, 1), kind, f"({w.mask(node, 1)} & 1)")
    if _is_simple(address):
        w.emit(f"{_in_memory(w, kind, address)} = {unwrapped(value)};")
        return
    positions = _positions(address)
    where = w.names[address.src[0]] if positions else w.names[address]
    mask = _lanes_valid(w, address, kind.count)
    position = w.names[address.src[1]]
    w.emit(f"{w.library.store(kind, where, positions, position, mask, value)};")


_WRITERS: dict[Ops, Callable[[VectorWriter, UOp], None]] = {
    Ops.CONST: _write_constant,
    Ops.LOAD: _write_load,
    Ops.STORE: _write_store,
    Ops.CAST: _write_cast,
    Ops.BITCAST: _write_bitcast,
    Ops.VECTORIZE: _write_vectorize,
    Ops.GEP: _write_lane,
    Ops.REDUCE: _write_reduce,
}
