"""Versions: a BUFFER node is one content of some memory.

Input: BUFFER nodes as they get memory. Output: the nodes whose content is in some memory.
Invariant: memory knows its nodes by weak references alone. A node that can be reached is alive, so
it is found; and what is not found can be read by nobody.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tinygrad.device import Buffer, MultiBuffer
from tinygrad.uop.ops import UOp

Memory: TypeAlias = Buffer | MultiBuffer
"""What a BUFFER node is bound to. It is the identity of memory, whatever node has it."""
Base: TypeAlias = Buffer | MultiBuffer
"""Memory that is no view of other memory: a buffer, or a `MultiBuffer` without local devices."""

_changes = threading.Lock()


def bases_of(memory: Memory) -> Sequence[Base]:
    """The memory that some memory is part of, on each local device."""
    if isinstance(memory, MultiBuffer):
        return [b.base or b for b in memory.bufs] or [memory]
    return [memory.base or memory]


def is_same_memory(a: Memory, b: Memory) -> bool:
    """Whether two objects are the same memory."""
    if isinstance(a, MultiBuffer) and isinstance(b, MultiBuffer):
        return a is b or (bool(a.bufs) and a.bufs == b.bufs)
    return a is b


def owner_of(memory: Memory) -> Any:
    """What alone writes some memory in place, if it lives."""
    owner = bases_of(memory)[0].owner
    return None if owner is None else owner()


def set_owner(memory: Memory, tokens: Iterable[Base], owner: Any) -> None:
    """Let something own memory, which has these tokens; None if nothing does."""
    ref = None if owner is None else weakref.ref(owner)
    for base in (bases_of(memory)[0], *tokens):
        base.owner = ref


def note_version(node: UOp, memory: Iterable[Base] | None = None) -> None:
    """Note that the content of a BUFFER node is in its memory, or has these tokens."""
    ref: weakref.ref[Any] = weakref.ref(node)
    for base in bases_of(node.memory) if memory is None else memory:
        with _changes:
            known = base.versions
            base.versions = [*(r for r in known if r() is not None), ref] if known else [ref]


def versions_in(memory: Iterable[Base]) -> list[UOp]:
    """The BUFFER nodes that live and whose content is in some of this memory."""
    found: dict[UOp, None] = {}
    for base in memory:
        known = base.versions
        if known:
            found.update((node, None) for ref in known if (node := ref()) is not None)
    return list(found)


def named_among(memory: Iterable[Base]) -> list[Base]:
    """The memory among `memory` whose content somebody has asked for and may still read."""
    found: list[Base] = []
    for base in memory:
        if base.versions:
            if any(ref() is not None for ref in base.versions):
                found.append(base)
            else:
                base.versions = None
    return found


def is_unread(base: Base) -> bool:
    """Whether no node, no cell and no code outside can read or write some memory."""
    return not (owner_of(base) is not None or base.outside or named_among([base]))


def forget_version(node: UOp, tokens: Iterable[Base] = ()) -> None:
    """Note that the content of a BUFFER node is no longer in its memory, which has these tokens."""
    for base in (*bases_of(node.memory), *tokens):
        with _changes:
            base.versions = [r for r in base.versions or () if r() not in (None, node)]
