"""Compares a program on several devices with itself on one: values, gradients, and bytes sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from test.fuzz_sharding.program import Array, Program, Step, execute
from test.fuzzing.findings import Finding, Invalid, difference_in_kind, failure
from tinygrad import Sharding, Tensor, TinyJit, UOp, dtypes
from tinygrad.execution import CommTrace

# ops whose intermediate values may be larger than inputs and results
COMPOSED = {"factorization", "interpolate", "there_and_back", "elsewhere", "parts_elsewhere"}
COMPOSED |= {"running", "recurrent", "batch_norm", "layer_of_images", "trained", "regressed"}
# rounding ops compute in float64; gradients may be large integers that round slightly
TOLERANCE = {dtypes.double: 1e-9, dtypes.float: 2e-5, dtypes.half: 2e-2, dtypes.bfloat16: 1e-1}

# values and their tolerance
Result: TypeAlias = tuple[Array, float]


def tensors(program: Program, names: dict[str, Any]) -> list[Tensor]:
    """The lazy results of the program, then the gradients of its inputs."""
    for step in program.steps:
        execute(step, names)
    results = [names[name] for name in program.results()]
    return results + gradients(program, names, results)


def gradients(program: Program, names: dict[str, Any], of: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the inputs, of a weighted sum of all float tensors in `of`."""
    targets = [names[name] for name in program.targets()]
    floats = [x for x in of if x.is_floating_point()]
    if not floats or not targets:
        return []
    sums = [(x * (Tensor.arange(x.numel()).reshape(x.shape) * 0.25 + 1)).sum() for x in floats]
    loss = sums[0]
    for x in sums[1:]:
        loss = loss + x
    return loss.gradient(*targets, materialize_grads=True)


def arrays(program: Program, sharded: bool) -> list[Result]:
    """All results and gradients."""
    results = tensors(program, program.namespace(sharded))
    Tensor.realize(*results)
    return numbers(results)


def replayed(program: Program, sharded: bool) -> list[Result]:
    """Results and gradients of the last of four calls under the JIT, each with other inputs."""
    names = program.namespace(sharded)

    @TinyJit
    def run(*inputs: Tensor, turn: UOp) -> list[Tensor]:
        given = zip((x.name for x in program.inputs), inputs, strict=True)
        inside = {**names, **dict(given), "turn": turn}
        results = [x.contiguous() for x in tensors(program, inside)]
        # a function that runs no kernel is refused, and views need none
        Tensor.realize(*results, inputs[0] + 1)
        return results

    for turn in range(4):
        turned = program.namespace(sharded, turn)
        results = run(*(turned[x.name] for x in program.inputs), turn=turned["turn"])
    return numbers(results)


def twice(program: Program, sharded: bool) -> list[Result]:
    """The results, and the gradients of the gradients."""
    names = program.namespace(sharded)
    results = tensors(program, names)
    results += gradients(program, names, results[len(program.results()) :])
    Tensor.realize(*results)
    return numbers(results)


def numbers(results: Iterable[Tensor]) -> list[Result]:
    return [(x.numpy(), TOLERANCE.get(x.dtype, 0.0)) for x in results]


def difference(found: Array, expected: Array, tolerance: float) -> str | None:
    """A description of the difference between two arrays; None if there is none."""
    message = difference_in_kind(found, expected)
    if message is not None:
        return message
    wide = np.float64 if tolerance else found.dtype
    a, b = found.astype(wide), expected.astype(wide)
    finite = np.abs(b[np.isfinite(b)]) if tolerance else b
    scale = tolerance * max(1.0, float(finite.max(initial=0))) if tolerance else 0.0
    wrong = ~np.isclose(a, b, rtol=0, atol=scale, equal_nan=True)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ, at {place} {a[place]} instead of {b[place]}"


def compare(
    program: Program, run: Callable[[Program, bool], list[Result]] = arrays
) -> Finding[Program] | None:
    """Checks values and gradients.

    Raises:
        Invalid: it fails on one device.
    """
    try:
        expected = run(program, False)
    except Exception as error:
        raise Invalid(str(error)) from error
    try:
        with program.context():
            found = run(program, True)
    except Exception as error:
        return failure(error, program)
    for number, ((a, tolerance), (b, _)) in enumerate(zip(found, expected, strict=True)):
        message = difference(a, b, tolerance)
        if message is not None:
            kind = "value" if number < len(program.results()) else "gradient"
            return Finding(f"wrong {kind}", f"result {number}: {message}", program)
    return None


def check_replay(program: Program) -> Finding[Program] | None:
    """Checks values under the JIT; the printed program does not use it.

    Raises:
        Invalid: it fails on one device.
    """
    found = compare(program, replayed)
    return found and replace(found, kind=f"{found.kind} under the JIT")


def check_twice(program: Program) -> Finding[Program] | None:
    """Checks second-order gradients; the printed program has first-order ones only.

    Raises:
        Invalid: it fails on one device.
    """
    found = compare(program, twice)
    return found and replace(found, kind=f"{found.kind} of second order")


# ---- bytes sent ----


def check_bytes(program: Program) -> Finding[Program] | None:
    """Checks that no step sends data that its layout has already, or more than replicating
    everything twice would.

    Every step is realized alone.
    """
    try:
        with program.context():
            names = program.namespace(True)
            Tensor.realize(*(names[x.name] for x in program.inputs))
            for step in program.steps:
                with CommTrace() as trace:
                    execute(step, names).realize()
                complaint = waste(step, names, trace)
                if complaint is not None:
                    return Finding(complaint, f"{step.text} moves {trace.kinds()}", program)
    except Exception as error:
        return failure(error, program)
    return None


def waste(step: Step, names: Mapping[str, Any], trace: CommTrace) -> str | None:
    """A complaint about the bytes that a step sent; None if there is none."""
    used = [names[name] for name in step.uses]
    if trace.nbytes and needs_nothing(step, used):
        return "needless bytes"
    values = [*used, names[step.name]]
    count = max(len(x.device) for x in values if isinstance(x.device, Sharding))
    if step.op not in COMPOSED and needed_bytes(trace, count) > 2 * gathered(values):
        return "more bytes than replicating everything twice"
    return None


def needed_bytes(trace: CommTrace, count: int) -> float:
    """The bytes sent if all reductions over `count` devices took the fewest bytes.

    Small partial sums are sent from all devices to all: n (n - 1) messages instead of 2 (n - 1).
    """
    kinds = trace.kinds()
    reduced = kinds.pop("all_reduce", 0)
    return sum(kinds.values()) + reduced * min(1, 2 / count)


def needs_nothing(step: Step, used: Sequence[Tensor]) -> bool:
    """Whether each device holds all inputs of its shard of the result."""
    first = used[0].device
    if step.along is None or any(x.device != first or x.shape != used[0].shape for x in used):
        return False
    return not isinstance(first, Sharding) or step.along.isdisjoint(first.split_axes)


def gathered(values: Sequence[Tensor]) -> int:
    """The bytes of all values, each replicated on its devices."""
    return sum(
        int(x.nbytes()) * (len(x.device) if isinstance(x.device, Sharding) else 1) for x in values
    )
