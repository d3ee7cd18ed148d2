"""Loops that a program unrolls: each step reads the result of the one before in several ways.

A program is written once, for Tensors and numpy arrays: `NumpyOps` has the methods of `TensorOps`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from test.backend.schedule.kernel_counts import Array, array
from tinygrad import Tensor


class TensorOps:
    """Joining and reductions of Tensors."""

    @staticmethod
    def roll(x: Tensor, shift: int, axis: int = 0) -> Tensor:
        return x.roll(shift, axis)

    @staticmethod
    def cat(parts: Sequence[Tensor]) -> Tensor:
        return parts[0].cat(*parts[1:])

    @staticmethod
    def stack(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
        return parts[0].stack(*parts[1:], dim=axis)

    @staticmethod
    def tanh(x: Tensor) -> Tensor:
        return x.tanh()


class NumpyOps:
    """The same of numpy arrays."""

    @staticmethod
    def roll(x: Array, shift: int, axis: int = 0) -> Array:
        return np.roll(x, shift, axis)

    @staticmethod
    def cat(parts: Sequence[Array]) -> Array:
        return np.concatenate(parts)

    @staticmethod
    def stack(parts: Sequence[Array], axis: int = 0) -> Array:
        return np.stack(parts, axis)

    @staticmethod
    def tanh(x: Array) -> Array:
        return np.tanh(x)


def diffusion(ops: Any, u: Any, steps: int) -> Any:
    """Explicit steps of the heat equation on a ring."""
    for _ in range(steps):
        u = u + 0.1 * (ops.roll(u, 1) + ops.roll(u, -1) - 2 * u)
    return u


def wave(ops: Any, u: Any, steps: int) -> Any:
    """Two fields, of which each step of one reads the other shifted."""
    v = u * 0.5
    for _ in range(steps):
        v = v + 0.1 * (ops.roll(u, 1) + ops.roll(u, -1) - 2 * u)
        u = u + 0.1 * v
    return u + v


def advantages(ops: Any, delta: Any, steps: int) -> Any:
    """Generalised advantage estimates, from the last step to the first."""
    found = [delta[steps - 1] * 1.0]
    for i in reversed(range(steps - 1)):
        found.append(delta[i] + 0.95 * found[-1])
    return ops.stack(found[::-1])


def gated_recurrence(ops: Any, x: Any, steps: int) -> Any:
    """A minimal gated recurrence, whose states are stacked."""
    state, states = x[0] * 0.0, []
    for i in range(steps):
        gate = 0.5 + 0.5 * ops.tanh(x[i])
        state = (1 - gate) * state + gate * x[i]
        states.append(state)
    return ops.stack(states)


def appends(ops: Any, x: Any, steps: int) -> Any:
    """A sequence that grows by a function of its ends."""
    found = x[:1]
    for _ in range(steps):
        found = ops.cat([found, ops.tanh(found[-1:] * 1.1 + found[:1])])
    return found


def life(ops: Any, board: Any, steps: int) -> Any:
    """Conway's game on a torus, with 1.0 for a live cell."""
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    for _ in range(steps):
        total: Any = 0.0
        for i, j in around:
            total = ops.roll(ops.roll(board, i), j, 1) + total
        # 2.5 if a live cell stays alive, 3 if a cell becomes alive
        state = total + 0.5 * board
        board = 1.0 * ((state > 2.25) * (state < 3.75))
    return board


def walsh_hadamard(ops: Any, x: Any, steps: int) -> Any:
    """The transform of 2**steps points, by sums and differences of pairs."""
    size = 2**steps
    for step in range(steps):
        pairs = x.reshape(-1, 2, 2**step)
        a, b = pairs[:, 0], pairs[:, 1]
        x = ops.stack([a + b, a - b], 1).reshape(size)
    return x


def long_chain(ops: Any, x: Any, steps: int) -> Any:
    """An elementwise chain."""
    for _ in range(steps):
        x = x * 0.999 + 0.001
    return x


def tanh_scan(ops: Any, x: Any, steps: int) -> Any:
    """A recurrence of which the last state is returned."""
    state = x[0] * 0.0
    for i in range(steps):
        state = ops.tanh(state * 0.5 + x[i])
    return state


def total_of_sums(ops: Any, x: Any, steps: int) -> Any:
    """The sum of lazy sums, each of another row."""
    total: Any = 0.0
    for i in range(steps):
        total = total + (x[i] * x[i]).sum()
    return total


def stacked(ops: Any, x: Any, steps: int) -> Any:
    """Rows that are computed apart, and stacked."""
    return ops.stack([x[i] * 2 + 1 for i in range(steps)])


Program = Callable[[Any, Any, int], Any]


def board(size: int) -> Array:
    """A random board for `life`."""
    return (array(size, size) < -0.3).astype(np.float32)
