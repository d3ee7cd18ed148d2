"""The part of a layer that treats each token by itself: gated, perhaps one of several experts'."""

from __future__ import annotations

from tinygrad.apps.language.model.config import Config
from tinygrad.apps.language.model.weights import COLUMNS, ROWS, Split, WeightFile
from tinygrad.tensor import Tensor

# tokens for which the blocks of their experts are picked at once
TOGETHER = 8


class FeedForward:
    """`down(act(gate(x)) * up(x))`, vectors (rows, length, dim) to the same."""

    def __init__(self, file: WeightFile, config: Config, layer: int) -> None:
        name = f"blk.{layer}.ffn_"
        self.gelu = config.gelu
        hidden = file.shape(f"{name}down.weight")[1]
        units = hidden // file.elements_per_block(f"{name}down.weight")
        split = Split(ROWS, units)
        if f"{name}gate.weight" in file:
            self.gate = file.projection(f"{name}gate", split)
            self.up = file.projection(f"{name}up", split)
        else:
            # one matrix has the rows of both
            self.gate = file.projection(f"{name}up", split, (0, hidden))
            self.up = file.projection(f"{name}up", split, (hidden, 2 * hidden))
        self.down = file.projection(f"{name}down", Split(COLUMNS, units))

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(gated(self.gate(x), self.up(x), self.gelu))


class Experts:
    """Each token goes through the feed-forward parts that a router scores highest for it."""

    def __init__(self, file: WeightFile, config: Config, layer: int) -> None:
        name = f"blk.{layer}.ffn_"
        self.config = config
        self.router = file.projection(f"{name}gate_inp")
        hidden = file.shape(f"{name}down_exps.weight")[2]
        units = hidden // file.elements_per_block(f"{name}down_exps.weight")
        self.gate = file.matrix(f"{name}gate_exps.weight", Split(ROWS, units))
        self.up = file.matrix(f"{name}up_exps.weight", Split(ROWS, units))
        self.down = file.matrix(f"{name}down_exps.weight", Split(COLUMNS, units))

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[1] <= TOGETHER:
            return self._mixed(x)
        # one after the other, so that the blocks for a few tokens are in memory at a time
        parts = [self._mixed(part).realize() for part in x.realize().split(TOGETHER, 1)]
        return parts[0].cat(*parts[1:], dim=1)

    def _mixed(self, x: Tensor) -> Tensor:
        shares, chosen = self.router(x).softmax(-1).topk(self.config.experts_used)
        if self.config.normalizes_experts:
            shares = shares / shares.sum(-1, keepdim=True)
        # (rows, length, experts, 1, dim): a vector for each expert that is used
        x = x.unsqueeze(-2).unsqueeze(-2)
        hidden = gated(self.gate[chosen](x), self.up[chosen](x), self.config.gelu)
        outputs = self.down[chosen](hidden).squeeze(-2)
        return (outputs * (shares * self.config.expert_scale).unsqueeze(-1)).sum(-2)


def gated(gate: Tensor, up: Tensor, gelu: bool) -> Tensor:
    """One half of the hidden vector, after its activation, times the other."""
    return (gate.gelu() if gelu else gate.silu()) * up
