"""Custom kernels against numpy: the kernel language, gradients, order, JIT."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from test.backend.codegen.custom_kernels import (
    CLOSE,
    add,
    array,
    attention,
    copy_and_add,
    increment,
    loop,
    matmul,
    matmul_in_memory,
    matmul_in_registers,
    reduction,
    running_sum,
    running_sum_in_memory,
    softmax,
    sum_and_product,
    sum_rows,
)
from test.devices import DEVICE
from tinygrad import Context, Device, Tensor, TinyJit, UOp, Variable, dtypes
from tinygrad.codegen import get_program
from tinygrad.dtype import AddrSpace
from tinygrad.execution.realize import compiled_kernels
from tinygrad.helpers import GlobalCounters
from tinygrad.renderer import find_renderer
from tinygrad.schedule.kernel.custom_kernel import CustomKernelError, lower_custom_kernel
from tinygrad.uop.ops import AxisType, Ops

pytestmark = pytest.mark.usefixtures("verified_replays")

# ---- the kernel language ----


@pytest.fixture(autouse=True, params=[0, 1], ids=["optimized", "plain loops"])
def _noopt(request: pytest.FixtureRequest):
    with Context(NOOPT=request.param):
        yield


def test_elementwise_over_flat_views():
    a, b = array(16, 16), array(16, 16)
    results = Tensor.custom_kernel(Tensor.empty(16, 16), Tensor(a), Tensor(b), fxn=add)
    np.testing.assert_array_equal(results[0].numpy(), a + b)
    np.testing.assert_array_equal(results[1].numpy(), a)
    assert len(results) == 3
    assert "custom_add" in compiled_kernels


@pytest.mark.parametrize("kind", ["GLOBAL", "WARP", "UPCAST", "THREAD"])
def test_loops_of_all_kinds_of_other_releases_compute_the_same(kind: str) -> None:
    def sums(y: UOp, x: UOp) -> UOp:
        i = UOp.range(x.shape[0], 0, getattr(AxisType, kind))
        j = UOp.range(x.shape[1], 1, axis_type=AxisType.UNROLL)
        k = UOp.range(x.shape[2], 2, AxisType.GROUP_REDUCE)
        return y[i].store(x[i, j, k].reduce(j, k, arg=Ops.ADD)).end(i).sink()

    x = array(6, 5, 3)
    found = Tensor.empty(6).custom_kernel(Tensor(x), fxn=sums)[0]
    np.testing.assert_allclose(found.numpy(), x.sum((1, 2)), **CLOSE)


@pytest.mark.parametrize("kernel", [matmul, matmul_in_memory, matmul_in_registers])
def test_matmul(kernel):
    a, b = array(14, 37), array(37, 23)
    c = Tensor.custom_kernel(Tensor.empty(14, 23), Tensor(a), Tensor(b), fxn=kernel)[0]
    np.testing.assert_allclose(c.numpy(), a @ b, **CLOSE)


def test_softmax():
    x = array(9, 33)
    exp = np.exp(x - x.max(1, keepdims=True))
    y = Tensor.custom_kernel(Tensor.empty(9, 33), Tensor(x), fxn=softmax)[0]
    np.testing.assert_allclose(y.numpy(), exp / exp.sum(1, keepdims=True), **CLOSE)


def test_registers_in_nested_loops():
    q, k, v = array(7, 5), array(7, 5), array(7, 5)
    inputs = map(Tensor, (q, k, v))
    o = Tensor.custom_kernel(Tensor.empty(7, 5), *inputs, fxn=attention)[0]
    np.testing.assert_allclose(o.numpy(), (q @ k.T) @ v, rtol=1e-4, atol=1e-4)


def test_phases_over_scratch_memory():
    def reverse_doubled(y, x):
        n = x.shape[0]
        i, j = loop(n, 0), loop(n, 1)
        scratch = UOp.placeholder((n,), x.dtype, 0, addrspace=AddrSpace.LOCAL)
        filled = scratch.after(scratch[i].store(x[i] * 2).end(i))
        return y[j].store(filled[n - 1 - j]).end(j).sink()

    y = Tensor.custom_kernel(Tensor.empty(3), Tensor([1.0, 2, 3]), fxn=reverse_doubled)[0]
    assert y.tolist() == [6.0, 4.0, 2.0]


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16, dtypes.int8, dtypes.uint64])
def test_registers_of_other_dtypes(dtype):
    def double(y, x):
        i = loop(x.shape[0], 0)
        kept = UOp.placeholder((1,), x.dtype, 0, addrspace=AddrSpace.REG).after(i)[0].set(x[i])
        return y[i].store(kept[0] + x[i]).end(i).sink()

    x = Tensor([1, 2, 3]).cast(dtype)
    y = Tensor.custom_kernel(Tensor.empty(3, dtype=dtype), x, fxn=double)[0]
    assert y.tolist() == [2, 4, 6]


def test_scalars_and_arrays_without_elements():
    def total(y, x):
        i = reduction(x.shape[0], 0)
        return y[()].store(x[i].reduce(i, arg=Ops.ADD)).sink()

    assert Tensor.custom_kernel(Tensor.empty(()), Tensor([1.0, 2, 4]), fxn=total)[0].item() == 7
    none = Tensor.empty(0, 2)
    assert Tensor.custom_kernel(none, Tensor.empty(0, 2), none, fxn=add)[0].tolist() == []


def test_slices_and_views_of_placeholders():
    def kernel(y, x):
        i, j = loop(3, 0), reduction(4, 1)
        row = x.permute(1, 0)[i, 1:5]
        return y[i].store(row[j].reduce(j, arg=Ops.ADD)).end(i).sink()

    x = array(6, 3)
    y = Tensor.custom_kernel(Tensor.empty(3), Tensor(x), fxn=kernel)[0]
    np.testing.assert_allclose(y.numpy(), x.T[:, 1:5].sum(1), **CLOSE)


def test_masked_loads_read_zero_and_masked_stores_are_skipped():
    def kernel(y, x):
        i = loop(y.numel(), 0)
        left = x[(i - 1).valid(i > 0)]
        return y[i.valid(i.ne(2))].store((i < 5).where(left, -1.0)).end(i).sink()

    x, y = array(7), Tensor.ones(7).contiguous().realize()
    expected = np.concatenate([[0], x[:4], [-1, -1]]).astype(np.float32)
    expected[2] = 1
    np.testing.assert_array_equal(Tensor.custom_kernel(y, Tensor(x), fxn=kernel)[0], expected)


def test_casts_and_indices_as_values():
    def kernel(y, x):
        i = loop(y.numel(), 0)
        return y[i].store((x[i] * 2).cast(dtypes.int) + i.cast(dtypes.int)).end(i).sink()

    y = Tensor.empty(4, dtype=dtypes.int)
    x = Tensor([0.5, 1.5, 2.5, 3.5])
    assert Tensor.custom_kernel(y, x, fxn=kernel)[0].tolist() == [1, 4, 7, 10]


def test_an_index_may_be_loaded():
    def kernel(y, x, index):
        i = loop(y.numel(), 0)
        return y[i].store(x[index[i]]).end(i).sink()

    y, x = Tensor.empty(3, dtype=dtypes.int), Tensor([10, 20, 30])
    assert Tensor.custom_kernel(y, x, Tensor([2, 0, 2]), fxn=kernel)[0].tolist() == [30, 10, 30]


def test_several_outputs_are_one_kernel():
    a, b = array(16), array(16)
    inputs = [Tensor.empty(16), Tensor.empty(16), Tensor(a).realize(), Tensor(b).realize()]
    c, d, *_ = Tensor.custom_kernel(*inputs, fxn=sum_and_product)
    GlobalCounters.reset()
    Tensor.realize(c, d)
    assert GlobalCounters.kernel_count == 1
    np.testing.assert_array_equal(c.numpy(), a + b)
    np.testing.assert_array_equal(d.numpy(), a * b)


# ---- memory and order ----


def test_inputs_may_be_expressions_views_and_constants():
    x = Tensor.arange(12).reshape(3, 4).float().contiguous().realize()
    for a, b in [(x * 2, x.T.contiguous().T), (x.flip(0), Tensor.ones(3, 4)), (x[0:3], x + 1)]:
        c = Tensor.custom_kernel(Tensor.empty(3, 4), a, b, fxn=add)[0]
        np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())


def test_a_kernel_in_place_runs_once_after_readers_of_the_old_content():
    x = Tensor.zeros(4).contiguous().realize()
    old = x + 10
    once = Tensor.custom_kernel(x, fxn=increment)[0]
    new = once + 100
    twice = Tensor.custom_kernel(once, fxn=increment)[0]
    assert (twice * 1).tolist() == [2.0] * 4
    assert x.tolist() == [2.0] * 4
    assert old.tolist() == [10.0] * 4
    assert new.tolist() == [101.0] * 4


def test_a_kernel_in_place_does_not_change_equal_values():
    x = Tensor.zeros(4).contiguous().realize()
    a, b = x + 1, x + 1
    Tensor.realize(a, b)
    assert Tensor.custom_kernel(a, fxn=increment)[0].tolist() == a.tolist() == [2.0] * 4
    assert b.tolist() == [1.0] * 4


def test_kernels_and_assignments_are_ordered():
    x = Tensor.zeros(4).contiguous().realize()
    x.assign(x + 5)
    y = Tensor.custom_kernel(x, fxn=increment)[0]
    kept = y * 1
    x.assign(x * 10)
    assert x.tolist() == [60.0] * 4
    assert kept.tolist() == [6.0] * 4


def test_all_outputs_are_written_when_one_is_realized():
    d = Tensor.ones(4).contiguous().realize()
    old = d * 3
    c, new, _ = Tensor.custom_kernel(Tensor.empty(4), d, Tensor([1.0, 2, 3, 4]), fxn=copy_and_add)
    assert c.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert d.tolist() == new.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert old.tolist() == [3.0] * 4


def test_an_unrealized_argument_is_copied_and_unchanged():
    zeros = Tensor.zeros(4)
    assert Tensor.custom_kernel(zeros, fxn=increment)[0].tolist() == [1.0] * 4
    assert zeros.tolist() == [0.0] * 4
    big = Tensor.zeros(2, 4).contiguous().realize()
    assert Tensor.custom_kernel(big[1], fxn=increment)[0].tolist() == [1.0] * 4
    assert big.tolist() == [[0.0] * 4] * 2


def test_a_slice_that_was_assigned_to_may_be_an_argument():
    big = Tensor.zeros(4, 2).contiguous().realize()
    part = big[2:4]
    part.assign(Tensor.ones(2, 2))
    assert (
        Tensor.custom_kernel(Tensor.empty(2, 2), part, part, fxn=add)[0].tolist() == [[2.0] * 2] * 2
    )


def test_equal_kernels_are_compiled_and_planned_once():
    def run() -> None:
        inputs = Tensor(array(5, 5)).realize(), Tensor(array(5, 5)).realize()
        Tensor.custom_kernel(Tensor.empty(5, 5), *inputs, fxn=add)[0].realize()

    run()
    before = len(compiled_kernels)
    run()
    assert len(compiled_kernels) == before


def test_jit():
    @TinyJit
    def step(a: Tensor, b: Tensor) -> Tensor:
        return Tensor.custom_kernel(Tensor.empty(6, 5), a, b + 1, fxn=matmul)[0].realize()

    for _ in range(4):
        a, b = array(6, 4), array(4, 5)
        result = step(Tensor(a).realize(), Tensor(b).realize())
        np.testing.assert_allclose(result.numpy(), a @ (b + 1), **CLOSE)


def test_jit_in_place():
    count = Tensor.zeros(2).contiguous().realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (Tensor.custom_kernel(count, fxn=increment)[0] * x).realize()

    results = [step(Tensor([1.0, 2.0]).realize()).tolist() for _ in range(5)]
    assert results == [[float(i), 2.0 * i] for i in range(1, 6)]


# ---- loop order ----


def grids(kernel, *shapes: tuple[int, ...]) -> list[str]:
    """The grid sizes of a kernel on arrays of these shapes."""
    placeholders = tuple(UOp.placeholder(x, dtypes.float, i) for i, x in enumerate(shapes))
    lowered = lower_custom_kernel(kernel(*placeholders), "kernel", placeholders)
    applied = get_program(lowered, find_renderer(replace(Device[DEVICE].target, threads=2))).applied
    return [note for note in applied if note.startswith("grid")]


def test_a_loop_with_a_carried_dependency_is_sequential():
    x = array(100_000)
    for kernel in (running_sum, running_sum_in_memory):
        y = Tensor.custom_kernel(Tensor.empty(x.size), Tensor(x), fxn=kernel)[0]
        np.testing.assert_array_equal(y.numpy(), np.cumsum(x))


def test_independent_outer_loops_run_in_parallel():
    n = 256
    many = (n, n)
    with Context(NOOPT=0):
        assert grids(matmul_in_registers, many, many, many)
        assert grids(matmul_in_memory, many, many, many)
        assert not grids(running_sum, (n * n * n,), (n * n * n,))
        assert not grids(running_sum_in_memory, (n * n * n,), (n * n * n,))
    a, b = array(n, n), array(n, n)
    c = Tensor.custom_kernel(Tensor.empty(n, n), Tensor(a), Tensor(b), fxn=matmul_in_registers)[0]
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, atol=1e-4)


# ---- symbolic sizes ----


def test_a_bound_variable_limits_a_loop():
    x = array(10, 4)
    size, memory = Variable("n", 1, 10), Tensor(x).realize()

    def run(n: UOp) -> Tensor:
        return Tensor.custom_kernel(Tensor.empty(4), memory, fxn=partial(sum_rows, n))[0]

    step = TinyJit(lambda n: (run(n) + 1).realize())
    for count in (3, 7, 1, 10):
        n = size.bind(count)
        np.testing.assert_allclose(run(n).numpy(), x[:count].sum(0), **CLOSE)
        np.testing.assert_allclose(step(n).numpy(), x[:count].sum(0) + 1, **CLOSE)
    with pytest.raises(CustomKernelError, match=r"the Variable n is not bound; use n\.bind"):
        run(size)


def test_shapes_of_inputs_may_be_symbolic():
    x = array(10, 4)
    for count in (2, 9):
        part = Tensor(x).realize()[: Variable("n", 1, 10).bind(count)]
        kernel = partial(sum_rows, part.shape[0])
        y = Tensor.custom_kernel(Tensor.empty(4), part, fxn=kernel)[0]
        np.testing.assert_allclose(y.numpy(), x[:count].sum(0), **CLOSE)
    with pytest.raises(
        CustomKernelError, match=r"writes tensor 0, .* symbolic shape \(n\[9\], 4\)"
    ):
        Tensor.custom_kernel(part, fxn=lambda c: c[0, 0].store(1.0).sink())


# ---- gradients ----


def by_tensors(gradient: UOp, kernel: UOp) -> tuple[UOp | None, ...]:
    _, a, b = kernel.src
    return None, (Tensor(gradient) @ Tensor(b).T).uop, (Tensor(a).T @ Tensor(gradient)).uop


def by_kernels(gradient: UOp, kernel: UOp) -> tuple[UOp | None, ...]:
    _, a, b = (Tensor(x) for x in kernel.src)
    g = Tensor(gradient)
    by_a = Tensor.custom_kernel(Tensor.empty(*a.shape), g, b.T, fxn=matmul)[0]
    by_b = Tensor.custom_kernel(Tensor.empty(*b.shape), a.T, g, fxn=matmul)[0]
    return None, by_a.uop, by_b.uop


@pytest.mark.parametrize("grad_fxn", [by_tensors, by_kernels])
def test_gradient(grad_fxn):
    left, right = array(6, 4), array(4, 5)
    a, b = Tensor(left, requires_grad=True), Tensor(right, requires_grad=True)
    c = Tensor.custom_kernel(Tensor.empty(6, 5), a, b, fxn=matmul, grad_fxn=grad_fxn)[0]
    loss = (c * c).sum().backward()
    twice = 2 * (left @ right)
    np.testing.assert_allclose(loss.item(), ((left @ right) ** 2).sum(), rtol=1e-5)
    np.testing.assert_allclose(a.grad.numpy(), twice @ right.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.grad.numpy(), left.T @ twice, rtol=1e-4, atol=1e-4)


def test_gradient_from_the_kernels_result():
    def exp2(y, x):
        i = loop(x.numel(), 0)
        return y[i].store(x[i].exp2()).end(i).sink()

    def grad_fxn(gradient, kernel):
        return None, (Tensor(gradient) * Tensor(kernel)).uop

    x = Tensor([1.0, 2.0, 3.0], requires_grad=True).realize()
    y = Tensor.custom_kernel(Tensor.empty(3), x, fxn=exp2, grad_fxn=grad_fxn)[0]
    y.sum().backward()
    GlobalCounters.reset()
    Tensor.realize(y, x.grad)
    assert x.grad.tolist() == [2.0, 4.0, 8.0]
    assert GlobalCounters.kernel_count == 2


def test_gradients_of_several_outputs_add_up():
    def grad_fxn(gradient, kernel):
        g, (a, b) = Tensor(gradient), map(Tensor, kernel.src[2:])
        if kernel.arg.output == 0:
            return None, None, g.uop, g.uop
        return None, None, (g * b).uop, (g * a).uop

    left, right = array(8), array(8)
    a, b = Tensor(left, requires_grad=True), Tensor(right, requires_grad=True)
    outputs = Tensor.empty(8), Tensor.empty(8)
    c, d, *_ = Tensor.custom_kernel(*outputs, a, b, fxn=sum_and_product, grad_fxn=grad_fxn)
    (c * 2 + d * 3).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 + 3 * right, **CLOSE)
    np.testing.assert_allclose(b.grad.numpy(), 2 + 3 * left, **CLOSE)


def test_a_missing_gradient_is_an_error():
    a = Tensor(array(4, 4), requires_grad=True)
    c = Tensor.custom_kernel(Tensor.empty(4, 4), a, a.detach(), fxn=add)[0]
    with pytest.raises(RuntimeError, match=r"custom_add has no gradient; pass .*grad_fxn"):
        c.sum().backward()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((None, None), "returned .* a tuple of 3"),
        ((None, 1.0, None), "gradient 1 is 1.0; return the .uop"),
        ((None, Tensor.ones(4).uop, None), r"gradient 1 is .* of shape \(4,\)"),
    ],
)
def test_a_gradient_of_another_shape_is_an_error(found, message):
    a = Tensor(array(4, 4), requires_grad=True)
    inputs = Tensor.empty(4, 4), a, a
    c = Tensor.custom_kernel(*inputs, fxn=add, grad_fxn=lambda gradient, kernel: found)[0]
    with pytest.raises(CustomKernelError, match=message):
        c.sum().backward()
