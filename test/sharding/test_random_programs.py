"""Random programs over random layouts: values and gradients are those of one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from test.sharding.common import GRID, REPLICATED, TWO, integers, on, value_and_gradients
from tinygrad import Tensor
from tinygrad.device import Sharding

LAYOUTS = [
    *(on(0), on(1), REPLICATED),
    *(on((0, 1), GRID), on((1, 0), GRID), on((None, 1), GRID), on((0, None), GRID)),
]
TWO_LAYOUTS = [Sharding(TWO, 0), Sharding(TWO, 1), Sharding(TWO)]
MOST_ELEMENTS = 1024

# Each takes a matrix to a matrix whose sizes divide by 4. Factors are powers of two, so that small
# numbers stay exact and no comparison falls out differently for the order of a sum.
STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "transpose": lambda x: x.transpose(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(3, 1),
    "pad": lambda x: x.pad(((1, 3), (4, 0))),
    "merge": lambda x: x.reshape(-1).reshape(x.shape[1], x.shape[0]),
    "regroup": lambda x: x.reshape(x.shape[0] // 4, 4, -1).transpose(0, 1).reshape(x.shape),
    "halves": lambda x: x[: x.shape[0] // 2].cat(x[x.shape[0] // 2 :], dim=1).reshape(x.shape),
    "second half": lambda x: x[x.shape[0] // 2 :].repeat(2, 1),
    "center": lambda x: x - x.sum(0) * 0.125,
    "row maximum": lambda x: x + x.max(1, keepdim=True),
    "column sum": lambda x: x * 0.5 + x.sum(0) * 0.125,
    "relu": lambda x: x.relu() + 1,
    "clip": lambda x: x.clip(-2, 2),
    "ramp": lambda x: x * Tensor.arange(x.shape[1]) * 0.125,
    "mask": lambda x: (Tensor.arange(x.shape[0]).reshape(-1, 1) < 3).where(x, -1),
    "rows": lambda x: x[Tensor([3, 0, 1, 1], device=x.device)],
    "gram": lambda x: (x @ x.transpose()) * 0.125,
}
JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y * 0.25,
    "maximum": lambda x, y: (x > y).where(x, y),
    "add a row": lambda x, y: x + y[:1],
    "add a column": lambda x, y: x - y[:, :1],
    "concatenate": lambda x, y: x.cat(y, dim=0),
    "product": lambda x, y: (x @ y.transpose()) * 0.125,
}


def program(names: list[str]) -> Callable[..., Tensor]:
    """The steps in order; a join takes the next argument. Arguments are matrices (8, 16)."""

    def run(x: Tensor, *others: Tensor) -> Tensor:
        rest = list(others)
        for name in names:
            if name in STEPS:
                x = STEPS[name](x)
            else:
                y = rest.pop()
                x = JOINS[name](x[:8, :16], y[: x.shape[0], : x.shape[1]])
            if x.numel() > MOST_ELEMENTS:
                x = x[:8, :16]
        return x

    return run


def check(names: list[str], layouts: list[Any]) -> None:
    arrays = [integers(8, 16, seed=i) for i in range(len(layouts))]
    expected = value_and_gradients(program(names), [Tensor(a) for a in arrays])
    pairs = zip(arrays, layouts, strict=True)
    found = value_and_gradients(program(names), [Tensor(a).to(layout) for a, layout in pairs])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max() + 1e-5)


NAMES = st.lists(st.sampled_from([*STEPS, *JOINS]), min_size=1, max_size=5)


def draw_layouts(data: st.DataObject, names: list[str], layouts: list[Any]) -> list[Any]:
    """A layout for the first argument, and for that of each join."""
    return [data.draw(st.sampled_from(layouts)) for name in ["", *names] if name not in STEPS]


@settings(max_examples=25)
@given(names=NAMES, data=st.data())
def test_random_programs_on_four_devices(names: list[str], data: st.DataObject) -> None:
    check(names, draw_layouts(data, names, LAYOUTS))


@settings(max_examples=10)
@given(names=NAMES, data=st.data())
def test_random_programs_on_two_devices(names: list[str], data: st.DataObject) -> None:
    check(names, draw_layouts(data, names, TWO_LAYOUTS))
