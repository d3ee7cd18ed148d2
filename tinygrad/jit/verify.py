"""Verification of replays, `JIT_VERIFY=1`: the function runs beside each replay.

Input: a capture, and a call that it may serve. Output: the result of the replay. Invariant: the
function's own run leaves nothing behind: memory, places, counters and random numbers are as before,
so that the replay starts where the function did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tinygrad.device import Buffer, copy_buffer
from tinygrad.dtype import dtypes
from tinygrad.execution.buffers import memory_of, name_content
from tinygrad.execution.capture import JitError
from tinygrad.helpers import GlobalCounters
from tinygrad.jit.captured import CapturedJit
from tinygrad.jit.containers import leaves
from tinygrad.jit.effects.recording import Recording, buffers_read_by
from tinygrad.jit.environment.links import Link
from tinygrad.jit.environment.survey import Survey
from tinygrad.jit.inputs import Inputs, comparable
from tinygrad.storage.lock import changes
from tinygrad.storage.random_generator import random_generator
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

R = TypeVar("R")
ROUNDING_STEPS = 64
"""By how many steps of its dtype, relative to the largest element, a float may differ."""


def verified(captured: CapturedJit[R], inputs: Inputs, run: Callable[[], R], root: Any) -> R:
    """Replay, and compare with what `run`, the call of the function, does to the same state.

    `root` is what the function is followed from.

    Raises:
        JitError: a result, a tensor that the function writes, or one that it keeps differs.
    """
    captured.check(inputs)
    roots = [root, *inputs.objects]
    with _undone(captured, inputs, roots):
        recording = Recording(roots, inputs.tensors)
        result = run()
        recording.settle(result)
        expected = _values(captured, result, inputs)
        del result, recording
    # arguments in memory that the function wrote moved out of it
    inputs.find_memory()
    with changes:
        replayed = captured(inputs)
    found = _values(captured, replayed, inputs)
    # an argument that is the last result has become this one
    memory = {b for x in leaves(replayed) if isinstance(x, Tensor) for b in _memory_of(x.uop)}
    for i in captured.written_inputs:
        if not memory.isdisjoint(inputs.memories[i].known):
            del expected[_written_argument(i)]
    for name, value in expected.items():
        _compare(name, value, found.get(name))
    return replayed


@contextmanager
def _undone(captured: CapturedJit[Any], inputs: Inputs, roots: list[Any]) -> Iterator[None]:
    """Restore memory, places, counters and random numbers after this block."""
    memory = {b.base or b for item in captured.jit_cache for b in item.written}
    memory |= {b.base or b for b in inputs.buffers}
    saved = [(b, _copy(b)) for b in memory if b.is_allocated()]
    places = _Saved(roots)
    gradients = [x.grad for x in inputs.given]
    counters = {k: v for k, v in vars(GlobalCounters).items() if isinstance(v, (int, float))}
    try:
        with random_generator.unchanged():
            yield
    finally:
        for buffer, content in saved:
            copy_buffer(buffer, content)
        places.restore()
        for x, grad in zip(inputs.given, gradients, strict=True):
            x.grad = grad
        for name, value in counters.items():
            if not name.startswith("mem_"):
                setattr(GlobalCounters, name, value)


def _copy(buffer: Buffer) -> Buffer:
    copy = Buffer(buffer.device, buffer.size, buffer.dtype)
    copy_buffer(copy, buffer)
    return copy


class _Saved:
    """What is in the places that `roots` reach."""

    def __init__(self, roots: Iterable[Any]) -> None:
        survey = Survey(roots)
        self._links: list[tuple[Link, Any]] = [(link, link.value) for link in survey.links]
        containers = [x for x, _ in survey.sizes]
        self._dicts = [(x, dict(x)) for x in containers if isinstance(x, dict)]
        self._lists = [(x, list(x)) for x in containers if not isinstance(x, dict)]

    def restore(self) -> None:
        """Put back what was there."""
        for container, items in self._dicts:
            if container.keys() != items.keys():
                container.clear()
                container.update(items)
        for container, values in self._lists:
            if len(container) != len(values):
                container.clear()
                container.extend(values)
        for link, value in self._links:
            if link.get_or_none() is not value:
                link.set(value)


def _values(captured: CapturedJit[Any], result: Any, inputs: Inputs) -> dict[str, Any]:
    """What a call gave and left, by name; the content of tensors."""
    found: dict[str, Any] = {}
    for i, x in enumerate(leaves(result)):
        found[f"leaf {i} of the result"] = _content(x)
    for i in captured.written_inputs:
        # a replay may write a copy of what it overwrites with a result
        memory = inputs.memories[i]
        node = name_content(memory.memory, memory.arg, memory.dtype, memory.tokens)
        found[_written_argument(i)] = _content(Tensor(node))
    for i, x in enumerate(inputs.given):
        if x.grad is not None:
            found[f"the gradient of tensor {i} of the arguments"] = _content(x.grad)
    for i, x in enumerate(captured.written_tensors):
        found[f"tensor {i} of those that the function writes, {x!r},"] = _content(x)
    for place in captured.places:
        for i, x in enumerate(leaves(place.latest)):
            found[f"leaf {i} of {place}, which the function keeps,"] = _content(x)
    return found


def _written_argument(number: int) -> str:
    return f"tensor {number} of the arguments that the function writes"


def _memory_of(node: UOp) -> set[Buffer]:
    """The memory that a value is a view of, also over copies between shards."""
    return {b for base in buffers_read_by(node) if base.is_realized for b in memory_of(base)}


def _content(x: Any) -> Any:
    return (x.dtype, x.numpy()) if isinstance(x, Tensor) else x


def _compare(name: str, expected: Any, found: Any) -> None:
    """Raise JitError unless two values are equal, up to rounding for floats."""
    import numpy as np

    if not isinstance(expected, tuple) or not isinstance(found, tuple):
        if comparable(expected) != comparable(found) and not isinstance(expected, UOp):
            raise JitError(f"{name} is {expected!r} if the function runs, not {found!r}")
        return
    (dtype, wanted), (_, other) = expected, found
    if wanted.shape != other.shape:
        raise JitError(f"{name} has shape {wanted.shape} if the function runs, not {other.shape}")
    rounding = ROUNDING_STEPS * 2.0 ** -dtypes.finfo(dtype)[1] if dtypes.is_float(dtype) else 0.0
    scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)) if rounding else 0.0
    if not np.allclose(other, wanted, rtol=rounding, atol=rounding * scale, equal_nan=True):
        raise JitError(
            f"{name} is {np.ravel(wanted)[:8]} if the function runs, and {np.ravel(other)[:8]} in "
            "a replay; something that it depends on was not noticed: pass it as an argument"
        )
