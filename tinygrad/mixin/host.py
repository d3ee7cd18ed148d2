"""Numbers of the host as nodes of the tensor graph, and stored nodes as arrays of the host.

In: Python numbers, nested lists, bytes, numpy arrays. Out: BUFFER nodes on the device "NPY" over a
private copy, on their way to a device, or on the CPU over memory that is shared; and back.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tinygrad.device import Buffer, BufferSpec
from tinygrad.dtype import (
    ConstType,
    DType,
    dtypes,
    from_float32_array,
    from_numpy_dtype,
    is_stored_as_bits,
    to_float32_array,
    to_numpy_dtype,
    truncate,
)
from tinygrad.helpers import fully_flatten, prod
from tinygrad.mixin.core import TensorCore, broadcast_node, const_node
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, buffers, sym_infer

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# the BUFFERs on "NPY", and tensors in files
host_arrays: weakref.WeakSet[UOp] = weakref.WeakSet()

# ops whose value is that of their source
TRANSPARENT = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD})


def array_node(array: Array, dtype: DType | None) -> UOp:
    """A copy of a numpy array, of `dtype` or of its own."""
    import numpy as np

    own = from_numpy_dtype(array.dtype)
    dtype = own if dtype is None else dtype
    if array.size == 0:
        return broadcast_node(const_node(0, dtype), array.shape)
    with np.errstate(all="ignore"):
        if not is_stored_as_bits(dtype):
            data = np.array(array, dtype=to_numpy_dtype(dtype), order="C")
        elif own is dtype:
            data = np.array(array, order="C")
        else:
            data = from_float32_array(array, dtype)
    return memory_node(_bytes_of(data), array.shape, dtype)


def memory_node(data: memoryview, shape: Sequence[int], dtype: DType, device: str = "NPY") -> UOp:
    """Contiguous bytes of the host, without a copy, as a buffer of a host device."""
    node = UOp.new_buffer(device, tuple(shape), dtype)
    buffers[node] = Buffer.from_memoryview(device, dtype, data)
    if device == "NPY":
        host_arrays.add(node)
    return node


def _bytes_of(array: Array) -> memoryview:
    import numpy as np

    return array.reshape(-1).view(np.uint8).data


def shared_node(stored: Array, dtype: DType, copy: bool | None) -> UOp:
    """An array of stored elements on the CPU, in whatever order of axes.

    `copy=None` copies only where it must: memory that has gaps, is not aligned or must not be
    written. Raises BufferError for that with `copy=False`.
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
            f"and strides of {stored.strides} bytes cannot be used as it is; leave out copy=False"
        )
    if copy or not usable:
        own = np.array(stored, order="C")
        return memory_node(_bytes_of(own), own.shape, dtype, "CPU")
    back = tuple(order.index(axis) for axis in range(stored.ndim))
    return memory_node(_bytes_of(dense), dense.shape, dtype, "CPU").permute(back)


def foreign_node(address: int, shape: Sequence[int], dtype: DType, device: str) -> UOp:
    """Memory that somebody else owns, on `device`, without a copy. Raises ValueError for none."""
    if not address:
        raise ValueError("from_blob: there is no memory at address 0")
    node = UOp.new_buffer(device, tuple(shape), dtype)
    spec = BufferSpec(external_ptr=address)
    buffers[node] = Buffer(device, prod(shape), dtype, options=spec).allocate()
    return node


def file_node(path: Path) -> UOp:
    """The bytes of a file, read when they are needed. Raises FileNotFoundError."""
    size = path.stat().st_size
    device = f"DISK:{path.resolve()}"
    node = UOp.new_buffer(device, (size,), dtypes.uint8)
    buffers[node] = Buffer(device, size, dtypes.uint8).allocate()
    return node


def number_node(value: ConstType, dtype: DType | None) -> UOp:
    """A number. Integers wrap around if `dtype` is given; else ValueError for one too large."""
    own = dtypes.from_py(value)
    if dtype is None and own is dtypes.default_int and truncate[own](value) != value:
        raise ValueError(f"{value} does not fit {own}; give a dtype that holds it")
    return const_node(value, dtype or own)


def list_node(data: Any, dtype: DType | None) -> UOp:
    """Nested sequences of numbers, or of arrays. Integers wrap around if `dtype` is given.

    Raises ValueError if they are ragged, hold other things, or integers too large for the default.
    """
    import numpy as np

    leaves = fully_flatten(data)
    if any(isinstance(x, TensorCore) for x in leaves):
        raise TypeError("no tensor is made of a list of tensors; use Tensor.stack(*tensors)")
    leaves = [x.item() if isinstance(x, np.generic) else x for x in leaves]
    try:
        own = dtypes.from_py(leaves)
        wanted = own if dtype is None else dtype
        if dtype is not None and dtypes.is_int(dtype):
            leaves = [truncate[dtype](x) for x in leaves]
        exact = np.dtype(np.float64) if is_stored_as_bits(wanted) else to_numpy_dtype(wanted)
        return array_node(np.array(leaves, dtype=exact).reshape(np.shape(data)), wanted)
    except (ValueError, TypeError, OverflowError) as error:
        kind = "" if dtype is None else f"of {dtype} "
        raise ValueError(f"no tensor {kind}can be made of {_shown(data)}: {error}") from error


def bytes_node(data: bytes, dtype: DType) -> UOp:
    """The stored elements of a vector. Raises ValueError if they are no whole number of them."""
    if len(data) % dtype.itemsize:
        raise ValueError(
            f"{len(data)} bytes are no whole number of {dtype} ({dtype.itemsize} bytes each)"
        )
    if not data:
        return broadcast_node(const_node(0, dtype), (0,))
    return memory_node(memoryview(data), (len(data) // dtype.itemsize,), dtype)


def host_array(data: Any) -> Array:
    """A numpy array, or what can be seen as one. Raises TypeError if it refuses."""
    import numpy as np

    try:
        return np.asarray(data)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"no numpy array can be made of {_shown(data)}: {error}; "
            "if it speaks DLPack, use Tensor.from_dlpack(...)"
        ) from error


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) < 80 else f"{text[:77]}..."


def data_node(data: Any, dtype: DType | None) -> UOp:
    """Whatever a tensor can be made of. Raises TypeError for anything else."""
    if data is None:
        return broadcast_node(const_node(0, dtype or dtypes.default_float), (0,))
    if isinstance(data, (bool, int, float)):
        return number_node(data, dtype)
    if isinstance(data, (bytes, bytearray)):
        return bytes_node(bytes(data), dtype or dtypes.uint8)
    if isinstance(data, (list, tuple)):
        return list_node(data, dtype)
    if isinstance(data, Path):
        return file_node(data) if dtype is None else file_node(data).bitcast(dtype)
    if isinstance(data, UOp):
        node = data.cast(dtypes.default_int) if data.dtype is dtypes.index else data
        return node if dtype is None else node.cast(dtype)
    if hasattr(data, "__array__") or isinstance(data, memoryview):
        import numpy as np

        array = host_array(data)
        if not array.shape and isinstance(data, np.generic):
            return const_node(data.item(), dtype or from_numpy_dtype(array.dtype))
        return array_node(array, dtype)
    raise TypeError(
        f"no tensor can be made of {_shown(data)} of type {type(data).__name__}; "
        "give a number, a (nested) list of numbers, bytes, or a numpy array"
    )


# ---- back to the host ----


def read_node(node: UOp) -> Array:
    """The stored value as an array; of bfloat16 and fp8, the values as float32."""
    base = _below_moves(node)
    if base.op in {Ops.CONST, Ops.BIND}:
        stored = stored_const(base if base.op is Ops.CONST else base.src[1])
    else:
        stored = _shaped(cast(Buffer, base.buffer).numpy(), base)
    values = to_float32_array(stored, node.dtype) if is_stored_as_bits(node.dtype) else stored
    return _moved_like(values, node)


def view_node(node: UOp) -> Array:
    """The stored elements where they lie in memory, see `to_numpy_dtype`; only of host devices."""
    import numpy as np

    base = _below_moves(node)
    content = np.frombuffer(cast(Buffer, base.buffer).as_memoryview(), to_numpy_dtype(node.dtype))
    return _moved_like(_shaped(content, base), node)


def _is_move(node: UOp) -> bool:
    return node.op in GroupOp.Movement or node.op in TRANSPARENT or node.op is Ops.COPY


def _below_moves(node: UOp) -> UOp:
    while _is_move(node):
        node = node.src[0]
    return node


def _shaped(content: Array, buffer: UOp) -> Array:
    # a buffer of symbolic shape has room for the largest, and is filled from the front
    shape = _sizes(buffer.arg.shape)
    return content[: prod(shape)].reshape(shape)


def _moved_like(array: Array, node: UOp) -> Array:
    """What the movement ops of `node` make of the array below them."""
    moves: list[UOp] = []
    while _is_move(node):
        moves.append(node)
        node = node.src[0]
    for move in reversed(moves):
        array = _moved(array, move)
    return array


def stored_const(node: UOp) -> Array:
    """A CONST as memory would hold it."""
    import numpy as np

    if is_stored_as_bits(node.dtype):
        return from_float32_array(np.asarray(node.arg, np.float32), node.dtype)
    return np.asarray(node.arg, to_numpy_dtype(node.dtype))


def _moved(array: Array, node: UOp) -> Array:
    import numpy as np

    op, arg = node.op, node.arg
    if op is Ops.RESHAPE:
        return array.reshape(_sizes(arg))
    if op is Ops.PERMUTE:
        return np.transpose(array, arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(array, _sizes(arg))
    if op is Ops.SHRINK:
        return array[tuple(slice(*_sizes(bounds)) for bounds in arg)]
    if op is Ops.FLIP:
        return np.flip(array, tuple(i for i, flip in enumerate(arg) if flip))
    assert op not in GroupOp.Movement, f"{op} is computed, not read"
    return array


def _sizes(arg: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(bound_size(x) for x in arg)


def bound_size(size: Any) -> int:
    """A size with the values of its bound Variables put in."""
    if not isinstance(size, UOp):
        return int(size)
    bound = [node for node in size.toposort() if node.op is Ops.BIND]
    values = {node.expr: node.val for node in bound}
    plain = size.substitute({node: node.src[0] for node in bound})
    return sym_infer(plain, values)
