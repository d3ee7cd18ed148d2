"""The denoising U-Net of Stable Diffusion (https://arxiv.org/abs/2112.10752), with few channels.

Weights have the names of the published checkpoints.
"""

from __future__ import annotations

import math

from test.models.bert import Named, exact_gelu
from tinygrad import Tensor, nn

GROUPS = 4


def time_features(step: Tensor, size: int) -> Tensor:
    """Cosines and sines of (batch,) steps, (batch, size)."""
    half = size // 2
    frequencies = (Tensor.arange(half, device=step.device) * (-math.log(10000) / half)).exp()
    angles = step.float().unsqueeze(1) * frequencies
    return angles.cos().cat(angles.sin(), dim=1)


class ResnetBlock:
    def __init__(self, channels: int, out: int, time: int) -> None:
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, channels), nn.GroupNorm(GROUPS, out)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time_emb_proj = nn.Linear(time, out)
        if channels != out:
            self.conv_shortcut = nn.Conv2d(channels, out, 1)

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(self.norm1(x).silu())
        y = y + self.time_emb_proj(time.silu()).unsqueeze(-1).unsqueeze(-1)
        y = self.conv2(self.norm2(y).silu())
        return (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x) + y


class CrossAttention:
    def __init__(self, dim: int, source: int, heads: int) -> None:
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k, self.to_v = (nn.Linear(source, dim, bias=False) for _ in range(2))
        self.to_out, self.heads = [nn.Linear(dim, dim)], heads

    def __call__(self, x: Tensor, source: Tensor) -> Tensor:
        q, k, v = (
            y.reshape(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)
            for y in (self.to_q(x), self.to_k(source), self.to_v(source))
        )
        mixed = q.scaled_dot_product_attention(k, v).transpose(1, 2)
        return mixed.reshape(x.shape).sequential(self.to_out)


class GeGLU:
    def __init__(self, dim: int, out: int) -> None:
        self.proj = nn.Linear(dim, 2 * out)

    def __call__(self, x: Tensor) -> Tensor:
        value, gate = self.proj(x).chunk(2, -1)
        return value * exact_gelu(gate)


class TransformerBlock:
    def __init__(self, dim: int, text: int, heads: int) -> None:
        self.attn1, self.attn2 = (CrossAttention(dim, size, heads) for size in (dim, text))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
        identity = lambda x: x  # noqa: E731  dropout in training
        self.ff = Named(net=[GeGLU(dim, 4 * dim), identity, nn.Linear(4 * dim, dim)])

    def __call__(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attn1(y, y)
        x = x + self.attn2(self.norm2(x), text)
        return x + self.norm3(x).sequential(self.ff.net)


class SpatialTransformer:
    """Attention between the pixels of an image, and to a text."""

    def __init__(self, channels: int, text: int, heads: int) -> None:
        self.norm = nn.GroupNorm(GROUPS, channels, eps=1e-6)
        self.proj_in, self.proj_out = (nn.Conv2d(channels, channels, 1) for _ in range(2))
        self.transformer_blocks = [TransformerBlock(channels, text, heads)]

    def __call__(self, x: Tensor, text: Tensor) -> Tensor:
        pixels = self.proj_in(self.norm(x)).flatten(2).transpose(1, 2)
        for block in self.transformer_blocks:
            pixels = block(pixels, text)
        return x + self.proj_out(pixels.transpose(1, 2).reshape(x.shape))


class DiffusionUnet:
    """Noisy latents (batch, 4, size, size), steps (batch,) and text (batch, seq, text) to noise."""

    def __init__(self, text: int = 12, low: int = 8, high: int = 16, heads: int = 2) -> None:
        time = 4 * low
        self.low, self.conv_in = low, nn.Conv2d(4, low, 3, padding=1)
        self.time_embedding = Named(linear_1=nn.Linear(low, time), linear_2=nn.Linear(time, time))
        down = Named(conv=nn.Conv2d(low, low, 3, stride=2, padding=1))
        self.down_blocks = [
            Named(
                resnets=[ResnetBlock(low, low, time)],
                attentions=[SpatialTransformer(low, text, heads)],
                downsamplers=[down],
            ),
            Named(resnets=[ResnetBlock(low, high, time)]),
        ]
        self.mid_block = Named(
            resnets=[ResnetBlock(high, high, time) for _ in range(2)],
            attentions=[SpatialTransformer(high, text, heads)],
        )
        first = [ResnetBlock(high + high, high, time), ResnetBlock(high + low, high, time)]
        last = [ResnetBlock(high + low, low, time), ResnetBlock(low + low, low, time)]
        up = Named(conv=nn.Conv2d(high, high, 3, padding=1))
        self.up_blocks = [
            Named(resnets=first, upsamplers=[up]),
            Named(resnets=last, attentions=[SpatialTransformer(low, text, heads) for _ in last]),
        ]
        self.conv_norm_out = nn.GroupNorm(GROUPS, low)
        self.conv_out = nn.Conv2d(low, 4, 3, padding=1)

    def __call__(self, x: Tensor, step: Tensor, text: Tensor) -> Tensor:
        time = self.time_embedding.linear_1(time_features(step, self.low)).silu()
        time = self.time_embedding.linear_2(time)
        near, deep = self.down_blocks
        skips = [x := self.conv_in(x)]
        x = near.attentions[0](near.resnets[0](x, time), text)
        skips += [x, y := near.downsamplers[0].conv(x)]
        skips.append(x := deep.resnets[0](y, time))
        before, after = self.mid_block.resnets
        x = after(self.mid_block.attentions[0](before(x, time), text), time)
        deep, near = self.up_blocks
        for resnet in deep.resnets:
            x = resnet(x.cat(skips.pop(), dim=1), time)
        x = deep.upsamplers[0].conv(x.interpolate((2 * x.shape[2], 2 * x.shape[3]), "nearest"))
        for resnet, attention in zip(near.resnets, near.attentions, strict=True):
            x = attention(resnet(x.cat(skips.pop(), dim=1), time), text)
        return self.conv_out(self.conv_norm_out(x).silu())
