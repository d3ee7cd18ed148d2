"""The renderer of everything that C and its dialects share.

In: a linear program. Out: source text. A subclass declares the kernel, opens the block of a work
item and writes vectors; its `Dialect` has the names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tinygrad.dtype import PtrDType, dtypes
from tinygrad.renderer.base import (
    LOOP_NAMES,
    Renderer,
    memory_dtype,
    parameters,
    pointer_of,
    tensor_maps,
)
from tinygrad.renderer.cstyle.dialect import Dialect
from tinygrad.renderer.cstyle.values import (
    declare_array,
    write_alu,
    write_bitcast,
    write_cast,
    write_constant,
    write_index,
    write_load,
    write_store,
)
from tinygrad.renderer.cstyle.writer import CWriter
from tinygrad.renderer.target import Target
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

OPERATORS = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.NEG, Ops.IDIV, Ops.MOD),
        *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
        *(Ops.WHERE, Ops.MULACC),
    }
)
"""Ops that C writes as operators, or has a function for in every dialect."""

_ALL_DTYPES = frozenset(dtypes.all)


class CStyleRenderer(Renderer):
    """The base of all dialects of C."""

    dialect: ClassVar[Dialect]
    has_reserved_names = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.dtypes = frozenset(self.dialect.types) & target.dtypes
        self.operations = OPERATORS.union(self.dialect.functions)

    def render(self, name: str, linear: list[UOp]) -> str:
        """The source of a kernel. Raises NotImplementedError for a dtype that the target lacks."""
        self._check_dtypes(linear)
        w = self.make_writer(linear)
        pointers, variables = parameters(linear)
        for u in pointers:
            w.names[u] = f"data{u.arg}"
        for u in variables:
            w.names[u] = self.variable_name(u)
        for u in linear:
            self.write(w, u)
        declared = Parameters(
            self.pointer_parameters(linear, pointers),
            [(self.dialect.type(u.dtype), self.variable_name(u)) for u in variables],
            len(tensor_maps(linear)),
        )
        return self.render_kernel(name, w, declared)

    def _check_dtypes(self, linear: list[UOp]) -> None:
        used = {(u.dtype.base if isinstance(u.dtype, PtrDType) else u.dtype) for u in linear}
        missing = {x.scalar() for x in used} & _ALL_DTYPES - self.dtypes
        for dtype in missing:
            raise NotImplementedError(
                f"{self.dialect.name} on {self.target.architecture or 'this machine'} has no "
                f"{dtype!r}: cast it before, on another device"
            )

    def variable_name(self, variable: UOp) -> str:
        """The name of an integer parameter."""
        return self.function_name(str(variable.arg[0]))

    def pointer_parameters(self, linear: list[UOp], pointers: list[UOp]) -> list[tuple[str, str]]:
        """The C type and the name of each buffer; those that are only read are const."""
        written = {pointer_of(u.src[0]) for u in linear if u.op is Ops.STORE}
        found = []
        for u in pointers:
            assert isinstance(u.dtype, PtrDType)
            kind = self.dialect.type(memory_dtype(u.dtype.base))
            found.append((kind if u in written else f"const {kind}", f"data{u.arg}"))
        return found

    def write(self, w: CWriter, u: UOp) -> None:
        """Write one node."""
        if _has_vectors(u):
            self.write_vector(w, u)
        elif u.op in _WRITERS:
            _WRITERS[u.op](w, u)
        elif u.op in GroupOp.ALU:
            write_alu(w, u)
        elif u.op is Ops.RANGE:
            self.open_loop(w, u)
        elif u.op is Ops.DEFINE_LOCAL:
            self.declare_scratch(w, u)
        elif u.op not in {Ops.DEFINE_GLOBAL, Ops.DEFINE_VAR}:
            raise NotImplementedError(f"{self.dialect.name} cannot express {u.op.name}")

    def open_loop(self, w: CWriter, u: UOp) -> None:
        """Open a loop."""
        kind = u.arg.kind
        name = w.names[u] = f"{LOOP_NAMES[kind]}{u.arg.index}"
        if kind is AxisType.GLOBAL:
            self.open_grid(w, u, name)
            return
        size, counter = w.names[u.src[0]], self.dialect.type(u.dtype)
        if kind is AxisType.TILE:
            w.emit(f"{self.dialect.unroll} {u.src[0].vmax}")
        w.open_block(f"for ({counter} {name} = 0; {name} < {size}; {name}++)")

    def make_writer(self, linear: list[UOp]) -> CWriter:
        """A writer for a kernel."""
        raise NotImplementedError

    def write_vector(self, w: CWriter, u: UOp) -> None:
        """Write a node with a vector as its value or a source."""
        raise NotImplementedError(f"{self.dialect.name} has no vectors")

    def declare_scratch(self, w: CWriter, u: UOp) -> None:
        """Declare the scratch memory of a work item."""
        raise NotImplementedError

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        """Open the block of one work item; `name` is its number within the loop."""
        raise NotImplementedError

    def render_kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        """The whole source, given a writer that holds the body."""
        raise NotImplementedError


@dataclass(frozen=True)
class Parameters:
    """A kernel's parameters: the C type and the name of each buffer and each integer, and the
    number of tensor maps.
    """

    pointers: list[tuple[str, str]]
    values: list[tuple[str, str]]
    maps: int


def _has_vectors(u: UOp) -> bool:
    """Whether a node computes, loads or stores vectors."""
    if u.op in {Ops.INDEX, Ops.AFTER, Ops.RANGE, Ops.END}:
        return False
    return any(x.dtype.count > 1 and not isinstance(x.dtype, PtrDType) for x in (u, *u.src))


def _alias(w: CWriter, u: UOp) -> None:
    w.names[u] = w.names[u.src[0]]


def _end(w: CWriter, u: UOp) -> None:
    w.close_block()


def _if(w: CWriter, u: UOp) -> None:
    w.open_block(f"if ({w.names[u.src[0]]})")


def _array(w: CWriter, u: UOp) -> None:
    w.emit(declare_array(w, u))


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
    Ops.DEFINE_REG: _array,
}
