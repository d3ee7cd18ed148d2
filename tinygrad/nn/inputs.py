"""Checks of the inputs of layers.

Input: what a layer was called with. Errors: TypeError for anything but a tensor, ArgumentError for
other shapes; both name the layer.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, TypeAlias

from tinygrad.errors import ArgumentError
from tinygrad.mixin.core import check_tensors
from tinygrad.uop.ops import sint
from tinygrad.uop.sint import same_size

Axis: TypeAlias = sint | str | EllipsisType
"""A size, the name of an axis of any size, or, first or last, any number of axes."""


def check_input(layer: str, x: Any, *axes: Axis, name: str = "x") -> None:
    """Raise unless `x` is a tensor with these axes.

    `check_input("Linear", x, ..., 3)` takes (4, 3), and not (3, 4).
    """
    check_tensors(layer, **{name: x})
    shape, fixed = list(x.shape), [axis for axis in axes if axis is not ...]
    found = shape[len(shape) - len(fixed) :] if axes[0] is ... else shape[: len(fixed)]
    fits = len(shape) == len(fixed) or (len(shape) > len(fixed) and ... in axes)
    if not fits or not all(_is_size(size, axis) for size, axis in zip(found, fixed, strict=True)):
        raise ArgumentError(
            f"{layer} takes {name} of shape {_shown(axes)}, not {x.shape}; "
            "reshape it, or make a layer of these sizes"
        )


def _is_size(size: sint, axis: Axis) -> bool:
    return isinstance(axis, str | EllipsisType) or same_size(size, axis)


def _shown(axes: tuple[Axis, ...]) -> str:
    texts = ["..." if axis is ... else str(axis) for axis in axes]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
