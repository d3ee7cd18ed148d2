"""The text of one C function under construction: statements, names of values, open blocks.

A value with one use, in the same block, is inlined there. Every other value is a variable.
"""

from __future__ import annotations

from collections import Counter

from tinygrad.renderer.cstyle.helpers import HelperLibrary
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

# pure ops, which may be inlined at their use
_PURE = GroupOp.ALU | {Ops.CAST, Ops.BITCAST, Ops.GEP, Ops.VECTORIZE, Ops.REDUCE}
_MAX_INLINE_CHARACTERS = 60


class CWriter:
    """Collects statements. `names` holds the expression of every node written so far."""

    def __init__(self, linear: list[UOp], library: HelperLibrary) -> None:
        self.library = library
        self.dialect = library.dialect
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.depth = 1
        self.count = 0
        self.grid_loops = sum(u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL for u in linear)
        self._uses = Counter(x for u in linear for x in u.src)
        self._inline = _used_once_in_the_same_block(linear, self._uses)

    @property
    def body(self) -> str:
        """The statements written so far."""
        return "".join(f"{line}\n" for line in self.lines)

    def emit(self, text: str) -> None:
        """Append a statement."""
        self.lines.append("  " * self.depth + text)

    def open_block(self, text: str) -> None:
        """Open a block."""
        self.emit(f"{text} {{")
        self.depth += 1

    def close_block(self) -> None:
        """Close the innermost block."""
        self.depth -= 1
        self.emit("}")

    def assign(self, node: UOp, kind: str, text: str) -> None:
        """Name the value of `node`, of C type `kind`: a new variable, or the expression inlined."""
        if node in self._inline and len(text) <= _MAX_INLINE_CHARACTERS:
            self.names[node] = text
            return
        self.declare(node, kind, unwrapped(text))

    def declare(self, node: UOp, kind: str, text: str) -> None:
        """Name the value of `node`, of C type `kind`, with a new variable."""
        name = self.names[node] = f"v{self.count}"
        self.count += 1
        self.emit(f"{kind} {name} = {text};")


def _used_once_in_the_same_block(linear: list[UOp], uses: Counter[UOp]) -> set[UOp]:
    """The pure nodes with one use, in the block that defines them."""
    block_of: dict[UOp, UOp | None] = {}
    blocks: list[UOp | None] = [None]
    found: set[UOp] = set()
    for u in linear:
        if u.op in {Ops.RANGE, Ops.IF}:
            blocks.append(u)
        elif u.op in {Ops.END, Ops.ENDIF}:
            blocks.pop()
        block_of[u] = blocks[-1]
        for x in u.src:
            if uses[x] == 1 and x.op in _PURE and block_of.get(x, u) is blocks[-1]:
                found.add(x)
    return found


def unwrapped(text: str) -> str:
    """An expression without its outermost parentheses."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
