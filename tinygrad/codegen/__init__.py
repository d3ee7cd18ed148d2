"""Code generation: the second half of the compiler, from a kernel graph to source text.

In: `SINK(STORE(INDEX(DEFINE_GLOBAL, index[, valid]), value, *ranges), ...)` and a renderer. Out: a
`ProgramSpec`. Invariant: a kernel that no heuristic applies to stays plain loops, which compute the
same values. Graphs stay small, because no pass unrolls a loop.

    kernel graph    optimize/   loops become a grid, register tiles and lanes; operands are staged
                    lower/      lanes become vector dtypes, reductions become accumulators
                    decompose/  ops and dtypes that the target lacks are decomposed
    linear program  lower/      nodes in order of execution, which `renderer/` turns into text

`analysis/` holds what the passes have in common. DEBUG=3 prints the loop optimizations of a kernel,
DEBUG=4 its source, DEBUG=5 the result of every pass.
"""

from __future__ import annotations

from dataclasses import replace

from tinygrad.codegen.analysis.accesses import accessed_slots
from tinygrad.codegen.analysis.estimates import estimate
from tinygrad.codegen.decompose.decompositions import decompose
from tinygrad.codegen.decompose.rare_values import branch_on_rare_values
from tinygrad.codegen.lower.async_copies import copy_asynchronously
from tinygrad.codegen.lower.barriers import place_barriers
from tinygrad.codegen.lower.linearize import LoopOrderError, linearize
from tinygrad.codegen.lower.narrow_index import narrow_indices
from tinygrad.codegen.lower.reductions import lower_reductions
from tinygrad.codegen.lower.roles import join_roles
from tinygrad.codegen.lower.scalar_lanes import write_lanes
from tinygrad.codegen.lower.vector_ranges import expand_vectors
from tinygrad.codegen.optimize.index_set_splitting import split_index_sets
from tinygrad.codegen.optimize.loops import optimize_loops
from tinygrad.codegen.optimize.normalize import normalize
from tinygrad.helpers import to_function_name
from tinygrad.renderer import (
    LaunchShape,
    ProgramSpec,
    Renderer,
    is_vectorized,
    memory_dtype,
    parameters,
    pointer_of,
    tensor_maps,
)
from tinygrad.renderer.tensor_map import ALIGNMENT
from tinygrad.settings import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, UOp, sint
from tinygrad.uop.passes import Pass, run_passes
from tinygrad.uop.spec import IMPERATIVE_KERNEL, KERNEL, LINEAR, SCHEDULED_KERNEL, VECTOR_KERNEL

__all__ = ["PASSES", "get_linear", "get_program"]

LOOP_PASSES: tuple[Pass[Renderer], ...] = (
    Pass("split index sets", split_index_sets, KERNEL, KERNEL),
    Pass("normalize loops", lambda sink, _: normalize(sink), KERNEL, KERNEL),
    Pass("optimize loops", optimize_loops, KERNEL, SCHEDULED_KERNEL),
    Pass("expand vectors", expand_vectors, SCHEDULED_KERNEL, VECTOR_KERNEL),
    Pass(
        "lower reductions", lambda sink, _: lower_reductions(sink), VECTOR_KERNEL, IMPERATIVE_KERNEL
    ),
    Pass("write lanes", write_lanes, IMPERATIVE_KERNEL, IMPERATIVE_KERNEL),
    Pass("decompose ops", decompose, IMPERATIVE_KERNEL, IMPERATIVE_KERNEL),
    Pass(
        "branch on rare values",
        lambda sink, _: branch_on_rare_values(sink),
        IMPERATIVE_KERNEL,
        IMPERATIVE_KERNEL,
    ),
    Pass("copy asynchronously", copy_asynchronously, IMPERATIVE_KERNEL, IMPERATIVE_KERNEL),
    Pass("narrow indices", narrow_indices, IMPERATIVE_KERNEL, IMPERATIVE_KERNEL),
)
"""From a kernel graph to nests of loops that the target can express."""
LINEARIZE: Pass[Renderer] = Pass(
    "linearize",
    lambda sink, _: join_roles(place_barriers(linearize(sink))),
    IMPERATIVE_KERNEL,
    LINEAR,
)
"""From nests of loops to a program."""
PASSES = (*LOOP_PASSES, LINEARIZE)
"""All passes of code generation; those before are in `schedule/pipeline.py`."""


def get_linear(kernel: UOp, renderer: Renderer) -> tuple[UOp, list[UOp]]:
    """The kernel graph after all passes, and its nodes in order of execution."""
    try:
        return _run(kernel, renderer)
    except LoopOrderError as error:
        # a heuristic made loops that do not nest: fall back to plain loops, and say so at DEBUG=3
        with Context(NOOPT=1):
            sink, linear = _run(kernel, renderer)
        return sink.replace(arg=replace(_info(sink), applied=(f"plain loops: {error}",))), linear


def _run(kernel: UOp, renderer: Renderer) -> tuple[UOp, list[UOp]]:
    name = _info(kernel).name
    sink = run_passes(LOOP_PASSES, kernel, renderer, name)
    return sink, run_passes((LINEARIZE,), sink, renderer, name)


def get_program(kernel: UOp, renderer: Renderer) -> ProgramSpec:
    """The source text of a kernel graph, and how to call it."""
    sink, linear = get_linear(kernel, renderer)
    name = _info(kernel).name
    function = renderer.function_name(name)
    pointers, variables = parameters(linear)
    maps = tuple((pointers.index(pointer), x) for pointer, x in tensor_maps(linear))
    return ProgramSpec(
        name=to_function_name(name),
        function=function,
        source=renderer.render(function, linear),
        is_vectorized=is_vectorized(linear),
        slots=tuple(int(u.arg) for u in pointers),
        outputs=accessed_slots(linear, Ops.STORE),
        inputs=accessed_slots(linear, Ops.LOAD, Ops.COPY_ASYNC, Ops.BOX),
        variables=tuple(variables),
        launch=LaunchShape(
            _grid(linear), _block(linear), renderer.dynamic_shared_bytes(linear), maps
        ),
        alignment=_alignment(linear) if renderer.target.has_threads else 1,
        estimates=estimate(kernel),
        applied=tuple(str(x) for x in _info(sink).applied),
    )


def _info(sink: UOp) -> KernelInfo:
    return sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()


def _grid(linear: list[UOp]) -> sint:
    """The number of work items of all loop nests."""
    total: sint = 0
    for u in linear:
        if u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL:
            size = u.src[0]
            total = total + int(size.arg) if size.op is Ops.CONST else size + total
    return total.ssimplify() if isinstance(total, UOp) else total or 1


def _block(linear: list[UOp]) -> int:
    """The number of threads of a work item, equal for all loop nests."""
    sizes = {_threads_of(u) for u in linear if u.op is Ops.RANGE and u.arg.kind is AxisType.LOCAL}
    assert len(sizes) < 2, "the loop nests of a kernel have blocks of one size"
    return sizes.pop() if sizes else 1


def _threads_of(axis: UOp) -> int:
    return int(axis.src[0].arg)


def _alignment(linear: list[UOp]) -> int:
    """The bytes of the widest access to a buffer."""
    widest = 1
    for u in linear:
        if u.op is Ops.COPY_ASYNC:
            widest = max(widest, u.arg)
        elif u.op is Ops.BOX:
            widest = max(widest, ALIGNMENT)
        elif u.op is Ops.LOAD or u.op is Ops.STORE:
            moved = u if u.op is Ops.LOAD else u.src[1]
            if moved.dtype.count > 1 and pointer_of(u.src[0]).op is Ops.DEFINE_GLOBAL:
                widest = max(widest, memory_dtype(moved.dtype).itemsize)
    return widest
