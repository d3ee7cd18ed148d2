"""Losses: how far predictions are from what they should be.

In: predictions, and targets as values or classes. Out: the mean or the sum over samples, or one
loss each. Raised: TypeError for targets that are no tensor. Everything is computed from logits,
without overflow.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.mixin.activation import ActivationMixin
from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.gather import GatherMixin

_REDUCTIONS = ("mean", "sum", "none")


class LossMixin(GatherMixin, ActivationMixin):
    """Cross entropies."""

    __slots__ = ()

    def _reduced_loss(self, reduction: str) -> Self:
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is none of {', '.join(_REDUCTIONS)}")
        if reduction == "none":
            return self
        return self.mean() if reduction == "mean" else self.sum()

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """Of probabilities, to targets of 0 to 1 of the same shape.

        >>> round(Tensor([0.5]).binary_crossentropy(Tensor([1.0])).item(), 4)
        0.6931
        """
        _check_target("binary_crossentropy", Y)
        loss = Y.neg() * self.log() - (1 - Y) * (1 - self).log()
        return loss._reduced_loss(reduction)

    def binary_crossentropy_logits(
        self, Y: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Of logits, to targets of 0 to 1 of the same shape; `pos_weight` scales those of 1.

        >>> round(Tensor([0.0]).binary_crossentropy_logits(Tensor([1.0])).item(), 4)
        0.6931
        """
        _check_target("binary_crossentropy_logits", Y)
        yes, no = self.logsigmoid(), self.neg().logsigmoid()
        positive = Y * yes if pos_weight is None else Y * yes * pos_weight
        return (positive + (1 - Y) * no).neg()._reduced_loss(reduction)

    def _picked_class(self, Y: Self) -> Self:
        """Of log-probabilities with classes last, the one of the target; 0 if out of range.

        Raises ValueError unless there is one target for each.
        """
        classes = self.shape[-1]
        if Y.shape != self.shape[:-1]:
            raise ValueError(
                f"classes of shape {Y.shape} are not one for each prediction: those have shape "
                f"{self.shape[:-1]}, and an axis of {classes} classes"
            )
        places = self.arange(classes).reshape((1,) * Y.ndim + (classes,))
        # comparing reads each element once, in the pass that computes it
        return Y.unsqueeze(-1).eq(places).where(self, 0).sum(-1)

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Of logits (..., classes), to the number of a class each, (...).

        Targets of `ignore_index` do not count; -1 ignores none. `label_smoothing`, 0 to 1, is the
        share of the target that goes to all classes alike. Raises ValueError for another.

        >>> round(Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item(), 4)
        0.6931
        """
        _check_target("sparse_categorical_crossentropy", Y)
        _check_smoothing(label_smoothing)
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is none of {', '.join(_REDUCTIONS)}")
        log_probs = self.log_softmax()
        loss = log_probs._picked_class(Y).neg()
        if label_smoothing:
            loss = (1 - label_smoothing) * loss - label_smoothing * log_probs.mean(-1)
        if ignore_index == -1:
            return loss._reduced_loss(reduction)
        counts = Y.ne(ignore_index)
        loss = counts.where(loss, 0)
        return loss.sum() / counts.sum() if reduction == "mean" else loss._reduced_loss(reduction)

    def cross_entropy(self, Y: Self, reduction: str = "mean", label_smoothing: float = 0.0) -> Self:
        """Of logits (batch, classes, ...), to classes (batch, ...) or probabilities of each.

        Raises ValueError for a `label_smoothing` not within 0 to 1, and shapes that do not fit.

        >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
        0.6931
        """
        _check_target("cross_entropy", Y)
        _check_smoothing(label_smoothing)
        axis = 0 if self.ndim == 1 else 1
        classes = self.shape[axis]
        others = (*self.shape[:axis], *self.shape[axis + 1 :])
        if Y.shape == others:
            expected = Y.one_hot(classes)
            Y = expected.permute((*range(axis), Y.ndim, *range(axis, Y.ndim)))
        elif Y.shape != self.shape:
            raise ValueError(
                f"cross_entropy: targets {Y.shape} do not fit logits {self.shape}; give classes "
                f"{others}, or probabilities of the shape of the logits"
            )
        target = (1 - label_smoothing) * Y + label_smoothing / int(classes)
        return (self.log_softmax(axis) * target).sum(axis).neg()._reduced_loss(reduction)

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """Of log-probabilities (batch, classes, ...), to classes (batch, ...).

        `weight` (classes,) scales the loss of each class, and its share in the mean. Targets of
        `ignore_index` do not count.

        >>> Tensor([[-1.0, -2.0]]).nll_loss(Tensor([1])).item()
        2.0
        """
        _check_target("nll_loss", Y)
        axis = 0 if self.ndim == 1 else 1
        order = (*(i for i in range(self.ndim) if i != axis), axis)
        picked = self.permute(order)._picked_class(Y)
        share = Y.ones_like(dtype=self.dtype) if weight is None else weight[Y]
        if ignore_index is not None:
            share = Y.ne(ignore_index).where(share, 0)
        loss = picked.neg() * share
        if reduction == "mean":
            return loss.sum() / share.sum()
        return loss._reduced_loss(reduction)


def _check_target(loss: str, target: Any) -> None:
    if not isinstance(target, TensorCore):
        raise TypeError(
            f"{loss} takes a tensor of targets, not {target!r} of type {type(target).__name__}; "
            "wrap it: Tensor(...)"
        )


def _check_smoothing(label_smoothing: float) -> None:
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing={label_smoothing} is not within 0 to 1")
