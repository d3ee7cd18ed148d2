"""Which computed values keep a history, and the content of written memory as a node.

Input: nodes that were just computed, and where they are stored. Output: for each, what becomes of
its history; for memory that was written, its content as a node over the older content.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tinygrad.dtype import dtypes
from tinygrad.fast_enum import Enum, auto
from tinygrad.storage.gradients.grad_mode import Derived, GradState, Leaf
from tinygrad.storage.views import selected_shard, view_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep, update_view

IN_PLACE = frozenset({Ops.ASSIGN, Ops.CUSTOM_KERNEL})
_FOUND_IN_PLACE = frozenset(
    {*(Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD), *(Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP)}
)


class Keep(Enum):
    """What becomes of the history of a value."""

    ALWAYS = auto()
    """It is kept until `backward()` went through it."""
    BOUNDED = auto()
    """It is undecided, and kept within limits."""
    RELEASED = auto()
    """`backward()` went through it before it was stored."""
    NEVER = auto()
    """No gradient goes through it."""
    CUT = auto()
    """It is unknown."""


def keep_of(key: UOp, states: list[GradState] | None) -> Keep:
    """What becomes of the history of a node that tensors of these states refer to."""
    if not dtypes.is_float(key.dtype):
        return Keep.NEVER
    if not states:
        # only values above it refer to it
        return Keep.BOUNDED if key.op in IN_PLACE else Keep.NEVER
    found = Keep.NEVER
    for x in states:
        if x is None or x is Derived.ASSIGNED:
            if found is not Keep.ALWAYS:
                found = Keep.BOUNDED
        elif x is True:
            found = Keep.ALWAYS
        elif isinstance(x, Leaf):
            return Keep.NEVER
        elif x is Derived.DIFFERENTIATED and found is Keep.NEVER:
            found = Keep.RELEASED
    return found


def is_detached(path: list[UOp]) -> bool:
    """Whether no gradient goes along a path of nodes."""
    return Ops.DETACH in [node.op for node in path]


def is_moved(key: UOp, place: UOp) -> bool:
    """Whether a value was computed into `place`, and not found there."""
    while key.op in _FOUND_IN_PLACE:
        key = key.src[0]
    return key is not place and key.op not in IN_PLACE


def floats_below(nodes: tuple[UOp, ...]) -> dict[UOp, None]:
    """The float nodes that a gradient of `nodes` may go through, down to stored values."""
    found: dict[UOp, None] = {}
    stack = [*nodes]
    is_float, detach = dtypes.is_float, Ops.DETACH
    for node in stack:
        if node not in found and is_float(node.dtype):
            found[node] = None
            if node.src and node.op is not detach:
                stack += node.src
    return found


def contents_of(
    writes: list[UOp],
    table: dict[UOp, UOp],
    kept: Collection[UOp],
    stores: Mapping[UOp, UOp],
) -> tuple[dict[UOp, tuple[UOp, UOp | None]], dict[UOp, UOp]]:
    """For each BUFFER that was written, the last write, and its content as a node over the older
    content, None if that is unknown or the write not `kept`; and the writes that others followed,
    with their values. `stores` are the BUFFERs of older content, with those of the new content.
    """
    before = {new: old for old, new in stores.items()}
    covered = {node.src[1] for node in writes if _follows_directly(node)}
    by_memory: dict[UOp, list[UOp]] = {}
    for node in writes:
        memory = view_base(table[node])
        if node not in covered and memory.op is Ops.BUFFER:
            by_memory.setdefault(memory, []).append(node)
    contents: dict[UOp, tuple[UOp, UOp | None]] = {}
    older: dict[UOp, UOp] = {}
    for memory, nodes in by_memory.items():
        *earlier, last = sorted(nodes, key=lambda node: node.arg if node.op is Ops.ASSIGN else -1)
        older |= {node: node.src[1] for node in earlier if node.op is Ops.ASSIGN}
        value = last.src[1] if last.op is Ops.ASSIGN else last
        view = table[last]
        if view is memory:
            contents[memory] = last, value
        elif earlier or last not in kept or selected_shard(view) is not None:
            contents[memory] = last, None
        else:
            old = before.get(memory, memory)
            contents[memory] = last, update_view(old, _steps_to(view), value)
    # a kernel's value is no longer in the memory that another write followed into
    older |= {value: value for value in older.values() if value.op is Ops.CUSTOM_KERNEL}
    return contents, older


def _follows_directly(write: UOp) -> bool:
    """Whether the value of a write is that of another write to the same memory."""
    if write.op is not Ops.ASSIGN or write.src[1].op is not Ops.ASSIGN:
        return False
    return view_base(write.src[0]) is view_base(write.src[1].src[0])


def _steps_to(view: UOp) -> list[ViewStep]:
    """The steps from a BUFFER to a view of it."""
    steps: list[ViewStep] = []
    while view.op is not Ops.BUFFER:
        if view.op is not Ops.CONTIGUOUS_BACKWARD:
            steps.append((view.op, view.dtype if view.op is Ops.BITCAST else view.arg))
        view = view.src[0]
    return steps[::-1]
