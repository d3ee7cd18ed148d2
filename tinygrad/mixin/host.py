"""Numbers of the host as nodes of the tensor graph, and stored nodes as arrays of the host.

In: Python numbers, nested lists, bytes, numpy arrays. Out: BUFFER nodes on the device "NPY" over a
private copy, on their way to a device; and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tinygrad.device import Buffer, BufferSpec
from tinygrad.dtype import (
    DType,
    dtypes,
    from_float32_array,
    from_numpy_dtype,
    is_stored_as_bits,
    to_float32_array,
    to_numpy_dtype,
)
from tinygrad.helpers import fully_flatten, prod
from tinygrad.mixin.core import broadcast_node, const_node
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, buffers, sym_infer

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# ops whose value is that of their source
TRANSPARENT = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD})


def array_node(array: Array, dtype: DType | None) -> UOp:
    """A copy of a numpy array, of `dtype` or of its own."""
    import numpy as np

    own = from_numpy_dtype(array.dtype)
    dtype = own if dtype is None else dtype
    if array.size == 0:
        return broadcast_node(const_node(0, dtype), array.shape)
    if is_stored_as_bits(dtype):
        stored = array if is_stored_as_bits(own) else from_float32_array(array, dtype)
        data = np.array(stored, order="C")
    else:
        data = np.array(array, dtype=to_numpy_dtype(dtype), order="C")
    return memory_node(data.reshape(-1).view(np.uint8).data, array.shape, dtype)


def memory_node(data: memoryview, shape: Sequence[int], dtype: DType) -> UOp:
    """Contiguous bytes of the host, without a copy."""
    node = UOp.new_buffer("NPY", tuple(shape), dtype)
    buffers[node] = Buffer.from_memoryview("NPY", dtype, data)
    return node


def foreign_node(address: int, shape: Sequence[int], dtype: DType, device: str) -> UOp:
    """Memory that somebody else owns, on `device`, without a copy."""
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


def list_node(data: Any, dtype: DType | None) -> UOp:
    """Nested sequences of numbers. Raises ValueError if they are ragged, or hold other things."""
    import numpy as np

    leaves = fully_flatten(data)
    try:
        dtype = dtypes.from_py(leaves) if dtype is None else dtype
        exact = np.dtype(np.float64) if is_stored_as_bits(dtype) else to_numpy_dtype(dtype)
        if dtypes.is_int(dtype) and any(isinstance(x, float) for x in leaves):
            return array_node(np.array(data, dtype=np.float64).astype(exact), dtype)
        return array_node(np.array(data, dtype=exact), dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"no tensor of {dtype} can be made of {_shown(data)}: {error}") from error


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) < 80 else f"{text[:77]}..."


def data_node(data: Any, dtype: DType | None) -> UOp:
    """Whatever a tensor can be made of. Raises TypeError for anything else."""
    if data is None:
        return broadcast_node(const_node(0, dtype or dtypes.default_float), (0,))
    if isinstance(data, (bool, int, float)):
        return const_node(data, dtype or dtypes.from_py(data))
    if isinstance(data, bytes):
        import numpy as np

        return array_node(np.frombuffer(data, np.uint8), dtype or dtypes.uint8)
    if isinstance(data, (list, tuple)):
        return list_node(data, dtype)
    if isinstance(data, Path):
        return file_node(data) if dtype is None else file_node(data).bitcast(dtype)
    if isinstance(data, UOp):
        node = data.cast(dtypes.default_int) if data.dtype is dtypes.index else data
        return node if dtype is None else node.cast(dtype)
    if type(data).__module__ == "numpy" or hasattr(data, "__array__"):
        import numpy as np

        array = np.asarray(data)
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
    moves: list[UOp] = []
    while node.op in GroupOp.Movement or node.op in TRANSPARENT or node.op is Ops.COPY:
        moves.append(node)
        node = node.src[0]
    if node.op in {Ops.CONST, Ops.BIND}:
        stored = stored_const(node if node.op is Ops.CONST else node.src[1])
    else:
        # a buffer of symbolic shape has room for the largest, and is filled from the front
        shape = _sizes(node.arg.shape)
        stored = cast(Buffer, node.buffer).numpy()[: prod(shape)].reshape(shape)
    array = to_float32_array(stored, node.dtype) if is_stored_as_bits(node.dtype) else stored
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
