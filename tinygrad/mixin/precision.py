"""Half precision: a composite function computes in float32, and rounds its results once.

One operation on narrow floats (float16, bfloat16 and the 8-bit floats) is computed in float32 and
rounded (`codegen/decompose/narrow_floats.py`). A composition of several would round each of them,
and overflow in between. `in_float32` casts the operands instead, and the results back. The casts
fuse with the operations, and gradients pass them, so they too are computed in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.mixin.core import TensorCore

NARROW = frozenset({dtypes.float16, dtypes.bfloat16, *dtypes.fp8s})

P = ParamSpec("P")
R = TypeVar("R")


def in_float32(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with narrow tensors cast to float32, and float32 results cast to the type that the
    float operands promote to.
    """

    @functools.wraps(function)
    def compute(*args: P.args, **kwargs: P.kwargs) -> R:
        for x in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(x, TensorCore) and x.uop.dtype in NARROW:
                narrowed: R = _compute_wide(function, args, kwargs)
                return narrowed
        return function(*args, **kwargs)

    return compute


def _compute_wide(function: Callable[..., R], args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = list(_tensors(args, kwargs))
    floats = [x.dtype for x in tensors if x.is_floating_point()]
    # operands in files are read on the device of the others, before they are cast
    beside = dict(zip(map(id, tensors), tensors[0]._beside(*tensors[1:]), strict=True))

    def widen(x: Any) -> Any:
        if not isinstance(x, TensorCore):
            return x
        x = beside[id(x)]
        return x.cast(dtypes.float32) if x.dtype in NARROW else x

    wide = [widen(x) for x in args]
    return _narrowed(
        function(*wide, **{name: widen(x) for name, x in kwargs.items()}),
        least_upper_dtype(*floats),
    )


def _tensors(args: Any, kwargs: dict[str, Any]) -> Iterator[TensorCore]:
    for x in (*args, *kwargs.values()):
        if isinstance(x, TensorCore):
            yield x


def _narrowed(result: Any, dtype: DType) -> Any:
    """`result`, a tensor or a tuple, with float32 cast to a narrower `dtype`."""
    if isinstance(result, tuple):
        return tuple(_narrowed(x, dtype) for x in result)
    is_wide = isinstance(result, TensorCore) and result.dtype is dtypes.float32
    return result.cast(dtype) if is_wide else result
