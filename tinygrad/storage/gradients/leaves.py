"""Leaves, and writes to tensors that require gradients.

Input: a tensor, and the value to write to it. Output: the node to write: detached if the tensor is
a leaf, else one through which gradients flow. Invariant: a leaf has no history.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.storage.aliases import aliases_of, is_leaf
from tinygrad.storage.gradients.grad_mode import Derived, GradState, Leaf, gradients_disabled, marks
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import BIJECTIVE


def assigned_value(tensor: TensorBase, value: UOp, wanted: GradState) -> UOp:
    """The node to write for `value`, whose state is `wanted`, to `tensor`, which requires a
    gradient from now on if the value does, as do the tensor that it is a view of and the other
    views of that. Leaves, and tensors that never require a gradient, are written as data. What
    requires a gradient and is overwritten gets zeros.
    """
    state = tensor._requires_grad
    if wanted is not False and (state is False or is_leaf(tensor) or gradients_disabled()):
        return value.detach()
    if wanted:
        for alias in aliases_of(tensor):
            if alias._requires_grad is None:
                alias._requires_grad = Derived.ASSIGNED
                marks.changes += 1
    if state is Derived.DIFFERENTIATED:
        tensor._requires_grad = True
    elif state and not (is_leaf(tensor) or gradients_disabled()):
        old, is_whole = tensor.uop, all(op in BIJECTIVE for op, _ in tensor._steps)
        if is_whole and not any(old in x.src for x in (value, *value.src)):
            everywhere = UOp.const(dtypes.bool, True).reshape((1,) * value.ndim).expand(value.shape)
            return everywhere.alu(Ops.WHERE, value, old)
    return value


def make_leaf(tensor: TensorBase) -> None:
    """Make a stored tensor that requires a gradient a leaf, whose history ends here."""
    if not isinstance(tensor._requires_grad, Leaf):
        tensor._requires_grad = Leaf(live_tensors.now())
        marks.changes += 1
        tensor._own_memory()
    histories.forget(tensor.uop)
