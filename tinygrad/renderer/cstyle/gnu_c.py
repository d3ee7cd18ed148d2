"""GNU C for the host CPU, as gcc and clang compile it."""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.renderer.cstyle.dialect import Dialect
from tinygrad.renderer.cstyle.renderer import CStyleRenderer, Parameters
from tinygrad.renderer.cstyle.values import declare_array
from tinygrad.renderer.cstyle.vector_values import VectorWriter, write_vector
from tinygrad.renderer.cstyle.vectors import VectorLibrary
from tinygrad.renderer.cstyle.writer import CWriter
from tinygrad.renderer.host_cpu import SCRATCH_ALIGNMENT
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

GNU_C = Dialect(
    name="C",
    # `long long` has 64 bits on every system, `long` has not
    types={
        dtypes.bool: "_Bool",
        dtypes.int8: "signed char",
        dtypes.uint8: "unsigned char",
        dtypes.int16: "short",
        dtypes.uint16: "unsigned short",
        dtypes.int32: "int",
        dtypes.uint32: "unsigned int",
        dtypes.int64: "long long",
        dtypes.uint64: "unsigned long long",
        dtypes.index: "long long",
        dtypes.float32: "float",
        dtypes.float64: "double",
    },
    suffixes={
        dtypes.uint32: "u",
        dtypes.int64: "ll",
        dtypes.uint64: "ull",
        dtypes.float32: "f",
    },
    # an instruction of the target; any other function would need a library
    functions={Ops.SQRT: "__builtin_sqrt", Ops.MOD: "__builtin_fmod"},
    infinity={dtypes.float32: "__builtin_inff()", dtypes.float64: "__builtin_inf()"},
    nan={dtypes.float32: '__builtin_nanf("")', dtypes.float64: '__builtin_nan("")'},
    unroll="#pragma GCC unroll",
    wraps=True,
)


class CRenderer(CStyleRenderer):
    """GNU C for a CPU.

    The kernel is `void NAME(void **buffers, const long long *values, long long begin, long long
    end)`.
    """

    dialect = GNU_C

    def make_writer(self, linear: list[UOp]) -> CWriter:
        return VectorWriter(linear, VectorLibrary(self.dialect))

    def write_vector(self, w: CWriter, u: UOp) -> None:
        assert isinstance(w, VectorWriter)
        write_vector(w, u)

    def declare_scratch(self, w: CWriter, u: UOp) -> None:
        w.emit(declare_array(w, u, f"_Alignas({SCRATCH_ALIGNMENT}) "))

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        first, last = "begin", "end"
        if w.grid_loops > 1:
            size, offset = (w.names[x] for x in u.src)
            first = f"begin > {offset} ? begin - {offset} : 0"
            last = f"(end - {offset} < {size} ? end - {offset} : {size})"
        w.open_block(f"for (long long {name} = {first}; {name} < {last}; {name}++)")

    def render_kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        takes = [f"{kind} *restrict {x}" for kind, x in declared.pointers]
        takes += [f"{kind} {x}" for kind, x in declared.values]
        gives = [f"buffers[{i}]" for i in range(len(declared.pointers))]
        gives += [f"({kind})values[{i}]" for i, (kind, _) in enumerate(declared.values)]
        bounds = "long long begin, long long end"
        return (
            f"{''.join(w.library.definitions.values())}"
            f"static __attribute__((noinline)) void {name}_body("
            f"{', '.join([*takes, bounds])}) {{\n{w.body}}}\n"
            f"void {name}(void **buffers, const long long *values, {bounds}) {{\n"
            f"  {name}_body({', '.join([*gives, 'begin', 'end'])});\n}}\n"
        )
