"""One capture of a function: its items and its result, and a replay with other inputs.

Input: the items that ran while the function was called, and the inputs of that call. Output:
results for other inputs of the same signature. Invariant: a replay has the effects of a call:
results, assignments, drawn random numbers, counters and traces.
"""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import Any, Generic, TypeVar

from tinygrad.device import Buffer
from tinygrad.execution.capture import JitError
from tinygrad.execution.realize import ScheduleItem
from tinygrad.execution.wire import Wire, current_wire
from tinygrad.jit.closure import Closure
from tinygrad.jit.effects.results import Outcome
from tinygrad.jit.effects.written_memory import WrittenMemory
from tinygrad.jit.inputs import Inputs, difference, differs_in_views
from tinygrad.jit.pickling import dumped
from tinygrad.jit.replay.counters import ReplayCounters
from tinygrad.jit.replay.input_lifetimes import Lifetimes, input_lifetimes
from tinygrad.jit.replay.launches import group_launches, is_remote, split_messages
from tinygrad.jit.replay.native_replay import NativeReplay, is_native
from tinygrad.jit.replay.random_draws import ReplayedDraws
from tinygrad.jit.replay.rank_replay import RankReplay
from tinygrad.jit.replay.substitution import Substitution
from tinygrad.settings import DEBUG
from tinygrad.sharding import current_local_devices
from tinygrad.storage.lock import exclusive

R = TypeVar("R")


class CapturedJit(Generic[R]):
    """The captured items, `jit_cache`, and a replay of them with the inputs of another call.

    Args:
        inputs: those of the captured call.
        draws: the memory of its random numbers.
        closure: what the function uses besides its inputs; None for a capture that was loaded.
        outcome: what it leaves behind.
        written: the memory that items write.
        ranges: symbolic ranges of an axis, whose bounds each call checks.
        intermediates: the memory whose content does not outlive a replay.
    """

    def __init__(
        self,
        items: list[ScheduleItem],
        inputs: Inputs,
        draws: ReplayedDraws,
        closure: Closure | None,
        outcome: Outcome[R],
        written: WrittenMemory,
        ranges: dict[Any, dict[str, int]],
        intermediates: set[Buffer],
    ) -> None:
        self._draws = draws
        self.jit_cache = items
        self._intermediates = intermediates
        self._outcome = outcome
        self._inputs = inputs
        self._written = written
        self._ranges = ranges
        # messages of replays have the tag of the capture
        self._tag = current_wire().tag()
        self._digest = f"replay {self._tag}".encode()
        self._lifetimes: list[Lifetimes] = [input_lifetimes([[item] for item in items], inputs)]
        self._native: NativeReplay | RankReplay | None = None
        self.launch_count = len(items)
        """The launches of one replay; the items of a launch run at the same time."""
        if items and is_native(items):
            self._prepare_native(items, inputs)
        self._is_all = current_local_devices().is_all
        # the memory in other processes that is overwritten, if results read inputs
        tokens = written.tokens - inputs.tokens if outcome.inputs else frozenset()
        self._has_tokens = bool(tokens)
        self._overwritten = tokens.union(*(x.first_write for x in self._lifetimes))
        self._closure = closure
        self.written_tensors = closure.written if closure is not None else []
        """The tensors that the function writes without taking them as arguments."""
        self.written_inputs = written.inputs
        """The numbers of the arguments that the function writes."""
        self.places = outcome.places
        """The places where the function leaves tensors."""
        self._is_freed = False
        self._counters = ReplayCounters(items)

    def _prepare_native(self, items: list[ScheduleItem], inputs: Inputs) -> None:
        """Prepare a replay of all items by one native call, independent ones in one launch."""
        launches = group_launches(split_messages(items))
        remote = [item for launch in launches for item in launch if is_remote(item)]
        # messages may be in flight until the end
        self._lifetimes.append(input_lifetimes([*launches, remote], inputs))
        self._native = (RankReplay if remote else NativeReplay)(launches, inputs)
        self.launch_count = len(launches)

    def __reduce__(self) -> tuple[Any, ...]:
        """What a replay needs, without the function. What it keeps aside is left out."""
        parts = (
            self._outcome.captured_result(),
            self.jit_cache,
            self._inputs,
            self._draws,
            self._ranges,
            self._written.tokens,
        )
        unneeded = self._intermediates | self._inputs.numbers.keys()
        return _loaded, (dumped((*parts, self._intermediates), unneeded),)

    def can_replay(self, inputs: Inputs) -> bool:
        """Whether the function would run the captured items: it sees the same Python values and
        views, and the tensors that it does not take as arguments are in the same memory.
        """
        known = self._inputs
        # all calls without arguments have the same inputs
        is_same = known is inputs
        if not is_same and known.fixed != inputs.fixed:
            return False
        if self._closure is not None and not self._closure.is_unchanged(inputs):
            return False
        if is_same:
            return True
        if inputs.apart and self._writes_through_views(inputs):
            return False
        if known.signature != inputs.signature:
            # other kinds of tensors are an error
            return not differs_in_views(known.signature, inputs.signature)
        if known.outline != inputs.outline or known.leaves != inputs.leaves:
            return False
        if known.shared != inputs.shared:
            return False
        return known.places == inputs.places or self._takes_slices

    def changed_paths(self) -> list[str]:
        """The places of other Python values than those that the function found."""
        return [] if self._closure is None else self._closure.changed_paths()

    @cached_property
    def _takes_slices(self) -> bool:
        """Whether the items of all processes take slices."""
        if self._is_all:
            return self._reads_slices_only()
        return all(current_wire().gather(self._reads_slices_only()))

    def _reads_slices_only(self) -> bool:
        """Whether an input may be any slice of any memory: of the memory of inputs, items read the
        inputs alone and write nothing, and what the function leaves behind is elsewhere.
        """
        if self._outcome.inputs or self._written.inputs:
            return False
        if self._closure is not None and self._closure.reads_inputs:
            return False
        ranges = self._inputs.ranges
        for buffer in {b for item in self.jit_cache for b in item.bufs}:
            low, high = ranges.get(buffer.base or buffer, (0, buffer.offset + buffer.nbytes))
            if not low <= buffer.offset <= buffer.offset + buffer.nbytes <= high:
                return False
        return True

    def _writes_through_views(self, inputs: Inputs) -> bool:
        """Whether items write a view that has memory of its own, or its base: in a replay, the
        other would not see the write.
        """
        written = self._written
        return any(i in written.inputs or written.holds(x) for i, x in inputs.apart)

    def check(self, inputs: Inputs) -> None:
        """Raise JitError if tensors or Variables differ from the captured ones in kind."""
        if inputs.signature != self._inputs.signature:
            raise JitError(difference(self._inputs.signature, inputs.signature))
        if inputs.places != self._inputs.places and not self._takes_slices:
            raise JitError(
                "an argument is another slice of memory than the captured one, of which the "
                "function returned or wrote a view; pass .contiguous() of it"
            )

    def __call__(self, inputs: Inputs) -> R:
        """Replay. The caller holds `storage.lock.changes`."""
        if inputs is not self._inputs:
            self.check(inputs)
        for symbolic, values in self._ranges.items():
            symbolic.check(values | inputs.values)
        if inputs.memories:
            self._copy_overwritten_inputs(inputs)
        call = self._outcome.prepare(inputs)
        self._written.make_writable(inputs)
        if self._draws.count:
            self._draws.advance()
        wire: Wire | None = None
        if not self._is_all:
            digest = self._digest
            if inputs.values:
                digest += f" {inputs.values}".encode()
            wire = current_wire()
            wire.note(digest, "a replay of a captured function", self._tag)
        native = self._native
        if native is None or DEBUG.get() >= 2 or not native.accepts(inputs, wire):
            substitution = Substitution(self._inputs, inputs)
            for item in self.jit_cache:
                substitution.item(item).run()
        else:
            if self._is_freed:
                native.find_memory(self._intermediates)
                self._is_freed = False
            native.run(inputs)
            self._counters.count_replay()
        return self._outcome.finish(call)

    @exclusive
    def free_intermediates(self) -> None:
        """Free the memory of values that no replay leaves behind; the next one allocates it.

        >>> step = TinyJit(lambda x: (x.sum() + x).contiguous().sum())
        >>> found = [step(Tensor([1, 2])).item() for _ in range(2)]
        >>> step.captured.free_intermediates()
        >>> step(Tensor([1, 2])).item()
        9
        """
        for buffer in self._intermediates:
            buffer.deallocate()
        self._is_freed = True
        if isinstance(self._native, RankReplay):
            self._native.release()

    def _copy_overwritten_inputs(self, inputs: Inputs) -> None:
        """Copy inputs that this replay would overwrite before their last use, as results of an
        earlier replay may be.
        """
        used = [b.base or b for b in inputs.buffers]
        if self._has_tokens:
            used += [x for i in self._outcome.inputs for x in inputs.memories[i].tokens]
        if self._overwritten.isdisjoint(used):
            return
        buffers = 0
        for number, memory in enumerate([*inputs.memories]):
            parts = memory.parts
            numbers = range(buffers, buffers := buffers + len(parts))
            if not self._outcome.is_result(memory.tensor):
                # the tensor itself moves out of memory that is overwritten
                continue
            if number in self._outcome.inputs:
                # what is left behind is used later
                is_needed = not self._overwritten.isdisjoint(memory.known)
            else:
                pairs = zip(numbers, parts, strict=True)
                is_needed = any(self._overwrites(i, b) for i, b in pairs)
            if is_needed:
                inputs.copy_memory(number)

    def _overwrites(self, number: int, buffer: Buffer) -> bool:
        """Whether items overwrite an input, if in `buffer`, before its last use."""
        return not all(x.end_before_write(number, buffer) for x in self._lifetimes)


def _loaded(content: bytes) -> CapturedJit[Any]:
    result, items, inputs, draws, ranges, tokens, intermediates = pickle.loads(content)
    written = tokens.union(b.base or b for item in items for b in item.written)
    outcome = Outcome(result, [], {}, [], set(), inputs)
    memory = WrittenMemory(written, intermediates, inputs)
    return CapturedJit(items, inputs, draws, None, outcome, memory, ranges, intermediates)
