"""Text of matrix instructions and asynchronous copies: calls of functions of the prelude."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.renderer.base import pointer_of
from tinygrad.renderer.cstyle.lanes import LaneWriter
from tinygrad.renderer.cstyle.writer import unwrapped
from tinygrad.renderer.matrix_instruction import MatrixInstruction
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def write_product(w: LaneWriter, u: UOp) -> None:
    """Write a matrix instruction. All lanes of the warp come there, so it is a statement."""
    w.declare_struct(u, f"{u.arg.name}({', '.join(w.struct(x) for x in u.src)})")


def write_matrix_load(w: LaneWriter, u: UOp) -> None:
    """Write a load of 8x8 matrices by a warp."""
    suffix = "_transposed" if u.arg else ""
    w.declare_struct(u, f"load_matrix_x{u.dtype.count}{suffix}({w.names[u.src[0]]})")


def write_async_copy(w: LaneWriter, u: UOp) -> None:
    """Write an asynchronous copy to shared memory, of zeros where the source is masked."""
    shared, source = u.src[:2]
    arguments = [unwrapped(w.names[x]) for x in (shared, source, *source.src[2:])]
    suffix = "_or_zero" if len(source.src) > 2 else ""
    _emit_where_valid(w, shared, f"copy_async_{u.arg}{suffix}({', '.join(arguments)});")


def write_commit(w: LaneWriter, u: UOp) -> None:
    """Write the end of a group of asynchronous copies."""
    w.emit("copy_async_commit();")


def write_wait(w: LaneWriter, u: UOp) -> None:
    """Write a wait until at most some groups of copies are in flight."""
    w.emit(f"copy_async_wait<{u.arg}>();")


def write_async_product(w: LaneWriter, u: UOp) -> None:
    """Write an instruction on operands in shared memory, each a descriptor, which warps run. Of
    one that lanes hold it is given the fragment.
    """
    instruction: MatrixInstruction = u.arg.instruction
    operands = [
        w.struct(x)
        if side == instruction.held_side
        else f"matrix_descriptor({unwrapped(w.names[x])}, {shape.panel_bytes})"
        for side, (x, shape) in enumerate(zip(u.src[1:3], u.arg.operands, strict=True))
    ]
    if instruction.is_swapped:
        operands.reverse()
    name = instruction.name
    w.library.functions.setdefault(name, async_product_definition(instruction))
    orders = ", ".join(str(int(not x.along_reduction)) for x in u.arg.operands)
    choice = f"<{orders}>" if instruction.held_side is None else ""
    w.emit(f"{name}{choice}({', '.join([unwrapped(w.names[u.src[0]]), *operands])});")


def async_product_definition(x: MatrixInstruction) -> str:
    """The function of the prelude that begins `c += a @ b`: one register operand for each sum."""
    count = x.c.count
    shape, kind = x.name.split("_")[1:]
    lines = [
        f"{', '.join(f'%{i}' for i in range(first, first + 16))}" for first in range(0, count, 16)
    ]
    registers = [
        ", ".join(f'"+f"(c[{i}])' for i in range(first, first + 8)) for first in range(0, count, 8)
    ]
    if x.held_side is None:
        template = ["template <int a_is_transposed, int b_is_transposed>"]
        left, is_transposed = "unsigned long long", f", %{count + 2}, %{count + 3}"
        operands = f"%{count}, %{count + 1}"
        inputs = '"l"(a), "l"(b), "n"(a_is_transposed), "n"(b_is_transposed)'
    else:
        template, left, is_transposed = [], "f32x4", ""
        places = ", ".join(f"%{count + i}" for i in range(4))
        operands = f"{{{places}}}, %{count + 4}"
        words = (f'"r"(__float_as_int(a.lane[{i}]))' for i in range(4))
        inputs = f'{", ".join(words)}, "l"(b)'
    return "\n".join(
        [
            *template,
            f"__device__ inline void {x.name}(float *c, {left} a, unsigned long long b) {{",
            f'  asm volatile("wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind} {{"',
            *(f'    "{line},"' for line in lines[:-1]),
            f'    "{lines[-1]}}}, "',
            f'    "{operands}, 1, 1, 1{is_transposed};"',
            *(f"    {':' if not i else ' '} {x}," for i, x in enumerate(registers[:-1])),
            f"      {registers[-1]}",
            f"    : {inputs});",
            "}\n",
        ]
    )


def write_async_wait(w: LaneWriter, u: UOp) -> None:
    """Write a wait until products of at most some groups run; the sums are kept in registers."""
    array = pointer_of(u.src[0])
    w.emit(f"wgmma_wait<{u.arg}>({w.names[array]});")


def map_name(number: int) -> str:
    """The name of the parameter of a tensor map."""
    return f"map{number}"


def write_bulk_copy(w: LaneWriter, u: UOp) -> None:
    """Write the start of a copy of a box of a tensor, by the thread that the condition selects."""
    shared, mbarrier, box = u.src[:3]
    rank = len(box.arg.sizes)
    name = bulk_copy_name(rank, u.arg)
    w.library.functions.setdefault(name, bulk_copy_definition(rank, u.arg))
    arguments = (unwrapped(w.names[x]) for x in (shared, mbarrier, box))
    _emit_where_valid(w, shared, f"{name}({', '.join(arguments)});")


def bulk_copy_name(rank: int, blocks: int) -> str:
    """The function that copies a box of a tensor of `rank` axes to all blocks of a cluster."""
    return f"copy_box_{rank}d{f'_to_{blocks}' if blocks > 1 else ''}"


def bulk_copy_definition(rank: int, blocks: int) -> str:
    """The text of that function: it begins the copy, to the same place of each block."""
    coordinates = [f"c{i}" for i in range(rank)]
    places = ", ".join(f"%{i}" for i in range(2, 2 + rank))
    parameters = ", ".join(f"int {x}" for x in coordinates)
    inputs = ", ".join(f'"r"({x})' for x in coordinates)
    multicast = mask = mask_input = ""
    if blocks > 1:
        multicast, mask = ".multicast::cluster", f", %{3 + rank}"
        mask_input = f', "h"((unsigned short){(1 << blocks) - 1})'
    return "\n".join(
        [
            f"__device__ inline void {bulk_copy_name(rank, blocks)}(void *shared,",
            f"    unsigned long long *mbarrier, const TensorMap &map, {parameters}) {{",
            f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile"',
            f'    ".mbarrier::complete_tx::bytes{multicast}"',
            f'    " [%0], [%1, {{{places}}}], [%{2 + rank}]{mask};"',
            f'    :: "r"(shared_address(shared)), "l"(&map), {inputs},',
            f'      "r"(shared_address(mbarrier)){mask_input} : "memory");',
            "}\n",
        ]
    )


def _write_mbarrier_init(w: LaneWriter, u: UOp) -> None:
    text = f"mbarrier_init({unwrapped(w.names[u.src[0]])}, {u.arg});"
    _emit_where_valid(w, u.src[0], text)


def _write_mbarrier_expect(w: LaneWriter, u: UOp) -> None:
    text = f"mbarrier_expect({unwrapped(w.names[u.src[0]])}, {u.arg});"
    _emit_where_valid(w, u.src[0], text)


def _write_mbarrier_arrive(w: LaneWriter, u: UOp) -> None:
    address, block = (unwrapped(w.names[x]) for x in u.src[:2])
    text = f"_in({address}, {block})" if u.arg > 1 else f"({address})"
    _emit_where_valid(w, u.src[0], f"mbarrier_arrive{text};")


def _write_mbarrier_wait(w: LaneWriter, u: UOp) -> None:
    address, parity = (unwrapped(w.names[x]) for x in u.src[:2])
    w.emit(f"mbarrier_wait({address}, {parity});")


def _emit_where_valid(w: LaneWriter, address: UOp, text: str) -> None:
    """Write a statement, under the condition of an address if it has one."""
    valid = f"if ({unwrapped(w.names[address.src[2]])}) " if len(address.src) > 2 else ""
    w.emit(f"{valid}{text}")


WARP_WRITERS: dict[Ops, Callable[[LaneWriter, UOp], None]] = {
    Ops.MMA: write_product,
    Ops.LOAD_MATRIX: write_matrix_load,
    Ops.COPY_ASYNC: write_async_copy,
    Ops.COPY_COMMIT: write_commit,
    Ops.COPY_WAIT: write_wait,
    Ops.ASYNC_FENCE: lambda w, u: w.emit("async_fence();"),
    Ops.MMA_BEGIN: lambda w, u: w.emit("wgmma_begin();"),
    Ops.MMA_ASYNC: write_async_product,
    Ops.MMA_COMMIT: lambda w, u: w.emit("wgmma_commit();"),
    Ops.MMA_WAIT: write_async_wait,
    Ops.COPY_BULK: write_bulk_copy,
    Ops.MBARRIER_INIT: _write_mbarrier_init,
    Ops.MBARRIER_EXPECT: _write_mbarrier_expect,
    Ops.MBARRIER_ARRIVE: _write_mbarrier_arrive,
    Ops.MBARRIER_WAIT: _write_mbarrier_wait,
    Ops.NOOP: lambda w, u: None,
}
