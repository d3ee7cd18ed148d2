"""From a kernel graph to a program: loops get kinds, become vectors and registers, and are put in
order.

In: `SINK(STORE(INDEX(DEFINE_GLOBAL, index[, valid]), value, *ranges), ...)` and a renderer. Out: a
`Program` with source text. Always true: a kernel that no heuristic knows stays plain loops, which
are right too. Graphs stay small: nothing is unrolled here, so the work is that of the kernel's own
few nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tinygrad.codegen.accumulate import lower_reduces
from tinygrad.codegen.axes import choose_axes
from tinygrad.codegen.decompositions import decompose
from tinygrad.codegen.estimates import estimate
from tinygrad.codegen.expand import expand_vectors
from tinygrad.codegen.linearize import LoopOrderError, linearize
from tinygrad.codegen.normalize import normalize
from tinygrad.helpers import to_function_name
from tinygrad.renderer import Program, Renderer, parameters
from tinygrad.settings import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, UOp, sint

__all__ = ["PASSES", "Pass", "get_linear", "get_program"]


@dataclass(frozen=True)
class Pass:
    """One step from the kernel graph to the linear program; its module says what it changes."""

    name: str
    run: Callable[[UOp, Renderer], UOp]


PASSES = (
    Pass("separate and merge ranges", lambda sink, _: normalize(sink)),
    Pass("choose axes, stage operands", choose_axes),
    Pass("vectors", lambda sink, renderer: expand_vectors(sink, renderer.has_shuffle)),
    Pass("accumulators", lambda sink, _: lower_reduces(sink)),
    Pass("operations of the target", decompose),
)


def get_linear(kernel: UOp, renderer: Renderer) -> tuple[UOp, list[UOp]]:
    """The kernel graph after all passes, and its nodes in order of execution."""
    try:
        return _run(kernel, renderer)
    except LoopOrderError as error:
        # a mistake of a heuristic costs speed, not the result; people see it at DEBUG=3
        with Context(NOOPT=1):
            sink, linear = _run(kernel, renderer)
        info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
        return sink.replace(arg=replace(info, applied=(f"plain loops: {error}",))), linear


def _run(kernel: UOp, renderer: Renderer) -> tuple[UOp, list[UOp]]:
    sink = kernel
    for step in PASSES:
        sink = step.run(sink, renderer)
    return sink, linearize(sink)


def get_program(kernel: UOp, renderer: Renderer) -> Program:
    """Generate the code of one kernel."""
    info = kernel.arg if isinstance(kernel.arg, KernelInfo) else KernelInfo()
    sink, linear = get_linear(kernel, renderer)
    name = to_function_name(info.name)
    pointers, variables = parameters(linear)
    applied = sink.arg.applied if isinstance(sink.arg, KernelInfo) else ()
    return Program(
        name=name,
        source=renderer.render(name, linear),
        slots=tuple(int(u.arg) for u in pointers),
        outputs=_slots(linear, Ops.STORE),
        inputs=_slots(linear, Ops.LOAD),
        variables=tuple(variables),
        grid=_grid(linear),
        estimates=estimate(kernel),
        applied=tuple(str(x) for x in applied),
    )


def _slots(linear: list[UOp], op: Ops) -> tuple[int, ...]:
    """The slots that loads or stores go to."""
    found: set[int] = set()
    for u in linear:
        if u.op is op:
            pointer = u.src[0].src[0]
            while pointer.op in {Ops.AFTER, Ops.INDEX}:
                pointer = pointer.src[0]
            if pointer.op is Ops.DEFINE_GLOBAL:
                found.add(int(pointer.arg))
    return tuple(sorted(found))


def _grid(linear: list[UOp]) -> sint:
    """The number of work items of all nests together."""
    total: sint = 0
    for u in linear:
        if u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL:
            size = u.src[0]
            total = size * 1 + total if size.op is not Ops.CONST else total + int(size.arg)
    if isinstance(total, UOp):
        return total.ssimplify()
    return total or 1
