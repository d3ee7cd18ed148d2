"""Random chains of movement ops against numpy: values, and gradients, which are adjoints."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.backend.ops.oracle import arrays, compare
from test.backend.schedule.kernel_counts import Array
from tinygrad import Tensor

Step: TypeAlias = tuple[str, Any]
MAX_ELEMENTS = 600
START = (2, 3, 4)
# fmt: off
NAMES = (
    "reshape", "permute", "flip", "expand", "shrink", "pad", "slice", "repeat", "roll", "cat",
    "unsqueeze", "arithmetic", "interleave", "unfold", "border",
)
# fmt: on


@st.composite
def factorings(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    sizes: list[int] = []
    while count > 1 and len(sizes) < 3:
        size = draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
        sizes.append(size)
        count //= size
    return (*sizes, count)


@st.composite
def steps(draw: st.DrawFn, shape: tuple[int, ...]) -> Step:
    rank, count = len(shape), math.prod(shape)
    name = draw(st.sampled_from(NAMES))
    axis = draw(st.integers(0, max(rank - 1, 0)))
    if name == "reshape":
        return name, draw(factorings(count)) if count else shape
    if name == "permute":
        return name, tuple(draw(st.permutations(range(rank))))
    if name == "flip":
        return name, tuple(i for i in range(rank) if draw(st.booleans()))
    if name == "shrink":
        bounds = [sorted(draw(st.tuples(*[st.integers(0, s)] * 2))) for s in shape]
        return name, tuple((start, end) for start, end in bounds)
    if name == "pad":
        return name, tuple(draw(st.tuples(*[st.integers(-(s // 2), 2)] * 2)) for s in shape)
    if name == "slice":
        step = st.sampled_from([1, 2, 3, -1, -2])
        return name, tuple(slice(None, None, draw(step)) for _ in shape)
    if name in {"unsqueeze", "expand"}:
        return name, (draw(st.integers(0, rank)), draw(st.integers(1, 3)))
    if name == "unfold" and rank and shape[axis]:
        return name, (axis, draw(st.integers(1, shape[axis])), draw(st.integers(1, 3)))
    if name == "border" and rank and shape[axis] > 1:
        return name, (axis, draw(st.sampled_from(["reflect", "replicate", "circular"])))
    return name, (axis, draw(st.integers(-4, 4)))


def in_numpy(x: Array, step: Step) -> Array:
    """Applies a step in numpy; a step that does not fit changes nothing."""
    name, arg = step
    if name == "reshape":
        return x.reshape(arg)
    if name == "permute":
        return x.transpose(arg)
    if name == "flip":
        return np.flip(x, arg)
    if name == "shrink":
        return x[tuple(slice(*b) for b in arg)]
    if name == "pad":
        kept = [slice(max(-a, 0), s - max(-b, 0)) for s, (a, b) in zip(x.shape, arg, strict=True)]
        return np.pad(x[tuple(kept)], [(max(a, 0), max(b, 0)) for a, b in arg])
    if name == "slice":
        return x[arg]
    if name == "unsqueeze":
        return np.expand_dims(x, arg[0])
    if name == "expand":
        return np.repeat(np.expand_dims(x, arg[0]), arg[1], axis=arg[0])
    if name == "arithmetic":
        return x * 2 - np.flip(x, 0) if x.ndim else x * 2
    if x.ndim == 0:
        return x
    axis, number = arg[:2]
    if name == "repeat":
        return np.tile(x, [2 if i == axis else 1 for i in range(x.ndim)])
    if name == "roll":
        return np.roll(x, number, axis)
    if name == "cat":
        return np.concatenate([x, np.flip(x, axis)], axis)
    if name == "interleave":
        return np.repeat(x, 2, axis)
    if name == "unfold" and len(arg) == 3:
        windows = np.lib.stride_tricks.sliding_window_view(x, number, axis)
        return windows[tuple(slice(None, None, arg[2] if i == axis else 1) for i in range(x.ndim))]
    if name == "border" and isinstance(number, str):
        mode: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[number]
        return np.pad(x, [(1, 1) if i == axis else (0, 0) for i in range(x.ndim)], mode=mode)
    return x


def in_tinygrad(x: Tensor, step: Step) -> Tensor:
    name, arg = step
    if name in {"reshape", "permute", "flip"}:
        return getattr(x, name)(arg)  # type: ignore[no-any-return]
    if name in {"shrink", "pad"}:
        return x.shrink(arg) if name == "shrink" else x.pad(arg)
    if name == "slice":
        return x[arg]
    if name == "unsqueeze":
        return x.unsqueeze(arg[0])
    if name == "expand":
        wide = x.unsqueeze(arg[0])
        return wide.expand(tuple(arg[1] if i == arg[0] else -1 for i in range(wide.ndim)))
    if name == "arithmetic":
        return x * 2 - x.flip(0) if x.ndim else x * 2
    if x.ndim == 0:
        return x
    axis, number = arg[:2]
    if name == "repeat":
        return x.repeat(tuple(2 if i == axis else 1 for i in range(x.ndim)))
    if name == "roll":
        return x.roll(number, axis)
    if name == "cat":
        return x.cat(x.flip(axis), dim=axis)
    if name == "interleave":
        return x.repeat_interleave(2, axis)
    if name == "unfold" and len(arg) == 3:
        return x.unfold(axis, number, arg[2])
    if name == "border" and isinstance(number, str):
        sides = tuple((1, 1) if i == axis else None for i in range(x.ndim))
        return x.pad(sides, mode=number)
    return x


@st.composite
def chains(draw: st.DrawFn) -> list[Step]:
    found: list[Step] = []
    x = np.zeros(START)
    for _ in range(draw(st.integers(1, 6))):
        step = draw(steps(x.shape))
        y = in_numpy(x, step)
        if y.size <= MAX_ELEMENTS and y.ndim <= 6:
            found.append(step)
            x = y
    return found


def applied(x: Any, chain: list[Step], function: Any) -> Any:
    for step in chain:
        x = function(x, step)
    return x


@settings(max_examples=50, deadline=None)
@given(chains(), st.sampled_from([None, "sum", "max"]))
def test_chains_of_movement_equal_numpy(chain: list[Step], reduce: str | None) -> None:
    values = np.arange(1, 25, dtype=np.float32).reshape(START)
    x = Tensor(values, requires_grad=True)
    found, expected = applied(x, chain, in_tinygrad), applied(values, chain, in_numpy)
    # every step is linear: row i of its matrix is the image of unit i
    units = np.eye(24, dtype=np.float32).reshape(24, *START)
    matrix = np.stack([applied(unit, chain, in_numpy).reshape(-1) for unit in units])
    weights = np.arange(1, expected.size + 1, dtype=np.float32)
    if expected.size:
        (found.reshape(-1) * Tensor(weights)).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy().reshape(-1), matrix @ weights, rtol=1e-5)
    if reduce == "sum" and expected.ndim:
        found, expected = found.sum(0), expected.sum(0)
    elif reduce == "max" and expected.ndim and expected.shape[-1]:
        found, expected = found.max(-1), expected.max(-1)
    np.testing.assert_array_equal(found.numpy(), expected)


# ---- movement with a formula ----


@pytest.mark.parametrize("before", range(-4, 4))
@pytest.mark.parametrize("after", range(-4, 4))
def test_replicated_elements_are_those_of_the_nearest_positions(before: int, after: int) -> None:
    size = 3 + before + after
    x = arrays([(2, 3)])[0]
    padding = ((0, 0), (before, after))
    if size < 0:
        with pytest.raises(ValueError, match=f"the axis 1 of size 3 by {before} and {after}"):
            Tensor(x).pad(padding, mode="replicate")
        return
    nearest = np.clip(np.arange(size) - before, 0, 2)
    compare([x], lambda x: x[:, nearest], lambda x: x.pad(padding, mode="replicate"))


DIAGONALS = [(0, 0, 1), (1, 0, 1), (-1, 0, 1), (2, 1, 2), (0, -1, 0), (4, 0, 1), (-9, 0, 2)]


@pytest.mark.parametrize("arguments", DIAGONALS, ids=str)
def test_diagonals_of_any_matrices_of_a_tensor(arguments: tuple[int, int, int]) -> None:
    x = arrays([(3, 4, 5)])[0]
    compare([x], lambda x: np.diagonal(x, *arguments), lambda x: x.diagonal(*arguments))
    offset, first, second = arguments
    named = Tensor(x).diagonal(dim2=second, dim1=first, offset=offset)
    np.testing.assert_array_equal(named.numpy(), np.diagonal(x, *arguments))


def test_a_diagonal_off_the_center_is_a_view() -> None:
    x = Tensor.zeros(2, 3, 4).contiguous().realize()
    x.diagonal(1, 1, 2).assign(Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).realize()
    expected = np.zeros((2, 3, 4))
    expected[:, [0, 1, 2], [1, 2, 3]] = [[1, 2, 3], [4, 5, 6]]
    np.testing.assert_array_equal(x.numpy(), expected)


def test_a_diagonal_needs_two_different_axes() -> None:
    with pytest.raises(ValueError, match=r"diagonal takes matrices, not shape \(3,\)"):
        Tensor.ones(3).diagonal()
    with pytest.raises(ValueError, match="dim1=1 and dim2=-1 are one axis"):
        Tensor.ones(3, 3).diagonal(dim1=1, dim2=-1)
