"""C expressions of arithmetic, conversions and memory accesses, on scalars and vectors."""

from __future__ import annotations

from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.renderer.base import cast_is_exact, memory_dtype
from tinygrad.renderer.cstyle.types import literal, mask_type, type_suffix
from tinygrad.renderer.cstyle.vectors import safe_division
from tinygrad.renderer.cstyle.writer import CWriter, unwrapped
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

_BINARY = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.SUB: "-",
    Ops.FDIV: "/",
    Ops.IDIV: "/",
    Ops.MOD: "%",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.CMPEQ: "==",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
}
_MASK_OPERATORS = {Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^", Ops.CMPNE: "^"}


def is_mask(dtype: DType) -> bool:
    """Whether a value of the type is a mask, a vector of bools."""
    return dtypes.is_bool(dtype) and dtype.count > 1


def write_alu(w: CWriter, u: UOp) -> None:
    """Write an ALU op."""
    if is_mask(u.dtype):
        _write_mask(w, u)
    elif u.op is Ops.WHERE:
        condition, yes, no = u.src
        if u.dtype.count == 1:
            text = f"({w.names[condition]} ? {w.names[yes]} : {w.names[no]})"
        else:
            mask = w.mask(condition, u.dtype.scalar().itemsize)
            text = w.vectors.where(u.dtype, mask, w.names[yes], w.names[no])
        w.assign(u, w.vectors.type(u.dtype), text)
    else:
        w.assign(u, w.vectors.type(u.dtype), _arithmetic(w, u))


def _arithmetic(w: CWriter, u: UOp) -> str:
    text = _operation(w, u)
    # C promotes narrower operands to int
    return f"(({w.vectors.type(u.dtype)}){text})" if _is_promoted(u.dtype) else text


def _operation(w: CWriter, u: UOp) -> str:
    src = [w.names[x] for x in u.src]
    if u.op in {Ops.IDIV, Ops.MOD}:
        return _division(w, u)
    if u.op in _BINARY:
        return f"({src[0]} {_BINARY[u.op]} {src[1]})"
    if u.op is Ops.NEG:
        return f"(-{src[0]})"
    if u.op is Ops.MULACC:
        return f"({src[0]} * {src[1]} + {src[2]})"
    if u.op in w.functions:
        function = w.functions[u.op] + ("" if u.dtype.scalar() is dtypes.float64 else "f")
        is_vector = u.dtype.count > 1
        return w.vectors.call(function, u.dtype, src[0]) if is_vector else f"{function}({src[0]})"
    raise NotImplementedError(f"C cannot express {u.op.name} of {u.dtype!r}")


def _is_promoted(dtype: DType) -> bool:
    return dtypes.is_int(dtype) and dtype.count == 1 and dtype.itemsize < 4


def _division(w: CWriter, u: UOp) -> str:
    a, b = (w.names[x] for x in u.src)
    if dtypes.is_float(u.dtype):
        is_vector = u.dtype.count > 1
        return w.vectors.remainder(u.dtype, a, b) if is_vector else f"__builtin_fmod({a}, {b})"
    operator = _BINARY[u.op]
    divisor = u.src[1]
    if divisor.vmin > 0 or divisor.vmax < -1:
        return f"({a} {operator} {b})"
    if u.dtype.count > 1:
        return w.vectors.divide(u.dtype, operator, a, b)
    return safe_division(u.dtype, operator, a, b)


def _write_mask(w: CWriter, u: UOp) -> None:
    """Write an ALU op whose result is a mask."""
    first = u.src[0]
    if u.op in GroupOp.Comparison and not dtypes.is_bool(first.dtype):
        width = first.dtype.scalar().itemsize
        text = f"({w.names[first]} {_BINARY[u.op]} {w.names[u.src[1]]})"
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


def _set_mask(w: CWriter, u: UOp, width: int, text: str) -> None:
    w.mask_bytes[u] = width
    w.assign(u, w.vectors.type(mask_type(u.dtype.count, width)), text)


def write_constant(w: CWriter, u: UOp) -> None:
    """Write a constant, a splat if it is a vector."""
    if is_mask(u.dtype):
        value = tuple(-int(x) for x in u.arg) if isinstance(u.arg, tuple) else -int(u.arg)
        w.mask_bytes[u] = 1
        w.names[u] = w.vectors.constant(mask_type(u.dtype.count, 1), value)
    elif u.dtype.count > 1:
        w.names[u] = w.vectors.constant(u.dtype, u.arg)
    else:
        w.names[u] = literal(u.dtype, u.arg)


# ---- conversions ----


def write_cast(w: CWriter, u: UOp) -> None:
    """Write a conversion between dtypes."""
    source, target = u.src[0].dtype, u.dtype
    value = w.names[u.src[0]]
    if is_mask(target):
        if is_mask(source):
            w.names[u], w.mask_bytes[u] = value, w.mask_bytes[u.src[0]]
        else:
            zero = w.vectors.constant(source, 0)
            _set_mask(w, u, source.scalar().itemsize, f"({value} != {zero})")
        return
    w.assign(u, w.vectors.type(target), _converted(w, u.src[0], target))


def _converted(w: CWriter, node: UOp, target: DType) -> str:
    value, source = w.names[node], node.dtype
    if dtypes.is_float(source) and dtypes.is_int(target) and not cast_is_exact(node, target):
        return w.vectors.saturate(source, target, value)
    if target.count == 1:
        return f"({w.vectors.type(target)}){value}"
    if is_mask(source):
        source = mask_type(source.count, w.mask_bytes[node])
        value = f"({value} & 1)"
    return w.vectors.convert(source, target, value)


def write_bitcast(w: CWriter, u: UOp) -> None:
    """Write a bitcast."""
    source = u.src[0]
    value = w.names[source]
    if dtypes.is_bool(u.dtype) or dtypes.is_bool(source.dtype):
        write_cast(w, u)
    elif u.dtype.count > 1:
        w.assign(u, w.vectors.type(u.dtype), w.vectors.bits(u.dtype, value))
    elif type_suffix(source.dtype) == type_suffix(u.dtype):
        w.names[u] = value
    elif dtypes.is_float(source.dtype) or dtypes.is_float(u.dtype):
        text = w.vectors.scalar_bits(source.dtype, u.dtype, value)
        w.assign(u, w.vectors.type(u.dtype), text)
    else:
        w.assign(u, w.vectors.type(u.dtype), f"({w.vectors.type(u.dtype)}){value}")


# ---- lanes ----


def write_vectorize(w: CWriter, u: UOp) -> None:
    """A vector of one scalar repeated, or of several."""
    dtype = u.dtype
    values = [w.names[x] for x in u.src]
    if is_mask(dtype):
        dtype = mask_type(dtype.count, 1)
        values = [f"-{x}" for x in values]
    text = w.vectors.splat(dtype, values[0]) if len(values) == 1 else w.vectors.lanes(dtype, values)
    if is_mask(u.dtype):
        _set_mask(w, u, 1, text)
    else:
        w.assign(u, w.vectors.type(dtype), text)


def write_lane(w: CWriter, u: UOp) -> None:
    """Write the extraction of a lane."""
    text = f"{_indexable(w.names[u.src[0]])}[{u.arg}]"
    text = f"({text} != 0)" if dtypes.is_bool(u.dtype) else text
    w.assign(u, w.vectors.type(u.dtype), text)


def _indexable(text: str) -> str:
    return text if text.isidentifier() or text.startswith("(") else f"({text})"


def write_reduce(w: CWriter, u: UOp) -> None:
    """Write a reduction of all lanes."""
    source = u.src[0]
    op, dtype = u.arg, source.dtype
    if is_mask(dtype):
        op = Ops.AND if op is Ops.MUL else Ops.OR
        dtype = mask_type(dtype.count, w.mask_bytes[source])
    text = w.vectors.reduce(op, dtype, w.names[source])
    text = f"({text} != 0)" if dtypes.is_bool(u.dtype) else text
    w.assign(u, w.vectors.type(u.dtype), text)


# ---- memory ----


def _pointee(address: UOp) -> DType:
    pointer = address.src[0].dtype
    assert isinstance(pointer, PtrDType)
    return pointer.base


def write_index(w: CWriter, u: UOp) -> None:
    """Write an address as a pointer expression; accesses use its sources directly."""
    pointer, position = (w.names[x] for x in u.src[:2])
    w.names[u] = f"{pointer} + {position}"


def write_load(w: CWriter, u: UOp) -> None:
    """Write a load. It is never inlined, because a later store may change the memory."""
    text = _loaded(w, u)
    name = f"v{w.count}"
    w.count += 1
    if is_mask(u.dtype):
        w.mask_bytes[u] = 1
        kind = w.vectors.type(mask_type(u.dtype.count, 1))
        text = f"{text} != {w.vectors.constant(memory_dtype(u.dtype), 0)}"
    elif dtypes.is_bool(u.dtype):
        kind, text = w.vectors.type(u.dtype), f"{text} != 0"
    else:
        kind = w.vectors.type(u.dtype)
    w.names[u] = name
    w.emit(f"{kind} {name} = {text};")


def _loaded(w: CWriter, u: UOp) -> str:
    address = u.src[0]
    kind = memory_dtype(u.dtype)
    pointer, position = (w.names[x] for x in address.src[:2])
    if _is_simple(address):
        return _element(w, kind, address)
    if kind.count == 1:
        other = w.names[u.src[1]] if len(u.src) > 1 else literal(kind, 0)
        return f"({w.names[address.src[2]]} ? {pointer}[{position}] : {other})"
    other = _other_lanes(w, u, kind)
    positions = _positions(address)
    mask = _lanes_valid(w, address, kind.count)
    where = pointer if positions else w.names[address]
    return w.vectors.load(kind, where, positions, position, mask, other)


def _is_simple(address: UOp) -> bool:
    return len(address.src) == 2 and address.src[1].dtype.count == 1


def _positions(address: UOp) -> DType | None:
    """The type of the vector index of a gather or scatter, or None."""
    dtype = address.src[1].dtype
    return dtype if dtype.count > 1 else None


def _element(w: CWriter, kind: DType, address: UOp) -> str:
    """The lvalue at an address."""
    pointer, position = (w.names[x] for x in address.src[:2])
    if kind.count == 1 or _pointee(address) is kind:
        return f"{pointer}[{unwrapped(position)}]"
    return w.vectors.in_memory(kind, w.names[address])


def _other_lanes(w: CWriter, u: UOp, kind: DType) -> str:
    if len(u.src) == 1:
        return w.vectors.constant(kind, 0)
    if not is_mask(u.dtype):
        return w.names[u.src[1]]
    return w.vectors.bits(kind, f"({w.mask(u.src[1], 1)} & 1)")


def _lanes_valid(w: CWriter, address: UOp, count: int) -> str:
    """The byte mask of an access."""
    if len(address.src) == 2:
        return w.vectors.constant(mask_type(count, 1), -1)
    valid = address.src[2]
    if valid.dtype.count == count:
        return w.mask(valid, 1)
    return w.vectors.splat(mask_type(count, 1), f"-{w.names[valid]}")


def write_store(w: CWriter, u: UOp) -> None:
    """Write a store."""
    address, node = u.src[:2]
    kind = memory_dtype(node.dtype)
    value = w.names[node]
    if is_mask(node.dtype):
        value = w.vectors.bits(kind, f"({w.mask(node, 1)} & 1)")
    if _is_simple(address):
        w.emit(f"{_element(w, kind, address)} = {unwrapped(value)};")
    elif kind.count == 1:
        pointer, position = (w.names[x] for x in address.src[:2])
        condition = unwrapped(w.names[address.src[2]])
        w.emit(f"if ({condition}) {pointer}[{unwrapped(position)}] = {unwrapped(value)};")
    else:
        positions = _positions(address)
        where = w.names[address.src[0]] if positions else w.names[address]
        mask = _lanes_valid(w, address, kind.count)
        position = w.names[address.src[1]]
        w.emit(f"{w.vectors.store(kind, where, positions, position, mask, value)};")


def write_array(w: CWriter, u: UOp, qualifier: str) -> None:
    """Declare a register array or scratch memory."""
    assert isinstance(u.dtype, PtrDType)
    prefix = "scratch" if u.dtype.addrspace is AddrSpace.LOCAL else "acc"
    name = f"{prefix}{u.arg}"
    w.emit(f"{qualifier}{w.vectors.type(memory_dtype(u.dtype.base))} {name}[{u.dtype.size}];")
    w.names[u] = name
