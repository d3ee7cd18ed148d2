"""Lower VECTOR ranges to vector dtypes.

Before: expressions over RANGEs, some of kind VECTOR; no expression depends on two of these. After:
no VECTOR range. An expression that depended on one has a vector dtype: contiguous accesses are
vector loads and stores, others gathers and scatters, and a reduction over lanes becomes a vector
accumulator whose lanes are reduced after the loop.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.accesses import index_of
from tinygrad.codegen.analysis.affine_index import affine, build_affine, index_const
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, loops_of, substitute
from tinygrad.codegen.lower.wide_masks import masked_lanes
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer import Renderer
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp
from tinygrad.uop.sint import fits_int32, index_dtype

MAX_SHUFFLED_VECTORS = 4
"""The contiguous vectors that are loaded for one whose lanes are at constant offsets."""


def broadcast(node: UOp, count: int) -> UOp:
    """A splat of a scalar to `count` lanes."""
    if node.dtype.count == count or count == 1:
        return node
    if node.op is Ops.CONST:
        return UOp(Ops.CONST, node.dtype.vec(count), (), node.arg)
    return UOp(Ops.VECTORIZE, node.dtype.vec(count), (node,))


def expand_vectors(sink: UOp, renderer: Renderer) -> UOp:
    """Lower every VECTOR range to a vector dtype."""
    nodes = sink.toposort()
    if not any(u.op is Ops.RANGE and u.arg.kind is AxisType.VECTOR for u in nodes):
        return sink
    target = renderer.target
    # for threads, `scalar_lanes.py` divides masked vectors anyway
    register_bytes = None if target.has_threads else target.vector_bytes
    expansion = _Expansion(renderer.has_shuffle, register_bytes)
    for u in nodes:
        expansion.done[u] = expansion.expand(u)
    return expansion.done[sink]


class _Expansion:
    """The vector form of every node processed so far."""

    def __init__(self, has_shuffle: bool, register_bytes: int | None) -> None:
        self.has_shuffle = has_shuffle
        self.register_bytes = register_bytes
        self.done: dict[UOp, UOp] = {}
        self.free = FreeRanges()

    def lanes_axis(self, node: UOp) -> UOp | None:
        """The VECTOR range that `node` depends on, if any."""
        found = [r for r in self.free[node] if r.arg.kind is AxisType.VECTOR]
        assert len(found) < 2, "an expression depends on two vector axes"
        return found[0] if found else None

    def expand(self, u: UOp) -> UOp:
        """The node over expanded sources."""
        if u.op is Ops.RANGE and u.arg.kind is AxisType.VECTOR:
            return self.lane_numbers(u)
        if u.op is Ops.REDUCE:
            return self.reduce(u)
        if u.op is Ops.STORE:
            return self.store(u)
        if u.op is Ops.INDEX:
            axis = self.lanes_axis(u)
            return self.rebuilt(u) if axis is None else self.index(u, axis)
        src = tuple([self.done[x] for x in u.src])
        if u.op is Ops.LOAD:
            return self.load(u, src)
        if u.op in GroupOp.Elementwise:
            return self.elementwise(u, src)
        return self.rebuilt(u)

    def rebuilt(self, u: UOp) -> UOp:
        src = tuple([self.done[x] for x in u.src])
        return u.with_sources(src)

    def lane_numbers(self, axis: UOp) -> UOp:
        count = extent(axis)
        return UOp(Ops.CONST, dtypes.int32.vec(count), (), tuple(range(count)))

    def elementwise(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        count = max((x.dtype.count for x in src), default=1)
        if count == 1 or self.lanes_axis(u) is None:
            # of a vector that is none of lanes, every node states its dtype
            return u.with_sources(src)
        if u.dtype is dtypes.index or any(x.dtype is dtypes.index for x in u.src):
            return self.index_arithmetic(u, src, count)
        wide = tuple([broadcast(x, count) for x in src])
        return UOp(u.op, u.dtype.scalar().vec(count), wide, u.arg)

    def index_arithmetic(self, u: UOp, src: tuple[UOp, ...], count: int) -> UOp:
        """Index arithmetic in lanes of 32 bits if every value fits, else of 64 bits."""
        narrow = fits_int32(*(x for x in (u, *u.src) if x.dtype is dtypes.index))
        lane = dtypes.int32 if narrow else dtypes.index
        wide = tuple(
            [
                broadcast(_to_lane_type(s, lane), count)
                if x.dtype is dtypes.index
                else broadcast(s, count)
                for x, s in zip(u.src, src, strict=True)
            ]
        )
        dtype = lane if u.dtype is dtypes.index else u.dtype.scalar()
        if u.op is Ops.CAST and dtype is wide[0].dtype.scalar():
            return wide[0]
        return UOp(u.op, dtype.vec(count), wide, u.arg)

    def index(self, u: UOp, axis: UOp) -> UOp:
        """An address with a scalar index if the lanes are contiguous, else with a vector index.

        Lanes at a constant stride are constant offsets from the address of the first.
        """
        pointer = self.done[u.src[0]]
        valid = tuple([self.done[x] for x in u.src[2:]])
        form = affine(u.src[1])
        stride = self.free.coefficient(form, axis)
        count = extent(axis)
        lanes = broadcast(self.done[u.src[1]], count)
        if stride:
            form.terms.pop(axis)
            base = build_affine(form)
            if stride == 1:
                return UOp(Ops.INDEX, u.dtype, (pointer, base, *valid))
            pointer = UOp(Ops.INDEX, u.dtype, (pointer, base))
            offsets = tuple(lane * stride for lane in range(count))
            lanes = UOp(Ops.CONST, index_dtype(*offsets).vec(count), (), offsets)
        wide = tuple([broadcast(x, count) for x in valid])
        return UOp(Ops.INDEX, u.dtype, (pointer, lanes, *wide))

    def load(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        axis = self.lanes_axis(u)
        if axis is None:
            return u.with_sources(src)
        count = extent(axis)
        if self.lanes_axis(u.src[0]) is None:
            # only the alternative depends on lanes: one scalar load serves all of them
            address = src[0]
            plain = UOp(Ops.LOAD, u.dtype, (address,))
            valid = address.src[2]
            return UOp(
                Ops.WHERE,
                u.dtype.vec(count),
                (broadcast(valid, count), broadcast(plain, count), broadcast(src[1], count)),
            )
        if self.has_shuffle:
            found = self.lane_offsets(index_of(u), axis)
            if found is not None:
                return self.shuffled_load(u, src, *found)
        wide = tuple([broadcast(x, count) for x in src[1:]])
        loaded = UOp(Ops.LOAD, u.dtype.vec(count), (src[0], *wide))
        return self.lanes_of_load(loaded, tuple(range(count)))

    def lanes_of_load(self, loaded: UOp, numbers: tuple[int, ...]) -> UOp:
        """Lanes of a load, which becomes several if it is masked and wider than a register."""
        dtype = loaded.dtype.scalar().vec(len(numbers))
        contiguous = loaded.src[0].src[1].dtype.count == 1
        if contiguous and self.register_bytes is not None:
            lanes = masked_lanes(loaded, self.register_bytes)
            if lanes is not None:
                return UOp(Ops.VECTORIZE, dtype, tuple([lanes[i] for i in numbers]))
        if numbers == tuple(range(loaded.dtype.count)):
            return loaded
        return UOp(Ops.GEP, dtype, (loaded,), numbers)

    def lane_offsets(self, index: UOp, axis: UOp) -> tuple[UOp, tuple[int, ...]] | None:
        """The lowest index of all lanes, and the constant offset of each lane from it.

        None if the lanes are contiguous, or too far apart for one contiguous load.
        """
        if self.free.stride(index, axis) in {0, 1}:
            return None
        form = affine(index)
        of_lanes = [x for x in form.terms if axis in self.free[x]]
        if any(len(self.free[x]) > 1 for x in of_lanes):
            return None
        count = extent(axis)
        offsets = [0] * count
        for term in of_lanes:
            coefficient = form.terms.pop(term)
            for lane in range(count):
                at = index_const(lane)
                value = at if term is axis else substitute(term, {axis: at})
                if value.vmin != value.vmax:
                    return None
                offsets[lane] += coefficient * int(value.vmin)
        lowest = min(offsets)
        offsets = [x - lowest for x in offsets]
        if not 0 < max(offsets) < MAX_SHUFFLED_VECTORS * count:
            return None
        form.constant += lowest
        return build_affine(form), tuple(offsets)

    def shuffled_load(
        self, u: UOp, src: tuple[UOp, ...], base: UOp, offsets: tuple[int, ...]
    ) -> UOp:
        """A load of contiguous elements, of which the lanes are those at `offsets`.

        Elements that no lane needs are masked, since they may lie past the end of the buffer.
        """
        count = len(offsets)
        total = 1 << max(offsets).bit_length()
        address: tuple[UOp, ...] = (self.done[u.src[0].src[0]], base)
        valid = broadcast(src[0].src[2], count) if len(src[0].src) > 2 else None
        needed = self.needed_elements(offsets, total, valid)
        if needed is not None:
            address = (*address, needed)
        loaded = UOp(Ops.LOAD, u.dtype.vec(total), (UOp(Ops.INDEX, u.src[0].dtype, address),))
        result = self.lanes_of_load(loaded, offsets)
        if valid is None or len(src) == 1:
            return result
        return UOp(Ops.WHERE, result.dtype, (valid, result, broadcast(src[1], count)))

    def needed_elements(
        self, offsets: tuple[int, ...], total: int, valid: UOp | None
    ) -> UOp | None:
        """The mask of the elements that `valid` lanes read; None for all elements."""
        mask = dtypes.bool.vec(total)
        readers = [[lane for lane, x in enumerate(offsets) if x == i] for i in range(total)]
        needed: UOp | None = None
        if valid is not None:
            # elements that no lane reads repeat the one before, which shuffles take at no cost
            near: list[list[int]] = []
            for x in readers:
                near.append(x or near[-1])
            for turn in range(max(map(len, readers))):
                lanes = tuple(x[min(turn, len(x) - 1)] for x in near)
                part = UOp(Ops.GEP, mask, (valid,), lanes)
                needed = part if needed is None else UOp(Ops.OR, mask, (needed, part))
        if all(readers):
            return needed
        read = UOp(Ops.CONST, mask, (), tuple(map(bool, readers)))
        return read if needed is None else UOp(Ops.AND, mask, (read, needed))

    def store(self, u: UOp) -> UOp:
        loops = tuple(r for r in loops_of(u) if r.arg.kind is not AxisType.VECTOR)
        address, value = self.done[u.src[0]], self.done[u.src[1]]
        axis = self.lanes_axis(u.src[0])
        if axis is not None:
            value = broadcast(value, extent(axis))
        return UOp(Ops.STORE, dtypes.void, (address, value, *loops))

    def reduce(self, u: UOp) -> UOp:
        loops = tuple(r for r in loops_of(u) if r.arg.kind is not AxisType.VECTOR)
        lanes = [r for r in loops_of(u) if r.arg.kind is AxisType.VECTOR]
        value = self.done[u.src[0]]
        if lanes:
            value = broadcast(value, extent(lanes[0]))
        if loops:
            value = value.reduce(*loops, arg=u.arg)
        return UOp(Ops.REDUCE, u.dtype, (value,), u.arg) if lanes else value


def _to_lane_type(node: UOp, lane: DType) -> UOp:
    """An index, scalar or vector, with elements of type `lane`."""
    if node.dtype.scalar() is lane:
        return node
    if node.op is Ops.CONST:
        return UOp(Ops.CONST, lane.vec(node.dtype.count), (), node.arg)
    return UOp(Ops.CAST, lane.vec(node.dtype.count), (node,))
