"""From a kernel graph to a program: loops get kinds, become vectors and registers, and are put in
order.

In: `SINK(STORE(INDEX(DEFINE_GLOBAL, index[, valid]), value, *ranges), ...)` and a renderer. Out: a
`Program` with source text. Always true: a kernel that no heuristic knows stays plain loops, which
are right too. Graphs stay small: nothing is unrolled here, so the work is that of the kernel's own
few nodes.
"""

from __future__ import annotations

from dataclasses import replace

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
from tinygrad.uop.passes import Pass, run_passes
from tinygrad.uop.spec import IMPERATIVE_KERNEL, KERNEL, LINEAR, SCHEDULED_KERNEL, VECTOR_KERNEL

__all__ = ["PASSES", "get_linear", "get_program"]

LOOP_PASSES: tuple[Pass[Renderer], ...] = (
    Pass("normalize loops", lambda sink, _: normalize(sink), KERNEL, KERNEL),
    Pass("choose axes", choose_axes, KERNEL, SCHEDULED_KERNEL),
    Pass(
        "expand vectors",
        lambda sink, renderer: expand_vectors(sink, renderer.has_shuffle),
        SCHEDULED_KERNEL,
        VECTOR_KERNEL,
    ),
    Pass("lower reductions", lambda sink, _: lower_reduces(sink), VECTOR_KERNEL, IMPERATIVE_KERNEL),
    Pass("decompose operations", decompose, IMPERATIVE_KERNEL, IMPERATIVE_KERNEL),
)
LINEARIZE: Pass[Renderer] = Pass(
    "linearize", lambda sink, _: linearize(sink), IMPERATIVE_KERNEL, LINEAR
)
PASSES = (*LOOP_PASSES, LINEARIZE)
"""The second half of the compiler; the first is `schedule/pipeline.py`."""


def get_linear(kernel: UOp, renderer: Renderer) -> tuple[UOp, list[UOp]]:
    """The kernel graph after all passes, and its nodes in order of execution."""
    try:
        return _run(kernel, renderer)
    except LoopOrderError as error:
        # a mistake of a heuristic costs speed, not the result; people see it at DEBUG=3
        with Context(NOOPT=1):
            sink, linear = _run(kernel, renderer)
        return sink.replace(arg=replace(_info(sink), applied=(f"plain loops: {error}",))), linear


def _run(kernel: UOp, renderer: Renderer) -> tuple[UOp, list[UOp]]:
    name = _info(kernel).name
    sink = run_passes(LOOP_PASSES, kernel, renderer, name)
    return sink, run_passes((LINEARIZE,), sink, renderer, name)


def get_program(kernel: UOp, renderer: Renderer) -> Program:
    """Generate the code of one kernel."""
    sink, linear = get_linear(kernel, renderer)
    name = to_function_name(_info(kernel).name)
    pointers, variables = parameters(linear)
    return Program(
        name=name,
        source=renderer.render(name, linear),
        slots=tuple(int(u.arg) for u in pointers),
        outputs=_slots(linear, Ops.STORE),
        inputs=_slots(linear, Ops.LOAD),
        variables=tuple(variables),
        grid=_grid(linear),
        estimates=estimate(kernel),
        applied=tuple(str(x) for x in _info(sink).applied),
    )


def _info(sink: UOp) -> KernelInfo:
    return sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()


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
