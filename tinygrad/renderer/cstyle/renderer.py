"""The renderer of everything that C and its dialects share.

In: a linear program. Out: source text. A dialect, a subclass, declares the kernel, opens the block
of a work item and names the qualifiers of its memory spaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tinygrad.dtype import PtrDType, dtypes
from tinygrad.renderer.base import LOOP_NAMES, Renderer, memory_dtype, parameters, pointer_of
from tinygrad.renderer.cstyle.types import SCALARS
from tinygrad.renderer.cstyle.values import (
    write_alu,
    write_array,
    write_bitcast,
    write_cast,
    write_constant,
    write_index,
    write_lane,
    write_load,
    write_reduce,
    write_store,
    write_vectorize,
)
from tinygrad.renderer.cstyle.vectors import VectorLibrary
from tinygrad.renderer.cstyle.writer import CWriter
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

# ops that C writes as operators
OPERATORS = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.NEG, Ops.IDIV, Ops.MOD),
        *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
        *(Ops.WHERE, Ops.MULACC),
    }
)


class CStyleRenderer(Renderer):
    """The base of all dialects of C."""

    # an instruction of the target; any other function would need a library
    functions: ClassVar[dict[Ops, str]] = {Ops.SQRT: "__builtin_sqrt"}
    operations = OPERATORS.union(functions)
    dtypes = frozenset(SCALARS) - {dtypes.void, dtypes.index}
    has_reserved_names = True
    scratch_qualifier = ""
    register_qualifier = ""

    def render(self, name: str, linear: list[UOp]) -> str:
        """The source of a kernel."""
        w = CWriter(linear, VectorLibrary(), self.functions)
        pointers, variables = parameters(linear)
        for u in pointers:
            w.names[u] = f"data{u.arg}"
        for u in variables:
            w.names[u] = str(u.arg[0])
        for u in linear:
            self.write(w, u)
        return self.render_kernel(name, w, Parameters(linear, pointers, variables))

    def write(self, w: CWriter, u: UOp) -> None:
        """Write one node."""
        if u.op in _WRITERS:
            _WRITERS[u.op](w, u)
        elif u.op in GroupOp.ALU:
            write_alu(w, u)
        elif u.op is Ops.DEFINE_LOCAL:
            write_array(w, u, self.scratch_qualifier)
        elif u.op is Ops.DEFINE_REG:
            write_array(w, u, self.register_qualifier)
        elif u.op is Ops.RANGE:
            self.open_loop(w, u)
        elif u.op not in {Ops.DEFINE_GLOBAL, Ops.DEFINE_VAR}:
            raise NotImplementedError(f"{self.name} cannot express {u.op.name}")

    def open_loop(self, w: CWriter, u: UOp) -> None:
        """Open a loop."""
        kind = u.arg.kind
        name = f"{LOOP_NAMES[kind]}{u.arg.index}"
        w.names[u] = name
        if kind is AxisType.GLOBAL:
            self.open_grid(w, u, name)
            return
        size = w.names[u.src[0]]
        if kind is AxisType.TILE:
            w.emit(f"#pragma GCC unroll {u.src[0].vmax}")
        w.open_block(f"for (long long {name} = 0; {name} < {size}; {name}++)")

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        """Open the block of one work item; `name` is its number within the loop."""
        raise NotImplementedError

    def render_kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        """The whole source, given a writer that holds the body."""
        raise NotImplementedError


class Parameters:
    """A kernel's parameters as (C type, name); pointers that are only read are const."""

    def __init__(self, linear: list[UOp], pointers: list[UOp], variables: list[UOp]) -> None:
        written = {pointer_of(u.src[0]) for u in linear if u.op is Ops.STORE}
        self.pointers: list[tuple[str, str]] = []
        for u in pointers:
            assert isinstance(u.dtype, PtrDType)
            kind = SCALARS[memory_dtype(u.dtype.base)]
            self.pointers.append((kind if u in written else f"const {kind}", f"data{u.arg}"))
        self.values = [(SCALARS[u.dtype], str(u.arg[0])) for u in variables]


def _alias(w: CWriter, u: UOp) -> None:
    w.names[u] = w.names[u.src[0]]


def _end(w: CWriter, u: UOp) -> None:
    w.close_block()


def _if(w: CWriter, u: UOp) -> None:
    w.open_block(f"if ({w.names[u.src[0]]})")


_WRITERS: dict[Ops, Callable[[CWriter, UOp], None]] = {
    Ops.CONST: write_constant,
    Ops.AFTER: _alias,
    Ops.END: _end,
    Ops.IF: _if,
    Ops.ENDIF: _end,
    Ops.INDEX: write_index,
    Ops.LOAD: write_load,
    Ops.STORE: write_store,
    Ops.CAST: write_cast,
    Ops.BITCAST: write_bitcast,
    Ops.VECTORIZE: write_vectorize,
    Ops.GEP: write_lane,
    Ops.REDUCE: write_reduce,
}
