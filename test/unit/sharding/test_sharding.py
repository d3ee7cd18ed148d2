"""Layout arithmetic: values, propagation, costs, choice of layouts, named meshes, errors."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from tinygrad.sharding import (
    LAYOUT_RULES,
    Mesh,
    P,
    Partial,
    Piece,
    Placement,
    Sharding,
    ShardingError,
    allreduce_bytes,
    common_layout,
    cover,
    expand_layout,
    moved_elements,
    operand_layout,
    permute_layout,
    reduce_layout,
    reshape_layout,
    sent_per_device,
    transfer_bytes,
    transfer_kind,
)

KIB = 1024


def cpus(count: int, first: int = 0) -> tuple[str, ...]:
    return tuple(f"CPU:{number}" for number in range(first, first + count))


def split(
    count: int,
    axis: Placement | tuple[Placement, ...] = None,
    mesh: tuple[int, ...] = (),
) -> Sharding:
    return Sharding(cpus(count), axis, mesh)


class Symbolic:
    """A symbolic size that rules may only pass through or read the upper bound of."""

    __hash__ = object.__hash__

    def __init__(self, vmax: int = 1000) -> None:
        self.vmax = vmax

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a symbolic size was compared")

    def __mul__(self, other: object) -> Symbolic:
        raise AssertionError("a symbolic size was multiplied")

    __rmul__ = __mul__
    __mod__ = __mul__
    __floordiv__ = __mul__


@dataclasses.dataclass(frozen=True)
class Windows:
    """The part of the argument of WINDOW and UNWINDOW that a layout rule reads."""

    windows: tuple[tuple[int, int, int, int, int], ...]
    axes: frozenset[int]


def windows(*each: tuple[int, int, int, int, int]) -> Windows:
    """Windows from tuples (axis, kernel axis, new size, stride, dilation)."""
    return Windows(each, frozenset(axis for window in each for axis in window[:2]))


# ---- the value ----


@pytest.mark.parametrize(
    ("axis", "mesh", "canonical_axis", "canonical_mesh"),
    [
        (None, (), None, ()),
        (1, (4,), 1, ()),
        ((1,), (), 1, ()),
        ((0, None), (1, 4), None, ()),
        ((0, None), (4, 1), 0, ()),
        ((None, None), (2, 2), None, ()),
        ((0, 0), (2, 2), 0, ()),
        ((Partial("ADD"), Partial("ADD")), (2, 2), Partial("ADD"), ()),
        ((0, None), (2, 2), (0, None), (2, 2)),
        ((0, 1), (2, 2), (0, 1), (2, 2)),
        (None, (2, 2), None, ()),
    ],
)
def test_canonical_form(
    axis: Any, mesh: tuple[int, ...], canonical_axis: Any, canonical_mesh: tuple[int, ...]
) -> None:
    layout = split(4, axis, mesh)
    assert (layout.axis, layout.mesh) == (canonical_axis, canonical_mesh)
    assert len(layout.axes) == len(layout.mesh_shape)


def test_axes_around_a_dropped_dimension_merge() -> None:
    assert split(4, (0, 1, 0), (2, 1, 2)) is split(4, 0)


def test_a_layout_of_one_device_is_replicated() -> None:
    layout = Sharding(("CPU",), 3)
    assert (layout.axis, layout.mesh, layout.axes, layout.mesh_shape) == (None, (), (None,), (1,))


def test_equal_layouts_are_one_object() -> None:
    layout = split(8, (0, 1), (2, 4))
    assert layout is Sharding(list(cpus(8)), [0, 1], [2, 4])
    assert pickle.loads(pickle.dumps(layout)) is layout
    assert copy.deepcopy(layout) is layout
    assert dataclasses.replace(layout, axis=(None, 1)) is split(8, (None, 1), (2, 4))
    assert len({layout, split(8, (0, 1), (2, 4)), split(8, 0)}) == 2


def test_a_layout_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        split(2, 0).axis = 1  # type: ignore[misc]


def test_a_layout_is_a_sequence_of_its_devices() -> None:
    layout = split(4, 0)
    assert len(layout) == 4
    assert list(layout) == ["CPU", *cpus(4)[1:]]
    assert layout == cpus(4)
    assert layout[-1] == "CPU:3"
    assert layout[1:3] == ("CPU:1", "CPU:2")
    assert "CPU:2" in layout


def test_number_0_has_no_number_in_a_layout_so_that_it_is_that_of_a_tensor() -> None:
    layout = Sharding(("CPU:0", "CPU:1"), axis=0)
    assert layout is Sharding(("CPU", "CPU:1"), axis=0)
    with pytest.raises(ShardingError, match="names CPU more than once"):
        Sharding(("CPU", "CPU:0"))


def test_predicates_of_layouts() -> None:
    layout = split(8, (1, Partial("MAX"), 0), (2, 2, 2))
    assert not layout.is_replicated
    assert layout.is_partial
    assert layout.partial_ops == ("MAX",)
    assert layout.split_axes == (0, 1)
    assert [layout.shards(axis) for axis in range(3)] == [2, 2, 1]
    assert layout.without_partial() is split(8, (1, None, 0), (2, 2, 2))
    assert layout.replicated() is split(8)
    assert layout.with_axes((0, 0, None)) is split(8, (0, None), (4, 2))
    assert split(8).is_replicated
    assert split(8).without_partial() is split(8)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (split(4, 0), "Sharding(CPU:0-3, axis=0)"),
        (Sharding(("CPU", "CPU:1"), None), "Sharding(CPU:0-1, axis=None)"),
        (Sharding(("CUDA:1", "CPU")), "Sharding(CUDA:1, CPU, axis=None)"),
        (Sharding(("CPU",)), "Sharding(CPU, axis=None)"),
        (
            split(8, (Partial("ADD"), 1), (2, 4)),
            "Sharding(CPU:0-7, axis=(Partial(ADD), 1), mesh=(2, 4))",
        ),
    ],
)
def test_the_text_of_a_layout(layout: Sharding, text: str) -> None:
    assert str(layout) == text


def test_the_repr_of_a_layout_is_short() -> None:
    layout = split(4, (0, Partial("ADD")), (2, 2))
    assert repr(layout) == "Sharding(CPU:0-3, axis=(0, Partial(ADD)), mesh=(2, 2))"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Sharding(()), "devices is empty; name at least one"),
        (lambda: Sharding("CPU:0"), r"devices must be a tuple of device names, got 'CPU:0'"),
        (lambda: Sharding((0, 1)), r"devices must be a tuple of device names, got \(0, 1\)"),  # type: ignore[arg-type]
        (lambda: Sharding(("CPU", "CPU")), "devices names CPU more than once.*once"),
        (lambda: split(4, (0, 1), (2, 3)), "mesh.*6 places for 4 devices; make the product"),
        (lambda: split(4, 0, (2, 2)), "axis 0 has 1 entries for mesh .* of 2 dimensions; give one"),
        (lambda: split(4, (0, 1)), "axis .* has 2 entries for mesh .* of 1 dimensions"),
        (lambda: split(4, mesh=(4, 0)), "mesh must be a tuple of positive ints"),
        (lambda: split(4, mesh=(-2, -2)), "mesh must be a tuple of positive ints"),
        (lambda: split(4, -1), r"axis -1 is negative.*len\(shape\) \+ axis"),
        (lambda: split(4, 1.0), "axis has the entry 1.0; use an int"),  # type: ignore[arg-type]
        (lambda: split(4, True), "axis has the entry True; use an int"),
        (lambda: split(4, "dp"), "axis has the entry 'dp'; use an int"),  # type: ignore[arg-type]
        (lambda: Partial("XOR"), "op 'XOR' is not a reduction; use one of ADD, MAX, MUL, MIN"),
    ],
)
def test_an_invalid_layout_names_the_field_and_the_fix(build: Any, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        build()


# ---- shapes and regions ----


@pytest.mark.parametrize(
    ("layout", "shape", "local_shape", "regions"),
    [
        (split(2, 0), (4, 3), (2, 3), [((0, 2), (0, 3)), ((2, 4), (0, 3))]),
        (split(2), (4,), (4,), [((0, 4),), ((0, 4),)]),
        (split(2), (), (), [(), ()]),
        (split(2, 0), (0,), (0,), [((0, 0),), ((0, 0),)]),
        (
            split(4, (1, 0), (2, 2)),
            (2, 4),
            (1, 2),
            [((0, 1), (0, 2)), ((1, 2), (0, 2)), ((0, 1), (2, 4)), ((1, 2), (2, 4))],
        ),
        (split(4, (0, Partial("ADD")), (2, 2)), (2,), (1,), [((0, 1),)] * 2 + [((1, 2),)] * 2),
    ],
)
def test_regions(layout: Sharding, shape: Any, local_shape: Any, regions: list[Any]) -> None:
    layout.check(shape)
    assert layout.local_shape(shape) == local_shape
    assert layout.regions(shape) == tuple(regions)


def test_block_strides_of_nested_sharding() -> None:
    layout = split(8, (0, None, 0), (2, 2, 2))
    assert layout.block_strides(0) == [(4, 2, 2), (1, 2, 1)]
    assert layout.block_strides(1) == []
    assert [layout.coordinates(number) for number in (0, 3, 6)] == [(0, 0, 0), (0, 1, 1), (1, 1, 0)]
    assert [region[0][0] for region in layout.regions((8,))] == [0, 2, 0, 2, 4, 6, 4, 6]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), r"shards axis 0 of shape \(\) over 4 devices, but the shape has 0 axes"),
        ((1, 3), r"axis=0.*axis 0 of shape \(1, 3\) over 4 devices.*its size is 1.*another axis"),
    ],
)
@pytest.mark.parametrize("method", ["check", "local_shape", "regions"])
def test_a_shape_that_does_not_fit_names_shape_axis_and_count(
    method: str, shape: Any, message: str
) -> None:
    with pytest.raises(ShardingError, match=message):
        getattr(split(4, 0), method)(shape)


def test_unsharded_symbolic_sizes_are_passed_through() -> None:
    size = Symbolic()
    layout = split(2, 1)
    assert layout.local_shape((size, 4))[0] is size
    assert layout.regions((size, 4))[1][0][1] is size
    assert permute_layout(layout, (1, 0)) is split(2, 0)
    assert expand_layout(layout, (1, 4, 1), (size, 4, size)) is layout
    assert LAYOUT_RULES["PAD"](layout, (4, 4), ((0, size), (0, 0))) is layout
    assert LAYOUT_RULES["SHRINK"](layout, (size, 4), ((0, size), (0, 4))) is layout
    assert LAYOUT_RULES["SHRINK"](layout, (4, 4), ((0, 4), (0, size))) is None
    assert reduce_layout(layout, (0,), "ADD") is layout
    pieces = cover(layout, split(2), (size, 4))
    assert [piece.region[1] for piece in pieces[1]] == [(2, 4), (0, 2)]
    small = split(2, 2)
    assert common_layout([layout, small], [400, 40], [(size, 4, 4), (size, 4, 4)]) is layout


def test_symbolic_sizes_are_sharded_as_their_upper_bound() -> None:
    layout, most, fewer, few = split(4, 0), Symbolic(10), Symbolic(9), Symbolic(8)
    assert layout.local_shape((most, 2)) == (3, 2)
    assert not layout.is_even((few, 2))
    assert [region[0] for region in layout.regions((most, 2))] == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert moved_elements(layout, split(4), (most, 2)) == 3 * 10 * 2
    shrink, pair = LAYOUT_RULES["SHRINK"], (0, 2)
    for size, keeps in ((most, layout), (fewer, layout), (few, None)):
        assert shrink(layout, (10, 2), ((0, size), pair)) is keeps
    assert shrink(layout, (10, 2), ((few, most), pair)) is None
    assert reshape_layout(layout, (most, 2), (1, most, 1, 2)) is split(4, 1)
    assert reshape_layout(layout, (most, 2), (fewer, 2)) is None
    assert common_layout([split(4), layout], [80, 80], [(most, 2), (most, 2)]) is layout


# ---- propagation ----


def test_every_movement_op_has_a_layout_rule() -> None:
    movements = {"PERMUTE", "RESHAPE", "EXPAND", "PAD", "SHRINK", "FLIP", "WINDOW", "UNWINDOW"}
    assert set(LAYOUT_RULES) == movements


@pytest.mark.parametrize(
    ("op", "shape", "argument", "keeps"),
    [
        ("PERMUTE", (4, 3), (1, 0), split(2, 1)),
        ("PERMUTE", (4, 3, 2), (0, 2, 1), split(2, 0)),
        ("RESHAPE", (4, 3), (12,), split(2, 0)),
        ("EXPAND", (4, 1), (4, 3), split(2, 0)),
        ("PAD", (4, 3), ((0, 0), (1, 2)), split(2, 0)),
        ("PAD", (4, 3), ((0, 1), (0, 0)), None),
        ("SHRINK", (4, 3), ((0, 4), (1, 2)), split(2, 0)),
        ("SHRINK", (4, 3), ((0, 2), (0, 3)), None),
        ("SHRINK", (4, 3), ((1, 4), (0, 3)), None),
        ("FLIP", (4, 3), (False, True), split(2, 0)),
        ("FLIP", (4, 3), (True, False), None),
        ("PAD", (5, 3), ((0, 1), (0, 0)), split(2, 0)),
        ("SHRINK", (6, 3), ((0, 5), (0, 3)), split(2, 0)),
        ("WINDOW", (4, 9, 2), windows((1, 2, 8, 1, 1)), split(2, 0)),
        ("WINDOW", (8, 9, 2), windows((0, 2, 4, 2, 1)), split(2, 0)),
        ("WINDOW", (8, 9, 2), windows((0, 2, 7, 1, 1)), None),
        ("WINDOW", (4, 9, 2), windows((1, 0, 6, 1, 1)), None),
        ("UNWINDOW", (4, 8, 2), windows((1, 2, 9, 1, 1)), split(2, 0)),
        ("UNWINDOW", (4, 8, 2), windows((0, 2, 8, 2, 1)), split(2, 0)),
        ("UNWINDOW", (4, 8, 2), windows((0, 2, 5, 1, 1)), None),
    ],
)
def test_movement_of_a_layout_sharded_on_axis_0(
    op: str, shape: Any, argument: Any, keeps: Sharding | None
) -> None:
    assert LAYOUT_RULES[op](split(2, 0), shape, argument) is keeps


@pytest.mark.parametrize("op", ["ADD", "MAX", "MUL", "MIN"])
def test_partial_layouts_stay_partial_through_movement(op: str) -> None:
    layout = split(2, Partial(op))
    assert permute_layout(layout, (1, 0)) is layout
    assert reshape_layout(layout, (4, 3), (3, 4)) is layout
    assert expand_layout(layout, (1, 3), (4, 3)) is layout
    assert LAYOUT_RULES["SHRINK"](layout, (4, 3), ((0, 2), (0, 3))) is layout
    assert LAYOUT_RULES["FLIP"](layout, (4, 3), (True, True)) is layout
    assert LAYOUT_RULES["PAD"](layout, (4, 4), ((0, 1), (0, 0))) is (
        layout if op == "ADD" else None
    )


@pytest.mark.parametrize(
    ("layout", "old_shape", "new_shape", "keeps"),
    [
        # merge
        (split(4, 0), (8, 6), (48,), split(4, 0)),
        (split(2, 1), (8, 6), (48,), None),
        (split(2, 1), (1, 8), (8,), split(2, 0)),
        (split(4, (0, 1), (2, 2)), (2, 6), (12,), split(4, 0)),
        (split(4, (0, 1), (2, 2)), (4, 6), (24,), None),
        (split(4, (1, 0), (2, 2)), (2, 2), (4,), None),
        (split(8, (0, None, 1), (2, 2, 2)), (2, 4), (8,), split(8, (0, None, 0), (2, 2, 2))),
        # part
        (split(4, 0), (8,), (2, 4), split(4, (0, 1), (2, 2))),
        (split(4, 0), (8,), (4, 2), split(4, 0)),
        (split(4, 0), (8,), (8, 1), split(4, 0)),
        (split(8, 0), (8,), (2, 2, 2), split(8, (0, 1, 2), (2, 2, 2))),
        (split(6, 0), (12,), (6, 2), split(6, 0)),
        (split(4, 0), (12,), (6, 2), None),
        (split(4, 0), (24,), (6, 4), None),
        (split(4, (0, 1), (2, 2)), (4, 8), (2, 2, 8), split(4, (0, 2), (2, 2))),
        (split(8, (1, 0), (2, 4)), (8, 6), (2, 4, 2, 3), split(8, (2, 0, 1), (2, 2, 2))),
        # regroup: heads (6 over 4) do not divide, heads (8 over 4) do
        (split(4, 2), (2, 5, 32), (2, 5, 8, 4), split(4, 2)),
        (split(4, 2), (2, 5, 24), (2, 5, 6, 4), None),
        (split(2, 0), (4, 6), (2, 12), split(2, 0)),
        (split(2, 0), (4, 6), (8, 3), split(2, 0)),
        (split(2, 1), (4, 6), (8, 3), None),
        (split(2, 2), (4, 6, 8), (24, 8), split(2, 1)),
        # axes of size 1 are added and removed
        (split(2, 0), (4,), (1, 4), split(2, 1)),
        (split(2, 0), (4,), (1, 1, 4, 1), split(2, 2)),
        (split(2, 2), (1, 1, 4, 1), (4,), split(2, 0)),
        (split(2, 1), (3, 4), (1, 3, 1, 4, 1), split(2, 3)),
        (split(2), (), (1,), split(2)),
        # unsharded and empty
        (split(2), (4, 6), (24,), split(2)),
        (split(2, 0), (4, 0), (0, 4), None),
        # partial and replicated layouts are unchanged
        (
            split(8, (Partial("ADD"), 0), (2, 4)),
            (8, 3),
            (2, 4, 3),
            split(8, (Partial("ADD"), 0, 1), (2, 2, 2)),
        ),
    ],
)
def test_reshape(layout: Sharding, old_shape: Any, new_shape: Any, keeps: Sharding | None) -> None:
    assert reshape_layout(layout, old_shape, new_shape) is keeps


def test_reshape_around_symbolic_sizes() -> None:
    tokens, other = Symbolic(), Symbolic()
    assert reshape_layout(split(4, 2), (2, tokens, 32), (2, tokens, 8, 4)) is split(4, 2)
    assert reshape_layout(split(4, 2), (2, tokens, 8, 4), (2, tokens, 32)) is split(4, 2)
    assert reshape_layout(split(4, 0), (8, tokens), (2, 4, tokens)) is split(4, (0, 1), (2, 2))
    assert reshape_layout(split(4, 0), (8, tokens), (8, other, 4)) is split(4, 0)
    assert reshape_layout(split(4, 1), (tokens, 8), (other, 4, 8)) is split(4, 2)
    assert reshape_layout(split(4, 1), (tokens, 8, 3), (other, 8, 3)) is split(4, 1)
    assert reshape_layout(split(4, 0), (8, tokens), (other,)) is None


@pytest.mark.parametrize(
    ("layout", "axes", "op", "keeps"),
    [
        (split(2, 0), (1,), "ADD", split(2, 0)),
        (split(2, 0), (0,), "ADD", split(2, Partial("ADD"))),
        (split(2, 0), (0, 1), "MAX", split(2, Partial("MAX"))),
        (split(2), (0,), "ADD", split(2)),
        (split(4, (0, 1), (2, 2)), (1,), "ADD", split(4, (0, Partial("ADD")), (2, 2))),
        (split(4, (0, 1), (2, 2)), (0, 1), "ADD", split(4, Partial("ADD"))),
        (split(4, (0, Partial("ADD")), (2, 2)), (0,), "ADD", split(4, Partial("ADD"))),
        (split(4, (0, Partial("ADD")), (2, 2)), (0,), "MAX", None),
        (split(4, (0, Partial("ADD")), (2, 2)), (1,), "MAX", None),
    ],
)
def test_reduce(layout: Sharding, axes: tuple[int, ...], op: str, keeps: Sharding | None) -> None:
    assert reduce_layout(layout, axes, op) is keeps


# ---- transfers ----


@pytest.mark.parametrize(
    ("name", "src", "dst", "shape", "sent"),
    [
        ("stay", split(4, 0), split(4, 0), (64, 128), [0] * 4),
        ("slice what it has", split(4), split(4, 0), (64, 128), [0] * 4),
        ("all-gather", split(4, 0), split(4), (64, 128), [24 * KIB] * 4),
        ("all-to-all", split(4, 0), split(4, 1), (64, 128), [6 * KIB] * 4),
        ("scatter", "CPU:0", split(4, 0), (64, 128), [24 * KIB]),
        ("broadcast", "CPU:0", split(4), (64, 128), [96 * KIB]),
        ("gather", split(4, 0), "CPU:0", (64, 128), [0] + [8 * KIB] * 3),
        ("gather elsewhere", split(4, 0), "CPU:9", (64, 128), [8 * KIB] * 4),
        ("one copy of many", split(4), "CPU:2", (64, 128), [0] * 4),
        ("copies of copies", split(4), Sharding(cpus(4, 4)), (64, 128), [32 * KIB] * 4),
        ("pipeline", split(2, 1), Sharding(cpus(2, 2), 1), (64, 128), [16 * KIB] * 2),
        ("across meshes", split(2, 0), Sharding(cpus(2, 2), 1), (64, 128), [16 * KIB] * 2),
        ("in order", split(4, (1, 0), (2, 2)), split(4, 1), (128, 512), [32 * KIB] * 4),
        (
            "with a permutation",
            split(4, (0, 1), (2, 2)),
            split(4, 1),
            (128, 512),
            [32 * KIB, 64 * KIB, 64 * KIB, 32 * KIB],
        ),
        ("reorder", split(2, 0), Sharding(("CPU:1", "CPU:0"), 0), (64, 128), [16 * KIB] * 2),
        (
            "gather in groups",
            split(4, (0, 1), (2, 2)),
            split(4, (0, None), (2, 2)),
            (64, 128),
            [8 * KIB] * 4,
        ),
    ],
)
def test_bytes_of_a_transfer(name: str, src: Any, dst: Any, shape: Any, sent: list[int]) -> None:
    assert sent_per_device(src, dst, shape, 4) == tuple(sent), name
    assert transfer_bytes(src, dst, shape, 4) == sum(sent)


def test_cover_takes_local_pieces_first() -> None:
    pieces = cover(split(2, 0), split(2), (4,))
    assert pieces == (
        (Piece(0, ((0, 2),)), Piece(1, ((2, 4),))),
        (Piece(1, ((2, 4),)), Piece(0, ((0, 2),))),
    )


def test_cover_balances_over_the_holders_of_replicas() -> None:
    halves = split(4, (0, None), (2, 2))
    pieces = cover(halves, halves.replicated(), (4,))
    assert [[piece.source for piece in own] for own in pieces] == [[0, 2], [1, 3], [2, 0], [3, 1]]


def test_cover_takes_the_holder_that_sends_the_fewest_bytes() -> None:
    pieces = cover(split(2), Sharding(("CPU:0", "CPU:8", "CPU:1", "CPU:9")), (4,))
    assert [own[0].source for own in pieces] == [0, 0, 1, 1]


def test_a_transfer_of_partial_values_is_refused() -> None:
    with pytest.raises(ShardingError, match=r"Partial\(ADD\).*reduce them with ALLREDUCE"):
        cover(split(2, Partial("ADD")), split(2), (4,))


def test_bytes_of_a_symbolic_shape_are_refused() -> None:
    with pytest.raises(ShardingError, match="give its symbolic sizes a value"):
        transfer_bytes(split(2, 0), split(2), (4, "n"), 4)


@pytest.mark.parametrize(
    ("algorithm", "sent"), [("direct", 96 * KIB), ("ring", 48 * KIB), ("all2all", 48 * KIB)]
)
def test_bytes_of_an_all_reduce(algorithm: str, sent: int) -> None:
    assert allreduce_bytes(4, 32 * KIB, algorithm) == sent
    assert allreduce_bytes(1, 32 * KIB, algorithm) == 0


def test_an_unknown_all_reduce_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="algorithm 'tree'; use direct, peer, ring or all2all"):
        allreduce_bytes(4, 1024, "tree")


# ---- choice ----

X, BIAS, COLUMN = (64, 128), (1, 128), (64, 1)


@pytest.mark.parametrize(
    ("layouts", "shapes", "chosen"),
    [
        ([split(4, 0), split(4, 0)], [X, X], split(4, 0)),
        ([split(4, 0), split(4)], [X, X], split(4, 0)),
        ([split(4), split(4, 1)], [X, X], split(4, 1)),
        # equal costs: the first operand's layout
        ([split(4, 0), split(4, 1)], [X, X], split(4, 0)),
        ([split(4, 1), split(4, 0)], [X, X], split(4, 1)),
        # a broadcast operand costs its own bytes: the small one is resharded
        ([split(4, 1), split(4, 0)], [BIAS, X], split(4, 0)),
        ([split(4, 0), split(4, 1)], [X, BIAS], split(4, 0)),
        ([split(4, 0), split(4, 1)], [COLUMN, X], split(4, 1)),
        # two broadcast operands: each keeps its shard, nothing moves
        (
            [split(4, (0, None), (2, 2)), split(4, (None, 1), (2, 2))],
            [COLUMN, BIAS],
            split(4, (0, 1), (2, 2)),
        ),
        # one is sharded where the other is replicated: nothing moves
        (
            [split(4, (0, None), (2, 2)), split(4, (None, 1), (2, 2))],
            [X, X],
            split(4, (0, 1), (2, 2)),
        ),
        # a mesh dimension refines another
        ([split(8), split(8, (None, 1), (2, 4))], [X, X], split(8, (None, 1), (2, 4))),
        (
            [split(8, (0, None), (2, 4)), split(8, (None, 1), (4, 2))],
            [X, X],
            split(8, (0, None, 1), (2, 2, 2)),
        ),
        # meshes that do not nest: one operand is resharded
        (
            [split(6, (0, None), (2, 3)), split(6, (None, 1), (3, 2))],
            [(6, 6), (6, 6)],
            split(6, (0, None), (2, 3)),
        ),
        # an axis may have more shards than elements
        ([split(4, (0, None), (2, 2)), split(4, (None, 0), (2, 2))], [(2,), (2,)], split(4, 0)),
    ],
)
def test_common_layout(layouts: list[Sharding], shapes: list[Any], chosen: Sharding | None) -> None:
    nbytes = [4 * shape[0] * shape[-1] for shape in shapes]
    assert common_layout(layouts, nbytes, shapes) is (chosen or layouts[0])


def test_equal_costs_keep_the_larger_operand() -> None:
    # either both operands of one size move, or the one of twice that size
    layouts = [split(4, 0), split(4, 0), split(4, 1)]
    assert common_layout(layouts, [800, 800, 1600], [X, X, X]) is layouts[2]


def test_the_narrower_of_two_operands_moves() -> None:
    layouts = [split(4, 1), split(4, 0)]
    assert common_layout(layouts, [2 * 64 * 128, 4 * 64 * 128], [X, X]) is layouts[1]


def test_the_cost_of_reducing_a_sum_counts_if_operands_move() -> None:
    # (64, 1, 128) by (1, 512, 128), summed over the last axis
    rows, weight = split(4, 0), split(4, 2)
    sizes, shapes = [4 * 64 * 128, 4 * 512 * 128], [(64, 1, 128), (1, 512, 128)]
    # the smaller operand would move, but partial sums (64, 512) have more bytes than the weight
    assert common_layout([rows, weight], sizes, shapes) is weight
    assert common_layout([rows, weight], sizes, shapes, (2,)) is rows
    # partial sums (8, 512) have fewer
    few = [(8, 1, 128), (1, 512, 128)]
    assert common_layout([rows, weight], [4 * 8 * 128, sizes[1]], few, (2,)) is weight
    # if no operand moves, partial sums are reduced, whatever their size
    wide = [(4096, 1, 128), (1, 512, 128)]
    whole = rows.replicated()
    assert common_layout([whole, weight], [4 * 4096 * 128, sizes[1]], wide, (2,)) is weight


def test_operand_layout_is_replicated_along_broadcast_axes() -> None:
    layout = split(4, (0, 1), (2, 2))
    assert operand_layout(layout, BIAS) is split(4, (None, 1), (2, 2))
    assert operand_layout(layout, X) is layout


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (split(4), r"different devices: .*CPU:0-1.*CPU:0-3.*\.to\(\) or \.shard\(\)"),
        (Sharding(("CPU:1", "CPU:0")), r"the same devices in a different order.*\.to\(\)"),
        (split(2, Partial("ADD")), "partial values; reduce them first"),
    ],
)
def test_operands_that_do_not_combine(other: Sharding, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        common_layout([split(2, 0), other], [8, 8], [(2,), (2,)])


# ---- named meshes ----

MESH = Mesh((2, 4), ("dp", "tp"), cpus(8))


@pytest.mark.parametrize(
    ("spec", "layout"),
    [
        (P(), split(8)),
        (P("dp"), split(8, (0, None), (2, 4))),
        (P(None, "tp"), split(8, (None, 1), (2, 4))),
        (P("tp", "dp"), split(8, (1, 0), (2, 4))),
        (P(("dp", "tp")), split(8, 0)),
        (P(None, ("dp", "tp"), None), split(8, 1)),
        (P((), "dp"), split(8, (1, None), (2, 4))),
    ],
)
def test_a_spec_is_a_layout(spec: P, layout: Sharding) -> None:
    assert MESH.sharding(spec, 3) is layout
    assert MESH.sharding(spec) is layout


def test_meshes_and_specs_are_values() -> None:
    assert Mesh([2, 4], ["dp", "tp"], list(cpus(8))) == MESH
    assert len({MESH, Mesh((2, 4), ("dp", "tp"), cpus(8))}) == 1
    assert Mesh((2,), "dp", cpus(2)).names == ("dp",)
    assert P("dp", None) == P("dp", None) != P("dp")
    assert hash(P("dp", ("a", "b"))) == hash(P("dp", ("a", "b")))
    assert list(P("dp", None)) == ["dp", None]
    assert repr(P("dp", None, ("dp", "tp"))) == "P('dp', None, ('dp', 'tp'))"
    assert str(MESH) == "Mesh(dp=2, tp=4, CPU:0-7)"
    assert len(MESH) == 8


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MESH.sharding(P("pp")), r"P\('pp'\) names 'pp', but .* has .* dp, tp; use one"),
        (lambda: MESH.sharding(P("dp", "dp")), "uses 'dp' twice"),
        (lambda: MESH.sharding(P(("dp", "dp"))), "uses 'dp' twice"),
        (lambda: MESH.sharding(P(("tp", "dp"))), r"write \('dp', 'tp'\)"),
        (
            lambda: MESH.sharding(P("dp", None), 1),
            "2 entries for a tensor of 1 axes; drop the last",
        ),
        (lambda: MESH.sharding("dp"), r"takes a spec like P\('dp'\), got 'dp'"),  # type: ignore[arg-type]
        (lambda: P(0), "P has the entry 0; use a mesh name"),  # type: ignore[arg-type]
        (lambda: P(("dp", None)), r"P has the entry \('dp', None\)"),  # type: ignore[arg-type]
        (lambda: Mesh((), (), cpus(2)), "has 1 places for 2 devices"),
        (lambda: Mesh((2, 0), ("a", "b"), cpus(2)), "mesh shape must be a tuple of positive ints"),
        (lambda: Mesh((2,), ("a", "b"), cpus(2)), "names .* do not fit mesh shape .*one name for"),
        (lambda: Mesh((2,), ("",), cpus(2)), "names must be non-empty strings"),
        (lambda: Mesh((1, 2), ("a", "a"), cpus(2)), "repeat a name"),
        (lambda: Mesh((4,), ("a",), cpus(2)), "has 4 places for 2 devices"),
    ],
)
def test_an_invalid_mesh_or_spec_names_the_fix(build: Any, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        build()


def test_a_layout_has_the_protocol_of_its_names() -> None:
    names = ("CPU", "CPU:1")
    layout = Sharding(names, axis=0)
    assert layout == names and names == layout and layout == ("CPU:0", "CPU:1")
    assert layout != names[::-1] and layout != names[0] and layout != list(names)
    assert layout != Sharding(names) and layout is Sharding(names, axis=0)
    assert "CPU:0" in layout and "CPU" in layout and "CPU:2" not in layout
    assert (len(layout), layout[-1], layout[:1], tuple(layout)) == (2, "CPU:1", ("CPU",), names)
    # as a key, a layout is not its names
    assert {layout: 1}.get(names) is None and {names: 1}.get(layout) is None


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ((0, 1), (None, None), "all_gather"),
        ((0, 1), (0, None), "all_gather"),
        ((0, 1), (None, 1), "all_gather"),
        ((0, 0), (0, None), "all_gather"),
        # columns are sliced, then rows gathered
        ((0, None), (None, 1), "all_gather"),
        # a half of other quarters than the device's own
        ((0, 0), (None, 0), "all_to_all"),
        ((0, 0), (0, 1), "all_to_all"),
        ((0, 1), (1, None), "all_to_all"),
        # one block from one other device
        ((0, 1), (1, 0), "permute"),
        ((0, None), (None, 0), "permute"),
    ],
)
def test_a_change_of_layout_on_a_mesh_is_named_by_what_groups_do(
    before: tuple[Placement, ...], after: tuple[Placement, ...], kind: str
) -> None:
    assert transfer_kind(split(4, before, (2, 2)), split(4, after, (2, 2))) == kind


def test_a_change_of_layout_to_the_same_devices_in_another_order_is_no_send() -> None:
    rows, turned = split(4, 0), Sharding(cpus(4)[::-1], 0)
    assert transfer_kind(rows, turned) == "permute"
    assert transfer_kind(rows, turned.replicated()) == "all_gather"
    assert transfer_kind(rows, Sharding(cpus(4, 2), 0)) == "send"
