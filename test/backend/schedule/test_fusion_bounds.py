"""Bounds on fusion: recomputed work, the size of kernels, and the number of compiled ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from test.backend.schedule.kernel_counts import Array, array, tensor
from test.backend.schedule.unrolled import (
    NumpyOps,
    Program,
    TensorOps,
    advantages,
    appends,
    board,
    diffusion,
    gated_recurrence,
    life,
    long_chain,
    stacked,
    tanh_scan,
    total_of_sums,
    walsh_hadamard,
    wave,
)
from tinygrad import Context, GlobalCounters, Tensor
from tinygrad.execution.realize import compiled_kernels
from tinygrad.execution.schedule import create_schedule
from tinygrad.nn import BatchNorm2d, Conv2d
from tinygrad.nn.optim import SGD, Adam
from tinygrad.nn.optim.optimizer import Optimizer
from tinygrad.nn.state import get_parameters
from tinygrad.schedule.grouping.fusion.segments import MAX_KERNEL_SIZE
from tinygrad.storage.live_tensors import LiveTensors
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def operations(root: UOp) -> int:
    """The operations of a graph that computes each of its values once. An element of a PAD is a
    selection.
    """
    total = 0
    for node in root.toposort():
        if node.op in GroupOp.ALU | {Ops.PAD}:
            total += math.prod(node.shape)
        elif node.op is Ops.REDUCE_AXIS:
            total += math.prod(node.src[0].shape)
    return total


def run(program: Program, value: Array, steps: int, kernels: int) -> int:
    """Run a program; assert its value and the bounds. Returns the number of compiled kernels."""
    with np.errstate(all="ignore"):
        expected = program(NumpyOps, value.astype(np.float64), steps)
    result = program(TensorOps, Tensor(value).realize(), steps)
    work = operations(result.uop)
    items = [x for x in create_schedule([result.uop]).items if x.ast.op is Ops.SINK]
    assert len(items) <= kernels
    # a node may be computed at several points, so the tensor form of a kernel is smaller
    assert max(len(x.ast.toposort()) for x in items) <= 2 * MAX_KERNEL_SIZE
    GlobalCounters.reset()
    before = len(compiled_kernels)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-3, atol=1e-4)
    assert GlobalCounters.global_ops <= 2 * work
    return len(compiled_kernels) - before


# program, input, steps, and the maximum number of kernels
RECOMPUTED: dict[str, tuple[Program, Array, int, int]] = {
    "diffusion": (diffusion, array(64), 40, 40),
    "wave": (wave, array(64), 20, 40),
    "advantages": (advantages, array(80), 80, 12),
    "gated recurrence": (gated_recurrence, array(64, 8), 64, 12),
    "appends": (appends, array(1, 8), 16, 24),
    "life": (life, board(16), 4, 4),
    "walsh_hadamard": (walsh_hadamard, array(256), 8, 8),
}


# these compile long
SLOW = {"gated recurrence", "appends", "tanh scan", "stack"}


def names(table: Iterable[str]) -> list[Any]:
    """The names of a table, of which the slow suite runs some."""
    return [pytest.param(x, marks=pytest.mark.slow) if x in SLOW else x for x in table]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", names(RECOMPUTED))
def test_recomputed_work_is_bounded(name: str) -> None:
    program, value, steps, kernels = RECOMPUTED[name]
    run(program, value, steps, kernels)


# program, input, steps, and the maximum numbers of kernels and of compiled ones
LARGE: dict[str, tuple[Program, Array, int, int, int]] = {
    "chain": (long_chain, array(4), 2000, 16, 4),
    "tanh scan": (tanh_scan, array(300, 4), 300, 24, 4),
    "sums": (total_of_sums, array(400, 4), 400, 30, 4),
    "stack": (stacked, array(300, 4), 300, 30, 12),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", names(LARGE))
def test_large_kernels_are_split_into_equal_ones(name: str) -> None:
    program, value, steps, kernels, compiled = LARGE[name]
    assert run(program, value, steps, kernels) <= compiled


def test_expressions_of_constants_are_materialised_too() -> None:
    around = ((5, 8), (5, 8))
    constant, expected = Tensor.ones(3, 3).pad(around), np.pad(np.ones((3, 3)), around)
    result = life(TensorOps, constant, 3)
    beside = result + tensor(16, 16)
    GlobalCounters.reset()
    Tensor.realize(result, beside)
    assert GlobalCounters.global_ops <= 2 * operations(life(TensorOps, constant, 3).uop) + 256
    np.testing.assert_array_equal(result.numpy(), life(NumpyOps, expected, 3))
    np.testing.assert_allclose(beside.numpy(), result.numpy() + array(16, 16), rtol=1e-6)


@pytest.mark.parametrize(("optimizer", "most"), [(SGD, 12), (Adam, 14)])
def test_a_step_of_a_convolution_and_a_norm_has_few_kernels_and_arrays(
    optimizer: type[Optimizer], most: int
) -> None:
    layers = Conv2d(3, 32, 3), BatchNorm2d(32)
    x = tensor(8, 3, 12, 12)
    parameters = get_parameters(layers)
    Tensor.realize(*parameters, *get_parameters(optimizer(parameters)))
    with Tensor.train():
        loss = layers[1](layers[0](x)).relu().sum().backward()
        items = create_schedule([loss.uop, *(t.uop for t in optimizer(parameters).schedule_step())])
    kernels = [x.ast for x in items.items]
    assert len(kernels) <= most
    # the result of the convolution and its gradient; the mask of the activation is computed again
    stores = [store for kernel in kernels for store in kernel.src]
    assert sum(math.prod(store.src[1].shape) == 8 * 32 * 10 * 10 for store in stores) == 2


@pytest.mark.parametrize(("bias", "most"), [(False, 27), (True, 30)])
def test_layers_of_convolutions_and_norms_store_two_arrays_each(bias: bool, most: int) -> None:
    width = 16
    convolutions = [Conv2d(width, width, 3, padding=1, bias=bias) for _ in range(3)]
    layers = [x for conv in convolutions for x in (conv, BatchNorm2d(width), Tensor.relu)]
    x, parameters = tensor(8, width, 12, 12), get_parameters(layers)
    optimizer = SGD(parameters)
    Tensor.realize(*parameters)
    with Tensor.train():
        loss = x.sequential(layers).square().mean().backward()
        steps = [t.uop for t in optimizer.schedule_step()]
        kernels = [item.ast for item in create_schedule([loss.uop, *steps]).items]
    assert len(kernels) <= most
    # the results of convolutions and of activations, all but the last of which is not stored; the
    # same for their gradients
    shapes = [store.src[1].shape for kernel in kernels for store in kernel.src]
    assert sum(math.prod(shape) == x.numel() for shape in shapes) == 2 * (2 * 3 - 1)


@pytest.mark.parametrize("activation", [Tensor.gelu, Tensor.silu, Tensor.mish, Tensor.elu])
def test_activations_between_products_keep_their_argument_and_result_alone(
    activation: Callable[[Tensor], Tensor],
) -> None:
    x, (w, v), bias = tensor(48, 24), (tensor(24, 40), tensor(40, 24, seed=1)), tensor(40, seed=2)
    for parameter in (w, v, bias):
        parameter.requires_grad_()
    (activation(x @ w + bias) @ v).square().sum().backward()
    items = create_schedule([p.grad.uop for p in (w, v, bias) if p.grad is not None]).items
    shapes = [store.src[1].shape for item in items for store in item.ast.src]
    # the same for their gradients
    assert sum(math.prod(shape) == 48 * 40 for shape in shapes) == 4


def test_gated_activations_keep_their_argument_and_result_alone() -> None:
    x, w, v = tensor(50, 24), tensor(24, 40), tensor(20, 24, seed=1)
    for parameter in (w, v):
        parameter.requires_grad_()
    value, gate = (x @ w).chunk(2, -1)
    ((value * gate.gelu()) @ v).square().sum().backward()
    items = create_schedule([p.grad.uop for p in (w, v) if p.grad is not None]).items
    sizes = [math.prod(store.src[1].shape) for item in items for store in item.ast.src]
    # the gradients of the result, and of both parts of the argument
    assert (sizes.count(50 * 40), sizes.count(50 * 20)) == (1, 1 + 3)


def test_kernels_of_a_range_of_rows_are_equal() -> None:
    x, y = tensor(100, 4), tensor(100, 4, seed=1)
    before = len(compiled_kernels)
    for start in (0, 3, 90):
        found = (x[start : start + 7] * y[start + 1 : start + 8]).numpy()
        a, b = array(100, 4)[start : start + 7], array(100, 4, seed=1)[start + 1 : start + 8]
        np.testing.assert_allclose(found, a * b, rtol=1e-6)
    # the same array at two ranges is one argument
    np.testing.assert_array_equal(
        (x[5:9] + x[7:11]).numpy(), array(100, 4)[5:9] + array(100, 4)[7:11]
    )
    assert len(compiled_kernels) - before <= 2


def test_a_step_of_many_parameters_searches_the_live_tensors_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parameters = [tensor(4, seed=i) for i in range(40)]
    optimizer = Adam(parameters)
    for parameter in parameters:
        parameter.grad = Tensor.ones(4).contiguous()
    searches = []
    for name in ("__iter__", "one_by_one", "unsettled"):
        method = getattr(LiveTensors, name)
        monkeypatch.setattr(
            LiveTensors, name, lambda self, method=method: searches.append(self) or method(self)
        )
    with Tensor.train():
        optimizer.step()
    assert len(searches) <= 10


def first_step_calls(count: int) -> int:
    """The function calls of the first step of Adam with `count` small parameters."""
    parameters = [Tensor([1.0, 2.0, 3.0]).realize().requires_grad_() for _ in range(count)]
    optimizer, calls = Adam(parameters), 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    with Tensor.train():
        sys.setprofile(called)
        try:
            loss = parameters[0].sum()
            for x in parameters[1:]:
                loss = loss + (x * x).sum()
            loss.backward()
            optimizer.step()
        finally:
            sys.setprofile(None)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 600], ids="{} parameters".format)
def test_the_first_step_of_many_parameters_is_linear(count: int) -> None:
    with Context(SPEC=0):  # which makes calls of its own
        first_step_calls(count)  # what does not depend on the parameters is cached afterwards
        # other numbers of parameters, as a plan of equal structure would be known
        calls = [first_step_calls(n) for n in (count + 1, 2 * count + 1, 4 * count + 1)]
    assert (calls[2] - calls[1]) <= 1.3 * 2 * (calls[1] - calls[0])
    # measured: 4,230 and 4,410
    assert (calls[2] - calls[1]) / (2 * count) <= 4500
