"""Collect the tensors of an object by dotted name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar, overload

from tinygrad.jit import TinyJit
from tinygrad.tensor import Tensor

T = TypeVar("T")

# types whose attributes are not state of the object that refers to them
OPAQUE = (type, ModuleType, FunctionType, MethodType, TinyJit)


@overload
def get_state_dict(obj: Any, prefix: str = "") -> dict[str, Tensor]: ...
@overload
def get_state_dict(obj: Any, prefix: str = "", *, tensor_type: type[T]) -> dict[str, T]: ...
def get_state_dict(obj: Any, prefix: str = "", tensor_type: type[Any] = Tensor) -> dict[str, Any]:
    """All tensors in `obj` by name: attributes, dictionary keys and positions, joined by dots.

    Traverses objects, dictionaries, lists, tuples and named tuples. A tensor reached by two paths
    has two names. `prefix` is prepended to every name; `tensor_type` is the type of a tensor.

    >>> list(nn.state.get_state_dict({"layers": [nn.Linear(2, 3)]}))
    ['layers.0.weight', 'layers.0.bias']
    """
    return dict(_walk(obj, prefix, tensor_type, set()))


def get_parameters(obj: Any) -> list[Tensor]:
    """All tensors in `obj`, in the order of `get_state_dict`.

    >>> [parameter.shape for parameter in nn.state.get_parameters(nn.Linear(2, 3))]
    [(3, 2), (3,)]
    """
    return list(get_state_dict(obj).values())


def _walk(obj: Any, prefix: str, tensor_type: type[T], path: set[int]) -> Iterator[tuple[str, T]]:
    """The named tensors; `path` holds the ids of the enclosing objects, so that cycles end."""
    if isinstance(obj, tensor_type):
        yield prefix.strip("."), obj
        return
    if id(obj) in path:
        return
    path.add(id(obj))
    for name, child in _children(obj).items():
        yield from _walk(child, f"{prefix}{name}.", tensor_type, path)
    path.remove(id(obj))


def _children(obj: Any) -> Mapping[Any, Any]:
    """The named children of an object; none if it has no state."""
    if isinstance(obj, OPAQUE):
        return {}
    if hasattr(obj, "_asdict"):
        named: Mapping[str, Any] = obj._asdict()
        return named
    if isinstance(obj, Mapping):
        return obj
    if isinstance(obj, list | tuple):
        return dict(enumerate(obj))
    return getattr(obj, "__dict__", {})
