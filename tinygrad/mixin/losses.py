"""Loss functions: cross entropies and negative log-likelihood.

Input: predictions, and targets as values or classes. Output: the mean or the sum over samples, or
the loss of each. Errors: TypeError for targets that are not tensors. Losses of logits do not
overflow.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.mixin.activation import ActivationMixin
from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.gather import GatherMixin

_REDUCTIONS = ("mean", "sum", "none")


class LossMixin(GatherMixin, ActivationMixin):
    """`cross_entropy`, `binary_crossentropy`, `nll_loss`, and their like."""

    __slots__ = ()

    def _reduced_loss(self, reduction: str) -> Self:
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is none of {', '.join(_REDUCTIONS)}")
        if reduction == "none":
            return self
        return self.mean() if reduction == "mean" else self.sum()

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """Binary cross entropy of probabilities, with targets in [0, 1] of the same shape.

        >>> round(Tensor([0.5]).binary_crossentropy(Tensor([1.0])).item(), 4)
        0.6931
        """
        _check_target("binary_crossentropy", Y)
        loss = Y.neg() * self.log() - (1 - Y) * (1 - self).log()
        return loss._reduced_loss(reduction)

    def binary_crossentropy_logits(
        self, Y: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Binary cross entropy of logits, with targets in [0, 1]; `pos_weight` scales positives.

        >>> round(Tensor([0.0]).binary_crossentropy_logits(Tensor([1.0])).item(), 4)
        0.6931
        """
        _check_target("binary_crossentropy_logits", Y)
        yes, no = self.logsigmoid(), self.neg().logsigmoid()
        positive = Y * yes if pos_weight is None else Y * yes * pos_weight
        return (positive + (1 - Y) * no).neg()._reduced_loss(reduction)

    def _select_target_class(self, Y: Self) -> Self:
        """The log-probability of the target class, with classes last; 0 for classes out of range.

        Raises ValueError unless there is one target for each prediction.
        """
        classes = self.shape[-1]
        if Y.shape != self.shape[:-1]:
            raise ValueError(
                f"classes of shape {Y.shape} do not fit predictions of shape {self.shape[:-1]} "
                f"with {classes} classes; give one class for each"
            )
        class_numbers = self.arange(classes).reshape((1,) * Y.ndim + (classes,))
        # a comparison fuses with the producer; a gather would read it from memory
        return Y.unsqueeze(-1).eq(class_numbers).where(self, 0).sum(-1)

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Cross entropy of logits (..., classes), with integer classes (...) as targets.

        Targets equal to `ignore_index` are ignored; -1 ignores none. `label_smoothing`, in [0, 1],
        is the share of the target distribution that is uniform; ValueError for another.

        >>> round(Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item(), 4)
        0.6931
        """
        _check_target("sparse_categorical_crossentropy", Y)
        _check_smoothing(label_smoothing)
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is none of {', '.join(_REDUCTIONS)}")
        log_probs = self.log_softmax()
        loss = log_probs._select_target_class(Y).neg()
        if label_smoothing:
            loss = (1 - label_smoothing) * loss - label_smoothing * log_probs.mean(-1)
        if ignore_index == -1:
            return loss._reduced_loss(reduction)
        counts = Y.ne(ignore_index)
        loss = counts.where(loss, 0)
        return loss.sum() / counts.sum() if reduction == "mean" else loss._reduced_loss(reduction)

    def cross_entropy(self, Y: Self, reduction: str = "mean", label_smoothing: float = 0.0) -> Self:
        """Cross entropy of logits (batch, classes, ...), with classes or probabilities as targets.

        Targets are integers (batch, ...), or probabilities of the shape of the logits. Raises
        ValueError for a `label_smoothing` outside [0, 1] and for shapes that do not fit.

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
        """Negative log-likelihood of log-probabilities (batch, classes, ...), classes (batch, ...).

        `weight` (classes,) scales the loss of each class, and its share in the mean. Targets equal
        to `ignore_index` are ignored.

        >>> Tensor([[-1.0, -2.0]]).nll_loss(Tensor([1])).item()
        2.0
        """
        _check_target("nll_loss", Y)
        axis = 0 if self.ndim == 1 else 1
        order = (*(i for i in range(self.ndim) if i != axis), axis)
        log_probs = self.permute(order)._select_target_class(Y)
        share = Y.ones_like(dtype=self.dtype) if weight is None else weight[Y]
        if ignore_index is not None:
            share = Y.ne(ignore_index).where(share, 0)
        loss = log_probs.neg() * share
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
