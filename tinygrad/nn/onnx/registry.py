"""The operator registry, and the binding of a node's inputs and attributes to parameters.

An operator is a function whose signature is that of the operator in the specification. Inputs are
positional parameters: `Tensor` for data, `Array` for values that determine the graph, `Value` for
either, `SequenceValue` for a sequence and `AnyValue` for all of these, with `| None` if optional.
Attributes are keywords with their names and defaults; one that a later opset made an input is bound
by name. Three keywords are not attributes: `device` is the device of new tensors, `output_count`
how many outputs the node has, and `run_graph` runs a graph that is an attribute.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.graph import Graph, GraphNode
from tinygrad.nn.onnx.values import (
    AnyValue,
    Array,
    HostValue,
    SequenceValue,
    Value,
    as_array,
    checked_tensor,
    described,
)
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
Key = tuple[str, str]

CONTEXT = frozenset({"device", "output_count", "run_graph"})
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class CallContext:
    """The context of an operator: the model that it runs in."""

    device: DeviceLike
    run_graph: Callable[[Graph, Sequence[AnyValue]], list[AnyValue]]


@dataclass(frozen=True)
class Parameter:
    """An input: `kind` is `Tensor`, `Array`, `Value`, `SequenceValue` or `AnyValue`."""

    name: str
    kind: Any
    required: bool

    def convert(self, value: AnyValue | None, call: CallContext) -> Any:
        """A value as the function takes it. Raises OnnxError for a value of another kind."""
        if value is None or self.kind is AnyValue:
            return value
        if self.kind is SequenceValue:
            if not isinstance(value, SequenceValue):
                raise OnnxError(f"input {self.name} is {described(value)}, and must be a sequence")
            return value
        value = checked_tensor(value, f"input {self.name}")
        if self.kind is Value:
            return value
        if self.kind is Array:
            return as_array(value, f"input {self.name}")
        return value.tensor(call.device) if isinstance(value, HostValue) else value


@dataclass(frozen=True)
class Operator:
    """A function and its parsed signature."""

    function: Function
    inputs: tuple[Parameter, ...]
    variadic: Parameter | None
    attributes: dict[str, Any]
    required_attributes: frozenset[str]
    context: frozenset[str]

    def call(self, node: GraphNode, values: list[AnyValue | None], call: CallContext) -> list[Any]:
        """The outputs for a node. Raises OnnxError for unknown inputs and attributes."""
        attributes = dict(node.attributes)
        args = self._bind_inputs(values, attributes, call)
        for name, value in attributes.items():
            self._check_attribute(name, value)
        missing = self.required_attributes - attributes.keys()
        if missing:
            raise OnnxError(f"attribute {', '.join(sorted(missing))} is missing")
        keywords = {
            name: value.array if isinstance(value, HostValue) else value
            for name, value in attributes.items()
        }
        offered = {
            "device": call.device,
            "output_count": len(node.outputs),
            "run_graph": call.run_graph,
        }
        keywords |= {name: offered[name] for name in self.context}
        result = self.function(*args, **keywords)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    def _bind_inputs(
        self,
        values: list[AnyValue | None],
        attributes: dict[str, Any],
        call: CallContext,
    ) -> list[Any]:
        """The positional arguments; takes the attributes that have become inputs."""
        while values and values[-1] is None:
            values = values[:-1]
        if len(values) > len(self.inputs) and self.variadic is None:
            raise OnnxError(f"it has {len(values)} inputs and takes {len(self.inputs)}")
        args = []
        for number, parameter in enumerate(self.inputs):
            value = values[number] if number < len(values) else None
            if value is None and parameter.name in attributes:
                value = HostValue(np.asarray(attributes.pop(parameter.name)))
            if value is None and parameter.required:
                raise OnnxError(f"input {number}, {parameter.name}, is missing")
            args.append(parameter.convert(value, call))
        if self.variadic is not None:
            rest = values[len(self.inputs) :]
            args += [self.variadic.convert(value, call) for value in rest]
        return args

    def _check_attribute(self, name: str, value: Any) -> None:
        """Raises OnnxError for an unknown attribute, or one of another type."""
        if name not in self.attributes:
            there = ", ".join(self.attributes) or "none"
            raise OnnxError(f"it has no attribute {name!r}; there are: {there}")
        wanted = self.attributes[name]
        given = value.array if isinstance(value, HostValue) else value
        if not isinstance(given, wanted):
            raise OnnxError(f"attribute {name} is {given!r}, not of type {wanted.__name__}")


OPERATORS: dict[Key, Operator] = {}
# operators that numpy computes while the graph is built, if all inputs are on the host
HOST_OPERATORS: dict[Key, Operator] = {}


def operator(*names: str, domain: str = "") -> Callable[[F], F]:
    """Register a function as the operators of these names."""
    return lambda function: registered(OPERATORS, names, domain, function)


def host_operator(*names: str) -> Callable[[F], F]:
    """Register a function of arrays, which may return NotImplemented if a result is too large."""
    return lambda function: registered(HOST_OPERATORS, names, "", function)


def registered(table: dict[Key, Operator], names: tuple[str, ...], domain: str, function: F) -> F:
    """Add a function to a table, and return it."""
    for name in names:
        assert (domain, name) not in table, f"{name} is there twice"
        table[domain, name] = read_signature(function)
    return function


def read_signature(function: Function) -> Operator:
    """An operator from the parameters of a function and their annotations."""
    hints = typing.get_type_hints(function)
    inputs: list[Parameter] = []
    variadic = None
    attributes: dict[str, Any] = {}
    required: set[str] = set()
    context: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        name, has_default = parameter.name, parameter.default is not parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            variadic = Parameter(name, kind_of(hints[name]), False)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            optional = type(None) in typing.get_args(hints[name])
            inputs.append(Parameter(name, kind_of(hints[name]), not optional))
        elif name in CONTEXT:
            context.add(name)
        else:
            attributes[name] = attribute_type(hints[name])
            required |= set() if has_default else {name}
    return Operator(
        function, tuple(inputs), variadic, attributes, frozenset(required), frozenset(context)
    )


def kind_of(hint: Any) -> Any:
    """`Tensor`, `Array`, `Value`, `SequenceValue` or `AnyValue`, with or without None."""
    parts = [part for part in typing.get_args(hint) or (hint,) if part is not type(None)]
    if SequenceValue in parts:
        return AnyValue if Tensor in parts else SequenceValue
    if Tensor in parts:
        return Value if HostValue in parts else Tensor
    return Array


def attribute_type(hint: Any) -> Any:
    """The class of an attribute's value, from its annotation."""
    if hint is float | None or hint is float:
        return float
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    plain = hint if typing.get_origin(hint) not in (typing.Union, type(int | None)) else parts[0]
    return typing.get_origin(plain) or plain
