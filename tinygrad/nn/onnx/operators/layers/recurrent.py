"""Recurrent networks: RNN, GRU, LSTM, a step of the graph for each step of the sequence.

Weights have an axis for the directions in front, and the gates of a cell one below the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.layers.activation import hard_sigmoid, thresholded_relu
from tinygrad.nn.onnx.operators.tensor.movement import reverse_sequence
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor

Floats = tuple[float, ...]
Strings = tuple[str, ...]
Function = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]

PLAIN: dict[str, Function] = {
    "relu": Tensor.relu,
    "sigmoid": Tensor.sigmoid,
    "softplus": Tensor.softplus,
    "softsign": Tensor.softsign,
    "tanh": Tensor.tanh,
}
# activations with parameters, and their defaults
WITH_NUMBERS: dict[str, tuple[Callable[[Tensor, Floats], Tensor], Floats]] = {
    "affine": (lambda x, n: x * n[0] + n[1], (1.0, 0.0)),
    "elu": (lambda x, n: x.elu(n[0]), (1.0,)),
    "hardsigmoid": (lambda x, n: hard_sigmoid(x, alpha=n[0], beta=n[1]), (0.2, 0.5)),
    "leakyrelu": (lambda x, n: x.leaky_relu(n[0]), (0.01,)),
    "scaledtanh": (lambda x, n: (x * n[1]).tanh() * n[0], (1.0, 1.0)),
    "thresholdedrelu": (lambda x, n: thresholded_relu(x, alpha=n[0]), (1.0,)),
}


def find_functions(names: Strings, alpha: Floats, beta: Floats, clip: float) -> list[Function]:
    """The activations, each after its input is clipped to +-`clip`, unless that is 0.

    `alpha` and `beta` are the parameters of those that have them, in order.
    """
    alphas, betas = list(alpha), list(beta)
    found = []
    for name in names:
        plain = PLAIN.get(name.lower())
        if plain is None and name.lower() not in WITH_NUMBERS:
            there = ", ".join([*PLAIN, *WITH_NUMBERS])
            raise OnnxError(f"activation {name!r} is not one of {there}")
        if plain is None:
            function, numbers = WITH_NUMBERS[name.lower()]
            given = [x.pop(0) if x else None for x in (alphas, betas)[: len(numbers)]]
            used = tuple(n if x is None else x for x, n in zip(given, numbers))
            plain = bound(function, used)
        found.append(clipped(plain, clip))
    return found


def bound(function: Callable[[Tensor, Floats], Tensor], numbers: Floats) -> Function:
    return lambda x: function(x, numbers)


def clipped(function: Function, clip: float) -> Function:
    return (lambda x: function(x.clamp(-clip, clip))) if clip else function


@dataclass(frozen=True)
class Sequence:
    """The inputs of all cells, in the layout with steps first."""

    x: Tensor
    w: Tensor
    r: Tensor
    b: Tensor | None
    lengths: Tensor | None
    start: State
    direction: str
    layout: int

    def run(self, make_step: Callable[[int], Step]) -> tuple[Tensor, ...]:
        """All hidden states, and the last state, of every direction."""
        backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if self.direction not in backward:
            raise OnnxError(f"direction {self.direction!r} is not one of {', '.join(backward)}")
        directions = backward[self.direction]
        if len(directions) != self.w.shape[0]:
            raise OnnxError(f"{self.direction} weights have not {self.w.shape[0]} directions")
        ran = [self.run_one(i, back, make_step(i)) for i, back in enumerate(directions)]
        hidden = ran[0][0].stack(*(all_steps for all_steps, _ in ran[1:]), dim=1)
        last = [states[0].stack(*states[1:], dim=0) for states in zip(*(state for _, state in ran))]
        if self.layout:
            hidden = hidden.permute(2, 0, 1, 3)
            last = [state.transpose(0, 1) for state in last]
        return hidden, *last

    def run_one(self, direction: int, back: bool, step: Step) -> tuple[Tensor, State]:
        """One direction: hidden states (steps, batch, size), and the last state."""
        x = self.reverse_steps(self.x) if back else self.x
        state = tuple(part[direction] for part in self.start)
        found = []
        for t in range(int(x.shape[0])):
            new = step(x[t], state)
            if self.lengths is None:
                state = new
                found.append(new[0])
            else:
                going = (self.lengths > t).reshape((-1, 1))
                state = tuple(going.where(a, b) for a, b in zip(new, state))
                found.append(going.where(new[0], 0))
            state = tuple(part.contiguous() for part in state)
        hidden = found[0].stack(*found[1:], dim=0)
        return self.reverse_steps(hidden) if back else hidden, state

    def reverse_steps(self, x: Tensor) -> Tensor:
        """The steps of each sequence in reverse."""
        return x.flip(0) if self.lengths is None else reverse_sequence(x, self.lengths)

    def biases(self, direction: int) -> tuple[Tensor | None, Tensor | None]:
        """The biases of the input and of the state."""
        if self.b is None:
            return None, None
        first, second = self.b[direction].chunk(2)
        return first, second


def make_sequence(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    start: tuple[Tensor | None, ...],
    direction: str,
    layout: int,
) -> Sequence:
    """A sequence with steps in front, and zero states by default."""
    if layout:
        x = x.transpose(0, 1)
        start = tuple(part if part is None else part.transpose(0, 1) for part in start)
    zeros = Tensor.zeros(w.shape[0], x.shape[1], r.shape[-1], dtype=x.dtype)
    states = tuple(zeros if part is None else part for part in start)
    if not x.shape[0]:
        raise OnnxError(f"the sequence {x.shape} has no steps")
    return Sequence(x, w, r, b, lengths, states, direction, layout)


def activations_of(
    given: Strings, default: Strings, direction: str, alpha: Floats, beta: Floats, clip: float
) -> list[list[Function]]:
    """The activations of each direction."""
    count = 2 if direction == "bidirectional" else 1
    found = find_functions(given or default * count, alpha, beta, clip)
    if len(found) != len(default) * count:
        raise OnnxError(f"activations {given} are not {len(default)} for each direction")
    return [found[i * len(default) : (i + 1) * len(default)] for i in range(count)]


@operator("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Floats = (),
    activation_beta: Floats = (),
    activations: Strings = (),
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    sequence = make_sequence(x, w, r, b, sequence_lens, (initial_h,), direction, layout)
    functions = activations_of(
        activations, ("Tanh",), direction, activation_alpha, activation_beta, clip
    )

    def make_step(i: int) -> Step:
        (function,) = functions[i]
        from_input, from_state = sequence.biases(i)

        def step(x: Tensor, state: State) -> State:
            (h,) = state
            return (function(x.linear(w[i].T, from_input) + h.linear(r[i].T, from_state)),)

        return step

    return sequence.run(make_step)


@operator("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Floats = (),
    activation_beta: Floats = (),
    activations: Strings = (),
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    """The gates are update, reset and hidden."""
    sequence = make_sequence(x, w, r, b, sequence_lens, (initial_h,), direction, layout)
    functions = activations_of(
        activations, ("Sigmoid", "Tanh"), direction, activation_alpha, activation_beta, clip
    )
    size = int(r.shape[-1])

    def make_step(i: int) -> Step:
        gate, candidate = functions[i]
        from_input, from_state = sequence.biases(i)
        rh, bh = r[i][2 * size :].T, None if from_state is None else from_state[2 * size :]

        def step(x: Tensor, state: State) -> State:
            (h,) = state
            update_x, reset_x, hidden_x = x.linear(w[i].T, from_input).chunk(3, dim=-1)
            update_h, reset_h, hidden_h = h.linear(r[i].T, from_state).chunk(3, dim=-1)
            update, reset = gate(update_x + update_h), gate(reset_x + reset_h)
            seen = reset * hidden_h if linear_before_reset else (reset * h).linear(rh, bh)
            return ((1 - update) * candidate(hidden_x + seen) + update * h,)

        return step

    return sequence.run(make_step)


@operator("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: Floats = (),
    activation_beta: Floats = (),
    activations: Strings = (),
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    """The gates are input, output, forget and cell; `p` has peephole weights of the first three."""
    sequence = make_sequence(x, w, r, b, sequence_lens, (initial_h, initial_c), direction, layout)
    functions = activations_of(
        activations, ("Sigmoid", "Tanh", "Tanh"), direction, activation_alpha, activation_beta, clip
    )

    def make_step(i: int) -> Step:
        gate, cell_input, cell_output = functions[i]
        from_input, from_state = sequence.biases(i)
        peepholes = [None] * 3 if p is None else p[i].chunk(3)

        def peephole(x: Tensor, c: Tensor, weight: Tensor | None) -> Tensor:
            return x if weight is None else x + weight * c

        def step(x: Tensor, state: State) -> State:
            h, c = state
            sums = x.linear(w[i].T, from_input) + h.linear(r[i].T, from_state)
            input_x, output_x, forget_x, cell_x = sums.chunk(4, dim=-1)
            input_gate = gate(peephole(input_x, c, peepholes[0]))
            forget_gate = (
                1 - input_gate if input_forget else gate(peephole(forget_x, c, peepholes[2]))
            )
            cell = forget_gate * c + input_gate * cell_input(cell_x)
            output_gate = gate(peephole(output_x, cell, peepholes[1]))
            return output_gate * cell_output(cell), cell

        return step

    return sequence.run(make_step)
