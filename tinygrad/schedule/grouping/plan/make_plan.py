"""From the per-device graph to a plan: a kernel or transfer for each materialised value, in order.

Input: a per-device SINK over canonical buffers. Output: an `ExecutionPlan`. Invariant: every output
and every source of a transfer is materialised.
"""

from __future__ import annotations

from tinygrad.caches import cached_function
from tinygrad.schedule.execution_plan import ExecutionPlan, KernelItem, Slices
from tinygrad.schedule.grouping.fusion.fuse import choose_materialized
from tinygrad.schedule.grouping.fusion.hazards import find_hazards
from tinygrad.schedule.grouping.fusion.row_chains import find_row_chains
from tinygrad.schedule.grouping.plan.make_units import UnitBuilder
from tinygrad.schedule.grouping.plan.merge import merge_kernels
from tinygrad.schedule.grouping.plan.order import OverwriteConflict, order_units
from tinygrad.schedule.grouping.plan.rebase import rebase_params
from tinygrad.schedule.grouping.plan.storage_map import StorageMap
from tinygrad.schedule.grouping.plan.unit import Unit
from tinygrad.schedule.grouping.rewrite.add_rows import with_scatters
from tinygrad.schedule.grouping.softmax.chains import SoftmaxChain, find_softmax_chains
from tinygrad.schedule.storage_views import below_reshapes
from tinygrad.sharding import current_local_devices
from tinygrad.uop import Ops
from tinygrad.uop.ops import KernelInfo, UOp
from tinygrad.uop.sint import is_one


def make_plan(sink: UOp, inputs: int, default_device: str) -> ExecutionPlan:
    """Group the per-device graph below `sink`, which reads `inputs` buffers, into kernels and
    transfers. Values without a device are computed on `default_device`.
    """
    order = list(sink.toposort())
    order.pop()
    outputs = [below_reshapes(x) for x in sink.src]
    chains = find_softmax_chains(order, outputs)
    taken = {x for chain in chains for x in (*chain.inside(), *chain.ends)}
    rows = find_row_chains(order, outputs, taken, default_device)
    chosen = choose_materialized(order, outputs, chains, rows, default_device)
    chosen = with_scatters(chosen | find_hazards(order, chosen))
    storage, builder = _build_units(order, chosen, chains, inputs, default_device)
    try:
        ordered, dependencies = order_units(builder.units, builder.writer, storage)
    except OverwriteConflict as conflict:
        # what these units write is computed before any of them overwrites anything
        writes = {x for unit in conflict.units for x in unit.overwrites.values()}
        chosen = with_scatters(chosen | {below_reshapes(x.src[1]) for x in writes})
        storage, builder = _build_units(order, chosen, chains, inputs, default_device)
        ordered, dependencies = order_units(builder.units, builder.writer, storage)
    units = merge_kernels(ordered, dependencies, storage.devices)
    return ExecutionPlan(
        inputs=inputs,
        entries=storage.entries,
        items=tuple(unit.item or _kernel_item(unit, storage) for unit in units),
        outputs=tuple(_output_slices(x, storage) for x in outputs),
        written=frozenset(p.entry for node in builder.writer for p in storage.slices[node]),
        variables=tuple(sink.variables()),
        local=current_local_devices(),
    )


def _build_units(
    order: list[UOp],
    chosen: set[UOp],
    chains: list[SoftmaxChain],
    inputs: int,
    default_device: str,
) -> tuple[StorageMap, UnitBuilder]:
    """The storage of the `chosen` nodes, and the units that compute them."""
    materialized = [node for node in order if node in chosen]
    storage = StorageMap(inputs, default_device)
    for node in materialized:
        if node.op is Ops.STACK:
            storage.reserve(node)
    for node in materialized:
        storage.add(node)
    builder = UnitBuilder(chosen, storage, chains)
    for node in materialized:
        builder.add(node)
    return storage, builder


def _output_slices(node: UOp, storage: StorageMap) -> Slices | None:
    return None if node.op in {Ops.BUFFER, Ops.ASSIGN, Ops.AFTER} else storage.slices[node]


def _kernel_item(unit: Unit, storage: StorageMap) -> KernelItem:
    ast = unit.kernel
    if ast is None:
        rebase_params(unit)
        ast = UOp.sink(*unit.stores, arg=KernelInfo(kernel_name(unit.stores[0])))
    devices = storage.devices(unit.node)
    local = current_local_devices().numbers(devices)
    return KernelItem(ast, devices, tuple(unit.params), local, unit.info)


@cached_function(4096)
def kernel_name(store: UOp) -> str:
    """`r_64_128` for a kernel with a reduction, else `e_64_128`; numbers are the output shape."""
    value = store.src[1]
    kind = "r" if any(n.op is Ops.REDUCE_AXIS for n in value.toposort()) else "e"
    sizes = [str(d if isinstance(d, int) else d.vmax) for d in value.shape if not is_one(d)]
    return "_".join([kind, *sizes]) if sizes else f"{kind}_1"
