"""`OnnxRunner`: accepted models and inputs, the description of a model, and errors."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

from test.backend.onnx.models import floats, integers, model, node, spec
from tinygrad import Tensor, dtypes, nn
from tinygrad.nn.onnx import OnnxError, OnnxRunner, OnnxUnsupportedError
from tinygrad.nn.onnx.initializers import load_tensor
from tinygrad.nn.onnx.values import HostValue

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")
from onnx import TensorProto, external_data_helper, helper, numpy_helper  # noqa: E402


def scaled_sum(**kwargs: Any) -> Any:
    """`y = x * w + b` for x (batch, 4)."""
    return model(
        [node("Mul", "x w", "p"), node("Add", "p b")],
        {"x": floats(2, 4), "b": floats(2, 4)},
        initializers={"w": np.arange(4, dtype=np.float32)},
        shapes={"x": ["batch", 4], "b": ["batch", 4]},
        **kwargs,
    )


SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, ["n"]))


def of_type(proto: Any, kind: Any) -> OnnxRunner:
    """The model with its first input of another type."""
    proto.graph.input[0].type.CopyFrom(kind)
    return OnnxRunner(proto)


# ---- accepted models and inputs ----


@pytest.fixture(params=["path", "str", "bytes", "tensor", "file tensor", "message"])
def given(request, tmp_path):
    proto = scaled_sum()
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    return {
        "path": path,
        "str": str(path),
        "bytes": path.read_bytes(),
        "tensor": Tensor(path.read_bytes()),
        "file tensor": Tensor(path),
        "message": proto,
    }[request.param]


def test_a_model_may_be_a_path_bytes_a_tensor_or_a_message(given):
    runner = OnnxRunner(given)
    found = runner({"x": Tensor.ones(3, 4), "b": Tensor.ones(3, 4)})
    assert list(found) == ["y"]
    np.testing.assert_equal(found["y"].numpy(), np.tile(np.arange(1.0, 5.0), (3, 1)))


def test_the_runner_describes_inputs_and_outputs():
    runner = OnnxRunner(scaled_sum())
    assert list(runner.graph_inputs) == ["x", "b"]
    assert runner.graph_inputs["x"].shape == ("batch", 4)
    assert runner.graph_inputs["x"].dtype is dtypes.float32
    assert runner.graph_outputs == ("y",)
    assert runner.opset_versions == {"": 21, "com.microsoft": 1}
    assert list(runner.weights) == ["w"]


@pytest.mark.parametrize(
    "value",
    [Tensor([[1.0] * 4]), np.ones((1, 4), np.float32), [[1.0, 1, 1, 1]]],
    ids=["tensor", "array", "list"],
)
def test_an_input_may_be_a_tensor_an_array_or_a_list(value):
    found = OnnxRunner(scaled_sum())({"x": value, "b": Tensor.zeros(1, 4)})
    assert found["y"].tolist() == [[0.0, 1.0, 2.0, 3.0]]


def test_an_input_with_an_initializer_may_be_omitted():
    proto = scaled_sum()
    proto.graph.input.append(spec("w", floats(4)))
    runner = OnnxRunner(proto)
    assert list(runner.graph_inputs) == ["x", "b"]
    x = {"x": Tensor.ones(1, 4), "b": Tensor.zeros(1, 4)}
    assert runner(x)["y"].tolist() == [[0.0, 1.0, 2.0, 3.0]]
    assert runner(x | {"w": Tensor.ones(4)})["y"].tolist() == [[1.0] * 4]


def test_the_weights_are_state_and_can_be_replaced():
    runner = OnnxRunner(scaled_sum())
    assert list(nn.state.get_state_dict(runner)) == ["weights.w"]
    runner.weights["w"].assign(Tensor.ones(4))
    found = runner({"x": Tensor.ones(1, 4), "b": Tensor.zeros(1, 4)})
    assert found["y"].tolist() == [[1.0] * 4]


def test_weights_get_gradients():
    runner = OnnxRunner(scaled_sum())
    weight = runner.weights["w"].requires_grad_()
    found = runner({"x": Tensor.ones(3, 4), "b": Tensor.zeros(3, 4)})["y"]
    found.sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0] * 4


def test_a_shape_may_be_an_input():
    proto = model([node("Reshape", "x s")], {"x": floats(2, 6), "s": integers(3)})
    x = floats(2, 6)
    for shape in (np.array([3, 2, 2]), Tensor([4, 1, 3], dtype=dtypes.long)):
        found = OnnxRunner(proto)({"x": Tensor(x), "s": shape})["y"]
        np.testing.assert_equal(found.numpy(), x.reshape(tuple(shape.tolist())))


def test_an_output_computed_in_python_is_a_new_tensor():
    proto = model([node("Shape", "x")], {"x": floats(2, 3)})
    runner = OnnxRunner(proto)
    first = runner({"x": Tensor.ones(2, 3)})["y"]
    first.assign(Tensor([9, 9], dtype=dtypes.long)).realize()
    assert runner({"x": Tensor.ones(2, 3)})["y"].tolist() == [2, 3]


def test_functions_of_the_model_are_inlined():
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], [helper.make_opsetid("", 21)]
    )
    proto = model([node("Twice", "x", domain="own")], {"x": floats(3)})
    proto.functions.append(twice)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    assert OnnxRunner(proto)({"x": Tensor([1.0, 2.0, 3.0])})["y"].tolist() == [2.0, 4.0, 6.0]


def test_a_sequence_is_a_list():
    nodes = [node("SequenceInsert", "x x1"), node("SequenceLength", "y", "count")]
    proto = model(nodes, {"x": floats(2), "x1": floats(4)}, ["y", "count"])
    parts = floats(2), floats(3)
    result = of_type(proto, SEQUENCE)({"x": list(parts), "x1": Tensor.ones(4)})
    assert [x.tolist() for x in result["y"]] == [parts[0].tolist(), parts[1].tolist(), [1.0] * 4]
    assert result["count"].item() == 3
    with pytest.raises(OnnxError, match="'x' is a ndarray; it is a sequence: give a list"):
        of_type(proto, SEQUENCE)({"x": floats(2), "x1": floats(4)})


def test_an_optional_may_be_left_out():
    nodes = [node("OptionalHasElement", "x"), node("Identity", "x", "same")]
    proto = model(nodes, {"x": floats(2)}, ["y", "same"])
    runner = of_type(proto, helper.make_optional_type_proto(SEQUENCE))
    assert [runner(given)["y"].item() for given in ({}, {"x": None})] == [False, False]
    assert runner({})["same"] is None
    result = runner({"x": [Tensor([1.0])]})
    assert result["y"].item() and [x.tolist() for x in result["same"]] == [[1.0]]


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    data = scaled_sum().SerializeToString()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"tinygrad-sharding\[onnx\]"):
        OnnxRunner(data)


# ---- refused inputs ----

X, B = Tensor.ones(2, 4), Tensor.ones(2, 4)
WRONG_INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"x": X}, r"b missing. It takes x: dtypes.float \(batch, 4\), b: "),
    "unknown": ({"x": X, "b": B, "z": X}, "z unknown"),
    "of another size": ({"x": Tensor.ones(2, 5), "b": B}, r"'x' has shape \(2, 5\).*batch, 4"),
    "of fewer axes": ({"x": Tensor.ones(4), "b": B}, r"'x' has shape \(4,\)"),
    "of unequal batch": ({"x": X, "b": Tensor.ones(3, 4)}, "sizes 2 and 3 for 'batch'"),
    "of another dtype": ({"x": X.half(), "b": B}, r"'x' is dtypes.half.*cast\('float'\)"),
    "no numbers": ({"x": "text", "b": B}, "'x' is a str; give a tensor"),
}


@pytest.mark.parametrize("case", WRONG_INPUTS)
def test_inputs_that_do_not_fit_are_refused(case):
    inputs, message = WRONG_INPUTS[case]
    with pytest.raises(OnnxError, match=message):
        OnnxRunner(scaled_sum())(inputs)


# ---- refused models ----


def refuse(nodes: list[Any], message: str, **kwargs: Any) -> None:
    with pytest.raises(OnnxError, match=message):
        OnnxRunner(model(nodes, {"x": floats(2, 3)}, **kwargs))


def test_invalid_bytes_are_refused():
    data = scaled_sum().SerializeToString()
    for damaged in (b"no model", data[: len(data) // 2], b"", b"\xff" * 100):
        with pytest.raises(OnnxError, match="not an ONNX model|has no graph"):
            OnnxRunner(damaged)
    with pytest.raises(OnnxError, match="a path, bytes"):
        OnnxRunner(Tensor([1.0]))
    with pytest.raises(FileNotFoundError):
        OnnxRunner("there/is/none.onnx")


def test_an_old_opset_is_refused():
    with pytest.raises(OnnxUnsupportedError, match="opset 12.*13 is the oldest.*convert_version"):
        OnnxRunner(scaled_sum(opset=12))


def test_a_model_without_an_opset_is_refused():
    proto = scaled_sum()
    del proto.opset_import[:]
    with pytest.raises(OnnxError, match="opset_import"):
        OnnxRunner(proto)


def test_all_unknown_operators_are_listed():
    nodes = [node("Odd", "x", "a"), node("Even", "a", "b", domain="own"), node("Odd", "b")]
    refuse(nodes, r"Odd \(2: 'Odd of a', 'Odd of y'\); own.Even \(1: 'Even of b'\)")


def test_an_undefined_name_is_refused():
    refuse([node("Add", "x nothing")], "Add 'Add of y' -> y: nothing gives its input 'nothing'")
    refuse([node("Relu", "x", "a")], "no node makes 'y'")


def test_cyclic_nodes_are_refused():
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b")]
    refuse(nodes, "input 'b' is made by a later node, Relu 'Relu of b'.*circle")


def test_a_name_with_two_values_is_refused():
    refuse([node("Relu", "x"), node("Neg", "x")], "'y' is given a second value")
    refuse([node("Relu", "x", "x"), node("Neg", "x")], "'x' is given a second value")
    proto = scaled_sum()
    proto.graph.initializer.append(proto.graph.initializer[0])
    with pytest.raises(OnnxError, match="two initializers 'w'"):
        OnnxRunner(proto)


def test_strings_and_nested_sequences_are_refused():
    proto = model([node("Identity", "x")], {"x": floats(2)})
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(OnnxUnsupportedError, match="'x'.*type STRING"):
        OnnxRunner(proto)
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(SEQUENCE))
    with pytest.raises(OnnxUnsupportedError, match="'x'.*nests sequences"):
        OnnxRunner(proto)


def failing(nodes: list[Any], message: str, **initializers: Any) -> None:
    arrays = {name: np.asarray(x) for name, x in initializers.items()}
    runner = OnnxRunner(model(nodes, {"x": floats(2, 3)}, initializers=arrays))
    with pytest.raises(OnnxError, match=message):
        runner({"x": Tensor.ones(2, 3)})


def test_a_sequence_in_place_of_a_tensor_is_named():
    construct = node("SequenceConstruct", "x x", "s")
    failing([construct, node("Relu", "s")], "input x is a sequence of 2, and must be a tensor")
    failing([construct, node("SequenceAt", "s i")], "position 2 is out of range", i=2)
    failing([node("SequenceLength", "x")], r"is dtypes.float \(2, 3\), and must be a sequence")
    failing([node("SplitToSequence", "x n")], r"\[1, 2\] do not add up to 2", n=[1, 2])


def test_a_node_that_fails_is_named_with_its_inputs():
    failing([node("MatMul", "x x")], r"MatMul 'MatMul of y' -> y: .*x: dtypes.float \(2, 3\)")
    failing([node("Reshape", "x s")], r"6 elements.*\[4, -1\]", s=[4, -1])
    failing([node("Squeeze", "x a")], r"axes \[1\].*not all of size 1", a=[1])
    failing([node("Concat", "x x", axis=5)], "Concat of y")
    failing([node("Slice", "x s e a t")], "step of axis 0 is 0", s=[0], e=[1], a=[0], t=[0])
    failing([node("Gather", "x i")], "positions .*not within axis 0 of 2", i=[5])
    failing([node("Div", "s z", "q"), node("Reshape", "x q")], "division", s=[2], z=[0])


def test_absurd_sizes_are_refused():
    huge = 1 << 40
    failing([node("Resize", "x - - s")], "new sizes", s=[2, huge])
    failing([node("Split", "x", "y z", num_outputs=huge)], "num_outputs is .* 2 outputs")
    image = [node("Unsqueeze", "x axes", "image")]
    pool = node("MaxPool", "image", kernel_shape=[huge, huge], pads=[huge] * 4)
    failing([*image, pool], "are up to", axes=[0, 1])
    failing([*image, node("LRN", "image", size=huge)], "size is", axes=[0, 1])


def test_attributes_that_do_not_fit_are_refused():
    failing([node("Softmax", "x", shape=3)], "no attribute 'shape'; there are: axis")
    failing([node("Softmax", "x", axis=1.5)], "attribute axis is 1.5, not of type int")
    failing([node("Concat", "x x")], "attribute axis is missing")
    failing([node("Conv", "x")], "input 1, w, is missing")
    failing([node("Relu", "x x")], "has 2 inputs and takes 1")


def test_too_many_outputs_are_refused():
    runner = OnnxRunner(model([node("Relu", "x", "y z")], {"x": floats(2)}, ["y", "z"]))
    with pytest.raises(OnnxUnsupportedError, match="2 outputs are asked for"):
        runner({"x": Tensor.ones(2)})


# ---- branches and loops ----


def branch(op: str, name: str) -> Any:
    return helper.make_graph([node(op, "x", name)], name, [], [onnx.ValueInfoProto(name=name)], [])


def test_a_branch_is_chosen_by_a_known_condition():
    chosen = node("If", "wide", then_branch=branch("Neg", "a"), else_branch=branch("Abs", "b"))
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "n"),
        node("Greater", "n limit", "wide"),
        chosen,
    ]
    sizes = {"one": np.array(1, np.int64), "limit": np.array(2, np.int64)}
    proto = model(nodes, {"x": floats(1, 3)}, initializers=sizes, shapes={"x": [1, "n"]})
    runner = OnnxRunner(proto)
    assert runner({"x": Tensor([[1.0, 1.0, 1.0]])})["y"].tolist() == [[-1.0, -1.0, -1.0]]
    assert runner({"x": Tensor([[1.0, -1.0]])})["y"].tolist() == [[1.0, 1.0]]


@pytest.mark.slow
def test_an_endless_loop_is_refused():
    value = onnx.ValueInfoProto
    body = helper.make_graph(
        [node("Identity", "c", "go"), node("Relu", "v", "w")],
        "body",
        [value(name="i"), value(name="c"), value(name="v")],
        [value(name="go"), value(name="w")],
    )
    proto = model([node("Loop", "- - x", body=body)], {"x": floats(1)})
    with pytest.raises(OnnxUnsupportedError, match="Loop.*more than 10000 times"):
        OnnxRunner(proto)({"x": Tensor.ones(1)})


# ---- stored tensors ----


def loaded(proto: Any) -> Any:
    value = load_tensor(proto, None)
    return value.array if isinstance(value, HostValue) else value.numpy()


STORED = ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
STORED += ["int64", "uint64", "bool"]


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2), (40, 50)], ids=str)
@pytest.mark.parametrize("name", STORED)
def test_stored_tensors_are_read_exactly(name, shape, raw):
    array = (np.arange(np.prod(shape)).reshape(shape) % 100).astype(name)
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    values = array.tobytes() if raw else array.flatten().tolist()
    found = loaded(helper.make_tensor("t", code, shape, values, raw=raw))
    assert found.dtype == array.dtype
    np.testing.assert_equal(found, array)


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_stored_narrow_floats_are_read_exactly(name, raw):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([[0.5, -1.5, 2.0], [0.0, 8.0, -0.25]]).astype(getattr(ml_dtypes, name))
    proto = numpy_helper.from_array(array, "t")
    if not raw:
        bits = array.view(f"u{array.itemsize}").flatten().tolist()
        proto.ClearField("raw_data")
        proto.int32_data.extend(bits)
    value = load_tensor(proto, None)
    assert isinstance(value, Tensor)
    assert value.dtype.itemsize == array.itemsize
    np.testing.assert_equal(value.numpy(), array.astype(np.float32))


@pytest.mark.parametrize(("code", "numbers"), [(22, [-8, 7, 3]), (21, [15, 0, 9])])
def test_integers_of_4_bits_can_be_dequantized(code, numbers):
    proto = model(
        [node("DequantizeLinear", "w s", "d"), node("Add", "x d")],
        {"x": floats(3)},
        initializers={"s": np.array(0.5, np.float32)},
    )
    proto.graph.initializer.append(helper.make_tensor("w", code, [3], numbers))
    found = OnnxRunner(proto)({"x": Tensor.zeros(3)})["y"]
    assert found.tolist() == [number / 2 for number in numbers]
    proto.graph.node[0].op_type, proto.graph.node[0].input[:] = "Neg", ["w"]
    with pytest.raises(OnnxUnsupportedError, match="4 bits can only be dequantized"):
        OnnxRunner(proto)


WRONG_TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "too few bytes": ({"dims": [3], "data_type": 1, "raw_data": b"1234"}, "12 bytes, but 4"),
    "too few numbers": ({"dims": [3], "data_type": 1, "float_data": [1.0]}, "1 elements.*not 3"),
    "huge": ({"dims": [1 << 40, 1 << 40], "data_type": 1, "raw_data": b""}, "takes 48357"),
    "negative": ({"dims": [-1], "data_type": 1, "raw_data": b""}, "sizes are at least 0"),
    "out of range": ({"dims": [1], "data_type": 3, "int32_data": [300]}, "cannot hold"),
    "strings": ({"dims": [1], "data_type": 8, "string_data": [b"a"]}, "type STRING"),
    "unknown": ({"dims": [1], "data_type": 99, "raw_data": b"a"}, "type number 99"),
}


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_tensors_that_do_not_fit_their_data_are_refused(case):
    fields, message = WRONG_TENSORS[case]
    with pytest.raises(OnnxError, match=message):
        load_tensor(TensorProto(name="t", **fields), None)


@pytest.fixture
def external(tmp_path):
    """A model in a folder, and a function that sets the location of its weight."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data.bin").write_bytes(b"\0" * 16 + np.arange(4, dtype=np.float32).tobytes())
    (tmp_path / "secret.bin").write_bytes(b"\0" * 32)

    def save(**entries: Any) -> Any:
        proto = scaled_sum()
        weight = proto.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in ({"location": "data.bin"} | entries).items():
            weight.external_data.add(key=key, value=str(value))
        (folder / "model.onnx").write_bytes(proto.SerializeToString())
        return folder / "model.onnx"

    return save


def test_data_in_another_file_is_read(external):
    runner = OnnxRunner(external(offset=16, length=16))
    found = runner({"x": Tensor.ones(1, 4), "b": Tensor.zeros(1, 4)})
    assert found["y"].tolist() == [[0.0, 1.0, 2.0, 3.0]]
    runner = OnnxRunner(Tensor(external(offset=16)))
    assert runner.weights["w"].tolist() == [0.0, 1.0, 2.0, 3.0]


WRONG_PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "above": ({"location": "../secret.bin"}, "not inside the model's folder"),
    "absolute": ({"location": os.devnull}, "not inside the model's folder"),
    "a link": ({"location": "link.bin"}, "not inside the model's folder"),
    "the folder": ({"location": ""}, "not inside the model's folder"),
    "a NUL byte": ({"location": "data\0.bin"}, r"'data\\x00\.bin', which is no path"),
    "a long name": ({"location": "a" * 5000}, "no path: .*too long"),
    "missing": ({"location": "none.bin"}, "'none.bin', which is not there"),
    "past the end": ({"offset": 24, "length": 16}, "takes bytes 24 to 40.*which has 32"),
    "of another size": ({"offset": 16, "length": 8}, "16 bytes, but 8 are stored"),
    "negative": ({"offset": -16}, "'-16', not a whole number"),
    "huge": ({"offset": 10**30}, "not a whole number"),
}


@pytest.mark.parametrize("case", WRONG_PLACES)
def test_data_outside_the_folder_or_the_file_is_refused(external, tmp_path, case):
    entries, message = WRONG_PLACES[case]
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(OnnxError, match=message):
        OnnxRunner(external(**entries))


def test_data_in_another_file_needs_the_path_of_the_model(external):
    data = external(offset=16).read_bytes()
    with pytest.raises(OnnxError, match="pass OnnxRunner the path"):
        OnnxRunner(data)


def test_a_model_saved_by_the_package_with_external_data_is_read(tmp_path):
    proto = scaled_sum()
    external_data_helper.convert_model_to_external_data(proto, size_threshold=0)
    onnx.save(proto, tmp_path / "model.onnx")
    assert OnnxRunner(tmp_path / "model.onnx").weights["w"].tolist() == [0.0, 1.0, 2.0, 3.0]
