"""Compares a tensor function, and its gradients, with the same function in torch.

Each result is checked twice: as the reference interpreter of graphs reads it, and as the default
device computes it. So a failure says whether the graph is wrong, or how it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from test.reference import evaluate
from tinygrad import Tensor

torch = pytest.importorskip("torch")
random = np.random.default_rng(0)

Array = np.ndarray[Any, Any]


def arrays(shapes: Sequence[tuple[int, ...]], low: float = -2.0, high: float = 2.0) -> list[Array]:
    """Float32 arrays of these shapes, uniform in [low, high)."""
    return [random.uniform(low, high, shape).astype(np.float32) for shape in shapes]


def assert_close(found: Array, expected: Array, rtol: float, atol: float, what: str) -> None:
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


def results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def compare(
    inputs: Sequence[Array],
    expected: Callable[..., Any],
    function: Callable[..., Any],
    *,
    gradient: bool = True,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    gradient_rtol: float = 1e-4,
    gradient_atol: float = 1e-5,
) -> None:
    """`function` of tensors gives what `expected` of torch tensors gives, and so do the gradients
    of the sum of the first result times fixed weights."""
    wanted = [gradient and x.dtype.kind == "f" for x in inputs]
    sources = [torch.tensor(x, requires_grad=w) for x, w in zip(inputs, wanted, strict=True)]
    tensors = [Tensor(x, requires_grad=w) for x, w in zip(inputs, wanted, strict=True)]
    theirs, ours = results(expected(*sources)), results(function(*tensors))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        target = other.detach().numpy()
        assert_close(evaluate(mine.uop), target, rtol, atol, "in the reference")
    if any(wanted):
        weights = random.uniform(-1, 1, ours[0].shape).astype(np.float32)
        (theirs[0] * torch.tensor(weights)).sum().backward()
        (ours[0] * Tensor(weights)).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine.numpy(), other.detach().numpy(), rtol, atol, "on the device")
    for number, (tensor, source) in enumerate(zip(tensors, sources, strict=True)):
        if not source.requires_grad:
            continue
        target = np.zeros(source.shape, np.float32)
        target = target if source.grad is None else source.grad.numpy()
        found = tensor.zeros_like() if tensor.grad is None else tensor.grad
        what = f"gradient of input {number}"
        assert_close(
            evaluate(found.uop), target, gradient_rtol, gradient_atol, f"{what}, reference"
        )
        assert_close(found.numpy(), target, gradient_rtol, gradient_atol, what)
