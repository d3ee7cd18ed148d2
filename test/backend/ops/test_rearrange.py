"""`rearrange` against permutations and reshapes of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tinygrad import Tensor


def test_rearrange() -> None:
    x = np.arange(120).reshape(2, 6, 10)
    found = Tensor(x).rearrange("b (h d) w -> b h (w d) 1", h=2)
    expected = x.reshape(2, 2, 3, 10).transpose(0, 1, 3, 2).reshape(2, 2, 30, 1)
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(
        Tensor(x).rearrange("a ... -> ... a").numpy(), x.transpose(1, 2, 0)
    )


@pytest.mark.parametrize(
    ("formula", "order", "shape"),
    [
        ("... -> (...)", (0, 1, 2), (120,)),
        ("… -> (…)", (0, 1, 2), (120,)),
        ("a ... -> a (...)", (0, 1, 2), (2, 60)),
        ("a … -> … a", (1, 2, 0), (6, 10, 2)),
        ("a... -> (...a)", (1, 2, 0), (120,)),
        ("... c -> (c ...) ()", (2, 0, 1), (120, 1)),
        ("a b c ... -> (... c) (b a)", (2, 1, 0), (10, 12)),
        ("... (b c) -> (b ...) c", None, (24, 5)),
    ],
)
def test_rearrange_takes_the_other_axes_bare_or_merged(
    formula: str, order: tuple[int, ...] | None, shape: tuple[int, ...]
) -> None:
    x = np.arange(120).reshape(2, 6, 10)
    moved = x.reshape(2, 6, 2, 5).transpose(2, 0, 1, 3) if order is None else x.transpose(order)
    sizes = {} if order else {"b": 2}
    found = Tensor(x).rearrange(formula, **sizes)
    np.testing.assert_array_equal(found.numpy(), moved.reshape(shape))


@pytest.mark.parametrize(
    "formula",
    [
        *("a b -> a b", "a b c -> a b", "a (b c -> a b c", "a a b -> a b"),
        *("(...) -> ...", "(a ...) b c -> a ... b c", "... ... -> ...", "... -> a ..."),
        *("a b c ... -> a b c", "a b c d ... -> a b c d ..."),
    ],
)
def test_a_formula_that_does_not_fit_is_an_error(formula: str) -> None:
    with pytest.raises(RuntimeError, match="rearrange"):
        Tensor.zeros(2, 6, 10).rearrange(formula)
