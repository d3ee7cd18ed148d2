"""Branches and loops, of graphs that are nested in a node.

Input: a condition or trip count, and the nested graph. Output: the values of its outputs.
Conditions and trip counts are decided while the graph is built: from shapes and constants, or by
reading values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.graph import Graph
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import (
    AnyValue,
    Array,
    HostValue,
    Value,
    as_array,
    checked_tensor,
)
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike

RunGraph = Callable[[Graph, Sequence[AnyValue]], list[AnyValue]]
Ints = tuple[int, ...]

# every iteration is unrolled into the graph
MAX_ITERATIONS = 10_000


@operator("If")
def if_(
    cond: Array, *, then_branch: Graph, else_branch: Graph, run_graph: RunGraph
) -> list[AnyValue]:
    if cond.size != 1:
        raise OnnxError(f"the condition has shape {cond.shape}, and must be one element")
    return run_graph(then_branch if cond.item() else else_branch, [])


@operator("Loop")
def loop(
    m: Array | None = None,
    cond: Array | None = None,
    *carried: AnyValue,
    body: Graph,
    run_graph: RunGraph,
    device: DeviceLike,
) -> list[AnyValue]:
    """The carried values after the last iteration, and the stacked outputs of all iterations."""
    going = cond is None or bool(cond.item())
    state, outputs, turn = list(carried), [], 0
    while going and (m is None or turn < m.item()):
        if turn == MAX_ITERATIONS:
            raise OnnxUnsupportedError(f"the loop runs more than {MAX_ITERATIONS} times")
        number, yes = HostValue(np.array(turn, np.int64)), HostValue(np.array(True))
        go_on, *found = run_graph(body, [number, yes, *state])
        state = found[: len(carried)]
        outputs.append(found[len(carried) :])
        going = bool(condition_of(go_on))
        turn += 1
    count = len(body.outputs) - 1 - len(carried)
    if count and not outputs:
        raise OnnxUnsupportedError("a loop that never runs gives no values to stack")
    return state + [stacked([row[i] for row in outputs], 0, device) for i in range(count)]


@operator("Scan")
def scan(
    *values: AnyValue,
    body: Graph,
    num_scan_inputs: int,
    scan_input_axes: Ints = (),
    scan_input_directions: Ints = (),
    scan_output_axes: Ints = (),
    scan_output_directions: Ints = (),
    run_graph: RunGraph,
    device: DeviceLike,
) -> list[AnyValue]:
    """The state after the last element of the scanned axes, and the stacked outputs."""
    first = len(values) - num_scan_inputs
    state, inputs = list(values[:first]), [tensor(v, device) for v in values[first:]]
    if not inputs or first < 0:
        raise OnnxError(f"num_scan_inputs is {num_scan_inputs}, and there are {len(values)} inputs")
    axes = scan_input_axes or (0,) * len(inputs)
    turned = scan_input_directions or (0,) * len(inputs)
    rows = [x.flip(axis) if back else x for x, axis, back in zip(inputs, axes, turned)]
    counts = {int(x.shape[axis]) for x, axis in zip(rows, axes)}
    if len(counts) != 1 or not 0 < (count := counts.pop()) <= MAX_ITERATIONS:
        raise OnnxUnsupportedError(
            f"the scanned axes of {[x.shape for x in inputs]} are not all 1 to {MAX_ITERATIONS}"
        )
    outputs = []
    for turn in range(count):
        parts = [x[(slice(None),) * (axis % x.ndim) + (turn,)] for x, axis in zip(rows, axes)]
        found = run_graph(body, [*state, *parts])
        state = found[:first]
        outputs.append(found[first:])
    results: list[AnyValue] = []
    for i in range(len(body.outputs) - first):
        column = [row[i] for row in outputs]
        back = bool(scan_output_directions) and scan_output_directions[i]
        axis = scan_output_axes[i] if scan_output_axes else 0
        results.append(stacked(column[::-1] if back else column, axis, device))
    return state + results


def condition_of(value: AnyValue) -> bool:
    what = "the condition of the loop"
    return bool(as_array(checked_tensor(value, what), what).item())


def tensor(value: AnyValue, device: DeviceLike) -> Tensor:
    value = checked_tensor(value, "what is stacked or scanned")
    return value.tensor(device) if isinstance(value, HostValue) else value


def stacked(values: Sequence[AnyValue], axis: int, device: DeviceLike) -> Value:
    """Stack values along a new axis; on the host, if all are there."""
    if all(isinstance(value, HostValue) for value in values):
        arrays = [value.array for value in values if isinstance(value, HostValue)]
        return HostValue(np.stack(arrays, axis))
    first, *rest = (tensor(value, device) for value in values)
    return first.stack(*rest, dim=axis)
