"""C and its family as target languages.

In: a linear program. Out: source text. `CStyleRenderer` writes what all dialects share; a dialect
says how a kernel begins, where its grid items come from and what its memory is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tinygrad.dtype import PtrDType, dtypes
from tinygrad.renderer.base import Renderer, parameters
from tinygrad.renderer.c_types import SCALARS, stored
from tinygrad.renderer.c_values import (
    define_array,
    write_alu,
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
from tinygrad.renderer.c_vectors import VectorLibrary
from tinygrad.renderer.c_writer import LOOP_NAMES, CWriter
from tinygrad.renderer.host import SCRATCH_BYTES, host_vector_bytes, vector_registers
from tinygrad.settings import thread_count
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

# what the language has as operators
OPERATORS = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.NEG, Ops.IDIV, Ops.MOD),
        *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
        *(Ops.WHERE, Ops.MULACC),
    }
)


class CStyleRenderer(Renderer):
    """What the dialects of C share."""

    # compilers have an instruction for it; everything else would need a library
    functions: ClassVar[dict[Ops, str]] = {Ops.SQRT: "__builtin_sqrt"}
    operations = OPERATORS.union(functions)
    dtypes = frozenset(SCALARS) - {dtypes.void, dtypes.index}
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
        return self.kernel(name, w, Parameters(linear, pointers, variables))

    def write(self, w: CWriter, u: UOp) -> None:
        """One node."""
        if u.op in _WRITERS:
            _WRITERS[u.op](w, u)
        elif u.op in GroupOp.ALU:
            write_alu(w, u)
        elif u.op is Ops.DEFINE_LOCAL:
            define_array(w, u, self.scratch_qualifier)
        elif u.op is Ops.DEFINE_REG:
            define_array(w, u, self.register_qualifier)
        elif u.op is Ops.RANGE:
            self.open_loop(w, u)
        elif u.op not in {Ops.DEFINE_GLOBAL, Ops.DEFINE_VAR}:
            raise NotImplementedError(f"{self.name} has no form of {u.op.name}")

    def open_loop(self, w: CWriter, u: UOp) -> None:
        """The head of a loop."""
        kind = u.arg.kind
        name = f"{LOOP_NAMES[kind]}{u.arg.index}"
        w.names[u] = name
        if kind is AxisType.GLOBAL:
            self.open_grid(w, u, name)
            return
        size = w.names[u.src[0]]
        if kind is AxisType.TILE:
            w.say(f"#pragma GCC unroll {u.src[0].vmax}")
        w.open(f"for (long long {name} = 0; {name} < {size}; {name}++)")

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        """The block in which `name` is an item of the grid, counted from the loop's first."""
        raise NotImplementedError

    def kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        """The whole source; the body has been written."""
        raise NotImplementedError


class CRenderer(CStyleRenderer):
    """The CPU that the C compiler is for: GNU C, as gcc and clang understand it.

    The kernel is `void NAME(void **buffers, const long long *values, long long begin, long long
    end)`.
    """

    name = "c"
    scratch_bytes = SCRATCH_BYTES
    register_qualifier = ""
    scratch_qualifier = "_Alignas(64) "

    def __init__(self, vector_bytes: int | None = None, *, threads: int | None = None) -> None:
        super().__init__(threads=threads or thread_count())
        self.vector_bytes = vector_bytes or host_vector_bytes()
        self.vector_registers = vector_registers(self.vector_bytes)

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        first, last = "begin", "end"
        if w.grid_loops > 1:
            size, offset = (w.names[x] for x in u.src)
            first = f"begin > {offset} ? begin - {offset} : 0"
            last = f"(end - {offset} < {size} ? end - {offset} : {size})"
        w.open(f"for (long long {name} = {first}; {name} < {last}; {name}++)")

    def kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        takes = [f"{kind} *restrict {x}" for kind, x in declared.pointers]
        takes += [f"{kind} {x}" for kind, x in declared.values]
        gives = [f"buffers[{i}]" for i in range(len(declared.pointers))]
        gives += [f"({kind})values[{i}]" for i, (kind, _) in enumerate(declared.values)]
        bounds = "long long begin, long long end"
        return (
            f"{w.vectors.text}"
            f"static __attribute__((noinline)) void {name}_body("
            f"{', '.join([*takes, bounds])}) {{\n{w.body}}}\n"
            f"void {name}(void **buffers, const long long *values, {bounds}) {{\n"
            f"  {name}_body({', '.join([*gives, 'begin', 'end'])});\n}}\n"
        )


# nvrtc comes without the headers that declare these
CUDA_PRELUDE = """\
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)
"""


class CUDARenderer(CStyleRenderer):
    """NVIDIA GPUs, in CUDA C++. A thread runs one item of the grid; there are no vectors."""

    name = "cuda"
    vector_bytes = 1
    # threads are cheap to start and hide each other's waiting
    enough_items = 1 << 20
    parallel_work = 1
    functions: ClassVar[dict[Ops, str]] = {
        Ops.SQRT: "sqrt",
        Ops.EXP2: "exp2",
        Ops.LOG2: "log2",
        Ops.SIN: "sin",
        Ops.TRUNC: "trunc",
    }
    operations = OPERATORS.union(functions)

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        size, first = w.names[u.src[0]], ""
        if w.grid_loops > 1:
            first = f" - {w.names[u.src[1]]}"
        w.say(f"long long {name} = (long long)blockIdx.x * blockDim.x + threadIdx.x{first};")
        w.open(f"if (0 <= {name} && {name} < {size})")

    def kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        takes = [f"{kind} *__restrict__ {x}" for kind, x in declared.pointers]
        takes += [f"{kind} {x}" for kind, x in declared.values]
        library = w.vectors.text.replace("static inline", "static __device__ inline")
        head = f'extern "C" __global__ void {name}({", ".join(takes)})'
        text = f"{CUDA_PRELUDE}{library}{head} {{\n{w.body}}}\n"
        return text.replace("_Bool", "bool").replace("#pragma GCC unroll", "#pragma unroll")


class Parameters:
    """A kernel's parameters as (C type, name): what is only read is const."""

    def __init__(self, linear: list[UOp], pointers: list[UOp], variables: list[UOp]) -> None:
        written = {_buffer(u) for u in linear if u.op is Ops.STORE}
        self.pointers: list[tuple[str, str]] = []
        for u in pointers:
            assert isinstance(u.dtype, PtrDType)
            kind = SCALARS[stored(u.dtype.base)]
            self.pointers.append((kind if u in written else f"const {kind}", f"data{u.arg}"))
        self.values = [(SCALARS[u.dtype], str(u.arg[0])) for u in variables]


def _buffer(store: UOp) -> UOp:
    pointer = store.src[0].src[0]
    while pointer.op in {Ops.AFTER, Ops.INDEX}:
        pointer = pointer.src[0]
    return pointer


def _alias(w: CWriter, u: UOp) -> None:
    w.names[u] = w.names[u.src[0]]


def _end(w: CWriter, u: UOp) -> None:
    w.close()


def _if(w: CWriter, u: UOp) -> None:
    w.open(f"if ({w.names[u.src[0]]})")


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
