"""Host data as nodes: numbers, lists, bytes, numpy arrays and files.

Input: Python numbers, nested lists, bytes, numpy arrays, paths, addresses. Output: constants, and
BUFFER nodes on "NPY" (a private copy of an array), on "DISK:path" (a file), or on a device whose
memory is shared with the caller. Invariant: only `shared_node`, `memory_node` and `foreign_node`
share memory; writing to the array afterwards changes no other tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinygrad.device import Buffer, BufferSpec
from tinygrad.dtype import (
    ConstType,
    DType,
    dtypes,
    from_float32_array,
    from_numpy_dtype,
    is_stored_as_bits,
    saturate,
    to_numpy_dtype,
    truncate,
)
from tinygrad.errors import ArgumentError
from tinygrad.execution.buffers import bind_buffers
from tinygrad.helpers import all_int, fully_flatten
from tinygrad.runtime.disk import check_file
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.storage.views import movement_base
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import (
    broadcast_node,
    const_node,
    number_dtype,
)
from tinygrad.uop.device_value import is_file
from tinygrad.uop.node_table import NodeRegistry
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import as_number

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# the BUFFERs on "NPY", and tensors in files
_host_buffers = NodeRegistry[None]()


def is_on_host(node: UOp) -> bool:
    """Whether a node is a BUFFER whose content is a host array or in a file."""
    return node in _host_buffers


def any_on_host() -> bool:
    """Whether there is any such BUFFER."""
    return bool(_host_buffers)


def data_node(data: Any, dtype: DType | None) -> UOp:
    """Anything that a tensor can be built from. Raises TypeError for anything else."""
    if data is None:
        return broadcast_node(const_node(0, dtype or dtypes.default_float), (0,))
    if isinstance(data, (bool, int, float)):
        return number_node(data, dtype)
    if isinstance(data, (bytes, bytearray)):
        return bytes_node(bytes(data), dtype or dtypes.uint8)
    if isinstance(data, (list, tuple, range)):
        return list_node(data, dtype)
    if isinstance(data, Path):
        return file_node(data) if dtype is None else file_node(data).bitcast(dtype)
    if isinstance(data, UOp):
        node = as_number(data)
        return node if dtype is None else node.cast(dtype)
    if hasattr(data, "__array__") or isinstance(data, memoryview):
        import numpy as np

        array = host_array(data)
        if not array.shape and isinstance(data, np.generic):
            return const_node(data.item(), dtype or from_numpy_dtype(array.dtype))
        return array_node(array, dtype)
    raise TypeError(
        f"no tensor can be built from {_shortened(data)} of type {type(data).__name__}; "
        "give a number, a (nested) list of numbers, bytes, or a numpy array"
    )


def number_node(value: ConstType, dtype: DType | None) -> UOp:
    """A number. Integers wrap around if `dtype` is given; else ValueError for one too large."""
    return const_node(value, dtype or number_dtype(value))


def list_node(data: Any, dtype: DType | None) -> UOp:
    """Nested sequences of numbers, bytes or arrays. Integers wrap around if `dtype` is given.

    Raises ValueError for ragged sequences, for elements that are not numbers, and for integers that
    the default dtype cannot hold; TypeError for lists of tensors.
    """
    import numpy as np

    leaves = fully_flatten(data)
    if any(isinstance(x, TensorBase) for x in leaves):
        raise TypeError("no tensor is built from a list of tensors; use Tensor.stack(*tensors)")
    if any(isinstance(x, (bytes, bytearray)) for x in leaves):
        return list_node(_with_bytes_as_lists(data), dtype or dtypes.uint8)
    leaves = [x.item() if isinstance(x, np.generic) else x for x in leaves]
    try:
        own = dtypes.from_py(leaves)
        wanted = own if dtype is None else dtype
        if dtype is not None and dtypes.is_int(dtype):
            leaves = [
                saturate(x, dtype) if isinstance(x, float) else truncate[dtype](x) for x in leaves
            ]
        elif dtype is None and dtypes.is_int(own):
            for x in (min(leaves), max(leaves)):
                number_dtype(x)
        exact = np.dtype(np.float64) if is_stored_as_bits(wanted) else to_numpy_dtype(wanted)
        with np.errstate(over="ignore"):
            array = np.array(leaves, dtype=exact).reshape(np.shape(data))
        return array_node(array, wanted)
    except (ValueError, TypeError, OverflowError) as error:
        kind = "" if dtype is None else f"of {dtype} "
        raise ArgumentError(
            f"no tensor {kind}can be built from {_shortened(data)}: {error}"
        ) from error


def _with_bytes_as_lists(data: Any) -> Any:
    """Nested sequences in which bytes are lists of their numbers."""
    if isinstance(data, (list, tuple)):
        return [_with_bytes_as_lists(x) for x in data]
    return list(data) if isinstance(data, (bytes, bytearray)) else data


def bytes_node(data: bytes, dtype: DType) -> UOp:
    """A vector with these bytes as content. Raises ValueError for a fraction of an element."""
    if len(data) % dtype.itemsize:
        raise ArgumentError(
            f"{len(data)} bytes are not a multiple of the itemsize of {dtype}, {dtype.itemsize}"
        )
    if not data:
        return broadcast_node(const_node(0, dtype), (0,))
    return memory_node(memoryview(data), (len(data) // dtype.itemsize,), dtype)


def array_node(array: Array, dtype: DType | None) -> UOp:
    """A copy of a numpy array, with `dtype` or with the array's own."""
    import numpy as np

    own = from_numpy_dtype(array.dtype)
    dtype = own if dtype is None else dtype
    if array.size == 0:
        return broadcast_node(const_node(0, dtype), array.shape)
    with np.errstate(all="ignore"):
        if dtypes.is_int(dtype) and dtypes.is_float(own):
            data = _saturated(array, dtype)
        elif not is_stored_as_bits(dtype):
            data = np.array(array, dtype=to_numpy_dtype(dtype), order="C")
        elif own is dtype:
            data = np.array(array, order="C")
        else:
            data = from_float32_array(array, dtype)
    return memory_node(_bytes_of(data), array.shape, dtype)


def _saturated(array: Array, dtype: DType) -> Array:
    """Floats as integers, as `saturate`."""
    import numpy as np

    low, high = dtypes.min(dtype), dtypes.max(dtype)
    exact = array.astype(np.float64)
    # the limit of 64 bits is no float64, but the number after it is
    below, above = exact <= float(low), exact >= float(high)
    inside = np.where(below | above | np.isnan(exact), 0, exact).astype(to_numpy_dtype(dtype))
    return np.where(below, low, np.where(above, high, inside)).astype(to_numpy_dtype(dtype))


def number_in_memory(value: UOp, device: str) -> UOp:
    """A number of any shape as one element of memory, so that kernels do not depend on the number.

    Anything else is unchanged, and so are numbers that many programs write, such as 0 and 1.
    """
    number = movement_base(value)
    dtype = number.dtype
    if number.op is not Ops.CONST or dtype is dtypes.bool or not all_int(value.shape):
        return value
    if number.arg in (-1, 0, 1) or not isfinite(number.arg):
        return value
    import numpy as np

    if is_stored_as_bits(dtype):
        array = from_float32_array(np.array(number.arg, np.float32), dtype)
    else:
        array = np.array(number.arg, to_numpy_dtype(dtype))
    return broadcast_node(memory_node(_bytes_of(array), (), dtype, device), value.shape)


def memory_node(data: memoryview, shape: Sequence[int], dtype: DType, device: str = "NPY") -> UOp:
    """Contiguous host memory as a buffer of a host device, without a copy."""
    node = UOp.new_buffer(device, tuple(shape), dtype)
    bind_buffers(node, [Buffer.from_memoryview(device, dtype, data)])
    if device == "NPY":
        _host_buffers[node] = None
    return node


def shared_node(stored: Array, dtype: DType, copy: bool | None) -> UOp:
    """An array of stored elements on the CPU, with its axes in any order in memory.

    `copy=None` copies only memory that has gaps, is unaligned or is read-only. Raises BufferError
    for such memory with `copy=False`.
    """
    import numpy as np

    if stored.size == 0:
        return broadcast_node(const_node(0, dtype), stored.shape)
    order = tuple(sorted(range(stored.ndim), key=lambda axis: -stored.strides[axis]))
    dense = stored.transpose(order)
    usable = dense.flags.c_contiguous and dense.flags.aligned and dense.flags.writeable
    if copy is False and not usable:
        raise BufferError(
            f"{'an' if stored.flags.writeable else 'a read-only'} array of shape {stored.shape} "
            f"and strides of {stored.strides} bytes cannot share its memory; leave out copy=False"
        )
    if copy or not usable:
        own = np.array(stored, order="C")
        return memory_node(_bytes_of(own), own.shape, dtype, "CPU")
    back = tuple(order.index(axis) for axis in range(stored.ndim))
    node = memory_node(_bytes_of(dense), dense.shape, dtype, "CPU")
    node.buffer.outside = True
    return node.permute(back)


def foreign_node(address: int, shape: Sequence[int], dtype: DType, device: str) -> UOp:
    """External memory on `device`, without a copy. Raises ValueError for the null address."""
    if not isinstance(address, int):
        raise TypeError(f"from_blob takes an address as a number, not {address!r}")
    if not address:
        raise ArgumentError("from_blob: there is no memory at address 0")
    node = UOp.new_buffer(device, tuple(shape), dtype)
    spec = BufferSpec(external_ptr=address)
    return bind_buffers(node, [Buffer(device, prod(shape), dtype, options=spec).allocate()])


def file_node(path: Path) -> UOp:
    """The bytes of a file, read when they are used. Raises FileNotFoundError for a missing one,
    FileError for what is no file.
    """
    size = (check_file(path) or path.stat()).st_size
    device = f"DISK:{path.resolve()}"
    return file_buffer(Buffer(device, size, dtypes.uint8).allocate(), (size,))


def file_buffer(buffer: Buffer, shape: tuple[int, ...]) -> UOp:
    """A BUFFER in the part of a file that `buffer` is."""
    node = bind_buffers(UOp.new_buffer(buffer.device, shape, buffer.dtype), [buffer])
    _host_buffers[node] = None
    return node


def file_buffers() -> list[UOp]:
    """The BUFFERs in files."""
    return [node for node in _host_buffers.nodes() if is_file(node.device)]


def host_array(data: Any) -> Array:
    """A numpy array of `data`. Raises TypeError if `data` cannot be converted."""
    import numpy as np

    try:
        return np.asarray(data)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"numpy cannot build an array from {_shortened(data)}: {error}; "
            "if it supports DLPack, use Tensor.from_dlpack(...)"
        ) from error


def _bytes_of(array: Array) -> memoryview:
    import numpy as np

    return array.reshape(-1).view(np.uint8).data


def _shortened(data: Any) -> str:
    text = repr(data)
    return text if len(text) < 80 else f"{text[:77]}..."
