"""The layouts of partial sums on their way to a reduction.

Input: a partial layout and the layout of the result. Output: the layout of the stack of partial
sums, and the layouts in between. Invariant: nothing here builds a graph.
"""

from __future__ import annotations

from math import prod

from tinygrad.sharding.common_layout import common_mesh
from tinygrad.sharding.communication_time import allreduce_seconds, transfer_seconds
from tinygrad.sharding.cover import allreduce_bytes, moved_elements
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Partial, Placement
from tinygrad.sharding.sizes import Shape
from tinygrad.sharding.topology import current_topology

Ints = tuple[int, ...]


def group_size(source: Sharding) -> int:
    """The number of devices that reduce together."""
    sizes = zip(source.axes, source.mesh_shape, strict=True)
    return prod([size for p, size in sizes if isinstance(p, Partial)])


def is_local_slice(source: Sharding | str, target: Sharding, shape: Shape) -> bool:
    """Whether each device's block in `target` is a slice of its block in `source`."""
    return (
        isinstance(source, Sharding)
        and source.devices == target.devices
        and not moved_elements(source, target, shape)
        and all(
            source.shards(axis) == 1
            or (source.span(axis, shape) == target.span(axis, shape))
            or (source.is_even(shape) and target.is_even(shape))
            for axis in range(len(shape))
        )
    )


def stack_layout(layout: Sharding) -> Sharding:
    """The layout of the stack of partial sums: partial dimensions shard axis 0, the new one."""
    return layout.with_axes([0 if isinstance(p, Partial) else next_axis(p) for p in layout.axes])


def next_axis(placement: Placement) -> Placement:
    return placement + 1 if isinstance(placement, int) else placement


def sliced_source(source: Sharding, target: Sharding, shape: Shape) -> Sharding:
    """A partial layout whose replicated dimensions are sharded as in `target`, if each device's
    block there is within its block in this one. Slicing the partial sums so moves nothing.
    """
    mesh = common_mesh(source, target) or []
    axes = [b if a is None and isinstance(b, int) else a for _, a, b in mesh]
    if axes == [a for _, a, _ in mesh]:
        return source
    sliced = Sharding(source.devices, axes, [size for size, _, _ in mesh])
    whole = source.without_partial()
    fits = is_local_slice(whole, sliced.without_partial(), shape)
    return sliced if fits and is_local_slice(sliced.without_partial(), target, shape) else source


def scattered_first(
    source: Sharding, target: Sharding, shape: Ints, itemsize: int, count: int
) -> Sharding | None:
    """The layout in which only the partial dimensions that `target` shards are reduced, if reducing
    along these first is faster. None otherwise.
    """
    if count != group_size(source):
        return None
    mesh = common_mesh(source, target) or []
    axes = [b if isinstance(a, Partial) and isinstance(b, int) else a for _, a, b in mesh]
    between = Sharding(source.devices, axes, [size for size, _, _ in mesh]) if mesh else source
    whole = between.without_partial()
    if between == source or not between.is_partial or not is_local_slice(whole, target, shape):
        return None
    at_once = target.with_axes([next_axis(p) for p in target.axes])
    nbytes = prod(between.local_shape(shape)) * itemsize
    # reductions read as many blocks as there are partial sums
    read = nbytes / current_topology().processor(source.devices[0]).bandwidth
    seconds = transfer_seconds(stack_layout(source), at_once, (count, *shape), itemsize)
    stack = stack_shape(source, between, shape)
    first = transfer_seconds(*scattered_stack(source, between), stack, itemsize)
    first += stack[0] * read + allreduce_seconds(between, nbytes)
    return between if first < seconds + count * read else None


def reduced_first(source: Sharding, target: Sharding, shape: Ints, itemsize: int) -> Sharding:
    """The layout to which partial values are reduced on their way to `target`: `target` itself, or
    one from which resharding takes less time than sending all partial values there. So devices that
    need what another group reduces receive the sums, and not the partial values of that group.
    """
    mesh = common_mesh(source, target)
    if mesh is None or is_local_slice(source.without_partial(), target, shape):
        return target
    sizes = [size for size, _, _ in mesh]
    partial = [a for _, a, _ in mesh]
    count = group_size(source)
    read = itemsize / current_topology().processor(source.devices[0]).bandwidth
    kept = {a for a in partial if isinstance(a, int)}
    free = [axis for axis in range(len(shape)) if axis not in kept and shape[axis] % count == 0]
    choices: list[list[Placement]] = [[b if isinstance(a, Partial) else a for _, a, b in mesh]]
    choices += [[p if isinstance(a, Partial) else a for a in partial] for p in (None, *free)]

    def scatter_seconds(layout: Sharding) -> float:
        stack = layout.with_axes([next_axis(p) for p in layout.axes])
        seconds = transfer_seconds(stack_layout(source), stack, (count, *shape), itemsize)
        return seconds + count * prod(layout.local_shape(shape)) * read

    best, min_seconds = target, scatter_seconds(target)
    for layout in dict.fromkeys(Sharding(source.devices, axes, sizes) for axes in choices):
        if layout == target:
            continue
        if layout == source.without_partial():
            nbytes = prod(source.local_shape(shape)) * itemsize
            seconds = allreduce_seconds(source, nbytes)
        else:
            seconds = scatter_seconds(layout)
        seconds += transfer_seconds(layout, target, shape, itemsize)
        if seconds < min_seconds:
            best, min_seconds = layout, seconds
    return best


def reduced_elements(source: Sharding, target: Sharding, shape: Ints) -> int:
    """The minimum of the elements that devices send to reduce partial values to `target`."""
    source = sliced_source(source, target, shape)
    count = group_size(source)
    if target == source.without_partial():
        return len(source) * allreduce_bytes(count, prod(source.local_shape(shape)), "all2all")
    stack = target.with_axes([next_axis(p) for p in target.axes])
    return moved_elements(stack_layout(source), stack, (count, *shape))


def scattered_stack(source: Sharding, between: Sharding) -> tuple[Sharding, Sharding]:
    """The layouts of the stack before and after a reduce-scatter along some partial dimensions:
    these shard axis 0 before, the others shard axis 1.
    """
    mesh = common_mesh(source, between)
    assert mesh is not None, "one is a refinement of the other"
    before: list[Placement] = []
    after: list[Placement] = []
    for _, a, b in mesh:
        kept = 1 if isinstance(b, Partial) else next_axis(next_axis(b))
        before.append(0 if isinstance(a, Partial) and not isinstance(b, Partial) else kept)
        after.append(kept)
    sizes = [size for size, _, _ in mesh]
    return Sharding(source.devices, before, sizes), Sharding(source.devices, after, sizes)


def stack_shape(source: Sharding, between: Sharding, shape: Ints) -> Ints:
    """The shape of that stack."""
    kept = group_size(between)
    return (group_size(source) // kept, kept, *shape)
