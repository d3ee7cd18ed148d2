"""Rebuild graphs over other nodes, each node once for all roots.

Input: a root, the nodes above those to replace, and the replacements. Output: the root over the
replacements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from tinygrad.storage.views import view_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def rebuilt(
    root: UOp,
    changed: Collection[UOp],
    done: dict[UOp, UOp],
    overwritten: Mapping[UOp, tuple[UOp, int]] = MappingProxyType({}),
) -> UOp:
    """`root` with the keys of `done` replaced. Only nodes in `changed` are above a key; their
    rebuilt forms are added to `done`.

    `overwritten` has BUFFERs whose memory gets another content, with the BUFFER of that and the
    number of the ASSIGN that writes it. An earlier ASSIGN is the value that it would have written
    from then on, and a later one writes the new BUFFER.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        is_write = node.op is Ops.ASSIGN and view_base(node.src[0]) in overwritten
        sources = node.src[1:] if is_write else node.src
        pending = [x for x in sources if x in changed and x not in done]
        if pending:
            stack.extend(pending)
            continue
        stack.pop()
        if is_write:
            target, value = node.src[0], done.get(node.src[1], node.src[1])
            memory = view_base(target)
            new, number = overwritten[memory]
            done[node] = (
                value
                if node.arg <= number
                else node.with_sources((target.substitute({memory: new}), value))
            )
        else:
            done[node] = with_rebuilt_sources(node, done)
    return done[root]


def with_rebuilt_sources(node: UOp, done: dict[UOp, UOp]) -> UOp:
    """`node` over its sources in `done`; others are unchanged."""
    return node.with_sources(tuple([done.get(x, x) for x in node.src]))
