"""The text of typical kernels for AVX-512: shows the effect of a changed heuristic or renderer.

`python -m test.golden.test_kernels` writes the files again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from test.backend.codegen.kernels import Build, buffer, flat_index, sink
from tinygrad.codegen import get_program
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.host_cpu import AVX512_BYTES, SSE_BYTES, host_target
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.renderer.matrix_instruction import (
    AMX_BF16,
    AMX_INT8,
    AMX_UINT8,
    AVX512_BF16,
    AVX512_VNNI,
    NEON_BF16,
    NEON_INT8,
    NEON_UINT8,
    MatrixInstruction,
)
from tinygrad.runtime.support.llvm import VECTORIZED_PASSES
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

FOLDER = Path(__file__).parent


def add() -> UOp:
    """One vector per work item; the last overlaps the previous one."""
    b = Build()
    (i,) = b.loops(100_003)
    x, y = (buffer(slot, 100_003).index(i).load() for slot in (1, 2))
    return sink(buffer(0, 100_003).index(i).store(x + y, i), name="add")


def row_sum() -> UOp:
    """Four vector accumulators, and a mask for the end of the reduction."""
    b = Build()
    (i,) = b.loops(512)
    (k,) = b.reduces(1001)
    value = buffer(1, 512 * 1001).index(i * 1001 + k).load().reduce(k, arg=Ops.ADD)
    return sink(buffer(0, 512).index(i).store(value, i), name="row_sum")


def column_max() -> UOp:
    """Several vectors of neighbouring outputs per work item."""
    b = Build()
    (j,) = b.loops(512)
    (k,) = b.reduces(300)
    value = buffer(1, 512 * 300).index(k * 512 + j).load().reduce(k, arg=Ops.MAX)
    return sink(buffer(0, 512).index(j).store(value, j), name="column_max")


def matmul() -> UOp:
    """A register tile and a packed panel."""
    b = Build()
    i, j = b.loops(256, 256)
    (k,) = b.reduces(256)
    left = buffer(1, 65536).index(flat_index([i, k], [256, 256])).load()
    right = buffer(2, 65536).index(flat_index([k, j], [256, 256])).load()
    where = buffer(0, 65536).index(flat_index([i, j], [256, 256]))
    return sink(where.store((left * right).reduce(k, arg=Ops.ADD), i, j), name="matmul")


def padded_convolution(size: int = 3) -> UOp:
    """Masked loads, of windows that are read too seldom to stage them: a select of the address."""
    b = Build()
    z, f, y, x = b.loops(16, 32, size, size)
    c, ky, kx = b.reduces(8, 3, 3)
    row, column = y + ky - 1, x + kx - 1
    inside = (row < 0).ne(True) & (row < size) & (column < 0).ne(True) & (column < size)
    position = flat_index([z, c, row, column], [16, 8, size, size])
    zero = UOp.const(buffer(1, 1).dtype.base, 0.0)
    pixel = buffer(1, 128 * size**2).index(position, inside).load(zero)
    weight = buffer(2, 2304).index(flat_index([f, c, ky, kx], [32, 8, 3, 3])).load()
    where = buffer(0, 512 * size**2).index(flat_index([z, f, y, x], [16, 32, size, size]))
    value = (pixel * weight).reduce(c, ky, kx, arg=Ops.ADD)
    return sink(where.store(value, z, f, y, x), name="convolution")


def narrow_matmul(dtype: DType = dtypes.bfloat16, wide: DType = dtypes.float32) -> UOp:
    """A product that a matrix instruction computes."""
    b = Build()
    i, j = b.loops(64, 64)
    (k,) = b.reduces(1024)
    left = buffer(1, 65536, dtype).index(flat_index([i, k], [64, 1024])).load().cast(wide)
    right = buffer(2, 65536, dtype).index(flat_index([k, j], [1024, 64])).load().cast(wide)
    where = buffer(0, 4096, wide).index(flat_index([i, j], [64, 64]))
    return sink(where.store((left * right).reduce(k, arg=Ops.ADD), i, j), name="matmul")


KERNELS: tuple[Callable[[], UOp], ...] = (add, row_sum, column_max, matmul, padded_convolution)


def render(build: Callable[[], UOp]) -> str:
    """The applied optimizations as comments, and the source."""
    # two threads, so that the grid does not depend on the machine
    program = get_program(build(), LLVMRenderer(host_target("llvm", AVX512_BYTES, threads=2)))
    return "".join(f"; {note}\n" for note in program.applied) + program.source


@pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)
def test_a_kernel_is_rendered_as_before(build: Callable[[], UOp]) -> None:
    assert render(build) == (FOLDER / f"{build.__name__}.ll").read_text()


def render_by(x: MatrixInstruction, vector_bytes: int) -> str:
    """The source of a product by a matrix instruction, which this machine need not have."""
    target = replace(host_target("llvm", vector_bytes, threads=2), matrix=(x,))
    return get_program(narrow_matmul(x.operand, x.accumulator), LLVMRenderer(target)).source


def test_a_product_by_tile_registers_is_rendered_as_before() -> None:
    assert render_by(AMX_BF16, AVX512_BYTES) == (FOLDER / "narrow_matmul.ll").read_text()


@pytest.mark.parametrize(
    ("x", "vector_bytes", "triple", "cpu", "instruction"),
    [
        (AMX_BF16, AVX512_BYTES, "x86_64-linux-gnu", "sapphirerapids", "tdpbf16ps"),
        (AMX_INT8, AVX512_BYTES, "x86_64-linux-gnu", "sapphirerapids", "tdpbssd"),
        (AMX_UINT8, AVX512_BYTES, "x86_64-linux-gnu", "sapphirerapids", "tdpbuud"),
        (AVX512_BF16, AVX512_BYTES, "x86_64-linux-gnu", "znver4", "vdpbf16ps"),
        (AVX512_VNNI, AVX512_BYTES, "x86_64-linux-gnu", "icelake-server", "vpdpbusd"),
        (NEON_BF16, SSE_BYTES, "aarch64-linux-gnu", "neoverse-v1", "bfdot"),
        (NEON_INT8, SSE_BYTES, "aarch64-linux-gnu", "neoverse-v1", "sdot"),
        (NEON_UINT8, SSE_BYTES, "aarch64-linux-gnu", "neoverse-v1", "udot"),
    ],
    ids=lambda x: getattr(x, "name", x) if isinstance(x, str | MatrixInstruction) else "",
)
def test_the_inner_loop_of_a_product_keeps_its_sums_in_registers(
    x: MatrixInstruction, vector_bytes: int, triple: str, cpu: str, instruction: str
) -> None:
    text = assembly(render_by(x, vector_bytes), triple, cpu)
    blocks = re.split(r"^\.LBB\S+:", text, flags=re.MULTILINE)
    (loop,) = (block for block in blocks if re.search(rf"\t{instruction}\t", block))
    rows, columns = (2, 2) if x.is_tile else (8, 2)
    assert len(re.findall(rf"\t{instruction}\t", loop)) == rows * columns
    # up to the branch back, with nothing stored
    body = re.split(r"\tj\w+\t|\tb\.\w+\t", loop)[0]
    assert not re.search(r"\ttilestored\t|\tvmov\w+\t%zmm\d+, \S*\(|\tst[rp]\tq", body)


def assembly(source: str, triple: str, cpu: str) -> str:
    """The assembly of a module for any machine, optimized as kernels are."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(source, llvm.create_context())
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2)
    module.triple, module.data_layout = triple, str(machine.target_data)
    passes = llvm.create_new_module_pass_manager()
    for name in VECTORIZED_PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return str(machine.emit_assembly(module))


if __name__ == "__main__":
    (FOLDER / "narrow_matmul.ll").write_text(render_by(AMX_BF16, AVX512_BYTES))
    for kernel in KERNELS:
        (FOLDER / f"{kernel.__name__}.ll").write_text(render(kernel))
