"""Simpler programs than one that shows a finding: without what the finding may not need."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from test.fuzz_sharding.program import DTYPE_NAMES, Input, Program, Step, execute
from test.fuzzing.layouts import ONE_DEVICE, Layout, plainer
from tinygrad import Sharding, Tensor


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
    for layouts in plainer(program.layouts):
        yield replace(program, layouts=layouts)
