"""The common layout for the operands of one op whose layouts differ.

Input: each operand's layout, bytes and shape, and the topology of the devices. Output: the layout
that takes the least time to reach: bytes, weighted by the bandwidth of the links that they cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, permutations
from math import prod
from operator import mul

from tinygrad.sharding.communication_time import elements_per_link
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Partial, Placement, ShardingError, placement_axis
from tinygrad.sharding.propagation import reduce_layout
from tinygrad.sharding.sizes import Shape, is_int, max_size
from tinygrad.sharding.topology import Link, Topology, current_topology


def common_layout(
    layouts: Sequence[Sharding],
    nbytes: Sequence[int],
    shapes: Sequence[Shape],
    reduced_axes: tuple[int, ...] = (),
    itemsize: int = 4,
) -> Sharding:
    """The layout for all operands that minimises link time, without `Partial`.

    With uniform links, this minimises the bytes moved. `shapes` have one size for each axis of the
    result. A size of 1 is broadcast and never sharded, so an operand costs its own bytes, not those
    of its expansion. Candidates are the operands' layouts and each pair of them combined: one
    sharded where the other is replicated. Ties keep the larger operand, then the first. Equal
    layouts are returned unchanged.

    The result, of `itemsize` bytes an element, is then reduced over `reduced_axes`. If every
    candidate moves an operand, the cost of the all-reduce after the reduction is added.

    Raises ShardingError if the operands live on different devices, or one is partial.
    """
    if all(layout is layouts[0] for layout in layouts):
        return layouts[0]
    operands = (tuple(layouts), tuple(nbytes), tuple(shapes))
    return _common_layout(current_topology(), *operands, reduced_axes, itemsize)


@lru_cache(maxsize=4096)
def _common_layout(
    topology: Topology,
    layouts: tuple[Sharding, ...],
    nbytes: tuple[int, ...],
    shapes: tuple[Shape, ...],
    reduced_axes: tuple[int, ...],
    itemsize: int,
) -> Sharding:
    for layout in layouts:
        _check_operand(layouts[0], layout)
    shapes = _known_where_split(layouts, shapes)
    order = sorted(range(len(layouts)), key=lambda index: -nbytes[index])
    own = [layouts[index] for index in order]
    pairs = permutations(dict.fromkeys(own), 2)
    combined = [combined_layout(first, second) for first, second in pairs]
    candidates = dict.fromkeys([*own, *(layout for layout in combined if layout is not None)])
    operands = list(zip(layouts, nbytes, shapes, strict=True))

    def cost(candidate: Sharding) -> float:
        moves = [_moved_bytes(topology, candidate, *operand) for operand in operands]
        return sum(count / link.bandwidth for sent in moves for link, count in sent)

    costs = {entry: cost(entry) for entry in candidates if _fits(entry, shapes)}
    if reduced_axes and all(costs.values()):
        for entry in costs:
            sent = _reduced_elements(topology, entry, shapes, reduced_axes)
            costs[entry] += sum(count * itemsize / link.bandwidth for link, count in sent)
    return min(costs, key=lambda entry: costs[entry])


def _known_where_split(layouts: Sequence[Sharding], shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The shapes, with the upper bound in place of a symbolic size where a layout shards it."""
    split = {axis for layout in layouts for axis in layout.split_axes}
    return tuple(
        tuple(max_size(size) if axis in split else size for axis, size in enumerate(shape))
        for shape in shapes
    )


def operand_layout(layout: Sharding, shape: Shape) -> Sharding:
    """`layout` for an operand of `shape`: replicated along its axes of size 1."""
    ones = [axis for axis in layout.split_axes if is_int(shape[axis]) and shape[axis] == 1]
    if not ones:
        return layout
    return layout.with_axes([None if placement_axis(p) in ones else p for p in layout.axes])


def _check_operand(first: Sharding, layout: Sharding) -> None:
    if layout.is_partial:
        raise ShardingError(f"an operand on {layout} holds partial values; reduce them first")
    if layout.devices == first.devices:
        return
    same = set(layout.devices) == set(first.devices)
    what = "the same devices in a different order" if same else "different devices"
    raise ShardingError(
        f"operands live on {what}: one on {', '.join(first)} as {first}, one on "
        f"{', '.join(layout)} as {layout}; bring them together first with .to() or .shard()"
    )


def _fits(layout: Sharding, shapes: Sequence[Shape]) -> bool:
    """Whether every operand can be sharded along the axes over which it is not broadcast."""
    return all(is_int(shape[axis]) for shape in shapes for axis in layout.split_axes)


def _moved_bytes(
    topology: Topology, candidate: Sharding, layout: Sharding, nbytes: int, shape: Shape
) -> list[tuple[Link, int]]:
    """The bytes that cross each link when one operand is resharded to the candidate."""
    moved = elements_per_link(topology, layout, operand_layout(candidate, shape), shape)
    # a fraction of the elements, so that symbolic sizes of unsharded axes cancel out
    known_elements: int = prod(size for size in shape if is_int(size))
    return [(link, nbytes * elements // known_elements) for link, elements in moved if elements]


def _reduced_elements(
    topology: Topology, layout: Sharding, shapes: Sequence[Shape], reduced_axes: tuple[int, ...]
) -> list[tuple[Link, float]]:
    """The elements that cross each link when a result in `layout` is all-reduced over
    `reduced_axes`: a reduce-scatter, then an all-gather.
    """
    partial = reduce_layout(layout, reduced_axes, "ADD")
    if partial is None or not partial.is_partial:
        return []
    sizes = [[size for size in axis if is_int(size)] for axis in zip(*shapes, strict=True)]
    result = [1 if i in reduced_axes else max(axis, default=1) for i, axis in enumerate(sizes)]
    reduces = [isinstance(p, Partial) for p in partial.axes]
    count = prod(n for n, reduced in zip(partial.mesh_shape, reduces, strict=True) if reduced)
    by_device, by_block = (
        partial.with_axes([axis if reduced else None for reduced in reduces]) for axis in (0, 1)
    )
    replicated = partial.with_axes([None] * len(reduces))
    sent = (
        *elements_per_link(topology, by_device, by_block, (count, count)),
        *elements_per_link(topology, by_device, replicated, (count,)),
    )
    # `count` elements stand for all elements of a device
    scale = prod(int(size) for size in partial.local_shape(tuple(result))) / count
    return [(link, elements * scale) for link, elements in sent]


def combined_layout(first: Sharding, second: Sharding) -> Sharding | None:
    """`first`, sharded as `second` where it is replicated; None if the meshes do not nest."""
    if second.is_replicated:
        return first
    dimensions = common_mesh(first, second)
    if dimensions is None:
        return None
    axes = [b if a is None else a for _, a, b in dimensions]
    return Sharding(first.devices, axes, [size for size, _, _ in dimensions])


def common_mesh(first: Sharding, second: Sharding) -> list[tuple[int, Placement, Placement]] | None:
    """The dimensions of the coarsest common mesh of two layouts of the same devices: the size, and
    the placement in each layout. None if the meshes do not nest.
    """
    strides = sorted({*_strides(first), *_strides(second)})
    if any(outer % inner for inner, outer in pairwise(strides)):
        return None
    return [
        (outer // inner, _placement_at(first, inner), _placement_at(second, inner))
        for inner, outer in reversed(list(pairwise(strides)))
    ]


def _strides(layout: Sharding) -> list[int]:
    """The stride in device numbers of each mesh dimension, innermost first, then the total."""
    return list(accumulate(reversed(layout.mesh_shape), mul, initial=1))


def _placement_at(layout: Sharding, stride: int) -> Placement:
    """The placement of the mesh dimension that contains steps of `stride` device numbers."""
    outers = _strides(layout)[1:]
    placements = zip(outers, reversed(layout.axes), strict=True)
    return next(placement for outer, placement in placements if stride < outer)
