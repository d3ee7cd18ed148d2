"""Helpers: small ONNX models, and their outputs by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")
from onnx import helper, numpy_helper  # noqa: E402

Array = np.ndarray[Any, Any]
OPSET = 21
random = np.random.default_rng(0)


def node(op: str, inputs: str, outputs: str = "y", domain: str = "", **attributes: Any) -> Any:
    """A node; names are separated by spaces, and "-" is an omitted one."""
    names = [["" if name == "-" else name for name in x.split()] for x in (inputs, outputs)]
    return helper.make_node(op, *names, domain=domain, name=f"{op} of {outputs}", **attributes)


def spec(name: str, array: Array, shape: Sequence[Any] | None = None) -> Any:
    """The description of an input like this array; `shape` may contain names."""
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, code, array.shape if shape is None else shape)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Array],
    outputs: Sequence[str] = ("y",),
    initializers: dict[str, Array] | None = None,
    opset: int = OPSET,
    shapes: dict[str, Sequence[Any]] | None = None,
) -> Any:
    """A model of these nodes; the types of its outputs are unspecified."""
    graph = helper.make_graph(
        list(nodes),
        "a graph",
        [spec(name, x, (shapes or {}).get(name)) for name, x in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(x, name) for name, x in (initializers or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run_onnxruntime(proto: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs by name, computed by ONNX Runtime without optimizations."""
    runtime = pytest.importorskip("onnxruntime", reason="the reference is ONNX Runtime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    session = runtime.InferenceSession(proto.SerializeToString(), options, providers=providers)
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def run(proto: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs by name, computed by this library."""
    results = OnnxRunner(proto)({name: Tensor(x) for name, x in inputs.items()})
    return {name: x.numpy() for name, x in results.items()}


def assert_same(found: Array, expected: Array, what: str, rtol: float = 1e-4) -> None:
    """Checks equal dtypes and shapes, and values up to rounding of sums."""
    assert found.dtype == expected.dtype, f"{what}: {found.dtype}, not {expected.dtype}"
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5, err_msg=what)


def compare(proto: Any, inputs: dict[str, Array], rtol: float = 1e-4) -> None:
    """Checks that this library and ONNX Runtime give the same outputs."""
    expected, found = run_onnxruntime(proto, inputs), run(proto, inputs)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert_same(found[name], array, name, rtol)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    """Uniform float32 numbers in [low, high)."""
    return random.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, low: int = 0, high: int = 5, dtype: Any = np.int64) -> Array:
    """Uniform integers in [low, high)."""
    return random.integers(low, high, shape).astype(dtype)
