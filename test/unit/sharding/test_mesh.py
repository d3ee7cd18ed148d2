"""Submeshes of named meshes: their devices, device order, and errors."""

from __future__ import annotations

from typing import Any

import pytest

from tinygrad.sharding import Mesh, P, Sharding, ShardingError


def cpus(*numbers: int) -> tuple[str, ...]:
    return tuple(f"CPU:{number}" for number in numbers)


# device number 6 pp + 3 dp + tp
MESH = Mesh((2, 2, 3), ("pp", "dp", "tp"), cpus(*range(12)))


@pytest.mark.parametrize(
    ("places", "shape", "names", "numbers"),
    [
        ({}, (2, 2, 3), ("pp", "dp", "tp"), range(12)),
        ({"pp": 1}, (2, 3), ("dp", "tp"), range(6, 12)),
        ({"dp": 0}, (2, 3), ("pp", "tp"), (0, 1, 2, 6, 7, 8)),
        ({"tp": -1}, (2, 2), ("pp", "dp"), (2, 5, 8, 11)),
        ({"tp": 1, "pp": 0}, (2,), ("dp",), (1, 4)),
        ({"pp": 1, "dp": 0, "tp": 2}, (), (), (8,)),
        ({"tp": slice(1, None)}, (2, 2, 2), ("pp", "dp", "tp"), (1, 2, 4, 5, 7, 8, 10, 11)),
        ({"pp": 0, "tp": slice(None, None, 2)}, (2, 2), ("dp", "tp"), (0, 2, 3, 5)),
        ({"pp": 0, "dp": slice(1, 2)}, (1, 3), ("dp", "tp"), (3, 4, 5)),
    ],
)
def test_a_submesh_has_the_devices_at_its_coordinates(
    places: dict[str, Any], shape: tuple[int, ...], names: tuple[str, ...], numbers: Any
) -> None:
    assert MESH.select(**places) == Mesh(shape, names, cpus(*numbers))


def test_a_mesh_is_split_along_a_dimension() -> None:
    for name in MESH.names:
        parts = MESH.split(name)
        assert len(parts) == MESH.axis_size(name)
        assert sorted(d for part in parts for d in part.devices) == sorted(MESH.devices)
        assert all(name not in part.names for part in parts)
    first, second = MESH.split("pp")
    assert (first, second) == (MESH.select(pp=0), MESH.select(pp=1))
    assert first.sharding(P("dp", "tp")) is Sharding(cpus(*range(6)), (0, 1), (2, 3))


def test_indexing_the_last_dimension_selects_one_device() -> None:
    stages = Mesh((3,), ("pp",), cpus(0, 1, 2)).split("pp")
    assert [str(stage) for stage in stages] == ["Mesh(CPU)", "Mesh(CPU:1)", "Mesh(CPU:2)"]
    assert [len(stage) for stage in stages] == [1, 1, 1]
    assert stages[1].sharding(P(None)) is Sharding(("CPU:1",))


def test_permuted_dimensions_shard_over_the_same_devices() -> None:
    moved = MESH.permute("tp", "pp", "dp")
    assert moved.shape == (3, 2, 2)
    assert moved.devices[:4] == ("CPU", *cpus(3, 6, 9))
    for tp in range(3):
        for pp in range(2):
            assert moved.select(tp=tp, pp=pp) == MESH.select(tp=tp, pp=pp)
    # nested sharding follows mesh order, so this shards an axis by "tp" first
    shape, spec = (12,), P(("tp", "pp", "dp"))
    regions = moved.sharding(spec).regions(shape)
    assert regions[moved.devices.index("CPU:3")] == ((1, 2),)
    assert moved.permute(*MESH.names) == MESH


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MESH.axis_size("ep"), r"Mesh\(pp=2.* has no dimension 'ep'; .*pp, dp, tp"),
        (lambda: MESH.select(ep=0), "has no dimension 'ep'"),
        (lambda: MESH.select(tp=3), "select: tp=3 is not a coordinate of Mesh.*a number below 3"),
        (lambda: MESH.select(tp=-4), "tp=-4 is not a coordinate"),
        (lambda: MESH.select(tp=True), "tp=True is not a coordinate"),
        (lambda: MESH.select(tp="0"), "tp='0' is not a coordinate"),
        (
            lambda: MESH.select(tp=slice(3, 5)),
            r"tp=slice\(3, 5, None\) is not a coordinate of Mesh",
        ),
        (lambda: MESH.split("ep"), "has no dimension 'ep'"),
        (lambda: MESH.permute("pp", "dp"), "permute.*give each of pp, dp, tp once"),
        (lambda: MESH.permute("pp", "dp", "dp"), "give each of pp, dp, tp once"),
        (lambda: MESH.select(pp=0, dp=0, tp=0).sharding(P("tp")), "names 'tp', but Mesh.CPU. "),
        (lambda: MESH.select(pp=0, dp=0, tp=0).sharding("tp"), r"a spec like P\(\), got 'tp'"),
    ],
)
def test_a_submesh_out_of_range_is_refused(build: Any, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        build()
