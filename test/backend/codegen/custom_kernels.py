"""Custom kernels shared by tests."""

from __future__ import annotations

import numpy as np

from tinygrad import Tensor, UOp
from tinygrad.dtype import AddrSpace
from tinygrad.uop.ops import AxisType, KernelInfo, Ops

LOG2_E = 1.4426950408889634
# sums of a few dozen products of numbers around 1, in float32
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def loop(size: int, number: int) -> UOp:
    return UOp.range(size, number)


def reduction(size: int, number: int) -> UOp:
    return UOp.range(size, number, axis_type=AxisType.REDUCE)


def add(c: UOp, a: UOp, b: UOp) -> UOp:
    c, a, b = c.flatten(), a.flatten(), b.flatten()
    i = loop(c.numel(), 0)
    return c[i].store(a[i] + b[i]).end(i).sink(arg=KernelInfo(name="custom_add"))


def matmul(c: UOp, a: UOp, b: UOp) -> UOp:
    i, j, k = loop(c.shape[0], 0), loop(c.shape[1], 1), reduction(a.shape[1], 2)
    product = (a[i, k] * b[k, j]).reduce(k, arg=Ops.ADD)
    return c[i, j].store(product).end(i, j).sink(arg=KernelInfo(name="custom_matmul"))


def matmul_gradient(gradient: UOp, kernel: UOp) -> tuple[UOp | None, ...]:
    _, a, b = kernel.src
    return None, (Tensor(gradient) @ Tensor(b).T).uop, (Tensor(a).T @ Tensor(gradient)).uop


def largest(y: UOp, x: UOp) -> UOp:
    """The maximum of each row."""
    i, j = loop(x.shape[0], 0), reduction(x.shape[1], 1)
    return y[i].store(x[i, j].reduce(j, arg=Ops.MAX)).end(i).sink()


def matmul_in_memory(c: UOp, a: UOp, b: UOp) -> UOp:
    """Accumulates in the memory of the result."""
    i, j, k = loop(c.shape[0], 0), loop(c.shape[1], 1), reduction(a.shape[1], 2)
    c = c[i, j].set(0.0)
    c = c[i, j].set(c.after(k)[i, j] + a[i, k] * b[k, j], end=k)
    return c.end(i, j).sink(arg=KernelInfo(name="in_memory", opts_to_apply=()))


def matmul_in_registers(c: UOp, a: UOp, b: UOp) -> UOp:
    """Two rows of the result at a time, in two registers."""
    i, j, k = loop(c.shape[0] // 2, 0), loop(c.shape[1], 1), reduction(a.shape[1], 2)
    clear, row, last = loop(2, 3), loop(2, 4), loop(2, 5)
    sums = UOp.placeholder((2,), c.dtype, 0, addrspace=AddrSpace.REG)
    sums = sums.after(i, j)[clear].set(0.0, end=clear)
    more = sums.after(k)[row] + a[i * 2 + row, k] * b[k, j]
    sums = sums[row].set(more, end=(k, row))
    return c[i * 2 + last, j].store(sums[last]).end(i, j, last).sink()


def softmax(y: UOp, x: UOp) -> UOp:
    rows, columns = x.shape
    i, j, k, out = loop(rows, 0), reduction(columns, 1), reduction(columns, 2), loop(columns, 3)
    largest = x[i, j].reduce(j, arg=Ops.MAX)
    total = ((x[i, k] - largest) * LOG2_E).exp2().reduce(k, arg=Ops.ADD)
    return y[i, out].store(((x[i, out] - largest) * LOG2_E).exp2() / total).end(i, out).sink()


def attention(o: UOp, q: UOp, k: UOp, v: UOp) -> UOp:
    """`(q @ k.T) @ v`, with nested accumulators."""
    count, dim = q.shape
    i, column, j, inner = loop(count, 0), loop(dim, 1), reduction(count, 2), reduction(dim, 3)
    score = UOp.placeholder((1,), q.dtype, 0, addrspace=AddrSpace.REG)
    score = score.after(i, j)[0].set(0.0)
    score = score[0].set(score.after(inner)[0] + q[i, inner] * k[j, inner], end=inner)
    total = UOp.placeholder((1,), q.dtype, 1, addrspace=AddrSpace.REG)
    total = total.after(i, column)[0].set(0.0)
    total = total[0].set(total.after(j)[0] + score[0] * v[j, column], end=j)
    return o[i, column].store(total[0]).end(column).end(i).sink()


def sum_and_product(c: UOp, d: UOp, a: UOp, b: UOp) -> UOp:
    i = loop(c.shape[0], 0)
    return UOp.group(c[i].store(a[i] + b[i]), d[i].store(a[i] * b[i])).end(i).sink()


def increment(x: UOp) -> UOp:
    x = x.flatten()
    i = loop(x.numel(), 0)
    return x[i].store(x[i] + 1).end(i).sink(arg=KernelInfo(name="increment"))


def copy_and_add(c: UOp, d: UOp, a: UOp) -> UOp:
    """`c = a + 1` and, in place, `d += a`."""
    i = loop(c.shape[0], 0)
    return UOp.group(c[i].store(a[i] + 1), d[i].store(d[i] + a[i])).end(i).sink()


def running_sum(y: UOp, x: UOp) -> UOp:
    i = loop(x.shape[0], 0)
    total = UOp.placeholder((1,), x.dtype, 0, addrspace=AddrSpace.REG)
    total = total[0].set(0.0)
    total = total[0].set(total.after(i)[0] + x[i])
    return y[i].store(total[0]).end(i).sink()


def running_sum_in_memory(y: UOp, x: UOp) -> UOp:
    i = loop(x.shape[0], 0)
    before = y.after(i)[(i - 1).valid(i > 0)]
    return y[i].store(before + x[i]).end(i).sink()


def sum_rows(size: UOp, y: UOp, x: UOp) -> UOp:
    j, i = loop(x.shape[1], 0), reduction(size, 1)
    return y[j].store(x[i, j].reduce(i, arg=Ops.ADD)).end(j).sink(arg=KernelInfo("sum_rows"))
