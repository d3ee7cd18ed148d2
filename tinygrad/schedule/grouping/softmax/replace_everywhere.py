"""Replacement of nodes that goes on below the replacements.

Input: a graph, and a table of nodes. Output: the graph on the replacements, which may contain other
keys of the table below them, but no cycle.
"""

from __future__ import annotations

from tinygrad.uop.ops import UOp


def replace_everywhere(sink: UOp, table: dict[UOp, UOp]) -> UOp:
    """The graph with every key of `table` replaced, inside replacements too. For example, the
    replacement of one layer's gradient contains that of the next, which must stay one node.
    """
    done: dict[UOp, UOp] = {}
    opened: set[UOp] = set()
    stack = [sink]
    while stack:
        node = stack[-1]
        below = (table[node],) if node in table else node.src
        if node not in opened:
            opened.add(node)
            stack.extend(x for x in below if x not in done)
            continue
        stack.pop()
        if node not in done:
            found = tuple([done[x] for x in below])
            if node in table:
                done[node] = found[0]
            else:
                done[node] = node.with_sources(found)
                done[node].take_shape(node)
    return done[sink]
