"""Which layout the operands of one op are brought to, when theirs differ.

In: each operand's layout, bytes and shape, and how the devices are linked. Out: the layout that
moves the fewest bytes, each weighed by how slow its link is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, permutations
from math import prod
from operator import mul

from tinygrad.sharding.layout import (
    Partial,
    Placement,
    Shape,
    Sharding,
    ShardingError,
    greatest,
    is_int,
    placement_axis,
)
from tinygrad.sharding.propagation import reduce_layout
from tinygrad.sharding.topology import Link, Topology, current_topology, sent_over


def common_layout(
    layouts: Sequence[Sharding],
    nbytes: Sequence[int],
    shapes: Sequence[Shape],
    summed: tuple[int, ...] = (),
    itemsize: int = 4,
) -> Sharding:
    """The layout for all operands that keeps links busy the least, without `Partial`.

    Where all devices are linked alike, that is the one that moves the fewest bytes. `shapes` have
    one size for each axis of the result; a size of 1 is broadcast there and never split, so an
    operand costs its own bytes, not those of its expansion. Candidates are the operands' layouts,
    and each pair of them combined: one split where the other keeps full copies. Equal costs keep
    the larger operand, then the first. Equal layouts are returned as they are.

    The result, of `itemsize` bytes an element, will be summed over the axes `summed`. Where an
    operand has to move in any case, the all-reduce that the sum would need counts too.

    Raises ShardingError if the operands live on different devices, or one holds unreduced terms.
    """
    if all(layout is layouts[0] for layout in layouts):
        return layouts[0]
    operands = (tuple(layouts), tuple(nbytes), tuple(shapes))
    return _common_layout(current_topology(), *operands, summed, itemsize)


@lru_cache(maxsize=4096)
def _common_layout(
    topology: Topology,
    layouts: tuple[Sharding, ...],
    nbytes: tuple[int, ...],
    shapes: tuple[Shape, ...],
    summed: tuple[int, ...],
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
    if summed and all(costs.values()):
        for entry in costs:
            sent = _reduced_elements(topology, entry, shapes, summed)
            costs[entry] += sum(count * itemsize / link.bandwidth for link, count in sent)
    return min(costs, key=lambda entry: costs[entry])


def _known_where_split(layouts: Sequence[Sharding], shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """Shapes whose axes that some layout splits have a known size: that which is cut."""
    split = {axis for layout in layouts for axis in layout.split_axes}
    return tuple(
        tuple(greatest(size) if axis in split else size for axis, size in enumerate(shape))
        for shape in shapes
    )


def operand_layout(layout: Sharding, shape: Shape) -> Sharding:
    """What `layout` asks of an operand of `shape`: full copies along the axes of size 1."""
    ones = [axis for axis in layout.split_axes if is_int(shape[axis]) and shape[axis] == 1]
    if not ones:
        return layout
    return layout.with_axes([None if placement_axis(p) in ones else p for p in layout.axes])


def _check_operand(first: Sharding, layout: Sharding) -> None:
    if layout.is_partial:
        raise ShardingError(f"an operand on {layout} holds unreduced terms; reduce them first")
    if layout.devices == first.devices:
        return
    same = set(layout.devices) == set(first.devices)
    what = "the same devices in a different order" if same else "different devices"
    raise ShardingError(
        f"operands live on {what}, {first} on {', '.join(first)} and {layout} on "
        f"{', '.join(layout)}; move one with .to() or .shard() to the devices of the other"
    )


def _fits(layout: Sharding, shapes: Sequence[Shape]) -> bool:
    """Every operand can be cut along the axes it is not broadcast over."""
    return all(is_int(shape[axis]) for shape in shapes for axis in layout.split_axes)


def _moved_bytes(
    topology: Topology, candidate: Sharding, layout: Sharding, nbytes: int, shape: Shape
) -> list[tuple[Link, int]]:
    """The bytes that cross each link when one operand is brought to the candidate."""
    moved = sent_over(topology, layout, operand_layout(candidate, shape), shape)
    # by share of the elements, so that symbolic sizes of axes that are not split cancel out
    known_elements: int = prod(size for size in shape if is_int(size))
    return [(link, nbytes * elements // known_elements) for link, elements in moved if elements]


def _reduced_elements(
    topology: Topology, layout: Sharding, shapes: Sequence[Shape], summed: tuple[int, ...]
) -> list[tuple[Link, float]]:
    """The elements that cross each link when what is laid out so is summed over axes to full
    copies: terms are scattered in pieces, then these are gathered.
    """
    partial = reduce_layout(layout, summed, "ADD")
    if partial is None or not partial.is_partial:
        return []
    sizes = [[size for size in axis if is_int(size)] for axis in zip(*shapes, strict=True)]
    result = [1 if i in summed else max(axis, default=1) for i, axis in enumerate(sizes)]
    terms = [isinstance(p, Partial) for p in partial.axes]
    count = prod(n for n, term in zip(partial.mesh_shape, terms, strict=True) if term)
    by_term, by_piece = (
        partial.with_axes([axis if term else None for term in terms]) for axis in (0, 1)
    )
    whole = partial.with_axes([None] * len(terms))
    sent = (
        *sent_over(topology, by_term, by_piece, (count, count)),
        *sent_over(topology, by_term, whole, (count,)),
    )
    # `count` elements stand for all that a device holds
    scale = prod(int(size) for size in partial.local_shape(tuple(result))) / count
    return [(link, elements * scale) for link, elements in sent]


def combined_layout(first: Sharding, second: Sharding) -> Sharding | None:
    """`first`, split as `second` where it keeps full copies; None if the meshes do not nest."""
    if second.is_replicated:
        return first
    dimensions = common_mesh(first, second)
    if dimensions is None:
        return None
    axes = [b if a is None else a for _, a, b in dimensions]
    return Sharding(first.devices, axes, [size for size, _, _ in dimensions])


def common_mesh(first: Sharding, second: Sharding) -> list[tuple[int, Placement, Placement]] | None:
    """The dimensions of the coarsest mesh of both layouts, of the same devices: sizes, and the
    placements of each. None if the meshes do not nest.
    """
    strides = sorted({*_strides(first), *_strides(second)})
    if any(outer % inner for inner, outer in pairwise(strides)):
        return None
    return [
        (outer // inner, _placement_at(first, inner), _placement_at(second, inner))
        for inner, outer in reversed(list(pairwise(strides)))
    ]


def _strides(layout: Sharding) -> list[int]:
    """The step in device numbers along each mesh dimension, innermost first, then the total."""
    return list(accumulate(reversed(layout.mesh_shape), mul, initial=1))


def _placement_at(layout: Sharding, stride: int) -> Placement:
    """The placement of the mesh dimension that steps over `stride` device numbers lie in."""
    outers = _strides(layout)[1:]
    placements = zip(outers, reversed(layout.axes), strict=True)
    return next(placement for outer, placement in placements if stride < outer)
