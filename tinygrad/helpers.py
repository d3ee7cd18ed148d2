"""Small functions that know nothing of tensors, and the names that programs import from here.

The functions of this file are pure; text, settings, counters, timers, downloads and the disk cache
have files of their own.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload

from tinygrad.diskcache import diskcache, diskcache_clear, diskcache_get, diskcache_put
from tinygrad.measure import GlobalCounters, Profiling, Timing
from tinygrad.settings import (
    ALL2ALL,
    BEAM,
    CACHELEVEL,
    CI,
    CPU_LLVM,
    DEBUG,
    FUSE_OPTIM,
    IMAGE,
    JIT,
    NOOPT,
    OSX,
    PROFILE,
    RING,
    SPEC,
    SPLIT_REDUCEOP,
    TRANSCENDENTAL,
    VIZ,
    WIN,
    WINO,
    Context,
    ContextVar,
    getenv,
)
from tinygrad.text import ansilen, ansistrip, colored, strip_parens, to_function_name, word_wrap

if TYPE_CHECKING:
    from tinygrad.fetch import fetch
    from tinygrad.progress import tqdm, trange

__all__ = [
    "ALL2ALL",
    "BEAM",
    "CACHELEVEL",
    "CI",
    "CPU_LLVM",
    "DEBUG",
    "FUSE_OPTIM",
    "IMAGE",
    "JIT",
    "NOOPT",
    "OSX",
    "PROFILE",
    "RING",
    "SPEC",
    "SPLIT_REDUCEOP",
    "TRANSCENDENTAL",
    "VIZ",
    "WIN",
    "WINO",
    "Context",
    "ContextVar",
    "GlobalCounters",
    "Profiling",
    "Timing",
    "all_int",
    "all_same",
    "ansilen",
    "ansistrip",
    "argfix",
    "argsort",
    "cdiv",
    "ceildiv",
    "cmod",
    "colored",
    "dedup",
    "diskcache",
    "diskcache_clear",
    "diskcache_get",
    "diskcache_put",
    "fetch",
    "flatten",
    "fully_flatten",
    "get_child",
    "get_single_element",
    "getenv",
    "is_numpy_ndarray",
    "make_tuple",
    "merge_dicts",
    "next_power2",
    "partition",
    "polyN",
    "prod",
    "profile_marker",
    "round_down",
    "round_up",
    "strip_parens",
    "temp",
    "to_function_name",
    "to_mv",
    "tqdm",
    "trange",
    "unwrap",
    "word_wrap",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def __getattr__(name: str) -> Any:
    """Downloads and progress bars, imported only by the programs that use them; and all settings,
    those of tinygrad 0.12 that mean nothing here too.
    """
    if name in ("tqdm", "trange"):
        from tinygrad import progress

        return getattr(progress, name)
    if name == "fetch":
        from tinygrad.fetch import fetch as function

        return function
    if name in ContextVar.declared:
        return ContextVar.declared[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- sequences ----


@overload
def prod(x: Iterable[int]) -> int: ...
@overload
def prod(x: Iterable[Any]) -> Any: ...
def prod(x: Iterable[Any]) -> Any:
    """The product of `x`; 1 if there is nothing in it.

    >>> prod([2, 3, 4])
    24
    """
    return math.prod(x)


def dedup(x: Iterable[T]) -> list[T]:
    """The different items of `x`, in the order they came first.

    >>> dedup([3, 1, 3, 2])
    [3, 1, 2]
    """
    return list(dict.fromkeys(x))


def flatten(x: Iterable[Iterable[T]]) -> list[T]:
    """The items of the items: one level of nesting is removed.

    >>> flatten([[1, 2], [3]])
    [1, 2, 3]
    """
    return [item for inner in x for item in inner]


def fully_flatten(x: Any) -> list[Any]:
    """The leaves of nested lists, tuples and arrays, left to right; text is a leaf.

    >>> fully_flatten([1, [2, (3, [4])]])
    [1, 2, 3, 4]
    """
    if isinstance(x, (str, bytes)) or not (hasattr(x, "__len__") and hasattr(x, "__getitem__")):
        return [x]
    if getattr(x, "shape", None) == ():  # an array of no dimensions has a length it cannot tell
        return [x[()]]
    return [leaf for item in x for leaf in fully_flatten(item)]


def argfix(*x: Any) -> tuple[Any, ...]:
    """`f(1, 2)` and `f((1, 2))` both as `(1, 2)`. Raises ValueError if a sequence is not alone.

    >>> argfix(1, 2), argfix((1, 2))
    ((1, 2), (1, 2))
    """
    if not x or not isinstance(x[0], (tuple, list)):
        return x
    if len(x) != 1:
        raise ValueError(f"give either one sequence or separate values, not {x}")
    return tuple(x[0])


def argsort(x: Sequence[Any]) -> Any:
    """The permutation that sorts `x`, as a list or tuple like it; of a permutation, the inverse.

    >>> argsort((2, 0, 1))
    (1, 2, 0)
    """
    order = sorted(range(len(x)), key=x.__getitem__)
    return tuple(order) if isinstance(x, tuple) else order


def all_same(items: Sequence[Any]) -> bool:
    """Whether every item equals the first; true of no items.

    >>> all_same([1, 1]), all_same([1, 2])
    (True, False)
    """
    return all(item == items[0] for item in items)


def all_int(items: Sequence[Any]) -> TypeGuard[tuple[int, ...]]:
    """Whether every item is a Python int.

    >>> all_int((1, 2)), all_int((1, 2.0))
    (True, False)
    """
    for item in items:  # noqa: SIM110 a loop takes half the time of a generator
        if not isinstance(item, int):
            return False
    return True


def make_tuple(x: int | Sequence[int], count: int) -> tuple[int, ...]:
    """An int as `count` times itself; a sequence as a tuple, whatever its length.

    >>> make_tuple(3, 2), make_tuple([4, 5], 2)
    ((3, 3), (4, 5))
    """
    return (x,) * count if isinstance(x, int) else tuple(x)


def partition(items: Iterable[T], predicate: Callable[[T], Any]) -> tuple[list[T], list[T]]:
    """The items for which the predicate holds, and the others.

    >>> partition([1, 2, 3], lambda x: x > 1)
    ([2, 3], [1])
    """
    chosen: list[T] = []
    others: list[T] = []
    for item in items:
        (chosen if predicate(item) else others).append(item)
    return chosen, others


def merge_dicts(dicts: Iterable[dict[K, V]]) -> dict[K, V]:
    """All entries in one dictionary. Raises ValueError if two give one key different values.

    >>> merge_dicts([{"a": 1}, {"b": 2}])
    {'a': 1, 'b': 2}
    """
    merged: dict[K, V] = {}
    for entries in dicts:
        for key, value in entries.items():
            if key in merged and merged[key] != value:
                raise ValueError(f"cannot merge: {key!r} is both {merged[key]!r} and {value!r}")
            merged[key] = value
    return merged


def get_single_element(items: Iterable[T]) -> T:
    """The only element. Raises ValueError if there are none or several.

    >>> get_single_element({5})
    5
    """
    found = list(items)
    if len(found) != 1:
        raise ValueError(f"one element is expected, not {len(found)}")
    return found[0]


def is_numpy_ndarray(x: object) -> bool:
    """Whether `x` is an array of numpy, which is not imported for that.

    >>> is_numpy_ndarray([1, 2])
    False
    """
    return f"{type(x).__module__}.{type(x).__name__}" == "numpy.ndarray"


def get_child(obj: Any, key: str) -> Any:
    """What the dotted path `key` leads to: attributes, dictionary keys and list positions.

    >>> get_child({"layers": [{"bias": 5}]}, "layers.0.bias")
    5
    """
    for name in key.split("."):
        if name.isnumeric():
            obj = obj[int(name)]
        elif isinstance(obj, dict):
            obj = obj[name]
        else:
            obj = getattr(obj, name)
    return obj


def unwrap(x: T | None) -> T:
    """Assert that `x` is not None, and return it.

    >>> unwrap(5)
    5
    """
    assert x is not None
    return x


# ---- arithmetic; `Any` because the sizes may be symbolic ----


@overload
def ceildiv(num: int, amount: int) -> int: ...
@overload
def ceildiv(num: Any, amount: Any) -> Any: ...
def ceildiv(num: Any, amount: Any) -> Any:
    """`num / amount`, rounded up: an integer, also of floats; symbolic if either number is. A
    symbolic `amount` must not reach 0.

    >>> ceildiv(7, 2)
    4
    """
    if not _is_symbolic(num) and not _is_symbolic(amount):
        quotient = -(num // -amount)
        return int(quotient) if isinstance(quotient, float) else quotient
    if getattr(amount, "vmax", amount) < 0:
        num, amount = -num, -amount
    # division of symbolic numbers rounds toward zero
    if getattr(num, "vmax", num) <= 0:
        return num // amount
    if getattr(num, "vmin", num) >= 0:
        return (num + (amount - 1)) // amount
    return (num.maximum(0) + (amount - 1)) // amount + num.minimum(0) // amount


def _is_symbolic(number: Any) -> bool:
    return hasattr(number, "vmin")


@overload
def round_up(num: int, amount: int) -> int: ...
@overload
def round_up(num: Any, amount: Any) -> Any: ...
def round_up(num: Any, amount: Any) -> Any:
    """`num` rounded up to a multiple of `amount`.

    >>> round_up(7, 4)
    8
    """
    return ceildiv(num, amount) * amount


@overload
def round_down(num: int, amount: int) -> int: ...
@overload
def round_down(num: Any, amount: Any) -> Any: ...
def round_down(num: Any, amount: Any) -> Any:
    """`num` rounded down to a multiple of `amount`.

    >>> round_down(7, 4)
    4
    """
    if _is_symbolic(num) or _is_symbolic(amount):
        return -ceildiv(-num, amount) * amount
    return num // amount * amount


def next_power2(x: int) -> int:
    """`x` rounded up to a power of two; 1 for 0.

    >>> next_power2(5)
    8
    """
    return 1 if x == 0 else 1 << (x - 1).bit_length()


def cdiv(x: int, y: int) -> int:
    """`x / y` rounded toward zero, as C divides; 0 if `y` is 0.

    >>> cdiv(-7, 2)
    -3
    """
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def cmod(x: int, y: int) -> int:
    """What `cdiv` leaves, with the sign of `x`, as in C; `x` if `y` is 0.

    >>> cmod(-7, 2)
    -1
    """
    return x - cdiv(x, y) * y


def polyN(x: Any, coefficients: Iterable[float]) -> Any:
    """The polynomial with these coefficients, highest power first, at `x`.

    >>> polyN(2, [3, 0, 1])
    13.0
    """
    return functools.reduce(lambda total, coefficient: total * x + coefficient, coefficients, 0.0)


# ---- memory and profiles ----


def to_mv(ptr: int, sz: int) -> memoryview:
    """The `sz` bytes of memory at address `ptr`, which must stay allocated meanwhile.

    >>> import ctypes
    >>> data = ctypes.create_string_buffer(b"abc")
    >>> bytes(to_mv(ctypes.addressof(data), 3))
    b'abc'
    """
    import ctypes

    return memoryview((ctypes.c_uint8 * sz).from_address(ptr)).cast("B")


def profile_marker(name: str, color: str = "gray") -> None:
    """A mark in the profile, of which there is none here: no effect.

    >>> profile_marker("step")
    """


# ---- files ----


def temp(name: str, append_user: bool = False) -> str:
    """The path of a file called `name` in the folder for temporary files.

    >>> temp("notes.txt").endswith("notes.txt")
    True
    """
    if append_user:
        import getpass

        name = f"{name}.{getpass.getuser()}"
    import tempfile

    return os.path.join(tempfile.gettempdir(), name)
