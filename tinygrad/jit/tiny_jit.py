"""`TinyJit`: a function's kernels, captured at its second call and replayed from the third on.

Input: a function of tensors, bound Variables and Python values. Output: its results, for the cost
of one native call. Invariant: a replay reads current memory and current values, or the function is
captured again. A call whose tensors differ from the captured ones in number, shape, dtype or
layout is an error that names the difference.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar

from tinygrad.device import Buffer
from tinygrad.execution.capture import Capture, JitError, capturing
from tinygrad.execution.realize import ScheduleItem
from tinygrad.jit.captured import CapturedJit
from tinygrad.jit.closure import Closure
from tinygrad.jit.containers import tensors_in
from tinygrad.jit.effects.python_sources import PythonSources
from tinygrad.jit.effects.python_state import PythonState, RecaptureWarning
from tinygrad.jit.effects.recording import Recording
from tinygrad.jit.effects.results import outcome_of
from tinygrad.jit.effects.written_memory import WrittenMemory
from tinygrad.jit.environment.inspection import Followed
from tinygrad.jit.inputs import CallForms, Inputs, find_inputs
from tinygrad.jit.replay.copy_elision import elide_copies
from tinygrad.jit.replay.prune import varying_items
from tinygrad.jit.replay.random_draws import ReplayedDraws
from tinygrad.jit.verify import verified
from tinygrad.settings import JIT, JIT_VERIFY, MEMORY_PLANNER, Context
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.lock import changes
from tinygrad.storage.random_generator import DrawRecord, random_generator
from tinygrad.storage.realization import realize_all
from tinygrad.uop.user_line import find_user_line

P = ParamSpec("P")
R = TypeVar("R")


class TinyJit(Followed, Generic[P, R]):
    """Capture the kernels of `fxn` and replay them.

    The first call runs the function, the second is captured, later ones replay: Python code in
    `fxn` does not run again, and the returned tensors are the same objects, overwritten by each
    call (a result that is a view of an input is a view of that call's input). Inputs are the
    tensors and bound Variables among the arguments; tensors are realized. Arguments and results may
    be in lists, dicts, dataclasses and other containers (see `register_container`). Calls that give
    the same arguments by position, by name or by default are the same.

    A capture knows where the function found what it used other than its arguments: closure cells,
    globals, attributes, items of lists and dicts, as the code names them. The function is captured
    again when a Python value or a tensor there is another one, when a weight was moved or
    resharded, and when a Python value among the arguments or `Tensor.training` differs. Numbers and
    small arrays are compared by value, other objects by identity. A number that changes often
    should be a bound Variable or a tensor, which need no new capture. Replays see what is assigned
    to a weight; a function that rebinds what it read, as `self.x = self.x + 1` does, is captured at
    each call.

    A call that changes Python values, as `self.n += 1` or `log.append(1)` do, is not replayed: the
    next one runs the function again. A `RecaptureWarning` names the value from the second capture
    in a row for it. Values that other code computes, as random numbers of Python, stay those of the
    captured call. Writes to tensors, also those that nothing realizes in the function, are part of
    each call. Calls of several threads run one after the other.

    With `prune`, kernels that depend on no argument, on no random number, and on nothing that the
    function writes, run once, at the capture: weights must not be assigned to later. Temporaries
    then share no memory. `optimize` is accepted; replays are always optimized.

    `cnt` counts calls, `captured` is the capture or None, `captured.jit_cache` its items.

    Raises:
        JitError: tensors differ from the captured ones, or the function reads the value of a
            tensor, finds one in an object that cannot be followed, such as an iterator, keeps or
            returns one in a way that a replay cannot repeat, or calls `manual_seed`.

    >>> scale = TinyJit(lambda x, factor: (x * factor).realize())
    >>> [scale(Tensor([1, 2]), 3).tolist() for _ in range(4)][-1]
    [3, 6]
    >>> scale(Tensor([1, 2]), 5).tolist()
    [5, 10]
    """

    def __init__(
        self,
        fxn: Callable[P, R] | None,
        captured: CapturedJit[R] | None = None,
        prune: bool = False,
        optimize: bool = False,
    ) -> None:
        if fxn is not None and not callable(fxn):
            raise TypeError(f"TinyJit captures a function, not {fxn!r}")
        self.fxn = fxn
        self._prune = prune
        self.captured = captured
        self.cnt = 0 if captured is None else 2
        # older memory, by the items of the last capture, even if that could not be replayed
        self._written: WrittenMemory | None = None
        # the Python values that the captured call changed
        self._changed: list[str] = []
        # the last call that was captured because of Python values, and these
        self._reasons: tuple[int, list[str]] = 0, []
        self._warned: set[str] = set()
        self._lock = threading.RLock()
        self._forms = CallForms(fxn)
        self._bound: dict[int, TinyJit[..., R]] = {}
        # what the function is looked up in: itself, or its definition and the object
        self.roots = lambda: [fxn]
        if fxn is not None:
            functools.update_wrapper(self, fxn)

    def __get__(self, instance: Any, owner: Any) -> TinyJit[..., R]:
        """A method is captured once per object, since two objects have different tensors."""
        if instance is None:
            return self
        key = id(instance)
        found = self._bound.get(key)
        if found is None:
            ref = weakref.ref(instance)
            bound: TinyJit[..., R] = TinyJit(_bind_weakly(self.fxn, ref), prune=self._prune)
            bound.roots = lambda: [self.fxn, ref()]
            bound._forms = CallForms(self.fxn, skipped=1)
            weakref.finalize(instance, self._bound.pop, key, None)
            found = self._bound[key] = bound
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle replays the capture, without the function; one without a capture has that."""
        if self.captured is None:
            return TinyJit, (self.fxn,)
        return TinyJit, (None, self.captured), {"_forms": self._forms}

    def __deepcopy__(self, memo: dict[int, Any]) -> TinyJit[P, R]:
        """A copy captures its copy of the function again, since it has tensors of its own."""
        return TinyJit(copy.deepcopy(self.fxn, memo), prune=self._prune)

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
        if self.fxn is not None and (not JIT.get() or capturing()):
            result = self._call(*args, **kwargs)
            realize_all(tensors_in(result))
            return result
        # calls of other threads wait, as each may change what the next one finds
        with self._lock:
            if kwargs or len(args) not in self._forms.unchanged:
                inputs = find_inputs(*self._forms.canonical(args, kwargs))
            else:
                inputs = find_inputs(args, kwargs)
            self.cnt += 1
            captured = self.captured
            written = () if captured is None else captured.written_inputs
            if written and inputs.own(written):
                inputs = find_inputs(*self._forms.canonical(args, kwargs))
            if captured is not None and JIT_VERIFY.get() and self.fxn is not None:
                if captured.can_replay(inputs):
                    return verified(captured, inputs, lambda: self._call(*args, **kwargs), self)
            elif captured is not None:
                # the decision and the replay are one step
                with changes:
                    if captured.can_replay(inputs):
                        return captured(inputs)
            # another capture takes its place, and its memory
            del captured
            return self._run(inputs, *args, **kwargs)

    def _run(self, inputs: Inputs, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function; capture it from the second call on."""
        if self.fxn is None:
            raise JitError(self._refusal(inputs))
        if self.cnt == 1:
            recording = Recording([self, *inputs.objects], inputs.tensors)
            result = self._call(*args, **kwargs)
            recording.settle(result)
            histories.captured([*tensors_in(result), *recording.left()])
            return result
        self._note_reasons()
        return self._capture(inputs, *args, **kwargs)

    def _note_reasons(self) -> None:
        """Warn if a Python value is a reason for this capture and for that of the last call."""
        found = self._changed
        if self.captured is not None:
            found = self.captured.changed_paths()
        (number, earlier), self._reasons = self._reasons, (self.cnt, found)
        repeated = [x for x in found if number == self.cnt - 1 and x in earlier]
        for path in repeated:
            if path not in self._warned:
                self._warned.add(path)
                text = (
                    f"{find_user_line()}: {path} is another Python value at each call of a "
                    "captured function, which is captured again each time; change it outside of "
                    "the function, or make it a tensor or a bound Variable"
                )
                warnings.warn(RecaptureWarning(text), stacklevel=4)

    def _refusal(self, inputs: Inputs) -> str:
        """Why a loaded capture cannot serve a call."""
        if self.captured is None:
            return "this TinyJit has neither a function nor a capture"
        self.captured.check(inputs)
        return (
            "Python values, Tensor.training or the default device differ from those of the "
            "capture, which was loaded without its function"
        )

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function. Captured functions that it calls run too, and are captured with it:
        the result of a replay would be overwritten by that of the next.
        """
        assert self.fxn is not None
        with Context(JIT=0):
            return self.fxn(*args, **kwargs)

    def _capture(self, inputs: Inputs, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, and keep its items if replays of them have the effects of a call."""
        # an argument that moved out of the memory of a leaf would be no function of the leaf
        if self._written is not None and all(inputs.leaves):
            self._written.make_writable(inputs)
            # arguments may be views of what is written
            inputs = find_inputs(*self._forms.canonical(args, kwargs))
        if inputs.own(range(len(inputs.memories))):
            inputs = find_inputs(*self._forms.canonical(args, kwargs))
        # its memory is free before that of another capture is taken
        self.captured = None
        capture, recording = Capture(), Recording([self, *inputs.objects], inputs.tensors)
        sources = PythonSources(recording.before.known.values())
        state = PythonState(recording.before, [x for x, _ in inputs.containers])
        with self._recorded(capture) as drawn:
            result = self._call(*args, **kwargs)
            recording.settle(result)
        self._changed = state.changes(recording.places)
        written = {b.base or b for item in capture.items for b in item.written} | capture.written
        touched = {b.base or b for item in capture.items for b in item.bufs} | capture.touched
        results = tensors_in(result)
        histories.captured([*results, *recording.left()])
        outcome = outcome_of(result, recording, written, inputs)
        inputs.note_ranges()
        inputs.forget_tensors()
        new = written - recording.known_memory((), written) - inputs.memory
        self._written = WrittenMemory(written, new, inputs)
        closure = Closure(recording, touched, written, inputs, result)
        # writes to a view in memory of its own run in what it is a view of, which is no input
        is_fixed = written.isdisjoint(b for _, whole in inputs.apart for b in whole)
        is_fixed &= not recording.lazy_has_changed()
        # a gradient went on through the history that an older value had in this call
        is_fixed &= capture.differentiated <= written - inputs.memory
        if is_fixed and not capture.has_moved and not self._changed:
            sources.check()
            draws = ReplayedDraws(drawn, capture.items)
            items, intermediates = self._replayed_items(draws, outcome.temporaries, written, inputs)
            memory = WrittenMemory(written, outcome.temporaries, inputs)
            self.captured = CapturedJit(
                items, inputs, draws, closure, outcome, memory, capture.ranges, intermediates
            )
        return result

    @contextlib.contextmanager
    def _recorded(self, capture: Capture) -> Iterator[DrawRecord]:
        """Record the items that run inside the context, and its random numbers. Raises JitError if
        the generator is seeded there.
        """
        capturing().append(capture)
        # items that are pruned keep their memory, which no other temporary may use
        planner = 0 if self._prune else MEMORY_PLANNER.value
        try:
            with random_generator.record() as drawn, Context(MEMORY_PLANNER=planner):
                yield drawn
        finally:
            capturing().pop()
        if drawn.is_seeded:
            raise JitError("manual_seed was called inside a captured function; call it outside")

    def _replayed_items(
        self, draws: ReplayedDraws, temporaries: set[Buffer], written: set[Buffer], inputs: Inputs
    ) -> tuple[list[ScheduleItem], set[Buffer]]:
        """The items that each replay runs, and the memory that these use for nothing else."""
        items = draws.items
        if self._prune:
            varying = {*inputs.numbers, *draws.memory, *(written - temporaries)}
            items = varying_items(items, varying, inputs.values)
            temporaries = temporaries & {b.base or b for item in items for b in item.written}
        return elide_copies(items, temporaries, inputs.numbers), temporaries


def _bind_weakly(fxn: Callable[..., R] | None, instance: weakref.ref[Any]) -> Callable[..., R]:
    """`fxn` with `instance` as its first argument, which is not kept alive."""
    assert fxn is not None

    def call(*args: Any, **kwargs: Any) -> R:
        return fxn(instance(), *args, **kwargs)

    return functools.wraps(fxn)(call)
