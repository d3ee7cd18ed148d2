"""Rebuild graphs over other nodes, each node once for all roots.

Input: a root, the nodes above those to replace, and the replacements. Output: the root over the
replacements. Invariant: a rebuilt write is pending if the write was.
"""

from __future__ import annotations

from collections.abc import Collection

from tinygrad.storage.pending_writes import renote_write
from tinygrad.uop.ops import UOp


def rebuilt(root: UOp, changed: Collection[UOp], done: dict[UOp, UOp]) -> UOp:
    """`root` with the keys of `done` replaced. Only nodes in `changed` are above a key; their
    rebuilt forms are added to `done`.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        pending = [x for x in node.src if x in changed and x not in done]
        if pending:
            stack.extend(pending)
            continue
        stack.pop()
        done[node] = with_rebuilt_sources(node, done)
        renote_write(node, done[node])
    return done[root]


def with_rebuilt_sources(node: UOp, done: dict[UOp, UOp]) -> UOp:
    """`node` over its sources in `done`; others are unchanged."""
    return node.with_sources(tuple([done.get(x, x) for x in node.src]))
