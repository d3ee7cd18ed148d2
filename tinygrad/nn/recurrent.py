"""One step of a recurrent network."""

from __future__ import annotations

import math

from tinygrad.tensor import Tensor


class LSTMCell:
    """One step of a long short-term memory (Hochreiter and Schmidhuber, 1997).

    `weight_ih` is (4 * hidden_size, input_size), `weight_hh` (4 * hidden_size, hidden_size), their
    biases (4 * hidden_size,) or None; the four blocks are input, forget, cell and output gate. All
    start uniform in +-1/sqrt(hidden_size).
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(hidden_size)
        gates = 4 * hidden_size
        self.weight_ih = Tensor.uniform(gates, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(gates, hidden_size, low=-bound, high=bound)
        self.bias_ih = Tensor.uniform(gates, low=-bound, high=bound) if bias else None
        self.bias_hh = Tensor.uniform(gates, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The new (hidden, cell), each (batch, hidden_size), from x (batch, input_size) and the
        old ones, which are zeros if not given."""
        if hc is None:
            zeros = Tensor.zeros(
                x.shape[0], self.weight_hh.shape[1], dtype=x.dtype, device=x.device
            )
            hc = (zeros, zeros)
        hidden, cell = hc
        gates = x.linear(self.weight_ih.transpose(), self.bias_ih)
        gates = gates + hidden.linear(self.weight_hh.transpose(), self.bias_hh)
        admit, forget, candidate, emit = gates.chunk(4, dim=1)
        cell = forget.sigmoid() * cell + admit.sigmoid() * candidate.tanh()
        hidden = emit.sigmoid() * cell.tanh()
        return hidden.contiguous(), cell.contiguous()
