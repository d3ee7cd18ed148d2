"""Matrix products and einsum against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from test.backend.ops.oracle import arrays, compare, torch
from test.backend.schedule.kernel_counts import array, kernels
from tinygrad import Device, Tensor, dtypes


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 4), (4, 5)],
        [(4,), (4, 5)],
        [(3, 4), (4,)],
        [(4,), (4,)],
        [(2, 3, 4), (4, 5)],
        [(2, 3, 4), (2, 4, 5)],
        [(2, 1, 3, 4), (6, 4, 5)],
        [(4,), (2, 4, 5)],
        [(1, 1), (1, 1)],
        [(0, 3), (3, 2)],
        [(2, 0), (0, 3)],
        [(65, 70), (70, 33)],
    ],
    ids=str,
)
def test_matmul(shapes: list[tuple[int, ...]]) -> None:
    second = max(max(shape) for shape in shapes) < 10
    compare(arrays(shapes), np.matmul, Tensor.matmul, "matmul", second=second, rtol=1e-4, atol=1e-5)


def test_matmul_of_views() -> None:
    x, y = arrays([(4, 3), (8, 4)])
    compare(
        [x, y],
        lambda x, y: x.T[::-1] @ y[::2].T,
        lambda x, y: x.T.flip(0) @ y[::2].T,
        rtol=1e-4,
    )
    compare([x], lambda x: x.T @ x, lambda x: x.T @ x, second=True, rtol=1e-4)


def test_matmul_of_other_dtypes() -> None:
    for dtype in (np.int8, np.int32, np.uint8, np.int64):
        x = np.arange(12, dtype=dtype).reshape(3, 4)
        compare([x, x.T.copy()], np.matmul, Tensor.matmul)
    assert (Tensor([[True, False]]) @ Tensor([[True], [True]])).tolist() == [[True]]
    a, b = Tensor([[1.0, 2.0]], dtype=dtypes.float16), Tensor([[3.0], [4.0]], dtype=dtypes.float16)
    assert a.matmul(b).dtype == dtypes.float16
    assert a.matmul(b, dtype=dtypes.float32).dtype == dtypes.float32
    assert a.dot(b.bfloat16()).dtype == dtypes.float32
    assert (Tensor.ones(1, 4096).half() @ Tensor.ones(4096, 1).half()).item() == 4096.0
    assert a.matmul(b, reverse=True).shape == (2, 2)


@pytest.mark.parametrize("rows", [4, 40])
def test_added_products_are_one_kernel(rows: int) -> None:
    shapes = [(rows, 50), (60, 50), (rows, 70), (60, 70), (60,)]
    a, b, c, d, bias = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    x, y, z, w, v = (Tensor(value).realize() for value in (a, b, c, d, bias))
    result = (x @ y.T + v) + z @ w.T
    # the tiles of a GPU have one product
    assert kernels(result) == (2 if Device[result.device].target.has_threads else 1)
    np.testing.assert_allclose(result.numpy(), a @ b.T + bias + c @ d.T, rtol=1e-4, atol=1e-4)
    # a matrix in another order in memory is packed, or kept where few rows are multiplied by it
    other = x @ y.T + z @ Tensor(d.T.copy()).realize()
    assert kernels(other) <= 2
    np.testing.assert_allclose(other.numpy(), a @ b.T + c @ d.T, rtol=1e-4, atol=1e-4)


def test_nan_in_a_matmul_affects_only_its_row() -> None:
    x = np.array([[1, np.nan], [3, np.inf], [5, 6]], np.float32)
    compare([x, arrays([(2, 2)], 1, 2)[0]], np.matmul, Tensor.matmul, gradient=False)


def test_errors_name_sizes_that_do_not_match() -> None:
    with pytest.raises(
        RuntimeError, match=r"axis -1 of the first has size 3, axis -2 of the second 4"
    ):
        Tensor.ones(2, 3) @ Tensor.ones(4, 5)
    with pytest.raises(RuntimeError, match=r"shapes \(\) and \(2,\).*need an axis"):
        Tensor(1.0) @ Tensor.ones(2)
    with pytest.raises(TypeError, match="dot takes a tensor, not 3 of type int"):
        Tensor.ones(2).dot(3)


@pytest.mark.sample(4, values=False)
@pytest.mark.parametrize(
    ("formula", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ij,jk->ki", [(2, 3), (3, 4)]),
        (" i j , jk -> k i ", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ba", [(2, 3)]),
        ("bA,Ab", [(2, 3), (3, 2)]),
        ("ij->", [(2, 3)]),
        ("->", [()]),
        (",i->i", [(), (3,)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iji->j", [(3, 2, 3)]),
        ("iii", [(2, 2, 2)]),
        ("iijj->ij", [(2, 2, 3, 3)]),
        ("ii,ii->i", [(3, 3), (3, 3)]),
        ("i,i", [(3,), (3,)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->ij", [(1, 3), (2, 3)]),
        ("...ij,...jk->...ik", [(2, 5, 2, 3), (5, 3, 4)]),
        ("...ij,jk", [(2, 2, 3), (3, 4)]),
        ("i...->...", [(3, 4, 2)]),
        ("i...->...i", [(3, 4, 2)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("a...b,b->a...", [(2, 3, 4, 5), (5,)]),
        ("...,...", [(2, 1), (3,)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
    ],
)
def test_einsum(formula: str, shapes: list[tuple[int, ...]]) -> None:
    compare(
        arrays(shapes),
        lambda *x: np.einsum(formula, *x),
        lambda *x: Tensor.einsum(formula, *x),
        lambda *x: torch.einsum(formula, *x),
        second=True,
        rtol=1e-4,
        gradient_rtol=1e-3,
    )


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("ij->k", "the result must name axes of operands"),
        ("ij->ii", "each once"),
        ("ijk->i", "'ijk' does not name 2 axes"),
        ("ij,jk->ik", "takes 2 operands, not 1"),
        ("ii", "axis i has sizes 2 and 3"),
        ("i....->i", "named by letters"),
        ("i1->i", "named by letters"),
        ("i...j...", "may occur once"),
    ],
)
def test_a_formula_that_does_not_fit_is_an_error(formula: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"einsum.*{text}"):
        Tensor.einsum(formula, Tensor.ones(2, 3))


def test_einsum_of_one_operand_on_a_diagonal_and_of_dtypes() -> None:
    with pytest.raises(ValueError, match="axis i has sizes 3 and 1"):
        Tensor.einsum("ii", Tensor.ones(3, 1))
    x = Tensor.ones(2, 2, dtype=dtypes.int8)
    assert Tensor.einsum("ij,jk", x, x).dtype == dtypes.int8
    assert Tensor.einsum("ij,jk", x, x, dtype=dtypes.float32).dtype == dtypes.float32
    assert Tensor.einsum("ij,jk", (x, x.half())).dtype == dtypes.float16


def test_linear() -> None:
    compare(
        arrays([(2, 3, 4), (4, 5), (5,)]),
        lambda x, w, b: x @ w + b,
        lambda x, w, b: x.linear(w, b),
        lambda x, w, b: x @ w + b,
        rtol=1e-4,
    )
    compare(arrays([(2, 4), (4,)]), lambda x, w: x * w, lambda x, w: x.linear(w))
    half = Tensor.ones(2).linear(Tensor.ones(2, 3), Tensor.ones(3), dtype=dtypes.float16)
    assert half.dtype == dtypes.float16
