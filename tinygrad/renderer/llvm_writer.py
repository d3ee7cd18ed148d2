"""The text of one LLVM function while it is written: names, basic blocks, loops, constants,
declarations."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.llvm_types import value_type
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

_PREFIX = {
    AxisType.GLOBAL: "item",
    AxisType.LOCAL: "thread",
    AxisType.LOOP: "i",
    AxisType.REDUCE: "k",
    AxisType.TILE: "t",
    AxisType.VECTOR: "lane",
}
# metadata nodes that every module has
UNROLL_FULLY, NO_UNROLL, NO_VECTORIZE = "!0", "!1", "!2"
FIRST_LOOP_TAG = 3
SHORT_LOOP = 8


@dataclass
class OpenLoop:
    """The labels of a loop whose body is being written, its counter and its end."""

    head: str
    latch: str
    after: str
    counter: str
    end: str


@dataclass
class Writer:
    """Collects what a module needs. `names` has the operand text of every node written so far."""

    linear: list[UOp]
    lines: list[str] = field(default_factory=list)
    names: dict[UOp, str] = field(default_factory=dict)
    entry: list[str] = field(default_factory=list)
    declarations: dict[str, None] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    loop_tags: list[str] = field(default_factory=list)
    loops: dict[UOp, OpenLoop] = field(default_factory=dict)
    branches: dict[UOp, str] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.is_vectorized = any(u.dtype.count > 1 for u in self.linear)
        self.innermost = innermost_loops(self.linear)
        self.grid_loops = sum(
            u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL for u in self.linear
        )

    def value(self, text: str) -> str:
        """A new name for the result of an instruction."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def say(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, prefix: str) -> str:
        """A new name for a basic block."""
        self.count += 1
        return f"{prefix}{self.count}"

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")

    def typed(self, node: UOp) -> str:
        """A node as an operand with its type."""
        return f"{value_type(node.dtype)} {self.names[node]}"

    def declare(self, result: str, name: str, kinds: tuple[str, ...]) -> None:
        """Note that the module calls a function."""
        self.declarations[f"declare {result} @{name}({', '.join(kinds)})"] = None

    def call(self, dtype: DType, name: str, *arguments: tuple[str, str], flags: str = "") -> str:
        """Call a function that gives a `dtype`; arguments are (type, operand)."""
        result = value_type(dtype)
        self.declare(result, name, tuple(kind for kind, _ in arguments))
        operands = ", ".join(f"{kind} {operand}" for kind, operand in arguments)
        return self.value(f"call {flags}{result} @{name}({operands})")

    def constant_slot(self, kind: str, text: str) -> str:
        """The address of read-only memory that holds a constant."""
        name = self.constants.setdefault(f"{kind} {text}", f"@constant{len(self.constants)}")
        return name

    # ---- loops ----

    def open_loop(self, axis: UOp, begin: str, end: str, guarded: bool) -> None:
        """Start the loop of `axis`; `guarded` says that it may have no step at all."""
        before, head, latch, after = (self.label(x) for x in ("before", "loop", "next", "done"))
        if guarded:
            some = self.value(f"icmp slt i64 {begin}, {end}")
            self.say(f"br i1 {some}, label %{before}, label %{after}")
        else:
            self.say(f"br label %{before}")
        self.start(before)
        self.say(f"br label %{head}")
        self.start(head)
        counter = f"%{_PREFIX[axis.arg.kind]}{self.count}"
        self.say(f"{counter} = phi i64 [ {begin}, %{before} ], [ {counter}.next, %{latch} ]")
        self.names[axis] = counter
        self.loops[axis] = OpenLoop(head, latch, after, counter, end)

    def close_loop(self, axis: UOp) -> None:
        """End the loop of `axis`."""
        loop = self.loops.pop(axis)
        self.say(f"br label %{loop.latch}")
        self.start(loop.latch)
        self.say(f"{loop.counter}.next = add nuw nsw i64 {loop.counter}, 1")
        more = self.value(f"icmp slt i64 {loop.counter}.next, {loop.end}")
        tag = self.loop_tag(axis)
        self.say(f"br i1 {more}, label %{loop.head}, label %{loop.after}{tag}")
        self.start(loop.after)

    def loop_tag(self, axis: UOp) -> str:
        """The metadata of a loop: unroll it fully, leave it alone, or let LLVM decide."""
        inner = axis in self.innermost
        if axis.arg.kind is AxisType.TILE:
            hints = f"{UNROLL_FULLY}, {NO_VECTORIZE}"
        elif self.is_vectorized:
            # a short loop is left again and again, and each time the CPU predicts that wrongly
            short = inner and axis.src[0].op is Ops.CONST and axis.src[0].arg <= SHORT_LOOP
            hints = NO_VECTORIZE if short else f"{NO_UNROLL}, {NO_VECTORIZE}"
        elif inner:
            return ""
        else:
            hints = NO_UNROLL
        number = len(self.loop_tags) + FIRST_LOOP_TAG
        self.loop_tags.append(f"!{number} = distinct !{{!{number}, {hints}}}")
        return f", !llvm.loop !{number}"


def innermost_loops(linear: list[UOp]) -> set[UOp]:
    """The loops without a loop inside; TILE loops, which disappear, do not count."""
    found: set[UOp] = set()
    last: UOp | None = None
    for u in linear:
        if u.op is Ops.RANGE and u.arg.kind is not AxisType.TILE:
            last = u
        elif u.op is Ops.END and last is u.src[0]:
            found.add(last)
    return found


def grid_bounds(writer: Writer, axis: UOp) -> tuple[str, str]:
    """The part of a nest's items that lies in [begin, end), counted from the nest's first."""
    if writer.grid_loops == 1:
        return "%begin", "%end"
    size, offset = (writer.names[x] for x in axis.src)
    first = writer.value(f"sub i64 %begin, {offset}")
    last = writer.value(f"sub i64 %end, {offset}")
    begin = writer.call(dtypes.int64, "llvm.smax.i64", ("i64", first), ("i64", "0"))
    end = writer.call(dtypes.int64, "llvm.smin.i64", ("i64", last), ("i64", size))
    return begin, end
