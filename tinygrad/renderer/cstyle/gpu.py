"""The renderer that the dialects for GPUs share.

A work item is a block of threads, numbered by a RANGE of kind LOCAL. Where a kernel has none, each
work item is a thread, and `PACKED_ITEMS` of them are a block. A kernel of one work item has a block
of one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tinygrad.dtype import PtrDType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer.base import LOOP_NAMES, memory_dtype, tensor_maps
from tinygrad.renderer.cstyle.dialect import GPUDialect
from tinygrad.renderer.cstyle.lanes import LaneWriter, StructLibrary, write_lanes
from tinygrad.renderer.cstyle.prelude import read_prelude, used_definitions
from tinygrad.renderer.cstyle.renderer import CStyleRenderer, Parameters
from tinygrad.renderer.cstyle.values import declare_array
from tinygrad.renderer.cstyle.warp import WARP_WRITERS, map_name
from tinygrad.renderer.cstyle.writer import CWriter, unwrapped
from tinygrad.renderer.matrix_instruction import SWIZZLE_BYTES, SWIZZLE_ROWS
from tinygrad.renderer.target import PACKED_ITEMS
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

SHARED_ALIGNMENT = 16
"""Bytes that an array in shared memory is aligned to, for the widest access."""
SWIZZLED_ALIGNMENT = SWIZZLE_ROWS * SWIZZLE_BYTES
"""The same where matrix instructions read arrays; the sizes of all are multiples of it."""
LARGE_TILE_BYTES = 128
"""Bytes of the arrays of a thread from which on they determine how many blocks are resident."""
TILE_BYTES = 256
"""Bytes of the same from which on loops that are not tiles stay loops."""
VALUE_DTYPE = dtypes.int64
"""The type of each integer parameter, so that a launch need not know those of the Variables."""


class GPUWriter(LaneWriter):
    """Collects statements of a GPU kernel, and what has no text of its own."""

    def __init__(
        self,
        linear: list[UOp],
        dialect: GPUDialect,
        write: Callable[[CWriter, UOp], None],
        dynamic_bytes: int,
    ) -> None:
        super().__init__(linear, StructLibrary(dialect), write)
        self.declarations: list[str] = []
        # loops without a block: a thread runs them once
        self.unopened: set[UOp] = set()
        self.threads = _threads(linear)
        register_bytes = _register_bytes(linear)
        self.is_large = register_bytes >= LARGE_TILE_BYTES
        self.kept_loops = _kept_loops(linear, register_bytes >= TILE_BYTES)
        # threads of the roles that were written, and where the text of the last one ends
        self.role_threads = self.role_end = 0
        # bytes of shared memory that the launch gives, and of it those of declared arrays
        self.dynamic_bytes = dynamic_bytes
        is_swizzled = any(u.op is Ops.MMA_ASYNC for u in linear)
        self.shared = dialect.shared.format(
            alignment=SWIZZLED_ALIGNMENT if is_swizzled else SHARED_ALIGNMENT
        )
        self.shared_bytes = 0
        self.cluster = max((u.arg for u in linear if u.op is Ops.COPY_BULK), default=1)
        self.maps = {x: map_name(i) for i, x in enumerate(tensor_maps(linear))}

    @property
    def block_threads(self) -> int:
        """The threads of a block at most; without a loop over work items there is but one."""
        return self.threads or (PACKED_ITEMS if self.grid_loops else 1)

    @property
    def body(self) -> str:
        return "".join(f"  {line}\n" for line in self.declarations) + super().body


class GPURenderer(CStyleRenderer):
    """The base of the dialects for GPUs."""

    dialect: ClassVar[GPUDialect]

    def make_writer(self, linear: list[UOp]) -> CWriter:
        return GPUWriter(linear, self.dialect, self.write, self.dynamic_shared_bytes(linear))

    def write(self, w: CWriter, u: UOp) -> None:
        assert isinstance(w, GPUWriter)
        if u.op is Ops.BARRIER:
            w.emit("cluster_barrier();" if u.arg else "block_barrier();")
        elif u.op is Ops.SHUFFLE:
            # all lanes come there, so it is never part of a conditional expression
            value, lane = (unwrapped(w.names[x]) for x in u.src)
            w.declare(u, w.library.type(u.dtype), f"warp_shuffle({value}, {lane})")
        elif u.op is Ops.DEFINE_VAR:
            if u.dtype.itemsize != VALUE_DTYPE.itemsize:
                w.names[u] = f"(({self.dialect.type(u.dtype)}){self.variable_name(u)})"
        elif u.op is Ops.BOX:
            coordinates = (unwrapped(w.names[x]) for x in u.src[1:])
            w.names[u] = ", ".join([w.maps[u.src[0], u.arg], *coordinates])
        elif u.op in WARP_WRITERS:
            WARP_WRITERS[u.op](w, u)
        elif u.op is not Ops.END or u.src[0] not in w.unopened:
            super().write(w, u)
        if u.op is Ops.END and u.src[0].arg.kind is AxisType.ROLE:
            w.role_end = len(w.lines)

    def write_vector(self, w: CWriter, u: UOp) -> None:
        assert isinstance(w, GPUWriter)
        write_lanes(w, u)

    def declare_scratch(self, w: CWriter, u: UOp) -> None:
        """Shared memory, at the head of the kernel; the thread's own if it is a work item."""
        assert isinstance(w, GPUWriter)
        if w.threads:
            w.declarations += self.declare_shared(w, u)
        else:
            w.emit(declare_array(w, u))

    def declare_shared(self, w: GPUWriter, u: UOp) -> list[str]:
        """The declaration of an array in shared memory, which it names."""
        if not w.dynamic_bytes:
            return [declare_array(w, u, w.shared)]
        assert isinstance(u.dtype, PtrDType)
        kind = w.library.type(memory_dtype(u.dtype.base))
        name, start = f"scratch{u.arg}", w.shared_bytes
        w.names[u] = name
        w.shared_bytes += _shared_bytes(u)
        whole = f"extern {w.shared}unsigned char shared_memory[];"
        array = f"{kind} *{name} = ({kind} *)(shared_memory + {start});"
        return [array] if start else [whole, array]

    def dynamic_shared_bytes(self, linear: list[UOp]) -> int:
        """What static declarations may not have: all of it, if it is more than their limit."""
        if not _threads(linear):
            return 0
        total = sum(_shared_bytes(u) for u in set(linear) if u.op is Ops.DEFINE_LOCAL)
        return total if total > self.dialect.static_shared_bytes else 0

    def open_loop(self, w: CWriter, u: UOp) -> None:
        assert isinstance(w, GPUWriter)
        if u.arg.kind is AxisType.LOCAL:
            name = w.names[u] = f"thread{u.arg.index}"
            w.emit(f"{self.dialect.type(u.dtype)} {name} = {self.dialect.thread_number};")
            w.unopened.add(u)
            return
        if u.arg.kind is AxisType.ROLE:
            self.open_role(w, u)
            return
        if u in w.kept_loops:
            w.emit(f"{self.dialect.unroll} 1")
        super().open_loop(w, u)

    def open_role(self, w: GPUWriter, u: UOp) -> None:
        """Open the branch of a role. Those that follow each other are branches of one statement,
        without which a compiler does not move registers between them.
        """
        size, first, registers = (int(x.arg) for x in (u.src[0], u.src[1], u.src[3]))
        thread, name = w.names[u.src[2]], f"{LOOP_NAMES[AxisType.ROLE]}{u.arg.index}"
        follows = w.role_end == len(w.lines)
        w.role_threads = size + (w.role_threads if follows else 0)
        bounds = [f"{first} <= {thread}"] if first else []
        bounds += [f"{thread} < {first + size}"] if first + size < w.threads else []
        is_last = w.role_threads == w.threads
        condition = "" if follows and is_last else f"if ({' && '.join(bounds)})"
        w.open_block(f"{'else ' if follows else ''}{condition}".strip())
        if registers:
            is_less = registers < self.target.unit_registers // w.threads
            w.emit(f"{'release' if is_less else 'acquire'}_registers<{registers}>();")
        w.names[u] = name
        w.emit(f"{self.dialect.type(u.dtype)} {name} = {thread}{f' - {first}' if first else ''};")

    def open_grid(self, w: CWriter, u: UOp, name: str) -> None:
        assert isinstance(w, GPUWriter)
        kind, number = self.dialect.type(u.dtype), self.dialect.block_number
        if not w.threads:
            number = f"({kind}){number} * {PACKED_ITEMS} + {self.dialect.thread_number}"
        if w.grid_loops == 1 and w.threads:
            w.emit(f"{kind} {name} = {number};")
            w.unopened.add(u)
            return
        size, is_item = w.names[u.src[0]], ""
        if w.grid_loops > 1:
            number, is_item = f"{number} - {w.names[u.src[1]]}", f"0 <= {name} && "
        w.emit(f"{kind} {name} = {number};")
        w.open_block(f"if ({is_item}{name} < {size})")

    def render_kernel(self, name: str, w: CWriter, declared: Parameters) -> str:
        assert isinstance(w, GPUWriter)
        language = self.dialect
        takes = [(language.pointer, kind, x) for kind, x in declared.pointers]
        takes += [(language.value, language.type(VALUE_DTYPE), x) for _, x in declared.values]
        takes += [(language.tensor_map, "", map_name(i)) for i in range(declared.maps)]
        if len(takes) > (limit := self.target.max_arguments):
            raise ValueError(
                f"the kernel {name} takes {len(takes)} arguments; {limit} is the limit"
            )
        parameters = [
            template.format(number=number, type=kind, name=x)
            for number, (template, kind, x) in enumerate(takes)
        ]
        head = language.kernel.format(
            threads=f"{w.block_threads}{language.few_blocks if w.is_large else ''}",
            cluster=language.cluster.format(blocks=w.cluster) if w.cluster > 1 else "",
            name=name,
            parameters=", ".join([*parameters, *language.own_parameters]),
        )
        kernel = f"{head} {{\n{w.body}}}\n"
        known = {**read_prelude(language.prelude), **w.library.definitions}
        return f"{language.header}{used_definitions(kernel, known)}{kernel}"


def _kept_loops(linear: list[UOp], is_full: bool) -> set[UOp]:
    """The loops that a compiler must not unroll: it would keep what the steps share, and there is
    no register. All, if those of a thread are full; else those with a loop inside, and a barrier or
    a division, of which rare operands take the call of a function.
    """
    kept: set[UOp] = set()
    around: list[UOp] = []
    has_loop: set[UOp] = set()
    has_break: set[UOp] = set()
    for u in linear:
        if u.op is Ops.RANGE and u.arg.kind in {AxisType.LOOP, AxisType.REDUCE}:
            has_loop.update(around)
            around.append(u)
        elif u.op is Ops.END and u.src[0] in around:
            around.remove(u.src[0])
            is_stage = u.src[0] in has_loop & has_break
            kept.update({u.src[0]} if is_full or is_stage else ())
        elif u.op in {Ops.BARRIER, Ops.RECIPROCAL, Ops.FDIV}:
            has_break.update(around)
    return kept


def _register_bytes(linear: list[UOp]) -> int:
    """The bytes of the arrays that a thread has in registers."""
    arrays = {u for u in linear if u.op is Ops.DEFINE_REG}
    return sum(u.dtype.nbytes() for u in arrays if isinstance(u.dtype, PtrDType))


def _shared_bytes(array: UOp) -> int:
    """The bytes of an array in shared memory, rounded up to the alignment of the next."""
    assert isinstance(array.dtype, PtrDType)
    size = array.dtype.size * memory_dtype(array.dtype.base).itemsize
    return ceildiv(size, SHARED_ALIGNMENT) * SHARED_ALIGNMENT


def _threads(linear: list[UOp]) -> int:
    """The threads of a work item, or 0 if no loop numbers them."""
    sizes = {
        int(u.src[0].arg) for u in linear if u.op is Ops.RANGE and u.arg.kind is AxisType.LOCAL
    }
    assert len(sizes) <= 1, f"the loops of one kernel have blocks of {sizes} threads"
    return sizes.pop() if sizes else 0
