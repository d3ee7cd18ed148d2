"""Tensor maps for kernels that copy boxes of a tensor in bulk.

The driver encodes a map for an address. A map does not depend on who owns the memory, so it is
kept, and a launch with other buffers has other maps.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from cuda.bindings import driver

from tinygrad.renderer.tensor_map import TensorMap
from tinygrad.runtime.support.cuda.driver import LIBRARY, CudaError

ENCODED_BYTES = 128
ENCODED_ALIGNMENT = 64
KEPT_MAPS = 4096
DATA_TYPES = {
    (2, False): driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16,
    (4, True): driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
}
"""By the bytes of an element, and whether it is rounded to TF32."""
NO_INTERLEAVE = driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
SWIZZLE = driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
# L2 promotion: a read brings 256 bytes into the cache
PROMOTION = driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
FILL_ZERO = driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE


class EncodedMap:
    """A map in memory of its own, at `address`."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_char * (ENCODED_BYTES + ENCODED_ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address = start + -start % ENCODED_ALIGNMENT


@functools.lru_cache(maxsize=KEPT_MAPS)
def encode(described: TensorMap, address: int) -> EncodedMap:
    """The map of an argument at an address. Raises CudaError where the driver rejects it."""
    encoded, rank = EncodedMap(), len(described.sizes)
    code = _encoder()(
        encoded.address,
        int(DATA_TYPES[described.itemsize, described.rounds_to_tf32]),
        rank,
        address + described.offset,
        (ctypes.c_uint64 * rank)(*described.sizes),
        (ctypes.c_uint64 * (rank - 1))(*described.strides),
        (ctypes.c_uint32 * rank)(*described.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        *(int(x) for x in (NO_INTERLEAVE, SWIZZLE, PROMOTION, FILL_ZERO)),
    )
    if code:
        raise CudaError(
            f"the driver rejects {described} at {address:#x}, with error {code}; update it, "
            "or report the kernel that DEBUG=4 prints",
            code,
        )
    return encoded


@functools.cache
def _encoder() -> Any:
    """The driver's function. The bindings' gives it memory that is not aligned as it requires."""
    function = ctypes.CDLL(LIBRARY).cuTensorMapEncodeTiled
    integer, pointer = ctypes.c_int, ctypes.c_void_p
    function.argtypes = [pointer, integer, ctypes.c_uint32, *[pointer] * 5, *[integer] * 4]
    return function
