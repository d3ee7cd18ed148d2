"""The text of typical kernels for AVX-512: shows the effect of a changed heuristic or renderer.

`python -m test.golden.test_kernels` writes the files again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from test.backend.codegen.kernels import Build, buffer, flat_index, sink
from tinygrad.codegen import get_program
from tinygrad.renderer.host_cpu import AVX512_BYTES, host_target
from tinygrad.renderer.llvm import LLVMRenderer
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


KERNELS: tuple[Callable[[], UOp], ...] = (add, row_sum, column_max, matmul, padded_convolution)


def render(build: Callable[[], UOp]) -> str:
    """The applied optimizations as comments, and the source."""
    # two threads, so that the grid does not depend on the machine
    program = get_program(build(), LLVMRenderer(host_target("llvm", AVX512_BYTES, threads=2)))
    return "".join(f"; {note}\n" for note in program.applied) + program.source


@pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)
def test_a_kernel_is_rendered_as_before(build: Callable[[], UOp]) -> None:
    assert render(build) == (FOLDER / f"{build.__name__}.ll").read_text()


if __name__ == "__main__":
    for kernel in KERNELS:
        (FOLDER / f"{kernel.__name__}.ll").write_text(render(kernel))
