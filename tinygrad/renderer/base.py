"""From a linear program to source text: what every renderer is told, and what it must say of
itself.

A linear program is a list of `UOp`s, each after its sources. RANGE..END and IF..ENDIF nest. A
renderer walks it once and gives every node that has a value a name.

- `DEFINE_GLOBAL` (arg: slot) is a parameter, `DEFINE_VAR` a runtime integer, `CONST` a number; a
  vector CONST is a splat, or the lanes' values if its arg is a tuple.
- `DEFINE_REG` (arg: number) is a small array kept in registers, of scalars or vectors.
  `DEFINE_LOCAL` is scratch memory of the thread.
- `RANGE` opens a loop, `END(range)` closes it. Kind TILE: unroll it fully. Kind GLOBAL: the grid;
  it has as many items as its size. Where several share it, their sources are `(size, offset)`:
  items `[offset, offset + size)` are theirs, counted from 0. A CPU runs the items of `[begin,
  end)`, a GPU each on a thread of its own.
- `IF(condition)`, `ENDIF(if)`.
- `AFTER(x, *before)` is another name for `x`; it only kept order.
- `INDEX(pointer, index[, valid])` is an address. `LOAD(INDEX[, alt])` with a scalar index gives one
  element, or, if its dtype is a vector, that many contiguous ones, aligned to the element and no
  more; with a vector index it gathers. Where `valid` (a bool, or one for each lane) is false,
  memory is not touched and the value is `alt`. `STORE(INDEX, value)` has the same forms.
- `VECTORIZE` with one source repeats it in all lanes, with several it collects them. `GEP` (arg:
  lane) takes one, or several as a new vector. `REDUCE(vector)` without ranges reduces the lanes by
  its arg.
- All operands of arithmetic have equally many lanes. IDIV and MOD truncate as in C. MULACC(a, b, c)
  is a * b + c.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, sint


@dataclass(frozen=True)
class Estimates:
    """What one run of a kernel does, by its loops' sizes; symbolic sizes give symbolic numbers."""

    flops: sint = 0
    loaded_bytes: sint = 0
    stored_bytes: sint = 0
    memory_bytes: sint = 0
    """Bytes of all the buffers it touches, each counted once: the least that must move."""


@dataclass(frozen=True)
class Program:
    """A kernel as source text, and how to call it."""

    name: str
    source: str = field(repr=False)
    slots: tuple[int, ...]
    """The DEFINE_GLOBAL slot of each parameter, in order."""
    outputs: tuple[int, ...]
    """Slots that are written."""
    inputs: tuple[int, ...]
    """Slots that are read."""
    variables: tuple[UOp, ...]
    """The DEFINE_VARs, in the order of the `values` parameter."""
    grid: sint = 1
    """Number of independent work items; 1 if it has no grid."""
    estimates: Estimates = Estimates()
    applied: tuple[str, ...] = ()
    """What was done to the loops, for people."""


class Renderer:
    """A target language. The attributes are what code generation asks for; never the target's
    name."""

    name: str = ""
    dtypes: frozenset[DType] = frozenset(dtypes.all)
    """Types whose values it can load, store and convert."""
    operations: frozenset[Ops] = GroupOp.ALU - {Ops.THREEFRY, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.POW}
    """Arithmetic it can express; the rest is rewritten before it sees it."""
    vector_bytes: int = 16
    """Bytes of the widest vector that is worth using; that of one element means none."""
    vector_registers: int = 16
    has_shuffle: bool = False
    """Whether GEP may take several lanes, given as a tuple, in any order."""
    enough_items: int = 64
    """Items of the grid beyond which more bring no better balance."""
    parallel_work: int = 1 << 15
    """Steps of work below which one item does it all: waking others takes longer."""
    scratch_bytes: int = 0
    """How much DEFINE_LOCAL memory a kernel may use."""
    threads: int = 1
    """Threads that share the work items of a grid, which is cut into a few items for each."""

    def __init__(self, *, threads: int = 1) -> None:
        self.threads = threads

    def render(self, name: str, linear: list[UOp]) -> str:
        """The source of a kernel called `name`."""
        raise NotImplementedError


def parameters(linear: list[UOp]) -> tuple[list[UOp], list[UOp]]:
    """The DEFINE_GLOBALs by slot and the DEFINE_VARs by name: a kernel's parameters in order."""
    pointers = sorted({u for u in linear if u.op is Ops.DEFINE_GLOBAL}, key=lambda u: int(u.arg))
    variables = sorted({u for u in linear if u.op is Ops.DEFINE_VAR}, key=lambda u: str(u.arg[0]))
    return pointers, variables
