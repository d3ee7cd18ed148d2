"""Minimizes a finding: removes from its program what the finding does not need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from dataclasses import replace

from test.fuzz_sharding.check import Finding, Refused
from test.fuzz_sharding.program import (
    DTYPE_NAMES,
    ONE_DEVICE,
    Input,
    Layout,
    Program,
    Step,
    execute,
)
from tinygrad import Sharding, Tensor

Check = Callable[[Program], Finding | None]


def shrink(finding: Finding, check: Check, limit_s: float = 30) -> Finding:
    """The smallest program found that shows a finding of the same kind, as a finding."""
    end = time.monotonic() + limit_s
    smaller: Finding | None = finding
    while smaller is not None:
        finding = smaller
        smaller = next(_still_wrong(finding, check, end), None)
    return finding


def _still_wrong(finding: Finding, check: Check, end: float) -> Iterator[Finding]:
    for program in candidates(finding.program):
        if time.monotonic() > end:
            return
        try:
            found = check(program)
        except Refused:
            continue
        if found is not None and found.kind == finding.kind:
            yield found


def candidates(program: Program) -> Iterator[Program]:
    """Simpler programs: fewer results, inputs in place of steps, fewer devices, simpler layouts."""
    results = set(program.results())
    for step in program.steps[:-1]:
        yield only_for(program, {step.name})
    for step in program.steps:
        if step.name not in results:
            yield from with_input(program, step.name)
        elif len(results) > 1:
            yield only_for(program, results - {step.name})
    yield from with_fewer_gradients(program)
    yield from with_plainer_layouts(program)


def only_for(program: Program, results: Set[str]) -> Program:
    """The program with only the steps, inputs and layouts that these results need."""
    needed = set(results)
    steps: list[Step] = []
    for step in reversed(program.steps):
        if step.name in needed:
            needed.update(step.uses)
            steps.insert(0, step)
    inputs = tuple(x for x in program.inputs if x.name in needed)
    text = " ".join([*(step.text for step in steps), *(x.layout for x in inputs)])
    layouts = {name: layout for name, layout in program.layouts.items() if name in text}
    return Program(layouts, inputs, tuple(steps), program.contexts)


def with_input(program: Program, name: str) -> Iterator[Program]:
    """The program with the result of a step replaced by an input in the same layout."""
    names = program.namespace(True)
    try:
        for step in program.steps:
            execute(step, names)
    except Exception:  # the layout may be what the finding is about
        return
    value: Tensor = names[name]
    layouts = dict(program.layouts)
    layout = repr(ONE_DEVICE)
    if isinstance(value.device, Sharding):
        layout = f"L{max((int(known[1:]) for known in layouts), default=-1) + 1}"
        axes = tuple(p if isinstance(p, int) else None for p in value.device.axes)
        numbers = tuple(int(f"{name}:0".split(":")[1]) for name in value.device.devices)
        layouts[layout] = Layout(value.device.mesh_shape, axes, numbers)
    shape = tuple(int(size) for size in value.shape)
    is_float = value.is_floating_point()
    low, high = (-4, 4) if is_float else (0, 1)
    made = Input(name, shape, DTYPE_NAMES[value.dtype], low, high, layout, is_float)
    steps = tuple(step for step in program.steps if step.name != name)
    changed = Program(layouts, (*program.inputs, made), steps, program.contexts)
    yield only_for(changed, set(program.results()))


def with_fewer_gradients(program: Program) -> Iterator[Program]:
    for number, x in enumerate(program.inputs):
        if x.has_gradient:
            inputs = list(program.inputs)
            inputs[number] = replace(x, has_gradient=False)
            yield replace(program, inputs=tuple(inputs))


def with_plainer_layouts(program: Program) -> Iterator[Program]:
    """Realized inputs, no contexts, fewer devices, 1-d meshes, replicated layouts."""
    if any(x.is_lazy for x in program.inputs):
        yield replace(program, inputs=tuple(replace(x, is_lazy=False) for x in program.inputs))
    if program.contexts:
        yield replace(program, contexts=())
    counts = {len(layout.numbers) for layout in program.layouts.values()}
    for count in range(2, max(counts)) if len(counts) == 1 else ():
        changed = {
            name: Layout((count,), (_first_axis(layout),), tuple(range(count)))
            for name, layout in program.layouts.items()
        }
        yield replace(program, layouts=changed)
    ordered = {
        name: replace(layout, numbers=tuple(range(len(layout.numbers))))
        for name, layout in program.layouts.items()
    }
    if ordered != program.layouts:
        yield replace(program, layouts=ordered)
    for name, layout in program.layouts.items():
        for axis in (None, *dict.fromkeys(layout.axes)):
            plain = Layout((len(layout.numbers),), (axis,), layout.numbers)
            if _complexity(plain) < _complexity(layout):
                yield replace(program, layouts={**program.layouts, name: plain})


def _first_axis(layout: Layout) -> int | None:
    return next((axis for axis in layout.axes if axis is not None), None)


def _complexity(layout: Layout) -> tuple[int, int]:
    return len(layout.mesh), sum(axis is not None for axis in layout.axes)
