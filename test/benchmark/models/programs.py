"""Seven models that people train, each a program for either library: a batch to its mean loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy

from test.benchmark.models.libraries import Batch, Library


@dataclass(frozen=True)
class Model:
    """A training step: `make` makes the model of a library, with `sizes`, or `small` ones; `batch`
    makes what it takes.
    """

    make: Callable[..., Any]
    batch: Callable[..., Batch]
    sizes: dict[str, int]
    small: dict[str, int]
    optimizer: str = "AdamW"
    steps: int = field(default=5, compare=False)


def transformer_block(lib: Library, dim: int, heads: int, causal: bool, before: bool) -> Any:
    """A block that normalizes `before` its layers, as GPT-2 and ViT do, or after, as BERT does."""
    nn = lib.nn

    class Block(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

        def attend(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (
                y.reshape(batch, length, heads, dim // heads).transpose(1, 2)
                for y in self.qkv(x).chunk(3, -1)
            )
            mixed = lib.attention(q, k, v, causal).transpose(1, 2)
            return self.out(mixed.reshape(batch, length, dim))

        def feed(self, x: Any) -> Any:
            return self.narrow(lib.gelu(self.wide(x)))

        def forward(self, x: Any) -> Any:
            if before:
                x = x + self.attend(self.norm1(x))
                return x + self.feed(self.norm2(x))
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.feed(x))

    return Block()


def language_model(
    lib: Library, dim: int, layers: int, heads: int, words: int, length: int, causal: bool
) -> Any:
    """GPT-2, whose scores are products with the embedding, or BERT with its masked-word head."""
    nn = lib.nn

    class Decoder(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, dim), nn.Embedding(length, dim)
            self.blocks = lib.List(
                [transformer_block(lib, dim, heads, causal, causal) for _ in range(layers)]
            )
            self.head, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.words(x) + self.places(lib.positions(x.shape[1]))
            h = h if causal else self.norm(h)
            for block in self.blocks:
                h = block(h)
            h = self.norm(h) if causal else lib.gelu(self.head(h))
            scores = h @ self.words.weight.transpose(0, 1)
            return lib.cross_entropy(scores.reshape(-1, words), y.reshape(-1))

    model = Decoder()
    if causal:
        del model.head
    return model


def vision_transformer(
    lib: Library, dim: int, layers: int, heads: int, size: int, patch: int, classes: int
) -> Any:
    """ViT with a class token."""
    nn = lib.nn

    class Vit(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, dim, patch, stride=patch)
            self.token = lib.weights(1, 1, dim)
            self.places = lib.weights(1, (size // patch) ** 2 + 1, dim)
            self.blocks = lib.List(
                [transformer_block(lib, dim, heads, False, True) for _ in range(layers)]
            )
            self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.patches(x).flatten(2).transpose(1, 2)
            h = lib.cat([self.token.expand(h.shape[0], 1, dim), h], 1) + self.places
            for block in self.blocks:
                h = block(h)
            return lib.cross_entropy(self.head(self.norm(h)[:, 0]), y)

    return Vit()


def resnet(lib: Library, width: int, deepest: int, classes: int, size: int) -> Any:
    """ResNet-50, with `deepest` blocks in its third stage."""
    nn = lib.nn

    class Bottleneck(lib.Module):  # type: ignore[misc]
        def __init__(self, channels: int, inner: int, stride: int) -> None:
            super().__init__()
            out = 4 * inner
            self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
            self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
            self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
            self.bn1, self.bn2, self.bn3 = (nn.BatchNorm2d(n) for n in (inner, inner, out))
            self.has_shortcut = stride != 1 or channels != out
            if self.has_shortcut:
                self.conv4 = nn.Conv2d(channels, out, 1, stride=stride, bias=False)
                self.bn4 = nn.BatchNorm2d(out)

        def forward(self, x: Any) -> Any:
            y = self.bn1(self.conv1(x)).relu()
            y = self.bn3(self.conv3(self.bn2(self.conv2(y)).relu()))
            return (y + (self.bn4(self.conv4(x)) if self.has_shortcut else x)).relu()

    class Resnet(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
            self.bn = nn.BatchNorm2d(width)
            blocks, channels = [], width
            for stage, count in enumerate((3, 4, deepest, 3)):
                inner = width << stage
                for i in range(count):
                    blocks.append(Bottleneck(channels, inner, 2 if stage and not i else 1))
                    channels = 4 * inner
            self.blocks, self.head = lib.List(blocks), nn.Linear(channels, classes)

        def forward(self, x: Any, y: Any) -> Any:
            h = lib.max_pool(self.bn(self.conv(x)).relu())
            for block in self.blocks:
                h = block(h)
            return lib.cross_entropy(self.head(h.mean((2, 3))), y)

    return Resnet()


def unet(lib: Library, width: int, groups: int, heads: int, size: int) -> Any:
    """The network of a diffusion model: blocks at three sizes, attention at the two small ones."""
    nn = lib.nn

    class Residual(lib.Module):  # type: ignore[misc]
        def __init__(self, channels: int, out: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, out)
            self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
            self.conv2 = nn.Conv2d(out, out, 3, padding=1)
            self.time, self.skip = nn.Linear(4 * width, out), nn.Conv2d(channels, out, 1)

        def forward(self, x: Any, time: Any) -> Any:
            y = self.conv1(lib.silu(self.norm1(x)))
            y = y + self.time(lib.silu(time)).reshape(x.shape[0], -1, 1, 1)
            return self.conv2(lib.silu(self.norm2(y))) + self.skip(x)

    class Attention(lib.Module):  # type: ignore[misc]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(groups, channels)
            self.block = transformer_block(lib, channels, heads, False, True)

        def forward(self, x: Any, time: Any) -> Any:
            y = self.block(self.norm(x).flatten(2).transpose(1, 2))
            return x + y.transpose(1, 2).reshape(x.shape)

    class Unet(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = (nn.Conv2d(*x, 3, padding=1) for x in ((4, width), (width, 4)))
            self.time1, self.time2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, 4 * width)
            sizes = [width, 2 * width, 4 * width]
            self.down = lib.List([self.stage(n, n, i > 0) for i, n in enumerate(sizes)])
            self.smaller = lib.List(
                [nn.Conv2d(n, 2 * n, 3, stride=2, padding=1) for n in sizes[:-1]]
            )
            self.middle = self.stage(4 * width, 4 * width, True)
            self.up = lib.List([self.stage(2 * n, n, i > 0) for i, n in enumerate(sizes)])
            self.larger = lib.List([nn.Conv2d(2 * n, n, 3, padding=1) for n in sizes[:-1]])
            self.norm = nn.GroupNorm(groups, width)

        @staticmethod
        def stage(channels: int, out: int, has_attention: bool) -> Any:
            attention = [Attention(out)] if has_attention else []
            return lib.List([Residual(channels, out), *attention, Residual(out, out)])

        def forward(self, x: Any, t: Any, y: Any) -> Any:
            time = self.time2(lib.silu(self.time1(t)))
            h, skips = self.first(x), []
            for number, stage in enumerate(self.down):
                h = self.smaller[number - 1](h) if number else h
                for layer in stage:
                    h = layer(h, time)
                skips.append(h)
            for layer in self.middle:
                h = layer(h, time)
            for number in reversed(range(3)):
                h = self.larger[number](lib.upsample(h)) if number < 2 else h
                h = lib.cat([h, skips[number]], 1)
                for layer in self.up[number]:
                    h = layer(h, time)
            return ((self.last(lib.silu(self.norm(h))) - y) ** 2).mean()

    return Unet()


def recurrent(lib: Library, dim: int, layers: int, words: int, length: int) -> Any:
    """A language model of LSTM layers."""
    nn = lib.nn

    class Recurrent(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm = nn.Embedding(words, dim), lib.lstm(dim, layers)
            self.head = nn.Linear(dim, words)

        def forward(self, x: Any, y: Any) -> Any:
            scores = self.head(self.lstm(self.words(x)))
            return lib.cross_entropy(scores.reshape(-1, words), y.reshape(-1))

    return Recurrent()


def ranking(lib: Library, words: int, dim: int, length: int, hidden: int) -> Any:
    """A perceptron over rows of a large table, of which a batch takes few."""
    nn = lib.nn

    class Ranking(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = lib.sparse_embedding(words, dim)
            self.layer1, self.layer2 = nn.Linear(length * dim, hidden), nn.Linear(hidden, hidden)
            self.head = nn.Linear(hidden, 2)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.layer1(self.table(x).flatten(1)).relu()
            return lib.cross_entropy(self.head(self.layer2(h).relu()), y)

    return Ranking()


RNG = numpy.random.default_rng(7)


def text(batch: int, words: int, length: int, **_: int) -> Batch:
    """Random words, and for each the next one."""
    x, y = RNG.integers(words, size=(2, batch, length))
    return {"x": x, "y": y}


def rows(batch: int, words: int, length: int, **_: int) -> Batch:
    """Random rows of a table, and classes."""
    return {"x": RNG.integers(words, size=(batch, length)), "y": RNG.integers(2, size=batch)}


def images(batch: int, size: int, classes: int, **_: int) -> Batch:
    """Random images, and classes."""
    x = RNG.standard_normal((batch, 3, size, size)).astype(numpy.float32)
    return {"x": x, "y": RNG.integers(classes, size=batch)}


def noise(batch: int, width: int, size: int, **_: int) -> Batch:
    """Noisy latents, features of their times, and the noise."""
    x, y = RNG.standard_normal((2, batch, 4, size, size)).astype(numpy.float32)
    steps = RNG.uniform(0, 1000, (batch, 1))
    angles = steps * numpy.exp(-math.log(10000) * numpy.arange(width // 2) / (width // 2))
    t = numpy.concatenate([numpy.cos(angles), numpy.sin(angles)], 1).astype(numpy.float32)
    return {"x": x, "t": t, "y": y}


def _made(make: Callable[..., Any], **fixed: bool) -> Callable[..., Any]:
    return lambda lib, batch, **sizes: make(lib, **sizes, **fixed)


MODELS = {
    "GPT-2 124M, 4 x 256": Model(
        _made(language_model, causal=True),
        text,
        {"batch": 4, "dim": 768, "layers": 12, "heads": 12, "words": 50257, "length": 256},
        {"batch": 2, "dim": 16, "layers": 1, "heads": 2, "words": 20, "length": 8},
    ),
    "BERT-base, 8 x 128": Model(
        _made(language_model, causal=False),
        text,
        {"batch": 8, "dim": 768, "layers": 12, "heads": 12, "words": 30522, "length": 128},
        {"batch": 2, "dim": 16, "layers": 1, "heads": 2, "words": 20, "length": 8},
    ),
    "ViT-S/16, 16 x 224": Model(
        _made(vision_transformer),
        images,
        {"batch": 16, "dim": 384, "layers": 12, "heads": 6, "size": 224, "patch": 16}
        | {"classes": 1000},
        {"batch": 2, "dim": 16, "layers": 1, "heads": 2, "size": 8, "patch": 4, "classes": 5},
    ),
    "ResNet-50, 16 x 224": Model(
        _made(resnet),
        images,
        {"batch": 16, "width": 64, "deepest": 6, "classes": 1000, "size": 224},
        {"batch": 8, "width": 4, "deepest": 1, "classes": 5, "size": 64},
        "momentum",
    ),
    "UNet of diffusion, 2 x 4 x 64 x 64": Model(
        _made(unet),
        noise,
        {"batch": 2, "width": 128, "groups": 32, "heads": 8, "size": 64},
        {"batch": 1, "width": 8, "groups": 4, "heads": 2, "size": 8},
    ),
    "LSTM 2 x 650, 20 x 35": Model(
        _made(recurrent),
        text,
        {"batch": 20, "dim": 650, "layers": 2, "words": 10000, "length": 35},
        {"batch": 2, "dim": 8, "layers": 1, "words": 20, "length": 3},
        "SGD",
    ),
    "MLP on an embedding of 1M x 64": Model(
        _made(ranking),
        rows,
        {"batch": 1024, "words": 1_000_000, "dim": 64, "length": 8, "hidden": 512},
        {"batch": 2, "words": 50, "dim": 4, "length": 2, "hidden": 8},
        "SGD",
    ),
}
