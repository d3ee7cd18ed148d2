"""Type promotion: JAX's lattice.

Source: https://docs.jax.dev/en/latest/jep/9407-type-promotion.html. It differs in that Python
numbers have already taken the type of the other operand.
"""

from __future__ import annotations

import functools

from tinygrad.dtype.types import DType, dtypes

# the join of int64 and uint64: a float without a width, which becomes default_float
_WEAK_FLOAT = DType.new(9, 0, "weak float")

_NEXT_WIDER: dict[DType, tuple[DType, ...]] = {
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: (_WEAK_FLOAT,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: (_WEAK_FLOAT,),
    _WEAK_FLOAT: dtypes.fp8s,
    **dict.fromkeys(dtypes.fp8s, (dtypes.float16, dtypes.bfloat16)),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


@functools.cache
def _at_least(dtype: DType) -> frozenset[DType]:
    """The types that `dtype` promotes to, itself included."""
    if dtype not in _NEXT_WIDER:
        raise TypeError(f"{dtype!r} does not promote; cast it first")
    return frozenset({dtype}).union(*(_at_least(wider) for wider in _NEXT_WIDER[dtype]))


@functools.cache
def _join(ds: tuple[DType, ...]) -> DType:
    if len(set(ds)) == 1:
        return ds[0]
    return min(frozenset.intersection(*map(_at_least, ds)), key=lambda dtype: dtype.priority)


def least_upper_dtype(*ds: DType) -> DType:
    """The promoted type of operands of these types.

    int64 with uint64 gives `dtypes.default_float`. Raises TypeError if different types include
    one that does not promote: `void`, `index`, a vector or a pointer.
    """
    joined = _join(ds)
    return dtypes.default_float if joined is _WEAK_FLOAT else joined


def least_upper_float(dtype: DType) -> DType:
    """A float type unchanged; any other promoted with the default float."""
    return dtype if dtypes.is_float(dtype) else least_upper_dtype(dtype, dtypes.default_float)


@functools.cache
def can_lossless_cast(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target` too."""
    if source is target or dtypes.is_bool(source):
        return True
    if dtypes.is_bool(target):
        return False
    if dtypes.is_int(source) and dtypes.is_int(target):
        return dtypes.min(target) <= dtypes.min(source) and dtypes.max(source) <= dtypes.max(target)
    if not dtypes.is_float(target):
        return False
    exponent, mantissa = dtypes.finfo(target)
    if dtypes.is_int(source):
        bits = source.scalar().itemsize * 8 - (not dtypes.is_unsigned(source))
        return bits <= mantissa + 1 and bits < 2 ** (exponent - 1)
    source_exponent, source_mantissa = dtypes.finfo(source)
    return source_exponent <= exponent and source_mantissa <= mantissa


@functools.cache
def sum_acc_dtype(dtype: DType) -> DType:
    """The accumulation dtype of a sum of such values."""
    if dtypes.is_unsigned(dtype):
        return least_upper_dtype(dtype, dtypes.uint32)
    if dtypes.is_int(dtype) or dtypes.is_bool(dtype):
        return least_upper_dtype(dtype, dtypes.int32)
    return least_upper_dtype(dtype, dtypes.float32)
