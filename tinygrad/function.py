"""`function`: the decorator of tinygrad 0.13 that makes a call one node of its graph.

Input: a function of tensors. Output: the function itself. Here equal parts of a graph are planned
and compiled once without a mark, and `TinyJit` captures steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


@overload
def function(fxn: F, **options: Any) -> F: ...
@overload
def function(fxn: None = None, **options: Any) -> Callable[[F], F]: ...
def function(fxn: F | None = None, **options: Any) -> F | Callable[[F], F]:
    """`fxn` itself. `options`, such as `precompile`, are accepted without effect. Raises TypeError
    for what is no function.

    >>> from tinygrad import function
    >>> @function
    ... def double(x: Tensor) -> Tensor:
    ...     return x * 2
    >>> double(Tensor([1, 2])).tolist()
    [2, 4]
    """
    if fxn is None:
        return lambda f: function(f, **options)
    if not callable(fxn):
        raise TypeError(f"function decorates functions, not {fxn!r}")
    return fxn
