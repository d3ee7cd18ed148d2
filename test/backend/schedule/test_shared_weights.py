"""Weights that are used several times: their gradients are products, not plain loops.

The oracle gives each use a copy of the weights, and adds the gradients of the copies in float64.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from test.backend.schedule.kernel_counts import Array, array, kernels, tensor
from test.benchmark.compile import compile_with_llvm, generate
from test.devices import only_cpu
from tinygrad import GlobalCounters, Tensor, dtypes, nn
from tinygrad.dtype import DType
from tinygrad.schedule.grouping.values import is_contraction, repeats
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

BATCH, WIDTH, STEPS = 16, 32, 9

Uses = Callable[[Sequence[Sequence[Tensor]]], Tensor]
"""A loss, from the weights of each use."""


def lstm(weights: Sequence[Sequence[Tensor]]) -> Tensor:
    """Steps of an LSTM, each with weights of its own."""
    cell, state = nn.LSTMCell(WIDTH, WIDTH), None
    total = Tensor(0.0)
    for step, own in enumerate(weights):
        cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh = own
        state = cell(tensor(BATCH, WIDTH, seed=step), state)
        total = total + (state[0] * (step + 1)).square().mean()
    return total


def gru(weights: Sequence[Sequence[Tensor]]) -> Tensor:
    """Steps of a GRU, each with weights of its own."""
    cell, hidden = nn.GRUCell(WIDTH, WIDTH), None
    total = Tensor(0.0)
    for step, own in enumerate(weights):
        cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh = own
        hidden = cell(tensor(BATCH, WIDTH, seed=step), hidden)
        total = total + (hidden * (step + 1)).square().mean()
    return total


def layers(weights: Sequence[Sequence[Tensor]]) -> Tensor:
    """Layers one after the other."""
    x = tensor(BATCH, WIDTH)
    for weight, bias in weights:
        x = x.linear(weight, bias).tanh()
    return x.square().mean()


def heads(weights: Sequence[Sequence[Tensor]]) -> Tensor:
    """Layers side by side, of several rows, with a penalty that is no product."""
    total = Tensor(0.0)
    for number, (weight, bias) in enumerate(weights):
        x = tensor(4, BATCH, WIDTH, seed=number)
        found = x.linear(weight, bias)
        total = total + found.sigmoid().mean() + 0.01 * (weight.square().sum() + bias.abs().sum())
    return total


def convolutions(weights: Sequence[Sequence[Tensor]]) -> Tensor:
    """Convolutions one after the other."""
    x = tensor(2, 8, 9, 9)
    for weight, bias in weights:
        x = x.conv2d(weight, bias, padding=1).tanh()
    return x.square().mean()


def distances(weights: Sequence[Sequence[Tensor]]) -> Tensor:
    """Products of a broadcast weight, and other functions of it."""
    total = Tensor(0.0)
    for number, (weight, bias) in enumerate(weights):
        x = tensor(BATCH, WIDTH, 1, seed=number)
        wide = weight.reshape(1, WIDTH, WIDTH).expand(BATCH, WIDTH, WIDTH)
        near = (x - wide).square().sum(1).mean() + (x * wide).sum(1).square().mean()
        total = total + near + bias.square().sum()
    return total


SQUARE = ((WIDTH, WIDTH), (WIDTH,))
PROGRAMS: dict[str, tuple[Uses, tuple[tuple[int, ...], ...]]] = {
    "lstm": (lstm, ((4 * WIDTH, WIDTH),) * 2 + ((4 * WIDTH,),) * 2),
    "gru": (gru, ((3 * WIDTH, WIDTH),) * 2 + ((3 * WIDTH,),) * 2),
    "layers": (layers, SQUARE),
    "heads": (heads, SQUARE),
    "convolutions": (convolutions, ((8, 8, 3, 3), (8,))),
    "distances": (distances, SQUARE),
}


def weights_of(shapes: Sequence[tuple[int, ...]], dtype: DType = dtypes.float32) -> list[Tensor]:
    """Random weights, scaled as those of a layer are."""
    scale = 1 / WIDTH**0.5
    arrays = [array(*shape, seed=number) * scale for number, shape in enumerate(shapes)]
    return [Tensor(x, dtype=dtype, requires_grad=True).realize() for x in arrays]


def gradients(uses: Uses, weights: Sequence[Tensor], steps: int) -> list[Array]:
    """The gradients of weights that all steps share."""
    return [x.numpy() for x in uses([weights] * steps).gradient(*weights)]


def sums_of_copies(uses: Uses, weights: Sequence[Tensor], steps: int) -> list[Array]:
    """The sums of the gradients of a copy of the weights for each step."""
    copies = [[x.clone().realize().requires_grad_() for x in weights] for _ in range(steps)]
    found = uses(copies).gradient(*(x for own in copies for x in own))
    arrays = [x.numpy().astype(np.float64) for x in found]
    return [np.sum(arrays[number :: len(weights)], 0) for number in range(len(weights))]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("steps", [2, STEPS])
def test_gradients_of_shared_weights_are_sums_over_their_uses(name: str, steps: int) -> None:
    uses, shapes = PROGRAMS[name]
    weights = weights_of(shapes)
    expected = sums_of_copies(uses, weights, steps)
    for found, wanted in zip(gradients(uses, weights, steps), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_gradients_of_narrow_shared_weights_round_once(dtype: DType) -> None:
    # products of integers, whose sums are exact in float32
    xs = [Tensor(np.rint(array(64, 48, seed=i) * 2), dtype=dtype) for i in range(STEPS)]
    ys = [Tensor(np.rint(array(64, 40, seed=i + 50) * 2), dtype=dtype) for i in range(STEPS)]
    weight = Tensor.zeros(48, 40, dtype=dtype).contiguous().requires_grad_().realize()
    loss = sum(((x @ weight) * y).cast("float32").sum() for x, y in zip(xs, ys, strict=True))
    assert isinstance(loss, Tensor)
    (found,) = loss.gradient(weight)
    exact = sum(x.numpy().astype("f8").T @ y.numpy().astype("f8") for x, y in zip(xs, ys))
    np.testing.assert_array_equal(
        found.cast("float32").numpy(), Tensor(exact.astype("f4")).cast(dtype).float().numpy()
    )


@pytest.mark.parametrize("steps", [2, 4, 12])
def test_a_shared_weight_takes_no_more_arithmetic_than_copies_of_it(steps: int) -> None:
    weight = weights_of([(WIDTH, WIDTH)])[0]

    def work(weights: Sequence[Tensor]) -> tuple[int, int]:
        pairs = [(tensor(64, WIDTH, seed=i), x) for i, x in enumerate(weights)]
        loss = Tensor(0.0)
        for x, own in pairs:
            loss = loss + (x @ own).tanh().sum()
        distinct = list(dict.fromkeys(weights))
        found = loss.gradient(*distinct)
        count = kernels(*found)
        return count, GlobalCounters.global_ops

    copies = [weight.clone().realize().requires_grad_() for _ in range(steps)]
    shared_kernels, shared_work = work([weight] * steps)
    copied_kernels, copied_work = work(copies)
    assert shared_kernels <= copied_kernels
    assert shared_work <= copied_work + steps * WIDTH * WIDTH


def test_tied_embeddings_add_the_gradients_of_rows_and_of_products() -> None:
    table = weights_of([(50, WIDTH)])[0]
    numbers = Tensor(np.arange(24).reshape(4, 6) % 7)

    def loss(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
        total = Tensor(0.0)
        for step, (rows, columns) in enumerate(zip(inputs, outputs, strict=True)):
            x = rows[numbers] * (step + 1)
            total = total + (x @ columns.transpose()).tanh().square().mean()
        return total

    copies = [[table.clone().realize().requires_grad_() for _ in range(3)] for _ in range(2)]
    found = loss(*copies).gradient(*copies[0], *copies[1])
    expected = np.sum([x.numpy().astype("f8") for x in found], 0)
    (tied,) = loss([table] * 3, [table] * 3).gradient(table)
    np.testing.assert_allclose(tied.numpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["lstm", "gru", "layers", "heads", "convolutions"])
def test_gradients_of_shared_weights_are_contractions(name: str) -> None:
    uses, shapes = PROGRAMS[name]
    weights = weights_of(shapes)
    found = uses([weights] * STEPS).gradient(*(x for x in weights if x.ndim > 1))
    asts = {x.ast for x in found[0].schedule(*found[1:]) if x.ast.op is Ops.SINK}
    sums = [x for ast in asts for x in ast.toposort() if x.op is Ops.REDUCE_AXIS]
    outer = [x for x in sums if any(repeats(y) for y in operands(x))]
    assert outer
    assert all(map(is_contraction, outer))


def operands(reduction: UOp) -> set[UOp]:
    """What a reduction combines elementwise."""
    found: set[UOp] = set()
    stack = [reduction.src[0]]
    while stack:
        node = stack.pop()
        if node.op in GroupOp.Elementwise:
            stack.extend(node.src)
        else:
            found.add(node)
    return found


@only_cpu
def test_the_gradient_of_a_shared_bias_is_little_code() -> None:
    # each of 20 rows reads 40 arrays, by several vectors
    arrays = [tensor(20, 1024, seed=number) for number in range(40)]
    added = functools.reduce(operator.add, arrays).sum(0)
    (kernel,) = added.schedule()
    program = generate(kernel.ast)
    assert len(compile_with_llvm(program)) < 1 << 14
