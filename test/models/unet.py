"""U-Net (https://arxiv.org/abs/1505.04597), with padded convolutions and few channels."""

from __future__ import annotations

from itertools import pairwise

from tinygrad import Tensor, nn


class DoubleConv:
    def __init__(self, channels: int, out: int) -> None:
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)

    def __call__(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x).relu()).relu()


class Unet:
    """Images (batch, channels, size, size) to scores of each pixel (batch, classes, size, size)."""

    def __init__(self, channels: int = 1, classes: int = 2, width: int = 4, depth: int = 2) -> None:
        sizes = [width << i for i in range(depth + 1)]
        self.down = [DoubleConv(a, b) for a, b in zip([channels, *sizes], sizes)]
        self.up = [nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairwise(sizes)]
        self.merge = [DoubleConv(2 * size, size) for size in sizes[:-1]]
        self.head = nn.Conv2d(width, classes, 1)

    def __call__(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for block in self.down:
            x = block(x.max_pool2d() if skips else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up[::-1], self.merge[::-1]):
            x = merge(skips.pop().cat(up(x), dim=1))
        return self.head(x)
