"""`SHARDING="strict"`: implicit resharding is an error; communication inherent to an op is not.

Inherent are the all-reduce of a reduction over a sharded axis, the halo of movement along a sharded
axis, and resharding a gradient to the layout of its tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.sharding.common import REPLICATED, array, moved, on, placed
from tinygrad import Tensor, Variable, nn
from tinygrad.settings import Context
from tinygrad.sharding import Sharding, ShardingError

ROWS, COLUMNS = on(0), on(1)


def x(layout: Sharding, *shape: int) -> Tensor:
    return placed(array(*(shape or (8, 12))), layout)


def positions(layout: Sharding, *values: Any) -> Tensor:
    return Tensor(np.array(values, np.int32)).to(layout).realize()


REFUSED: dict[str, tuple[Callable[[], Tensor], str, Sharding, Sharding]] = {
    "elementwise": (lambda: x(ROWS) + x(COLUMNS), "add", COLUMNS, ROWS),
    "a view is named as it was written": (
        lambda: (square := x(ROWS, 8, 8)) + square.T,
        *("add", COLUMNS, ROWS),
    ),
    "what was broadcast is named as it was": (
        lambda: x(ROWS) + x(on(0), 12),
        *("add", on(0), REPLICATED),
    ),
    "where": (lambda: (x(ROWS) > 0).where(x(COLUMNS), 0), "where", ROWS, COLUMNS),
    "matmul": (lambda: x(ROWS, 64, 12) @ x(ROWS, 12, 8), "matmul", ROWS, REPLICATED),
    "cat": (lambda: x(ROWS).cat(x(COLUMNS), dim=0), "cat", COLUMNS, ROWS),
    "reshape": (lambda: x(COLUMNS).reshape(96), "reshape", COLUMNS, ROWS),
    "sort": (lambda: x(ROWS).sort(0)[0], "sort", ROWS, COLUMNS),
    "rows by an index": (
        lambda: x(ROWS)[positions(ROWS, 1, 2, 3, 4)],
        *("getitem", ROWS, REPLICATED),
    ),
    "more than a block at a symbolic place": (
        lambda: x(ROWS)[(i := Variable("i", 0, 5).bind(3)) : i + 3],
        *("getitem", ROWS, COLUMNS),
    ),
    "assign": (lambda: x(ROWS).detach().assign(x(COLUMNS)), "assign", COLUMNS, ROWS),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_implicit_transfer_is_an_error_that_names_line_layouts_and_fix(name: str) -> None:
    program, op, source, target = REFUSED[name]
    with Context(SHARDING="strict"), pytest.raises(ShardingError) as error:
        program()
    line = program.__code__.co_firstlineno
    pattern = (
        rf"{re.escape(__file__)}:({line}|{line + 1}): {op} would reshard .* from (.*) to (.*); "
    )
    found = re.fullmatch(
        pattern + r"write that in the program, with \.to\((.*)\)", str(error.value)
    )
    assert found is not None, str(error.value)
    assert found.groups()[1:] == (str(source), str(target), str(target))
    # otherwise it is implicit
    assert moved(program())


def test_the_fix_in_the_error_works() -> None:
    with Context(SHARDING="strict"):
        np.testing.assert_array_equal((x(ROWS) + x(COLUMNS).to(ROWS)).numpy(), array(8, 12) * 2)
        assert x(COLUMNS).to(ROWS).reshape(96).device is ROWS
        assert x(ROWS).to(COLUMNS).sort(0)[0].device is COLUMNS


def image(layout: Sharding) -> Tensor:
    return x(layout, 2, 3, 16, 16)


INHERENT: dict[str, tuple[Callable[[], Tensor], set[str]]] = {
    "a replicated tensor is sharded": (lambda: x(ROWS) + x(REPLICATED), set()),
    "a constant": (lambda: x(ROWS) * Tensor.arange(12) + 1, set()),
    "a sum over the sharded axis": (lambda: x(ROWS).sum(0), {"all_reduce"}),
    "row parallel": (lambda: x(COLUMNS) @ x(ROWS, 12, 8), {"all_reduce"}),
    "a softmax over the sharded axis": (lambda: x(ROWS).softmax(0), {"all_reduce"}),
    "a table sharded over its rows": (
        lambda: x(ROWS)[positions(REPLICATED, 1, 7)],
        {"all_reduce"},
    ),
    "a convolution": (
        lambda: image(on(2)).conv2d(x(REPLICATED, 4, 3, 3, 3), padding=1),
        {"halo"},
    ),
    "pooling": (lambda: image(on(2)).max_pool2d(3, stride=1), {"halo"}),
    "a shift": (lambda: x(ROWS)[1:], {"halo"}),
    "a mirror image": (lambda: x(ROWS).flip(0), {"permute"}),
    "one row": (lambda: x(ROWS)[3], {"broadcast"}),
    "a slice of symbolic size": (lambda: x(ROWS)[: Variable("i", 1, 8).bind(3)] * 2, set()),
    "a symbolic row": (lambda: x(ROWS)[Variable("i", 0, 7).bind(3)], {"all_reduce"}),
    "a running sum": (lambda: x(ROWS).cumsum(0), {"all_to_all"}),
    "a gradient": (
        lambda: (x(ROWS) @ (w := x(ROWS, 12, 4)).to(REPLICATED)).sum().gradient(w)[0],
        {"reduce_scatter"},
    ),
}


@pytest.mark.parametrize("name", INHERENT)
def test_communication_inherent_to_an_op_is_allowed(name: str) -> None:
    program, kinds = INHERENT[name]
    with Context(SHARDING="strict"):
        assert set(moved(program())) == kinds


def test_a_training_step_needs_no_implicit_resharding() -> None:
    with Context(SHARDING="strict"), Tensor.train():
        w1, w2 = x(COLUMNS, 12, 16), placed(array(16, 12), ROWS)
        optimizer = nn.optim.AdamW([w1, w2])
        loss = ((x(REPLICATED) @ w1).gelu() @ w2).square().mean().backward()
        assert set(moved(loss, *optimizer.schedule_step())) == {"all_reduce"}
