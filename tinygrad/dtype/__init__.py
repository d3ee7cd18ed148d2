"""Element types: definitions, promotion, and values."""

from tinygrad.dtype.promotion import (
    can_lossless_cast,
    least_upper_dtype,
    least_upper_float,
    sum_acc_dtype,
)
from tinygrad.dtype.types import (
    AddrSpace,
    ConstType,
    DType,
    DTypeLike,
    PtrDType,
    dtypes,
    to_dtype,
)
from tinygrad.dtype.values import (
    from_float32_array,
    from_numpy_dtype,
    is_stored_as_bits,
    saturate,
    to_float32_array,
    to_numpy_dtype,
    truncate,
)

# names that programs for tinygrad 0.12 import from here
_to_np_dtype, _from_np_dtype = to_numpy_dtype, from_numpy_dtype

__all__ = [
    "AddrSpace",
    "ConstType",
    "DType",
    "DTypeLike",
    "PtrDType",
    "can_lossless_cast",
    "dtypes",
    "from_float32_array",
    "from_numpy_dtype",
    "is_stored_as_bits",
    "least_upper_dtype",
    "least_upper_float",
    "saturate",
    "sum_acc_dtype",
    "to_dtype",
    "to_float32_array",
    "to_numpy_dtype",
    "truncate",
]
