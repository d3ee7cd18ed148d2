"""GNU C for the host CPU, as gcc and clang compile it."""

from __future__ import annotations

from tinygrad.renderer.cstyle.renderer import CStyleRenderer, Parameters
from tinygrad.renderer.cstyle.writer import CWriter
from tinygrad.renderer.host_cpu import SCRATCH_ALIGNMENT
from tinygrad.uop.ops import UOp


class CRenderer(CStyleRenderer):
    """GNU C for a CPU.

    The kernel is `void NAME(void **buffers, const long long *values, long long begin, long long
    end)`.
    """

    name = "c"
    register_qualifier = ""
    scratch_qualifier = f"_Alignas({SCRATCH_ALIGNMENT}) "

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
            f"{w.vectors.text}"
            f"static __attribute__((noinline)) void {name}_body("
            f"{', '.join([*takes, bounds])}) {{\n{w.body}}}\n"
            f"void {name}(void **buffers, const long long *values, {bounds}) {{\n"
            f"  {name}_body({', '.join([*gives, 'begin', 'end'])});\n}}\n"
        )
