"""`TinyJit`: a function's kernels, captured at its second call and replayed from the third on.

Input: a function of tensors, bound Variables and Python values. Output: its results, for the cost
of one native call. Invariant: a replay reads current memory and current values, or the function is
captured again. A call whose tensors differ from the captured ones in number, shape, dtype or
layout is an error that names the difference.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from tinygrad.execution.capture import Capture, JitError, capturing
from tinygrad.execution.realize import ScheduleItem
from tinygrad.jit.captured import CapturedJit
from tinygrad.jit.closure import Snapshot, WrittenMemory
from tinygrad.jit.inputs import Inputs, find_inputs, tensors_in
from tinygrad.settings import JIT
from tinygrad.storage.random_generator import random_generator
from tinygrad.storage.realization import realize_all

P = ParamSpec("P")
R = TypeVar("R")


class TinyJit(Generic[P, R]):
    """Capture the kernels of `fxn` and replay them.

    The first call runs the function, the second is captured, later ones replay: Python code in
    `fxn` does not run again, and the returned tensors are the same objects, overwritten by each
    call (a result that is a view of an input is a view of that call's input). Inputs are the
    tensors and bound Variables among the arguments, also in lists, tuples and dicts; tensors are
    realized.

    The function is captured again when a Python value or `Tensor.training` differs from the
    captured one, and after a weight was moved, resharded or replaced. Numbers and arrays are
    compared by value, other objects by identity. A number that changes often should be a bound
    Variable or a tensor, which need no new capture. Replays see what is assigned to a weight; a
    function that rebinds it, as `self.x = self.x + 1` does, is captured again at each call.

    `cnt` counts calls, `captured` is the capture or None, `captured.jit_cache` its items.

    Raises:
        JitError: tensors differ from the captured ones, one tensor is passed twice, a tensor that
            the function writes is passed although it was not in the captured call, no kernel was
            captured, or the function calls `manual_seed`.

    >>> scale = TinyJit(lambda x, factor: (x * factor).realize())
    >>> [scale(Tensor([1, 2]), 3).tolist() for _ in range(4)][-1]
    [3, 6]
    >>> scale(Tensor([1, 2]), 5).tolist()
    [5, 10]
    """

    def __init__(self, fxn: Callable[P, R] | None, captured: CapturedJit[R] | None = None) -> None:
        self.fxn = fxn
        self.captured = captured
        self.cnt = 0 if captured is None else 2
        # by the items of the last capture, even if that could not be replayed
        self._written: WrittenMemory | None = None
        self._bound: dict[int, TinyJit[..., R]] = {}
        if fxn is not None:
            functools.update_wrapper(self, fxn)

    def __get__(self, instance: Any, owner: Any) -> TinyJit[..., R]:
        """A method is captured once per object, since two objects have different tensors."""
        if instance is None:
            return self
        key = id(instance)
        found = self._bound.get(key)
        if found is None:
            bound: TinyJit[..., R] = TinyJit(_bind_weakly(self.fxn, weakref.ref(instance)))
            weakref.finalize(instance, self._bound.pop, key, None)
            found = self._bound[key] = bound
        return found

    def reset(self) -> None:
        """Drop the capture: the next call runs as the first one did.

        >>> step = TinyJit(lambda x: (x + 1).realize())
        >>> [step(Tensor([i])).item() for i in range(3)]
        [1, 2, 3]
        >>> step.reset()
        >>> step.cnt, step.captured
        (0, None)
        """
        self.captured = None
        self.cnt = 0

    @property
    def jit_cache(self) -> list[ScheduleItem]:
        """The captured items, in order; empty before the second call.

        >>> TinyJit(lambda x: x + 1).jit_cache
        []
        """
        return self.captured.jit_cache if self.captured is not None else []

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.fxn is not None and (not JIT or capturing()):
            # a function called while another one is captured is captured with it
            return self._call(*args, **kwargs)
        inputs = find_inputs(args, kwargs)
        self.cnt += 1
        if self.captured is not None and self.captured.can_replay(inputs):
            return self.captured(inputs)
        if self.cnt == 1:
            return self._call(*args, **kwargs)
        return self._capture(inputs, *args, **kwargs)

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert self.fxn is not None
        result = self.fxn(*args, **kwargs)
        realize_all(tensors_in(result))
        return result

    def _capture(self, inputs: Inputs, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._written is not None:
            self._written.realize_readers(inputs)
        capture, before = Capture(), Snapshot()
        capturing().append(capture)
        try:
            with random_generator.record() as drawn:
                result = self._call(*args, **kwargs)
        finally:
            capturing().pop()
        if not capture.items:
            raise JitError(f"{self.fxn} ran no kernel, so there is nothing to capture")
        if drawn.is_seeded:
            raise JitError("manual_seed was called inside a captured function; call it outside")
        written = {b.base or b for item in capture.items for b in item.written}
        self._written = WrittenMemory(before.stored, written, inputs, tensors_in(result))
        self.captured = None
        if not before.lazy_was_realized():
            self.captured = CapturedJit(
                result, capture.items, inputs, drawn, before.stored, self._written
            )
        return result


def _bind_weakly(fxn: Callable[..., R] | None, instance: weakref.ref[Any]) -> Callable[..., R]:
    """`fxn` with `instance` as its first argument, which is not kept alive."""
    assert fxn is not None

    def call(*args: Any, **kwargs: Any) -> R:
        return fxn(instance(), *args, **kwargs)

    return functools.wraps(fxn)(call)
