"""Single kernels: speed next to torch in the same run, and the time to generate them.

`python -m test.benchmark.kernels [START OF NAME ...]`, with torch installed. Times are medians,
with all threads.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from test.backend.codegen.kernels import Build, Runner, buffer, flat_index, sink
from tinygrad.runtime.support.worker_pool import worker_pool
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    import torch

RUNS = 9
Arrays = dict[int, numpy.ndarray]


@dataclass(frozen=True)
class Case:
    """A kernel, the sizes of its arrays by slot, torch's form of it, and its work.

    `gflop` counts arithmetic; 0 says that bytes matter.
    """

    name: str
    kernel: Callable[[], UOp]
    sizes: dict[int, tuple[int, ...]]
    torch: Callable[..., Any]
    gflop: float = 0.0


def functional() -> Any:
    """`torch.nn.functional`, imported when a case runs."""
    import torch

    return torch.nn.functional


def matmul(m: int, n: int, k: int, left: str = "ik", right: str = "kj") -> Case:
    """`left` and `right` give the order of the operands' axes in memory."""
    sizes = {"i": m, "j": n, "k": k}
    shape = {1: tuple(sizes[c] for c in left), 2: tuple(sizes[c] for c in right)}

    def kernel() -> UOp:
        b = Build()
        i, j = b.loops(m, n)
        (reduced,) = b.reduces(k)
        axes = {"i": i, "j": j, "k": reduced}
        factors = [
            buffer(slot, m * n * k).index(flat_index([axes[c] for c in order], shape[slot])).load()
            for slot, order in ((1, left), (2, right))
        ]
        value = (factors[0] * factors[1]).reduce(reduced, arg=Ops.ADD)
        return sink(buffer(0, m * n).index(flat_index([i, j], [m, n])).store(value, i, j))

    def theirs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.T if left == "ki" else a) @ (b.T if right == "jk" else b)

    name = f"matmul {m}x{n}x{k} {left} {right}"
    return Case(name, kernel, {0: (m, n), **shape}, theirs, 2e-9 * m * n * k)


@dataclass(frozen=True)
class Conv:
    """The sizes of a convolution of square images without padding."""

    batch: int
    channels: int
    filters: int
    size: int
    width: int

    @property
    def out(self) -> int:
        return self.size - self.width + 1

    @property
    def image(self) -> tuple[int, ...]:
        return self.batch, self.channels, self.size, self.size

    @property
    def result(self) -> tuple[int, ...]:
        return self.batch, self.filters, self.out, self.out

    @property
    def weights(self) -> tuple[int, ...]:
        return self.filters, self.channels, self.width, self.width

    @property
    def gflop(self) -> float:
        return 2e-9 * int(numpy.prod(self.result)) * self.channels * self.width**2

    def __str__(self) -> str:
        return f"{self.channels}->{self.filters} {self.width}x{self.width} on {self.size}"


def _store(axes: list[UOp], sizes: tuple[int, ...], value: UOp) -> UOp:
    where = buffer(0, int(numpy.prod(sizes))).index(flat_index(axes, sizes))
    return sink(where.store(value, *axes))


def _load(slot: int, axes: list[UOp], sizes: tuple[int, ...], valid: UOp | None = None) -> UOp:
    pointer = buffer(slot, int(numpy.prod(sizes)))
    address = pointer.index(flat_index(axes, sizes), valid)
    return address.load() if valid is None else address.load(UOp.const(pointer.dtype.base, 0.0))


def forward(c: Conv) -> Case:
    """The forward convolution."""

    def kernel() -> UOp:
        b = Build()
        z, f, y, x = b.loops(*c.result)
        k, ky, kx = b.reduces(c.channels, c.width, c.width)
        product = _load(1, [z, k, y + ky, x + kx], c.image) * _load(2, [f, k, ky, kx], c.weights)
        return _store([z, f, y, x], c.result, product.reduce(k, ky, kx, arg=Ops.ADD))

    sizes = {0: c.result, 1: c.image, 2: c.weights}
    return Case(f"conv {c}", kernel, sizes, lambda x, w: functional().conv2d(x, w), c.gflop)


def weight_gradient(c: Conv) -> Case:
    """The gradient of the weights: few reductions, each very long."""

    def kernel() -> UOp:
        b = Build()
        f, k, ky, kx = b.loops(*c.weights)
        z, y, x = b.reduces(c.batch, c.out, c.out)
        product = _load(1, [z, f, y, x], c.result) * _load(2, [z, k, y + ky, x + kx], c.image)
        return _store([f, k, ky, kx], c.weights, product.reduce(z, y, x, arg=Ops.ADD))

    def theirs(gradient: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.nn.grad.conv2d_weight(image, c.weights, gradient)

    sizes = {0: c.weights, 1: c.result, 2: c.image}
    return Case(f"conv dw {c}", kernel, sizes, theirs, c.gflop)


def input_gradient(c: Conv) -> Case:
    """The gradient of the image; positions outside the result count as 0."""

    def kernel() -> UOp:
        b = Build()
        z, k, y, x = b.loops(*c.image)
        f, ky, kx = b.reduces(c.filters, c.width, c.width)
        row, column = y - ky, x - kx
        valid = (row < 0).ne(True) & (row < c.out) & (column < 0).ne(True) & (column < c.out)
        pixel = _load(1, [z, f, row, column], c.result, valid)
        product = pixel * _load(2, [f, k, ky, kx], c.weights)
        return _store([z, k, y, x], c.image, product.reduce(f, ky, kx, arg=Ops.ADD))

    def theirs(gradient: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.nn.grad.conv2d_input(c.image, weights, gradient)

    sizes = {0: c.image, 1: c.result, 2: c.weights}
    return Case(f"conv dx {c}", kernel, sizes, theirs, c.gflop)


def elementwise(n: int) -> Case:
    """Two inputs, one output."""

    def kernel() -> UOp:
        b = Build()
        (i,) = b.loops(n)
        value = (_load(1, [i], (n,)) * _load(2, [i], (n,)) + 1.0).maximum(0.0)
        return _store([i], (n,), value)

    sizes = {0: (n,), 1: (n,), 2: (n,)}
    return Case(f"relu(x*y+1) {n}", kernel, sizes, lambda x, y: (x * y + 1).relu())


def reduction(n: int, op: Ops, kept: int) -> Case:
    """A square matrix reduced to a row or a column; `kept` is the remaining axis."""

    def kernel() -> UOp:
        b = Build()
        loop, reduced = b.loops(n)[0], b.reduces(n)[0]
        axes = [loop, reduced] if kept == 0 else [reduced, loop]
        return _store([loop], (n,), _load(1, axes, (n, n)).reduce(reduced, arg=op))

    theirs = (lambda x: x.sum(1 - kept)) if op is Ops.ADD else (lambda x: x.amax(1 - kept))
    return Case(f"{op.name} keeping axis {kept} of {n}", kernel, {0: (n,), 1: (n, n)}, theirs)


def transpose(n: int) -> Case:
    """A copy of the transposed matrix."""

    def kernel() -> UOp:
        b = Build()
        i, j = b.loops(n, n)
        return _store([i, j], (n, n), _load(1, [j, i], (n, n)))

    return Case(f"transpose {n}", kernel, {0: (n, n), 1: (n, n)}, lambda x: x.T.contiguous())


def max_pool(images: int, size: int) -> Case:
    """2x2 windows."""
    half = size // 2

    def kernel() -> UOp:
        b = Build()
        z, y, x = b.loops(images, half, half)
        ky, kx = b.reduces(2, 2)
        value = _load(1, [z, y * 2 + ky, x * 2 + kx], (images, size, size))
        return _store([z, y, x], (images, half, half), value.reduce(ky, kx, arg=Ops.MAX))

    sizes = {0: (images, half, half), 1: (images, size, size)}
    return Case(f"max pool {images}x{size}", kernel, sizes, lambda x: functional().max_pool2d(x, 2))


MNIST = [Conv(512, 1, 32, 28, 5), Conv(512, 32, 32, 24, 5), Conv(512, 32, 64, 10, 3)]
MNIST.append(Conv(512, 64, 64, 8, 3))
CASES = [
    *(matmul(1024, 1024, 1024, a, b) for a in ("ik", "ki") for b in ("kj", "jk")),
    *(matmul(*s) for s in ((512, 10, 576), (64, 512, 128), (509, 509, 509), (3, 1000, 1000))),
    # rows that share the sets of a first-level cache
    matmul(64, 64, 4096),
    *(forward(c) for c in MNIST),
    *(weight_gradient(c) for c in MNIST),
    *(input_gradient(c) for c in MNIST[1:]),
    elementwise(1 << 24),
    *(reduction(4096, op, kept) for op in (Ops.ADD, Ops.MAX) for kept in (0, 1)),
    transpose(4096),
    max_pool(512 * 32, 20),
]


def median_s(function: Callable[[], object]) -> float:
    """The median time of several runs in seconds."""
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(case: Case) -> str:
    """Runs one case; returns a line of the table."""
    import torch

    rng = numpy.random.default_rng(0)
    arrays = {s: rng.standard_normal(shape).astype("f4") for s, shape in case.sizes.items()}
    runner = Runner(case.kernel())
    program = runner.program
    pointers = (ctypes.c_uint64 * len(program.slots))(
        *[arrays[slot].ctypes.data for slot in program.slots]
    )
    address, pool = runner.code[program.function], worker_pool()
    values, items = (ctypes.c_int64 * 1)(), program.launch.items
    ours = median_s(lambda: pool.launch(address, pointers, values, items))
    inputs = [torch.from_numpy(arrays[s]) for s in sorted(arrays) if s]
    with torch.no_grad():
        expected = case.torch(*inputs).numpy().reshape(case.sizes[0])
        theirs = median_s(lambda: case.torch(*inputs))
    scale = max(1.0, float(numpy.abs(expected).max()))
    error = float(numpy.abs(arrays[0] - expected).max()) / scale
    nbytes = sum(array.nbytes for array in arrays.values())
    rate = case.gflop / ours if case.gflop else nbytes / ours * 1e-9
    unit = "GFLOP/s" if case.gflop else "GB/s"
    return (
        f"{case.name:32} {ours * 1e3:9.3f} {theirs * 1e3:9.3f} {ours / theirs:6.2f} "
        f"{rate:7.1f} {unit:7} {error:8.0e} {runner.python_s * 1e3:7.1f} {runner.llvm_s * 1e3:7.1f}"
    )


def main(starts: list[str]) -> None:
    # keep imports, rule tables and the start of LLVM out of the first measurement
    Runner(elementwise(64).kernel())
    print(f"{'kernel':32} {'ours, ms':>9} {'torch, ms':>9} {'ratio':>6} {'rate':>15}", end=" ")
    print(f"{'error':>8} {'Python':>7} {'LLVM, ms':>8}")
    for case in CASES:
        if not starts or case.name.startswith(tuple(starts)):
            print(measure(case), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
