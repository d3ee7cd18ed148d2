"""Compares a tensor function, and its gradients, with the same function in numpy.

The oracle computes in float64, and its gradients are central differences, so it knows nothing of
how the library differentiates. Each result is checked twice: as the numpy evaluator of tensor
graphs computes it, and as the default device does. So a failure says whether the graph or its
execution is wrong. Results of torch are compared too where it is installed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from test.evaluator.tensor_graph import evaluate
from tinygrad import Tensor

torch: Any
try:
    import torch
except ImportError:
    torch = None

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

# inputs at which functions differ that agree elsewhere
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 1e30, -1e30, 90.0, -90.0, np.inf, -np.inf, np.nan],
    dtype=np.float32,
)
WITH_NAN = np.array(
    [
        [3, np.nan, 1, 2],
        [np.nan, np.nan, -1, np.inf],
        [-np.inf, 5, 5, np.nan],
        [np.inf, -np.inf, 0, 1],
    ],
    dtype=np.float32,
)

# the number of randomly selected elements of an input whose gradient is compared
MAX_DIFFERENCES = 24
STEP = 1e-6
# second differences need a larger step, since they divide by its square
SECOND_STEP = 1e-4


def arrays(
    shapes: Sequence[tuple[int, ...]], low: float = -2.0, high: float = 2.0, seed: int = 0
) -> list[Array]:
    """Uniform float32 arrays of these shapes in [low, high), the same at each call."""
    random = np.random.default_rng(seed)
    return [random.uniform(low, high, shape).astype(np.float32) for shape in shapes]


def assert_close(found: Array, expected: Array, rtol: float, atol: float, what: str) -> None:
    """Checks shapes, and values within tolerances; equal infinities and NaNs are close."""
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


def results(value: Any) -> list[Any]:
    """One result, or several, as a list."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def is_float(x: Array) -> bool:
    """Whether an input can have a gradient."""
    return x.dtype.kind == "f"


def compare(
    inputs: Sequence[Array],
    expected: Function,
    function: Function,
    theirs: Function | str | None = None,
    *,
    gradient: bool = True,
    second: bool = False,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    gradient_rtol: float = 1e-4,
    gradient_atol: float = 1e-5,
) -> None:
    """Asserts that `function` of tensors equals `expected` of numpy arrays.

    Compares the gradients of the weighted sum of the first result too, and with `second` the
    gradients of these. `theirs` is the same function in torch, or its name there.
    """
    exact = [x.astype(np.float64) if is_float(x) else x for x in inputs]
    tensors = [Tensor(x, requires_grad=gradient and is_float(x)) for x in inputs]
    with np.errstate(all="ignore"):
        wanted = [np.asarray(x) for x in results(expected(*exact))]
    ours = results(function(*tensors))
    sources = [x for x in tensors if x.requires_grad]
    if sources:
        weights = arrays([wanted[0].shape], -1, 1, seed=1)[0]
        check = _Gradients(expected, exact, weights)
        # gradients are taken before realizing: realized tensors have no graph
        parts = (ours[0] * Tensor(weights)).sum().gradient(*sources, materialize_grads=True)
        if second:
            check.second(parts, sources)
        check.first(parts, gradient_rtol, gradient_atol)
    _compare_values(ours, [_rounded(x) for x in wanted], rtol, atol)
    if theirs is not None:
        compare_with_torch(
            inputs,
            theirs,
            function,
            gradient=gradient,
            rtol=rtol,
            atol=atol,
            gradient_rtol=gradient_rtol,
            gradient_atol=gradient_atol,
        )


def _rounded(x: Array) -> Array:
    """The exact value rounded to float32; large values become infinite."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32) if is_float(x) else x


def _compare_values(ours: list[Tensor], wanted: list[Array], rtol: float, atol: float) -> None:
    assert len(ours) == len(wanted)
    for mine, target in zip(ours, wanted, strict=True):
        assert_close(evaluate(mine.uop), target, rtol, atol, "in the evaluator")
    Tensor.realize(*ours)
    for mine, target in zip(ours, wanted, strict=True):
        assert_close(mine.numpy(), target, rtol, atol, "on the device")


class _Gradients:
    """Derivatives of the weighted sum of `function` of `inputs`, by central differences."""

    def __init__(self, function: Function, inputs: list[Array], weights: Array) -> None:
        self.function, self.inputs, self.weights = function, inputs, weights
        self.random = np.random.default_rng(2)
        self.floats = [i for i, x in enumerate(inputs) if is_float(x)]
        self.directions = [self.random.uniform(-1, 1, inputs[i].shape) for i in self.floats]

    def _difference(self, changes: list[tuple[Array, ...]]) -> float:
        """The weighted sum with the first change of the inputs, minus that with the second."""
        values = []
        for change in changes:
            moved = list(self.inputs)
            for i, part in zip(self.floats, change, strict=True):
                moved[i] = moved[i] + part
            with np.errstate(all="ignore"):
                values.append(results(self.function(*moved))[0])
        return float(((values[0] - values[1]) * self.weights).sum())

    def _steps(self, number: int, place: Any, step: float) -> tuple[Array, ...]:
        """A step at one element of one float input."""
        steps = tuple(np.zeros(self.inputs[i].shape) for i in self.floats)
        steps[number][place] = step
        return steps

    def _places(self, number: int) -> list[Any]:
        shape = self.inputs[self.floats[number]].shape
        every = list(np.ndindex(*shape))
        if len(every) <= MAX_DIFFERENCES:
            return every
        return [every[i] for i in self.random.choice(len(every), MAX_DIFFERENCES, replace=False)]

    def first(self, parts: Sequence[Tensor], rtol: float, atol: float) -> None:
        """Checks `parts`, the gradient of each float input."""
        evaluated = [evaluate(part.uop) for part in parts]
        Tensor.realize(*parts)
        for number, part in enumerate(parts):
            what = f"gradient of input {self.floats[number]}"
            assert part.shape == self.inputs[self.floats[number]].shape, what
            places = self._places(number)
            steps = [self._steps(number, place, STEP) for place in places]
            wanted = [
                self._difference([step, tuple(-x for x in step)]) / (2 * STEP) for step in steps
            ]
            for found, how in ((evaluated[number], "evaluator"), (part.numpy(), "device")):
                selected = np.array([found[place] for place in places])
                assert_close(selected, np.array(wanted), rtol, atol, f"{what}, {how}")

    def _slope(self, change: tuple[Array, ...]) -> float:
        """The derivative along `directions` at changed inputs."""
        forward = tuple(c + SECOND_STEP * d for c, d in zip(change, self.directions, strict=True))
        backward = tuple(c - SECOND_STEP * d for c, d in zip(change, self.directions, strict=True))
        return self._difference([forward, backward]) / (2 * SECOND_STEP)

    def second(self, parts: Sequence[Tensor], sources: list[Tensor]) -> None:
        """Checks `parts`, the gradients of the derivative along `directions`."""
        slope = Tensor(0.0)
        for part, direction in zip(parts, self.directions, strict=True):
            slope = slope + (part * Tensor(direction.astype(np.float32))).sum()
        found = slope.gradient(*sources, materialize_grads=True)
        Tensor.realize(*found)
        for number, part in enumerate(found):
            places = self._places(number)
            steps = [self._steps(number, place, SECOND_STEP) for place in places]
            wanted = [
                (self._slope(step) - self._slope(tuple(-x for x in step))) / (2 * SECOND_STEP)
                for step in steps
            ]
            values = part.numpy()
            selected = np.array([values[place] for place in places])
            what = f"second gradient of input {self.floats[number]}"
            assert_close(selected, np.array(wanted), 1e-3, 1e-3, what)


# ---- torch ----


def in_torch(name: str) -> Function:
    """The function of that name: in torch, else in torch.nn.functional, else of torch.Tensor."""
    for place in (torch, torch.nn.functional, torch.Tensor):
        if hasattr(place, name):
            found: Function = getattr(place, name)
            return found
    return functools.reduce(getattr, name.split("."), torch)


def compare_with_torch(
    inputs: Sequence[Array],
    theirs: Function | str,
    function: Function,
    *,
    gradient: bool = True,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    gradient_rtol: float = 1e-4,
    gradient_atol: float = 1e-5,
) -> None:
    """Asserts that `function` of tensors and its gradients equal `theirs` of torch tensors.

    Compares nothing if torch is not installed.
    """
    if torch is None:
        return
    wanted = [gradient and is_float(x) for x in inputs]
    sources = [torch.tensor(x, requires_grad=w) for x, w in zip(inputs, wanted, strict=True)]
    tensors = [Tensor(x, requires_grad=w) for x, w in zip(inputs, wanted, strict=True)]
    other = results((in_torch(theirs) if isinstance(theirs, str) else theirs)(*sources))
    ours = results(function(*tensors))
    if any(wanted):
        weights = arrays([ours[0].shape], -1, 1, seed=1)[0]
        (other[0] * torch.tensor(weights)).sum().backward()
        (ours[0] * Tensor(weights)).sum().backward()
    _compare_values(ours, [x.detach().numpy() for x in other], rtol, atol)
    for number, (tensor, source) in enumerate(zip(tensors, sources, strict=True)):
        if not source.requires_grad:
            continue
        target = np.zeros(source.shape, np.float32) if source.grad is None else source.grad.numpy()
        found = tensor.zeros_like() if tensor.grad is None else tensor.grad
        what = f"gradient of input {number}, as in torch"
        assert_close(found.numpy(), target, gradient_rtol, gradient_atol, what)
