"""A plan, executed with numpy: kernels in their tensor form, messages as copies of bytes.

It tests grouping, layouts and collectives without code generation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from test.evaluator.arithmetic import Array, to_storage, value_dtype
from test.evaluator.tensor_graph import evaluate, size
from tinygrad.dtype import to_numpy_dtype
from tinygrad.schedule.canonical import canonicalize
from tinygrad.schedule.execution_plan import (
    DEVICE_NUMBER,
    ExecutionPlan,
    KernelItem,
    StorageSlice,
    slice_on,
)
from tinygrad.schedule.pipeline import PlanOptions, optimize_communication, plan_graph
from tinygrad.sharding import LocalDevices, Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import BufferArg, UOp

Storage = list[list[Array]]

HAS_SIZES = GroupOp.Movement | GroupOp.Scatter | {Ops.ARANGE}


def plan_of(*roots: UOp) -> tuple[ExecutionPlan, tuple[UOp, ...]]:
    """The plan of all devices that computes `roots`, and the buffers it reads."""
    canonical = canonicalize(UOp.sink(*roots))
    options = PlanOptions(len(canonical.buffers), "CPU")
    with LocalDevices():
        return plan_graph(optimize_communication(canonical.sink), options), canonical.buffers


def shards(value: Array, device: Any) -> list[Array]:
    """The flat array of each device."""
    if not isinstance(device, Sharding):
        return [np.ascontiguousarray(value).reshape(-1)]
    regions = device.regions(value.shape)
    return [np.ascontiguousarray(value[tuple(slice(*b) for b in r)]).reshape(-1) for r in regions]


def unshard(parts: list[Array], device: Any, shape: tuple[int, ...]) -> Array:
    """The global array; checks that copies of one element agree."""
    if not isinstance(device, Sharding):
        return parts[0].reshape(shape)
    whole = np.zeros(shape, parts[0].dtype)
    seen = np.zeros(shape, bool)
    for part, region in zip(parts, device.regions(shape), strict=True):
        where = tuple(slice(*b) for b in region)
        held = part.reshape(device.local_shape(shape))
        # elements past the end of the array are unspecified
        block = held[tuple(slice(0, high - low) for low, high in region)]
        np.testing.assert_array_equal(block[seen[where]], whole[where][seen[where]])
        whole[where], seen[where] = block, True
    return whole


def _part(part: StorageSlice, storage: Storage) -> Array:
    whole = storage[part.entry][part.device].view(np.uint8)
    nbytes = part.size * part.dtype.itemsize
    return whole[part.offset : part.offset + nbytes].view(to_numpy_dtype(part.dtype))


def run_kernel(ast: UOp, arrays: Sequence[Array], numbers: dict[str, int]) -> None:
    """Run a kernel's tensor form on flat arrays, one for each PARAM, under values of Variables."""
    table: dict[UOp, UOp] = {}
    values: dict[UOp, Array] = {}
    bound = {v: UOp.const(v.dtype, numbers[v.arg[0]]) for v in ast.variables()}
    for node in ast.toposort():
        if node.op is Ops.PARAM:
            shape = tuple(_bind_arg(d, bound) for d in node.arg.shape)
            arg = BufferArg(len(table), shape, "CPU")
            table[node] = UOp(Ops.BUFFER, node.dtype, (), arg)
            values[table[node]] = arrays[node.arg.slot][: math.prod(shape)].reshape(shape)
    results = []
    for store in ast.src:
        target, value = (_bind(x.substitute(table), bound) for x in store.src)
        results.append((target, evaluate(value, values)))
    for target, result in results:
        _store(target, values, result)


def _bind(value: UOp, bound: dict[UOp, UOp]) -> UOp:
    if not bound:
        return value
    done: dict[UOp, UOp] = {}
    for node in value.toposort():
        arg = _bind_arg(node.arg, bound) if node.op in HAS_SIZES else node.arg
        src = tuple(done[x] for x in node.src)
        done[node] = bound.get(node) or UOp(node.op, node.dtype, src, arg)
    return done[value]


def _bind_arg(arg: Any, bound: dict[UOp, UOp]) -> Any:
    if isinstance(arg, tuple):
        return tuple(_bind_arg(x, bound) for x in arg)
    return size(arg.substitute(bound)) if isinstance(arg, UOp) else arg


def _view(target: UOp, values: dict[UOp, Array]) -> Array:
    if target.op is Ops.BUFFER:
        return values[target]
    below = _view(target.src[0], values)
    if target.op is Ops.RESHAPE:
        return below.reshape(target.shape)
    if target.op is Ops.PERMUTE:
        return below.transpose(target.arg)
    assert target.op is Ops.SHRINK
    return below[tuple(slice(*b) for b in target.arg)]


def _store(target: UOp, values: dict[UOp, Array], result: Array) -> None:
    view = _view(target, values)
    view[...] = to_storage(np.broadcast_to(result, view.shape), target.dtype)


def run_plan(*roots: UOp, inputs: dict[UOp, Array]) -> list[Array]:
    """The global value of each root, computed kernel by kernel on each device."""
    plan, read = plan_of(*roots)
    storage: Storage = [shards(inputs[b], b.device) for b in read]
    for number in plan.temporary:
        entry = plan.entries[number]
        dtype = to_numpy_dtype(entry.dtype)
        storage.append([np.zeros(entry.size, dtype) for _ in entry.devices])
    for item in plan.items:
        if isinstance(item, KernelItem):
            for d in range(len(item.devices)):
                arrays = [_part(p, storage) for p in item.arguments[d]]
                run_kernel(item.ast, arrays, {DEVICE_NUMBER: d})
        else:
            for t in item.messages:
                _part(t.destination, storage)[...] = _part(t.source, storage)
    results = []
    for root, parts in zip(roots, plan.outputs, strict=True):
        if parts is None:
            # nothing was left to compute: the value is that of an input
            results.append(evaluate(root, inputs))
            continue
        slices = [slice_on(parts, d) for d in range(sum(p.device_count for p in parts))]
        arrays = [_part(p, storage).astype(value_dtype(root.dtype)) for p in slices]
        results.append(unshard(arrays, root.device, cast(tuple[int, ...], root.shape)))
    return results
