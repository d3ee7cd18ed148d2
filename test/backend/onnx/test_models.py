"""Models of many operators against ONNX Runtime: a residual network, and a transformer block that
computes shapes like exported models.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.backend.onnx.models import (
    assert_same,
    compare,
    floats,
    integers,
    model,
    node,
    run_onnxruntime,
)
from test.devices import device_names
from tinygrad import GlobalCounters, Tensor, TinyJit
from tinygrad.nn.onnx import OnnxError, OnnxRunner

DIM, HEADS, WORDS = 16, 4, 11


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def residual_network() -> tuple[Any, dict[str, Any]]:
    """Convolutions with batch norm, a shortcut, pooling, upsampling and a classifier."""
    weights: dict[str, Any] = {
        "w0": floats(8, 3, 3, 3),
        "w1": floats(8, 8, 3, 3, low=-0.3, high=0.3),
        "w2": floats(8, 1, 3, 3, low=-0.3, high=0.3),
        "b2": floats(8),
        "fc": floats(5, 32),
        "fcb": floats(5),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
    }
    for name, low in (("scale", 0.5), ("shift", -1.0), ("mean", -1.0), ("var", 0.5)):
        weights |= {f"{name}{i}": floats(8, low=low, high=1.5) for i in range(2)}
    nodes = [
        node("Conv", "x w0", "c0", pads=[1] * 4, strides=[2, 2]),
        node("BatchNormalization", "c0 scale0 shift0 mean0 var0", "n0"),
        node("Relu", "n0", "r0"),
        node("MaxPool", "r0", "p0", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", "p0 w1", "c1", pads=[1] * 4),
        node("BatchNormalization", "c1 scale1 shift1 mean1 var1", "n1"),
        node("Add", "n1 p0", "s1"),
        node("Clip", "s1 low high", "r1"),
        node("Resize", "r1 - scales", "up", mode="nearest"),
        node("Conv", "up w2 b2", "c2", group=8, strides=[2, 2], pads=[1] * 4),
        node("HardSwish", "c2", "h2"),
        node("AveragePool", "h2", "a2", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "a2", "flat"),
        node("Dropout", "flat", "kept"),
        node("Gemm", "kept fc fcb", "scores", transB=1),
        node("Softmax", "scores", "y", axis=1),
    ]
    inputs = {"x": floats(2, 3, 16, 16)}
    return model(nodes, inputs, initializers=weights, shapes={"x": ["batch", 3, 16, 16]}), inputs


def attention_nodes() -> list[Any]:
    """Multi-head attention whose reshapes take shapes computed from that of the input."""
    nodes = [
        node("Shape", "e", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Gather", "shape one", "length", axis=0),
        node("Unsqueeze", "batch axis0", "batch1"),
        node("Unsqueeze", "length axis0", "length1"),
        node("Concat", "batch1 length1 heads dim", "split", axis=0),
        node("Concat", "batch1 length1 whole", "joined", axis=0),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", f"e w{name}", f"{name}0"),
            node("Reshape", f"{name}0 split", f"{name}1"),
            node("Transpose", f"{name}1", f"{name}2", perm=[0, 2, 1, 3]),
        ]
    return [
        *nodes,
        node("Transpose", "k2", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q2 kt", "raw"),
        # the square root of the head size, from a shape
        node("Shape", "q2", "qshape"),
        node("Gather", "qshape last", "size", axis=0),
        node("Cast", "size", "sizef", to=1),
        node("Sqrt", "sizef", "root"),
        node("Div", "raw root", "scores"),
        # a causal mask of the length of the sequence
        node("Concat", "length1 length1", "square", axis=0),
        node("ConstantOfShape", "square", "ones0"),
        node("Cast", "ones0", "ones1", to=9),
        node("Not", "ones1", "ones"),
        node("Trilu", "ones", "mask", upper=0),
        node("Where", "mask scores least", "masked"),
        node("Softmax", "masked", "p", axis=-1),
        node("MatMul", "p v2", "o0"),
        node("Transpose", "o0", "o1", perm=[0, 2, 1, 3]),
        node("Reshape", "o1 joined", "attended"),
    ]


def transformer() -> tuple[Any, dict[str, Any]]:
    """A decoder block with embeddings, for sequences of any length."""
    weights: dict[str, Any] = {f"w{name}": floats(DIM, DIM, low=-0.5, high=0.5) for name in "qkv"}
    weights |= {
        "words": floats(WORDS, DIM),
        "places": floats(20, DIM),
        "up": floats(DIM, 32, low=-0.3, high=0.3),
        "down": floats(32, DIM, low=-0.3, high=0.3),
        "gain": floats(DIM),
        "bias": floats(DIM),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "last": np.array(-1, np.int64),
        "axis0": ints(0),
        "heads": ints(HEADS),
        "dim": ints(DIM // HEADS),
        "whole": ints(-1),
        "least": np.array(-1e9, np.float32),
    }
    nodes = [
        node("Shape", "ids", "idshape"),
        node("Gather", "idshape one", "count", axis=0),
        node("Range", "zero count one", "positions"),
        node("Gather", "words ids", "word"),
        node("Gather", "places positions", "place"),
        node("Add", "word place", "e"),
        *attention_nodes(),
        node("Add", "e attended", "sum1"),
        node("LayerNormalization", "sum1 gain bias", "n1"),
        node("MatMul", "n1 up", "wide"),
        node("Gelu", "wide", "active"),
        node("MatMul", "active down", "narrow"),
        node("Add", "n1 narrow", "y"),
    ]
    inputs = {"ids": integers(2, 7, high=WORDS)}
    shapes = {"ids": ["batch", "length"]}
    return model(nodes, inputs, initializers=weights, shapes=shapes), inputs


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=80)
def test_a_damaged_file_is_refused_or_runs(changes):
    """Every file gives a value or an OnnxError, nothing else."""
    proto, inputs = transformer()
    data = bytearray(proto.SerializeToString())
    for place, byte in changes:
        data[place] = byte
    with contextlib.suppress(OnnxError):
        found = OnnxRunner(bytes(data))({name: Tensor(x) for name, x in inputs.items()})
        assert all(isinstance(x, Tensor) for x in found.values())


def test_a_residual_network_equals_onnxruntime():
    compare(*residual_network())


@pytest.mark.parametrize("length", [1, 7])
def test_a_transformer_equals_onnxruntime(length):
    proto, _ = transformer()
    compare(proto, {"ids": integers(2, length, high=WORDS)})


def test_shapes_are_computed_without_a_kernel():
    proto, inputs = transformer()
    runner = OnnxRunner(proto)
    ids = Tensor(inputs["ids"]).realize()
    runner({"ids": ids})["y"].realize()
    GlobalCounters.reset()
    found = runner({"ids": ids})["y"]
    assert GlobalCounters.kernel_count == 0, "a kernel ran while the graph was built"
    found.realize()
    # two embeddings and their sum, three products, scores, softmax, ... but no size arithmetic
    assert 0 < GlobalCounters.kernel_count <= 20


@pytest.mark.parametrize("make", [residual_network, transformer])
def test_a_model_under_jit_equals_the_model_without(make):
    proto, inputs = make()
    runner = OnnxRunner(proto)
    (name,) = inputs

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return runner({name: x})["y"].realize()

    for seed in range(4):
        values = np.random.default_rng(seed).permuted(inputs[name], axis=-1)
        expected = run_onnxruntime(proto, {name: values})["y"]
        assert_same(step(Tensor(values).realize()).numpy(), expected, f"call {seed}")
    assert step.captured is not None


def test_a_value_that_determines_the_graph_is_refused_under_jit():
    proto = model(
        [node("NonZero", "x", "places"), node("Transpose", "places", "y")], {"x": floats(4)}
    )
    runner = OnnxRunner(proto)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return runner({"x": x})["y"].realize()

    step(Tensor([1.0, 0.0, 2.0, 0.0]).realize())
    with pytest.raises(OnnxError, match="NonZero.*under TinyJit"):
        step(Tensor([1.0, 0.0, 2.0, 0.0]).realize())


def test_a_model_on_several_devices_equals_the_model_on_one():
    proto, inputs = transformer()
    devices = device_names(2, 1)
    runner = OnnxRunner(proto)
    expected = runner({"ids": Tensor(inputs["ids"])})["y"].numpy()
    runner.to(devices)
    ids = Tensor(inputs["ids"]).shard(devices, axis=0)
    found = runner({"ids": ids})["y"]
    assert found.device.axis == 0
    assert_same(found.numpy(), expected, "on two devices")
    assert all(weight.device.devices == devices for weight in runner.weights.values())


def test_weights_can_be_sharded():
    proto, inputs = transformer()
    runner = OnnxRunner(proto)
    expected = runner({"ids": Tensor(inputs["ids"])})["y"].numpy()
    devices = device_names(2, 1)
    runner.to(devices)
    runner.weights["up"].shard_(devices, axis=1)
    runner.weights["down"].shard_(devices, axis=0)
    found = runner({"ids": Tensor(inputs["ids"], device=runner.device)})["y"]
    assert_same(found.numpy(), expected, "on two devices")
