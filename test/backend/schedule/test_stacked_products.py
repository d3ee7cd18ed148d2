"""Independent products of a few rows with one operand are one product of all rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from test.backend.schedule.kernel_counts import array, kernels, tensor
from test.devices import nth
from tinygrad import Tensor
from tinygrad.schedule.grouping.rewrite.stack_products import MAX_GROWTH, MAX_ROWS
from tinygrad.uop import Ops

WIDTH, ROWS, USES = 128, 12, 5


def weight(seed: int = 0, depth: int = WIDTH, width: int = WIDTH) -> Tensor:
    return Tensor(array(depth, width, seed=seed) / depth**0.5).realize()


def inputs(*shape: int, count: int = USES) -> list[Tensor]:
    return [tensor(*shape, seed=number + 10) for number in range(count)]


def assert_products(results: Sequence[Tensor], xs: Sequence[Tensor], w: Tensor) -> None:
    for found, x in zip(results, xs, strict=True):
        expected = x.numpy().astype("f8") @ w.numpy().astype("f8")
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (1, WIDTH), (WIDTH,), (3, 4, WIDTH)])
def test_independent_products_of_one_weight_are_one_kernel(shape: tuple[int, ...]) -> None:
    w, xs = weight(), inputs(*shape)
    results = [x @ w for x in xs]
    # the copy of the rows, the product, and a copy of each result to memory of its own
    assert kernels(*results) <= 2 + USES
    assert kernels(sum((x @ w).tanh() for x in xs)) <= 3  # type: ignore[arg-type]
    assert_products(results, xs, w)


def test_the_weight_may_be_on_the_left_and_transposed() -> None:
    w, xs = weight(width=192), inputs(WIDTH, ROWS)
    total = kernels(Tensor.stack(*[(w.transpose() @ x).exp() for x in xs]))
    assert total <= USES
    found = Tensor.stack(*[w.transpose() @ x for x in xs]).numpy()
    expected = np.stack([w.numpy().astype("f8").T @ x.numpy().astype("f8") for x in xs])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_products_of_many_rows_stay() -> None:
    w = weight(0, 768, 768)
    for rows, fewer in ((MAX_ROWS, True), (MAX_ROWS + 1, False)):
        xs = inputs(rows, 768, count=3)
        asts = [x.ast for x in Tensor.schedule(*[(x @ w).tanh().contiguous() for x in xs])]
        sums = [a for a in asts if any(u.op is Ops.REDUCE_AXIS for u in a.toposort())]
        assert len(sums) == (1 if fewer else 3)


def test_stacks_take_a_bounded_share_of_the_memory_of_the_weight() -> None:
    w, uses = weight(), 40
    items = Tensor.schedule(*[(x @ w).tanh() for x in inputs(ROWS, WIDTH, count=uses)])
    sizes = [buffer.size for item in items for buffer in item.bufs if buffer is not None]
    assert max(sizes) <= MAX_GROWTH * WIDTH * WIDTH
    assert len(items) < 2 * uses


def test_a_recurrence_is_not_stacked() -> None:
    w, x = weight(), tensor(ROWS, WIDTH)
    found, expected = x, x.numpy().astype("f8")
    for _ in range(USES):
        found, expected = (found @ w).tanh(), np.tanh(expected @ w.numpy().astype("f8"))
    assert kernels(found) == USES
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_layers_of_a_recurrence_are_stacked_one_after_the_other() -> None:
    layers = [(weight(1), weight(2)), (weight(3), weight(4))]
    xs = inputs(ROWS, WIDTH)

    def unrolled(values: Sequence[Tensor]) -> list[Tensor]:
        for projection, across in layers:
            state, states = values[0] * 0, []
            for x in values:
                state = (x @ projection + state @ across).tanh()
                states.append(state)
            values = states
        return list(values)

    lazy = unrolled(xs)
    # each layer: rows, product, and a step at a time; the last results are outputs
    assert kernels(*lazy) <= 2 * (2 + USES) + 1
    values = [x.numpy().astype("f8") for x in xs]
    for projection, across in layers:
        state, states = values[0] * 0, []
        for x in values:
            state = np.tanh(
                x @ projection.numpy().astype("f8") + state @ across.numpy().astype("f8")
            )
            states.append(state)
        values = states
    for found, expected in zip(lazy, values, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_products_that_need_each_other_through_another_weight_run() -> None:
    # either the products of f can be stacked, or those of g, not both
    f, g = weight(1), weight(2)
    xs = inputs(ROWS, WIDTH)
    found = Tensor.stack(
        *[((x @ g).tanh() @ f).tanh() for x in xs],
        *[((x.flip(0) @ f).tanh() @ g).tanh() for x in xs],
    )
    wide = {name: value.numpy().astype("f8") for name, value in (("f", f), ("g", g))}
    arrays = [x.numpy().astype("f8") for x in xs]
    expected = [
        *[np.tanh(np.tanh(x @ wide["g"]) @ wide["f"]) for x in arrays],
        *[np.tanh(np.tanh(x[::-1] @ wide["f"]) @ wide["g"]) for x in arrays],
    ]
    np.testing.assert_allclose(found.numpy(), np.stack(expected), rtol=1e-4, atol=1e-5)


def test_products_around_an_assignment_read_the_content_of_their_time() -> None:
    w, x = weight(), tensor(ROWS, WIDTH)
    before = x.numpy().astype("f8")
    first = (x @ w).tanh()
    x.assign(x * 2 + first)
    second = (x @ w).tanh()
    Tensor.realize(first, second)
    wide = w.numpy().astype("f8")
    expected = np.tanh(before @ wide)
    np.testing.assert_allclose(first.numpy(), expected, rtol=1e-4, atol=1e-5)
    after = before * 2 + expected
    np.testing.assert_allclose(second.numpy(), np.tanh(after @ wide), rtol=1e-4, atol=1e-5)


def test_microbatches_of_a_pipeline_are_sent_one_by_one() -> None:
    w, other = weight(1), weight(2).to(nth(1)).realize()
    xs = inputs(ROWS, WIDTH)
    results = [((x @ w).tanh().to(nth(1)) @ other).tanh() for x in xs]
    assert kernels(*results) >= 2 * USES
    wide = [x.numpy().astype("f8") for x in (w, other)]
    for found, x in zip(results, xs, strict=True):
        expected = np.tanh(np.tanh(x.numpy().astype("f8") @ wide[0]) @ wide[1])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
