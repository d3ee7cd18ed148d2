"""Mamba (https://arxiv.org/abs/2312.00752): a selective state space model.

Weights have the names of the published checkpoints.
"""

from __future__ import annotations

from test.models.bert import Named
from tinygrad import Tensor, nn


class Mixer:
    def __init__(self, dim: int, state: int, inner: int, rank: int, kernel: int) -> None:
        self.in_proj, self.out_proj = (
            nn.Linear(a, b, bias=False) for a, b in ((dim, 2 * inner), (inner, dim))
        )
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = Tensor.arange(1, state + 1).float().log().expand(inner, state).contiguous()
        self.D = Tensor.ones(inner)
        self.sizes = [rank, state, state]

    def __call__(self, x: Tensor) -> Tensor:
        seq = x.shape[1]
        x, gate = self.in_proj(x).chunk(2, -1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :seq].transpose(1, 2).silu()
        step, into, out = self.x_proj(x).split(self.sizes, -1)
        step = self.dt_proj(step).softplus().unsqueeze(-1)
        decay = (step * -self.A_log.exp()).exp()
        added = step * into.unsqueeze(2) * x.unsqueeze(-1)
        state, outputs = Tensor.zeros_like(added[:, 0]), []
        for i in range(seq):
            state = decay[:, i] * state + added[:, i]
            outputs.append((state * out[:, i].unsqueeze(1)).sum(-1))
        y = Tensor.stack(outputs, dim=1) + x * self.D
        return self.out_proj(y * gate.silu())


class Mamba:
    """Tokens (batch, seq) to the scores of the next ones (batch, seq, vocab)."""

    def __init__(
        self,
        vocab: int = 40,
        dim: int = 16,
        state: int = 4,
        layers: int = 2,
        rank: int = 2,
        kernel: int = 3,
    ) -> None:
        self.backbone = Named(
            embeddings=nn.Embedding(vocab, dim),
            layers=[
                Named(norm=nn.RMSNorm(dim, 1e-5), mixer=Mixer(dim, state, 2 * dim, rank, kernel))
                for _ in range(layers)
            ],
            norm_f=nn.RMSNorm(dim, 1e-5),
        )

    def __call__(self, tokens: Tensor) -> Tensor:
        x = self.backbone.embeddings(tokens)
        for layer in self.backbone.layers:
            x = x + layer.mixer(layer.norm(x))
        return self.backbone.norm_f(x) @ self.backbone.embeddings.weight.T
