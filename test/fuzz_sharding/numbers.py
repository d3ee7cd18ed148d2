"""Programs of elementwise ops on every dtype and extreme values, compared with numpy.

Each step is computed alone from the values of the step before it, and compared with the reference.
Where every step is exact, the program is also computed at once: on one device, on several, from
constants, and by the C renderer. All of these give the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from test.fuzz_sharding.program import DTYPE_NAMES, Array, Input, Program, Step, execute
from test.fuzz_sharding.reference import (
    BINARY,
    REDUCED,
    UNARY,
    Rule,
    cast,
    common,
    computed,
    kind_of,
    off_by,
    values_in,
)
from test.fuzzing.findings import Finding, Invalid, failure
from test.fuzzing.layouts import random_devices, random_layout
from tinygrad import Context, Tensor, dtypes
from tinygrad.dtype import DType, least_upper_dtype, least_upper_float, sum_acc_dtype

SHAPES = [(1,), (5,), (16,), (37,), (4, 9), (3, 1), (2, 17)]
NUMBERS = ("0", "1", "-1", "2", "7", "128", "255", "256", "-129", "2147483648", "1099511627776")
FLOATS = ("0.0", "-0.0", "0.1", "-2.5", "3.0", "1e10", "float('inf')", "float('nan')")
# a sum of a product may be contracted, which rounds once
CONTRACTED = ("*", "+", " - ", "square", "%", "//", "reciprocal", "/")
# with these Python numbers, a value stays as it is, also where it is -0.0
UNCHANGED = {"{x} + {y}": 0, "{x} - {y}": 0}
TEMPLATES = UNARY | BINARY | REDUCED
COMPARED = tuple(text for text, rule in BINARY.items() if rule.gives == "bool")


# ---- programs ----


def random_numbers(rng: random.Random) -> Program:
    """A program of one to five steps, each on the result of the step before it."""
    devices = random_devices(rng, rng.choice([1, 2, 3, 4]))
    shape = rng.choice(SHAPES)
    layout = random_layout(rng, shape, devices)
    inputs: list[Input] = []
    steps: list[Step] = []

    def new_input(dtype: str) -> str:
        name = f"v{len(inputs) + len(steps)}"
        inputs.append(Input(name, shape, dtype, 0, 0, "L0", False, is_extreme=True))
        return name

    current = new_input(rng.choice(list(DTYPE_NAMES.values())))
    for _ in range(rng.choice([1, 2, 3, 5])):
        template = _random_template(rng)
        uses = [current]
        second = ""
        if template in BINARY:
            if rng.random() < 0.4:
                second = rng.choice(NUMBERS if rng.random() < 0.7 else FLOATS)
            else:
                same = inputs[-1].dtype if rng.random() < 0.6 else None
                second = new_input(same or rng.choice(list(DTYPE_NAMES.values())))
                uses.append(second)
        name = f"v{len(inputs) + len(steps)}"
        text = template.format(x=current, y=second)
        steps.append(Step(name, f"{name} = {text}", tuple(uses), f"{template}::{second}"))
        if template in REDUCED:
            break
        current = name
    used = {name for step in steps for name in step.uses}
    kept = tuple(x for x in inputs if x.name in used)
    return Program({"L0": layout}, kept, tuple(steps))


def _random_template(rng: random.Random) -> str:
    table = rng.choice([UNARY, BINARY, BINARY, REDUCED, {}])
    if table:
        return rng.choice(list(table))
    return f"{{x}}.cast(dtypes.{rng.choice(list(DTYPE_NAMES.values()))})"


# ---- the reference ----


def reference(step: Step, values: list[Array], types: list[DType]) -> tuple[Array, DType, Rule]:
    """The expected values of a step, their dtype, and its rule. Raises Invalid."""
    template, second = step.op.split("::")
    if template not in TEMPLATES:
        target = getattr(dtypes, template.rpartition(".")[2][:-1])
        # integers are cast to narrow floats by way of float32
        ulps = 1 if target in (dtypes.half, dtypes.bfloat16) else 0
        return cast(values[0], target), target, Rule(lambda x: x, ulps=ulps)
    rule = TEMPLATES[template]
    number = None
    if second and second not in step.uses:
        number = eval(second, {"float": float})
        types = [types[0], _number_dtype(number, types[0])]
    dtype = common(*types)
    if kind_of(dtype) not in rule.kinds or dtype in dtypes.fp8s:
        raise Invalid
    if template == "{x} ** {y}" and isinstance(number, int) and number < 0:
        # of integers, this is an error
        raise Invalid
    if isinstance(number, int) and dtypes.is_int(dtype):
        if template in COMPARED and dtypes.is_int(types[0]):
            exact = [bool(rule.function(v, number)) for v in values[0].ravel().tolist()]
            return np.array(exact, bool).reshape(values[0].shape), dtypes.bool, rule
        if not dtypes.min(dtype) <= number <= dtypes.max(dtype):
            raise Invalid
    if template in UNCHANGED and number == UNCHANGED[template] and dtype is types[0]:
        return values[0], dtype, rule
    if rule.gives in ("float", "mean"):
        dtype = least_upper_float(dtype)
    if rule.gives == "sum":
        dtype = sum_acc_dtype(dtype)
    if number is not None:
        plain = np.array(number, object if isinstance(number, int) else np.float64)
        values = [values[0], cast(plain, dtype)]
    inside = (
        least_upper_dtype(dtype, dtypes.float) if rule.is_wide and kind_of(dtype) == "f" else dtype
    )
    operands = values if rule.gives in ("mean", "index") else [cast(x, inside) for x in values]
    if rule.gives in ("bool", "index"):
        result = dtypes.bool if rule.gives == "bool" else dtypes.int
        return np.asarray(rule.function(*operands)), result, rule
    if rule.gives == "mean":
        return values_in(rule.function(*operands), dtype), dtype, rule
    return computed(rule.function, dtype, *operands), dtype, rule


def _number_dtype(number: Any, beside: DType) -> DType:
    if dtypes.is_float(beside) or (dtypes.is_int(beside) and isinstance(number, int)):
        return beside
    return dtypes.from_py(number)


# ---- the check ----


def check_numbers(program: Program) -> Finding[Program] | None:
    """Compares each step with numpy, and, where all are exact, ways to compute the program."""
    names = program.namespace(False)
    values = {x.name: names[x.name].numpy() for x in program.inputs}
    exact = True
    for step in program.steps:
        types = [names[name].dtype for name in step.uses]
        with np.errstate(all="ignore"):
            expected, dtype, rule = reference(step, [values[name] for name in step.uses], types)
        try:
            found = execute(step, names).realize()
        except Exception as error:
            return failure(error, program)
        if found.dtype is not dtype or found.shape != expected.shape:
            message = f"{step.name} is {found.dtype} {found.shape}, not {dtype} {expected.shape}"
            return Finding("wrong type", message, program)
        values[step.name] = found.numpy()
        wrong = off_by(values[step.name], expected, dtype, rule.signs) > rule.ulps
        if wrong.any():
            operands = [values[name] for name in step.uses]
            if operands[0].shape == expected.shape:
                operands = [np.broadcast_to(x, expected.shape)[wrong][0] for x in operands]
            pair = f"{values[step.name][wrong][0]} instead of {expected[wrong][0]}"
            return Finding("wrong number", f"{step.name} of {operands} is {pair}", program)
        exact = exact and not rule.ulps
    if not exact or sum(step.op.count(mark) for step in program.steps for mark in CONTRACTED) > 1:
        return None
    return _check_at_once(program, values[program.steps[-1].name])


def _check_at_once(program: Program, expected: Array) -> Finding[Program] | None:
    for way, names in _ways(program):
        try:
            with Context(CPU_LLVM=0 if way == "in C" else 1):
                for step in program.steps:
                    result = execute(step, names)
                found = result.numpy()
        except Exception as error:
            return failure(error, program)
        wanted = expected.ravel()[:1] if way == "of constants" else expected.ravel()
        wrong = off_by(found.ravel(), wanted, result.dtype, False) > 0
        if wrong.any():
            pair = f"{found.ravel()[wrong][0]} instead of {wanted[wrong][0]}"
            return Finding(f"another number {way}", pair, program)
    return None


def _ways(program: Program) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "at once", program.namespace(False)
    yield "on several devices", program.namespace(True)
    if sum(map(ord, program.steps[-1].text)) % 4 == 0:
        # compiling C takes long
        yield "in C", program.namespace(False)
    if not any(step.op.split("::")[0] in REDUCED for step in program.steps):
        names = program.namespace(False)
        for x in program.inputs:
            number = names[x.name].flatten()[0].item()
            names[x.name] = Tensor.full((1,), number, dtype=getattr(dtypes, x.dtype))
        yield "of constants", names
