"""LLVM instructions of matrix products on CPUs: AMX on tile registers, AVX-512 and NEON on vectors.

Input: a `Writer`, and an MMA whose sources are written. Output: its instructions. Invariant: each
fragment is a vector to all other nodes; LLVM keeps it in a tile register between instructions,
since every use and every value of its phi is a conversion from or to a tile.

LLVM configures the tile registers when it enters the kernel, all with 16 rows of 64 bytes.
"""

from __future__ import annotations

from tinygrad.dtype import DType
from tinygrad.renderer.base import pointer_of
from tinygrad.renderer.llvm.types import mangled, value_type
from tinygrad.renderer.llvm.writer import Writer
from tinygrad.renderer.matrix_instruction import MatrixInstruction
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

TILE = "x86_amx"
SHAPE = ("i16", "16"), ("i16", "64")
ROW_BYTES = ("i64", "64")
# the function of an instruction on vectors, and the type of its operands
_VECTORS = {
    "dpbf16ps": ("llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>"),
    "dpbusd": ("llvm.x86.avx512.vpdpbusd.512", "<64 x i8>"),
    "bfdot": ("llvm.aarch64.neon.bfdot.v4f32.v8bf16", "<8 x bfloat>"),
    "sdot": ("llvm.aarch64.neon.sdot.v4i32.v16i8", "<16 x i8>"),
    "udot": ("llvm.aarch64.neon.udot.v4i32.v16i8", "<16 x i8>"),
}


def tile_loads(linear: list[UOp]) -> set[UOp]:
    """The loads of operands and first sums of instructions on tile registers."""
    products = [u for u in linear if u.op is Ops.MMA and u.arg.is_tile]
    operands = {x for u in products for x in u.src[:2]}
    sums = {u.dtype for u in products}
    is_sum = [u for u in linear if u.op is Ops.LOAD and u.dtype in sums]
    return operands | {u for u in is_sum if pointer_of(u.src[0]).op is Ops.DEFINE_LOCAL}


def write_tile_load(w: Writer, u: UOp) -> None:
    """Write the load of a tile, whose 1,024 bytes are contiguous."""
    address = ("ptr", w.names[u.src[0]])
    w.tiles[u] = _call(w, TILE, "llvm.x86.tileloadd64.internal", *SHAPE, address, ROW_BYTES)
    w.names[u] = _as_vector(w, w.tiles[u], u.dtype)


def write_product(w: Writer, u: UOp) -> None:
    """Write a matrix instruction."""
    x: MatrixInstruction = u.arg
    a, b, c = u.src
    if x.is_tile:
        tiles = [(TILE, _as_tile(w, y)) for y in (c, a, b)]
        size = (*SHAPE, SHAPE[1])
        w.tiles[u] = _call(w, TILE, f"llvm.x86.{x.name}.internal", *size, *tiles)
        w.names[u] = _as_vector(w, w.tiles[u], u.dtype)
        return
    function, kind = _VECTORS[x.name]
    words = f"<{x.n} x i32>"
    word = _bitcast(w, a, "i32")
    first = w.assign(f"insertelement {words} poison, i32 {word}, i32 0")
    lanes = f"<{x.n} x i32> zeroinitializer"
    row = w.assign(f"shufflevector {words} {first}, {words} poison, {lanes}")
    operands = [
        (kind, w.assign(f"bitcast {words} {y} to {kind}")) for y in (row, _bitcast(w, b, words))
    ]
    result = value_type(u.dtype)
    w.names[u] = _call(w, result, function, (result, w.names[c]), *operands)


def _bitcast(w: Writer, u: UOp, kind: str) -> str:
    if value_type(u.dtype) == kind:
        return w.names[u]
    return w.assign(f"bitcast {w.operand(u)} to {kind}")


def _as_tile(w: Writer, u: UOp) -> str:
    found = w.tiles.get(u)
    if found is None:
        name = f"llvm.x86.cast.vector.to.tile.{mangled(u.dtype)}"
        found = _call(w, TILE, name, (value_type(u.dtype), w.names[u]))
    return found


def _as_vector(w: Writer, tile: str, dtype: DType) -> str:
    name = f"llvm.x86.cast.tile.to.vector.{mangled(dtype)}"
    return _call(w, value_type(dtype), name, (TILE, tile))


def _call(w: Writer, result: str, name: str, *arguments: tuple[str, str]) -> str:
    w.declare(result, name, tuple(kind for kind, _ in arguments))
    operands = ", ".join(f"{kind} {operand}" for kind, operand in arguments)
    return w.assign(f"call {result} @{name}({operands})")
