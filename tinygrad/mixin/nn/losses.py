"""Loss functions: cross entropies and negative log-likelihood.

Input: predictions, and targets as values or classes. Output: the mean or the sum over samples, or
the loss of each. Errors: TypeError for targets that are not tensors. Losses of logits do not
overflow.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_float, sum_acc_dtype
from tinygrad.errors import ArgumentError
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.elementwise.formulas import binary_cross_entropy
from tinygrad.mixin.indexing.gather import GatherMixin
from tinygrad.mixin.nn.activation import ActivationMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.storage.views import is_in_memory
from tinygrad.uop.arguments import number_argument

_REDUCTIONS = ("mean", "sum", "none")


class LossMixin(GatherMixin, ActivationMixin):
    """`cross_entropy`, `binary_crossentropy`, `nll_loss`, and their like."""

    __slots__ = ()

    def _reduced_loss(self, reduction: str) -> Self:
        if reduction not in _REDUCTIONS:
            raise ArgumentError(f"reduction={reduction!r} is not one of {', '.join(_REDUCTIONS)}")
        if reduction == "none":
            return self
        return self.mean() if reduction == "mean" else self.sum()

    @in_float32
    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """Binary cross entropy of probabilities, with targets in [0, 1] of the same shape.

        Logarithms are clamped to -100 and more, and the divisor of the gradient to 1e-12 and more,
        so that both are finite for probabilities of 0 and 1.

        >>> round(Tensor([0.5]).binary_crossentropy(Tensor([1.0])).item(), 4)
        0.6931
        """
        check_tensors("binary_crossentropy", targets=Y)
        target, probability = Y._operands(self, False, "binary_crossentropy")
        dtype = least_upper_float(target.dtype)
        nodes = probability.cast(dtype), target.cast(dtype)
        return self._derive(binary_cross_entropy(*nodes), Y)._reduced_loss(reduction)

    @in_float32
    def binary_crossentropy_logits(
        self, Y: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Binary cross entropy of logits, with targets in [0, 1]; `pos_weight` scales positives.

        >>> round(Tensor([0.0]).binary_crossentropy_logits(Tensor([1.0])).item(), 4)
        0.6931
        """
        check_tensors("binary_crossentropy_logits", targets=Y)
        logits = self._as_float()
        yes, no = logits.logsigmoid(), logits.neg().logsigmoid()
        positive = Y * yes if pos_weight is None else Y * yes * pos_weight
        return (positive + (1 - Y) * no).neg()._reduced_loss(reduction)

    def _select_target_class(self, Y: Self) -> Self:
        """The log-probability of the target class, with classes last; NaN for classes out of range.

        Raises ValueError unless there is one target for each prediction, and for float targets,
        which would silently be no class if they have a fraction.
        """
        self._with_axes("the loss of classes")
        if dtypes.is_float(Y.dtype):
            raise ArgumentError(
                f"the loss of classes takes integers as targets, not {Y.dtype}; cast classes first:"
                " .int(), or use cross_entropy with probabilities of the shape of the logits"
            )
        classes = self.shape[-1]
        if Y.shape != self.shape[:-1]:
            raise ArgumentError(
                f"classes of shape {Y.shape} do not fit predictions of shape {self.shape[:-1]} "
                f"with {classes} classes; give one class for each"
            )
        if is_in_memory(self.uop) and isinstance(self.uop.device, str):
            selected = self.gather(-1, Y.unsqueeze(-1)).squeeze(-1)
        else:
            # a comparison fuses with the producer; a gather would read it from memory
            class_numbers = self._positions_along(classes).reshape((1,) * Y.ndim + (classes,))
            selected = Y.unsqueeze(-1).eq(class_numbers).where(self, 0).sum(-1)
        checked: Self = _is_class(Y, classes).where(selected, math.nan)
        return checked

    def _loss_of_classes(self, Y: Self, label_smoothing: float) -> Self:
        """The cross entropy of logits (..., classes), with classes (...), of each sample."""
        # log_softmax is `shifted` minus the logarithm, which is one number a sample
        shifted, total = [self._derive(node) for node in self._shifted_exp(-1)[::2]]
        target = shifted._select_target_class(Y)
        if label_smoothing:
            target = (1 - label_smoothing) * target + label_smoothing * shifted.mean(-1)
        return total.squeeze(-1).log() - target

    @in_float32
    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Cross entropy of logits (..., classes), with integer classes (...) as targets.

        Targets equal to `ignore_index` are ignored, also in the mean; NaN for others out of range.
        `label_smoothing`, in [0, 1], is the share of the target distribution that is uniform;
        ValueError for another.

        >>> round(Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item(), 4)
        0.6931
        """
        check_tensors("sparse_categorical_crossentropy", targets=Y)
        _check_smoothing(label_smoothing)
        if reduction not in _REDUCTIONS:
            raise ArgumentError(f"reduction={reduction!r} is not one of {', '.join(_REDUCTIONS)}")
        loss = self._loss_of_classes(Y, label_smoothing)
        counts = Y.ne(ignore_index)
        loss = counts.where(loss, 0)
        if reduction != "mean":
            return loss._reduced_loss(reduction)
        # the shares in the mean are computed first, so that the loss is one kernel
        wide = sum_acc_dtype(loss.dtype)
        share = counts.sum().cast(wide).reciprocal()
        return (loss.cast(wide) * share).sum().cast(loss.dtype)

    @in_float32
    def cross_entropy(self, Y: Self, reduction: str = "mean", label_smoothing: float = 0.0) -> Self:
        """Cross entropy of logits (batch, classes, ...), with classes or probabilities as targets.

        Targets are integers (batch, ...), or probabilities of the shape of the logits. The loss of
        a class out of range is NaN. Raises ValueError for a `label_smoothing` outside [0, 1], for
        shapes that do not fit, and for classes of a float dtype.

        >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
        0.6931
        """
        check_tensors("cross_entropy", targets=Y)
        _check_smoothing(label_smoothing)
        axis = 0 if self._with_axes("cross_entropy").ndim == 1 else 1
        classes = self.shape[axis]
        others = (*self.shape[:axis], *self.shape[axis + 1 :])
        if Y.shape == others:
            order = (*(i for i in range(self.ndim) if i != axis), axis)
            return self.permute(order)._loss_of_classes(Y, label_smoothing)._reduced_loss(reduction)
        if Y.shape != self.shape:
            raise ArgumentError(
                f"cross_entropy: targets {Y.shape} do not fit logits {self.shape}; give classes "
                f"{others}, or probabilities of the shape of the logits"
            )
        target = (1 - label_smoothing) * Y + label_smoothing / int(classes)
        return (self.log_softmax(axis) * target).sum(axis).neg()._reduced_loss(reduction)

    @in_float32
    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """Negative log-likelihood of log-probabilities (batch, classes, ...), classes (batch, ...).

        `weight` (classes,) scales the loss of each class, and its share in the mean. Targets equal
        to `ignore_index` are ignored; the loss of others out of range is NaN.

        >>> Tensor([[-1.0, -2.0]]).nll_loss(Tensor([1])).item()
        2.0
        """
        check_tensors("nll_loss", targets=Y, weight=self if weight is None else weight)
        axis = 0 if self.ndim == 1 else 1
        order = (*(i for i in range(self.ndim) if i != axis), axis)
        log_probs = self.permute(order)._select_target_class(Y)
        share = Y.ones_like(dtype=self.dtype) if weight is None else weight[Y]
        loss = log_probs.neg() * share
        if ignore_index is not None:
            counts = Y.ne(ignore_index)
            share, loss = counts.where(share, 0), counts.where(loss, 0)
        if reduction == "mean":
            return loss.sum() / share.sum()
        return loss._reduced_loss(reduction)


def _is_class(Y: Any, classes: Any) -> Any:
    """Whether each target is a class."""
    return (Y >= 0) & (Y < classes)


def _check_smoothing(label_smoothing: float) -> None:
    label_smoothing = number_argument("cross entropy", "label_smoothing", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"label_smoothing={label_smoothing} is not within 0 to 1")
