"""The interface of a renderer, and the form of the linear program that it renders.

A linear program is a list of `UOp`s, each after its sources. RANGE..END and IF..ENDIF nest. A
renderer walks it once and names every node that has a value.

- `DEFINE_GLOBAL` (arg: slot) is a pointer parameter, `DEFINE_VAR` an integer parameter, `CONST` a
  number. A vector CONST is a splat, or holds a value for each lane if its arg is a tuple.
- `DEFINE_REG` (arg: number) is a small array of scalars or vectors that is kept in registers.
  `DEFINE_LOCAL` (arg: number) is scratch memory of a work item, shared by its threads.
- `RANGE` opens a loop, `END(range)` closes it. Kind TILE is unrolled fully. Kind GLOBAL is the
  grid, with a work item for each step. Loop nests that share the grid have the sources
  `(size, offset)`: a nest runs the work items `[offset, offset + size)`, counted from 0. A CPU
  runs the work items of `[begin, end)` in one call.
- On a target with warps, a work item is a block of threads if one RANGE of kind LOCAL, of constant
  size, is directly inside of its GLOBAL loop: all threads run what is inside, each with its own
  number. Without one, a work item has a single thread.
- A RANGE of kind ROLE, with the sources `(size, first, thread, registers)`, is run by the threads
  `[first, first + size)` of a block only, once by each; its value is the number of the thread in
  the role. `thread` is the LOCAL range. Roles run at the same time and wait for each other at
  mbarriers only. In the role, a thread has `registers` registers; 0 leaves the number unchanged.
- `BARRIER` waits for all threads of the work item. `SHUFFLE(value, lane)` is the value that another
  lane of the warp has. All threads come to both: they are in no branch and no role, and in no loop
  whose number of steps depends on the thread.
- `MMA(a, b, c)` (arg: a `MatrixInstruction`) is the fragment `c + a @ b` of a warp, `LOAD_MATRIX` a
  fragment in shared memory. `COPY_ASYNC(shared address, global address)` (arg: bytes) begins a
  copy, of zeros where the source is not valid; COPY_COMMIT ends a group of copies, and COPY_WAIT
  (arg: groups) waits until at most that many are in flight.
- `MMA_ASYNC(sums, a, b)` (arg: an `AsyncProduct`) begins `sums += a @ b` of operands in shared
  memory, or of one there and a fragment, in several warps. MMA_BEGIN comes before a group of them,
  MMA_COMMIT ends it, and `MMA_WAIT(sums)` waits as COPY_WAIT does. ASYNC_FENCE lets them see what
  the thread wrote.
- `COPY_BULK(shared address, mbarrier address, box)` starts a copy of `BOX(pointer, *coordinates)`
  (arg: a `TensorMap`), innermost coordinate first. One thread starts it, after MBARRIER_INIT and
  MBARRIER_EXPECT (arg: bytes). The arg of a COPY_BULK is the number of blocks of the cluster: it
  copies to the same address of each block, and signals the mbarrier of each. A BARRIER with such an
  arg waits for the threads of all blocks of the cluster.
- A phase of an mbarrier ends when the expected bytes were copied and all arrivals (the arg of
  MBARRIER_INIT) have happened. MBARRIER_EXPECT counts as an arrival, and so does
  `MBARRIER_ARRIVE(address, block)`, at the same address of a block of the cluster (arg: the number
  of its blocks). `MBARRIER_WAIT(address, parity)` waits for the end of the phase whose number has
  that parity.
- On a target with warps, vectors are loaded and stored only: aligned to their size, with one
  condition for all lanes. GEP takes their lanes and VECTORIZE builds them.
- `IF(condition)` opens a branch, `ENDIF(if)` closes it.
- `AFTER(x, *before)` is an alias of `x`. It orders the graph and renders to nothing.
- `INDEX(pointer, index[, valid])` is an address. `LOAD(INDEX[, alt])` with a scalar index loads an
  element or, if its dtype is a vector, that many contiguous ones, aligned to the element only;
  with a vector index it gathers. Where `valid` (a bool, or one for each lane) is false, memory is
  not touched and the value is `alt`. `STORE(INDEX, value)` has the same forms.
- `VECTORIZE` with one source is a splat, with several it builds a vector of them. `GEP` (arg: lane)
  extracts a lane, or shuffles several into a new vector. `REDUCE(vector)` without ranges reduces
  the lanes by its arg.
- All operands of an ALU op have the same number of lanes. IDIV and MOD truncate toward zero;
  MOD of floats, which are float64, is exact. `MULACC(a, b, c)` is `a * b + c`. A shift is by less
  than the width.
- A CAST of a float to an integer rounds toward zero, saturates, and is 0 for NaN; `cast_is_exact`
  tells where the bounds of the float prove that nothing has to be saturated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.target import LaunchShape, Target
from tinygrad.renderer.tensor_map import TensorMap
from tinygrad.text import to_function_name
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp, sint


@dataclass(frozen=True)
class Estimates:
    """The cost of one run of a kernel. Loops of symbolic size give symbolic numbers."""

    flops: sint = 0
    loaded_bytes: sint = 0
    stored_bytes: sint = 0
    memory_bytes: sint = 0
    """Lower bound of the memory traffic: bytes of all accessed buffers, each counted once."""


@dataclass(frozen=True)
class ProgramSpec:
    """A kernel as source text, and how to compile and call it."""

    name: str
    function: str
    """The name of the kernel's function in the source, as `Renderer.function_name` gives it."""
    source: str = field(repr=False)
    is_vectorized: bool
    """Whether it has vectors, so that the compiler need not vectorize or hoist."""
    slots: tuple[int, ...]
    """The DEFINE_GLOBAL slot of each parameter, in order."""
    outputs: tuple[int, ...]
    """Slots that the kernel stores to."""
    inputs: tuple[int, ...]
    """Slots that the kernel loads from."""
    variables: tuple[UOp, ...]
    """The DEFINE_VARs, in the order of the `values` parameter."""
    launch: LaunchShape
    """The independent work items, one without a grid, and the threads of each."""
    alignment: int = 1
    """The bytes of which every buffer's address must be a multiple, if more than an element's."""
    estimates: Estimates = Estimates()
    applied: tuple[str, ...] = ()
    """The loop transformations that were applied, as text for DEBUG=3."""


class Renderer:
    """A language, and the machine that kernels in it are for.

    Code generation reads these attributes and those of `target`, never a name.
    """

    dtypes: frozenset[DType] = frozenset(dtypes.all)
    """Types that kernels load, store and convert: those of the language that the target has."""
    operations: frozenset[Ops] = GroupOp.ALU - GroupOp.Elementary - {Ops.THREEFRY, Ops.POW}
    """ALU ops that the language can express; all others are decomposed into these."""
    has_reserved_names: bool = False
    """Whether a function cannot have any name: the language has keywords and functions."""
    has_shuffle: bool = False
    """Whether GEP may shuffle several lanes, given as a tuple."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.dtypes = type(self).dtypes & target.dtypes

    def function_name(self, name: str) -> str:
        """An identifier for the function of a kernel called `name`.

        No language reserves names with an underscore before a digit, as the scheduler gives them,
        or at the end, which any other name is given.
        """
        text = to_function_name(name)
        if text[:1].isdecimal():
            text = f"_{text}"
        if self.has_reserved_names and not re.search(r"_\d", text):
            text = f"{text}_"
        return text

    def dynamic_shared_bytes(self, linear: list[UOp]) -> int:
        """The bytes of shared memory that the launch of a program has to give to a work item."""
        return 0

    def render(self, function: str, linear: list[UOp]) -> str:
        """The source of a kernel, a function of that name."""
        raise NotImplementedError


LOOP_NAMES = {
    AxisType.GLOBAL: "item",
    AxisType.LOCAL: "thread",
    AxisType.LOOP: "i",
    AxisType.REDUCE: "k",
    AxisType.TILE: "t",
    AxisType.VECTOR: "lane",
    AxisType.ROLE: "role",
}
"""Prefixes of the names of loop counters."""


def memory_dtype(dtype: DType) -> DType:
    """The dtype of a value in memory, where a bool is a byte."""
    return dtypes.uint8.vec(dtype.count) if dtypes.is_bool(dtype) else dtype


def cast_is_exact(source: UOp, target: DType) -> bool:
    """Whether a CAST of a float to an integer type needs no saturation, by the float's bounds."""
    return bool(dtypes.min(target) <= source.vmin and source.vmax <= dtypes.max(target))


def pointer_of(address: UOp) -> UOp:
    """The DEFINE_GLOBAL, DEFINE_LOCAL or DEFINE_REG that an address points into."""
    node = address
    while node.op in {Ops.INDEX, Ops.AFTER}:
        node = node.src[0]
    return node


def is_vectorized(linear: list[UOp]) -> bool:
    """Whether a linear program has vectors."""
    return any(u.dtype.count > 1 for u in linear)


def parameters(linear: list[UOp]) -> tuple[list[UOp], list[UOp]]:
    """A kernel's parameters in order: the DEFINE_GLOBALs by slot, the DEFINE_VARs by name."""
    pointers = sorted({u for u in linear if u.op is Ops.DEFINE_GLOBAL}, key=lambda u: int(u.arg))
    variables = sorted({u for u in linear if u.op is Ops.DEFINE_VAR}, key=lambda u: str(u.arg[0]))
    return pointers, variables


def tensor_maps(linear: list[UOp]) -> list[tuple[UOp, TensorMap]]:
    """The pointer and the description of each tensor map, which follow a kernel's parameters."""
    return list(dict.fromkeys((u.src[0], u.arg) for u in linear if u.op is Ops.BOX))
