"""Sequences of tensors, and optional values.

Lengths and positions are decided while the graph is built. Elements stay lazy tensors, or arrays on
the host.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.graph import Graph, ValueSpec
from tinygrad.nn.onnx.operators.tensor.control import RunGraph, stacked, tensor
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import (
    AnyValue,
    Array,
    EmptyOptional,
    HostValue,
    SequenceValue,
    Value,
    as_value,
    checked_tensor,
)
from tinygrad.uop.device_value import DeviceLike

FLOAT32 = 1


@operator("SequenceEmpty")
def sequence_empty(*, dtype: int = FLOAT32) -> SequenceValue:
    dtype_of(dtype, "dtype")
    return SequenceValue(())


@operator("SequenceConstruct")
def sequence_construct(*inputs: Value) -> SequenceValue:
    return SequenceValue(inputs)


def index_of(position: Array, length: int) -> int:
    """A position from the start or, if negative, from the end. Raises OnnxError out of range."""
    index = int(position.item())
    if not -length <= index < length:
        raise OnnxError(f"position {index} is out of range of a sequence of {length}")
    return index % length


@operator("SequenceAt")
def sequence_at(input_sequence: SequenceValue, position: Array) -> Value:
    return input_sequence.items[index_of(position, len(input_sequence.items))]


@operator("SequenceInsert")
def sequence_insert(
    input_sequence: SequenceValue, tensor: Value, position: Array | None = None
) -> SequenceValue:
    """The sequence with a tensor before `position`, by default at the end."""
    items = input_sequence.items
    count = len(items)
    at = count if position is None or position.item() == count else index_of(position, count)
    return SequenceValue((*items[:at], tensor, *items[at:]))


@operator("SequenceErase")
def sequence_erase(input_sequence: SequenceValue, position: Array | None = None) -> SequenceValue:
    """The sequence without the element at `position`, by default the last."""
    items = input_sequence.items
    at = index_of(np.array(-1) if position is None else position, len(items))
    return SequenceValue((*items[:at], *items[at + 1 :]))


@operator("SequenceLength")
def sequence_length(input_sequence: SequenceValue) -> Array:
    return np.array(len(input_sequence.items), np.int64)


@operator("ConcatFromSequence")
def concat_from_sequence(
    input_sequence: SequenceValue, *, axis: int, new_axis: int = 0, device: DeviceLike
) -> Value:
    """The elements joined along an axis, a new one with `new_axis`."""
    items = input_sequence.items
    if not items:
        raise OnnxError("there is nothing to join: the sequence is empty")
    if new_axis:
        return stacked(items, axis, device)
    arrays = [item.array for item in items if isinstance(item, HostValue)]
    if len(arrays) == len(items):
        return as_value(np.concatenate(arrays, axis), device)
    first, *rest = (tensor(item, device) for item in items)
    return first.cat(*rest, dim=axis)


@operator("SplitToSequence")
def split_to_sequence(
    input: Value, split: Array | None = None, *, axis: int = 0, keepdims: int = 1
) -> SequenceValue:
    """Parts along an axis: of the sizes `split`, of one size if that is a scalar, else of 1, which
    `keepdims=0` removes.
    """
    data = input.array if isinstance(input, HostValue) else input
    axis %= data.ndim
    size = int(data.shape[axis])
    sizes = [1] * size if split is None else part_sizes(size, split)
    before = (slice(None),) * axis
    parts = [data[(*before, slice(end - n, end))] for n, end in zip(sizes, accumulate(sizes))]
    if split is None and not keepdims:
        parts = [part.squeeze(axis) for part in parts]
    return SequenceValue(tuple(HostValue(p) if isinstance(p, np.ndarray) else p for p in parts))


def part_sizes(size: int, split: Array) -> list[int]:
    """The sizes of the parts of an axis. Raises OnnxError if they do not add up to its size."""
    if split.ndim == 0 and split > 0:
        step = int(split.item())
        return [min(step, size - start) for start in range(0, size, step)]
    sizes = [int(n) for n in split.reshape(-1)]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise OnnxError(f"the parts {sizes} do not add up to {size}, the size of the axis")
    return sizes


@operator("SequenceMap")
def sequence_map(
    input_sequence: SequenceValue,
    *additional_inputs: AnyValue,
    body: Graph,
    run_graph: RunGraph,
) -> list[SequenceValue]:
    """The outputs of `body` for each element; further sequences are read at the same position."""
    count = len(input_sequence.items)
    if any(isinstance(x, SequenceValue) and len(x.items) != count for x in additional_inputs):
        raise OnnxError(f"the sequences are not all of {count} elements")
    rows = [
        run_graph(
            body,
            [item, *(x.items[i] if isinstance(x, SequenceValue) else x for x in additional_inputs)],
        )
        for i, item in enumerate(input_sequence.items)
    ]
    return [
        SequenceValue(tuple(checked_tensor(row[i], "an output of the body") for row in rows))
        for i in range(len(body.outputs))
    ]


@operator("Optional")
def optional(input: AnyValue | None = None, *, type: ValueSpec | None = None) -> AnyValue:
    return EmptyOptional() if input is None else input


@operator("OptionalHasElement")
def optional_has_element(input: AnyValue | None = None) -> Array:
    return np.array(not (input is None or isinstance(input, EmptyOptional)))


@operator("OptionalGetElement")
def optional_get_element(input: AnyValue) -> AnyValue:
    if isinstance(input, EmptyOptional):
        raise OnnxError("the optional has no element")
    return input
