"""LLVM instructions of addresses, loads and stores: plain, masked, gather and scatter.

Input: a `Writer`, and a node whose sources are written. Output: its instructions. Invariant: an
address whose condition is false is not accessed.

Where no instruction masks lanes of a size, LLVM tests and accesses each lane alone. So a branch
decides whether all lanes are valid, which nearly all vectors of a nest are, or none is.

A processor takes a hundred cycles or more to find that a masked vector without a valid lane must
not fault, if its page is not mapped. So where many such vectors lie outside of the buffer, as those
of each operand of a concatenation, the address of the first element takes their place.
"""

from __future__ import annotations

from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.renderer.base import memory_dtype
from tinygrad.renderer.host_cpu import SCRATCH_ALIGNMENT
from tinygrad.renderer.llvm.types import literal, mangled, memory_type, value_type
from tinygrad.renderer.llvm.writer import Writer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

NEAR_SHARE = 16
"""A masked vector is near its buffer up to this share of the buffer's size away from it."""


def write_array(w: Writer, u: UOp) -> None:
    """Allocate a register array or scratch memory. SROA promotes register arrays to registers."""
    assert isinstance(u.dtype, PtrDType)
    prefix = "scratch" if u.dtype.addrspace is AddrSpace.LOCAL else "acc"
    name = f"%{prefix}{u.arg}"
    kind = memory_type(u.dtype.base)
    w.entry.append(f"  {name} = alloca [{u.dtype.size} x {kind}], align {SCRATCH_ALIGNMENT}")
    w.names[u] = name


def write_index(w: Writer, u: UOp) -> None:
    """Write an address, or a vector of addresses."""
    pointer, position = u.src[:2]
    kind = memory_type(pointer.dtype.base)
    # not `inbounds`: the address of a masked access may lie outside of the buffer
    w.names[u] = w.assign(f"getelementptr {kind}, ptr {w.names[pointer]}, {w.operand(position)}")


def write_load(w: Writer, u: UOp) -> None:
    """Write a load."""
    address = u.src[0]
    stored = memory_dtype(u.dtype)
    if address.src[1].dtype.count > 1:
        result = _masked_load(w, u, stored, "gather")
    elif len(address.src) == 2:
        result = w.assign(
            f"load {value_type(stored)}, ptr {w.names[address]}, align {_alignment(u)}"
        )
    elif u.dtype.count > 1:
        result = _masked_load(w, u, stored, "load")
    else:
        result = _guarded_load(w, u, stored)
    if dtypes.is_bool(u.dtype):
        result = w.assign(f"icmp ne {value_type(stored)} {result}, {literal(stored, 0)}")
    w.names[u] = result


def _alignment(u: UOp) -> int:
    pointer = u.src[0].src[0].dtype
    assert isinstance(pointer, PtrDType)
    if pointer.addrspace is AddrSpace.REG:
        return min(SCRATCH_ALIGNMENT, pointer.base.itemsize)
    return max(1, pointer.base.scalar().itemsize)


def _alternative(w: Writer, u: UOp, stored: DType) -> str:
    """The value of a load where its address is not valid, in its memory type."""
    if len(u.src) == 1:
        return literal(stored, 0)
    if not dtypes.is_bool(u.dtype):
        return w.names[u.src[1]]
    return w.assign(f"zext {w.operand(u.src[1])} to {value_type(stored)}")


def _lanes_valid(w: Writer, address: UOp, count: int) -> str:
    """The mask of an access."""
    kind = value_type(dtypes.bool.vec(count))
    if len(address.src) == 2:
        return literal(dtypes.bool.vec(count), True)
    valid = address.src[2]
    if valid.dtype.count == count:
        return w.names[valid]
    first = w.assign(f"insertelement {kind} poison, i1 {w.names[valid]}, i32 0")
    return w.assign(f"shufflevector {kind} {first}, {kind} poison, <{count} x i32> zeroinitializer")


def _is_often_outside(address: UOp) -> bool:
    """Whether a masked vector may lie far outside of its buffer."""
    pointer, position = address.src[:2]
    assert isinstance(pointer.dtype, PtrDType)
    size = pointer.dtype.size
    near = size // NEAR_SHARE
    return bool(position.vmin < -near or position.vmax >= size + near)


def _inside(w: Writer, address: UOp, valid: str) -> str:
    """The address of a masked vector, or that of the first element if no lane is valid."""
    some = _reduced(w, address, valid, "or")
    return w.assign(f"select i1 {some}, ptr {w.names[address]}, ptr {w.names[address.src[0]]}")


def _tests_each_lane(w: Writer, address: UOp, stored: DType) -> bool:
    """Whether LLVM would test the lanes of a masked vector one by one."""
    is_known = len(address.src) == 2 or address.src[2].op is Ops.CONST
    return not is_known and stored.scalar().itemsize < w.target.min_masked_itemsize


def _reduced(w: Writer, address: UOp, valid: str, op: str) -> str:
    """Whether all lanes of a mask are valid, for "and", or some, for "or"."""
    condition = address.src[2]
    if condition.dtype.count == 1:
        return w.names[condition]
    name = f"llvm.vector.reduce.{op}.{mangled(condition.dtype)}"
    return w.call(dtypes.bool, name, (value_type(condition.dtype), valid))


def _masked_load(w: Writer, u: UOp, stored: DType, form: str) -> str:
    address, count = u.src[0], u.dtype.count
    mask = value_type(dtypes.bool.vec(count))
    kind = value_type(stored)
    pointers = f"<{count} x ptr>" if form == "gather" else "ptr"
    valid = _lanes_valid(w, address, count)
    where = w.names[address]
    if form == "load" and _is_often_outside(address):
        where = _inside(w, address, valid)
    otherwise = _alternative(w, u, stored)
    name = f"llvm.masked.{form}.{mangled(stored)}.{f'v{count}p0' if form == 'gather' else 'p0'}"
    w.declare(kind, name, (pointers, mask, kind))
    target = f"{pointers} align {_alignment(u)} {where}"
    masked = f"call {kind} @{name}({target}, {mask} {valid}, {kind} {otherwise})"
    if form == "gather" or not _tests_each_lane(w, address, stored):
        return w.assign(masked)
    whole, partly, some, after = (w.new_label(x) for x in ("whole", "partly", "some", "loaded"))
    w.emit(f"br i1 {_reduced(w, address, valid, 'and')}, label %{whole}, label %{partly}")
    w.start_block(whole)
    plain = w.assign(f"load {kind}, ptr {where}, align {_alignment(u)}")
    w.emit(f"br label %{after}")
    w.start_block(partly)
    w.emit(f"br i1 {_reduced(w, address, valid, 'or')}, label %{some}, label %{after}")
    w.start_block(some)
    lanes = w.assign(masked)
    w.emit(f"br label %{after}")
    w.start_block(after)
    sources = ((plain, whole), (otherwise, partly), (lanes, some))
    return w.assign(f"phi {kind} " + ", ".join(f"[ {x}, %{block} ]" for x, block in sources))


def _guarded_load(w: Writer, u: UOp, stored: DType) -> str:
    """A masked scalar load without a branch: a select of the address or of a stack slot."""
    address = u.src[0]
    kind = value_type(stored)
    alternative = u.src[1] if len(u.src) > 1 else None
    if alternative is None or alternative.op is Ops.CONST:
        value = 0 if alternative is None else alternative.arg
        slot = w.constant_address(kind, literal(stored, value))
    else:
        w.count += 1
        slot = f"%slot{w.count}"
        w.entry.append(f"  {slot} = alloca {kind}")
        w.emit(f"store {kind} {_alternative(w, u, stored)}, ptr {slot}")
    valid = w.names[address.src[2]]
    chosen = w.assign(f"select i1 {valid}, ptr {w.names[address]}, ptr {slot}")
    return w.assign(f"load {kind}, ptr {chosen}, align {_alignment(u)}")


def write_store(w: Writer, u: UOp) -> None:
    """Write a store."""
    address, value = u.src[:2]
    stored = memory_dtype(value.dtype)
    operand = w.names[value]
    if dtypes.is_bool(value.dtype):
        operand = w.assign(f"zext {w.operand(value)} to {value_type(stored)}")
    count = value.dtype.count
    if address.src[1].dtype.count > 1:
        is_constant = len(address.src) == 2 and address.src[1].op is Ops.CONST
        if is_constant and not w.target.has_scatter:
            _store_lanes(w, u, stored, operand)
        else:
            _masked_store(w, u, stored, operand, "scatter")
    elif len(address.src) == 2:
        where = f"ptr {w.names[address]}, align {_alignment(u)}"
        w.emit(f"store {value_type(stored)} {operand}, {where}")
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
    masked = f"call void @{name}({kind} {operand}, {target}, {mask} {valid})"
    if form == "scatter" or not _tests_each_lane(w, address, stored):
        w.emit(masked)
        return
    whole, partly, after = (w.new_label(x) for x in ("whole", "partly", "stored"))
    w.emit(f"br i1 {_reduced(w, address, valid, 'and')}, label %{whole}, label %{partly}")
    w.start_block(whole)
    w.emit(f"store {kind} {operand}, ptr {w.names[address]}, align {_alignment(u)}")
    w.emit(f"br label %{after}")
    w.start_block(partly)
    w.emit(masked)
    w.emit(f"br label %{after}")
    w.start_block(after)


def _store_lanes(w: Writer, u: UOp, stored: DType, operand: str) -> None:
    """Store each lane at its constant offset. Of a scatter, LLVM would keep the offsets in vector
    registers, which the loops of a register tile need.
    """
    pointer, position = u.src[0].src
    element = memory_type(stored.scalar())
    for lane, offset in enumerate(position.arg):
        where = w.assign(f"getelementptr {element}, ptr {w.names[pointer]}, i64 {offset}")
        value = w.assign(f"extractelement {value_type(stored)} {operand}, i32 {lane}")
        w.emit(f"store {element} {value}, ptr {where}, align {_alignment(u)}")


def _guarded_store(w: Writer, u: UOp, stored: DType, operand: str) -> None:
    address = u.src[0]
    write, skip = w.new_label("write"), w.new_label("skip")
    w.emit(f"br i1 {w.names[address.src[2]]}, label %{write}, label %{skip}")
    w.start_block(write)
    where = f"ptr {w.names[address]}, align {_alignment(u)}"
    w.emit(f"store {value_type(stored)} {operand}, {where}")
    w.emit(f"br label %{skip}")
    w.start_block(skip)
