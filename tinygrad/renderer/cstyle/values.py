"""C expressions of arithmetic, conversions and memory accesses, on scalars."""

from __future__ import annotations

from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.renderer.base import cast_is_exact, memory_dtype
from tinygrad.renderer.cstyle.dialect import NARROW_FLOATS
from tinygrad.renderer.cstyle.helpers import safe_division
from tinygrad.renderer.cstyle.types import type_suffix
from tinygrad.renderer.cstyle.writer import CWriter, unwrapped
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

BINARY = {
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

WRAPPING = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.MULACC, Ops.SHL})
UNSIGNED = {dtypes.int32: dtypes.uint32, dtypes.int64: dtypes.uint64}
"""The types of C that overflow with the values of signed ones."""


def write_alu(w: CWriter, u: UOp) -> None:
    """Write an ALU op."""
    text = operation(w, u)
    if _is_promoted(u.dtype) and u.op is not Ops.WHERE:
        # C promotes narrower operands to int
        text = f"(({w.library.type(u.dtype)}){text})"
    w.assign(u, w.library.type(u.dtype), text)


def operation(w: CWriter, u: UOp) -> str:
    """The expression of an ALU op, in the type that C gives it."""
    src = [w.names[x] for x in u.src]
    if u.op in {Ops.IDIV, Ops.MOD}:
        return _division(w, u)
    if not w.dialect.wraps and may_wrap(u):
        return _wrapping(w, u.op, u.dtype, src)
    if u.op in BINARY:
        return f"({src[0]} {BINARY[u.op]} {src[1]})"
    if u.op is Ops.NEG:
        return f"(-{src[0]})"
    if u.op is Ops.MULACC:
        return f"({src[0]} * {src[1]} + {src[2]})"
    if u.op is Ops.WHERE:
        return f"({src[0]} ? {src[1]} : {src[2]})"
    if u.op in w.dialect.functions:
        return f"{w.dialect.function(u.op, u.dtype)}({src[0]})"
    raise NotImplementedError(f"C cannot express {u.op.name} of {u.dtype!r}")


def may_wrap(u: UOp) -> bool:
    """Whether the value of an integer op may be out of the range of the signed type in which C
    computes it: compilers assume that it is not.
    """
    if u.op not in WRAPPING or not dtypes.is_int(u.dtype):
        return False
    if _is_promoted(u.dtype):
        # only products of these do not fit int
        return u.dtype is dtypes.uint16 and u.op in {Ops.MUL, Ops.MULACC, Ops.SHL}
    # bounds of a value that may wrap are those of its type; indices fit theirs
    limits = dtypes.min(u.dtype), dtypes.max(u.dtype)
    return u.dtype in UNSIGNED and u.bounds == limits


def _wrapping(w: CWriter, op: Ops, dtype: DType, src: list[str]) -> str:
    """The expression of an integer op modulo the range of its type, as C's unsigned types compute
    it, to which the other operands are converted.
    """
    own, unsigned = (w.library.type(x) for x in (dtype, UNSIGNED.get(dtype, dtypes.uint32)))
    first = f"({unsigned}){src[0]}"
    if op is Ops.NEG:
        return f"(({own})(0 - {first}))"
    if op is Ops.MULACC:
        return f"(({own})({first} * {src[1]} + {src[2]}))"
    return f"(({own})({first} {BINARY[op]} {src[1]}))"


def _is_promoted(dtype: DType) -> bool:
    return dtypes.is_int(dtype) and dtype.itemsize < 4


def divides_safely(u: UOp) -> bool:
    """Whether the divisor of an integer division is never 0 or -1."""
    divisor = u.src[1]
    return bool(divisor.vmin > 0 or divisor.vmax < -1)


def _division(w: CWriter, u: UOp) -> str:
    a, b = (w.names[x] for x in u.src)
    if dtypes.is_float(u.dtype):
        return f"{w.dialect.function(Ops.MOD, u.dtype)}({a}, {b})"
    operator = BINARY[u.op]
    if divides_safely(u):
        return f"({a} {operator} {b})"
    negated = f"-{a}"
    if not w.dialect.wraps and u.dtype in UNSIGNED:
        negated = _wrapping(w, Ops.NEG, u.dtype, [a])
    return safe_division(u.dtype, operator, a, b, negated)


def write_constant(w: CWriter, u: UOp) -> None:
    """Write a constant."""
    w.names[u] = w.dialect.literal(u.dtype, u.arg)


# ---- conversions ----


def write_cast(w: CWriter, u: UOp) -> None:
    """Write a conversion between dtypes."""
    w.assign(u, w.library.type(u.dtype), _converted(w, u.src[0], u.dtype))


def _converted(w: CWriter, node: UOp, target: DType) -> str:
    value, source = w.names[node], node.dtype
    if source in NARROW_FLOATS:
        value, source = f"{NARROW_FLOATS[source][0]}_to_float({value})", dtypes.float32
    if target in NARROW_FLOATS:
        value = value if source is dtypes.float32 else _as_type(w, dtypes.float32, value)
        return f"float_to_{NARROW_FLOATS[target][0]}({unwrapped(value)})"
    if dtypes.is_float(source) and dtypes.is_int(target) and not cast_is_exact(node, target):
        return w.library.saturate(source, target, value)
    return value if source is target else _as_type(w, target, value)


def _as_type(w: CWriter, dtype: DType, value: str) -> str:
    return f"({w.library.type(dtype)}){value}"


def write_bitcast(w: CWriter, u: UOp) -> None:
    """Write a bitcast."""
    source = u.src[0]
    value = w.names[source]
    if dtypes.is_bool(u.dtype) or dtypes.is_bool(source.dtype):
        write_cast(w, u)
    elif type_suffix(source.dtype) == type_suffix(u.dtype):
        w.names[u] = value
    else:
        w.assign(u, w.library.type(u.dtype), _bitcast(w, source.dtype, u.dtype, value))


def _bitcast(w: CWriter, source: DType, target: DType, value: str) -> str:
    if source in NARROW_FLOATS:
        bits = f"bits_of_{NARROW_FLOATS[source][0]}({value})"
        return bits if target is dtypes.uint16 else _bitcast(w, dtypes.uint16, target, bits)
    if target in NARROW_FLOATS:
        return f"{NARROW_FLOATS[target][0]}_of_bits({value})"
    if dtypes.is_float(source) or dtypes.is_float(target):
        return w.library.bits(source, target, value)
    return _as_type(w, target, value)


# ---- memory ----


def pointee(address: UOp) -> DType:
    """The type of the elements of the array that an address points into."""
    pointer = address.src[0].dtype
    assert isinstance(pointer, PtrDType)
    return pointer.base


def write_index(w: CWriter, u: UOp) -> None:
    """Write an address as a pointer expression; accesses use its sources directly."""
    pointer, position = (w.names[x] for x in u.src[:2])
    w.names[u] = f"{pointer} + {position}"


def element(w: CWriter, address: UOp) -> str:
    """The lvalue of one element of the array that an address points into."""
    pointer, position = (w.names[x] for x in address.src[:2])
    return f"{pointer}[{unwrapped(position)}]"


def write_load(w: CWriter, u: UOp) -> None:
    """Write a load. It is never inlined, because a later store may change the memory."""
    address = u.src[0]
    text = element(w, address)
    if len(address.src) > 2:
        kind = memory_dtype(u.dtype)
        other = w.names[u.src[1]] if len(u.src) > 1 else w.dialect.literal(kind, 0)
        pointer, position, valid = (w.names[x] for x in address.src)
        text = f"({valid} ? {pointer}[{position}] : {other})"
    if dtypes.is_bool(u.dtype):
        text = f"{text} != 0"
    w.declare(u, w.library.type(u.dtype), text)


def write_store(w: CWriter, u: UOp) -> None:
    """Write a store."""
    address, node = u.src[:2]
    stored = f"{element(w, address)} = {unwrapped(w.names[node])};"
    if len(address.src) > 2:
        stored = f"if ({unwrapped(w.names[address.src[2]])}) {stored}"
    w.emit(stored)


def declare_array(w: CWriter, u: UOp, qualifier: str = "") -> str:
    """The declaration of a register array or of scratch memory, which it names."""
    assert isinstance(u.dtype, PtrDType)
    prefix = "scratch" if u.dtype.addrspace is AddrSpace.LOCAL else "acc"
    name = w.names[u] = f"{prefix}{u.arg}"
    return f"{qualifier}{w.library.type(memory_dtype(u.dtype.base))} {name}[{u.dtype.size}];"
