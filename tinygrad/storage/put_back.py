"""Put back: what a schedule that failed or was interrupted leaves behind.

Before a schedule overwrites memory, every tensor refers to what it is about to compute, so that
nobody reads the older content. Input: the schedule, before it runs; the items that did not run.
Output: tensors over what ran, and lazy again where nothing ran. Invariant: no write runs twice.
What can no longer be computed is lost, and its use is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from tinygrad.device import Allocation, Buffer, DeviceError
from tinygrad.dtype import DType
from tinygrad.execution.buffers import (
    bind_buffers,
    device_buffers,
    name_content,
    release_memory,
    tokens_of,
)
from tinygrad.execution.realize import ScheduleItem
from tinygrad.execution.schedule import Schedule
from tinygrad.execution.versions import bases_of
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.rebuild import rebuilt
from tinygrad.storage.views import view_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class _Step(NamedTuple):
    """A node to build again. Sources are numbers of earlier steps, or nodes that stay."""

    op: Ops
    dtype: DType
    src: tuple[int | UOp, ...]
    arg: Any
    user_line: Any


class _Memory(NamedTuple):
    """Memory that is overwritten, instead of the BUFFER of its older content."""

    memory: Any
    arg: Any
    dtype: DType
    tokens: tuple[Any, ...]


class PutBack:
    """How to compute the outputs of a schedule again, without the nodes of what it overwrites."""

    def __init__(self, schedule: Schedule) -> None:
        self._steps: list[_Step | _Memory] = []
        # for each output, the number of its step or a node that reads nothing that is overwritten
        self._roots: list[int | UOp]
        self._memory: list[_Memory] = []
        numbers: dict[UOp, int] = {}
        for store in schedule.stores:
            old = store.old
            found = _Memory(old.memory, old.arg, old.dtype, tokens_of(old))
            numbers[old] = len(self._steps)
            self._steps.append(found)
            self._memory.append(found)
        roots = [*schedule.outputs]
        for node in (roots[0] if len(roots) == 1 else UOp.sink(*roots)).toposort():
            if not node.src or numbers.keys().isdisjoint(node.src):
                continue
            src = tuple([numbers.get(x, x) for x in node.src])
            numbers[node] = len(self._steps)
            self._steps.append(_Step(node.op, node.dtype, src, node.arg, node.user_line))
        self._roots = [numbers.get(root, root) for root in roots]

    def put_back(
        self,
        completed: Sequence[ScheduleItem],
        missing: Sequence[ScheduleItem],
        outputs: Sequence[UOp],
        stored: Sequence[UOp],
    ) -> None:
        """Let tensors refer to `outputs`, the nodes of the results, and to `stored`, those of the
        overwritten memory, as far as they are complete.
        """
        ran, unrun = _written_by(completed), _written_by(missing)

        def is_complete(node: UOp) -> bool:
            return node.memory is not None and unrun.isdisjoint(
                b.base or b for b in device_buffers(node)
            )

        intact: dict[int, UOp] = {}
        for number, (node, found) in enumerate(zip(stored, self._memory, strict=True)):
            if not is_complete(node) and ran.isdisjoint(bases_of(found.memory)):
                release_memory(node)
                intact[number] = name_content(*found)
        built: dict[int, UOp | None] = dict(intact)
        for root, place in zip(self._roots, outputs, strict=True):
            if isinstance(root, int) and is_complete(view_base(place)):
                built[root] = place
        table: dict[UOp, UOp] = {}
        for root, place in zip(self._roots, outputs, strict=True):
            if place not in table and not is_complete(view_base(place)):
                known = self._built(root, built)
                table[place] = _lost_value(place) if known is None else known
        for number, node in enumerate(stored):
            if node not in table and not is_complete(node):
                table[node] = intact[number] if number in intact else _lost_value(node)
        _replace(table)

    def _built(self, root: int | UOp, done: dict[int, UOp | None]) -> UOp | None:
        """A node, built again; None if it reads what was overwritten."""
        if isinstance(root, UOp):
            return root
        stack = [root]
        while stack:
            number = stack[-1]
            step = self._steps[number]
            if number in done:
                stack.pop()
                continue
            if isinstance(step, _Memory):
                done[number] = None
                continue
            pending = [x for x in step.src if isinstance(x, int) and x not in done]
            if pending:
                stack += pending
                continue
            src = [x if isinstance(x, UOp) else done[x] for x in step.src]
            known = [x for x in src if x is not None]
            new = None
            if len(known) == len(src):
                new = UOp(step.op, step.dtype, tuple(known), step.arg)
                new.user_line = step.user_line
            done[number] = new
        return done[root]


def _written_by(items: Sequence[ScheduleItem]) -> set[Buffer]:
    return {b.base or b for item in items for b in item.written}


def _replace(table: dict[UOp, UOp]) -> None:
    """Let all tensors, and the histories of others, read the values of `table` for its keys."""
    done = dict(table)
    holders: dict[Any, None] = {}
    for x in live_tensors:
        holders[x] = None
        if x._cell is not None:
            holders[x._cell] = None
    for holder in holders:
        node = holder._node
        if node is None:
            continue
        new = done[node] if node in done else rebuilt(node, node.toposort(), done)
        if new is not node:
            holder.uop = new
            if isinstance(holder, TensorBase):
                live_tensors.changed(holder)
    histories.replaced(table)


class _LostBuffer(Buffer):
    """The memory of a lost value."""

    __slots__ = ()

    def is_allocated(self) -> bool:
        return True

    @property
    def allocation(self) -> Allocation:
        """Raises DeviceError."""
        raise DeviceError(
            f"a value of {self.size} elements on {self.device} is lost: computing it failed or was "
            "interrupted, and memory that it reads was overwritten meanwhile; build it again"
        )


def _lost_value(node: UOp) -> UOp:
    """A BUFFER in the place of a value that can no longer be computed. Its use is an error."""
    new = UOp.new_buffer(node.device, cast(tuple[int, ...], node.shape), node.dtype)
    parts = [_LostBuffer(b.device, b.size, b.dtype) for b in device_buffers(new)]
    return bind_buffers(new, parts)
