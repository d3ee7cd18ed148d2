"""Realized values as numpy arrays.

Input: views of realized buffers and of constants. Output: arrays, copied or in the same memory.
Invariant: movement ops above the buffer are applied by numpy, so nothing is computed on a device.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, cast

from tinygrad.device import Buffer, MultiBuffer
from tinygrad.dtype import (
    DType,
    from_float32_array,
    is_stored_as_bits,
    to_float32_array,
    to_numpy_dtype,
)
from tinygrad.execution.buffers import read_buffer
from tinygrad.storage.views import IDENTITY_OPS, folded_value
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, sym_infer

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_APPLIED = GroupOp.Movement | IDENTITY_OPS | {Ops.COPY}


def read_array(node: UOp) -> Array:
    """A copy of a realized value; bfloat16 and fp8 are converted to float32. Of a replicated one,
    the first device's is read.
    """
    import numpy as np

    base = _base(node)
    number = _uniform_number(base)
    if number is not None:
        stored = np.broadcast_to(number, _bound_sizes(node.shape))
    else:
        memory: Buffer | MultiBuffer = base.buffer
        whole = memory[0] if isinstance(memory, MultiBuffer) else memory
        stored = _shaped(read_buffer(whole), base)
    values = to_float32_array(stored, node.dtype) if is_stored_as_bits(node.dtype) else stored
    return values if number is not None else _with_movement(values, node)


def view_array(node: UOp) -> Array:
    """A realized value in its own memory, with the dtype of `to_numpy_dtype`. Its device must be
    addressable by the host.
    """
    import numpy as np

    base = _base(node)
    content = np.frombuffer(cast(Buffer, base.buffer).as_memoryview(), to_numpy_dtype(node.dtype))
    return _with_movement(_shaped(content, base), node)


def bound_size(size: Any) -> int:
    """The int value of a size, whose Variables must be bound."""
    if not isinstance(size, UOp):
        return int(size)
    bound = [node for node in size.toposort() if node.op is Ops.BIND]
    values = {node.expr: node.val for node in bound}
    plain = size.substitute({node: node.src[0] for node in bound})
    return sym_infer(plain, values)


def _is_applied(node: UOp) -> bool:
    if node.op is Ops.MSELECT:
        # each device has a buffer, in which its shard is
        return node.src[0].op is not Ops.BUFFER
    return node.op in _APPLIED


def _base(node: UOp) -> UOp:
    while _is_applied(node):
        node = node.src[0]
    return node


def _shaped(content: Array, buffer: UOp) -> Array:
    if buffer.op is Ops.MSELECT:
        block = _bound_sizes(buffer.src[0].layout.local_shape(buffer.src[0].shape))
        inside = tuple(slice(size) for size in _bound_sizes(buffer.shape))
        return content[: prod(block)].reshape(block)[inside]
    # a buffer of symbolic shape is allocated for the maximum size, and filled from the front
    shape = _bound_sizes(buffer.arg.shape)
    return content[: prod(shape)].reshape(shape)


def _uniform_number(base: UOp) -> Array | None:
    """The number that is every element of what a base is moved to, as an array of its stored dtype;
    None if the base is in memory.
    """
    if base.op is Ops.BIND:
        base = base.src[1]
    value = base.arg if base.op is Ops.CONST else folded_value(base)
    return None if value is None else _number_array(value, base.dtype)


def _number_array(value: Any, dtype: DType) -> Array:
    """A number as an array of the stored dtype."""
    import numpy as np

    if is_stored_as_bits(dtype):
        return from_float32_array(np.asarray(value, np.float32), dtype)
    return np.asarray(value, to_numpy_dtype(dtype))


def _with_movement(array: Array, node: UOp) -> Array:
    """The movement ops between the base of `node` and `node`, applied to the array of the base."""
    chain: list[UOp] = []
    while _is_applied(node):
        chain.append(node)
        node = node.src[0]
    for move in reversed(chain):
        array = apply_movement(array, move)
    return array


def apply_movement(array: Array, node: UOp) -> Array:
    """The movement op `node`, applied to an array of its source; a view of it where possible."""
    import numpy as np

    op, arg = node.op, node.arg
    if op is Ops.RESHAPE:
        return array.reshape(_bound_sizes(arg))
    if op is Ops.PERMUTE:
        return np.transpose(array, arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(array, _bound_sizes(arg))
    if op is Ops.SHRINK:
        return array[tuple(slice(*_bound_sizes(bounds)) for bounds in arg)]
    if op is Ops.MSELECT:
        region = node.src[0].layout.regions(array.shape)[arg]
        return array[tuple(slice(*bounds) for bounds in region)]
    if op is Ops.FLIP:
        return np.flip(array, tuple(i for i, flip in enumerate(arg) if flip))
    assert op not in GroupOp.Movement, f"{op} is computed, not read"
    return array


def _bound_sizes(arg: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(bound_size(x) for x in arg)
