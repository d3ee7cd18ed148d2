"""The pass pipeline: forms chain, verification names the pass at fault, results are observable."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tinygrad import Sharding, Tensor, dtypes
from tinygrad.codegen import PASSES, get_linear
from tinygrad.execution.realize import get_runner
from tinygrad.execution.schedule import create_schedule
from tinygrad.renderer import Target, find_renderer
from tinygrad.schedule.execution_plan import PLAN, KernelItem
from tinygrad.schedule.pipeline import PlanOptions, lower_kernel, plan_graph, stages
from tinygrad.settings import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, BufferArg, KernelInfo, ParamArg, RangeArg, ReduceArg, UOp
from tinygrad.uop.passes import Pass, PassResult, observe_passes, run_passes
from tinygrad.uop.spec import (
    IMPERATIVE_KERNEL,
    KERNEL,
    LINEAR,
    PER_DEVICE,
    SCHEDULED_KERNEL,
    TENSOR,
    VECTOR_KERNEL,
    Spec,
    SpecError,
)

STAGES = stages()

x = UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(-1, (4, 6), "CPU"))
graph = UOp.sink((x + 1).reshape((24,)))
keep: Pass[None] = Pass("keep", lambda sink, _: sink, TENSOR, TENSOR)


def row_sum(name: str) -> UOp:
    """The tensor form of a kernel."""
    source = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(1, (4, 6)))
    value = UOp(Ops.REDUCE_AXIS, dtypes.float32, (source,), ReduceArg(Ops.ADD, (1,)))
    target = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, (4, 1)))
    store = UOp(Ops.STORE, dtypes.float32, (target, value))
    return UOp.sink(store, arg=KernelInfo(name))


@pytest.mark.parametrize("stage", STAGES)
def test_every_pass_requires_what_the_pass_before_it_ensures(stage: tuple[Pass[Any], ...]) -> None:
    assert all(first.ensures is second.requires for first, second in pairwise(stage))


def test_stages_lower_a_tensor_graph_to_a_plan_and_a_kernel_to_a_program() -> None:
    ends = [(stage[0].requires, stage[-1].ensures) for stage in STAGES]
    communication, layouts, grouping, indexing, codegen = ends
    assert communication[0] is TENSOR
    assert communication[1] is layouts[0]
    assert layouts[1] is grouping[0]
    assert grouping[1] is PLAN
    assert indexing[1] is codegen[0]
    assert codegen[1] is LINEAR


def test_pass_names_are_distinct() -> None:
    names = [step.name for stage in STAGES for step in stage]
    assert len(set(names)) == len(names)


def test_verification_names_the_pass_that_breaks_its_form() -> None:
    def plant_a_store(sink: UOp, _: None) -> UOp:
        return UOp.sink(UOp(Ops.STORE, dtypes.void, (x, x)))

    bad: Pass[None] = Pass("plant a store", plant_a_store, TENSOR, TENSOR)
    with Context(SPEC=0):
        assert run_passes((keep, bad), graph, None).src[0].op is Ops.STORE
    with (
        Context(SPEC=1),
        pytest.raises(SpecError, match="after the pass 'plant a store', in the tensor graph, STOR"),
    ):
        run_passes((keep, bad, keep), graph, None)


def test_verification_names_the_pass_with_a_wrong_input_form() -> None:
    with Context(SPEC=1), pytest.raises(SpecError, match="before the pass 'keep', .*no op of the"):
        run_passes((keep,), lower_kernel(row_sum("r_4")), None)


def test_a_change_of_form_is_verified_even_if_the_graph_is_unchanged() -> None:
    split = UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(-1, (4,), Sharding(("CPU", "CPU:1"), 0)))
    idle: Pass[None] = Pass("idle", lambda sink, _: sink, TENSOR, PER_DEVICE)
    with Context(SPEC=1), pytest.raises(SpecError, match="after the pass 'idle'"):
        run_passes((idle,), UOp.sink(split), None)


def test_a_plan_item_outside_of_its_entries_is_refused() -> None:
    plan = plan_graph(graph, PlanOptions(1, "CPU"))
    PLAN.verify(plan)
    item = plan.items[0]
    assert isinstance(item, KernelItem)
    (part,), *others = item.params
    wrong = replace(item, params=((part._replace(offset=4),), *others))
    with pytest.raises(SpecError, match="in the plan, item 0 has the slice"):
        PLAN.verify(type(plan)(**{**vars(plan), "items": (wrong,)}))


def test_observers_see_the_passes_of_a_graph_in_order() -> None:
    seen: list[PassResult] = []
    with observe_passes(seen.append):
        plan = plan_graph(graph, PlanOptions(1, "CPU"))
    plan_graph(graph, PlanOptions(1, "CPU"))
    assert [result.step for result in seen] == [*STAGES[1], *STAGES[2]]
    assert seen[0].before is graph
    assert seen[-1].after is plan


def test_debug_5_prints_the_passes_of_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=5):
        get_linear(lower_kernel(row_sum("r_4")), find_renderer(Target("llvm")))
    printed = capsys.readouterr().out
    headings = [line for line in printed.splitlines() if line.startswith("r_4: ")]
    for step, heading in zip((*STAGES[3], *PASSES), headings, strict=True):
        assert heading.startswith(f"r_4: {step.name}: ")
        assert " nodes -> " in heading
        assert f" nodes of the {step.ensures.name}" in heading
    assert "REDUCE" in printed
    assert "END" in printed


def test_debug_5_prints_every_pass_of_a_realized_tensor(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=5, SCHEDULE_CACHE=0):
        schedule = create_schedule([(Tensor.empty(5, 7) + 3).sum().uop])
        for item in schedule.items:
            item.lower()
    printed = capsys.readouterr().out
    for stage in STAGES:
        for step in stage:
            assert f"{step.name}: " in printed


def test_lower_debug_levels_print_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=4):
        get_runner("CPU", row_sum("row_sum_of_this_test"))
    printed = capsys.readouterr().out
    assert "row_sum_of_this_test" in printed
    assert not any(step.name in printed for step in PASSES)


def test_an_unchanged_graph_is_not_printed_again() -> None:
    result = PassResult(keep, "", graph, graph)
    assert str(result) == "keep: 7 nodes -> 7 nodes of the tensor graph, unchanged"
    assert "REDUCE" in str(PassResult(keep, "", graph, row_sum("r_4")))


def test_a_kernel_graph_needs_no_indexing() -> None:
    kernel = lower_kernel(row_sum("r_4"))
    with Context(SPEC=1):
        KERNEL.verify(kernel)
        assert lower_kernel(kernel) is kernel


@pytest.mark.parametrize(
    ("form", "kind", "message"),
    [
        (KERNEL, AxisType.GLOBAL, "RANGE has the kind GLOBAL before loops are optimized"),
        (SCHEDULED_KERNEL, AxisType.VECTOR, None),
        (VECTOR_KERNEL, AxisType.VECTOR, "RANGE is over lanes that were expanded"),
        (VECTOR_KERNEL, AxisType.TILE, None),
        (IMPERATIVE_KERNEL, AxisType.TILE, "REDUCE has 2 sources, not 1"),
    ],
)
def test_forms_of_code_generation(form: Spec, kind: AxisType, message: str | None) -> None:
    kernel = lower_kernel(row_sum("r_4"))
    loops = [u for u in kernel.toposort() if u.op is Ops.RANGE and u.arg.kind is AxisType.LOOP]
    kernel = kernel.substitute({u: u.replace(arg=RangeArg(u.arg.index, kind)) for u in loops})
    if message is None:
        form.verify(kernel)
        return
    with pytest.raises(SpecError, match=message):
        form.verify(kernel)
