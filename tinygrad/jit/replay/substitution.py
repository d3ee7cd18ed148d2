"""Substitution: the captured inputs of a function replaced by those of another call.

Input: captured items and nodes, the captured inputs, and the inputs of a call. Output: items and
nodes over that call's buffers, with the values of its Variables. Invariant: a view into a captured
input becomes the view at the same offset into the call's input.
"""

from __future__ import annotations

from typing import Any

from tinygrad.device import Buffer, MultiBuffer, RemoteBuffer
from tinygrad.execution.buffers import bind_buffers
from tinygrad.execution.realize import BufferCopy, ExecItem, ScheduleItem
from tinygrad.execution.versions import bases_of, is_same_memory
from tinygrad.jit.inputs import Inputs
from tinygrad.storage.content import Content
from tinygrad.uop import Ops
from tinygrad.uop.float_variables import value_of
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep


class Substitution:
    """The `inputs` of a call in the place of the `captured` ones."""

    def __init__(self, captured: Inputs, inputs: Inputs) -> None:
        self._captured = captured
        self._inputs = inputs
        self._numbers = captured.numbers
        self._done: dict[UOp, UOp] = {}

    def item(self, item: ScheduleItem) -> ScheduleItem:
        """An item over the call's buffers, with the call's values of Variables."""
        if isinstance(item, BufferCopy):
            pairs = tuple((self._buffer(d), self._buffer(s)) for d, s in item.pairs)
            remote = tuple(m._replace(buffer=self._buffer(m.buffer)) for m in item.remote)
            return BufferCopy(item.collective, item.number, pairs, remote, item.reduction)
        values = item.values | self._inputs.values
        bufs = tuple(self._buffer(b) for b in item.bufs)
        # memory that the captured kernel cannot access needs another one
        runner = item.runner if item.runner is not None and item.runner.accepts(bufs) else None
        return ExecItem(item.ast, bufs, item.device, values, runner, item.peers)

    def node(self, root: UOp) -> UOp:
        """A node with the sizes of the call."""
        done = self._done
        for node in root.toposort(gate=lambda node: node not in done):
            if node not in done:
                done[node] = self._rebuilt(node, tuple(done[x] for x in node.src))
        return done[root]

    def content(self, found: Content) -> Content:
        """What is in memory, with the call's memory and sizes."""
        if self._inputs is self._captured or not self.changes(found):
            return found
        new = Content.__new__(Content)
        new.like, new.named = self.node(found.like), found.named
        new.memory = {self._done[x]: self._memory(x, found) for x in found.memory}
        return new

    def steps(self, steps: tuple[ViewStep, ...]) -> tuple[ViewStep, ...]:
        """The steps to a view, with the sizes of the call."""
        return tuple([(op, self._sizes(arg)) for op, arg in steps]) if steps else steps

    def changes(self, found: Content) -> bool:
        """Whether a value is in the memory of an input, or has a size that depends on a Variable of
        the call.
        """
        return self.reads_input(found) or any(map(self._is_symbolic, found.like.toposort()))

    def reads_input(self, found: Content) -> bool:
        """Whether a value is in the memory of an input."""
        return any(self._is_input(memory, tokens) for memory, tokens in found.memory.values())

    def _rebuilt(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        if node.op is Ops.BUFFER:
            if not self._is_symbolic(node):
                return node
            return UOp.new_buffer(node.device, self._sizes(node.arg.shape), node.dtype)
        if node.op is Ops.BIND:
            return self._bound(node)
        return node.replace(src=src, arg=self._sizes(node.arg))

    def _memory(self, like: UOp, found: Content) -> tuple[Any, tuple[RemoteBuffer, ...]]:
        """The memory of the call in the place of that of a BUFFER."""
        memory, tokens = found.memory[like]
        if not self._is_input(memory, tokens):
            return memory, tokens
        for i, x in enumerate(self._captured.memories):
            if is_same_memory(memory, x.memory) and self._captured.is_whole(i):
                given = self._inputs.memories[i]
                return given.memory, given.tokens
        parts = memory.bufs if isinstance(memory, MultiBuffer) else (memory,)
        new = bind_buffers(
            UOp.new_buffer(like.arg.device, like.arg.shape, like.dtype),
            [self._buffer(b) for b in parts if not isinstance(b, RemoteBuffer)],
        )
        return new.memory, self._tokens(tokens)

    def _is_input(self, memory: Any, tokens: tuple[RemoteBuffer, ...]) -> bool:
        if any(b in self._numbers for b in bases_of(memory)):
            return True
        known = self._captured.tokens
        return bool(known) and not known.isdisjoint(tokens)

    def _tokens(self, tokens: tuple[RemoteBuffer, ...]) -> tuple[RemoteBuffer, ...]:
        """What stands for memory over the call's buffers."""
        pairs = zip(self._captured.memories, self._inputs.memories, strict=True)
        moved = {token: new.tokens for old, new in pairs for token in old.tokens}
        found = [x for token in tokens for x in moved.get(token, (token,))]
        return tuple(dict.fromkeys(found))

    def _is_symbolic(self, node: UOp) -> bool:
        if node.op is Ops.BIND:
            return node.unbind()[0].arg[0] in self._captured.values
        arg = node.arg.shape if node.op is Ops.BUFFER else node.arg
        return any(map(self._is_symbolic, _bindings(arg)))

    def _sizes(self, arg: Any) -> Any:
        """The argument of a node with the call's values of Variables; `arg` if it has none."""
        if isinstance(arg, tuple):
            new = tuple(self._sizes(x) for x in arg)
            return arg if all(a is b for a, b in zip(arg, new, strict=True)) else new
        if isinstance(arg, UOp):
            return arg.substitute({node: self._bound(node) for node in _bindings(arg)})
        return arg

    def _bound(self, node: UOp) -> UOp:
        variable, _ = node.unbind()
        argument = self._inputs.values.get(variable.arg[0])
        return node if argument is None else variable.bind(value_of(variable, argument))

    def _buffer(self, buffer: Buffer) -> Buffer:
        number = self._numbers.get(buffer.base or buffer)
        if number is None:
            return buffer
        found = self._inputs.buffers[number]
        offset = buffer.offset - self._captured.buffers[number].offset
        if offset == 0 and (buffer.size, buffer.dtype) == (found.size, found.dtype):
            return found
        whole = found.base or found
        return whole.view(buffer.size, buffer.dtype, found.offset + offset)


def _bindings(arg: Any) -> list[UOp]:
    """The bound Variables in the argument of a node."""
    if isinstance(arg, tuple):
        return [node for x in arg for node in _bindings(x)]
    return [node for node in arg.toposort() if node.op is Ops.BIND] if isinstance(arg, UOp) else []
