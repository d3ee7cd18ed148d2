"""`TinyJit`: a function's kernels, captured on its second call and replayed from the third on.

In: a function of tensors, bound Variables and Python values. Out: the same results, for the price
of one native call. Always true: a call whose tensors differ from the captured ones in shape, dtype,
layout or number is an error that says so; one whose Python values differ, or that finds a tensor it
is not given, such as a weight, elsewhere, is captured again. A replay never reads the wrong memory
or an old value.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, cast

from tinygrad.device import Buffer, copy_buffer
from tinygrad.execution.realize import BufferCopy, Capture, ExecItem, ScheduleItem, capturing
from tinygrad.jit.closure import Closure, Held, Overwritten, Surroundings
from tinygrad.jit.counters import Counted
from tinygrad.jit.inputs import Inputs, JitError, difference, find_inputs, tensors_of
from tinygrad.jit.launches import groups_of, single_messages
from tinygrad.jit.native import NativeReplay, can_replay
from tinygrad.settings import DEBUG, JIT
from tinygrad.storage.buffers import bind_buffers, device_buffers
from tinygrad.storage.random_generator import random_generator
from tinygrad.storage.realization import realize_all
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

P = ParamSpec("P")
R = TypeVar("R")


def _buffers(node: UOp) -> tuple[Buffer, ...]:
    return device_buffers(node)


def _views_of_inputs(
    result: Any, replaced: dict[Buffer, int]
) -> tuple[dict[int, UOp], dict[UOp, None]]:
    """The nodes of a result's tensors that are views of inputs, by the tensor's id, and the BUFFERs
    below: inputs, and what reads the bits of an input as another dtype.
    """
    views: dict[int, UOp] = {}
    memory: dict[UOp, None] = {}
    for x in tensors_of(result):
        stored = [node for node in x.uop.toposort() if node.op is Ops.BUFFER and node.is_realized]
        below = [n for n in stored if any((b.base or b) in replaced for b in _buffers(n))]
        if below:
            views[id(x)] = x.uop
            memory |= dict.fromkeys(below)
    return views, memory


def _with_views(result: Any, views: dict[int, UOp]) -> Any:
    """A captured result with the nodes of some tensors, by id, exchanged."""
    if isinstance(result, Tensor):
        view = views.get(id(result))
        return result if view is None else Tensor(view)
    if isinstance(result, (list, tuple)):
        new = [_with_views(x, views) for x in result]
        return type(result)(*new) if hasattr(result, "_fields") else type(result)(new)
    if isinstance(result, dict):
        return {name: _with_views(x, views) for name, x in result.items()}
    return result


@dataclass(frozen=True)
class RandomNumbers:
    """How far the sequence of random numbers was before a capture and after it, by device."""

    before: dict[Any, int]
    after: dict[Any, int]

    @property
    def devices(self) -> list[Any]:
        """The devices that drew."""
        return [d for d, end in self.after.items() if d is not None and self.before.get(d) != end]


class CapturedJit(Generic[R]):
    """What a capture holds: the items, the result, and how inputs are exchanged."""

    def __init__(
        self,
        result: R,
        items: list[ScheduleItem],
        inputs: Inputs,
        drawn: RandomNumbers,
        held: list[Held],
        overwritten: Overwritten,
    ) -> None:
        self.result = result
        self.overwritten = overwritten
        self.drawn = drawn
        self.jit_cache = items
        self.inputs = inputs
        groups = [[item] for item in items]
        self.uses = [_uses(groups, inputs)]
        self.native: NativeReplay | None = None
        if can_replay(items):
            groups = groups_of(single_messages(items))
            self.uses.append(_uses(groups, inputs))
            self.native = NativeReplay(groups, inputs)
        self.replaced = {b.base or b: i for i, b in enumerate(inputs.buffers)}
        self.views, self.viewed = _views_of_inputs(result, self.replaced)
        touched = {b.base or b for item in items for b in item.bufs}
        self.closure = Closure(held, touched, self.replaced)
        self.counted = Counted(items)

    def is_of(self, inputs: Inputs) -> bool:
        """Whether Python code would do what was captured: it sees the same Python values, and the
        tensors that it was not given are where they were.
        """
        return self.inputs.fixed == inputs.fixed and self.closure.is_unchanged()

    def __call__(self, inputs: Inputs) -> R:
        if inputs.signature != self.inputs.signature:
            raise JitError(difference(self.inputs.signature, inputs.signature))
        self.overwritten.realize_readers(inputs)
        self._keep_apart(inputs)
        realize_all(random_generator.align(self.drawn.devices))
        random_generator.replayed(self.drawn.before, self.drawn.after)
        if self.native is None or DEBUG >= 2:
            self._run_items(inputs)
        else:
            self.native.run(inputs)
            self.counted.ran()
        if not self.views:
            return self.result
        nodes = {node: self._anew(node, inputs) for node in self.viewed}
        nodes |= dict(zip(self.inputs.nodes, inputs.nodes, strict=True))
        views = {key: view.substitute(nodes) for key, view in self.views.items()}
        return cast(R, _with_views(self.result, views))

    def _anew(self, node: UOp, inputs: Inputs) -> UOp:
        """A BUFFER in captured inputs, in the same place of a call's."""
        found = (_exchanged(b, self.replaced, self.inputs, inputs) for b in _buffers(node))
        return bind_buffers(UOp.new_buffer(node.device, node.arg.shape, node.dtype), tuple(found))

    def _keep_apart(self, inputs: Inputs) -> None:
        """Copy inputs that are results of an earlier replay and would be overwritten while in
        use.
        """
        for i, buffer in enumerate(inputs.buffers):
            if all(uses.are_over(i, buffer) for uses in self.uses):
                continue
            if (buffer.base or buffer) in self.closure.buffers:
                raise JitError(
                    "an argument is in the memory of a tensor that the function writes without "
                    "being given it; pass a .clone()"
                )
            if i in self.uses[0].assigned:
                raise JitError("a result of the function is assigned to inside it; pass a .clone()")
            inputs.buffers[i] = Buffer(buffer.device, buffer.size, buffer.dtype)
            copy_buffer(inputs.buffers[i].ensure_allocated(), buffer)

    def _run_items(self, inputs: Inputs) -> None:
        for item in self.jit_cache:
            exchange(item, self.replaced, self.inputs, inputs).run()


@dataclass
class _Uses:
    """When captured items touch memory, by the number of their group.

    `first_write` is of memory that is no input, `last_use` of each input; `assigned` inputs are
    written.
    """

    first_write: dict[Buffer, int]
    last_use: list[int]
    assigned: set[int]

    def are_over(self, number: int, buffer: Buffer) -> bool:
        """Whether an input in this buffer is used no more when the buffer is written."""
        written = self.first_write.get(buffer.base or buffer)
        return written is None or written > self.last_use[number]


def _uses(groups: list[list[ScheduleItem]], inputs: Inputs) -> _Uses:
    numbers = {b.base or b: i for i, b in enumerate(inputs.buffers)}
    found = _Uses({}, [-1] * len(inputs.buffers), set())
    positions = ((n, item) for n, group in enumerate(groups) for item in group)
    for position, item in positions:
        written = {b.base or b for b in item.written}
        for root in {b.base or b for b in item.bufs}:
            if root in numbers:
                found.last_use[numbers[root]] = position
                found.assigned |= {numbers[root]} if root in written else set()
            elif root in written:
                found.first_write.setdefault(root, position)
    return found


def exchange(
    item: ScheduleItem, replaced: dict[Buffer, int], captured: Inputs, inputs: Inputs
) -> ScheduleItem:
    """An item with the captured inputs' buffers and values exchanged for a call's."""

    def new(buffer: Buffer) -> Buffer:
        return _exchanged(buffer, replaced, captured, inputs)

    if isinstance(item, BufferCopy):
        return BufferCopy(
            item.collective, item.number, tuple((new(d), new(s)) for d, s in item.pairs)
        )
    values = item.values | inputs.values
    return ExecItem(item.ast, tuple(new(b) for b in item.bufs), item.device, values, item.runner)


def _exchanged(
    buffer: Buffer, replaced: dict[Buffer, int], captured: Inputs, inputs: Inputs
) -> Buffer:
    number = replaced.get(buffer.base or buffer)
    if number is None:
        return buffer
    found = inputs.buffers[number]
    offset = buffer.offset - captured.buffers[number].offset
    if offset == 0 and (buffer.size, buffer.dtype) == (found.size, found.dtype):
        return found
    whole = found.base or found
    return whole.view(buffer.size, buffer.dtype, found.offset + offset)


def _method(fxn: Callable[..., R] | None, instance: weakref.ref[Any]) -> Callable[..., R]:
    """`fxn` with its first argument, which is not kept alive."""
    assert fxn is not None

    def call(*args: Any, **kwargs: Any) -> R:
        return fxn(instance(), *args, **kwargs)

    return functools.wraps(fxn)(call)


class TinyJit(Generic[P, R]):
    """Capture the kernels of `fxn` and replay them.

    The first call runs as it is, the second is captured, later ones replay: Python code inside
    `fxn` does not run again, and the returned tensors are the same objects, overwritten by each
    call (views of inputs are views of that call's). Inputs are the tensors and bound Variables
    among the arguments (in lists, tuples and dicts too); tensors are realized.

    A call with other Python values than the captured ones, under another `Tensor.training`, or
    after a weight was moved, split another way or exchanged, is captured anew: numbers and arrays
    count by value, other objects by identity. Where a number changes often, a bound Variable or a
    tensor keeps the one capture. What is assigned to a weight is seen by replays; a function that
    puts a new tensor in its place, `self.x = self.x + 1`, is captured anew by each call.

    `cnt` counts calls, `captured` is the capture or None, `captured.jit_cache` its items.

    Raises:
        JitError: tensors differ from the captured ones, one is passed twice, or is one that the
            function writes without being given it, nothing was captured, or the function calls
            `manual_seed`.

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
        # by what was captured last, even if it was of no use
        self.overwritten: Overwritten | None = None
        self._bound: dict[int, TinyJit[..., R]] = {}
        if fxn is not None:
            functools.update_wrapper(self, fxn)

    def __get__(self, instance: Any, owner: Any) -> TinyJit[..., R]:
        """A method's own capture for each object: two objects have tensors of their own."""
        if instance is None:
            return self
        key = id(instance)
        found = self._bound.get(key)
        if found is None:
            bound: TinyJit[..., R] = TinyJit(_method(self.fxn, weakref.ref(instance)))
            weakref.finalize(instance, self._bound.pop, key, None)
            found = self._bound[key] = bound
        return found

    def reset(self) -> None:
        """Forget the capture: the next call runs as the first one did.

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
        """The captured items; none before the second call.

        >>> TinyJit(lambda x: x + 1).jit_cache
        []
        """
        return self.captured.jit_cache if self.captured is not None else []

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.fxn is not None and (not JIT or capturing()):
            # a function called while another one is captured becomes a part of it
            return self._call(*args, **kwargs)
        inputs = find_inputs(args, kwargs)
        self.cnt += 1
        if self.captured is not None and self.captured.is_of(inputs):
            return self.captured(inputs)
        if self.cnt == 1:
            return self._call(*args, **kwargs)
        return self._capture(inputs, *args, **kwargs)

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert self.fxn is not None
        result = self.fxn(*args, **kwargs)
        realize_all(tensors_of(result))
        return result

    def _capture(self, inputs: Inputs, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.overwritten is not None:
            self.overwritten.realize_readers(inputs)
        capture, around = Capture(), Surroundings()
        realize_all(random_generator.align(random_generator.devices))
        before, seeds = random_generator.positions(), random_generator.seeds
        capturing().append(capture)
        try:
            result = self._call(*args, **kwargs)
            realize_all(random_generator.catch_up(before))
        finally:
            capturing().pop()
        if not capture.items:
            raise JitError(f"{self.fxn} ran no kernel, so there is nothing to capture")
        if random_generator.seeds != seeds:
            raise JitError("manual_seed was called inside a captured function; call it outside")
        drawn = RandomNumbers(before, random_generator.positions())
        written = {b.base or b for item in capture.items for b in item.written}
        overwritten = Overwritten(around.stored, written, inputs, tensors_of(result))
        self.captured, self.overwritten = None, overwritten
        if not around.were_computed():
            self.captured = CapturedJit(
                result, capture.items, inputs, drawn, around.stored, overwritten
            )
        return result
