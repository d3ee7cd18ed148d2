"""Scalars and broadcasting: constants, and shapes that combine as in numpy.

Input: shapes and nodes. Output: the shape that shapes broadcast to, and nodes expanded to it.
Invariant: a size is an int or a symbolic expression, and 1 is the only size that is expanded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from tinygrad.caches import cached_function
from tinygrad.dtype import ConstType, DType, dtypes, saturate, truncate
from tinygrad.errors import ArgumentError
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import same_size

SymbolicShape: TypeAlias = tuple[sint, ...]

# an elementwise op broadcasts these, which have no axes, by itself
_SCALARS = frozenset({Ops.CONST, Ops.BIND, Ops.DEFINE_VAR})


def is_scalar(node: UOp) -> bool:
    """Whether `node` is a constant or a Variable, which elementwise ops broadcast by themselves."""
    return node.op in _SCALARS or (node.op is Ops.CAST and node.src[0].op in _SCALARS)


def const_node(value: ConstType, dtype: DType) -> UOp:
    """The constant `value` cast to `dtype`: integers out of range wrap around, floats saturate.

    Raises TypeError for what is no number.
    """
    if not isinstance(value, (int, float)):
        raise TypeError(
            f"a constant of {dtype} is one number, not {value!r} of type {type(value).__name__}; "
            "make a tensor of other values: Tensor(...)"
        )
    if dtypes.is_int(dtype):
        number = saturate(value, dtype) if isinstance(value, float) else int(value)
        if not dtypes.min(dtype) <= number <= dtypes.max(dtype):
            number = truncate[dtype](number)
        return UOp.const(dtype, number)
    return UOp.const(dtype, value)


def scalar_dtype(value: ConstType, neighbour: DType) -> DType:
    """The dtype of a Python number next to a tensor: the tensor's, unless that cannot hold it."""
    if dtypes.is_float(neighbour) or value.__class__ is bool:
        return neighbour
    if dtypes.is_int(neighbour) and isinstance(value, int):
        return neighbour
    return number_dtype(value)


def number_dtype(value: ConstType) -> DType:
    """The dtype of a Python number by itself. Raises ValueError if it cannot hold the number."""
    dtype = dtypes.from_py(value)
    if not fits_dtype(value, dtype):
        wider = [name for name in ("int64", "uint64") if fits_dtype(value, getattr(dtypes, name))]
        hint = f"pass dtype=dtypes.{wider[0]}" if wider else "make it a float, which rounds it"
        raise ArgumentError(f"{value} does not fit {dtype}; {hint}")
    return dtype


def fits_dtype(value: object, dtype: DType) -> bool:
    """Whether `dtype` holds a Python number; only integers in integer dtypes may not fit."""
    if not isinstance(value, int) or not dtypes.is_int(dtype):
        return True
    return bool(dtypes.min(dtype) <= value <= dtypes.max(dtype))


# the result of these, modulo the range of the dtype, depends only on the operands modulo the range
_MODULAR = frozenset({"ADD", "SUB", "MUL"})
_BITWISE = frozenset({"AND", "OR", "XOR"})


_OPERATORS = {
    "ADD": "+",
    "SUB": "-",
    "MUL": "*",
    "DIV": "/",
    "IDIV": "idiv",
    "MOD": "%",
    "POW": "**",
    "AND": "&",
    "OR": "|",
    "XOR": "^",
    "SHL": "<<",
    "SHR": ">>",
    "CMPEQ": "==",
    "CMPNE": "!=",
    "CMPLT": "<",
    "MAX": "maximum",
}


def operator_name(op: str) -> str:
    """What a user calls an op: the Python operator or method of the op named `op`, as `==` of
    CMPEQ; `op` itself if it is no op.
    """
    return _OPERATORS.get(op, op)


def operand_node(value: ConstType, neighbour: DType, op: str) -> UOp:
    """A Python number as an operand of `op` next to a tensor.

    Bitwise operations take any number of as many bits, and sums and products a negative one beside
    an unsigned dtype. Raises ValueError for other integers that the dtype cannot hold.
    """
    # 0.0 and -0.0 would be one key
    return _known_operand(value, neighbour, op) if value else _operand(value, neighbour, op)


def _operand(value: ConstType, neighbour: DType, op: str) -> UOp:
    dtype = scalar_dtype(value, neighbour)
    if not fits_dtype(value, dtype):
        largest = dtypes.max(dtype)
        takes = op in _MODULAR and dtypes.is_unsigned(dtype) and -largest <= value <= largest
        bits = dtype.itemsize * 8
        if not takes and not (op in _BITWISE and -(1 << bits - 1) <= value < 1 << bits):
            raise ArgumentError(
                f"{operator_name(op)}: {value} is out of range of {dtype}, which holds "
                f"{dtypes.min(dtype)} to {largest}; cast the tensor to a wider dtype first"
            )
    return const_node(value, dtype)


_known_operand = lru_cache(1024, typed=True)(_operand)


def format_shape(shape: SymbolicShape) -> str:
    """A shape as text, with symbolic sizes rendered as expressions."""
    sizes = [str(size) if isinstance(size, int) else size.render() for size in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


@cached_function(1024)
def broadcast_shape(*shapes: SymbolicShape) -> SymbolicShape:
    """The shape that `shapes` broadcast to, as in numpy. Raises ValueError if there is none."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    count = max(len(shape) for shape in shapes)
    padded = [(1,) * (count - len(shape)) + shape for shape in shapes]
    result: list[sint] = []
    for sizes in zip(*padded, strict=True):
        wide = [size for size in sizes if not (isinstance(size, int) and size == 1)]
        if any(not same_size(size, wide[0]) for size in wide):
            listed = " and ".join(format_shape(shape) for shape in dict.fromkeys(shapes))
            raise ArgumentError(
                f"shapes {listed} do not broadcast: sizes {sizes[0]} and {sizes[-1]} differ, "
                "and neither is 1"
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)


def broadcast_node(node: UOp, shape: SymbolicShape) -> UOp:
    """`node` expanded to `shape`, to which its shape must broadcast."""
    own = node.shape
    if own == shape:
        return node
    missing = len(shape) - len(own)
    return (node.reshape((1,) * missing + own) if missing else node).expand(shape)
