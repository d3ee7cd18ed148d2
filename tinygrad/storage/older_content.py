"""Older content: lazy values that cannot be computed before their memory is overwritten.

Input: such values. Output: the same values over copies of the memory, so that the assignment can
run; if it ran already, lost values, whose use is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tinygrad.device import Allocation, Buffer, DeviceError
from tinygrad.execution.buffers import bind_buffers, device_buffers
from tinygrad.storage.views import view_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def overwritten_below(nodes: Sequence[UOp]) -> set[UOp]:
    """The BUFFERs that pending writes below `nodes` overwrite."""
    return {_target(node) for node in UOp.sink(*nodes).toposort() if node.op is Ops.ASSIGN}


def memory_read_by(nodes: Sequence[UOp]) -> set[UOp]:
    """The BUFFERs that `nodes` read other than through an assignment."""
    below = UOp.sink(*nodes).toposort(gate=lambda node: node.op is not Ops.ASSIGN)
    return {node for node in below if node.op is Ops.BUFFER}


def over_copies(nodes: Sequence[UOp], copies: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """`nodes`, and the values that they are computed from, with BUFFERs replaced by `copies`.

    Left out are views of these BUFFERs, which see the new content, and assignments.
    """
    done = dict(copies)
    for node in UOp.sink(*nodes).toposort(gate=lambda node: node.op is not Ops.ASSIGN):
        if node.op not in {Ops.ASSIGN, Ops.SINK} and not done.keys().isdisjoint(node.src):
            done[node] = node.with_sources(tuple([done.get(x, x) for x in node.src]))
    return {node: new for node, new in done.items() if view_base(node) not in copies}


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
            "interrupted, and a tensor that it reads was assigned to meanwhile; build it again"
        )


def lost_value(node: UOp) -> UOp:
    """A BUFFER in the place of a value that can no longer be computed. Its use is an error."""
    new = UOp.new_buffer(node.device, cast(tuple[int, ...], node.shape), node.dtype)
    parts = [_LostBuffer(b.device, b.size, b.dtype) for b in device_buffers(new)]
    return bind_buffers(new, parts)


def _target(node: UOp) -> UOp:
    """The BUFFER that an ASSIGN writes."""
    while node.op is not Ops.BUFFER and node.src:
        node = node.src[0]
    return node
