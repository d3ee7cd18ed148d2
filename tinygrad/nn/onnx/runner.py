"""`OnnxRunner`: a model from a file, as a function of tensors.

Input: a model, then its inputs by name, as tensors, arrays or numbers. Output: its outputs by name,
lazy. Inputs whose dtype or shape is not the declared one raise OnnxError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.device import Device
from tinygrad.dtype import DType, from_numpy_dtype, to_numpy_dtype
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.execution import Execution, check_operators
from tinygrad.nn.onnx.graph import Graph, ValueSpec, read_graph, read_opsets
from tinygrad.nn.onnx.model_file import Model, read_model
from tinygrad.nn.onnx.values import (
    MAX_HOST_ELEMENTS,
    AnyValue,
    Array,
    EmptyOptional,
    HostValue,
    SequenceValue,
    Value,
    described,
)
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike


class OnnxRunner:
    """A model in the ONNX format, of opset 13 or later.

    `model` is the path of a file, its bytes (also as a tensor), or an `onnx.ModelProto`. A call
    with a dictionary of inputs returns a dictionary of lazy outputs. Values derived from shapes and
    constants are computed on the host while the graph is built. A *tensor value* that determines
    the graph is read from the device, which is impossible inside TinyJit.

    Attributes: `graph_inputs`, a `ValueSpec` (shape, dtype) by name; `graph_outputs`, names;
    `opset_versions`, by domain ("" is ONNX's own); `weights`, the stored tensors by name; `device`.

    Raises ImportError without the package `onnx`, OnnxError for an invalid file, and
    OnnxUnsupportedError for unsupported features, such as unknown operators.

    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    >>> runner = OnnxRunner(helper.make_model(graph))
    >>> runner({"x": Tensor([-1.0, 2.0])})["y"].tolist()
    [0.0, 2.0]
    """

    def __init__(self, model: Model) -> None:
        proto, folder = read_model(model)
        self.opset_versions = read_opsets(proto)
        graph = read_graph(proto.graph, folder)
        check_operators(graph)
        self.graph_name = graph.name
        self.device: DeviceLike = Device.DEFAULT
        self.graph_inputs = {
            spec.name: spec for spec in graph.inputs if spec.name not in graph.initializers
        }
        self.graph_outputs = tuple(spec.name for spec in graph.outputs)
        self.weights = stored_tensors(graph)
        self._graph = graph
        self._specs = {spec.name: spec for spec in graph.inputs}

    def to(self, device: DeviceLike) -> OnnxRunner:
        """Move the stored tensors to a device, several (replicated), or a `Sharding`."""
        for tensor in self.weights.values():
            tensor.to_(device)
        self.device = Tensor.empty(1).to(device).device
        return self

    def __call__(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The outputs by name, for inputs by name: tensors, numpy arrays, or numbers.

        A sequence is a list of these, also as an output; an optional may be None, or left out.

        Small integer arrays of numpy are sizes and indices, known on the host. Raises OnnxError for
        missing or unknown inputs, and for another dtype or shape.
        """
        self._check_names(inputs)
        sizes: dict[str, tuple[int, str]] = {}
        values: dict[str, AnyValue] = {
            name: EmptyOptional() for name, spec in self.graph_inputs.items() if spec.is_optional
        }
        for name, given in inputs.items():
            spec = self._specs[name]
            if given is None and spec.is_optional:
                continue
            found = [self._value(spec, item) for item in elements_of(spec, given)]
            for value in found:
                # the elements of a sequence may differ in their named sizes
                check_value(spec, value, {} if spec.is_sequence else sizes)
            values[name] = SequenceValue(tuple(found)) if spec.is_sequence else found[0]
        results = Execution(self.device).run(self._graph, values)
        return {name: self._result(x) for name, x in zip(self.graph_outputs, results)}

    def _result(self, value: AnyValue) -> Any:
        """A tensor, a list of tensors, or None."""
        if isinstance(value, SequenceValue):
            return [self._result(item) for item in value.items]
        if isinstance(value, EmptyOptional):
            return None
        # a new tensor, as shared constants must not be written to
        return Tensor(value.array, self.device) if isinstance(value, HostValue) else value

    def _check_names(self, inputs: dict[str, Any]) -> None:
        missing = [
            name
            for name, spec in self.graph_inputs.items()
            if name not in inputs and not spec.is_optional
        ]
        unknown = [name for name in inputs if name not in self._specs]
        if missing or unknown:
            problems = [f"{', '.join(missing)} missing"] if missing else []
            problems += [f"{', '.join(unknown)} unknown"] if unknown else []
            takes = ", ".join(shown(spec) for spec in self.graph_inputs.values()) or "none"
            raise OnnxError(
                f"inputs of {self.graph_name!r}: {'; '.join(problems)}. It takes {takes}"
            )

    def _value(self, spec: ValueSpec, given: Any) -> Value:
        if isinstance(given, Tensor):
            return given
        array = as_input_array(given, spec)
        if array.dtype.kind in "iub" and array.size <= MAX_HOST_ELEMENTS:
            return HostValue(array)
        return Tensor(array, device=self.device)


def elements_of(spec: ValueSpec, given: Any) -> list[Any]:
    """The elements of a sequence, or a single value. Raises OnnxError if it is no list."""
    if not spec.is_sequence:
        return [given]
    if not isinstance(given, (list, tuple)):
        raise OnnxError(
            f"input {spec.name!r} is a {type(given).__name__}; it is a sequence: give a list of "
            "tensors or numpy arrays"
        )
    return list(given)


def stored_tensors(graph: Graph) -> dict[str, Tensor]:
    """The stored tensors of a graph and its nested graphs, by name."""
    found: dict[str, Tensor] = {}
    for part in graph.subgraphs():
        for name, value in part.initializers.items():
            tensor = value.stored if isinstance(value, HostValue) else value
            if tensor is not None:
                found[name if name not in found else f"{part.name}.{name}"] = tensor
    return found


def as_input_array(given: Any, spec: ValueSpec) -> Array:
    """A non-tensor input as an array; Python numbers take the declared dtype."""
    if isinstance(given, (np.ndarray, np.generic)):
        return np.asarray(given)
    try:
        return np.array(given, None if spec.dtype is None else to_numpy_dtype(spec.dtype))
    except (ValueError, TypeError) as error:
        raise OnnxError(
            f"input {spec.name!r} is a {type(given).__name__}; give a tensor, a numpy array, or "
            "(nested) lists of numbers"
        ) from error


def check_value(spec: ValueSpec, value: Value, sizes: dict[str, tuple[int, str]]) -> None:
    """Raises OnnxError for an input whose dtype or shape differs from the declaration.

    `sizes` maps each named size to its value and the first input that has it.
    """
    dtype, shape = dtype_and_shape(value)
    if spec.dtype is not None and dtype is not spec.dtype:
        raise OnnxError(
            f"input {spec.name!r} is {described(value)}, and the model takes {shown(spec)}; "
            f"cast it first: x.cast({str(spec.dtype)!r})".replace("'dtypes.", "'")
        )
    if spec.shape is None:
        return
    fits = len(shape) == len(spec.shape)
    for size, wanted in zip(shape, spec.shape):
        if isinstance(wanted, int):
            fits = fits and size == wanted
        elif wanted:
            known, name = sizes.setdefault(wanted, (size, spec.name))
            if known != size:
                raise OnnxError(
                    f"inputs {name!r} and {spec.name!r} have sizes {known} and {size} for "
                    f"{wanted!r}, which must be equal: {spec.name!r} is {shape}"
                )
    if not fits:
        raise OnnxError(f"input {spec.name!r} has shape {shape}, and the model takes {shown(spec)}")


def dtype_and_shape(value: Value) -> tuple[DType, tuple[Any, ...]]:
    if isinstance(value, HostValue):
        return from_numpy_dtype(value.array.dtype), value.array.shape
    return value.dtype, value.shape


def shown(spec: ValueSpec) -> str:
    """An input for messages: its name, dtype and shape."""
    shape = "any shape"
    if spec.shape is not None:
        shape = f"({', '.join(str(size or '?') for size in spec.shape)})"
    return f"{spec.name}: {spec.dtype or 'any dtype'} {shape}"
