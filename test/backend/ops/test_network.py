"""Losses, normalization and attention against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from test.backend.ops.oracle import Array, arrays, compare, torch
from tinygrad import Tensor, dtypes
from tinygrad.uop import Ops

# ---- losses ----

LABELS = np.array([0, 3, 2, 2], np.int64)


def log_softmax(x: Array, axis: int = 1) -> Array:
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def reduced(loss: Array, reduction: str) -> Array:
    return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](loss)


def one_hot(labels: Array, classes: int) -> Array:
    """(batch, ...) to (batch, classes, ...)."""
    return np.moveaxis((labels[..., None] == np.arange(classes)).astype(float), -1, 1)


def cross_entropy(x: Array, target: Array, reduction: str = "mean", smoothing: float = 0) -> Array:
    """The cross-entropy with a probability for each class."""
    smooth = (1 - smoothing) * target + smoothing / x.shape[1]
    return reduced(-(log_softmax(x) * smooth).sum(1), reduction)


@pytest.mark.sample(4)
@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropies(reduction: str, smoothing: float) -> None:
    def expected(x: Any, y: Any) -> Any:
        return cross_entropy(x, one_hot(y, 5), reduction, smoothing)

    def theirs(x: Any, y: Any) -> Any:
        loss = torch.nn.functional.cross_entropy
        return loss(x, y, reduction=reduction, label_smoothing=smoothing)

    inputs = [*arrays([(4, 5)], -20, 20), LABELS]
    settings: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    for loss in (Tensor.cross_entropy, Tensor.sparse_categorical_crossentropy):
        compare(inputs, expected, lambda x, y, loss=loss: loss(x, y, **settings), theirs)


@pytest.mark.slow
def test_ignored_classes_and_classes_out_of_range() -> None:
    (x,) = arrays([(4, 5)])
    logits = Tensor(x).realize()
    picked = -log_softmax(x)[np.arange(4), [0, 3, 2, 2]]
    losses: tuple[Any, ...] = (
        logits.sparse_categorical_crossentropy,
        lambda y: logits.log_softmax().nll_loss(y, ignore_index=-1),
        lambda y: logits.sparse_categorical_crossentropy(y, ignore_index=7),
        logits.cross_entropy,
    )
    for dtype in (dtypes.int32, dtypes.int64, dtypes.int8):
        for loss in losses[:2]:
            found = loss(Tensor([0, -1, 2, 2], dtype=dtype))
            np.testing.assert_allclose(found.item(), picked[[0, 2, 3]].mean(), rtol=1e-6)
        found = losses[2](Tensor([0, 7, 2, 2], dtype=dtype))
        np.testing.assert_allclose(found.item(), picked[[0, 2, 3]].mean(), rtol=1e-6)
    for loss in losses:
        assert math.isnan(loss(Tensor([0, 5, 2, 2])).item())
        assert math.isnan(loss(Tensor([0, -2, 2, 2])).item())
    # the gradient of the other samples is finite
    logits.requires_grad = True
    y = Tensor([0, -1, 2, 2])
    (gradient,) = logits.sparse_categorical_crossentropy(y).gradient(logits)
    expected = (np.exp(log_softmax(x)) - one_hot(y.numpy(), 5)) / 3
    expected[1] = 0
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-6)


def test_binary_cross_entropy_of_saturated_probabilities_is_finite() -> None:
    logits = np.array([100.0, -200.0, 2.0, -3.0], np.float32)
    for target in ([1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [1, 0, 0, 1]):
        x, y = Tensor(logits, requires_grad=True), np.array(target, np.float32)
        loss = x.sigmoid().binary_crossentropy(Tensor(target))
        p = 1 / (1 + np.exp(-logits.astype(np.float64)))
        p[:2] = 1, 0
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(p), -100), np.maximum(np.log1p(-p), -100)
        expected = -(y * logs[0] + (1 - y) * logs[1])
        np.testing.assert_allclose(loss.item(), expected.mean(), rtol=1e-6)
        (gradient,) = loss.gradient(x)
        np.testing.assert_allclose(gradient.numpy(), np.r_[0, 0, (p - y)[2:]] / 4, atol=1e-7)
    compare(
        [np.array([0.2, 0.7, 0.4]), np.array([0.3, 1.0, 0.0])],
        lambda p, y: -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(),
        Tensor.binary_crossentropy,
        torch and torch.nn.functional.binary_cross_entropy,
        second=True,
    )


@pytest.mark.parametrize("loss", ["cross_entropy", "sparse_categorical_crossentropy"])
def test_cross_entropy_ignores_other_classes_of_probability_zero(loss: str) -> None:
    logits = Tensor([[0.0, -math.inf, 1.0]], dtype=dtypes.float64, requires_grad=True)
    found = getattr(logits, loss)(Tensor([0]))
    np.testing.assert_allclose(found.item(), math.log1p(math.e), 1e-14)
    (gradient,) = found.gradient(logits)
    share = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(gradient.numpy(), [[-share, 0, share]], 1e-14)


def test_second_gradient_of_cross_entropy() -> None:
    compare(
        [*arrays([(4, 5)]), LABELS],
        lambda x, y: cross_entropy(x, one_hot(y, 5)),
        Tensor.cross_entropy,
        second=True,
    )


@pytest.mark.slow
def test_cross_entropy_of_images_a_single_sample_and_probabilities() -> None:
    labels = np.random.default_rng(0).integers(0, 5, (2, 3, 3))
    expected = lambda x, y: cross_entropy(x, one_hot(y, 5))  # noqa: E731
    compare([*arrays([(2, 5, 3, 3)]), labels], expected, Tensor.cross_entropy, "cross_entropy")
    alone = lambda x, y: cross_entropy(x[None], one_hot(y[None], 5))  # noqa: E731
    compare([*arrays([(5,)]), np.array(3)], alone, Tensor.cross_entropy, "cross_entropy")
    target = arrays([(4, 5)], 0, 1, seed=7)[0]
    target /= target.sum(1, keepdims=True)
    compare(
        [*arrays([(4, 5)]), target],
        cross_entropy,
        Tensor.cross_entropy,
        "cross_entropy",
        second=True,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_class(reduction: str) -> None:
    def expected(x: Any, y: Any) -> Any:
        loss = cross_entropy(x, one_hot(y, 5), "none") * (y != 2)
        return loss.sum() / (y != 2).sum() if reduction == "mean" else reduced(loss, reduction)

    compare(
        [*arrays([(4, 5)]), LABELS],
        expected,
        lambda x, y: x.sparse_categorical_crossentropy(y, ignore_index=2, reduction=reduction),
        lambda x, y: torch.nn.functional.cross_entropy(x, y, ignore_index=2, reduction=reduction),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_negative_log_likelihood(reduction: str) -> None:
    weight = np.array([1, 2, 0.5, 3, 1], np.float32)

    def expected(x: Any, y: Any) -> Any:
        share = np.where(y == 0, 0, weight[y])
        loss = -(one_hot(y, 5) * x).sum(1) * share
        return loss.sum() / share.sum() if reduction == "mean" else reduced(loss, reduction)

    ours = {"ignore_index": 0, "reduction": reduction}
    for shape, labels in (((4, 5), LABELS), ((2, 5, 2), LABELS.reshape(2, 2))):
        compare(
            [*arrays([shape]), labels],
            expected,
            lambda x, y: x.nll_loss(y, Tensor(weight), **ours),
            lambda x, y: torch.nn.functional.nll_loss(x, y, torch.tensor(weight), **ours),
        )
    assert Tensor([-1.0, -2.0]).nll_loss(Tensor(1)).item() == 2.0


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_binary_cross_entropies(reduction: str) -> None:
    target = (arrays([(4, 5)], seed=3)[0] > 0).astype(np.float32)

    def of_logits(x: Any) -> Any:
        yes, no = np.logaddexp(0, -x), np.logaddexp(0, x)
        return reduced(2 * target * yes + (1 - target) * no, reduction)

    def of_probabilities(x: Any) -> Any:
        return reduced(-(target * np.log(x) + (1 - target) * np.log(1 - x)), reduction)

    compare(
        arrays([(4, 5)], -60, 60),
        of_logits,
        lambda x: x.binary_crossentropy_logits(Tensor(target), reduction, Tensor([2.0])),
        lambda x: torch.nn.functional.binary_cross_entropy_with_logits(
            x, torch.tensor(target), pos_weight=torch.tensor([2.0]), reduction=reduction
        ),
    )
    compare(
        arrays([(4, 5)], 0.1, 0.9),
        of_probabilities,
        lambda x: x.binary_crossentropy(Tensor(target), reduction),
        lambda x: torch.nn.functional.binary_cross_entropy(
            x, torch.tensor(target), reduction=reduction
        ),
        second=True,
    )


@pytest.mark.parametrize("settings", [{"label_smoothing": 1.5}, {"reduction": "average"}])
def test_unknown_loss_arguments_are_errors(settings: dict[str, Any]) -> None:
    for loss in (Tensor.cross_entropy, Tensor.sparse_categorical_crossentropy):
        with pytest.raises(ValueError, match="is not within|is not one of"):
            loss(Tensor.ones(2, 3), Tensor([0, 1]), **settings)


@pytest.mark.parametrize("shape", [(1,), (3,), (4, 1)])
def test_targets_that_do_not_match_the_predictions_are_errors(shape: tuple[int, ...]) -> None:
    x, y = Tensor.ones(4, 5), Tensor.zeros(shape, dtype=dtypes.int)
    for loss in (Tensor.sparse_categorical_crossentropy, Tensor.nll_loss):
        with pytest.raises(ValueError, match=r"do not fit predictions.*\(4,\).*5 classes"):
            loss(x, y)
    with pytest.raises(ValueError, match=r"do not fit logits \(4, 5\); give classes \(4,\)"):
        x.cross_entropy(y)


def test_nll_loss_of_stored_log_probabilities_reads_those_of_the_targets() -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 2)).astype(np.float32)
    classes = np.array([[0, 4], [1, 2], [3, 3], [4, 0], [2, 2], [1, 0]], np.int64)
    ours = Tensor(x, requires_grad=True).realize()
    loss = ours.nll_loss(Tensor(classes))
    assert any(u.op is Ops.GATHER for u in loss.uop.toposort())
    loss.backward()
    expected = np.zeros_like(x)
    np.put_along_axis(expected, classes[:, None], -1 / classes.size, axis=1)
    np.testing.assert_allclose(loss.item(), (expected * x).sum(), rtol=1e-6)
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), expected, rtol=1e-6)
    outside = Tensor([[-1.0, -2.0]] * 3).realize().nll_loss(Tensor([0, 2, -1]), reduction="none")
    np.testing.assert_array_equal(outside.numpy(), [1.0, np.nan, np.nan])


# ---- normalization and attention ----


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, np.inf])
def test_normalize_divides_vectors_by_their_norm(p: float) -> None:
    def expected(x: Array) -> Array:
        return x / np.linalg.norm(x, p, axis=1, keepdims=True)

    compare(arrays([(3, 5)], 0.3, 2), expected, lambda x: x.normalize(p), gradient=p != np.inf)
    compare(arrays([(3, 5)], 0.3, 2), lambda x: expected(x.T).T, lambda x: x.normalize(p, dim=0))


@pytest.mark.parametrize("p", [0.5, 1, 2, 3, np.inf])
def test_vectors_of_zeros_stay_zeros_and_have_finite_gradients(p: float) -> None:
    x = Tensor([[0.0, 0.0], [3.0, 0.0]], requires_grad=True)
    y = x.normalize(p, eps=0.5)
    assert y.tolist() == [[0, 0], [1, 0]]
    (gradient,) = y.sum().gradient(x)
    assert gradient[0].tolist() == [2, 2] and np.isfinite(gradient.numpy()).all()


def test_a_norm_is_nonnegative_and_of_a_number() -> None:
    with pytest.raises(ValueError, match=r"p=-1 must be nonnegative"):
        Tensor.ones(2, 2).normalize(-1)


def normalized(x: Array, axes: Any) -> Array:
    centered = x - x.mean(axes, keepdims=True)
    return centered / np.sqrt((centered**2).mean(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("axis", [-1, (-2, -1), 0])
def test_layernorm(axis: Any) -> None:
    compare(
        arrays([(3, 4, 6)]),
        lambda x: normalized(x, axis),
        lambda x: x.layernorm(axis),
        gradient_atol=1e-4,
        second=axis == -1,
    )


def test_batchnorm() -> None:
    def ours(x: Any, w: Any, b: Any) -> Any:
        return x.batchnorm(w, b, x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + 1e-5).rsqrt())

    def expected(x: Any, w: Any, b: Any) -> Any:
        return normalized(x, (0, 2, 3)) * w.reshape(3, 1, 1) + b.reshape(3, 1, 1)

    compare(
        arrays([(4, 3, 5, 5), (3,), (3,)]),
        expected,
        ours,
        lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
        rtol=1e-4,
        atol=1e-5,
        gradient_rtol=1e-3,
        gradient_atol=1e-4,
    )


def test_batchnorm_over_other_axes_and_without_weights() -> None:
    x, mean, scale = arrays([(2, 3, 4), (2, 4), (2, 4)])
    found = Tensor(x).batchnorm(None, None, Tensor(mean), Tensor(scale), axis=(0, 2))
    expected = (x - mean[:, None]) * scale[:, None]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3, 5), (1, 1)], ids=str)
def test_newton_schulz_makes_matrices_orthogonal(shape: tuple[int, ...]) -> None:
    a = arrays([shape])[0]
    x = Tensor(a).newton_schulz(25, (2.0, -1.5, 0.5)).numpy()
    u, _, v = np.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(x, u @ v, atol=1e-4)


def test_a_step_of_newton_schulz_is_an_odd_polynomial() -> None:
    def expected(x: Any) -> Any:
        x = x / (np.sqrt((x**2).sum()) + 1e-7)
        square = x @ x.T
        return 3 * x - 4 * square @ x + 2 * square @ square @ x

    params = (3.0, -4.0, 2.0)
    compare(arrays([(2, 3)]), expected, lambda x: x.newton_schulz(1, params), rtol=1e-4)
    with pytest.raises(ValueError, match="no coefficient"):
        Tensor.ones(2, 2).newton_schulz(1, ())
    with pytest.raises(ValueError, match="takes matrices"):
        Tensor.ones(2).newton_schulz(1, params)


def attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """`mask` is added to the scores."""
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    scores = scores if mask is None else scores + mask
    return np.exp(log_softmax(scores, -1)) @ v


def hidden(seen: Array) -> Array:
    return np.where(seen, 0, -np.inf)


def in_torch(*inputs: Any, **settings: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*inputs, **settings)


@pytest.mark.parametrize("keys", [7, 5])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal: bool, keys: int) -> None:
    mask = hidden(np.tri(7, keys, dtype=bool)) if is_causal else None
    compare(
        arrays([(2, 3, 7, 4), (2, 3, keys, 4), (2, 3, keys, 4)]),
        lambda q, k, v: attention(q, k, v, mask),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=is_causal),
        lambda q, k, v: in_torch(q, k, v, is_causal=is_causal),
        rtol=1e-4,
    )


@pytest.mark.slow
def test_second_gradient_of_attention() -> None:
    compare(
        arrays([(3, 4)] * 3),
        attention,
        Tensor.scaled_dot_product_attention,
        second=True,
        rtol=1e-4,
    )


@pytest.mark.parametrize("kind", ["added", "bools"])
def test_attention_with_a_mask(kind: str) -> None:
    mask = arrays([(7, 5)])[0]
    mask = mask if kind == "added" else (mask > -1)
    compare(
        arrays([(2, 3, 7, 4), (2, 3, 5, 4), (2, 3, 5, 4)]),
        lambda q, k, v: attention(q, k, v, mask if kind == "added" else hidden(mask)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, attn_mask=Tensor(mask)),
        lambda q, k, v: in_torch(q, k, v, attn_mask=torch.tensor(mask)),
        rtol=1e-4,
    )


def test_a_query_without_keys_is_zero_without_a_gradient() -> None:
    mask = Tensor(np.tri(7, 5, k=-1, dtype=bool))
    q, k, v = (Tensor(x, requires_grad=True) for x in arrays([(7, 4), (5, 4), (5, 4)]))
    out = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    found = out.sum().gradient(q, k, v)
    # the other queries, by themselves
    rest = q[1:].scaled_dot_product_attention(k, v, attn_mask=mask[1:])
    np.testing.assert_array_equal(out[0].numpy(), 0)
    np.testing.assert_array_equal(found[0][0].numpy(), 0)
    np.testing.assert_allclose(out[1:].numpy(), rest.numpy(), rtol=1e-5)
    for one, other in zip(found, rest.sum().gradient(q, k, v), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6)


def test_attention_with_fewer_keys_than_heads() -> None:
    compare(
        arrays([(2, 6, 7, 4), (2, 2, 7, 4), (2, 2, 7, 4)]),
        lambda q, k, v: attention(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
        lambda q, k, v: in_torch(q, k, v, enable_gqa=True),
        rtol=1e-4,
    )


def test_impossible_attention_is_an_error() -> None:
    q = Tensor.ones(2, 3)
    with pytest.raises(RuntimeError, match="not both"):
        q.scaled_dot_product_attention(q, q, attn_mask=Tensor.ones(2, 2), is_causal=True)
    q, k = Tensor.ones(3, 4, 5), Tensor.ones(2, 4, 5)
    with pytest.raises(ValueError, match="3 heads of the query.*2 heads of the key"):
        q.scaled_dot_product_attention(k, k, enable_gqa=True)


def test_attention_dropout_scales_the_kept_weights() -> None:
    Tensor.manual_seed(3)
    q, v = Tensor.zeros(1, 64), Tensor.ones(64, 200)
    with Tensor.train():
        found = q.scaled_dot_product_attention(Tensor.zeros(64, 64), v, dropout_p=0.5).numpy()
    # all columns share one mask of the weights, so each is twice the share that was kept
    assert (found == found[0, 0]).all()
    assert 0.5 < found[0, 0] < 1.5
    assert found[0, 0] * 32 == pytest.approx(round(found[0, 0] * 32), abs=1e-4)
