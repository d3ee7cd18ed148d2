"""Properties of every layout: arrays sharded in numpy against the layout arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygrad.sharding import (
    LAYOUT_RULES,
    RANGE_OPS,
    Partial,
    Placement,
    Region,
    Sharding,
    common_layout,
    cover,
    moves_axis,
    operand_layout,
    received_elements,
    reduce_layout,
    sent_per_device,
    transfer_bytes,
)

Array = npt.NDArray[np.int64]
IntShape = tuple[int, ...]
Draw = Callable[[st.SearchStrategy[Any]], Any]

UFUNCS: dict[str, np.ufunc] = {
    "ADD": np.add,
    "MUL": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
}
MESHES: list[IntShape] = [(1,), (2,), (3,), (4,), (6,), (2, 2), (2, 3), (3, 2), (4, 2), (2, 2, 2)]

quick = settings(max_examples=120, deadline=None)


@st.composite
def layouts(
    draw: st.DrawFn, ndim: int, partial: bool = False, mesh: IntShape | None = None
) -> Sharding:
    """A layout for arrays of `ndim` axes; partial dimensions, if any, all have the same op."""
    mesh = mesh or draw(st.sampled_from(MESHES))
    reduction = Partial(draw(st.sampled_from(sorted(UFUNCS))))
    entries: list[Placement] = [None, *range(ndim), *range(ndim), *([reduction] if partial else [])]
    axes = [draw(st.sampled_from(entries)) for _ in mesh]
    return Sharding([f"CPU:{number}" for number in range(prod(mesh))], axes, mesh)


@st.composite
def cases(draw: st.DrawFn, partial: bool = False) -> tuple[Sharding, IntShape]:
    """A layout and a global shape that divides evenly."""
    ndim = draw(st.integers(0, 4))
    layout = draw(layouts(ndim, partial))
    local = [draw(st.sampled_from([1, 1, 2, 2, 3])) for _ in range(ndim)]
    return layout, tuple(size * layout.shards(axis) for axis, size in enumerate(local))


def cut(array: Array, region: Region) -> Array:
    slices: tuple[Any, ...] = tuple(slice(start, stop) for start, stop in region)
    return array[(*slices, ...)]


def numbered(shape: IntShape) -> Array:
    return np.arange(prod(shape), dtype=np.int64).reshape(shape)


def partial_index(layout: Sharding, device: int) -> IntShape:
    """The partial value that a device holds: its coordinates along the partial dimensions."""
    places = zip(layout.axes, layout.coordinates(device), strict=True)
    return tuple(place for entry, place in places if isinstance(entry, Partial))


def device_arrays(layout: Sharding, shape: IntShape, seed: int) -> list[Array]:
    """Example shards: equal on replicas, different on every block and partial value."""
    generator = np.random.default_rng(seed)
    held: dict[tuple[Region, IntShape], Array] = {}
    arrays = []
    for device, region in enumerate(layout.regions(shape)):
        key = (region, partial_index(layout, device))
        if key not in held:
            held[key] = generator.integers(-4, 5, layout.local_shape(shape), dtype=np.int64)
        arrays.append(held[key])
    return arrays


def logical(layout: Sharding, shape: IntShape, arrays: list[Array]) -> Array:
    """The global array that the shards represent. Asserts that replicas are equal."""
    partials: dict[Region, dict[IntShape, Array]] = {}
    for device, region in enumerate(layout.regions(shape)):
        assert arrays[device].shape == layout.local_shape(shape)
        of_region = partials.setdefault(region, {})
        first = of_region.setdefault(partial_index(layout, device), arrays[device])
        np.testing.assert_array_equal(first, arrays[device])
    whole = np.full(shape, 99, dtype=np.int64)
    for region, of_region in partials.items():
        op = layout.partial_ops[0] if layout.is_partial else "ADD"
        cut(whole, region)[...] = reduce(UFUNCS[op], of_region.values())
    return whole


# ---- regions ----


@quick
@given(cases(partial=True))
def test_regions_tile_the_array_equally_often(case: tuple[Sharding, IntShape]) -> None:
    layout, shape = case
    counts = np.zeros(shape, dtype=np.int64)
    for region in layout.regions(shape):
        cut(counts, region)[...] += 1
    assert np.all(counts == len(layout) // prod(layout.shards(axis) for axis in layout.split_axes))


@quick
@given(cases(partial=True))
def test_regions_agree_with_local_shape_and_block_strides(case: tuple[Sharding, IntShape]) -> None:
    layout, shape = case
    local = layout.local_shape(shape)
    for device, region in enumerate(layout.regions(shape)):
        assert tuple(stop - start for start, stop in region) == local
        for axis, (start, _) in enumerate(region):
            terms = layout.block_strides(axis)
            block = sum((device // stride) % size * weight for stride, size, weight in terms)
            assert start == block * local[axis]


@quick
@given(cases(partial=True))
def test_canonical_form_is_stable(case: tuple[Sharding, IntShape]) -> None:
    layout, _ = case
    assert Sharding(layout.devices, layout.axis, layout.mesh) is layout
    assert layout.with_axes(layout.axes) is layout


# ---- propagation: an op on the global array, then sharding, equals the op on each shard ----


def draw_order(draw: Draw, shape: IntShape) -> IntShape:
    return tuple(draw(st.permutations(range(len(shape)))))


def draw_shape(draw: Draw, shape: IntShape) -> IntShape:
    """Splits and merges adjacent axes at random, and inserts axes of size 1."""
    factors = [1]
    for size in shape:
        while size > 1:
            prime = next(number for number in range(2, size + 1) if size % number == 0)
            factors.append(prime)
            size //= prime
    new = [1]
    for factor in factors:
        if draw(st.booleans()):
            new[-1] *= factor
        else:
            new.append(factor)
    return tuple(new)


def draw_bounds(draw: Draw, shape: IntShape) -> tuple[tuple[int, int], ...]:
    bounds = []
    for size in shape:
        start = draw(st.sampled_from([0, 0, size // 2]))
        bounds.append((start, draw(st.sampled_from([size, size, (start + size + 1) // 2]))))
    return tuple(bounds)


def draw_padding(draw: Draw, shape: IntShape) -> tuple[tuple[int, int], ...]:
    amount = st.sampled_from([0, 0, 0, 1, 2])
    return tuple((draw(amount), draw(amount)) for _ in shape)


def draw_flips(draw: Draw, shape: IntShape) -> tuple[bool, ...]:
    return tuple(draw(st.booleans()) for _ in shape)


def draw_expansion(draw: Draw, shape: IntShape) -> IntShape:
    return tuple(draw(st.integers(1, 3)) if size == 1 else size for size in shape)


@dataclass(frozen=True)
class Windows:
    """For each window: its axis, its kernel axis, the new size, stride and dilation."""

    windows: tuple[tuple[int, int, int, int, int], ...]

    @property
    def axes(self) -> frozenset[int]:
        return frozenset(axis for window in self.windows for axis in window[:2])


def draw_windows(draw: Draw, shape: IntShape) -> Windows:
    """One window inside the array, if one fits."""
    if len(shape) < 2:
        return Windows(())
    axis, kernel = draw(st.permutations(range(len(shape))))[:2]
    stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    room = shape[axis] - 1 - (shape[kernel] - 1) * dilation
    if room < 0:
        return Windows(())
    return Windows(((axis, kernel, draw(st.integers(1, room // stride + 1)), stride, dilation),))


def draw_unwindows(draw: Draw, shape: IntShape) -> Windows:
    if len(shape) < 2:
        return Windows(())
    axis, kernel = draw(st.permutations(range(len(shape))))[:2]
    size = draw(st.integers(1, 6))
    return Windows(((axis, kernel, size, draw(st.integers(1, 2)), draw(st.integers(1, 2))),))


def slide(array: Array, argument: Windows) -> Array:
    """`out(o, k) = in(o * stride + k * dilation, k)`."""
    for axis, kernel, size, stride, dilation in argument.windows:
        index = np.indices([*array.shape[:axis], size, *array.shape[axis + 1 :]])
        index[axis] = index[axis] * stride + index[kernel] * dilation
        array = array[tuple(index)]
    return array


def unslide(array: Array, argument: Windows) -> Array:
    """`out(y, k) = in((y - k * dilation) / stride, k)` if that is an element, else 0."""
    for axis, kernel, size, stride, dilation in argument.windows:
        index = np.indices([*array.shape[:axis], size, *array.shape[axis + 1 :]])
        offset = index[axis] - index[kernel] * dilation
        position = offset // stride
        found = (offset % stride == 0) & (position >= 0) & (position < array.shape[axis])
        index[axis] = np.where(found, position, 0)
        array = np.where(found, array[tuple(index)], 0)
    return array


DRAW_ARGUMENT: dict[str, Callable[[Draw, IntShape], Any]] = {
    "PERMUTE": draw_order,
    "RESHAPE": draw_shape,
    "EXPAND": draw_expansion,
    "PAD": draw_padding,
    "SHRINK": draw_bounds,
    "FLIP": draw_flips,
    "WINDOW": draw_windows,
    "UNWINDOW": draw_unwindows,
}


def move(op: str, array: Array, argument: Any) -> Array:
    match op:
        case "PERMUTE":
            return array.transpose(argument)
        case "RESHAPE":
            return array.reshape(argument)
        case "EXPAND":
            return np.broadcast_to(array, argument)
        case "PAD":
            return np.pad(array, argument) if array.ndim else array
        case "SHRINK":
            return cut(array, argument)
        case "WINDOW":
            return slide(array, argument)
        case "UNWINDOW":
            return unslide(array, argument)
        case _:
            slices: tuple[Any, ...] = tuple(
                slice(None, None, -1 if flip else 1) for flip in argument
            )
            return array[(*slices, ...)]


def local_argument(op: str, argument: Any, layout: Sharding, result: Sharding, shape: Any) -> Any:
    """The argument of the op on one device, the same on each."""
    if op in ("RESHAPE", "EXPAND"):
        return result.local_shape(argument)
    if op == "SHRINK":
        local = layout.local_shape(shape)
        return tuple(
            (0, local[axis]) if axis in layout.split_axes else bounds
            for axis, bounds in enumerate(argument)
        )
    return argument


def check_movement(op: str, data: st.DataObject) -> None:
    layout, shape = data.draw(cases(partial=True))
    argument = DRAW_ARGUMENT[op](data.draw, shape)
    result = LAYOUT_RULES[op](layout, shape, argument)
    slides = op in RANGE_OPS and any(
        moves_axis(op, argument, shape, axis) for axis in layout.split_axes
    )
    if result is None or slides:
        return  # test/sharding checks movement along sharded axes, on devices
    arrays = device_arrays(layout, shape, seed=0)
    whole = move(op, logical(layout, shape, arrays), argument)
    local = local_argument(op, argument, layout, result, shape)
    moved = [move(op, array, local) for array in arrays]
    assert result.devices == layout.devices
    np.testing.assert_array_equal(logical(result, whole.shape, moved), whole)


@quick
@given(st.data())
def test_permute_of_shards_equals_shards_of_permute(data: st.DataObject) -> None:
    check_movement("PERMUTE", data)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_reshape_of_shards_equals_shards_of_reshape(data: st.DataObject) -> None:
    check_movement("RESHAPE", data)


@quick
@given(st.data())
def test_expand_of_shards_equals_shards_of_expand(data: st.DataObject) -> None:
    check_movement("EXPAND", data)


@quick
@given(st.data())
def test_pad_of_shards_equals_shards_of_pad(data: st.DataObject) -> None:
    check_movement("PAD", data)


@quick
@given(st.data())
def test_shrink_of_shards_equals_shards_of_shrink(data: st.DataObject) -> None:
    check_movement("SHRINK", data)


@quick
@given(st.data())
def test_flip_of_shards_equals_shards_of_flip(data: st.DataObject) -> None:
    check_movement("FLIP", data)


@quick
@given(st.data())
def test_window_of_shards_equals_shards_of_window(data: st.DataObject) -> None:
    check_movement("WINDOW", data)


@quick
@given(st.data())
def test_unwindow_of_shards_equals_shards_of_unwindow(data: st.DataObject) -> None:
    check_movement("UNWINDOW", data)


def test_every_layout_rule_is_checked() -> None:
    assert DRAW_ARGUMENT.keys() == LAYOUT_RULES.keys()


@quick
@given(st.data())
def test_reduce_of_shards_equals_shards_of_reduce(data: st.DataObject) -> None:
    layout, shape = data.draw(cases(partial=True))
    op = layout.partial_ops[0] if layout.is_partial else data.draw(st.sampled_from(sorted(UFUNCS)))
    axes = tuple(axis for axis in range(len(shape)) if data.draw(st.booleans()))
    result = reduce_layout(layout, axes, op)
    assert result is not None
    arrays = device_arrays(layout, shape, seed=1)
    whole = UFUNCS[op].reduce(logical(layout, shape, arrays), axes, keepdims=True)
    pieces = [UFUNCS[op].reduce(array, axes, keepdims=True) for array in arrays]
    np.testing.assert_array_equal(logical(result, whole.shape, pieces), whole)


def layouts_of_prime_meshes(devices: tuple[str, ...], ndim: int) -> Iterator[Sharding]:
    primes: dict[int, list[IntShape]] = {
        1: [(1,)],
        2: [(2,)],
        3: [(3,)],
        4: [(2, 2)],
        6: [(2, 3), (3, 2)],
        8: [(2, 2, 2)],
    }
    for mesh in primes[len(devices)]:
        entries: list[Placement] = [None, *range(ndim)]
        for axes in product(entries, repeat=len(mesh)):
            yield Sharding(devices, axes, mesh)


@quick
@given(st.data())
def test_reshape_fails_only_if_no_layout_fits(data: st.DataObject) -> None:
    layout, shape = data.draw(cases())
    new_shape = draw_shape(data.draw, shape)
    if LAYOUT_RULES["RESHAPE"](layout, shape, new_shape) is not None:
        return
    whole = numbered(shape)
    held = [set(cut(whole, region).flat) for region in layout.regions(shape)]
    moved = whole.reshape(new_shape)
    for candidate in layouts_of_prime_meshes(layout.devices, len(new_shape)):
        if any(new_shape[axis] % candidate.shards(axis) for axis in candidate.split_axes):
            continue
        regions = candidate.regions(new_shape)
        assert [set(cut(moved, region).flat) for region in regions] != held, candidate


# ---- transfers ----


@st.composite
def moves(draw: st.DrawFn) -> tuple[Sharding, Sharding, IntShape]:
    """Two layouts, on possibly overlapping devices, and a shape that divides evenly in both."""
    ndim = draw(st.integers(0, 3))
    source, target = draw(layouts(ndim)), draw(layouts(ndim))
    first = draw(st.integers(0, 4))
    names = [f"CPU:{number}" for number in range(first, first + len(target))]
    target = Sharding(draw(st.permutations(names)), target.axes, target.mesh_shape)
    shape = tuple(source.shards(axis) * target.shards(axis) for axis in range(ndim))
    return source, target, shape


@quick
@given(moves())
def test_cover_tiles_every_destination_and_sends_missing_elements_only(
    case: tuple[Sharding, Sharding, IntShape],
) -> None:
    source, target, shape = case
    whole = numbered(shape)
    held = [cut(whole, region) for region in source.regions(shape)]
    covers = cover(source, target, shape)
    assert len(covers) == len(target)
    received = 0
    for name, wanted, pieces in zip(target, target.regions(shape), covers, strict=True):
        filled = np.zeros(shape, dtype=np.int64)
        kept = set(held[source.devices.index(name)].flat) if name in source else set()
        for position, piece in enumerate(pieces):
            elements = set(cut(whole, piece.region).flat)
            assert elements <= set(held[piece.source].flat)
            if source[piece.source] == name:
                assert position == 0
            else:
                assert not elements & kept
                received += len(elements)
            cut(filled, piece.region)[...] += 1
        expected = np.zeros(shape, dtype=np.int64)
        cut(expected, wanted)[...] = 1
        np.testing.assert_array_equal(filled, expected)
    assert transfer_bytes(source, target, shape, 2) == 2 * received
    if source.devices == target.devices:
        assert sum(received_elements(source, target, shape)) == received
    assert sum(sent_per_device(source, target, shape, 2)) == 2 * received


@quick
@given(st.data())
def test_resharding_a_replicated_layout_sends_nothing(data: st.DataObject) -> None:
    layout, shape = data.draw(cases())
    assert transfer_bytes(layout.replicated(), layout, shape, 4) == 0


# ---- choice ----


@quick
@given(st.data())
def test_the_common_layout_costs_at_most_as_much_as_any_operands(
    data: st.DataObject,
) -> None:
    mesh = data.draw(st.sampled_from(MESHES))
    operands = [data.draw(layouts(2, mesh=mesh)) for _ in range(data.draw(st.integers(1, 3)))]
    shapes: list[IntShape] = []
    for layout in operands:
        can_broadcast = [layout.shards(axis) == 1 and data.draw(st.booleans()) for axis in (0, 1)]
        shapes.append(tuple(1 if one else 24 for one in can_broadcast))
    nbytes = [4 * prod(shape) for shape in shapes]

    def cost(layout: Sharding) -> int:
        return sum(
            transfer_bytes(operand, operand_layout(layout, shape), shape, 4)
            for operand, shape in zip(operands, shapes, strict=True)
        )

    chosen = common_layout(operands, nbytes, shapes)
    assert chosen.devices == operands[0].devices
    assert cost(chosen) <= min(cost(layout) for layout in operands)
    chosen.check((24, 24))
