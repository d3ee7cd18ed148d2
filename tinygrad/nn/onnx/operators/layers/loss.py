"""Losses of classification, for models that were exported with one."""

from __future__ import annotations

from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.tensor.indexing import from_the_front
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Of log probabilities (batch, classes, ...) and classes (batch, ...), each weighted."""
    kept = None if ignore_index is None else target.ne(ignore_index)
    classes = target if kept is None else kept.where(target, 0)
    loss = -x.gather(1, from_the_front(classes, x.shape[1]).unsqueeze(1)).squeeze(1)
    weights = loss.ones_like() if weight is None else weight[classes]
    if kept is not None:
        weights = kept.where(weights, 0)
    loss = loss * weights
    if reduction == "none":
        return loss
    if reduction not in ("sum", "mean"):
        raise OnnxError(f"reduction is {reduction!r}, not none, sum or mean")
    return loss.sum() if reduction == "sum" else loss.sum() / weights.sum()


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss, and the log probabilities."""
    log_probability = scores.log_softmax(1)
    loss = negative_log_likelihood(
        log_probability, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return loss, log_probability
