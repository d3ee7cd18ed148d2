"""Graphs as text: `infix` for symbolic expressions, `tree` for all other nodes.

Input: a node or a list of nodes. Output: text for people and tests; nothing parses it. A node that
occurs again is shown by its number and op alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.node import Node

MAX_TREE_NODES = 400
"""Maximum number of nodes that `tree` prints."""

_INFIX = {
    Ops.ADD: "+",
    Ops.SUB: "-",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.IDIV: "//",
    Ops.MOD: "%",
    Ops.POW: "**",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.CMPEQ: "==",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
}


MAX_INFIX_CHARACTERS = 2000
"""Maximum length of a subexpression that `infix` prints."""


def infix(node: Node) -> str:
    """A symbolic expression as Python would write it, `(i0*4+i1)`; other nodes as `op(sources)`.

    Long subexpressions are printed as `...`, as text grows exponentially with shared nodes.
    """
    text: dict[Node, str] = {}
    for x in node.toposort():
        part = _infix_one(x, [text[s] for s in x.src])
        text[x] = part if len(part) <= MAX_INFIX_CHARACTERS else "..."
    return text[node]


def _infix_one(node: Node, parts: list[str]) -> str:
    op = node.op
    if op is Ops.CONST:
        return str(node.arg)
    if op is Ops.DEFINE_VAR:
        return str(node.arg[0])
    if op is Ops.BIND:
        return f"{parts[0]}[{parts[1]}]"
    if op is Ops.RANGE:
        return f"r{node.arg.index}"
    if op is Ops.SPECIAL:
        return str(node.arg[0] if isinstance(node.arg, tuple) else node.arg)
    if op is Ops.WHERE:
        return f"({parts[1]} if {parts[0]} else {parts[2]})"
    if op is Ops.NEG:
        return f"(-{parts[0]})"
    if op is Ops.CAST:
        return f"{node.dtype!r}({parts[0]})".removeprefix("dtypes.")
    if op in _INFIX:
        return f"({parts[0]}{_INFIX[op]}{parts[1]})"
    argument = [] if node.arg is None else [repr(node.arg)]
    return f"{op.name.lower()}({', '.join(parts + argument)})"


def tree(node: Node, limit: int = MAX_TREE_NODES) -> str:
    """The graph below `node`, one node a line, sources indented.

    A node with several uses has a number: it is printed in full once, and later as its number.
    Indices are printed beside what they index, `[(r0*4)+r1]`. At most `limit` nodes are printed;
    the last line says how many are not shown.
    """
    nodes = node.toposort()
    indices = _index_arithmetic(nodes)
    if node in indices:
        indices = set()
    uses = Counter(s for x in nodes if x not in indices for s in x.src)
    numbers: dict[Node, int] = {}
    lines: list[str] = []
    stack = [(node, 0)]
    while stack and len(lines) < limit:
        x, depth = stack.pop()
        indent = "  " * depth
        if x in numbers:
            lines.append(f"{indent}#{numbers[x]} {x.op.name}")
            continue
        label = ""
        if x.src and uses[x] > 1:
            numbers[x] = len(numbers)
            label = f"#{numbers[x]} "
        beside = "".join(f" [{_without_parentheses(s)}]" for s in x.src if s in indices)
        lines.append(f"{indent}{label}{_line(x)}{beside}")
        stack.extend((s, depth + 1) for s in reversed(x.src) if s not in indices)
    if stack:
        lines.append(f"... {len(nodes)} nodes in all, {len(nodes) - len(lines)} not shown")
    return "\n".join(lines)


def listing(nodes: Sequence[Node]) -> str:
    """A list of nodes, one a line: its number, op, dtype and argument, the numbers of its sources.

    Lines between a RANGE and its END are indented.
    """
    numbers = {node: i for i, node in enumerate(nodes)}
    lines: list[str] = []
    depth = 0
    for node in nodes:
        depth -= node.op in {Ops.END, Ops.ENDIF}
        sources = " ".join(str(numbers.get(x, "?")) for x in node.src)
        line = f"{numbers[node]:4d} {'  ' * depth}{_line(node)}"
        lines.append(f"{line} ({sources})" if sources else line)
        depth += node.op in {Ops.RANGE, Ops.IF}
    return "\n".join(lines)


_INDEX_LEAVES = frozenset({Ops.CONST, Ops.DEFINE_VAR, Ops.SPECIAL})


def _is_arithmetic(node: Node) -> bool:
    return node.op in _INFIX or node.op is Ops.WHERE


def _index_arithmetic(nodes: Iterable[Node]) -> set[Node]:
    """The nodes, of all below one, that compute an index, or a condition on one."""
    found: set[Node] = set()
    for x in nodes:
        if x.op in _INDEX_LEAVES:
            if x.dtype is dtypes.index:
                found.add(x)
        elif _is_arithmetic(x) and all(s in found or s.op is Ops.RANGE for s in x.src):
            found.add(x)
    return found


def _without_parentheses(node: Node) -> str:
    """An index as text; arithmetic is always within parentheses."""
    return infix(node)[1:-1] if _is_arithmetic(node) else infix(node)


def _line(node: Node) -> str:
    parts = [node.op.name]
    if node.dtype is not dtypes.void:
        parts.append(repr(node.dtype).removeprefix("dtypes."))
    if node.arg is not None:
        parts.append(node.arg.name if isinstance(node.arg, Ops) else str(node.arg))
    return " ".join(parts)
