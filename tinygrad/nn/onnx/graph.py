"""A parsed model: checked records, independent of protobuf types.

Input: a `ModelProto`. Output: a `Graph` in topological order: every name is defined once, and
before its uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad.dtype import DType
from tinygrad.nn.onnx.element_types import PACKED, dtype_of
from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.initializers import load_tensor
from tinygrad.nn.onnx.values import HostValue, Value

OLDEST_OPSET = 13


@dataclass(frozen=True)
class ValueSpec:
    """The declaration of an input or output: `dtype` and `shape` are None if unspecified; those of
    a sequence are of its elements.

    A size is a number or the name of one, "" for one without a name; equal names are equal sizes.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: DType | None
    is_sequence: bool = False
    is_optional: bool = False


@dataclass(frozen=True)
class GraphNode:
    """One operator of a graph. A name of "" is an omitted input or output."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        operator = f"{self.domain}.{self.op}" if self.domain else self.op
        known_by = f" {self.name!r}" if self.name else ""
        return f"{operator}{known_by} -> {', '.join(self.outputs)}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order, inputs, outputs, and stored tensors.

    It has slots, so that `nn.state` does not traverse it: stored tensors are state of the runner.
    """

    name: str
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    nodes: tuple[GraphNode, ...]
    initializers: dict[str, Value]

    def subgraphs(self) -> Iterator[Graph]:
        """This graph and all nested graphs."""
        yield self
        for node in self.nodes:
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    yield from value.subgraphs()


def read_opsets(proto: Any) -> dict[str, int]:
    """The version of each domain's operators. Raises OnnxError for one that is missing or old."""
    opsets = {plain_domain(entry.domain): int(entry.version) for entry in proto.opset_import}
    version = opsets.get("")
    if version is None and not any(plain_domain(node.domain) for node in proto.graph.node):
        raise OnnxError("the model does not say which opset its operators are of (opset_import)")
    if version is not None and version < OLDEST_OPSET:
        raise OnnxUnsupportedError(
            f"the model is of opset {version}, and {OLDEST_OPSET} is the oldest that runs; convert "
            f"it first: onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        )
    return opsets


def text(name: str | bytes) -> str:
    """A name. Raises OnnxError for bytes, which protobuf gives for invalid UTF-8."""
    if isinstance(name, bytes):
        raise OnnxError(f"the name {name!r} is not UTF-8 text: the file is damaged")
    return name


def plain_domain(domain: str) -> str:
    """The domain, "" for the one of ONNX itself, which has two names."""
    return "" if domain == "ai.onnx" else domain


def read_graph(proto: Any, folder: Path | None, outer: frozenset[str] = frozenset()) -> Graph:
    """The graph of a `GraphProto`, in which the names in `outer` are defined.

    Raises OnnxError if a name is undefined or defined twice, or nodes are out of order.
    """
    if len(proto.sparse_initializer):
        raise OnnxUnsupportedError(f"graph {proto.name!r} has sparse initializers; make them dense")
    initializers: dict[str, Value] = {}
    for tensor in proto.initializer:
        if tensor.name in initializers:
            raise OnnxError(f"graph {proto.name!r} has two initializers {tensor.name!r}")
        initializers[text(tensor.name)] = load_tensor(tensor, folder)
    inputs = tuple(read_spec(value) for value in proto.input)
    names = [spec.name for spec in inputs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise OnnxError(f"graph {proto.name!r} has two inputs of the name {', '.join(twice)}")
    known = set(outer) | set(names) | set(initializers)
    made_by = {name: node for node in proto.node for name in node.output}
    packed = {tensor.name for tensor in proto.initializer if tensor.data_type in PACKED}
    nodes = []
    for node_proto in proto.node:
        node = read_node(node_proto, folder, known, made_by)
        if not packed.isdisjoint(node.inputs) and node.op != "DequantizeLinear":
            raise OnnxUnsupportedError(f"{node}: integers of 4 bits can only be dequantized")
        if node.op == "Constant" and not node.domain:
            initializers[node.outputs[0]] = constant(node)
        else:
            nodes.append(node)
        known |= set(node.outputs)
    outputs = tuple(read_spec(value) for value in proto.output)
    for spec in outputs:
        if spec.name not in known:
            raise OnnxError(f"no node makes {spec.name!r}, an output of graph {proto.name!r}")
    return Graph(proto.name, inputs, outputs, tuple(nodes), initializers)


def read_spec(proto: Any) -> ValueSpec:
    """The name, shape and dtype of a `ValueInfoProto`."""
    return read_type(proto.type, text(proto.name), f"{proto.name!r}, an input or output")


def read_type(kind: Any, name: str, where: str) -> ValueSpec:
    """The declaration of a value by its `TypeProto`."""
    is_optional = kind.HasField("optional_type")
    kind = kind.optional_type.elem_type if is_optional else kind
    is_sequence = kind.HasField("sequence_type")
    kind = kind.sequence_type.elem_type if is_sequence else kind
    if any(kind.HasField(f"{other}_type") for other in ("sequence", "map", "optional")):
        raise OnnxUnsupportedError(
            f"{where}, is a map, or nests sequences; there are tensors and sequences of tensors"
        )
    tensor = kind.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            int(dim.dim_value) if dim.HasField("dim_value") else str(dim.dim_param)
            for dim in tensor.shape.dim
        )
    # 0 is unspecified
    dtype = dtype_of(tensor.elem_type, where) if tensor.elem_type else None
    return ValueSpec(name, shape, dtype, is_sequence, is_optional)


def read_node(
    proto: Any, folder: Path | None, known: set[str], made_by: dict[str, Any]
) -> GraphNode:
    """The record of a `NodeProto` that may use the names in `known`."""
    inputs, outputs = (tuple(map(text, names)) for names in (proto.input, proto.output))
    domain = plain_domain(text(proto.domain))
    bare = GraphNode(text(proto.op_type), domain, text(proto.name), inputs, outputs)
    for name in bare.inputs:
        if not name or name in known:
            continue
        if name in made_by:
            raise OnnxError(
                f"{bare}: its input {name!r} is made by a later node, {made_by[name].op_type} "
                f"{made_by[name].name!r}: nodes are not in order, or feed each other in a circle"
            )
        raise OnnxError(f"{bare}: nothing gives its input {name!r} a value")
    for name in outputs:
        if name and (name in known or outputs.count(name) > 1):
            raise OnnxError(f"{bare}: the name {name!r} is given a second value")
    attributes: dict[str, Any] = {}
    for attribute in proto.attribute:
        if attribute.name in attributes:
            raise OnnxError(f"{bare}: it has two attributes {attribute.name!r}")
        attributes[attribute.name] = read_attribute(attribute, bare, folder, frozenset(known))
    return GraphNode(bare.op, bare.domain, bare.name, bare.inputs, outputs, attributes)


def read_attribute(proto: Any, node: GraphNode, folder: Path | None, known: frozenset[str]) -> Any:
    """An attribute as a Python number, str, tuple, `Value`, `Graph` or `ValueSpec`."""
    # the numbers of AttributeProto.AttributeType
    kind = proto.type
    if kind == 1:
        return float(proto.f)
    if kind == 2:
        return int(proto.i)
    if kind == 3:
        return proto.s.decode("utf-8", "replace")
    if kind == 4:
        dtype_of(proto.t.data_type, f"{node}: attribute {proto.name!r}")
        return load_tensor(proto.t, folder)
    if kind == 5:
        return read_graph(proto.g, folder, known)
    if kind == 6:
        return tuple(float(x) for x in proto.floats)
    if kind == 7:
        return tuple(int(x) for x in proto.ints)
    if kind == 8:
        return tuple(x.decode("utf-8", "replace") for x in proto.strings)
    if kind == 13:
        return read_type(proto.tp, "", f"{node}: attribute {proto.name!r}")
    raise OnnxUnsupportedError(
        f"{node}: attribute {proto.name!r} is of type number {kind}; there are numbers, strings, "
        "tensors, graphs, types, and lists of numbers and strings"
    )


def constant(node: GraphNode) -> Value:
    """The value of a Constant node, which is one attribute."""
    if len(node.outputs) != 1 or len(node.attributes) != 1:
        raise OnnxError(f"{node}: a Constant has one output and one attribute")
    ((name, value),) = node.attributes.items()
    if name == "value" and not isinstance(value, (float, int, str, tuple, Graph, ValueSpec)):
        tensor: Value = value
        return tensor
    if name in ("value_int", "value_ints"):
        return HostValue(np.array(value, np.int64))
    if name in ("value_float", "value_floats"):
        return HostValue(np.array(value, np.float32))
    raise OnnxUnsupportedError(f"{node}: a constant given by {name!r} is not a tensor of numbers")
