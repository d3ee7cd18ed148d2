"""The graph of a function with its tensors in given layouts.

Input: a function, its inputs, and a BUFFER for each tensor. Output: the optimized graph of its
results. Invariant: the graph is the one that is planned where these tensors are in memory so, and
the results are realized; nothing is computed or allocated, and all tensors are restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tinygrad.nn.state import get_parameters
from tinygrad.planner.optimizers import follow_parameters, optimizers_in, without
from tinygrad.schedule.pipeline import optimize_communication
from tinygrad.storage.random_generator import random_generator
from tinygrad.storage.realization import computed_graph
from tinygrad.tensor import Tensor
from tinygrad.uop.known_orders import orders_kept
from tinygrad.uop.ops import UOp

Function = Callable[..., Any]


def trial_graph(
    function: Function, inputs: Mapping[str, Any], memory: Sequence[tuple[Tensor, UOp]]
) -> UOp:
    """The graph of all tensors that `function(**inputs)` returns, with tensors in `memory`.

    Raises TypeError if it returns none.
    """
    present = set(map(id, get_parameters(dict(inputs))))
    wanted = [(x, node) for x, node in memory if id(x) in present]
    optimizers = optimizers_in(inputs).values()
    with _laid_out(wanted), random_generator.unchanged(), without(optimizers, ()):
        follow_parameters(optimizers)
        results = get_parameters(function(**inputs))
        if not results:
            raise TypeError(
                "plan: the function returned no tensor; let it return all that a step computes, "
                "such as the loss and the gradients"
            )
        with orders_kept():
            return optimize_communication(computed_graph(results))


@contextmanager
def _laid_out(wanted: Sequence[tuple[Tensor, UOp]]) -> Iterator[None]:
    """In the block, tensors are new BUFFERs without gradients and views. What the block writes to
    them is lost.
    """
    before = [(x.uop, x.grad, x._cell, x._steps) for x, _ in wanted]
    try:
        for x, node in wanted:
            x._refer_to(node)
            x.grad = None
        yield
    finally:
        for (x, _), (node, gradient, cell, steps) in zip(wanted, before, strict=True):
            x._refer_to(node)
            x.grad, x._cell, x._steps = gradient, cell, steps
