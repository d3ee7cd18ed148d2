"""The LLVM IR renderer for the host CPU.

In: a linear program. Out: the text of a module with the kernel `void NAME(ptr buffers, ptr values,
i64 begin, i64 end)`. The kernel loads the parameters from their arrays and calls the body, whose
pointers are `noalias`: two slots of one kernel never alias. Vectorization, unrolling of TILE loops
and hoisting are done before; LLVM promotes register arrays to registers, selects instructions and
schedules them.
"""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.base import Renderer, parameters
from tinygrad.renderer.llvm.arithmetic import (
    write_alu,
    write_bitcast,
    write_cast,
    write_lanes,
    write_reduce,
    write_vectorize,
)
from tinygrad.renderer.llvm.matrix import tile_loads, write_product, write_tile_load
from tinygrad.renderer.llvm.memory import write_array, write_index, write_load, write_store
from tinygrad.renderer.llvm.prefetch import find_streams, write_prefetch
from tinygrad.renderer.llvm.types import SCALARS, literal, value_type
from tinygrad.renderer.llvm.writer import Writer, grid_bounds
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp


class LLVMRenderer(Renderer):
    """LLVM IR for a CPU."""

    # without bfloat16: instructions that convert to it flush subnormals, and few CPUs have them
    dtypes = frozenset(SCALARS) - {dtypes.void, dtypes.index}
    has_shuffle = True

    def render(self, name: str, linear: list[UOp]) -> str:
        """The text of the module."""
        writer = Writer(linear, self.target)
        pointers, variables = parameters(linear)
        for u in pointers:
            writer.names[u] = f"%data{u.arg}"
        for i, u in enumerate(variables):
            writer.names[u] = f"%value{i}"
        tiles, streams = tile_loads(linear), find_streams(linear)
        for u in linear:
            if u in tiles:
                write_tile_load(writer, u)
            else:
                _write(writer, u)
            for stream in streams.get(u, ()):
                # a place in the buffer at the start of a loop may be no node of the program
                for x in stream.start.toposort():
                    if x not in writer.names:
                        _write(writer, x)
                write_prefetch(writer, stream, u)
        return _module(name, writer, pointers, variables, self.target.vector_bytes * 8)


def _write(w: Writer, u: UOp) -> None:
    write = _WRITERS.get(u.op)
    if write is not None:
        write(w, u)
    elif u.op in GroupOp.ALU:
        write_alu(w, u)
    else:
        raise NotImplementedError(f"LLVM IR cannot express {u.op.name}")


def _module(
    name: str, writer: Writer, pointers: list[UOp], variables: list[UOp], vector_bits: int
) -> str:
    """The body, the kernel that calls it, and all constants and declarations."""
    declared = [f"ptr noalias %data{u.arg}" for u in pointers]
    passed = [f"ptr %data{u.arg}" for u in pointers]
    wrapper: list[str] = []
    for i, u in enumerate(pointers):
        wrapper += _load_parameter("ptr", f"%data{u.arg}", "%buffers", i)
    for i, u in enumerate(variables):
        wrapper += _load_integer_parameter(u.dtype, f"%value{i}", i)
    rest = [f"{value_type(u.dtype)} %value{i}" for i, u in enumerate(variables)]
    rest += ["i64 %begin", "i64 %end"]
    parts = [
        *(f"{slot} = private constant {text}" for text, slot in writer.constants.items()),
        f"define internal void @{name}.body({', '.join(declared + rest)}) #0 {{",
        "entry:",
        *writer.entry,
        *writer.lines,
        "  ret void",
        "}",
        f"define void @{name}(ptr %buffers, ptr %values, i64 %begin, i64 %end) #1 {{",
        *wrapper,
        f"  call void @{name}.body({', '.join(passed + rest)})",
        "  ret void",
        "}",
        *writer.declarations,
        f'attributes #0 = {{ nounwind noinline "prefer-vector-width"="{vector_bits}" }}',
        "attributes #1 = { nounwind }",
        '!0 = !{!"llvm.loop.unroll.full"}',
        '!1 = !{!"llvm.loop.unroll.disable"}',
        '!2 = !{!"llvm.loop.vectorize.enable", i1 false}',
        *writer.loop_tags,
    ]
    return "\n".join(parts) + "\n"


def _load_parameter(kind: str, name: str, array: str, position: int) -> list[str]:
    return [
        f"  {name}.at = getelementptr {kind}, ptr {array}, i64 {position}",
        f"  {name} = load {kind}, ptr {name}.at",
    ]


def _load_integer_parameter(dtype: DType, name: str, position: int) -> list[str]:
    kind = value_type(dtype)
    if kind == "i64":
        return _load_parameter(kind, name, "%values", position)
    wide = _load_parameter("i64", f"{name}.wide", "%values", position)
    return [*wide, f"  {name} = trunc i64 {name}.wide to {kind}"]


def _range(w: Writer, u: UOp) -> None:
    if u.arg.kind is AxisType.GLOBAL:
        w.open_loop(u, *grid_bounds(w, u), guarded=True)
    else:
        w.open_loop(u, "0", w.names[u.src[0]], guarded=u.src[0].vmin < 1)


def _end(w: Writer, u: UOp) -> None:
    w.close_loop(u.src[0])


def _if(w: Writer, u: UOp) -> None:
    inside, after = w.new_label("then"), w.new_label("endif")
    w.emit(f"br i1 {w.names[u.src[0]]}, label %{inside}, label %{after}")
    w.start_block(inside)
    w.branches[u] = after


def _endif(w: Writer, u: UOp) -> None:
    after = w.branches.pop(u.src[0])
    w.emit(f"br label %{after}")
    w.start_block(after)


def _constant(w: Writer, u: UOp) -> None:
    w.names[u] = literal(u.dtype, u.arg)


def _alias(w: Writer, u: UOp) -> None:
    w.names[u] = w.names[u.src[0]]


def _parameter(w: Writer, u: UOp) -> None:
    assert u in w.names


_WRITERS: dict[Ops, Callable[[Writer, UOp], None]] = {
    Ops.DEFINE_GLOBAL: _parameter,
    Ops.DEFINE_VAR: _parameter,
    Ops.DEFINE_REG: write_array,
    Ops.DEFINE_LOCAL: write_array,
    Ops.CONST: _constant,
    Ops.AFTER: _alias,
    Ops.RANGE: _range,
    Ops.END: _end,
    Ops.IF: _if,
    Ops.ENDIF: _endif,
    Ops.INDEX: write_index,
    Ops.LOAD: write_load,
    Ops.STORE: write_store,
    Ops.CAST: write_cast,
    Ops.BITCAST: write_bitcast,
    Ops.VECTORIZE: write_vectorize,
    Ops.GEP: write_lanes,
    Ops.REDUCE: write_reduce,
    Ops.MMA: write_product,
}
