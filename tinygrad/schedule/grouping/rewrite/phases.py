"""Phase decomposition of transposed convolutions with stride, as in gradients of convolutions.

Before: `out[y] = sum over k of in[(y - k) / stride, k]`, where most `y - k` are no multiple of the
stride and contribute 0. After: only `k = stride * q + r` contributes to `y = stride * j + r`. So
each phase r is a sum of its own, `sum over q of in[j - q, stride * q + r]`: a window of stride 1
over fewer elements, without a division. Phases are materialised, then interleaved.

Example: stride 2 and a kernel of 3. Even outputs add the kernel elements 0 and 2, odd outputs
element 1. One sum of 3 products for each output becomes sums of 2 and of 1.
"""

from __future__ import annotations

import itertools
from typing import cast

from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, WindowArg

IntShape = tuple[int, ...]
Window = tuple[int, int, int, int, int]

MAX_PHASES = 9
"""Each phase is a kernel; windows of more phases are not decomposed."""
MIN_ELEMENTS = 1 << 16
"""Smaller arrays are not decomposed."""


def split_phases(node: UOp, x: UOp) -> UOp | None:
    """`sum(unwindow(x)) -> sum of phases`, for a sum over the kernel axes of an UNWINDOW `x`."""
    if not all_int(x.shape) or prod(x.src[0].shape) < MIN_ELEMENTS:
        return None
    strided = [w for w in x.arg.windows if w[3] > 1 and w[4] == 1 and w[1] in node.arg.axes]
    if node.arg.op is not Ops.ADD or not 1 < prod(w[3] for w in strided) <= MAX_PHASES:
        return None
    total: UOp | None = None
    for phase in itertools.product(*(range(w[3]) for w in strided)):
        found = _phase(node, x, dict(zip(strided, phase, strict=True)))
        if found is not None:
            total = found if total is None else UOp(Ops.ADD, node.dtype, (total, found))
    return total


def _phase(node: UOp, x: UOp, phase: dict[Window, int]) -> UOp | None:
    """The outputs of one phase, `phase[window]` for each strided window, with zeros at the outputs
    of other phases; None if the phase has no elements.
    """
    source = x.src[0]
    windows = dict.fromkeys(x.arg.windows)
    for window, r in phase.items():
        axis, kernel, size, stride, _ = window
        if min(size, cast(int, source.shape[kernel])) <= r:
            return None
        source = _strided_slice(source, kernel, r, stride)
        windows[window] = (axis, kernel, ceildiv(size - r, stride), 1, 1)
    arg = WindowArg(tuple(new or old for old, new in windows.items()))
    unwound = UOp(Ops.UNWINDOW, x.dtype, (source,), arg)
    found = UOp(Ops.CONTIGUOUS, node.dtype, (node.replace(src=(unwound,)),))
    for (axis, _, size, stride, _), r in phase.items():
        found = _interleave(found, axis, r, stride, size)
    return found


def _strided_slice(x: UOp, axis: int, start: int, stride: int) -> UOp:
    """Elements `start`, `start + stride`, ... of an axis."""
    shape = cast(IntShape, x.shape)
    count = ceildiv(shape[axis] - start, stride)
    tail = x.shrink(tuple((start if i == axis else 0, d) for i, d in enumerate(shape)))
    missing = count * stride - (shape[axis] - start)
    padded = tail.pad(tuple((0, missing if i == axis else 0) for i in range(x.ndim)))
    cut = padded.reshape((*shape[:axis], count, stride, *shape[axis + 1 :]))
    first = cut.shrink(tuple((0, 1 if i == axis + 1 else d) for i, d in enumerate(cut.shape)))
    return first.reshape((*shape[:axis], count, *shape[axis + 1 :]))


def _interleave(x: UOp, axis: int, start: int, stride: int, size: int) -> UOp:
    """The adjoint of `_strided_slice`: an axis of `size`, zero between the elements of `x`."""
    shape = cast(IntShape, x.shape)
    count = ceildiv(size, stride)
    cut = x.reshape((*shape[: axis + 1], 1, *shape[axis + 1 :]))
    around = {axis: (0, count - shape[axis]), axis + 1: (start, stride - 1 - start)}
    padded = cut.pad(tuple(around.get(i, (0, 0)) for i in range(cut.ndim)))
    whole = padded.reshape((*shape[:axis], count * stride, *shape[axis + 1 :]))
    return whole.shrink(tuple((0, size if i == axis else d) for i, d in enumerate(whole.shape)))
