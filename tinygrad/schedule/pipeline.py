"""The compiler on one page: every pass from a tensor graph to the code of its kernels, in order.

    tensor graph      COMMUNICATION    fewer bytes and collectives; shapes and devices stay global
                      LAYOUTS          every device runs one graph of local shapes and messages
    per-device graph  GROUPING         values are materialised or fused; kernels and transfers
    plan                               run in an order; see `schedule/execution_plan.py`

    kernel tensor form  INDEXING       movement ops become index arithmetic over loops
    kernel graph        CODEGEN        loops become vectors, registers and a grid (`codegen`)
    linear program                     a list of nodes, which a renderer writes as source text

A graph takes the first three stages once, each of its kernels the last two. Between two passes a
program has a form of `uop/spec/`. `SPEC=1` verifies it, `DEBUG=5` prints it, and
`uop.passes.observe_passes` hands it to a function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tinygrad.schedule.comm.gather_scattered import gather_scattered_values
from tinygrad.schedule.comm.halo import sink_halo_copies
from tinygrad.schedule.comm.merge_allreduces import merge_allreduces
from tinygrad.schedule.comm.narrow_allreduces import narrow_allreduces
from tinygrad.schedule.comm.reduce_first import reduce_first
from tinygrad.schedule.comm.simplify import keep_round_trips, simplify_communication
from tinygrad.schedule.comm.sink_into_scatter import sink_into_scatters
from tinygrad.schedule.comm.sink_reshard import sink_resharding
from tinygrad.schedule.execution_plan import (
    PLAN,
    ExecutionPlan,
    count_reused,
    count_work,
    keep_local_items,
)
from tinygrad.schedule.grouping.plan.free_early import free_early
from tinygrad.schedule.grouping.plan.make_plan import make_plan
from tinygrad.schedule.grouping.plan.rematerialize import rematerialize
from tinygrad.schedule.grouping.plan.reuse_arguments import reuse_arguments
from tinygrad.schedule.grouping.rewrite.own_outputs import copy_shared_outputs
from tinygrad.schedule.grouping.rewrite.place_constants import place_constants
from tinygrad.schedule.grouping.rewrite.prepare import prepare_grouping
from tinygrad.schedule.grouping.rewrite.preserve import preserve_overwritten
from tinygrad.schedule.grouping.rewrite.stack_products import stack_products
from tinygrad.schedule.grouping.softmax.gradient import reuse_products
from tinygrad.schedule.grouping.softmax.sharded import split_sharded_softmax
from tinygrad.schedule.kernel.rangeify import is_kernel_graph, rangeify
from tinygrad.schedule.kernel.simplify_kernel import simplify_kernel
from tinygrad.schedule.multi import LayoutLowering, lower_layouts
from tinygrad.uop.ops import KernelInfo, UOp
from tinygrad.uop.passes import Pass, run_passes
from tinygrad.uop.spec import KERNEL, KERNEL_TENSOR, PER_DEVICE, TENSOR


@dataclass(frozen=True)
class PlanOptions:
    """The parameters of planning: the graph reads buffers 0 to `inputs - 1`, values without a
    device are computed on `default_device`, and `lowering`, used once, lowers the layouts.
    """

    inputs: int
    default_device: str
    lowering: LayoutLowering | None = None


COMMUNICATION: tuple[Pass[None], ...] = (
    Pass("sink halo exchanges", lambda sink, _: sink_halo_copies(sink), TENSOR, TENSOR),
    Pass("sink into scatters", lambda sink, _: sink_into_scatters(sink), TENSOR, TENSOR),
    Pass("sink resharding", lambda sink, _: sink_resharding(sink), TENSOR, TENSOR),
    Pass("keep round trips", lambda sink, _: keep_round_trips(sink), TENSOR, TENSOR),
    Pass("simplify communication", lambda sink, _: simplify_communication(sink), TENSOR, TENSOR),
    Pass("merge all-reduces", lambda sink, _: merge_allreduces(sink), TENSOR, TENSOR),
    Pass("reduce before all-reduces", lambda sink, _: reduce_first(sink), TENSOR, TENSOR),
    Pass("narrow all-reduces", lambda sink, _: narrow_allreduces(sink), TENSOR, TENSOR),
    Pass(
        "gather scattered values",
        lambda sink, _: gather_scattered_values(sink),
        TENSOR,
        TENSOR,
    ),
)

LAYOUTS: tuple[Pass[PlanOptions], ...] = (
    Pass(
        "lower layouts",
        lambda sink, options: lower_layouts(sink, options.lowering),
        TENSOR,
        PER_DEVICE,
    ),
)

GROUPING: tuple[Pass[PlanOptions], ...] = (
    Pass(
        "preserve overwritten values",
        lambda sink, _: preserve_overwritten(sink),
        PER_DEVICE,
        PER_DEVICE,
    ),
    Pass("prepare grouping", lambda sink, _: prepare_grouping(sink), PER_DEVICE, PER_DEVICE),
    Pass("stack products", lambda sink, _: stack_products(sink), PER_DEVICE, PER_DEVICE),
    Pass(
        "split sharded softmax",
        lambda sink, _: split_sharded_softmax(sink),
        PER_DEVICE,
        PER_DEVICE,
    ),
    Pass("reuse products of softmax", lambda sink, _: reuse_products(sink), PER_DEVICE, PER_DEVICE),
    Pass("copy shared outputs", lambda sink, _: copy_shared_outputs(sink), PER_DEVICE, PER_DEVICE),
    Pass(
        "place constants",
        lambda sink, options: place_constants(sink, options.default_device),
        PER_DEVICE,
        PER_DEVICE,
    ),
    Pass(
        "group into kernels",
        lambda sink, options: make_plan(sink, options.inputs, options.default_device),
        PER_DEVICE,
        PLAN,
    ),
    Pass("rematerialize replicated values", lambda plan, _: rematerialize(plan), PLAN, PLAN),
    Pass("free memory early", lambda plan, _: free_early(plan), PLAN, PLAN),
    Pass("count work", lambda plan, _: count_work(plan), PLAN, PLAN),
    Pass("reuse dying arguments", lambda plan, _: reuse_arguments(plan), PLAN, PLAN),
    Pass("count reused memory", lambda plan, _: count_reused(plan), PLAN, PLAN),
    Pass("keep local items", lambda plan, _: keep_local_items(plan), PLAN, PLAN),
)

INDEXING: tuple[Pass[None], ...] = (
    Pass("movement to indices", lambda ast, _: rangeify(ast), KERNEL_TENSOR, KERNEL),
    Pass("simplify indices", lambda kernel, _: simplify_kernel(kernel), KERNEL, KERNEL),
)


def stages() -> tuple[tuple[Pass[Any], ...], ...]:
    """The passes of each stage, in order. Programs whose kernels are kept on disk need no code
    generation, so it is imported where it is used.
    """
    from tinygrad.codegen import PASSES as CODEGEN

    return COMMUNICATION, LAYOUTS, GROUPING, INDEXING, CODEGEN


def optimize_communication(sink: UOp) -> UOp:
    """The tensor graph with the communication that it needs."""
    return cast(UOp, run_passes(COMMUNICATION, sink, None))


def plan_graph(sink: UOp, options: PlanOptions) -> ExecutionPlan:
    """The plan of a tensor graph over canonical buffers, after `optimize_communication`."""
    return cast(ExecutionPlan, run_passes((*LAYOUTS, *GROUPING), sink, options))


def lower_kernel(ast: UOp) -> UOp:
    """The kernel graph of a kernel's tensor form. A hand-written kernel is one already."""
    if is_kernel_graph(ast):
        return ast
    name = ast.arg.name if isinstance(ast.arg, KernelInfo) else ""
    return cast(UOp, run_passes(INDEXING, ast, None, name))
