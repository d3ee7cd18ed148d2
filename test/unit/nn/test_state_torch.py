"""PyTorch checkpoints: tensors, containers, and hostile files."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest

from test.unit.nn.torch_files import (
    Call,
    Global,
    Stored,
    array_tensor,
    parameter,
    stream_checkpoint,
    tensor,
    typed_tensor,
    zip_checkpoint,
    zip_of_pickle,
)
from tinygrad import Tensor, dtypes, nn
from tinygrad.nn.state import FileFormatError, load_state_dict, torch_load
from tinygrad.nn.state.strided import strided_view

ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6)
FULL_STORAGE = Stored("0", ARRAY.reshape(-1))
MAKERS = {"zip": zip_checkpoint, "stream": stream_checkpoint}
both_formats = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@pytest.fixture
def load(tmp_path):
    """Loads a file with these bytes."""

    def load_bytes(content: bytes) -> Any:
        (tmp_path / "model.pt").write_bytes(content)
        return torch_load(tmp_path / "model.pt")

    return load_bytes


def values(x: Tensor) -> np.ndarray:
    return x.to("CPU").numpy()


def test_a_changed_byte_of_a_tensor_is_an_error(load):
    content = zip_checkpoint({"x": array_tensor("0", ARRAY)})
    at = content.index(ARRAY.tobytes()) + 5
    with pytest.raises(FileFormatError, match=r"model\.pt: .*data/0' is damaged: its checksum"):
        load(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])["x"].numpy()


# ---- tensors ----


@both_formats
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int64", "int32", "bool"])
def test_a_tensor_has_its_type_shape_and_values_and_stays_in_the_file(load, make, name):
    array = np.arange(6).reshape(2, 3).astype(name)
    loaded = load(make({"x": array_tensor("0", array)}))["x"]
    assert str(loaded.device).startswith("DISK:")
    assert loaded.shape == (2, 3)
    assert values(loaded).dtype == array.dtype
    np.testing.assert_array_equal(values(loaded), array)


@both_formats
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float8_e4m3fn", dtypes.fp8e4m3),
        ("float8_e5m2fnuz", dtypes.fp8e5m2fnuz),
        ("uint8", dtypes.uint8),
    ],
)
def test_types_without_a_storage_class_are_named_by_the_tensor(load, make, name, dtype):
    expected = Tensor([1.0, 2.0, 0.5]).cast(dtype)
    storage = Stored("0", expected.bitcast(dtypes.uint8).numpy(), name="UntypedStorage")
    loaded = load(make(typed_tensor(storage, name, (3,))))
    assert loaded.dtype is dtype
    assert values(loaded.to("CPU").float()).tolist() == expected.float().tolist()


def test_bfloat16(load):
    bits = np.array([0x3F80, 0xC020], np.uint16)
    storage = Stored("0", bits, name="BFloat16Storage")
    loaded = load(zip_checkpoint(tensor(storage, (2,), (1,))))
    assert loaded.dtype is dtypes.bfloat16
    assert values(loaded).tolist() == [1.0, -2.5]


VIEWS = {
    "whole": (0, (4, 6), (6, 1)),
    "transposed": (0, (6, 4), (1, 6)),
    "part": (8, (2, 3), (6, 1)),
    "steps": (1, (2, 2), (12, 3)),
    "column": (5, (4,), (6,)),
    "expanded": (3, (5, 2, 4), (0, 1, 0)),
    "element": (7, (), ()),
    "windows": (0, (3, 4), (2, 1)),
    "diagonal": (0, (4,), (7,)),
    "size 1 with any stride": (2, (1, 3), (1000, 1)),
    "a short last row": (0, (5, 4), (5, 1)),
    "a late start": (19, (2, 2), (3, 1)),
}


@both_formats
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_offsets_and_strides(load, make, view):
    offset, shape, strides = view
    items = tuple(4 * stride for stride in strides)
    expected = np.lib.stride_tricks.as_strided(ARRAY.reshape(-1)[offset:], shape, items)
    loaded = load(
        make([tensor(FULL_STORAGE, shape, strides, offset), tensor(FULL_STORAGE, (24,), (1,))])
    )
    np.testing.assert_array_equal(values(loaded[0]), expected)
    np.testing.assert_array_equal(values(loaded[1]), ARRAY.reshape(-1))


def test_slices_transposes_and_expanded_axes_need_no_kernel():
    data = Tensor(ARRAY.tobytes())
    for name in VIEWS.keys() - {"windows", "a short last row"}:
        offset, shape, strides = VIEWS[name]
        view = strided_view(data, dtypes.float32, offset, shape, strides)
        assert view.realize().uop.is_realized, name
        assert not view.schedule(), name


def test_an_empty_tensor(load):
    loaded = load(zip_checkpoint(tensor(Stored("0", ARRAY[:0].reshape(-1)), (0, 3), (3, 1))))
    assert values(loaded).shape == (0, 3)


def test_a_tensor_of_bytes_is_a_file_too():
    content = zip_checkpoint({"x": array_tensor("0", ARRAY)})
    np.testing.assert_array_equal(torch_load(Tensor(content))["x"].numpy(), ARRAY)


def test_a_view_of_a_storage_in_a_stream(load):
    part = Stored("0", ARRAY.reshape(-1), view=("view", 6, 12))
    loaded = load(stream_checkpoint(tensor(part, (3,), (1,), 1)))
    assert values(loaded).tolist() == [7, 8, 9]


# ---- containers ----


@both_formats
def test_containers_are_loaded_as_builtin_ones(load, make):
    ordered = Global("collections", "OrderedDict")
    saved = {
        "state": Call(ordered, ([("w", 1), ("b", 2)],), {"_metadata": {"version": 1}}),
        "by name": Call(Global("collections", "defaultdict"), (Global("__builtin__", "list"),)),
        "size": Call(Global("torch", "Size"), ((2, 3),)),
        "dtype": Global("torch", "float16"),
        "device": Call(Global("torch", "device"), ("cuda", 1)),
        "bytes": b"\x00\xff",
        "set": {1, "a"},
        "complex": 1 + 2j,
        "plain": [None, True, False, 1.5, -(10**20), (), ("a", [2]), {(1, "k"): 3}],
    }
    assert load(make(saved)) == {
        **saved,
        "state": {"w": 1, "b": 2},
        "by name": {},
        "size": (2, 3),
        "dtype": dtypes.float16,
        "device": "cuda:1",
    }


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_pickle(load, protocol):
    saved = {"a": [1, 2.5, "text", (1, 2, 3, 4)], 7: {"x": None, "y": True}, "long": 1 << 70}
    assert load(zip_of_pickle(pickle.dumps(saved, protocol))) == saved


def test_a_list_in_itself(load):
    saved: list[Any] = [1]
    saved.append(saved)
    loaded = load(zip_of_pickle(pickle.dumps(saved, 2)))
    assert loaded[0] == 1
    assert loaded[1] is loaded


@both_formats
def test_a_model_is_loaded_onto_its_devices(load, make):
    weight, bias = ARRAY[:, :4].copy(), np.ones(4, np.float32)
    saved = {
        "weight": parameter(array_tensor("0", weight)),
        "bias": parameter(array_tensor("1", bias)),
    }
    model = nn.Linear(4, 4)
    model.weight.shard_(("CPU", "CPU:1"), axis=1)
    load_state_dict(model, load(make(saved)), verbose=False)
    np.testing.assert_array_equal(model.weight.numpy(), weight)
    np.testing.assert_array_equal(model.bias.numpy(), bias)


# ---- hostile files ----


class Calls:
    """An object that pickles as a function call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@both_formats
@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("os", "system"), ("posix", "system"), ("builtins", "eval"), ("__builtin__", "exec")),
        *(("builtins", "getattr"), ("torch", "load"), ("torch.hub", "load"), ("types", "CodeType")),
        *(("torch._utils", "_import_dotted_name"), ("tinygrad", "Tensor"), ("numpy", "ndarray")),
        *(
            ("collections", "namedtuple"),
            ("torch", "FloatStorage.__class__"),
            ("copyreg", "_slots"),
        ),
    ],
)
def test_other_globals_are_named_and_not_looked_up(load, make, module, name):
    with pytest.raises(FileFormatError, match=rf"{module}\.{name}.*could run code"):
        load(make([1, Call(Global(module, name), ("touch hacked",))]))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_reduced_objects_do_not_run(load, tmp_path, protocol):
    command = f"touch {tmp_path / 'hacked'}"
    with pytest.raises(FileFormatError, match="system"):
        load(zip_of_pickle(pickle.dumps(Calls(os.system, command), protocol)))
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"}(K\x01K\x02tR.", "calls {}, which is not a known function"),
        (b"X\x02\x00\x00\x00os)R.", "calls 'os'"),
        (b"ccollections\nOrderedDict\n]R.", "not a known function"),
        (b"ccollections\nOrderedDict\n(K\x01tR.", "not items of a dictionary"),
        (b"ccollections\nOrderedDict\n(((]K\x01tltR.", "for a key"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "do not describe a tensor"),
        (b"ctorch._utils\n_rebuild_parameter\n(NtR.", "not describe a parameter"),
        (b"ctorch.storage\nUntypedStorage\n)R.", "not a known function"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00rottR.", "not bytes"),
        (b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93.", "os.system"),
        (b"K\x01K\x02\x93.", "names the global 1.2"),
        (b"K\x01Q.", "1 is not the persistent id"),
        (b"}K\x01a.", "appends to {}"),
        (b"]K\x01K\x02s.", "sets items of"),
        (b"]K\x01\x90.", "mark that is not there"),
        (b"](K\x01\x90.", "not a set"),
        (b"}]K\x02s.", "for a key"),
        (b"}(K\x01u.", "key without a value"),
        (b"a.", "not there"),
        (b"h\x05.", "no object 5"),
        (b"K\x01K\x02.", "middle of an object"),
        (b"(K\x01.", "middle of an object"),
        (b".", "not there"),
        (b"\x81.", "not there"),
        (b"\x82\x01.", "EXT1"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"ios\nsystem\n.", "INST"),
        (b"(cos\nsystem\no.", "os.system"),
        (b"]}\x92.", "NEWOBJ_EX"),
        (b"\x8b\xff\xff\xff\x7f1.", "cut off"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f1.", "cut off"),
        (b"\x8b\x00\x08\x00\x00" + b"1" * 2048 + b".", "integer of"),
        (b"L" + b"1" * 5000 + b"L\n.", "damaged"),
        (b"X\x01\x00\x00\x00\xff.", "damaged"),
        (b"\xff", "damaged"),
        (b"", "cut off"),
    ],
)
def test_an_invalid_pickle_names_the_mistake(load, code, message):
    with pytest.raises(FileFormatError, match=message):
        load(zip_of_pickle(b"\x80\x02" + code))


def test_tuples_that_take_exponential_time_to_hash_are_no_keys(load):
    doubled = b"K\x01" + b"2\x86" * 60
    with pytest.raises(FileFormatError, match="for a key"):
        load(zip_of_pickle(b"\x80\x02}" + doubled + b"K\x02s."))
    nested = load(zip_of_pickle(b"\x80\x02" + doubled + b"."))
    assert nested[0] is nested[1]


def test_the_state_of_an_object_changes_nothing(load):
    encode = b"ctorch._utils\n_rebuild_parameter\n"
    state = b"}X\x08\x00\x00\x00functionNs"
    load(zip_of_pickle(b"\x80\x02" + encode + state + b"b0N."))
    test_a_tensor_of_bytes_is_a_file_too()


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "message"),
    [
        ((4, 6), (6, 1), 1, "needs 25 elements, but its storage has 24"),
        ((1 << 40,), (1,), 0, "storage has 24"),
        ((2,), (1 << 62,), 0, "storage has 24"),
        ((4, 6), (6,), 0, "a stride for each axis"),
        ((2,), (-1,), 5, "none may be negative"),
        ((2,), (1,), -1, "none may be negative"),
        ((-2,), (1,), 0, "not a list of sizes"),
        ((2.0,), (1,), 0, "not a list of sizes"),
        ((True,), (1,), 0, "not a list of sizes"),
        ((1 << 62, 1 << 62), (0, 0), 0, "too large"),
        ((1,) * 65, (1,) * 65, 0, "65 axes"),
        ([4], (1,), 0, "do not describe a tensor"),
        ((4,), (1,), None, "do not describe a tensor"),
    ],
)
@both_formats
def test_a_tensor_outside_of_its_storage(load, make, shape, strides, offset, message):
    with pytest.raises(FileFormatError, match=message) as raised:
        load(make(tensor(FULL_STORAGE, shape, strides, offset)))
    assert "model.pt" in str(raised.value)


def test_a_tensor_of_absurd_size_that_is_one_element_takes_no_memory(load):
    loaded = load(zip_checkpoint(tensor(FULL_STORAGE, (1 << 20, 1 << 20, 1 << 10), (0, 0, 0), 3)))
    assert loaded[0, 0, :2].to("CPU").tolist() == [3, 3]


@both_formats
@pytest.mark.parametrize("count", [25, 1 << 62, -1])
def test_a_truncated_storage(load, make, count):
    storage = Stored("0", ARRAY.reshape(-1), count=count)
    with pytest.raises(FileFormatError, match="a storage should have"):
        load(make(tensor(storage, (2,), (1,))))


@pytest.mark.parametrize(
    "view", ["a", ("view", 20, 5), ("view", -1, 5), ("view", 0, -5), (1, 2, 3)]
)
def test_an_invalid_slice_of_a_storage(load, view):
    with pytest.raises(FileFormatError, match="storage"):
        load(stream_checkpoint(tensor(Stored("0", ARRAY.reshape(-1), view=view), (2,), (1,))))


def test_a_missing_storage(load):
    good = zip_checkpoint(array_tensor("0", ARRAY))
    with pytest.raises(FileFormatError, match="no file 'archive/data/0'"):
        load(good.replace(b"archive/data/0", b"archive/data/1"))


@both_formats
def test_other_byte_orders_and_programs_are_refused(load, make):
    if make is zip_checkpoint:
        with pytest.raises(FileFormatError, match="byte order"):
            load(make(1, {"byteorder": b"big"}))
        with pytest.raises(FileFormatError, match="TorchScript"):
            load(make(1, {"constants.pkl": b""}))
        assert load(make(1, {"byteorder": b"little"})) == 1
    else:
        with pytest.raises(FileFormatError, match="byte order"):
            load(make(1, {"little_endian": False}))


@both_formats
def test_a_file_truncated_anywhere(load, make):
    content = make({"x": array_tensor("0", ARRAY[:1, :2]), "y": 2})
    for length in range(len(content)):
        with pytest.raises(FileFormatError):
            load(content[:length])


def test_a_file_of_another_format(load):
    with pytest.raises(FileFormatError, match=r"model\.pt: this is not a file of torch\.save"):
        load(b"hello")


# ---- files written by PyTorch ----


def same(saved: Any, loaded: Any, torch: Any) -> None:
    if isinstance(saved, torch.Tensor):
        narrow = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
        expected = saved.detach().float() if saved.dtype in narrow else saved.detach()
        found = values(loaded)
        assert found.dtype == expected.numpy().dtype
        np.testing.assert_array_equal(found, expected.numpy())
    elif isinstance(saved, dict):
        assert list(saved) == list(loaded)
        for key, value in saved.items():
            same(value, loaded[key], torch)
    elif isinstance(saved, (list, tuple)):
        assert len(saved) == len(loaded)
        for value, other in zip(saved, loaded, strict=True):
            same(value, other, torch)
    else:
        assert saved == loaded


@pytest.mark.sample(3)
@pytest.mark.parametrize(("new", "protocol"), [(True, 2), (False, 2), (True, 4)])
def test_files_saved_by_torch_are_loaded(tmp_path, new, protocol):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    base = torch.arange(120.0).reshape(4, 5, 6)
    names = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32"
    saved = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": [base, base.mT, base[1:3, :, 1:4].permute(2, 0, 1), base[0, 0].unfold(0, 3, 1)],
        "expanded": torch.ones(3, 1).expand(3, 5),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "ordered": OrderedDict(x=1),
        "default": defaultdict(list, a=[1]),
        "size": torch.Size([1, 2]),
        **{
            name: torch.tensor([0, 1, 1]).to(getattr(torch, name))
            for name in (*names.split(), "float64", "float8_e4m3fn", "float8_e5m2")
        },
    }
    path = tmp_path / "model.pt"
    torch.save(saved, path, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
    same(saved, torch_load(path), torch)


@both_formats
def test_torch_loads_the_files_that_these_tests_make(tmp_path, make):
    torch = pytest.importorskip("torch")
    (tmp_path / "model.pt").write_bytes(make({"x": tensor(FULL_STORAGE, (2, 3), (6, 1), 8)}))
    loaded = torch.load(tmp_path / "model.pt", weights_only=True)["x"]
    np.testing.assert_array_equal(loaded.numpy(), ARRAY[1:3, 2:5])
