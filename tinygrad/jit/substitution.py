"""Substitution: the captured inputs of a function replaced by those of another call.

Input: captured items and results, the captured inputs, and the inputs of a call. Output: items over
that call's buffers, and results that are views of them. Invariant: a view into a captured input
becomes the view at the same offset into the call's input.
"""

from __future__ import annotations

from typing import Any

from tinygrad.device import Buffer
from tinygrad.execution.buffers import bind_buffers, device_buffers
from tinygrad.execution.realize import BufferCopy, ExecItem, ScheduleItem
from tinygrad.jit.inputs import Inputs, tensors_in
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Substitution:
    """The `inputs` of a call in the place of the `captured` ones."""

    def __init__(self, captured: Inputs, inputs: Inputs) -> None:
        self._captured = captured
        self._inputs = inputs
        self._numbers = captured.numbers

    def item(self, item: ScheduleItem) -> ScheduleItem:
        """An item over the call's buffers, with the call's values of Variables."""
        if isinstance(item, BufferCopy):
            pairs = tuple((self._buffer(d), self._buffer(s)) for d, s in item.pairs)
            return BufferCopy(item.collective, item.number, pairs)
        values = item.values | self._inputs.values
        bufs = tuple(self._buffer(b) for b in item.bufs)
        return ExecItem(item.ast, bufs, item.device, values, item.runner)

    def buffer_node(self, node: UOp) -> UOp:
        """A BUFFER over the call's buffers, for one over captured buffers."""
        parts = [self._buffer(b) for b in device_buffers(node)]
        return bind_buffers(UOp.new_buffer(node.device, node.arg.shape, node.dtype), parts)

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


def views_of_inputs(
    result: Any, input_numbers: dict[Buffer, int]
) -> tuple[dict[int, UOp], dict[UOp, None]]:
    """The nodes of those tensors in a result that are views of inputs, by the tensor's id, and the
    BUFFERs below them: inputs, and buffers that read the bits of an input as another dtype.
    """
    views: dict[int, UOp] = {}
    memory: dict[UOp, None] = {}
    for x in tensors_in(result):
        stored = [node for node in x.uop.toposort() if node.op is Ops.BUFFER and node.is_realized]
        roots = {node: {b.base or b for b in device_buffers(node)} for node in stored}
        below = [node for node in stored if not roots[node].isdisjoint(input_numbers)]
        if below:
            views[id(x)] = x.uop
            memory |= dict.fromkeys(below)
    return views, memory


def replace_tensors(result: Any, nodes: dict[int, UOp]) -> Any:
    """A result in which the tensors with these ids are new tensors of these nodes."""
    if isinstance(result, Tensor):
        node = nodes.get(id(result))
        return result if node is None else Tensor(node)
    if isinstance(result, (list, tuple)):
        new = [replace_tensors(x, nodes) for x in result]
        return type(result)(*new) if hasattr(result, "_fields") else type(result)(new)
    if isinstance(result, dict):
        return {name: replace_tensors(x, nodes) for name, x in result.items()}
    return result
