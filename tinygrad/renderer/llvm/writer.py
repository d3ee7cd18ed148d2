"""The text of one LLVM module under construction: instructions, blocks, loops, constants.

Input: instructions in order. Output: the text of the module. Invariant: a node has one operand,
known from when it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.base import LOOP_NAMES, is_vectorized
from tinygrad.renderer.llvm.types import value_type
from tinygrad.renderer.target import Target
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# metadata nodes of every module
UNROLL_FULLY, NO_UNROLL, NO_VECTORIZE = "!0", "!1", "!2"
FIRST_LOOP_TAG = 3
MAX_SHORT_LOOP = 8


@dataclass
class OpenLoop:
    """The labels, counter and bound of a loop whose body is being written."""

    head: str
    latch: str
    after: str
    counter: str
    end: str


@dataclass
class Writer:
    """Collects the text of a module. `names` holds the operand of every node written so far."""

    linear: list[UOp]
    target: Target
    lines: list[str] = field(default_factory=list)
    names: dict[UOp, str] = field(default_factory=dict)
    entry: list[str] = field(default_factory=list)
    declarations: dict[str, None] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    loop_tags: list[str] = field(default_factory=list)
    loops: dict[UOp, OpenLoop] = field(default_factory=dict)
    branches: dict[UOp, str] = field(default_factory=dict)
    tiles: dict[UOp, str] = field(default_factory=dict)
    """The tile registers that hold a node besides its vector."""
    count: int = 0

    def __post_init__(self) -> None:
        self.is_vectorized = is_vectorized(self.linear)
        self.innermost = innermost_loops(self.linear)
        self.grid_loops = sum(
            u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL for u in self.linear
        )

    def assign(self, text: str) -> str:
        """Append an instruction; returns the name of its result."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def emit(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def new_label(self, prefix: str) -> str:
        """A new label of a basic block."""
        self.count += 1
        return f"{prefix}{self.count}"

    def start_block(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")

    def operand(self, node: UOp) -> str:
        """A node as a typed operand."""
        return f"{value_type(node.dtype)} {self.names[node]}"

    def declare(self, result: str, name: str, kinds: tuple[str, ...]) -> None:
        """Declare a function that the module calls."""
        self.declarations[f"declare {result} @{name}({', '.join(kinds)})"] = None

    def call(self, dtype: DType, name: str, *arguments: tuple[str, str], flags: str = "") -> str:
        """Append a call with a result of `dtype`; arguments are (type, operand)."""
        result = value_type(dtype)
        self.declare(result, name, tuple(kind for kind, _ in arguments))
        operands = ", ".join(f"{kind} {operand}" for kind, operand in arguments)
        return self.assign(f"call {flags}{result} @{name}({operands})")

    def constant_address(self, kind: str, text: str) -> str:
        """The address of a private constant."""
        name = self.constants.setdefault(f"{kind} {text}", f"@constant{len(self.constants)}")
        return name

    # ---- loops ----

    def open_loop(self, axis: UOp, begin: str, end: str, guarded: bool) -> None:
        """Open the loop of `axis`; a `guarded` loop may have zero steps."""
        before, head, latch, after = (self.new_label(x) for x in ("before", "loop", "next", "done"))
        if guarded:
            some = self.assign(f"icmp slt i64 {begin}, {end}")
            self.emit(f"br i1 {some}, label %{before}, label %{after}")
        else:
            self.emit(f"br label %{before}")
        self.start_block(before)
        self.emit(f"br label %{head}")
        self.start_block(head)
        counter = f"%{LOOP_NAMES[axis.arg.kind]}{self.count}"
        self.emit(f"{counter} = phi i64 [ {begin}, %{before} ], [ {counter}.next, %{latch} ]")
        self.names[axis] = counter
        self.loops[axis] = OpenLoop(head, latch, after, counter, end)

    def close_loop(self, axis: UOp) -> None:
        """Close the loop of `axis`."""
        loop = self.loops.pop(axis)
        self.emit(f"br label %{loop.latch}")
        self.start_block(loop.latch)
        self.emit(f"{loop.counter}.next = add nuw nsw i64 {loop.counter}, 1")
        more = self.assign(f"icmp slt i64 {loop.counter}.next, {loop.end}")
        tag = self.loop_tag(axis)
        self.emit(f"br i1 {more}, label %{loop.head}, label %{loop.after}{tag}")
        self.start_block(loop.after)

    def loop_tag(self, axis: UOp) -> str:
        """The metadata of a loop: unroll fully, do not unroll, or none, which lets LLVM decide."""
        inner = axis in self.innermost
        if axis.arg.kind is AxisType.TILE:
            hints = f"{UNROLL_FULLY}, {NO_VECTORIZE}"
        elif self.is_vectorized:
            # LLVM may unroll a short loop, whose exit is mispredicted each time
            short = inner and axis.src[0].op is Ops.CONST and axis.src[0].arg <= MAX_SHORT_LOOP
            hints = NO_VECTORIZE if short else f"{NO_UNROLL}, {NO_VECTORIZE}"
        elif inner:
            return ""
        else:
            hints = NO_UNROLL
        number = len(self.loop_tags) + FIRST_LOOP_TAG
        self.loop_tags.append(f"!{number} = distinct !{{!{number}, {hints}}}")
        return f", !llvm.loop !{number}"


def innermost_loops(linear: list[UOp]) -> set[UOp]:
    """The loops without a loop inside, TILE loops aside, which are unrolled."""
    found: set[UOp] = set()
    last: UOp | None = None
    for u in linear:
        if u.op is Ops.RANGE and u.arg.kind is not AxisType.TILE:
            last = u
        elif u.op is Ops.END and last is u.src[0]:
            found.add(last)
    return found


def grid_bounds(writer: Writer, axis: UOp) -> tuple[str, str]:
    """The work items of a nest that lie in [begin, end), counted from the nest's first."""
    if writer.grid_loops == 1:
        return "%begin", "%end"
    size, offset = (writer.names[x] for x in axis.src)
    first = writer.assign(f"sub i64 %begin, {offset}")
    last = writer.assign(f"sub i64 %end, {offset}")
    begin = writer.call(dtypes.int64, "llvm.smax.i64", ("i64", first), ("i64", "0"))
    end = writer.call(dtypes.int64, "llvm.smin.i64", ("i64", last), ("i64", size))
    return begin, end
