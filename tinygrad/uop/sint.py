"""Functions of sizes that may be symbolic.

A size (`sint`) is an int, or an integer node that is known when a kernel runs. Results of ints
alone are ints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, cast

from tinygrad.dtype import DType, dtypes
from tinygrad.errors import ArgumentError
from tinygrad.uop.node import N, Node

_INT32 = range(-(1 << 31), 1 << 31)


def fits_int32(*numbers: int | Node) -> bool:
    """Whether all values of integers fit 32 bits, by their bounds."""
    return all(
        x in _INT32 if isinstance(x, int) else int(x.vmin) in _INT32 and int(x.vmax) in _INT32
        for x in numbers
    )


def index_dtype(*numbers: int | Node) -> DType:
    """The dtype of index arithmetic on these integers: int32 if all their values fit, else int64.
    It is given every number that is computed or compared, such as the size of the axis.
    """
    return dtypes.int32 if fits_int32(*numbers) else dtypes.int64


def as_number(x: N) -> N:
    """A symbolic size as an element of a tensor: in the default int, or in int64 if its values do
    not fit that. Any other node is unchanged.
    """
    if x.dtype is not dtypes.index:
        return x
    limits = dtypes.min(dtypes.default_int), dtypes.max(dtypes.default_int)
    is_held = limits[0] <= x.vmin and x.vmax <= limits[1]
    return x.cast(dtypes.default_int if is_held else dtypes.int64)


def resolve(x: bool | Node, default: bool = True) -> bool:
    """The truth of a symbolic condition, or `default` if it is unknown."""
    if isinstance(x, bool):
        return x
    simple = x.simplify()
    return bool(simple.vmin) if simple.vmin == simple.vmax else default


def check_bound(variables: Iterable[Node], values: dict[str, int]) -> None:
    """Raise ArgumentError unless each of `variables` has a value, by name."""
    for variable in variables:
        name, low, high = variable.arg
        if name not in values:
            raise ArgumentError(
                f"Variable {name} of {low} to {high} has no value; bind it where it is used: "
                f"{name}.bind({low})"
            )


def sym_infer(x: int | Node, values: dict[str, int]) -> int:
    """The value of a symbolic integer for the `values` of its Variables, by name. Raises
    ArgumentError for one without a value.
    """
    if not isinstance(x, Node):
        return x
    variables = x.variables()
    check_bound(variables, values)
    table = {v: v.const_like(values[v.arg[0]]) for v in variables}
    return int(x.substitute(table))


def same_size(a: int | Node, b: int | Node) -> bool:
    """Whether two sizes are equal; symbolic ones, for all values of their Variables."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a is b:
        return True
    difference: Any = a - b
    return bool(difference.ssimplify() == 0)


def is_one(size: int | Node) -> bool:
    """Whether a size is known to be 1."""
    return isinstance(size, int) and size == 1


def same_shape(a: Sequence[int | Node], b: Sequence[int | Node]) -> bool:
    """Whether two shapes have equal sizes, symbolic ones included."""
    return len(a) == len(b) and all(map(same_size, a, b))


def smax(*values: int | N) -> int | N:
    """The maximum of sizes, symbolic ones included."""
    return _fold(values, lambda a, b: a.maximum(b), max)


def smin(*values: int | N) -> int | N:
    """The minimum of sizes, symbolic ones included."""
    return _fold(values, lambda a, b: a.minimum(b), min)


def _fold(
    values: tuple[int | N, ...],
    symbolic: Callable[[N, Any], N],
    plain: Callable[[Any], Any],
) -> int | N:
    numbers = [v for v in values if not isinstance(v, Node)]
    nodes = [v for v in values if isinstance(v, Node)]
    known = [cast(int, plain(numbers))] if numbers else []
    return reduce(symbolic, [*nodes[1:], *known], nodes[0]).ssimplify() if nodes else known[0]
