"""Feed-forward networks: gated (SwiGLU, GeGLU), and mixture of experts."""

from __future__ import annotations

from tinygrad.apps.language.model.config import ModelConfig
from tinygrad.apps.language.model.weights import COLUMNS, ROWS, ShardedAxis, WeightFile
from tinygrad.tensor import Tensor

# tokens whose experts' blocks are gathered at once
MAX_EXPERT_TOKENS = 8


def hidden_blocks(file: WeightFile, layer: int) -> int:
    """The blocks of a hidden vector, which are its indivisible units: each is on one device."""
    name = f"blk.{layer}.ffn_down_exps.weight"
    if name not in file:
        name = f"blk.{layer}.ffn_down.weight"
    return file.shape(name)[-1] // file.elements_per_block(name)


class FeedForward:
    """`down(act(gate(x)) * up(x))` for hidden states (rows, length, dim)."""

    def __init__(self, file: WeightFile, config: ModelConfig, layer: int) -> None:
        name = f"blk.{layer}.ffn_"
        self.gelu = config.gelu
        hidden = file.shape(f"{name}down.weight")[1]
        units = hidden_blocks(file, layer)
        sharded = ShardedAxis(ROWS, units)
        if f"{name}gate.weight" in file:
            self.gate = file.projection(f"{name}gate", sharded)
            self.up = file.projection(f"{name}up", sharded)
        else:
            # one fused matrix for gate and up
            self.gate = file.projection(f"{name}up", sharded, (0, hidden))
            self.up = file.projection(f"{name}up", sharded, (hidden, 2 * hidden))
        self.down = file.projection(f"{name}down", ShardedAxis(COLUMNS, units))

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(apply_gate(self.gate(x), self.up(x), self.gelu))


class MixtureOfExperts:
    """Routes each token to the experts that score highest, and mixes their outputs."""

    def __init__(self, file: WeightFile, config: ModelConfig, layer: int) -> None:
        name = f"blk.{layer}.ffn_"
        self.config = config
        self.router = file.projection(f"{name}gate_inp")
        units = hidden_blocks(file, layer)
        self.gate = file.matrix(f"{name}gate_exps.weight", ShardedAxis(ROWS, units))
        self.up = file.matrix(f"{name}up_exps.weight", ShardedAxis(ROWS, units))
        self.down = file.matrix(f"{name}down_exps.weight", ShardedAxis(COLUMNS, units))

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[1] <= MAX_EXPERT_TOKENS:
            return self._mixed(x)
        # in small groups of tokens, to bound the memory of gathered blocks
        parts = [self._mixed(part).realize() for part in x.realize().split(MAX_EXPERT_TOKENS, 1)]
        return parts[0].cat(*parts[1:], dim=1)

    def _mixed(self, x: Tensor) -> Tensor:
        shares, chosen = self.router(x).softmax(-1).topk(self.config.experts_used)
        if self.config.normalizes_experts:
            shares = shares / shares.sum(-1, keepdim=True)
        # (rows, length, experts, 1, dim): one vector for each expert of a token
        x = x.unsqueeze(-2).unsqueeze(-2)
        hidden = apply_gate(self.gate[chosen](x), self.up[chosen](x), self.config.gelu)
        outputs = self.down[chosen](hidden).squeeze(-2)
        return (outputs * (shares * self.config.expert_scale).unsqueeze(-1)).sum(-2)


def apply_gate(gate: Tensor, up: Tensor, gelu: bool) -> Tensor:
    """The gated activation, `act(gate) * up`."""
    return (gate.gelu() if gelu else gate.silu()) * up
