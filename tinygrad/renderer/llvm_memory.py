"""Loads, stores and addresses as LLVM instructions: plain, masked, gathered."""

from __future__ import annotations

from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.renderer.llvm_types import constant, is_bool, mangled, memory_type, value_type
from tinygrad.renderer.llvm_writer import Writer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

SCRATCH_ALIGNMENT = 64


def define_array(w: Writer, u: UOp) -> None:
    """A register array or scratch memory, on the stack. LLVM turns the former into registers."""
    assert isinstance(u.dtype, PtrDType)
    prefix = "scratch" if u.dtype.addrspace is AddrSpace.LOCAL else "acc"
    name = f"%{prefix}{u.arg}"
    kind = memory_type(u.dtype.base)
    w.entry.append(f"  {name} = alloca [{u.dtype.size} x {kind}], align {SCRATCH_ALIGNMENT}")
    w.names[u] = name


def _byte_type(dtype: DType) -> DType:
    """What is in memory: bools are bytes there."""
    return dtypes.uint8.vec(dtype.count) if is_bool(dtype) else dtype


def index(w: Writer, u: UOp) -> None:
    """An address, or a vector of them."""
    pointer, position = u.src[:2]
    kind = memory_type(pointer.dtype.base)
    # not `inbounds`: where a condition guards the access, the address may lie outside of the buffer
    w.names[u] = w.value(f"getelementptr {kind}, ptr {w.names[pointer]}, {w.typed(position)}")


def load(w: Writer, u: UOp) -> None:
    """The value at an address."""
    address = u.src[0]
    stored = _byte_type(u.dtype)
    if address.src[1].dtype.count > 1:
        result = _masked_load(w, u, stored, "gather")
    elif len(address.src) == 2:
        result = w.value(
            f"load {value_type(stored)}, ptr {w.names[address]}, align {_alignment(u)}"
        )
    elif u.dtype.count > 1:
        result = _masked_load(w, u, stored, "load")
    else:
        result = _guarded_load(w, u, stored)
    if is_bool(u.dtype):
        result = w.value(f"icmp ne {value_type(stored)} {result}, {constant(stored, 0)}")
    w.names[u] = result


def _alignment(u: UOp) -> int:
    pointer = u.src[0].src[0].dtype
    assert isinstance(pointer, PtrDType)
    if pointer.addrspace is AddrSpace.REG:
        return min(SCRATCH_ALIGNMENT, pointer.base.itemsize)
    return max(1, pointer.base.scalar().itemsize)


def _alternative(w: Writer, u: UOp, stored: DType) -> str:
    """What a load gives where its address is not valid, as it is in memory."""
    if len(u.src) == 1:
        return constant(stored, 0)
    if not is_bool(u.dtype):
        return w.names[u.src[1]]
    return w.value(f"zext {w.typed(u.src[1])} to {value_type(stored)}")


def _lanes_valid(w: Writer, address: UOp, count: int) -> str:
    """The condition of each lane."""
    kind = value_type(dtypes.bool.vec(count))
    if len(address.src) == 2:
        return constant(dtypes.bool.vec(count), True)
    valid = address.src[2]
    if valid.dtype.count == count:
        return w.names[valid]
    first = w.value(f"insertelement {kind} poison, i1 {w.names[valid]}, i32 0")
    return w.value(f"shufflevector {kind} {first}, {kind} poison, <{count} x i32> zeroinitializer")


def _masked_load(w: Writer, u: UOp, stored: DType, form: str) -> str:
    address, count = u.src[0], u.dtype.count
    mask = value_type(dtypes.bool.vec(count))
    kind = value_type(stored)
    pointers = f"<{count} x ptr>" if form == "gather" else "ptr"
    valid = _lanes_valid(w, address, count)
    otherwise = _alternative(w, u, stored)
    name = f"llvm.masked.{form}.{mangled(stored)}.{f'v{count}p0' if form == 'gather' else 'p0'}"
    w.declare(kind, name, (pointers, mask, kind))
    target = f"{pointers} align {_alignment(u)} {w.names[address]}"
    return w.value(f"call {kind} @{name}({target}, {mask} {valid}, {kind} {otherwise})")


def _guarded_load(w: Writer, u: UOp, stored: DType) -> str:
    """A scalar load without a branch: where it is not valid, it reads the alternative's own
    memory."""
    address = u.src[0]
    kind = value_type(stored)
    alternative = u.src[1] if len(u.src) > 1 else None
    if alternative is None or alternative.op is Ops.CONST:
        value = 0 if alternative is None else alternative.arg
        slot = w.constant_slot(kind, constant(stored, value))
    else:
        w.count += 1
        slot = f"%slot{w.count}"
        w.entry.append(f"  {slot} = alloca {kind}")
        w.say(f"store {kind} {_alternative(w, u, stored)}, ptr {slot}")
    valid = w.names[address.src[2]]
    chosen = w.value(f"select i1 {valid}, ptr {w.names[address]}, ptr {slot}")
    return w.value(f"load {kind}, ptr {chosen}, align {_alignment(u)}")


def store(w: Writer, u: UOp) -> None:
    """Write a value to an address."""
    address, value = u.src[:2]
    stored = _byte_type(value.dtype)
    operand = w.names[value]
    if is_bool(value.dtype):
        operand = w.value(f"zext {w.typed(value)} to {value_type(stored)}")
    count = value.dtype.count
    if address.src[1].dtype.count > 1:
        _masked_store(w, u, stored, operand, "scatter")
    elif len(address.src) == 2:
        where = f"ptr {w.names[address]}, align {_alignment(u)}"
        w.say(f"store {value_type(stored)} {operand}, {where}")
    elif count > 1:
        _masked_store(w, u, stored, operand, "store")
    else:
        _guarded_store(w, u, stored, operand)


def _masked_store(w: Writer, u: UOp, stored: DType, operand: str, form: str) -> None:
    address, count = u.src[0], stored.count
    mask = value_type(dtypes.bool.vec(count))
    kind = value_type(stored)
    pointers = f"<{count} x ptr>" if form == "scatter" else "ptr"
    valid = _lanes_valid(w, address, count)
    name = f"llvm.masked.{form}.{mangled(stored)}.{f'v{count}p0' if form == 'scatter' else 'p0'}"
    w.declare("void", name, (kind, pointers, mask))
    target = f"{pointers} align {_alignment(u)} {w.names[address]}"
    w.say(f"call void @{name}({kind} {operand}, {target}, {mask} {valid})")


def _guarded_store(w: Writer, u: UOp, stored: DType, operand: str) -> None:
    address = u.src[0]
    write, skip = w.label("write"), w.label("skip")
    w.say(f"br i1 {w.names[address.src[2]]}, label %{write}, label %{skip}")
    w.start(write)
    where = f"ptr {w.names[address]}, align {_alignment(u)}"
    w.say(f"store {value_type(stored)} {operand}, {where}")
    w.say(f"br label %{skip}")
    w.start(skip)
