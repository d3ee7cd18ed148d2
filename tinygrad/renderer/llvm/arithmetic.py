"""LLVM instructions of arithmetic and conversions, on scalars and vectors.

Input: a `Writer`, and a node whose sources are written. Output: its instructions. Invariant: a
conversion out of range saturates, and no division traps.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes, truncate
from tinygrad.renderer.base import cast_is_exact, pointer_of
from tinygrad.renderer.llvm.types import (
    cast_steps,
    lane_reduction,
    literal,
    mangled,
    value_type,
)
from tinygrad.renderer.llvm.writer import Writer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# infinities, NaNs and the sign of zero keep their meaning; a product and a sum may become an FMA
FAST = "contract "
# a reduction may be reassociated
REORDER = "reassoc nsz contract "

_INTEGER_OPS = {
    Ops.ADD: "add",
    Ops.MUL: "mul",
    Ops.SUB: "sub",
    Ops.AND: "and",
    Ops.OR: "or",
    Ops.XOR: "xor",
    Ops.SHL: "shl",
}
_BOOL_OPS = {
    Ops.ADD: "or",
    Ops.MAX: "or",
    Ops.OR: "or",
    Ops.MUL: "and",
    Ops.AND: "and",
    Ops.XOR: "xor",
}
_FLOAT_OPS = {Ops.ADD: "fadd", Ops.MUL: "fmul", Ops.SUB: "fsub", Ops.FDIV: "fdiv"}
_COMPARISONS = {
    Ops.CMPLT: ("fcmp olt", "icmp slt", "icmp ult"),
    Ops.CMPNE: ("fcmp une", "icmp ne", "icmp ne"),
    Ops.CMPEQ: ("fcmp oeq", "icmp eq", "icmp eq"),
}
_FLOAT_INTRINSICS = {
    Ops.SQRT: "sqrt",
    Ops.TRUNC: "trunc",
    Ops.EXP2: "exp2",
    Ops.EXP: "exp",
    Ops.LOG2: "log2",
    Ops.LOG: "log",
    Ops.SIN: "sin",
    Ops.COS: "cos",
    Ops.POW: "pow",
    # propagates NaN, as numpy.maximum does
    Ops.MAX: "maximum",
}


def write_alu(w: Writer, u: UOp) -> None:
    """Write an ALU op."""
    w.names[u] = _result(w, u)


def _result(w: Writer, u: UOp) -> str:
    op, first = u.op, u.src[0].dtype
    if op is Ops.WHERE:
        condition, yes, no = (w.operand(x) for x in u.src)
        return w.assign(f"select {condition}, {yes}, {no}")
    if op in _COMPARISONS:
        float_form, signed_form, unsigned_form = _COMPARISONS[op]
        if dtypes.is_float(first):
            form = float_form
        else:
            unsigned = dtypes.is_unsigned(first) or dtypes.is_bool(first)
            form = unsigned_form if unsigned else signed_form
        return w.assign(f"{form} {w.operand(u.src[0])}, {w.names[u.src[1]]}")
    if dtypes.is_float(u.dtype):
        return _float(w, u)
    if dtypes.is_bool(u.dtype) and op in _BOOL_OPS:
        return w.assign(f"{_BOOL_OPS[op]} {w.operand(u.src[0])}, {w.names[u.src[1]]}")
    return _integer(w, u)


def _flags(u: UOp) -> str:
    is_update = any(x.op is Ops.LOAD and pointer_of(x.src[0]).op is Ops.DEFINE_REG for x in u.src)
    return REORDER if is_update else FAST


def _float(w: Writer, u: UOp) -> str:
    kind = value_type(u.dtype)
    if u.op in _FLOAT_OPS:
        flags = _flags(u)
        return w.assign(f"{_FLOAT_OPS[u.op]} {flags}{w.operand(u.src[0])}, {w.names[u.src[1]]}")
    if u.op is Ops.MULACC:
        product = w.assign(f"fmul {FAST}{w.operand(u.src[0])}, {w.names[u.src[1]]}")
        return w.assign(f"fadd {_flags(u)}{kind} {w.names[u.src[2]]}, {product}")
    if u.op is Ops.RECIPROCAL:
        return w.assign(f"fdiv {kind} {literal(u.dtype, 1.0)}, {w.names[u.src[0]]}")
    if u.op is Ops.NEG:
        return w.assign(f"fneg {w.operand(u.src[0])}")
    if u.op is Ops.MOD:
        return w.assign(f"frem {w.operand(u.src[0])}, {w.names[u.src[1]]}")
    if u.op not in _FLOAT_INTRINSICS:
        raise NotImplementedError(f"LLVM IR cannot express {u.op.name} of {u.dtype!r}")
    name = f"llvm.{_FLOAT_INTRINSICS[u.op]}.{mangled(u.dtype)}"
    arguments = [(kind, w.names[x]) for x in u.src]
    # which of two zeros of different sign is the maximum is left open
    return w.call(u.dtype, name, *arguments, flags="nsz " if u.op is Ops.MAX else "")


def _integer(w: Writer, u: UOp) -> str:
    kind = value_type(u.dtype)
    if _takes_bits_of_bytes(u):
        return _bits_of_bytes(w, u)
    if u.op in _INTEGER_OPS:
        return w.assign(f"{_INTEGER_OPS[u.op]} {w.operand(u.src[0])}, {w.names[u.src[1]]}")
    unsigned = dtypes.is_unsigned(u.dtype)
    if u.op is Ops.SHR:
        form = "lshr" if unsigned else "ashr"
        return w.assign(f"{form} {w.operand(u.src[0])}, {w.names[u.src[1]]}")
    if u.op in {Ops.IDIV, Ops.MOD}:
        return _division(w, u)
    if u.op is Ops.MAX:
        name = f"llvm.{'u' if unsigned else 's'}max.{mangled(u.dtype)}"
        return w.call(u.dtype, name, *[(kind, w.names[x]) for x in u.src])
    if u.op is Ops.NEG:
        return w.assign(f"sub {kind} {literal(u.dtype, 0)}, {w.names[u.src[0]]}")
    if u.op is Ops.MULACC:
        product = w.assign(f"mul {w.operand(u.src[0])}, {w.names[u.src[1]]}")
        return w.assign(f"add {kind} {product}, {w.names[u.src[2]]}")
    raise NotImplementedError(f"LLVM IR cannot express {u.op.name} of {u.dtype!r}")


def _takes_bits_of_bytes(u: UOp) -> bool:
    """Whether this is `x >> s & mask` for a vector of bytes, one `s` that the program computes, and
    bits that lie in their byte.
    """
    if u.op is not Ops.AND or u.dtype.scalar() is not dtypes.uint8 or u.dtype.count % 2:
        return False
    shifted, mask = u.src
    if shifted.op is not Ops.SHR or mask.op is not Ops.CONST:
        return False
    by = shifted.src[1]
    return by.op is Ops.VECTORIZE and len(by.src) == 1 and 0 < mask.vmax << by.src[0].vmax < 256


def _bits_of_bytes(w: Writer, u: UOp) -> str:
    """Shift pairs of bytes as words: x86 has no shift of bytes, and LLVM would widen each."""
    shifted, mask = u.src
    x, by = shifted.src
    kind, words = (value_type(dtype) for dtype in (u.dtype, dtypes.uint16.vec(u.dtype.count // 2)))
    pairs = w.assign(f"bitcast {w.operand(x)} to {words}")
    scalar = w.assign(f"zext i8 {w.names[by.src[0]]} to i16")
    first = w.assign(f"insertelement {words} poison, i16 {scalar}, i32 0")
    lanes = f"<{u.dtype.count // 2} x i32> zeroinitializer"
    steps = w.assign(f"shufflevector {words} {first}, {words} poison, {lanes}")
    moved = w.assign(f"lshr {words} {pairs}, {steps}")
    back = w.assign(f"bitcast {words} {moved} to {kind}")
    return w.assign(f"and {kind} {back}, {w.names[mask]}")


def _division(w: Writer, u: UOp) -> str:
    """A quotient or remainder that does not trap on a divisor of 0, nor on overflow by -1."""
    dividend, divisor = u.src
    quotient = u.op is Ops.IDIV
    kind = value_type(u.dtype)
    low, high = divisor.vmin, divisor.vmax
    if dtypes.is_unsigned(u.dtype) or (dividend.vmin >= 0 and low >= 0):
        form = "udiv" if quotient else "urem"
    else:
        form = "sdiv" if quotient else "srem"
    by = w.names[divisor]
    if low > 0 or high < -1:
        return w.assign(f"{form} {kind} {w.names[dividend]}, {by}")
    zero = literal(u.dtype, 0)
    one = literal(u.dtype, 1)
    condition = value_type(dtypes.bool.vec(u.dtype.count))
    is_zero = w.assign(f"icmp eq {kind} {by}, {zero}")
    is_unsafe = is_zero
    if form[0] == "s":
        is_minus = w.assign(f"icmp eq {kind} {by}, {literal(u.dtype, -1)}")
        is_unsafe = w.assign(f"or {condition} {is_zero}, {is_minus}")
    safe = w.assign(f"select {condition} {is_unsafe}, {kind} {one}, {kind} {by}")
    result = w.assign(f"{form} {kind} {w.names[dividend]}, {safe}")
    if form[0] == "s" and quotient:
        negated = w.assign(f"sub {kind} {zero}, {w.names[dividend]}")
        result = w.assign(f"select {condition} {is_minus}, {kind} {negated}, {kind} {result}")
    # as in `cdiv` and `cmod`: x // 0 is 0, x % 0 is x
    of_zero = zero if quotient else w.names[dividend]
    return w.assign(f"select {condition} {is_zero}, {kind} {of_zero}, {kind} {result}")


def write_cast(w: Writer, u: UOp) -> None:
    """Write a conversion between dtypes."""
    source = u.src[0]
    target = u.dtype
    if dtypes.is_bool(target) and not dtypes.is_bool(source.dtype):
        form = "fcmp une" if dtypes.is_float(source.dtype) else "icmp ne"
        zero = literal(source.dtype, 0.0 if dtypes.is_float(source.dtype) else 0)
        w.names[u] = w.assign(f"{form} {w.operand(source)}, {zero}")
        return
    saturates = dtypes.is_float(source.dtype) and dtypes.is_int(target)
    if saturates and not cast_is_exact(source, target):
        w.names[u] = _saturated(w, source, target)
        return
    w.names[u] = _converted(w, w.names[source], source.dtype, target)


def _converted(w: Writer, operand: str, source: DType, target: DType) -> str:
    kind = value_type(source)
    for instruction, scalar in cast_steps(source, target):
        result = value_type(scalar.vec(target.count))
        operand = w.assign(f"{instruction} {kind} {operand} to {result}")
        kind = result
    return operand


def _saturated(w: Writer, source: UOp, target: DType) -> str:
    """A float as an integer, with values out of range saturated, and 0 for NaN.

    Not `llvm.fptosi.sat`, which has no vector form on x86.
    """
    x, dtype = w.names[source], source.dtype
    if dtype.scalar() is dtypes.float16:
        dtype = dtypes.float32.vec(dtype.count)
        x = _converted(w, x, source.dtype, dtype)
    low, high = int(dtypes.min(target)), int(dtypes.max(target))
    if truncate[dtype.scalar()](high) == high:
        # both limits are floats, so the float is clamped
        if low:
            x = _select(w, dtype, f"ord {x}, {x}", x, literal(dtype, 0.0))
        x = _select(w, dtype, f"ogt {x}, {literal(dtype, low)}", x, literal(dtype, low))
        x = _select(w, dtype, f"olt {x}, {literal(dtype, high)}", x, literal(dtype, high))
        return _converted(w, x, dtype, target)
    # out of range, the conversion is poison, which no select chooses
    y = _converted(w, x, dtype, target)
    y = _select(w, dtype, f"olt {x}, {literal(dtype, high + 1)}", y, literal(target, high), target)
    y = _select(w, dtype, f"ogt {x}, {literal(dtype, low)}", y, literal(target, low), target)
    return _select(w, dtype, f"ord {x}, {x}", y, literal(target, 0), target) if low else y


def _select(
    w: Writer, dtype: DType, test: str, yes: str, no: str, result: DType | None = None
) -> str:
    """`yes` where a comparison of floats holds, else `no`."""
    kind = value_type(result or dtype)
    condition, operands = test.split(" ", 1)
    chosen = w.assign(f"fcmp {condition} {value_type(dtype)} {operands}")
    mask = value_type(dtypes.bool.vec(dtype.count))
    return w.assign(f"select {mask} {chosen}, {kind} {yes}, {kind} {no}")


def write_bitcast(w: Writer, u: UOp) -> None:
    """Write a bitcast."""
    source = u.src[0]
    before, after = value_type(source.dtype), value_type(u.dtype)
    if before == after:
        w.names[u] = w.names[source]
        return
    if dtypes.is_bool(source.dtype) or dtypes.is_bool(u.dtype):
        write_cast(w, u)
        return
    w.names[u] = w.assign(f"bitcast {w.operand(source)} to {after}")


def write_vectorize(w: Writer, u: UOp) -> None:
    """Write a splat of one scalar, or a vector of several."""
    kind = value_type(u.dtype)
    if len(u.src) == 1:
        first = w.assign(f"insertelement {kind} poison, {w.operand(u.src[0])}, i32 0")
        lanes = f"<{u.dtype.count} x i32> zeroinitializer"
        w.names[u] = w.assign(f"shufflevector {kind} {first}, {kind} poison, {lanes}")
        return
    operand = "poison"
    for lane, x in enumerate(u.src):
        operand = w.assign(f"insertelement {kind} {operand}, {w.operand(x)}, i32 {lane}")
    w.names[u] = operand


def write_lanes(w: Writer, u: UOp) -> None:
    """Write the extraction of a lane, or a shuffle of several."""
    source = u.src[0]
    if isinstance(u.arg, tuple):
        lanes = literal(dtypes.int32.vec(len(u.arg)), u.arg)
        kind = f"<{len(u.arg)} x i32>"
        other = f"{value_type(source.dtype)} poison"
        w.names[u] = w.assign(f"shufflevector {w.operand(source)}, {other}, {kind} {lanes}")
        return
    w.names[u] = w.assign(f"extractelement {w.operand(u.src[0])}, i32 {u.arg}")


def write_reduce(w: Writer, u: UOp) -> None:
    """Write a reduction of all lanes."""
    source = u.src[0]
    name, start = lane_reduction(u.arg, source.dtype)
    result: DType = u.dtype
    arguments = [(value_type(source.dtype), w.names[source])]
    if start:
        arguments.insert(0, (value_type(result), start))
    full = f"llvm.vector.reduce.{name}.{mangled(source.dtype)}"
    flags = REORDER if dtypes.is_float(result) else ""
    w.names[u] = w.call(result, full, *arguments, flags=flags)
