"""Recurrent cells: one step of an LSTM or a GRU."""

from __future__ import annotations

import math
from typing import Any

from tinygrad.errors import ArgumentError
from tinygrad.mixin.creation import known_sizes
from tinygrad.mixin.precision import in_float32
from tinygrad.nn.inputs import check_input
from tinygrad.tensor import Tensor
from tinygrad.uop.sint import is_one, same_size


class _RecurrentCell:
    """The weights of `gates` blocks, each computed from the input and the hidden state.

    `weight_ih` is (gates * hidden_size, input_size), `weight_hh` (gates * hidden_size,
    hidden_size), both uniform in +-1/sqrt(hidden_size); their biases (gates * hidden_size,) start
    as zeros, or are None.
    """

    def __init__(self, gates: int, input_size: int, hidden_size: int, bias: bool) -> None:
        input_size, hidden_size = known_sizes((input_size, hidden_size))
        bound = 1 / math.sqrt(max(1, hidden_size))
        rows = gates * hidden_size
        self.weight_ih = Tensor.uniform(rows, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(rows, hidden_size, low=-bound, high=bound)
        self.bias_ih = Tensor.zeros(rows) if bias else None
        self.bias_hh = Tensor.zeros(rows) if bias else None

    def _blocks(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The projections of input and hidden state, each (batch, gates * hidden_size)."""
        return (
            x.linear(self.weight_ih.transpose(), self.bias_ih),
            hidden.linear(self.weight_hh.transpose(), self.bias_hh),
        )

    def _check_input(self, x: Any) -> None:
        check_input(type(self).__name__, x, "batch", self.weight_ih.shape[1])

    def _check_state(self, x: Tensor, name: str, state: Any) -> None:
        layer, batch = type(self).__name__, x.shape[0]
        check_input(layer, state, "batch", self.weight_hh.shape[1], name=name)
        size = state.shape[0]
        if not (is_one(size) or is_one(batch) or same_size(size, batch)):
            raise ArgumentError(
                f"{layer}: {name} of shape {state.shape} has another batch than x of shape "
                f"{x.shape}; pass the state that the layer returned for this batch"
            )

    def _zeros(self, x: Tensor) -> Tensor:
        return Tensor.zeros(x.shape[0], self.weight_hh.shape[1], dtype=x.dtype, device=x.device)


class LSTMCell(_RecurrentCell):
    """One step of a long short-term memory (Hochreiter and Schmidhuber, 1997).

    `weight_ih` is (4 * hidden_size, input_size), `weight_hh` (4 * hidden_size, hidden_size), both
    uniform in +-1/sqrt(hidden_size); their biases (4 * hidden_size,) start as zeros, or are None.
    The four blocks are input, forget, cell and output gate.

    >>> cell = nn.LSTMCell(3, 5)
    >>> hidden, memory = cell(Tensor.ones(2, 3))
    >>> hidden, memory = cell(Tensor.ones(2, 3), (hidden, memory))
    >>> hidden.shape, memory.shape
    ((2, 5), (2, 5))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(4, input_size, hidden_size, bias)

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The new (hidden, cell), each (batch, hidden_size), from x (batch, input_size) and the
        previous ones, zeros by default.
        """
        self._check_input(x)
        hidden, cell = (self._zeros(x), self._zeros(x)) if hc is None else self._states(x, hc)
        from_x, from_hidden = self._blocks(x, hidden)
        hidden, cell = _lstm_step(from_x, from_hidden, cell)
        return hidden.contiguous(), cell.contiguous()

    def _states(self, x: Tensor, hc: Any) -> tuple[Tensor, Tensor]:
        """The hidden state and the cell of the step before."""
        if not isinstance(hc, tuple | list | Tensor) or len(hc) != 2:
            raise ArgumentError(
                f"{type(self).__name__} takes hc=(hidden, cell), each of shape "
                f"({x.shape[0]}, {self.weight_hh.shape[1]}), not {hc!r}"
            )
        hidden, cell = hc
        self._check_state(x, "hidden", hidden)
        self._check_state(x, "cell", cell)
        return hidden, cell


@in_float32
def _lstm_step(from_x: Tensor, from_hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    admit, forget, candidate, emit = (from_x + from_hidden).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + admit.sigmoid() * candidate.tanh()
    return emit.sigmoid() * cell.tanh(), cell


class GRUCell(_RecurrentCell):
    """One step of a gated recurrent unit (Cho et al., 2014, https://arxiv.org/abs/1406.1078).

    `weight_ih` is (3 * hidden_size, input_size), `weight_hh` (3 * hidden_size, hidden_size), both
    uniform in +-1/sqrt(hidden_size); their biases (3 * hidden_size,) start as zeros, or are None.
    The three blocks are reset gate, update gate and candidate. As in PyTorch, the reset gate
    multiplies the projection of the hidden state, not the hidden state itself.

    >>> cell = nn.GRUCell(3, 5)
    >>> hidden = cell(Tensor.ones(2, 3))
    >>> cell(Tensor.ones(2, 3), hidden).shape
    (2, 5)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(3, input_size, hidden_size, bias)

    def __call__(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        """The new hidden state (batch, hidden_size) from x (batch, input_size) and the
        previous one, zeros by default.
        """
        self._check_input(x)
        if hx is not None:
            self._check_state(x, "hx", hx)
        hidden = self._zeros(x) if hx is None else hx
        return _gru_step(*self._blocks(x, hidden), hidden).contiguous()


@in_float32
def _gru_step(from_x: Tensor, from_hidden: Tensor, hidden: Tensor) -> Tensor:
    x, h = from_x.chunk(3, dim=1), from_hidden.chunk(3, dim=1)
    reset, keep = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
    candidate = (x[2] + reset * h[2]).tanh()
    return (1 - keep) * candidate + keep * hidden
