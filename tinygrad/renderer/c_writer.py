"""The text of one C function while it is written: names of values, statements, open blocks.

A value that one statement of the same block uses is written there; any other gets a name.
"""

from __future__ import annotations

from collections import Counter

from tinygrad.renderer.c_types import mask_type
from tinygrad.renderer.c_vectors import VectorLibrary
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

LOOP_NAMES = {
    AxisType.GLOBAL: "item",
    AxisType.LOCAL: "thread",
    AxisType.LOOP: "i",
    AxisType.REDUCE: "k",
    AxisType.TILE: "t",
    AxisType.VECTOR: "lane",
}
# what has no effect and depends on nothing but its sources may be written where it is used
_MOVABLE = GroupOp.ALU | {Ops.CAST, Ops.BITCAST, Ops.GEP, Ops.VECTORIZE, Ops.REDUCE}
_LONGEST_INLINE = 60


class CWriter:
    """Collects statements. `names` has the text that stands for each node so far."""

    def __init__(
        self, linear: list[UOp], vectors: VectorLibrary, functions: dict[Ops, str]
    ) -> None:
        self.vectors = vectors
        # what the dialect has as functions of float64; those of float32 end in f
        self.functions = functions
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.depth = 1
        self.count = 0
        # the element size of what a mask was compared from: masks are as wide as that
        self.mask_bytes: dict[UOp, int] = {}
        self.grid_loops = sum(u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL for u in linear)
        self._uses = Counter(x for u in linear for x in u.src)
        self._inline = _used_once_in_the_same_block(linear, self._uses)

    @property
    def body(self) -> str:
        """The statements so far."""
        return "".join(f"{line}\n" for line in self.lines)

    def say(self, text: str) -> None:
        """A line of the body."""
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        """The head of a block."""
        self.say(f"{text} {{")
        self.depth += 1

    def close(self) -> None:
        """The end of the innermost block."""
        self.depth -= 1
        self.say("}")

    def set(self, node: UOp, kind: str, text: str) -> None:
        """Give `node` a value of the C type `kind`."""
        if node in self._inline and len(text) <= _LONGEST_INLINE:
            self.names[node] = text
            return
        self.names[node] = f"v{self.count}"
        self.count += 1
        self.say(f"{kind} {self.names[node]} = {unwrapped(text)};")

    def mask(self, node: UOp, itemsize: int) -> str:
        """A vector of bools as a mask for elements of `itemsize` bytes."""
        count = node.dtype.count
        source = mask_type(count, self.mask_bytes[node])
        return self.vectors.convert(source, mask_type(count, itemsize), self.names[node])


def _used_once_in_the_same_block(linear: list[UOp], uses: Counter[UOp]) -> set[UOp]:
    """The nodes that may be written where they are used."""
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
            if uses[x] == 1 and x.op in _MOVABLE and block_of.get(x, u) is blocks[-1]:
                found.add(x)
    return found


def unwrapped(text: str) -> str:
    """An expression without the parentheses around the whole of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
