"""State dictionaries: names of a model's tensors, loading, saving, and safetensors files."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy

from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.device import Sharding
from tinygrad.nn.state import (
    FileFormatError,
    StateDictError,
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)

DEVICES = ("CPU", "CPU:1")


class TwoLayers:
    """A model of two layers: four tensors."""

    def __init__(self) -> None:
        self.l1 = nn.Linear(3, 4)
        self.l2 = nn.Linear(4, 2)


def write_file(path: Path, header: object, data: bytes = b"") -> Path:
    """A safetensors file with this header, valid or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


# ---- collecting ----


def test_names_lead_through_objects_dicts_lists_and_named_tuples():
    pair = namedtuple("pair", "left right")
    model = SimpleNamespace(
        layer=SimpleNamespace(weight=1),
        blocks=[2, (3,)],
        table={"a": 4, "b": OrderedDict(c=5)},
        pair=pair(6, 7),
    )
    assert get_state_dict(model, tensor_type=int) == {
        "layer.weight": 1,
        "blocks.0": 2,
        "blocks.1.0": 3,
        "table.a": 4,
        "table.b.c": 5,
        "pair.left": 6,
        "pair.right": 7,
    }


def test_every_name_starts_with_the_prefix():
    assert get_state_dict({"a": 1}, "model.", tensor_type=int) == {"model.a": 1}


def test_functions_classes_and_modules_hold_no_state():
    function = test_every_name_starts_with_the_prefix
    function.__dict__["hidden"] = 1
    try:
        assert get_state_dict([function, dtypes, np], tensor_type=int) == {}
    finally:
        del function.__dict__["hidden"]


def test_a_jitted_function_holds_no_state():
    @TinyJit
    def double(x: Tensor) -> Tensor:
        return (x * 2).realize()

    model = SimpleNamespace(weight=Tensor([1.0]), forward=double)
    for _ in range(3):
        double(Tensor([1.0]).realize())
    assert list(get_state_dict(model)) == ["weight"]


def test_cycles_end_and_shared_objects_appear_under_each_name():
    shared = SimpleNamespace(weight=1)
    model = SimpleNamespace(a=shared, b=shared)
    model.self = model
    assert get_state_dict(model, tensor_type=int) == {"a.weight": 1, "b.weight": 1}


def test_parameters_are_the_tensors_in_the_order_of_their_names():
    model = TwoLayers()
    expected = [model.l1.weight, model.l1.bias, model.l2.weight, model.l2.bias]
    found = get_parameters(model)
    assert len(found) == 4
    assert all(one is other for one, other in zip(found, expected, strict=True))


# ---- loading ----


def state_of(model: object) -> dict[str, Tensor]:
    """Tensors of the model's shapes with other values."""
    return {
        name: Tensor(np.full(tensor.shape, index + 1, np.float32))
        for index, (name, tensor) in enumerate(get_state_dict(model).items())
    }


def test_loading_gives_each_tensor_its_value():
    model = TwoLayers()
    loaded = load_state_dict(model, state_of(model), verbose=False)
    assert [float(tensor.numpy().flat[0]) for tensor in loaded] == [1, 2, 3, 4]
    assert model.l2.bias.tolist() == [4, 4]


def test_loading_again_writes_into_the_same_memory():
    model = TwoLayers()
    load_state_dict(model, state_of(model), verbose=False)
    buffer = model.l1.weight.uop.buffer
    load_state_dict(model, state_of(model), verbose=False)
    assert model.l1.weight.uop.buffer is buffer


def test_loading_keeps_the_layout_and_the_dtype_of_the_model():
    model = TwoLayers()
    model.l1.weight.shard_(DEVICES, axis=0)
    model.l1.bias.replace(model.l1.bias.half())
    state = state_of(model)
    state["l1.weight"] = state["l1.weight"].shard(DEVICES, axis=None)
    load_state_dict(model, state, verbose=False)
    assert model.l1.weight.device == Sharding(DEVICES, 0)
    assert model.l1.weight.numpy().tolist() == [[1.0] * 3] * 4
    assert model.l1.bias.dtype == dtypes.half
    assert model.l1.bias.tolist() == [2] * 4


def test_a_model_is_loaded_from_one_that_was_never_realized():
    source, model = TwoLayers(), TwoLayers()
    load_state_dict(model, get_state_dict(source), verbose=False)
    for found, expected in zip(get_parameters(model), get_parameters(source), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_missing_names_are_all_listed_and_nothing_is_changed():
    model = TwoLayers()
    state = state_of(model)
    before = model.l1.bias.tolist()
    del state["l1.weight"], state["l2.bias"]
    with pytest.raises(StateDictError, match=r"2 missing: l1\.weight, l2\.bias"):
        load_state_dict(model, state, verbose=False)
    assert model.l1.bias.tolist() == before


def test_without_strict_missing_and_unexpected_names_are_ignored():
    model = TwoLayers()
    state = state_of(model)
    before = model.l1.weight.tolist()
    state["other"] = state.pop("l1.weight")
    assert len(load_state_dict(model, state, strict=False, verbose=False)) == 3
    assert model.l1.weight.tolist() == before


def test_unexpected_names_warn():
    model = TwoLayers()
    state = state_of(model) | {"extra": Tensor([1.0])}
    with pytest.warns(UserWarning, match="1 unexpected and not loaded: extra"):
        load_state_dict(model, state, verbose=False)


@pytest.mark.parametrize("strict", [True, False])
def test_another_shape_is_an_error_that_shows_both(strict):
    model = TwoLayers()
    state = state_of(model) | {"l1.weight": Tensor.zeros(3, 4)}
    with pytest.raises(StateDictError, match=r"l1\.weight is \(3, 4\), the model's \(4, 3\)"):
        load_state_dict(model, state, strict=strict, verbose=False)


def test_one_element_may_be_a_scalar_or_a_vector():
    model = {"count": Tensor([0.0])}
    load_state_dict(model, {"count": Tensor(3.0)}, verbose=False)
    assert model["count"].tolist() == [3.0]


def test_consume_removes_the_loaded_entries():
    model = TwoLayers()
    state = state_of(model) | {"extra": Tensor([1.0])}
    with pytest.warns(UserWarning):
        load_state_dict(model, state, verbose=False, consume=True)
    assert list(state) == ["extra"]


def test_loading_lazily_runs_nothing():
    model = TwoLayers()
    load_state_dict(model, state_of(model), verbose=False, realize=False)
    assert not model.l1.weight.uop.is_realized
    assert model.l1.weight.tolist() == [[1.0] * 3] * 4


# ---- saving ----


def test_saved_tensors_are_loaded(tmp_path):
    tensors = {
        "matrix": Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "odd": Tensor(np.arange(3, dtype=np.uint8)),
        "scalar": Tensor(np.float32(7)),
        "empty": Tensor.empty(0, 3),
        "wide": Tensor(np.array([1 << 40], np.int64)),
    }
    safe_save(tensors, tmp_path / "t.safetensors")
    loaded = safe_load(tmp_path / "t.safetensors")
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].tolist() == tensor.tolist()


def test_loaded_tensors_stay_in_the_file_until_used(tmp_path):
    safe_save({"a": Tensor([1.0, 2.0])}, tmp_path / "t.safetensors")
    loaded = safe_load(str(tmp_path / "t.safetensors"))["a"]
    assert str(loaded.device).startswith("DISK:")
    assert (loaded.to("CPU") + 1).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16, *dtypes.fp8s, dtypes.bool])
def test_narrow_types_keep_their_bits(tmp_path, dtype):
    tensor = Tensor([0.0, 1.0, -0.5, 3.0] if dtype is not dtypes.bool else [True, False])
    tensor = tensor.cast(dtype)
    safe_save({"a": tensor}, tmp_path / "t.safetensors")
    loaded = safe_load(tmp_path / "t.safetensors")["a"]
    assert loaded.dtype == dtype
    assert loaded.to("CPU").float().tolist() == tensor.float().tolist()


def test_a_sharded_tensor_is_saved_as_its_global_value(tmp_path):
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    tensors = {
        "sharded": Tensor(value).shard(DEVICES, axis=0),
        "copies": Tensor(value).shard(DEVICES),
    }
    safe_save(tensors, tmp_path / "t.safetensors")
    loaded = safetensors.numpy.load_file(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(loaded["sharded"], value)
    np.testing.assert_array_equal(loaded["copies"], value)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_a_file_is_loaded_directly_into_a_layout(tmp_path, axis):
    value = np.arange(24, dtype=np.float32).reshape(4, 6)
    safetensors.numpy.save_file({"a": value}, tmp_path / "t.safetensors")
    loaded = safe_load(tmp_path / "t.safetensors")["a"].shard(DEVICES, axis=axis).realize()
    np.testing.assert_array_equal(loaded.numpy(), value)


def test_a_tensor_of_bytes_is_a_file_too_aligned_or_not(tmp_path):
    path = tmp_path / "t.safetensors"
    tensors = {"odd": Tensor([1, 2, 3], dtype=dtypes.uint8), "wide": Tensor([1.5, 2.5])}
    safe_save(tensors, path)
    loaded = safe_load(Tensor(path.read_bytes()))
    assert loaded["odd"].tolist() == [1, 2, 3]
    assert (loaded["wide"] + 1).tolist() == [2.5, 3.5]


def test_a_view_is_saved_row_major(tmp_path):
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = Tensor(value).realize()
    split = x.shard(("CPU", "CPU:1"), 1).realize()
    tensors = {
        "transposed": x.T,
        "slice": x[:, 1:],
        "detached": x.detach(),
        "sharded": split.detach(),
    }
    safe_save(tensors, tmp_path / "t.safetensors")
    loaded = safetensors.numpy.load_file(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(loaded["detached"], value)
    np.testing.assert_array_equal(loaded["sharded"], value)
    np.testing.assert_array_equal(loaded["transposed"], value.T)
    np.testing.assert_array_equal(loaded["slice"], value[:, 1:])


def test_metadata_and_aligned_data(tmp_path):
    path = tmp_path / "t.safetensors"
    safe_save({"a": Tensor([1.0])}, path, metadata={"format": "pt"})
    start, header, metadata = safe_load_metadata(path)
    assert start % 8 == 0
    assert header["a"] == {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    assert metadata == {"format": "pt"}
    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}


def test_what_is_neither_a_tensor_nor_text_is_refused_by_its_name(tmp_path):
    path = tmp_path / "t.safetensors"
    with pytest.raises(ValueError, match=r"metadata 'step' is 3, .* text"):
        safe_save({"a": Tensor([1.0])}, path, metadata={"step": 3})
    with pytest.raises(TypeError, match="bias is of type ndarray; give a Tensor"):
        safe_save({"bias": np.ones(2)}, path)
    assert not path.exists()
    with pytest.raises(TypeError, match="bias is of type ndarray; give a Tensor"):
        load_state_dict({"bias": Tensor([1.0])}, {"bias": np.ones(1)}, verbose=False)


def test_a_failed_save_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "t.safetensors"
    safe_save({"a": Tensor([1.0])}, path)
    lacking = Tensor([1.0]).to("DISK:" + str(tmp_path / "removed"))
    (tmp_path / "removed").unlink()
    old = path.read_bytes()
    with pytest.raises(ValueError, match="__metadata__"):
        safe_save({"a": Tensor([2.0]), "__metadata__": lacking}, path)
    with pytest.raises(OSError, match="was removed"):
        safe_save({"a": Tensor([2.0]), "b": lacking}, path)
    assert path.read_bytes() == old
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


# ---- invalid files ----

GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        ([1], "JSON list, not an object"),
        (b'{"a":{},"a":{}}', "two entries called 'a'"),
        ({"__metadata__": 3}, "__metadata__ is 3"),
        ({"a": 3}, "'a' is 3"),
        ({"a": {"dtype": "F32"}}, "it needs dtype, shape and data_offsets"),
        ({"a": GOOD | {"dtype": "F33"}}, "dtype 'F33'"),
        ({"a": GOOD | {"dtype": ["F32"]}}, "dtype"),
        ({"a": GOOD | {"shape": [-1, -2]}}, "shape"),
        ({"a": GOOD | {"shape": [2.0]}}, "shape"),
        ({"a": GOOD | {"shape": [True, 2]}}, "shape"),
        ({"a": GOOD | {"shape": [3]}}, "takes 12"),
        ({"a": GOOD | {"shape": [1 << 62, 1 << 62]}}, "too large for any memory"),
        ({"a": GOOD | {"shape": [1] * 65}}, "65 axes"),
        ({"a": GOOD | {"shape": [1 << 40]}}, "takes"),
        ({"a": GOOD | {"data_offsets": [0]}}, r"not \[start, stop\]"),
        ({"a": GOOD | {"data_offsets": [8, 0]}}, r"not \[start, stop\]"),
        ({"a": GOOD | {"data_offsets": [-8, 0]}}, r"not \[start, stop\]"),
        ({"a": GOOD | {"data_offsets": [8, 16]}}, "the file has 12 bytes of data"),
        ({"a": GOOD, "b": GOOD | {"data_offsets": [4, 12]}}, r"'b' at \[4, 12\] overlaps 'a'"),
        ({"a": GOOD | {"data_offsets": [4, 12]}}, "leaves a gap after the start"),
        ({"a": GOOD}, "4 bytes of data after 'a' belong to no tensor"),
        ({"a": json.loads("[" * 900 + "]" * 900)}, r"'a' is \[\[\[.*it needs dtype"),
    ],
)
def test_an_invalid_header_names_the_file_the_entry_and_the_values(tmp_path, header, message):
    path = write_file(tmp_path / "wrong.safetensors", header, b"\0" * 12)
    with pytest.raises(ValueError, match=message) as raised:
        safe_load(path)
    assert isinstance(raised.value, FileFormatError)
    assert "wrong.safetensors" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8, (9).to_bytes(8, "little")])
def test_a_truncated_file_is_an_error(tmp_path, content):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cut\.safetensors"):
        safe_load(path)
