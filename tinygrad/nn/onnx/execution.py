"""Run the nodes of a graph in order.

Input: values for a graph's inputs. Output: values of its outputs: lazy tensors and host arrays. A
node whose inputs are all on the host is computed on the host if possible.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence

from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.graph import Graph, GraphNode
from tinygrad.nn.onnx.operators import HOST_OPERATORS, OPERATORS
from tinygrad.nn.onnx.registry import CallContext
from tinygrad.nn.onnx.values import (
    AnyValue,
    EmptyOptional,
    HostValue,
    SequenceValue,
    as_value,
    described,
)
from tinygrad.uop.device_value import DeviceLike


def check_operators(graph: Graph) -> None:
    """Raises OnnxUnsupportedError that lists all nodes for which there is no operator."""
    unknown: dict[str, list[str]] = {}
    for part in graph.subgraphs():
        for node in part.nodes:
            if (node.domain, node.op) not in OPERATORS:
                operator = f"{node.domain}.{node.op}" if node.domain else node.op
                unknown.setdefault(operator, []).append(node.name or ", ".join(node.outputs))
    if unknown:
        listed = "; ".join(
            f"{operator} ({len(nodes)}: {', '.join(map(repr, nodes[:3]))})"
            for operator, nodes in unknown.items()
        )
        raise OnnxUnsupportedError(
            f"the model uses operators that are not there: {listed}. "
            "Export it with others, or register them with tinygrad.nn.onnx.registry.operator"
        )


class Execution:
    """Runs graphs on one device."""

    def __init__(self, device: DeviceLike) -> None:
        self.device = device

    def run(
        self,
        graph: Graph,
        given: Mapping[str, AnyValue],
        outer: ChainMap[str, AnyValue] | None = None,
    ) -> list[AnyValue]:
        """The outputs of a graph, from its inputs by name and the values of enclosing graphs."""
        around = ChainMap[str, AnyValue]() if outer is None else outer
        values = ChainMap[str, AnyValue]({**given}, {**graph.initializers}, *around.maps)
        for node in graph.nodes:
            inputs = [values[name] if name else None for name in node.inputs]
            for name, value in zip(node.outputs, self.run_node(node, inputs, values)):
                if name:
                    values[name] = value
        return [values[spec.name] for spec in graph.outputs]

    def run_node(
        self, node: GraphNode, inputs: list[AnyValue | None], values: ChainMap[str, AnyValue]
    ) -> list[AnyValue]:
        """The outputs of a node. Raises OnnxError, with the node and its inputs, if it fails."""

        def run_graph(graph: Graph, args: Sequence[AnyValue]) -> list[AnyValue]:
            names = [spec.name for spec in graph.inputs]
            if len(args) != len(names):
                raise OnnxError(f"graph {graph.name!r} takes {len(names)} inputs, not {len(args)}")
            return self.run(graph, dict(zip(names, args)), values)

        call = CallContext(self.device, run_graph)
        try:
            results = self.results(node, inputs, call)
        except OnnxUnsupportedError as error:
            raise OnnxUnsupportedError(failure(node, inputs, error)) from error
        except (
            ValueError,
            TypeError,
            RuntimeError,
            LookupError,
            ArithmeticError,
            MemoryError,
        ) as error:
            raise OnnxError(failure(node, inputs, error)) from error
        wanted = max((i + 1 for i, name in enumerate(node.outputs) if name), default=0)
        if len(results) < wanted:
            raise OnnxUnsupportedError(
                failure(
                    node,
                    inputs,
                    f"{wanted} outputs are asked for, and there are only {len(results)}",
                )
            )
        return results

    def results(
        self, node: GraphNode, inputs: list[AnyValue | None], call: CallContext
    ) -> list[AnyValue]:
        """The results of the operator: computed on the host if all inputs are there and it supports
        that.
        """
        key = (node.domain, node.op)
        on_host = all(value is None or isinstance(value, HostValue) for value in inputs)
        if on_host and key in HOST_OPERATORS:
            found = HOST_OPERATORS[key].call(node, inputs, call)
            if found[0] is not NotImplemented:
                return [as_value(result, self.device) for result in found]
        found = OPERATORS[key].call(node, inputs, call)
        return [
            value
            if isinstance(value, (HostValue, SequenceValue, EmptyOptional))
            else as_value(value, self.device)
            for value in found
        ]


def failure(node: GraphNode, inputs: list[AnyValue | None], error: object) -> str:
    """A message with the node and its inputs."""
    given = ", ".join(
        f"{name or '(none)'}: {described(value)}" for name, value in zip(node.inputs, inputs)
    )
    return f"{node}: {error} (inputs: {given or 'none'})"
