"""Matrix products, losses, normalization and attention against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.backend.oracle import arrays, compare, torch
from tinygrad import Tensor, dtypes

functional = torch.nn.functional


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
        [(65, 70), (70, 33)],
    ],
)
def test_matmul(shapes: list[tuple[int, ...]]) -> None:
    compare(arrays(shapes), torch.matmul, Tensor.matmul, rtol=1e-4, atol=1e-5)


def test_matmul_of_integers_and_of_halves() -> None:
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    compare([x, x.T.copy()], torch.matmul, Tensor.matmul)
    a, b = Tensor([[1.0, 2.0]], dtype=dtypes.float16), Tensor([[3.0], [4.0]], dtype=dtypes.float16)
    assert a.matmul(b).dtype == dtypes.float16
    assert a.matmul(b, dtype=dtypes.float32).dtype == dtypes.float32
    assert (Tensor.ones(1, 4096).half() @ Tensor.ones(4096, 1).half()).item() == 4096.0


def test_sizes_that_do_not_match_are_named() -> None:
    with pytest.raises(
        RuntimeError, match=r"axis -1 of the first has size 3, axis -2 of the second 4"
    ):
        Tensor.ones(2, 3) @ Tensor.ones(4, 5)


@pytest.mark.parametrize(
    ("formula", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("i,j->ij", [(3,), (4,)]),
        ("...ij,...jk->...ik", [(2, 5, 2, 3), (5, 3, 4)]),
        ("i...->...", [(3, 4, 2)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ],
)
def test_einsum(formula: str, shapes: list[tuple[int, ...]]) -> None:
    compare(
        arrays(shapes),
        lambda *x: torch.einsum(formula, *x),
        lambda *x: Tensor.einsum(formula, *x),
        rtol=1e-4,
    )


@pytest.mark.parametrize("formula", ["ij->k", "ij->ii", "ijk->i", "ij,jk->ik"])
def test_formula_that_does_not_fit(formula: str) -> None:
    with pytest.raises(ValueError, match="einsum"):
        Tensor.einsum(formula, Tensor.ones(2, 3))


def test_linear() -> None:
    compare(
        arrays([(2, 3, 4), (4, 5), (5,)]),
        lambda x, w, b: x @ w + b,
        lambda x, w, b: x.linear(w, b),
        rtol=1e-4,
    )
    compare(arrays([(2, 4), (4,)]), lambda x, w: x * w, lambda x, w: x.linear(w))


# ---- losses ----

LABELS = np.array([0, 3, 2, 2], np.int64)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropies(reduction: str, smoothing: float) -> None:
    def expected(x: Any, y: Any) -> Any:
        return functional.cross_entropy(x, y, reduction=reduction, label_smoothing=smoothing)

    inputs = [*arrays([(4, 5)], -20, 20), LABELS]
    settings: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    compare(inputs, expected, lambda x, y: x.cross_entropy(y, **settings))
    compare(inputs, expected, lambda x, y: x.sparse_categorical_crossentropy(y, **settings))


def test_cross_entropy_of_images_and_of_probabilities() -> None:
    labels = np.random.default_rng(0).integers(0, 5, (2, 3, 3))
    compare([*arrays([(2, 5, 3, 3)]), labels], functional.cross_entropy, Tensor.cross_entropy)
    target = arrays([(4, 5)], 0, 1)[0]
    target /= target.sum(1, keepdims=True)
    compare(
        [*arrays([(4, 5)]), target],
        lambda x, y: functional.cross_entropy(x, y.detach()),
        lambda x, y: x.cross_entropy(y.detach()),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ignored_class(reduction: str) -> None:
    inputs = [*arrays([(4, 5)]), LABELS]
    compare(
        inputs,
        lambda x, y: functional.cross_entropy(x, y, ignore_index=2, reduction=reduction),
        lambda x, y: x.sparse_categorical_crossentropy(y, ignore_index=2, reduction=reduction),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_negative_log_likelihood(reduction: str) -> None:
    weight = np.array([1, 2, 0.5, 3, 1], np.float32)
    compare(
        [*arrays([(4, 5)]), LABELS],
        lambda x, y: functional.nll_loss(
            x, y, torch.tensor(weight), ignore_index=0, reduction=reduction
        ),
        lambda x, y: x.nll_loss(y, Tensor(weight), ignore_index=0, reduction=reduction),
    )


def test_binary_cross_entropies() -> None:
    target = (arrays([(4, 5)])[0] > 0).astype(np.float32)
    logits = arrays([(4, 5)], -60, 60)
    compare(
        logits,
        lambda x: functional.binary_cross_entropy_with_logits(
            x, torch.tensor(target), pos_weight=torch.tensor([2.0])
        ),
        lambda x: x.binary_crossentropy_logits(Tensor(target), pos_weight=Tensor([2.0])),
    )
    compare(
        arrays([(4, 5)], 0.1, 0.9),
        lambda x: functional.binary_cross_entropy(x, torch.tensor(target)),
        lambda x: x.binary_crossentropy(Tensor(target)),
    )


@pytest.mark.parametrize("settings", [{"label_smoothing": 1.5}, {"reduction": "average"}])
def test_loss_settings_that_there_are_not(settings: dict[str, Any]) -> None:
    for loss in (Tensor.cross_entropy, Tensor.sparse_categorical_crossentropy):
        with pytest.raises(ValueError, match="is not within|is none of"):
            loss(Tensor.ones(2, 3), Tensor([0, 1]), **settings)


# ---- normalization and attention ----


@pytest.mark.parametrize("axis", [-1, (-2, -1)])
def test_layernorm(axis: Any) -> None:
    shape = (4, 6) if isinstance(axis, tuple) else (6,)
    compare(
        arrays([(3, 4, 6)]),
        lambda x: functional.layer_norm(x, shape),
        lambda x: x.layernorm(axis),
        gradient_atol=1e-4,
    )


def test_batchnorm() -> None:
    def ours(x: Any, w: Any, b: Any) -> Any:
        return x.batchnorm(w, b, x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + 1e-5).rsqrt())

    compare(
        arrays([(4, 3, 5, 5), (3,), (3,)]),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        ours,
        rtol=1e-4,
        atol=1e-5,
        gradient_rtol=1e-3,
        gradient_atol=1e-4,
    )


def test_newton_schulz_makes_matrices_orthogonal() -> None:
    x = Tensor(arrays([(2, 3, 5)])[0]).newton_schulz(20, (2.0, -1.5, 0.5))
    found = (x @ x.transpose(-1, -2)).numpy()
    np.testing.assert_allclose(found, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-4)


ATTENTION = functional.scaled_dot_product_attention


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal: bool) -> None:
    compare(
        arrays([(2, 3, 7, 4)] * 3),
        lambda q, k, v: ATTENTION(q, k, v, is_causal=is_causal),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=is_causal),
        rtol=1e-4,
    )


@pytest.mark.parametrize("kind", ["added", "bools"])
def test_attention_with_a_mask(kind: str) -> None:
    mask = arrays([(7, 5)])[0]
    mask = mask if kind == "added" else (mask > -1)
    compare(
        arrays([(2, 3, 7, 4), (2, 3, 5, 4), (2, 3, 5, 4)]),
        lambda q, k, v: ATTENTION(q, k, v, attn_mask=torch.tensor(mask)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, attn_mask=Tensor(mask)),
        rtol=1e-4,
    )


def test_attention_with_fewer_keys_than_heads() -> None:
    compare(
        arrays([(2, 6, 7, 4), (2, 2, 7, 4), (2, 2, 7, 4)]),
        lambda q, k, v: ATTENTION(q, k, v, enable_gqa=True),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
        rtol=1e-4,
    )


def test_a_mask_and_causality_together_are_an_error() -> None:
    q = Tensor.ones(2, 3)
    with pytest.raises(RuntimeError, match="not both"):
        q.scaled_dot_product_attention(q, q, attn_mask=Tensor.ones(2, 2), is_causal=True)
